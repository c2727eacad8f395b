#include "train/message/step_message.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace dat {

StepMessage::StepMessage(Communicator& ranks, Backend& backend, const SummationTree* order,
                         std::optional<Tolerance> tolerance)
    : ranks_(ranks), backend_(backend), order_(order), tolerance_(std::move(tolerance)) {
  sorted_.reserve(static_cast<std::size_t>(ranks.size()));
  counted_.reserve(static_cast<std::size_t>(ranks.size()));
  if (order == nullptr) return;
  constexpr std::int64_t kPiece = 1 << 26;
  fold_.emplace(order->leaves());
  sum_.emplace(ranks, *order, kPiece);
}

void StepMessage::add(MessagePart& part) {
  parts_.push_back(&part);
  numbers_.resize(numbers_.size() + part.places());
  if (tolerance_) {
    all_.resize(numbers_.size() * static_cast<std::size_t>(ranks_.size()));
    partial_.resize(numbers_.size());
    return;
  }
  if (order_ == nullptr) return;
  partial_.resize(numbers_.size() * static_cast<std::size_t>(order_->places(ranks_.rank())));
  sum_->reserve(std::ssize(numbers_));
}

void StepMessage::write(double* to, int unit) {
  for (MessagePart* part : parts_) {
    part->write(to, unit);
    to += part->places();
  }
}

void StepMessage::sum_in_order() {
  const std::size_t count = numbers_.size();
  fold_->begin();
  for (int unit = 0; unit < order_->leaves_of(ranks_.rank()); ++unit) {
    write(partial_.data() + fold_->size() * count, unit);
    fold_->push({0, order_->first(ranks_.rank()) + unit}, [&](std::size_t left) {
      double* const sum = partial_.data() + left * count;
      for (std::size_t i = 0; i < count; ++i) sum[i] += sum[count + i];
    });
  }
  sum_->sum(partial_.data(), std::ssize(numbers_), std::ssize(numbers_), numbers_.data());
}

/// Writes this rank's own sum.
std::span<const double> StepMessage::write_own() {
  fetch();
  const int units = order_ != nullptr ? order_->leaves_of(ranks_.rank()) : 1;
  write(numbers_.data(), 0);
  for (int unit = 1; unit < units; ++unit) {
    write(partial_.data(), unit);
    for (std::size_t i = 0; i < numbers_.size(); ++i) numbers_[i] += partial_[i];
  }
  return numbers_;
}

/// Lets the part, whose numbers begin at `at`, read the estimate from the ranks' numbers.
void StepMessage::estimate(MessagePart& part, std::size_t at) {
  const std::size_t stride = numbers_.size(), places = part.places();
  const double* const said = all_.data() + at;
  if (part.read_each({.first = said, .stride = stride, .ranks = ranks_.size(), .faults = tolerance_->faults})) return;
  counted_.clear();
  int asked = 0;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (tolerance_->shares[static_cast<std::size_t>(rank)] == 0) continue;
    ++asked;
    const double* const of_rank = said + static_cast<std::size_t>(rank) * stride;
    if (std::all_of(of_rank, of_rank + places, [](double number) { return std::isfinite(number); }))
      counted_.push_back(rank);
  }
  const int n = static_cast<int>(std::ssize(counted_)), faults = std::min(tolerance_->faults, (n - 1) / 2);
  const bool enough = n > 0 && asked - n <= tolerance_->faults;
  sorted_.resize(counted_.size());
  for (std::size_t i = 0; i < places; ++i) {
    double& number = numbers_[at + i];
    number = std::numeric_limits<double>::quiet_NaN();
    if (!enough) continue;
    for (std::size_t k = 0; k < counted_.size(); ++k)
      sorted_[k] = said[static_cast<std::size_t>(counted_[k]) * stride + i] /
                   tolerance_->shares[static_cast<std::size_t>(counted_[k])];
    std::ranges::sort(sorted_);
    if (part.estimate() == MessagePart::Estimate::median)
      number = sorted_[(counted_.size() - 1) / 2];
    else
      number = std::accumulate(sorted_.begin() + faults, sorted_.end() - faults, 0.0) / (n - 2 * faults);
  }
  part.read(numbers_.data() + at);
}

Backend::Ticket StepMessage::fetch_ahead() {
  for (MessagePart* part : parts_) part->fetch(fetched_);
  return fetched_;
}

void StepMessage::fetch() {
  if (fetched_ == kNone) (void)fetch_ahead();
  if (fetched_ != kNone) backend_.wait_for(fetched_);
  fetched_ = kNone;
}

void StepMessage::read_said(std::span<const double> all, std::span<const double> shares) {
  std::ranges::copy(all, all_.begin());
  std::ranges::copy(shares, tolerance_->shares.begin());
  read();
}

void StepMessage::sum() {
  const std::int64_t before = ranks_.bytes_given();
  const CallLabel label("statistics and losses");
  if (order_ != nullptr && !tolerance_) {
    fetch();
    sum_in_order();
  } else {
    (void)write_own();
    if (tolerance_)
      ranks_.all_gather(numbers_.data(), all_.data(), numbers_.size() * sizeof(double));
    else
      ranks_.sum(numbers_.data(), static_cast<std::int64_t>(numbers_.size()));
  }
  bytes_sent_ = ranks_.bytes_given() - before;
  read();
}

void StepMessage::read() {
  std::size_t at = 0;
  for (MessagePart* part : parts_) {
    if (tolerance_)
      estimate(*part, at);
    else
      part->read(numbers_.data() + at);
    at += part->places();
  }
}

bool Vote::read_each(const RankNumbers& said) {
  int wishes = 0, bad_ones = 0;
  for (int rank = 0; rank < said.ranks; ++rank) {
    const double says = said.first[static_cast<std::size_t>(rank) * said.stride];
    const bool wishes_to_stop = std::fmod(says, kMore) > 0;
    wishes += wishes_to_stop ? 1 : 0;
    bad_ones += says >= kMore ? 1 : 0;
    if (rank == 0) stop_ = wishes_to_stop;
  }
  stop_ = stop_ || wishes > said.faults;
  bad_agreed_ = bad_ones > said.faults;
  return true;
}

}  // namespace dat
