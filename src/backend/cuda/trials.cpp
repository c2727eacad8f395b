#include "backend/cuda/trials.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "backend/cuda/backend.hpp"
#include "backend/cuda/trial_clock.hpp"
#include "backend/shared/shared_block.hpp"
#include "dat/tick.hpp"
#include "pointwise.hpp"

namespace dat::cuda {

namespace {

const std::string kNoMemory = "no memory for its workspace";

/// Random operands of a pass, and the check of its results.
template <class T>
class TrialBench {
 public:
  TrialBench(CudaBackend& backend, const PassSpec& spec) : backend_(backend), spec_(spec), memory_(backend) {
    const ConvSpec& s = spec.conv;
    const bool forward = spec.pass == Pass::forward, data = spec.pass == Pass::data;
    if (!data || spec.through_relu) x_ = memory_.random<T>(spec.x_count());
    if (!forward) dy_ = memory_.random<T>(spec.y_count());
    if (forward ? s.accumulate : !spec.through_relu || s.other_gradient)
      before_ = memory_.random<T>(spec.result_count());
    result_ = memory_.array<T>(spec.result_count());
    if (forward || data) {
      const auto* master = memory_.random<float>(spec.w_count());
      w_ = weights(master, false);
      if (data) rotated_ = weights(master, true);
    }
    if (forward && s.frozen) {
      bias_ = memory_.random<float>(s.c_out);
      rounded_bias_ = memory_.array<T>(s.c_out);
      each(backend_.device(), s.c_out,
           kernels::FoldWeights{bias_, nullptr, rounded_bias_, 1, s.c_out, 1, s.c_out, s.c_out, false, s.storage});
    }
    if (forward && s.relu) bits_ = memory_.array<std::uint16_t>(kernels::groups(spec.y_count()));
    if (spec.through_relu) {  // half of x are zeros, as a ReLU leaves them: an engine may take these for open
      each(backend_.device(), kernels::groups(spec.x_count()), kernels::Add<T>{x_, nullptr, x_, spec.x_count(), true});
      x_bits_ = memory_.array<std::uint16_t>(kernels::groups(spec.x_count()));
      each(backend_.device(), kernels::groups(spec.x_count()), kernels::MaskFromRelu<T>{x_, x_bits_, spec.x_count()});
    }

    constexpr int kMostSamples = 512, kTermsOfAThread = 256, kMostParts = 256;
    samples_ = static_cast<int>(std::min<std::int64_t>(kMostSamples, 2 * spec.result_count()));
    parts_ = std::clamp(definition().terms() / kTermsOfAThread, 1, kMostParts);
    partial_ = memory_.array<Sums>(std::int64_t{samples_} * parts_);
    checked_ = memory_.array<kernels::CheckedElement>(samples_);
  }

  /// Makes room before any of them is run: zeros, and scratch memory, as much as the greediest plan wants, or as there
  /// is.
  void make_room(const std::vector<const PassPlan*>& plans) {
    for (const PassPlan* plan : plans) {
      scratch_.request(plan->scratch_bytes());
      zeros_.request(plan->zeros_bytes());
    }
    if (!zeros_.suffices()) zeros_.data = memory_.get(zeros_.bytes = zeros_.wanted);
    memory_.give_back(scratch_.data);
    scratch_.bytes = scratch_.wanted;
    while ((scratch_.data = memory_.get_if_there(scratch_.bytes)) == nullptr && scratch_.bytes != 0)
      scratch_.bytes /= 2;
  }

  /// Reason why the plan is refused; empty: it is not.
  [[nodiscard]] std::string refuses(const PassPlan& plan) {
    if (plan.scratch_bytes() > scratch_.bytes) return kNoMemory;
    if (has_one_form()) return refuses(plan, before_ != nullptr, "");
    std::string why = refuses(plan, false, "");
    if (why.empty() && spec_.may_add()) why = refuses(plan, true, ", where it adds");
    return why;
  }

