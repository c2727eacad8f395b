#pragma once

#include <vector>

#include "dat/communicator.hpp"
#include "train/generators/messages.hpp"

namespace dat {

/// Messages from a generator to trainers: some answers may be under way at once.
class Answers {
 public:
  /// most: bytes after the header of an answer. The references must outlive it.
  Answers(Communicator& launch, Backend& backend, std::size_t most);

  /// A packet that nothing is under way of, to be filled and sent before the next call. Waits for one.
  [[nodiscard]] AnswerPacket& packet();
  /// Sends that packet, with so many bytes after the header.
  void send(std::size_t behind, int trainer);
  /// Waits until all have arrived.
  void finish();

 private:
  static constexpr int kUnderWay = 8;
  struct One {
    AnswerPacket packet;
    Request request{};
  };

  Communicator& launch_;
  std::vector<One> all_;
  std::size_t next_ = 0;
};

}  // namespace dat
