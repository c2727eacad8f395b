#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "all.hpp"
#include "dat/attack.hpp"
#include "dat/error.hpp"
#include "dat/optimizer.hpp"
#include "dat/program.hpp"

namespace dat::bench {

[[nodiscard]] inline double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct StepOptions {
  std::string network = "resnet18";
  int width = 64, batch = 64, threads = 2;
  int attack_steps = 10;
  int attack_batch = 0;  ///< images per pass of the attack; 0: all of them
};

/// The step that bench/peers/torch_step.py does, on as many random images: PGD with running statistics, one pass with
/// batch statistics on the adversarial images, SGD (lr 0.01, momentum 0.9). Labels are drawn once.
class TrainingStep {
 public:
  explicit TrainingStep(const StepOptions& options)
      : options_(options),
        backend_(make_backend({.device = "cpu", .threads = options.threads})),
        model_(*backend_, networks().at(options.network)({.width = options.width}), Granularity::tensor),
        frozen_(model_, options.attack_batch > 0 ? options.attack_batch : options.batch),
        training_(model_, options.batch),
        attack_(attacks().at("pgd")({.steps = options.attack_steps})),
        optimizer_(optimizers().at("sgd")(*backend_, model_.parameters, {.momentum = 0.9, .weight_decay = 0})),
        active_(ActiveSet::all(model_.parameters.layers())),
        layout_(backend_->image_layout(3, 32, 32)) {
    require(options.batch % frozen_.n() == 0, ExitCode::usage, "--attack-batch must divide --batch");
    const std::int64_t elements = options.batch * layout_.elements();
    for (float** images : {&x_, &x_adv_, &eta_, &dx_}) *images = backend_->allocate_floats(elements, "images");
    loss_ = backend_->allocate_floats(options.batch, "loss");
    correct_ = backend_->allocate_floats(options.batch, "correct");
    labels_ = static_cast<std::int32_t*>(backend_->allocate(sizeof(std::int32_t) * options.batch, "labels"));
    ids_ = static_cast<std::int64_t*>(backend_->allocate(sizeof(std::int64_t) * options.batch, "sample ids"));
    backend_->commit_workspace();
    model_.initialize(1);
    std::vector<float> images(static_cast<std::size_t>(elements));
    for (std::size_t i = 0; i < images.size(); ++i) images[i] = uniform(draw(i).v[0]);
    std::vector<std::int32_t> labels(static_cast<std::size_t>(options.batch));
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(draw(i).v[1] % 10);
    std::vector<std::int64_t> ids(labels.size());
    std::iota(ids.begin(), ids.end(), 0);
    backend_->copy_to_device(x_, images.data(), images.size() * sizeof(float));
    backend_->copy_to_device(labels_, labels.data(), labels.size() * sizeof(std::int32_t));
    backend_->copy_to_device(ids_, ids.data(), ids.size() * sizeof(std::int64_t));
  }

  /// One step. Milliseconds of its parts are left in the members below.
  void run() {
    const double begin = now_ms();
    attack();
    backend_->wait();
    const double attacked = now_ms();
    training_.refresh();
    training_.forward(x_adv_);
    cross_entropy(training_, 0, options_.batch, 1.0F / static_cast<float>(options_.batch));
    training_.backward(x_adv_, {.weights = &active_});
    for (const Norm& norm : model_.graph.norms) {
      each(backend_->device(), norm.channels,
           kernels::RunningStatistic{training_.batch_mean() + norm.begin, model_.running_mean + norm.begin,
                                     Model::kMomentum});
      each(backend_->device(), norm.channels,
           kernels::RunningStatistic{training_.batch_variance() + norm.begin, model_.running_variance + norm.begin,
                                     Model::kMomentum});
    }
    backend_->wait();
    const double trained = now_ms();
    optimizer_->step(active_, 0.01);
    backend_->wait();
    const double updated = now_ms();
    attack_ms = attacked - begin;
    train_ms = trained - attacked;
    update_ms = updated - trained;
  }

  /// One gradient of the attack over the whole batch, at the clean images.
  void gradient() {
    frozen_.refresh();
    for (int first = 0; first < options_.batch; first += frozen_.n()) {
      frozen_.forward(x_ + first * layout_.elements());
      cross_entropy(frozen_, first, frozen_.n(), 1.0F);
      frozen_.backward(dx_ + first * layout_.elements());
    }
  }

  /// Throws unless the attack raises the loss and the step leaves finite numbers: no timing of wrong work.
  void check() {
    const double clean = frozen_loss(x_);
    attack();
    const double attacked = frozen_loss(x_adv_);
    run();
    const double trained = mean_loss();
    require(std::isfinite(clean) && std::isfinite(trained) && attacked > clean, ExitCode::numerical,
            "the training step is wrong: clean loss ", clean, ", attacked ", attacked, ", in training ", trained);
  }

  [[nodiscard]] const StepOptions& options() const { return options_; }
  [[nodiscard]] Backend& backend() { return *backend_; }
  [[nodiscard]] const Graph& graph() const { return model_.graph; }

  double attack_ms = 0, train_ms = 0, update_ms = 0;

 private:
  [[nodiscard]] static Philox4 draw(std::size_t i) { return random_words(1, Purpose::synthetic_data, 0, i, 0); }

  /// The attack's view of some of the images.
  class Part final : public Objective {
   public:
    Part(TrainingStep& step, int first) : step_(step), first_(first) {
      const std::int64_t offset = first * step.layout_.elements();
      device = step.backend_->device();
      layout = step.layout_;
      n = step.frozen_.n();
      clean = step.x_ + offset;
      x_adv = step.x_adv_ + offset;
      eta = step.eta_ + offset;
      dx = step.dx_ + offset;
      sample_ids = step.ids_ + first;
    }
    void gradient() override {
      step_.frozen_.forward(x_adv);
      step_.cross_entropy(step_.frozen_, first_, n, 1.0F);
      step_.frozen_.backward(const_cast<float*>(dx));
    }

   private:
    TrainingStep& step_;
    int first_;
  };

  void attack() {
    frozen_.refresh();
    for (int first = 0; first < options_.batch; first += frozen_.n()) {
      Part part(*this, first);
      attack_->perturb(part);
    }
  }

  template <class Program>
  void cross_entropy(Program& program, int first, int n, float gradient_scale) {
    each(backend_->device(), n,
         kernels::SoftmaxCrossEntropy{program.logits(), labels_ + first, loss_ + first, correct_ + first,
                                      program.dlogits(), model_.graph.nodes.back().c, gradient_scale});
  }

  [[nodiscard]] double frozen_loss(const float* images) {
    frozen_.refresh();
    for (int first = 0; first < options_.batch; first += frozen_.n()) {
      frozen_.forward(images + first * layout_.elements());
      cross_entropy(frozen_, first, frozen_.n(), 1.0F);
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
  FrozenProgram frozen_;
  TrainingProgram training_;
  std::unique_ptr<Attack> attack_;
  std::unique_ptr<Optimizer> optimizer_;
  ActiveSet active_;
  Layout layout_;
  float *x_ = nullptr, *x_adv_ = nullptr, *eta_ = nullptr, *dx_ = nullptr, *loss_ = nullptr, *correct_ = nullptr;
  std::int32_t* labels_ = nullptr;
  std::int64_t* ids_ = nullptr;
};

}  // namespace dat::bench
