#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace dat {

/// The process that has written into a run's folder last, as the lock's file says.
struct Writer {
  std::string host;          ///< empty: the file does not say
  std::int64_t process = 0;  ///< its number there
  std::int64_t starts = 0;   ///< starts of the run so far
  int code = kNone;          ///< exit code; kNone: it has not ended, or without a word
  double evaluated = kNone;  ///< part of the evaluation under way that is done; kNone: there is none

  static constexpr int kNone = -1;
};

/// The right of one process to write into a run's folder, held until its destruction. The lock is to be taken before
/// anything in the folder is looked at: what was seen before may be gone when the writer before has ended.
class RunLock {
 public:
  /// Creates the folder where there is none, and takes the lock on its file `.lock`. The ranks of a launcher that was
  /// killed live on for a moment, and another run may be about to end: the constructor waits for ten seconds, and calls
  /// `waiting` once if it has to wait. made: the caller has just made the folder. Error(usage): another process holds
  /// the lock. Error(io).
  RunLock(const std::string& folder, const std::function<void(const std::string&)>& waiting, bool made = false);
  /// Removes the lock's file where nothing else has been written, as after a start that failed, and then the folder,
  /// too, if the lock had created it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// A file system may have no locks (Lustre without `flock`, NFS): then there is none here, and this is a warning that
  /// says so. The lock that holds a second process back is gone; that one of the two ends is up to require_alone().
  [[nodiscard]] const std::string& warning() const { return warning_; }

  /// Writes into the lock's file who holds it, for whoever looks at the run (look_at_lock). goes_on: the run was
  /// started before. What cannot be written is left out: the run does not need it.
  void sign(const std::string& host, bool goes_on);
  /// Notes there, once a second at most, how large a part of an evaluation is done; 0: it begins, 1: it is over.
  void note_evaluation(double part);
  /// Notes there with which exit code the run ends (dat::sign_off), unless another process has signed meanwhile.
  void sign_off(int code) const;

 private:
  std::string folder_, warning_;
  int file_ = -1;
  Writer writer_;
  std::chrono::steady_clock::time_point noted_;
  bool made_folder_ = false;
  bool locked_ = false;
};

/// Notes in the lock's file, from any rank of the run that has signed it, with which exit code the run ends, unless one
/// stands there already: who ends because another rank has failed is wrong.
void sign_off(const std::string& folder, int code);

/// A run's lock, seen from any host.
struct LockSeen {
  enum class Held : std::uint8_t {
    no,
    yes,
    unknown  ///< the file system has no locks, or the file cannot be read
  };
  Held held = Held::no;
  Writer writer;
};
/// Looks at the lock of a folder, and leaves it as it is. No errors: what cannot be read is not known.
[[nodiscard]] LockSeen look_at_lock(const std::string& folder);

/// Makes a folder that was not there: `wanted`, or the first of wanted-2, wanted-3, ... that is free. Returns its path.
/// Error(io).
[[nodiscard]] std::string make_new_folder(const std::string& wanted);

/// Checks before each line that is added to a file of which this process has read, or written, all `bytes` bytes, and
/// before it is cut: Error(usage) where it has another length now, or is not the file at `path` any more. Then another
/// process writes there, too; both together would mix their lines, and neither could go on from them. It needs no lock,
/// no clock and no name of a host: of two processes, one adds first. Changes between the look and the write are not
/// seen, nor what a network file system keeps back. Error(io): the file cannot be looked at, or what was written is not
/// there.
void require_alone(int file, std::int64_t bytes, const std::string& path);

}  // namespace dat
