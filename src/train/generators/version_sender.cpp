#include "train/generators/version_sender.hpp"

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
  for (int k = 0; k < 2; ++k) sending_.push_back({{replica.backend(), numbers_.bytes(), "weights sent"}});
}

std::int64_t VersionSender::send(std::int64_t version, const HeldWeights* from) {
  const CallLabel label("weights to generators");
  Sending& sending = sending_[static_cast<std::size_t>(sent_++ % 2)];
  finish(sending);
  if (ranks_.rank() >= generators_) return 0;
  sending.packet.header() = {.version = version};
  float* const to = numbers_.room(sending.packet.behind());
  if (from != nullptr)
    from->copy_to_host(to);
  else
    HeldWeights::copy_network_to_host(replica_.model(), to);
  numbers_.pack(sending.packet.behind());
  sending.packet.seal(numbers_.bytes());
  for (int generator = ranks_.rank(); generator < generators_; generator += ranks_.size())
    sending.requests.push_back(launch_.start_send(sending.packet.data(), VersionPacket::bytes(numbers_.bytes()),
                                                  launch_.size() - generators_ + generator, kVersionTag));
  return std::ssize(sending.requests) * static_cast<std::int64_t>(VersionPacket::bytes(numbers_.bytes()));
}

void VersionSender::finish(Sending& sending) {
  int to = launch_.size() - generators_ + ranks_.rank();
  for (Request& request : sending.requests) {
    launch_.wait_for_message(to, [&] {
      meanwhile_();
      return request.test();
    });
    to += ranks_.size();
  }
  sending.requests.clear();
}

void VersionSender::finish() {
  for (Sending& sending : sending_) finish(sending);
}

}  // namespace dat
