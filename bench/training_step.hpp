#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "all.hpp"
#include "dat/attack.hpp"
#include "dat/error.hpp"
#include "dat/optimizer.hpp"
#include "dat/program.hpp"
#include "train/images.hpp"

namespace dat::bench {

[[nodiscard]] inline double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct StepOptions {
  std::string network = "resnet18";
  int width = 64, batch = 64;
  int micro_batch = 0;   ///< images that are attacked and trained on at a time; 0: all of them
  int attack_batch = 0;  ///< images per pass of the attack; 0: the micro-batch
  int attack_steps = 10;
  std::string device = "auto";
  int threads = 2;
  std::string math = "tf32", attack_precision = "f32";
};

/// The options that both programs have.
inline void add_options(CLI::App& app, StepOptions& options, int& repeat) {
  app.option_defaults()->always_capture_default();
  app.add_option("--network", options.network);
  app.add_option("--width", options.width, "channels of the first stage");
  app.add_option("--batch", options.batch);
  app.add_option("--steps", options.attack_steps, "of the attack");
  app.add_option("--device", options.device, "auto, cpu or cuda");
  app.add_option("--threads", options.threads, "of the CPU");
  app.add_option("--repeat", repeat);
}

/// Parses the command line, does the work, and gives the exit code.
inline int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& work) {
  CLI11_PARSE(app, argc, argv);
  try {
    work();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}

/// The step that the scripts in bench/peers do, on the same weights, images and labels (inputs.py): PGD with running
/// statistics, one pass with batch statistics on the adversarial images, SGD (lr 0.01, momentum 0.9). Attack, programs
/// and optimizer are those of a training run; the images are drawn and not read.
class TrainingStep {
 public:
  explicit TrainingStep(const StepOptions& options)
      : options_(checked(options)),
        backend_(make_backend({.device = options.device, .threads = options.threads, .math = options.math})),
        model_(*backend_, networks().at(options.network)({.width = options.width}), Granularity::tensor),
        images_(*backend_, {.size = kSize, .channels = kChannels, .classes = kClasses, .class_names = {}},
                options_.micro_batch),
        frozen_(model_, options_.attack_batch, storage_from(options.attack_precision)),
        training_(model_, options_.micro_batch),
        attack_(attacks().at("pgd")({.eps = kEps, .alpha = kAlpha, .steps = options.attack_steps})),
        objective_(images_, frozen_, kClasses),
        optimizer_(optimizers().at("sgd")(*backend_, model_.parameters, {.momentum = 0.9, .weight_decay = 0})),
        active_(ActiveSet::all(model_.parameters.layers())),
        labels_(static_cast<std::size_t>(options.batch)),
        ids_(labels_.size()) {
    x_ = backend_->allocate_floats(options.batch * images_.layout.elements(), "images");
    loss_ = backend_->allocate_floats(options.batch, "losses");
    correct_ = backend_->allocate_floats(options.batch, "losses");
    statistics_ = backend_->allocate_floats(2 * model_.graph.statistics, "batch statistics");
    backend_->commit_workspace();
    model_.initialize(1);
    std::vector<float> nchw(static_cast<std::size_t>(options.batch * images_.layout.elements())), values(nchw.size());
    for (std::size_t i = 0; i < nchw.size(); ++i) nchw[i] = uniform(draw(i).v[0]);
    for_each_pixel([&](std::size_t i, std::size_t at) { values[at] = nchw[i]; });
    backend_->copy_to_device(x_, values.data(), values.size() * sizeof(float));
    for (std::size_t i = 0; i < labels_.size(); ++i) labels_[i] = static_cast<std::int32_t>(draw(i).v[1] % kClasses);
    std::iota(ids_.begin(), ids_.end(), 0);
  }

  /// One step. Milliseconds of its parts are left in the members below.
  void run() {
    attack_ms = train_ms = update_ms = 0;
    double begin = now_ms();
    const auto lap = [&](double& ms) {
      backend_->wait();
      const double now = now_ms();
      ms += now - begin;
      begin = now;
    };
    for (int first = 0; first < options_.batch; first += options_.micro_batch) {
      load(first);
      attack_->perturb(objective_);
      lap(attack_ms);
      training_.refresh();
      training_.forward(images_.x_adv);
      cross_entropy(*backend_, training_.logits(), images_.labels, images_.count, kClasses, loss_ + first,
                    correct_ + first, training_.dlogits(), 1.0F / static_cast<float>(options_.batch));
      add_statistics(first > 0);
      training_.backward(images_.x_adv, {.weights = &active_, .accumulate = first > 0});
      lap(train_ms);
    }
    optimizer_->step(active_, 0.01);
    update_running_statistics();
    lap(update_ms);
  }

  /// One iteration of the attack on the images that are loaded: gradient and update.
  void attack_iteration() {
    objective_.gradient_step(kAlpha, kEps);
    backend_->wait();
  }

  /// Throws unless the attack raises the loss and the step leaves finite numbers: no timing of wrong work.
  void check() {
    const double clean = loss(false), attacked = loss(true);
    run();
    const double trained = mean_loss();
    require(std::isfinite(clean) && std::isfinite(trained) && attacked > clean, ExitCode::numerical,
            "the training step is wrong: clean loss ", clean, ", attacked ", attacked, ", in training ", trained);
  }

  /// What the same network computes elsewhere, for a comparison: after three passes in training mode, so that running
  /// statistics matter, logits [batch, 10] and input gradient [batch, 3, 32, 32] of the sum of the losses at the clean
  /// images, and the mean loss before and after an attack that starts at them.
  struct Results {
    std::vector<float> logits, input_gradient;
    double clean_loss, attacked_loss;
  };
  [[nodiscard]] Results results() {
    require(options_.micro_batch == options_.batch, ExitCode::usage, "--check needs the whole batch at once");
    load(0);
    for (int pass = 0; pass < 3; ++pass) {
      training_.refresh();
      training_.forward(images_.clean);
      add_statistics(false);
      update_running_statistics();
    }
    Results results;
    const auto batch = static_cast<std::size_t>(options_.batch);
    results.logits.resize(batch * kClasses);
    frozen_.refresh();
    for (int first = 0; first < options_.batch; first += frozen_.n()) {
      frozen_.forward(images_.clean + first * images_.layout.elements());
      backend_->copy_to_host(results.logits.data() + first * kClasses, frozen_.logits(),
                             static_cast<std::size_t>(frozen_.n()) * kClasses * sizeof(float));
    }
    copy(images_.clean, images_.x_adv);
    objective_.gradient();
    std::vector<float> dx(static_cast<std::size_t>(options_.batch * images_.layout.elements()));
    backend_->wait();
    backend_->copy_to_host(dx.data(), images_.dx, dx.size() * sizeof(float));
    results.input_gradient.resize(dx.size());
    for_each_pixel(
        [&](std::size_t i, std::size_t at) { results.input_gradient[i] = dx[at] / frozen_.gradient_scale(); });
    results.clean_loss = loss(false);
    objective_.start = backend_->allocate_floats(options_.batch * images_.layout.elements(), "zeros");
    results.attacked_loss = loss(true);
    objective_.start = nullptr;
    return results;
  }

  /// What was measured, for a line of JSON.
  [[nodiscard]] nlohmann::ordered_json about() const {
    std::size_t bytes = 0;
    for (const Backend::Allocation& allocation : backend_->allocations()) bytes += allocation.bytes;
    const bool cpu = backend_->device().kind == DeviceKind::cpu;
    return {{"network", options_.network},
            {"width", options_.width},
            {"batch", options_.batch},
            {"micro_batch", options_.micro_batch},
            {"steps", options_.attack_steps},
            {"device", backend_->description()},
            {"math", cpu ? "f32" : options_.math},
            {"attack_precision", options_.attack_precision},
            {"threads", options_.threads},
            {"device_bytes", bytes},
            {"commit", DAT_GIT_SHA1}};
  }

  [[nodiscard]] const StepOptions& options() const { return options_; }
  [[nodiscard]] Backend& backend() { return *backend_; }
  [[nodiscard]] const Graph& graph() const { return model_.graph; }

  double attack_ms = 0, train_ms = 0, update_ms = 0;

 private:
  static constexpr int kSize = 32, kChannels = 3, kClasses = 10;
  static constexpr float kEps = 8.0F / 255, kAlpha = 2.0F / 255;

  [[nodiscard]] static StepOptions checked(StepOptions options) {
    const auto divide = [](int& part, const char* name, int whole, const char* of) {
      if (part == 0) part = whole;
      require(part > 0 && whole % part == 0, ExitCode::usage, name, " ", part, " does not divide ", of, " ", whole);
    };
    require(options.batch > 0, ExitCode::usage, "--batch must be at least 1");
    divide(options.micro_batch, "--micro-batch", options.batch, "--batch");
    divide(options.attack_batch, "--attack-batch", options.micro_batch, "the micro-batch of");
    return options;
  }

  [[nodiscard]] static Philox4 draw(std::size_t i) { return random_words(1, Purpose::synthetic_data, 0, i, 0); }

  /// f(place in NCHW, place in the backend's layout) for every pixel of the batch.
  template <class F>
  void for_each_pixel(const F& f) const {
    std::size_t i = 0;
    for (int n = 0; n < options_.batch; ++n)
      for (int c = 0; c < kChannels; ++c)
        for (int y = 0; y < kSize; ++y)
          for (int x = 0; x < kSize; ++x) f(i++, static_cast<std::size_t>(images_.layout.offset(n, c, y, x)));
  }

  void copy(const float* from, float* to) {
    each(backend_->device(), options_.micro_batch * images_.layout.elements(), kernels::Scale{from, to, 1.0F, false});
  }

  /// The micro-batch that begins at sample `first`.
  void load(int first) {
    const auto at = static_cast<std::size_t>(first), count = static_cast<std::size_t>(options_.micro_batch);
    copy(x_ + first * images_.layout.elements(), images_.clean);
    backend_->copy_to_device(images_.labels, labels_.data() + at, count * sizeof(std::int32_t));
    backend_->copy_to_device(images_.ids, ids_.data() + at, count * sizeof(std::int64_t));
    images_.count = options_.micro_batch;
    objective_.prepare(1, Purpose::attack_start, 0);
  }

  void add_statistics(bool accumulate) {
    const Graph& graph = model_.graph;
    const float share = static_cast<float>(options_.micro_batch) / static_cast<float>(options_.batch);
    for (std::size_t k = 0; k < graph.norms.size(); ++k) {
      const Norm& norm = graph.norms[k];
      each(backend_->device(), norm.channels,
           kernels::Scale{training_.batch_mean() + norm.begin, statistics_ + norm.begin, share, accumulate});
      each(backend_->device(), norm.channels,
           kernels::Scale{training_.batch_variance() + norm.begin, statistics_ + graph.statistics + norm.begin,
                          share * training_.unbiased_factor()[k], accumulate});
    }
  }

  void update_running_statistics() {
    const std::int64_t count = model_.graph.statistics;
    each(backend_->device(), count, kernels::RunningStatistic{statistics_, model_.running_mean, Model::kMomentum});
    each(backend_->device(), count,
         kernels::RunningStatistic{statistics_ + count, model_.running_variance, Model::kMomentum});
    ++model_.parameters.version;
  }

  /// Of the attack's network, over the batch: at the clean images, or after an attack.
  [[nodiscard]] double loss(bool attacked) {
    for (int first = 0; first < options_.batch; first += options_.micro_batch) {
      load(first);
      if (attacked) attack_->perturb(objective_);
      objective_.measure(attacked ? images_.x_adv : images_.clean, loss_ + first, correct_ + first);
    }
    return mean_loss();
  }

  [[nodiscard]] double mean_loss() {
    std::vector<float> losses(static_cast<std::size_t>(options_.batch));
    backend_->wait();
    backend_->copy_to_host(losses.data(), loss_, losses.size() * sizeof(float));
    return std::accumulate(losses.begin(), losses.end(), 0.0) / options_.batch;
  }

  StepOptions options_;
  std::unique_ptr<Backend> backend_;
  Model model_;
  Images images_;
  FrozenProgram frozen_;
  TrainingProgram training_;
  std::unique_ptr<Attack> attack_;
  FrozenObjective objective_;
  std::unique_ptr<Optimizer> optimizer_;
  ActiveSet active_;
  std::vector<std::int32_t> labels_;
  std::vector<std::int64_t> ids_;
  float *x_ = nullptr, *loss_ = nullptr, *correct_ = nullptr, *statistics_ = nullptr;
};

}  // namespace dat::bench
