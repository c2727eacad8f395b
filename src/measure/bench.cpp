#include "measure/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <set>
#include <utility>

#include "communicate/together.hpp"
#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "measure/loading.hpp"
#include "measure/process_memory.hpp"
#include "printed.hpp"
#include "reduce/sums/sums.hpp"
#include "replica/device_notices.hpp"
#include "replica/gpus.hpp"

namespace dat {

using nlohmann::ordered_json;

namespace {

using Peak = Bench::Peak;

/// The passes in the table; the file has all.
constexpr Pass kShown[] = {frozen_forward, frozen_input_gradient, train_weight_gradient};
constexpr const char* kShownNames[] = {"frozen forward", "frozen input gradient", "training weight gradient"};

/// The share of the operations that the device can do: nothing where that is not known.
[[nodiscard]] std::string percent(double part, double whole) {
  return part > 0 && whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : "-";
}

[[nodiscard]] ordered_json to_json(const Sample& sample) {
  return {{"median_ms", sample.median}, {"min_ms", sample.least}, {"runs", sample.runs}};
}

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

/// Returns whether other programs seem to take time: the usual run is far from the best.
[[nodiscard]] bool disturbed(const std::vector<Ceiling>& ceilings, const Convolutions::Row& sum) {
  constexpr double kFar = 1.3;
  double median = 0, least = 0;
  for (const Sample& pass : sum.passes) {
    median += pass.median;
    least += pass.least;
  }
  return median > kFar * least ||
         std::ranges::any_of(ceilings, [](const Ceiling& c) { return c.best > kFar * c.median; });
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

/// Repeats work that needs all ranks: they do it the same number of times, as many as fit into the time.
/// **Collective.**
template <class F>
[[nodiscard]] Sample repeat_together(Communicator& world, double seconds, double most, bool warm, const F& run) {
  world.barrier();
  const double one = 1e-3 * repeat({.seconds = 0, .least = 1, .most = 1, .warm = warm}, run).median;
  const auto runs = static_cast<std::int64_t>(std::clamp(seconds / one, 1.0, most));
  const int agreed = static_cast<int>(world.minimum(runs));
  return repeat({.seconds = 0, .least = agreed, .most = agreed, .warm = true}, run);
}

/// A way to add up messages, and what it takes.
struct MeasuredSums {
  std::string name;
  std::unique_ptr<NodeSums> sums;  ///< null: MPI adds up all of it at once, in one call
  std::vector<double> ms;
};

/// Milliseconds of a sum of `count` numbers, in the pieces of a step.
[[nodiscard]] double milliseconds(NodeSums& sums, Communicator& world, Backend& backend, std::int64_t count) {
  std::vector<Request> requests;
  std::vector<Backend::Ticket> tickets;
  constexpr std::int64_t kPieceOfSum = default_bucket(false), kFloat = sizeof(float);
  world.barrier();
  const double begin = now_ms();
  const auto length = [&](std::int64_t at) { return std::min(kPieceOfSum, count - at); };
  for (std::int64_t at = 0; at < count; at += kPieceOfSum)
    tickets.push_back(sums.fetch(at * kFloat, length(at) * kFloat));
  for (std::int64_t at = 0; at < count; at += kPieceOfSum) {
    backend.wait_for(tickets[static_cast<std::size_t>(at / kPieceOfSum)]);
    requests.push_back(sums.start(at * kFloat, length(at)));
  }
  for (std::int64_t at = 0; at < count; at += kPieceOfSum) {
    requests[static_cast<std::size_t>(at / kPieceOfSum)].wait();
    sums.send(at * kFloat, length(at) * kFloat);
  }
  backend.wait();
  return now_ms() - begin;
}

/// Sums over the ranks, as the gradients of a step are summed, in all ways that can be had here, in turns; those of a
/// step come first. **Collective.**
[[nodiscard]] ordered_json measure_sums(Communicator& world, Backend& backend, std::int64_t gradients, double seconds) {
  const double bytes = 4.0 * static_cast<double>(gradients);
  std::vector<MeasuredSums> ways;
  for (const std::string& name : node_sums_names()) {
    std::string why;
    auto made = dat::sums().at(name)().make({.backend = backend,
                                             .ranks = world,
                                             .bytes = gradients * std::int64_t{sizeof(float)},
                                             .longest = gradients,
                                             .parts = static_cast<int>(gradients / default_bucket(false)) + 1},
                                            why);
    if (made != nullptr) ways.push_back({name, std::move(made), {}});
  }
  // Sum of MPI in one piece: the bound of all ways.
  auto* const whole =
      static_cast<float*>(backend.allocate_pinned(static_cast<std::size_t>(gradients) * sizeof(float), "message"));
  ways.push_back({"MPI_Allreduce", nullptr, {}});
  const auto all_reduce = [&](std::int64_t count) {
    world.barrier();
    const double begin = now_ms();
    world.sum(whole, count);
    return now_ms() - begin;
  };
  backend.wait();
  ordered_json json{{"bytes", bytes}};
  for (const std::int64_t count : {gradients, std::int64_t{1}}) {
    const auto turn = [&] {
      for (MeasuredSums& way : ways)
        way.ms.push_back(way.sums != nullptr ? milliseconds(*way.sums, world, backend, count) : all_reduce(count));
    };
    turn();  // the first one touches the memory
    for (MeasuredSums& way : ways) way.ms.clear();
    static_cast<void>(repeat_together(world, seconds / 2, 50, false, turn));
    for (MeasuredSums& way : ways) {
      const Sample sample = summarize(std::exchange(way.ms, {}));
      const bool one = count == 1;
      if (world.root())
        std::printf(
            "%-34s%12.2f%12.2f %s\n", ((one ? "one number, " : "all gradients, ") + way.name).c_str(),
            sample.median * (one ? 1e3 : 1), sample.least * (one ? 1e3 : 1),
            one ? "us; 4 bytes"
                : fmt::format("ms; {:.1f} MB, {:.2f} GB/s", 1e-6 * bytes, 1e-6 * bytes / sample.median).c_str());
      ordered_json& found = json[one ? "one_number" : "gradients"];
      if (found.is_null()) found = to_json(sample);
      found["by"][way.name] = to_json(sample);
      if (!one && !found.contains("gb_per_s")) found["gb_per_s"] = 1e-6 * bytes / sample.median;
    }
  }
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
    std::cout << draw_bars(folder, "layers", chart) + "\n" << std::flush;
  } catch (const Error& error) {
    if (error.code() != ExitCode::device) throw;
    say("no picture: " + std::string(error.what()));
  }
}

[[nodiscard]] StepOptions step_of(const BenchOptions& options, const Communicator& world) {
  return {.network = options.network,
          .width = options.width,
          .batch = options.batch,
          .attack_steps = options.attack_steps,
          .device = options.device,
          .threads = choose_threads(options.threads, world.node_size()),
          .math = options.math,
          .attack_precision = options.attack_precision,
          .precision = options.precision};
}

}  // namespace

Bench::Bench(Communicator& world, const BenchOptions& options)
    : world_(world),
      options_(options),
      step_options_(step_of(options, world)),
      storage_(storage_from(options.attack_precision)) {}

void Bench::run(int argc, char** argv) {
  plan();
  check();
  const Peak peak = measure_all_ceilings();
  measure_convolutions(peak);
  measure_step();
  measure_reading();
  ordered_json reduction;
  if (world_.root()) std::printf("\n%-34s%12s%12s\n", "Sum over the ranks", "median", "min");
  if (world_.size() > 1)
    reduction = measure_sums(world_, step_->backend(), step_->graph().parameters, part(0.9));
  else
    std::printf("nothing to sum with one rank; try: mpirun -np 2 dat_hpc bench\n");
  found_["sum_over_ranks"] = reduction;
  finish(peak, argc, argv);
}

void Bench::plan() {
  together(world_, [&] {
    if (world_.root()) make_folder(options_.out);
    if (options_.size > 0) step_options_.size = options_.size;
    if (!options_.data.empty()) {
      images_ = open_dataset(options_.data, "train", 0, {.size = options_.size, .fast = options_.decode == "fast"});
      step_options_.size = images_->info().size;
    }
    step_ = std::make_unique<TrainingStep>(world_, step_options_);
    found_ = step_->about();
    convolutions_ = std::make_unique<Convolutions>(step_->backend(), step_->graph(), options_.batch, storage_, true);
  });
  for (const std::string& notice : device_notices(world_, step_->backend(), options_.device)) say(notice);
  hosts_ = world_.gather(host_name());
  begin_ms_ = now_ms();
}

double Bench::part(double share) const {
  return share * std::max(0.0, options_.seconds - 1e-3 * (now_ms() - begin_ms_));
}

void Bench::check() {
  const TrainingStep::Losses losses = step_->check();
  resident_mb_ = peak_resident_mb();
  if (world_.root())
    std::printf(
        "%s, width %d, batch %d, PGD-%d, %d rank%s, %s\nchecked: the attack raises the loss from %.4f to %.4f\n",
        options_.network.c_str(), options_.width, options_.batch, options_.attack_steps, world_.size(),
        world_.size() == 1 ? "" : "s", step_->backend().description().c_str(), losses.clean, losses.attacked);
  found_["ranks"] = world_.size();
  found_["losses"] = {{"clean", losses.clean}, {"attacked", losses.attacked}, {"trained", losses.trained}};
}

Bench::Peak Bench::measure_all_ceilings() {
  world_.barrier();
  together(world_, [&] {
    ceilings_ = measure_ceilings({.device = options_.device,
                                  .threads = step_options_.threads,
                                  .gpu = choose_gpu(world_, options_.device),
                                  .math = options_.math},
                                 part(0.1));
  });
  if (world_.root()) print(ceilings_);
  for (const Ceiling& c : ceilings_)
    found_["ceilings"].push_back(
        {{"name", c.name}, {"unit", c.unit}, {"median", c.median}, {"best", c.best}, {"note", c.note}});
  const Peak peak = find_peak(ceilings_, storage_);
  found_["peak"] = {{"name", peak.name}, {"gflops", peak.gflops}};
  return peak;
}

void Bench::measure_convolutions(const Peak& peak) {
  const bool root = world_.root();
  if (root) print_header(peak);
  world_.barrier();
  const Effort per_pass{.seconds = part(0.4) / (convolutions_->size() * kPasses), .least = 3, .most = 25};
  for (int k = 0; k < convolutions_->size(); ++k) {
    rows_.push_back(convolutions_->measure(k, per_pass));
    if (root) print(rows_.back(), peak);
  }
  sum_ = total(rows_);
  for (const Convolutions::Row& row : rows_) found_["layers"].push_back(to_json(row, peak));
  found_["layers"].push_back(to_json(sum_, peak));
  if (!root) return;
  print(sum_, peak);
  std::printf(
      "Operations by the definition of a convolution. Winograd's algorithm needs fewer, and zeros of the padding\n"
      "are skipped: above 100 %% is possible.\n");
  if (disturbed(ceilings_, sum_))
    std::printf("Warning: the same work takes very different times. Is the machine idle?\n");
}

void Bench::measure_step() {
  const bool root = world_.root();
  if (root)
    std::printf("\n%-34s%12s%12s%22s%9s\n", "PGD training step, ms", "median", "min", "convolutions alone", "%");
  std::vector<double> wall, gpu, attack, train, reduce, update;
  world_.barrier();
  const Sample iteration = repeat({.seconds = part(0.2), .least = 3, .most = 25}, [&] { step_->attack_iteration(); });
  const auto one_step = [&] {
    step_->run();
    wall.push_back(step_->wall_ms);
    gpu.push_back(step_->gpu_ms);
    attack.push_back(step_->attack_ms);
    train.push_back(step_->train_ms);
    reduce.push_back(step_->reduce_ms);
    update.push_back(step_->update_ms);
  };
  const int runs = repeat_together(world_, part(0.8), 25, true, one_step).runs;
  const Sample whole = summarize(wall);
  step_ms_ = whole.median;
  const auto alone = [&](Pass pass) { return sum_.passes[pass].median; };
  const double in_iteration = alone(frozen_forward) + alone(frozen_input_gradient);
  const double in_attack = options_.attack_steps * in_iteration;
  const double in_train = alone(train_forward) + alone(train_input_gradient) + alone(train_weight_gradient);
  ordered_json& parts = found_["times"];
  parts["attack_iteration"] = part_of_step("one iteration of the attack", iteration, in_iteration, root);
  parts["attack"] = part_of_step("attack", summarize(attack), in_attack, root);
  parts["train"] = part_of_step("training pass", summarize(train), in_train, root);
  parts["reduce"] = part_of_step("reduction", summarize(reduce), 0, root);
  parts["update"] = part_of_step("update", summarize(update), 0, root);
  parts["step"] = part_of_step("step by the wall", whole, in_attack + in_train, root);
  if (!step_->on_gpu()) return;
  parts["step_gpu"] = part_of_step("step by GPU events", summarize(gpu), 0, root);
  const double flow = step_->flow_ms(runs);
  parts["step_flow"] = part_of_step("step, none waits for the last", {flow, flow, runs}, 0, root);
}

void Bench::measure_reading() {
  if (images_ == nullptr) return;
  // Nodes may have other numbers of cores.
  const auto threads = static_cast<int>(
      world_.minimum(options_.data_threads > 0 ? options_.data_threads : step_->backend().host_threads));
  const bool root = world_.root();
  if (root)
    std::printf("\n%-34s%12s%12s\n", world_.size() > 1 ? "Reading of images, all ranks" : "Reading of images",
                "images/s", "MB/s");
  ordered_json& all = found_["reading"];
  const auto row = [&](const std::string& name, const char* key, const std::function<ReadingRate()>& measure) {
    world_.barrier();
    ReadingRate rate;
    together(world_, [&] { rate = measure(); });
    double sum = 0, bytes = 0;
    for (const double one : world_.gather(std::vector<double>{rate.images})) sum += one;
    for (const double one : world_.gather(std::vector<double>{rate.bytes})) bytes += one;
    if (root) std::printf("%-34s%12.1f%12.1f\n", name.c_str(), sum, 1e-6 * bytes);
    all[key] = {{"images_per_s", sum}, {"bytes_per_s", bytes}};
    return rate;
  };
  const auto of_threads = [](const std::string& what, int count) {
    return what + ", " + std::to_string(count) + (count == 1 ? " thread" : " threads");
  };
  const double seconds = std::max(0.2, part(0.25));
  for (const int count : std::set{1, threads})
    if (images_->info().decoded)
      row(of_threads("whole images decoded", count), count == 1 ? "decoded_by_one" : "decoded",
          [&] { return decoding_rate(*images_, count, seconds); });
  const LoaderOptions loading{.batch = options_.batch,
                              .micro_batch = options_.batch,
                              .augment = augment_of(options_.augment),
                              .seed = static_cast<std::uint64_t>(world_.rank()),
                              .threads = threads,
                              .prefetch = options_.prefetch};
  const double loaded = row(of_threads("batches of the loader", threads), "loaded", [&] {
                          return loading_rate(*images_, loading, seconds);
                        }).images;
  all["threads"] = threads;
  if (!root) return;
  const double step = 1e3 * options_.batch / step_ms_;
  std::printf("A step takes %.1f images/s of each rank: a loader with --data-threads %d %s.\n", step, threads,
              loaded >= step ? "feeds it" : "does not feed it");
}

void Bench::finish(const Peak& peak, int argc, char** argv) {
  const std::vector<double> steps = world_.gather(std::vector<double>{step_ms_});
  if (!world_.root()) return;
  const double slowest = *std::ranges::max_element(steps);
  const double images_per_s = 1e3 * world_.size() * options_.batch / slowest;
  const double buffers = 1e-6 * found_["device_bytes"].get<double>();
  std::printf("\nimages/s, all ranks %14.1f%s\nmemory of a rank    %14.1f MB of buffers, %.1f MB resident at most\n",
              images_per_s, world_.size() > 1 ? " (slowest rank)" : "", buffers, resident_mb_);
  if (options_.out.empty()) return;
  found_["images_per_s"] = images_per_s;
  found_["peak_resident_mb"] = resident_mb_;
  found_["provenance"] = ordered_json::parse(provenance_json(hosts_, argc, argv, step_->backend().description()));
  const std::string path = options_.out + "/bench.json";
  write_text_atomically(path, found_.dump(2) + "\n");
  std::cout << "\n" + path + "\n" << std::flush;
  write_picture(options_.out, rows_, peak,
                options_.network + ", width " + std::to_string(options_.width) + ", batch " +
                    std::to_string(options_.batch) + ", " + step_->backend().description());
}

}  // namespace dat
