// Times every convolution of a network alone, and the attack iteration and training step that they are in.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "training_step.hpp"

namespace {

using dat::bench::now_ms;

/// Median of `repeat` runs after one that warms up.
template <class F>
double median_ms(int repeat, F&& run) {
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

/// The passes of a step: frozen forward and input gradient (10 times), training forward, input and weight gradient
/// (once).
struct Times {
  double forward = 0, gradient = 0, train = 0, data = 0, weights = 0;
  void add(const Times& t) {
    forward += t.forward;
    gradient += t.gradient;
    train += t.train;
    data += t.data;
    weights += t.weights;
  }
};

void print(const char* name, const Times& t, double macs) {
  std::printf("%-34s", name);
  for (const double ms : {t.forward, t.gradient, t.train, t.data, t.weights})
    ms > 0 ? std::printf("%8.2f %5.0f", ms, 2e-6 * macs / ms) : std::printf("%14s", "-");
}

void run(const dat::bench::StepOptions& options, int repeat) {
  using namespace dat;
  bench::TrainingStep step(options);
  step.check();
  std::printf("%s, width %d, batch %d, %s\n", options.network.c_str(), options.width, options.batch,
              step.backend().description().c_str());
  std::printf("%-34s%14s%14s%14s%14s%14s  implementation\n", "ms GFLOP/s", "frozen F", "frozen D", "train F", "train D",
              "train W");

  Times sum;
  double macs = 0;
  const auto backend = make_backend({.device = "cpu", .threads = options.threads});
  const Graph& graph = step.graph();
  struct Row {
    ConvSpec spec;
    std::unique_ptr<Conv2d> frozen, training;
  };
  std::vector<Row> rows;
  std::int64_t largest = 0, weights = 0;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::convolution) continue;
    const Node& from = graph.nodes[static_cast<std::size_t>(node.inputs[0])];
    ConvSpec spec{.n = options.batch,
                  .c_in = from.c,
                  .h = from.h,
                  .w = from.w,
                  .c_out = node.c,
                  .kernel = node.kernel,
                  .stride = node.stride,
                  .pad = node.pad,
                  .image = from.op == Op::input};
    ConvSpec frozen = spec;
    frozen.frozen = frozen.relu = true;
    spec.input_gradient = !spec.image;
    rows.push_back({spec, backend->conv2d(frozen), backend->conv2d(spec)});
    largest = std::max({largest, std::int64_t{spec.n} * spec.c_in * spec.h * spec.w,
                        std::int64_t{spec.n} * spec.c_out * spec.h_out() * spec.w_out()});
    weights = std::max(weights, std::int64_t{spec.c_out} * spec.c_in * spec.kernel * spec.kernel);
  }
  float *x = backend->allocate_floats(largest, "x"), *y = backend->allocate_floats(largest, "y"),
        *w = backend->allocate_floats(weights, "weights"), *dw = backend->allocate_floats(weights, "weights"),
        *scale = backend->allocate_floats(weights, "scale");
  backend->commit_workspace();
  std::vector<float> values(static_cast<std::size_t>(std::max(largest, weights)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = uniform(random_words(1, Purpose::synthetic_data, 0, i, 0).v[0]) - 0.5F;
  for (const Row& row : rows) {
    const ConvSpec& s = row.spec;
    for (float* data : {x, y})
      backend->copy_to_device(data, values.data(), static_cast<std::size_t>(largest) * sizeof(float));
    backend->copy_to_device(w, values.data(), static_cast<std::size_t>(weights) * sizeof(float));
    backend->copy_to_device(scale, values.data(), static_cast<std::size_t>(s.c_out) * sizeof(float));
    row.frozen->load(w, scale, scale);
    row.training->load(w, nullptr, nullptr);
    Times t;
    t.forward = median_ms(repeat, [&] { row.frozen->forward(x, y, nullptr); });
    t.gradient = median_ms(repeat, [&] {
      s.image ? row.frozen->backward_image(y, x, {}) : row.frozen->backward_data(y, x, false);
    });
    t.train = median_ms(repeat, [&] { row.training->forward(x, y, nullptr); });
    if (s.input_gradient) t.data = median_ms(repeat, [&] { row.training->backward_data(y, x, false); });
    t.weights = median_ms(repeat, [&] { row.training->backward_weights(x, y, dw, false); });
    const std::string name = std::to_string(s.c_in) + "-" + std::to_string(s.c_out) + " " + std::to_string(s.kernel) +
                             "x" + std::to_string(s.kernel) + "/" + std::to_string(s.stride) + " @" +
                             std::to_string(s.h);
    print(name.c_str(), t, s.macs());
    std::printf("  %s | %s\n", row.frozen->implementation().c_str(), row.training->implementation().c_str());
    sum.add(t);
    macs += s.macs();
  }
  print("sum", sum, macs);
  std::printf("\n\n");

  const double iteration = median_ms(repeat, [&] { step.gradient(); });
  const double whole = median_ms(std::max(1, repeat / 5), [&] { step.run(); });
  const double convolutions = sum.forward + sum.gradient;
  const double all = options.attack_steps * convolutions + sum.train + sum.data + sum.weights;
  std::printf("gradient of the attack %8.1f ms, convolutions alone %8.1f ms (%.0f %%)\n", iteration, convolutions,
              100 * convolutions / iteration);
  std::printf("step                   %8.1f ms, convolutions alone %8.1f ms (%.0f %%), %.2f ms/image\n", whole, all,
              100 * all / whole, whole / options.batch);
  std::printf("                       of it: attack %.1f, training pass %.1f, update %.1f ms\n", step.attack_ms,
              step.train_ms, step.update_ms);
}

}  // namespace

int main(int argc, char** argv) {
  dat::bench::StepOptions options;
  int repeat = 11;
  CLI::App app(
      "Times every convolution of a network alone, and the attack iteration and training step that they are in");
  app.option_defaults()->always_capture_default();
  app.add_option("--network", options.network);
  app.add_option("--width", options.width, "channels of the first stage");
  app.add_option("--batch", options.batch);
  app.add_option("--threads", options.threads);
  app.add_option("--steps", options.attack_steps, "of the attack");
  app.add_option("--repeat", repeat);
  CLI11_PARSE(app, argc, argv);
  try {
    run(options, repeat);
  } catch (const dat::Error& error) {
    std::fprintf(stderr, "bench_layers: %s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
