#include <numeric>
#include <optional>

#include "reduce/transport/message.hpp"

namespace dat {

namespace {

/// Every rank gets the messages of all ranks, decodes them, and aggregates whole gradients for itself. It has room for
/// as many messages and flat blocks as there are ranks. Messages have one length, or each rank's has layers of its own.
class Gather final : public Transport {
 public:
  explicit Gather(const TransportOptions& options)
      : options_(options),
        parameters_(options.parameters),
        own_(options.separate ? static_cast<std::size_t>(options.ranks.rank()) : 0),
        lengths_(lengths_of(options.codec, parameters_)),
        mine_(options.backend),
        everyone_(options.backend),
        places_(parameters_.segments.size()) {
    const std::size_t messages = options.separate ? static_cast<std::size_t>(options.ranks.size()) : 1;
    messages_.reserve(messages);
    for (std::size_t m = 0; m < messages; ++m) messages_.emplace_back(options.backend, parameters_);
    for (Place& place : places_) place = {.bytes = std::vector<int>(messages), .at = std::vector<int>(messages)};
  }

  void reserve() override {
    const std::int64_t bytes = total(lengths_), ranks = options_.ranks.size();
    for (Message& message : messages_) message.reserve();
    tables_.reserve(options_.backend, parameters_);
    mine_.reserve(bytes);
    everyone_.reserve(bytes * ranks);
    if (options_.separate) result_.emplace(options_.backend, parameters_);
    decoded_ = options_.backend.allocate_floats(parameters_.size * ranks, "gradients of all ranks");
  }

  [[nodiscard]] std::int64_t begin(const StepMessages& step) override {
    step_ = step.step;
    Place next;
    for (const Bucket& bucket : step.buckets) {
      Place& place = place_of(bucket);
      lay_out(bucket, step, place);
      place.begin = next.begin;
      place.everyone = next.everyone;
      next.begin += place.mine;
      next.everyone += place.all;
    }
    for (std::size_t m = 0; m < messages_.size(); ++m)
      chunks_ = messages_[m].select(result_ ? step.layers[m] : step.any);
    if (result_) chunks_ = result_->select(step.any);
    return next.begin;
  }

  [[nodiscard]] Backend::Ticket encode(const Bucket& bucket) override {
    const MessageTensors tensors = tensors_of(bucket, own_);
    const std::int64_t at = place_of(bucket).begin;
    options_.codec.encode(tensors, options_.gradients, mine_.device(at));
    return mine_.fetch(at, tensors.bytes);
  }

  [[nodiscard]] Request give(const Bucket& bucket) override {
    const Place& place = place_of(bucket);
    const std::byte* const mine = mine_.host(place.begin);
    std::byte* const all = everyone_.host(place.everyone);
    const auto bytes = static_cast<std::size_t>(place.mine);
    Communicator& ranks = options_.ranks;
    if (options_.overlap)
      return options_.separate ? ranks.start_all_gather(mine, all, place.bytes, place.at)
                               : ranks.start_all_gather(mine, all, bytes);
    if (options_.separate)
      ranks.all_gather(mine, all, place.bytes);
    else
      ranks.all_gather(mine, all, bytes);
    return {};
  }

  void take(const Bucket& bucket) override {
    const Place& place = place_of(bucket);
    everyone_.send(place.everyone, place.all);
    std::int64_t next = place.everyone;
    for (int rank = 0; rank < options_.ranks.size(); ++rank) {
      const MessageTensors tensors = tensors_of(bucket, options_.separate ? static_cast<std::size_t>(rank) : 0);
      float* const gradients = decoded_ + parameters_.size * rank;
      options_.codec.decode(tensors, everyone_.device(next), 1.0F, gradients);
      next += tensors.bytes;
    }
  }

