// How the CUDA backend chooses among the plans of a pass: what trials must find, provoked on the double.

#include "catch.hpp"
// Catch before the names of the device.
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "backend/cuda/backend.hpp"
#include "backend/cuda/trial_clock.hpp"
#include "backend/cuda/trials.hpp"
#include "definitions.hpp"
#include "double.hpp"
#include "environment.hpp"
#include "measure/convolutions.hpp"
#include "random_values.hpp"

using namespace dat;
using namespace dat::test;
using dat_double::Call;

namespace {

using namespace std::chrono_literals;

constexpr int kPrecomputed = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
constexpr int kImplicit = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;

[[nodiscard]] std::unique_ptr<Backend> gpu(const std::string& math = "f32", bool deterministic = true) {
  return make_backend({.device = "cuda", .threads = 2, .math = math, .deterministic = deterministic});
}

/// Algorithms are what they were at the end of the scope, and so is the machine.
struct Bad {
  Bad() { dat_double::clear_vices(); }
  ~Bad() { dat_double::clear_vices(); }
  Bad(const Bad&) = delete;
  Bad& operator=(const Bad&) = delete;
  dat_double::Vices& operator()(Call call, int algorithm) const { return dat_double::vices(call, algorithm); }
};
struct Machine : Environment {
  Machine(const char* capability, const char* name) : Environment("DAT_DOUBLE_CAPABILITY", capability) {
    set("DAT_DOUBLE_NAME", name);
    set("DAT_DOUBLE_CUDNN", "91002");
  }
};

/// The trial of this pass and name.
[[nodiscard]] Trial trial(const Backend& backend, const std::string& pass, const std::string& name) {
  const auto all = backend.trials();
  const auto found = std::ranges::find_if(all, [&](const Trial& t) { return t.pass == pass && t.name == name; });
  INFO(pass << ", " << name);
  REQUIRE(found != all.end());
  return *found;
}

const ConvSpec kTraining{.n = 2, .c_in = 16, .h = 8, .w = 8, .c_out = 32};

[[nodiscard]] ConvSpec frozen(ConvSpec spec, DType storage = DType::f32) {
  spec.frozen = spec.relu = true;
  spec.storage = storage;
  return spec;
}

}  // namespace

TEST_CASE("Trials time the device: an algorithm whose call keeps the host is not the slower one for it", "[double]") {
  const Bad bad;
  bad(Call::forward, kPrecomputed).host = 6ms;
  bad(Call::forward, kImplicit).device = 3ms;
  double least = 1000;
  for (int attempt = 0; attempt < 5 && least >= 9; ++attempt) {  // a machine with other work may be late each time
    const auto backend = gpu("tf32", false);                     // in one layout
    CHECK(backend->conv2d(kTraining)->implementation().starts_with("IMPLICIT_PRECOMP_GEMM /"));
    CHECK(trial(*backend, "forward", "IMPLICIT_PRECOMP_GEMM").milliseconds < 3);
    CHECK(trial(*backend, "forward", "IMPLICIT_GEMM").milliseconds >= 3);
    least = std::min(least, trial(*backend, "forward", "IMPLICIT_GEMM").milliseconds);
  }
  CHECK(least < 9);  // of one call, the fastest of several
  const auto owner = gpu();
  auto& backend = dynamic_cast<cuda::CudaBackend&>(*owner);
  float* const x = backend.allocate_floats(4, "test");
  const auto call = [&] { each(backend.device(), 1, kernels::RandomFill<float>{x, 4, 1}); };
  CHECK(cuda::TrialClock(backend).time(*backend.capture(call), call, 1000) < 0.5);
}

TEST_CASE("A plan that takes twice as long as the best one is replayed once", "[double]") {
  const Bad bad;
  std::atomic<int> fast = 0, slow = 0;
  bad(Call::forward, kPrecomputed).runs = &fast;
  bad(Call::forward, kImplicit).device = 40ms;
  bad(Call::forward, kImplicit).runs = &slow;
  const auto backend = gpu("f32", false);
  (void)cuda::choose_plan(dynamic_cast<cuda::CudaBackend&>(*backend), {kTraining, cuda::Pass::forward});
  CHECK(trial(*backend, "forward", "IMPLICIT_GEMM").milliseconds >= 40);
  CHECK(slow == 2 * 2);  // in two layouts: checked, and one replay
  CHECK(fast > slow);
}

