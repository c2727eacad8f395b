#include "by_epoch.hpp"
#include "catch.hpp"
#include "options/train/table.hpp"
#include "run/advice.hpp"

using namespace dat;

namespace {

/// Options that call for no advice.
TrainOptions sensible() {
  TrainOptions options;
  options.batch = 100;
  options.threads = 4;
  options.alpha = 2.0 / 255;
  return options;
}

std::vector<std::string> advised(const TrainOptions& options) { return advice(options, Plan(options, 100, 1), 4); }
/// Where it is the only one.
std::string only_advice(const TrainOptions& options) {
  const std::vector<std::string> all = advised(options);
  return all.size() == 1 ? all[0] : std::to_string(all.size()) + " pieces of advice";
}

}  // namespace

TEST_CASE("Sensible options call for no advice", "[advice]") {
  unsetenv("OMP_NUM_THREADS");
  TrainOptions options = sensible();
  CHECK(advised(options).empty());
  options.threads = 0;  // auto
  CHECK(advised(options).empty());
  options.attack_steps = 4;  // 4 * 2/255 = 8/255
  CHECK(advised(options).empty());
  options.alpha = 2 * options.eps * (1 + 1e-9);  // from one side of the ball to the other, and rounding
  CHECK(advised(options).empty());
  options.alpha = 0.1 / 255;
  options.attack = "square";  // which takes no steps of it
  CHECK(advised(options).empty());
}

TEST_CASE("16 bits that no attack uses are named", "[advice]") {
  TrainOptions options = sensible();
  options.alpha = 8.0 / 255;
  options.attack_precision = "f16";
  options.attack_bn = "eval";
  CHECK(advised(options).empty());
  options.attack_bn = "train";
  CHECK(only_advice(options).starts_with("--attack-precision f16 has no effect: attacks on batch statistics"));
  options.precision = "f16";
  CHECK(only_advice(options).ends_with("; leave it out"));
  options.attack_precision = "f32";
  CHECK(advised(options).empty());
  options.attack_precision = "bf16";
  options.attack_bn = "eval";
  options.attack = "none";
  CHECK(only_advice(options).starts_with("--attack-precision bf16 has no effect: nothing is attacked"));
}

TEST_CASE("Rates that nobody trains with, and a training that is all warm-up, are named", "[advice]") {
  TrainOptions options = sensible();
  options.optimizer = "sgd";
  options.lr = 0.4;
  CHECK(advised(options).empty());
  options.lr = 30;
  CHECK(advised(options)[0].starts_with("--lr 30 is far above the rates of sgd, which are below 5:"));
  CHECK(advised(options)[0].ends_with("is 0.3 meant?"));
  options.optimizer = "lars_sgd";
  CHECK(advised(options).empty());
  options.lr = 0.4;
  options.warmup_epochs = 5;
  options.epochs = 0;
  CHECK(advised(options)[0].starts_with("--epochs 0 leaves the warm-up alone, of 5 epochs,"));
  options.warmup_epochs = 1;
  CHECK(advised(options)[0].starts_with("--epochs 0 leaves the warm-up alone, of 1 epoch,"));
  for (const auto& [optimizer, most] : {std::pair("sgd", 5.0), {"lars_sgd", 100.0}, {"lamb", 1.0}}) {
    options = sensible();
    options.optimizer = optimizer;
    options.lr = most;
    CHECK(advised(options).empty());
    options.lr = 2 * most;
    CHECK(contains(only_advice(options), "which are below " + std::to_string(int(most)) + ":"));
  }
}

TEST_CASE("What is frozen without being trained is named", "[advice]") {
  TrainOptions options = sensible();
  options.freeze = "conv1";
  CHECK(only_advice(options).starts_with("--freeze leaves random weights as they are"));
  options.resume = "run";
  CHECK(advised(options).empty());
  options.resume = "auto";
  options.initialize = "run";
  CHECK(advised(options).empty());
}

