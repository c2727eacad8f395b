#pragma once

#include <ranges>

#include "catch.hpp"
#include "dat/network.hpp"
#include "dat/random.hpp"
#include "device.hpp"
#include "gradients.hpp"
#include "random_values.hpp"
#include "reduce/gradient_reducer.hpp"
#include "single.hpp"

/// A codec and an aggregator for tests, which compute on the host with what they copy from the device and back: like a
/// kernel, element by element of the chunks. And what they shall do, said once more on whole tensors.
namespace dat::test {

/// How many numbers differ: shorter to print than the numbers.
[[nodiscard]] inline std::int64_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  std::int64_t count = std::abs(std::ssize(a) - std::ssize(b));
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) count += a[i] != b[i];
  return count;
}

/// Where a tensor's elements are among all parameters.
[[nodiscard]] inline auto elements_of(const Segment& segment) {
  const auto begin = static_cast<std::size_t>(segment.begin);
  return std::views::iota(begin, begin + static_cast<std::size_t>(segment.size));
}
/// Of a tensor, among all parameters' values.
[[nodiscard]] inline double norm_of(const std::vector<float>& values, const Segment& segment) {
  double squares = 0;
  for (const std::size_t i : elements_of(segment)) squares += double(values[i]) * values[i];
  return std::sqrt(squares);
}

/// Calls f(segment, i) for all elements of the chunks.
template <class F>
void for_each_element(Backend& backend, const Chunks& chunks, const F& f) {
  for (const Chunk& chunk : to_host(backend, chunks.data, chunks.count))
    for (std::int64_t i = chunk.begin; i < chunk.begin + chunk.size; ++i) f(chunk.segment, i);
}

/// One element of a tensor with this norm, in 255 levels: rounded up or down at random, so that its mean is right.
[[nodiscard]] inline std::int8_t coarse_level(float value, float norm, std::int64_t i, std::int64_t step,
                                              const CodecOptions& options) {
  if (norm == 0) return 0;
  const float level = value / norm * 127.0F, low = std::floor(level);
  const Philox4 words = random_words(options.seed, static_cast<Purpose>(99), static_cast<std::uint32_t>(step),
                                     static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(options.rank));
  return static_cast<std::int8_t>(std::clamp(low + (uniform(words.v[0]) < level - low ? 1.0F : 0.0F), -127.0F, 127.0F));
}
[[nodiscard]] inline float coarse_value(float norm, std::int8_t level) {
  return norm * static_cast<float>(level) / 127.0F;
}

/// A byte an element after the norm of the tensor, with stochastic rounding; what was left out is added the next time.
class Coarse final : public Codec {
 public:
  Coarse(Backend& backend, const Parameters& parameters, const CodecOptions& options)
      : backend_(backend), parameters_(parameters), options_(options) {
    std::int64_t chunks = 0;
    for (const Segment& segment : parameters.segments) chunks += (segment.size + kChunk - 1) / kChunk;
    partial_ = backend.allocate_array<double>(chunks * kSums, "test");
    sums_ = backend.allocate_array<double>(std::ssize(parameters.segments) * kSums, "test");
    residual_ = backend.allocate_floats(parameters.size, "test");
  }

  [[nodiscard]] std::int64_t bytes(const Segment& tensor, int) const override { return 4 + (tensor.size + 3) / 4 * 4; }

  void encode(const MessageTensors& bucket, const float* gradients, void* message) override {
    sum(backend_.device(), bucket.chunks, kernels::SquaredNorm{gradients}, partial_, sums_);
    const auto sums = to_host(backend_, sums_, (bucket.end - bucket.first) * kSums);
    const auto values = to_host(backend_, gradients, parameters_.size);
    auto residual = to_host(backend_, residual_, parameters_.size);
    const Places places(*this, bucket);
    std::vector<char> bytes(static_cast<std::size_t>(bucket.bytes), 0);
    for_each_element(backend_, bucket.chunks, [&](int segment, std::int64_t k) {
      const auto i = static_cast<std::size_t>(k);
      const auto norm = static_cast<float>(std::sqrt(sums[static_cast<std::size_t>((segment - bucket.first) * kSums)]));
      const float value = values[i] + residual[i];
      const std::int8_t level = coarse_level(value, norm, k, bucket.step, options_);
      std::memcpy(bytes.data() + places.norm(segment), &norm, sizeof norm);
      std::memcpy(bytes.data() + places.level(segment, k), &level, sizeof level);
      residual[i] = value - coarse_value(norm, level);
    });
    backend_.copy_to_device(message, bytes.data(), bytes.size());
    backend_.copy_to_device(residual_, residual.data(), residual.size() * sizeof(float));
  }