TEST_CASE("Without time for trials the first right plan is taken, and the others are refused with the reason",
          "[double]") {
  const Bad bad;
  bad(Call::forward, kPrecomputed).device = 3ms;  // the first one, and not the fastest
  const auto backend = make_backend({.device = "cuda", .threads = 2, .math = "tf32", .planning_seconds = 0});
  CHECK(backend->conv2d(kTraining)->implementation().starts_with("IMPLICIT_PRECOMP_GEMM /"));
  CHECK(trial(*backend, "forward", "IMPLICIT_GEMM").refused ==
        "not tried: its share of DAT_PLANNING_SECONDS 0 is over");
}

TEST_CASE("Whoever listens hears of every trial as it is made", "[double]") {
  std::vector<std::string> heard;
  trial_listener() = [&](const Trial& t) { heard.push_back(t.pass + t.name + t.refused); };
  const auto backend = gpu("f32", false);
  (void)backend->conv2d(kTraining);
  trial_listener() = nullptr;
  std::vector<std::string> all;
  for (const Trial& t : backend->trials()) all.push_back(t.pass + t.name + t.refused);
  CHECK(!all.empty());
  CHECK(heard == all);
}

TEST_CASE("Half of a weight gradient is wrong, and TF32's rounding or cutting of millions of terms is right",
          "[double]") {
  const Bad bad;
  const int algorithm = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;  // the only one that is deterministic
  // So many terms that 2^-9 of the sum of their sizes is more than half of the result is: (m/4) / 2^9 against twice
  // root(m/2) / 3.
  const ConvSpec many{.n = 64, .c_in = 4, .h = 152, .w = 152, .c_out = 4, .kernel = 1, .pad = 0};
  for (const auto& [spec, cuts] : {std::pair{kTraining, false}, std::pair{kTraining, true}, std::pair{many, true}}) {
    {
      bad(Call::filter, algorithm) = {};
      bad(Call::filter, algorithm).cuts = cuts;
      const auto backend = gpu("tf32");
      const auto plan = cuda::choose_plan(dynamic_cast<cuda::CudaBackend&>(*backend), {spec, cuda::Pass::weights});
      CHECK(plan->name() == "ALGO_1");
    }
    bad(Call::filter, algorithm) = {};
    bad(Call::filter, algorithm).half = true;
    const auto backend = gpu("tf32");
    CHECK(contains(error_of([&] {
                     (void)cuda::choose_plan(dynamic_cast<cuda::CudaBackend&>(*backend), {spec, cuda::Pass::weights});
                   }),
                   "; ALGO_1: wrong results"));
    CHECK(trial(*backend, "weight gradient", "ALGO_1").refused == "wrong results");
  }
}

TEST_CASE("With TF32 the bound of a right result's error grows with the root of the number of terms", "[double]") {
  // Of m terms, products of uniform numbers in [-1, 1): size m/4, norm root(m)/3, values of about the norm.
  const auto relative = [](double m, bool tf32) {
    const auto norm = static_cast<float>(std::sqrt(m) / 3);
    return cuda::allowed_error(DType::f32, tf32, {0, static_cast<float>(m / 4), norm, norm}) / norm;
  };
  // 7 * 1.415 * 2^-11 + 2^-9 = 0.00679, and 0.75 * 2^-18 root(m) of f32.
  for (const auto& [m, most] : {std::pair(27.0, 0.0069), std::pair(4608.0, 0.0071), std::pair(2e6, 0.011)}) {
    INFO(m << " terms");
    CHECK((relative(m, true) > 2 * 0x1p-11 && relative(m, true) < most && relative(m, false) < relative(m, true)));
  }
  // In f32 it is 2^-18 of the terms' sizes; in 16 bits 2^-13, and two units of the result.
  CHECK(cuda::allowed_error(DType::f32, false, {0, 1 << 18, 9, 64}) == 1);
  CHECK(cuda::allowed_error(DType::f16, false, {0, 8192, 9, 512}) == 2);
  CHECK(cuda::allowed_error(DType::bf16, false, {0, 8192, 9, 64}) == 2);
}

