#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "backend/cuda/backend.hpp"
#include "backend/cuda/norm_plan.hpp"
#include "backend/cuda/pass_plan.hpp"
#include "backend/cuda/trial_clock.hpp"
#include "convolution.hpp"
#include "dat/tick.hpp"

namespace dat::cuda {

namespace {

constexpr const char* kPass = "both ways";
constexpr int kOwnChannels = 3;  // scale, slope, constant

[[nodiscard]] std::string words(const BatchNormSpec& s) {
  return "batch norm, " + std::to_string(s.c) + " channels, " + std::to_string(s.n) + " of " + std::to_string(s.h) +
         "x" + std::to_string(s.w) + (s.of_sum ? ", of a sum" : "") + (s.residual ? ", adding" : "") +
         (s.relu ? ", ReLU" : "") + (s.again ? ", made again" : "") + ", " + storage_name(s.storage);
}

/// The channels that a batch norm keeps for itself, in memory [kOwnChannels][c].
[[nodiscard]] kernels::NormChannels own_channels(float* memory, const BatchNormSpec& spec) {
  kernels::NormChannels all{};
  all.scale = memory;
  all.slope = memory + spec.c;
  all.constant = memory + 2 * std::ptrdiff_t{spec.c};
  all.epsilon = spec.epsilon;
  return all;
}

/// Batch norms on random numbers. Results of our own kernels are the reference of the others.
template <class T>
class NormBench {
 public:
  /// With room for either of two plans.
  NormBench(CudaBackend& backend, const BatchNormSpec& spec, const NormPlan& one, const NormPlan& other)
      : backend_(backend), spec_(spec), count_(std::int64_t{spec.n} * spec.c * spec.h * spec.w), memory_(backend) {
    if (spec.of_sum) o_.sum = {memory_.random<T>(count_), memory_.random<T>(count_), stored()};
    o_.x = spec.of_sum ? o_.sum.x : memory_.random<T>(count_);
    o_.dy = memory_.random<T>(count_);
    if (spec.residual) o_.residual = memory_.random<T>(count_);
    o_.y = stored();
    o_.channels = own_channels(memory_.array<float>(kOwnChannels * spec.c), spec);
    o_.channels.gamma = memory_.random<float>(spec.c);
    o_.channels.beta = memory_.random<float>(spec.c);
    o_.channels.mean = of_channels();
    o_.channels.variance = of_channels();
    o_.gradients = {.dx = stored(), .dgamma = of_channels(), .dbeta = of_channels()};
    if (spec.residual) o_.gradients.dresidual = stored();
    if (spec.storage != DType::f32) o_.gradients.factor = memory_.random<float>(spec.c);  // the first one
    if (spec.relu) o_.bits = memory_.array<std::uint16_t>(kernels::groups(count_));
    o_.counters = memory_.array<std::uint32_t>(spec.c);
    o_.scratch = memory_.get(std::max(one.scratch_bytes(), other.scratch_bytes()));
    o_.reserve = memory_.get(std::max(one.reserve_bytes(), other.reserve_bytes()));
  }
  /// Both ways, as they are timed.
  [[nodiscard]] cudnnStatus_t run(const NormPlan& plan) const {
    const cudnnStatus_t status = plan.forward(o_);
    return status == CUDNN_STATUS_SUCCESS ? plan.backward(o_) : status;
  }
  /// Runs the plan; then the backward pass once more, where it adds. All results, one after the other; activations and
  /// their gradients as far as a few thousand go. Empty: the library refuses, for the reason `status`.
  [[nodiscard]] std::vector<float> results(const NormPlan& plan, cudnnStatus_t& status) {
    for (T* result : stored_) memory_.spoil(result, count_);
    for (float* result : of_channels_) memory_.spoil(result, spec_.c);
    if (status = run(plan); status != CUDNN_STATUS_SUCCESS) return {};
    std::vector<float> all;
    for (const T* result : stored_) append(result, std::min(count_, kSome), all);
    for (const float* result : of_channels_) append(result, spec_.c, all);
    NormOperands adding = o_;
    adding.gradients.accumulate = true;
    if (status = plan.backward(adding); status != CUDNN_STATUS_SUCCESS) return {};
    for (const float* result : of_channels_) append(result, spec_.c, all);
    return all;
  }
  /// Largest difference of result number k from our own kernel's: a few roundings of stored numbers near 1, or of a sum
  /// over the rows.
  [[nodiscard]] float tolerance(std::size_t k, float value) const {
    const bool is_stored = k < stored_.size() * static_cast<std::size_t>(std::min(count_, kSome));
    const float unit = !is_stored || spec_.storage == DType::f32 ? 0x1p-17F : 0x1p-9F;
    return unit * (std::abs(value) + (is_stored ? 4.0F : std::sqrt(static_cast<float>(count_ / spec_.c))));
  }

