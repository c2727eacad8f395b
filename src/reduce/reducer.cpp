#include "dat/reducer.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>

#include "dat/error.hpp"
#include "gradients.hpp"

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
    : backend_(backend),
      world_(world),
      parameters_(parameters),
      options_(options),
      table_(backend, parameters),
      staged_(backend.device().kind == DeviceKind::cuda && !world.takes_device_memory()) {
  require(options.bucket_elements >= 1, ExitCode::usage, "--bucket must be at least 1 element");
  const auto segments = parameters.segments.size();
  if (world.size() > 1) message_ = host_ = backend.allocate_floats(parameters.size, "gradient message");
  if (staged_ && world.size() > 1)
    host_ = static_cast<float*>(
        backend.allocate_pinned(static_cast<std::size_t>(parameters.size) * sizeof(float), "gradient message"));
  device_shift_ = static_cast<std::int64_t*>(backend.allocate(segments * sizeof(std::int64_t), "gradient message"));
  shift_.resize(segments);
  bucket_of_.resize(segments);
  buckets_.reserve(segments);
}

void GradientReducer::begin(const ActiveSet& active) {
  buckets_.clear();
  elements_ = 0;
  seconds_waiting_ = 0;
  for (std::size_t k = parameters_.segments.size(); k-- > 0;) {
    const Segment& segment = parameters_.segments[k];
    bucket_of_[k] = -1;
    shift_[k] = 0;
    if (!active.active(segment.layer)) continue;
    if (buckets_.empty() || buckets_.back().size + segment.size > options_.bucket_elements)
      buckets_.push_back({.begin = elements_, .highest = static_cast<int>(k)});
    Bucket& bucket = buckets_.back();
    shift_[k] = elements_ - segment.begin;
    bucket_of_[k] = static_cast<int>(buckets_.size()) - 1;
    bucket.lowest = static_cast<int>(k);
    bucket.size += segment.size;
    ++bucket.missing;
    elements_ += segment.size;
  }
  (void)table_.select(active);
  backend_.copy_to_device(device_shift_, shift_.data(), shift_.size() * sizeof(std::int64_t));
}

void GradientReducer::ready(int segment) {
  assert(bucket_of_[static_cast<std::size_t>(segment)] >= 0);
  Bucket& bucket = buckets_[static_cast<std::size_t>(bucket_of_[static_cast<std::size_t>(segment)])];
  if (--bucket.missing > 0 || world_.size() == 1) return;
  pack(bucket);
  if (!options_.overlap) return;
  const Stopwatch watch(seconds_waiting_);
  for (Bucket& one : buckets_)
    if (!one.sent) {
      if (one.missing > 0 || !backend_.arrived(one.ticket)) break;  // all ranks send in the same order
      give(one);
    }
  for (Bucket& one : buckets_) (void)one.request.test();  // MPI gets the chance to move on what is under way
}

void GradientReducer::pack(Bucket& bucket) {
  each(backend_.device(), table_.between(bucket.lowest, bucket.highest + 1),
       kernels::Pack{parameters_.gradients, message_, device_shift_});
  if (staged_)
    bucket.ticket = backend_.fetch(host_ + bucket.begin, message_ + bucket.begin,
                                   static_cast<std::size_t>(bucket.size) * sizeof(float));
  else
    bucket.ticket = backend_.mark();
}

void GradientReducer::give(Bucket& bucket) {
  bucket.sent = true;
  if (options_.overlap)
    bucket.request = world_.start_sum(host_ + bucket.begin, bucket.size);
  else
    world_.sum(host_ + bucket.begin, bucket.size);
}

void GradientReducer::finish() {
  if (world_.size() == 1) return;
  {
    const Stopwatch watch(seconds_waiting_);
    for (Bucket& bucket : buckets_) {
      if (bucket.sent) continue;
      backend_.wait_for(bucket.ticket);
      give(bucket);
    }
    for (Bucket& bucket : buckets_) bucket.request.wait();
  }
  for (const Bucket& bucket : buckets_) {
    if (staged_)
      backend_.send(message_ + bucket.begin, host_ + bucket.begin,
                    static_cast<std::size_t>(bucket.size) * sizeof(float));
    each(backend_.device(), table_.between(bucket.lowest, bucket.highest + 1),
         kernels::Unpack{message_, parameters_.gradients, device_shift_, 1.0F / static_cast<float>(world_.size())});
  }
}

}  // namespace dat
