#include "backend/cpu/winograd_simd.hpp"

namespace dat::cpu {

std::unique_ptr<Convolution3x3> make_winograd_avx2(const Convolution3x3::Spec& spec) {
  return make_simd_winograd<8>(spec);
}

}  // namespace dat::cpu
