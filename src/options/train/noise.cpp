#include "dat/loss.hpp"
#include "options/ranges.hpp"
#include "options/train/groups.hpp"

namespace dat {

namespace {

void refuse_other_balls(const TrainOptions& o) {
  for (const auto& part : o.attack.parts()) {
    const Setting* const norm = setting_of(attacks().settings(part.value), "norm");
    require(norm == nullptr || o.norm == norm->value, ExitCode::usage, "--attack ", part.value,
            " steps in the L2 ball, and --norm is ", o.norm, "; add --norm l2 and a radius, such as --eps 0.5");
  }
}

}  // namespace

void add_noise(TrainTable& table) {
  using O = TrainOptions;
  table
      .add("--noise", &O::noise,
           "standard deviation of the Gaussian noise on attacked images, under which the network is trained, attacked "
           "and evaluated (randomized smoothing); 0: none",
           kCount)
      .cites("Cohen, Rosenfeld, Kolter, \"Certified Adversarial Robustness via Randomized Smoothing\", ICML 2019");
  table
      .add("--noise-samples", &O::noise_samples,
           "copies of each image, with noise of their own, in one pass; attacks see the mean of their predictions",
           {.low = 1, .high = 4096})
      .works_with("noise", {});
  table.not_with("noise",
                 {{{"warm-start"}, "--warm-start: the perturbation of an epoch belongs to the noise of that epoch"},
                  {{"attack-stop"}, "--attack-stop: an image is not fooled by one of its copies"},
                  {{"attack-bn", {"train"}}, "--attack-bn train: the smoothed network is attacked as it will be used"},
                  {{"stale-attack"}, "--stale-attack: attack and update share the noise of a step"},
                  {{"staleness"}, "--staleness: attack and update share the noise of a step"},
                  {{"generators"}, "--generators: attack and update share the noise of a step"}});
  const std::vector<std::string> others = losses().others("noise");
  table.not_together({"noise"}, {"loss", others},
                     "--noise does not go with --loss " + listing(others) + ", which compare images one by one; take " +
                         alternatives(losses().readers("noise")) + "; leave one of them off");
  table.rule(refuse_other_balls);
}

}  // namespace dat
