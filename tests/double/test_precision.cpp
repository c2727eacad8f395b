// Training in 16 bits, and the batch norms of both makers.

#include "catch.hpp"
// Catch before the names of the device.
#include <cuda_runtime_api.h>

#include "backend/cuda/backend.hpp"
#include "backend/cuda/norm_plan.hpp"
#include "convolution.hpp"
#include "dat/attack.hpp"
#include "dat/program.hpp"
#include "definitions.hpp"
#include "device.hpp"
#include "environment.hpp"
#include "random_values.hpp"
#include "replica/replica.hpp"
#include "small_network.hpp"

using namespace dat;
using namespace dat::test;

namespace {

[[nodiscard]] std::unique_ptr<Backend> gpu(bool deterministic = true) {
  return make_backend({.device = "cuda", .threads = 2, .math = "f32", .deterministic = deterministic});
}

template <class T>
[[nodiscard]] std::vector<T> stored(const std::vector<float>& values) {
  std::vector<T> all;
  for (const float v : values) all.push_back(Stored<T>::from(v));
  return all;
}
template <class T>
[[nodiscard]] std::vector<double> exact(const std::vector<T>& values) {
  std::vector<double> all;
  for (const T v : values) all.push_back(double(to_float(v)));
  return all;
}

/// A batch norm on random numbers, in NHWC.
template <class T>
struct NormCase {
  BatchNormSpec spec;
  int rows = spec.n * spec.h * spec.w;
  std::int64_t count = std::int64_t{rows} * spec.c;
  std::vector<T> x = stored<T>(random_values(count, 1, 2, 5)), dy = stored<T>(random_values(count, 2)),
                 residual = stored<T>(random_values(count, 3)), addend = stored<T>(random_values(count, 4));
  std::vector<T> a = stored<T>(random_values(count, 7, 1, 3)), b = stored<T>(random_values(count, 8, 1, 2));
  std::vector<float> gamma = random_values(spec.c, 5, 0.5F, 1.5F), beta = random_values(spec.c, 6);

