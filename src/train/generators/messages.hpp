#pragma once

#include <cstdint>

#include "dat/error.hpp"
#include "train/generators/packet.hpp"
#include "train/plan/clock.hpp"

namespace dat {

// Messages between trainers and generators, in the group of all ranks of the launch, in which nobody else sends
// messages but Membership. Trainers and generators have their numbers of these: the generators are the last ranks.

constexpr int kOrderTag = 2;    ///< trainer to generator: an Order
constexpr int kVersionTag = 3;  ///< trainer to generator: a VersionPacket
constexpr int kAnswerTag = 4;   ///< generator to trainer: an AnswerPacket

/// Order of a trainer for a generator.
struct Order {
  enum class Kind : std::int32_t {
    begin,   ///< steps are made from here on; versions: how many of before there are, which follow
    attack,  ///< a micro-batch is to be attacked
    pause    ///< no more; versions: how many have been sent since `begin`. The generator answers when it has them.
  };
  Kind kind = Kind::begin;
  std::int32_t unit = 0;      ///< number of the micro-batch among those of the trainer in the step
  std::int64_t step = 0;      ///< step of the micro-batch
  std::int64_t versions = 0;  //
};

/// One version of the weights: after the header HeldWeights::floats() numbers, as HeldWeights::copy_to_host leaves
/// them.
struct VersionHeader {
  std::int64_t version = 0;
};
using VersionPacket = Packet<VersionHeader>;

/// An attacked micro-batch: after the header the age of the weights in each iteration, as int32 [ages], then the
/// images, [count] in the generator's layout. Nothing after the header where there are no images.
struct AnswerHeader {
  static constexpr std::int64_t kPauses = -1, kStop = -2;
  std::int64_t step = 0;             ///< kPauses: the generator does; kStop: somebody has signalled it to stop the run
  std::int32_t unit = 0, count = 0;  ///< count 0: it has given the micro-batch up
  std::int32_t block = 0;            ///< block of the images' layout
  std::int32_t ages = 0;
  std::int32_t waiting = 0, padding = 0;  ///< waiting: micro-batches that the generator still has to do, of anybody
  std::int64_t passes = 0;                ///< images times gradients of the attack
  double seconds = 0, idle = 0;  ///< time that the attack has taken; time without work since the last answer to anybody
  double since = 0;              ///< seconds since its first iteration, with what was done in between
};
using AnswerPacket = Packet<AnswerHeader>;

/// Bytes that the ages take, so that the images after them stand at a multiple of 8.
[[nodiscard]] constexpr std::size_t bytes_of_ages(std::int32_t ages) {
  return (static_cast<std::size_t>(ages) + 1) / 2 * 8;
}

[[nodiscard]] inline std::int32_t* ages_in(AnswerPacket& packet) {
  return reinterpret_cast<std::int32_t*>(packet.behind());
}
[[nodiscard]] inline float* images_in(AnswerPacket& packet) {
  return reinterpret_cast<float*>(packet.behind() + bytes_of_ages(packet.header().ages));
}

/// Places of the micro-batches of steps that are under way at once.
struct StepsUnderWay {
  int steps = 1;  ///< staleness + 1
  int units = 1;  ///< units of a step

  [[nodiscard]] int places() const { return steps * units; }
  [[nodiscard]] std::size_t place(std::int64_t step, int unit) const {
    return static_cast<std::size_t>((step % steps) * units + unit);
  }
};

/// Error(communication): a message of another rank is not as it must be. what: "the hash", "the number".
template <class... Texts>
void require_sound(bool sound, int rank, const Texts&... what) {
  require(sound, ExitCode::communication, "a message of rank ", rank, " is wrong: ", what...);
}

}  // namespace dat
