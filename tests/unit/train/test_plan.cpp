#include "catch.hpp"
#include "datasets.hpp"
#include "train/plan/goal.hpp"
#include "train/plan/parts.hpp"
#include "train/plan/plan.hpp"
#include "train/planned.hpp"

using namespace dat;

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TrainOptions plain() {
  TrainOptions options;
  options.warmup_epochs = 5;
  options.batch = options.micro_batch = 8;
  return options;
}

std::string refusal_of(const TrainOptions& options, int ranks) {
  return message_of([&] { (void)Plan(options, 24, ranks); });
}

}  // namespace

TEST_CASE("Epochs and steps are counted in 64 bits", "[plan]") {
  TrainOptions options = plain();
  options.epochs = 2147483647;
  const Plan plan(options, 24, 1);
  CHECK((plan.steps_per_epoch == 3 && plan.epochs == 2147483652 && plan.steps == 6442450956));
  CHECK((plan.epoch_of(plan.steps - 1) == 2147483651 && !plan.frozen_in(0)));
  CHECK(plan.text() == "6442450956 steps, 2147483652 epochs of 3 steps (5 warm-up)");
  options.max_steps = 3;
  CHECK(Plan(options, 24, 1).steps == 3);
  options.max_steps = kMost;
  CHECK(Plan(options, 24, 1).steps == 6442450956);
  options.epochs = 4294967296;
  CHECK(Plan(options, 24, 1).epochs == 4294967301);
  // More steps than can be counted: 10^12 epochs of 10^8 steps.
  options.epochs = kMostEpochs;
  options.batch = options.micro_batch = 1;
  for (const double epochs : {static_cast<double>(kMostEpochs), 0.0}) {  // all the others are the warm-up's
    options.epochs = epochs;
    options.warmup_epochs = kMostEpochs + 5 - epochs;
    CHECK(contains(error_of([&] { (void)Plan(options, std::int64_t{100'000'000}, 1); }),
                   "1000000000005 epochs of 100000000 steps are more steps than can be counted"));
  }
}

TEST_CASE("A mixture in words: images of a batch from either set", "[plan]") {
  // Groups of 3 labelled images and an extra one: 20 of them, or 10 on each rank.
  const auto text = [](const Mix& images, int ranks) { return Plan(plain(), images, ranks).mix_text(); };
  CHECK(text(Mix(60, 40, 0.75, 8), 1) ==
        "6 of 8 images from the 60 labelled ones, the others from 40 extra ones, 20 in an epoch: once in 2 epochs");
  CHECK(text(Mix(60, 39, 0.75, 8), 2).ends_with(", the others from 39 extra ones, 20 in an epoch"));
  CHECK(text(24, 1).empty());
  TrainOptions ordered = plain();  // all of the epoch is dealt to the ranks
  ordered.deterministic = true;
  CHECK(Plan(ordered, Mix(60, 40, 0.75, 8), 2).mix_text() == text(Mix(60, 40, 0.75, 8), 1));
  // A step has an image twice where it has more of a set than there are.
  const auto repeats = [](const Mix& images, int ranks) { return Plan(plain(), images, ranks).repeats_images(); };
  CHECK(!repeats(24, 3));
  CHECK(repeats(23, 3));
  CHECK(!repeats(Mix(6, 2, 0.75, 8), 1));
  CHECK(repeats(Mix(5, 2, 0.75, 8), 1));
  CHECK(repeats(Mix(6, 1, 0.75, 8), 1));
}

TEST_CASE("The last step of an epoch has what is left; draws and the warm-up are counted in steps", "[plan]") {
  TrainOptions options = plain();
  options.warmup_epochs = 0.3;
  options.epochs = 4;
  options.max_steps = 9;
  for (const auto& [resample, steps] : {std::pair("step", 1), std::pair("epoch", 6), std::pair("7", 7)}) {
    options.resample = resample;
    CHECK(Plan(options, 44, 1).draw_period == steps);
  }
  const Plan plan(options, 44, 1);
  CHECK((plan.steps_per_epoch == 6 && plan.epochs_made() == 1.5 && plan.warmup_steps == 2));
  for (const int step : {0, 4, 5, 6, 11}) CHECK(plan.micro_batch_in(step) == (step % 6 == 5 ? 4 : 8));
  // Five micro-batches of two images, dealt to two ranks; the last ones of an image each.
  options.deterministic = true;
  options.batch = 0;
  options.total_batch = 10;
  options.micro_batch = 2;
  const Plan dealt(options, 23, 2);
  CHECK((dealt.micro_batches == 5 && dealt.micro_batch == 2 && dealt.last_micro_batch == 1));
  CHECK((dealt.batch == 6 && dealt.steps_per_epoch == 3 && dealt.images_of_a_step() == 10));
  CHECK((dealt.micro_batches_of(0) == 2 && dealt.micro_batches_of(1) == 3 && dealt.micro_batches_of(1, 3) == 2));
}