  /// Runs the timed work.
  void run_timed(const PassPlan& plan) { check(plan.run(operands(plan, has_one_form() && before_ != nullptr))); }

  /// Runs the alternative to plans that go through the ReLU: a plan that does not, and a pass of ours with mask bits.
  void run_with_mask(const PassPlan& data) {
    Operands o = operands(data, false);
    o.accumulate = before_ != nullptr;
    check(data.run(o));
    each(backend_.device(), kernels::groups(spec_.x_count()),
         kernels::MaskGradient<T>{result_, nullptr, x_bits_, result_, spec_.x_count()});
  }

 private:
  [[nodiscard]] T* weights(const float* master, bool rotate) {
    const ConvSpec& s = spec_.conv;
    T* packed = memory_.array<T>(spec_.w_count());
    each(backend_.device(), spec_.w_count(),
         kernels::FoldWeights{master, nullptr, packed, s.c_out, spec_.channels(), spec_.taps(), spec_.channels(),
                              spec_.taps() * (rotate ? s.c_out : spec_.channels()), rotate, s.storage});
    return packed;
  }

  /// Returns whether the pass always adds, or never does; else it is checked both ways, and timed where it does not.
  [[nodiscard]] bool has_one_form() const { return spec_.pass == Pass::forward || spec_.through_relu; }
  /// Returns whether the summand lies elsewhere.
  [[nodiscard]] bool elsewhere() const {
    return spec_.through_relu || (spec_.pass == Pass::forward && spec_.conv.keeps_residual);
  }

  [[nodiscard]] Operands operands(const PassPlan& plan, bool accumulate) const {
    return {.x = x_,
            .dy = dy_,
            .w = plan.rotated_weights() ? rotated_ : w_,
            .bias = bias_,
            .rounded_bias = rounded_bias_,
            .other = accumulate && elsewhere() ? before_ : nullptr,
            .result = result_,
            .bits = bits_,
            .accumulate = accumulate && !elsewhere(),
            .zeros = zeros_.data,
            .scratch = scratch_.data};
  }

  /// What the pass makes where it adds.
  [[nodiscard]] kernels::ConvolutionSamples<T> definition() const {
    const ConvSpec& s = spec_.conv;
    return {.pass = spec_.pass,
            .x = x_,
            .w = w_,
            .dy = dy_,
            .before = before_,
            .bias = bias_,
            .relu = spec_.pass == Pass::forward && s.relu,
            .relu_output = spec_.through_relu ? x_ : nullptr,
            .n = s.n,
            .c_in = spec_.channels(),
            .h = s.h,
            .w_in = s.w,
            .c_out = s.c_out,
            .h_out = s.h_out(),
            .w_out = s.w_out(),
            .kernel = s.kernel,
            .stride = s.stride,
            .pad = s.pad};
  }

  [[nodiscard]] std::string refuses(const PassPlan& plan, bool accumulate, const std::string& form) {
    if (accumulate && !elsewhere())
      each(backend_.device(), kernels::groups(spec_.result_count()),
           kernels::Add<T>{before_, nullptr, result_, spec_.result_count()});
    else
      memory_.spoil(result_, spec_.result_count());
    if (const cudnnStatus_t status = plan.run(operands(plan, accumulate)); status != CUDNN_STATUS_SUCCESS) {
      (void)cudaGetLastError();  // or the next kernel would be blamed for it
      return cudnnGetErrorString(status) + form;
    }
    auto samples = definition();
    if (!accumulate) samples.before = nullptr;
    each(backend_.device(), std::int64_t{samples_} * parts_, kernels::SumTerms<T>{samples, parts_, partial_});
    each(backend_.device(), samples_,
         kernels::CheckConvolution<T>{samples, parts_, partial_, result_, bits_, checked_});
    std::vector<kernels::CheckedElement> all(static_cast<std::size_t>(samples_));
    backend_.copy_to_host(all.data(), checked_, all.size() * sizeof all[0]);
    kernels::CheckedElement most = all.front();
    for (const auto& one : all) {
      most.size = std::max(most.size, one.size);
      most.norm = std::max(most.norm, one.norm);
      most.value = std::max(most.value, one.value);
    }
    const float allowed = allowed_error(spec_.conv.storage, backend_.tf32(), most);
    const bool right = std::ranges::all_of(all, [&](const auto& one) { return one.error <= allowed; });
    return right ? "" : "wrong results" + form;
  }

