// Times every convolution of a network alone, and the attack iteration and training step that they are in. See
// bench/README.md.

#include <algorithm>
#include <fstream>

#include "command_line.hpp"

namespace {

using namespace dat;

/// What products are made of, in the attack and in the training pass.
struct Precision {
  const char *name, *math, *attack;
};
constexpr Precision kPrecisions[] = {
    {"f32", "f32", "f32"}, {"tf32", "tf32", "f32"}, {"f16", "tf32", "f16"}, {"bf16", "tf32", "bf16"}};

struct LayerOptions {
  StepOptions step;
  int repeat = 11;
  std::vector<std::string> precisions;  ///< empty: all that the device has
  std::vector<double> gemm_tflops;      ///< for each precision; empty: not known
  std::string json;
};

constexpr const char* kTitles[kPasses] = {"frozen F", "frozen D", "train F", "train D", "train W"};

/// The file of JSON: a line for each row, with what all rows have in common. A program that is stopped leaves what it
/// has measured.
class Lines {
 public:
  Lines(nlohmann::ordered_json about, std::ostream& json) : about_(std::move(about)), json_(json) {}

  void write(nlohmann::ordered_json line) const {
    line.update(about_);
    json_ << line << std::endl;
  }

  /// What was tried while a convolution was planned; prints it, too.
  void write_trial(const Trial& trial) const {
    const std::string what = trial.convolution + ", " + trial.pass;
    std::printf("%-78s %-34s ", what.c_str(), trial.name.c_str());
    if (!trial.refused.empty())
      std::printf("refused: %s\n", trial.refused.c_str());
    else
      std::printf("%9.4f ms\n", trial.milliseconds);
    nlohmann::ordered_json line{{"row", "trial"},
                                {"convolution", trial.convolution},
                                {"pass", trial.pass},
                                {"algorithm", trial.name},
                                {"ms", trial.milliseconds}};
    if (!trial.refused.empty()) line["refused"] = trial.refused;
    write(line);
  }

 private:
  nlohmann::ordered_json about_;
  std::ostream& json_;
};

/// Prints a table row by row, and each row as a line of JSON.
class Table {
 public:
  Table(Backend& backend, double gemm, const Lines& lines)
      : gpu_(backend.device().kind == DeviceKind::cuda), gemm_(gemm), lines_(lines) {}

  void header() const {
    std::printf("%-28s%5s", gpu_ ? gemm_ > 0 ? "ms, TFLOP/s, % of GEMM" : "ms, TFLOP/s" : "ms, GFLOP/s", "count");
    for (const char* title : kTitles) std::printf("%*s", width(), title);
    std::printf("  implementation\n");
  }

  void row(const Convolutions::Row& row) const {
    nlohmann::ordered_json line{{"row", row.name}, {"count", row.count}, {"gmac", 1e-9 * row.macs}};
    std::printf("%-28s%5d", row.name.c_str(), row.count);
    for (int k = 0; k < kPasses; ++k) {
      if (row.passes[k].runs == 0) {
        std::printf("%*s", width(), "-");
        continue;
      }
      const double ms = row.passes[k].median, tflops = 1e-3 * row.gflops(k);
      gpu_ ? std::printf("%9.4f %6.1f", ms, tflops) : std::printf("%8.2f %5.0f", ms, 1e3 * tflops);
      if (gemm_ > 0) std::printf(" %3.0f%%", 100 * tflops / gemm_);
      line[kPassNames[k]] = {{"ms", ms}, {"tflops", tflops}};
      if (gemm_ > 0) line[kPassNames[k]]["share_of_gemm"] = tflops / gemm_;
    }
    if (!row.implementation.empty()) {
      std::printf("  %s", row.implementation.c_str());
      line["implementation"] = row.implementation;
    }
    std::printf("\n");
    lines_.write(line);
  }

