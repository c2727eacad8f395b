#include <algorithm>
#include <numeric>

#include "reduce/sums/sums.hpp"
#include "reduce/transport/message.hpp"

namespace dat {

namespace {

/// The messages of all ranks, which have the same layout, are added up, in as many rounds as the codec has. The result
/// is what the sum stands for, divided by the number of ranks.
class Sum final : public Transport {
 public:
  explicit Sum(const TransportOptions& options)
      : options_(options),
        parameters_(options.parameters),
        rounds_(options.codec.rounds()),
        message_(options.backend, parameters_, rounds_),
        lengths_(lengths_of(options.codec, parameters_, rounds_)),
        begin_(parameters_.segments.size()),
        bytes_(parameters_.segments.size() * static_cast<std::size_t>(rounds_)) {}

  void reserve() override {
    message_.reserve();
    tables_.reserve(options_.backend, parameters_);
    const std::int64_t bytes = memory(options_.codec, parameters_, options_.ranks.size());
    sums_ = make_sums(options_.node_sums, {.backend = options_.backend,
                                           .ranks = options_.ranks,
                                           .type = options_.codec.sum_type(),
                                           .bytes = bytes,
                                           .longest = bytes / std::int64_t{sizeof(float)},
                                           .parts = static_cast<int>(std::ssize(parameters_.segments)),
                                           .overlap = options_.overlap});
  }
  [[nodiscard]] int rounds() const override { return rounds_; }

  [[nodiscard]] MessageBytes begin(const StepMessages& step) override {
    step_ = step.step;
    std::int64_t at = 0, total = 0;
    for (const Parcel& parcel : step.parcels) {
      std::int64_t* const bytes = bytes_of_rounds(parcel);
      std::fill(bytes, bytes + rounds_, 0);
      for_each_segment(parcel, parameters_, step.any, [&](std::size_t k) {
        for (int round = 0; round < rounds_; ++round) {
          message_.begin(k, round) = bytes[round];
          bytes[round] += lengths_[static_cast<std::size_t>(round) * parameters_.segments.size() + k];
        }
      });
      begin_[static_cast<std::size_t>(parcel.number)] = at;
      at += *std::max_element(bytes, bytes + rounds_);
      total += std::accumulate(bytes, bytes + rounds_, std::int64_t{0});
    }
    message_.select(step.any);
    return {.sent = total, .received = total};
  }

  [[nodiscard]] Backend::Ticket encode(const Parcel& parcel) override {
    const Bucket bucket = bucket_of(parcel);
    if (bucket.bytes > 0) options_.codec.encode(bucket, options_.gradients, sums_->device(0, at(parcel)));
    return sums_->fetch(at(parcel), bucket.bytes);
  }

  [[nodiscard]] Request give(const Parcel& parcel) override {
    return sums_->start(at(parcel), bytes_of_rounds(parcel)[parcel.round] / std::int64_t{sizeof(float)});
  }

  void take(const Parcel& parcel) override {
    const Bucket bucket = bucket_of(parcel);
    sums_->send(at(parcel), bucket.bytes);
    const float mean = 1.0F / static_cast<float>(options_.ranks.size());
    options_.codec.decode(bucket, sums_->device(0, at(parcel)), mean, options_.gradients);
  }

  [[nodiscard]] static std::int64_t memory(const Codec& codec, const Parameters& parameters, int /*ranks*/) {
    std::int64_t bytes = 0;
    for (const Segment& segment : parameters.segments) {
      std::int64_t most = 0;
      for (int round = 0; round < codec.rounds(); ++round) most = std::max(most, bytes_of(codec, segment, round));
      bytes += most;
    }
    return bytes;
  }

  [[nodiscard]] static std::int64_t sent(const Codec& codec, const Segment& segment, int /*ranks*/) {
    std::int64_t bytes = 0;
    for (int round = 0; round < codec.rounds(); ++round) bytes += bytes_of(codec, segment, round);
    return bytes;
  }

 private:
  [[nodiscard]] std::int64_t at(const Parcel& parcel) const { return begin_[static_cast<std::size_t>(parcel.number)]; }
  [[nodiscard]] std::int64_t* bytes_of_rounds(const Parcel& parcel) {
    return bytes_.data() + static_cast<std::ptrdiff_t>(parcel.number) * rounds_;
  }
  [[nodiscard]] Bucket bucket_of(const Parcel& parcel) {
    return message_.bucket(tables_, parcel.first, parcel.end,
                           {.step = step_, .round = parcel.round, .bytes = bytes_of_rounds(parcel)[parcel.round]},
                           parcel.round);
  }

  TransportOptions options_;
  const Parameters& parameters_;
  int rounds_;
  Message message_;
  std::vector<std::int64_t> lengths_;  ///< [rounds][segments]
  TensorTables tables_;
  std::unique_ptr<NodeSums> sums_;   ///< a parcel's rounds follow each other in the same place
  std::vector<std::int64_t> begin_;  ///< [parcels] in the memory
  std::vector<std::int64_t> bytes_;  ///< [parcels][rounds]
  std::int64_t step_ = 0;
};

}  // namespace

TransportKind sum_transport() {
  return {.title = "all-reduce",
          .takes = [](const Codec& codec) { return codec.adds_up(); },
          .serves = [](const Aggregator& aggregator) { return aggregator.is_mean(); },
          .traffic = [](int) { return Traffic{.summed = true}; },
          .memory = Sum::memory,
          .sent = Sum::sent,
          .make = [](const TransportOptions& options) -> std::unique_ptr<Transport> {
            return std::make_unique<Sum>(options);
          }};
}

}  // namespace dat
