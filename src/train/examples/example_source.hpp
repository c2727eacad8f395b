#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "dat/batch.hpp"
#include "dat/report.hpp"
#include "train/message/stateful.hpp"
#include "train/message/step_message.hpp"

namespace dat {

/// Source of the attacked images of a training step: made by this rank, or elsewhere. It has state, of which there may
/// be none, and a part of the step's message, which may be empty.
class ExampleSource : public Stateful, public MessagePart {
 public:
  /// Sets the pixels of the training set, on the device; null: they are not there. Before start().
  virtual void keep_on_device(const std::uint8_t* /*pixels*/) {}
  /// Starts before the first step, which is number `step`: 0, or the one that a checkpoint says.
  virtual void start(std::int64_t step) = 0;
  /// Makes ready what step number `step` trains on.
  virtual void begin(std::int64_t step) = 0;
  /// The step's next micro-batch, valid until the next call; null: there is no further one. All micro-batches of a step
  /// have the same size. Queues work, and waits only where an attack does.
  virtual const Batch* next() = 0;
  /// Begins, after the last micro-batch of a step and with the present weights, the work of the next step, number
  /// `step`, that may be done before its weights are there. Nothing, where none of it may be done so.
  virtual void look_ahead(std::int64_t /*step*/) {}
  /// The learner has queued its work on the examples; their image gradient is there where it was wanted.
  virtual void trained() {}
  /// The step's numbers are not finite: takes back what has been kept of it. On all ranks.
  virtual void take_back() {}
  /// The training ends, or goes on with another source: nothing that other ranks do for this one is under way
  /// afterwards.
  virtual void close() {}
  /// Returns whether a rank that makes examples has reported that the run is to stop.
  [[nodiscard]] virtual bool stop_wanted() const { return false; }
  /// Bytes that have gone from this rank to others for the sake of this step's examples.
  [[nodiscard]] virtual std::int64_t bytes_sent() const { return 0; }
  /// Images of all ranks times gradients that the attack has taken in this step, padding included. After the message.
  [[nodiscard]] virtual std::int64_t attack_passes() const { return 0; }
  /// Work of generators for the step; null: there are none. After the message.
  [[nodiscard]] virtual const GeneratorRecord* generators() const { return nullptr; }

  /// Bytes in a checkpoint of so many ranks.
  [[nodiscard]] virtual std::int64_t checkpoint_bytes(int /*ranks*/) const { return 0; }
  /// Parts of a checkpoint that restore() has left out, and why; empty: none.
  [[nodiscard]] virtual std::string dropped() const { return ""; }
};

/// A source around another one. It hands on all that it does not do otherwise, and may have state of its own beside it.
class WrappedExamples : public ExampleSource {
 public:
  explicit WrappedExamples(std::unique_ptr<ExampleSource> source) : source_(std::move(source)) {}

  void keep_on_device(const std::uint8_t* pixels) override { source_->keep_on_device(pixels); }
  void start(std::int64_t step) override { source_->start(step); }
  void begin(std::int64_t step) override { source_->begin(step); }
  const Batch* next() override { return source_->next(); }
  void look_ahead(std::int64_t step) override { source_->look_ahead(step); }
  void trained() override { source_->trained(); }
  void take_back() override { source_->take_back(); }
  void close() override { source_->close(); }
  [[nodiscard]] bool stop_wanted() const override { return source_->stop_wanted(); }
  [[nodiscard]] std::int64_t bytes_sent() const override { return source_->bytes_sent(); }
  [[nodiscard]] std::int64_t attack_passes() const override { return source_->attack_passes(); }
  [[nodiscard]] const GeneratorRecord* generators() const override { return source_->generators(); }
  [[nodiscard]] std::int64_t checkpoint_bytes(int ranks) const override { return source_->checkpoint_bytes(ranks); }
  [[nodiscard]] std::string dropped() const override { return source_->dropped(); }
  [[nodiscard]] std::size_t places() const override { return source_->places(); }
  void fetch(Backend::Ticket& ticket) override { source_->fetch(ticket); }
  void write(double* to, int unit) override { source_->write(to, unit); }
  void read(const double* from) override { source_->read(from); }
  void save(Checkpoint& checkpoint) override {
    source_->save(checkpoint);
    own().save(checkpoint);
  }
  void restore(const Checkpoint& checkpoint) override {
    source_->restore(checkpoint);
    own().restore(checkpoint);
  }
  void forget_step_under_way() override { source_->forget_step_under_way(); }
  void share(Communicator& ranks) override {
    source_->share(ranks);
    own().share(ranks);
  }
  void replicated(ReplicatedState& state) override { source_->replicated(state); }

 private:
  /// State beside that of the source.
  virtual Stateful& own() { return none_; }

  std::unique_ptr<ExampleSource> source_;
  Stateful none_;
};

}  // namespace dat
