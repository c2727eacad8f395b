#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "batch/attacker.hpp"
#include "dat/loader.hpp"
#include "train/examples/begun_attack.hpp"
#include "train/examples/examples.hpp"

namespace dat {

/// Examples that this rank makes itself, from its part of the training set: read, cut out at random, attacked with the
/// weights of the moment. With --stale-attack, look_ahead() has made the first iterations of the attack on a step's
/// first micro-batch with the weights before those.
class LocalExamples final : public ExampleSource {
 public:
  explicit LocalExamples(const ExampleParts& parts);
  /// The attacker, for sources around this one.
  [[nodiscard]] Attacker& attacker() { return attacker_; }

  void keep_on_device(const std::uint8_t* pixels) override { attacker_.keep_on_device(pixels); }
  void start(std::int64_t step) override;
  void begin(std::int64_t step) override;
  const Batch* next() override;
  void look_ahead(std::int64_t step) override;
  [[nodiscard]] std::int64_t attack_passes() const override { return passes_; }

  [[nodiscard]] std::size_t places() const override { return 1; }
  void fetch(Backend::Ticket& /*ticket*/) override { passes_here_ = attacker_.passes() - passes_before_; }
  void write(double* to, int /*unit*/) override { *to = static_cast<double>(std::exchange(passes_here_, 0)); }
  void read(const double* from) override { passes_ = std::llround(*from); }

  void save(Checkpoint& checkpoint) override { begun_.save(checkpoint); }
  void restore(const Checkpoint& checkpoint) override { begun_.restore(checkpoint); }
  void forget_step_under_way() override { begun_.forget(); }
  void share(Communicator& /*ranks*/) override { begun_.share(); }

  [[nodiscard]] std::int64_t checkpoint_bytes(int ranks) const override { return begun_.checkpoint_bytes(ranks); }
  [[nodiscard]] std::string dropped() const override { return begun_.dropped(); }

 private:
  /// Reads the batch of a step, unless that has been done.
  void take_batch(std::int64_t step);

  Communicator& ranks_;
  const Dataset& dataset_;
  LoaderOptions loading_;
  PhaseTimer& timer_;
  Attacker attacker_;
  BegunAttack begun_;
  std::unique_ptr<Loader> loader_;
  const HostBatch* batch_ = nullptr;  ///< batch of the present step
  int next_ = 0;                      ///< next of its micro-batches
  std::int64_t passes_before_ = 0, passes_here_ = 0, passes_ = 0;
};

/// Around a source whose micro-batches `attacker` makes, as the options want it.
[[nodiscard]] std::unique_ptr<ExampleSource> make_cheated(std::unique_ptr<ExampleSource> source, Attacker& attacker,
                                                          const ExampleParts& parts);
[[nodiscard]] std::unique_ptr<ExampleSource> make_warm_started(std::unique_ptr<ExampleSource> source,
                                                               Attacker& attacker, const ExampleParts& parts);
[[nodiscard]] std::unique_ptr<ExampleSource> make_attacked_by_old_weights(std::unique_ptr<ExampleSource> source,
                                                                          Attacker& attacker,
                                                                          const ExampleParts& parts);

}  // namespace dat
