#include "train/generators/received_versions.hpp"

namespace dat {

ReceivedVersions::ReceivedVersions(Communicator& launch, int from, Replica& replica, int count, bool rounded)
    : launch_(launch),
      from_(from),
      numbers_(HeldWeights::floats(replica.model()), rounded),
      incoming_(replica.backend(), numbers_.bytes(), "weights received") {
  for (int k = 0; k < count; ++k) held_.emplace_back(replica, "weights of steps before");
}

void ReceivedVersions::begin(std::int64_t first) {
  first_ = first;
  newest_ = first - 1;
  in_use_ = -1;
}

bool ReceivedVersions::take() {
  if (!arriving_) {
    const auto arrival = launch_.probe(from_, kVersionTag);
    if (!arrival) return false;
    require_sound(arrival->bytes == VersionPacket::bytes(numbers_.bytes()), from_, "its length, ", arrival->bytes,
                  " bytes");
    receiving_ = launch_.start_receive(incoming_.data(), arrival->bytes, from_, kVersionTag);
    arriving_ = true;
  }
  if (!receiving_.test()) return false;
  arriving_ = false;
  require_sound(incoming_.whole(VersionPacket::bytes(numbers_.bytes())), from_, "its hash");
  const std::int64_t version = incoming_.header().version;
  require_sound(version == newest_ + 1, from_, "its version, ", version, " behind ", newest_);
  held_[static_cast<std::size_t>(version % std::ssize(held_))].copy_from_host(numbers_.unpack(incoming_.behind()));
  newest_ = version;
  return true;
}

void ReceivedVersions::use(std::int64_t version) {
  if (version == in_use_) return;
  held_[static_cast<std::size_t>(version % std::ssize(held_))].give();
  in_use_ = version;
}

}  // namespace dat
