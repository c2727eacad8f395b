#include <utility>
#include <vector>

#include "dat/error.hpp"
#include "train/examples/local_examples.hpp"

namespace dat {

namespace {

/// Examples of a rank that cheats with its labels or its attack.
class CheatedExamples final : public WrappedExamples, public AttackPart {
 public:
  CheatedExamples(std::unique_ptr<ExampleSource> source, Attacker& attacker, Buffers& images, const Cheating& cheating,
                  std::unique_ptr<Attack> weak)
      : WrappedExamples(std::move(source)), images_(images), cheating_(cheating), weak_(std::move(weak)) {
    attacker.add(*this);
  }

  void loaded(const HostBatch&, Batch& batch) override {
    cheat_ = cheating_.at(batch.key.step);
    if (cheat_ == nullptr) return;
    std::vector<std::int32_t> labels(static_cast<std::size_t>(batch.n));
    images_.backend.copy_to_host(labels.data(), images_.labels, labels.size() * sizeof(std::int32_t));
    cheat_->labels(labels);
    images_.backend.copy_to_device(images_.labels, labels.data(), labels.size() * sizeof(std::int32_t));
  }
  [[nodiscard]] const Attack* instead(const EpochAttack&) override { return cheat_ != nullptr ? weak_.get() : nullptr; }

 private:
  Buffers& images_;
  const Cheating& cheating_;
  std::unique_ptr<Attack> weak_;  ///< null: it cheats otherwise
  Cheat* cheat_ = nullptr;        ///< cheat in the step of the examples; null: it is honest there
};

}  // namespace

std::unique_ptr<ExampleSource> make_cheated(std::unique_ptr<ExampleSource> source, Attacker& attacker,
                                            const ExampleParts& parts) {
  const Cheating& cheating = parts.cheating;
  require(cheating.weak().empty() || parts.method.attack_passes == 0, ExitCode::usage, "--cheat ", cheating.weak(),
          " makes less of the attack, whose passes enter batch statistics here; take --attack-bn eval");
  const Cheat* const own = cheating.own();
  if (own == nullptr) return source;
  std::unique_ptr<Attack> weak;
  if (const std::optional<int> steps = own->attack_steps()) {
    TrainOptions options = parts.options;
    if (*steps == 0) options.attack = "none";
    options.attack_steps = *steps;
    weak = attack_of(options, parts.images.info().classes);
  }
  return std::make_unique<CheatedExamples>(std::move(source), attacker, parts.replica.images(), cheating,
                                           std::move(weak));
}

}  // namespace dat
