#include "by_epoch.hpp"
#include "catch.hpp"
#include "datasets.hpp"
#include "device.hpp"
#include "pointwise.hpp"
#include "random_values.hpp"
#include "replica/model_state.hpp"
#include "small_network.hpp"
#include "small_run.hpp"
#include "train/learner/weight_perturbation.hpp"
#include "train/plan/goal.hpp"
#include "train/plan/replica_of.hpp"
#include "train/plan/role.hpp"
#include "train/planned.hpp"
#include "train/trainer.hpp"

using namespace dat;

namespace {

/// Epochs of three steps.
[[nodiscard]] TrainOptions short_epochs(int epochs) {
  TrainOptions options = test::small_run();
  options.limit_train = 48;
  options.epochs = epochs;
  return options;
}

[[nodiscard]] std::string weights_after(const TrainOptions& options, int steps) {
  return test::OneRank(options, steps).weights_hash();
}

}  // namespace

TEST_CASE("perturbed weights have a higher loss, and are put back bit for bit", "[trainer][long]") {
  TrainOptions options = test::small_run();
  options.loss = GENERATE("cross_entropy", "trades");
  options.micro_batch = GENERATE(16, 8);
  options.selector = "all";
  options.optimizer = "sgd";
  options.lr = 0;
  const auto loss_after = [&](int steps) {
    test::OneRank trainer(options);
    const std::string before = trainer.weights_hash();
    double loss = 0;
    for (int k = 0; k < steps; ++k) {
      const StepRecord& record = trainer.step(false);
      loss = options.loss == "trades" ? 6 * record.loss_adv + record.loss_clean : record.loss_adv;
    }
    CHECK(trainer.weights_hash() == before);
    return loss;
  };
  const double plain = loss_after(1);
  options.awp_gamma = 0.05;
  for (const std::string awp : {"global", "local"}) {
    options.awp = awp;
    options.deterministic = awp == "global";
    CHECK(loss_after(1) > plain);
    (void)loss_after(3);
  }
}

TEST_CASE("from an epoch on, a step has the attack of that epoch", "[trainer]") {
  TrainOptions options = short_epochs(3);
  options.attack_steps = 1;
  TrainOptions changes = options;
  changes.attack_steps = test::by_epoch({{1, 0}, {2, 1}});
  CHECK(weights_after(changes, 3) == weights_after(options, 3));
  CHECK(weights_after(changes, 4) != weights_after(options, 4));
  changes.attack_steps = test::by_epoch({{1, 0}, {1, 1}});
  CHECK(weights_after(changes, 6) == weights_after(options, 6));
  changes = options;
  changes.eps = test::by_epoch<double>({{0, 0}, {options.eps.last(), 2}});
  TrainOptions none = options;
  none.attack = "none";
  CHECK(test::OneRank(none).step(false).eps == 0);
  CHECK(weights_after(changes, 6) == weights_after(none, 6));
  CHECK(weights_after(changes, 7) != weights_after(none, 7));
  CHECK(test::OneRank(changes).step(false).attack_passes == 0);
  changes.attack_bn = "train";
  TrainOptions box = changes;  // without a projection; in the ball of radius 0 the images stay as they are
  box.project = "off";
  CHECK(weights_after(box, 6) == weights_after(changes, 6));
  CHECK(weights_after(box, 7) != weights_after(changes, 7));
  changes.attack_steps = test::by_epoch({{1, 0}, {2, 1}});
  CHECK_THROWS_AS(weights_after(changes, 1), Error);  // more passes in batch statistics
}

TEST_CASE("the first step has no older weights to attack with, the second one has", "[trainer]") {
  TrainOptions options = test::small_run();
  options.lr = 0.1;
  TrainOptions stale = options;
  stale.staleness = 1;
  for (const int stop : {1, -1}) {  // the oldest weights throughout, or newer ones between iterations
    options.attack_stop = stale.attack_stop = stop;
    CHECK(weights_after(stale, 1) == weights_after(options, 1));
    CHECK(weights_after(stale, 2) != weights_after(options, 2));
  }
  stale.attack_bn = "train";
  CHECK(error_of([&] {
          (void)weights_after(stale, 0);
        }).starts_with("2: --staleness wants attacks that leave batch statistics alone"));
}

TEST_CASE("weights are perturbed from the epoch on that --awp-gamma names", "[trainer]") {
  TrainOptions options = short_epochs(3);
  TrainOptions awp = options;
  awp.awp_gamma = test::by_epoch<double>({{0, 0}, {0.01, 1}});
  CHECK(weights_after(awp, 3) == weights_after(options, 3));
  CHECK(weights_after(awp, 4) != weights_after(options, 4));
  CHECK(test::OneRank(awp).step(false).weight_gradients == test::OneRank(options).step(false).weight_gradients);
  awp.awp_gamma = 0.01;
  CHECK(weights_after(awp, 1) != weights_after(options, 1));
}

TEST_CASE("weights decay as they are where they are perturbed", "[trainer]") {
  TrainOptions options = test::small_run();
  options.selector = "all";
  options.optimizer = "sgd";
  options.lr = 0.1;
  std::vector<float> after[4];
  for (int k = 0; k < 4; ++k) {
    options.awp_gamma = k / 2 * 0.05;
    options.weight_decay = k % 2 * 0.5;
    test::OneRank trainer(options, 1);
    after[k] = test::weights_of(trainer);
  }
  double all = 0, other = 0;
  for (std::size_t i = 0; i < after[0].size(); ++i) {  // what decay takes off, whatever the gradient is
    const double plain = after[0][i] - after[1][i], perturbed = after[2][i] - after[3][i];
    all += plain * plain;
    other += (perturbed - plain) * (perturbed - plain);
  }
  CHECK(other > 1e-4 * all);  // 0.05^2 of what is perturbed
}

TEST_CASE("a step of perturbed weights that is left out leaves all as it was: weights, codecs, warm starts",
          "[trainer]") {
  TrainOptions options = short_epochs(2);
  options.awp = GENERATE("global", "local");
  options.deterministic = options.awp == "global";
  options.awp_gamma = test::by_epoch<double>({{0, 0}, {1e25, 1}});
  options.max_bad_steps = 2;
  options.selector = "all";
  options.codec = "powersgd";
  options.warm_start = 5;
  options.micro_batch = 4;
  test::OneRank trainer(options, 3);
  const auto remembered = [&] {
    const Checkpoint checkpoint = trainer.capture();
    std::pair<std::map<std::string, std::vector<float>>, std::map<std::string, std::vector<std::uint8_t>>> all;
    for (const Checkpoint::Array& one : checkpoint.arrays) all.first[one.name] = one.values;
    for (const auto& [name, one] : checkpoint.bytes) all.second[name] = one.values;
    return all;
  };
  const auto before = remembered();
  CHECK(before.second.contains("perturbations"));
  (void)trainer.step(false);
  CHECK(!trainer.skipped().empty());
  CHECK(remembered() == before);
}

