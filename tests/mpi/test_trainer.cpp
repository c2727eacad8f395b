#include "catch.hpp"
#include "random_values.hpp"
#include "replica/model_state.hpp"
#include "run/begin/beginning.hpp"
#include "small_network.hpp"
#include "small_run.hpp"
#include "train/trainer.hpp"
#include "world.hpp"

using namespace dat;
using test::weights_of;
using test::world;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

[[nodiscard]] TrainOptions options_of(const std::string& optimizer) {
  TrainOptions options = test::small_run();
  options.threads = 1;
  options.budget = 4;
  options.optimizer = optimizer;
  options.bias_correction = optimizer == "lamb";
  options.average = optimizer == "lamb" ? "ema" : "none";
  options.average_bn = "ema";
  return options;
}

/// The state after some steps; the same on every rank, because each makes all of it alone.
[[nodiscard]] Checkpoint state_after_steps(const TrainOptions& options) { return test::OneRank(options, 3).capture(); }

/// Whether the ranks find it when the last one has this other state.
template <class Change>
[[nodiscard]] ExitCode code_after(Trainer& trainer, Checkpoint mine, const Change& change) {
  if (world().rank() == world().size() - 1) change(mine);
  trainer.restore(mine);
  return code_of([&] { trainer.check_replicas(); });
}

}  // namespace

TEST_CASE("The replica check finds a rank that differs in anything that training goes on from", "[replicas]") {
  for (const std::string optimizer : {"lamb", "sgd"}) {
    TrainOptions options = options_of(optimizer);
    const Checkpoint state = state_after_steps(options);
    for (const std::string statistics : {"average", "local"}) {
      options.bn_statistics = statistics;
      Trainer trainer(world(), options);
      const auto code = [&](auto&& change) { return code_after(trainer, state, change); };
      const auto next = [](float& value) { value = std::nextafter(value, 2.0F); };
      const ExitCode found = world().size() == 1 ? ExitCode::done : ExitCode::integrity;
      CHECK(code([](Checkpoint&) {}) == ExitCode::done);
      for (std::size_t array = 0; array < state.arrays.size(); ++array) {
        const std::string& name = state.arrays[array].name;
        INFO(optimizer << ", " << statistics << " statistics, " << name);
        // Running statistics that are not averaged are each rank's own.
        const bool own = statistics == "local" && name.starts_with("bn/");
        CHECK(code([&](Checkpoint& mine) { next(mine.arrays[array].values.back()); }) ==
              (own ? ExitCode::done : found));
      }
      CHECK(code([](Checkpoint& mine) { mine.doubles["p"].back() *= 1 + 0x1p-50; }) == found);
      if (optimizer == "lamb") CHECK(code([](Checkpoint& mine) { mine.doubles.at("optimizer").back() += 1; }) == found);
      CHECK(code([](Checkpoint& mine) { mine.doubles["active_scale"].back() += 0.5; }) == found);
      CHECK(code([](Checkpoint& mine) { ++mine.integers["batches_tracked"]; }) == found);
      // Rank 0's state, given to all, passes.
      (void)code([](Checkpoint& mine) {
        for (Checkpoint::Array& array : mine.arrays) array.values.front() += 1;
        mine.doubles["p"].front() /= 2;
        mine.doubles["active_scale"].front() += 1;
        ++mine.integers["batches_tracked"];
        if (mine.doubles.contains("optimizer")) mine.doubles["optimizer"].front() += 1;
      });
      CHECK(code_of([&] {
              trainer.share_state();
              trainer.check_replicas();
            }) == ExitCode::done);
    }
  }
}

TEST_CASE("A draw that a rank cannot repeat ends the step on all ranks, before the weights are touched", "[replicas]") {
  TrainOptions options = options_of("lamb");
  const auto run = [&] {
    test::Started trainer(world(), options);
    const std::string before = trainer.weights_hash();
    const std::string error = error_of([&] { (void)trainer.step(false); });
    CHECK((trainer.weights_hash() == before) == (error != "none"));
    return error;
  };
  options.micro_batch = 8;  // two units of work, whose rank counts once
  CHECK(run() == "none");
  // Other probabilities, which do not count: all draw by those of rank 0.
  if (world().rank() == world().size() - 1) options.budget = 5;
  CHECK(run() == "none");
  options.budget = 4;
  // Another seed: what draws the layers, and nothing that the ranks compare otherwise.
  if (world().rank() == world().size() - 1) options.seed = 2;
  const std::string found = "8: in step 1, 1 of the " + std::to_string(world().size()) + " ranks draw other layers";
  CHECK(run().starts_with(world().size() == 1 ? "none" : found));
}

