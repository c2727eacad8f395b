#include <algorithm>
#include <map>

#include "assess/assessment.hpp"
#include "assess/sequence.hpp"
#include "catch.hpp"
#include "data/images/png.hpp"
#include "datasets.hpp"
#include "device.hpp"
#include "replica/replica.hpp"
#include "run/evaluation_setting.hpp"
#include "single.hpp"
#include "small_run.hpp"
#include "world.hpp"

using namespace dat;
using namespace dat::test;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

constexpr int kImages = 21;

/// Broken images by number: their pixels, and behind these the confidence.
using Broken = std::map<std::int64_t, std::vector<float>>;

/// Of a network that computes one image at a time, so that what it computes of one has the same bits in any batch.
[[nodiscard]] ReplicaOptions one_at_a_time(const Given& set, const Needs& needs, int batch) {
  return {.backend = {.device = test_device(), .threads = 1, .math = "f32", .deterministic = true},
          .network = "small_cnn",
          .width = 16,
          .images = set.info(),
          .micro_batch = batch,
          .attack_batch = 1,
          .needs = needs,
          .training_batches = {}};
}

/// broken: takes the broken images, on rank 0; null: nobody does.
[[nodiscard]] EvaluationResult evaluate(Communicator& ranks, const Given& set, const EvaluationAttacks& attacks,
                                        int batch, Broken* broken = nullptr) {
  Replica replica(one_at_a_time(set, attacks.needs(), batch));
  Evaluator evaluator(ranks, set, nullptr, replica.images(), replica.evaluated());
  replica.model().initialize(1);
  replica.commit();
  const BrokenImageSink take = [&](std::int64_t image, const float* pixels, float confidence) {
    std::vector<float>& kept = (*broken)[image];
    CHECK(kept.empty());
    kept.assign(pixels, pixels + set.info().image_bytes());
    kept.push_back(confidence);
  };
  return evaluator.run(attacks, 5, {}, broken != nullptr ? &take : nullptr);
}

}  // namespace

TEST_CASE("What an evaluation says of an image does not depend on its batch or on the ranks", "[evaluation]") {
  Given set(kImages);
  const EvaluationAttacks attacks(
      {.attacks = {"apgd-t", "pgd3x2"}, .norm = BallNorm::linf, .eps = 0.02, .classes = 10});
  // Labels are what the network says, but for every eighth image.
  const EvaluationResult said = evaluate(single(), set, attacks, 16);
  for (std::size_t i = 0; i < kImages; ++i)
    set.labels[i] = static_cast<std::uint8_t>((static_cast<int>(said.clean.prediction[i]) + (i % 8 == 5 ? 1 : 0)) % 10);

  Broken images;
  const EvaluationResult reference = evaluate(single(), set, attacks, 1, &images);
  const auto record = reference.records(attacks);
  // It would say nothing if an attack broke no image that is right without it, or all.
  CHECK((record[0].clean_acc > record[0].adv_acc && record[0].adv_acc > 0));
  std::vector<std::int64_t> ids;
  for (const auto& [image, kept] : images) {
    const auto i = static_cast<std::size_t>(image);
    CHECK(
        (reference.clean.correct[i] == 1 && reference.attacked[0].correct[i] * reference.attacked[1].correct[i] == 0));
    CHECK((kept.back() > 0.1F && kept.back() <= 1));  // of ten classes
    ids.push_back(image);
  }
  for (std::size_t i = 0; i < kImages; ++i)
    if (reference.clean.correct[i] == 1 && reference.attacked[0].correct[i] + reference.attacked[1].correct[i] < 2)
      CHECK(std::find(ids.begin(), ids.end(), i) != ids.end());
  // An image that the first attack breaks is as that attack alone leaves it.
  Broken first;
  const EvaluationAttacks alone_first({.attacks = {"apgd-t"}, .norm = BallNorm::linf, .eps = 0.02, .classes = 10});
  const EvaluationResult of_first = evaluate(single(), set, alone_first, 1, &first);
  CHECK((!first.empty() && first.size() < kImages && of_first.attacked[0].correct == reference.attacked[0].correct));
  for (const auto& [image, kept] : first) CHECK((images.contains(image) && images.at(image) == kept));
  // Its runs after the one that breaks an image count nothing, as in a sequence, which makes none.
  const SequenceAttacks runs(read_attack_sequence("apgd-t+none"), BallNorm::linf, 0.02, 0, 10);
  Replica replica(one_at_a_time(set, runs.needs(), 16));
  SequenceEvaluator sequence(single(), set, replica.images(), replica.evaluated());
  replica.model().initialize(1);
  replica.commit();
  const SequenceResult in_turn = sequence.run(runs, {.seed = 5});
  for (std::size_t i = 0; i < kImages; ++i)
    if (reference.clean.correct[i] == 1)
      CHECK(in_turn.images[i].prediction == static_cast<int>(of_first.attacked[0].prediction[i]));
  for (const int batch : {7, 64}) {
    INFO("batches of " << batch);
    Broken same;
    const EvaluationResult result = evaluate(world(), set, attacks, batch, &same);
    CHECK(same == (world().root() ? images : Broken{}));
    for (std::size_t k = 0; k <= reference.attacked.size(); ++k) {
      const auto of = [&](const EvaluationResult& one) { return k == 0 ? one.clean : one.attacked[k - 1]; };
      CHECK((of(result).loss == of(reference).loss && of(result).correct == of(reference).correct));
      CHECK(of(result).prediction == of(reference).prediction);
      for (std::size_t i = 0; i < kImages; ++i)
        CHECK((of(result).prediction[i] == set.labels[i]) == (of(result).correct[i] == 1));
    }
  }
}

