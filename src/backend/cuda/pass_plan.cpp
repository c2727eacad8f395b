#include "backend/cuda/pass_plan.hpp"

#include "backend/cuda/backend.hpp"
#include "pointwise.hpp"

namespace dat::cuda {

std::string PassSpec::convolution() const {
  const ConvSpec& s = conv;
  return std::to_string(s.kernel) + "x" + std::to_string(s.kernel) +
         (s.stride > 1 ? " stride " + std::to_string(s.stride) : "") + ", " + std::to_string(s.c_in) + " to " +
         std::to_string(s.c_out) + " channels, " + std::to_string(s.n) + " of " + std::to_string(s.h) + "x" +
         std::to_string(s.w) + (s.pad != s.kernel / 2 ? ", padded by " + std::to_string(s.pad) : "") +
         (s.image ? ", of images" : "") + (s.frozen ? ", frozen" : "") + (s.accumulate ? ", adding" : "") +
         (s.keeps_residual ? " a kept residual" : "") + (s.relu ? ", ReLU" : "") + ", " + storage_name(s.storage);
}

std::string PassSpec::pass_name() const {
  if (through_relu) return conv.other_gradient ? "input gradient through ReLU, adding" : "input gradient through ReLU";
  return pass == Pass::forward ? "forward" : pass == Pass::data ? "input gradient" : "weight gradient";
}

void store_mask(CudaBackend& backend, const PassSpec& spec, const Operands& o) {
  if (o.bits == nullptr) return;
  with_storage(spec.conv.storage, [&](auto type) {
    using T = decltype(type);
    each(backend.device(), kernels::groups(spec.y_count()),
         kernels::MaskFromRelu<T>{static_cast<const T*>(o.result), o.bits, spec.y_count()});
  });
}

}  // namespace dat::cuda
