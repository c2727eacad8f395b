// A libFuzzer program of the target DAT_FUZZ_TARGET.

#include "fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dat::fuzz::DAT_FUZZ_TARGET({data, size});
  return 0;
}
