// What the members of families say of options: each option that a member names is there, the table of options asks for
// it, and the member's numbers follow from the options that it names and from no others.

#include "catch.hpp"
#include "dat/attack.hpp"
#include "dat/cheat.hpp"
#include "dat/loss.hpp"
#include "device.hpp"
#include "options/train/table.hpp"
#include "random_values.hpp"
#include "reduction_case.hpp"

using namespace dat;
using namespace dat::test;

namespace {

/// The families whose members are values of an option of a training, by its name.
const std::map<std::string, const Family*>& families() {
  static const std::map<std::string, const Family*> all = {
      {"aggregator", &aggregators()}, {"attack", &attacks()},     {"cheat", &cheats()},
      {"codec", &codecs()},           {"loss", &losses()},        {"network", &networks()},
      {"optimizer", &optimizers()},   {"selector", &selectors()}, {"schedule", &schedules()}};
  return all;
}

/// What a member makes of options, as bytes; of options that it refuses, the message.
class Outcome {
 public:
  template <class T>
  void add(const std::vector<T>& values) {
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  template <class T>
  void add(T value) {
    add(std::vector<T>{value});
  }
  void add(const char* text) { bytes_ += text; }
  friend bool operator==(const Outcome&, const Outcome&) = default;

 private:
  std::string bytes_;
};

template <class Make>
Outcome outcome_of(const Make& make) {
  Outcome all;
  try {
    make(all);
  } catch (const Error& error) {
    all.add(error.what());
  }
  return all;
}

/// A change of each option, by its name.
template <class Options>
using Changes = std::map<std::string, void (*)(Options&)>;

/// Whether the members' outcomes change with the options that they name, and with no others.
template <class Options, class Make>
void check_changes(const Family& family, const Changes<Options>& changes, const Options& options, const Make& make) {
  for (const std::string& name : family.names()) {
    const Outcome plain = outcome_of([&](Outcome& all) { make(name, options, all); });
    for (const auto& [option, change] : changes) {
      INFO(name << ", --" << option);
      Options other = options;
      change(other);
      CHECK((outcome_of([&](Outcome& all) { make(name, other, all); }) != plain) == family.reads(name, option));
    }
  }
}

}  // namespace

TEST_CASE("options that members name are there, and ask for them", "[options][settings]") {
  // A rule of their own refuses them with other members, or they say nothing there.
  const std::set<std::string> silent = {
      "alpha/attack",          "attack-steps/attack", "bn-statistics/cheat", "cheat:delay/cheat",
      "codec-transport/codec", "eval-alpha/attack",   "lambda/attack",       "freeze-by-epoch/selector",
      "mask/selector",         "milestones/schedule", "momentum/optimizer",  "noise/loss",
      "norm/attack",           "size/network",        "staleness/attack",    "weight-decay/optimizer"};
  // What stands in words that are read elsewhere.
  const std::set<std::string> no_rows = {"cheat:delay", "freeze-by-epoch"};
  std::set<std::string> named, asked;
  for (const auto& [option, family] : families())
    for (const Family::About& member : family->members())
      for (const Setting& setting : member.settings) {
        INFO(member.name << ", --" << setting.option);
        CHECK((train_table().find(setting.option) != nullptr) != no_rows.contains(setting.option));
        named.insert(setting.option + "/" + option);
      }
  for (const OptionRow& row : train_table().rows()) {
    const auto parent = families().find(row.parent);
    if (parent != families().end()) {
      INFO(row.name);
      CHECK(row.members == parent->second->readers(row.name));
      asked.insert(row.name + "/" + row.parent);
    }
    for (const Condition& condition : row.works_with)
      for (const Choice& choice : condition.any_of) {
        const auto family = families().find(choice.option);
        if (family == families().end()) continue;
        INFO("--" << row.name << " with --" << choice.option);
        const std::string& option = row.parent.empty() ? row.name : row.parent;
        CHECK(choice.values == family->second->readers(option));
        asked.insert(option + "/" + choice.option);
      }
  }
  for (const std::string& both : named) {
    INFO(both);
    CHECK(asked.contains(both) != silent.contains(both));
  }
  for (const std::string& both : asked) CHECK(named.contains(both));
  for (const std::string& both : silent) CHECK(named.contains(both));
}

TEST_CASE("what members have for auto is what they take", "[options][settings]") {
  for (const std::string& name : losses().names())
    CHECK(losses().at(name)({})->beta() == number_of(losses().settings(name), "beta").value_or(0));
  ReductionCase f;
  for (const std::string& name : codecs().names()) {
    INFO(name);
    const Setting* const transport = setting_of(codecs().settings(name), "codec-transport");
    REQUIRE(transport != nullptr);
    CHECK(f.codec(name)->transport() == transport->value);
  }
  for (const std::string& name : aggregators().names())
    CHECK((repeats(name) == Repeats::at_equal_ranks) == aggregators().reads(name, "faults"));
}

TEST_CASE("optimizers read the options that they name", "[options][settings]") {
  const Changes<OptimizerOptions> changes = {{"momentum", [](auto& o) { o.momentum = .5; }},
                                             {"optimizer:nesterov", [](auto& o) { o.nesterov = true; }},
                                             {"optimizer:beta1", [](auto& o) { o.beta1 = .5; }},
                                             {"optimizer:beta2", [](auto& o) { o.beta2 = .5; }},
                                             {"optimizer:epsilon", [](auto& o) { o.epsilon = .1; }},
                                             {"optimizer:bias_correction", [](auto& o) { o.bias_correction = true; }},
                                             {"weight-decay", [](auto& o) { o.weight_decay = .1; }},
                                             {"optimizer:trust", [](auto& o) { o.trust_coefficient = .1; }},
                                             {"optimizer:clamp", [](auto& o) { o.clamp_high = .1; }}};
  check_changes(optimizers(), changes, OptimizerOptions{},
                [](const std::string& name, const OptimizerOptions& options, Outcome& all) {
                  const auto backend = test_backend(1);
                  Model model(*backend, networks().at("small_cnn")({.width = 16, .size = 8}), Granularity::tensor);
                  Parameters& p = model.parameters;
                  const auto optimizer = optimizers().at(name)(*backend, p, options);
                  const std::vector<float> theta = random_values(p.size, 1), gradient = random_values(p.size, 2);
                  backend->copy_to_device(p.values, theta.data(), theta.size() * sizeof(float));
                  backend->copy_to_device(p.gradients, gradient.data(), gradient.size() * sizeof(float));
                  for (int step = 0; step < 3; ++step) optimizer->step(ActiveSet::all(p.layers()), .1);
                  all.add(to_host(*backend, p.values, p.size));
                });
}

TEST_CASE("schedules read the options that they name", "[options][settings]") {
  const Changes<ScheduleOptions> changes = {{"milestones",
                                             [](auto& o) {
                                               o.milestones = {1, 3};
                                             }},
                                            {"schedule:decay", [](auto& o) { o.lr_decay = .5; }}};
  ScheduleOptions options;
  options.warmup_epochs = 1;
  options.epochs = 9;
  options.milestones = {2};
  options.steps_per_epoch = 2;
  check_changes(schedules(), changes, options, [](const std::string& name, const ScheduleOptions& of, Outcome& all) {
    const auto schedule = schedules().at(name)(of);
    for (int step = 0; step < 20; ++step) all.add(schedule->lr(step));
  });
}

TEST_CASE("selectors read the options that they name", "[options][settings]") {
  constexpr int kLayers = 5;
  const Changes<SelectorOptions> changes = {
      {"budget", [](auto& o) { o.budget = 4; }},
      {"selector:p_min", [](auto& o) { o.p_min = .9; }},  // more than the budget allows
      {"selector:loss", [](auto& o) { o.bandit_loss = "paper"; }},
      {"selector:rate", [](auto& o) { o.bandit_rate = .9; }},
      {"selector:t0", [](auto& o) { o.freeze_t0 = .3; }},
      {"selector:schedule", [](auto& o) { o.freeze_schedule = "linear"; }},
      {"selector:lr", [](auto& o) { o.freeze_lr = "constant"; }},
      {"selector:percentile", [](auto& o) { o.freeze_percentile = 90; }}};
  SelectorOptions options;
  options.layers = kLayers;
  options.budget = 3;
  options.steps = 400;
  options.freeze_percentile = 30;
  check_changes(selectors(), changes, options, [](const std::string& name, const SelectorOptions& of, Outcome& all) {
    const auto selector = selectors().at(name)(of);
    for (int step = 0; step < of.steps; ++step) {
      selector->begin(step);
      std::vector<double> norms;
      for (int d = 0; d < kLayers; ++d) norms.push_back(10 + (1 + 2 * d) * std::sin(step / (3.0 + d)));
      selector->learn({std::vector<float>(kLayers, 1.0F)}, norms);
      all.add(selector->probabilities());
      all.add(selector->rates() == nullptr ? std::vector<double>{} : *selector->rates());
    }
  });
}

TEST_CASE("losses read the options that they name", "[options][settings]") {
  constexpr int kImages = 12, kClasses = 4;
  const Changes<LossOptions> changes = {{"lambda", [](auto& o) { o.lambda = .5; }},
                                        {"beta", [](auto& o) { o.beta = .5; }},
                                        {"label-smoothing", [](auto& o) { o.smoothing = .1; }},
                                        {"loss:detach", [](auto& o) { o.detach = true; }}};
  check_changes(
      losses(), changes, LossOptions{}, [&](const std::string& name, const LossOptions& options, Outcome& all) {
        const auto loss = losses().at(name)(options);
        const auto values = [&](unsigned seed) { return shared(random_values(kImages * kClasses, seed, -2, 2)); };
        const auto attacked = values(1), other = values(2);
        Shared<std::int32_t> labels(kImages);
        for (int i = 0; i < kImages; ++i) labels[static_cast<std::size_t>(i)] = i % kClasses;
        Shared<double> scratch(static_cast<std::size_t>(loss->scratch(kClasses)), 0.0);
        std::vector<Shared<float>> gradients, rest;
        std::vector<Logits> logits;
        for (const Loss::Images images : loss->passes())
          logits.push_back(
              {{.device = kernel_backend().device(), .n = kImages, .classes = kClasses, .labels = labels.data()},
               (images == Loss::Images::attacked ? attacked : other).data(),
               rest.emplace_back(kImages).data(),
               rest.emplace_back(kImages).data(),
               gradients.emplace_back(kImages * kClasses).data(),
               other.data(),
               scratch.data()});
        for (std::size_t k = 0; k < logits.size(); ++k) loss->differentiate(k, logits, kImages);
        kernel_backend().wait();
        for (const auto& gradient : gradients) all.add(std::vector<float>(gradient.begin(), gradient.end()));
      });
}

TEST_CASE("codecs read the options that they name", "[options][settings]") {
  const Changes<CodecSettings> changes = {{"codec:rank", [](auto& o) { o.codec_rank = 1; }},
                                          {"codec:clip", [](auto& o) { o.codec_clip = 1; }}};
  check_changes(codecs(), changes, CodecSettings{},
                [&](const std::string& name, const CodecSettings& settings, Outcome& all) {
                  ReductionCase f;
                  f.codec_options.settings = settings;
                  GradientReducer reducer = f.reducer({}, name);
                  all.add(f.reduce(reducer, ActiveSet::all(f.model.parameters.layers()), 0));
                });
}

TEST_CASE("aggregators read the options that they name", "[options][settings]") {
  constexpr int kRanks = 7, kNumbers = 32;
  const Changes<AggregatorOptions> changes = {
      {"faults", [](auto& o) { o.faults = 0; }},
      {"aggregator:mixing", [](auto& o) { o.settings.aggregator_mixing = true; }},
      {"aggregator:tau", [](auto& o) { o.settings.aggregator_tau = .1; }},
      {"aggregator:iterations", [](auto& o) { o.settings.aggregator_iterations = 1; }}};
  const AggregatorOptions options{.ranks = kRanks, .faults = 2};
  check_changes(aggregators(), changes, options,
                [](const std::string& name, const AggregatorOptions& of, Outcome& all) {
                  const auto backend = test_backend(1);
                  Parameters p;
                  p.segments.push_back({"t", {kNumbers}, "t", "t", 0, kNumbers, 0});
                  p.size = kNumbers;
                  assign_layers(p, Granularity::tensor);
                  ChunkTable table(*backend, p);
                  std::vector<float> gradients = random_values(kRanks * kNumbers, 5);
                  gradients[3] = std::numeric_limits<float>::quiet_NaN();  // of a rank that is at fault
                  float* const result = backend->allocate_floats(kNumbers, "test");
                  const auto aggregator = aggregators().at(name)(*backend, p, of);
                  aggregator->aggregate({.chunks = table.select(ActiveSet::all(1)),
                                         .gradients = to_device(*backend, gradients),
                                         .stride = kNumbers,
                                         .result = result});
                  all.add(to_host(*backend, result, kNumbers));
                });
}

namespace {

/// Images whose gradient is random, and no network.
class AnyObjective final : public Objective {
 public:
  AnyObjective()
      : x_(shared(random_values(kNumbers, 1, 0, 1))),
        perturbed_(x_),
        eta_(x_),
        dx_(shared(random_values(kNumbers, 2))),
        ids_(kImages, 7) {
    device = kernel_backend().device();
    layout = {.c = 3, .h = 4, .w = 4};
    n = kImages;
    clean = x_.data();
    x_adv = perturbed_.data();
    eta = eta_.data();
    dx = dx_.data();
    sample_ids = ids_.data();
    scratch = scratch_.data();
    scratch_stride = kNumbers;
  }
  void gradient() override {}
  [[nodiscard]] std::vector<float> attacked() const {
    kernel_backend().wait();
    return {perturbed_.begin(), perturbed_.end()};
  }

