#include "backend/cuda/trials.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>

#include "backend/cuda/backend.hpp"
#include "dat/tick.hpp"
#include "pointwise.hpp"

namespace dat::cuda {

namespace {

/// Memory for trials, given back at their end.
class TrialMemory {
 public:
  explicit TrialMemory(cudaStream_t stream) : stream_(stream) {}
  ~TrialMemory() {
    (void)cudaStreamSynchronize(stream_);
    for (void* p : all_) (void)cudaFree(p);
  }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  /// Zeroed.
  [[nodiscard]] void* get(std::size_t bytes) {
    void* p = get_if_there(bytes);
    if (p == nullptr) check(cudaErrorMemoryAllocation);
    check(cudaMemsetAsync(p, 0, std::max<std::size_t>(bytes, 1), stream_));
    return p;
  }
  /// Null where there is not so much memory.
  [[nodiscard]] void* get_if_there(std::size_t bytes) {
    void* p = nullptr;
    const cudaError_t status = cudaMalloc(&p, std::max<std::size_t>(bytes, 1));
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    check(status);
    all_.push_back(p);
    return p;
  }

 private:
  cudaStream_t stream_;
  std::vector<void*> all_;
};

/// What plans are timed with. A call of a library takes the host longer than a small kernel takes the GPU: events
/// around a call on an idle stream would measure the host. In the runs to come the attack is a recorded graph, so a
/// graph of calls is what is timed, launched several times in a row: while one runs, the host has launched the next.
/// And a GPU that was idle raises its clock over some hundred milliseconds of work, in favour of what is tried last.
class TrialClock {
 public:
  explicit TrialClock(CudaBackend& backend) : backend_(backend), marks_(kReplays + 1) {}

  /// Milliseconds of one call, the least of some graphs of calls. `once` is a recorded call.
  [[nodiscard]] double time(Backend::Recording& once, const std::function<void()>& call) {
    warm_up(once);
    constexpr double kEnough = 0.5;  // milliseconds of a graph, against some microseconds between two of them
    constexpr double kPlenty = 5;    // and of a call that needs no second one
    constexpr int kMostCalls = 16;
    const double one = least(once, 1);
    if (one >= kPlenty) return one;
    const int calls = std::clamp(static_cast<int>(std::ceil(kEnough / one)), 1, kMostCalls);
    if (calls == 1) return least(once, kReplays);
    const auto several = backend_.capture([&] {
      for (int k = 0; k < calls; ++k) call();
    });
    return least(*several, kReplays) / calls;
  }

 private:
  static constexpr int kReplays = 5;

  [[nodiscard]] double least(Backend::Recording& recording, int replays) {
    recording.replay();  // the host gets ahead
    const auto mark = [&](int k) { check(cudaEventRecord(marks_[static_cast<std::size_t>(k)], backend_.stream())); };
    mark(0);
    for (int k = 1; k <= replays; ++k) {
      recording.replay();
      mark(k);
    }
    check(cudaStreamSynchronize(backend_.stream()));
    float best = std::numeric_limits<float>::infinity();
    for (std::size_t k = 1; k <= static_cast<std::size_t>(replays); ++k) {
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, marks_[k - 1], marks_[k]));
      best = std::min(best, milliseconds);
    }
    return double(std::max(best, 1e-6F));  // the clock's unit is half a microsecond
  }

  /// Once per process.
  void warm_up(Backend::Recording& recording) {
    static std::once_flag warm;
    std::call_once(warm, [&] {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
      while (std::chrono::steady_clock::now() < end) {
        for (int k = 0; k < 8; ++k) recording.replay();
        check(cudaStreamSynchronize(backend_.stream()));
      }
    });
  }

  CudaBackend& backend_;
  std::vector<Timer> marks_;
};

