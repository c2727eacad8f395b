// The plans of cuDNN's graph API, on its double.

#include "catch.hpp"
// Catch before the names of the device.
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "backend/cuda/backend.hpp"
#include "backend/cuda/graph.hpp"
#include "backend/cuda/pass_plan.hpp"
#include "backend/cuda/trials.hpp"
#include "dat/program.hpp"
#include "definitions.hpp"
#include "double.hpp"
#include "perturb.hpp"
#include "random_values.hpp"

using namespace dat;
using namespace dat::test;
using namespace std::chrono_literals;

namespace {

using cuda::Operands;
using cuda::Pass;
using cuda::PassPlan;
using cuda::PassSpec;

[[nodiscard]] std::unique_ptr<Backend> gpu(bool deterministic = false) {
  return make_backend({.device = "cuda", .threads = 2, .math = "f32", .deterministic = deterministic});
}

/// The switches of the double as they are at first, until the end of the scope.
struct Switches {
  Switches() { reset(); }
  ~Switches() { reset(); }
  Switches(const Switches&) = delete;
  Switches& operator=(const Switches&) = delete;
  dat_double::GraphSwitches* operator->() const { return &dat_double::graph_switches(); }

 private:
  static void reset() {
    auto& s = dat_double::graph_switches();
    s.refuse = s.unbuilt = s.wrong = s.open_zeros = false;
    s.device = 0us;
    s.most_at_once = 0;
    s.compile = 5ms;
    s.most_of_a = 6;
    s.asked_a = s.asked_b = s.built = 0;
    dat_double::clear_vices();
    unsetenv("DAT_DOUBLE_CAPABILITY");
    unsetenv("DAT_DOUBLE_CUDNN");
  }
};

/// Another GPU, until the switches are reset.
void machine(const char* capability) {
  setenv("DAT_DOUBLE_CAPABILITY", capability, 1);
  setenv("DAT_DOUBLE_CUDNN", "91002", 1);  // the last version for GPUs before Turing
}

const ConvSpec kFrozen{
    .n = 2, .c_in = 16, .h = 8, .w = 8, .c_out = 32, .frozen = true, .relu = true, .storage = DType::f16};

/// What a residual network asks for: a first convolution of images, one with a kept residual, strides, both gradients.
[[nodiscard]] std::vector<PassSpec> passes(DType storage) {
  ConvSpec plain = kFrozen, last, residual, strided, small, image, alone, shared;
  plain.storage = storage;
  last = residual = strided = small = image = alone = plain;
  last.relu = false;
  residual.accumulate = residual.keeps_residual = true;
  strided.stride = 2;
  small.kernel = 1;
  small.pad = 0;
  image.image = true;
  image.c_in = 3;
  alone.relu_input = true;
  shared = alone;
  shared.other_gradient = true;
  ConvSpec shared_strided = shared, shared_small = shared;
  shared_strided.stride = 2;
  shared_small.kernel = 1;
  shared_small.pad = 0;
  std::vector<PassSpec> all;
  for (const ConvSpec& s : {plain, last, residual, strided, small, image}) all.push_back({s, Pass::forward});
  for (const ConvSpec& s : {alone, shared, shared_strided, shared_small}) all.push_back({s, Pass::data, true});
  return all;
}

/// Multiples of 1/32 below 1: exact in f16 and in bf16, and so are products of two of them in double.
[[nodiscard]] std::vector<float> coarse(std::int64_t count, std::uint32_t seed) {
  auto values = random_values(count, seed);
  for (float& v : values) v = std::floor(v * 32) / 32;
  return values;
}
template <class T>
[[nodiscard]] T* stored(Backend& backend, const std::vector<float>& values) {
  std::vector<T> all;
  for (const float v : values) all.push_back(Stored<T>::from(v));
  return to_device(backend, all);
}

/// Operands of a pass, and what it must make of them, by the definition.
template <class T>
struct Case {
  Case(Backend& on, const PassSpec& of) : backend(on), spec(of) {
    const ConvSpec& s = spec.conv;
    const int c_in = spec.channels(), taps = s.kernel * s.kernel;
    x = coarse(spec.x_count(), 1);
    if (spec.through_relu)
      for (float& v : x) v = std::max(v, 0.0F);
    dy = coarse(spec.y_count(), 2);
    w = coarse(spec.w_count(), 3);
    bias = coarse(s.c_out, 4);
    other = coarse(spec.result_count(), 5);
    std::vector<float> rotated(w.size());
    for (int o = 0; o < s.c_out; ++o)
      for (int tap = 0; tap < taps; ++tap)
        for (int c = 0; c < c_in; ++c)
          rotated[at((c * taps + taps - 1 - tap) * s.c_out + o)] = w[at((o * taps + tap) * c_in + c)];
    const bool forward = spec.pass == Pass::forward;
    operands = {.x = stored<T>(backend, x),
                .dy = forward ? nullptr : stored<T>(backend, dy),
                .w = stored<T>(backend, w),
                .rounded_bias = forward ? stored<T>(backend, bias) : nullptr,
                .other = adds() ? stored<T>(backend, other) : nullptr,
                .result = backend.allocate(static_cast<std::size_t>(spec.result_count()) * sizeof(T), "test"),
                .bits = forward && s.relu ? to_device(backend, std::vector<std::uint16_t>(at(groups()))) : nullptr,
                .scratch = backend.allocate(1 << 16, "test")};
    rotated_w = stored<T>(backend, rotated);
    define();
  }
  [[nodiscard]] bool adds() const {
    return spec.pass == Pass::forward ? spec.conv.accumulate : spec.conv.other_gradient;
  }
  [[nodiscard]] static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] std::int64_t groups() const { return (spec.y_count() + 15) / 16; }
  [[nodiscard]] std::vector<std::uint16_t> open() const { return to_host(backend, operands.bits, groups()); }