  void decode(const MessageTensors& bucket, const void* message, float factor, float* gradients) override {
    const auto bytes = to_host(backend_, static_cast<const char*>(message), bucket.bytes);
    auto values = to_host(backend_, gradients, parameters_.size);
    const Places places(*this, bucket);
    for_each_element(backend_, bucket.chunks, [&](int segment, std::int64_t k) {
      float norm = 0;
      std::int8_t level = 0;
      std::memcpy(&norm, bytes.data() + places.norm(segment), sizeof norm);
      std::memcpy(&level, bytes.data() + places.level(segment, k), sizeof level);
      values[static_cast<std::size_t>(k)] = factor * coarse_value(norm, level);
    });
    backend_.copy_to_device(gradients, values.data(), values.size() * sizeof(float));
  }

  [[nodiscard]] std::vector<State> state() const override {
    return {{.name = "residual", .data = residual_, .count = parameters_.size, .own = true}};
  }

 private:
  struct Places {
    Places(const Coarse& codec, const MessageTensors& bucket)
        : element(to_host(codec.backend_, bucket.element, std::ssize(codec.parameters_.segments))),
          byte(to_host(codec.backend_, bucket.byte, std::ssize(codec.parameters_.segments))) {}
    [[nodiscard]] std::int64_t norm(int segment) const { return byte[static_cast<std::size_t>(segment)]; }
    [[nodiscard]] std::int64_t level(int segment, std::int64_t i) const {
      return norm(segment) + 4 + i - element[static_cast<std::size_t>(segment)];
    }
    std::vector<std::int64_t> element, byte;
  };

  Backend& backend_;
  const Parameters& parameters_;
  CodecOptions options_;
  double *partial_, *sums_;
  float* residual_;
};

/// A codec, and how its messages meet.
struct Way {
  std::string codec, transport;
};
[[nodiscard]] inline std::string text(const Way& way) { return way.codec + ", " + way.transport; }

/// The largest of the ranks' numbers, coordinate by coordinate, times a factor.
class Largest final : public Aggregator {
 public:
  Largest(Backend& backend, const Parameters& parameters, const AggregatorOptions& options, float factor)
      : backend_(backend), parameters_(parameters), ranks_(options.ranks), factor_(factor) {}

  [[nodiscard]] bool keeps_one() const override { return factor_ == 1; }
  void aggregate(const Contributions& of) override {
    const auto all = to_host(backend_, of.gradients, of.stride * ranks_);
    auto values = to_host(backend_, of.result, parameters_.size);
    for (int rank = 0; rank < ranks_; ++rank)
      for_each_element(backend_, of.chunks, [&](int, std::int64_t i) {
        const float value = factor_ * all[static_cast<std::size_t>(rank * of.stride + i)];
        float& largest = values[static_cast<std::size_t>(i)];
        largest = rank == 0 ? value : std::max(largest, value);
      });
    backend_.copy_to_device(of.result, values.data(), values.size() * sizeof(float));
  }

 private:
  Backend& backend_;
  const Parameters& parameters_;
  int ranks_;
  float factor_;
};

/// The mean, plus half of the result of the step before, plus the step's number: knows the step and has state.
class Heavy final : public Aggregator {
 public:
  Heavy(Backend& backend, const Parameters& parameters, const AggregatorOptions& options)
      : backend_(backend),
        parameters_(parameters),
        ranks_(options.ranks),
        before_(backend.allocate_floats(parameters.size, "test")) {}

