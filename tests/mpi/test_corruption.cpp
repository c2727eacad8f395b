#include "catch.hpp"
#include "dat/random.hpp"
#include "datasets.hpp"
#include "small_run.hpp"
#include "train/trainer.hpp"
#include "world.hpp"

using namespace dat;
using test::world;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

/// The suite does a few of what nightly.sh does many times.
[[nodiscard]] int count_of(const char* name, int few) {
  const char* const many = std::getenv(name);
  return many != nullptr ? std::atoi(many) : few;
}

[[nodiscard]] TrainOptions options_of() {
  TrainOptions options = test::small_run();
  options.threads = 1;
  options.batch = 4;
  options.attack = "none";
  options.lambda = 0;
  options.lr = 1e-3;
  options.bias_correction = true;
  options.budget = 5;
  options.limit_train = 24 * world().size();
  options.limit_test = 4;
  options.epochs = 1000000;
  options.milestones = {};
  options.on_corruption = "repair";
  return options;
}

/// Random words that every rank has alike.
[[nodiscard]] std::uint32_t drawn(int trial, int what) {
  return random_words(11, Purpose::synthetic_data, static_cast<std::uint32_t>(trial), 0,
                      static_cast<std::uint32_t>(what))
      .v[0];
}

/// Flips one bit, as hardware would; a bit below 0: none. Lists the arrays.
class Flip final : public ReplicatedState {
 public:
  Flip(Backend& backend, int array, std::uint32_t word, int bit)
      : backend_(backend), array_(array), word_(word), bit_(bit) {}
  void device(const std::string& name, float* data, std::int64_t count) override {
    float* const at = data + word_ % static_cast<std::uint32_t>(count);
    if (!mine(name)) return;
    std::uint32_t value = 0;
    backend_.copy_to_host(&value, at, sizeof value);
    value ^= 1U << bit_;
    backend_.copy_to_device(at, &value, sizeof value);
  }
  void host(const std::string& name, void* data, std::size_t bytes) override {
    char* const at = static_cast<char*>(data) + 4 * (word_ % static_cast<std::uint32_t>(bytes / 4));
    if (!mine(name)) return;
    std::uint32_t value = 0;
    std::memcpy(&value, at, sizeof value);
    value ^= 1U << bit_;
    std::memcpy(at, &value, sizeof value);
  }
  [[nodiscard]] bool writes() const override { return bit_ >= 0; }
  std::vector<std::string> names;

 private:
  [[nodiscard]] bool mine(const std::string& name) {
    names.push_back(name);
    return bit_ >= 0 && std::ssize(names) == array_ + 1;
  }
  Backend& backend_;
  int array_;
  std::uint32_t word_;
  int bit_;
};

[[nodiscard]] std::vector<std::string> names_of(Trainer& trainer) {
  Flip list(trainer.replica().backend(), -1, 0, -1);
  trainer.replicated(list);
  return list.names;
}

/// All of a rank's replicated state, as it lies there.
class Bytes final : public ReplicatedState {
 public:
  explicit Bytes(Backend& backend) : backend_(backend) {}
  void device(const std::string&, float* data, std::int64_t count) override {
    std::vector<float> values = test::to_host(backend_, data, count);
    host("", values.data(), values.size() * sizeof(float));
  }
  void host(const std::string&, void* data, std::size_t bytes) override {
    const auto* const from = static_cast<const char*>(data);
    all.insert(all.end(), from, from + bytes);
  }
  std::vector<char> all;

 private:
  Backend& backend_;
};

/// Compares byte by byte, with no hash.
[[nodiscard]] bool same_on_all_ranks(Trainer& trainer) {
  Bytes mine(trainer.replica().backend());
  const auto version = trainer.replica().model().parameters.version;
  trainer.replicated(mine);
  CHECK(trainer.replica().model().parameters.version == version);  // who looks changes nothing
  std::vector<char> all(mine.all.size() * static_cast<std::size_t>(world().size()));
  world().all_gather(mine.all.data(), all.data(), mine.all.size());
  bool same = true;
  for (std::size_t at = 0; at < all.size(); at += mine.all.size())
    same &= std::equal(mine.all.begin(), mine.all.end(), all.begin() + static_cast<std::ptrdiff_t>(at));
  std::int64_t differ = same ? 0 : 1;
  world().sum(&differ, 1);
  return differ == 0;
}

