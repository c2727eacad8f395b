#pragma once

#include <functional>
#include <string>

namespace dat {

/// The right of one process to write into a run's folder, held until its destruction. The lock is to be taken before
/// anything in the folder is looked at: what was seen before may be gone when the writer before has ended.
class RunLock {
 public:
  /// Creates the folder where there is none, and takes the lock on its file `.lock`. The ranks of a launcher that was
  /// killed live on for a moment, and another run may be about to end: the constructor waits for ten seconds, and calls
  /// `waiting` once if it has to wait. On a file system without locks it goes on without one. Error(usage): another
  /// process holds the lock. Error(io).
  RunLock(const std::string& folder, const std::function<void(const std::string&)>& waiting);
  /// Removes the lock's file where nothing else has been written, as after a start that failed, and then the folder,
  /// too, if the lock had created it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  std::string folder_;
  int file_ = -1;
  bool made_folder_ = false;
  bool locked_ = false;
};

}  // namespace dat
