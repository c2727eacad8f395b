#include "dat/reducer.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

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

GradientReducer::GradientReducer(Backend& backend, Communicator& ranks, const Parameters& parameters, float* gradients,
                                 std::unique_ptr<Codec> codec, std::unique_ptr<Aggregator> aggregator,
                                 const ReducerOptions& options)
    : backend_(backend),
      ranks_(ranks),
      parameters_(parameters),
      gradients_(gradients),
      codec_(std::move(codec)),
      aggregator_(std::move(aggregator)),
      options_(options),
      table_(backend, parameters),
      unchanged_(ranks.size() == 1 && codec_->exact() && aggregator_->keeps_one()),
      summed_(codec_->summable() && aggregator_->is_mean()),
      staged_(backend.device().kind == DeviceKind::cuda && !ranks.takes_device_memory()) {
  require(options.bucket_elements >= 1, ExitCode::usage, "--bucket must be at least 1 element");
  const auto segments = parameters.segments.size();
  part_of_.resize(segments);
  parts_.reserve(segments);
  byte_.resize(segments);
  std::vector<std::int64_t> element;
  std::size_t bytes = 0;
  for (const Segment& segment : parameters.segments) {
    element.push_back(segment.begin);
    segment_bytes_.push_back(codec_->bytes(segment.size));
    assert(segment_bytes_.back() % std::int64_t{sizeof(float)} == 0);
    bytes += static_cast<std::size_t>(segment_bytes_.back());
  }
  if (unchanged_) return;
  const char* const purpose = "gradient message";
  const auto memory = [&](std::size_t size, std::byte*& device, std::byte*& host) {
    device = static_cast<std::byte*>(backend.allocate(size, purpose));
    host = staged_ ? static_cast<std::byte*>(backend.allocate_pinned(size, purpose)) : device;
  };
  const auto numbers = [&] {
    return static_cast<std::int64_t*>(backend.allocate(segments * sizeof(std::int64_t), purpose));
  };
  memory(bytes, message_, host_message_);
  device_element_ = numbers();
  device_byte_ = numbers();
  backend.copy_to_device(device_element_, element.data(), segments * sizeof(std::int64_t));
  if (summed_) return;
  memory(bytes * static_cast<std::size_t>(ranks.size()), everyone_, host_everyone_);
  decoded_ = backend.allocate_floats(parameters.size * ranks.size(), "gradients of all ranks");
}

void GradientReducer::begin(const ActiveSet& active, std::int64_t step) {
  parts_.clear();
  elements_ = bytes_ = 0;
  seconds_waiting_ = 0;
  for (std::size_t k = parameters_.segments.size(); k-- > 0;) {
    const Segment& segment = parameters_.segments[k];
    part_of_[k] = -1;
    if (!active.active(segment.layer)) continue;
    if (parts_.empty() || parts_.back().elements + segment.size > options_.bucket_elements) {
      Part& part = parts_.emplace_back();
      part.begin = bytes_;
      part.bucket.end = static_cast<int>(k) + 1;
    }
    Part& part = parts_.back();
    part_of_[k] = static_cast<int>(parts_.size()) - 1;
    byte_[k] = part.bucket.bytes;
    part.bucket.first = static_cast<int>(k);
    part.elements += segment.size;
    part.bucket.bytes += segment_bytes_[k];
    ++part.missing;
    elements_ += segment.size;
    bytes_ += segment_bytes_[k];
  }
  if (unchanged_) return;
  chunks_ = table_.select(active);
  backend_.copy_to_device(device_byte_, byte_.data(), byte_.size() * sizeof(std::int64_t));
  for (Part& part : parts_) {
    part.bucket.step = step;
    part.bucket.chunks = table_.between(part.bucket.first, part.bucket.end);
    part.bucket.element = device_element_;
    part.bucket.byte = device_byte_;
  }
}

void GradientReducer::ready(int segment) {
  assert(part_of_[static_cast<std::size_t>(segment)] >= 0);
  Part& part = parts_[static_cast<std::size_t>(part_of_[static_cast<std::size_t>(segment)])];
  if (--part.missing > 0 || unchanged_) return;
  encode(part);
  if (!options_.overlap) return;
  const Stopwatch watch(seconds_waiting_);
  for (Part& one : parts_)
    if (!one.sent) {
      if (one.missing > 0 || !backend_.arrived(one.ticket)) break;  // all ranks send in the same order
      give(one);
    }
  for (Part& one : parts_) (void)one.request.test();  // MPI gets the chance to move on what is under way
}

void GradientReducer::encode(Part& part) {
  codec_->encode(part.bucket, gradients_, message_ + part.begin);
  part.ticket = staged_ ? backend_.fetch(host_message_ + part.begin, message_ + part.begin,
                                         static_cast<std::size_t>(part.bucket.bytes))
                        : backend_.mark();
}

void GradientReducer::give(Part& part) {
  part.sent = true;
  std::byte* const mine = host_message_ + part.begin;
  if (summed_) {
    auto* const numbers = reinterpret_cast<float*>(mine);
    const std::int64_t count = part.bucket.bytes / std::int64_t{sizeof(float)};
    if (options_.overlap)
      part.request = ranks_.start_sum(numbers, count);
    else
      ranks_.sum(numbers, count);
  } else {
    std::byte* const all = host_everyone_ + part.begin * ranks_.size();
    if (options_.overlap)
      part.request = ranks_.start_all_gather(mine, all, static_cast<std::size_t>(part.bucket.bytes));
    else
      ranks_.all_gather(mine, all, static_cast<std::size_t>(part.bucket.bytes));
  }
}

void GradientReducer::decode(const Part& part) {
  if (summed_) {
    if (staged_)
      backend_.send(message_ + part.begin, host_message_ + part.begin, static_cast<std::size_t>(part.bucket.bytes));
    codec_->decode(part.bucket, message_ + part.begin, 1.0F / static_cast<float>(ranks_.size()), gradients_);
    return;
  }
  std::byte* const all = everyone_ + part.begin * ranks_.size();
  if (staged_)
    backend_.send(all, host_everyone_ + part.begin * ranks_.size(),
                  static_cast<std::size_t>(part.bucket.bytes * ranks_.size()));
  for (int rank = 0; rank < ranks_.size(); ++rank)
    codec_->decode(part.bucket, all + part.bucket.bytes * rank, 1.0F, decoded_ + parameters_.size * rank);
}

void GradientReducer::finish() {
  if (unchanged_) return;
  {
    const Stopwatch watch(seconds_waiting_);
    for (Part& part : parts_) {
      if (part.sent) continue;
      backend_.wait_for(part.ticket);
      give(part);
    }
    for (Part& part : parts_) part.request.wait();
  }
  for (const Part& part : parts_) decode(part);
  if (!summed_) aggregator_->aggregate(chunks_, decoded_, parameters_.size, gradients_);
}

}  // namespace dat
