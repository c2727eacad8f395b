#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "communicate/hang/heartbeats.hpp"
#include "communicate/hang/verdict.hpp"

namespace dat {

class Communicator;

/// The hang watch: a thread of each rank that reports to all others by UDP, without MPI, that this process lives and
/// whether its main thread gets on, and that ends the run with the code of a communication error where judge() says
/// that it hangs. Every rank comes to its verdict by itself, or takes that of the first one which it hears of; then the
/// lowest of the ranks that still hear each other prints the message, and all of them end their process at once,
/// without MPI, which may hang itself.
///
/// Before a process ends so, it removes the segments of shared memory that MPI has mapped in it, since nobody will do
/// that after it; and it kills the ranks of the same user on the same host that do not answer any more: a stopped
/// process cannot end itself.
///
/// MPI that is given messages of other sizes than it expects may write where it must not. A process that crashes while
/// it waits for MPI ends the run in the same way, so that the message says what the ranks called.
///
/// Time is this process's own: what passes while it is stopped itself, with its batch job for instance, counts against
/// nobody.
class Watchdog {
 public:
  /// **Collective** over all ranks of the run, more than one. Error(communication): no socket.
  Watchdog(Communicator& world, double timeout_seconds);
  /// Reports to the others that this rank has left, and ends the thread.
  ~Watchdog();

  /// Sets the folder for each rank's last communications if the run hangs, as hang-rank-N.txt.
  void keep_records_in(const std::string& folder);
  /// A rank has left, whatever it says of itself. One that is believed could blind the watch, or end the run by falling
  /// silent.
  void excuse(int rank);
  /// Ends all ranks, because MPI has returned an error to this one: as for a hang, so that the message says what the
  /// others called.
  [[noreturn]] void end(const std::string& why);

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    Place place;
    std::string machine;  ///< equal texts: the ranks share host, user and process numbers
    std::int64_t started = 0;
    bool reached = false;              ///< the peer has agreed to end
    bool written = false;              ///< the peer's records are in their file
    std::atomic<bool> excused{false};  ///< the peer has left, whatever it says
  };
  static void on_crash(int signal);
  [[nodiscard]] std::string introduction() const;
  void introduce(int rank, const std::string& text);
  void run();
  void keep_failure(const std::string& why);
  void take(const Heartbeat& heartbeat);
  void look(double passed);
  void send_to_all();
  void begin_end(const Verdict& verdict, const std::string& why);
  void go_on_ending();
  void print();
  [[noreturn]] void leave();
  [[nodiscard]] std::vector<pid_t> silent_siblings() const;
  [[nodiscard]] std::string folder();
  void write_records();
  void warn_of_unheard();

  int rank_, size_;
  double timeout_, period_;  ///< seconds; period_: between heartbeats
  int wake_ = -1;
  pid_t parent_;
  std::vector<Peer> peers_;        ///< [size]
  std::vector<RankState> states_;  ///< [size]
  HeartbeatSocket socket_;
  std::uint64_t progress_ = 0;
  bool warned_ = false;

  bool ending_ = false, printed_ = false, told_ = false;  ///< another rank has printed (told_)
  std::atomic<bool> written_{false};                      ///< true: this rank's records are in their file
  Clock::time_point ending_since_;
  Verdict verdict_;
  std::string why_;

  std::mutex mutex_;  ///< guards the next two members
  std::string folder_, failure_;
  std::atomic<bool> stopping_{false}, failed_{false};
  std::atomic<int> crashed_{0};  ///< the signal that has ended the process
  std::thread thread_;
};

}  // namespace dat
