// Times every convolution of a network alone, and the attack iteration and training step that they are in. See
// bench/README.md.

#include <algorithm>
#include <fstream>

#include "dat/half.hpp"
#include "training_step.hpp"

namespace {

using namespace dat;
using bench::now_ms;

/// What products are made of, in the attack and in the training pass.
struct Precision {
  const char *name, *math, *attack;
};
constexpr Precision kPrecisions[] = {
    {"f32", "f32", "f32"}, {"tf32", "tf32", "f32"}, {"f16", "tf32", "f16"}, {"bf16", "tf32", "bf16"}};

struct LayerOptions {
  bench::StepOptions step;
  int repeat = 11;
  std::vector<std::string> precisions;  ///< empty: all that the device has
  std::vector<double> gemm_tflops;      ///< for each precision; empty: not known
  std::string json;
};

template <class F>
[[nodiscard]] double median_ms(int repeat, const F& run) {
  run();
  std::vector<double> times;
  for (int k = 0; k < repeat; ++k) {
    const double begin = now_ms();
    run();
    times.push_back(now_ms() - begin);
  }
  std::nth_element(times.begin(), times.begin() + repeat / 2, times.end());
  return times[static_cast<std::size_t>(repeat / 2)];
}

/// Of one call of `work`, in a recording of as many calls as the clock needs.
template <class F>
[[nodiscard]] double recorded_ms(Backend& backend, int repeat, const F& work) {
  constexpr double kEnough = 5;
  const double one = median_ms(1, [&] {
    work();
    backend.wait();
  });
  const int calls = std::clamp(static_cast<int>(kEnough / one), 1, 100);
  const auto recording = backend.record([&] {
    for (int k = 0; k < calls; ++k) work();
  });
  return median_ms(repeat,
                   [&] {
                     recording->replay();
                     backend.wait();
                   }) /
         calls;
}

/// The passes of a step: frozen forward and input gradient (in each iteration of the attack), training forward, input
/// and weight gradient (once). 0: there is none.
constexpr int kPasses = 5;
struct Times {
  double ms[kPasses] = {};
};
constexpr const char* kTitles[kPasses] = {"frozen F", "frozen D", "train F", "train D", "train W"};
constexpr const char* kNames[kPasses] = {"frozen_forward", "frozen_input_gradient", "train_forward",
                                         "train_input_gradient", "train_weight_gradient"};

/// A shape, how often the network has it, and its plans.
struct Row {
  ConvSpec spec;
  int count = 1;
  std::unique_ptr<Conv2d> frozen, training;

  [[nodiscard]] std::string name() const {
    return std::to_string(spec.c_in) + "-" + std::to_string(spec.c_out) + " " + std::to_string(spec.kernel) + "x" +
           std::to_string(spec.kernel) + "/" + std::to_string(spec.stride) + " @" + std::to_string(spec.h);
  }
};

[[nodiscard]] std::vector<Row> shapes(const Graph& graph, int batch) {
  std::vector<Row> rows;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::convolution) continue;
    const Node& from = graph.nodes[static_cast<std::size_t>(node.inputs[0])];
    const ConvSpec spec{.n = batch,
                        .c_in = from.c,
                        .h = from.h,
                        .w = from.w,
                        .c_out = node.c,
                        .kernel = node.kernel,
                        .stride = node.stride,
                        .pad = node.pad,
                        .image = from.op == Op::input,
                        .input_gradient = from.op != Op::input};
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      const ConvSpec& s = row.spec;
      return s.c_in == spec.c_in && s.h == spec.h && s.c_out == spec.c_out && s.kernel == spec.kernel &&
             s.stride == spec.stride && s.image == spec.image;
    });
    if (same != rows.end())
      ++same->count;
    else
      rows.push_back({spec, 1, nullptr, nullptr});
  }
  return rows;
}

