#include "dat/reducer.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>

#include "dat/error.hpp"

namespace dat {

namespace {

class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() { total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

GradientReducer::GradientReducer(Backend& backend, Communicator& world, Parameters& parameters,
                                 const ReducerOptions& options)
    : backend_(backend), world_(world), parameters_(parameters), options_(options) {
  require(options.bucket_elements >= 1, ExitCode::usage, "--bucket must be at least 1 element");
  message_.resize(static_cast<std::size_t>(parameters.size));
  place_.resize(parameters.segments.size());
  bucket_of_.resize(parameters.segments.size());
  buckets_.reserve(parameters.segments.size());
}

void GradientReducer::begin(const ActiveSet& active) {
  buckets_.clear();
  elements_ = 0;
  seconds_waiting_ = 0;
  for (std::size_t k = parameters_.segments.size(); k-- > 0;) {
    const Segment& segment = parameters_.segments[k];
    place_[k] = -1;
    if (!active.active(segment.layer)) continue;
    if (buckets_.empty() || buckets_.back().size + segment.size > options_.bucket_elements)
      buckets_.push_back({elements_, 0, 0});
    place_[k] = elements_;
    bucket_of_[k] = static_cast<int>(buckets_.size()) - 1;
    buckets_.back().size += segment.size;
    ++buckets_.back().missing;
    elements_ += segment.size;
  }
}

void GradientReducer::ready(int index) {
  const auto k = static_cast<std::size_t>(index);
  assert(place_[k] >= 0);
  const Segment& segment = parameters_.segments[k];
  backend_.copy_to_host(message_.data() + place_[k], parameters_.gradients + segment.begin,
                        static_cast<std::size_t>(segment.size) * sizeof(float));
  Bucket& bucket = buckets_[static_cast<std::size_t>(bucket_of_[k])];
  --bucket.missing;
  if (!options_.overlap) return;
  const Stopwatch watch(seconds_waiting_);
  if (bucket.missing == 0) world_.start_sum(message_.data() + bucket.begin, bucket.size);
  world_.poll();
}

void GradientReducer::finish() {
  {
    const Stopwatch watch(seconds_waiting_);
    if (!options_.overlap)
      for (const Bucket& bucket : buckets_) world_.sum(message_.data() + bucket.begin, bucket.size);
    world_.finish_pending();
  }
  const float mean = 1.0F / static_cast<float>(world_.size());
  for (std::size_t k = 0; k < parameters_.segments.size(); ++k) {
    if (place_[k] < 0) continue;
    const Segment& segment = parameters_.segments[k];
    float* values = message_.data() + place_[k];
    for (std::int64_t i = 0; i < segment.size; ++i) values[i] *= mean;
    backend_.copy_to_device(parameters_.gradients + segment.begin, values,
                            static_cast<std::size_t>(segment.size) * sizeof(float));
  }
}

}  // namespace dat
