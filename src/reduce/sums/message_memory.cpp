#include "reduce/sums/message_memory.hpp"

namespace dat {

MessageMemory::MessageMemory(Backend& backend)
    : backend_(backend), staged_(backend.device().kind == DeviceKind::cuda) {}

void MessageMemory::reserve(std::int64_t bytes) {
  const char* const purpose = "gradient message";
  device_ = backend_.allocate_array<std::byte>(bytes, purpose);
  host_ = staged_ ? backend_.allocate_pinned_array<std::byte>(bytes, purpose) : device_;
}

Backend::Ticket MessageMemory::fetch(std::int64_t at, std::int64_t bytes) const {
  return staged_ ? backend_.fetch(host(at), device(at), static_cast<std::size_t>(bytes)) : backend_.mark();
}

void MessageMemory::send(std::int64_t at, std::int64_t bytes) const {
  if (staged_) backend_.send(device(at), host(at), static_cast<std::size_t>(bytes));
}

}  // namespace dat