/// `values` on the device in the type `storage`.
void upload(Backend& backend, void* to, const std::vector<float>& values, std::int64_t count, DType storage) {
  const auto put = [&](auto type) {
    using T = decltype(type);
    std::vector<T> stored(static_cast<std::size_t>(count));
    std::transform(values.begin(), values.begin() + count, stored.begin(), Stored<T>::from);
    backend.copy_to_device(to, stored.data(), stored.size() * sizeof(T));
  };
  if (storage == DType::f16)
    put(Half{});
  else if (storage == DType::bf16)
    put(BFloat16{});
  else
    put(float{});
}

/// Prints a table row by row, and each row as a line of JSON.
class Table {
 public:
  Table(Backend& backend, double gemm, nlohmann::ordered_json about, std::ostream& json)
      : gpu_(backend.device().kind == DeviceKind::cuda), gemm_(gemm), about_(std::move(about)), json_(json) {}

  void header() const {
    std::printf("%-28s%5s", gpu_ ? gemm_ > 0 ? "ms, TFLOP/s, % of GEMM" : "ms, TFLOP/s" : "ms, GFLOP/s", "count");
    for (const char* title : kTitles) std::printf("%*s", width(), title);
    std::printf("  implementation\n");
  }

  void row(const std::string& name, int count, const Times& t, double macs, const std::string& implementation) const {
    nlohmann::ordered_json line{{"row", name}, {"count", count}, {"gmac", 1e-9 * macs}};
    std::printf("%-28s%5d", name.c_str(), count);
    for (int k = 0; k < kPasses; ++k) {
      const double ms = t.ms[k], tflops = ms > 0 ? 2e-9 * macs / ms : 0;
      if (ms <= 0) {
        std::printf("%*s", width(), "-");
        continue;
      }
      gpu_ ? std::printf("%9.4f %6.1f", ms, tflops) : std::printf("%8.2f %5.0f", ms, 1e3 * tflops);
      if (gemm_ > 0) std::printf(" %3.0f%%", 100 * tflops / gemm_);
      line[kNames[k]] = {{"ms", ms}, {"tflops", tflops}};
      if (gemm_ > 0) line[kNames[k]]["share_of_gemm"] = tflops / gemm_;
    }
    if (!implementation.empty()) {
      std::printf("  %s", implementation.c_str());
      line["implementation"] = implementation;
    }
    std::printf("\n");
    write(line);
  }

  void write(nlohmann::ordered_json line) const {
    line.update(about_);
    json_ << line << '\n';
  }

 private:
  [[nodiscard]] int width() const { return (gpu_ ? 16 : 14) + (gemm_ > 0 ? 5 : 0); }
  bool gpu_;
  double gemm_;
  nlohmann::ordered_json about_;
  std::ostream& json_;
};

