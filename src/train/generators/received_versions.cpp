#include "train/generators/received_versions.hpp"

#include <exception>
#include <utility>

namespace dat {

ReceivedVersions::ReceivedVersions(Communicator& launch, int from, Replica& replica, int count, bool rounded)
    : launch_(launch), from_(from), numbers_(HeldWeights::floats(replica.model()), rounded) {
  for (int k = 0; k < 2; ++k) arrivals_.push_back({{replica.backend(), numbers_.bytes(), "weights received"}});
  for (int k = 0; k < count; ++k) held_.emplace_back(replica, "weights of steps before");
}

ReceivedVersions::~ReceivedVersions() {
  if (std::uncaught_exceptions() > 0) return;
  for (Arrival& arrival : arrivals_) arrival.request.cancel();
}

void ReceivedVersions::receive_in(Arrival& arrival) {
  arrival.request =
      launch_.start_receive(arrival.packet.data(), VersionPacket::bytes(numbers_.bytes()), from_, kVersionTag);
}

void ReceivedVersions::begin(std::int64_t first) {
  first_ = first;
  newest_ = first - 1;
  in_use_ = -1;
  // Messages that were waited for last are still to come after a pause.
  if (std::exchange(receiving_, true)) return;
  for (Arrival& arrival : arrivals_) receive_in(arrival);
}

bool ReceivedVersions::take() {
  Arrival& arrival = arrivals_[next_];
  if (!arrival.request.test()) return false;
  VersionPacket& packet = arrival.packet;
  require_sound(packet.whole(VersionPacket::bytes(numbers_.bytes())), from_, "its hash");
  const std::int64_t version = packet.header().version;
  require_sound(version == newest_ + 1, from_, "its version, ", version, " after ", newest_);
  held_[static_cast<std::size_t>(version % std::ssize(held_))].copy_from_host(numbers_.unpack(packet.behind()));
  newest_ = version;
  receive_in(arrival);
  next_ = 1 - next_;
  return true;
}

void ReceivedVersions::use(std::int64_t version) {
  if (version == in_use_) return;
  held_[static_cast<std::size_t>(version % std::ssize(held_))].give();
  in_use_ = version;
}

}  // namespace dat
