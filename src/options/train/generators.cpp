#include "options/ranges.hpp"
#include "options/train/groups.hpp"

namespace dat {

void add_generators(TrainTable& table) {
  using O = TrainOptions;
  table.group("Generators");
  table
      .add("--generators", &O::generators,
           "the last N ranks do not train: they attack the images that the others train on; --staleness hides them; "
           "auto: as many as a forecast says, which may be none",
           {.low = 0, .automatic = -1})
      .may_change();
  table
      .add("--generator-weights", &O::generator_weights,
           "how weights go to generators; bf16: half the bytes, rounded, so not with --deterministic",
           one_of({"f32", "bf16"}))
      .works_with("generators", {})
      .falls_back()
      .may_change();
  table.not_together({"generator-weights", {"bf16"}}, {"deterministic"},
                     "--generator-weights bf16 rounds what attacks run on, and --deterministic promises the bits of "
                     "one rank; leave one of them off");
  table
      .add("--calibration", &O::calibration,
           "calibration.json that forecast has left in its --out: what a step takes is foretold, and --generators auto "
           "chosen",
           kPath)
      .may_change();
  table.rule([](const O& o) {
    require(o.generators >= 0 || !o.calibration.empty(), ExitCode::usage,
            "--generators auto is forecast from --calibration FILE; 'mpirun ... dat_hpc forecast --out DIR' on the "
            "same nodes leaves it as DIR/calibration.json");
  });
  table.not_with(
      "generators",
      {{{"attack", {"none"}}, "--attack none: they would have nothing to do"},
       {{"attack-bn", {"train"}}, "--attack-bn train: an attack's passes would enter statistics of other ranks"},
       {{"bn-statistics", {"local"}}, "--bn-statistics local: they have the statistics of one trainer"},
       {{"warm-start"}, "--warm-start: perturbations are kept by the ranks that train"},
       {{"stale-attack"}, "--stale-attack, which --staleness does for them"},
       {{"attackers"}, "--attackers, which are ranks that train"},
       {{"byzantine"}, "--byzantine, by which ranks that train leave"}});
}

}  // namespace dat
