#include "train/plan/step_method.hpp"

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
                                       .steps = options.attack_steps,
                                       .stop = options.attack_stop,
                                       .classes = classes,
                                       .best_loss = true});
}

std::unique_ptr<Loss> loss_of(const TrainOptions& options, bool unlabelled) {
  return losses().at(options.loss)({.lambda = options.lambda,
                                    .beta = options.beta,
                                    .smoothing = options.label_smoothing,
                                    .unlabelled = unlabelled,
                                    .detach = options.detach_reference});
}

namespace {

[[nodiscard]] EvaluationOptions evaluation_of(const TrainOptions& options, int classes) {
  return {.attacks = options.eval,
          .norm = norm_from(options.norm),
          .eps = options.eval_eps > 0 ? options.eval_eps : options.eps.last(),
          .alpha = options.eval_alpha,
          .classes = classes};
}

}  // namespace

StepMethod::StepMethod(const TrainOptions& options, const Dataset& images)
    : unlabelled(unlabelled_images(images) != 0),
      loss(loss_of(options, unlabelled)),
      evaluation(evaluation_of(options, images.info().classes)),
      attack_passes{} {
  for (const int epoch : options.epochs_of_change()) {
    TrainOptions now = options;
    static_cast<AttackSettings&>(now) = options.in_epoch(epoch);
    // In the ball of radius zero an attack is none; where its passes enter batch statistics they are made, in that
    // ball.
    if (now.eps == 0 && now.attack_bn != "train") now.attack = "none";
    if (now.eps == 0) now.project = "on";
    EpochAttack& one = attacks.add();
    one.from = epoch;
    one.attack = dat::attack_of(now, images.info().classes);
    one.goal = goal_of(now, *loss);
    one.eps = now.attack != "none" ? now.eps.last() : 0;
    const bool batch_statistics =
        now.attack_bn == "train" || (now.attack_bn == "auto" && prefers_batch_statistics(*one.attack, *loss));
    const int passes = batch_statistics ? one.attack->gradients_of_run() : 0;
    require(epoch == 0 || passes == attack_passes, ExitCode::usage, "from epoch ", epoch, " on the attack has ", passes,
            " passes with batch statistics, and ", attack_passes,
            " before: as many enter the running statistics in all epochs; take as many --attack-steps in all, or "
            "--attack-bn eval");
    attack_passes = passes;
  }
}

std::vector<int> StepMethod::entering_statistics() const {
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

}  // namespace dat
