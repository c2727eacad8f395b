#include <iostream>

#include "backend/cpu/backend.hpp"
#include "catch.hpp"
#include "hdf5/hdf5_reader.hpp"
#include "run/certification_setting.hpp"
#include "run/evaluation_setting.hpp"
#include "small_run.hpp"

using namespace dat;

TEST_CASE("An evaluation takes no more images at a time than it has, in whole passes of a sequence or of noisy copies",
          "[evaluation][cpu]") {
  const TemporaryFolder folder;
  Checkpoint state = test::OneRank(test::small_run()).capture();
  // A network that knows more classes than the images have.
  for (Checkpoint::Array& array : state.arrays)
    if (array.name.starts_with("param/linear.")) {
      array.shape[0] = 11;
      array.values.resize(array.values.size() / 10 * 11);
    }
  state.texts["config_toml"] = "network = \"small_cnn\"\nwidth = 16\n";
  CheckpointFolder(folder / "ckpt", false).save(0, state);
  const auto deterministic = [](Replica& one) { return dynamic_cast<cpu::CpuBackend&>(one.backend()).deterministic(); };
  EvalOptions options;
  options.device = "cpu";
  options.checkpoint = folder.path();
  for (const auto& [attacks, batch, images, copies, capacity, pass] : {std::tuple("fgsm", 128, 5, 0, 5, 5),
                                                                       {"fgsm", 4, 5, 0, 4, 4},
                                                                       {"fgsm", 8, 9, 3, 8, 2},
                                                                       {"fgsm", 2, 9, 3, 2, 1},
                                                                       {"none+fgsm", 1, 65, 0, 64, 64},
                                                                       {"none+fgsm", 64, 65, 0, 64, 64},
                                                                       {"none+fgsm", 65, 65, 0, 128, 64}}) {
    options.eval = {attacks};
    options.batch = batch;
    options.limit = images;
    options.noise = copies > 0 ? 0.5 : -1;
    options.noise_samples = copies;
    const EvaluationSetting made = prepare_evaluation(test::single(), options);
    CHECK((made.replica->images().capacity == capacity && made.replica->attack_sizes() == std::vector{pass}));
    CHECK((made.subject.noise_samples == std::max(copies, 1) && !made.subject.eps_given && made.share == images));
    CHECK(deterministic(*made.replica) == (attacks[0] == 'n'));
    for (const auto& [purpose, bytes] : made.replica->backend().allocations())
      if (purpose == "noisy copies")
        CHECK(static_cast<std::int64_t>(bytes) == 4 * pass * copies * made.replica->images().layout.elements());
  }
  CertifyOptions certify;
  certify.device = "cpu";
  certify.checkpoint = folder.path();
  certify.sigma = 0.5;
  const CertificationSetting certified = prepare_certification(test::single(), certify);
  CHECK((deterministic(*certified.replica) && certified.replica->images().capacity == 64));

  state.texts["config_toml"] += "noise = 0.25\nnoise-samples = 3\n";
  CheckpointFolder(folder / "ckpt", true).save(0, state);
  options.eval = {"fgsm"};
  for (const auto& [noise, copies, under, of_each] :
       {std::tuple(-1.0, 0, 0.25, 3), {0.5, 2, 0.5, 2}, {0.0, 0, 0.0, 1}}) {
    options.noise = noise;
    options.noise_samples = copies;
    const EvaluationSubject subject = prepare_evaluation(test::single(), options).subject;
    CHECK((subject.noise == under && subject.noise_samples == of_each));
  }

  // Without weights all logits are those of the bias, which look like probabilities.
  for (Checkpoint::Array& array : state.arrays) {
    if (array.name.starts_with("param/")) std::ranges::fill(array.values, 0.0F);
    if (array.name == "param/linear.bias") array.values[0] = 1;
  }
  CheckpointFolder(folder / "ckpt", true).save(0, state);
  write_bytes(folder / "ckpt/step-000000001.h5", "");
  options.eval = {"none+fgsm"};
  options.batch = 1;
  options.progress = 0;
  std::ostringstream said;
  std::streambuf* const before = std::cerr.rdbuf(said.rdbuf());
  const EvaluationSetting made = prepare_evaluation(test::single(), options);
  CHECK(contains(said.str(), folder / "ckpt/step-000000001.h5"));
  said.str("");
  made.sequence->open(folder / "out", made.training);
  made.sequence->write(made.sequence->run(), {{"checkpoint", "here"}});
  std::cerr.rdbuf(before);
  CHECK((made.sequence->network_warnings().size() == 1 && contains(said.str(), "clean: 64 of 65 images, ")));
  for (const char* none : {"goes on", "none+fgsm: "}) CHECK(!contains(said.str(), none));
  CHECK(contains(read_bytes(folder / "out/sequence.journal"), R"("its runs":"clean x 1, none x 1, fgsm x 1")"));
  const Hdf5Reader file = Hdf5Reader::open(folder / "out/results.h5", ExitCode::data);
  CHECK((file.text("/", "sequence") == "none+fgsm" && file.text("/", "checkpoint") == "here"));
}
