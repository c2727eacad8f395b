#include "communicate/hang/processes.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

namespace dat {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string link_of(const char* path) {
  char text[256];
  const ssize_t length = readlink(path, text, sizeof text);
  return {text, static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

std::int64_t start_of_process(std::int64_t process) {
  std::string stat = first_line(("/proc/" + std::to_string(process) + "/stat").c_str());
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));  // a name may hold anything
  constexpr int kFieldsBetween = 18;  // fields 4 to 21 of proc(5); the state is 3, the start is 22
  std::string state, skipped;
  std::int64_t start{};
  fields >> state;
  for (int k = 0; k < kFieldsBetween; ++k) fields >> skipped;
  fields >> start;
  return fields && state != "Z" && state != "X" ? start : -1;
}

void remove_shared_memory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::string name = line.substr(line.rfind('/') + 1);
    for (const char* of_mpi : {"vader_segment.", "sm_segment.", "ucx_shm_posix_"})
      if (name.starts_with(of_mpi)) unlink(line.substr(line.find('/')).c_str());
  }
}

void exit_and_kill(int exit_code, const std::vector<pid_t>& processes) {
  if (!processes.empty() && syscall(SYS_clone, 0L, nullptr, nullptr, nullptr, nullptr) == 0) {
    setsid();
    for (int file = 0; file < 4096; ++file) close(file);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    for (const pid_t process : processes) kill(process, SIGKILL);
  }
  _exit(exit_code);
}

}  // namespace dat
