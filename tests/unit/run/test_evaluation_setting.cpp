#include "backend/cpu/backend.hpp"
#include "catch.hpp"
#include "run/certification_setting.hpp"
#include "run/evaluation_setting.hpp"
#include "small_run.hpp"

using namespace dat;

TEST_CASE("An evaluation takes no more images at a time than it has, in whole passes of a sequence or of noisy copies",
          "[evaluation][cpu]") {
  const TemporaryFolder folder;
  Checkpoint state = test::OneRank(test::small_run()).capture();
  state.texts["config_toml"] = "network = \"small_cnn\"\nwidth = 16\n";
  CheckpointFolder(folder / "ckpt", false).save(0, state);
  const auto deterministic = [](Replica& one) { return dynamic_cast<cpu::CpuBackend&>(one.backend()).deterministic(); };
  for (const auto& [attacks, batch, images, copies, capacity, pass] : {std::tuple("fgsm", 128, 5, 0, 5, 5),
                                                                       {"fgsm", 4, 5, 0, 4, 4},
                                                                       {"fgsm", 8, 9, 3, 8, 2},
                                                                       {"fgsm", 2, 9, 3, 2, 1},
                                                                       {"none+fgsm", 1, 65, 0, 64, 64},
                                                                       {"none+fgsm", 65, 65, 0, 128, 64}}) {
    EvalOptions options;
    options.device = "cpu";
    options.checkpoint = folder.path();
    options.eval = {attacks};
    options.batch = batch;
    options.limit = images;
    options.noise = copies > 0 ? 0.5 : -1;
    options.noise_samples = copies;
    const EvaluationSetting made = prepare_evaluation(test::single(), options);
    CHECK((made.replica->images().capacity == capacity && made.replica->attack_sizes() == std::vector{pass}));
    CHECK((made.subject.noise_samples == std::max(copies, 1) && !made.subject.eps_given));
    CHECK(deterministic(*made.replica) == (attacks[0] == 'n'));
  }
  CertifyOptions options;
  options.device = "cpu";
  options.checkpoint = folder.path();
  options.sigma = 0.5;
  CHECK(deterministic(*prepare_certification(test::single(), options).replica));
}
