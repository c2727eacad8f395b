#include "backend/cpu/onednn.hpp"
#include "backend/shared/less_memory.hpp"
#include "catch.hpp"
#include "dat/backend.hpp"
#include "environment.hpp"

using namespace dat;

TEST_CASE("Products of f32 numbers are those of f32, whatever ONEDNN_DEFAULT_FPMATH_MODE says", "[backend]") {
  const dnnl::fpmath_mode before = dnnl::get_default_fpmath_mode();
  dnnl::set_default_fpmath_mode(dnnl::fpmath_mode::bf16);  // as the variable does at the first question
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  CHECK(dnnl::get_default_fpmath_mode() == dnnl::fpmath_mode::strict);
  dnnl::set_default_fpmath_mode(before);
}

TEST_CASE("A network whose parameters need more than all memory is not told to take smaller micro-batches",
          "[backend]") {
  const std::vector<Backend::Allocation> held = {{"weights", 600}, {"activations", 5000}, {"gradients", 300}};
  CHECK(contains(less_memory(held, 200, "optimizer state", 1000), "a smaller --micro-batch does not help"));
  CHECK(less_memory(held, 100, "optimizer state", 1000) == "; take a smaller --micro-batch or --width");
  CHECK(less_memory(held, 1 << 20, "activations", 1000) == "; take a smaller --micro-batch or --width");
  // More than any machine has, without asking the system for it.
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  CHECK(contains(error_of([&] { (void)backend->allocate(std::size_t{1} << 50U, "weights"); }),
                 "5: out of memory: 1073741824 MiB for weights: what the network's parameters need is more than all"));
  CHECK(contains(error_of([&] { (void)backend->allocate(std::size_t{1} << 50U, "dx"); }),
                 "MiB for dx; take a smaller --micro-batch or --width"));
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
