#include "assess/evaluation_report.hpp"
#include "assess/sequence.hpp"
#include "catch.hpp"
#include "dat/file.hpp"
#include "datasets.hpp"
#include "device.hpp"
#include "errors.hpp"
#include "replica/replica.hpp"
#include "single.hpp"
#include "world.hpp"

using namespace dat;
using namespace dat::test;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

constexpr int kPass = 4, kImages = 45;
constexpr double kEps = 0.03;

/// The network, and a sequence for it.
struct Case {
  Case(Communicator& ranks, const Given& set, const std::string& words, int capacity, double eps = kEps)
      : attacks(read_attack_sequence(words), BallNorm::linf, eps, 0, 10),
        replica({.backend = {.device = test_device(), .threads = 1, .math = "f32", .deterministic = true},
                 .network = "small_cnn",
                 .width = 16,
                 .images = set.info(),
                 .micro_batch = capacity,
                 .attack_batch = kPass,
                 .needs = attacks.needs(),
                 .training_batches = {}}),
        evaluator(ranks, set, replica.images(), replica.evaluated()) {
    replica.model().initialize(1);
    replica.commit();
  }
  SequenceResult run(std::vector<JournalEntry> found = {}) {
    return evaluator.run(attacks, {.seed = 5,
                                   .found = std::move(found),
                                   .entry = [this](const JournalEntry& entry) { entries.push_back(entry); },
                                   .progress = [this](const auto& now) { progress.push_back(now); }});
  }

  SequenceAttacks attacks;
  Replica replica;
  SequenceEvaluator evaluator;
  std::vector<JournalEntry> entries;                  ///< on rank 0
  std::vector<SequenceEvaluator::Progress> progress;  ///< on rank 0
};

/// Everything but seconds.
[[nodiscard]] auto told(const SequenceEvaluator::Progress& p) {
  return std::tuple(p.attack, p.run, p.runs, p.done, p.images, p.right, p.part);
}

/// Each rank labels by itself: the network's own classes, but for every ninth image.
[[nodiscard]] Given labelled(std::int64_t images = kImages) {
  Given set(images);
  Case clean(single(), set, "none+fgsm", kPass);
  const SequenceResult result = clean.run();
  for (std::size_t i = 0; i < result.images.size(); ++i) {
    // An image that an attack has broken was classified as its label, 0.
    const int found = result.images[i].broken_by == 0 ? result.images[i].prediction : 0;
    set.labels[i] = static_cast<std::uint8_t>(i % 9 == 4 ? (found + 1) % 10 : found);
  }
  return set;
}

/// Everything but seconds.
void check_equal(const SequenceResult& one, const SequenceResult& other) {
  CHECK((one.images == other.images && one.rows.size() == other.rows.size()));
  for (std::size_t k = 0; k < std::min(one.rows.size(), other.rows.size()); ++k) {
    const SequenceResult::Row &a = one.rows[k], &b = other.rows[k];
    CHECK(std::tie(a.attack, a.runs, a.images, a.broken, a.zero_gradients, a.accuracy) ==
          std::tie(b.attack, b.runs, b.images, b.broken, b.zero_gradients, b.accuracy));
  }
}

constexpr const char* kWords = "pgd2x2+fgsm+pgd6x2";

}  // namespace

TEST_CASE("The flags of a sequence do not depend on the number of ranks or on the size of batches", "[sequence]") {
  const Given set = labelled();
  const SequenceResult reference = Case(single(), set, kWords, kPass).run();
  // The test would say nothing if one of the attacks broke nothing, or all.
  for (const SequenceResult::Row& row : reference.rows) CHECK(row.broken > 0);
  CHECK((reference.accuracy() > 0 && reference.rows[0].broken == kImages / 9 && reference.rows[1].runs == 2));
  for (const int capacity : {kPass, 3 * kPass, 12 * kPass})
    check_equal(Case(world(), set, kWords, capacity).run(), reference);
}