  /// The largest distance of the plan's result from the definition, in units of the rounding of T.
  [[nodiscard]] double roundings(const PassPlan& plan) {
    Operands o = operands;
    if (plan.rotated_weights()) o.w = rotated_w;
    REQUIRE(plan.scratch_bytes() <= 1 << 16);
    REQUIRE(plan.run(o) == CUDNN_STATUS_SUCCESS);
    const auto result = to_host(backend, static_cast<const T*>(o.result), spec.result_count());
    double worst = 0;
    const auto bits = o.bits != nullptr ? open() : std::vector<std::uint16_t>();
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (!bits.empty() && (bits[i / 16] >> (i % 16) & 1) != (to_float(result[i]) > 0)) return 1e9;
      const double error = std::abs(double(to_float(result[i])) - expected[i]);
      // Half a unit of the last place: 2^-11 of the value in f16, 2^-8 in bf16.
      const double unit =
          (sizeof(T) == 2 && spec.conv.storage == DType::f16 ? 0x1p-11 : 0x1p-8) * std::abs(expected[i]);
      if (error != 0) worst = worse(worst, unit > 0 ? error / unit : 1e9 * error);
    }
    return worst;
  }

  Backend& backend;
  PassSpec spec;
  std::vector<float> x, dy, w, bias, other;
  Operands operands;
  const void* rotated_w = nullptr;
  std::vector<double> expected;

 private:
  void define() {
    const ConvSpec& s = spec.conv;
    const bool forward = spec.pass == Pass::forward;
    expected.assign(at(spec.result_count()), 0);
    ConvSpec padded = s;
    padded.c_in = spec.channels();
    for_each_term(padded, [&](std::size_t at_x, std::size_t at_w, std::size_t at_y) {
      const double weight = w[at_w];
      expected[forward ? at_y : at_x] += weight * double(forward ? x[at_x] : dy[at_y]);
    });
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (adds()) expected[i] += double(other[i]);
      if (forward) expected[i] += double(bias[i % at(s.c_out)]);
      if (forward ? s.relu && expected[i] < 0 : !(x[i] > 0)) expected[i] = 0;
    }
  }
};

