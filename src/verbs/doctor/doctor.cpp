// The verb doctor: what this machine and this launch offer, and what is wrong with it, for a person.

#include <sstream>

#include "dat/provenance.hpp"
#include "replica/cores.hpp"
#include "replica/gpus.hpp"
#include "verbs/doctor/machine.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

struct DoctorOptions {};

std::optional<DoctorOptions> parse_doctor(CommandLine& line) {
  return read_options<DoctorOptions>(
      line,
      "Says what this machine offers: CPU, memory, disk, GPUs, libraries, gnuplot, MPI and its launcher; and why "
      "something is not used.",
      [](TableOf<DoctorOptions>&) {});
}

/// A rank's line about the device that it would have, or why none.
[[nodiscard]] std::string device_line(Communicator& world) {
  const std::string rank = "rank " + std::to_string(world.rank()) + " on " + host_name() + ": ";
  try {
    const auto backend =
        make_backend({.threads = default_threads(world.node_size()).count, .gpu = choose_gpu(world, "auto")});
    const std::string far = far_from_gpu(world, *backend);
    return rank + backend->description() + (far.empty() ? "" : "; warning: " + far) + "\n";
  } catch (const std::exception&) {
    return rank + "nothing: " + current_error().what() + "\n";
  }
}

int run_doctor(const DoctorOptions&, int, char**) {
  return with_ranks([](Communicator& world) {
    const std::vector<std::string> lines = world.gather(device_line(world));
    return print_of_root(world, [&] {
      const Cores threads = default_threads(world.node_size());
      std::ostringstream text;
      text << version_text() << "\n"
           << cuda_report() << "CPU       " << cpu_text() << "\nAMX       "
           << (has_amx() ? "yes: --math bf16 and bf16x3 work on this CPU"
                         : "no: --math bf16 and bf16x3 want a CPU that has it")
           << "\nmemory    " << memory_text() << "\ndisk      " << disk_text() << "\ngnuplot   " << gnuplot_text()
           << "\nthreads   " << threads.count << " of each rank: " << threads.source
           << "; --threads says otherwise\nMPI       " << Communicator::library_version() << ", " << world.size()
           << (world.size() == 1 ? " rank" : " ranks") << (world.alone() ? "; not started by a launcher" : "")
           << "\nlauncher  " << launcher_text(Communicator::library_version()) << "\n\nWhat --device auto gives:\n";
      for (const std::string& line : lines) text << line;
      return text.str();
    });
  });
}

}  // namespace

Verb doctor_verb() {
  return make_verb("doctor", "what this machine offers: CPU, memory, disk, GPUs, MPI", parse_doctor, run_doctor,
                   Launch::together);
}

}  // namespace dat
