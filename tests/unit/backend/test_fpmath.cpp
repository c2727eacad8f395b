#include <omp.h>

#include "backend/cpu/convolution3x3.hpp"
#include "backend/cpu/onednn.hpp"
#include "backend/shared/less_memory.hpp"
#include "catch.hpp"
#include "dat/backend.hpp"
#include "environment.hpp"
#include "gradients.hpp"
#include "pointwise.hpp"

using namespace dat;

TEST_CASE("Products of f32 numbers are those of f32, whatever ONEDNN_DEFAULT_FPMATH_MODE says", "[backend]") {
  const dnnl::fpmath_mode before = dnnl::get_default_fpmath_mode();
  dnnl::set_default_fpmath_mode(dnnl::fpmath_mode::bf16);  // as the variable does at the first question
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  CHECK(dnnl::get_default_fpmath_mode() == dnnl::fpmath_mode::strict);
  dnnl::set_default_fpmath_mode(before);
}

TEST_CASE("A CPU backend has the threads that it is given, after fixed sums too, and nothing that only a GPU has",
          "[backend][cpu]") {
  const int before = omp_get_max_threads();
  omp_set_dynamic(1);
  for (const bool deterministic : {true, false}) {
    const auto backend = make_backend({.device = "cpu", .threads = 3, .math = "f32", .deterministic = deterministic});
    CHECK((omp_get_dynamic() == 0 && omp_get_max_threads() == 3 && backend->host_threads == 3));
    (void)backend->linear(5, 48, 10);
    CHECK(omp_get_max_threads() == 3);
    CHECK(backend->description() == backend->arithmetic() + ", 3 threads");
    const bool avx512 = backend->activation_layout(64, 4, 4).block == 16,
               avx2 = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx2;
    CHECK(backend->arithmetic().ends_with(avx512 ? ", AVX-512" : avx2 ? ", AVX2" : ", no AVX2"));
    CHECK((backend->gpu_number() == -1 && backend->numa_node() == -1 && backend->device_id().empty()));
    CHECK((backend->spare_memory() == 0 && backend->side_queue() == nullptr && backend->pin(nullptr, 0) == nullptr));
    CHECK((!backend->replays() && backend->trials().empty() && backend->remark().empty()));
    CHECK((backend->passed(backend->stamp()) && backend->arrived(backend->mark()) && backend->leaves_samples_out()));
    CHECK((backend->mark() == 0 && backend->mark_side() == 0 &&
           backend->fetch(nullptr, nullptr, 0) == 0));  // there is nothing to wait for
  }
  CHECK(make_backend({.device = "cpu", .threads = 1})->description().ends_with(", 1 thread"));
  omp_set_num_threads(before);
}

TEST_CASE("A primitive has its caller's scratch memory, and is none of the library's slow reference code",
          "[backend][cpu]") {
  struct Slow : dnnl::reorder::primitive_desc {
    using dnnl::reorder::primitive_desc::primitive_desc;
    [[nodiscard]] const char* impl_info_str() const { return "ref:any"; }
  };
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto row = cpu::plain_desc({2, 3}, cpu::Tag::nc);
  CHECK(cpu::attributes().get_scratchpad_mode() == dnnl::scratchpad_mode::user);
  CHECK(error_of([&] { cpu::Primitive(engine, Slow(engine, row, engine, row), "a copy", {}); }) ==
        "5: oneDNN has only its slow reference code for a copy (ref:any); choose a width that is a multiple of 16");
  const int block = make_backend({.device = "cpu", .threads = 1})->activation_layout(64, 4, 4).block;
  const auto bytes = [&](int c_in, int c_out, int threads) {
    const auto conv = cpu::make_convolution3x3({{}, 1, c_in, 4, 4, c_out, 4, 4, block, threads});
    return conv != nullptr ? conv->gradient_scratch_bytes() : 0;
  };
  CHECK(bytes(64, 128, 2) == 2 * bytes(64, 64, 1));       // each of two threads has half of the outputs
  CHECK(bytes(64, block, 2) == 2 * bytes(32, block, 1));  // or of the inputs, where outputs cannot be parted
  CHECK(bytes(128, 128, 1) == bytes(64, 128, 1));         // one has all outputs, and 64 inputs at a time
}

