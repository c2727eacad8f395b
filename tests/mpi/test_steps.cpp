// Laws of a training, whatever it trains with: a steady step allocates nothing, a checkpoint takes what is foreseen,
// and a run that goes on from one has the bits of one that was not interrupted. A row for each way to train.

#include "allocations.hpp"
#include "catch.hpp"
#include "options/train/table.hpp"
#include "small_run.hpp"
#include "train/trainer.hpp"
#include "world.hpp"

using namespace dat;
using test::world;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

/// Whether a law is about one rank, or about what several do together.
enum class Of : std::uint8_t { one, several };

struct Row {
  Of of;
  std::string words;  ///< options as the command line has them, without dashes, beside those of small_run()
  int first = 4;      ///< steps after which all sizes of batches and images have come
};

void set(TrainOptions& options, const std::string& words) {
  Bound bound(train_table(), options);
  std::istringstream all(words);
  for (std::string word; all >> word;) {
    const std::size_t at = word.find('=');
    const std::string name = word.substr(0, at);
    const OptionRow* const row = train_table().find(name);
    if (row == nullptr) throw Error(ExitCode::usage, "no option is called " + name);
    bound.take(*row, {Value{at == std::string::npos ? "true" : word.substr(at + 1)}}, name);
  }
}

[[nodiscard]] TrainOptions options_of(const std::string& words) {
  TrainOptions options = test::small_run();
  options.threads = 1;
  options.limit_test = 8;
  options.max_steps = 0;
  set(options, words);
  return options;
}

/// Rows that say more at this number of ranks: of one rank alone, or of several on several.
[[nodiscard]] bool runs(const Row& row) { return (row.of == Of::one) == (world().size() == 1); }

/// Epochs of four steps, of which the last is smaller.
[[nodiscard]] std::string parts_of_batches() {
  return "batch=8 micro-batch=4 limit-train=" + std::to_string(28 * world().size()) + " epochs=2 attack-steps=3";
}

}  // namespace

TEST_CASE("A steady step allocates nothing, whatever it trains with", "[steps][cpu]") {
  if (test::test_device() != "cpu") return;            // the double of CUDA's libraries allocates
  const std::string few = "limit-train=64 epochs=4 ";  // of 4 steps: there are resets on the way
  const std::string layers = "budget=4 budget-unit=bytes clip-norm=0.5 epochs=4 ";
  const std::string sparse = "budget=3 batch=4 attack=none epochs=4 bucket=700 mask=per_worker:transport=";
  const std::string robust = "budget=4 optimizer=sgd aggregator=centered_clip:mixing epochs=4 ";
  const std::vector<Row> rows = {
      {Of::one, few + "lambda=0"},
      {Of::one, few + "lambda=1 attack-stop=0 micro-batch=8 warm-start=1"},
      {Of::one, few + "lambda=0 attack-stop=0"},
      {Of::one, few + "lambda=1 attack=fgsm warm-start=1"},
      {Of::one, few + "lambda=0 attack=fgsm micro-batch=8"},
      {Of::one, few + "lambda=1 warm-start=1 micro-batch=8"},
      {Of::one, few + "train-size=8,16@1,8@2,auto@3", 8},
      {Of::one, layers + "optimizer=lamb:bias_correction selector=exp3 average=ema:bn=ema"},
      {Of::one, layers + "optimizer=lars selector=oracle mask=per_worker"},
      {Of::one, layers + "optimizer=lars_sgd selector=freezeout"},
      {Of::one, layers + "optimizer=sgd:nesterov selector=uniform average=swa:bn=raw"},
      {Of::one, "loss=trades micro-batch=8 awp-gamma=0.01 awp=local deterministic=false"},
      {Of::one, "loss=kl micro-batch=16 awp-gamma=0.01"},
      {Of::one, "loss=mart micro-batch=8"},
      {Of::one, "loss=gat micro-batch=16 awp-gamma=0.01"},
      {Of::one, "loss=nuat:detach micro-batch=8"},
      {Of::one, "loss=pgi micro-batch=16"},
      {Of::one, few + "selector=all optimizer=sgd freeze=conv1 head-lr=0.5 average=ema:bn=ema"},
      {Of::one, few + "selector=exp3 budget=4 budget-unit=seconds optimizer=sgd freeze=conv1 head-lr=0.5"},
      {Of::several, sparse + "dense"},
      {Of::several, sparse + "union overlap"},
      {Of::several, sparse + "allgather overlap"},
      {Of::several, robust + "deterministic micro-batch=8"},
      {Of::several, robust + "deterministic=false overlap"},
      {Of::several, parts_of_batches() + " budget=4 optimizer=sgd stale-attack=1 overlap bucket=700"},
      {Of::several, "batch=8 micro-batch=4 limit-train=60 epochs=4 lambda=1 verify=1"}};
  for (const Row& row : rows) {
    if (!runs(row)) continue;
    INFO(row.words);
    test::Started trainer(world(), options_of(row.words), row.first);
    std::int64_t given = 0, recorded = 0;
    CHECK(allocations_in(3, [&] {
            const std::int64_t before = world().bytes_given();
            const StepRecord& record = trainer.step(false);
            given += world().bytes_given() - before;
            recorded += record.bytes_sent + record.bytes_other;
          }) == 0);
    // What is exchanged in a node's memory is not given to MPI.
    CHECK(given <= recorded);
  }
  // The counter does see this program's allocations.
  const std::int64_t earlier = allocations;
  const std::vector<float> one(1);
  CHECK(allocations == earlier + 1);
}

