#include "measure/process_memory.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace dat {

namespace {

/// 0: the system does not say.
[[nodiscard]] std::size_t resident_now() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

[[nodiscard]] std::size_t peak_resident() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;  // ru_maxrss: KiB
}

}  // namespace

std::size_t ProcessMemory::peak() const {
  std::size_t all = buffers + program;
  for (const Part& part : more) all += part.bytes;
  return std::max(all, before);
}

ProcessMemory process_memory(const Backend& backend, const std::vector<ProcessMemory::Part>& more) {
  ProcessMemory memory;
  if (backend.device().kind == DeviceKind::cpu)
    for (const Backend::Allocation& one : backend.allocations()) memory.buffers += one.bytes;
  const std::size_t now = resident_now();
  memory.program = now > memory.buffers ? now - memory.buffers : 0;
  memory.before = peak_resident();
  std::ranges::copy_if(more, std::back_inserter(memory.more), [](const auto& part) { return part.bytes > 0; });
  return memory;
}

std::string text_of(const ProcessMemory& memory) {
  const auto line = [](const std::string& purpose, std::size_t bytes) {
    return fmt::format("  {:<24}{:.1f} MB\n", purpose, static_cast<double>(bytes) / 1e6);
  };
  std::string text =
      fmt::format("process          {:.1f} MB resident at its peak\n", static_cast<double>(memory.peak()) / 1e6);
  if (memory.buffers > 0) text += line("buffers", memory.buffers);
  text += line("program and libraries", memory.program);
  for (const ProcessMemory::Part& part : memory.more) text += line(part.purpose, part.bytes);
  return text;
}

double peak_resident_mb() { return static_cast<double>(peak_resident()) / (1 << 20); }

}  // namespace dat