/// Random operands of a pass, and the check of its results.
template <class T>
class TrialBench {
 public:
  TrialBench(CudaBackend& backend, const PassSpec& spec, const std::vector<const PassPlan*>& plans)
      : backend_(backend), spec_(spec), memory_(backend.stream()) {
    const ConvSpec& s = spec.conv;
    const bool forward = spec.pass == Pass::forward, data = spec.pass == Pass::data;
    if (!data || spec.through_relu) x_ = random<T>(spec.x_count());
    if (!forward) dy_ = random<T>(spec.y_count());
    if (forward ? s.accumulate : !spec.through_relu || s.other_gradient) before_ = random<T>(spec.result_count());
    result_ = array<T>(spec.result_count());
    if (forward || data) {
      const auto* master = random<float>(spec.w_count());
      w_ = weights(master, false);
      if (data) rotated_ = weights(master, true);
    }
    if (forward && s.frozen) {
      bias_ = random<float>(s.c_out);
      rounded_bias_ = array<T>(s.c_out);
      each(backend_.device(), s.c_out,
           kernels::FoldWeights<T>{bias_, nullptr, rounded_bias_, 1, s.c_out, 1, s.c_out, s.c_out, false});
    }
    if (forward && s.relu) bits_ = array<std::uint16_t>(kernels::groups(spec.y_count()));
    if (spec.through_relu) {  // half of x are zeros, as a ReLU leaves them: an engine may take these for open
      each(backend_.device(), kernels::groups(spec.x_count()), kernels::Add<T>{x_, nullptr, x_, spec.x_count(), true});
      x_bits_ = array<std::uint16_t>(kernels::groups(spec.x_count()));
      each(backend_.device(), kernels::groups(spec.x_count()), kernels::MaskFromRelu<T>{x_, x_bits_, spec.x_count()});
    }

    constexpr int kMostSamples = 512, kTermsOfAThread = 256, kMostParts = 256;
    samples_ = static_cast<int>(std::min<std::int64_t>(kMostSamples, 2 * spec.result_count()));
    parts_ = std::clamp(definition(false).terms() / kTermsOfAThread, 1, kMostParts);
    partial_ = array<Sums>(std::int64_t{samples_} * parts_);
    checked_ = array<kernels::CheckedElement>(samples_);

    std::size_t zeros = 0;
    for (const PassPlan* plan : plans) {
      scratch_bytes_ = std::max(scratch_bytes_, plan->scratch_bytes());
      zeros = std::max(zeros, plan->zeros_bytes());
    }
    if (zeros > 0) zeros_ = memory_.get(zeros);
    // As much as the greediest plan wants, or as there is.
    scratch_ = memory_.get_if_there(scratch_bytes_);
    while (scratch_ == nullptr && scratch_bytes_ > 0) scratch_ = memory_.get_if_there(scratch_bytes_ /= 2);
  }

  /// Why the plan is out of the question; empty: it is not.
  [[nodiscard]] std::string refuses(const PassPlan& plan) {
    if (plan.scratch_bytes() > scratch_bytes_) return "no memory for its workspace";
    if (spec_.pass == Pass::forward || spec_.through_relu) return refuses(plan, before_ != nullptr, "");
    std::string why = refuses(plan, false, "");
    if (why.empty()) why = refuses(plan, true, ", where it adds");
    return why;
  }

  /// What is timed.
  void run_timed(const PassPlan& plan) {
    check(plan.run(operands(plan, (spec_.pass == Pass::forward || spec_.through_relu) && before_ != nullptr)));
  }

  /// What is timed beside plans that go through the ReLU: a plan that does not, and a pass of ours with mask bits.
  void run_with_mask(const PassPlan& data) {
    Operands o = operands(data, false);
    o.accumulate = before_ != nullptr;
    check(data.run(o));
    each(backend_.device(), kernels::groups(spec_.x_count()),
         kernels::MaskGradient<T>{result_, nullptr, x_bits_, result_, spec_.x_count()});
  }

 private:
  template <class U>
  [[nodiscard]] U* array(std::int64_t count) {
    return static_cast<U*>(memory_.get(static_cast<std::size_t>(count) * sizeof(U)));
  }
  template <class U>
  [[nodiscard]] U* random(std::int64_t count) {
    U* a = array<U>(count);
    each(backend_.device(), (count + 3) / 4, kernels::RandomFill<U>{a, count, key_++});
    return a;
  }
  [[nodiscard]] T* weights(const float* master, bool rotate) {
    const ConvSpec& s = spec_.conv;
    T* packed = array<T>(spec_.w_count());
    each(backend_.device(), spec_.w_count(),
         kernels::FoldWeights<T>{master, nullptr, packed, s.c_out, spec_.channels(), spec_.taps(), spec_.channels(),
                                 spec_.taps() * (rotate ? s.c_out : spec_.channels()), rotate});
    return packed;
  }

  /// Whether what is added lies elsewhere.
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
            .zeros = zeros_,
            .scratch = scratch_};
  }

  [[nodiscard]] kernels::ConvolutionSamples<T> definition(bool accumulate) const {
    const ConvSpec& s = spec_.conv;
    return {.pass = spec_.pass,
            .x = x_,
            .w = w_,
            .dy = dy_,
            .before = accumulate ? before_ : nullptr,
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
    else  // NaN: what is not written is wrong
      check(cudaMemsetAsync(result_, 0xFF, static_cast<std::size_t>(spec_.result_count()) * sizeof(T),
                            backend_.stream()));
    if (const cudnnStatus_t status = plan.run(operands(plan, accumulate)); status != CUDNN_STATUS_SUCCESS) {
      (void)cudaGetLastError();  // or the next kernel would be blamed for it
      return cudnnGetErrorString(status) + form;
    }
    const auto samples = definition(accumulate);
    each(backend_.device(), std::int64_t{samples_} * parts_, kernels::SumTerms<T>{samples, parts_, partial_});
    each(backend_.device(), samples_,
         kernels::CheckConvolution<T>{samples, parts_, partial_, result_, bits_, checked_});
    std::vector<kernels::CheckedElement> all(static_cast<std::size_t>(samples_));
    backend_.copy_to_host(all.data(), checked_, all.size() * sizeof all[0]);
    kernels::CheckedElement most{0, 0, 0, 0};
    for (const auto& one : all) {
      most.size = std::max(most.size, one.size);
      most.norm = std::max(most.norm, one.norm);
      most.value = std::max(most.value, one.value);
    }
    const float allowed = allowed_error(spec_.conv.storage, backend_.tf32(), most);
    const bool right = std::all_of(all.begin(), all.end(), [&](const auto& one) { return one.error <= allowed; });
    return right ? "" : "wrong results" + form;
  }

  CudaBackend& backend_;
  const PassSpec& spec_;
  TrialMemory memory_;
  std::uint32_t key_ = 1;
  T *x_ = nullptr, *dy_ = nullptr, *before_ = nullptr, *result_ = nullptr, *w_ = nullptr, *rotated_ = nullptr;
  T* rounded_bias_ = nullptr;
  float* bias_ = nullptr;
  std::uint16_t *bits_ = nullptr, *x_bits_ = nullptr;
  int samples_ = 0, parts_ = 0;
  Sums* partial_ = nullptr;
  kernels::CheckedElement* checked_ = nullptr;
  std::size_t scratch_bytes_ = 0;
  void *scratch_ = nullptr, *zeros_ = nullptr;
};