TEST_CASE("a checkpoint of LAMB goes on with the step counts that it was made with, or not at all", "[trainer]") {
  TrainOptions options = test::small_run();
  options.granularity = "module";
  options.budget = 2;
  options.bias_correction = true;
  test::OneRank trainer(options);
  std::vector<double> drawn(static_cast<std::size_t>(trainer.model().parameters.layers()), 0.0);
  for (int k = 0; k < 6; ++k) {
    const StepRecord& record = trainer.step(false);
    for (std::size_t d = 0; d < drawn.size(); ++d) drawn[d] += (*record.scale)[d] != 0 ? 1 : 0;
  }
  const Checkpoint corrected = trainer.capture();
  CHECK(corrected.doubles.at("optimizer") == drawn);
  CHECK(*std::min_element(drawn.begin(), drawn.end()) < 6);
  const auto code = [&](bool correction, const Checkpoint& checkpoint) {
    options.bias_correction = correction;
    Trainer other(test::single(), options);
    return code_of([&] { other.restore(checkpoint); });
  };
  CHECK(code(true, corrected) == ExitCode::done);
  CHECK(code(false, corrected) == ExitCode::checkpoint);
  Checkpoint plain = corrected;
  plain.doubles.erase("optimizer");
  CHECK(code(true, plain) == ExitCode::checkpoint);
  CHECK(code(false, plain) == ExitCode::done);
}

TEST_CASE("a mask of one worker is a shared one, up to where 1/p is multiplied", "[trainer]") {
  TrainOptions options = test::small_run();
  options.optimizer = GENERATE("lamb", "lars", "sgd");
  options.budget = 4;
  TrainOptions own = options;
  own.mask = "per_worker";
  test::OneRank shared(options), worker(own);
  const StepRecord &a = shared.step(false), &b = worker.step(false);
  CHECK((shared.layers().places() == 1 && worker.layers().places() == 0));
  // The same draw, the same gradients, the same norms: the same probabilities. All bit for bit.
  CHECK(*a.scale == *b.scale);
  REQUIRE((a.norms != nullptr && b.norms != nullptr));
  CHECK(*a.norms == *b.norms);
  CHECK(shared.layers().selector().state() == worker.layers().selector().state());
  CHECK(a.active_elements == b.active_elements);
  CHECK(b.bytes_sent == 0);
  // Then gradient/p is a rounded number, where the optimizers may add the product to another in one rounding. LAMB does
  // not add it, and its weights stay the same.
  if (options.optimizer == "lamb") {
    for (int k = 0; k < 5; ++k) (void)shared.step(false), (void)worker.step(false);
    CHECK(shared.weights_hash() == worker.weights_hash());
    options.resample = own.resample = "2";
    CHECK(weights_after(own, 4) == weights_after(options, 4));
    return;
  }
  const auto x = test::weights_of(shared), y = test::weights_of(worker);
  double largest = 0, off = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::abs(double(x[i])));
    off = std::max(off, std::abs(double(x[i]) - y[i]));
  }
  CHECK(off <= 8 * 0x1p-24 * largest);  // a step is shorter than the weights, and has a few roundings more
}

TEST_CASE("only active layers' weight gradients are computed, and one rank sends nothing", "[trainer]") {
  TrainOptions options = test::small_run();
  options.budget = 4;
  options.micro_batch = 8;  // two of them, which compute the same ones
  options.p_min = 0.1;
  test::OneRank trainer(options);
  int convolutions_left_out = 0;
  CHECK((trainer.reducer().memory(1) > 0 && memory_of(trainer, options, 1).at("messages of 1 ranks") == 0));
  TrainOptions byzantine = options;  // for which one rank needs nothing
  byzantine.byzantine = true;
  CHECK(!memory_of(trainer, byzantine, 1).contains("protocol that bans"));
  for (int k = 0; k < 12; ++k) {
    const StepRecord& record = trainer.step(false);
    std::int64_t elements = 0, convolutions = 0;
    for (const Segment& segment : trainer.model().parameters.segments) {
      const bool active = (*record.scale)[static_cast<std::size_t>(segment.layer)] != 0.0F;
      elements += active ? segment.size : 0;
      convolutions += active && segment.shape.size() == 4 ? 1 : 0;
    }
    CHECK(record.bytes_sent == 0);
    CHECK(record.bytes_other == 0);
    CHECK(record.active_elements == elements);
    CHECK(record.weight_gradients == 2 * convolutions);
    convolutions_left_out += 3 - static_cast<int>(convolutions);
  }
  CHECK(convolutions_left_out > 0);
}

TEST_CASE("during the warm-up all layers are active and the bandit rests; then it learns before a draw", "[trainer]") {
  TrainOptions options = short_epochs(3);
  options.warmup_epochs = 1;
  options.resample = "epoch";
  test::OneRank trainer(options);
  const std::vector<double> p = trainer.layers().selector().probabilities();
  for (int step = 0; step < 7; ++step) {
    const StepRecord& record = trainer.step(false);
    CHECK((record.norms != nullptr) == (step == 5));
    if (step >= 3) continue;
    CHECK(std::all_of(record.scale->begin(), record.scale->end(), [](float s) { return s == 1.0F; }));
    CHECK(trainer.layers().selector().probabilities() == p);
  }
  // Where the warm-up is longer all of a sudden, what was drawn counts no more.
  const Checkpoint drawn = trainer.capture();
  CHECK(std::ranges::min(drawn.doubles.at("p")) < 1);
  options.warmup_epochs = 3;
  test::Resumed longer(test::single(), options, drawn);
  longer.start();
  const StepRecord& record = longer.step(false);
  CHECK(std::ranges::count(*record.scale, 1.0F) == trainer.model().parameters.layers());
  CHECK(std::ranges::count(*record.p, 1.0) == trainer.model().parameters.layers());
}

namespace {

/// Trains a few steps, after which all padding must be zero.
void require_zero_padding(const TrainOptions& options) {
  test::OneRank trainer(options, 3);
  const Model& model = trainer.model();
  std::int64_t padding = 0;
  for (const float* array : {model.parameters.values, model.parameters.gradients})
    for (const Segment& segment : model.parameters.segments) {
      INFO(segment.name);
      const auto memory = test::to_host(model.backend, array + segment.begin, segment.size);
      std::vector<float> without(memory.size());
      to_memory_order(segment, model.download(segment, array).data(), without.data());
      CHECK(memory == without);
      padding += segment.size - segment.file_size();
    }
  CHECK(padding > 0);
  for (const Norm& norm : model.graph.norms)
    for (const float* statistic : {model.running_mean, model.running_variance}) {
      const auto values = test::to_host(model.backend, statistic + norm.begin, norm.channels);
      for (int c = norm.file_channels(); c < norm.channels; ++c) CHECK(values[static_cast<std::size_t>(c)] == 0);
    }
}

}  // namespace