TEST_CASE("Nor do those of attacks that search, and leave out images that are broken", "[sequence]") {
  const Given set = labelled(14);
  constexpr double kLittle = 0.025;
  const SequenceResult reference = Case(single(), set, "apgd-ce+fab-t+square", kPass, kLittle).run();
  CHECK((reference.rows[1].broken > 1 && reference.rows[3].images > 1));
  // All images at once: as some are broken, the others move together.
  check_equal(Case(world(), set, "apgd-ce+fab-t+square", 4 * kPass, kLittle).run(), reference);
}

TEST_CASE("An image is robust where every attack alone leaves it right, and the first that does not is named",
          "[sequence]") {
  const Given set = labelled();
  Case sequence(world(), set, kWords, 2 * kPass);
  const SequenceResult result = sequence.run();
  // Each attack alone, on all images, by what evaluates single attacks.
  Evaluator evaluator(world(), set, nullptr, sequence.replica.images(), sequence.replica.evaluated());
  sequence.replica.commit();
  const EvaluationAttacks single({.attacks = {"pgd2x2", "fgsm", "pgd6x2"}, .eps = kEps});
  const EvaluationResult alone = evaluator.run(single, 5);
  std::vector<std::int64_t> broken(4, 0);
  for (std::size_t i = 0; i < result.images.size(); ++i) {
    int by = alone.clean.correct[i] == 1 ? SequenceResult::kRobust : 0;
    for (std::size_t k = 0; k < 3 && by == SequenceResult::kRobust; ++k)
      if (alone.attacked[k].correct[i] == 0) by = static_cast<int>(k) + 1;
    CHECK(result.images[i].broken_by == by);
    CHECK((result.images[i].prediction == set.labels[i]) == (by == SequenceResult::kRobust));
    CHECK(((result.images[i].distance > 0) == (by > 0) && result.images[i].distance <= kEps + 1e-6));
    CHECK(((result.images[i].run > 0) == (by > 0) && result.images[i].run <= 2));
    if (by >= 0) ++broken[static_cast<std::size_t>(by)];
  }
  std::int64_t left = kImages;
  for (std::size_t k = 0; k < 4; ++k) {
    CHECK((result.rows[k].images == left && result.rows[k].broken == broken[k]));
    left -= broken[k];
    CHECK(result.rows[k].accuracy == static_cast<double>(left) / kImages);
  }
}

TEST_CASE("A sequence goes on wherever it was stopped, also on other ranks and in other batches", "[sequence]") {
  const Given set = labelled();
  Case whole(single(), set, kWords, 2 * kPass);
  const SequenceResult reference = whole.run();
  CHECK(whole.entries.size() > 20);
  constexpr int kFirst = 2 * kPass;
  CHECK(told(whole.progress.front()) ==
        std::tuple("clean", 1, 1, kFirst, kImages, kImages - (kFirst + 4) / 9, static_cast<double>(kFirst) / kImages));
  const std::int64_t last = whole.progress.back().images, right = std::llround(reference.accuracy() * kImages);
  CHECK(told(whole.progress.back()) == std::tuple("pgd6x2", 2, 2, last, last, right, 1.0));
  int ended = 0;
  for (std::size_t i = 0; i < whole.progress.size(); ++i) {
    const SequenceEvaluator::Progress& now = whole.progress[i];
    ended += now.part == 1 ? 1 : 0;
    if (i > 0 && now.attack == whole.progress[i - 1].attack) CHECK(now.part > whole.progress[i - 1].part);
  }
  CHECK(ended == 4);
  const std::size_t groups = whole.entries.size();
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, groups / 3, groups - 1, groups}) {
    Case rest(world(), set, kWords, 3 * kPass);
    check_equal(rest.run({whole.entries.begin(), whole.entries.begin() + static_cast<std::ptrdiff_t>(count)}),
                reference);
    // What was found is not done again.
    const auto items = [](const std::vector<JournalEntry>& entries, std::size_t first) {
      std::int64_t sum = 0;
      for (std::size_t i = first; i < entries.size(); ++i) {
        CHECK(entries[i].images.size() == entries[i].outcomes.size());
        sum += std::ssize(entries[i].images);
      }
      return sum;
    };
    CHECK(items(rest.entries, 0) == (world().root() ? items(whole.entries, count) : 0));
    if (!rest.progress.empty()) CHECK(told(rest.progress.back()) == told(whole.progress.back()));
  }
}