TEST_CASE("An evaluation's picture has the first images above what an attack has made of them", "[evaluation]") {
  const Given set(kImages);
  const EvaluationAttacks attacks({.attacks = {"none", "fgsm"}, .eps = 0.25});
  Replica replica(one_at_a_time(set, attacks.needs(), 4));
  Evaluator evaluator(world(), set, nullptr, replica.images(), replica.evaluated(), Evaluator::Dealing::batches, 3);
  replica.model().initialize(1);
  replica.commit();
  const EvaluationResult result = evaluator.run(attacks, 5);
  const Picture &still = result.attacked[0].picture, &moved = result.attacked[1].picture;
  std::vector<std::uint8_t> rgb;
  for (int y = 0; y < 2 * 8; ++y)
    for (int image = 0; image < 3; ++image) {
      const std::vector<std::uint8_t> pixels = pixels_of(set, image);
      rgb.insert(rgb.end(), pixels.begin() + y % 8 * 24, pixels.begin() + (y % 8 + 1) * 24);
    }
  CHECK(still.png == (world().root() ? png_of({16, 24}, rgb) : ""));
  CHECK((moved.png == still.png) == !world().root());
  if (world().root()) CHECK((moved.height == 16 && moved.width == 24));
  // Dealt out by batches each image counts once, too.
  CHECK(result.attacked[1].loss == evaluate(world(), set, attacks, 4).attacked[1].loss);
}

TEST_CASE("An assessment is of all its sets in turn, and so is its progress", "[evaluation]") {
  const Given first(kImages), second(9);
  const EvaluationAttacks attacks({.attacks = {"none"}});
  Replica replica({.backend = {.device = test_device(), .threads = 1},
                   .network = "small_cnn",
                   .width = 16,
                   .images = first.info(),
                   .micro_batch = kImages,
                   .needs = attacks.needs(),
                   .training_batches = {}});
  Assessment assessment(world(), replica, attacks, Evaluator::Dealing::samples);
  CHECK(replica.macs(first.info().size) == replica.model().graph.macs());
  CHECK((replica.image_floats() == std::vector{replica.images().layout.elements()} &&
         replica.attack_sizes() == std::vector{kImages}));
  assessment.add("test", first, nullptr);
  assessment.add("holdout", second, nullptr);
  replica.model().initialize(1);
  replica.commit();
  std::vector<double> parts;
  const auto records = assessment.run(5, [&](double part) { parts.push_back(part); });
  CHECK((records.size() == 2 && records[0].split == "test" && records[1].split == "holdout" &&
         records[0].images == kImages && records[1].images == 9));
  if (world().root()) CHECK(parts == std::vector<double>{kImages / 30.0, 1});
}

TEST_CASE("The class of an image that several restarts break is that of its highest loss", "[evaluation]") {
  const Given set(kImages);  // all of one class, which the network hardly ever says
  EvaluationResult before;
  int changed = 0, raised = 0;
  for (int restarts = 1; restarts <= 8; ++restarts) {
    const EvaluationAttacks attacks({.attacks = {"pgd1x" + std::to_string(restarts)},
                                     .norm = BallNorm::linf,
                                     .eps = 0.5,
                                     .alpha = 0.1,
                                     .classes = 10});
    EvaluationResult now = evaluate(world(), set, attacks, 16);
    for (std::size_t i = 0; i < kImages && restarts > 1; ++i) {
      const EvaluationResult::Outcome &a = before.attacked[0], &b = now.attacked[0];
      CHECK(b.loss[i] >= a.loss[i]);
      raised += b.loss[i] > a.loss[i] ? 1 : 0;
      if (a.correct[i] > 0) continue;
      CHECK(b.correct[i] == 0);
      CHECK((a.prediction[i] == b.prediction[i] || b.loss[i] > a.loss[i]));
      changed += a.prediction[i] != b.prediction[i] ? 1 : 0;
    }
    before = std::move(now);
  }
  CHECK((changed > 0 && raised > 0));
}

TEST_CASE("Each rank evaluates its share of the images, or the batches of one rank where bits are to be the same",
          "[evaluation]") {
  const TemporaryFolder folder;
  Checkpoint state = OneRank(small_run()).capture();
  state.texts["config_toml"] = "network = \"small_cnn\"\nwidth = 16\n";
  CheckpointFolder(folder / "ckpt", false).save(0, state);
  EvalOptions options;
  options.device = test_device();
  options.checkpoint = folder.path();
  options.eval = {"none"};
  options.limit = options.batch = kImages;
  for (const bool same : {false, true}) {
    options.deterministic = same;
    const EvaluationSetting made = prepare_evaluation(world(), options);
    std::int64_t own = 0;
    (void)made.evaluator->run(*made.attacks, 5, [&](std::int64_t done) { own = done; });
    const int share = (kImages + world().size() - 1 - world().rank()) / world().size();
    CHECK(own == (!same ? share : world().root() ? kImages : 0));
    CHECK(made.replica->images().capacity == (same ? kImages : made.share));
  }
}