/// Engine k of the double.
[[nodiscard]] bool is_engine(const std::string& name, int k) {
  return contains(name + " ", "engine " + std::to_string(k) + " ");
}
constexpr int kWrong = 1, kSlow = 2, kVaries = 3, kNothing = 4, kFallback = 70;

[[nodiscard]] std::vector<Trial> graph_trials(const Backend& backend) {
  auto all = backend.trials();
  std::erase_if(all, [](const Trial& t) { return !t.name.starts_with("graph"); });
  return all;
}

/// A residual network in f16, and images.
struct Network {
  explicit Network(bool deterministic = false, const std::string& name = "resnet18")
      : backend(gpu(deterministic)),
        model(*backend, networks().at(name)({.width = 8, .size = 8, .channels = 3, .classes = 10}),
              Granularity::tensor),
        count(kSamples * backend->image_layout(3, 8, 8).elements()) {
    model.initialize(1);
    program = std::make_unique<FrozenProgram>(model, kSamples, DType::f16);
    backend->commit_workspace();
    x = to_device(*backend, random_values(count, 12, 0, 1));
    dx = backend->allocate_floats(count, "test");
  }
  /// The gradient of the sum of the first sample's first logit and the second's second one.
  void run() {
    program->forward(x);
    std::vector<float> direction(kSamples * 10);
    direction[0] = direction[11] = 1024;
    backend->copy_to_device(program->dlogits(), direction.data(), direction.size() * sizeof(float));
    program->backward(dx);
  }
  [[nodiscard]] std::vector<float> gradient() {
    run();
    return to_host(*backend, dx, count);
  }
  [[nodiscard]] std::string line(const std::string& name) const {
    for (const std::string& one : program->implementations())
      if (one.starts_with(name + ":")) return one;
    return "";
  }

  static constexpr int kSamples = 2;
  std::unique_ptr<Backend> backend;
  Model model;
  std::int64_t count;
  std::unique_ptr<FrozenProgram> program;
  float *x = nullptr, *dx = nullptr;
};

/// With time for all of them.
[[nodiscard]] cuda::Plans plans_of(Backend& backend, const PassSpec& spec) {
  cuda::PlanningTime time(1e6);
  return cuda::graph_plans(dynamic_cast<cuda::CudaBackend&>(backend), spec, cuda::PlanningTime::Share(time));
}

}  // namespace

TEST_CASE("Every plan of the graph API computes the definition of its pass, rounded once", "[double]") {
  const Switches switches;
  const DType storage = GENERATE(DType::f16, DType::bf16);
  switches->most_of_a = GENERATE(6, 2);  // of both modes
  const auto backend = gpu();
  for (const PassSpec& spec : passes(storage)) {
    const auto offered = plans_of(*backend, spec);
    INFO(spec.convolution() << ", " << spec.pass_name());
    int right = 0;
    with_storage(storage, [&](auto type) {
      using T = decltype(type);
      if constexpr (sizeof(T) == 2) {
        Case<T> one(*backend, spec);
        for (const auto& plan : offered.plans) {
          INFO(plan->name());
          CHECK(plan->deterministic() != is_engine(plan->name(), kVaries));
          const double roundings = one.roundings(*plan);
          if (is_engine(plan->name(), kWrong))
            CHECK(roundings > 10);
          else if (!is_engine(plan->name(), kVaries))
            CHECK(roundings <= 1.001);  // the unit is that of the number before it is rounded
          right += roundings <= 1.001;
        }
      }
    });
    CHECK(right >= 1);
    // A gradient that is a convolution is offered as one, too.
    const bool rotated = std::ranges::any_of(offered.plans, [](const auto& plan) { return plan->rotated_weights(); });
    CHECK(rotated == (spec.pass == Pass::data && spec.conv.stride == 1));
  }
}