 private:
  static constexpr std::int64_t kSome = 4096;

  [[nodiscard]] T* stored() { return stored_.emplace_back(memory_.array<T>(count_)); }
  [[nodiscard]] float* of_channels() { return of_channels_.emplace_back(memory_.array<float>(spec_.c)); }
  template <class U>
  void append(const U* from, std::int64_t count, std::vector<float>& to) {
    std::vector<U> values(static_cast<std::size_t>(count));
    backend_.copy_to_host(values.data(), from, values.size() * sizeof(U));
    for (const U v : values) to.push_back(to_float(v));
  }

  CudaBackend& backend_;
  const BatchNormSpec& spec_;
  std::int64_t count_;
  TrialMemory memory_;
  std::vector<T*> stored_;           ///< results [n, c, h, w]
  std::vector<float*> of_channels_;  ///< results [c]
  NormOperands o_;
};

/// The faster of our plan and the library's, where the latter is right.
template <class T>
[[nodiscard]] std::shared_ptr<const NormPlan> faster(CudaBackend& backend, const BatchNormSpec& spec,
                                                     std::shared_ptr<const NormPlan> own) {
  std::shared_ptr<const NormPlan> library = cudnn_norm_plan(backend, spec);
  PlanningTime::Share share(backend.planning_time());
  if (library == nullptr) return own;
  const auto not_tried = [&](const std::string& why) {
    backend.tried({words(spec), kPass, library->name(), 0, why});
    return own;
  };
  if (library->scratch_bytes() > backend.scratch_limit()) return not_tried("its workspace is above 1/32 of the memory");
  PlanCache* const cache = backend.plan_cache();
  const auto known = cache != nullptr ? cache->find(words(spec)) : std::nullopt;
  if (known && known->plan == own->name()) return own;
  const bool is_known = known && known->plan == library->name();
  if (!is_known && share.over()) return not_tried(share.words());

  double least = std::numeric_limits<double>::infinity();
  const auto keep = [&](const NormPlan& plan, double milliseconds) {
    if (cache != nullptr) cache->keep(words(spec), {plan.name(), milliseconds, {}});
  };
  std::optional<NormBench<T>> bench;
  try {
    bench.emplace(backend, spec, *own, *library);
  } catch (const Error& error) {
    return not_tried(error.what());
  }
  TrialClock clock(backend);
  std::vector<float> ours;
  std::shared_ptr<const NormPlan> best = own;
  for (const auto& plan : {own, library}) {
    tick();
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    const std::vector<float> results = bench->results(*plan, status);
    if (status != CUDNN_STATUS_SUCCESS) {
      (void)cudaGetLastError();  // or the next kernel would be blamed for it
      return not_tried(cudnnGetErrorString(status));
    }
    if (ours.empty()) ours = results;
    for (std::size_t k = 0; k < ours.size(); ++k)
      if (!(std::abs(results[k] - ours[k]) <= bench->tolerance(k, ours[k]))) {
        keep(*own, {});  // others need not try it again
        return not_tried("wrong results");
      }
    if (is_known) continue;
    const auto call = [&] { check(bench->run(*plan)); };
    try {
      const auto recording = backend.capture(call);
      const double milliseconds = clock.time(*recording, call, least);
      backend.tried({words(spec), kPass, plan->name(), milliseconds, {}});
      if (milliseconds >= least) continue;
      least = milliseconds;
      best = plan;
    } catch (const Error& error) {
      return not_tried(std::string("cannot be recorded: ") + error.what());
    }
  }
  if (is_known) {  // right, and its time is believed
    share.forgive();
    backend.tried({words(spec), kPass, library->name(), known->milliseconds, {}});
    return library;
  }
  keep(*best, least);
  return best;
}

[[nodiscard]] std::shared_ptr<const NormPlan> choose(CudaBackend& backend, const BatchNormSpec& spec) {
  std::shared_ptr<const NormPlan>& plan = backend.norm_plan(words(spec));
  if (plan != nullptr) return plan;
  plan = own_norm_plan(backend, spec);
  if (spec.again)
    backend.tried(
        {words(spec), kPass, "cuDNN", 0, "it cannot make the same result a second time, as --recompute asks"});
  else if (!backend.deterministic())
    plan = with_storage(spec.storage, [&](auto type) { return faster<decltype(type)>(backend, spec, plan); });
  return plan;
}

class CudaBatchNorm final : public BatchNorm {
 public:
  CudaBatchNorm(CudaBackend& backend, const BatchNormSpec& spec) : backend_(backend), spec_(spec) {
    require(backend.refuses(spec.storage).empty(), ExitCode::usage, backend.refuses(spec.storage));
    const int piece = static_cast<int>(kPiece / size_of(spec.storage));
    require(spec.c % piece == 0, ExitCode::usage, "the CUDA backend works on ", piece,
            " channels at a time: choose a --width that is a multiple of ", piece);
    plan_ = choose(backend, spec);
    const std::int64_t count = std::int64_t{spec.n} * spec.c * spec.h * spec.w;
    own_.channels = own_channels(backend.allocate_floats(kOwnChannels * std::int64_t{spec.c}, "batch norm"), spec);
    if (spec.again) kept_scale_ = backend.allocate_floats(spec.c, "batch norm");
    own_.reserve = backend.allocate(plan_->reserve_bytes(), "batch norm");
    own_.counters = backend.allocate_array<std::uint32_t>(spec.c, "batch norm");
    if (spec.relu) own_.bits = backend.allocate_array<std::uint16_t>(kernels::groups(count), "ReLU masks");
    backend.request_scratch(plan_->scratch_bytes());
  }

