#include "allocations.hpp"
#include "catch.hpp"
#include "dat/backend.hpp"
#include "dat/optimizer.hpp"
#include "data_path.hpp"
#include "device.hpp"
#include "hdf5/hdf5.hpp"
#include "random_values.hpp"

using namespace dat;
using test::random_values;

namespace {

constexpr double kEpsilon = 0x1p-24;  // rounding of one float operation

/// Parameters with one layer per segment, and one optimizer on them. Segments of 10 elements and more are matrices.
struct Model {
  Model(const std::string& name, const std::vector<std::int64_t>& sizes, const OptimizerOptions& options = {},
        int threads = 1)
      : backend(test::test_backend(threads)) {
    for (const std::int64_t size : sizes) {
      const std::string segment = "segment" + std::to_string(parameters.segments.size());
      std::vector<int> shape = {static_cast<int>(size)};
      if (size >= 10) shape.push_back(1);
      parameters.segments.push_back({segment, shape, segment, segment, parameters.size, size, 0});
      parameters.size += size;
    }
    assign_layers(parameters, Granularity::tensor);
    parameters.values = backend->allocate_floats(parameters.size, "values");
    parameters.gradients = backend->allocate_floats(parameters.size, "gradients");
    optimizer = optimizers().at(name)(*backend, parameters, options);
  }
  void set(float* to, const std::vector<float>& from) {
    backend->copy_to_device(to, from.data(), from.size() * sizeof(float));
  }
  [[nodiscard]] std::vector<float> get(const float* from) { return test::to_host(*backend, from, parameters.size); }
  [[nodiscard]] std::vector<float> theta() { return get(parameters.values); }

  std::unique_ptr<Backend> backend;
  Parameters parameters;
  std::unique_ptr<Optimizer> optimizer;
};

const auto kNames = {"sgd", "lars", "lars_sgd", "lamb"};

/// Every option that adds work or state to a step.
[[nodiscard]] OptimizerOptions busy(const std::string& name) {
  OptimizerOptions options;
  options.clip_norm = 1;
  options.bias_correction = name == "lamb";
  options.nesterov = name == "sgd";
  return options;
}

}  // namespace

TEST_CASE("Five steps agree with PyTorch in double precision", "[optimizer]") {
  const auto file = Hdf5File::open(test::data_path("golden/optimizer.h5"), ExitCode::data);
  Shape shape;
  const auto sizes = file.read<std::int64_t>("sizes", shape);
  const auto lr = file.read<double>("lr", shape);
  const auto scale = file.read<float>("scale", shape);
  const auto theta = file.read<float>("theta", shape);
  const auto gradients = file.read<float>("gradients", shape);

  std::vector<std::string> all;
  for (const std::string name :
       {"lamb", "lamb_corrected", "lamb_clipped", "lars", "lars_clipped", "lars_sgd", "lars_sgd_clipped"})
    for (const char* place : {"_inside", "_outside"}) all.push_back(name + place);
  for (const std::string name : {"sgd", "sgd_nesterov", "sgd_clipped"})
    for (const char* place : {"", "_outside"}) all.push_back(name + place);
  for (const std::string& golden : all) {
    const auto expected = file.read<double>(golden, shape);
    const auto has = [&](const char* word) { return contains(golden, word); };
    OptimizerOptions options;
    options.nesterov = has("nesterov");
    options.trust_coefficient = 0.5;
    if (has("outside")) options.importance = "outside";
    if (has("clipped")) options.clip_norm = has("outside") ? 1.3 : 1.6;
    if (has("corrected")) {
      options.bias_correction = true;
      options.beta1 = 0.8;
      options.beta2 = 0.95;
      options.epsilon = 1e-3;
    }
    Model model(has("lars_sgd") ? "lars_sgd" : golden.substr(0, golden.find('_')), sizes, options);
    const std::size_t n = theta.size();
    REQUIRE(expected.size() == lr.size() * n);
    model.set(model.parameters.values, theta);

    std::vector<double> tolerance(sizes.size());
    for (std::size_t step = 0; step < lr.size(); ++step) {
      const auto first = static_cast<std::ptrdiff_t>(step * n);
      model.set(model.parameters.gradients,
                {gradients.begin() + first, gradients.begin() + first + static_cast<std::ptrdiff_t>(n)});
      const auto row = scale.begin() + static_cast<std::ptrdiff_t>(step * sizes.size());
      model.optimizer->step({{row, row + static_cast<std::ptrdiff_t>(sizes.size())}}, lr[step]);

      const auto actual = model.theta();
      for (std::size_t k = 0, i = 0; k < sizes.size(); ++k) {
        // A step rounds theta once. Its increment u*step carries about ten roundings per step so far (clipping,
        // moments, corrections, root, quotient, trust ratio), relative to the largest increment of the segment.
        double largest = 0, increment = 0;
        const std::size_t end = i + static_cast<std::size_t>(sizes[k]);
        for (std::size_t j = i; j < end; ++j) {
          const double before = step == 0 ? double(theta[j]) : expected[(step - 1) * n + j];
          largest = std::max(largest, std::fabs(before));
          increment = std::max(increment, std::fabs(expected[step * n + j] - before));
        }
        tolerance[k] += kEpsilon * (largest + increment + 10 * double(step + 1) * increment);
        for (; i < end; ++i) {
          INFO(golden << ", step " << step << ", segment " << k << ", element " << i);
          CHECK(std::fabs(double(actual[i]) - expected[step * n + i]) <= tolerance[k]);
        }
      }
    }
  }
}

