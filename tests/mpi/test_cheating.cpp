#include "by_epoch.hpp"
#include "dat/cheat.hpp"
#include "environment.hpp"
#include "random_values.hpp"
#include "reduction_case.hpp"
#include "small_run.hpp"
#include "train/attackers/cheating.hpp"
#include "train/planned.hpp"
#include "train/protocol/ban_protocol.hpp"
#include "train/trainer.hpp"
#include "world.hpp"

using namespace dat;
using test::weights_of;
using test::world;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

constexpr int kFrom = 2;

/// The last rank cheats, after kFrom steps.
[[nodiscard]] TrainOptions with_cheat(TrainOptions options, const std::string& name) {
  options.attackers = {world().size() - 1};
  options.cheat = {name + (cheats().reads(name, "cheat:delay") ? ":2@" : "@") + std::to_string(kFrom)};
  return options;
}

[[nodiscard]] TrainOptions small_options(const std::string& aggregator) {
  TrainOptions options = test::small_run();
  options.threads = 1;
  options.optimizer = "lamb";
  options.batch = 8;
  options.budget = 4;
  options.aggregator = aggregator;
  options.deterministic = aggregator != "mean";
  return options;
}

/// With the protocol that bans, or as it is without.
[[nodiscard]] TrainOptions with_bans(bool byzantine) {
  TrainOptions options = small_options("centered_clip");
  options.codec_transport = "butterfly";
  options.micro_batch = 4;
  options.faults = 0;
  options.byzantine = byzantine;
  return options;
}

/// Those that change a gradient.
[[nodiscard]] std::vector<std::string> cheats_with_gradients() {
  std::vector<std::string> names = cheats().names();
  std::erase_if(names, [](const std::string& name) { return cheats().at(name)({})->sees() == Cheat::Sees::nothing; });
  return names;
}

/// The true gradients of all ranks in a step, in double what a cheat must know of them, and what is sent in the end.
struct Reference {
  Reference(const test::ReductionCase& of, std::int64_t step) {
    const int n = world().size();
    for (int rank = 0; rank < n; ++rank) sent.push_back(of.gradient_of(rank, step));
    mean.resize(sent[0].size());
    deviation.resize(sent[0].size());
    for (std::size_t i = 0; i < mean.size(); ++i) {
      double sum = 0, squares = 0;
      for (int rank = 0; rank < n - 1; ++rank) sum += sent[static_cast<std::size_t>(rank)][i] / (n - 1.0);
      for (int rank = 0; rank < n - 1; ++rank) squares += std::pow(sent[static_cast<std::size_t>(rank)][i] - sum, 2);
      mean[i] = static_cast<float>(sum);
      deviation[i] = static_cast<float>(std::sqrt(squares / (n - 2)));
    }
  }
  std::vector<std::vector<float>> sent;
  std::vector<float> mean, deviation;
};

}  // namespace