namespace {

/// Masks per worker, of few layers.
[[nodiscard]] TrainOptions per_worker(const std::string& transport) {
  TrainOptions options = options_of("sgd");
  options.mask = "per_worker";
  options.mask_transport = transport;
  options.batch = 4;
  options.lr = 0.1;
  options.attack = "none";
  options.budget = 3;
  return options;
}

}  // namespace

TEST_CASE("Masks per worker: each rank its own, known to all; layers that nobody has drawn stand still", "[masks]") {
  for (const std::string transport : {"dense", "union", "allgather"}) {
    TrainOptions options = per_worker(transport);
    options.budget = 2;
    test::Started trainer(world(), options);
    const Parameters& p = trainer.model().parameters;
    const auto me = static_cast<std::size_t>(world().rank());
    int differ = 0, at_rest = 0, wrong = 0;
    for (int step = 0; step < 8; ++step) {
      const std::vector<float> before = weights_of(trainer);
      const StepRecord& record = trainer.step(false);
      const std::vector<float> after = weights_of(trainer);
      const auto masks = trainer.layers().brought();
      CHECK(std::ssize(masks) == world().size());
      const ActiveSet& updated = trainer.layers().updated();
      std::int64_t own = 0, any = 0;
      for (int layer = 0; layer < p.layers(); ++layer) {
        const bool drawn =
            std::any_of(masks.begin(), masks.end(), [&](const ActiveSet& mask) { return mask.active(layer); });
        wrong += updated.scale[static_cast<std::size_t>(layer)] != (drawn ? 1.0F : 0.0F);
        wrong += masks[me].active(layer) != trainer.layers().active().active(layer);
        differ += masks.front().active(layer) != masks.back().active(layer);
        at_rest += !drawn;
        own += masks[me].active(layer) ? p.layer_sizes[static_cast<std::size_t>(layer)] : 0;
        any += drawn ? p.layer_sizes[static_cast<std::size_t>(layer)] : 0;
      }
      for (const Segment& segment : p.segments) {
        const auto same = [&](const std::vector<float>& a, const std::vector<float>& b) {
          return std::equal(a.begin() + segment.begin, a.begin() + segment.begin + segment.size,
                            b.begin() + segment.begin);
        };
        wrong += same(before, after) != (updated.scale[static_cast<std::size_t>(segment.layer)] == 0);
      }
      const std::int64_t sent = 4 * (transport == "dense" ? p.size : transport == "union" ? any : own);
      CHECK(record.bytes_sent == (world().size() > 1 ? sent : 0));
      CHECK(record.active_elements == own);
      CHECK(record.scale == &trainer.layers().active().scale);
      CHECK((record.norms != nullptr));
    }
    INFO(transport);
    CHECK(wrong == 0);
    CHECK((differ > 0) == (world().size() > 1));
    CHECK(at_rest > 0);
    // Each has learned from its own gradients.
    const std::vector<double> mine = trainer.layers().selector().probabilities();
    std::vector<double> root = mine;
    world().broadcast(root.data(), root.size() * sizeof(double));
    CHECK((mine == root) == (world().root() || world().size() == 1));
    CHECK(code_of([&] { trainer.check_replicas(); }) == ExitCode::done);
  }
}