TEST_CASE("A segment of many chunks has one trust ratio, the same bits at any number of threads", "[optimizer]") {
  const std::vector<std::int64_t> sizes = {3 * kChunk + 17, 5, 2 * kChunk};
  for (const std::string name : kNames) {
    Model one(name, sizes, busy(name)), two(name, sizes, busy(name), 2);
    const auto theta = random_values(one.parameters.size, 1);
    for (Model* model : {&one, &two}) model->set(model->parameters.values, theta);
    for (unsigned step = 0; step < 3; ++step)
      for (Model* model : {&one, &two}) {
        model->set(model->parameters.gradients, random_values(one.parameters.size, 2 + step));
        model->optimizer->step({{1.5F, 1, 2}}, .1);
      }
    CHECK(one.theta() == two.theta());
  }

  OptimizerOptions options;
  options.clamp_high = 1e6;
  options.weight_decay = 0;
  Model model("lars", sizes, options);
  const auto theta = random_values(model.parameters.size, 1), gradient = random_values(model.parameters.size, 2);
  model.set(model.parameters.values, theta);
  model.set(model.parameters.gradients, gradient);
  model.optimizer->step(ActiveSet::all(3), .1);
  const auto moved = model.theta();
  for (const Segment& segment : model.parameters.segments) {
    const auto begin = static_cast<std::size_t>(segment.begin), end = begin + static_cast<std::size_t>(segment.size);
    double weights = 0, norm = 0, worst = 0;
    for (std::size_t i = begin; i < end; ++i) {
      weights += double(theta[i]) * theta[i];
      norm += double(gradient[i]) * gradient[i];
    }
    for (std::size_t i = begin; i < end; ++i)
      worst = std::max(worst, std::fabs(theta[i] - .1 * std::sqrt(weights / norm) * gradient[i] - double(moved[i])));
    // |theta| and |gradient| < 8; three roundings.
    CHECK(worst < 3 * 8 * kEpsilon);
  }
}

TEST_CASE("Inactive segments and their state stand still, whatever their gradient holds", "[optimizer]") {
  for (const std::string word : {"sgd", "lars", "lars_sgd", "lamb", "sgd, busy", "lars_sgd, busy", "lamb, busy"}) {
    const std::string name = word.substr(0, word.find(','));
    const bool more = word != name;
    Model model(name, {10, kChunk + 1, 4}, more ? busy(name) : OptimizerOptions{});
    model.set(model.parameters.values, random_values(model.parameters.size, 1));
    model.set(model.parameters.gradients, random_values(model.parameters.size, 2));
    model.optimizer->step(ActiveSet::all(3), .1);

    std::vector<std::vector<float>> before = {model.theta()};
    for (const auto& state : model.optimizer->state()) before.push_back(model.get(state.data));
    auto gradient = random_values(model.parameters.size, 3);
    std::fill_n(gradient.begin() + 10, kChunk + 1, std::numeric_limits<float>::quiet_NaN());
    model.set(model.parameters.gradients, gradient);
    const auto version = model.parameters.version;
    model.optimizer->step({{2, 0, 1.25F}}, .1);
    CHECK(model.parameters.version > version);

    std::vector<std::vector<float>> after = {model.theta()};
    for (const auto& state : model.optimizer->state()) after.push_back(model.get(state.data));
    for (std::size_t array = 0; array < before.size(); ++array)
      for (std::size_t i = 0; i < before[array].size(); ++i) {
        const bool active = i < 10 || i >= 10 + kChunk + 1;
        if (!std::isfinite(after[array][i]) || (after[array][i] != before[array][i]) != active)
          FAIL(word << ", array " << array << ", element " << i);
      }
    CHECK(model.optimizer->numbers() ==
          (name == "lamb" && more ? std::vector<double>{2, 1, 2} : std::vector<double>()));
    model.optimizer->take_back();
    CHECK(model.optimizer->numbers() == std::vector<double>(name == "lamb" && more ? 3 : 0, 1.0));
  }
}