  CudaBackend& backend_;
  const PassSpec& spec_;
  TrialMemory memory_;
  T *x_ = nullptr, *dy_ = nullptr, *before_ = nullptr, *result_ = nullptr, *w_ = nullptr, *rotated_ = nullptr;
  T* rounded_bias_ = nullptr;
  float* bias_ = nullptr;
  std::uint16_t *bits_ = nullptr, *x_bits_ = nullptr;
  int samples_ = 0, parts_ = 0;
  Sums* partial_ = nullptr;
  kernels::CheckedElement* checked_ = nullptr;
  SharedBlock scratch_, zeros_;
};

/// Key of the choices of other processes, beside the machine.
[[nodiscard]] std::string key_of(const CudaBackend& backend, const PassSpec& spec) {
  return spec.convolution() + (spec.conv.storage == DType::f32 && backend.tf32() ? " by TF32, " : ", ") +
         spec.pass_name();
}

/// Tries what providers offer for one pass.
class Tryout {
 public:
  Tryout(CudaBackend& backend, const PassSpec& spec)
      : backend_(backend), spec_(spec), clock_(backend), time_(backend.planning_time()) {}

  [[nodiscard]] const PlanningTime::Share& planning_time() const { return time_; }

  /// Milliseconds of a call that has been made before; those that are known, if any are; infinite where the call cannot
  /// be recorded.
  [[nodiscard]] double time(const std::string& name, const std::function<void()>& call, std::optional<double> known) {
    tick();
    double milliseconds{};
    try {
      const auto recording = backend_.capture(call);
      milliseconds = known ? *known : clock_.time(*recording, call, least_);
    } catch (const Error& error) {
      refuse(name, std::string("cannot be recorded: ") + error.what());
      return kNever;
    }
    backend_.tried({spec_.convolution(), spec_.pass_name(), name, milliseconds, {}});
    return milliseconds;
  }
  /// A plan must be faster to be the best one.
  void at_least(double milliseconds) { least_ = milliseconds; }

  /// Makes the fastest right plan the best one; --deterministic: the first right one. `built`: plans that cost more to
  /// make than to try, and are tried when the time is over, too.
  template <class T>
  void offer(Plans offered, TrialBench<T>& bench, bool built) {
    refuse_all(offered);
    std::erase_if(offered.plans, [&](const auto& plan) { return !is_possible(*plan); });
    std::vector<const PassPlan*> plans;
    for (const auto& plan : offered.plans) plans.push_back(plan.get());
    bench.make_room(plans);
    for (auto& plan : offered.plans) {
      if (best_ != nullptr && backend_.deterministic()) return;
      if (best_ != nullptr && !built && time_.over())
        refuse(plan->name(), time_.words());
      else
        consider(std::move(plan), bench, backend_.deterministic() ? std::optional(0.0) : std::nullopt);
    }
  }
  /// The plan of another process's choice, where it is still right; its time is believed.
  template <class T>
  void offer(std::unique_ptr<const PassPlan> plan, TrialBench<T>& bench, double milliseconds) {
    if (!is_possible(*plan)) return;
    bench.make_room({plan.get()});
    consider(std::move(plan), bench, milliseconds);
    if (best_ != nullptr) time_.forgive();
  }

