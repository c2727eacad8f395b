#include "run/advice.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>

#include "dat/attack.hpp"
#include "dat/optimizer.hpp"
#include "dat/report.hpp"
#include "replica/cores.hpp"
#include "run/begin/folder.hpp"
#include "train/plan/parts.hpp"
#include "train/plan/replica_of.hpp"

namespace dat {

namespace {

[[nodiscard]] std::string number(double value) { return fmt::format("{:g}", value); }

/// Threads that somebody has asked for; none: nobody has.
[[nodiscard]] std::optional<int> threads_asked(const TrainOptions& options) {
  return options.threads != 0 ? options.threads : threads_of_openmp(std::getenv("OMP_NUM_THREADS"));
}

/// Adds advice about batches that are cut, in any part of the training.
void advise_batches(const TrainOptions& whole, const Plan& plan, std::vector<std::string>& all) {
  for (const int from : beginnings_of_parts(whole)) {
    const TrainOptions part = part_of(whole, from);
    const Plan own(part, plan.mix, plan.ranks);
    if (part.batch > own.batch)
      all.push_back("--batch " + std::to_string(part.batch) +
                    " is more than a rank's share of the training images: it is cut to " + std::to_string(own.batch) +
                    ", one step an epoch");
    if (part.total_batch > own.images_of_a_step())
      all.push_back("--total-batch " + std::to_string(part.total_batch) +
                    " is more than the training images: it is cut to " + std::to_string(own.images_of_a_step()) +
                    ", one step an epoch");
  }
}

}  // namespace

std::string source_of_fewer_threads(const TrainOptions& options, int cores) {
  if (threads_asked(options).value_or(cores) >= cores) return "";
  return options.threads != 0 ? " (--threads)" : " (OMP_NUM_THREADS)";
}

std::vector<std::string> advice(const TrainOptions& whole, const Plan& plan, int cores, std::int64_t epoch) {
  const TrainOptions options = part_of(whole, epoch);
  std::vector<std::string> all;
  const double epochs = plan.epochs_made();
  const std::optional<int> asked = threads_asked(options);
  if (asked > cores)
    all.push_back((options.threads != 0 ? "--threads " : "OMP_NUM_THREADS ") + std::to_string(*asked) +
                  " is more than this rank's share of the node's cores, " + std::to_string(cores) +
                  ": threads that wait for a core slow every step; " +
                  (options.threads != 0 ? "leave it at auto" : "give --threads, or leave it unset"));
  advise_batches(whole, plan, all);
  const auto never = [epochs](int from) { return from > 0 && from >= epochs; };
  if (const int last = options.train_size.parts().back().from; never(last))
    all.push_back("--train-size grows to the size of the images, in which the network is evaluated, from epoch " +
                  std::to_string(last) + " on, and the run has " + number(epochs) + " epochs; take earlier ones");
  for (const ByEpoch<int>* changing : {&whole.batch, &whole.total_batch})
    if (const int last = changing->parts().back().from; never(last))
      all.push_back("the batch changes in epoch " + std::to_string(last) + ", and the run has " + number(epochs) +
                    " epochs; take an earlier one");
  if (const int last = options.epochs_of_change().back(); never(last))
    all.push_back("the attack changes from epoch " + std::to_string(last) + " on, and the run has " + number(epochs) +
                  " epochs: evaluations attack as it never trained; " +
                  "take earlier epochs in --attack, --attack-steps, --eps or --alpha");
  if (options.average != "none" && never(options.average_from()))
    all.push_back("--average begins when " + std::to_string(options.average_from()) +
                  " epochs are done, and the run has " + number(epochs) +
                  ": there is nothing to average; take an earlier one, or leave --average off");
  if (options.freezes() && options.initialize.empty() && !resumes_elsewhere(options))
    all.push_back(
        "--freeze leaves random weights as they are, and their batch norms without statistics; give trained ones, "
        "--initialize RUN");
  if (never(options.freeze.parts().back().from))
    all.push_back("--freeze ends with epoch " + std::to_string(options.freeze.parts().back().from) +
                  ", and the run has " + number(epochs) + ": leave the end off, which needs less memory");
  if (options.epochs == 0)
    all.push_back("--epochs 0 leaves the warm-up alone, of " + number(options.warmup_epochs) +
                  (options.warmup_epochs == 1 ? " epoch" : " epochs") +
                  ", in which the learning rate rises: the training after it is missing");
  // Rates of the published trainings are a tenth of these and less; LARS' own rates are divided by its coefficient.
  if (const double most = options.optimizer == "sgd" ? 5 : options.optimizer == "lars_sgd" ? 100 : 1; options.lr > most)
    all.push_back("--lr " + number(options.lr) + " is far above the rates of " + options.optimizer +
                  ", which are below " + number(most) + ": the weights are likely to fly apart; is " +
                  number(options.lr / 100) + " meant?");
  if (options.beta2 < options.beta1)
    all.push_back("beta2 = " + number(options.beta2) +
                  " of --optimizer lamb is below beta1 = " + number(options.beta1) +
                  ": the second moment forgets faster than the first, which is divided by its root; exchange them");
  // Momentum aside, a step moves a layer by this part of its norm at most.
  const bool layerwise = optimizers().reads(options.optimizer, "optimizer:trust");
  if (const double part = options.lr * options.trust_coefficient; layerwise && part < 1e-4)
    all.push_back("--lr " + number(options.lr) + " times the trust coefficient " + number(options.trust_coefficient) +
                  " is " + number(part) + ", and " + options.optimizer +
                  " moves a layer by no more than this part of its norm in a " + "step: raise --lr");
  if (const std::string why = precision_without_effect(options); !why.empty()) all.push_back(why);
  if (options.alpha == 0 || !attacks().reads(options.attack, "alpha")) return all;
  const int steps = attacks().reads(options.attack, "attack-steps") ? options.attack_steps.last() : 1;
  const BallNorm norm = norm_from(options.norm);
  const std::string alpha = "--alpha " + radius_text(options.alpha, norm),
                    eps = "--eps " + radius_text(options.eps, norm);
  // The slack is for the rounding of the product. A warm start goes on from where the epoch before has ended.
  if (options.alpha > 2 * options.eps * (1 + 1e-9))
    all.push_back(alpha + " is more than the whole width of the ball, twice " + eps +
                  ": every step of the training's attack " +
                  (norm == BallNorm::linf ? "ends in a corner" : "leaves it") + "; take a smaller one");
  else if (options.warm_start == 0 && steps * options.alpha < options.eps * (1 - 1e-9))
    all.push_back("the training's attack moves by " + std::to_string(steps) + " * " + alpha.substr(8) + " = " +
                  radius_text(steps * options.alpha, norm) + " at most, less than " + eps +
                  ": the network trains against a weak attack; raise --alpha or --attack-steps");
  return all;
}

}  // namespace dat