TEST_CASE("channels that fill up a network stay zero, whatever computes with them", "[trainer]") {
  TrainOptions options = short_epochs(1);
  options.width = 20;
  options.optimizer = GENERATE("lamb", "lars", "sgd");
  options.weight_decay = 0.1;
  options.average = options.optimizer == "lamb" ? "ema" : "none";
  options.awp_gamma = options.optimizer == "sgd" ? 0.01 : 0;
  options.lambda = 1;
  require_zero_padding(options);
}

TEST_CASE("channels that fill up a network stay zero after codecs that mix elements", "[trainer]") {
  TrainOptions options = short_epochs(1);
  options.network = "preact_resnet18";  // has tensors of all the forms that codecs tell apart
  options.width = GENERATE(20, 21);
  options.codec = GENERATE("atomo", "powersgd", "terngrad");
  require_zero_padding(options);
}

TEST_CASE("an evaluation of the average is that of a network with these weights, and changes nothing",
          "[trainer][long]") {
  TrainOptions options = test::small_run();
  const auto [rule, statistics] = GENERATE(table<std::string, std::string>(
      {{"ema", "raw"}, {"ema", "ema"}, {"ema", "rebuild"}, {"swa", "rebuild"}, {"swa", "ema"}}));
  INFO(rule << ", statistics " << statistics);
  options.average = rule;
  options.average_bn = statistics;
  options.augment = "none";
  options.micro_batch = 8;
  options.limit_train = 40;  // of 3 steps, the last with micro-batches of 4
  options.limit_test = 37;
  options.epochs = 3;
  TrainOptions plain = options;
  plain.average = "none";
  plain.average_bn = "raw";
  test::OneRank trainer(options, 7), raw(plain, 7);
  CHECK(trainer.weights_hash() == raw.weights_hash());
  std::vector<double> parts;
  double last = 0;
  const std::vector<EvaluationRecord> found = trainer.evaluate([&](double part) { parts.push_back(part); }),
                                      of_raw = raw.evaluate([&](double part) { last = part; });
  CHECK((parts.size() > 4 && parts.front() == 0 && parts.back() == 1 && std::is_sorted(parts.begin(), parts.end())));
  CHECK((std::count(parts.begin(), parts.end(), 0.5) == 1 && last == 1));  // between both networks, or of one
  REQUIRE((found.size() == 2 && of_raw.size() == 1));
  const auto figures = [](const EvaluationRecord& r) {
    return std::tuple{r.clean_acc, r.adv_acc, r.clean_loss, r.adv_loss, r.images};
  };
  CHECK((found[0].weights == "raw" && found[0].picture.png.empty()));  // without TensorBoard
  CHECK(figures(found[0]) == figures(of_raw[0]));
  CHECK(found[1].weights == "average");
  CHECK(figures(found[1]) != figures(of_raw[0]));
  CHECK(trainer.weights_hash() == raw.weights_hash());

  const Checkpoint state = trainer.capture(), before = raw.capture();
  for (const Checkpoint::Array& array : before.arrays)
    CHECK(state.array(array.name, array.shape).values == array.values);
  Checkpoint replaced = before;
  for (Checkpoint::Array& array : replaced.arrays) {
    const std::string name = "optim/average/" + array.name.substr(array.name.find('/') + 1);
    const bool own = array.name.starts_with("param/") || (array.name.starts_with("bn/") && statistics != "raw");
    if (own) array.values = state.array(name, array.shape).values;
  }
  CHECK(has_average_statistics(state) == (statistics != "raw"));
  raw.restore(replaced);
  CHECK(figures(raw.evaluate()[0]) == figures(found[1]));
  if (statistics == "rebuild") {  // the first means, which are linear in the images, are those of all images at once
    const std::vector<float>& rebuilt = state.array("optim/average/bn1.running_mean", {16}).values;
    TrainingProgram& network = raw.replica().training(8);
    const Dataset& train = *raw.splits().train;
    const auto bytes = static_cast<std::int64_t>(train.info().image_bytes());
    HostBatch eight;
    eight.count = 8;
    eight.make_room(8, bytes);
    std::vector<double> means(rebuilt.size());
    for (std::int64_t id = 0; id < 40; ++id) {
      train.read(id, eight.pixels.data() + id % 8 * bytes);
      if (id % 8 < 7) continue;
      network.forward(raw.replica().images().load(eight, 0, nullptr).clean);
      const auto of_eight = test::to_host(raw.replica().backend(), network.statistics(), std::ssize(means));
      for (std::size_t c = 0; c < means.size(); ++c) means[c] += of_eight[c] / 5.0;
    }
    for (std::size_t c = 0; c < means.size(); ++c) CHECK(rebuilt[c] == Approx(means[c]).epsilon(1e-4).margin(1e-5));
  }

  // The next step makes what was rebuilt void, where the average changes in it; the step after that ends an epoch.
  (void)trainer.step(false);
  CHECK(has_average_statistics(trainer.capture()) == (statistics == "ema" || (statistics != "raw" && rule == "swa")));
  (void)trainer.step(false);
  CHECK(has_average_statistics(trainer.capture()) == (statistics == "ema"));
}

TEST_CASE("until averaging begins, the average is the network as it is, without a pass for its statistics",
          "[trainer]") {
  TrainOptions options = short_epochs(3);
  options.average = test::by_epoch<std::string>({{"none", 0}, {"swa", 1}});
  options.average_bn = GENERATE("rebuild", "ema", "raw");
  options.limit_test = 16;
  test::OneRank trainer(options);
  const bool own = options.average_bn != "raw";
  const auto equal = [&] {
    const Checkpoint state = trainer.capture();
    CHECK(has_average_statistics(state) == own);  // they are there without having been asked for
    for (const Checkpoint::Array& array : state.arrays)
      if (array.name.starts_with("param/") || (own && array.name.starts_with("bn/")))
        CHECK(state.array("optim/average/" + array.name.substr(array.name.find('/') + 1), array.shape).values ==
              array.values);
    const std::vector<EvaluationRecord> found = trainer.evaluate();
    REQUIRE(found.size() == 2);
    CHECK(found[0].weights == "raw");
    CHECK(found[1].weights == "average");
    CHECK(found[0].clean_loss == found[1].clean_loss);
    CHECK(found[0].adv_loss == found[1].adv_loss);
  };
  equal();
  for (int k = 0; k < 4; ++k) (void)trainer.step(false);
  equal();
  for (int k = 0; k < 4; ++k) (void)trainer.step(false);  // the second epoch has ended, and then come two steps
  const std::vector<EvaluationRecord> found = trainer.evaluate();
  CHECK(found[0].clean_loss != found[1].clean_loss);
}

