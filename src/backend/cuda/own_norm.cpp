// Batch norm by kernels of ours: two launches each way.

#include "backend/cuda/backend.hpp"
#include "backend/cuda/norm_plan.hpp"

namespace dat::cuda {

namespace {

class OwnNorm final : public NormPlan {
 public:
  OwnNorm(CudaBackend& backend, const BatchNormSpec& spec)
      : backend_(backend), spec_(spec), rows_(std::int64_t{spec.n} * spec.h * spec.w), count_(rows_ * spec.c) {}

  [[nodiscard]] std::string name() const override { return "own"; }
  [[nodiscard]] std::size_t scratch_bytes() const override {
    return std::size_t{ChannelRoom::kParts} * 2 * static_cast<std::size_t>(spec_.c) * sizeof(float);
  }

  [[nodiscard]] cudnnStatus_t forward(const NormOperands& o) const override {
    with_storage(spec_.storage, [&](auto type) {
      using T = decltype(type);
      kernels::NormStatistics<T> statistics{static_cast<const T*>(o.x), rows_, spec_.c, o.channels};
      if (spec_.of_sum) {
        statistics.x = static_cast<const T*>(o.sum.a);
        statistics.addend = static_cast<const T*>(o.sum.b);
        statistics.sum_of_both = static_cast<T*>(o.sum.x);
      }
      cuda_channel_sums(backend_.device(), statistics, room(o));
    });
    return again(o);
  }

  [[nodiscard]] cudnnStatus_t again(const NormOperands& o) const override {
    with_storage(spec_.storage, [&](auto type) {
      using T = decltype(type);
      each(backend_.device(), kernels::groups(count_),
           kernels::NormForward<T>{static_cast<const T*>(o.x), static_cast<const T*>(o.residual), static_cast<T*>(o.y),
                                   o.bits, o.channels, spec_.c, count_, spec_.relu});
    });
    return CUDNN_STATUS_SUCCESS;
  }

  [[nodiscard]] cudnnStatus_t backward(const NormOperands& o) const override {
    const BatchNorm::Gradients& to = o.gradients;
    kernels::NormChannels channels = o.channels;
    channels.dgamma = to.dgamma;
    channels.dbeta = to.dbeta;
    with_storage(spec_.storage, [&](auto type) {
      using T = decltype(type);
      const auto *x = static_cast<const T*>(o.x), *dy = static_cast<const T*>(o.dy);
      cuda_channel_sums(backend_.device(),
                        kernels::NormGradientSums<T>{x, dy, o.bits, rows_, spec_.c, channels, to.factor, to.accumulate},
                        room(o));
      each(backend_.device(), kernels::groups(count_),
           kernels::NormBackward<T>{x, dy, static_cast<const T*>(to.addend), o.bits, static_cast<T*>(to.dx),
                                    static_cast<T*>(to.dresidual), o.channels, spec_.c, count_});
    });
    return CUDNN_STATUS_SUCCESS;
  }

 private:
  [[nodiscard]] static ChannelRoom room(const NormOperands& o) { return {static_cast<float*>(o.scratch), o.counters}; }

  CudaBackend& backend_;
  const BatchNormSpec spec_;
  const std::int64_t rows_, count_;
};

}  // namespace

std::unique_ptr<const NormPlan> own_norm_plan(CudaBackend& backend, const BatchNormSpec& spec) {
  return std::make_unique<OwnNorm>(backend, spec);
}

}  // namespace dat::cuda