TEST_CASE("What the documentation says of a support surface is refused in its words, the rest is offered", "[double]") {
  const Switches switches;
  switches->most_of_a = 4;
  struct Expected {
    const char* capability;
    int stride;
    std::vector<std::pair<int, std::string>> refused;  // engine, why
    std::vector<int> offered;
  };
  const std::vector<Expected> all = {
      {"9.0", 1, {{80, "ConvolutionBwdData fusions"}, {kNothing, ""}}, {90, kSlow}},
      {"9.0", 2, {{90, "strided ConvolutionBwdData fusions"}, {80, "ConvolutionBwdData fusions"}}, {kSlow}},
      {"8.0", 1, {{90, "compute capability below 90"}}, {80, kSlow}},
      {"7.5", 1, {{90, "compute capability below 90"}, {80, "compute capability below 80"}}, {kSlow}}};
  for (const Expected& e : all) {
    machine(e.capability);
    const auto backend = gpu();
    ConvSpec conv = kFrozen;
    conv.relu_input = true;
    conv.stride = e.stride;
    const auto offered = plans_of(*backend, {conv, Pass::data, true});
    INFO("capability " << e.capability << ", stride " << e.stride);
    for (const auto& [engine, why] : e.refused)
      CHECK(std::ranges::any_of(offered.refused, [&, k = engine, &w = why](const auto& r) {
        return is_engine(r.name, k) && r.why == "cudnnBackendFinalize: CUDNN_STATUS_NOT_SUPPORTED" +
                                                    (w.empty() ? w : " (not supported: " + w + ")");
      }));
    for (const int engine : e.offered)
      CHECK(std::ranges::any_of(offered.plans, [&](const auto& plan) { return is_engine(plan->name(), engine); }));
    CHECK(std::ranges::none_of(offered.plans, [](const auto& plan) { return is_engine(plan->name(), kFallback); }));
  }
}

TEST_CASE("A plan hands on that the library refuses operands: a missing, a crooked, an overlapping one", "[double]") {
  const auto backend = gpu();
  const auto spec = passes(DType::f16)[0];
  const auto offered = plans_of(*backend, spec);
  REQUIRE(!offered.plans.empty());
  Case<Half> one(*backend, spec);
  Operands missing = one.operands, crooked = one.operands, overlapping = one.operands;
  missing.rounded_bias = nullptr;
  crooked.x = static_cast<const char*>(crooked.x) + 2;
  overlapping.result = const_cast<void*>(overlapping.x);
  for (const Operands& o : {missing, crooked, overlapping}) CHECK(offered.plans[0]->run(o) == CUDNN_STATUS_BAD_PARAM);
  CHECK(std::ranges::count(one.open(), 0) == one.groups());  // no mask of what is no result
  using Size = std::pair<std::size_t, std::size_t>;          // of a part of scratch memory, after which none is crooked
  for (const auto& [bytes, part] : {Size{0, 0}, Size{1, 256}, Size{256, 256}, Size{257, 512}})
    CHECK(cuda::aligned(bytes) == part);
}

TEST_CASE("Without an engine, or a right one, or a faster one, legacy calls compute, and the trials say why",
          "[double]") {
  const Switches switches;
  struct Reason {
    const char* name;
    std::function<void()> begin;
    std::string why;  // of every plan of the graph API; empty: none is refused for it
  };
  const std::vector<Reason> all = {{"no engine", [&] { switches->refuse = true; }, "refuse every graph"},
                                   {"an old GPU", [] { machine("6.0"); }, "compute capability below 70"},
                                   {"wrong numbers", [&] { switches->wrong = true; }, "wrong results"},
                                   {"slow", [&] { switches->device = 20ms; }, ""}};
  for (const Reason& reason : all) {
    reason.begin();
    INFO(reason.name);
    {
      ConvSpec conv = kFrozen;
      conv.relu_input = conv.other_gradient = true;
      const auto backend = gpu();
      const auto made = backend->conv2d(conv);
      CHECK(!contains(made->implementation(), "graph"));
      CHECK(!made->backward_relu_pays());
      const auto trials = graph_trials(*backend);
      REQUIRE(!trials.empty());
      CHECK((trials.size() == 2) == !contains(trials[0].name, "engine"));  // a word for all engines is said once a pass
      for (const std::string pass : {"forward", "input gradient through ReLU, adding"})
        CHECK(std::ranges::any_of(trials, [&](const Trial& t) {
          return t.pass == pass && (reason.why.empty() ? t.milliseconds >= 20 : contains(t.refused, reason.why));
        }));
      if (!reason.why.empty()) CHECK(std::ranges::all_of(trials, [](const Trial& t) { return !t.refused.empty(); }));
    }
    const Switches again;
  }
}