TEST_CASE("Epochs of DAT's warm-up share a shuffle, those of a schedule that rises by itself do not", "[plan]") {
  TrainOptions options = plain();
  for (const auto& [schedule, shared] : {std::pair("step", 5), std::pair("cyclic", 0), std::pair("one_cycle", 0)}) {
    options.schedule = schedule;
    CHECK(loader_options(options, Plan(options, 24, 1)).warmup_epochs == shared);
  }
}

TEST_CASE("One process plans as one of several ranks would: with the images of all where their sums have an order",
          "[plan]") {
  struct Row {
    bool ordered;
    int batch, total, micro, of_one, total_of_one, micro_of_one;
  };
  for (const Row& row : {Row{true, 8, 0, 0, 0, 24, 8}, Row{true, 8, 0, 4, 0, 24, 4}, Row{true, 0, 24, 4, 0, 24, 4},
                         Row{false, 0, 24, 0, 8, 0, 8}, Row{false, 0, 24, 4, 8, 0, 4}, Row{false, 8, 0, 0, 8, 0, 0}}) {
    INFO(row.ordered << ", " << row.batch << ", " << row.total << ", " << row.micro);
    TrainOptions options = plain();
    options.deterministic = row.ordered;
    options.faults = 1;
    options.batch = row.batch;
    options.total_batch = row.total;
    options.micro_batch = row.micro;
    const TrainOptions one = as_one(options, 3);
    CHECK((one.batch == row.of_one && one.total_batch == row.total_of_one && one.micro_batch == row.micro_of_one));
    CHECK(one.faults == TrainOptions{}.faults);
  }
}

TEST_CASE("A plan says how a rank computes, and what it keeps of its perturbations", "[plan]") {
  TrainOptions options = plain();
  options.precision = "bf16";
  CHECK(precision_text(options) == "activations of training passes in bf16");
  options.precision = "f16";
  CHECK(precision_text(options) ==
        "activations of training passes in f16; gradients times a loss scale, 1024 at first, 65536 at most");
  const test::Given images(5);  // of 192 bytes, of which a rank has three at most
  CHECK(warm_start_bytes(options, Plan(options, 5, 2), images) == 0);
  options.warm_start = 1;
  CHECK(warm_start_bytes(options, Plan(options, 5, 2), images) == 3 * 192);
}

TEST_CASE("Places in epochs of other lengths do not overflow", "[plan]") {
  CHECK(at_same_place(7, 3, 6) == 14);
  CHECK(at_same_place(8, 3, 2) == 5);  // 2 epochs and 2/3 of 2 steps, rounded down
  CHECK(at_same_place(kMost, 1, 1) == kMost);
  CHECK(at_same_place(kMost - 1, 1, 3) == kMost);
}

TEST_CASE("Passes are alike where all layers take part in each, and no sum is under way beside them", "[plan]") {
  TrainOptions options;
  for (const std::string& selector : selectors().names())
    for (const bool overlap : {false, true}) {
      options.selector = selector;
      options.overlap = overlap;
      CHECK(passes_are_alike(options) == (selector == "all" && !overlap));
    }
}

TEST_CASE("A batch of all ranks is shared out evenly, or refused with the next ones that can be", "[plan]") {
  TrainOptions options = plain();
  options.batch = options.micro_batch = 0;
  options.total_batch = 12;
  const Plan plan(options, 24, 3);
  CHECK((plan.batch == 4 && plan.micro_batch == 4 && plan.total_batch == 12 && plan.steps_per_epoch == 2));
  options.micro_batch = 2;
  CHECK(Plan(options, 24, 3).micro_batches == 2);
  CHECK(contains(refusal_of(options, 5), "--total-batch 12 is no multiple of 5 ranks"));
  CHECK(contains(refusal_of(options, 5),
                 "; start 3 or 6 that train, or choose 10 or 20, or add --deterministic and --micro-batch N"));
  CHECK(contains(refusal_of(options, 4), "is 3 images for each of 4 ranks, which is no multiple of --micro-batch 2"));
  options.total_batch = 2;
  options.micro_batch = 0;
  CHECK(refusal_of(options, 3).ends_with("; start 2 that train, or choose 3"));
  options.total_batch = 128;
  CHECK(contains(refusal_of(options, 24), "; start 16 or 32 that train, or choose 120 or 144, or add --deterministic"));
  options.deterministic = true;  // a recipe's batch, of which nobody has said more
  options.micro_batch = options.total_batch = 12;
  CHECK(
      refusal_of(options, 5) ==
      "--deterministic deals a step's 12 images to 5 ranks in whole micro-batches, and --micro-batch 12 (all of them) "
      "makes 1; start no more than 1 that train, or choose --micro-batch 2");
  options.micro_batch = options.total_batch = 10;
  CHECK(refusal_of(options, 3).ends_with(" makes 1; start no more than 1 that train, or choose --micro-batch 2"));
  options.total_batch = 12;
  options.micro_batch = 2;
  CHECK(Plan(options, 24, 5).micro_batches == 6);
  CHECK(refusal_of(options, 13).ends_with("--micro-batch 2 makes 6; start no more than 6 that train"));
  options = plain();
  options.batch = options.micro_batch = 2147483647;  // cut to what there is
  const Plan cut(options, 24, 2);
  CHECK((cut.total_batch == 4294967294 && cut.batch == 12 && cut.images_of_a_step() == 24));
  options.deterministic = true;
  CHECK(contains(refusal_of(options, 2), "2 ranks of --batch 2147483647 are 4294967294 images a step"));
}

