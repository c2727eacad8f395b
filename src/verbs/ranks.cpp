#include "verbs/ranks.hpp"

#include <cstdio>
#include <iostream>

#include "dat/error.hpp"
#include "dat/provenance.hpp"
#include "printed.hpp"

namespace dat {

void require_printed() {
  std::cout.flush();
  require(std::ferror(stdout) == 0, ExitCode::io, "cannot write to standard output; is the disk full?");
}

int print_result(const std::function<std::string()>& text) {
  std::cout << text();
  require_printed();
  return static_cast<int>(ExitCode::done);
}

int print_of_root(Communicator& world, const std::function<std::string()>& text) {
  together(world, [&] {
    if (world.root()) static_cast<void>(print_result(text));
  });
  return static_cast<int>(ExitCode::done);
}

Facts facts_of(const std::string& verb, const std::vector<std::pair<std::string, std::string>>& settings) {
  Facts facts = build_facts();
  facts.emplace_back("verb", verb);
  for (const auto& [name, value] : settings) facts.emplace_back((name.starts_with("DAT_") ? "" : "--") + name, value);
  return facts;
}

int print_once(const std::function<std::string()>& text) {
  return another_rank_speaks() ? static_cast<int>(ExitCode::done) : print_result(text);
}

namespace {

/// Tasks that each take themselves for all there is do everything as often as there are tasks.
void warn_of_singletons(const Communicator& world) {
  if (const int tasks = started_together(); world.size() == 1 && tasks > 1)
    say("warning: " + std::to_string(tasks) +
        " tasks are announced to this process, by Slurm or another launcher, and MPI knows of this one alone: each "
        "task works by itself; start them with mpirun, or with an srun --mpi=TYPE that this MPI knows (srun "
        "--mpi=list, dat_hpc doctor)");
}

}  // namespace

int agreed_code(Communicator& world, const std::function<int()>& part) {
  try {
    return part();
  } catch (const Agreed& agreed) {
    return static_cast<int>(agreed.code);
  } catch (const Error& error) {
    if (!is_shared(error.code())) throw;
    if (world.root()) complain(error.what());
    return static_cast<int>(error.code());
  }
}

int with_ranks(const std::function<int(Communicator&)>& verb) {
  const auto world = Communicator::world();
  warn_of_singletons(*world);
  try {
    return agreed_code(*world, [&] { return verb(*world); });
  } catch (const std::exception&) {
    const Error error = current_error();
    const bool alone = world->size() == 1;
    if (error.code() == ExitCode::communication && world->watched()) world->end(error.what());
    complain((alone ? "" : "rank " + std::to_string(world->rank()) + " on " + host_name() + ": ") + error.what());
    if (!alone) world->abort(static_cast<int>(error.code()));
    return static_cast<int>(error.code());
  }
}

}  // namespace dat