TEST_CASE("Of right engines the fastest is taken; a wrong or a slow one is not", "[double]") {
  const Switches switches;
  dat_double::slow_legacy(20ms);
  ConvSpec conv = kFrozen;
  conv.relu_input = true;
  const auto backend = gpu();
  const auto made = backend->conv2d(conv);
  const std::string chosen = made->implementation();
  INFO(chosen);
  CHECK(made->backward_relu_pays());
  CHECK(chosen.starts_with("graph engine "));
  CHECK(contains(chosen, "/ graph "));
  CHECK(!is_engine(chosen, kWrong));
  CHECK(!is_engine(chosen, kSlow));
  int wrong = 0;
  for (const Trial& t : graph_trials(*backend)) {
    INFO(t.pass << ": " << t.name);
    CHECK(contains(t.name, " engine "));
    if (is_engine(t.name, kWrong)) {
      CHECK(t.refused == "wrong results");
      ++wrong;
    } else if (is_engine(t.name, kSlow)) {
      CHECK(t.milliseconds >= 10);
    }
  }
  CHECK(wrong == 3);  // forward, gradient, rotated gradient
  // What it was compared with stands beside it.
  const auto trials = backend->trials();
  CHECK(std::ranges::any_of(trials, [](const Trial& t) {
    return t.pass == "input gradient through ReLU" && contains(t.name, ", then a mask") && t.milliseconds >= 20;
  }));
  // An equal convolution is not tried again.
  CHECK(backend->conv2d(conv)->implementation() == chosen);
  CHECK(backend->trials().size() == trials.size());
  // One of a copy of x with a border does without the graph API on the way back.
  conv.extra_pad = 1;
  CHECK(!backend->conv2d(conv)->backward_relu_pays());
  // Engines that let gradients through where a ReLU has left a zero are wrong.
  conv.extra_pad = 0;
  dat_double::clear_vices();
  switches->open_zeros = true;
  const auto other = gpu();
  (void)other->conv2d(conv);
  for (const Trial& t : graph_trials(*other)) CHECK((t.pass == "forward" || !t.refused.empty()));
}

TEST_CASE("A name is that of an engine, which may have no knobs, or is refused before the library is asked",
          "[double]") {
  const cuda::graph::Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);  // refused by the library
  for (const std::string name :
       {"", "engine", "motor 90 2=1", "engine x", "engine 90 2", "engine 90 x=1", "engine 90 2=x", "engine 90 -1=1"})
    CHECK_THROWS_WITH(cuda::graph::Engine(graph, name), "'" + name + "' names no engine");
  CHECK_THROWS_WITH(cuda::graph::Engine(graph, "engine 90 0=-3"),
                    "cudnnBackendFinalize: CUDNN_STATUS_BAD_PARAM (the operation graph is not finalized)");
  const auto backend = gpu();
  CHECK(cuda::graph_plan(dynamic_cast<cuda::CudaBackend&>(*backend), {kFrozen, Pass::forward}, "graph engine 90"));
}

TEST_CASE("Plans are built by several threads, each with its own handle, and leave nothing behind", "[double]") {
  const Switches switches;
  {
    const auto backend = gpu();
    (void)backend->conv2d(kFrozen);
    if (std::thread::hardware_concurrency() > 1) CHECK(switches->most_at_once > 1);
    CHECK(switches->descriptors >= 0);
  }
  CHECK(switches->descriptors == 0);
}

