#include "run/signals.hpp"

#include <unistd.h>

#include <csignal>
#include <ctime>

#include "dat/communicator.hpp"
#include "dat/error.hpp"

namespace dat {

namespace {

volatile std::sig_atomic_t signals_seen = 0;
volatile std::sig_atomic_t under_way = 0;  ///< the run has begun to write; until then there is nothing to lose
volatile std::sig_atomic_t speaks = 0;
volatile std::time_t first_signal = 0;

extern "C" void on_signal(int) {
  constexpr std::time_t kGraceSeconds = 2;
  if (under_way == 0) {
    constexpr char kText[] = "dat_hpc: stopped on a signal before the first step; the same command starts again\n";
    if (speaks != 0) static_cast<void>(!write(STDERR_FILENO, kText, sizeof kText - 1));
    _exit(static_cast<int>(ExitCode::stopped));
  }
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (signals_seen == 0) first_signal = now.tv_sec;
  if (signals_seen != 0 && now.tv_sec > first_signal + kGraceSeconds) _exit(static_cast<int>(ExitCode::stopped) + 1);
  signals_seen = 1;
}

}  // namespace

void catch_signals() {
  speaks = first_rank_speaks() ? 0 : 1;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) sigaction(signal, &action, nullptr);
  // Whoever stops reading what is printed does not stop the run: run.log has every line.
  std::signal(SIGPIPE, SIG_IGN);
}

void finish_step_on_signal() { under_way = 1; }

bool signalled() { return signals_seen != 0; }

}  // namespace dat