TEST_CASE("A sequence refuses a journal that cannot be its own, and logits that are not finite", "[sequence]") {
  const Given set = labelled();
  const auto code_with = [&](std::vector<JournalEntry> found, bool damage) {
    Case sequence(world(), set, kWords, kPass);
    if (damage) {
      auto& parameters = sequence.replica.model().parameters;
      const float nan = std::numeric_limits<float>::quiet_NaN();
      // Of the last tensor: a ReLU may make 0 of what is not a number.
      float* const bias = parameters.values + parameters.segments.back().begin;
      sequence.replica.backend().copy_to_device(bias, &nan, sizeof nan);
      ++parameters.version;
    }
    return dat::code_of([&] { (void)sequence.run(std::move(found)); });
  };
  const auto entry = [](int stage, std::int64_t image, int prediction = 0) {
    return JournalEntry{.stage = stage, .images = {image}, .outcomes = {{.prediction = prediction}}};
  };
  CHECK((code_with({}, false) == ExitCode::done && code_with({}, true) == ExitCode::numerical));
  CHECK(code_with({entry(1, 0)}, false) == ExitCode::data);               // attacked before it was looked at
  CHECK(code_with({entry(0, kImages)}, false) == ExitCode::data);         // there is no such image
  CHECK(code_with({entry(0, 0), entry(0, 0)}, false) == ExitCode::data);  // done twice
  CHECK(code_with({entry(100, 0)}, false) == ExitCode::data);             // there is no such run
  CHECK(code_with({entry(0, 0, 1000)}, false) == ExitCode::data);         // there is no such class
}

TEST_CASE("Images that are right, and at which a loss has no gradient, are counted by each attack", "[sequence]") {
  Given set(5);
  set.labels[3] = 1;  // the only one that is wrong: the network says 0 of any image
  Case sequence(world(), set, "apgd-ce+apgd-dlr+pgd2", kPass);
  auto& parameters = sequence.replica.model().parameters;
  for (const Segment& one : parameters.segments) {
    if (!one.name.starts_with("linear.")) continue;
    std::vector<float> values(static_cast<std::size_t>(one.size), 0.0F);
    if (one.name == "linear.bias") values[0] = 1;
    sequence.replica.backend().copy_to_device(parameters.values + one.begin, values.data(),
                                              values.size() * sizeof(float));
  }
  ++parameters.version;
  std::vector<std::int64_t> found;
  const SequenceResult result = sequence.run();
  for (const SequenceResult::Row& row : result.rows) found.push_back(row.zero_gradients);
  CHECK(found == std::vector<std::int64_t>{4, 0, 4, 0});
  // What it puts out, the same in each pass, adds up to 1.
  std::vector<std::int32_t> labels;
  const auto passes = sequence.evaluator.logits_of_first(labels);
  CHECK((passes.size() == 5 && labels == std::vector{0, 0, 0, 1} && network_warnings(passes, labels).size() == 1));
  // Whoever reads the report is warned.
  SequenceRun run(read_attack_sequence("none+fgsm"), {.eps = kEps}, 10);
  run.plan(world(), set, sequence.replica);
  const SequenceResult again = run.run();
  if (!world().root()) return;
  EvaluationSubject subject;
  subject.classes.count = 10;
  EvaluationResult clean;
  clean.clean.loss = clean.clean.correct = clean.clean.prediction = std::vector<double>(5);
  const TemporaryFolder folder;
  EvaluationReport(subject, set, EvaluationAttacks(EvaluationOptions{}), clean, &run, &again)
      .write(folder / "eval.json", "{}");
  CHECK(contains(read_bytes(folder / "eval.json"), "the network puts out probabilities"));
}