/// Milliseconds of all convolutions of the network, by pass; prints them.
[[nodiscard]] Times measure(Backend& backend, std::vector<Row>& rows, DType storage, int repeat, const Table& table) {
  std::int64_t largest = 0, weights = 0;
  for (Row& row : rows) {
    const ConvSpec& s = row.spec;
    ConvSpec frozen = s;
    frozen.frozen = frozen.relu = frozen.input_gradient = true;
    frozen.storage = storage;
    row.frozen = backend.conv2d(frozen);
    if (storage == DType::f32) row.training = backend.conv2d(s);
    largest = std::max(
        {largest, std::int64_t{s.n} * s.c_in * s.h * s.w, std::int64_t{s.n} * s.c_out * s.h_out() * s.w_out()});
    weights = std::max(weights, std::int64_t{s.c_out} * s.c_in * s.kernel * s.kernel);
  }
  float *x = backend.allocate_floats(largest, "x"), *y = backend.allocate_floats(largest, "y"),
        *w = backend.allocate_floats(weights, "weights"), *dw = backend.allocate_floats(weights, "weights"),
        *scale = backend.allocate_floats(weights, "scale");
  backend.commit_workspace();
  std::vector<float> values(static_cast<std::size_t>(std::max(largest, weights)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = uniform(random_words(1, Purpose::synthetic_data, 0, i, 0).v[0]) - 0.5F;
  upload(backend, w, values, weights, DType::f32);
  upload(backend, scale, values, weights, DType::f32);

  Times sum;
  double macs = 0;
  int count = 0;
  for (const Row& row : rows) {
    const ConvSpec& s = row.spec;
    const auto fill = [&](DType type) {
      upload(backend, x, values, largest, s.image ? DType::f32 : type);
      upload(backend, y, values, largest, type);
    };
    Times t;
    const auto time = [&](int pass, const auto& work) { t.ms[pass] = recorded_ms(backend, repeat, work); };
    fill(storage);
    row.frozen->load(w, scale, scale);
    time(0, [&] { row.frozen->forward(x, y, nullptr); });
    time(1, [&] { s.image ? row.frozen->backward_image(y, x, {}) : row.frozen->backward_data(y, x, false); });
    std::string implementation = row.frozen->implementation();
    if (row.training) {
      fill(DType::f32);
      row.training->load(w, nullptr, nullptr);
      time(2, [&] { row.training->forward(x, y, nullptr); });
      if (s.input_gradient) time(3, [&] { row.training->backward_data(y, x, false); });
      time(4, [&] { row.training->backward_weights(x, y, dw, false); });
      implementation += " | " + row.training->implementation();
    }
    table.row(row.name(), row.count, t, s.macs(), implementation);
    for (int k = 0; k < kPasses; ++k) sum.ms[k] += row.count * t.ms[k];
    macs += row.count * s.macs();
    count += row.count;
  }
  table.row("sum", count, sum, macs, "");
  return sum;
}

void run(const Precision& precision, double gemm, const LayerOptions& all, std::ostream& json) {
  bench::StepOptions options = all.step;
  options.math = precision.math;
  options.attack_precision = precision.attack;
  bench::TrainingStep step(options);
  Backend& backend = step.backend();
  nlohmann::ordered_json about = step.about();
  about["precision"] = precision.name;
  const Table table(backend, gemm, about, json);
  std::printf("%s, width %d, batch %d, %s, %s\n", options.network.c_str(), options.width, options.batch, precision.name,
              backend.description().c_str());
  table.header();
  const DType storage = storage_from(precision.attack);
  std::vector<Row> rows = shapes(step.graph(), options.batch);
  const Times sum = measure(backend, rows, storage, all.repeat, table);

  step.check();
  const double iteration = median_ms(all.repeat, [&] { step.attack_iteration(); });
  const double whole = median_ms(std::max(1, all.repeat / 5), [&] { step.run(); });
  const double convolutions = sum.ms[0] + sum.ms[1];
  std::printf("\niteration of the attack %8.2f ms, convolutions alone %8.2f ms (%.0f %%)\n", iteration, convolutions,
              100 * convolutions / iteration);
  std::printf("step                    %8.2f ms", whole);
  if (storage == DType::f32) {
    const double of_step = options.attack_steps * convolutions + sum.ms[2] + sum.ms[3] + sum.ms[4];
    std::printf(", convolutions alone %8.2f ms (%.0f %%)", of_step, 100 * of_step / whole);
  }
  std::printf(", %.3f ms/image\n", whole / options.batch);
  std::printf("                        of it: attack %.2f, training pass %.2f, update %.2f ms\n", step.attack_ms,
              step.train_ms, step.update_ms);
  table.write({{"row", "step"},
               {"attack_iteration_ms", iteration},
               {"attack_iteration_convolutions_ms", convolutions},
               {"ms_per_step", whole}});

  const std::vector<Trial> trials = backend.trials();
  if (!trials.empty()) std::printf("\nTried while the programs were planned:\n");
  for (const Trial& trial : trials) {
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
    table.write(line);
  }
  std::printf("\n");
}

/// Why there is no such precision on the device; empty: there is.
[[nodiscard]] std::string missing(const Precision& precision, const bench::StepOptions& options) {
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
  add_options(app, options.step, options.repeat);
  app.add_option("--precision", options.precisions, "some of f32 tf32 f16 bf16; without it all that the device has");
  app.add_option("--gemm-tflops", options.gemm_tflops, "what a large matrix product reaches, for each --precision");
  app.add_option("--json", options.json, "each row as one line into this file");
  return bench::run_program(app, argc, argv, [&] { run_all(options); });
}