TEST_CASE("Masks of another number of ranks: rank r takes up those of rank r modulo that number", "[masks]") {
  TrainOptions options = per_worker("union");
  options.resample = "3";
  // Of one rank: the same on every one of many.
  const Checkpoint of_one = state_after_steps(options);
  test::Resumed many(world(), options, of_one);
  CHECK(many.layers().probabilities() == of_one.doubles.at("p"));
  CHECK(many.layers().selector().state() == of_one.doubles.at("selector"));
  CHECK(code_of([&] { many.check_replicas(); }) == ExitCode::done);
  many.start();
  for (int k = 0; k < 4; ++k) (void)many.step(false);
  CHECK(code_of([&] { many.check_replicas(); }) == ExitCode::done);

  // Of as many: each its own. Of many: a single rank takes up rank 0's, with its own mask or with one for all.
  const Checkpoint of_many = many.capture();
  const test::Resumed again(world(), options, of_many);
  CHECK(again.layers().selector().state() == many.layers().selector().state());
  CHECK(
      std::ranges::equal(again.layers().brought(), many.layers().brought(), {}, &ActiveSet::scale, &ActiveSet::scale));
  if (world().root()) {
    CHECK(of_many.integers.at("masks") == world().size());
    for (const std::string mask : {"per_worker", "shared"}) {
      options.mask = mask;
      test::Resumed one(test::single(), options, of_many);
      CHECK(one.layers().probabilities() == many.layers().probabilities());
      CHECK(one.layers().active().scale == many.layers().active().scale);
      CHECK(one.layers().selector().state() == many.layers().selector().state());
    }
    Checkpoint damaged = of_many;
    for (const int masks : {1, world().size() + 1}) {
      damaged.integers["masks"] = masks;
      Trainer one(test::single(), options);
      CHECK((masks == world().size() || code_of([&] { one.restore(damaged); }) == ExitCode::checkpoint));
    }
  }
  world().barrier();
}

TEST_CASE("The replica check sees what masks per worker have in common: the masks, not p or its factor", "[masks]") {
  const TrainOptions options = per_worker("union");
  const Checkpoint state = state_after_steps(options);
  Trainer trainer(world(), options);
  const auto code = [&](auto&& change) { return code_after(trainer, state, change); };
  const ExitCode found = world().size() == 1 ? ExitCode::done : ExitCode::integrity;
  CHECK(code([](Checkpoint&) {}) == ExitCode::done);
  CHECK(code([](Checkpoint& mine) { mine.doubles["p"].back() *= 1 + 0x1p-50; }) == ExitCode::done);
  CHECK(code([](Checkpoint& mine) {
          double& scale = mine.doubles["active_scale"].back();
          scale = scale == 0 ? 0 : scale + 0.5;
        }) == ExitCode::done);
  CHECK(code([](Checkpoint& mine) {
          double& scale = mine.doubles["active_scale"].back();
          scale = scale == 0 ? 1 : 0;
        }) == found);
}

TEST_CASE("What a step reports as sent is what was given to MPI, or would be", "[trainer]") {
  for (const std::string mask : {"shared", "per_worker"})
    for (const std::string transport : {"dense", "union", "allgather"})
      for (const bool overlap : {false, true}) {
        TrainOptions options = per_worker(transport);
        options.mask = mask;
        options.overlap = overlap;
        options.bucket = overlap ? 700 : 0;
        std::vector<std::int64_t> sent;
        for (const std::string sums : {"mpi", "window"}) {
          options.node_sums = sums;
          const bool added_up = sums == "window" && (mask == "shared" || transport != "allgather");
          test::Started trainer(world(), options);
          double all = 0;
          for (std::size_t step = 0; step < 3; ++step) {
            const std::int64_t before = world().bytes_given();
            const StepRecord& record = trainer.step(false);
            INFO(mask << ", " << transport << (overlap ? ", overlapped" : "") << ", " << sums);
            CHECK(world().bytes_given() - before == (added_up ? 0 : record.bytes_sent) + record.bytes_other);
            CHECK((record.bytes_sent > 0) == (world().size() > 1));
            if (sums == "mpi") sent.push_back(record.bytes_sent);
            CHECK(record.bytes_sent == sent[step]);
            all += static_cast<double>(record.bytes_sent + record.bytes_other);
          }
          // Rank 0 knows that of all, once.
          const std::vector<double> of_each = world().gather(std::vector<double>{all});
          const RankRecord times = trainer.gather_times();
          CHECK((times.step == 3 && times.bytes == of_each && times.seconds.size() == kPhases * of_each.size()));
          CHECK(trainer.gather_times().bytes == std::vector<double>(of_each.size()));
        }
      }
}