[[nodiscard]] std::string hash_after(const TrainOptions& options, int steps) {
  test::Started trainer(world(), options, steps);
  CHECK(trainer.take_corruptions().empty());
  return trainer.weights_hash();
}

}  // namespace

TEST_CASE("A flipped bit is found by the next check, blamed on its rank and array, and repaired", "[corruption]") {
  if (world().size() < 3) return;
  test::Started trainer(world(), options_of());
  const std::vector<std::string> names = names_of(trainer);
  const int flips = count_of("DAT_FLIPS", 60);
  int found = 0, blamed = 0, wrong = 0;
  for (int trial = 0; trial < flips; ++trial) {
    (void)trainer.step(false);
    const auto rank = static_cast<int>(drawn(trial, 0) % static_cast<std::uint32_t>(world().size()));
    const auto array = static_cast<int>(drawn(trial, 1) % names.size());
    if (world().rank() == rank) {
      Flip flip(trainer.replica().backend(), array, drawn(trial, 2), static_cast<int>(drawn(trial, 3) % 32));
      trainer.replicated(flip);
    }
    trainer.check_replicas();
    const std::vector<CorruptionRecord> records = trainer.take_corruptions();
    found += !records.empty();
    blamed +=
        records.size() == 1 && records[0].rank == rank && records[0].what == names[static_cast<std::size_t>(array)];
    wrong += records.size() == 1 && records[0].step != trial + 1;
    if (world().root() && records.size() == 1) {
      const std::string source = "rank " + std::to_string(rank == 0 ? 1 : 0), when = std::to_string(trial + 1);
      wrong += records[0].done != "copied from " + source;
      wrong += records[0].text != "silent corruption: after step " + when + ", rank " + std::to_string(rank) + " on " +
                                      host_name() + " held other " + records[0].what + " than most of the " +
                                      std::to_string(world().size()) + " ranks; it has got those of " + source;
    }
    if (trial % 10 == 0) wrong += !same_on_all_ranks(trainer);
  }
  CHECK(found == flips);
  CHECK(blamed == flips);
  CHECK(wrong == 0);
  // What has been repaired is what would have been: nothing came between the flip and the repair.
  TrainOptions plain = options_of();
  plain.on_corruption = "abort";
  if (flips <= 1000) CHECK(trainer.weights_hash() == hash_after(plain, flips));
}

TEST_CASE("A flip at any step is found by the next check unless its trace has gone", "[corruption]") {
  if (world().size() < 3) return;
  constexpr int kEvery = 5;
  const int flips = count_of("DAT_FLIPS", 20);
  int found = 0, gone = 0, spread = 0, wrong = 0;
  std::map<std::string, int> gone_of;
  std::unique_ptr<test::Started> trainer;
  for (int trial = 0; trial < flips; ++trial) {
    if (!trainer) trainer = std::make_unique<test::Started>(world(), options_of());
    const std::vector<std::string> names = names_of(*trainer);
    const auto rank = static_cast<int>(drawn(trial, 4) % static_cast<std::uint32_t>(world().size()));
    const auto when = static_cast<int>(drawn(trial, 5) % kEvery);
    const auto array = static_cast<int>(drawn(trial, 6) % names.size());
    std::vector<CorruptionRecord> records;
    try {
      for (int step = 0; step < kEvery; ++step) {
        (void)trainer->step(false);
        if (step == when && world().rank() == rank) {
          Flip flip(trainer->replica().backend(), array, drawn(trial, 7), static_cast<int>(drawn(trial, 8) % 32));
          trainer->replicated(flip);
        }
      }
      trainer->check_replicas();
    } catch (const Error& error) {
      // A gradient that is not finite has made all ranks so, alike, before the check.
      wrong += error.code() != ExitCode::numerical;
      ++spread;
      trainer.reset();
      continue;
    }
    records = trainer->take_corruptions();
    // The same with a loss that a ReLU has kept finite.
    if (records.empty() &&
        !std::ranges::all_of(test::weights_of(*trainer), [](float weight) { return std::isfinite(weight); })) {
      ++spread;
      trainer.reset();
      continue;
    }
    found += !records.empty();
    gone += records.empty();
    if (records.empty()) ++gone_of[names[static_cast<std::size_t>(array)]];
    wrong += !std::all_of(records.begin(), records.end(), [&](const CorruptionRecord& r) { return r.rank == rank; });
    wrong += !same_on_all_ranks(*trainer);
  }
  CHECK(wrong == 0);
  if (world().root() && flips > 20) {
    std::printf("flips: %d; found and blamed rightly %d; gone by the check %d; not finite on all ranks %d\n", flips,
                found, gone, spread);
    for (const auto& [name, count] : gone_of) std::printf("  gone: %d of %s\n", count, name.c_str());
  }
  CHECK(found > flips / 3);
}

