#include "train/step_message.hpp"

namespace dat {

void StepMessage::add(MessagePart& part) {
  parts_.push_back(&part);
  numbers_.resize(numbers_.size() + part.places());
}

void StepMessage::sum() {
  constexpr Backend::Ticket kNone = -1;
  Backend::Ticket ticket = kNone;
  for (MessagePart* part : parts_) part->fetch(ticket);
  if (ticket != kNone) backend_.wait_for(ticket);
  double* at = numbers_.data();
  for (MessagePart* part : parts_) {
    part->write(at);
    at += part->places();
  }
  const CallLabel label("statistics and losses");
  ranks_.sum(numbers_.data(), static_cast<std::int64_t>(numbers_.size()));
  at = numbers_.data();
  for (MessagePart* part : parts_) {
    part->read(at);
    at += part->places();
  }
}

std::int64_t StepMessage::bytes_sent() const {
  return ranks_.size() > 1 ? static_cast<std::int64_t>(numbers_.size() * sizeof(double)) : 0;
}

}  // namespace dat
