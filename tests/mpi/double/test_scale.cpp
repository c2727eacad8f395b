// The loss scale of a training in f16 on several ranks, of which one overflows.

#include "catch.hpp"
#include "small_run.hpp"
#include "train/trainer.hpp"
#include "world.hpp"

using namespace dat;
using namespace dat::test;

// CHECK only: a rank that leaves a test early would leave the others waiting.

TEST_CASE("A rank's overflow skips the step on all ranks, which halve one scale and resume in the same bits",
          "[scale]") {
  TrainOptions options = small_run_in_f16();
  options.limit_train = 64;
  options.epochs = 4;
  const auto made = [&] { return std::make_unique<Trainer>(world(), options); };
  const auto on_all = [](bool mine) {
    std::int64_t count = mine ? 1 : 0;
    world().sum(&count, 1);
    return count == world().size();
  };
  const std::unique_ptr<Trainer> straight = made(), resumed = made();
  straight->start();
  const std::string before = straight->weights_hash();
  const bool guilty = world().rank() == world().size() - 1;
  if (guilty) straight->replica().set_gradient_scale(0x1p100F);
  (void)straight->step(false);
  const std::string rank = std::to_string(world().size() - 1);
  CHECK(on_all(straight->skipped() == "in step 1 (epoch 1) an attacked image is not finite (rank " + rank + ")"));
  CHECK(on_all(straight->overflowed_to() == 512));
  CHECK(on_all(straight->weights_hash() == before));
  const Checkpoint state = straight->capture();
  if (world().root()) {
    CHECK(state.doubles.at("loss_scale") == std::vector<double>{512, 0});
    resumed->restore(state);
  }
  resumed->share_state();
  CHECK(on_all(resumed->capture().doubles.at("loss_scale") == std::vector<double>{512, 0}));
  resumed->start();
  for (Trainer* const one : {straight.get(), resumed.get()})
    for (int k = 0; k < 2; ++k) (void)one->step(false);
  CHECK(on_all(straight->skipped().empty() && straight->weights_hash() != before));
  CHECK(on_all(straight->weights_hash() == resumed->weights_hash()));
}
