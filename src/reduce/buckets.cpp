#include "reduce/buckets.hpp"

#include "dat/error.hpp"

namespace dat {

Buckets::Buckets(Backend& backend, const Parameters& parameters, const ReducerOptions& options, Transport* transport)
    : backend_(backend),
      parameters_(parameters),
      most_(options.bucket_elements),
      overlap_(options.overlap),
      ended_(options.ended),
      transport_(transport),
      bucket_of_(parameters.segments.size()) {
  require(most_ >= 1, ExitCode::usage, "DAT_BUCKET must be at least 1 element");
  buckets_.reserve(bucket_of_.size());
  progress_.reserve(bucket_of_.size());
}

void Buckets::cut(const ActiveSet& any, const ActiveSet& own) {
  buckets_.clear();
  progress_.clear();
  elements_ = 0;
  for (std::size_t k = bucket_of_.size(); k-- > 0;) {
    const Segment& segment = parameters_.segments[k];
    if (!any.active(segment.layer)) continue;
    if (buckets_.empty() || buckets_.back().elements + segment.size > most_) {
      buckets_.push_back({.number = static_cast<int>(buckets_.size()), .end = static_cast<int>(k) + 1});
      progress_.emplace_back();
    }
    Bucket& bucket = buckets_.back();
    bucket_of_[k] = bucket.number;
    bucket.first = static_cast<int>(k);
    bucket.elements += segment.size;
    if (!own.active(segment.layer)) continue;
    ++progress_.back().missing;
    elements_ += segment.size;
  }
}

void Buckets::begin() {
  for (const Bucket& bucket : buckets_)
    if (of(bucket).missing == 0) encode(bucket);
}

void Buckets::ready(int segment) {
  const int number = bucket_of_[static_cast<std::size_t>(segment)];
  const Bucket& bucket = buckets_[static_cast<std::size_t>(number)];
  if (--of(bucket).missing > 0 || transport_ == nullptr) return;
  encode(bucket);
  if (!overlap_) return;
  for (const Bucket& one : buckets_)
    if (!of(one).sent) {
      if (of(one).missing > 0 || !backend_.arrived(of(one).ticket)) break;  // all ranks send in the same order
      give(one);
    }
  (void)move_on();
  ended_(ReducerStage::communicate);
}

void Buckets::finish() {
  for (int left = transport_->rounds(); left > 0; --left) {
    for (const Bucket& bucket : buckets_) {
      if (of(bucket).sent) continue;
      while (!backend_.arrived(of(bucket).ticket) && move_on()) continue;
      backend_.wait_for(of(bucket).ticket);
      give(bucket);
    }
    for (Bucket& bucket : buckets_) {
      of(bucket).request.wait();
      ended_(ReducerStage::communicate);
      transport_->take(bucket);
      ended_(ReducerStage::decode);
      if (left == 1) continue;
      ++bucket.round;
      encode(bucket);
    }
  }
}

void Buckets::encode(const Bucket& bucket) {
  ended_(ReducerStage::outside);
  of(bucket).ticket = transport_->encode(bucket);
  of(bucket).sent = false;
  ended_(ReducerStage::encode);
}

void Buckets::give(const Bucket& bucket) {
  const auto name = [&](int segment) { return parameters_.segments[static_cast<std::size_t>(segment)].name.c_str(); };
  const CallLabel label("gradients", name(bucket.first), bucket.first + 1 < bucket.end ? name(bucket.end - 1) : "");
  of(bucket).sent = true;
  of(bucket).request = transport_->give(bucket);
}

/// Lets the communication under way move on. False: there is none.
bool Buckets::move_on() {
  bool some = false;
  for (Progress& one : progress_) some = !one.request.test() || some;
  return some;
}

}  // namespace dat
