#include "communicate/node/node_window.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>
#include <tuple>

namespace dat {

namespace {

constexpr int kNone = -1;
constexpr int kOpens = O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

/// Description of a rank's block for the others.
struct Announced {
  std::int64_t process = 0, file = kNone, bytes = 0;
  dev_t device = 0;
  ino_t inode = 0;
  std::array<char, 128> why{};  ///< empty: the block is there
};

void set_reason(Announced& announced, const std::string& why) {
  std::copy_n(why.begin(), std::min(why.size(), announced.why.size() - 1), announced.why.begin());
}

[[nodiscard]] std::string system_error(const std::string& what) { return what + ": " + std::strerror(errno); }

[[nodiscard]] std::string megabytes(std::size_t bytes) {
  return std::to_string((bytes + (1U << 20U) - 1) >> 20U) + " MiB";
}

/// A file in memory that has all of its pages. Returns why it cannot be had; empty: it is there.
[[nodiscard]] std::string make_file(std::size_t bytes, int& file) {
  rlimit limit{};
  // The kernel ends a process that makes a longer file.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
    return "files may have " + megabytes(limit.rlim_cur) + " here (ulimit -f), and " + megabytes(bytes) +
           " of shared memory are needed";
  file = memfd_create("dat_hpc", MFD_CLOEXEC);
  if (file == kNone) return system_error("no file in memory");
  while (fallocate(file, 0, 0, static_cast<off_t>(bytes)) != 0)  // the file grows, too
    if (errno != EINTR) return system_error("no " + megabytes(bytes) + " of shared memory");
  return "";
}

[[nodiscard]] std::byte* mapped(int file, std::size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

/// The block that another process has announced; null: it cannot be reached, as `why` says.
[[nodiscard]] std::byte* opened(const Announced& other, std::string& why) {
  const std::string path = "/proc/" + std::to_string(other.process) + "/fd/" + std::to_string(other.file);
  const int file = open(path.c_str(), kOpens);
  std::byte* data = nullptr;
  struct stat about {};
  if (file == kNone || fstat(file, &about) != 0) {
    why = system_error("memory of another rank of this node cannot be opened, " + path);
  } else if (std::tuple(S_ISREG(about.st_mode), about.st_ino, about.st_dev, about.st_size) !=
             std::tuple(true, other.inode, other.device, other.bytes)) {
    why = "ranks of this node do not see each other's processes (containers of their own?)";
  } else {
    data = mapped(file, static_cast<std::size_t>(other.bytes));
    if (data == nullptr) why = system_error("memory of another rank of this node cannot be mapped");
  }
  close(file);  // -1 is none
  return data;
}

/// Reasons of all ranks, the first one that there is.
[[nodiscard]] std::string first_reason(const std::vector<Announced>& all) {
  for (const Announced& one : all)
    if (std::string why = one.why.data(); !why.empty()) return why;
  return "";
}

}  // namespace

std::unique_ptr<NodeWindow> NodeWindow::make(Communicator& ranks, std::int64_t bytes, std::string& why) {
  const CallLabel label("shared memory");
  const auto self = static_cast<std::size_t>(ranks.rank());
  std::unique_ptr<NodeWindow> window(new NodeWindow(ranks.rank(), ranks.size()));
  std::vector<Announced> all(window->blocks_.size());
  const std::size_t whole = (static_cast<std::size_t>(bytes) + 2 * kPage - 1) / kPage * kPage;

  Announced mine;
  int file = kNone;
  const std::string lacks = make_file(whole, file);
  struct stat about {};
  if (!lacks.empty()) {
    set_reason(mine, lacks);
  } else if (std::byte* const data = mapped(file, whole); data == nullptr || fstat(file, &about) != 0) {
    set_reason(mine, system_error("shared memory cannot be mapped"));
  } else {
    window->blocks_[self] = {data, whole};
    mine.process = getpid();
    mine.file = file;
    mine.device = about.st_dev;
    mine.inode = about.st_ino;
    mine.bytes = static_cast<std::int64_t>(whole);
  }
  ranks.all_gather(&mine, all.data(), sizeof mine);
  why = first_reason(all);
  cpu_set_t cores{};
  for (const cpu_set_t& one : ranks.launch_node_cores()) CPU_OR(&cores, &cores, &one);
  window->crowded_ = CPU_COUNT(&cores) < std::ssize(ranks.launch_node_cores());
  if (why.empty()) {
    std::string reason;
    for (std::size_t rank = 0; rank < all.size() && reason.empty(); ++rank)
      if (rank != self) window->blocks_[rank] = {opened(all[rank], reason), static_cast<std::size_t>(all[rank].bytes)};
    set_reason(mine, reason);
    ranks.all_gather(&mine, all.data(), sizeof mine);
    why = first_reason(all);
  }
  close(file);  // -1 is none
  return why.empty() ? std::move(window) : nullptr;
}

NodeWindow::~NodeWindow() {
  for (const Block& block : blocks_)
    if (block.data != nullptr) munmap(block.data, block.bytes);
}

void NodeWindow::say(int number, std::uint32_t value) {
  Counter& mine = counter(rank_, number);
  mine.store(value, std::memory_order_release);
  if (crowded_) syscall(SYS_futex, &mine, FUTEX_WAKE, INT_MAX);
}

bool NodeWindow::has(int rank, int number, std::uint32_t value) const {
  const std::uint32_t found = counter(rank, number).load(std::memory_order_acquire);
  return static_cast<std::int32_t>(found - value) >= 0;
}

void NodeWindow::nap(int rank, int number, std::uint32_t value) const {
  constexpr std::chrono::milliseconds kLook{1};
  const auto until = std::chrono::steady_clock::now() + kLook;
  do {
    for (int look = 0; look < (crowded_ ? 1 : 64); ++look)
      if (has(rank, number, value)) return;
    sched_yield();
  } while (std::chrono::steady_clock::now() < until);
  if (!crowded_) return;
  Counter& other = counter(rank, number);
  const std::uint32_t found = other.load(std::memory_order_acquire);
  if (static_cast<std::int32_t>(found - value) >= 0) return;
  const timespec most{0, 1'000'000};
  syscall(SYS_futex, &other, FUTEX_WAIT, found, &most);
}

}  // namespace dat
