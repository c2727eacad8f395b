#include "catch.hpp"
#include "dat/dealing.hpp"
#include "run/begin/left.hpp"
#include "run/crowding.hpp"
#include "run/membership.hpp"
#include "single.hpp"

using namespace dat;

TEST_CASE("Whoever has left stays away, and is told once", "[membership]") {
  Membership members(test::single());
  CHECK((members.add({}).empty() && !members.has_left(3)));
  CHECK(members.add({{3, 10, "banned"}}) == std::vector<LeftRecord>{{3, 10, "banned"}});
  CHECK(members.add({{3, 12, "again"}, {1, 12, "too"}}) == std::vector<LeftRecord>{{1, 12, "too"}});
  CHECK(members.left() == std::vector<LeftRecord>{{3, 10, "banned"}, {1, 12, "too"}});
  CHECK((members.has_left(3) && members.has_left(1) && !members.has_left(2)));
  CHECK(error_of([&] { static_cast<void>(members.add({{0, 20, "banned"}})); }).starts_with("8: rank 0 would have to"));
}

TEST_CASE("A checkpoint has who has left, when and why; and nothing where nobody has", "[membership]") {
  Membership members(test::single());
  Checkpoint checkpoint;
  save_left(members.left(), checkpoint);
  CHECK((checkpoint.texts.empty() && left_at(checkpoint, "run/ckpt").empty()));
  const std::vector<LeftRecord> gone = {{7, 0, "--cheat leave"},
                                        {12, 4000000000, "sends what is \"not\" its own, twice"}};
  static_cast<void>(members.add(gone));
  save_left(members.left(), checkpoint);
  checkpoint.integers["ranks"] = 11;
  checkpoint.integers["step"] = 40;
  CHECK(left_at(checkpoint, "run/ckpt") == gone);
  checkpoint.integers["ranks"] = 10;  // 12 ranks were launched, and there is none of that number
  CHECK(error_of([&] {
          static_cast<void>(left_at(checkpoint, "run/ckpt"));
        }).starts_with("4: run/ckpt: the checkpoint of step 40 says that rank 12"));
}

TEST_CASE("Those who may cheat hold less than half of the micro-batches, whoever they are", "[membership]") {
  for (int all = 1; all <= 40; ++all)
    for (int ranks = 1; ranks <= all; ++ranks)
      for (int faults = 0; faults <= ranks; ++faults) {
        std::vector<int> held;
        for (int rank = 0; rank < ranks; ++rank)
          held.push_back(first_micro_batch(all, ranks, rank + 1) - first_micro_batch(all, ranks, rank));
        std::sort(held.rbegin(), held.rend());
        const int most = std::accumulate(held.begin(), held.begin() + faults, 0);
        if (honest_majority(all, ranks, faults) != (2 * most < all)) FAIL(all << " " << ranks << " " << faults);
      }
  CHECK((honest_majority(16, 9, 0) && honest_majority(16, 16, 7) && !honest_majority(16, 16, 8)));
  CHECK(!honest_majority(16, 9, 4));  // seven of the nine hold two, and four of those hold eight
  CHECK(honest_majority(18, 9, 4));
}

TEST_CASE("The batch stays what the run began with, whoever is left", "[membership]") {
  TrainOptions options;
  options.deterministic = true;
  options.batch = 12;
  options.micro_batch = 4;
  options.resample = "step";
  options.epochs = 3;
  options.warmup_epochs = 1;
  const Plan all(options, 1000, 6);
  const TrainOptions left = options_left(options, all, 6, 2);
  const Plan now(left, 1000, 4);
  CHECK((now.total_batch == 72 && now.micro_batches == all.micro_batches));
  CHECK((now.steps_per_epoch == all.steps_per_epoch && now.steps == all.steps));
  CHECK(now.last_micro_batch == all.last_micro_batch);
  CHECK(now.micro_batches_of(0) + now.micro_batches_of(1) + now.micro_batches_of(2) + now.micro_batches_of(3) == 18);
  const Plan later(options_left(left, now, 6, 5), 1000, 1);
  CHECK((later.total_batch == 72 && later.micro_batches_of(0) == 18));
  // Each that leaves is one of those who may cheat.
  options.aggregator = "median";
  options.faults = 2;
  for (const auto& [gone, faults] : {std::pair(0, 2), std::pair(1, 1), std::pair(3, 0)}) {
    const TrainOptions others = options_left(options, all, 6, gone);
    CHECK((others.faults == faults && others.total_batch == 72 && others.batch == 0));
  }
  options.batch = 4;  // 8 micro-batches, of which each of the 6 that are left has one, and two have two
  options.faults = 3;
  CHECK(error_of([&] { (void)options_left(options, Plan(options, 1000, 8), 7, 1); }) ==
        "8: 1 of 7 ranks have left, and 2 of the others could hold half of the micro-batches of a step");
}

TEST_CASE("Ranks that wait for cores are looked at now and then, until one is told of", "[membership]") {
  struct Told final : CoreWait {
    Told(double third, int& looks) : third_(third), looks_(looks) {}
    void begin() override { ++looks_; }
    [[nodiscard]] double share() const override { return ++looks_ == 4 ? third_ : 0.2; }
    double third_;
    int& looks_;
  };
  const std::string sentence =
      "the threads of rank 0 on node1 wait for a core 75 % of their time: more is running there than it has cores for, "
      "which slows all ranks; give the run cores of its own, or fewer --threads";
  for (const bool crowded : {false, true}) {
    int looks = 0;
    Crowding crowding(std::make_unique<Told>(crowded ? 0.75 : 0.2, looks));
    std::vector<int> looked_after;
    for (int step = 1; step <= 100; ++step) {
      const int before = looks;
      CHECK(crowding.after_step(test::single(), {"node1"}) == (crowded && step == 40 ? sentence : ""));
      if (looks > before) looked_after.push_back(step);
    }
    CHECK(looked_after == (crowded ? std::vector{2, 10, 20, 40} : std::vector{2, 10, 20, 40, 80}));
  }
}
