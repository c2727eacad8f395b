#include "catch.hpp"
#include "small_run.hpp"
#include "train/trainer.hpp"
#include "world.hpp"

using namespace dat;
using test::world;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

template <class Call>
ExitCode code_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::done;
}

[[nodiscard]] TrainOptions options_of(const std::string& optimizer) {
  TrainOptions options = test::small_run();
  options.threads = 1;
  options.budget = 4;
  options.optimizer = optimizer;
  options.bias_correction = optimizer == "lamb";
  return options;
}

/// The state after some steps; the same on every rank, because each makes all of it alone.
[[nodiscard]] Checkpoint state_after_steps(const TrainOptions& options) {
  const auto alone = Communicator::single();
  Trainer trainer(*alone, options);
  trainer.start();
  for (int k = 0; k < 3; ++k) (void)trainer.step(false);
  return trainer.capture();
}

}  // namespace

TEST_CASE("The replica check finds a rank that differs in anything that training goes on from", "[replicas]") {
  const bool last = world().rank() == world().size() - 1;
  for (const std::string optimizer : {"lamb", "sgd"}) {
    TrainOptions options = options_of(optimizer);
    const Checkpoint state = state_after_steps(options);
    for (const std::string statistics : {"average", "local"}) {
      options.bn_statistics = statistics;
      Trainer trainer(world(), options);
      const auto code = [&](auto&& change) {
        Checkpoint mine = state;
        if (last) change(mine);
        trainer.restore(mine);
        return code_of([&] { trainer.check_replicas(); });
      };
      const auto next = [](float& value) { value = std::nextafter(value, 2.0F); };
      const ExitCode found = world().size() == 1 ? ExitCode::done : ExitCode::integrity;
      CHECK(code([](Checkpoint&) {}) == ExitCode::done);
      for (std::size_t array = 0; array < state.arrays.size(); ++array) {
        const std::string& name = state.arrays[array].name;
        INFO(optimizer << ", " << statistics << " statistics, " << name);
        // Running statistics that are not averaged are each rank's own.
        const bool own = statistics == "local" && name.starts_with("bn/");
        CHECK(code([&](Checkpoint& mine) { next(mine.arrays[array].values.back()); }) ==
              (own ? ExitCode::done : found));
      }
      CHECK(code([](Checkpoint& mine) { mine.doubles["p"].back() *= 1 + 0x1p-50; }) == found);
      if (optimizer == "lamb") CHECK(code([](Checkpoint& mine) { mine.doubles.at("optimizer").back() += 1; }) == found);
      CHECK(code([](Checkpoint& mine) { mine.doubles["active_scale"].back() += 0.5; }) == found);
      // Rank 0's state, given to all, passes.
      (void)code([](Checkpoint& mine) {
        for (Checkpoint::Array& array : mine.arrays) array.values.front() += 1;
        mine.doubles["p"].front() /= 2;
        mine.doubles["active_scale"].front() += 1;
        if (mine.doubles.contains("optimizer")) mine.doubles["optimizer"].front() += 1;
      });
      CHECK(code_of([&] {
              trainer.share_state();
              trainer.check_replicas();
            }) == ExitCode::done);
    }
  }
}

TEST_CASE("A draw that a rank cannot repeat ends the step on all ranks, before the weights are touched", "[replicas]") {
  TrainOptions options = options_of("lamb");
  const auto run = [&] {
    Trainer trainer(world(), options);
    trainer.share_state();
    trainer.start();
    const std::string before = trainer.weights_hash();
    const ExitCode code = code_of([&] { (void)trainer.step(false); });
    CHECK((trainer.weights_hash() == before) == (code != ExitCode::done));
    return code;
  };
  CHECK(run() == ExitCode::done);
  // Another seed: what draws the layers, and nothing that the ranks compare otherwise.
  if (world().rank() == world().size() - 1) options.seed = 2;
  CHECK(run() == (world().size() == 1 ? ExitCode::done : ExitCode::integrity));
}
