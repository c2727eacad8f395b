#include "catch.hpp"
#include "run/checkpoints.hpp"

using namespace dat;

TEST_CASE("A checkpoint that another process has broken off is no full disk", "[run]") {
  for (const bool alone : {true, false}) {
    const TemporaryFolder folder;
    TrainOptions options;
    options.checkpoint_async = "off";
    BestNetwork best;
    Checkpoints checkpoints(options, best);
    checkpoints.open(
        folder.path(), -1, [](const std::string&) {},
        [&] {
          if (!alone) throw Error(ExitCode::usage, "another process");
        });
    std::filesystem::remove_all(folder / "ckpt");
    const ExitCode code = code_of([&] { checkpoints.write(Checkpoints::Kind::step, 4, {}, [](Checkpoint&) {}); });
    CHECK(code == (alone ? ExitCode::io : ExitCode::usage));
  }
}