TEST_CASE("Steps without a fault raise no alarm", "[corruption]") {
  TrainOptions options = options_of();
  options.on_corruption = "abort";
  options.verify = 7;
  test::Started trainer(world(), options);
  const int steps = count_of("DAT_CLEAN_STEPS", test::test_device() == "cpu" ? 300 : 10);
  int alarms = 0;
  for (int k = 0; k < steps; ++k) {
    (void)trainer.step(false);
    if (k % 2 == 0) trainer.check_replicas();
    alarms += !trainer.take_corruptions().empty();
  }
  CHECK(alarms == 0);
}

TEST_CASE("Corruption that is not to be repaired ends the run with code 8 and names rank, host and array",
          "[corruption]") {
  if (world().size() == 1) return;
  TrainOptions options = options_of();
  for (const std::string action : {"abort", "repair"}) {
    options.on_corruption = action;
    test::Started trainer(world(), options);
    (void)trainer.step(false);
    if (world().rank() == 1) {
      Flip flip(trainer.replica().backend(), 0, 5, 0);
      trainer.replicated(flip);
    }
    const std::string text = message_of([&] { trainer.check_replicas(); }, ExitCode::integrity);
    INFO(text);
    if (world().size() > 2 && action == "repair") {
      CHECK(text.empty());
      CHECK(same_on_all_ranks(trainer));
      continue;
    }
    CHECK(contains(text, "after step 1, "));
    if (!world().root()) continue;
    const std::string here = " on " + host_name(), all = std::to_string(world().size());
    CHECK(text.starts_with(
        "silent corruption: after step 1, rank " +
        (world().size() == 2
             ? "0" + here + " and rank 1" + here + " hold different weights, and no majority says whose are wrong; "
             : "1" + here + " holds other weights than most of the " + all + " ranks; ")));
  }
}

TEST_CASE("A number that a flip has made huge is blamed on its rank, not on the learning rate", "[corruption]") {
  if (world().size() < 3) return;
  TrainOptions options = options_of();
  for (const bool checked : {false, true}) {
    options.check_every = checked ? 1 : 0;
    test::Started trainer(world(), options);
    (void)trainer.step(false);
    const std::string before = trainer.weights_hash();
    // Not a number: the weights of one rank, and so the loss of all.
    if (world().rank() == 2) {
      const Parameters& p = trainer.model().parameters;
      const float huge = std::numeric_limits<float>::quiet_NaN();
      trainer.replica().backend().copy_to_device(p.values + p.size - 1, &huge, sizeof huge);  // the bias of a logit
    }
    CHECK(code_of([&] { (void)trainer.step(false); }) == (checked ? ExitCode::done : ExitCode::numerical));
    const std::vector<CorruptionRecord> records = trainer.take_corruptions();
    CHECK(records.size() == (checked ? 1 : 0));
    for (const CorruptionRecord& record : records) CHECK((record.rank == 2 && record.what == "weights"));
    CHECK(same_on_all_ranks(trainer) == checked);
    if (checked) CHECK(trainer.weights_hash() == before);
  }
}