  void finish() override {
    options_.aggregator.aggregate({.chunks = chunks_,
                                   .gradients = decoded_,
                                   .stride = parameters_.size,
                                   .step = step_,
                                   .result = options_.gradients,
                                   .weights = options_.weights});
  }
  [[nodiscard]] float* of_ranks() const override { return decoded_; }

  [[nodiscard]] static std::int64_t memory(const Codec& codec, const Parameters& parameters, int ranks) {
    const std::int64_t bytes = total(lengths_of(codec, parameters));
    return bytes + ranks * (bytes + parameters.size * std::int64_t{sizeof(float)});
  }

 private:
  /// Place of a bucket.
  struct Place {
    std::int64_t begin = 0, everyone = 0;  ///< places in this rank's memory, and in that of all
    std::int64_t mine = 0, all = 0;        ///< bytes of this rank's message, and of all messages
    std::vector<int> bytes, at;            ///< [ranks] where each has a length of its own: that, and where it is put
  };

  [[nodiscard]] static std::int64_t total(const std::vector<std::int64_t>& lengths) {
    return std::reduce(lengths.begin(), lengths.end());
  }
  [[nodiscard]] Place& place_of(const Bucket& bucket) { return places_[static_cast<std::size_t>(bucket.number)]; }
  [[nodiscard]] MessageTensors tensors_of(const Bucket& bucket, std::size_t message) {
    const Place& place = place_of(bucket);
    const std::int64_t bytes = options_.separate ? place.bytes[message] : place.mine;
    return messages_[message].range(tables_, bucket.first, bucket.end, {.step = step_, .bytes = bytes});
  }

  /// Returns the length of the bucket's message.
  [[nodiscard]] std::int64_t lay_out(const Bucket& bucket, const ActiveSet& layers, Message& message) const {
    std::int64_t bytes = 0;
    for_each_segment(bucket, parameters_, layers, [&](std::size_t k) {
      message.begin(k) = bytes;
      bytes += lengths_[k];
    });
    return bytes;
  }
  /// The messages of the ranks stand one after the other.
  void lay_out(const Bucket& bucket, const StepMessages& step, Place& place) {
    if (!options_.separate) {
      place.mine = lay_out(bucket, step.any, messages_.front());
      place.all = place.mine * options_.ranks.size();
      return;
    }
    place.all = 0;
    for (std::size_t rank = 0; rank < messages_.size(); ++rank) {
      const std::int64_t bytes = lay_out(bucket, step.layers[rank], messages_[rank]);
      place.bytes[rank] = static_cast<int>(bytes);
      place.at[rank] = static_cast<int>(place.all);
      place.all += bytes;
    }
    place.mine = place.bytes[own_];
    check_length(bucket, place.all, "", " bytes of all ranks");
  }

  TransportOptions options_;
  const Parameters& parameters_;
  std::size_t own_;                    ///< index of this rank's one in messages_
  std::vector<Message> messages_;      ///< [ranks] where they are separate, else one
  std::vector<std::int64_t> lengths_;  ///< [segments]
  TensorTables tables_;
  MessageMemory mine_, everyone_;     ///< messages of this rank, and of all, bucket by bucket
  std::vector<Place> places_;         ///< [buckets]
  std::optional<ChunkTable> result_;  ///< layers of any rank, where messages are separate
  Chunks chunks_;                     ///< chunks of the result
  float* decoded_ = nullptr;          ///< [ranks][parameters.size], on the device
  std::int64_t step_ = 0;
};

}  // namespace

TransportKind gather_transport() {
  return {.title = "all-gather",
          .takes = [](const Codec& codec) { return codec.rounds() == 1; },
          .serves = [](const Aggregator&) { return true; },
          .separate = true,
          .traffic = [](int ranks) { return Traffic{.gathered = 1, .decoded = ranks}; },
          .memory = Gather::memory,
          .sent = [](const Codec& codec, const Segment& segment, int) { return bytes_of(codec, segment); },
          .make = made<Gather>};
}

}  // namespace dat