TEST_CASE("A checkpoint has as many bytes of arrays as are foreseen, and whoever takes it up has the same", "[steps]") {
  const std::string few = "limit-train=64 epochs=4 attack-bn=eval ";
  const std::vector<Row> rows = {
      {Of::one, few + "optimizer=lamb average=ema:bn=ema warm-start=2"},
      {Of::one, few + "optimizer=sgd average=swa:bn=raw stale-attack=1"},
      {Of::one, few + "optimizer=lars staleness=2"},
      {Of::several, "bucket=3000 epochs=4 attack=none lambda=0 batch=4 limit-train=64 codec=powersgd"},
      {Of::several, parts_of_batches() + " optimizer=sgd overlap bucket=700 stale-attack=1"},
      {Of::several, "batch=8 micro-batch=4 aggregator=centered_clip codec-transport=butterfly faults=0 byzantine"}};
  for (const Row& row : rows) {
    if (!runs(row)) continue;
    INFO(row.words);
    test::Started trainer(world(), options_of(row.words), 2);
    Checkpoint state = trainer.capture();
    std::int64_t bytes = std::ssize(state.bytes["perturbations"].values);
    for (const Checkpoint::Array& array : state.arrays) bytes += 4 * std::ssize(array.values);
    if (world().root()) CHECK(trainer.checkpoint_bytes(world().size()) == bytes);
    test::Resumed again(world(), options_of(row.words), state);
    std::vector<double> learned = trainer.layers().selector().state();  // by rank 0; taken up by all
    world().broadcast(learned.data(), learned.size() * sizeof learned[0]);
    CHECK(again.layers().selector().state() == learned);
    const Checkpoint found = again.capture();
    if (world().root())
      CHECK(std::ranges::equal(found.arrays, state.arrays, {}, &Checkpoint::Array::values, &Checkpoint::Array::values));
  }
}

namespace {

/// All of a state but the times.
[[nodiscard]] bool same(const Checkpoint& a, const Checkpoint& b) {
  const auto equal = [](const Checkpoint::Array& one, const Checkpoint::Array& other) {
    return one.name == other.name && one.values == other.values;
  };
  if (!std::equal(a.arrays.begin(), a.arrays.end(), b.arrays.begin(), b.arrays.end(), equal)) return false;
  auto numbers = a.doubles, others = b.doubles;
  numbers.erase("seconds");
  others.erase("seconds");
  if (numbers != others || a.integers != b.integers || a.texts != b.texts || a.bytes.size() != b.bytes.size())
    return false;
  return std::all_of(a.bytes.begin(), a.bytes.end(), [&](const auto& one) {
    const auto other = b.bytes.find(one.first);
    return other != b.bytes.end() && other->second.values == one.second.values;
  });
}

/// A row, and the steps after which a run is interrupted; it has as many in all as the options say.
struct Interrupted {
  Row row;
  std::vector<int> at;
};

}  // namespace

