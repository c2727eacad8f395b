#include "start.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dat {

namespace {

void change_mask(int how) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) sigaddset(&set, signal);
  sigprocmask(how, &set, nullptr);
}

/// Does what a turn of the library's waiting loop does.
void pause_once() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// The fastest of some tries: something else may run in between.
[[nodiscard]] double microseconds_of_a_turn() {
  constexpr int kTries = 5, kTurns = 1000;
  double least = std::numeric_limits<double>::infinity();
  for (int k = 0; k < kTries; ++k) {
    const auto begin = std::chrono::steady_clock::now();
    for (int turn = 0; turn < kTurns; ++turn) pause_once();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    least = std::min(least, took.count() / kTurns);
  }
  return least;
}

}  // namespace

void open_standard_descriptors() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(file, F_GETFD) < 0)  // closed: the lowest one free
      static_cast<void>(open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

void hold_signals() { change_mask(SIG_BLOCK); }
void release_signals() { change_mask(SIG_UNBLOCK); }

void wait_briefly(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  constexpr double kLeastTurns = 100, kMostTurns = 300'000;
  constexpr int kOverwrite = 0;
  const double turns = std::clamp(kSpinMicroseconds / microseconds_of_a_turn(), kLeastTurns, kMostTurns);
  if (setenv("GOMP_SPINCOUNT", std::to_string(static_cast<long>(turns)).c_str(), kOverwrite) != 0) return;
  static_cast<void>(execv("/proc/self/exe", argv));  // the program continues as it is where that cannot be done
}

}  // namespace dat
