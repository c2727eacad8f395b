// What stands still in a training, and the rate of the last layer.

#include "by_epoch.hpp"
#include "catch.hpp"
#include "dat/selector.hpp"
#include "replica/model_state.hpp"
#include "small_run.hpp"
#include "train/plan/frozen.hpp"
#include "train/planned.hpp"
#include "train/trainer.hpp"

using namespace dat;
using test::to_host;
using test::weights_of;

namespace {

/// Three steps an epoch; conv1 and bn1 stand still.
[[nodiscard]] TrainOptions frozen_run() {
  TrainOptions options = test::small_run();
  options.limit_train = 48;
  options.limit_test = 16;
  options.epochs = 2;
  options.lambda = 0;
  options.selector = "all";
  options.optimizer = "sgd";
  options.weight_decay = 0.1;
  options.freeze = "conv1";
  return options;
}

[[nodiscard]] int segments_of(const std::string& network, const std::string& freeze,
                              Granularity granularity = Granularity::tensor) {
  return frozen_segments(networks().at(network)({.width = 16}), granularity, freeze);
}

}  // namespace

TEST_CASE("Stages, blocks and modules are frozen with all before them", "[fine]") {
  const auto [network, name, segments] = GENERATE(table<std::string, std::string, int>({
      {"small_cnn", "conv1", 3},
      {"small_cnn", "bn2", 6},
      {"small_cnn", "all-but-head", 9},
      {"resnet18", "none", 0},
      {"resnet18", "stem", 3},
      {"resnet18", "layer1", 15},
      {"resnet18", "layer2.0", 24},
      {"resnet18", "layer2.0.conv1", 18},
      {"resnet18", "layer2.0.shortcut", 24},
      {"imagenet_resnet18", "layer1", 15},
      {"imagenet_resnet18", "all-but-head", 60},
      {"preact_resnet18", "stem", 1},
      {"preact_resnet18", "layer1.0.conv1", 4},
      {"preact_resnet18", "all-but-head", 52},
      {"preact_resnet18_bn", "all-but-head", 54},
      {"wrn_16_4", "block2", 26},
      {"wrn_16_4", "block1.layer.0", 7},
  }));
  INFO(network << " " << name);
  CHECK(segments_of(network, name) == segments);
}

TEST_CASE("What cannot be frozen is refused, with the names that are most like it first", "[fine]") {
  const auto refusal = [](const std::string& network, const std::string& name, Granularity granularity) {
    return error_of([&] { (void)segments_of(network, name, granularity); });
  };
  const std::string unknown = refusal("resnet18", "layer5", Granularity::tensor);
  CHECK(unknown.starts_with("2: --freeze layer5: the network has nothing of this name; it has layer"));
  CHECK(contains(unknown, "all-but-head, stem, layer"));
  const std::string begin = "the network has nothing of this name; it has ";
  CHECK(refusal("small_cnn", "conv9", Granularity::tensor) ==
        "2: --freeze conv9: " + begin + "conv1, conv2, conv3, all-but-head; or a module within them, such as conv2");
  CHECK(refusal("small_cnn", "xyz", Granularity::tensor) ==
        "2: --freeze xyz: " + begin + "all-but-head, conv1, conv2, conv3; or a module within them, such as conv2");
  const std::string deep = refusal("dm_wrn_28_10", "block3", Granularity::tensor);
  CHECK(contains(deep, "stem, layer.0, layer.0.block.0, layer.0.block.1"));
  CHECK(!contains(deep, "logits"));
  CHECK(segments_of("dm_wrn_28_10", "layer.1") == segments_of("dm_wrn_28_10", "layer.1.block.3"));
  CHECK(contains(refusal("resnet18", "layer", Granularity::tensor), "nothing of this name"));
  CHECK(contains(refusal("resnet18", "layer2.0.conv9", Granularity::tensor), "it has layer2.0.conv"));
  CHECK(contains(refusal("resnet18", "linear", Granularity::tensor), "leaves nothing to train"));
  CHECK(contains(refusal("preact_resnet18_bn", "all-but-head", Granularity::block),
                 "ends within linear, which --granularity makes one layer"));
  CHECK(contains(refusal("resnet18", "layer1.0.conv1", Granularity::block), "take --granularity tensor"));
  CHECK(segments_of("resnet18", "layer1.0", Granularity::block) == 9);
}