using Offered = std::vector<std::unique_ptr<const PassPlan>>;

[[nodiscard]] std::vector<const PassPlan*> pointers(const Offered& plans) {
  std::vector<const PassPlan*> all;
  for (const auto& plan : plans) all.push_back(plan.get());
  return all;
}

/// Tries what providers offer for one pass.
class Tryout {
 public:
  Tryout(CudaBackend& backend, const PassSpec& spec) : backend_(backend), spec_(spec), clock_(backend) {}

  /// Takes over the plans that are not out of the question from the first.
  void offer(Plans plans) {
    for (auto& plan : plans.plans)
      if (plan->scratch_bytes() <= backend_.scratch_limit() && (!backend_.deterministic() || plan->deterministic()))
        offered.push_back(std::move(plan));
    for (const auto& [name, why] : plans.refused) refuse(name, why);
  }
  Offered offered;

  /// Milliseconds of a call: 0 with --deterministic, infinite where it cannot be recorded.
  [[nodiscard]] double time(const std::string& name, const std::function<void()>& call) {
    tick();
    Trial trial{spec_.convolution(), spec_.pass_name(), name, 0, {}};
    try {
      call();  // what is recorded must have run before
      const auto recording = backend_.capture(call);
      if (!backend_.deterministic()) trial.milliseconds = clock_.time(*recording, call);
    } catch (const Error& error) {
      refuse(name, std::string("cannot be recorded: ") + error.what());
      return kNever;
    }
    backend_.tried(trial);
    return trial.milliseconds;
  }

  /// The fastest of the plans that are right and take less than `least` milliseconds; --deterministic: the first right
  /// one. Null: there is none.
  template <class T>
  [[nodiscard]] std::shared_ptr<const PassPlan> best(TrialBench<T>& bench, double least) {
    std::shared_ptr<const PassPlan> best;
    for (auto& plan : offered) {
      if (const std::string why = bench.refuses(*plan); !why.empty()) {
        refuse(plan->name(), why);
        continue;
      }
      const double milliseconds = time(plan->name(), [&] { bench.run_timed(*plan); });
      if (milliseconds >= least) continue;
      least = milliseconds;
      best = std::move(plan);
      if (backend_.deterministic()) break;
    }
    return best;
  }

  /// "; name: why" of all that was refused.
  [[nodiscard]] const std::string& refused() const { return refused_; }

  static constexpr double kNever = std::numeric_limits<double>::infinity();

 private:
  void refuse(const std::string& name, const std::string& why) {
    backend_.tried({spec_.convolution(), spec_.pass_name(), name, 0, why});
    refused_ += "; " + name + ": " + why;
  }

  CudaBackend& backend_;
  const PassSpec& spec_;
  TrialClock clock_;
  std::string refused_;
};

template <class T>
[[nodiscard]] std::shared_ptr<const PassPlan> try_all(CudaBackend& backend, const PassSpec& spec) {
  Tryout tryout(backend, spec);
  tryout.offer(legacy_plans(backend, spec));
  tryout.offer(graph_plans(backend, spec));
  TrialBench<T> bench(backend, spec, pointers(tryout.offered));
  auto best = tryout.best(bench, Tryout::kNever);
  require(best != nullptr, ExitCode::device, "cuDNN ", cudnn_version(), " has no usable ",
          spec.pass == Pass::forward ? "forward pass" : spec.pass_name(), " of the convolution ", spec.convolution(),
          backend.deterministic() ? " that is deterministic" : "", tryout.refused());
  return best;
}

/// The best plan through the ReLU, or `data`.
template <class T>
[[nodiscard]] std::shared_ptr<const PassPlan> try_relu(CudaBackend& backend, const PassSpec& spec,
                                                       const std::shared_ptr<const PassPlan>& data) {
  Tryout tryout(backend, spec);
  tryout.offer(graph_plans(backend, spec));
  if (tryout.offered.empty()) return data;
  auto plans = pointers(tryout.offered);
  plans.push_back(data.get());
  TrialBench<T> bench(backend, spec, plans);
  const double without = tryout.time(data->name() + ", then a mask", [&] { bench.run_with_mask(*data); });
  const auto best = tryout.best(bench, without);
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
