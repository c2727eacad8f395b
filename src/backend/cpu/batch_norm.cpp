#include <cassert>

#include "backend/cpu/backend.hpp"
#include "pointwise.hpp"

namespace dat::cpu {

namespace {

/// oneDNN's batch norm with its ReLU; what adds something, or masks by a ReLU after an addition, is a kernel of ours.
class CpuBatchNorm final : public BatchNorm {
 public:
  CpuBatchNorm(CpuBackend& backend, const BatchNormSpec& spec)
      : backend_(backend), spec_(spec), count_(std::int64_t{spec.n} * spec.c * spec.h * spec.w) {
    require(backend.refuses(spec.storage).empty(), ExitCode::usage, backend.refuses(spec.storage));
    using Flags = dnnl::normalization_flags;
    const auto x = activation_desc(spec.n, backend.activation_layout(spec.c, spec.h, spec.w));
    const auto channel = plain_desc({spec.c}, Tag::x);
    const bool own_relu = spec.relu && !spec.residual;
    const auto flags = Flags::use_scale | Flags::use_shift | (own_relu ? Flags::fuse_norm_relu : Flags::none);
    const dnnl::primitive_attr attr = attributes();
    const auto way_forth = [&](dnnl::prop_kind kind, Flags more) {
      return describe<dnnl::batch_normalization_forward>(backend.engine(), attr, kind, DAT_NORM_PAIR(x), spec.epsilon,
                                                         flags | more);
    };
    const auto forth = [&](const dnnl::batch_normalization_forward::primitive_desc& desc) {
      Primitive made(backend.engine(), desc, "batch norm",
                     {{DNNL_ARG_SRC, x},
                      {DNNL_ARG_SCALE, channel},
                      {DNNL_ARG_SHIFT, channel},
                      {DNNL_ARG_DST, x},
                      {DNNL_ARG_MEAN, channel},
                      {DNNL_ARG_VARIANCE, channel}});
      backend.request_scratch(made.scratch_bytes());
      return made;
    };
    again_ = forth(way_forth(dnnl::prop_kind::forward_inference, Flags::use_global_stats));  // sums nothing
    const FixedSums fixed(backend);
    const auto forward = way_forth(dnnl::prop_kind::forward_training, Flags::none);
    const auto backward = describe_backward<dnnl::batch_normalization_backward>(
        backend.engine(), attr, forward, dnnl::prop_kind::backward, DAT_NORM_PAIR(x), x, spec.epsilon, flags);
    forward_ = forth(forward);
    backward_ = Primitive(backend.engine(), backward, "the gradient of batch norm",
                          {{DNNL_ARG_SRC, x},
                           {DNNL_ARG_DIFF_DST, x},
                           {DNNL_ARG_SCALE, channel},
                           {DNNL_ARG_MEAN, channel},
                           {DNNL_ARG_VARIANCE, channel},
                           {DNNL_ARG_DIFF_SRC, x},
                           {DNNL_ARG_DIFF_SCALE, channel},
                           {DNNL_ARG_DIFF_SHIFT, channel}});
    for (float** one : {&own_dgamma_, &own_dbeta_}) *one = backend.allocate_floats(spec.c, "batch-norm gradients");
    // oneDNN 2 demands beta, too, and oneDNN 3 refuses it. No gradient depends on it: any memory will do.
    if (inputs_of(backward) == (own_relu ? 7 : 6)) backward_.add(DNNL_ARG_SHIFT, channel, own_dbeta_);
    if (spec.relu && spec.residual)
      bits_ = backend.allocate_array<std::uint16_t>(kernels::groups(count_), "ReLU masks");
    if (own_relu) {
      // The library's own record of where the ReLU was open.
      const auto mask = forward.workspace_desc();
      void* memory = backend.allocate(mask.get_size(), "ReLU masks");
      for (Primitive* one : {&forward_, &backward_}) one->add(DNNL_ARG_WORKSPACE, mask, memory);
    }
    backend.request_scratch(backward_.scratch_bytes());
  }

