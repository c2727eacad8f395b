#pragma once

#include <memory>
#include <vector>

#include "dat/loader.hpp"
#include "train/examples/examples.hpp"
#include "train/examples/old_weights.hpp"
#include "train/generators/dealing.hpp"
#include "train/generators/messages.hpp"

namespace dat {

/// Examples that generators attack (--generators): gives them each version of the weights, deals them the micro-batches
/// of this step and of as many to come as --staleness says, each once, and takes what they answer. What it needs beside
/// the attacked images, it reads and cuts out itself. With --deterministic the versions that an attack runs on follow
/// the rule of OldWeights, so images have the bits of LocalExamples, whoever makes them and whenever; the versions are
/// state then, and an attack that is under way when a run ends is made once more. Without, the newest version counts
/// that a generator has, and none is older than --staleness says.
class RemoteExamples final : public ExampleSource {
 public:
  explicit RemoteExamples(const ExampleParts& parts);
  ~RemoteExamples() override;
  RemoteExamples(const RemoteExamples&) = delete;
  RemoteExamples& operator=(const RemoteExamples&) = delete;

  void keep_on_device(const std::uint8_t* pixels) override { pixels_ = pixels; }
  void start(std::int64_t step) override;
  void begin(std::int64_t step) override;
  const Examples* next() override;
  void trained() override { take_answers(); }
  void close() override;
  [[nodiscard]] std::int64_t bytes_sent() const override { return bytes_sent_; }
  [[nodiscard]] std::int64_t attack_passes() const override { return passes_; }
  [[nodiscard]] const GeneratorRecord* generators() const override { return &record_; }

  [[nodiscard]] std::size_t places() const override { return kCounts + ages_.size(); }
  void write(double* to, int unit) override;
  void read(const double* from) override;

  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;
  [[nodiscard]] std::int64_t checkpoint_bytes() const override { return kept_ ? kept_->checkpoint_bytes() : 0; }

 private:
  static constexpr std::size_t kCounts = 3;
  /// A micro-batch that has been dealt.
  struct Dealt {
    std::int64_t step = -1;
    int unit = 0;
    int generator = 0;  ///< that has been given it last
    bool answered = false;
    std::size_t packet = 0;  ///< that has the answer
  };
  struct Sending {
    VersionPacket packet;
    std::vector<Request> requests{};  ///< one for each of this trainer's generators
  };
  /// Waits until all have the version, and takes answers meanwhile.
  void finish(Sending& sending);
  [[nodiscard]] int units() const { return plan_.micro_batches_of(ranks_.rank()); }
  [[nodiscard]] int micro_batch_of(std::int64_t step) const {
    return (step + 1) % plan_.steps_per_epoch == 0 ? plan_.last_micro_batch : plan_.micro_batch;
  }
  void order(int generator, const Order& order);
  /// Sends a version to those of the generators that have it from this trainer. from: where it is kept; null: the
  /// network has it.
  void publish(std::int64_t version, const HeldWeights* from);
  void deal(std::int64_t step);
  void take_answers();
  void take(const Communicator::Arrival& arrival);
  /// Error(communication): the answer is not what has been ordered.
  void require_right(const AnswerHeader& answer, std::size_t bytes, int rank) const;
  void wait_for(Dealt& dealt);
  void deal_again(Dealt& dealt, double waited);
  /// Copies the images of an answer to the device.
  void put(AnswerPacket& packet);
  [[nodiscard]] int launch_rank(int generator) const { return first_generator_ + generator; }

  Communicator &ranks_, &launch_;
  const Dataset& dataset_;
  LoaderOptions loading_;
  Plan plan_;
  Replica& replica_;
  PhaseTimer& timer_;
  Staleness staleness_;
  int generators_, first_generator_;  ///< first: its rank in the launch
  StepsUnderWay under_way_;
  Dealing dealing_;
  std::unique_ptr<OldWeights> kept_;  ///< null: no rule
  std::unique_ptr<Loader> loader_;
  const std::uint8_t* pixels_ = nullptr;
  const HostBatch* batch_ = nullptr;
  Examples examples_;

  std::vector<Sending> sending_;  ///< two, in turn
  std::int64_t published_ = 0, first_version_ = 0, next_dealt_ = 0;
  std::vector<Dealt> dealt_;           ///< by StepsUnderWay::place()
  std::vector<AnswerPacket> packets_;  ///< one for each place, and one to receive into
  std::size_t free_packet_ = 0;
  std::vector<float> plain_;  ///< [images of a micro-batch], in the layout of this device
  bool open_ = false;
  int paused_ = 0;

  std::int64_t step_ = 0, bytes_sent_ = 0, own_passes_ = 0, passes_ = 0, again_ = 0;
  double waited_ = 0, idle_ = 0;
  std::vector<std::int64_t> ages_;  ///< [staleness + 1] iterations of this step on weights so old
  GeneratorRecord record_;
};

}  // namespace dat