TEST_CASE("an average by another rule begins anew, and a run may go on without any", "[trainer]") {
  TrainOptions options = short_epochs(4);
  options.average = "ema";
  options.average_bn = GENERATE("ema", "raw");
  options.optimizer = "lamb";
  options.bias_correction = GENERATE(false, true);
  test::OneRank first(options, 4);
  const Checkpoint state = first.capture();
  CHECK(state.doubles.at("optimizer").back() == 4);
  CHECK(state.texts.at("average") == "ema");
  const auto going_on = [&](const std::string& rule) {
    TrainOptions others = options;
    others.average = rule;
    if (rule == "none") others.average_bn = "raw";
    auto trainer = std::make_unique<test::Resumed>(test::single(), others, state);
    trainer->start();
    return trainer;
  };
  CHECK(going_on("ema")->capture().doubles.at("optimizer").back() == 4);
  const auto other = going_on("swa");
  const Checkpoint begun = other->capture();
  for (const Checkpoint::Array& array : state.arrays)  // what else the optimizer has goes on
    if (!array.name.starts_with("optim/average/")) CHECK(begun.array(array.name, array.shape).values == array.values);
  const auto same_as_weights = [&] {
    const Checkpoint now = other->capture();
    for (const Checkpoint::Array& array : now.arrays)
      if (array.name.starts_with("param/"))
        CHECK(now.array("optim/average/" + array.name.substr(6), array.shape).values == array.values);
    return now.doubles.at("optimizer").back();
  };
  CHECK(same_as_weights() == 0);
  for (int k = 0; k < 2; ++k) (void)other->step(false);
  CHECK(same_as_weights() == 1);  // the first end of an epoch
  CHECK(other->capture().texts.at("average") == "swa");
  const Checkpoint without = going_on("none")->capture();
  CHECK(without.texts.count("average") == 0);
  CHECK(!has_average(without));
  const auto numbers = without.doubles.find("optimizer");
  CHECK((numbers != without.doubles.end()) == options.bias_correction);
}

TEST_CASE("a prediction that is a constant costs no pass", "[trainer]") {
  // Passes back show in the gradients of convolutions by their weights, which the trainer counts.
  const auto weight_gradients = [](const std::string& loss, bool detach) {
    TrainOptions options = test::small_run();
    options.loss = loss;
    options.detach_reference = detach;
    test::OneRank trainer(options);
    const StepRecord& record = trainer.step(false);
    CHECK(std::isfinite(record.loss_adv));
    CHECK(std::isnan(record.loss_clean) == (loss == "pgi"));
    return record.weight_gradients;
  };
  CHECK(weight_gradients("pgi", false) == 2 * weight_gradients("pgi", true));
  for (const char* loss : {"gat", "nuat"}) CHECK(weight_gradients(loss, false) == weight_gradients(loss, true));
}

