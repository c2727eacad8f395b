#include "run/signals.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>

#include "dat/communicator.hpp"
#include "dat/error.hpp"

namespace dat {

namespace {

std::atomic<bool> signal_seen = false;
std::atomic<bool> under_way = false;  ///< the run has begun to write; until then there is nothing to lose
std::atomic<bool> speaks = false;
std::atomic<bool> on_terminal = false;  ///< a line that is not at its end may stand there
std::atomic<std::time_t> first_signal = 0;
static_assert(decltype(signal_seen)::is_always_lock_free && decltype(first_signal)::is_always_lock_free);

template <std::size_t bytes>
void tell_in_handler(const char (&text)[bytes]) {
  if (!speaks) return;
  if (on_terminal) static_cast<void>(!write(STDERR_FILENO, "\n", 1));
  static_cast<void>(!write(STDERR_FILENO, text, bytes - 1));
}

extern "C" void on_signal(int) {
  constexpr std::time_t kGraceSeconds = 2;
  if (!under_way) {
    tell_in_handler(
        "dat_hpc: stopped on a signal before the first step: nothing is lost, and the same command starts again\n");
    _exit(static_cast<int>(ExitCode::stopped));
  }
  const int error = errno;  // the main thread may be about to look at it
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (!signal_seen) {
    first_signal = now.tv_sec;
    tell_in_handler(
        "dat_hpc: a signal: the run ends after the step or evaluation under way, with a checkpoint and code 75, and "
        "goes on there with the same command; where no step is left, it is completed and ends with code 0. Another "
        "signal, more than 2 seconds later, ends it at once. Where a launcher does not wait (mpirun: 1 second), the "
        "same command goes on from the last checkpoint, or from the start\n");
  } else if (now.tv_sec > first_signal + kGraceSeconds) {
    tell_in_handler(
        "dat_hpc: ended at once by another signal, with code 76; the same command goes on from the last checkpoint, or "
        "from the start\n");
    _exit(static_cast<int>(ExitCode::stopped) + 1);
  }
  signal_seen = true;
  errno = error;
}

}  // namespace

void catch_signals() {
  speaks = !another_rank_speaks();
  on_terminal = isatty(STDERR_FILENO) == 1;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) sigaction(signal, &action, nullptr);
}

void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

void finish_step_on_signal() { under_way = true; }

bool signalled() { return signal_seen; }

}  // namespace dat