TEST_CASE("A training whose batch changes by epoch has parts, each planned by itself", "[plan]") {
  TrainOptions options = plain();
  options.warmup_epochs = 1;
  options.epochs = 9;
  options.micro_batch = options.attack_batch = 0;
  options.batch = ByEpoch<int>({{0, 8, 0, 8}, {4, 6, 4, 6}, {7, 3, 7, 3}, {10, 2, 10, 2}});
  options.train_size = ByEpoch<int>({{0, 12, 0, 12}, {5, 16, 5, 16}, {7, 0, 7, 0}});
  CHECK(beginnings_of_parts(options) == std::vector{0, 4, 7});  // what begins with the end never does
  CHECK((part_at(options, 3) == 0 && part_at(options, 4) == 1 && part_at(options, 99) == 2));
  const TrainOptions middle = part_of(options, 5);
  CHECK((middle.batch == 6 && !middle.batch.changes() && middle.micro_batch == 6 && middle.attack_batch == 6));
  CHECK((middle.part_begin == 4 && middle.part_end == 7));
  CHECK(sizes_in_part(part_of(options, 0)) == std::vector{12});
  CHECK(sizes_in_part(middle) == std::vector{12, 16});
  CHECK(sizes_in_part(part_of(options, 8)) == std::vector{0});
  CHECK(epoch_of_largest_part(options) == 7);  // whose images may have any size
  options.size = 16;
  CHECK(epoch_of_largest_part(options) == 4);
  options.average = "ema";
  options.average_bn = "rebuild";  // on whole images
  CHECK(epoch_of_largest_part(options) == 0);
  options.average = "none";
  CHECK(epoch_of_largest_part(options) == 4);
  // 24 images on two ranks: 2, 2 and 4 steps an epoch.
  CHECK(steps_of_parts(options, 24, 2) == 4 * 2 + 3 * 2 + 3 * 4);
  options.max_steps = 10;  // in the second part
  CHECK(steps_of_parts(options, 24, 2) == 10);
  options.max_steps = 0;
  CHECK(
      text_of_parts(options, 24, 2) ==
      "26 steps, 10 epochs (1 warm-up): 2 of 16 images, from epoch 4 on 2 of 12 images, from epoch 7 on 4 of 6 images "
      "an epoch");
  TrainOptions at_once = options;
  at_once.warmup_epochs = 0;
  CHECK(text_of_parts(at_once, 24, 2).starts_with("22 steps, 9 epochs: 2 of 16 images, from "));
  TrainOptions resolved = part_of(options, 5);
  put_back_parts(resolved, options, 2);
  CHECK(resolved == options);
  options.deterministic = true;
  options.micro_batch = options.attack_batch = 1;
  resolved = part_of(options, 5);
  put_back_parts(resolved, options, 2);
  CHECK((resolved.batch == 0 && resolved.total_batch.at(0) == 16 && resolved.total_batch.at(9) == 6));
  // A training of 10.4 epochs has ten, one of 10.5 has eleven.
  options.batch = ByEpoch<int>({{0, 8, 0, 8}, {9, 6, 9, 6}, {10, 3, 10, 3}});
  options.warmup_epochs = 1.4;
  CHECK(beginnings_of_parts(options) == std::vector{0, 9});
  for (const double warmup : {1.5, 1.6}) {
    options.warmup_epochs = warmup;
    CHECK(beginnings_of_parts(options) == std::vector{0, 9, 10});
  }
  const TrainOptions same = plain();
  (resolved = same).micro_batch = 4;
  put_back_parts(resolved, same, 2);
  CHECK(resolved.micro_batch == 4);  // of a batch that does not change all stays as it is
  CHECK(part_of(same, 3).part_end == kMostEpochs);
  CHECK(text_of_parts(same, 24, 1) == Plan(same, 24, 1).text());
}
