#include "catch.hpp"
#include "run/checkpoints.hpp"

using namespace dat;

TEST_CASE("A checkpoint that another process has broken off is no full disk", "[run]") {
  for (const auto& [alone, beside, device] : {std::tuple(true, "off", "cpu"),
                                              {false, "off", "cpu"},
                                              {true, "auto", "cpu"},
                                              {true, "auto", "cuda"},
                                              {true, "on", "cpu"}}) {
    const TemporaryFolder folder;
    TrainOptions options;
    options.device = device;
    options.checkpoint_async = beside;
    const bool later = options.device == "cuda" || options.checkpoint_async == "on";
    BestNetwork best;
    Checkpoints checkpoints(options, best);
    checkpoints.open(
        folder.path(), -1, [](const std::string&) {},
        [alone = alone] {
          if (!alone) throw Error(ExitCode::usage, "another process");
        });
    std::filesystem::remove_all(folder / "ckpt");
    const ExitCode code = code_of([&] { checkpoints.write(Checkpoints::Kind::step, 4, {}, [](Checkpoint&) {}); });
    CHECK(code == (later ? ExitCode::done : alone ? ExitCode::io : ExitCode::usage));
    const auto failing = [](Checkpoint&) { throw Error(ExitCode::numerical, "of the state"); };
    CHECK(code_of([&] { checkpoints.write(Checkpoints::Kind::step, 4, {}, failing); }) == ExitCode::numerical);
  }
}

TEST_CASE("A rollback goes to the best checkpoint, the newest of a good step, or any, whatever counts its steps",
          "[run]") {
  const TemporaryFolder folder;
  TrainOptions options;
  options.checkpoint_async = "off";
  BestNetwork best;
  Checkpoints checkpoints(options, best);
  int warned = 0;
  checkpoints.open(
      folder.path(), -1,
      [&](const std::string& text) { warned += text.ends_with("; going back to the last checkpoint"); }, [] {});
  const auto write = [&](Checkpoints::Kind kind, std::int64_t step, std::int64_t steps_per_epoch) {
    Checkpoint state;
    state.arrays.push_back({"param/w", {1}, {1}});
    state.doubles["p"] = {1};
    state.integers = {{"step", step}, {"steps_per_epoch", steps_per_epoch}};
    checkpoints.write(kind, step, state, [](Checkpoint& one) { one.integers["complete"] = 1; });
  };
  const auto step_for = [&](std::int64_t last_good, bool to_best) {
    const std::optional<Checkpoint> found = checkpoints.to_go_back_to(last_good, 2, to_best);
    CHECK((!found || found->integers.at("complete") == 1));
    return found ? found->integers.at("step") : -1;
  };
  CHECK(step_for(9, false) == -1);
  // Where an epoch has two steps, those of epochs of one step stand at 10 and 12.
  write(Checkpoints::Kind::step, 3, 2);
  write(Checkpoints::Kind::step, 5, 1);
  write(Checkpoints::Kind::step, 6, 1);
  for (const auto& [last_good, step] :
       {std::pair(12, 6), std::pair(11, 5), std::pair(10, 5), std::pair(9, 3), std::pair(3, 3), std::pair(2, 6)})
    CHECK(step_for(last_good, false) == step);
  CHECK((warned == 0 && step_for(11, true) == 5 && warned == 1));
  write(Checkpoints::Kind::best, 1, 2);
  CHECK((step_for(11, true) == 1 && step_for(11, false) == 5));
  Checkpoints again(options, best);  // from the one of step 0, after which all are damaged
  again.open(
      folder.path(), 0, [](const std::string&) {}, [] {});
  CHECK(!CheckpointFolder::any_in(folder / "ckpt"));

  Checkpoint state;
  state.arrays = {{"param/a", {2}, {0, -1}}, {"param/b", {2}, {1, HUGE_VALF}}, {"param/c", {1}, {std::nanf("")}}};
  CHECK(not_finite(state) == "param/b");
  state.arrays.resize(1);
  CHECK(not_finite(state).empty());
}
