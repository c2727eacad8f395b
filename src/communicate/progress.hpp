#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "dat/communicator.hpp"

namespace dat {

/// The process's calls of MPI, one at a time, and a thread that makes some of them beside the caller's work: a
/// communication that was started moves on only while somebody is in a call of MPI (Open MPI, MPICH and others have no
/// thread of their own for it unless they are asked, where they have one at all).
///
/// One lock around every call is all that MPI_THREAD_SERIALIZED wants. A call that waits keeps the lock: it moves on
/// what is under way just as well.
class Progress {
 public:
  /// The one Progress of this process, as there is one MPI. Never destroyed: MPI_Abort runs the ends of static objects,
  /// in the middle of anything.
  [[nodiscard]] static Progress& of_process();

  /// Sets the level that MPI_Init_thread has granted.
  void allow(bool threads) { allowed_ = threads; }
  /// Starts the thread unless it runs. False: MPI does not allow a second thread.
  [[nodiscard]] bool start();
  /// Ends the thread, which then makes no call any more. To be called before MPI ends, and before the memory goes away
  /// that MPI writes to.
  void stop() noexcept;

  enum class Kind : std::uint8_t { collective, message };
  /// Watches a request of MPI's or an errand, which belongs to the caller. Returns the number with which the caller
  /// must release it once it is done. The caller has its turn, here and in the next two members.
  [[nodiscard]] int watch(MPI_Request request, Errand* errand, Kind kind);
  void release(int place);
  /// Seconds so far in which any of the watched collectives was not done.
  [[nodiscard]] double seconds_under_way() const;

 private:
  friend class Turn;
  using Clock = std::chrono::steady_clock;
  struct Watched {
    MPI_Request request = MPI_REQUEST_NULL;
    Errand* errand = nullptr;  ///< both null: the place is free
    Kind kind = Kind::collective;
    bool done = false;
    [[nodiscard]] bool free() const { return request == MPI_REQUEST_NULL && errand == nullptr; }
  };
  void run();
  void move_on();
  void finish(Watched& one);

  std::mutex turn_;  ///< held in each call of MPI; guards all members that follow
  std::condition_variable wake_;
  std::thread thread_;
  bool allowed_ = false, running_ = false;
  std::vector<Watched> watched_;
  int under_way_ = 0;    ///< requests of watched_ that are not done
  int collectives_ = 0;  ///< number of these that are collectives
  Clock::time_point since_;
  double seconds_ = 0;
};

/// The right to call MPI, for as long as the object lives. Checks of a call's result ask for it.
class Turn {
 public:
  Turn() : lock_(Progress::of_process().turn_) {}
  /// Error(communication) unless `status`, of the MPI function `call`, is MPI_SUCCESS. from: whose message it was
  /// about.
  void check(int status, const char* call, int from = MPI_ANY_SOURCE) const;

 private:
  std::scoped_lock<std::mutex> lock_;
};

}  // namespace dat
