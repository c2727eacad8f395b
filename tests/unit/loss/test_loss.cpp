#include "catch.hpp"
#include "dat/loss.hpp"
#include "data_path.hpp"
#include "device.hpp"
#include "hdf5/hdf5.hpp"
#include "random_values.hpp"

using namespace dat;
using namespace dat::test;

namespace {

using Values = std::vector<double>;  ///< [n][classes], or [n]

/// What a loss makes of the logits of a batch, in both passes.
struct Result {
  Values loss[2], correct[2], gradient[2];  ///< attacked, clean (of pgi: where the attack began); empty: no such pass
};

[[nodiscard]] Values wide(const Shared<float>& values) { return {values.begin(), values.end()}; }

/// attacked, clean: [n][classes].
[[nodiscard]] Result result_of(const Loss& loss, const std::vector<float>& attacked, const std::vector<float>& clean,
                               const std::vector<std::int32_t>& labels) {
  const auto n = labels.size(), classes = clean.size() / n;
  const Shared<float> values[2] = {shared(attacked), shared(clean)};
  const Shared<std::int32_t> on_device = shared(labels);
  // What follows is not the loss's.
  const auto wanted = static_cast<std::size_t>(loss.scratch(static_cast<int>(classes)));
  Shared<double> scratch(wanted + classes * classes, -7.0);
  Shared<float> losses[2], correct[2], gradients[2];
  std::vector<Logits> logits;
  std::vector<std::size_t> kinds;
  Samples all{.device = kernel_backend().device(), .n = static_cast<int>(n), .classes = static_cast<int>(classes)};
  all.labels = on_device.data();
  for (const Loss::Images images : loss.passes()) {
    const std::size_t k = kinds.emplace_back(images == Loss::Images::attacked ? 0 : 1);
    losses[k].assign(n, -7.0F);
    correct[k].assign(n, -7.0F);
    gradients[k].assign(n * classes, -7.0F);
    logits.push_back({all, values[k].data(), losses[k].data(), correct[k].data(), gradients[k].data(),
                      values[loss.goal().kept == StartKept::logits ? 1 : 0].data(),  // of no use to others
                      scratch.data()});
  }
  for (std::size_t k = 0; k < kinds.size(); ++k) loss.differentiate(k, logits, static_cast<int>(n));
  kernel_backend().wait();
  CHECK(std::ranges::all_of(std::span(scratch).subspan(wanted), [](double v) { return v == -7; }));
  Result found;
  for (const std::size_t k : kinds) {
    found.loss[k] = wide(losses[k]);
    found.correct[k] = wide(correct[k]);
    found.gradient[k] = wide(gradients[k]);
  }
  return found;
}

/// The distance that f32 arithmetic may bring a loss or a gradient of one sample to, in units of its weight. A
/// probability is the exponential of a difference up to `range`, which is rounded to `range` units, times a few
/// roundings; logarithms of ratios are up to 2 range; and there is a sum of at most ten such products.
[[nodiscard]] double rounding_of(const float* clean, const float* attacked, std::size_t classes) {
  const auto [a, b] = std::minmax_element(clean, clean + classes);
  const auto [c, d] = std::minmax_element(attacked, attacked + classes);
  const double range = std::max(double(*b) - *a, double(*d) - *c);
  return 0x1p-24 * (range + 8) * (1 + 2 * range);
}

}  // namespace

TEST_CASE("losses and their gradients are those of PyTorch in double precision", "[golden][loss]") {
  const Hdf5File file = Hdf5File::open(data_path("golden/losses.h5"), ExitCode::data);
  Shape shape;
  const auto clean = file.read<float>("input/clean", shape), attacked = file.read<float>("input/attacked", shape);
  const auto n = static_cast<std::size_t>(shape[0]), classes = static_cast<std::size_t>(shape[1]);
  int cases = 0;
  for (const std::string& name : file.list("/")) {
    if (name == "input") continue;
    ++cases;
    const std::string kind = file.text(name, "loss").value();
    const double lambda = file.real(name, "lambda").value(), beta = file.real(name, "beta").value();
    const bool unlabelled = file.integer(name, "unlabelled").value() != 0;
    const auto stored = file.read<std::int64_t>(unlabelled ? "input/unlabelled" : "input/labels", shape);
    const std::vector<std::int32_t> labels(stored.begin(), stored.end());
    const auto loss = losses().at(kind)({.lambda = lambda,
                                         .beta = beta,
                                         .smoothing = file.real(name, "smoothing").value(),
                                         .unlabelled = unlabelled,
                                         .detach = file.integer(name, "detach").value() != 0});
    const Result found = result_of(*loss, attacked, clean, labels);
    const char* const passes[] = {"attacked", "clean"};
    for (std::size_t k = 0; k < 2; ++k) {
      if (found.loss[k].empty()) continue;
      const auto right = file.read<double>(name + "/" + passes[k] + "_loss", shape);
      const auto gradient = file.read<double>(name + "/" + passes[k] + "_gradient", shape);
      const std::vector<float>& logits = k == 0 ? attacked : clean;
      for (std::size_t i = 0; i < n; ++i) {
        INFO(name << ", " << passes[k] << ", sample " << i);
        const double unit = rounding_of(&clean[i * classes], &attacked[i * classes], classes);
        CHECK(std::abs(found.loss[k][i] - right[i]) <= unit);
        for (std::size_t c = i * classes; c < (i + 1) * classes; ++c)
          CHECK(std::abs(found.gradient[k][c] - gradient[c]) <= unit * (1 + lambda + beta) / static_cast<double>(n));
        const auto best = std::max_element(&logits[i * classes], &logits[i * classes] + classes) - &logits[i * classes];
        CHECK(found.correct[k][i] == (labels[i] < 0 ? -1 : best == labels[i] ? 1 : 0));
      }
    }
  }
  CHECK(cases == 15);
  // Of equally likely wrong classes MART pushes away the first.
  const Result equal = result_of(*losses().at("mart")({}), {0, 1, 1, 0}, {0, 1, 1, 0}, {0});
  CHECK(equal.gradient[0][1] > equal.gradient[0][2]);
}

