// What of a network that has been trained before is trained on: of the help's group Network.

#include "dat/dataset.hpp"
#include "dat/selector.hpp"
#include "options/ranges.hpp"
#include "options/train/groups.hpp"

namespace dat {

void add_fine_tuning(TrainTable& table) {
  using O = TrainOptions;
  table
      .add("--new-head", &O::new_head,
           "classes of a last layer that begins anew, whatever the file of --initialize has: those of the data",
           {.low = 2, .high = kMostClasses, .automatic = 0, .word = "none"})
      .works_with("initialize", {}, "--new-head replaces the last layer of a file; add --initialize PATH");
  table.add("--freeze", &O::freeze,
            "leave a stage, block or module, and all before it, as it is, batch norms with their running statistics; "
            "all-but-head: train the last layer alone",
            {.label = "NAME|all-but-head"});
  table
      .add("--freeze-epochs", &O::freeze_epochs,
           "epochs, warm-up included, after which everything is trained; 0: --freeze counts in all", kCount)
      .works_with("freeze", {}, "--freeze-epochs says how long --freeze counts; add that")
      .counts_with("selector", selectors(),
                   "--freeze-epochs works with --selector all, not with {selector}, which cannot learn of layers that "
                   "come later; leave one of them off");
  table.add("--head-lr", &O::head_lr, "learning rate of the last layer; auto: --lr", kAutoRadius);
  table.not_together({"freeze"}, {"mask", {"per_worker"}},
                     "--freeze does not work with --mask per_worker, where layers are those of a rank; leave one of "
                     "them off");
}

}  // namespace dat