TEST_CASE("An optimizer continues bit for bit from copied weights and state", "[optimizer]") {
  for (const std::string name : kNames) {
    Model whole(name, {100, 7}, busy(name)), other(name, {100, 7}, busy(name));
    whole.set(whole.parameters.values, random_values(107, 1));
    const auto step = [](Model& model, unsigned k) {
      model.set(model.parameters.gradients, random_values(107, 10 + k));
      model.optimizer->step({{1, k % 2 == 0 ? 0 : 2.0F}}, .1);
    };
    for (unsigned k = 0; k < 3; ++k) step(whole, k);
    other.set(other.parameters.values, whole.theta());
    const auto from = whole.optimizer->state(), to = other.optimizer->state();
    for (std::size_t k = 0; k < from.size(); ++k) {
      CHECK(from[k].name == to[k].name);
      other.set(to[k].data, whole.get(from[k].data));
    }
    other.optimizer->restore(whole.optimizer->numbers());
    CHECK(code_of([&] { other.optimizer->restore({1, 2, 3}); }) == ExitCode::checkpoint);
    for (unsigned k = 3; k < 6; ++k) {
      step(whole, k);
      step(other, k);
    }
    CHECK(whole.theta() == other.theta());
  }
}

TEST_CASE("A gradient of zero moves nothing where weights do not decay", "[optimizer]") {
  for (const std::string name : kNames) {
    Model model(name, {10, 4}, {.weight_decay = 0});
    const auto theta = random_values(14, 1);
    model.set(model.parameters.values, theta);
    model.set(model.parameters.gradients, std::vector<float>(14, 0.0F));
    model.optimizer->step(ActiveSet::all(2), .1);
    CHECK(model.theta() == theta);
  }
}

TEST_CASE("A norm below one is clipped like any other", "[optimizer]") {
  Model model("sgd", {2}, {.clip_norm = 0.25});
  model.set(model.parameters.values, {0, 0});
  model.set(model.parameters.gradients, {0.75F, 1});
  model.optimizer->step(ActiveSet::all(1), 1);
  const auto moved = model.theta();  // a fifth of the gradient, but for the 1e-6 that the norm gets
  CHECK((std::fabs(moved[0] + 0.15F) < 1e-6 && std::fabs(moved[1] + 0.2F) < 1e-6));
}

TEST_CASE("Tensors of one dimension decay, or do not", "[optimizer]") {
  for (const std::string without : {"none", "norms"}) {
    Model model("sgd", {10, 2}, {.weight_decay = 0.5, .no_decay = without});
    model.set(model.parameters.values, std::vector<float>(12, 1));
    model.optimizer->step(ActiveSet::all(2), 1);
    std::vector<float> left(12, 0.5F);
    if (without == "norms") left[10] = left[11] = 1;
    CHECK(model.theta() == left);
  }
}

TEST_CASE("A step allocates nothing", "[optimizer][cpu]") {
  for (const std::string name : kNames) {
    Model model(name, {10, 3 * kChunk, 4}, busy(name));
    const ActiveSet active = ActiveSet::all(3);
    const auto on_device = model.backend->allocations().size();
    CHECK(allocations_in(1, [&] { model.optimizer->step(active, .1); }) == 0);
    CHECK(allocations_in(1, [&] { (void)model.optimizer->state(); }) > 0);
    CHECK(model.backend->allocations().size() == on_device);
  }
}

