#include "train/generators/answers.hpp"

#include <algorithm>

namespace dat {

Answers::Answers(Communicator& launch, Backend& backend, std::size_t most) : launch_(launch) {
  static_cast<void>(launch_.move_on_beside());  // else answers and versions move on less often
  for (int k = 0; k < kUnderWay; ++k) all_.push_back({{backend, most, "attacked images"}});
}

AnswerPacket& Answers::packet() {
  const auto find = [&] {
    const auto found = std::ranges::find_if(all_, [](One& one) { return one.request.test(); });
    next_ = static_cast<std::size_t>(found - all_.begin());
    return found != all_.end();
  };
  if (!find()) {
    const CallLabel label("answers to be taken");
    launch_.wait_for_message(0, find);
  }
  return all_[next_].packet;
}

void Answers::send(std::size_t behind, int trainer) {
  One& one = all_[next_];
  one.packet.seal(behind);
  one.request = launch_.start_send(one.packet.data(), AnswerPacket::bytes(behind), trainer, kAnswerTag);
}

void Answers::finish() {
  for (One& one : all_) one.request.wait();
}

}  // namespace dat
