#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dat/aggregator.hpp"
#include "dat/backend.hpp"
#include "dat/codec.hpp"
#include "dat/communicator.hpp"
#include "dat/parameters.hpp"

namespace dat {

/// What a step's time goes to while the reducer has its part in it; `outside`: what the caller does in between.
enum class ReducerStage : std::uint8_t { outside, encode, communicate, decode };

struct ReducerOptions {
  std::int64_t bucket_elements = 8 << 20;  ///< gradients of one message, which goes as soon as it is complete
  bool overlap = false;                    ///< start a message during the backward pass, as soon as it is complete
  /// How gradients meet of ranks that have them for different layers. Empty: all have the same layers.
  ///   dense      messages of all layers; a rank sends zeros for those that it has not drawn
  ///   union      the same of those layers only that any rank has drawn
  ///   allgather  each rank sends its own layers to all, and every rank adds them up in the order of the ranks
  std::string transport{};
  /// How messages meet: auto | sum | gather | two_sided (dat/codec.hpp). auto: as the codec has it by default; gather
  /// where the aggregator is not the mean, or the transport is allgather.
  std::string codec_transport = "auto";
  /// Told that a stage ends with what is queued now; the stage before it has ended where this one was told of last.
  std::function<void(ReducerStage)> ended = [](ReducerStage) {};
};

/// The transport of the messages of a codec that allows `allowed`. Error(usage): it allows no such one, or the
/// aggregator or the transport of masks per worker does not.
[[nodiscard]] Transport choose_transport(const std::vector<Transport>& allowed, bool mean,
                                         const ReducerOptions& options);
[[nodiscard]] const char* name_of(Transport transport);

/// Makes one gradient of the gradients of all ranks, for the layers that take part in a step. A rank computes its part
/// in units of work, each of which has a place for its gradient; segments are announced as they are finished.
class Reducer {
 public:
  virtual ~Reducer() = default;

  /// Begins the reduction of a step, `step` being its number in the training. layers: those whose gradients the ranks
  /// have, one set for all, or one of each rank. To be called before the step's first place().
  virtual void begin(std::span<const ActiveSet> layers, std::int64_t step) = 0;
  /// Where the gradient of this rank's unit number `unit` is to be put together: a flat block [parameters.size] on the
  /// device, of which nothing counts so far. Units come in order; asking for the same one again gives the same place.
  [[nodiscard]] virtual float* place(int unit) = 0;
  /// Says that the gradient of this one of `parameters.segments` is complete in the rank's last unit.
  virtual void ready(int segment) = 0;
  /// Once all units are complete: the blocks [parameters.size] on the device that this rank brings, until finish().
  [[nodiscard]] virtual std::span<float* const> own() = 0;
  /// Waits for everything and leaves the result in the gradients. **Collective.**
  virtual void finish() = 0;