TEST_CASE("Rates of a warm-up, and of every schedule after it", "[optimizer]") {
  struct Run {
    double warmup, epochs;
    std::int64_t steps_per_epoch, total = 0;
  };
  struct Row {
    const char* schedule;
    Run run;
    std::vector<int> milestones;
    std::vector<std::pair<std::int64_t, double>> rates;
  };
  // cyclic and one_cycle are PyTorch's CyclicLR and OneCycleLR.
  const std::vector<Row> rows = {
      {"step",
       {5, 100, 3},
       {75, 90, 95},
       {{0, 2 / 15.0}, {13, 28 / 15.0}, {14, 2}, {15, 2}, {239, 2}, {240, .2}, {284, .2}, {285, .02}, {300, .002}}},
      {"step", {1.5, 2.5, 5}, {1}, {{6, 14 / 7.5}, {7, 2}, {12, 2}, {13, .2}}},
      {"ramps",
       {1.5, 2.5, 5},
       {1, 3},
       {{6, 14 / 7.5}, {7, 2}, {9, 2 * (1 - .9 * 1.5 / 5)}, {15, .2 * (1 - .9 * 2.5 / 10)}, {30, .02}}},
      {"ramps", {0, 3, 5}, {1}, {{0, 2}, {4, 2 * (1 - .9 * 4 / 5)}, {5, .2}}},
      {"linear", {1.5, 2.5, 5}, {}, {{6, 14 / 7.5}, {7, 2}, {8, 2 * (1 - .5 / 12.5)}, {19, 2 / 12.5}}},
      {"linear", {2, 8, 10}, {}, {{19, 2}, {40, 1.5}, {60, 1}, {99, .025}, {100, 0}, {101, 0}}},
      {"linear", {2, 8, 10, 60}, {}, {{30, 1.5}, {40, 1}, {59, .05}, {60, 0}}},
      {"linear", {2, 8, 10, 500}, {}, {{60, 1}, {100, 0}}},
      {"cosine",
       {2, 8, 10},
       {},
       {{0, .1}, {20, 2}, {40, 1 + std::sqrt(.5)}, {60, 1}, {80, 1 - std::sqrt(.5)}, {100, 0}}},
      {"cyclic", {2.5, 2.5, 2}, {}, {{0, 0}, {1, .4}, {4, 1.6}, {5, 2}, {6, 1.6}, {9, .4}, {10, 0}, {11, 0}}},
      {"cyclic", {1.5, 3.5, 2, 6}, {}, {{3, 2}, {5, 2 / 3.0}}},
      {"cyclic", {0, 5, 2}, {}, {{0, 2}}},
      {"cyclic", {0, 5, 2, 1}, {}, {{0, 2}, {1, 0}}},
      {"cyclic", {1, 4, 2, 2}, {}, {{1, 1}, {2, 0}}},  // all of it rises
      {"one_cycle",
       {1.5, 3.5, 2},
       {},
       {{0, .08}, {1, 1.04}, {2, 2}, {3, 1.900969264}, {5, 1.222524044}, {9, 8e-6}, {10, 8e-6}}},
      {"one_cycle", {1.5, 3.5, 2, 6}, {}, {{2, 2}, {5, 8e-6}}},  // the peak stays, the fall is shorter
      {"one_cycle", {.5, 4.5, 2}, {}, {{0, 2}}}};
  for (const Row& row : rows) {
    ScheduleOptions options;
    options.lr = 2;
    options.warmup_epochs = row.run.warmup;
    options.epochs = row.run.epochs;
    options.steps_per_epoch = row.run.steps_per_epoch;
    options.total_steps = row.run.total;
    options.milestones = row.milestones;
    const std::string name = row.schedule;
    const auto schedule = schedules().at(name)(options);
    CHECK(schedule->rises_by_itself() == (name == "cyclic" || name == "one_cycle"));
    for (const auto& [step, rate] : row.rates) {
      INFO(name << ", step " << step);
      CHECK(std::fabs(schedule->lr(step) - rate) < 1e-9);
      if (rate == .2) CHECK(schedule->lr(step) == rate);  // at a milestone the next line has begun
      // Heights between the rate's ends, which are 0 but in one_cycle.
      const double end = name != "one_cycle" ? 0 : step < 2 ? .08 : 8e-6;
      CHECK(std::fabs(schedule->height(step) - (rate - end) / (2 - end)) < 1e-9);
    }
    options.steps_per_epoch = 0;
    CHECK(code_of([&] { (void)schedules().at(name)(options); }) == ExitCode::usage);
  }
  CHECK(schedules().names() == std::vector<std::string>{"cosine", "cyclic", "linear", "one_cycle", "ramps", "step"});
  CHECK(code_of([] { (void)schedules().at("nonsense"); }) == ExitCode::usage);
  CHECK((steps_of(1.1, 10) == 11 && steps_of(7.5, 391) == 2932.5 && steps_of(1e-6, 1) == 1e-6));
}