  void refuse_all(const Plans& offered) {
    for (const auto& [name, why] : offered.refused) refuse(name, why);
  }
  /// Keeps a choice for other processes, unless something was refused for lack of memory, which these may have.
  void keep(const std::string& plan) const {
    PlanCache* const cache = backend_.plan_cache();
    if (cache == nullptr || cramped_) return;
    const auto cut = cut_ ? std::optional(backend_.planning_time().seconds()) : std::nullopt;
    cache->keep(key_of(backend_, spec_), {plan, std::isfinite(least_) ? least_ : double{}, cut});
  }

  /// Null: none is right, or faster than at_least().
  [[nodiscard]] std::shared_ptr<const PassPlan> best() const { return best_; }
  /// "; name: why" of all that was refused.
  [[nodiscard]] const std::string& refused() const { return refused_; }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  [[nodiscard]] bool is_possible(const PassPlan& plan) {
    const std::size_t limit = backend_.scratch_limit();
    if (plan.scratch_bytes() > limit)
      refuse(plan.name(), "its workspace of " + std::to_string(plan.scratch_bytes() >> 20U) + " MiB is above " +
                              std::to_string(limit >> 20U) + ", 1/32 of the GPU's memory");
    else if (backend_.deterministic() && !plan.deterministic())
      refuse(plan.name(), "its results vary, which --deterministic does not allow");
    else
      return true;
    return false;
  }

  template <class T>
  void consider(std::unique_ptr<const PassPlan> plan, TrialBench<T>& bench, std::optional<double> known) {
    if (const std::string why = bench.refuses(*plan); !why.empty()) return refuse(plan->name(), why);
    const double milliseconds = time(
        plan->name(), [&] { bench.run_timed(*plan); }, known);
    if (milliseconds >= least_) return;
    least_ = milliseconds;
    best_ = std::move(plan);
  }

  void refuse(const std::string& name, const std::string& why) {
    backend_.tried({spec_.convolution(), spec_.pass_name(), name, 0, why});
    refused_ += "; " + name + ": " + why;
    cut_ = cut_ || why == time_.words();
    cramped_ = cramped_ || why == kNoMemory;
  }