TEST_CASE("Behind layers that stand still, a selector knows its own", "[fine][selector]") {
  const SelectorOptions options{{.budget = 2, .p_min = 0.1}, 4, {}, 100};
  const auto plain = selectors().at("oracle")(options);
  const auto behind = behind_frozen(selectors().at("oracle")(options), 2, 6, 100);
  const auto same = [&] {
    std::vector<double> expected = plain->probabilities();
    expected.insert(expected.begin(), 2, 0.0);
    CHECK(behind->probabilities() == expected);
    CHECK(behind->state() == plain->state());
  };
  for (int step = 0; step < 3; ++step) {
    plain->begin(step);
    behind->begin(step);
    same();
    plain->learn({{1, 0, 1, 2}}, {1, 0, step + 2.0, 3});
    behind->learn({{0, 0, 1, 0, 1, 2}}, {9, 9, 1, 0, step + 2.0, 3});
    same();
  }
  const auto again = behind_frozen(selectors().at("oracle")(options), 2, 6, 100);
  again->restore(behind->state());
  CHECK(again->probabilities() == behind->probabilities());
  CHECK(behind->rates() == nullptr);
  const auto fading = behind_frozen(selectors().at("freezeout")(options), 2, 6, 100);
  const auto alone = selectors().at("freezeout")(options);
  for (const bool begun : {false, true}) {
    for (LayerSelector* const one : {fading.get(), alone.get()})
      if (begun) one->begin(7);
    REQUIRE(fading->rates() != nullptr);
    std::vector<double> expected = *alone->rates();
    expected.insert(expected.begin(), 2, 0.0);
    CHECK(*fading->rates() == expected);
  }
  CHECK(behind_frozen(selectors().at("all")(options), 1, 5, 5)->probabilities() == std::vector<double>{0, 1, 1, 1, 1});
  const auto some = behind_frozen(selectors().at("all")(options), 2, 6, 5);
  some->begin(4);
  CHECK(some->probabilities() == std::vector<double>{0, 0, 1, 1, 1, 1});
  some->begin(5);
  CHECK(some->probabilities() == std::vector<double>(6, 1.0));
}

TEST_CASE("What stands still keeps its bits, in the average too, costs nothing and is told so", "[fine][trainer]") {
  TrainOptions options = frozen_run();
  options.average = "ema";
  options.average_decay = 0.5;
  options.micro_batch = 8;
  options.attack = GENERATE("pgd", "fgsm");
  const bool one_step = options.attack == "fgsm";
  options.attack_bn = one_step ? "train" : "eval";
  options.average_bn = one_step ? "rebuild" : "ema";
  const bool ends = GENERATE(false, true);
  if (ends) options.freeze = test::by_epoch<std::string>({{options.frozen(), 0}, {"none", 1}});
  Trainer trainer(test::single(), options);
  Model& model = trainer.replica().model();
  // One behind the other: what is written past the means is in the variances.
  model.running_mean = model.backend.allocate_floats(2 * model.graph.statistics, "test");
  model.running_variance = model.running_mean + model.graph.statistics;
  set_running_statistics(model, std::vector<float>(2 * static_cast<std::size_t>(model.graph.statistics), 0.5F));
  trainer.share_state();
  const int frozen = model.freezing.segments;
  const std::int64_t end = model.parameters.segments[static_cast<std::size_t>(frozen)].begin,
                     channels = model.graph.statistics_of(frozen);
  REQUIRE(frozen == 3);
  REQUIRE(channels == 16);
  if (!ends) CHECK(trainer.layers().costs().front() == 0);
  const std::vector<double> costs = trainer.layers().costs();
  CHECK((std::ssize(costs) == model.parameters.layers() && costs.back() > 0));
  const auto statistics = to_host(model.backend, model.running_mean, channels);
  const auto before = weights_of(trainer);
  const auto same = [&](const std::vector<float>& weights) {
    return std::equal(weights.begin(), weights.begin() + end, before.begin());
  };
  trainer.start();
  for (int step = 0; step < 6; ++step) {
    const bool still = !ends || step < 3;
    const StepRecord& record = trainer.step(false);
    INFO("step " << step);
    CHECK(record.weight_gradients == 2 * (still ? 2 : 3));
    CHECK((record.active_elements < model.parameters.size) == still);
    CHECK((*record.p)[0] == (still ? 0 : 1));
    const auto weights = weights_of(trainer);
    CHECK(same(weights) == still);
    CHECK(!std::equal(weights.begin() + end, weights.end(), before.begin() + end));
    for (const float* array : {model.running_mean, model.running_variance})
      CHECK((to_host(model.backend, array, channels) == statistics) == still);
    CHECK(to_host(model.backend, model.running_mean, model.graph.statistics).back() != 0);
    if (step % 3 != 2) continue;
    (void)trainer.evaluate();
    const Checkpoint checkpoint = trainer.capture();
    CHECK((checkpoint.array("optim/average/conv1.weight", {16, 3, 3, 3}).values ==
           checkpoint.array("param/conv1.weight", {16, 3, 3, 3}).values) == still);
    for (const char* name : {"bn1.running_mean", "bn1.running_var"})
      CHECK((checkpoint.array(std::string("optim/average/") + name, {16}).values ==
             checkpoint.array(std::string("bn/") + name, {16}).values) == still);
    const auto& momentum = checkpoint.array("optim/momentum/conv1.weight", {16, 3, 3, 3}).values;
    CHECK(std::all_of(momentum.begin(), momentum.end(), [](float v) { return v == 0; }) == still);
  }
}