  void forward(const void* x, const void* residual, const float* gamma, const float* beta, void* y, float* mean,
               float* variance) override {
    forward({nullptr, nullptr, const_cast<void*>(x)}, residual, gamma, beta, y, mean, variance);  // x is only read
  }

  void forward(const Sum& sum, const void* residual, const float* gamma, const float* beta, void* y, float* mean,
               float* variance) override {
    NormOperands o = operands(sum.x, y, gamma, beta, mean, variance);
    o.sum = sum;
    o.residual = residual;
    keep_scale(o);
    check(plan_->forward(o));
  }

  void again(const void* x, const void* residual, const float* gamma, const float* beta, const float* mean,
             const float* variance, void* y) override {
    NormOperands o = operands(x, y, gamma, beta, const_cast<float*>(mean), const_cast<float*>(variance));
    o.residual = residual;
    o.bits = nullptr;
    keep_scale(o);
    check(plan_->again(o));
  }

  void backward(const void* x, const void* y, const void* dy, const float* gamma, const float* beta, const float* mean,
                const float* variance, const Gradients& gradients) override {
    NormOperands o =
        operands(x, const_cast<void*>(y), gamma, beta, const_cast<float*>(mean), const_cast<float*>(variance));
    o.dy = dy;
    o.gradients = gradients;
    check(plan_->backward(o));
  }

  [[nodiscard]] bool reads_result() const override { return plan_->reads_result(); }
  [[nodiscard]] std::string implementation() const override { return plan_->name(); }

 private:
  /// The backward pass makes a scale from the rounded variance, which is another one.
  void keep_scale(NormOperands& o) const {
    if (spec_.again) o.channels.scale = kept_scale_;
  }
  [[nodiscard]] NormOperands operands(const void* x, void* y, const float* gamma, const float* beta, float* mean,
                                      float* variance) const {
    NormOperands o = own_;
    o.x = x;
    o.y = y;
    o.channels.gamma = gamma;
    o.channels.beta = beta;
    o.channels.mean = mean;
    o.channels.variance = variance;
    o.scratch = backend_.scratch();
    return o;
  }

  CudaBackend& backend_;
  BatchNormSpec spec_;
  std::shared_ptr<const NormPlan> plan_;
  NormOperands own_;             ///< operands that stay from call to call
  float* kept_scale_ = nullptr;  ///< [c] of the forward pass, with spec.again
};

}  // namespace

std::unique_ptr<BatchNorm> CudaBackend::batch_norm(const BatchNormSpec& spec) {
  return std::make_unique<CudaBatchNorm>(*this, spec);
}

}  // namespace dat::cuda