TEST_CASE("The last stamps of a CPU are kept, each the moment of its call", "[backend][cpu]") {
  using Clock = std::chrono::steady_clock;
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  constexpr int kFirst = 3;  // of those that are kept
  std::vector<Clock::time_point> before, after;
  for (int k = 0; k < Backend::kStamps + kFirst; ++k) {
    before.push_back(Clock::now());
    CHECK(backend->stamp() == k);
    after.push_back(Clock::now());
  }
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  int wrong = 0;
  for (std::size_t k = kFirst; k < before.size(); ++k) {
    const double since = backend->seconds(kFirst, static_cast<Backend::Ticket>(k));
    wrong += since < seconds(before[k] - after[kFirst]) || since > seconds(after[k] - before[kFirst]);
  }
  CHECK(wrong == 0);
}

TEST_CASE("A build without CUDA has no kernels for it", "[backend][cpu]") {
  if (cuda_version() != "not built") return;
  const Device gpu{.kind = DeviceKind::cuda};
  float x = 1;
  double sums[3] = {};
  CHECK(code_of([&] { each(gpu, 1, kernels::Scale{&x, &x, 2.0F, false}); }) == ExitCode::device);
  CHECK(code_of([&] { each(gpu, Chunks{}, kernels::Zero{&x}); }) == ExitCode::device);
  CHECK(code_of([&] { sum(gpu, Chunks{}, kernels::SquaredNorm{&x}, sums, sums); }) == ExitCode::device);
  CHECK(x == 1);
}

TEST_CASE("A network whose parameters need more than all memory is not told to take smaller micro-batches",
          "[backend]") {
  const std::vector<Backend::Allocation> held = {{"weights", 600}, {"activations", 5000}, {"gradients", 300}};
  CHECK(less_memory({{"weights", 5U << 20U}}, 1, "gradients", 5U << 20U) ==
        ": what the network's parameters need is more than all memory, 5 MiB, and a smaller --micro-batch does not "
        "help; take a smaller --width, or another --network");
  CHECK(contains(less_memory(held, 200, "optimizer state", 1000), "a smaller --micro-batch does not help"));
  CHECK(less_memory(held, 100, "optimizer state", 1000) == "; take a smaller --micro-batch or --width");
  CHECK(less_memory(held, 1 << 20, "activations", 900) == "; take a smaller --micro-batch or --width");
  // More than any machine has, without asking the system for it.
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  CHECK(contains(error_of([&] { (void)backend->allocate(std::size_t{1} << 50U, "weights"); }),
                 "5: out of memory: 1073741824 MiB for weights: what the network's parameters need is more than all"));
  CHECK(contains(error_of([&] { (void)backend->allocate(std::size_t{1} << 50U, "dx"); }),
                 "MiB for dx; take a smaller --micro-batch or --width"));
  CHECK(code_of([&] { (void)backend->allocate(~std::size_t{0}, "dx"); }) == ExitCode::device);  // too many to round up
}

TEST_CASE("Chosen algorithms are kept in the user's folder for caches, and not while somebody listens", "[backend]") {
  test::Environment environment("XDG_CACHE_HOME", "/cache");
  environment.set("HOME", "/home/me");
  CHECK(plans_file() == "/cache/dat_hpc/plans");
  environment.set("XDG_CACHE_HOME", "relative");
  CHECK(plans_file() == "/home/me/.cache/dat_hpc/plans");
  trial_listener() = [](const Trial&) {};
  CHECK(plans_file().empty());
  trial_listener() = nullptr;
  environment.set("HOME", "");
  CHECK(plans_file().empty());
}