TEST_CASE("A run that goes on from a checkpoint has the bits of one that was not interrupted", "[steps]") {
  const std::string drawn = "limit-train=48 epochs=3 max-steps=9 budget=4 ";  // epochs of 3 steps
  const std::string warm = "micro-batch=8 limit-train=40 epochs=3 warmup-epochs=1 warm-start=3 attack=";
  const std::string frozen =
      "limit-train=48 epochs=2 lambda=0 selector=all optimizer=sgd weight-decay=0.1 freeze=conv1,none@1 "
      "average=ema:bn=rebuild attack-bn=train warmup-epochs=";
  const std::string grown = "limit-train=44 epochs=3 train-size=8,11@1,16@2 budget=5 average=ema:bn=";
  const std::string coded = "max-steps=7 bucket=3000 epochs=4 attack=none lambda=0 batch=4 limit-train=64 codec=";
  const std::string masks =
      "max-steps=9 epochs=4 budget=3 batch=4 attack=none optimizer=sgd lr=0.1 "
      "mask=per_worker:transport=allgather selector=";
  const std::string stale = parts_of_batches() + " budget=4 optimizer=sgd lr=0.1 overlap bucket=700 stale-attack=";
  const std::string robust =
      "max-steps=5 epochs=4 budget=4 optimizer=lamb:bias_correction average=ema:bn=ema batch=auto total-batch=40 "
      "micro-batch=8 aggregator=";
  std::vector<Interrupted> all = {
      {{Of::one, drawn + "optimizer=lamb selector=exp3 awp-gamma=0.01 average=ema:bn=ema"}, {5}},
      {{Of::one, drawn + "optimizer=lars selector=exp3 awp-gamma=0.01 budget-unit=bytes resample=3"}, {5}},
      {{Of::one, drawn + "optimizer=sgd selector=exp3 average=swa:bn=rebuild budget-unit=seconds "
                         "resample=epoch"},
       {5}},
      {{Of::one, drawn + "optimizer=lars_sgd selector=oracle loss=trades resample=epoch"}, {5}},
      {{Of::one, drawn + "optimizer=lamb:bias_correction selector=oracle loss=trades awp-gamma=0.01 "
                         "average=swa:bn=raw budget-unit=seconds resample=3"},
       {5}},
      {{Of::one, drawn + "optimizer=lamb selector=uniform loss=mart average=ema:bn=ema resample=3"}, {5}},
      {{Of::one, drawn + "optimizer=sgd selector=uniform loss=mart budget-unit=bytes"}, {5}},
      {{Of::one, drawn + "optimizer=sgd selector=freezeout:t0=0.6 resample=epoch"}, {5}},
      {{Of::one, drawn + "optimizer=sgd selector=autofreeze average=swa:bn=rebuild"}, {5}},
      {{Of::one, warm + "pgd"}, {3, 4, 5}},
      {{Of::one, warm + "fgsm"}, {3, 4, 5}},
      {{Of::one, frozen + "0"}, {2, 3, 4}},
      {{Of::one, frozen + "1"}, {2, 3, 4}},
      {{Of::one, grown + "ema warm-start=2 resident=on"}, {2, 3, 6}},
      {{Of::one, grown + "rebuild attack-bn=train verify=1"}, {2, 3, 6}},
      {{Of::one, grown + "ema attack-stop=0 micro-batch=8 verify=1"}, {2, 3, 6}},
      {{Of::one, grown + "ema awp-gamma=0.01 loss=trades staleness=1"}, {2, 3, 6}}};
  for (const char* codec :
       {"int8 codec-transport=gather", "int8 codec-transport=two_sided mask=per_worker", "powersgd codec-transport=sum",
        "powersgd codec-transport=sum mask=per_worker", "terngrad", "atomo", "bf16", "f16"})
    all.push_back({{Of::several, coded + codec}, {4}});
  for (const char* selector : {"exp3", "exp3 resample=3", "oracle", "oracle resample=3"})
    all.push_back({{Of::several, masks + selector}, {5}});
  all.push_back({{Of::several, stale + "1"}, {1, 2, 3, 4, 5, 6, 7}});
  all.push_back({{Of::several, stale + "3"}, {1, 4, 6}});
  for (const char* aggregator : {"mean staleness=2", "median", "trimmed_mean:mixing", "geometric_median", "krum",
                                 "multi_krum", "centered_clip:mixing"})
    all.push_back({{Of::several, robust + aggregator}, {3}});
  std::vector<Interrupted> here;
  std::copy_if(all.begin(), all.end(), std::back_inserter(here), [](const auto& one) { return runs(one.row); });
  for (const auto& [row, at] : test::drawn(here, static_cast<std::size_t>(test::cases(100, 2)))) {
    const TrainOptions options = options_of(row.words);
    test::Started straight(world(), options);
    std::vector<Checkpoint> states;
    while (straight.steps_done() < straight.plan().steps) {
      (void)straight.step(false);
      if (std::count(at.begin(), at.end(), straight.steps_done()) > 0) states.push_back(straight.capture());
    }
    straight.complete_average();
    const Checkpoint wanted = straight.capture();
    CHECK(states.size() == at.size());
    for (std::size_t k = 0; k < states.size(); ++k) {
      INFO(row.words << ", from step " << at[k]);
      test::Resumed resumed(world(), options, states[k]);
      resumed.check_replicas();
      resumed.start();
      CHECK(resumed.steps_done() == at[k]);
      while (resumed.steps_done() < resumed.plan().steps) (void)resumed.step(false);
      CHECK(resumed.weights_hash() == straight.weights_hash());
      CHECK(resumed.layers().costs() == straight.layers().costs());
      resumed.complete_average();
      const Checkpoint found = resumed.capture();
      if (world().root()) CHECK(same(found, wanted));
    }
  }
}
