#include "start.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <initializer_list>

namespace dat {

namespace {

void change_mask(int how) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) sigaddset(&set, signal);
  sigprocmask(how, &set, nullptr);
}

}  // namespace

void open_standard_descriptors() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(file, F_GETFD) < 0 && errno == EBADF)  // the lowest one free
      static_cast<void>(open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

void hold_signals() { change_mask(SIG_BLOCK); }
void release_signals() { change_mask(SIG_UNBLOCK); }

}  // namespace dat