TEST_CASE("A momentum that is set takes the place of the options' own", "[optimizer]") {
  for (const char* name : {"sgd", "lars", "lars_sgd"}) {
    const auto run = [&](double planned, double set) {
      OptimizerOptions options;
      options.momentum = planned;
      Model model(name, {3}, options);
      for (int step = 0; step < 3; ++step) {
        model.set(model.parameters.gradients, {1, -2, static_cast<float>(step)});
        model.optimizer->set_momentum(set);
        model.optimizer->step(ActiveSet::all(1), .1);
      }
      return model.theta();
    };
    CHECK((run(.9, .3) == run(.3, .3) && run(.9, .3) != run(.9, .9)));
  }
}

namespace {

/// Leaves other numbers at each step, whatever the gradient.
class Scripted final : public Optimizer {
 public:
  Scripted(Backend& backend, Parameters& parameters, std::vector<float> script)
      : backend_(backend), parameters_(parameters), script_(std::move(script)) {}
  void step(const ActiveSet&, double) override {
    const std::vector<float> all(static_cast<std::size_t>(parameters_.size), script_.at(at_++));
    backend_.copy_to_device(parameters_.values, all.data(), all.size() * sizeof(float));
  }
  [[nodiscard]] std::vector<State> state() const override { return {}; }

 private:
  Backend& backend_;
  Parameters& parameters_;
  std::vector<float> script_;
  std::size_t at_ = 0;
};

/// The average after each step in which the weights, which begin at `first`, become those of the script.
std::vector<float> averages(float first, const std::vector<float>& script, const AverageOptions& options) {
  Model model("sgd", {3});
  model.set(model.parameters.values, {first, first, first});
  AveragedOptimizer averaged(*model.backend, model.parameters,
                             std::make_unique<Scripted>(*model.backend, model.parameters, script), options);
  averaged.reset();
  std::vector<float> all;
  for (std::size_t k = 0; k < script.size(); ++k) {
    averaged.step(ActiveSet::all(1), 1);
    const float before = model.get(averaged.average()).back();
    averaged.take_up(static_cast<std::int64_t>(k));
    all.push_back(model.get(averaged.average()).back());
    if (options.rule == "swa") CHECK(averaged.changed() == (all.back() != before));
    CHECK(model.theta().back() == script[k]);
  }
  return all;
}

void check_near(const std::vector<float>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  // Each average, below 8, is rounded once, and keeps less than what the one before it was off. Then the digits given.
  for (std::size_t k = 0; k < found.size(); ++k)
    CHECK(std::fabs(found[k] - expected[k]) <= double(k + 1) * 8 * kEpsilon + 0.5e-7);
}

}  // namespace

TEST_CASE("An exponential average warms up as published, and begins where it is told", "[optimizer]") {
  check_near(averages(0, {1, 2, 3, 4}, {}), {.8181818, 1.7045455, 2.6013986, 3.5004995});
  // Until two steps are done it is the weights; then it keeps 1/10, 2/11, ... of itself.
  check_near(averages(0, {1, 2, 3, 4}, {.from = 2}), {1, .1 * 1 + .9 * 2, 2.0 / 11 * 1.9 + 9.0 / 11 * 3,
                                                      3.0 / 12 * (2.0 / 11 * 1.9 + 27.0 / 11) + 9.0 / 12 * 4});
  // No more than tau.
  check_near(averages(0, {1, 1, 1, 1}, {.decay = 0.125}), {.875, .984375, .998046875, .999755859375});
  // An average of what stands still is that, bit for bit.
  CHECK(averages(0.3F, {0.3F, 0.3F, 0.3F}, {}) == std::vector<float>(3, 0.3F));
}