TEST_CASE("Heuristics are asked once for a graph: mode A's best four, and mode B where fewer than three are built",
          "[double]") {
  for (const std::size_t of_a : {6, 3, 2, 0}) {  // of three, one cannot be built; mode B adds three at most
    const Switches switches;
    switches->most_of_a = of_a;
    const auto backend = gpu();
    (void)cuda::choose_plan(dynamic_cast<cuda::CudaBackend&>(*backend), {kFrozen, Pass::forward});
    INFO(of_a);
    CHECK(switches->asked_a == 1);
    CHECK(switches->asked_b == (of_a < 6 ? 1 : 0));
    CHECK(switches->built == (of_a == 3 ? 5 : of_a == 0 ? 3 : 4));
    const std::string last = of_a < 6 ? "graph engine 2 2=1" : "graph engine 80 2=2";
    CHECK(std::ranges::count(graph_trials(*backend), last, &Trial::name) == 1);
    CHECK(std::ranges::count(graph_trials(*backend), "cuDNN recommends no engine", &Trial::refused) == (of_a == 0));
  }
}

TEST_CASE("Engines are built until a pass has had its share of the time; one that is cut says so", "[double]") {
  const Switches switches;
  switches->compile = 700ms;
  const auto backend = make_backend({.device = "cuda", .threads = 1});
  cuda::PlanningTime time(24);  // for engines two thirds of it, of which the eighth part: time for three
  const auto offered = cuda::graph_plans(dynamic_cast<cuda::CudaBackend&>(*backend), {kFrozen, Pass::forward},
                                         cuda::PlanningTime::Share(time));
  CHECK(switches->built >= 1);
  CHECK(switches->built <= 3);
  CHECK(std::ranges::any_of(
      offered.refused, [](const auto& r) { return contains(r.why, "its share of DAT_PLANNING_SECONDS 24 is over"); }));
}

TEST_CASE("Deterministic runs and f32 do without the graph API", "[double]") {
  const Switches switches;
  ConvSpec conv = kFrozen;
  conv.relu_input = true;
  const auto fixed = gpu(true), free = gpu();
  CHECK(!fixed->conv2d(conv)->backward_relu_pays());
  CHECK(graph_trials(*fixed).empty());
  conv.storage = DType::f32;
  CHECK(!free->conv2d(conv)->backward_relu_pays());
  CHECK(graph_trials(*free).empty());
  // cuDNN does not say that a result may lie where an operand does: what is added to in its place is for legacy calls.
  ConvSpec adding = kFrozen;
  adding.accumulate = true;
  ConvSpec training = kFrozen;
  training.frozen = training.relu = false;
  training.storage = DType::bf16;
  const auto in_place = gpu();
  for (const ConvSpec& one : {adding, training}) (void)in_place->conv2d(one);
  for (const Trial& t : graph_trials(*in_place)) CHECK(t.pass != "forward");
}

TEST_CASE("The doctor builds one engine, and says whether the graph API is usable, and why not", "[double]") {
  const Switches switches;
  const std::string report = cuda_report(), version = cuda_version().substr(0, cuda_version().find(','));
  CHECK(contains(report, "MiB free: usable\ngraph API usable\n"));
  CHECK(report.starts_with("driver    for CUDA " + version + "\ntoolkit   CUDA " + version + ", runtime " + version +
                           "\n"));
  CHECK(contains(report, "\nGPU 0     CUDA double, compute capability 9.0, 16384 MiB, " +
                             std::to_string(gpu()->spare_memory() >> 20U) + " MiB free: usable\n"));
  CHECK(switches->built == 1);
  switches->unbuilt = true;
  CHECK(contains(cuda_report(), "graph API not usable: cudnnBackendFinalize: CUDNN_STATUS_NOT_SUPPORTED\n"));
  switches->refuse = true;
  CHECK(contains(cuda_report(), "MiB free: usable\ngraph API not usable: "));
  CHECK(contains(cuda_report(), "refuse every graph"));
}

