#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "communicate/hang/flight_recorder.hpp"

namespace dat {

/// State of a rank, as another one or it itself knows it.
struct RankState {
  enum class Main : std::uint8_t { computing, waiting, ended, left };
  bool heard = false;  ///< true: the rank has been heard
  double silent = 0;   ///< seconds since it was heard last, or since the watch began; 0 for the rank itself
  double still = 0;    ///< seconds for which its main thread has not moved, as it says
  /// waiting: in a communication; ended: its part of the run is over, and MPI's with it; left: the run goes on without
  /// it, and it sleeps until the end
  Main main = Main::computing;
  bool answers = true;  ///< true: the rank answers when the message is written
  CallRecord at;        ///< the communication that it waits in, or the last one that it has begun
  /// Collective number Verdict::number of Verdict::group on this rank; Call::none: not known.
  CallRecord reference;
};

/// State of a rank's main thread, given that it reports `said`; `excused`: it is known to have left.
[[nodiscard]] RankState::Main believed(RankState::Main said, bool excused);

/// Verdict on the run: whether it hangs, and by whose fault.
struct Verdict {
  enum class Kind : std::uint8_t {
    none,
    silent,       ///< ranks that were heard once are not heard any more: dead, stopped, or cut off
    unheard,      ///< the others wait, and the culprits were never heard
    ended,        ///< the others wait, and the culprits have left the run
    still,        ///< the others wait, and the culprits' main threads stand outside of any communication
    mismatch,     ///< all wait, but not in the same collective
    undelivered,  ///< all wait in the same communication
    failed        ///< MPI has returned an error to the culprits
  };
  Kind kind = Kind::none;
  std::vector<int> culprits;  ///< increasing; undelivered: none; mismatch: those who differ from the most, or all
  std::uint32_t group = 0;    ///< group of the first collective in question
  std::int64_t number = 0;    ///< number of that collective in its group; 0: no collective is in question
};

/// The rules of the hang watch, of nothing but the states of all ranks:
///
/// - A rank that was heard before and is silent for longer than the timeout has hung the run, whatever the others do.
/// - Else the run hangs where some rank has been in one communication for longer than the timeout and no rank gets on:
///   each rank has stood still for as long, wherever it stands, or is not heard, or has ended. While one rank gets on,
///   the others wait for it, however long, because it is slow and does not hang.
/// - A rank that has left is neither: it does not get on, and nobody waits for it, so that it is not to blame. Only the
///   end of MPI wants all ranks: where all others wait there, a rank that has left and is silent has hung the run.
[[nodiscard]] Verdict judge(const std::vector<RankState>& ranks, double timeout_seconds);

/// The ranks that differ from the most, where rank r is of the class `classes[r]` [ranks]; ranks with an empty text do
/// not count. All ranks that count, where no class has more ranks than every other. Empty where there is one class at
/// most.
[[nodiscard]] std::vector<int> minority(const std::vector<std::string>& classes);

/// The host and the process of a rank.
struct Place {
  std::string host;
  std::int64_t process = 0;
};

/// The message: who has hung the run and where, and what the others do. One line. `why`: the error of MPI, if any.
[[nodiscard]] std::string hang_text(const Verdict& verdict, const std::vector<RankState>& ranks,
                                    const std::vector<Place>& places, const std::string& why);

}  // namespace dat