TEST_CASE("A stochastic average is the mean of the ends of epochs", "[optimizer]") {
  check_near(averages(0, {1, 2, 4}, {.rule = "swa"}), {1, 1.5, 2.3333333});
  // Between two ends it stands still, whatever the weights are; until the first one it is the weights. Epochs that
  // begin earlier do not count.
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  check_near(averages(0, {1, 2, 3, 4, kInfinite, 6, 7, 9}, {.rule = "swa", .from = 2, .steps_per_epoch = 2}),
             {1, 2, 3, 4, 4, 5, 5, 19.0 / 3});
  CHECK(code_of([] { averages(0, {1}, {.rule = "mean"}); }) == ExitCode::usage);
}

TEST_CASE("Averaging leaves any optimizer's steps as they are, and follows layers that stand still", "[optimizer]") {
  for (const std::string name : kNames) {
    INFO(name);
    const std::vector<std::int64_t> sizes = {5, 12000, 40};
    Model plain(name, sizes, busy(name)), model(name, sizes, busy(name));
    const std::vector<float> theta = random_values(plain.parameters.size, 1);
    for (Model* one : {&plain, &model}) one->set(one->parameters.values, theta);
    AveragedOptimizer averaged(*model.backend, model.parameters, std::move(model.optimizer), {});
    // It begins with the weights, even after some that have overflowed.
    model.set(averaged.average(), std::vector<float>(theta.size(), std::numeric_limits<float>::infinity()));
    averaged.reset();
    CHECK(model.get(averaged.average()) == theta);
    for (int k = 0; k < 4; ++k) {
      // The middle layer takes part in the first step only.
      const ActiveSet active{{1, k == 0 ? 2.0F : 0.0F, 1.5F}};
      for (Model* one : {&plain, &model}) one->set(one->parameters.gradients, random_values(plain.parameters.size, 5));
      plain.optimizer->set_momentum(0.1 * k);
      averaged.set_momentum(0.1 * k);
      plain.optimizer->step(active, 0.1);
      const std::vector<float> before = model.get(averaged.average());
      averaged.step(active, 0.1);
      averaged.take_up(k);
      CHECK(model.theta() == plain.theta());
      const std::vector<float> average = model.get(averaged.average()), now = model.theta();
      const double keep = (2.0 + k) / (11.0 + k);
      double off = 0;
      for (std::size_t i = 0; i < now.size(); ++i) {
        const double expected = keep * before[i] + (1 - keep) * now[i];
        // One rounding to f32, and some of doubles.
        off = std::max(off, std::fabs(average[i] - expected) - (1 + 1e-6) * kEpsilon * std::fabs(expected));
      }
      CHECK(off <= 0);
      CHECK(!std::equal(average.begin() + 5, average.begin() + 12005, before.begin() + 5));  // the middle layer
    }
    // Its state is the optimizer's and one array more, its numbers the optimizer's and one more.
    CHECK(
        (averaged.state().size() == plain.optimizer->state().size() + 1 && averaged.state().back().name == "average"));
    std::vector<double> numbers = plain.optimizer->numbers();
    numbers.push_back(4);
    CHECK(averaged.numbers() == numbers);
    plain.optimizer->take_back();
    averaged.take_back();
    numbers = plain.optimizer->numbers();
    numbers.push_back(3);
    CHECK(averaged.numbers() == numbers);
    averaged.restore(plain.optimizer->numbers());
    CHECK(averaged.taken() == 0);
    averaged.restore(numbers);
    CHECK(averaged.numbers() == numbers);
    numbers.push_back(1);
    CHECK(code_of([&] { averaged.restore(numbers); }) == ExitCode::checkpoint);
    const ActiveSet all = ActiveSet::all(3);
    averaged.reset();
    CHECK((averaged.taken() == 0 && model.get(averaged.average()) == model.theta()));
    if (test::test_device() != "cpu") continue;  // what a launch allocates is the runtime's
    CHECK(allocations_in(3, [&] {
            averaged.step(all, 0.1);
            averaged.take_up(4);
          }) == 0);
  }
}
