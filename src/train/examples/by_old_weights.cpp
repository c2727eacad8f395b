#include <utility>

#include "dat/error.hpp"
#include "train/examples/local_examples.hpp"
#include "train/examples/old_weights.hpp"

namespace dat {

namespace {

/// Examples that are attacked with the weights of steps before (--staleness).
class ByOldWeights final : public WrappedExamples, public AttackPart {
 public:
  ByOldWeights(std::unique_ptr<ExampleSource> source, Attacker& attacker, const ExampleParts& parts)
      : WrappedExamples(std::move(source)),
        timer_(parts.timer),
        weights_(staleness_of(parts.options, *parts.method.attacks.last().attack), parts.replica) {
    attacker.add(*this);
  }

  void loaded(const HostBatch&, Batch&) override { weights_.take_up(); }
  [[nodiscard]] int stretch(int done) override { return weights_.stretch(done); }

  void begin(std::int64_t step) override {
    WrappedExamples::begin(step);
    weights_.begin(step);
  }
  const Batch* next() override {
    const Batch* const batch = WrappedExamples::next();
    if (batch == nullptr) return nullptr;
    weights_.put_back();
    timer_.lap(Phase::attack);
    return batch;
  }
  [[nodiscard]] std::int64_t checkpoint_bytes(int ranks) const override {
    return WrappedExamples::checkpoint_bytes(ranks) + weights_.checkpoint_bytes();
  }

 private:
  Stateful& own() override { return weights_; }

  PhaseTimer& timer_;
  OldWeights weights_;
};

}  // namespace

std::unique_ptr<ExampleSource> make_attacked_by_old_weights(std::unique_ptr<ExampleSource> source, Attacker& attacker,
                                                            const ExampleParts& parts) {
  require(parts.method.attack_passes == 0, ExitCode::usage,
          "--staleness wants attacks that leave batch statistics alone; add --attack-bn eval");
  return std::make_unique<ByOldWeights>(std::move(source), attacker, parts);
}

}  // namespace dat
