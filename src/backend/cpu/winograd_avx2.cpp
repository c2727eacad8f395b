#include "backend/cpu/winograd_simd.hpp"

namespace dat::cpu {

std::unique_ptr<Winograd> make_winograd_avx2(const Winograd::Spec& spec) { return make_simd_winograd<8>(spec); }

}  // namespace dat::cpu
