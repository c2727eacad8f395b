// The verb bench: what the machine reaches, as a table for a person.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "measure/ceilings.hpp"
#include "measure/convolutions.hpp"
#include "measure/training_step.hpp"
#include "replica/device_notices.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

namespace dat {

namespace {

using nlohmann::ordered_json;

/// The passes in the table; the file has all.
constexpr Pass kShown[] = {frozen_forward, frozen_input_gradient, train_weight_gradient};
constexpr const char* kShownNames[] = {"frozen forward", "frozen input gradient", "training weight gradient"};

/// The share of the operations that the device can do: nothing where that is not known.
[[nodiscard]] std::string percent(double part, double whole) {
  char text[32] = "-";
  if (part > 0 && whole > 0) std::snprintf(text, sizeof text, "%.0f %%", 100 * part / whole);
  return text;
}

[[nodiscard]] ordered_json to_json(const Sample& sample) {
  return {{"median_ms", sample.median}, {"min_ms", sample.least}, {"runs", sample.runs}};
}

/// What a rate is compared with: the best of the first ceiling in GFLOP/s that was measured. A GPU's is that of f32
/// products, of which a pass in 16 bits is not made.
struct Peak {
  double gflops = 0;
  std::string name;
  bool frozen = true;  ///< holds for the frozen passes, too
  [[nodiscard]] double of(int pass) const { return frozen || pass > frozen_input_gradient ? gflops : 0; }
};

[[nodiscard]] Peak find_peak(const std::vector<Ceiling>& ceilings, DType storage) {
  for (const Ceiling& ceiling : ceilings)
    if (ceiling.unit == "GFLOP/s" && ceiling.best > 0) return {ceiling.best, ceiling.name, storage == DType::f32};
  return {};
}

void print(const std::vector<Ceiling>& ceilings) {
  std::printf("\n%-34s%12s%12s\n", "Ceilings of one rank", "median", "best");
  for (const Ceiling& c : ceilings) {
    if (c.best > 0)
      std::printf("%-34s%12.1f%12.1f %s; %s\n", c.name.c_str(), c.median, c.best, c.unit.c_str(), c.note.c_str());
    else
      std::printf("%-34s%12s%12s %s\n", c.name.c_str(), "-", "-", c.note.c_str());
  }
}

/// Whether other programs seem to take time: the usual run is far from the best.
[[nodiscard]] bool disturbed(const std::vector<Ceiling>& ceilings, const Convolutions::Row& sum) {
  constexpr double kFar = 1.3;
  double median = 0, least = 0;
  for (const Sample& pass : sum.passes) {
    median += pass.median;
    least += pass.least;
  }
  return median > kFar * least ||
         std::any_of(ceilings.begin(), ceilings.end(), [](const Ceiling& c) { return c.best > kFar * c.median; });
}

void print_header(const Peak& peak) {
  std::printf("\n%-24s%5s", "Convolutions, alone", "count");
  for (const char* name : kShownNames) std::printf("%26s", name);
  std::printf("\n%-29s", ("% of: " + (peak.gflops > 0 ? peak.name : "nothing known")).c_str());
  for (std::size_t k = 0; k < std::size(kShown); ++k) std::printf("%10s%9s%7s", "ms", "GFLOP/s", "%");
  std::printf("\n");
}

void print(const Convolutions::Row& row, const Peak& peak) {
  std::printf("%-24s%5d", row.name.c_str(), row.count);
  for (const Pass pass : kShown)
    std::printf("%10.3f%9.0f%7s", row.passes[pass].median, row.gflops(pass),
                percent(row.gflops(pass), peak.of(pass)).c_str());
  std::printf("\n");
}

[[nodiscard]] ordered_json to_json(const Convolutions::Row& row, const Peak& peak) {
  ordered_json json{{"name", row.name}, {"count", row.count}, {"gmac", 1e-9 * row.macs}};
  for (int k = 0; k < kPasses; ++k) {
    if (row.passes[k].runs == 0) continue;
    ordered_json& pass = json[kPassNames[k]] = to_json(row.passes[k]);
    pass["gflops"] = row.gflops(k);
    if (peak.of(k) > 0) pass["share_of_peak"] = row.gflops(k) / peak.of(k);
  }
  if (!row.implementation.empty()) json["implementation"] = row.implementation;
  return json;
}

/// A line of the step's table. `alone`: milliseconds of its convolutions alone; 0: it has none.
[[nodiscard]] ordered_json part_of_step(const char* name, const Sample& sample, double alone, bool root) {
  ordered_json json = to_json(sample);
  if (root) std::printf("%-34s%12.2f%12.2f", name, sample.median, sample.least);
  if (alone > 0) {
    json["convolutions_alone_ms"] = alone;
    json["share_of_convolutions"] = alone / sample.median;
    if (root) std::printf("%22.2f%9s", alone, percent(alone, sample.median).c_str());
  }
  if (root) std::printf("\n");
  return json;
}

/// As repeat(), of work that needs all ranks: they do it the same number of times, as many as fit into the time.
/// **Collective.**
template <class F>
[[nodiscard]] Sample repeat_together(Communicator& world, double seconds, double most, bool warm, const F& run) {
  world.barrier();
  const double one = 1e-3 * repeat({.seconds = 0, .least = 1, .most = 1, .warm = warm}, run).median;
  const auto runs = static_cast<std::int64_t>(std::clamp(seconds / one, 1.0, most));
  const int agreed = static_cast<int>(world.minimum(runs));
  return repeat({.seconds = 0, .least = agreed, .most = agreed, .warm = true}, run);
}

/// Sums over the ranks, as the gradients of a step are summed. **Collective.**
[[nodiscard]] ordered_json measure_sums(Communicator& world, Backend& backend, std::int64_t gradients, double seconds) {
  float* data = world.takes_device_memory() ? backend.allocate_floats(gradients, "message")
                                            : static_cast<float*>(backend.allocate_pinned(
                                                  static_cast<std::size_t>(gradients) * sizeof(float), "message"));
  backend.wait();
  // `calls` at a time, as the clock needs.
  const auto measure = [&](std::int64_t count, int calls) {
    Sample sample = repeat_together(world, seconds / 2, 50, false, [&] {
      for (int k = 0; k < calls; ++k) world.sum(data, count);
    });
    sample.median /= calls;
    sample.least /= calls;
    return sample;
  };
  const Sample whole = measure(gradients, 1);
  const Sample small = measure(1, 100);
  const double bytes = 4.0 * static_cast<double>(gradients);
  if (world.root())
    std::printf("%-34s%12.2f%12.2f ms; %.1f MB, %.2f GB/s\n%-34s%12.2f%12.2f us; 4 bytes\n", "all gradients",
                whole.median, whole.least, 1e-6 * bytes, 1e-6 * bytes / whole.median, "one number", 1e3 * small.median,
                1e3 * small.least);
  ordered_json json{{"bytes", bytes}, {"gradients", to_json(whole)}, {"one_number", to_json(small)}};
  json["gradients"]["gb_per_s"] = 1e-6 * bytes / whole.median;
  return json;
}

void write_picture(const std::string& folder, const std::vector<Convolutions::Row>& rows, const Peak& peak,
                   const std::string& title) {
  BarChart chart{.name = "dat_hpc bench",
                 .title = title,
                 .unit = "GFLOP/s",
                 .groups = {},
                 .bars = {std::begin(kShownNames), std::end(kShownNames)},
                 .values = {},
                 .limit = peak.gflops,
                 .limit_name = peak.name};
  for (const Convolutions::Row& row : rows) {
    chart.groups.push_back(row.name);
    for (const Pass pass : kShown) chart.values.push_back(row.gflops(pass));
  }
  try {
    std::printf("%s\n", draw_bars(folder, "layers", chart).c_str());
  } catch (const Error& error) {
    if (error.code() != ExitCode::device) throw;
    std::cerr << "dat_hpc: no picture: " + std::string(error.what()) + "\n";
  }
}

int bench(Communicator& world, const BenchOptions& options, int argc, char** argv) {
  const bool root = world.root();
  const int ranks = world.size();
  const DType storage = storage_from(options.attack_precision);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // rows appear as they are measured, through mpirun too
  const StepOptions step_options{.network = options.network,
                                 .width = options.width,
                                 .batch = options.batch,
                                 .attack_steps = options.attack_steps,
                                 .device = options.device,
                                 .threads = choose_threads(options.threads, world.node_size()),
                                 .math = options.math,
                                 .attack_precision = options.attack_precision};
  std::unique_ptr<TrainingStep> step;
  std::unique_ptr<Convolutions> convolutions;
  ordered_json about;
  together(world, [&] {
    if (root && !options.out.empty()) {
      std::error_code error;
      std::filesystem::create_directories(options.out, error);
      require(!error, ExitCode::io, "cannot create the folder ", options.out, ": ", error.message());
    }
    step = std::make_unique<TrainingStep>(world, step_options);
    about = step->about();
    convolutions = std::make_unique<Convolutions>(step->backend(), step->graph(), options.batch, storage, true);
  });
  for (const std::string& notice : device_notices(world, step->backend(), options.device))
    std::cerr << "dat_hpc: " + notice + "\n";
  const std::vector<std::string> hosts = world.gather(host_name());

  // Planning is over. What is left of the time is shared among what comes.
  const double begin = now_ms();
  const auto part = [&](double share) { return share * std::max(0.0, options.seconds - 1e-3 * (now_ms() - begin)); };
  const TrainingStep::Losses losses = step->check();
  const double resident = peak_resident_mb(), buffers = 1e-6 * about["device_bytes"].get<double>();
  if (root)
    std::printf(
        "%s, width %d, batch %d, PGD-%d, %d rank%s, %s\nchecked: the attack raises the loss from %.4f to %.4f\n",
        options.network.c_str(), options.width, options.batch, options.attack_steps, ranks, ranks == 1 ? "" : "s",
        step->backend().description().c_str(), losses.clean, losses.attacked);

  std::vector<Ceiling> ceilings;
  world.barrier();
  together(world, [&] {
    ceilings = measure_ceilings({.device = options.device,
                                 .threads = step_options.threads,
                                 .node_rank = world.node_rank(),
                                 .math = options.math},
                                part(0.1));
  });
  const Peak peak = find_peak(ceilings, storage);
  if (root) print(ceilings);

  std::vector<Convolutions::Row> rows;
  if (root) print_header(peak);
  world.barrier();
  const Effort per_pass{.seconds = part(0.4) / (convolutions->size() * kPasses), .least = 3, .most = 25};
  for (int k = 0; k < convolutions->size(); ++k) {
    rows.push_back(convolutions->measure(k, per_pass));
    if (root) print(rows.back(), peak);
  }
  const Convolutions::Row sum = total(rows);
  if (root) {
    print(sum, peak);
    std::printf(
        "Operations by the definition of a convolution. Winograd's algorithm needs fewer, and zeros of the padding\n"
        "are skipped: above 100 %% is possible.\n");
  }
  if (root && disturbed(ceilings, sum))
    std::printf("Warning: the same work takes very different times. Is the machine idle?\n");

  if (root)
    std::printf("\n%-34s%12s%12s%22s%9s\n", "PGD training step, ms", "median", "min", "convolutions alone", "%");
  std::vector<double> attack, train, reduce, update;
  world.barrier();
  const Sample iteration = repeat({.seconds = part(0.2), .least = 3, .most = 25}, [&] { step->attack_iteration(); });
  const auto one_step = [&] {
    step->run();
    attack.push_back(step->attack_ms);
    train.push_back(step->train_ms);
    reduce.push_back(step->reduce_ms);
    update.push_back(step->update_ms);
  };
  const Sample whole = repeat_together(world, part(0.8), 25, true, one_step);
  const auto alone = [&](Pass pass) { return sum.passes[pass].median; };
  const double in_iteration = alone(frozen_forward) + alone(frozen_input_gradient);
  const double in_attack = options.attack_steps * in_iteration;
  const double in_train = alone(train_forward) + alone(train_input_gradient) + alone(train_weight_gradient);
  ordered_json parts;
  parts["attack_iteration"] = part_of_step("one iteration of the attack", iteration, in_iteration, root);
  parts["attack"] = part_of_step("attack", summarize(attack), in_attack, root);
  parts["train"] = part_of_step("training pass", summarize(train), in_train, root);
  parts["reduce"] = part_of_step("reduction", summarize(reduce), 0, root);
  parts["update"] = part_of_step("update", summarize(update), 0, root);
  parts["step"] = part_of_step("step", whole, in_attack + in_train, root);

  ordered_json reduction;
  if (root) std::printf("\n%-34s%12s%12s\n", "Sum over the ranks", "median", "min");
  if (ranks > 1)
    reduction = measure_sums(world, step->backend(), step->graph().parameters, part(0.9));
  else
    std::printf("nothing to sum with one rank; try: mpirun -np 2 dat_hpc bench\n");

  const std::vector<double> steps = world.gather(std::vector<double>{whole.median});
  if (!root) return static_cast<int>(ExitCode::done);
  const double slowest = *std::max_element(steps.begin(), steps.end());
  const double images_per_s = 1e3 * ranks * options.batch / slowest;
  std::printf("\nimages/s, all ranks %14.1f%s\nmemory of a rank    %14.1f MB of buffers, %.1f MB resident at most\n",
              images_per_s, ranks > 1 ? " (slowest rank)" : "", buffers, resident);

  if (!options.out.empty()) {
    ordered_json json = about;
    json["ranks"] = ranks;
    json["losses"] = {{"clean", losses.clean}, {"attacked", losses.attacked}, {"trained", losses.trained}};
    for (const Ceiling& c : ceilings)
      json["ceilings"].push_back(
          {{"name", c.name}, {"unit", c.unit}, {"median", c.median}, {"best", c.best}, {"note", c.note}});
    json["peak"] = {{"name", peak.name}, {"gflops", peak.gflops}};
    for (const Convolutions::Row& row : rows) json["layers"].push_back(to_json(row, peak));
    json["layers"].push_back(to_json(sum, peak));
    json["times"] = parts;
    json["sum_over_ranks"] = reduction;
    json["images_per_s"] = images_per_s;
    json["peak_resident_mb"] = resident;
    json["provenance"] = ordered_json::parse(provenance_json(hosts, argc, argv, step->backend().description()));
    const std::string path = options.out + "/bench.json";
    write_atomically(path, [&](const std::string& temporary) {
      std::ofstream file(temporary);
      file << json.dump(2) << "\n";
      require(file.flush().good(), ExitCode::io, "cannot write ", path);
    });
    std::printf("\n%s\n", path.c_str());
    write_picture(options.out, rows, peak,
                  options.network + ", width " + std::to_string(options.width) + ", batch " +
                      std::to_string(options.batch) + ", " + step->backend().description());
  }
  require(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, ExitCode::io,
          "cannot write to standard output; is the disk full?");
  return static_cast<int>(ExitCode::done);
}

}  // namespace

int run_bench(const Command& command, int argc, char** argv) {
  return with_ranks([&](Communicator& world) {
    shake_hands(world, facts_of(command, argc, argv));
    return bench(world, command.bench, argc, argv);
  });
}

}  // namespace dat