namespace {

/// Epochs of three steps, the last one of shorter micro-batches.
[[nodiscard]] TrainOptions verified(const std::string& attack) {
  TrainOptions options = options_of();
  options.attack = attack;
  options.attack_bn = attack == "fgsm" ? "train" : "eval";
  options.attack_steps = 2;
  options.batch = 8;
  options.micro_batch = 4;
  options.limit_train = 20 * world().size();
  options.lambda = 1;
  options.on_corruption = "abort";
  options.epochs = 4;
  return options;
}

}  // namespace

TEST_CASE("A run whose micro-batches are recomputed has the bits of one without", "[corruption]") {
  for (const std::string attack : {"none", "pgd", "fgsm", "early stop", "mean of each rank", "codec"}) {
    TrainOptions options = verified(attack == "none" || attack == "fgsm" ? attack : "pgd");
    if (attack == "early stop") options.attack_stop = 0;
    options.deterministic = attack != "mean of each rank";
    // There, algorithms are chosen by timing: two runs differ in any case.
    if (!options.deterministic && test::test_device() != "cpu") continue;
    if (attack == "codec") {
      options.codec = "int8";
      options.overlap = true;
      options.bucket = 700;
    }
    const std::string without = hash_after(options, 7);
    options.verify = 1;
    INFO(attack);
    CHECK(hash_after(options, 7) == without);
  }
}

TEST_CASE("Ranks with other numbers of threads agree within the tolerance", "[corruption][cpu]") {
  if (test::test_device() != "cpu") return;
  TrainOptions options = verified("pgd");
  options.deterministic = false;
  options.threads = world().rank() == 0 ? 2 : 1;
  options.verify = 1;
  CHECK(!hash_after(options, 6).empty());
}

TEST_CASE("A rank that attacks otherwise than it says is found by the others", "[corruption]") {
  if (world().size() == 1) return;
  for (const bool deterministic : {true, false}) {
    constexpr int kGuilty = 1;
    TrainOptions options = verified("pgd");
    options.deterministic = deterministic;
    options.on_corruption = "repair";
    options.verify = deterministic ? 3 : 2;
    options.epochs = 100;
    if (world().rank() == kGuilty) options.attack_steps = 1;
    test::Started trainer(world(), options);
    int involved = 0, by_guilty = 0, wrong = 0;
    for (std::int64_t step = 0; step < 12 || by_guilty == 0; ++step) {
      const std::string before = trainer.weights_hash();
      (void)trainer.step(false);
      const std::vector<CorruptionRecord> records = trainer.take_corruptions();
      const VerificationPlan chosen = verification_of(options.seed, step, trainer.plan());
      const bool concerned =
          (step + 1) % options.verify == 0 && (chosen.of.rank == kGuilty || chosen.verifier == kGuilty);
      involved += concerned;
      by_guilty += concerned && chosen.verifier == kGuilty;
      wrong += records.size() != (concerned ? 1U : 0U);
      const bool left_out = concerned && (world().size() == 2 || chosen.of.rank == kGuilty);
      wrong += (trainer.weights_hash() == before) != left_out;
      if (records.size() != 1) continue;
      wrong += records[0].rank != (world().size() == 2 ? -1 : kGuilty) || records[0].step != step + 1;
      const std::string what = "micro-batch " + std::to_string(chosen.of.index);
      wrong += !contains(records[0].text, what);
      const int right = chosen.of.rank == kGuilty ? chosen.verifier : chosen.of.rank;
      wrong += !records[0].text.ends_with(world().size() == 2 ? "; a third rank could tell which of them is wrong"
                                                              : "rank " + std::to_string(right) + ": rank 1 is wrong");
      wrong += records[0].what != "gradient of " + what + " of rank " + std::to_string(chosen.of.rank);
      wrong += records[0].done != (left_out ? "the step was left out" : "the recomputation was wrong");
    }
    INFO(deterministic);
    CHECK(involved > 0);
    CHECK(wrong == 0);
    trainer.check_replicas();
    CHECK(trainer.take_corruptions().empty());

    options.on_corruption = "abort";
    options.verify = 1;
    test::Started ends(world(), options);
    const std::string text = message_of(
        [&] {
          for (int step = 0; step < 12; ++step) (void)ends.step(false);
        },
        ExitCode::integrity);
    INFO(text);
    CHECK(contains(text, "silent corruption: in step "));
    CHECK(contains(text, "tolerance"));
    CHECK(contains(text, "rank 1 is wrong") == (world().size() > 2));

    // Nobody is blamed where all differ in their bits, or there is no third rank.
    if (!deterministic) continue;
    options.attack_steps = 1 + world().rank();
    while (world().size() > 2 && verification_of(options.seed, 0, ends.plan()).third != 0) ++options.seed;
    test::Started differ(world(), options);
    const std::string undecided = message_of([&] { (void)differ.step(false); }, ExitCode::integrity);
    INFO(undecided);
    CHECK(contains(undecided,
                   world().size() == 2 ? "; a third rank could tell which of them is wrong" : "; nor does rank "));
  }
}