TEST_CASE("What a plan says of frozen layers counts a layer that is drawn by its probability", "[fine]") {
  TrainOptions options = frozen_run();
  options.selector = "uniform";
  options.budget = 4;  // of eight
  options.lambda = 1;
  options.micro_batch = 8;
  Trainer trainer(test::single(), options);
  auto segments = trainer.model().parameters.segments;
  segments.erase(segments.begin(), segments.begin() + 3);
  CHECK(segments.size() == 8);
  const auto text = [&] { return frozen_text(trainer, options, trainer.plan()); };
  const std::string begin =
      "trained          " + std::to_string(file_size(segments)) + " parameters, those after conv1";
  // Two passes over two micro-batches, with two convolutions in half of the draws: 4 * 256 / 255, as one of 256 draws
  // has no layer and is repeated.
  const std::string gradients = "; 4.01569 weight gradients of convolutions per step\n";
  CHECK(text() == begin + gradients);
  options.freeze = test::by_epoch<std::string>({{"conv1", 0}, {"none", 1}});
  CHECK(text() == begin + "; all after 1 epochs" + gradients);
  options.freeze = "all-but-head";
  CHECK(contains(text(), ", those after all but the last layer; "));
  options.freeze = "none";
  CHECK(text().empty());
}

TEST_CASE("Passes without a way back for what always stands still need less memory, and give the same bits",
          "[fine][trainer]") {
  TrainOptions options = frozen_run();
  const auto run = [&](const ByEpoch<std::string>& freeze) {
    options.freeze = freeze;
    test::OneRank trainer(options, 2);
    return std::pair(trainer.weights_hash(), trainer.replica().training(16).workspace_bytes());
  };
  const auto [weights, bytes] = run(std::string("conv2"));
  const auto [other_weights, more] = run(test::by_epoch<std::string>({{"conv2", 0}, {"none", 1}}));
  CHECK(weights == other_weights);
  CHECK(bytes < more);
}

TEST_CASE("The last layer has a learning rate of its own", "[fine][trainer]") {
  TrainOptions options = frozen_run();
  options.freeze = "none";
  options.weight_decay = 0;
  options.lr = 0.01;
  options.epochs = 1;
  options.optimizer = GENERATE("sgd", "lars", "lars_sgd", "lamb");
  options.importance = GENERATE("inside", "outside");
  options.clip_norm = options.optimizer == "sgd" ? 1 : 0;
  const auto step = [&](double head_lr) {
    options.head_lr = head_lr;
    test::OneRank trainer(options);
    const auto before = weights_of(trainer);
    (void)trainer.step(false);
    auto moved = weights_of(trainer);
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] -= before[i];
    const auto& segments = trainer.model().parameters.segments;
    return std::pair(moved, static_cast<std::size_t>(segments[segments.size() - 2].begin));
  };
  const auto [plain, head] = step(0);
  const auto [fast, same_head] = step(0.02);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    INFO(i << " of " << head);
    const float factor = i < head ? 1 : 2;
    CHECK(std::fabs(fast[i] - factor * plain[i]) <= 2e-6F * factor);
  }
  CHECK(plain.back() != 0);
}