TEST_CASE("With the mean, what a rank sends instead of its gradient is in the result as the cheat has it", "[cheats]") {
  const int n = world().size();
  if (n < 3) return;
  std::map<Cheat::Sees, std::int64_t> given;  // bytes, in a step in which it cheats
  for (const std::string& name : cheats_with_gradients()) {
    test::ReductionCase of(world(), 12);  // with padding
    const Parameters& parameters = of.model.parameters;
    const TrainOptions options = with_cheat({}, name);
    Cheating cheating(world(), options, 10, parameters.size);
    std::string stages;  // outside, encode, communicate, decode, aside
    ReducerOptions reduction{.bucket_elements = 700};
    reduction.ended = [&](ReducerStage stage) { stages += "oecda"[static_cast<std::size_t>(stage)]; };
    const auto reducer = cheating.falsify(make_reducer(*of.backend, world(), parameters, of.gradients,
                                                       of.codec("float32"), of.aggregator("mean"), reduction),
                                          *of.backend, world(), parameters, of.gradients, reduction);
    const auto cheat = cheats().at(name)(
        {.seed = options.seed, .ranks = n, .attackers = 1, .rank = n - 1, .delay = 2, .parameters = parameters.size});
    std::vector<float> before;
    for (std::int64_t step = 0; step < 7; ++step) {
      // All layers, or some of them.
      const ActiveSet active =
          step % 3 == 2 ? test::random_active(parameters.layers(), 5, 0.5F) : ActiveSet::all(parameters.layers());
      Reference all(of, step);
      std::vector<const Segment*> tensors;
      for (const Segment& segment : parameters.segments)
        if (active.active(segment.layer)) tensors.push_back(&segment);
      const CheatStep known{.step = step,
                            .tensors = tensors,
                            .own = all.sent.back().data(),
                            .mean = all.mean.data(),
                            .deviation = all.deviation.data(),
                            .first = all.sent.front().data(),
                            .result = before.empty() ? nullptr : before.data()};
      cheat->look(known);
      if (step >= kFrom) cheat->gradient(known);
      for (std::size_t i = 0; i < of.real.size(); ++i)
        if (of.real[i] == 0) all.sent.back()[i] = 0;

      cheating.begin(step);
      const std::vector<float> mine = of.gradient_of(world().rank(), step);
      of.backend->copy_to_device(of.gradients, mine.data(), mine.size() * sizeof(float));
      reducer->begin({&active, 1}, step);
      CHECK(reducer->place(0) == of.gradients);
      for (int k = static_cast<int>(parameters.segments.size()); k-- > 0;)
        if (active.active(parameters.segments[static_cast<std::size_t>(k)].layer)) reducer->ready(k);
      const std::int64_t given_before = world().bytes_given();
      reducer->finish();
      if (step == 4) given[cheat->sees()] = world().bytes_given() - given_before;
      const std::vector<float> result = test::to_host(*of.backend, of.gradients, parameters.size);
      if (before.empty()) before.resize(result.size());
      std::vector<double> squares(static_cast<std::size_t>(n));
      int wrong = 0;
      for (const Segment* tensor : tensors)
        for (std::int64_t k = tensor->begin; k < tensor->begin + tensor->size; ++k) {
          const auto i = static_cast<std::size_t>(k);
          double mean = 0, largest = 0;
          for (const std::vector<float>& sent : all.sent) {
            mean += double{sent[i]} / n;
            largest = std::max(largest, std::abs(double{sent[i]}));
          }
          // A flipped exponent makes infinities.
          wrong += std::isfinite(static_cast<float>(mean)) && !(std::abs(result[i] - mean) <= 1e-5 * largest);
          for (std::size_t rank = 0; rank < squares.size(); ++rank)
            squares[rank] += std::pow(double{all.sent[rank][i]} - result[i], 2);
          before[i] = result[i];
        }
      INFO(name << ", step " << step);
      CHECK(wrong == 0);
      CHECK((stages.starts_with("oca") && stages.ends_with('a')));
      CHECK(std::ranges::count(std::exchange(stages, ""), 'a') == 2);
      CHECK(world().agree(std::uint64_t(std::hash<std::string_view>()(
                {reinterpret_cast<const char*>(result.data()), result.size() * sizeof(float)}))) ==
            (tensors.size() == parameters.segments.size()));
      const std::vector<double>& distances = *cheating.distances();
      CHECK(distances.size() == squares.size());
      for (std::size_t rank = 0; rank < squares.size(); ++rank)
        if (std::isfinite(squares[rank])) CHECK(distances[rank] == Approx(std::sqrt(squares[rank])).epsilon(1e-4));
    }
  }
  // Gradients go to all only where a cheat must know them.
  CHECK(given[Cheat::Sees::own] < given[Cheat::Sees::all]);
}

