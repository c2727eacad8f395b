#include "dat/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/tick.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

/// Returns whether the open file is still the one at `path`: an earlier holder may have removed it.
bool is_file(int file, const std::string& path) {
  struct stat opened {};
  struct stat present {};
  return fstat(file, &opened) == 0 && stat(path.c_str(), &present) == 0 && opened.st_dev == present.st_dev &&
         opened.st_ino == present.st_ino;
}

/// Bytes of the open file, as its server knows them: what a network file system remembers of it may be old.
std::int64_t length_of(int file, const std::string& path) {
  struct statx there {};
  if (statx(file, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_SIZE, &there) == 0)
    return static_cast<std::int64_t>(there.stx_size);
  struct stat status {};  // a kernel before 4.11, or a container that has no statx
  require(fstat(file, &status) == 0, ExitCode::io, "cannot read ", path, ": ", system_reason(errno));
  return status.st_size;
}

bool holds_only_the_lock(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename() != ".lock") return false;
  return !error;
}

}  // namespace

RunLock::RunLock(const std::string& folder, const std::function<void(const std::string&)>& waiting, bool made)
    : folder_(folder), made_folder_(made) {
  const std::string path = folder + "/.lock";
  constexpr int kSeconds = 10, kTriesPerSecond = 10;
  for (int i = 0, told = 0; i < kSeconds * kTriesPerSecond; ++i) {
    if (file_ < 0) {
      std::error_code error;
      made_folder_ = made_folder_ || !fs::exists(folder, error);
      fs::create_directories(folder, error);
      require(!error, ExitCode::io, "cannot create the folder ", folder, ": ", error.message());
      file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
      // The holder before may have removed the folder since it was made.
      require(file_ >= 0 || errno == ENOENT, ExitCode::io, "cannot open ", path, ": ", system_reason(errno));
      if (file_ < 0) continue;
    }
    locked_ = flock(file_, LOCK_EX | LOCK_NB) == 0;
    if (locked_ && is_file(file_, path)) return;
    if (!locked_ && errno != EWOULDBLOCK) {
      warning_ = "the folder " + folder + " cannot be locked (" + system_reason(errno) +
                 "): a second start there is not held back; where both write, one of them ends";
      return;
    }
    if (locked_) {
      close(file_);
      file_ = -1;
      continue;
    }
    if (told++ == 0)
      waiting("another process is writing into the run " + folder + ": waiting for its end, " +
              std::to_string(kSeconds) + " seconds at most");
    tick();
    std::this_thread::sleep_for(std::chrono::milliseconds(1000 / kTriesPerSecond));
  }
  if (file_ >= 0) close(file_);
  fail(ExitCode::usage, "another process is writing into the run ", folder,
       ": wait for its end, or choose another --out");
}

RunLock::~RunLock() {
  const std::string path = folder_ + "/.lock";
  // While the lock is held, so that nobody else takes it on the file that goes. Who has removed the folder may have
  // made it anew.
  if (locked_ && is_file(file_, path) && holds_only_the_lock(folder_)) {
    unlink(path.c_str());
    if (made_folder_) rmdir(folder_.c_str());
  }
  close(file_);
}

std::string make_new_folder(const std::string& wanted) {
  std::error_code error;
  if (const fs::path parent = fs::path(wanted).parent_path(); !parent.empty()) fs::create_directories(parent, error);
  require(!error, ExitCode::io, "cannot create the folder ", wanted, ": ", error.message());
  std::string path = wanted;
  // A folder has one maker alone, on other hosts, too.
  for (int number = 2; mkdir(path.c_str(), 0777) != 0; ++number) {
    require(errno == EEXIST, ExitCode::io, "cannot create the folder ", path, ": ", system_reason(errno));
    path = wanted + "-" + std::to_string(number);
  }
  return path;
}

void require_alone(int file, std::int64_t bytes, const std::string& path) {
  errno = 0;
  if (!is_file(file, path)) {
    const bool gone = errno == 0 || errno == ENOENT || errno == ENOTDIR || errno == ESTALE;
    require(gone, ExitCode::io, "cannot read ", path, ": ", system_reason(errno));
    fail(ExitCode::usage, path, " was removed, or moved, while this process wrote it: this one ends; start one ",
         "process there");
  }
  if (length_of(file, path) == bytes) return;
  // A network file system may find out late that it has no room for what it has taken; then the file is shorter.
  require(fdatasync(file) == 0, ExitCode::io, "cannot write ", path, ": ", system_reason(errno));
  const std::int64_t now = length_of(file, path);
  require(now == bytes, ExitCode::usage, "another process is writing into ", path, ", which has ", now,
          " bytes where this one has left ", bytes, ": this one ends; start one process there");
}

}  // namespace dat
