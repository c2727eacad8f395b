#include <algorithm>
#include <optional>

#include "codec.hpp"
#include "gradients.hpp"
#include "reduce/transport/message.hpp"

namespace dat {

namespace {

/// One of so many runs of a segment's elements, about equally long, as a tensor of its own; wherever the run has
/// padding, the tensor says how much. Runs begin at groups of four elements, which share their random numbers.
[[nodiscard]] Segment share_of(const Segment& segment, int shares, int share) {
  constexpr std::int64_t kGroup = 4;
  const std::int64_t groups = (segment.size + kGroup - 1) / kGroup;
  const auto begin = [&](std::int64_t k) { return std::min(segment.size, groups * k / shares * kGroup); };
  Segment run = segment;
  run.begin = segment.begin + begin(share);
  run.size = begin(share + 1) - begin(share);
  run.shape = {static_cast<int>(run.size)};
  run.padding_in = 0;
  run.padding_out =
      static_cast<int>(run.size - (segment.real_before(begin(share + 1)) - segment.real_before(begin(share))));
  run.layer = segment.layer * shares + share;
  return run;
}

/// The shares of the first segment, of the next ...
[[nodiscard]] Parameters cut(const Parameters& parameters, int shares) {
  Parameters result;
  result.layer_names.resize(parameters.layer_names.size() * static_cast<std::size_t>(shares));
  result.size = parameters.size;
  for (const Segment& segment : parameters.segments)
    for (int share = 0; share < shares; ++share) result.segments.push_back(share_of(segment, shares, share));
  return result;
}

/// The bytes of a segment's shares, all together and of the longest one.
struct ShareBytes {
  std::int64_t all = 0, longest = 0;
};
[[nodiscard]] ShareBytes bytes_of_shares(const Codec& codec, const Segment& segment, int shares) {
  ShareBytes bytes;
  for (int share = 0; share < shares; ++share) {
    const std::int64_t one = bytes_of(codec, share_of(segment, shares, share));
    bytes.all += one;
    bytes.longest = std::max(bytes.longest, one);
  }
  return bytes;
}
[[nodiscard]] ShareBytes bytes_of_shares(const Codec& codec, const Parameters& parameters, int shares) {
  ShareBytes bytes;
  for (const Segment& segment : parameters.segments) {
    const ShareBytes one = bytes_of_shares(codec, segment, shares);
    bytes.all += one.all;
    bytes.longest += one.longest;
  }
  return bytes;
}

/// Transport by shares: each rank has a share of every tensor, a run of its elements with a message of its own. The
/// ranks exchange shares; each decodes what all have of its share, makes the mean, encodes it again, and sends it to
/// all. A message has the shares of the ranks one after the other.
class TwoSided final : public Transport {
 public:
  explicit TwoSided(const TransportOptions& options)
      : options_(options),
        shares_(static_cast<std::size_t>(options.ranks.size())),
        me_(static_cast<std::size_t>(options.ranks.rank())),
        tensors_(cut(options.parameters, options.ranks.size())),
        shared_(ActiveSet::all(tensors_.layers())),
        message_(options.backend, tensors_),
        lengths_(lengths_of(options.codec, tensors_)),
        mine_(options.backend),
        everyone_(options.backend),
        places_(options.parameters.segments.size()) {
    for (Place& place : places_)
      for (std::vector<int>* each : {&place.bytes, &place.at, &place.own_bytes, &place.own_at}) each->resize(shares_);
  }

  void reserve() override {
    const ShareBytes bytes = bytes_of_shares(options_.codec, options_.parameters, options_.ranks.size());
    share_.emplace(options_.backend, tensors_);
    message_.reserve();
    share_->reserve();
    tables_.reserve(options_.backend, tensors_);
    mine_.reserve(bytes.all);
    everyone_.reserve(bytes.longest * options_.ranks.size());
    decoded_ = options_.backend.allocate_floats(options_.parameters.size, "gradients of all ranks");
  }
  [[nodiscard]] int rounds() const override { return 2; }

  [[nodiscard]] std::int64_t begin(const StepMessages& step) override {
    step_ = step.step;
    std::int64_t begin = 0, everyone = 0;
    for (const Bucket& bucket : step.buckets) {
      Place& place = place_of(bucket);
      lay_out(bucket, step.any, place);
      place.begin = begin;
      place.everyone = everyone;
      begin += place.all;  // first the shares of the others, then the mean of its own
      everyone += place.everyones;
    }
    message_.select(of_shares(step.any, 0, shares_));
    share_->select(of_shares(step.any, me_, me_ + 1));
    return begin;
  }

  [[nodiscard]] Backend::Ticket encode(const Bucket& bucket) override {
    const bool mean = bucket.round > 0;
    const Place& place = place_of(bucket);
    const MessageTensors tensors = mean ? own_share(bucket) : whole(bucket);
    const MessageMemory& memory = mean ? everyone_ : mine_;
    const std::int64_t at = mean ? place.everyone : place.begin;
    options_.codec.encode(tensors, options_.gradients, memory.device(at));
    return memory.fetch(at, tensors.bytes);
  }

  [[nodiscard]] Request give(const Bucket& bucket) override {
    const Place& of = place_of(bucket);
    std::byte *const mine = mine_.host(of.begin), *const all = everyone_.host(of.everyone);
    Communicator& ranks = options_.ranks;
    if (bucket.round > 0) {
      if (options_.overlap) return ranks.start_all_gather(all, mine, of.bytes, of.at);
      ranks.all_gather(all, mine, of.bytes);
    } else {
      if (options_.overlap) return ranks.start_exchange(mine, of.bytes, of.at, all, of.own_bytes, of.own_at);
      ranks.exchange(mine, of.bytes, all, of.own_bytes);
    }
    return {};
  }