TEST_CASE("A network's plans are chosen layer by layer, and its gradient is that of legacy calls", "[double]") {
  const Switches switches;
  const std::string name = GENERATE("resnet18", "preact_resnet18");
  if (name != "resnet18" && std::getenv("DAT_ALL_CASES") == nullptr) return;
  dat_double::slow_legacy(2ms);
  Network with(false, name);
  // The first reader of a block's input goes back through the ReLU that made it; the shortcut, its second, does not.
  CHECK(contains(with.line("layer1.0.conv2.weight"), "/ graph"));
  CHECK(contains(with.line("layer2.1.conv2.weight"), "/ graph"));
  if (name == "resnet18") {
    CHECK(contains(with.line("layer2.1.conv1.weight"), "/ graph"));
    // It adds in place to what conv2 left, and its gradient is not the last part of anything.
    CHECK(contains(with.line("layer2.0.shortcut.0.weight"), "IMPLICIT"));
    CHECK(!contains(with.line("layer2.0.shortcut.0.weight"), "graph"));
    CHECK(contains(with.line("layer2.1.conv2.weight"), ": graph"));  // adds a block's input that is kept
  }
  CHECK(with.program->gradient_scale() == 1024);  // that of run()
  const auto gradient = with.gradient(), logits = to_host(*with.backend, with.program->logits(), 20);
  switches->refuse = true;
  dat_double::clear_vices();
  Network without(false, name);
  CHECK(!contains(without.line("layer1.0.conv2.weight"), "graph"));
  const auto expected = without.gradient(), expected_logits = to_host(*without.backend, without.program->logits(), 20);
  // Each activation and each gradient is rounded to 11 bits after each of the 20 convolutions on the way there and
  // back, 2^-12 off on average; legacy calls round some of them twice. Errors that are as likely up as down add up as
  // the root of their number.
  CHECK(relative_l2(logits, expected_logits) <= std::sqrt(40.0) * 0x1p-11);
  CHECK(relative_l2(gradient, expected) <= std::sqrt(80.0) * 0x1p-11);
  CHECK(std::ranges::any_of(expected, [](float g) { return g != 0; }));
}

TEST_CASE("A step of an attack with the graph API is recorded, replayed, and allocates nothing", "[double]") {
  const Switches switches;
  dat_double::slow_legacy(2ms);
  Network net;
  const auto start = random_values(net.count, 4, -0.03F, 0.03F);
  float* eta = to_device(*net.backend, start);
  float* x_adv = net.backend->allocate_floats(net.count, "test");
  const auto step = [&] {
    net.program->forward(net.x);
    net.program->backward(net.dx, {net.x, eta, x_adv, 0.01F, 0.03F});
  };
  net.run();  // sets dlogits
  step();
  const auto once = to_host(*net.backend, eta, net.count);
  net.backend->copy_to_device(eta, start.data(), start.size() * sizeof(float));
  const auto recording = net.backend->record(step);
  const auto before = dat_double::counts();
  const long descriptors = switches->descriptors;
  recording->replay();
  step();
  CHECK(dat_double::counts().allocations == before.allocations);
  CHECK(dat_double::counts().synchronizations == before.synchronizations);
  CHECK(switches->descriptors == descriptors);
  net.backend->copy_to_device(eta, start.data(), start.size() * sizeof(float));
  recording->replay();
  CHECK(to_host(*net.backend, eta, net.count) == once);

  // The step that legacy calls make differs where a gradient lies within rounding of zero: 2^-11 of root(80) of its
  // size, of a bell curve of which two thirds lie within its size.
  switches->refuse = true;
  dat_double::clear_vices();
  Network legacy;
  float *other_eta = to_device(*legacy.backend, start), *other = legacy.backend->allocate_floats(legacy.count, "test");
  legacy.run();
  legacy.program->forward(legacy.x);
  legacy.program->backward(legacy.dx, {legacy.x, other_eta, other, 0.01F, 0.03F});
  const auto expected = to_host(*legacy.backend, other_eta, legacy.count);
  std::size_t different = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) different += expected[i] != once[i];
  INFO(different << " of " << expected.size());
  CHECK(different <= 4 + expected.size() / 100);
}
