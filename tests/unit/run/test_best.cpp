#include "catch.hpp"
#include "run/best.hpp"

using namespace dat;

namespace {

[[nodiscard]] EvaluationRecord held_out(const std::string& weights, double accuracy) {
  return {.split = "holdout", .weights = weights, .adv_acc = accuracy};
}

}  // namespace

TEST_CASE("Catastrophic overfitting is a fall below the best accuracy by more than the margin", "[run]") {
  CHECK(!overfits_catastrophically(-1, 0));  // a first evaluation has nothing to fall from
  CHECK((!overfits_catastrophically(0, 0) && !overfits_catastrophically(0.5, 0.5 - 0.2)));
  CHECK((!overfits_catastrophically(0.5, 0.301) && overfits_catastrophically(0.5, 0.299)));
}

TEST_CASE("The attack that hurts the chosen weights most on what is held out decides", "[run]") {
  std::vector<EvaluationRecord> records = {held_out("raw", 0.5), held_out("raw", 0.4), held_out("average", 0.45),
                                           held_out("average", 0.6)};
  records.push_back(records[0]);
  records.back().split = "test";
  records.back().adv_acc = 0.1;
  CHECK((held_out_accuracy(records, "raw") == 0.4 && held_out_accuracy(records, "average") == 0.45));
}

TEST_CASE("The best network is that of the highest accuracy, and evaluations since then are counted", "[run]") {
  BestNetwork best;
  CHECK((best.accuracy() == -1 && best.judge(0.3, 10) && !best.judge(0.3, 20) && !best.judge(0.2, 30)));
  CHECK(best.evaluations_since() == 2);
  best.forget_evaluation();
  CHECK((best.evaluations_since() == 1 && best.judge(0.4, 40) && best.evaluations_since() == 0));
  Checkpoint own, later;
  best.save_as_best(own, 123);
  best.save(later);
  own.integers["z"] = 5;
  own.doubles["z"] = {0.5};
  for (const Checkpoint& state : {own, later})
    CHECK(BestRecord::of(state) == BestRecord{.accuracy = 0.4, .step = 40, .bytes = 123});
  own.doubles["best"] = {0.4, 0.5};
  CHECK(BestRecord::of(own).accuracy == -1);
  CHECK(best.overfitting_text(0.125, 50) ==
        "catastrophic overfitting: the robust accuracy on held-out images is 12.50 % after step 50, and was 40.00 %");
  const auto end = [&] { return best.early_end_text(70, 96); };
  const std::string told =
      "stopped early after step 70 of 96: no better robust accuracy on held-out training images than 40.00 % in ";
  CHECK((!best.judge(0.1, 50) && end() == told + "1 evaluation; ckpt/best.h5 has that network"));
  CHECK((!best.judge(0.1, 60) && end() == told + "2 evaluations; ckpt/best.h5 has that network"));
}

TEST_CASE("A best network whose file is gone is chosen anew", "[run]") {
  const TemporaryFolder folder;
  const CheckpointFolder files(folder / "ckpt", false);
  BestNetwork best;
  REQUIRE(best.judge(0.3, 10));
  Checkpoint state;
  best.save_as_best(state, 0);
  files.save_best(state);
  std::string told;
  best.find(files, [&](const std::string& warning) { told = warning; });
  CHECK(told.empty());
  best.take_up({.accuracy = 0, .step = 70, .bytes = 5}, 2);
  best.find(files, [&](const std::string& warning) { told = warning; });
  CHECK((contains(told, "after step 70, is gone") && best.accuracy() == -1 && best.evaluations_since() == 0));
}