  [[nodiscard]] bool keeps_one() const override { return false; }
  void aggregate(const Contributions& of) override {
    const auto all = to_host(backend_, of.gradients, of.stride * ranks_);
    auto values = to_host(backend_, of.result, parameters_.size), before = to_host(backend_, before_, parameters_.size);
    for_each_element(backend_, of.chunks, [&](int, std::int64_t k) {
      const auto i = static_cast<std::size_t>(k);
      float total = 0;
      for (int rank = 0; rank < ranks_; ++rank) total += all[static_cast<std::size_t>(rank * of.stride + k)];
      values[i] = before[i] = total / static_cast<float>(ranks_) + before[i] / 2 + static_cast<float>(of.step);
    });
    backend_.copy_to_device(of.result, values.data(), values.size() * sizeof(float));
    backend_.copy_to_device(before_, before.data(), before.size() * sizeof(float));
  }
  [[nodiscard]] std::vector<State> state() const override {
    return {{.name = "before", .data = before_, .count = parameters_.size, .own = false}};
  }

 private:
  Backend& backend_;
  const Parameters& parameters_;
  int ranks_;
  float* before_;
};

/// A network whose gradients are random numbers, and reducers for it.
struct ReductionCase {
  /// Of one rank.
  ReductionCase() : ReductionCase(single()) {}
  /// width: of channels; where it is no multiple of 16, tensors have padding.
  explicit ReductionCase(Communicator& all, int width = 16, int classes = 10)
      : group(all),
        backend(test_backend(1)),
        model(*backend, networks().at("small_cnn")({.width = width, .size = 8, .classes = classes}),
              Granularity::tensor),
        gradients(backend->allocate_floats(model.parameters.size, "test")),
        real(static_cast<std::size_t>(model.parameters.size)) {
    for (const Segment& segment : model.parameters.segments)
      to_memory_order(segment, std::vector<float>(static_cast<std::size_t>(segment.file_size()), 1.0F).data(),
                      real.data() + segment.begin);
  }

  [[nodiscard]] std::unique_ptr<Codec> codec(const std::string& name) {
    CodecOptions options = codec_options;
    options.rank = sender < 0 ? group.rank() : sender;
    if (name == "coarse") return std::make_unique<Coarse>(*backend, model.parameters, options);
    return codecs().at(name)(*backend, model.parameters, options);
  }
  [[nodiscard]] std::unique_ptr<Aggregator> aggregator(const std::string& name) {
    const AggregatorOptions options{.ranks = group.size()};
    if (name == "largest") return std::make_unique<Largest>(*backend, model.parameters, options, 1.0F);
    if (name == "twice the largest") return std::make_unique<Largest>(*backend, model.parameters, options, 2.0F);
    if (name == "heavy") return std::make_unique<Heavy>(*backend, model.parameters, options);
    return aggregators().at(name)(*backend, model.parameters, options);
  }
  [[nodiscard]] GradientReducer reducer(const ReducerOptions& options, const std::string& codec_name = "float32",
                                        const std::string& aggregator_name = "mean") {
    return {*backend, group, model.parameters, gradients, codec(codec_name), aggregator(aggregator_name), options};
  }

