#include "files/confined.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>
#include <new>

#include "dat/error.hpp"
#include "dat/file.hpp"

namespace dat {

namespace {

void limit(decltype(RLIMIT_CPU) resource, std::int64_t soft, rlim_t hard) {
  const rlimit both{static_cast<rlim_t>(soft), hard};
  setrlimit(resource, &both);
}

bool confining = false;  // this process is the child

/// The child's part: a byte with the code and the message, where it fails.
[[noreturn]] void work_in_child(int answer, const std::string& source, const Limits& limits,
                                const std::function<void()>& work) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  confining = true;
  limit(RLIMIT_CORE, 0, 0);
  limit(RLIMIT_CPU, limits.cpu_seconds, RLIM_INFINITY);  // SIGXCPU, which is reported
  if constexpr (kLimitsMemory) {
    std::ifstream file("/proc/self/statm");
    std::int64_t pages{};  // of data and stack that the process has mapped: the sixth number
    for (int k = 0; k < 6; ++k) file >> pages;
    const std::int64_t memory = pages * sysconf(_SC_PAGESIZE) + limits.memory;
    limit(RLIMIT_DATA, memory, static_cast<rlim_t>(memory));
  }
  const auto tell = [&](ExitCode code, const std::string& message) {
    write_bytes(answer, static_cast<char>(code) + message, source);
  };
  try {
    work();
  } catch (const Error& error) {
    tell(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    tell(ExitCode::data,
         source + ": wants more memory than it may have: it is damaged, or packed in pieces that are too large");
  } catch (const std::exception& error) {
    tell(ExitCode::data, source + ": a library failed: " + error.what());
  }
  _exit(0);
}

}  // namespace

void more_time(std::int64_t cpu_seconds) {
  if (!confining) return;
  limit(RLIMIT_CPU, std::clock() / CLOCKS_PER_SEC + cpu_seconds, RLIM_INFINITY);  // of computing so far, and more
}

void confined(const std::string& source, const Limits& limits, const std::function<void()>& work) {
  int ends[2];
  require(pipe(ends) == 0, ExitCode::device, "cannot make a pipe: ", system_reason(errno));
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);  // where the parent is gone, writing ends
    work_in_child(ends[1], source, limits, work);
  }
  close(ends[1]);
  std::string answer;
  char block[4096];
  for (;;) {
    const ssize_t got = TEMP_FAILURE_RETRY(read(ends[0], block, sizeof block));
    if (got <= 0) break;  // nothing where no child writes
    answer.append(block, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  require(child != -1, ExitCode::device, "cannot start a process: ", system_reason(errno));
  int status{};
  static_cast<void>(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)));
  if (!answer.empty()) throw Error(static_cast<ExitCode>(answer[0]), answer.substr(1));
  if (status == 0) return;
  const int signal = WTERMSIG(status);  // 0: it has ended by itself
  require(signal != SIGXCPU, ExitCode::data, source, ": reading it does not end (", limits.cpu_seconds,
          " s of computing): it is damaged");
  fail(ExitCode::data, source, ": the process that read it was ended by signal ", signal, " (",
       signal > 0 ? strsignal(signal) : "none", "): it is damaged");
}

}  // namespace dat
