#pragma once

#include <memory>
#include <vector>

#include "batch/attacker.hpp"
#include "dat/loader.hpp"
#include "train/examples/examples.hpp"
#include "train/examples/old_weights.hpp"
#include "train/generators/orders.hpp"
#include "train/generators/version_sender.hpp"

namespace dat {

/// Examples that generators attack (--generators): gives them each version of the weights, orders the micro-batches of
/// this step and of as many to come as --staleness says, and takes what they answer. It reads and cuts out itself all
/// else that it needs beside the attacked images. With --deterministic the versions that an attack runs on follow the
/// rule of OldWeights, so images have the bits of LocalExamples, whoever makes them and whenever; the versions are
/// state then, and an attack that is under way when a run ends is made once more. Without, the newest version counts
/// that a generator has, and none is older than --staleness says.
class RemoteExamples final : public ExampleSource {
 public:
  explicit RemoteExamples(const ExampleParts& parts);
  RemoteExamples(const RemoteExamples&) = delete;
  RemoteExamples& operator=(const RemoteExamples&) = delete;

  void keep_on_device(const std::uint8_t* pixels) override { attacker_.keep_on_device(pixels); }
  void start(std::int64_t step) override;
  void begin(std::int64_t step) override;
  const Batch* next() override;
  void trained() override { orders_.take_answers(); }
  void close() override;
  [[nodiscard]] bool stop_wanted() const override { return orders_.stop_wanted(); }
  [[nodiscard]] std::int64_t bytes_sent() const override { return version_bytes_ + orders_.counts().bytes; }
  [[nodiscard]] std::int64_t attack_passes() const override { return passes_; }
  [[nodiscard]] const GeneratorRecord* generators() const override { return &record_; }

  [[nodiscard]] std::size_t places() const override { return kCounts + ages_.size(); }
  void write(double* to, int unit) override;
  void read(const double* from) override;

  void save(Checkpoint& checkpoint) override;
  void restore(const Checkpoint& checkpoint) override;
  void share(Communicator& ranks) override;

 private:
  static constexpr std::size_t kCounts = 3;
  static constexpr int kSpansOfSteps = 32;  ///< a picture has no room for more
  /// Copies the images of an answer to the device.
  void put(AnswerPacket& packet);

  Communicator& ranks_;
  const Dataset& dataset_;
  LoaderOptions loading_;
  Plan plan_;
  Replica& replica_;
  Attacker attacker_;  ///< loads images, which others have attacked
  PhaseTimer& timer_;
  Staleness staleness_;
  Orders orders_;
  VersionSender versions_;
  std::unique_ptr<OldWeights> kept_;  ///< null: no rule
  std::unique_ptr<Loader> loader_;
  const HostBatch* batch_ = nullptr;
  int next_ = 0;               ///< next of its micro-batches
  std::vector<float> turned_;  ///< [images of a micro-batch], in the layout of this device
  bool open_ = false;

  std::int64_t step_ = 0, version_bytes_ = 0, own_passes_ = 0, passes_ = 0;
  std::vector<std::int64_t> ages_;  ///< [staleness + 1] iterations of this step on weights so old
  GeneratorRecord record_;
  int spans_told_ = 0;  ///< steps
};

}  // namespace dat