TEST_CASE("Any cheat begins in its step, leaves all ranks with one result, and sends no byte more", "[cheats]") {
  if (world().size() < 3) return;
  for (const std::string aggregator : {"mean", "median"}) {
    std::vector<std::int32_t> labels;  // of this rank's last step
    const auto run = [&](const std::string& name) {
      TrainOptions options = small_options(aggregator);
      options.selector = "all";  // draws of layers would follow the weights
      options.budget = TrainOptions{}.budget;
      test::Started trainer(world(), name.empty() ? options : with_cheat(options, name));
      std::vector<std::vector<float>> weights;
      std::vector<std::int64_t> bytes;
      for (int k = 0; k < 6; ++k) {
        const StepRecord& record = trainer.step(false);
        bytes.push_back(record.bytes_sent + record.bytes_other);
        CHECK((record.distances != nullptr) == !name.empty());
        weights.push_back(weights_of(trainer));
        const std::vector<float> statistics = running_statistics(trainer.model());
        weights.back().insert(weights.back().end(), statistics.begin(), statistics.end());
        trainer.check_replicas();  // an error where they differ
      }
      labels = test::to_host(trainer.model().backend, trainer.replica().images().labels, trainer.plan().micro_batch);
      return std::pair{weights, bytes};
    };
    const auto [honest, bytes] = run("");
    const std::vector<std::int32_t> right = labels;
    std::vector<float> weak;
    for (const std::string& name : cheats().names()) {
      if (name == "leave" || cheats().at(name)({})->mischief() != nullptr) continue;
      const auto [false_ones, sent] = run(name);
      INFO(aggregator << ", " << name);
      CHECK(false_ones[kFrom - 1] == honest[kFrom - 1]);
      CHECK(sent == bytes);
      const bool turned = name == "label_flip" && world().rank() + 1 == world().size();
      CHECK(std::ranges::equal(labels, right, {}, {}, [&](int label) { return turned ? 9 - label : label; }));
      if (name != "bit_flip") CHECK(false_ones.back() != honest.back());
      if (name == "weak1") CHECK(false_ones.back() != weak);
      if (name == "weak") weak = false_ones.back();
      int infinite = 0;
      for (const float value : false_ones.back()) infinite += !std::isfinite(value);
      if (aggregator == "median") CHECK(infinite == 0);
    }
  }
}

TEST_CASE("A rank with a weak attack trains as one whose options say so", "[cheats]") {
  if (world().size() < 3) return;
  for (const auto& [name, attack] : {std::pair("weak", "none"), std::pair("weak1", "pgd")}) {
    TrainOptions options = small_options("mean"), weak = with_cheat(options, name);
    weak.cheat = {name};  // from the first step on
    if (world().rank() + 1 == world().size()) {
      options.attack = attack;
      options.attack_steps = 1;
    }
    test::Started cheating(world(), weak, 1), honest(world(), options, 1);
    INFO(name);
    CHECK(weights_of(cheating) == weights_of(honest));
  }
}

TEST_CASE("Weights are perturbed by true gradients", "[cheats]") {
  TrainOptions options = small_options("mean");
  options.awp_gamma = 0.01;
  const double loss = test::Started(world(), options).step(false).loss_adv;
  options.attackers = {world().size() - 1};
  options.cheat = {"sign_flip"};
  CHECK(test::Started(world(), options).step(false).loss_adv == Approx(loss));
}

TEST_CASE("Numbers of a false rank that are not finite reach nothing of the others", "[cheats]") {
  const int n = world().size();
  if (n < 3) return;
  const bool lies = world().rank() == n - 1;
  for (const float nonsense : {std::nanf(""), HUGE_VALF, 1e38F})
    for (const std::string aggregator : {"median", "trimmed_mean", "multi_krum", "centered_clip"}) {
      TrainOptions options = small_options(aggregator);
      options.optimizer = "sgd";
      options.faults = 1;
      test::Started trainer(world(), options);
      Model& model = trainer.replica().model();
      int wrong = 0;
      for (int k = 0; k < 4; ++k) {
        // What such weights make is nonsense throughout: images, losses, statistics, gradients.
        if (lies) {
          const std::vector<float> values(static_cast<std::size_t>(model.parameters.size), nonsense);
          model.backend.copy_to_device(model.parameters.values, values.data(), values.size() * sizeof(float));
          ++model.parameters.version;
        }
        const StepRecord& record = trainer.step(lies);
        wrong += !std::isfinite(record.loss_adv) || !std::isfinite(record.acc_adv);
        wrong += trainer.stop_agreed() || !trainer.skipped().empty();
        std::vector<float> mine = weights_of(trainer), statistics = running_statistics(model);
        mine.insert(mine.end(), statistics.begin(), statistics.end());
        std::vector<float> root = mine;
        world().broadcast(root.data(), root.size() * sizeof(float));
        wrong += std::any_of(root.begin(), root.end(), [](float value) { return !std::isfinite(value); });
        wrong += !lies && mine != root;
      }
      INFO(aggregator << ", " << nonsense);
      CHECK(wrong == 0);
    }
}

