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

  [[nodiscard]] std::int64_t begin(const StepMessages& step) override {
    step_ = step.step;
    std::int64_t at{}, total{};
    for (const Bucket& bucket : step.buckets) {
      std::int64_t* const bytes = bytes_of_rounds(bucket);
      std::fill(bytes, bytes + rounds_, 0);
      for_each_segment(bucket, parameters_, step.any, [&](std::size_t k) {
        for (int round = 0; round < rounds_; ++round) {
          message_.begin(k, round) = bytes[round];
          bytes[round] += lengths_[static_cast<std::size_t>(round) * parameters_.segments.size() + k];
        }
      });
      begin_[static_cast<std::size_t>(bucket.number)] = at;
      at += *std::max_element(bytes, bytes + rounds_);
      total += std::accumulate(bytes, bytes + rounds_, std::int64_t{0});
    }
    message_.select(step.any);
    return total;
  }

  [[nodiscard]] Backend::Ticket encode(const Bucket& bucket) override {
    const MessageTensors tensors = tensors_of(bucket);
    options_.codec.encode(tensors, options_.gradients, sums_->device(0, at(bucket)));
    return sums_->fetch(at(bucket), tensors.bytes);
  }

  [[nodiscard]] Request give(const Bucket& bucket) override {
    return sums_->start(at(bucket), bytes_of_rounds(bucket)[bucket.round] / std::int64_t{sizeof(float)});
  }

  void take(const Bucket& bucket) override {
    const MessageTensors tensors = tensors_of(bucket);
    sums_->send(at(bucket), tensors.bytes);
    const float mean = 1.0F / static_cast<float>(options_.ranks.size());
    options_.codec.decode(tensors, sums_->device(0, at(bucket)), mean, options_.gradients);
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
  [[nodiscard]] std::int64_t at(const Bucket& bucket) const { return begin_[static_cast<std::size_t>(bucket.number)]; }
  [[nodiscard]] std::int64_t* bytes_of_rounds(const Bucket& bucket) {
    return bytes_.data() + static_cast<std::ptrdiff_t>(bucket.number) * rounds_;
  }
  [[nodiscard]] MessageTensors tensors_of(const Bucket& bucket) {
    return message_.range(tables_, bucket.first, bucket.end,
                          {.step = step_, .round = bucket.round, .bytes = bytes_of_rounds(bucket)[bucket.round]},
                          bucket.round);
  }

  TransportOptions options_;
  const Parameters& parameters_;
  int rounds_;
  Message message_;
  std::vector<std::int64_t> lengths_;  ///< [rounds][segments]
  TensorTables tables_;
  std::unique_ptr<NodeSums> sums_;   ///< a bucket's rounds follow each other in the same place
  std::vector<std::int64_t> begin_;  ///< [buckets] in the memory
  std::vector<std::int64_t> bytes_;  ///< [buckets][rounds]
  std::int64_t step_ = 0;
};

}  // namespace

TransportKind sum_transport() {
  return {.title = "all-reduce",
          .takes = [](const Codec&) { return false; },  // gradients as they are have it as their own
          .serves = [](const Aggregator& aggregator) { return aggregator.is_mean(); },
          .traffic = [](int) { return Traffic{.summed = true}; },
          .memory = Sum::memory,
          .sent = Sum::sent,
          .make = made<Sum>};
}

}  // namespace dat
