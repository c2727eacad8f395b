#include "train/message/step_message.hpp"

namespace dat {

StepMessage::StepMessage(Communicator& ranks, Backend& backend, const SummationTree* order)
    : ranks_(ranks), backend_(backend), order_(order) {
  if (order == nullptr) return;
  constexpr std::int64_t kPiece = 1 << 26;
  fold_.emplace(order->leaves());
  sum_.emplace(ranks, *order, kPiece);
}

void StepMessage::add(MessagePart& part) {
  parts_.push_back(&part);
  numbers_.resize(numbers_.size() + part.places());
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

void StepMessage::sum() {
  constexpr Backend::Ticket kNone = -1;
  Backend::Ticket ticket = kNone;
  for (MessagePart* part : parts_) part->fetch(ticket);
  if (ticket != kNone) backend_.wait_for(ticket);
  const CallLabel label("statistics and losses");
  const std::int64_t before = ranks_.bytes_given();
  if (order_ == nullptr) {
    write(numbers_.data(), 0);
    ranks_.sum(numbers_.data(), static_cast<std::int64_t>(numbers_.size()));
  } else {
    sum_in_order();
  }
  bytes_sent_ = ranks_.bytes_given() - before;
  const double* at = numbers_.data();
  for (MessagePart* part : parts_) {
    part->read(at);
    at += part->places();
  }
}

}  // namespace dat
