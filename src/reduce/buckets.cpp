#include "reduce/buckets.hpp"

#include <cassert>

#include "dat/error.hpp"

namespace dat {

Buckets::Buckets(Backend& backend, const Parameters& parameters, const ReducerOptions& options, Transport* transport)
    : backend_(backend),
      parameters_(parameters),
      most_(options.bucket_elements),
      overlap_(options.overlap),
      ended_(options.ended),
      transport_(transport),
      parcel_of_(parameters.segments.size()) {
  require(most_ >= 1, ExitCode::usage, "--bucket must be at least 1 element");
  parcels_.reserve(parcel_of_.size());
  progress_.reserve(parcel_of_.size());
}

void Buckets::cut(const ActiveSet& any, const ActiveSet& own) {
  parcels_.clear();
  progress_.clear();
  elements_ = 0;
  for (std::size_t k = parcel_of_.size(); k-- > 0;) {
    const Segment& segment = parameters_.segments[k];
    parcel_of_[k] = -1;
    if (!any.active(segment.layer)) continue;
    if (parcels_.empty() || parcels_.back().elements + segment.size > most_) {
      parcels_.push_back({.number = static_cast<int>(parcels_.size()), .end = static_cast<int>(k) + 1});
      progress_.emplace_back();
    }
    Parcel& parcel = parcels_.back();
    parcel_of_[k] = parcel.number;
    parcel.first = static_cast<int>(k);
    parcel.elements += segment.size;
    if (!own.active(segment.layer)) continue;
    ++progress_.back().missing;
    elements_ += segment.size;
  }
}

void Buckets::begin() {
  for (const Parcel& parcel : parcels_)
    if (of(parcel).missing == 0) encode(parcel);
}

void Buckets::ready(int segment) {
  const int number = parcel_of_[static_cast<std::size_t>(segment)];
  assert(number >= 0);
  const Parcel& parcel = parcels_[static_cast<std::size_t>(number)];
  if (--of(parcel).missing > 0 || transport_ == nullptr) return;
  encode(parcel);
  if (!overlap_) return;
  for (const Parcel& one : parcels_)
    if (!of(one).sent) {
      if (of(one).missing > 0 || !backend_.arrived(of(one).ticket)) break;  // all ranks send in the same order
      give(one);
    }
  (void)move_on();
  ended_(ReducerStage::communicate);
}

void Buckets::finish() {
  give_all();
  for (int left = transport_->rounds() - 1; left > 0; --left) {
    for (Parcel& parcel : parcels_) {
      wait_for(parcel);
      ended_(ReducerStage::communicate);
      transport_->take(parcel);
      ended_(ReducerStage::decode);
      ++parcel.round;
      encode(parcel);
    }
    give_all();
  }
  for (const Parcel& parcel : parcels_) {
    wait_for(parcel);
    ended_(ReducerStage::communicate);
    transport_->take(parcel);
    ended_(ReducerStage::decode);
  }
}

void Buckets::encode(const Parcel& parcel) {
  ended_(ReducerStage::outside);
  of(parcel).ticket = transport_->encode(parcel);
  of(parcel).sent = false;
  ended_(ReducerStage::encode);
}

void Buckets::give(const Parcel& parcel) {
  const auto name = [&](int segment) { return parameters_.segments[static_cast<std::size_t>(segment)].name.c_str(); };
  const CallLabel label("gradients", name(parcel.first), parcel.first + 1 < parcel.end ? name(parcel.end - 1) : "");
  of(parcel).sent = true;
  of(parcel).request = transport_->give(parcel);
}

void Buckets::give_all() {
  for (const Parcel& parcel : parcels_) {
    if (of(parcel).sent) continue;
    while (!backend_.arrived(of(parcel).ticket) && move_on()) continue;
    backend_.wait_for(of(parcel).ticket);
    give(parcel);
  }
}

void Buckets::wait_for(const Parcel& parcel) { of(parcel).request.wait(); }

/// What is under way gets the chance to move on. False: nothing is.
bool Buckets::move_on() {
  bool some = false;
  for (Progress& one : progress_) some = !one.request.test() || some;
  return some;
}

}  // namespace dat
