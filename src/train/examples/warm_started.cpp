#include <utility>

#include "dat/error.hpp"
#include "train/examples/local_examples.hpp"
#include "train/examples/warm_start.hpp"

namespace dat {

namespace {

/// Examples whose attack begins where the one of the epoch before has ended (--warm-start).
class WarmStarted final : public WrappedExamples, public AttackPart {
 public:
  WarmStarted(std::unique_ptr<ExampleSource> source, Attacker& attacker, const ExampleParts& parts)
      : WrappedExamples(std::move(source)),
        attacker_(attacker),
        timer_(parts.timer),
        rounds_(parts.plan.most_units()),
        perturbations_(parts.ranks, parts.replica.backend(),
                       {.samples = parts.images.size(),
                        .layout = parts.replica.images().layout,
                        .micro_batch = parts.plan.micro_batch,
                        .repeats = parts.plan.repeats_images(),
                        .rounds = rounds_,
                        .goes_back = parts.options.steps_may_be_left_out(),
                        .reset_steps = parts.options.warm_start * parts.plan.steps_per_epoch}) {
    attacker.add(*this);
  }

  void loaded(const HostBatch& read, Batch& /*batch*/) override { read_ = &read; }
  void begins(Objective& view) override {
    view_ = &view;
    bytes_ += perturbations_.load(view, attacker_.planned().eps, view.crops, *read_, view.begins_at, view.key.step);
  }

  void begin(std::int64_t step) override {
    bytes_ = 0;
    WrappedExamples::begin(step);
  }
  const Batch* next() override {
    const Batch* const batch = WrappedExamples::next();
    if (batch == nullptr) {
      // Other ranks, whose part of the step has more micro-batches, are served.
      const int n = read_->count / read_->micro_batches;
      for (int round = read_->micro_batches; round < rounds_; ++round)
        bytes_ += perturbations_.help(*read_, round * n, n);
    } else {
      perturbations_.keep(*view_, attacker_.planned().eps, batch->crops);
      timer_.lap(Phase::attack);
    }
    return batch;
  }
  void take_back() override {
    WrappedExamples::take_back();
    perturbations_.put_back();
  }
  [[nodiscard]] std::int64_t bytes_sent() const override { return WrappedExamples::bytes_sent() + bytes_; }
  [[nodiscard]] std::int64_t checkpoint_bytes(int ranks) const override {
    return WrappedExamples::checkpoint_bytes(ranks) + perturbations_.bytes();
  }

 private:
  Stateful& own() override { return perturbations_; }

  Attacker& attacker_;
  PhaseTimer& timer_;
  int rounds_;  ///< most micro-batches of a rank
  WarmStart perturbations_;
  const HostBatch* read_ = nullptr;
  Objective* view_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<ExampleSource> make_warm_started(std::unique_ptr<ExampleSource> source, Attacker& attacker,
                                                 const ExampleParts& parts) {
  require(!parts.plan.ordered || !parts.plan.repeats_images(), ExitCode::usage,
          "with --deterministic, --warm-start wants each image once in a step: of ", parts.plan.images,
          " training images, a step has some twice; choose a smaller batch");
  return std::make_unique<WarmStarted>(std::move(source), attacker, parts);
}

}  // namespace dat