  explicit NormCase(const BatchNormSpec& of) : spec(of) {
    for (std::size_t i = 0; spec.of_sum && i < x.size(); ++i) x[i] = Stored<T>::from(to_float(a[i]) + to_float(b[i]));
  }
  [[nodiscard]] NormReference expected() const {
    const auto added = exact(residual);
    return {spec, exact(x), exact(dy), spec.residual ? &added : nullptr, gamma, beta};
  }
};

/// The largest difference, and what a stored number of that size may be off by: its rounding, and sums in f32.
template <class T>
void check_close(const char* what, const std::vector<T>& values, const std::vector<double>& expected, double sums) {
  INFO(what);
  const double unit = sizeof(T) == 4 ? 0 : Stored<T>::type == DType::f16 ? 0x1p-11 : 0x1p-8;
  REQUIRE(values.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    worst = worse(worst, std::abs(double(to_float(values[i])) - expected[i]) - unit * std::abs(expected[i]));
  CHECK(worst <= sums);
}

/// Every form of a call by this plan.
template <class T>
void check_norm(cuda::CudaBackend& backend, const cuda::NormPlan& plan, const BatchNormSpec& spec) {
  INFO(plan.name() << ", " << storage_name(spec.storage) << ", " << spec.c << " channels, " << spec.n << " of "
                   << spec.h << (spec.of_sum ? ", of a sum" : "") << (spec.residual ? ", adding" : "")
                   << (spec.relu ? ", ReLU" : ""));
  CHECK(plan.reads_result() == contains(plan.name(), "fused"));
  const NormCase<T> of(spec);
  const NormReference expected = of.expected();
  const auto floats = [&](std::int64_t count) { return backend.allocate_floats(count, "test"); };
  const auto bytes = [&](std::size_t count) { return backend.allocate(count, "test"); };
  const std::vector<T> noise(static_cast<std::size_t>(of.count), Stored<T>::from(7));
  float *dgamma = floats(spec.c), *dbeta = floats(spec.c), *factor = to_device(backend, std::vector<float>{0.25F});
  T *y = to_device(backend, noise), *dx = to_device(backend, noise), *dresidual = to_device(backend, noise);
  cuda::NormOperands o;
  T* const x = to_device(backend, spec.of_sum ? noise : of.x);
  o.x = x;
  if (spec.of_sum) o.sum = {to_device(backend, of.a), to_device(backend, of.b), x};
  if (spec.residual) o.residual = to_device(backend, of.residual);
  o.y = y;
  o.channels.gamma = to_device(backend, of.gamma);
  o.channels.beta = to_device(backend, of.beta);
  o.channels.mean = floats(spec.c);
  o.channels.variance = floats(spec.c);
  o.channels.scale = floats(spec.c);
  o.channels.slope = floats(spec.c);
  o.channels.constant = floats(spec.c);
  o.channels.epsilon = spec.epsilon;
  if (spec.relu) o.bits = static_cast<std::uint16_t*>(bytes(2 * static_cast<std::size_t>(kernels::groups(of.count))));
  o.reserve = bytes(plan.reserve_bytes());
  o.counters = static_cast<std::uint32_t*>(bytes(4 * static_cast<std::size_t>(spec.c)));
  o.scratch = bytes(plan.scratch_bytes());
  // Sums of so many numbers of at most 5, each rounded a few times; 1/deviation is about 1.15.
  const double sums = 40.0 * of.rows * 0x1p-24;
  const auto host = [&](const T* from) { return to_host(backend, from, of.count); };
  const auto channels = [&](const float* from) { return to_host(backend, from, spec.c); };
  const auto times = [](double f, std::vector<double> values) {
    for (double& v : values) v *= f;
    return values;
  };

  REQUIRE(plan.forward(o) == CUDNN_STATUS_SUCCESS);
  // An addition that is not fused takes what has been stored: a second rounding, of a number of at most 4.
  const bool stored_before = plan.name() != "own" && spec.residual && !spec.relu && sizeof(T) == 2;
  CHECK(exact(host(x)) == exact(of.x));
  check_close("y", host(y), expected.y, sums + (stored_before ? 0x1p-9 : 0));
  check_close("mean", channels(o.channels.mean), expected.mean, sums);
  check_close("variance", channels(o.channels.variance), expected.variance, 5 * sums);
  o.dy = to_device(backend, of.dy);
  const auto backward = [&](const BatchNorm::Gradients& to) {
    o.gradients = to;
    REQUIRE(plan.backward(o) == CUDNN_STATUS_SUCCESS);
  };
  const bool adds = spec.residual;
  backward({.dx = dx, .dresidual = adds ? dresidual : nullptr, .dgamma = dgamma, .dbeta = dbeta});
  check_close("dx", host(dx), expected.dx, sums);
  if (adds) check_close("dresidual", host(dresidual), expected.d, 0);
  check_close("dgamma", channels(dgamma), expected.dgamma, of.rows * sums);
  check_close("dbeta", channels(dbeta), expected.dbeta, of.rows * sums);
  // Added to what is there, by a factor on the device; with the part of another reader; of one parameter alone.
  backward({.dx = dx,
            .addend = to_device(backend, of.addend),
            .dgamma = dgamma,
            .dbeta = dbeta,
            .accumulate = true,
            .factor = factor});
  check_close("dgamma and a quarter", channels(dgamma), times(1.25, expected.dgamma), 2 * of.rows * sums);
  check_close("dbeta and a quarter", channels(dbeta), times(1.25, expected.dbeta), 2 * of.rows * sums);
  std::vector<double> total = expected.dx;
  const auto addend = exact(of.addend);
  for (std::size_t i = 0; i < total.size(); ++i) total[i] += addend[i];
  // cuDNN's part is stored before it is added: a second rounding, of a number of at most 4.
  check_close("dx and a part", host(dx), total, sums + (spec.storage == DType::bf16 ? 0x1p-6 : 0x1p-9));
  backward({.dx = dx, .dbeta = dbeta, .accumulate = true});
  check_close("dbeta twice and a quarter", channels(dbeta), times(2.25, expected.dbeta), 3 * of.rows * sums);
  check_close("dgamma as before", channels(dgamma), times(1.25, expected.dgamma), 2 * of.rows * sums);
  // In place.
  T* const there = to_device(backend, of.dy);
  o.dy = there;
  backward(adds ? BatchNorm::Gradients{.dx = dx, .dresidual = there} : BatchNorm::Gradients{.dx = there});
  check_close("dx in place", host(adds ? dx : there), expected.dx, sums);
  if (adds) check_close("dresidual in place", host(there), expected.d, 0);
}

}  // namespace

TEST_CASE("Batch norms of ours and of cuDNN are the definition, in every storage and every form", "[double]") {
  const auto owner = gpu(false);
  auto& backend = dynamic_cast<cuda::CudaBackend&>(*owner);
  for (const DType storage : {DType::f32, DType::f16, DType::bf16})
    for (const auto& [residual, relu] : {std::pair{false, false}, {false, true}, {true, true}, {true, false}})
      for (const auto& [n, c, size] : {std::tuple{2, 24, 9}, std::tuple{3, 160, 2}, std::tuple{40, 8, 8}}) {
        const BatchNormSpec spec{.n = n,
                                 .c = c,
                                 .h = size,
                                 .w = size,
                                 .of_sum = relu,
                                 .residual = residual,
                                 .relu = relu,
                                 .storage = storage};
        const auto own = cuda::own_norm_plan(backend, spec), library = cuda::cudnn_norm_plan(backend, spec);
        CHECK((library != nullptr) == (storage != DType::bf16));
        CHECK(own->scratch_bytes() == ChannelRoom::kParts * 2 * static_cast<std::size_t>(c) * sizeof(float));
        CHECK((library == nullptr || library->reads_result() == (relu && storage == DType::f16)));
        with_storage(storage, [&](auto type) {
          using T = decltype(type);
          check_norm<T>(backend, *own, spec);
          if (library != nullptr) check_norm<T>(backend, *library, spec);
        });
      }
  // So many rows that their sums fill more than a part of the room.
  const BatchNormSpec tall{.n = 40, .c = 8, .h = 16, .w = 16};
  check_norm<float>(backend, *cuda::own_norm_plan(backend, tall), tall);
  // Both are tried, and both found right.
  const BatchNormSpec tried{.n = 2, .c = 16, .h = 4, .w = 4, .relu = true, .storage = DType::f16};
  const auto norm = backend.batch_norm(tried);
  std::vector<std::string> names;
  for (const Trial& trial : backend.trials()) {
    CHECK(trial.refused.empty());
    names.push_back(trial.name);
  }
  CHECK(names == std::vector<std::string>{"own", "cuDNN persistent fused"});
}

TEST_CASE("A training program in 16 bits follows the one in 32, whatever the scale, and adds up in f32", "[double]") {
  // By day one network in each of them.
  const DType storage = GENERATE(DType::f16, DType::bf16);
  const std::string network =
      GENERATE(from_range(drawn<std::string>({"resnet18", "preact_resnet18", "wrn_16_4", "dm_wrn_10_2"}, 1)));
  INFO(network << " " << storage_name(storage));
  const auto backend = gpu();
  constexpr int kN = 4, kSize = 16, kPixels = kN * 3 * kSize * kSize;
  const NetworkOptions options{.width = 8,
                               .size = kSize,
                               .channels = 3,
                               .classes = 10,
                               .activation = activation_from(network.find("wrn") < network.size() ? "silu" : "relu")};
  const Graph graph = networks().at(network)(options);
  Model model(*backend, graph, Granularity::tensor, {.segments = graph.nodes.back().weight});
  model.freeze(false);
  float* const scale = to_device(*backend, std::vector<float>{1, 1});
  TrainingProgram exact_one(model, kN), program(model, kN, nullptr, storage, scale);
  model.initialize(1);
  backend->commit_workspace();
  const float* const x = to_device(*backend, random_values(kPixels, 1, 0, 1));
  float* const dx = backend->allocate_floats(kPixels, "test");
  float* const gradients = backend->allocate_floats(model.parameters.size, "test");
  ActiveSet all = ActiveSet::all(model.parameters.layers());
  struct Result {
    std::vector<float> logits, statistics, gradients, dx;
  };
  const auto pass = [&](TrainingProgram& p, bool accumulate = false) {
    p.forward(x);
    const auto direction = random_values(kN * 10, 3);
    backend->copy_to_device(p.dlogits(), direction.data(), direction.size() * sizeof(float));
    p.backward(x, {.weights = &all, .gradients = gradients, .accumulate = accumulate, .input = dx});
    return Result{to_host(*backend, p.logits(), kN * 10), to_host(*backend, p.statistics(), 2 * model.graph.statistics),
                  to_host(*backend, gradients, model.parameters.size), to_host(*backend, dx, kPixels)};
  };
  const Result reference = pass(exact_one), result = pass(program);
  // As of the frozen program (tests/unit/network): some 40 roundings of a layer's numbers on the way forth. Gradients
  // turn by what ReLUs at the edge open or close, the root of 17 * 2 * atan(sqrt(40) units)/pi.
  const double unit = storage == DType::f16 ? 0x1p-11 : 0x1p-8, few = 4 * std::sqrt(40.0) * unit;
  const double turned = 1.5 * std::sqrt(17 * 2 * std::atan(std::sqrt(40.0) * unit) / std::acos(-1.0));
  CHECK(relative_l2(result.logits, reference.logits) <= few);
  CHECK(relative_l2(result.statistics, reference.statistics) <= few);
  CHECK(relative_l2(result.gradients, reference.gradients) <= turned);
  CHECK(relative_l2(result.dx, reference.dx) <= turned);
  CHECK(result.logits != reference.logits);  // it does compute in 16 bits

  // A scale keeps small gradients; it is a power of two, so that others have nearly the same bits.
  const float both[] = {1024, 1 / 1024.0F};
  backend->copy_to_device(scale, both, sizeof both);
  const Result scaled = pass(program);
  CHECK(scaled.logits == result.logits);
  CHECK(relative_l2(scaled.gradients, result.gradients) <= few);
  CHECK(relative_l2(scaled.dx, result.dx) <= few);
  // What is added up is what one pass gives, twice: sums are f32.
  const Result twice = pass(program, true);
  for (std::size_t i = 0; i < twice.gradients.size(); ++i)
    if (twice.gradients[i] != 2 * scaled.gradients[i]) {
      CHECK(twice.gradients[i] == 2 * scaled.gradients[i]);
      break;
    }

  // Batch norms stand still.
  model.freeze(true);
  for (int k = 0; k < model.frozen; ++k) all.scale[static_cast<std::size_t>(k)] = 0;
  const Result exact_still = pass(exact_one), still = pass(program);
  CHECK(relative_l2(still.logits, exact_still.logits) <= few);
  CHECK(relative_l2(still.dx, exact_still.dx) <= turned);
  CHECK(relative_l2(still.dx, scaled.dx) > 0.1);
}

TEST_CASE("A GPU without bf16 refuses to train in it, and offers f16", "[double]") {
  for (const char* capability : {"7.0", "6.0"}) {
    Environment as("DAT_DOUBLE_CAPABILITY", capability);
    as.set("DAT_DOUBLE_CUDNN", "91002");
    const auto backend = gpu();
    Model model(*backend, networks().at("preact_resnet18")({.width = 8, .size = 8, .channels = 3, .classes = 10}),
                Granularity::tensor);
    CHECK_THROWS_WITH(TrainingProgram(model, 2, nullptr, DType::bf16),
                      Catch::Matchers::Contains("does not compute in bf16; use f16"));
    const TrainingProgram program(model, 2, nullptr, DType::f16);
    int weight_gradients = 0, right = 0, by_tensor_cores = 0;
    for (const Trial& trial : backend->trials())
      if (trial.pass == "weight gradient" && trial.convolution.ends_with("f16")) {
        ++weight_gradients;
        right += trial.refused.empty() ? 1 : 0;
        by_tensor_cores += contains(trial.name, "tensor") ? 1 : 0;
      }
    CHECK((by_tensor_cores > 0) == (std::string(capability) == "7.0"));
    CHECK(right > 0);
    CHECK(weight_gradients > right);
  }
}

TEST_CASE("A network that is attacked in 16 bits is evaluated in f32, on all copies of each image", "[double]") {
  for (const DType storage : {DType::f32, DType::f16}) {
    Replica replica({.backend = {.device = "cuda", .threads = 2, .math = "f32", .deterministic = true},
                     .network = "small_cnn",
                     .width = 16,
                     .images = {.size = 12, .channels = 3, .classes = 10, .class_names = {}},
                     .micro_batch = 3,
                     .attack_storage = storage,
                     .training_batches = {},
                     .noise = 0.1,
                     .noise_samples = 4});
    replica.commit();
    replica.model().initialize(1);
    CHECK((&replica.evaluated() == &replica.attacked()) == (storage == DType::f32));
    replica.images().load(host_batch({0, 1, 2}, replica.images().layout.elements()), 0, nullptr);
    replica.evaluated().prepare(1, Purpose::attack_start, 0);
    attacks().at("pgd")({.eps = 0.1, .alpha = 0.03, .steps = 2})->perturb(replica.evaluated());
  }
}