 private:
  [[nodiscard]] int width() const { return (gpu_ ? 16 : 14) + (gemm_ > 0 ? 5 : 0); }
  bool gpu_;
  double gemm_;
  const Lines& lines_;
};

void run(const Precision& precision, double gemm, const LayerOptions& all, std::ostream& json) {
  StepOptions options = all.step;
  options.math = precision.math;
  options.attack_precision = precision.attack;
  const auto rank = Communicator::single();
  TrainingStep step(*rank, options);
  Backend& backend = step.backend();
  nlohmann::ordered_json about = step.about();
  about["precision"] = precision.name;
  const Lines lines(about, json);
  const Table table(backend, gemm, lines);
  std::printf("%s, width %d, batch %d, %s, %s\n", options.network.c_str(), options.width, options.batch, precision.name,
              backend.description().c_str());
  table.header();
  const DType storage = storage_from(precision.attack);
  Convolutions convolutions(backend, step.graph(), options.batch, storage, storage == DType::f32);
  std::vector<Convolutions::Row> rows;
  for (int k = 0; k < convolutions.size(); ++k) {
    rows.push_back(convolutions.measure(k, Effort::runs(all.repeat)));
    table.row(rows.back());
  }
  const Convolutions::Row sum = total(rows);
  table.row(sum);
  const auto alone = [&](Pass pass) { return sum.passes[pass].median; };

  step.check();
  const double iteration = repeat(Effort::runs(all.repeat), [&] { step.attack_iteration(); }).median;
  step.run();  // not counted
  std::vector<double> walls, gpu;
  for (int k = 0; k < std::max(1, all.repeat / 5); ++k) {
    step.run();
    walls.push_back(step.wall_ms);
    gpu.push_back(step.gpu_ms);
  }
  const double whole = summarize(walls).median, by_events = summarize(gpu).median;
  const double frozen = alone(frozen_forward) + alone(frozen_input_gradient);
  std::printf("\niteration of the attack %8.2f ms, convolutions alone %8.2f ms (%.0f %%)\n", iteration, frozen,
              100 * frozen / iteration);
  std::printf("step                    %8.2f ms", whole);
  if (storage == DType::f32) {
    const double of_step = options.attack_steps * frozen + alone(train_forward) + alone(train_input_gradient) +
                           alone(train_weight_gradient);
    std::printf(", convolutions alone %8.2f ms (%.0f %%)", of_step, 100 * of_step / whole);
  }
  if (step.on_gpu()) std::printf(", by GPU events %.2f ms", by_events);
  std::printf(", %.3f ms/image\n", whole / options.batch);
  std::printf("                        of it: attack %.2f, training pass %.2f, update %.2f ms\n", step.attack_ms,
              step.train_ms, step.update_ms);
  nlohmann::ordered_json line{{"row", "step"},
                              {"attack_iteration_ms", iteration},
                              {"attack_iteration_convolutions_ms", frozen},
                              {"ms_per_step", whole}};
  if (step.on_gpu()) line["gpu_ms_per_step"] = by_events;
  lines.write(line);

  const std::vector<Trial> trials = backend.trials();
  if (!trials.empty()) std::printf("\nTried while the programs were planned:\n");
  for (const Trial& trial : trials) lines.write_trial(trial);
  std::printf("\n");
}

/// Why there is no such precision on the device; empty: there is.
[[nodiscard]] std::string missing(const Precision& precision, const StepOptions& options) {
  const auto backend = [&](const char* math) {
    return make_backend({.device = options.device, .threads = options.threads, .math = math});
  };
  const auto exact = backend("f32");
  const DType storage = storage_from(precision.attack);
  if (storage != DType::f32) return exact->refuses(storage);
  if (precision.math == std::string("f32")) return {};
  return backend("tf32")->description() == exact->description() ? "the device has no TF32" : "";
}

void run_all(const LayerOptions& options) {
  for (const std::string& name : options.precisions)
    require(std::any_of(std::begin(kPrecisions), std::end(kPrecisions), [&](const auto& p) { return name == p.name; }),
            ExitCode::usage, "unknown precision '", name, "'; known: f32, tf32, f16, bf16");
  require(options.gemm_tflops.empty() || options.gemm_tflops.size() == options.precisions.size(), ExitCode::usage,
          "--gemm-tflops needs one number for each --precision");
  std::ofstream json;
  if (!options.json.empty()) json.open(options.json);
  require(json.good(), ExitCode::io, "cannot write '", options.json, "'");  // now, not after minutes
  for (const Precision& precision : kPrecisions) {
    const auto& wanted = options.precisions;
    const auto found = std::find(wanted.begin(), wanted.end(), precision.name);
    if (!wanted.empty() && found == wanted.end()) continue;
    const std::string reason = missing(precision, options.step);
    if (!reason.empty()) {
      if (!wanted.empty()) std::printf("%s: not run: %s\n", precision.name, reason.c_str());
      continue;
    }
    const auto place = static_cast<std::size_t>(found - wanted.begin());
    run(precision, options.gemm_tflops.empty() ? 0 : options.gemm_tflops[place], options, json);
  }
  require(options.json.empty() || json.flush().good(), ExitCode::io, "cannot write '", options.json, "'");
}

}  // namespace

int main(int argc, char** argv) {
  LayerOptions options;
  CLI::App app(
      "Times every convolution of a network alone, and the attack iteration and training step that they are in",
      "bench_layers");
  bench::add_options(app, options.step, options.repeat);
  app.add_option("--precision", options.precisions, "some of f32 tf32 f16 bf16; without it all that the device has");
  app.add_option("--gemm-tflops", options.gemm_tflops, "what a large matrix product reaches, for each --precision");
  app.add_option("--json", options.json, "each row as one line into this file");
  return bench::run_program(app, argc, argv, [&] { run_all(options); });
}