 private:
  static constexpr int kImages = 2, kNumbers = kImages * 3 * 4 * 4;
  Shared<float> x_, perturbed_, eta_, dx_;
  Shared<float> scratch_ = Shared<float>(4 * kNumbers);
  Shared<std::int64_t> ids_;
};

}  // namespace

TEST_CASE("attacks read the options that they name", "[options][settings]") {
  const Changes<AttackOptions> changes = {{"attack-steps", [](auto& o) { o.steps = 3; }},
                                          {"alpha", [](auto& o) { o.alpha = .02; }},
                                          {"attack-stop", [](auto& o) { o.stop = 1; }},  // refused: nothing is fooled
                                          {"attack-start", [](auto& o) { o.start_radius = .5; }},
                                          {"project", [](auto& o) { o.project = false; }}};
  check_changes(attacks(), changes, AttackOptions{.eps = .3, .alpha = .05, .steps = 2},
                [](const std::string& name, AttackOptions options, Outcome& all) {
                  const std::vector<Setting> settings = attacks().settings(name);
                  if (settings.empty()) return;  // it searches, and wants a network
                  if (const Setting* const norm = setting_of(settings, "norm")) options.norm = norm_from(norm->value);
                  const auto attack = attacks().at(name)(options);
                  AnyObjective objective;
                  attack->perturb(objective);
                  all.add(objective.attacked());
                });
}

TEST_CASE("What nobody has chosen follows from the layers and from whether messages overlap", "[options]") {
  CHECK(default_budget(54) == 40);
  CHECK((default_bucket(true) == 524288 && default_bucket(false) == 1048576));
}

TEST_CASE("A step may be left out where bad ones are skipped, corruption is repaired, or numbers are f16",
          "[options]") {
  const auto may = [](const std::function<void(TrainOptions&)>& change) {
    TrainOptions options;
    change(options);
    return options.steps_may_be_left_out();
  };
  CHECK(!may([](TrainOptions&) {}));
  CHECK(may([](TrainOptions& o) { o.max_bad_steps = 1; }));
  CHECK(may([](TrainOptions& o) { o.on_corruption = "repair"; }));
  CHECK(may([](TrainOptions& o) { o.precision = "f16"; }));
}