TEST_CASE("What a recomputation sends is counted, and what perturbed weights and warm starts take", "[corruption]") {
  for (const std::string kind : {"recomputed", "perturbed", "warm"}) {
    TrainOptions options = verified("pgd");
    options.node_sums = "mpi";
    options.verify = kind == "recomputed" ? 2 : 0;
    options.awp_gamma = kind == "perturbed" ? 0.01 : 0;
    options.warm_start = kind == "warm" ? 2 : 0;
    options.batch = kind == "warm" ? 0 : 8;  // dealt unevenly: some ranks help others
    options.total_batch = kind == "warm" ? 4 * (2 * world().size() - 1) : 0;
    test::Started trainer(world(), options);
    std::int64_t counted = 0;
    const std::int64_t before = world().bytes_given();
    for (int step = 0; step < 3; ++step) {
      const StepRecord& record = trainer.step(false);
      counted += record.bytes_sent + record.bytes_other;
      if (kind != "warm") CHECK(world().bytes_given() - before == counted);
    }
    // Perturbations come home with what comes next: a checkpoint, to which rank 0 sends nothing else.
    Checkpoint checkpoint;
    trainer.examples().save(checkpoint);
    if (world().root()) CHECK(world().bytes_given() - before == counted);
  }
}

TEST_CASE("What a codec or an average has in common on all ranks is compared, and not what each rank has for itself",
          "[corruption]") {
  TrainOptions options = options_of();
  options.codec = "powersgd";
  options.average = "ema";
  for (const std::string statistics : {"raw", "ema", "rebuild"}) {
    options.average_bn = statistics;
    Trainer trainer(world(), options);
    std::string all;
    for (const std::string& name : names_of(trainer)) all += name + "; ";
    CHECK((contains(all, "codec state powersgd_q; ") && !contains(all, "powersgd_error")));
    CHECK(contains(all, "averaged running statistics; ") == (statistics == "ema"));
    CHECK(contains(all, "skipped steps in a row; rollbacks; factor of the learning rate; "));
  }
}

TEST_CASE("Images that wait on the device are not read again, for what is done once more either", "[corruption]") {
  struct Counted final : test::Wrapped {
    using Wrapped::Wrapped;
    void read(std::int64_t index, std::uint8_t* pixels) const override {
      ++reads;
      Wrapped::read(index, pixels);
    }
    mutable std::atomic<std::int64_t> reads = 0;
  };
  if (world().size() == 1) return;
  for (const bool byzantine : {false, true}) {
    TrainOptions options = verified("pgd");
    options.resident = "on";
    options.verify = byzantine ? 0 : 1;
    options.byzantine = byzantine;
    options.aggregator = byzantine ? "centered_clip" : "mean";
    options.faults = 0;
    Splits splits = open_splits(options);
    auto counted = std::make_unique<Counted>(std::move(splits.train));
    const Counted& train = *counted;
    splits.train = std::move(counted);
    Trainer trainer(world(), options, std::move(splits));
    trainer.share_state();
    trainer.start();
    for (int step = 0; step < 3; ++step) (void)trainer.step(false);
    INFO(byzantine);
    CHECK(train.reads == train.size());
  }
}
