// What a training program makes a second time on the way back.

#include "catch.hpp"
#include "dat/program.hpp"
#include "device.hpp"
#include "network/operations.hpp"
#include "random_values.hpp"

using namespace dat;
using namespace dat::test;

namespace {

/// Residual blocks whose sums are made by batch norms, one after the other: each result is made of the one before.
/// At the end a sum that two batch norms read, an activation of it, and a batch norm whose result has three readers.
Graph chained(const NetworkOptions& options) {
  NetworkBuilder net(options);
  net.begin_block("all");
  net.begin_module("all");
  int x = net.activation(net.batch_norm("bn0", net.convolution("conv0", net.input(), 16, 3, 1)));
  for (const std::string k : {"1", "2", "3", "4", "5"}) {
    const int y = net.convolution("conv" + k, x, 16, 3, 1);
    x = net.activation(net.add(net.batch_norm("bn" + k, y), x));
  }
  const int three = net.batch_norm("bn6", net.convolution("conv6", x, 16, 1, 1));
  const int sum = net.add(net.convolution("conv7", net.activation(three), 16, 3, 1), three);
  const int both = net.add(net.batch_norm("bn8", sum), net.convolution("conv8", three, 16, 3, 1));
  const int last = net.activation(net.batch_norm("bn9", net.add(net.activation(sum), both)));
  net.linear("linear", net.pool(net.convolution("conv9", last, 32, 3, 2)), 10);
  return net.finish();
}

[[nodiscard]] Graph graph_of(const std::string& name, int size) {
  NetworkOptions options{.width = 16, .size = size, .channels = 3, .classes = 10};
  if (contains(name, ", silu")) options.activation = Activation::silu;
  if (contains(name, ", normalized")) options.normalization = {{0.5F, 0.25F, 0.7F}, {0.2F, 0.4F, 0.3F}};
  const std::string network = name.substr(0, name.find(','));
  return network == "chained" ? chained(options) : networks().at(network)(options);
}

/// A program that keeps results and one that makes them again: whether all that they make has the same bits, for some
/// sets of layers, and what part of the memory the second one takes.
[[nodiscard]] double part_of_memory(const std::string& name, DType storage) {
  constexpr int kSamples = 3, kSize = 13;
  const auto backend = test_backend();
  Model model(*backend, graph_of(name, kSize), Granularity::tensor);
  model.initialize(1);
  TrainingProgram kept(model, kSamples, nullptr, storage), again(model, kSamples, nullptr, storage, nullptr, true);
  backend->commit_workspace();
  const std::int64_t pixels = kSamples * backend->image_layout(3, kSize, kSize).elements();
  const float* x = to_device(*backend, random_values(pixels, 12, 0, 1));
  float* dx = backend->allocate_floats(pixels, "test");
  const auto direction = random_values(std::int64_t{kSamples} * 10, 3);
  const std::int64_t parameters = model.parameters.size;
  const std::vector<float> nothing(static_cast<std::size_t>(parameters), 0.0F);

  struct Result {
    std::vector<float> logits, gradients, dx;
    std::vector<int> ready;
    bool operator==(const Result&) const = default;
  };
  const auto pass = [&](TrainingProgram& program, const ActiveSet& active, bool input) {
    Result result;
    const std::function<void(int)> ready = [&](int segment) { result.ready.push_back(segment); };
    backend->copy_to_device(model.parameters.gradients, nothing.data(), nothing.size() * sizeof(float));
    program.forward(x);
    backend->copy_to_device(program.dlogits(), direction.data(), direction.size() * sizeof(float));
    program.backward(
        x,
        {.weights = &active, .gradients = model.parameters.gradients, .input = input ? dx : nullptr, .ready = &ready});
    result.logits = to_host(*backend, program.logits(), std::ssize(direction));
    result.gradients = to_host(*backend, model.parameters.gradients, parameters);
    if (input) result.dx = to_host(*backend, dx, pixels);
    return result;
  };
  for (std::uint32_t draw = 0; draw < 4; ++draw) {
    const ActiveSet active = random_active(model.parameters.layers(), draw, static_cast<float>(draw) / 3);
    const Result expected = pass(kept, active, draw % 2 == 0);
    INFO(name << ", draw " << draw);
    CHECK((pass(again, active, draw % 2 == 0) == expected));
    REQUIRE(std::ranges::all_of(expected.gradients, [](float g) { return std::isfinite(g); }));
  }
  return double(again.workspace_bytes()) / double(kept.workspace_bytes());
}

}  // namespace

