#include "backend/cpu/onednn.hpp"
#include "backend/shared/less_memory.hpp"
#include "catch.hpp"
#include "dat/backend.hpp"

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
