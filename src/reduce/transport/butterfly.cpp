#include <algorithm>
#include <cassert>
#include <optional>
#include <vector>

#include "reduce/transport/message.hpp"
#include "reduce/transport/part_layout.hpp"

namespace dat {

namespace {

constexpr std::int64_t kBytes = sizeof(float);

/// Chunks of a run of so many elements that stands by itself, of no segments.
class RunChunks {
 public:
  RunChunks(Backend& backend, std::int64_t most) : backend_(backend) {
    for (std::int64_t begin = 0; begin < most; begin += kChunk)
      chunks_.push_back({.begin = begin, .size = kChunk, .segment = 0});
    device_ = static_cast<Chunk*>(backend.allocate(chunks_.size() * sizeof(Chunk), "message tables"));
  }
  /// Valid until the next call.
  [[nodiscard]] Chunks of(std::int64_t elements) {
    const auto count = static_cast<std::int32_t>((elements + kChunk - 1) / kChunk);
    for (Chunk* chunk = chunks_.data(); chunk < chunks_.data() + count; ++chunk)
      chunk->size = static_cast<std::int32_t>(std::min<std::int64_t>(kChunk, elements - chunk->begin));
    backend_.copy_to_device(device_, chunks_.data(), static_cast<std::size_t>(count) * sizeof(Chunk));
    return {.data = device_, .count = count};
  }

 private:
  Backend& backend_;
  std::vector<Chunk> chunks_;
  Chunk* device_ = nullptr;
};

/// ButterflyClip's way (Gorbunov et al., "Secure Distributed Training at Scale", ICML 2022), for any aggregator that
/// makes what it is for of a part: rank j gets part j of what each rank has, which is the j-th of as many equal runs of
/// the step's message as there are ranks, makes one part of them, and sends that to all. However many ranks there are,
/// a rank sends and gets less than twice the message. Parts do not depend on how the message is cut into buckets.
class Butterfly final : public Transport {
 public:
  explicit Butterfly(const TransportOptions& options)
      : options_(options),
        parameters_(options.parameters),
        ranks_(options.ranks.size()),
        message_(options.backend, parameters_),
        memory_(options.backend),
        everyone_(options.backend),
        part_(options.backend),
        places_(parameters_.segments.size()),
        part_bytes_(static_cast<std::size_t>(ranks_)) {
    for (Place& place : places_)
      for (std::vector<int>* each : {&place.to, &place.to_at, &place.from, &place.from_at})
        each->resize(static_cast<std::size_t>(ranks_));
    buckets_.reserve(places_.size());
  }

  void reserve() override {
    const std::int64_t elements = parameters_.size, longest = PartLayout{elements, ranks_}.longest();
    message_.reserve();
    tables_.reserve(options_.backend, parameters_);
    memory_.reserve(elements * kBytes);
    everyone_.reserve(bytes_of_everyone({elements, ranks_}));
    part_.reserve(longest * kBytes);
    chunks_.emplace(options_.backend, longest);
  }

  [[nodiscard]] std::int64_t begin(const StepMessages& step) override {
    step_ = step.step;
    buckets_.assign(step.buckets.begin(), step.buckets.end());
    elements_ = 0;
    for (const Bucket& bucket : buckets_) {
      Place& place = place_of(bucket);
      place.begin = elements_;
      for_each_segment(bucket, parameters_, step.any, [&](std::size_t k) {
        message_.begin(k) = (elements_ - place.begin) * kBytes;
        elements_ += parameters_.segments[k].size;
      });
      place.end = elements_;
    }
    message_.select(step.any);
    mine_ = layout().size(options_.ranks.rank());
    // MPI is given the places of all parts, in bytes; buckets are no longer.
    check_length({.elements = elements_}, bytes_of_everyone(layout()), "a step's message, in parts of ", " bytes,");
    for (const Bucket& bucket : buckets_) lay_out(place_of(bucket));
    for (int rank = 0; rank < ranks_; ++rank)
      part_bytes_[static_cast<std::size_t>(rank)] = static_cast<int>(layout().size(rank) * kBytes);
    part_chunks_ = chunks_->of(mine_);
    return (elements_ - mine_) * kBytes + (ranks_ - 1) * mine_ * kBytes;
  }

  [[nodiscard]] Backend::Ticket encode(const Bucket& bucket) override {
    const MessageTensors tensors = tensors_of(bucket);
    const std::int64_t at = place_of(bucket).begin * kBytes;
    options_.codec.encode(tensors, options_.gradients, memory_.device(at));
    return memory_.fetch(at, tensors.bytes);
  }

  [[nodiscard]] Request give(const Bucket& bucket) override {
    const Place& of = place_of(bucket);
    const std::byte* const message = memory_.host(of.begin * kBytes);
    Communicator& ranks = options_.ranks;
    if (PartsWatch* const watch = options_.watch) {
      assert(buckets_.size() <= 1 && !options_.overlap);
      tell_encoded(*watch);
      watch->leaves({reinterpret_cast<float*>(memory_.host(0)), static_cast<std::size_t>(elements_)});
    }
    if (options_.overlap) return ranks.start_exchange(message, of.to, of.to_at, everyone_.host(0), of.from, of.from_at);
    ranks.exchange(message, of.to, of.to_at, everyone_.host(0), of.from, of.from_at);
    return {};
  }

