#include "train/generators/versions.hpp"

#include <exception>
#include <utility>

namespace dat {

VersionSender::VersionSender(Communicator& ranks, Replica& replica, const GeneratorSettings& settings,
                             std::function<void()> meanwhile)
    : ranks_(ranks),
      launch_(ranks.launch()),
      replica_(replica),
      generators_(settings.generators),
      meanwhile_(std::move(meanwhile)),
      numbers_(HeldWeights::floats(replica.model()), settings.generator_weights == "bf16") {
  static_cast<void>(launch_.move_on_beside());  // else a version moves on less often
  if (ranks.rank() >= generators_) return;      // no generator has them from here
  for (int k = 0; k < 2; ++k) sending_.push_back({{replica.backend(), numbers_.bytes(), "weights sent"}});
}

std::int64_t VersionSender::send(std::int64_t version, const HeldWeights* from) {
  const CallLabel label("weights to generators");
  ++sent_;
  if (sending_.empty()) return 0;
  Sending& sending = sending_[static_cast<std::size_t>(sent_ % 2)];
  finish(sending);
  sending.packet.header() = {.version = version};
  float* const room = numbers_.room(sending.packet.behind());
  if (from != nullptr)
    from->copy_to_host(room);
  else
    HeldWeights::copy_network_to_host(replica_.model(), room);
  numbers_.pack(sending.packet.behind());
  sending.packet.seal(numbers_.bytes());
  const std::size_t bytes = VersionPacket::bytes(numbers_.bytes());
  for (int generator = ranks_.rank(); generator < generators_; generator += ranks_.size()) {
    const int to = launch_.size() - generators_ + generator;
    sending.requests.emplace_back(to, launch_.start_send(sending.packet.data(), bytes, to, kVersionTag));
  }
  return std::ssize(sending.requests) * static_cast<std::int64_t>(bytes);
}

void VersionSender::finish(Sending& sending) {
  for (auto& one : sending.requests)
    launch_.wait_for_message(one.first, [&] {
      meanwhile_();
      return one.second.test();
    });
  sending.requests.clear();
}

void VersionSender::finish() {
  for (Sending& sending : sending_) finish(sending);
}

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
