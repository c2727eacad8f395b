#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "communicate/flight_recorder.hpp"

namespace dat {

/// What a rank knows of another one, or of itself.
struct RankState {
  enum class Main : std::uint8_t { computing, waiting, ended };
  bool heard = false;           ///< ever
  double silent = 0;            ///< seconds since it was heard last, or since the watch began; 0 of itself
  double still = 0;             ///< seconds for which its main thread has not moved, as it says
  Main main = Main::computing;  ///< waiting: in a communication; ended: it has left the run
  bool answers = true;          ///< when the message is written
  CallRecord at;                ///< that it waits in, or the last one it has begun
  CallRecord reference;         ///< what it has called as Verdict::number of Verdict::group; Call::none: not known
};

/// Whether the run hangs, and whose fault it is.
struct Verdict {
  enum class Kind : std::uint8_t {
    none,
    silent,       ///< ranks that were heard once are not heard any more: dead, stopped, or cut off
    unheard,      ///< the others wait, and these were never heard
    ended,        ///< the others wait, and these have left the run
    still,        ///< the others wait, and the main threads of these stand outside of any communication
    mismatch,     ///< all wait, but not in the same collective
    undelivered,  ///< all wait in the same one
    failed        ///< MPI has returned an error to these
  };
  Kind kind = Kind::none;
  std::vector<int> culprits;  ///< increasing; undelivered: none; mismatch: those who differ from the most, or all
  std::uint32_t group = 0;    ///< of the first collective in question
  std::int64_t number = 0;    ///< 0: there is none
};

/// The rules of the hang watch, of nothing but the states of all ranks:
///
/// - A rank that was heard before and is silent for longer than the timeout has hung the run, whatever the others do.
/// - Else the run hangs where some rank has been in one communication for longer than the timeout and no rank gets on:
///   each has stood still for as long, wherever it stands, or is not heard, or has ended. While one rank gets on, the
///   others wait for it, however long: it is slow.
[[nodiscard]] Verdict judge(const std::vector<RankState>& ranks, double timeout_seconds);

/// Who differs from the most of `classes` [ranks], whose empty texts count for nothing; all of them where no class has
/// more ranks than every other. Empty where there is one class at most.
[[nodiscard]] std::vector<int> minority(const std::vector<std::string>& classes);

/// A rank's host and process.
struct Place {
  std::string host;
  std::int64_t process = 0;
};

/// The message: who has hung the run and where, and what the others do. One line. `why`: the error of MPI, if any.
[[nodiscard]] std::string hang_text(const Verdict& verdict, const std::vector<RankState>& ranks,
                                    const std::vector<Place>& places, const std::string& why);

}  // namespace dat