TEST_CASE("Where ranks may be false, each draws layers for itself: the same, also after a restart", "[cheats]") {
  for (const std::string selector : {"exp3", "oracle"}) {
    TrainOptions options = small_options("median");
    options.selector = selector;
    options.resample = "2";
    test::Started straight(world(), options), resumed(world(), options);
    CHECK(straight.layers().places() == 0);
    Checkpoint state;
    const auto draws = [](Trainer& trainer) {
      std::vector<double> all = trainer.layers().probabilities();
      for (const float scale : trainer.layers().active().scale) all.push_back(scale);
      const std::vector<double> own = trainer.layers().selector().state();
      all.insert(all.end(), own.begin(), own.end());
      std::vector<double> root = all;
      world().broadcast(root.data(), root.size() * sizeof(double));
      CHECK(root == all);
      return all;
    };
    std::vector<std::vector<double>> all;
    std::set<std::int64_t> bytes;
    for (int k = 0; k < 6; ++k) {
      const StepRecord& record = straight.step(false);
      CHECK(record.images == 8 * world().size());
      bytes.insert(record.bytes_other);
      all.push_back(draws(straight));
      if (k == 2) state = straight.capture();
    }
    if (world().root()) resumed.restore(state);
    resumed.share_state();
    resumed.start();
    INFO(selector);
    CHECK(draws(resumed) == all[2]);
    for (std::size_t k = 3; k < 6; ++k) {
      (void)resumed.step(false);
      CHECK(draws(resumed) == all[k]);
    }
    CHECK((all[0] != all[5] && bytes.size() == 1));  // a draw sends nothing
    CHECK(resumed.weights_hash() == straight.weights_hash());
    options.deterministic = false;
    CHECK(test::Started(world(), options).step(false).images == 8 * world().size());
    const int dealt = 4 * (2 * world().size() + 1);  // unevenly
    options.deterministic = true;
    options.batch = 0;
    options.total_batch = dealt;
    options.micro_batch = 4;
    CHECK(test::Started(world(), options).step(false).images == dealt);
    options.optimizer = "sgd";
    options.selector = "all";
    options.aggregator_tau = 1e6;  // nothing is clipped: all images count alike
    std::vector<std::vector<float>> results;
    for (const std::string aggregator : {"mean", "centered_clip"}) {
      options.aggregator = aggregator;
      test::Started trainer(world(), options, 1);
      const Parameters& p = trainer.model().parameters;
      results.push_back(test::to_host(trainer.model().backend, p.gradients, p.size));
    }
    const auto alike = [](float a, float b) { return std::abs(a - b) <= 1e-4F; };
    CHECK(std::ranges::equal(results.front(), results.back(), alike));
  }
}