TEST_CASE("More threads than cores, and a batch that is cut, are named with what happens instead", "[advice]") {
  TrainOptions options = sensible();
  options.batch = 128;
  options.threads = 5;
  const std::vector<std::string> all = advised(options);
  REQUIRE(all.size() == 2);
  CHECK(all[0].starts_with("--threads 5 is more than this rank's share of the node's cores, 4:"));
  CHECK(all[0].ends_with("; leave it at auto"));
  CHECK(all[1].starts_with("--batch 128 is more than a rank's share of the training images: it is cut to 100,"));
  options.threads = 4;
  options.warmup_epochs = options.epochs = 1;
  options.batch = test::by_epoch({{50, 0}, {128, 1}});
  CHECK(only_advice(options) == all[1]);
  options.threads = 5;
  options.batch = 0;
  options.total_batch = 1000;
  CHECK(advised(options)[1] ==
        "--total-batch 1000 is more than the training images: it is cut to 100, one step an epoch");
  options.total_batch = 100;
  CHECK(advised(options).size() == 1);
  options.batch = 100;
  options.total_batch = 0;
  options.threads = 0;
  setenv("OMP_NUM_THREADS", "6", 1);
  CHECK(advised(options)[0].starts_with("OMP_NUM_THREADS 6 is more than this rank's share of the node's cores, 4:"));
  CHECK(advised(options)[0].ends_with("; give --threads, or leave it unset"));
  CHECK((source_of_fewer_threads(options, 6).empty() && source_of_fewer_threads(options, 7) == " (OMP_NUM_THREADS)"));
  options.threads = 4;  // counts before it
  CHECK((advised(options).empty() && source_of_fewer_threads(options, 7) == " (--threads)"));
  unsetenv("OMP_NUM_THREADS");
  options.threads = 0;
  CHECK(source_of_fewer_threads(options, 7).empty());
}

TEST_CASE("What never comes is named", "[advice]") {
  for (const auto& [option, value, said] : std::vector<std::array<std::string, 3>>{
           {"attack-steps", "4,8@1", "the attack changes from epoch 1 on, and the run has 1 epochs:"},
           {"train-size", "24,32@1",
            "--train-size grows to the size of the images, in which the network is evaluated, from epoch 1 on, and"},
           {"average", "none,swa@1", "--average begins when 1 epochs are done, and the run has 1:"},
           {"batch", "100,50@1", "the batch changes in epoch 1, and the run has 1 epochs; take an earlier one"},
           {"total-batch", "100,50@1", "the batch changes in epoch 1, and the run has 1 epochs; take an earlier one"},
           {"freeze", "conv1,none@1", "--freeze ends with epoch 1, and the run has 1: leave the end off"}}) {
    TrainOptions options = sensible();
    if (option == "total-batch") options.batch = 0;
    Bound(train_table(), options).take(*train_table().find(option), {Value{value}}, option);
    options.initialize = "run";
    options.warmup_epochs = 0.5;
    options.epochs = 1.5;
    CHECK(advised(options).empty());
    options.epochs = 0.5;
    CHECK(only_advice(options).starts_with(said));
  }
}

TEST_CASE("A rate of LARS that moves nothing, and betas in each other's place, are named", "[advice]") {
  TrainOptions options = sensible();
  options.optimizer = "lars_sgd";
  CHECK(only_advice(options).starts_with("--lr 0.01 times the trust coefficient 0.001 is 1e-05, and lars_sgd moves"));
  options.lr = 0.1;  // 1e-4 in all
  CHECK(advised(options).empty());
  options = sensible();
  options.beta2 = 0.5;
  CHECK(only_advice(options).starts_with("beta2 = 0.5 of --optimizer lamb is below beta1 = 0.9:"));
  options.beta1 = 0.5;
  CHECK(advised(options).empty());
}

TEST_CASE("A step of the attack that is too long, or steps that do not reach eps, are named", "[advice]") {
  TrainOptions options = sensible();
  options.alpha = 1;
  CHECK(only_advice(options).starts_with("--alpha 1 is more than the whole width of the ball, twice --eps 8/255:"));
  CHECK(only_advice(options).ends_with(" ends in a corner; take a smaller one"));
  options.norm = "l2";
  options.eps = 0.25;
  CHECK(only_advice(options).ends_with(" leaves it; take a smaller one"));
  options = sensible();

  options.alpha = 0.1 / 255;
  CHECK(only_advice(options).starts_with(
      "the training's attack moves by 10 * 0.1/255 = 1/255 at most, less than --eps 8/255:"));
  options.warm_start = 5;  // steps add up over epochs
  CHECK(advised(options).empty());

  options = sensible();
  options.attack = "fgsm";  // one step, whatever --attack-steps says
  CHECK(contains(only_advice(options), "moves by 1 * 2/255 = 2/255 at most"));
  options.alpha = options.eps * (1 - 1e-9);
  CHECK(advised(options).empty());
  options.alpha = 17.0 / 255;
  CHECK(advised(options).size() == 1);
  options.attack = "none";
  CHECK(advised(options).empty());
}
