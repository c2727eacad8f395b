#include "catch.hpp"
#include "run/evaluation_setting.hpp"
#include "small_run.hpp"

using namespace dat;

TEST_CASE(
    "An evaluation takes no more images at a time than there are, in whole passes of a sequence or of noisy copies",
    "[evaluation][cpu]") {
  const TemporaryFolder folder;
  Checkpoint state = test::OneRank(test::small_run()).capture();
  state.texts["config_toml"] = "network = \"small_cnn\"\nwidth = 16\n";
  CheckpointFolder(folder / "ckpt", false).save(0, state);
  for (const auto& [batch, images, copies, attacks, capacity, pass] :
       std::vector<std::array<int, 6>>{{128, 5, 0, 0, 5, 5},
                                       {4, 5, 0, 0, 4, 4},
                                       {8, 9, 3, 0, 8, 2},
                                       {2, 9, 3, 0, 2, 1},
                                       {1, 65, 0, 1, 64, 64},
                                       {65, 65, 0, 1, 128, 64}}) {
    EvalOptions options;
    options.device = "cpu";
    options.checkpoint = folder.path();
    options.eval = {attacks == 0 ? "fgsm" : "none+fgsm"};
    options.batch = batch;
    options.limit = images;
    options.noise = copies > 0 ? 0.5 : -1;
    options.noise_samples = copies;
    const EvaluationSetting made = prepare_evaluation(test::single(), options);
    CHECK((made.replica->images().capacity == capacity && made.replica->attack_sizes() == std::vector{pass}));
    CHECK((made.subject.noise_samples == std::max(copies, 1) && !made.subject.eps_given));
  }
}
