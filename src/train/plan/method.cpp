#include "train/plan/method.hpp"

#include <algorithm>
#include <numeric>

#include "train/plan/goal.hpp"
#include "train/plan/splits.hpp"

namespace dat {

std::unique_ptr<Attack> attack_of(const TrainOptions& options, int classes) {
  return attacks().at(options.attack)({.norm = norm_from(options.norm),
                                       .eps = options.eps,
                                       .alpha = options.alpha,
                                       .start_radius = options.start_radius,
                                       .start_in_box = options.start_box == "on",
                                       .project = options.project == "on",
                                       .steps = options.attack_steps - (options.attack_reuse ? 1 : 0),
                                       .stop = options.attack_stop,
                                       .classes = classes,
                                       .best_loss = true});
}

namespace {

[[nodiscard]] EvaluationOptions evaluation_of(const TrainOptions& options, int classes) {
  return {.attacks = options.eval,
          .norm = norm_from(options.eval_norm == "auto" ? options.norm : options.eval_norm),
          .eps = options.eval_eps > 0 ? options.eval_eps : options.eps,
          .alpha = options.eval_alpha,
          .steps = options.eval_attack_steps,
          .restarts = options.eval_restarts,
          .classes = classes};
}

/// Gradients of the attack that run in training mode.
[[nodiscard]] int passes_in_training_mode(const TrainOptions& options, const Attack& attack, const Loss& loss) {
  const bool batch_statistics =
      options.attack_bn == "train" || (options.attack_bn == "auto" && prefers_batch_statistics(attack, loss));
  return batch_statistics ? attack.gradients_of_run() : 0;
}

}  // namespace

Method::Method(const TrainOptions& options, const Dataset& images)
    : attack(attack_of(options, images.info().classes)),
      unlabelled(unlabelled_images(images) > 0),
      loss(losses().at(options.loss)({.lambda = options.lambda,
                                      .beta = options.beta,
                                      .smoothing = options.label_smoothing,
                                      .unlabelled = unlabelled,
                                      .detach = options.detach_reference})),
      evaluation(evaluation_of(options, images.info().classes)),
      goal(goal_of(options, *loss, *attack)),
      attack_passes(passes_in_training_mode(options, *attack, *loss)) {}

std::vector<int> Method::entering_statistics() const {
  std::vector<int> of_loss = loss->entering();
  if (of_loss.empty()) {
    of_loss.resize(loss->passes().size());
    std::iota(of_loss.begin(), of_loss.end(), 0);
  }
  std::vector<int> all(static_cast<std::size_t>(attack_passes));
  std::iota(all.begin(), all.end(), 0);
  // The pass where the attack began, which the attack in training mode has made already, enters once.
  const std::vector<Loss::Images> images = loss->passes();
  for (const int pass : of_loss)
    if (attack_passes == 0 || images[static_cast<std::size_t>(pass)] != Loss::Images::start)
      all.push_back(attack_passes + pass);
  return all;
}

int Method::scratch_images() const { return std::max(attack->scratch_images(), evaluation.scratch_images()); }

}  // namespace dat