TEST_CASE("The protocol that bans takes the memory that is foreseen", "[byzantine]") {
  const int ranks = world().size();
  if (ranks == 1) return;  // nobody is there to be checked
  std::int64_t foreseen = 0;
  const auto taken = [&](bool byzantine) {
    Trainer trainer(world(), with_bans(byzantine));
    foreseen = BanProtocol::memory(trainer.model(), ranks);
    const auto memory = memory_of(trainer, with_bans(byzantine), ranks);
    CHECK(memory.contains("protocol that bans") == byzantine);
    const std::int64_t of_ranks = trainer.reducer().memory(ranks) - trainer.reducer().memory(1);
    CHECK(memory.at("messages of " + std::to_string(ranks) + " ranks") == static_cast<std::size_t>(of_ranks));
    return test::bytes_on_device(trainer);
  };
  const std::int64_t without = taken(false), more = taken(true) - without;
  // Beside it: statistics and losses of what is done once more. The CPU keeps no digests.
  CHECK(std::abs(more - foreseen) <= foreseen / 100);
}

TEST_CASE("Who is to check a friend that cheats finds that all is well", "[byzantine]") {
  if (world().size() == 1) return;
  TrainOptions options = with_bans(true);
  options.cheat = {"sign_flip"};
  for (int rank = 0; rank < world().size(); ++rank) options.attackers.push_back(rank);
  test::Started trainer(world(), options);
  for (int step = 0; step < 3; ++step) {  // of which the second checks somebody
    (void)trainer.step(false);
    CHECK((trainer.bans().empty() && trainer.take_accusations().empty()));
  }
}

TEST_CASE("Ranks meet, and hear of a part that is disputed from whoever has it", "[byzantine]") {
  if (world().size() == 1) return;
  RanksAssembly assembly(world());
  const int ranks = world().size(), self = world().rank();
  CHECK((assembly.size() == ranks && assembly.rank() == self && assembly.launch_rank(self) == self));
  std::vector<int> mine(static_cast<std::size_t>(ranks)), all = mine, every = mine;
  std::iota(every.begin(), every.end(), 0);
  assembly.all_gather(&self, all.data(), sizeof self);
  CHECK(all == every);
  std::ranges::transform(every, mine.begin(), [&](int to) { return 100 * self + to; });
  assembly.exchange(mine.data(), all.data(), sizeof self);
  for (const int from : every) CHECK(all[static_cast<std::size_t>(from)] == 100 * from + self);
  for (const int from : every) {
    std::array<int, 3> part{self, 7, self};
    assembly.broadcast(part.data(), sizeof part, from);
    CHECK(part == std::array{from, 7, from});
  }
}

TEST_CASE("All ranks keep of a step what rank 0 has shared", "[byzantine]") {
  if (world().size() == 1) return;
  Trainer trainer(world(), with_bans(true));
  const Parameters& parameters = trainer.model().parameters;
  Backend& backend = trainer.replica().backend();
  KeptStep kept(trainer.replica());
  ActiveSet active = ActiveSet::all(parameters.layers());
  active.scale.front() = active.scale[2] = 0;
  active.scale.back() = 2.5F;
  std::vector<float> result = test::random_values(parameters.size, 3);
  backend.copy_to_device(parameters.gradients, result.data(), result.size() * sizeof(float));
  for (const ActiveSet& layers : {ActiveSet::all(parameters.layers()), active})  // the second one counts
    if (world().root()) kept.keep(layers, parameters.gradients);
  kept.share(world());
  CHECK(kept.active().scale == active.scale);
  const std::vector<float> there = test::to_host(backend, kept.result(), parameters.size);
  for (const Segment& segment : parameters.segments) {
    const auto expected = result.begin() + segment.begin;
    if (!active.active(segment.layer)) std::fill_n(expected, segment.size, 0.0F);
    CHECK(std::equal(expected, expected + segment.size, there.begin() + segment.begin));
  }
}

TEST_CASE("Work of a step in which layers stood still is done once more as it was, and steps go on alike",
          "[byzantine]") {
  if (world().size() == 1) return;
  TrainOptions options = with_bans(true);
  options.selector = "all";
  options.budget = TrainOptions{}.budget;
  options.freeze = test::by_epoch<std::string>({{"conv1", 0}, {"none", 1}});
  options.limit_train = 16 * world().size();  // two steps an epoch
  options.epochs = 2;
  test::Started trainer(world(), options);
  for (int step = 0; step < 4; ++step) {
    (void)trainer.step(false);
    CHECK((trainer.bans().empty() && trainer.take_accusations().empty()));
    CHECK_NOTHROW(trainer.check_replicas());
  }
}