  void take(const Bucket& bucket) override {
    const Place& place = place_of(bucket);
    if (bucket.round == 0) return average(bucket);
    mine_.send(place.begin, place.all);
    options_.codec.decode(whole(bucket), mine_.device(place.begin), 1.0F, options_.gradients);
  }

  [[nodiscard]] static std::int64_t memory(const Codec& codec, const Parameters& parameters, int ranks) {
    const ShareBytes bytes = bytes_of_shares(codec, parameters, ranks);
    return bytes.all + ranks * bytes.longest + parameters.size * std::int64_t{sizeof(float)};
  }

 private:
  /// Place of a bucket.
  struct Place {
    std::int64_t begin = 0, everyone = 0;  ///< places in this rank's memory, and in that of everyone's shares
    std::int64_t all = 0, everyones = 0;   ///< bytes of this rank's message, and of what all have of its share
    std::vector<int> bytes, at;            ///< [ranks] of each rank's share, in the message
    std::vector<int> own_bytes, own_at;    ///< [ranks] of this rank's share, among those of all
  };

  [[nodiscard]] Place& place_of(const Bucket& bucket) { return places_[static_cast<std::size_t>(bucket.number)]; }
  [[nodiscard]] MessageTensors tensors_of(const Message& message, const Bucket& bucket, std::int64_t bytes) const {
    const int shares = options_.ranks.size();
    return message.range(tables_, bucket.first * shares, bucket.end * shares,
                         {.step = step_, .round = bucket.round, .bytes = bytes});
  }
  [[nodiscard]] MessageTensors whole(const Bucket& bucket) {
    return tensors_of(message_, bucket, place_of(bucket).all);
  }
  [[nodiscard]] MessageTensors own_share(const Bucket& bucket) {
    return tensors_of(*share_, bucket, place_of(bucket).bytes[me_]);
  }

  /// The layers of tensors_ that are shares first .. end - 1 of these.
  [[nodiscard]] const ActiveSet& of_shares(const ActiveSet& layers, std::size_t first, std::size_t end) {
    for (std::size_t k = 0; k < shared_.scale.size(); ++k) {
      const std::size_t share = k % shares_;
      shared_.scale[k] = share >= first && share < end ? layers.scale[k / shares_] : 0.0F;
    }
    return shared_;
  }

  void lay_out(const Bucket& bucket, const ActiveSet& layers, Place& place) {
    std::int64_t at = 0;
    for (std::size_t share = 0; share < shares_; ++share) {
      std::int64_t bytes = 0;
      for_each_segment(bucket, options_.parameters, layers, [&](std::size_t k) {
        const std::size_t tensor = k * shares_ + share;
        message_.begin(tensor) = at + bytes;
        share_->begin(tensor) = bytes;  // places of the others' shares, too, which it never selects
        bytes += lengths_[tensor];
      });
      place.bytes[share] = static_cast<int>(bytes);
      place.at[share] = static_cast<int>(at);
      at += bytes;
    }
    place.all = at;
    place.everyones = std::int64_t{place.bytes[me_]} * options_.ranks.size();
    check_length(bucket, std::max(place.all, place.everyones), "a message of ", " bytes");
    for (std::size_t rank = 0; rank < shares_; ++rank) {
      place.own_bytes[rank] = place.bytes[me_];
      place.own_at[rank] = place.bytes[me_] * static_cast<int>(rank);
    }
  }

  /// Averages this rank's share over all ranks.
  void average(const Bucket& bucket) {
    const Place& place = place_of(bucket);
    const MessageTensors share = own_share(bucket);
    const int ranks = options_.ranks.size();
    everyone_.send(place.everyone, place.everyones);
    std::int64_t next = place.everyone;
    for (int rank = 0; rank < ranks; ++rank, next += share.bytes) {
      options_.codec.decode(share, everyone_.device(next), 1.0F, rank == 0 ? options_.gradients : decoded_);
      const float factor = rank + 1 == ranks ? 1.0F / static_cast<float>(ranks) : 1.0F;
      if (rank > 0)
        each(options_.backend.device(), share.chunks, kernels::AddRank{decoded_, factor, options_.gradients});
    }
  }

  TransportOptions options_;
  std::size_t shares_, me_;
  Parameters tensors_;  ///< the shares, of which messages are made
  ActiveSet shared_;    ///< layers of these
  Message message_;     ///< message of all shares
  std::optional<Message> share_;
  std::vector<std::int64_t> lengths_;  ///< [shares of all segments]
  TensorTables tables_;
  MessageMemory mine_, everyone_;  ///< messages of this rank, and those of all for its share, bucket by bucket
  std::vector<Place> places_;      ///< [buckets]
  float* decoded_ = nullptr;       ///< [parameters.size], on the device
  std::int64_t step_ = 0;
};

}  // namespace

TransportKind two_sided_transport() {
  return {
      .title = "two-sided",
      .takes = [](const Codec& codec) { return codec.takes_runs() && codec.rounds() == 1; },
      .serves = [](const Aggregator& aggregator) { return aggregator.is_mean(); },
      .traffic =
          [](int ranks) { return Traffic{.exchanged = true, .gathered = ranks, .encoded_again = ranks, .decoded = 2}; },
      .memory = TwoSided::memory,
      .sent = [](const Codec& codec, const Segment& segment,
                 int ranks) { return bytes_of_shares(codec, segment, ranks).all; },
      .make = made<TwoSided>};
}

}  // namespace dat