namespace {

/// Logits of sample i.
[[nodiscard]] Values row(const std::vector<float>& of, std::size_t i, std::size_t classes) {
  return {&of[i * classes], &of[i * classes] + classes};
}

[[nodiscard]] Values softmax(const Values& z) {
  Values p;
  double total = 0;
  for (const double v : z) total += std::exp(v);
  for (const double v : z) p.push_back(std::exp(v) / total);
  return p;
}

[[nodiscard]] double divergence(const Values& p, const Values& q) {
  double total = 0;
  for (std::size_t k = 0; k < p.size(); ++k) total += p[k] * std::log(p[k] / q[k]);
  return total;
}

}  // namespace

TEST_CASE("a divergence keeps its digits where the two predictions are close", "[loss][kernels]") {
  constexpr std::size_t kSamples = 8, kClasses = 10;
  const auto clean = random_values(kSamples * kClasses, 1, -3, 3);
  const std::vector<std::int32_t> labels(kSamples, 4);
  for (const float apart : {1e-2F, 1e-4F}) {
    auto attacked = clean;
    const auto moves = random_values(attacked.size(), 3, -apart, apart);
    for (std::size_t i = 0; i < attacked.size(); ++i) attacked[i] += moves[i];
    const Result found = result_of(*losses().at("trades")({.beta = 1}), attacked, clean, labels);
    for (std::size_t i = 0; i < kSamples; ++i) {
      const Values p = softmax(row(clean, i, kClasses)), q = softmax(row(attacked, i, kClasses));
      INFO(apart << ", sample " << i);
      // One rounding to f32, and some of doubles of about 1.
      CHECK(found.loss[0][i] == Approx(divergence(p, q)).epsilon(1e-6).margin(2e-15));
      for (std::size_t c = 0; c < kClasses; ++c)
        CHECK(found.gradient[0][i * kClasses + c] * kSamples == Approx(q[c] - p[c]).epsilon(1e-6));
    }
  }
}

TEST_CASE("a loss whose reference is a constant has the gradient by the attacked logits alone", "[loss][kernels]") {
  constexpr std::size_t kSamples = 6, kClasses = 5;
  const auto clean = random_values(kSamples * kClasses, 1, -3, 3),
             attacked = random_values(kSamples * kClasses, 2, -3, 3);
  const std::vector<std::int32_t> labels = {0, 1, 2, 3, 4, 0};
  const auto of = [&](const char* name, const LossOptions& options) {
    return result_of(*losses().at(name)(options), attacked, clean, labels);
  };
  for (const char* name : {"pgi", "gat", "nuat"}) {
    INFO(name);
    const Result both = of(name, {}), detached = of(name, {.detach = true}), none = of(name, {.beta = 0});
    CHECK(detached.loss[0] == both.loss[0]);
    CHECK(detached.correct[0] == both.correct[0]);
    CHECK(detached.gradient[0] == both.gradient[0]);
    CHECK(detached.gradient[0] != none.gradient[0]);
    CHECK(both.gradient[1] != none.gradient[1]);
    if (name == std::string("pgi"))
      CHECK(detached.gradient[1].empty());
    else
      CHECK(detached.gradient[1] == none.gradient[1]);
  }
  // Nothing to agree on, and no direction to agree in.
  const Result equal = result_of(*losses().at("nuat")({}), clean, clean, labels);
  CHECK(equal.loss[0] == Values(kSamples, 0));
  CHECK(equal.gradient[0] == Values(clean.size(), 0));
  // A direction is one, however near the two are; but for those below a millionth of the longest.
  std::vector<float> near = attacked;
  for (float& v : near) v *= 0x1p-30F;
  const auto by = [](const std::vector<float>& z, const std::vector<std::int32_t>& y) {
    return result_of(*losses().at("nuat")({}), z, std::vector<float>(z.size()), y).gradient[0];
  };
  CHECK(by(near, labels) == by(attacked, labels));
  CHECK((by({1, 0, 0, 1e-7F}, {0, 0})[0] > 0 && by({1, 0, 0, 1e-7F}, {0, 0})[3] == 0));
}

