#include "batch/attacker.hpp"
#include "batch/view/training.hpp"
#include "catch.hpp"
#include "dat/recordings.hpp"
#include "datasets.hpp"
#include "device.hpp"
#include "random_values.hpp"

using namespace dat;

namespace {

constexpr int kSize = 5, kClasses = 7;

/// `count` grey images of one level each, in so many micro-batches.
[[nodiscard]] HostBatch levels(int count, int micro_batches) {
  HostBatch batch;
  batch.count = count;
  batch.micro_batches = micro_batches;
  batch.key = {.seed = 3, .epoch = 2, .step = 11};
  batch.make_room(count, 3 * kSize * kSize);
  for (int k = 0; k < count; ++k) {
    const auto at = static_cast<std::size_t>(k);
    std::fill_n(batch.pixels.begin() + k * 3 * kSize * kSize, 3 * kSize * kSize, static_cast<std::uint8_t>(51 * k));
    batch.labels[at] = k % kClasses;
    batch.ids[at] = 100 + k;
  }
  return batch;
}

/// Programs of which a test needs one.
struct One final : Programs {
  [[nodiscard]] FrozenView& attacked() override { std::abort(); }
  [[nodiscard]] TrainingProgram& training(int) override { return *program; }
  [[nodiscard]] const Model& model() const override { std::abort(); }
  std::unique_ptr<TrainingProgram> program;
};

[[nodiscard]] Buffers buffers_of(Backend& backend) {
  return {backend, {.size = kSize, .channels = 3, .classes = kClasses, .class_names = {}}, 3};
}

}  // namespace

TEST_CASE("a micro-batch is known by its number in what was read, and where it stands in the step", "[batch]") {
  const auto backend = test::test_backend();
  Buffers buffers = buffers_of(*backend);
  HostBatch read = levels(5, 5);
  read.elsewhere = 4;
  for (const bool dealt : {false, true}) {
    read.dealt = dealt;
    for (int index = 0; index < 5; ++index) {
      const Batch& batch = buffers.load(read, index, nullptr);
      CHECK((batch.n == 1 && batch.begins_at == index && batch.in_step == 5 && batch.key.step == 11));
      CHECK(batch.key.unit == (dealt ? index : 0));
      CHECK(batch.averaged() == (dealt ? 9 : 5));
      CHECK((batch.place().unit == batch.key.unit && batch.place().first == batch.begins_unit()));
      CHECK(batch.place().share == 1.0F / (dealt ? 9 : 5));
      CHECK((batch.begins_unit() == (dealt || index == 0) && batch.ends_step() == (index == 4)));
      CHECK(test::to_host(*backend, batch.clean, 1)[0] == Approx(0.2 * index));
      CHECK((batch.alone().begins_unit() && batch.alone().place().unit == 0));
      CHECK(batch.alone().share() == batch.share());
    }
  }
}

TEST_CASE("what somebody has changed of a micro-batch is nothing to the next one", "[batch]") {
  const auto backend = test::test_backend();
  Buffers buffers = buffers_of(*backend);
  const HostBatch read = levels(3, 1);
  const Batch before = buffers.load(read, 0, nullptr);
  Batch& batch = buffers.batch();
  batch.x_adv = batch.clean;
  batch.labels = nullptr;
  batch.whole = true;
  const Batch& after = buffers.load(read, 0, nullptr);
  CHECK((after.x_adv == before.x_adv && after.labels == before.labels && !after.whole));
}

TEST_CASE("pixels that lie on the device are those of the batch's samples, and are not read", "[batch]") {
  const auto backend = test::test_backend();
  Buffers buffers = buffers_of(*backend);
  One none;
  const AttackPlan plan;
  Attacker attacker(buffers, none, plan, nullptr);
  HostBatch read = levels(3, 3);
  CHECK(attacker.reads_pixels());
  attacker.keep_on_device(test::to_device(*backend, levels(5, 1).pixels));
  CHECK(!attacker.reads_pixels());
  read.ids[1] = 4;
  CHECK(test::to_host(*backend, attacker.load(read, 1).clean, 1)[0] == Approx(0.8));
}