TEST_CASE("Ranks compare their times after every fifth step, and find who lets the others wait", "[trainer]") {
  Stragglers stragglers(world());
  for (int step = 1; step <= 16; ++step) {
    stragglers.begin();
    if (world().root()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    world().barrier();
    stragglers.end();
    const std::int64_t before = world().bytes_given();
    const auto changes = stragglers.compare();
    CHECK((world().bytes_given() > before) == (step % 5 == 0 && world().size() > 1));
    CHECK(std::ssize(changes) == (step == 15 && world().size() > 1 ? 1 : 0));
    for (const StragglerRule::Change& change : changes)
      CHECK((change.rank == 0 && change.slow && change.ratio < 5e6));  // the others take some time, too
  }
}

TEST_CASE("Running statistics that are each rank's own come back to each of as many ranks", "[trainer]") {
  const auto backend = test::test_backend(1);
  test::SmallNetwork model(*backend, 8);
  BatchStatistics own(world(), model, {0}, nullptr, true), common(world(), model, {0});
  const std::size_t count = running_statistics(model).size();
  const auto hold = [&](int rank) {
    return running_statistics(model) == std::vector<float>(count, static_cast<float>(rank + 1));
  };
  const auto set = [&](int rank) {
    set_running_statistics(model, std::vector<float>(count, static_cast<float>(rank + 1)));
  };
  const int me = world().rank();
  set(me);
  for (const bool local : {false, true}) {
    RootStatistics root(world(), model, local);
    CHECK(hold(local ? 0 : me));
    root.end();
    CHECK(hold(me));
  }
  Checkpoint checkpoint;
  common.save(checkpoint);
  CHECK(checkpoint.doubles.empty());
  own.save(checkpoint);
  for (const bool fits : {true, false}) {
    if (!fits) checkpoint.doubles["bn_local"].resize(count * static_cast<std::size_t>(world().size() + 1));
    if (world().root()) own.restore(checkpoint);
    set(50);
    own.share(world());
    CHECK(hold(fits ? me : 50));
    set(60);
    own.share(world());  // which has been taken up
    CHECK(hold(60));
  }
}

TEST_CASE("The phases of every rank add up to its time", "[phases]") {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  };
  for (const bool overlap : {false, true}) {
    TrainOptions options = options_of("lamb");
    options.attack = overlap ? "none" : "pgd";
    options.epochs = 8;
    options.lambda = 0.5;
    options.micro_batch = 8;
    options.overlap = overlap;
    options.deterministic = !overlap;
    options.bucket = 700;
    Trainer trainer(world(), options);
    trainer.share_state();
    const auto before = Clock::now();
    trainer.start();
    const auto begin = Clock::now();
    auto last = begin;
    double steps = 0;
    Backend& backend = trainer.replica().backend();
    for (int k = 0; k < 12; ++k) {
      last = Clock::now();
      const StepRecord& record = trainer.step(false);
      for (int phase = 0; phase < kPhasesInSum; ++phase) steps += record.seconds[static_cast<std::size_t>(phase)];
      if (k == 4) {
        (void)trainer.evaluate();
        (void)trainer.capture();
        trainer.timer().lap(Phase::checkpoint);
      }
    }
    const double shorter = seconds_since(begin);
    trainer.timer().lap(Phase::other);
    backend.wait();
    const double longer = seconds_since(before), tail = seconds_since(last);
    const std::array<double, kPhases> seconds = trainer.timer().take();
    const auto of = [&](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; };
    double sum = 0;
    for (int phase = 0; phase < kPhasesInSum; ++phase) sum += seconds[static_cast<std::size_t>(phase)];
    INFO(world().rank() << (overlap ? ", overlapped" : ""));
    CHECK((sum >= 0.99 * shorter && sum <= 1.01 * longer));
    // The lines of the steps lack what follows the last step's.
    CHECK((steps <= sum && steps >= sum - 1.01 * tail));
    for (const Phase phase : {Phase::data, Phase::attack, Phase::forward, Phase::backward, Phase::select, Phase::update,
                              Phase::evaluate, Phase::checkpoint})
      CHECK(of(phase) > 0);
    for (const Phase phase : {Phase::encode, Phase::decode}) CHECK((of(phase) > 0) == (world().size() > 1));
    double hidden = of(Phase::hidden);
    CHECK(hidden <= longer);
    world().sum(&hidden, 1);
    CHECK((hidden > 0) == (overlap && world().size() > 1));
  }
}

