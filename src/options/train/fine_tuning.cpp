// Training of a part of a network that has been trained before: of the help's group Network.

#include "dat/dataset.hpp"
#include "dat/selector.hpp"
#include "options/ranges.hpp"
#include "options/train/groups.hpp"

namespace dat {

namespace {

void refuse_other_ends(const TrainOptions& o) {
  const auto& parts = o.freeze.parts();
  require(parts.size() == 1 || (parts.size() == 2 && o.freezes() && o.freeze == "none"), ExitCode::usage,
          "--freeze may end, and nothing else, as in layer3,none@5");
  require(parts.size() == 1 || selectors().reads(o.selector, "freeze-by-epoch"), ExitCode::usage,
          "--freeze that ends works with --selector ", alternatives(selectors().readers("freeze-by-epoch")),
          ", not with ", o.selector, ", which cannot learn of layers that come later; leave one of them off");
}

}  // namespace

void add_fine_tuning(TrainTable& table) {
  using O = TrainOptions;
  table
      .add("--new-head", &O::new_head,
           "classes of a last layer that begins anew, whatever the file of --initialize has: those of the data",
           {.low = 2, .high = kMostClasses, .automatic = 0, .word = "none"})
      .works_with("initialize", {}, "--new-head replaces the last layer of a file; add --initialize PATH");
  table.add(
      "--freeze", &O::freeze,
      "leave a stage, block or module, and all before it, as it is, batch norms with their running statistics; "
      "all-but-head: train the last layer alone; layer3,none@5: until epoch 5, counted from 0, the warm-up included",
      {.label = "NAME|all-but-head|NAME,none@EPOCH"});
  table.rule(refuse_other_ends);
  table.add("--head-lr", &O::head_lr, "learning rate of the last layer; auto: --lr", kAutoRadius);
  table.not_together(
      {"freeze"}, {"mask", {"per_worker"}},
      "--freeze does not work with --mask per_worker, where layers are those of a rank; leave one of them off");
}

}  // namespace dat