  CudaBackend& backend_;
  const PassSpec& spec_;
  TrialClock clock_;
  PlanningTime::Share time_;
  double least_ = kNever;
  std::shared_ptr<const PassPlan> best_;
  std::string refused_;
  bool cut_ = false, cramped_ = false;  ///< something was not tried for lack of time, or refused for lack of memory
};

/// The plan of this name; null: there is none any more.
[[nodiscard]] std::unique_ptr<const PassPlan> plan_of(CudaBackend& backend, const PassSpec& spec,
                                                      const std::string& name) {
  if (auto plan = graph_plan(backend, spec, name)) return plan;
  for (auto& plan : legacy_plans(backend, spec).plans)
    if (plan->name() == name) return std::move(plan);
  return nullptr;
}

/// The choice of another process; nothing where there is none, or one that had less time.
[[nodiscard]] std::optional<PlanCache::Choice> known_choice(CudaBackend& backend, const PassSpec& spec) {
  const PlanCache* cache = backend.plan_cache();
  auto known = cache != nullptr ? cache->find(key_of(backend, spec)) : std::nullopt;
  return known && known->cut.value_or(HUGE_VAL) >= backend.planning_time().seconds() ? known : std::nullopt;
}

template <class T>
[[nodiscard]] std::shared_ptr<const PassPlan> try_all(CudaBackend& backend, const PassSpec& spec) {
  Tryout tryout(backend, spec);
  TrialBench<T> bench(backend, spec);
  if (const auto known = known_choice(backend, spec)) {
    if (auto plan = plan_of(backend, spec, known->plan)) tryout.offer(std::move(plan), bench, known->milliseconds);
    if (tryout.best() != nullptr) return tryout.best();
  }
  tryout.offer(legacy_plans(backend, spec), bench, false);
  tryout.offer(graph_plans(backend, spec, tryout.planning_time()), bench, true);
  const auto best = tryout.best();
  require(best != nullptr, ExitCode::device, "cuDNN ", cudnn_version(), " has no usable ",
          spec.pass == Pass::forward ? "forward pass" : spec.pass_name(), " of the convolution ", spec.convolution(),
          backend.deterministic() ? " that is deterministic" : "", tryout.refused());
  tryout.keep(best->name());
  return best;
}

/// The name that stands for `data` among choices.
const std::string kNone = "none through the ReLU";

/// The best plan through the ReLU, or `data`.
template <class T>
[[nodiscard]] std::shared_ptr<const PassPlan> try_relu(CudaBackend& backend, const PassSpec& spec,
                                                       const std::shared_ptr<const PassPlan>& data) {
  Tryout tryout(backend, spec);
  const auto known = known_choice(backend, spec);
  if (known && known->plan == kNone) return data;
  if (auto plan = known ? graph_plan(backend, spec, known->plan) : nullptr) {
    TrialBench<T> bench(backend, spec);
    tryout.offer(std::move(plan), bench, known->milliseconds);
    if (tryout.best() != nullptr) return tryout.best();
  }
  Plans offered = graph_plans(backend, spec, tryout.planning_time());
  if (offered.plans.empty()) {
    tryout.refuse_all(offered);
  } else {
    TrialBench<T> bench(backend, spec);
    bench.make_room({data.get()});
    const auto masked = [&] { bench.run_with_mask(*data); };
    masked();
    tryout.at_least(tryout.time(data->name() + ", then a mask", masked, {}));
    tryout.offer(std::move(offered), bench, true);
  }
  const auto best = tryout.best();
  tryout.keep(best != nullptr ? best->name() : kNone);
  return best != nullptr ? best : data;
}

}  // namespace

float allowed_error(DType storage, bool tf32, const kernels::CheckedElement& most) {
  // Some roundings of an f32 sum relative to its terms' sizes, as Winograd's; one or two to a 16-bit value.
  if (storage == DType::f16) return 0x1p-13F * most.size + 0x1p-9F * most.value;
  if (storage == DType::bf16) return 0x1p-13F * most.size + 0x1p-6F * most.value;
  const float sums = 64 * 0x1p-24F * most.size;
  if (!tf32) return sums;
  // TF32 keeps 11 bits of each factor. Rounded, its relative error is within 2^-11 and averages to zero; cut off, it
  // lies within 2^-10 below zero: within 2^-11 of its mean, and the mean shrinks the whole sum by at most 2 * 2^-10 of
  // its value. The rest of the errors is independent from factor to factor, as the random factors are. Hoeffding
  // (Probability inequalities for sums of bounded random variables, 1963, theorem 2): a sum of independent errors
  // within +-c_i is beyond k * root(sum of c_i^2) with a probability of at most 2 exp(-k^2/2). Two factors a term make
  // that root 2^-11 * root(2) * norm; k = 7 is 5e-11. So it grows with the root of the number of terms, as the sum
  // itself does: about half a percent of it.
  return sums + 7 * 1.415F * 0x1p-11F * most.norm + 0x1p-9F * most.value;
}

std::shared_ptr<const PassPlan> choose_plan(CudaBackend& backend, const PassSpec& spec) {
  std::shared_ptr<const PassPlan>& plan = backend.plan(spec.convolution() + ", " + spec.pass_name());
  if (plan == nullptr)
    plan = with_storage(spec.conv.storage, [&](auto type) { return try_all<decltype(type)>(backend, spec); });
  return plan;
}

std::shared_ptr<const PassPlan> choose_relu_plan(CudaBackend& backend, const ConvSpec& conv,
                                                 const std::shared_ptr<const PassPlan>& data) {
  const PassSpec spec{conv, Pass::data, true};
  std::shared_ptr<const PassPlan>& plan = backend.plan(spec.convolution() + ", " + spec.pass_name());
  if (plan == nullptr)
    plan = with_storage(conv.storage, [&](auto type) { return try_relu<decltype(type)>(backend, spec, data); });
  return plan == data ? nullptr : plan;
}

}  // namespace dat::cuda
