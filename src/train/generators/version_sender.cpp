#include "train/generators/version_sender.hpp"

#include <utility>

namespace dat {

VersionSender::VersionSender(Communicator& ranks, Replica& replica, int generators, std::function<void()> meanwhile)
    : ranks_(ranks),
      launch_(ranks.launch()),
      replica_(replica),
      generators_(generators),
      meanwhile_(std::move(meanwhile)),
      bytes_(static_cast<std::size_t>(HeldWeights::memory(replica.model()))) {
  static_cast<void>(launch_.move_on_beside());  // else a version moves on less often
  for (int k = 0; k < 2; ++k) sending_.push_back({{replica.backend(), bytes_, "weights sent"}});
}

std::int64_t VersionSender::send(std::int64_t version, const HeldWeights* from) {
  const CallLabel label("weights to generators");
  Sending& sending = sending_[static_cast<std::size_t>(sent_++ % 2)];
  finish(sending);
  if (ranks_.rank() >= generators_) return 0;
  sending.packet.header() = {.version = version};
  float* const to = reinterpret_cast<float*>(sending.packet.behind());
  if (from != nullptr)
    from->copy_to_host(to);
  else
    HeldWeights::copy_network_to_host(replica_.model(), to);
  sending.packet.seal(bytes_);
  for (int generator = ranks_.rank(); generator < generators_; generator += ranks_.size())
    sending.requests.push_back(launch_.start_send(sending.packet.data(), VersionPacket::bytes(bytes_),
                                                  launch_.size() - generators_ + generator, kVersionTag));
  return std::ssize(sending.requests) * static_cast<std::int64_t>(VersionPacket::bytes(bytes_));
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
