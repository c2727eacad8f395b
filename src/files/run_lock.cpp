#include "dat/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/tick.hpp"
#include "files/outside_json.hpp"

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

/// What the lock's file says; nothing where it says nothing, or a part that was not yet written.
Writer read_writer(int file) {
  char text[4096];
  const ssize_t length = pread(file, text, sizeof text, 0);
  const auto json = json_or_discarded({text, static_cast<std::size_t>(std::max<ssize_t>(length, 0))});
  Writer writer;
  try {
    for (const char* name : {"process", "starts"})
      if (!json.at(name).is_number_integer()) return {};
    if (const auto& code = json.at("code"); !code.is_null() && !code.is_number_integer()) return {};
    json.at("host").get_to(writer.host);
    json.at("process").get_to(writer.process);
    json.at("starts").get_to(writer.starts);
    if (const auto& code = json.at("code"); !code.is_null()) code.get_to(writer.code);
    const auto& part = json.at("evaluated");
    if (!part.is_null() && writer.code == Writer::kNone) part.get_to(writer.evaluated);
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  constexpr std::int64_t kMostStarts = 1'000'000'000;
  const bool sound = writer.code >= Writer::kNone && writer.code <= 255 && writer.evaluated <= 1 &&
                     writer.starts >= 0 && writer.starts <= kMostStarts;
  return sound ? writer : Writer{};
}

// Bytes of the lock's file, and of its end, which has the exit code alone: what a rank notes of an evaluation does not
// touch the code that another one has noted.
constexpr std::size_t kLockBytes = 512, kCodeBytes = 32;

std::string filled_up(std::string text, std::size_t bytes) {
  text.resize(bytes, ' ');
  return text;
}

/// The file's beginning, all but the exit code. Empty: there is no room for it.
std::string signature_of(const Writer& writer) {
  std::string text =
      nlohmann::ordered_json{
          {"host", writer.host},
          {"process", writer.process},
          {"starts", writer.starts},
          {"evaluated", writer.evaluated < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(writer.evaluated)}}
          .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  text.back() = ',';
  return text.size() > kLockBytes - kCodeBytes ? "" : filled_up(text, kLockBytes - kCodeBytes);
}

/// The file's end.
std::string code_of(int code) {
  return filled_up("\"code\":" + (code < 0 ? "null" : std::to_string(code)) + "}", kCodeBytes - 1) + '\n';
}

/// One call: who reads meanwhile sees the text before, or this one.
void write_lock(int file, std::size_t place, const std::string& text) {
  static_cast<void>(!pwrite(file, text.data(), text.size(), static_cast<off_t>(place)));
}

}  // namespace

RunLock::RunLock(const std::string& folder, const std::function<void(const std::string&)>& waiting, bool made)
    : folder_(folder), made_folder_(made) {
  const std::string path = folder + "/.lock";
  constexpr int kSeconds = 10, kTriesPerSecond = 10;
  for (int i = 0, told = 0; i < kSeconds * kTriesPerSecond; ++i) {
    if (file_ == -1) {
      std::error_code error;
      made_folder_ = made_folder_ || !fs::exists(folder, error);
      make_folder(folder);
      file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
      if (file_ == -1) {  // the holder before may have removed the folder since it was made
        require(errno == ENOENT, ExitCode::io, "cannot open ", path, ": ", system_reason(errno));
        continue;
      }
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
    if (told++ == 1)  // and not one who only looks, which takes no time
      waiting("another process is writing into the run " + folder + ": waiting for its end, " +
              std::to_string(kSeconds) + " seconds at most");
    tick();
    std::this_thread::sleep_for(std::chrono::milliseconds(1000 / kTriesPerSecond));
  }
  close(file_);
  fail(ExitCode::usage, "another process is writing into the run ", folder,
       ": wait for its end, or choose another --out");
}

RunLock::~RunLock() {
  const std::string path = folder_ + "/.lock";
  // While the lock is held, so that nobody else takes it on the file that goes. Who has removed the folder may have
  // made it anew.
  if (locked_ && is_file(file_, path) && entries_in(folder_) == files_in(folder_, {".lock"})) {
    unlink(path.c_str());
    if (made_folder_) rmdir(folder_.c_str());
  }
  close(file_);
}

void RunLock::sign(const std::string& host, bool goes_on) {
  const std::int64_t before = goes_on ? std::max<std::int64_t>(look_at_lock(folder_).writer.starts, 1) : 0;
  writer_ = {.host = host, .process = getpid(), .starts = before + 1};
  if (const std::string begin = signature_of(writer_); !begin.empty())
    write_lock(file_, 0, begin + code_of(Writer::kNone));
}

void RunLock::note_evaluation(double part) {
  const auto now = std::chrono::steady_clock::now();
  if (part > 0 && part < 1 && now - noted_ < std::chrono::seconds(1)) return;
  noted_ = now;
  writer_.evaluated = part < 1 ? part : Writer::kNone;
  write_lock(file_, 0, signature_of(writer_));
}

void RunLock::sign_off(int code) const {
  const Writer now = look_at_lock(folder_).writer;
  if (now.host == writer_.host && now.process == writer_.process) dat::sign_off(folder_, code);
}

void sign_off(const std::string& folder, int code) {
  const int file = open((folder + "/.lock").c_str(), O_RDWR | O_CLOEXEC);
  if (const Writer writer = read_writer(file); !writer.host.empty() && writer.code == Writer::kNone)
    write_lock(file, kLockBytes - kCodeBytes, code_of(code));
  close(file);
}

LockSeen look_at_lock(const std::string& folder) {
  LockSeen seen;
  const int file = open((folder + "/.lock").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file == -1) {
    if (errno != ENOENT && errno != ENOTDIR) seen.held = LockSeen::Held::unknown;
    return seen;
  }
  if (flock(file, LOCK_SH | LOCK_NB) != 0)
    seen.held = errno == EWOULDBLOCK ? LockSeen::Held::yes : LockSeen::Held::unknown;
  seen.writer = read_writer(file);
  close(file);
  return seen;
}

std::string make_new_folder(const std::string& wanted) {
  make_folder(fs::path(wanted).parent_path().string());
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