TEST_CASE("What is made again on the way back has the bits of what was kept, and takes less memory", "[network]") {
  for (const char* name : {"chained", "chained, silu", "resnet18", "resnet18, silu", "preact_resnet50",
                           "imagenet_resnet50", "wrn_16_4, silu, normalized", "small_cnn"}) {
    INFO(name);
    CHECK(part_of_memory(name, DType::f32) < (std::string(name) == "small_cnn" ? 1.0 : 0.8));
  }
}

TEST_CASE("A SiLU that keeps its slope leaves the memory of its result to others", "[network]") {
  const auto backend = test_backend();
  NetworkBuilder net({.width = 16, .size = 8, .activation = Activation::silu});
  const int act = net.activation(net.convolution("conv", net.input(), 16, 3, 1));
  net.linear("linear", net.pool(net.max_pool(act, 3, 2)), 10);
  Model model(*backend, net.finish(), Granularity::tensor);
  // x, the slope and the result; then the slope and gradients of x and of a quarter of that, each with a byte.
  constexpr std::size_t kArray = 3 * 16 * 8 * 8 * sizeof(float);
  CHECK(TrainingProgram(model, 3).workspace_bytes() < 3 * kArray + kArray / 4);
}

TEST_CASE("Results of batch norms are made again, and of activations of these; gradients pass through in place",
          "[network]") {
  const auto backend = test_backend();
  const Activation activation = GENERATE(Activation::relu, Activation::silu);
  NetworkBuilder net({.width = 16, .size = 8, .activation = activation});
  const int norm = net.batch_norm("bn", net.convolution("conv1", net.input(), 16, 3, 1)), act = net.activation(norm);
  const int plain = net.activation(net.convolution("conv2", act, 16, 3, 1));  // of what is kept: so is a ReLU
  net.linear("linear", net.pool(net.add(plain, norm)), 10);
  Model model(*backend, net.finish(), Granularity::tensor);
  Model still(*backend, model.graph, Granularity::tensor, {.segments = 3, .always = true});  // up to the norm
  const bool again = GENERATE(false, true), owned = GENERATE(false, true);
  const auto values = random_values(48, 1);
  TrainingLowering::Arrays arrays{};
  arrays.norm_gradients = to_device(*backend, values);
  Planner planner;
  TrainingLowering lowering(model, model.graph, 2, planner, DType::f32, arrays, again);
  TrainingLowering other(model, model.graph, 2, planner, DType::f32, arrays, again);
  CHECK((other.border == 0 && arrays.unscale() == nullptr && other.next_node() == 1 && !other.leave({}, norm) &&
         other.leave({}, 1)));
  CHECK(TrainingLowering(still, still.graph, 2, planner, DType::f32, arrays, again).border == 4);  // conv2
  std::vector<std::unique_ptr<TrainingOperation>> all;
  backend->plan_weights();
  for (int node = lowering.next_node(); node != -1; node = lowering.next_node())
    all.push_back(operations_of(lowering.node(node).op).training(lowering, node));
  for (const auto& one : all)
    CHECK(lowering.dropped(one->result()) == (again && (one->result() == norm || one->result() == act ||
                                                        (one->result() == plain && activation == Activation::silu))));
  CHECK(lowering.drop(*all.back(), {}) == again);
  std::size_t chain = 0;  // of results of which each is made of the one before: four are dropped
  for (int value = -1; other.drop(*all.at(chain), {value}); ++chain) value = all[chain]->result();
  CHECK(chain == (again ? 4U : 0U));
  lowering.next_instruction();
  const int part = lowering.fresh(1);
  lowering.contribute(act, part, owned);
  for (const int value : {act, norm}) all[static_cast<std::size_t>(value - 1)]->plan_backward(lowering);
  CHECK((lowering.arriving(all.front()->result()).buffer == part) == owned);
  for (const int value : {4, 5}) {  // a second part, which is owned in one of them
    const int more = lowering.fresh(1);
    lowering.contribute(value, part, owned);
    lowering.contribute(value, more, value == 4);
    const TrainingLowering::Gradient sum = lowering.arriving(value);
    CHECK((sum.owned && (sum.buffer == part) == owned && (sum.buffer == more) == (!owned && value == 4)));
  }
  all[1]->backward({});  // nothing is wanted: the workspace is not there
  float* const to = to_device(*backend, std::vector<float>(48, -7.0F));
  all[1]->backward_weights({.dw = to, .dbias = to + 16});  // side by side: one launch
  const auto found = to_host(*backend, to, 48);
  CHECK((std::equal(found.begin(), found.begin() + 32, values.begin()) && found[32] == -7));
}

TEST_CASE("What is made again has the same bits in every storage", "[network][backend]") {
  const auto backend = test_backend();
  for (const DType storage : {DType::f32, DType::f16, DType::bf16})
    if (backend->refuses(storage).empty())
      for (const char* name : {"chained", "chained, silu"}) CHECK(part_of_memory(name, storage) < 0.8);
}