  [[nodiscard]] virtual std::int64_t elements() const = 0;  ///< of this rank's layers, of this step
  /// Bytes that this rank has given to MPI for others in this step, and those of others that MPI has brought; of a sum,
  /// the message and the result. One rank sends nothing.
  [[nodiscard]] virtual std::int64_t bytes_sent() const = 0;
  [[nodiscard]] virtual std::int64_t bytes_received() const = 0;
  [[nodiscard]] virtual Transport transport() const = 0;
  /// bytes_sent() of a step where there are so many ranks, in the mean over draws of layers with these probabilities.
  [[nodiscard]] virtual double bytes_sent(const std::vector<double>& probabilities, int ranks) const = 0;
  /// Memory for messages and what is made of them, where there are so many ranks.
  [[nodiscard]] virtual std::int64_t memory(int ranks) const = 0;
  /// Seconds in which any message of this step was under way beside other work; after finish().
  [[nodiscard]] virtual double seconds_under_way() const { return 0; }
  /// What the codec of this rank remembers from step to step; every rank has its own.
  [[nodiscard]] virtual std::vector<Codec::State> state() const { return {}; }
};

/// Makes one gradient of the gradients of all ranks, for the active layers: the codec writes their tensors into one
/// message on the device, last layer first, which is the order in which the backward pass finishes them; it goes in
/// buckets, one after the other while the device goes on; what comes back is the result.
///
/// How the messages meet is said by Transport. Summed: MPI adds them, in as many rounds as the codec has. Gathered:
/// every rank gets the messages of all ranks, decodes them and aggregates for itself; it then has room for as many
/// messages and flat blocks as there are ranks. Two-sided: of every tensor each rank has a share, a run of its elements
/// with a message of its own; the ranks exchange shares, each decodes what all have of its share, makes the mean,
/// encodes it again and sends it to all. One rank does the same as many, unless neither codec nor aggregator would
/// change a bit: then nothing is done.
///
/// Ranks may have gradients of different layers (ReducerOptions::transport). What a rank does not have counts as zero,
/// so the mean is over all ranks, for each layer that any of them has.
///
/// MPI gets pinned host memory, to which the messages are copied and from which they return; or the messages
/// themselves, where they lie in host memory, or MPI takes device memory and nothing overlaps
/// (Communicator::takes_device_memory). A step allocates nothing; finish() waits for the device once for each round,
/// with several ranks once for each bucket and round.
///
/// A rank's part of the step is one unit of work.
class GradientReducer final : public Reducer {
 public:
  /// gradients: a flat block [parameters.size] on the device, which the backward passes fill, and where the result
  /// appears. Error(usage): no such transport; one that the codec or the aggregator does not allow; or masks per worker
  /// with an aggregator that is not the mean, the only one that does not take zeros for gradients.
  GradientReducer(Backend&, Communicator& ranks, const Parameters& parameters, float* gradients, std::unique_ptr<Codec>,
                  std::unique_ptr<Aggregator>, const ReducerOptions&);
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Lays out the message of this step. layers: one set for all; or, with a transport, [size of the group] one of each.
  /// The result is of the layers in any of them; `dense` sets all.
  void begin(std::span<const ActiveSet> layers, std::int64_t step) override;
  [[nodiscard]] float* place(int /*unit*/) override { return gradients_; }
  /// Of this rank's layers. Ranks announce what they have in the same order.
  void ready(int segment) override;
  [[nodiscard]] std::span<float* const> own() override { return {&gradients_, 1}; }
  void finish() override;

  [[nodiscard]] std::int64_t elements() const override { return elements_; }
  [[nodiscard]] std::int64_t bytes_sent() const override { return ranks_.size() > 1 ? bytes_sent_ : 0; }
  [[nodiscard]] std::int64_t bytes_received() const override { return ranks_.size() > 1 ? bytes_received_ : 0; }
  [[nodiscard]] Transport transport() const override { return transport_; }
  [[nodiscard]] double bytes_sent(const std::vector<double>& probabilities, int ranks) const override;
  /// Of the device.
  [[nodiscard]] std::int64_t memory(int ranks) const override;
  [[nodiscard]] double seconds_under_way() const override { return ranks_.seconds_under_way() - under_way_before_; }
  /// The ranks that the aggregator holds guilty of false gradients in this step; on all ranks the same.
  [[nodiscard]] std::vector<int> accused() const { return aggregator_->accused(); }
  [[nodiscard]] std::vector<Codec::State> state() const override { return codec_->state(); }