TEST_CASE("an attack climbs the loss's own goal: a divergence with soft labels, where there is no label or in TRADES",
          "[loss][kernels]") {
  const std::vector<float> clean = {2, 1, 0.5F, -1, 0, 3, 1, 1}, attacked = {1, 1.5F, 0.5F, 0, 1, 2, 2, 0};
  const std::vector<std::int32_t> labels = {0, -1};
  const auto climbed = [&](SampleLoss* loss) {
    const Shared<float> values = shared(attacked), reference = shared(clean);
    const Shared<std::int32_t> on_device = shared(labels);
    Shared<float> losses(2), correct(2), gradient(8);
    const Samples two{.device = kernel_backend().device(), .n = 2, .classes = 4, .labels = on_device.data()};
    loss({two, values.data(), losses.data(), correct.data(), gradient.data(), reference.data()}, 2.0F);
    kernel_backend().wait();
    return std::pair{wide(losses), wide(gradient)};
  };
  const auto [divergences, by_divergence] = climbed(losses().at("trades")({})->goal().loss);
  const auto [mixed, by_mixed] = climbed(losses().at("cross_entropy")({.lambda = 1, .unlabelled = true})->goal().loss);
  const auto [entropies, by_entropy] = climbed(losses().at("mart")({})->goal().loss);
  CHECK(divergences[0] == Approx(0.2591696736).epsilon(1e-5));
  CHECK(by_divergence[0] == Approx(2 * -0.3334556929).epsilon(1e-5));
  CHECK(entropies[0] == Approx(1.2873386717).epsilon(1e-6));
  CHECK(entropies[1] == 0);
  CHECK(mixed == Values{entropies[0], divergences[1]});
  CHECK(std::equal(by_mixed.begin(), by_mixed.begin() + 4, by_entropy.begin()));
  CHECK(std::equal(by_mixed.begin() + 4, by_mixed.end(), by_divergence.begin() + 4));
  CHECK(std::all_of(by_entropy.begin() + 4, by_entropy.end(), [](double g) { return g == 0; }));
  CHECK(!losses().at("cross_entropy")({.lambda = 1})->goal().reference);
  CHECK(losses().at("trades")({})->goal().reference);
}

TEST_CASE("each loss has the passes, the order of statistics and the attack's goal of its published code", "[loss]") {
  // Attacked, clean, start; what they look at; how statistics enter; what is kept of the start.
  const auto told = [](const char* name, const LossOptions& options) {
    const auto loss = losses().at(name)(options);
    const AttackGoal goal = loss->goal();
    CHECK(loss->needs().clean_passes == (loss->passes().size() == 2));
    std::string text;
    for (const Loss::Images one : loss->passes()) text += "acs"[static_cast<int>(one)];
    text += std::string(" ") + "-<*"[static_cast<int>(loss->looks_at())] + " ";
    for (const int pass : loss->entering()) text += std::to_string(pass);
    text += std::map<StartKept, const char*>{
        {StartKept::nothing, ""}, {StartKept::images, " images"}, {StartKept::logits, " logits"}}[goal.kept];
    return text + (goal.spread == kNearStart ? " near" : "") + (goal.reference ? " reference" : "") +
           (loss->takes_unlabelled() ? " unlabelled" : "");
  };
  CHECK(told("cross_entropy", {}) == "a - ");
  CHECK(told("cross_entropy", {.lambda = 1}) == "ac -  unlabelled");
  CHECK(told("cross_entropy", {.lambda = 1, .unlabelled = true}) == "ac *  reference unlabelled");
  CHECK(told("kl", {}) == "ac *  near reference unlabelled");
  CHECK(told("trades", {}) == "ac * 101 near reference unlabelled");
  CHECK(told("mart", {}) == "ac * 10 near");
  CHECK(told("pgi", {}) == "sa *  images");
  CHECK(told("pgi", {.detach = true}) == "a -  logits");
  for (const char* name : {"gat", "nuat"}) {
    CHECK(told(name, {}) == "ac * 101");
    CHECK(told(name, {.detach = true}) == "ca < 010");
  }
}