TEST_CASE("only attacks that climb the loss's goal ask for the logits of clean images", "[trainer]") {
  TrainOptions options = test::small_run();
  options.loss = "trades";
  const auto loss = losses().at("trades")({});
  const auto goal = [&](const char* attack) {
    options.attack = attack;
    return goal_of(options, *loss);
  };
  for (const char* attack : {"pgd", "fgsm"}) {
    CHECK(goal(attack).reference);
    CHECK(goal(attack).loss == kl_divergence);
  }
  for (const char* attack : {"none", "apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "square"}) {
    CAPTURE(attack);
    CHECK(!goal(attack).reference);
    CHECK(goal(attack).loss == cross_entropy);
  }
  // The start that is asked for counts, else the loss's own.
  CHECK((goal("pgd").spread == kNearStart && goal("none").spread == 0));
  options.attack_start = "uniform";
  CHECK(goal("pgd").spread == 0);
  options.attack_start = "gaussian";
  const auto plain = losses().at("cross_entropy")({});
  CHECK(plain->goal().spread == 0);
  CHECK(goal_of(options, *plain).spread == kNearStart);
}

namespace {

/// Hands out the replica's images, micro-batch after micro-batch.
class Handing final : public ExampleSource {
 public:
  Handing(Replica& replica, const Plan& plan) : replica_(replica), plan_(plan), batch_(replica.images().batch()) {
    batch_.n = plan.micro_batch;
    batch_.in_step = plan.batch;
  }
  void start(std::int64_t) override {}
  void begin(std::int64_t) override { batch_.begins_at = -plan_.micro_batch; }
  const Batch* next() override {
    batch_.begins_at += batch_.n;
    const std::int32_t label = batch_.begins_at;
    const std::int64_t id = (std::int64_t{label} << 32) + 7;
    const auto first = static_cast<float>(label), other = first + 0.5F;  // the first numbers of the images
    replica_.backend().copy_to_device(replica_.images().clean, &first, sizeof first);
    replica_.backend().copy_to_device(replica_.images().x_adv, &other, sizeof other);
    replica_.backend().copy_to_device(replica_.images().labels, &label, sizeof label);
    replica_.backend().copy_to_device(replica_.images().ids, &id, sizeof id);
    return batch_.begins_at < plan_.batch ? &batch_ : nullptr;
  }

 private:
  Replica& replica_;
  Plan plan_;
  Batch batch_;
};

}  // namespace

TEST_CASE("examples are kept where kernels may load sixteen bytes at once, whatever the size of an image",
          "[trainer][cpu]") {
  TrainOptions options = test::small_run();
  options.deterministic = false;
  options.batch = 3;
  options.micro_batch = 1;
  options.awp_gamma = 0.01;
  const DatasetInfo info{.size = 9, .channels = 3, .classes = 10, .class_names = numbered_classes(10)};
  const Plan plan(options, 6, 1);
  Replica replica({.backend = {.device = options.device, .threads = 1},
                   .network = options.network,
                   .width = options.width,
                   .images = info,
                   .micro_batch = plan.micro_batch,
                   .training_batches = {plan.micro_batch, plan.last_micro_batch}});
  PhaseTimer timer(replica.backend());
  const StepMethod method(options, test::Given(2));
  const auto layers = make_layer_sampling(test::single(), options, plan, replica.model());
  Backend& backend = replica.backend();
  float* const gradients = backend.allocate_floats(replica.model().parameters.size, "test");
  WeightPerturbation perturbation(test::single(), options, plan, method, replica,
                                  std::make_unique<Handing>(replica, plan), *layers, gradients, nullptr, nullptr,
                                  timer);
  replica.model().initialize(1);
  replica.commit();
  const std::int64_t image = replica.images().layout.elements();
  CHECK(image % 4 != 0);
  auto pixels = test::random_values(image, 3, 0, 1);
  for (float* to : {replica.images().clean, replica.images().x_adv})
    backend.copy_to_device(to, pixels.data(), pixels.size() * sizeof(float));
  (void)layers->draw(0);
  std::vector<const float*> places;  // the same in every step
  for (const int step : {0, 1}) {
    perturbation.begin(step);
    int micro_batches = 0;
    while (const Batch* batch = perturbation.next()) {
      CHECK(batch->begins_at == micro_batches++);
      for (const float* kept : {batch->x_adv, batch->clean}) {
        pixels[0] = static_cast<float>(batch->begins_at) + (kept == batch->clean ? 0.0F : 0.5F);
        CHECK(reinterpret_cast<std::uintptr_t>(kept) % 16 == 0);
        CHECK(test::to_host(backend, kept, image) == pixels);
        places.push_back(kept);
      }
      CHECK(test::to_host(backend, batch->labels, 1)[0] == batch->begins_at);
      CHECK(test::to_host(backend, batch->sample_ids, 1)[0] == (std::int64_t{batch->begins_at} << 32) + 7);
    }
    CHECK(micro_batches == 3);
  }
  CHECK((perturbation.checkpoint_bytes(3) == 0 && perturbation.attack_passes() == 0 && perturbation.bytes_sent() == 0));
  CHECK((!perturbation.stop_wanted() && perturbation.generators() == nullptr && perturbation.dropped().empty()));
  CHECK(std::equal(places.begin(), places.begin() + 6, places.begin() + 6, places.end()));
  const auto before = std::ssize(backend.allocations());
  const KeptBatches room(replica.images(), 3, 2);
  const auto all = backend.allocations();
  std::vector<std::size_t> bytes;
  for (auto one = all.begin() + before; one != all.end(); ++one) bytes.push_back(one->bytes);
  const auto of_images = 3 * static_cast<std::size_t>((2 * image + 15) / 16 * 16) * sizeof(float);
  CHECK(bytes ==
        std::vector<std::size_t>{of_images, of_images, 3 * 2 * sizeof(std::int32_t), 3 * 2 * sizeof(std::int64_t)});
}

TEST_CASE("costs of layers have the mean 1: alike, by size, or measured; those that are measured are in checkpoints",
          "[trainer]") {
  TrainOptions options = test::small_run();
  for (const std::string unit : {"layers", "bytes", "seconds"}) {
    options.budget_unit = unit;
    Trainer trainer(test::single(), options);
    trainer.share_state();
    const std::vector<double> costs = trainer.layers().costs();
    const Parameters& p = trainer.model().parameters;
    double sum = 0;
    for (std::size_t d = 0; d < costs.size(); ++d) {
      CHECK(costs[d] > 0);
      sum += costs[d];
      const double size = static_cast<double>(p.layer_sizes[d]) * p.layers() / static_cast<double>(p.size);
      if (unit == "layers") CHECK(costs[d] == 1);
      if (unit == "bytes") CHECK(std::fabs(costs[d] / size - 1) < 1e-12);
    }
    CHECK(std::fabs(sum / p.layers() - 1) < 1e-12);
    CHECK(trainer.capture().doubles.contains("layer_costs") == (unit == "seconds"));
    // The largest convolution's gradient takes longer than a batch norm's, which comes with the gradient below it.
    const auto largest = std::max_element(p.layer_sizes.begin(), p.layer_sizes.end()) - p.layer_sizes.begin();
    const auto named = [&](const std::string& name) {
      return costs[static_cast<std::size_t>(std::find(p.layer_names.begin(), p.layer_names.end(), name) -
                                            p.layer_names.begin())];
    };
    if (unit == "seconds") CHECK(costs[static_cast<std::size_t>(largest)] > named("bn1.bias"));
  }
  Trainer trainer(test::single(), options);
  trainer.share_state();
  Checkpoint wrong = trainer.capture();
  Trainer other(test::single(), options);
  const std::vector<double> right = wrong.doubles["layer_costs"];
  const auto refused = [&](std::vector<double> costs) {
    wrong.doubles["layer_costs"] = std::move(costs);
    return code_of([&] { other.restore(wrong); }) == ExitCode::checkpoint;
  };
  CHECK(refused({right.begin() + 1, right.end()}));
  for (const double wrong_factor : {2.0, 0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    std::vector<double> costs = right;
    costs[0] *= wrong_factor;
    CHECK(refused(costs));
  }
}

TEST_CASE("a layer that FreezeOut rests stands still, and the backward pass ends above it", "[trainer]") {
  TrainOptions options = test::small_run();
  options.selector = "freezeout";
  options.freeze_t0 = 0.3;
  options.freeze_schedule = "linear";
  options.freeze_lr = GENERATE("scaled", "constant");
  options.importance = "outside";
  options.granularity = "module";  // three convolutions and the linear layer, whose t are .3, .53, .77 and 1
  options.max_steps = 10;
  test::OneRank trainer(options);
  const Parameters& p = trainer.model().parameters;
  std::vector<std::int64_t> convolutions;
  for (int step = 0; step < 10; ++step) {
    const auto before = test::weights_of(trainer);
    const StepRecord& record = trainer.step(false);
    const auto after = test::weights_of(trainer);
    convolutions.push_back(record.weight_gradients);
    for (const Segment& segment : p.segments) {
      const bool moved = !std::equal(before.begin() + segment.begin, before.begin() + segment.begin + segment.size,
                                     after.begin() + segment.begin);
      INFO(segment.name << ", step " << step);
      CHECK(moved == (step < 10 * (0.3 + 0.7 * segment.layer / 3)));
    }
  }
  CHECK(convolutions == std::vector<std::int64_t>{3, 3, 3, 2, 2, 2, 1, 1, 0, 0});
}

TEST_CASE("weights and evaluation do not depend on where the images wait", "[trainer][long]") {
  TrainOptions options = test::small_run();
  options.micro_batch = GENERATE(16, 8);
  options.limit_train = 56;  // epochs end with a part of a batch
  options.limit_test = 37;
  const auto run = [&](const std::string& resident) {
    options.resident = resident;
    test::OneRank trainer(options, 5);
    const EvaluationRecord record = trainer.evaluate().front();
    return std::tuple{trainer.weights_hash(), record.clean_loss, record.adv_loss, record.images};
  };
  const auto off = run("off");
  CHECK(run("on") == off);
  CHECK(run("auto") == off);
  CHECK(std::get<3>(off) == 37);
}

TEST_CASE("who attacks does that in its precision; an epoch's images or the average's passes may be whole",
          "[trainer]") {
  TrainOptions options = test::small_run();
  options.attack_bn = "eval";
  options.attack_precision = "bf16";
  options.train_size = test::by_epoch({{6, 0}, {8, 1}});
  const test::Given images(16);
  const StepMethod method(options, images);
  const auto replica = [&](Role role) {
    return replica_of(options, Plan(options, 16, 1), images.info(), test::single(), method, role);
  };
  for (const int generators : {0, 1}) {
    options.generators = generators;
    CHECK((replica(Role::trainer).attack_storage == DType::bf16) == (generators == 0));
    CHECK(replica(Role::generator).attack_storage == DType::bf16);
  }
  CHECK(replica(Role::trainer).trains_on_whole);
  options.part_end = 1;
  CHECK(!replica(Role::trainer).trains_on_whole);
  options.average = "ema";
  options.average_bn = "rebuild";
  CHECK(replica(Role::trainer).trains_on_whole);
}

TEST_CASE("an attack in 16 bits is refused with a reason, or trains", "[trainer]") {
  TrainOptions options = test::small_run();
  const std::string full = weights_after(options, 3);
  for (const auto& [precision, storage] : {std::pair{"f16", DType::f16}, std::pair{"bf16", DType::bf16}}) {
    INFO(precision);
    options.attack_precision = precision;
    std::unique_ptr<test::OneRank> trainer;
    const std::string message = message_of([&] { trainer = std::make_unique<test::OneRank>(options); });
    const std::string refused = test::test_backend()->refuses(storage);
    if (test::test_device() == "cpu") CHECK(!refused.empty());
    if (!refused.empty()) {
      CHECK(message == refused);
      CHECK(contains(message, "f32"));
      continue;
    }
    INFO(message);
    REQUIRE(trainer != nullptr);
    const std::string before = trainer->weights_hash();
    for (int k = 0; k < 3; ++k) CHECK(std::isfinite(trainer->step(false).loss_adv));
    CHECK(trainer->weights_hash() != before);
    CHECK(trainer->weights_hash() != full);  // the attack was another one
    // Evaluation stays f32.
    CHECK(std::isfinite(trainer->evaluate().front().adv_loss));
  }
}

TEST_CASE("an attack whose iterations are recorded and replayed is the one done by hand", "[trainer]") {
  const DType storage = GENERATE(DType::f32, DType::f16, DType::bf16);
  const auto backend = test::test_backend();
  if (!backend->refuses(storage).empty()) {
    SUCCEED("refused here: " << backend->refuses(storage));
    return;
  }
  constexpr int kSize = 12, kClasses = 10, kCapacity = 8;
  test::SmallNetwork model(*backend, kSize);
  const DatasetInfo info{.size = kSize, .channels = 3, .classes = kClasses, .class_names = {}};
  Buffers images(*backend, info, kCapacity);
  FrozenProgram program(model, 4, storage);  // of half the images: an iteration has one piece or two
  FrozenView recorded(images, program), inner(images, program);
  backend->commit_workspace();

  /// Asks for the gradient and leaves the step to the kernel: Objective's own gradient_step.
  class ByHand final : public Objective {
   public:
    explicit ByHand(FrozenView& objective) : Objective(objective), inner_(objective) {}
    void gradient() override { inner_.gradient(); }

   private:
    FrozenView& inner_;
  };
  struct Result {
    std::vector<float> eta, x_adv;
    std::int64_t convolutions;
  };
  const auto perturb = [&](Objective& objective, const AttackOptions& attack) {
    const Counters before = backend->counters;
    attacks().at("pgd")(attack)->perturb(objective);
    const std::int64_t count = images.batch().n * images.layout.elements();
    return Result{test::to_host(*backend, images.eta, count), test::to_host(*backend, images.x_adv, count),
                  backend->counters.conv_forward + backend->counters.conv_backward_data - before.conv_forward -
                      before.conv_backward_data};
  };
  std::vector<float> last;
  int round = 0;
  // Other images, other numbers of them, another attack, other weights; and back.
  struct Round {
    int samples, steps;
    double eps;
    std::uint64_t weights;
  };
  for (const Round& r :
       {Round{3, 3, 0.05, 1}, Round{3, 3, 0.05, 1}, Round{8, 3, 0.05, 1}, Round{8, 3, 0.05, 1}, Round{5, 3, 0.05, 1},
        Round{3, 1, 0.05, 1}, Round{8, 4, 0.1, 1}, Round{8, 3, 0.05, 2}, Round{5, 3, 0.05, 2}, Round{8, 2, 0.1, 2}}) {
    ++round;
    INFO("round " << round);
    if (r.weights != 1) model.initialize(r.weights);
    std::vector<std::int32_t> labels;
    for (int k = 0; k < r.samples; ++k) labels.push_back((3 * k + round) % kClasses);
    images.load(test::host_batch(labels, images.layout.elements(), 100 * round), 0, nullptr);
    const AttackOptions attack{.eps = r.eps, .alpha = 0.02, .steps = r.steps};
    recorded.prepare(7, Purpose::attack_start, static_cast<std::uint32_t>(round));
    const Result ours = perturb(recorded, attack);
    inner.prepare(7, Purpose::attack_start, static_cast<std::uint32_t>(round));
    ByHand by_hand(inner);
    const Result expected = perturb(by_hand, attack);
    CHECK(ours.eta == expected.eta);
    CHECK(ours.x_adv == expected.x_adv);
    CHECK(ours.convolutions == expected.convolutions);
    CHECK(ours.eta != last);
    last = ours.eta;
  }
}

TEST_CASE("an attack sees logits, losses and correctness of each sample, whatever the size of the passes",
          "[trainer]") {
  const auto backend = test::test_backend();
  constexpr int kSize = 12, kClasses = 10, kCapacity = 8;
  test::SmallNetwork model(*backend, kSize);
  constexpr int kScratch = 2;
  Buffers images(*backend, {.size = kSize, .channels = 3, .classes = kClasses, .class_names = {}}, kCapacity,
                 {.scratch_images = kScratch});
  FrozenProgram whole(model, kCapacity), half(model, kCapacity / 2);
  FrozenView a(images, whole), b(images, half);
  backend->commit_workspace();
  const HostBatch batch = test::host_batch({0, 1, 2, 3, 4, 5, 6}, images.layout.elements());
  images.load(batch, 0, nullptr);

  struct Seen {
    std::vector<float> logits, losses, correct;
  };
  const auto look = [&](Objective& objective, bool with_gradient) {
    with_gradient ? objective.gradient() : objective.forward();
    return Seen{test::to_host(*backend, objective.logits, batch.count * kClasses),
                test::to_host(*backend, objective.losses, batch.count),
                test::to_host(*backend, objective.correct, batch.count)};
  };
  for (FrozenView* objective : {&a, &b}) {
    objective->prepare(1, Purpose::attack_start, 0);
    attacks().at("none")({})->perturb(*objective);
  }
  const Seen expected = look(a, false);
  for (const Seen& seen : {look(a, true), look(b, false), look(b, true)})
    for (int k = 0; k < batch.count; ++k) {
      const auto i = static_cast<std::size_t>(k);
      // Programs of another size round otherwise: some 1e-6 of logits of about 1.
      CHECK(seen.losses[i] == Approx(expected.losses[i]).epsilon(1e-5));
      CHECK(seen.correct[i] == expected.correct[i]);
      const float* z = seen.logits.data() + k * kClasses;
      double sum = 0;
      for (int c = 0; c < kClasses; ++c) {
        CHECK(z[c] == Approx(expected.logits[static_cast<std::size_t>(k * kClasses + c)]).margin(1e-5));
        sum += std::exp(double(z[c]));
      }
      CHECK(seen.losses[i] == Approx(std::log(sum) - z[batch.labels[i]]).epsilon(1e-5));
    }

  // The memory of an attack is its own, in arrays of the size of the images.
  CHECK(a.scratch_stride == kCapacity * images.layout.elements());
  const auto values = test::random_values(kScratch * a.scratch_stride, 5);
  backend->copy_to_device(a.scratch, values.data(), values.size() * sizeof(float));
  a.gradient_step(0.01F, 0.03F);
  b.gradient();
  CHECK(test::to_host(*backend, a.scratch, kScratch * a.scratch_stride) == values);
}

TEST_CASE("an attack in passes that do not divide the micro-batch is the attack in one pass", "[trainer]") {
  const DType storage = GENERATE(DType::f32, DType::f16);
  if (!test::test_backend()->refuses(storage).empty()) return;  // as a CPU refuses 16 bits
  constexpr int kBatch = 7;
  const auto attacked = [&](int at_once) {
    Replica replica({.backend = {.device = test::test_device(), .threads = 2, .math = "f32", .deterministic = true},
                     .network = "small_cnn",
                     .width = 16,
                     .images = {.size = 12, .channels = 3, .classes = 10, .class_names = {}},
                     .micro_batch = kBatch,
                     .attack_batch = at_once,
                     .attack_storage = storage,
                     .training_batches = {}});
    replica.commit();
    replica.model().initialize(1);
    Buffers& images = replica.images();
    CHECK((&replica.evaluated() == &replica.attacked()) == (storage == DType::f32));
    // The last pass computes places that no image has; they are there.
    CHECK(images.capacity % replica.frozen().n() == 0);
    images.load(test::host_batch({0, 1, 2, 3, 4, 5, 6}, images.layout.elements()), 0, nullptr);
    const auto attack = attacks().at("pgd")({.eps = 0.1, .alpha = 0.03, .steps = 2});
    std::vector<std::vector<float>> all;
    for (FrozenView* objective : {&replica.attacked(), &replica.evaluated()}) {
      objective->prepare(1, Purpose::attack_start, 0);
      attack->perturb(*objective);
      all.push_back(test::to_host(replica.backend(), images.x_adv, kBatch * images.layout.elements()));
    }
    return all;
  };
  const auto expected = attacked(kBatch);
  for (const int at_once : {2, 3, 5}) {
    INFO((storage == DType::f32 ? "f32, " : "f16, ") << at_once << " of " << kBatch);
    const auto ours = attacked(at_once);
    for (std::size_t k = 0; k < ours.size(); ++k) {
      // Programs of another size may round otherwise, and turn the sign of a gradient near zero.
      int turned = 0;
      for (std::size_t i = 0; i < ours[k].size(); ++i) turned += std::abs(ours[k][i] - expected[k][i]) > 1e-4F;
      CHECK(turned < std::ssize(ours[k]) / 50);
    }
  }
}

TEST_CASE("an attack that climbs a divergence has the clean logits, whatever the size of the passes", "[trainer]") {
  const auto backend = test::test_backend();
  constexpr int kSize = 12, kClasses = 10, kCapacity = 6, kCount = 5;
  test::SmallNetwork model(*backend, kSize);
  // At first the logits hardly depend on the image, and the divergence would be less than float's rounding.
  for (const Segment& segment : model.parameters.segments) {
    std::vector<float> values = model.download(segment, model.parameters.values);
    for (float& value : values) value *= 3;
    model.upload(segment, values, model.parameters.values);
  }
  Buffers images(*backend, {.size = kSize, .channels = 3, .classes = kClasses, .class_names = {}}, kCapacity);
  FrozenProgram whole(model, kCapacity), part(model, 2);
  FrozenView at_once(images, whole), in_parts(images, part);
  for (FrozenView* objective : {&at_once, &in_parts}) objective->allow_reference();
  backend->commit_workspace();
  images.batch().n = kCount;
  images.batch().key.seed = 1;
  const auto pixels = test::random_values(kCapacity * images.layout.elements(), 3, 0, 1);
  backend->copy_to_device(images.clean, pixels.data(), pixels.size() * sizeof(float));
  const std::vector<std::int64_t> ids = {0, 1, 2, 3, 4, 5};
  backend->copy_to_device(images.ids, ids.data(), ids.size() * sizeof(std::int64_t));
  const std::vector<std::int32_t> labels(kCapacity, -1);  // nobody asks for them
  backend->copy_to_device(images.labels, labels.data(), labels.size() * sizeof(std::int32_t));
  const AttackGoal goal{.loss = kl_divergence, .reference = true, .spread = kNearStart};
  const auto attack = attacks().at("pgd")({.eps = 0.2, .alpha = 0.1, .steps = 3});
  std::vector<std::vector<float>> losses;
  for (FrozenView* objective : {&at_once, &in_parts}) {
    objective->prepare(goal);
    // At the clean images the divergence is nothing.
    each(backend->device(), kernels::groups(kCapacity * images.layout.elements()),
         kernels::Add<float>{images.clean, nullptr, images.x_adv, kCapacity * images.layout.elements()});
    objective->forward();
    for (const float loss : test::to_host(*backend, objective->losses, kCount)) CHECK(std::abs(loss) < 1e-6F);
    attack->perturb(*objective);
    objective->forward();
    losses.push_back(test::to_host(*backend, objective->losses, kCount));
    for (const float loss : losses.back()) CHECK(loss > 1e-5F);
    // The next attack, of an evaluation, knows nothing of it.
    objective->prepare(1, Purpose::evaluation_start, 0);
    CHECK(objective->loss == cross_entropy);
    CHECK(objective->spread == 0);
  }
  for (std::size_t i = 0; i < losses[0].size(); ++i) CHECK(losses[1][i] == Approx(losses[0][i]).epsilon(1e-3));
}

TEST_CASE("the running statistics take up the attack's passes, then the loss's in its order, one of them twice",
          "[trainer]") {
  TrainOptions options = test::small_run();
  options.lambda = 1;
  const auto [loss, detach, attack, passes] = GENERATE(table<std::string, bool, std::string, std::vector<int>>(
      {{"cross_entropy", false, "pgd", {0, 1}},
       {"cross_entropy", false, "fgsm", {0, 1, 2}},
       {"kl", false, "pgd", {0, 1}},
       {"mart", false, "pgd", {1, 0}},
       {"trades", false, "pgd", {1, 0, 1}},
       {"trades", false, "fgsm", {1, 0, 1}},  // whose attack wants samples that do not depend on each other
       {"gat", false, "pgd", {1, 0, 1}},
       {"nuat", true, "pgd", {0, 1, 0}},
       {"pgi", false, "pgd", {0, 1}},
       {"pgi", true, "pgd", {0}},
       {"pgi", false, "fgsm", {0, 2}},  // in training mode the attack has been where it began
       {"pgi", true, "fgsm", {0, 1}}}));
  options.loss = loss;
  options.detach_reference = detach;
  options.attack = attack;
  INFO(loss << ", " << attack);
  CHECK(StepMethod(options, test::Given(2)).entering_statistics() == passes);
  for (const double own : {0.0, 0.25}) {
    options.eval_eps = own;
    CHECK(StepMethod(options, test::Given(2)).evaluation.eps() == (own > 0 ? own : options.eps.last()));
  }
}

TEST_CASE("a step's record and a checkpoint say where the run is", "[trainer]") {
  const Splits whole = open_splits(test::small_run());
  CHECK((whole.train->size() == 1024 && whole.test->size() == 256 && whole.train->info().classes == 10));
  TrainOptions options = test::small_run();
  options.limit_train = 44;  // of 3 steps an epoch, the last of 12 images
  options.limit_test = 16;
  options.epochs = 3;
  options.lambda = 1;
  options.selector = "all";
  options.granularity = "module";
  options.micro_batch = 8;
  options.eps = test::by_epoch<double>({{0, 0}, {0.03, 1}});
  test::OneRank trainer(options);
  for (int k = 1; k < 5; ++k) {
    const StepRecord& record = trainer.step(false);
    CHECK((record.step == k && record.epoch == (k - 1) / 3 && record.steps_per_epoch == 3));
    CHECK((record.images == (k == 3 ? 12 : 16) && record.lr == options.lr));
    CHECK((record.eps == (k < 4 ? 0 : 0.03) && record.attack_passes == (k < 4 ? 0 : 32)));
  }
  const double nearly = std::nextafter(96.0, 0.0);
  trainer.examples().read(&nearly);
  CHECK((trainer.examples().attack_passes() == 96 && trainer.examples().places() == 1));
  const EvaluationRecord evaluation = trainer.evaluate().front();
  CHECK((evaluation.step == 4 && evaluation.epoch == 1));
  const Checkpoint state = trainer.capture();
  std::string facts;
  for (const auto& [name, number] : state.integers) facts += " " + name + " " + std::to_string(number);
  CHECK(facts ==
        " batches_tracked 8 image_channels 3 image_size 16 ranks 1 step 4 steps_per_epoch 3 threads 2 "
        "train_images 44");
  Checkpoint damaged = state;
  CHECK(damaged.doubles.at("p").size() == 4);
  damaged.integers["masks"] = (std::int64_t{1} << 62) + 1;  // four times it is four in 64 bits
  CHECK(code_of([&] { trainer.restore(damaged); }) == ExitCode::checkpoint);
  for (const char* name : {"p", "active_scale"}) {
    damaged = state;
    damaged.doubles[name].push_back(1);
    CHECK(code_of([&] { trainer.restore(damaged); }) == ExitCode::checkpoint);
  }
  damaged.doubles.erase("selector");
  CHECK(error_of([&] { trainer.restore(damaged); }) == "4: the checkpoint has no array 'selector'");
  damaged.integers.erase("train_images");
  CHECK(error_of([&] { trainer.restore(damaged); }) == "4: the checkpoint has no number 'train_images'");
}

TEST_CASE("a momentum that mirrors the rate is its own where the rate peaks, and the usual one at its ends",
          "[trainer]") {
  TrainOptions options = test::small_run();
  options.optimizer = "sgd";
  options.momentum = 0.5;
  const std::string half = weights_after(options, 3);
  options.momentum = 0.9;
  CHECK(weights_after(options, 3) != half);
  options.peak_momentum = 0.5;
  CHECK(weights_after(options, 3) == half);  // a rate that is at its peak throughout
  options.schedule = "cyclic";
  options.warmup_epochs = options.epochs = 2;
  const auto backend = test::test_backend();
  test::SmallNetwork model(*backend, 16);
  BatchStatistics statistics(test::single(), model, {0});
  const WeightUpdate update(options, Plan(options, 48, 1), model, statistics);  // six steps up, six steps down
  for (const int step : {0, 2, 6, 9, 12})
    CHECK(update.momentum(step) == Approx(0.9 - 0.4 * (step < 6 ? step : 12 - step) / 6.0));
  statistics.update_model();
  CHECK(model.batches_tracked == 1);
  statistics.take_back();
  CHECK(model.batches_tracked == 0);
  options.peak_momentum = 0;
  CHECK(WeightUpdate(options, Plan(options, 48, 1), model, statistics).momentum(6) == Approx(0).margin(1e-12));
}

TEST_CASE("an update that does not count leaves the average's statistics rebuilt, or not, as they were", "[trainer]") {
  const auto backend = test::test_backend();
  test::SmallNetwork model(*backend, 16);
  AveragedOptimizer optimizer(*backend, model.parameters, optimizers().at("sgd")(*backend, model.parameters, {}), {});
  WeightAverage average(model, optimizer, "rebuild");
  average.follow(0);
  for (const bool rebuilt : {false, true}) {
    if (rebuilt) average.have_statistics();
    average.follow(1);
    CHECK(average.lacks_statistics());
    average.take_back();
    CHECK(average.lacks_statistics() == !rebuilt);
  }
}

TEST_CASE("the loss that an attack climbs is its own choice", "[trainer]") {
  const auto backend = test::test_backend();
  constexpr int kSize = 12, kClasses = 10, kCapacity = 4;
  test::SmallNetwork model(*backend, kSize);
  Buffers images(*backend, {.size = kSize, .channels = 3, .classes = kClasses, .class_names = {}}, kCapacity);
  FrozenProgram program(model, kCapacity);
  FrozenView objective(images, program);
  backend->commit_workspace();
  images.batch().n = kCapacity;
  const auto pixels = test::random_values(kCapacity * images.layout.elements(), 3, 0, 1);
  backend->copy_to_device(images.clean, pixels.data(), pixels.size() * sizeof(float));
  const auto eta_after = [&](SampleLoss* loss) {
    objective.prepare(1, Purpose::attack_start, 0);
    CHECK(objective.loss == cross_entropy);  // whatever the attack before has chosen
    if (loss != nullptr) objective.loss = loss;
    const auto attack = attacks().at("pgd")({.eps = 0.05, .alpha = 0.01, .steps = 3});
    attack->perturb(objective);
    return test::to_host(*backend, images.eta, kCapacity * images.layout.elements());
  };
  // Of the other sign: it descends. Called in turns, since iterations are recorded.
  SampleLoss* const descent = [](const Logits& logits, float scale) { cross_entropy(logits, -scale); };
  const auto up = eta_after(nullptr), down = eta_after(descent);
  CHECK(up != down);
  CHECK(eta_after(nullptr) == up);
  CHECK(eta_after(descent) == down);
}