 private:
  /// The messages of one rank, or of all that have the same layers; or, of the two-sided transport, the means that this
  /// rank sends to all.
  struct Message {
    ChunkTable table;                ///< of the layers in it
    std::vector<std::int64_t> byte;  ///< [rounds][tensors] where their messages begin in their bucket's
    std::int64_t* device_byte = nullptr;
  };
  /// Where MPI puts the messages of a bucket that differ in length; two-sided: the ranks' shares in a message.
  struct Blocks {
    std::vector<int> bytes, at;          ///< [size of the group]
    std::vector<int> own_bytes, own_at;  ///< [size of the group], two-sided: this rank's share in the messages of all
  };
  /// A bucket on its way.
  struct Part {
    int first = 0, end = 0;  ///< segments
    std::int64_t elements = 0;
    /// [messages_] of each rank; or [rounds] of the one message; or [size of the group] of the shares
    std::int64_t* bytes = nullptr;
    std::int64_t begin = 0, everyone = 0;  ///< in this rank's message; in those of all ranks; in bytes
    std::int64_t bytes_of_everyone = 0;    ///< in this bucket
    const Blocks* blocks = nullptr;        ///< null: all messages have the same length
    int round = 0;
    int missing = 0;             ///< segments not announced yet
    Backend::Ticket ticket = 0;  ///< arrives when MPI may read it
    bool sent = false;           ///< given to MPI
    Request request{};           ///< that moves it
  };
  /// Whose layers messages_[message] has.
  [[nodiscard]] const ActiveSet& layers_of(std::span<const ActiveSet> layers, std::size_t message) const;
  void lay_out(std::span<const ActiveSet> layers);
  void lay_out_blocks();
  void lay_out_shares();
  /// Layers of tensors_: those of `layers`, of the shares first .. end - 1.
  [[nodiscard]] const ActiveSet& of_shares(const ActiveSet& layers, int first, int end);
  /// The messages of one segment, as long as they can be with so many shares.
  [[nodiscard]] std::int64_t message_bytes(const Segment& segment, int shares) const;
  [[nodiscard]] std::int64_t share_bytes(const Segment& segment, int shares) const;  ///< of the longest share
  void set_zeros(std::span<const ActiveSet> layers);
  void upload(Message& message);
  [[nodiscard]] Bucket bucket(const Part& part, const Message& message, std::int64_t bytes) const;
  [[nodiscard]] Bucket bucket(const Part& part, std::size_t message) const;  ///< of the part's round
  [[nodiscard]] Bucket own_share(const Part& part) const;
  /// Whether the part's message is the mean of this rank's share.
  [[nodiscard]] bool sends_mean(const Part& part) const { return transport_ == Transport::two_sided && part.round > 0; }
  void encode(Part& part);
  void give(Part& part);
  void move_on();
  void go_on(Part& part);
  void decode(const Part& part);

  Backend& backend_;
  Communicator& ranks_;
  const Parameters& parameters_;
  float* gradients_;
  std::unique_ptr<Codec> codec_;
  std::unique_ptr<Aggregator> aggregator_;
  ReducerOptions options_;
  bool separate_;    ///< each rank has a message of its own
  std::size_t own_;  ///< which of messages_ is this rank's
  Transport transport_;
  int rounds_;                        ///< messages of a step
  int shares_;                        ///< into which every segment is cut
  Parameters tensors_;                ///< of which messages are made: the shares of the first segment, of the next ...
  bool unchanged_;                    ///< one rank, whose gradients are the result already
  bool staged_;                       ///< MPI gets copies in host memory
  ActiveSet any_, absent_, shared_;   ///< layers of the result; those that a rank does not have; of shares
  std::vector<Message> messages_;     ///< [size of the group] where they are separate, else one
  std::optional<Message> share_;      ///< two-sided: of this rank's share
  std::vector<ChunkTable> zeros_;     ///< of absent layers; [messages_], none where all ranks have the same layers
  std::optional<ChunkTable> result_;  ///< of any_; where messages are separate
  /// [bytes of all segments]: this rank's message, on the device, and what MPI gets. Null: unchanged_.
  std::byte *message_ = nullptr, *host_message_ = nullptr;
  /// Bucket by bucket, the messages of all ranks; two-sided: what all have of this rank's share. Null: summed.
  std::byte *everyone_ = nullptr, *host_everyone_ = nullptr;
  /// On the device. Gathered: [size of the group][parameters.size]; two-sided: [parameters.size]. Null: summed.
  float* decoded_ = nullptr;
  double *partial_ = nullptr, *sums_ = nullptr;  ///< for the codec
  Chunks chunks_;                                ///< of the result
  std::vector<std::int64_t> tensor_bytes_;       ///< [rounds][tensors] of their messages
  std::int64_t *device_element_ = nullptr, *device_size_ = nullptr;
  std::vector<int> part_of_;  ///< [segments]
  std::vector<Part> parts_;
  std::vector<std::int64_t> part_bytes_;  ///< [segments][Part::bytes], by part
  std::vector<Blocks> blocks_;            ///< [segments], by part; none where messages have the same length
  std::int64_t step_ = 0, elements_ = 0, bytes_sent_ = 0, bytes_received_ = 0;
  double under_way_before_ = 0;
};

}  // namespace dat