TEST_CASE("Memory for trials is random to its last number, and is given back", "[double]") {
  const auto backend = gpu();
  cuda::TrialMemory memory(dynamic_cast<cuda::CudaBackend&>(*backend));
  const auto values = to_host(*backend, memory.random<float>(41), 41);
  CHECK(std::ranges::find(values, 0.0F) == values.end());
  std::size_t before = 0, all = 0;
  REQUIRE(cudaMemGetInfo(&before, &all) == cudaSuccess);
  CHECK(backend->spare_memory() == before);
  const long waits = dat_double::counts().synchronizations;
  memory.give_back(memory.get_if_there(1000));
  CHECK(dat_double::counts().synchronizations == waits + 1);  // kernels may be at work there
  CHECK(contains(message_of([&] { (void)backend->record([&] { (void)memory.get_if_there(1000); }); }, ExitCode::device),
                 "StreamCaptureUnsupported"));  // which is another thing than a lack of memory
  CHECK(memory.get_if_there(std::size_t{1} << 40U) == nullptr);
  CHECK(backend->spare_memory() == before);
  const std::vector<std::size_t> parts = {cuda::aligned(0), cuda::aligned(1), cuda::aligned(256), cuda::aligned(257)};
  CHECK(parts == std::vector<std::size_t>{0, 256, 256, 512});
}

TEST_CASE("A workspace may be a 1/32 of the GPU's memory, of a convolution and of a batch norm", "[double]") {
  // 1024 bytes beside 32 * 9 * 16 weights, and beside 2 * 16 * 12 * 12 numbers: 19456.
  for (const bool fits : {true, false}) {
    const Environment memory("DAT_DOUBLE_MEMORY", std::to_string(32 * 19456 - (fits ? 0 : 1)));
    const auto backend = gpu("tf32", false);
    (void)cuda::choose_plan(dynamic_cast<cuda::CudaBackend&>(*backend), {kTraining, cuda::Pass::forward});
    CHECK(trial(*backend, "forward", "IMPLICIT_PRECOMP_GEMM").refused ==
          (fits ? "" : "its workspace of 0 MiB is above 0, 1/32 of the GPU's memory"));
    (void)backend->batch_norm({.n = 2, .c = 16, .h = 12, .w = 12});
    CHECK(backend->trials().back().refused == (fits ? "" : "its workspace is above 1/32 of the memory"));
  }
}

TEST_CASE("Where memory is scarce plans do without, and what is chosen then is not kept", "[double]") {
  const TemporaryFolder folder;
  {
    const auto owner = make_backend({.device = "cuda", .threads = 2, .math = "tf32", .plans = folder / "plans"});
    auto& backend = dynamic_cast<cuda::CudaBackend&>(*owner);
    // The trial's own arrays take some 340 KiB, the workspace 145: it gets a part of that.
    const Environment others("DAT_DOUBLE_TAKEN", std::to_string(backend.spare_memory() - (400U << 10U)));
    const ConvSpec wide{.n = 1, .c_in = 64, .h = 4, .w = 4, .c_out = 64};
    CHECK(cuda::choose_plan(backend, {wide, cuda::Pass::forward})->name() == "IMPLICIT_GEMM");
    CHECK(trial(backend, "forward", "IMPLICIT_PRECOMP_GEMM").refused == "no memory for its workspace");
    CHECK(backend.batch_norm({.n = 2, .c = 64, .h = 32, .w = 32})->implementation() == "own");
    CHECK(contains(backend.trials().back().refused, "the GPU's memory is full"));
  }
  CHECK(!std::filesystem::exists(folder / "plans"));
}

TEST_CASE("A batch norm of the library that refuses, or that cannot be recorded, is not taken", "[double]") {
  const Bad bad;
  auto& vices = bad(Call::norm, 0);
  for (const bool refuses : {true, false}) {
    vices.refuses = refuses;
    vices.waits = !refuses;
    const auto backend = gpu("f32", false);
    CHECK(backend->batch_norm({.n = 2, .c = 16, .h = 4, .w = 4, .relu = true})->implementation() == "own");
    CHECK(
        backend->trials().back().refused.starts_with(refuses ? "CUDNN_STATUS_NOT_SUPPORTED" : "cannot be recorded: "));
  }
}

