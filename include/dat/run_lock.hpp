#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace dat {

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

 private:
  std::string folder_, warning_;
  int file_ = -1;
  bool made_folder_ = false;
  bool locked_ = false;
};

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
