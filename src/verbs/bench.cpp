// The verb bench: what the machine reaches, as a table for a person.

#include "measure/bench.hpp"

#include <cstdio>

#include "dat/network.hpp"
#include "options/machine.hpp"
#include "verbs/parsers.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

void add_options(TableOf<BenchOptions>& table) {
  using O = BenchOptions;
  table.add("--network", &O::network, "architecture; images are drawn, in 10 classes: 32x32, or of the size of --data",
            one_network());
  table.add("--width", &O::width, kAboutWidth, kAutoWidth);
  table.add("--batch", &O::batch, "images per rank and step", kBatch);
  table.add("--attack-steps", &O::attack_steps, "gradient steps of pgd", kSteps);
  table.add("--data", &O::data, "files made by 'dat_hpc data', whose reading is measured, too; none: no reading",
            kPaths);
  add_reading(table, "as many as --threads");
  add_attack_precision(table);
  add_precision(table);
  add_device(table);
  table.add("--seconds", &O::seconds, "to spend after planning; each figure is measured at least once", kSomeSeconds);
  table.add("--out", &O::out, "folder for bench.json and a picture; none: the table is all", kFolder);
}

/// Measures the rates of this machine and this launch: a table, a file and a picture. **Collective.**
int run_bench(const BenchOptions& options, int argc, char** argv) {
  return with_ranks([&](Communicator& world) {
    shake_hands(world, facts_of("bench", {}));
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // rows appear as they are measured, through mpirun too
    Bench(world, options).run(argc, argv);
    require_printed();
    return static_cast<int>(ExitCode::done);
  });
}

}  // namespace

std::optional<BenchOptions> parse_bench(CommandLine& line) {
  auto read = read_options<BenchOptions>(
      line, "Measures this machine: ceilings, convolutions, a PGD training step, the all-reduce.", add_options);
  if (!read) return {};
  BenchOptions& o = *read;
  const BenchOptions plain;
  require(!o.data.empty() || (o.augment == plain.augment && o.decode == plain.decode && o.data_threads == 0 &&
                              o.prefetch == plain.prefetch),
          ExitCode::usage,
          "--augment, --decode, --data-threads and DAT_PREFETCH say how --data is read; add --data, or leave them off");
  settle_precision(o);
  if (o.width == 0) o.width = default_width(o.network);
  return o;
}

Verb bench_verb() {
  return make_verb("bench", "how fast this machine is: ceilings, layers, step, all-reduce", parse_bench, run_bench,
                   Launch::together);
}

}  // namespace dat