  /// What one rank's backward pass leaves.
  [[nodiscard]] std::vector<float> gradient_of(int rank, std::int64_t step) const {
    auto values = random_values(model.parameters.size, static_cast<std::uint32_t>(1000 * step + rank));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] *= real[i];
    return values;
  }

  /// One step of a reducer on these gradients, without memory of its own. layers: of all ranks, or of each.
  void run(GradientReducer& reducer, std::span<const ActiveSet> layers, std::int64_t step) {
    const ActiveSet& own = layers[layers.size() > 1 ? static_cast<std::size_t>(group.rank()) : 0];
    reducer.begin(layers, step);
    const std::int64_t before = group.bytes_given();
    for (int k = static_cast<int>(model.parameters.segments.size()) - 1; k >= 0; --k)
      if (own.active(model.parameters.segments[static_cast<std::size_t>(k)].layer)) reducer.ready(k);
    early = group.bytes_given() - before;
    reducer.finish();
  }
  void run(GradientReducer& reducer, const ActiveSet& active, std::int64_t step) { run(reducer, {&active, 1}, step); }
  /// The gradients after a step that starts from `mine`, or from gradient_of() this rank.
  std::vector<float> reduce(GradientReducer& reducer, std::span<const ActiveSet> layers, std::int64_t step,
                            const std::vector<float>& mine) {
    backend->copy_to_device(gradients, mine.data(), mine.size() * sizeof(float));
    run(reducer, layers, step);
    return to_host(*backend, gradients, model.parameters.size);
  }
  std::vector<float> reduce(GradientReducer& reducer, const ActiveSet& active, std::int64_t step,
                            const std::vector<float>& mine) {
    return reduce(reducer, {&active, 1}, step, mine);
  }
  std::vector<float> reduce(GradientReducer& reducer, const ActiveSet& active, std::int64_t step) {
    return reduce(reducer, active, step, gradient_of(group.rank(), step));
  }

  Communicator& group;
  CodecOptions codec_options{.seed = 5};
  int sender = -1;  ///< whose message the codec makes; -1: this rank's
  std::unique_ptr<Backend> backend;
  Model model;
  float* gradients;
  std::vector<float> real;  ///< [parameters.size] 1, and 0 where there is padding
  std::int64_t early = 0;   ///< bytes given to MPI before the end of the last step's backward pass
};

/// What the steps of a run must give on all ranks: on whole tensors, without buckets and messages.
class ReductionReference {
 public:
  ReductionReference(const ReductionCase& of, std::string codec, std::string aggregator)
      : case_(of), codec_(std::move(codec)), aggregator_(std::move(aggregator)) {
    const auto size = static_cast<std::size_t>(of.model.parameters.size);
    residuals_.assign(static_cast<std::size_t>(of.group.size()), std::vector<float>(size, 0.0F));
  }

  /// The gradients of this rank after a step.
  std::vector<float> step(const ActiveSet& active, std::int64_t step) {
    const int ranks = case_.group.size();
    std::vector<std::vector<float>> arrived;
    for (int rank = 0; rank < ranks; ++rank) {
      arrived.push_back(case_.gradient_of(rank, step));
      if (codec_ == "coarse") pass_through(arrived.back(), rank, active, step);
    }
    std::vector<float> result = case_.gradient_of(case_.group.rank(), step);
    for (const Segment& segment : case_.model.parameters.segments)
      for (std::int64_t k = segment.begin; k < segment.begin + segment.size && active.active(segment.layer); ++k) {
        const auto i = static_cast<std::size_t>(k);
        float total = arrived[0][i], largest = total;
        for (std::size_t rank = 1; rank < arrived.size(); ++rank) {
          total += arrived[rank][i];
          largest = std::max(largest, arrived[rank][i]);
        }
        result[i] = aggregator_ == "mean"      ? 1.0F / static_cast<float>(ranks) * total
                    : aggregator_ == "largest" ? largest
                                               : 2 * largest;
      }
    return result;
  }

 private:
  void pass_through(std::vector<float>& gradient, int rank, const ActiveSet& active, std::int64_t step) {
    std::vector<float>& residual = residuals_[static_cast<std::size_t>(rank)];
    for (const Segment& segment : case_.model.parameters.segments) {
      if (!active.active(segment.layer)) continue;
      const auto norm = static_cast<float>(norm_of(gradient, segment));
      for (const std::size_t i : elements_of(segment)) {
        const float value = gradient[i] + residual[i];
        gradient[i] = coarse_value(norm, coarse_level(value, norm, std::int64_t(i), step, {.seed = 5, .rank = rank}));
        residual[i] = value - gradient[i];
      }
    }
  }

  const ReductionCase& case_;
  std::string codec_, aggregator_;
  std::vector<std::vector<float>> residuals_;  ///< [ranks][parameters.size]
};

}  // namespace dat::test