  void take(const Bucket&) override {}

  void finish() override {
    PartsWatch* const watch = options_.watch;
    float* const part = reinterpret_cast<float*>(part_.device(0));
    if (watch != nullptr && buckets_.empty()) tell_encoded(*watch);
    everyone_.send(0, ranks_ * mine_ * kBytes);
    if (watch != nullptr) watch->exchanged(reinterpret_cast<float*>(everyone_.device(0)), part);
    options_.aggregator.aggregate({.chunks = part_chunks_,
                                   .gradients = reinterpret_cast<const float*>(everyone_.device(0)),
                                   .stride = mine_,
                                   .step = step_,
                                   .result = part,
                                   .weights = watch != nullptr ? watch->weights() : options_.weights});
    options_.backend.wait_for(part_.fetch(0, mine_ * kBytes));
    if (watch != nullptr) watch->aggregated({reinterpret_cast<float*>(part_.host(0)), static_cast<std::size_t>(mine_)});
    const CallLabel label("aggregated gradients");
    options_.ranks.all_gather(part_.host(0), memory_.host(0), part_bytes_);
    memory_.send(0, elements_ * kBytes);
    if (watch != nullptr) watch->gathered(reinterpret_cast<const float*>(memory_.device(0)));
    for (const Bucket& bucket : buckets_)
      options_.codec.decode(tensors_of(bucket), memory_.device(place_of(bucket).begin * kBytes), 1.0F,
                            options_.gradients);
  }

  [[nodiscard]] static std::int64_t memory(const Codec&, const Parameters& parameters, int ranks) {
    const PartLayout layout{parameters.size, ranks};
    return (layout.elements + layout.longest()) * kBytes + bytes_of_everyone(layout);
  }

 private:
  /// Bytes of a part of all ranks.
  [[nodiscard]] static std::int64_t bytes_of_everyone(const PartLayout& layout) {
    return layout.ranks * layout.longest() * kBytes;
  }
  /// Place of a bucket: its elements in the step's message, and the bytes of them that go to each rank.
  struct Place {
    std::int64_t begin = 0, end = 0;
    std::vector<int> to, to_at;      ///< [ranks] of each rank's part, in the bucket
    std::vector<int> from, from_at;  ///< [ranks] of this rank's part, among everyone's
  };
  [[nodiscard]] Place& place_of(const Bucket& bucket) { return places_[static_cast<std::size_t>(bucket.number)]; }
  [[nodiscard]] MessageTensors tensors_of(const Bucket& bucket) {
    const Place& place = place_of(bucket);
    return message_.range(tables_, bucket.first, bucket.end,
                          {.step = step_, .round = bucket.round, .bytes = (place.end - place.begin) * kBytes});
  }
  [[nodiscard]] PartLayout layout() const { return {.elements = elements_, .ranks = ranks_}; }
  void tell_encoded(PartsWatch& watch) const {
    watch.encoded(step_, elements_, reinterpret_cast<const float*>(memory_.device(0)));
  }

  void lay_out(Place& place) const {
    const int me = options_.ranks.rank();
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const std::int64_t begin = std::clamp(layout().begin(rank), place.begin, place.end);
      const std::int64_t end = std::clamp(layout().begin(rank + 1), place.begin, place.end);
      place.to[r] = static_cast<int>((end - begin) * kBytes);
      place.to_at[r] = static_cast<int>((begin - place.begin) * kBytes);
    }
    const std::int64_t part = layout().begin(me);
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto r = static_cast<std::size_t>(rank), self = static_cast<std::size_t>(me);
      place.from[r] = place.to[self];
      place.from_at[r] = static_cast<int>((rank * mine_ + place.begin - part) * kBytes) + place.to_at[self];
    }
  }

  TransportOptions options_;
  const Parameters& parameters_;
  int ranks_;
  Message message_;
  TensorTables tables_;
  MessageMemory memory_;    ///< the step's message: this rank's, then the result
  MessageMemory everyone_;  ///< [ranks] this rank's part of what each rank has
  MessageMemory part_;      ///< the aggregated part
  std::optional<RunChunks> chunks_;
  std::vector<Bucket> buckets_;           ///< buckets of the step
  std::vector<Place> places_;             ///< [buckets]
  std::vector<int> part_bytes_;           ///< [ranks]
  Chunks part_chunks_;                    ///< chunks of this rank's part
  std::int64_t elements_ = 0, mine_ = 0;  ///< elements of the step's message, and of this rank's part
  std::int64_t step_ = 0;
};

}  // namespace

TransportKind butterfly_transport() {
  return {.title = "all-to-all of parts, all-gather",
          .takes = [](const Codec& codec) { return codec.exact() && codec.takes_runs(); },
          .serves = [](const Aggregator& aggregator) { return aggregator.by_parts(); },
          .cuts = true,
          .traffic = [](int ranks) { return Traffic{.exchanged = true, .gathered = ranks}; },
          .memory = Butterfly::memory,
          .sent = [](const Codec& codec, const Segment& segment,
                     int ranks) { return 2 * bytes_of(codec, segment) * (ranks - 1) / ranks; },
          .make = made<Butterfly>};
}

}  // namespace dat
