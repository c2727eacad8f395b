#include "dat/sampler.hpp"
#include "options/machine.hpp"
#include "options/ranges.hpp"
#include "options/train/groups.hpp"

namespace dat {

void add_data(TrainTable& table) {
  using O = TrainOptions;
  table.group("Data");
  table
      .add("--data", &O::data, "files made by 'dat_hpc data', together one pool; none: a built-in synthetic set",
           kPaths)
      .may_change();
  table.add("--mix", &O::mix,
            "batches from one pool; or this share of each from the first file, the rest from the others, and an epoch "
            "is one pass over the first",
            {.label = "pool|balanced:SHARE"});
  table.add("--limit-train", &O::limit_train, "train on the first N images (balanced: of the first file) only; 0: all",
            kCount);
  table.add("--limit-test", &O::limit_test, "evaluate on the first N images only; 0: all", kCount).may_change();
  table.add("--holdout", &O::holdout,
            "training images, drawn at random, that are not trained on; ckpt/best.h5 is best on them", kCount);
  add_reading(table, "one, with a GPU as many as --threads");
  table.add("--train-size", &O::train_size,
            "height = width of training images, e.g. 24,32@6: crops of 24 x 24 pixels up to epoch 6, counted from 0, "
            "the warm-up included, then of 32 x 32; auto: the images'",
            {.label = "SIZE,SIZE@EPOCH,...", .low = 8, .high = 4096, .automatic = 0});
  const Choice windows{"augment", {"resized"}};
  table.not_together({"warm-start"}, windows,
                     "--warm-start keeps perturbations of pixels, and the windows of --augment resized have others "
                     "each time; leave one of them off");
  table.not_together({"resident", {"on"}}, windows,
                     "DAT_RESIDENT=on keeps images as they are evaluated, and --augment resized makes others of what "
                     "is stored; leave one of them off");
  table.not_with("train-size", {{{"stale-attack"}, "--stale-attack, which attacks images of the step to come"}});
}

void settle_data(TrainOptions& o) {
  const double share = read_mix(o.mix);
  if (share >= 1) return;
  require(o.data.size() >= 2, ExitCode::usage, "--mix ", o.mix,
          " needs --data with the labelled file and at least one more");
  require(o.micro_batch != 0 || (!o.batch.changes() && !o.total_batch.changes()), ExitCode::usage, "--mix ", o.mix,
          " and a batch that changes by epoch leave open how large a micro-batch is, which holds the share; add "
          "--micro-batch N");
  // A part of --total-batch is judged when the number of ranks is known, and the sets when they are open.
  if (o.micro_batch != 0) (void)Mix(o.micro_batch, o.micro_batch, share, o.micro_batch);
}

}  // namespace dat