TEST_CASE("a set is put on the device whole, in pieces; where nobody has said so, not by a CPU or one that is decoded",
          "[batch][backend]") {
  /// Images of two bytes, their number.
  class Numbers final : public Dataset {
   public:
    [[nodiscard]] const DatasetInfo& info() const override { return info_; }
    [[nodiscard]] std::int64_t size() const override { return count; }
    [[nodiscard]] int label(std::int64_t) const override { return 0; }
    void read(std::int64_t index, std::uint8_t* pixels) const override {
      pixels[0] = static_cast<std::uint8_t>(index);
      pixels[1] = static_cast<std::uint8_t>(index >> 8);
    }
    std::int64_t count = 2 * 4096 + 3;
    DatasetInfo info_{1, 2, 2, {}};
  } numbers;
  const auto backend = test::test_backend();
  const auto all = test::to_host(*backend, put_on_device(*backend, numbers), 2 * numbers.size());
  std::int64_t wrong = 0;
  for (std::size_t k = 0; k < all.size(); k += 2) wrong += static_cast<std::size_t>(all[k] + 256 * all[k + 1]) != k / 2;
  CHECK(wrong == 0);
  for (const bool decoded : {false, true}) {
    numbers.info_.decoded = decoded;
    CHECK(fits_on_device(*backend, numbers, "on"));
    CHECK(!fits_on_device(*backend, numbers, "off"));
    if (decoded || test::test_device() == "cpu") CHECK(!fits_on_device(*backend, numbers, "auto"));
  }
  // Half of what there is to spare.
  numbers.info_.decoded = false;
  numbers.count = static_cast<std::int64_t>(backend->spare_memory() / 4);
  CHECK(fits_on_device(*backend, numbers, "auto"));
  ++numbers.count;
  CHECK(!fits_on_device(*backend, numbers, "auto"));
}

TEST_CASE("an attack keeps of its start what its goal says", "[batch]") {
  struct Taking final : View {
    void prepare(const AttackGoal& goal) override { take(goal); }
    void gradient() override {}
  };
  float images = 0, logits = 0;
  for (const StartKept kept : {StartKept::nothing, StartKept::images, StartKept::logits}) {
    Taking view;
    view.start = view.first_images = &images;
    view.first_logits = &logits;
    view.n = 3;
    view.prepare({.loss = margin, .spread = 0.5F, .kept = kept});
    CHECK((view.loss == margin && view.spread == 0.5F && view.start == nullptr && view.live() == 3));
    CHECK((view.first_images != nullptr) == (kept == StartKept::images));
    CHECK((view.first_logits != nullptr) == (kept == StartKept::logits));
  }
}

TEST_CASE("in training mode gradients in f16 are of a mean of losses, others of their sum", "[batch][backend]") {
  struct Deaf final : StatisticsSink {
    void add(const TrainingProgram&, int, const BatchPlace&) override {}
  } deaf;
  const auto backend = test::test_backend();
  Model model(*backend, networks().at("small_cnn")({.width = 16, .size = 8, .channels = 3, .classes = kClasses}),
              Granularity::tensor);
  Buffers buffers = buffers_of(*backend);
  buffers.load(levels(3, 1), 0, nullptr);
  One one;
  for (const DType storage : {DType::f32, DType::f16}) {
    if (!backend->refuses(storage).empty()) continue;
    one.program = std::make_unique<TrainingProgram>(model, 3, nullptr, storage);
    TrainingView view(buffers, one, deaf);
    view.prepare({.loss = margin});
    CHECK(view.scale == (storage == DType::f16 ? 1.0F / 3 : 1.0F));
    CHECK((view.losses != nullptr && view.correct != nullptr));
  }
}

TEST_CASE("what two need is what either needs", "[batch]") {
  constexpr bool Needs::*flags[] = {&Needs::early_stop, &Needs::clean_logits, &Needs::start_images,
                                    &Needs::start_logits, &Needs::clean_passes};
  const Needs less{.scratch_images = 1};
  for (const auto flag : flags) {
    Needs more{.scratch_images = 2};
    more.*flag = true;
    for (const Needs& both : {less | more, more | less, more | more}) {
      CHECK(both.scratch_images == 2);
      for (const auto other : flags) CHECK(both.*other == (other == flag));
    }
  }
}

TEST_CASE("work is called, recorded and replayed, for each of the last 64 keys", "[batch][cpu]") {
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  Recordings<int> recordings(*backend);
  std::string done;
  const auto play = [&](int key, char name) { recordings.play(key, [&done, name] { done += name; }); };
  const std::uint64_t before = ticks;
  ticking = true;
  for (const auto& [key, name] : {std::pair(1, 'a'), {1, 'b'}, {1, 'c'}, {2, 'd'}, {2, 'e'}, {1, 'f'}}) play(key, name);
  ticking = false;
  CHECK(ticks == before + 4);  // replays
  CHECK(done == "abbdeb");
  for (int key = 3; key <= 64; ++key) play(key, '.');
  done.clear();
  play(1, 'g');
  play(65, 'h');  // in place of the first
  play(1, 'i');
  CHECK(done == "bhi");
}

TEST_CASE("of the attacks of a training the longest counts, and in an epoch the last that has begun", "[batch]") {
  AttackPlan plan;
  for (const auto& [name, steps] : {std::pair("none", 0), std::pair("pgd", 5), std::pair("pgd", 3)}) {
    plan.add().attack = attacks().at(name)({.steps = steps});
    CHECK(plan.most_gradients() == (plan.all().size() == 1 ? 0 : 5));
  }
  AttackPlan parts;
  for (const int from : {0, 2, 5}) parts.add().from = from;
  for (const auto& [epoch, from] : {std::pair{0, 0}, {1, 0}, {2, 2}, {4, 2}, {5, 5}, {99, 5}})
    CHECK(parts.in_epoch(epoch).from == from);
  CHECK(parts.last().from == 5);
}