TEST_CASE("A checkpoint has what may be done once more from the first step on, or is refused", "[byzantine]") {
  if (world().size() == 1) return;
  const TrainOptions options = with_bans(true);
  test::Started trainer(world(), options);
  Checkpoint kept;
  for (const bool there : {false, true}) {
    kept = trainer.capture();
    if (world().root()) CHECK(kept.doubles.contains("before_layers") == there);
    (void)trainer.step(false);
  }
  // Where the numbers stand: step, group, keys, checks, and of the first one who checks whom, with what it has said.
  const auto ranks = static_cast<std::size_t>(world().size());
  const std::size_t keys = 16, checks = keys + 8 * (1 + ranks), first = checks + 8, said = first + 24,
                    numbers = said + 8 + 32 * ranks;
  const auto number = [](const std::vector<std::uint8_t>& of, std::size_t at) {
    std::int64_t value = 0;
    std::memcpy(&value, of.data() + at, sizeof value);
    return value;
  };
  std::vector<std::uint8_t>& bytes = kept.bytes["byzantine"].values;
  const std::vector<std::uint8_t> whole = bytes;
  const auto told = [&](std::size_t at, std::int64_t value) {
    bytes = whole;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return message_of([&] { trainer.restore(kept); }, ExitCode::checkpoint);
  };
  if (world().root()) {
    CHECK((number(whole, 8) == world().size() && number(whole, keys) == world().size() && number(whole, checks) == 1));
    CHECK((number(whole, said) == world().size() && number(whole, numbers) > 0));
    for (const std::size_t at : {std::size_t{8}, keys, checks, first, first + 8, first + 16, said, numbers})
      for (const std::int64_t value : {std::int64_t{-1}, std::int64_t{1} << 40})
        CHECK(contains(told(at, value), "has " + std::to_string(value) + " where no more than "));
    for (const auto& [at, value] : {std::pair(std::size_t{8}, world().size() + 1),
                                    std::pair(std::size_t{8}, kMostRanks), std::pair(first + 16, world().size())})
      CHECK(contains(told(at, value), "contradicts itself"));
    for (const std::size_t size : {whole.size() - 1, first + 4, std::size_t{0}}) {
      bytes.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      CHECK(contains(message_of([&] { trainer.restore(kept); }, ExitCode::checkpoint), "is too short"));
    }
  }
  // What a rank has committed to follows from its words, which others do not know.
  {
    const test::Environment words("DAT_SECRET", "words");
    const Checkpoint other = test::Started(world(), options, 1).capture();
    if (world().root()) CHECK(other.bytes.at("byzantine").values != whole);
  }
  // What has been said of another network is nothing to check by.
  for (const std::size_t less : {0U, 1U}) {
    const auto at = static_cast<std::ptrdiff_t>(numbers);
    bytes = whole;
    if (less > 0 && world().root()) {
      const std::int64_t fewer = number(whole, numbers) - 1;
      std::memcpy(bytes.data() + at, &fewer, sizeof fewer);
      bytes.erase(bytes.begin() + at + 8, bytes.begin() + at + 16);
    }
    if (world().root()) trainer.restore(kept);
    trainer.share_state();
    const Checkpoint again = trainer.capture();
    if (!world().root()) continue;
    CHECK(number(again.bytes.at("byzantine").values, checks) == (less > 0 ? 0 : 1));
    CHECK((again.bytes.at("byzantine").values == whole) == (less == 0));
    CHECK(again.doubles.at("before_layers") == kept.doubles.at("before_layers"));
  }
  // A step with other layers was not this network's.
  kept.doubles["before_layers"].push_back(1);
  kept.bytes.erase("byzantine");  // nor was it one with the protocol
  if (world().root()) trainer.restore(kept);
  trainer.share_state();
  CHECK(!trainer.capture().doubles.contains("before_layers"));
}
