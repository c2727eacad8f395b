#include "dat/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

#include "dat/error.hpp"
#include "dat/file.hpp"

namespace dat {

RunLock::RunLock(const std::string& folder, const std::function<void(const std::string&)>& waiting) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, ExitCode::io, "cannot create the folder ", folder, ": ", error.message());
  const std::string path = folder + "/.lock";
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  require(file_ >= 0, ExitCode::io, "cannot open ", path, ": ", system_reason(errno));
  constexpr int kSeconds = 10, kTriesPerSecond = 10;
  for (int i = 0; i < kSeconds * kTriesPerSecond; ++i) {
    if (flock(file_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    if (i == 0)
      waiting("another process is writing into the run " + folder + ": waiting for its end, " +
              std::to_string(kSeconds) + " seconds at most");
    std::this_thread::sleep_for(std::chrono::milliseconds(1000 / kTriesPerSecond));
  }
  close(file_);
  fail(ExitCode::usage, "another process is writing into the run ", folder,
       ": wait for its end, or choose another --out");
}

RunLock::~RunLock() { close(file_); }

}  // namespace dat