namespace {

/// Epochs of four steps, the last of 5 images a rank, and two micro-batches, where there are so many.
[[nodiscard]] TrainOptions stale_run(int iterations) {
  TrainOptions options = options_of("sgd");
  options.lr = 0.1;
  options.batch = 8;
  options.micro_batch = 4;
  options.limit_train = 28 * world().size();
  options.limit_test = 12;
  options.epochs = 2;
  options.attack_steps = 3;
  options.stale_attack = iterations;
  options.overlap = true;
  options.bucket = 700;
  return options;
}

struct Trained {
  std::string weights;
  std::vector<Checkpoint> states;
  std::vector<std::int64_t> passes;
};

/// The whole run, with a look at the network between steps, or without.
[[nodiscard]] Trained train(const TrainOptions& options, bool evaluate) {
  test::Started trainer(world(), options);
  Trained result;
  while (trainer.steps_done() < trainer.plan().steps) {
    result.passes.push_back(trainer.step(false).attack_passes);
    if (evaluate && trainer.steps_done() % 3 != 0) (void)trainer.evaluate();
    result.states.push_back(trainer.capture());
  }
  result.weights = trainer.weights_hash();
  return result;
}

[[nodiscard]] bool has_begun(const Checkpoint& state) {
  const auto found = std::ranges::find(state.arrays, "attack/begun", &Checkpoint::Array::name);
  if (found == state.arrays.end()) return false;
  CHECK(std::ranges::count(found->values, 0.0F) < std::ssize(found->values));
  return true;
}

}  // namespace

TEST_CASE("An attack that begins on the old weights takes as many passes, and evaluations in between change nothing",
          "[stale]") {
  const Trained exact = train(stale_run(0), false), straight = train(stale_run(1), true);
  CHECK(straight.weights != exact.weights);
  CHECK(straight.passes == exact.passes);
  CHECK(train(stale_run(1), false).weights == straight.weights);
  Trainer none(world(), stale_run(0)), ahead(world(), stale_run(1));
  CHECK(test::bytes_on_device(ahead) - test::bytes_on_device(none) ==
        4 * ahead.plan().micro_batch * ahead.replica().images().layout.elements());
  // The last step is followed by none.
  for (std::size_t k = 0; k < straight.states.size() && world().root(); ++k)
    CHECK(has_begun(straight.states[k]) == (k + 1 < straight.states.size()));
}

TEST_CASE("An attack that has begun elsewhere begins anew, and it is said", "[stale]") {
  const Trained straight = train(stale_run(2), false);
  for (const auto& [iterations, batch] : {std::pair(0, 8), std::pair(1, 8), std::pair(2, 8), std::pair(2, 16)}) {
    TrainOptions options = stale_run(iterations);
    options.batch = batch;  // with 16, an epoch has two steps, and micro-batches are what they were
    Trainer trainer(world(), options);
    const bool same = iterations == 2 && batch == 8;
    if (world().root()) {
      trainer.restore(straight.states[1]);
      CHECK(trainer.examples().dropped().empty() == same);
      Beginning beginning;
      beginning.other_options = true;
      take_up(straight.states[1], options, trainer, beginning);
      CHECK(contains(trainer.examples().dropped(), "had begun with other options") == same);
      CHECK(beginning.warnings == std::vector{trainer.examples().dropped()});
    }
    trainer.share_state();
    CHECK(!has_begun(trainer.capture()));
    trainer.start();
    CHECK(std::isfinite(trainer.step(false).loss_adv));
  }
  // On one rank, also with as many images in a step, and steps in an epoch, as before: it had begun on a part of them.
  for (const int batch : {8, 8 * world().size()}) {
    if (!world().root() || world().size() == 1) break;
    TrainOptions options = stale_run(2);
    options.batch = batch;
    test::Resumed trainer(test::single(), options, straight.states[1]);
    CHECK(contains(trainer.examples().dropped(), std::to_string(world().size()) + " ranks"));
    CHECK(!has_begun(trainer.capture()));
    trainer.start();
    CHECK(std::isfinite(trainer.step(false).loss_adv));
  }
  world().barrier();
}