  void forward(const void* x, const void* residual, const float* gamma, const float* beta, void* y, float* mean,
               float* variance) override {
    const FixedSums fixed(backend_);
    forward_.run(backend_.stream(), backend_.scratch(), {x, gamma, beta, y, mean, variance});
    add_residual(residual, y, bits_);
  }

  void forward(const Sum& sum, const void* residual, const float* gamma, const float* beta, void* y, float* mean,
               float* variance) override {
    each(backend_.device(), kernels::groups(count_),
         kernels::Add<float>{static_cast<const float*>(sum.a), static_cast<const float*>(sum.b),
                             static_cast<float*>(sum.x), count_});
    forward(sum.x, residual, gamma, beta, y, mean, variance);
  }

  void again(const void* x, const void* residual, const float* gamma, const float* beta, const float* mean,
             const float* variance, void* y) override {
    again_.run(backend_.stream(), backend_.scratch(), {x, gamma, beta, y, mean, variance});
    add_residual(residual, y, nullptr);
  }

  void backward(const void* x, const void*, const void* dy, const float* gamma, const float*, const float* mean,
                const float* variance, const Gradients& to) override {
    assert(to.factor == nullptr);  // storage in 16 bits is refused
    const FixedSums fixed(backend_);
    const Device device = backend_.device();
    const std::int64_t groups = kernels::groups(count_);
    auto *const dresidual = static_cast<float*>(to.dresidual), *const dx = static_cast<float*>(to.dx);
    if (bits_ != nullptr) {
      // dx holds the residual's gradient for a moment where nobody wants it.
      float* const through = dresidual != nullptr ? dresidual : dx;
      each(device, groups,
           kernels::MaskGradient<float>{static_cast<const float*>(dy), nullptr, bits_, through, count_});
      dy = through;
    } else if (dresidual != nullptr && dresidual != dy) {
      each(device, groups, kernels::Add<float>{static_cast<const float*>(dy), nullptr, dresidual, count_});
    }
    const auto direct = [&](float* wanted, float* own) { return wanted != nullptr && !to.accumulate ? wanted : own; };
    float *const dgamma = direct(to.dgamma, own_dgamma_), *const dbeta = direct(to.dbeta, own_dbeta_);
    backward_.run(backend_.stream(), backend_.scratch(), {x, dy, gamma, mean, variance, dx, dgamma, dbeta});
    if (to.addend != nullptr)
      each(device, groups, kernels::Add<float>{static_cast<const float*>(to.addend), dx, dx, count_});
    if (to.dgamma != nullptr && to.accumulate) each(device, spec_.c, kernels::Scale{dgamma, to.dgamma, 1.0F, true});
    if (to.dbeta != nullptr && to.accumulate) each(device, spec_.c, kernels::Scale{dbeta, to.dbeta, 1.0F, true});
  }

  [[nodiscard]] std::string implementation() const override { return forward_.implementation(); }

 private:
  /// Adds the residual to y (with spec.residual), then applies the ReLU; bits (may be null) get where that is open.
  void add_residual(const void* residual, void* y, std::uint16_t* bits) const {
    auto* const result = static_cast<float*>(y);
    if (spec_.residual)
      each(backend_.device(), kernels::groups(count_),
           kernels::Add<float>{result, static_cast<const float*>(residual), result, count_, spec_.relu, bits});
  }

  CpuBackend& backend_;
  BatchNormSpec spec_;
  std::int64_t count_;
  float *own_dgamma_ = nullptr, *own_dbeta_ = nullptr;  ///< [c]: those that are added, or not wanted
  std::uint16_t* bits_ = nullptr;                       ///< places where a ReLU after an addition was open
  Primitive forward_, again_, backward_;
};

}  // namespace

std::unique_ptr<BatchNorm> CpuBackend::batch_norm(const BatchNormSpec& spec) {
  return std::make_unique<CpuBatchNorm>(*this, spec);
}

}  // namespace dat::cpu