TEST_CASE("A pass is named by all that its plan depends on", "[double]") {
  const ConvSpec seven{.n = 2, .c_in = 16, .h = 14, .w = 8, .c_out = 32, .kernel = 7, .pad = 3};
  ConvSpec full = kTraining;
  full.frozen = full.accumulate = full.relu = full.keeps_residual = full.image = true;
  full.stride = 2;
  full.pad = 0;
  full.storage = DType::bf16;
  for (const auto& [pass, count] : {std::pair(cuda::Pass::forward, y_count(seven)),
                                    {cuda::Pass::data, x_count(seven)},
                                    {cuda::Pass::weights, w_count(seven)}})
    CHECK(cuda::PassSpec{seven, pass}.result_count() == count);
  CHECK((cuda::PassSpec{full, cuda::Pass::data}.may_add() && !cuda::PassSpec{full, cuda::Pass::weights}.may_add()));
  CHECK(cuda::PassSpec{seven}.convolution() == "7x7, 16 to 32 channels, 2 of 14x8, f32");
  CHECK(
      cuda::PassSpec{full}.convolution() ==
      "3x3 stride 2, 16 to 32 channels, 2 of 8x8, padded by 0, of images, frozen, adding a kept residual, ReLU, bf16");
}

TEST_CASE("A library's status is told in its words, or with what helps, and held against nobody else", "[double]") {
  using Told = std::pair<cudaError_t, const char*>;
  for (const auto& told : {Told{cudaErrorMemoryAllocation, "memory is full"}, Told{cudaErrorInvalidValue, "CUDA: "}})
    CHECK(contains(message_of([&] { cuda::check(told.first); }, ExitCode::device), told.second));
  CHECK(message_of([] { cuda::check(CUDNN_STATUS_NOT_SUPPORTED); }, ExitCode::device)
            .starts_with("cuDNN: CUDNN_STATUS_NOT_SUPPORTED (test_trials.cpp:"));
  CHECK(message_of([] { cuda::check(CUBLAS_STATUS_NOT_SUPPORTED); }, ExitCode::device).starts_with("cuBLAS: "));
  CHECK(cuda::numa_node_of(99) == -1);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("A call that the library refuses is not taken, in any form, and its error is held against nobody",
          "[double]") {
  const Bad bad;
  bad(Call::forward, kPrecomputed).refuses = true;
  const auto backend = gpu("f32", false);
  CHECK(backend->conv2d(frozen(kTraining))->implementation().starts_with("IMPLICIT_GEMM"));
  for (const std::string form : {"", " fused", " fused with zeros", " NCHW"})
    CHECK(trial(*backend, "forward", "IMPLICIT_PRECOMP_GEMM" + form).refused == "CUDNN_STATUS_NOT_SUPPORTED");
}

TEST_CASE("Where the library lists no algorithms its reason is in the error", "[double]") {
  const Environment none("DAT_DOUBLE_NO_LIST", "1");
  CHECK(message_of([] { (void)gpu()->conv2d(kTraining); }, ExitCode::device)
            .ends_with("; legacy calls: CUDNN_STATUS_NOT_SUPPORTED"));
}

TEST_CASE("A gradient that does not add to what is there is refused, though it is right alone", "[double]") {
  const Bad bad;
  bad(Call::data, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1).ignores_beta = true;
  bad(Call::filter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1).ignores_beta = true;
  const auto backend = gpu("tf32", false);  // in one layout: copies in the other one add by themselves
  CHECK(backend->conv2d(kTraining)->implementation().ends_with(" / ALGO_0 / ALGO_0"));
  for (const std::string pass : {"input gradient", "weight gradient"})
    CHECK(trial(*backend, pass, "ALGO_1").refused == "wrong results, where it adds");
}

TEST_CASE("An algorithm that reads z where it counts nothing gets zeros", "[double]") {
  const Bad bad;
  const ConvSpec spec = frozen(kTraining);
  const std::int64_t x_count = 2 * 16 * 64, y_count = 2 * 32 * 64;
  const auto forward = [&] {
    const auto backend = gpu();
    const auto conv = backend->conv2d(spec);
    backend->commit_workspace();
    const float *w = to_device(*backend, random_values(32 * 9 * 16, 1)),
                *bias = to_device(*backend, random_values(32, 2)), *x = to_device(*backend, random_values(x_count, 3));
    float* y = to_device(*backend, std::vector<float>(y_count, std::numeric_limits<float>::quiet_NaN()));
    auto* bits = static_cast<std::uint16_t*>(backend->allocate(y_count / 8, "test"));
    conv->load(w, nullptr, bias);
    conv->forward(x, y, bits);
    std::size_t zeros = 0;
    for (const Backend::Allocation& a : backend->allocations()) zeros += a.purpose == "zeros" ? a.bytes : 0;
    return std::tuple{conv->implementation(), to_host(*backend, y, y_count), zeros, backend->trials()};
  };
  const auto [good, expected, no_zeros, no_trials] = forward();
  CHECK((good.starts_with("IMPLICIT_PRECOMP_GEMM fused /") && no_zeros == 0));
  bad(Call::forward, kPrecomputed).reads_z = true;
  const auto [chosen, y, zeros, trials] = forward();
  CHECK(chosen.starts_with("IMPLICIT_PRECOMP_GEMM fused with zeros /"));
  CHECK((y == expected && zeros == y_count * sizeof(float)));
  CHECK(std::ranges::any_of(
      trials, [](const Trial& t) { return t.name == "IMPLICIT_PRECOMP_GEMM fused" && t.refused == "wrong results"; }));
}

TEST_CASE("What cannot be recorded is refused: the attack is a recording", "[double]") {
  for (const bool deterministic : {true, false}) {
    const Bad bad;
    bad(Call::forward, kPrecomputed).waits = true;
    const auto backend = gpu("tf32", deterministic);  // in one layout
    CHECK(backend->conv2d(kTraining)->implementation().starts_with("IMPLICIT_GEMM /"));
    CHECK(trial(*backend, "forward", "IMPLICIT_PRECOMP_GEMM").refused.starts_with("cannot be recorded: "));
  }
}

TEST_CASE("A GPU without tensor cores: no tensor-core math, and in 16 bits the copies in NCHW, which are faster there",
          "[double]") {
  const auto all_of = [](const Backend& backend, auto is) {
    const auto all = backend.trials();
    return std::ranges::all_of(all, [&](const Trial& t) { return is(t.name); });
  };
  {
    const Machine pascal("6.0", "Tesla P100-PCIE-16GB");
    const auto backend = gpu("tf32", false);
    const std::string chosen = backend->conv2d(frozen(kTraining, DType::f16))->implementation();
    INFO(chosen);
    CHECK(contains(chosen.substr(0, chosen.find('/')), "NCHW"));
    CHECK(contains(chosen.substr(chosen.find('/')), "NCHW"));
    CHECK(all_of(*backend, [&](const std::string& name) { return !contains(name, "tensor"); }));
    CHECK(!all_of(*backend, [&](const std::string& name) { return contains(name, "NCHW"); }));
  }
  for (const auto& [capability, name, none] :
       {std::tuple{"7.5", "NVIDIA GeForce GTX 1650", true}, std::tuple{"7.5", "Tesla T4", false}}) {
    const Machine turing(capability, name);
    const auto backend = gpu();
    INFO(name);
    const std::string chosen = backend->conv2d(frozen(kTraining, DType::f16))->implementation();
    CHECK((contains(chosen, "NCHW") == none && contains(chosen, "tensor") == !none));
  }
}

TEST_CASE("Strict f32 is tried in both layouts on every GPU, first in that which is fast without TF32", "[double]") {
  const auto names = [](const char* capability, const std::string& math) {
    const Machine machine(capability, "a GPU");
    const auto backend = gpu(math, false);
    (void)cuda::choose_plan(dynamic_cast<cuda::CudaBackend&>(*backend), {kTraining, cuda::Pass::weights});
    std::vector<bool> channels_first;
    for (const Trial& t : backend->trials()) channels_first.push_back(contains(t.name, "NCHW"));
    return channels_first;
  };
  const auto some = [](const std::vector<bool>& all, bool what) { return std::ranges::find(all, what) != all.end(); };
  for (const auto& [capability, math, first] :
       {std::tuple{"7.0", "tf32", true}, std::tuple{"7.5", "f32", true}, std::tuple{"8.0", "f32", false}}) {
    const auto all = names(capability, math);
    INFO(capability);
    CHECK((some(all, true) && some(all, false)));
    CHECK(all.front() == first);
  }
  CHECK(!some(names("9.0", "tf32"), true));
}

TEST_CASE("Plans in NCHW compute what those in NHWC do", "[double]") {
  struct Results {
    std::string chosen;
    std::vector<std::vector<float>> values;
    std::vector<std::uint16_t> bits;
  };
  ConvSpec strided = kTraining, image = kTraining, adding = frozen(kTraining), one = kTraining;
  strided.stride = 2;
  image.c_in = 3;
  image.image = true;
  adding.accumulate = true;
  one.kernel = 1;
  one.pad = 0;
  const auto results = [&](ConvSpec s) {
    const auto backend = gpu();
    const auto conv = backend->conv2d(s);
    backend->commit_workspace();
    const auto random = [&](std::int64_t count, std::uint32_t seed) {
      return to_device(*backend, random_values(count, seed));
    };
    const float *w = random(w_count(s), 1), *x = random(x_count(s), 2), *dy = random(y_count(s), 3),
                *bias = random(s.c_out, 4);
    float *y = random(y_count(s), 5), *dx = random(x_count(s), 6), *dw = random(w_count(s), 7);
    const std::int64_t words = (y_count(s) + 15) / 16;
    auto* bits = static_cast<std::uint16_t*>(backend->allocate(static_cast<std::size_t>(words) * 2, "test"));
    conv->load(w, nullptr, s.frozen ? bias : nullptr);
    Results r{conv->implementation(), {}, {}};
    conv->forward(x, y, s.relu ? bits : nullptr);
    r.values.push_back(to_host(*backend, y, y_count(s)));
    r.bits = to_host(*backend, bits, words);
    for (const bool accumulate : {true, false}) {
      if (!s.image) conv->backward_data(dy, dx, accumulate);
      if (!s.image) r.values.push_back(to_host(*backend, dx, x_count(s)));
      if (!s.frozen) conv->backward_weights(x, dy, dw, accumulate);
      if (!s.frozen) r.values.push_back(to_host(*backend, dw, w_count(s)));
    }
    return r;
  };
  for (const ConvSpec& s :
       {kTraining, strided, image, one, frozen(kTraining), frozen(strided), frozen(image), adding}) {
    const Results expected = results(s);
    for (const bool rotated : {false, true}) {
      if (rotated && (!s.frozen || s.stride > 1 || s.image)) continue;
      const Bad bad;  // where the gradient's own calls are refused, the forward ones are taken, on rotated weights
      bad(Call::data, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1).waits = rotated;
      const Machine pascal("6.0", "Tesla P100-PCIE-16GB");
      const Results found = results(s);
      INFO(expected.chosen << " and " << found.chosen);
      CHECK(contains(found.chosen, "NCHW"));
      CHECK(contains(found.chosen, "rotated") == rotated);
      CHECK(found.bits == expected.bits);
      REQUIRE(found.values.size() == expected.values.size());
      for (std::size_t k = 0; k < found.values.size(); ++k) {
        // The double adds in double precision and rounds once. Adding, and the bias, come after that here: two
        // roundings more, of numbers that are at most the sum of the terms' sizes, 32 * 9 at most.
        double worst = 0;
        for (std::size_t i = 0; i < found.values[k].size(); ++i)
          worst = worse(worst, std::abs(double(found.values[k][i]) - double(expected.values[k][i])));
        CHECK(worst <= 4 * 0x1p-24 * 32 * 9);
      }
    }
  }
}

TEST_CASE("Measuring a convolution uploads no more than it reads", "[double]") {
  const auto backend = gpu();
  const Graph graph = networks().at("small_cnn")({.width = 16, .size = 8, .channels = 3, .classes = 10});
  Convolutions convolutions(*backend, graph, 4, DType::f32, false);
  std::vector<std::size_t> uploads;
  for (int k = 0; k < convolutions.size(); ++k) {
    const std::size_t before = dat_double::counts().uploaded;
    const auto row = convolutions.measure(k, Effort::runs(1));
    uploads.push_back(dat_double::counts().uploaded - before);
    INFO(row.name);
    CHECK(row.passes[frozen_forward].runs > 0);
  }
  // The images have 3 channels, and the last convolution's tensors are not the largest.
  REQUIRE(uploads.size() >= 2);
  CHECK(*std::ranges::min_element(uploads) < *std::ranges::max_element(uploads));
  CHECK(uploads[0] == 4 * 64 * (3 + 16) * sizeof(float));
}
