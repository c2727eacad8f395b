#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "byzantine/protocol.hpp"
#include "dat/dataset.hpp"
#include "dat/reducer.hpp"
#include "reduce/sums/summation_tree.hpp"
#include "replica/replica.hpp"
#include "train/attackers/cheating.hpp"
#include "train/message/codec_state.hpp"
#include "train/message/step_message.hpp"
#include "train/plan/phase_timer.hpp"
#include "train/plan/plan.hpp"
#include "train/plan/step_method.hpp"

namespace dat {

/// Gradients of one message: DAT_BUCKET, or what it means where nobody has chosen.
[[nodiscard]] std::int64_t bucket_of(const TrainOptions& options);

/// Exchange of the work of all ranks in a step: gradients in a reducer, small numbers in a message after it. Where
/// ranks may be false, aggregator and message withstand them; who is to find them out looks on (BanProtocol), and
/// alone has a state.
class StepExchange : public Stateful {
 public:
  /// All references must outlive it. images, plan, method: for who does another rank's work (BanProtocol).
  struct Parts {
    Communicator& ranks;
    const Dataset& images;
    const TrainOptions& options;
    const Plan& plan;
    const StepMethod& method;
    Replica& replica;
    const SummationTree* order;  ///< order of the micro-batches of all ranks; null: each rank has its own
    PhaseTimer& timer;
    Cheating& cheating;
  };
  explicit StepExchange(const Parts& parts);

  /// The first call: makes the reducer that the options ask for.
  void open();
  /// A reducer as the step's, of gradients in this block.
  [[nodiscard]] std::unique_ptr<Reducer> make_reducer(float* gradients, const std::string& codec,
                                                      const std::string& codec_transport,
                                                      const std::string& aggregator);
  [[nodiscard]] Reducer& reducer() { return *reducer_; }
  [[nodiscard]] const Reducer& reducer() const { return *reducer_; }
  [[nodiscard]] CodecState& codec_state() { return *codec_state_; }
  [[nodiscard]] const CodecState& codec_state() const { return *codec_state_; }

  /// The message to which parts are added; and that of what a rank says of its contribution, its batch statistics and
  /// losses. To be called when all parts have been added: ready().
  [[nodiscard]] StepMessage& message() { return message_; }
  [[nodiscard]] virtual StepMessage& message_of_contributions() { return message_; }
  virtual void ready() {}
  /// Sets the pixels of the training set, on the device; null: they are not there.
  virtual void keep_on_device(const std::uint8_t* /*pixels*/) {}

  /// A step, in the order of the calls. The ranks may have layers to draw between the first two.
  virtual void begin_step(std::int64_t /*step*/) {}
  void begin(std::span<const ActiveSet> layers, std::int64_t step);
  /// Returns whether this rank brings a gradient to the step.
  [[nodiscard]] virtual bool contributes() const { return true; }
  /// The reduction. False: the step must be done once more, without some ranks (bans()). **Collective.**
  [[nodiscard]] virtual bool finish();
  /// The message. **Collective.**
  void sum() { message_.sum(); }
  /// The step stands, and is about to be updated with. **Collective.**
  virtual void keep(const ActiveSet& /*active*/) {}
  /// Nothing of the step stays.
  void put_back() { codec_state_->put_back(); }

  /// Bytes that this rank has sent beside gradients in this step.
  [[nodiscard]] virtual std::int64_t bytes_sent() const { return message_.bytes_sent(); }
  /// [ranks of the launch] how far the gradient of each was from the result; NaN: it has brought none; null: unknown.
  [[nodiscard]] virtual const std::vector<double>* distances() const { return cheating_.distances(); }
  [[nodiscard]] virtual std::span<const Ban> bans() const { return {}; }
  /// Accusations of ranks since the last call.
  [[nodiscard]] virtual std::vector<Accusation> take_accusations() { return {}; }

 protected:
  /// Observer of the reducer that is being made; null: nobody.
  [[nodiscard]] virtual PartsWatch* watch() { return nullptr; }
  /// Sets the aggregator, which makes one gradient of all there.
  virtual void use(Aggregator& /*aggregator*/) {}

 private:
  void ended(ReducerStage stage);

  Communicator& ranks_;
  const TrainOptions& options_;
  Replica& replica_;
  const SummationTree* order_;
  PhaseTimer& timer_;
  Cheating& cheating_;
  StepMessage message_;
  std::unique_ptr<Reducer> reducer_;
  std::unique_ptr<CodecState> codec_state_;
  Phase around_reducer_ = Phase::select;
};

}  // namespace dat
