#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "catch.hpp"
#include "run/signals.hpp"
#include "start.hpp"

using namespace dat;

namespace {

/// What a process says that gets two signals at once, and its exit code. begun: the run has begun to write; again: it
/// gets another one after three seconds. rank: its number among several. mute: it cannot say anything.
[[nodiscard]] std::pair<std::string, int> after_signals(bool begun, bool terminal, bool again = false,
                                                        const char* rank = "0", bool mute = false) {
  int ends[2];  // to read from, to write to
  REQUIRE((terminal ? openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr) : pipe(ends)) == 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv("OMPI_COMM_WORLD_RANK", rank, 1);
    dup2(ends[1], STDERR_FILENO);
    catch_signals();
    if (begun) finish_step_on_signal();
    if (mute) close(STDERR_FILENO);
    errno = 7;
    for (const int signal : {SIGUSR1, SIGTERM}) static_cast<void>(raise(signal));
    if (again) {
      sleep(3);
      static_cast<void>(raise(SIGINT));
    }
    _exit(signalled() && errno == 7 ? 3 : 4);
  }
  close(ends[1]);
  std::string text;
  char part[1024];
  for (ssize_t bytes; (bytes = read(ends[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(bytes));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return {text, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

}  // namespace

TEST_CASE("A signal is told on a line of its own, once, and ends a process that has not begun", "[run]") {
  for (const bool terminal : {false, true}) {
    const std::string begin = terminal ? "\r\n" : "", end = terminal ? "\r\n" : "\n";
    const auto [early, stopped] = after_signals(false, terminal);
    CHECK(stopped == 75);
    CHECK(early == begin +
                       "dat_hpc: stopped on a signal before the first step: nothing is lost, and the same command " +
                       "starts again" + end);
    const auto [told, code] = after_signals(true, terminal);
    CHECK(code == 3);
    CHECK(told.starts_with(begin + "dat_hpc: a signal: the run ends after the step or evaluation under way"));
    CHECK(told.ends_with(" goes on from the last checkpoint, or from the start" + end));
    CHECK(told.find("\n", begin.size()) == told.size() - 1);
  }
  for (const bool begun : {false, true}) CHECK(after_signals(begun, false, false, "1").first.empty());
  CHECK(after_signals(true, false, false, "0", true).second == 3);  // errno is what it was
}

TEST_CASE("Another signal, some seconds later, ends a process at once", "[run]") {
  const auto [told, code] = after_signals(true, false, true);
  CHECK(code == 76);
  CHECK(
      told.ends_with("\ndat_hpc: ended at once by another signal, with code 76; the same command goes on from the last "
                     "checkpoint, or from the start\n"));
}

TEST_CASE("A standard descriptor that is closed becomes one that fails as it did, and one that is open stays",
          "[run]") {
  for (unsigned closed = 0; closed < 8; ++closed) {
    const pid_t child = fork();
    if (child == 0) {
      const int null = ::open("/dev/null", O_RDWR);
      int expected[] = {O_WRONLY, O_RDONLY, O_RDONLY};
      for (const int file : {0, 1, 2}) dup2(null, file);
      const int next = dup(null);
      close(next);
      for (const int file : {0, 1, 2}) (closed >> file & 1U) != 0 ? close(file) : expected[file] = O_RDWR;
      open_standard_descriptors();
      bool right = fcntl(next, F_GETFD) < 0;  // nothing else was opened
      for (const int file : {0, 1, 2}) right = right && (fcntl(file, F_GETFL) & O_ACCMODE) == expected[file];
      _exit(right ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    INFO("closed: " << closed);
    CHECK(status == 0);
  }
}
