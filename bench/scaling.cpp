// Times steps of all ranks of a launch, one line of JSON: those of a training run, or steps whose computing is a delay
// and whose communication is real. See bench/README.md.

#include <chrono>
#include <iostream>
#include <thread>

#include "command_line.hpp"
#include "dat/reducer.hpp"
#include "forecast/calibration.hpp"
#include "forecast/forecast.hpp"

namespace {

using Clock = std::chrono::steady_clock;

[[nodiscard]] double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The tensors of a calibration, whose layers stand in the order in which gradients are finished, last layer first.
[[nodiscard]] dat::Parameters parameters_of(const dat::Calibration& calibration) {
  dat::Parameters parameters;
  for (auto layer = calibration.layers.rbegin(); layer != calibration.layers.rend(); ++layer) {
    const int elements = static_cast<int>(layer->elements);
    parameters.segments.push_back({.name = layer->name,
                                   .shape = {elements},
                                   .module = layer->name,
                                   .block = layer->name,
                                   .begin = parameters.size,
                                   .size = layer->elements});
    parameters.size += layer->elements;
  }
  dat::assign_layers(parameters, dat::Granularity::tensor);
  return parameters;
}

/// Computing that takes as long as it is told, without a core: so more ranks than cores can "compute" at once. Work
/// that is done in between, on the gradients, is added to it, as in a step.
class Delay {
 public:
  void begin() { until_ = Clock::now(); }
  void compute(double seconds) {
    until_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    std::this_thread::sleep_until(until_);
  }
  template <class F>
  void work(const F& f) {
    const Clock::time_point before = Clock::now();
    f();
    until_ += Clock::now() - before;
  }

 private:
  Clock::time_point until_;
};

class DelayedStep {
 public:
  DelayedStep(dat::Communicator& world, const dat::Calibration& calibration, const std::string& codec,
              const dat::ReducerOptions& options, int stale)
      : world_(world),
        calibration_(calibration),
        begun_(stale == 0 ? 0 : stale * calibration.attack / calibration.attack_iterations),
        backend_(dat::make_backend({.device = "cpu", .threads = 1})),
        parameters_(parameters_of(calibration)),
        statistics_(static_cast<std::size_t>(calibration.step_message) / sizeof(double)) {
    parameters_.gradients = backend_->allocate_floats(parameters_.size, "gradients");
    const std::vector<float> ones(static_cast<std::size_t>(parameters_.size), 1.0F);
    backend_->copy_to_device(parameters_.gradients, ones.data(), ones.size() * sizeof(float));
    reducer_ =
        dat::make_reducer(*backend_, world, parameters_, parameters_.gradients,
                          dat::codecs().at(codec)(*backend_, parameters_, {.rank = world.rank()}),
                          dat::aggregators().at("mean")(*backend_, parameters_, {.ranks = world.size()}), options);
    all_.push_back(dat::ActiveSet::all(parameters_.layers()));
  }

  /// Seconds of it that were spent after all computing that hides the sum, until the gradients were there.
  double run() {
    const double pass = calibration_.backward / calibration_.backward_passes;
    double of_layers = 0;
    delay_.begin();
    delay_.work([&] { reducer_->begin(all_, step_++); });
    delay_.compute(calibration_.data + calibration_.attack - begun_ + calibration_.forward +
                   (calibration_.backward_passes - 1) * pass);
    for (std::size_t d = 0; d < calibration_.layers.size(); ++d) {
      delay_.compute(calibration_.layers[d].backward);
      of_layers += calibration_.layers[d].backward;
      delay_.work([&] { reducer_->ready(static_cast<int>(calibration_.layers.size() - 1 - d)); });
    }
    delay_.compute(std::max(0.0, pass - of_layers) + begun_);
    const Clock::time_point end = Clock::now();
    reducer_->finish();
    world_.sum(statistics_.data(), std::ssize(statistics_));
    const double behind = seconds_since(end);
    delay_.begin();
    delay_.compute(calibration_.select + calibration_.update);
    return behind;
  }

 private:
  dat::Communicator& world_;
  const dat::Calibration& calibration_;
  double begun_;  ///< seconds of the next step's attack that run before the sum is waited for
  std::unique_ptr<dat::Backend> backend_;
  dat::Parameters parameters_;
  std::vector<double> statistics_;
  std::unique_ptr<dat::Reducer> reducer_;
  std::vector<dat::ActiveSet> all_;
  Delay delay_;
  std::int64_t step_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  dat::StepOptions options{.network = "preact_resnet18", .batch = 16, .attack = "fgsm", .bucket = 0, .threads = 1};
  int steps = 10, stale = 0;
  std::string delay, codec = "float32";
  CLI::App app("Times steps of all ranks of a launch, after two that do not count: one line of JSON, from rank 0",
               "bench_scaling");
  dat::bench::add_options(app, options, steps);
  app.add_option("--delay", delay, "a calibration.json: computing is a delay of that length; none: it is done");
  app.add_option("--codec", codec, "with --delay: how gradients become messages; NAME or NAME/TRANSPORT");
  app.add_option("--stale-attack", stale,
                 "with --delay: iterations of the next attack that run while the sum is under way")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--overlap", options.overlap, "send gradients while the backward pass runs");
  app.add_option("--bucket", options.bucket, "most gradients in one message; 0: 2^19 with --overlap, else 2^23");
  app.add_option("--attack", options.attack);
  app.add_option("--lambda", options.lambda, "weight of the loss on clean images");
  const auto world = dat::Communicator::world();
  const int code = dat::bench::run_program(app, argc, argv, [&] {
    if (options.bucket == 0) options.bucket = options.overlap ? 1 << 19 : 1 << 23;
    std::vector<double> seconds, behind;
    const auto measure = [&](const std::function<double()>& step) {
      for (int k = 0; k < 2; ++k) static_cast<void>(step());
      world->barrier();
      for (int k = 0; k < steps; ++k) {
        const Clock::time_point begin = Clock::now();
        behind.push_back(step());
        seconds.push_back(seconds_since(begin));
      }
    };
    if (delay.empty()) {
      dat::TrainingStep step(*world, options);
      static_cast<void>(step.check());
      measure([&] {
        step.run();
        return 1e-3 * step.reduce_ms;
      });
    } else {
      const dat::Calibration calibration = dat::read_calibration(delay);
      dat::require(stale <= calibration.attack_iterations, dat::ExitCode::usage, "--stale-attack ", stale,
                   " is more than the ", calibration.attack_iterations, " iterations of the calibration's attack");
      const std::size_t slash = codec.find('/');
      DelayedStep step(*world, calibration, codec.substr(0, slash),
                       {.bucket_elements = options.bucket,
                        .overlap = options.overlap,
                        .codec_transport = slash == std::string::npos ? "auto" : codec.substr(slash + 1)},
                       stale);
      measure([&] { return step.run(); });
    }
    if (world->root())
      std::cout << nlohmann::ordered_json{{"ranks", world->size()},
                                          {"ranks_per_node", world->node_size()},
                                          {"computing", delay.empty() ? "done" : "delay"},
                                          {"seconds", seconds},
                                          {"behind_the_backward_pass", behind}}
                << std::endl;
  });
  if (code != 0 && world->size() > 1) world->abort(code);
  return code;
}
