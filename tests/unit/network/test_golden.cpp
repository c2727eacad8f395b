#include "catch.hpp"
#include "data_path.hpp"
#include "device.hpp"
#include "golden_case.hpp"

using namespace dat;
using namespace dat::test;

namespace {

/// PyTorch's own float32 result differs from the double one by the yardstick stored beside each array. Ours takes other
/// roundings (Winograd: 2 to 6 times those of direct convolution), so it may differ by:
constexpr double kFactor = 25;

struct Difference {
  double relative_l2, max;
};

template <class A, class B>
Difference difference(const A& ours, const B& expected) {
  double top = 0, bottom = 0, most = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double d = double(ours[i]) - double(expected[i]);
    top += d * d;
    bottom += double(expected[i]) * double(expected[i]);
    most = std::max(most, std::abs(d));
  }
  return {std::sqrt(top / (bottom > 0 ? bottom : 1)), most};
}

/// Compares with expected/NAME: relative L2 within kFactor times PyTorch's own float32 error (at least one rounding).
void compare(const GoldenCase& c, const std::string& name, const std::vector<float>& ours) {
  const std::string path = "expected/" + name;
  const auto expected = c.read(path);
  REQUIRE(ours.size() == expected.size());
  const double yardstick = std::max(c.file.real(path, "float32_error").value(), 6e-8);
  const Difference d = difference(ours, expected);
  INFO(c.network << " " << name << ": relative L2 " << d.relative_l2 << ", PyTorch float32 " << yardstick);
  CHECK(d.relative_l2 <= kFactor * yardstick);
}

/// Gradients of large tensors are stored as samples and the norm of the whole.
void compare_gradients(const GoldenCase& c, const std::string& group) {
  for (const Segment& segment : c.model.parameters.segments) {
    const std::string name = group + "/" + segment.name, path = "expected/" + name;
    const auto whole = c.model.download(segment, c.model.parameters.gradients);
    const auto stride = static_cast<std::size_t>(c.file.integer(path, "stride").value());
    const auto expected = c.read(path);
    std::vector<float> sampled;
    for (std::size_t i = 0; i < whole.size() && sampled.size() < expected.size(); i += stride)
      sampled.push_back(whole[i]);
    compare(c, name, sampled);
    double square = 0;
    for (const float g : whole) square += double(g) * g;
    INFO(c.network << " norm of " << name);
    CHECK(std::sqrt(square) == Approx(c.file.real(path, "norm").value()).epsilon(1e-5));
  }
}

/// One case, every program it needs, planned on one backend.
struct Fixture {
  explicit Fixture(const std::string& name)
      : backend(test::test_backend()),
        c(*backend, test::data_path("golden/" + name + ".h5")),
        frozen(c.model, c.n),
        training(c.model, c.n) {
    backend->commit_workspace();
    frozen.refresh();
    training.refresh();
  }
  std::unique_ptr<Backend> backend;
  GoldenCase c;
  FrozenProgram frozen;
  TrainingProgram training;
};

}  // namespace

TEST_CASE("the frozen network agrees with PyTorch in evaluation mode", "[golden]") {
  const std::string name = GENERATE(values<std::string>({"small_cnn", "small_cnn_odd", "resnet18", "preact_resnet18"}));
  Fixture f(name);
  f.frozen.forward(f.c.x);
  compare(f.c, "logits_eval", f.c.to_host(f.frozen.logits(), f.c.n * f.c.classes));
  cross_entropy(f.c, f.frozen, 1.0F);
  const auto losses = f.c.to_host(f.c.loss, f.c.n);
  double total = 0;
  for (const float l : losses) total += l;
  Shape shape;
  CHECK(total == Approx(f.c.file.read<double>("expected/loss_eval_sum", shape)[0]).epsilon(2e-6));
  f.frozen.backward(f.c.dx);
  compare(f.c, "input_gradient_eval", f.c.to_nchw(f.c.dx));
}

TEST_CASE("the training network agrees with PyTorch: logits, all gradients, batch-norm statistics", "[golden]") {
  const std::string name = GENERATE(values<std::string>({"small_cnn", "small_cnn_odd", "resnet18", "preact_resnet18"}));
  Fixture f(name);
  const ActiveSet all = ActiveSet::all(f.c.model.parameters.layers());
  f.training.forward(f.c.x);
  compare(f.c, "logits_train", f.c.to_host(f.training.logits(), f.c.n * f.c.classes));
  cross_entropy(f.c, f.training, 1.0F / static_cast<float>(f.c.n));
  f.training.backward(f.c.x, {.weights = &all, .gradients = f.c.model.parameters.gradients, .input = f.c.dx});
  compare_gradients(f.c, "grad");
  compare(f.c, "input_gradient_train", f.c.to_nchw(f.c.dx));
  for (std::size_t k = 0; k < f.c.model.graph.norms.size(); ++k) {
    const Norm& norm = f.c.model.graph.norms[k];
    auto mean = f.c.read("bn/" + norm.name + ".running_mean"), variance = f.c.read("bn/" + norm.name + ".running_var");
    const auto batch_mean = f.c.to_host(f.training.batch_mean() + norm.begin, norm.channels);
    const auto batch_variance =
        f.c.to_host(f.training.statistics() + f.c.model.graph.statistics + norm.begin, norm.channels);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] = 0.9F * mean[i] + 0.1F * batch_mean[i];
      variance[i] = 0.9F * variance[i] + 0.1F * batch_variance[i];
    }
    compare(f.c, "bn_after/" + norm.name + ".running_mean", mean);
    compare(f.c, "bn_after/" + norm.name + ".running_var", variance);
  }
}

TEST_CASE("PGD walks the same path as PyTorch, iteration by iteration", "[golden]") {
  const std::string name = GENERATE(values<std::string>({"small_cnn", "small_cnn_odd", "resnet18", "preact_resnet18"}));
  Fixture f(name);
  CaseObjective<FrozenProgram> objective(f.c, f.frozen);
  for (int k = 1; k <= f.c.steps; ++k) {
    attacks().at("pgd")({.eps = f.c.eps, .alpha = f.c.alpha, .steps = k})->perturb(objective);
    auto seen = f.c.to_nchw(f.c.x);
    const auto eta = f.c.to_nchw(f.c.eta);
    for (std::size_t i = 0; i < seen.size(); ++i) seen[i] += eta[i];
    const std::string path = "expected/pgd/x_adv_" + std::to_string(k);
    const auto expected = f.c.read(path);
    int off = 0;
    for (std::size_t i = 0; i < seen.size(); ++i) off += std::abs(seen[i] - expected[i]) > 1e-5F;
    // A pixel differs only where a gradient so small that rounding decides its sign stood at some iteration.
    const double share = f.c.file.real(path, "float32_pixels_off").value();
    INFO(name << " iteration " << k << ": " << off << " of " << seen.size() << " pixels differ");
    CHECK(off <= std::max(kFactor * share, 2e-3) * double(seen.size()));
  }
  // The final image: the same, and inside the ball and the box.
  const auto x = f.c.to_nchw(f.c.x), adversarial = f.c.to_nchw(f.c.x_adv), eta = f.c.to_nchw(f.c.eta);
  const auto expected = f.c.read("expected/pgd/x_adv");
  int off = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    off += std::abs(adversarial[i] - expected[i]) > 1e-5F;
    REQUIRE(std::abs(eta[i]) <= static_cast<float>(f.c.eps));
    REQUIRE((adversarial[i] >= 0.0F && adversarial[i] <= 1.0F));
  }
  CHECK(off <= 2e-3 * double(x.size()));
}

TEST_CASE("fast FGSM in training mode makes PyTorch's images", "[golden]") {
  const std::string name = GENERATE(values<std::string>({"small_cnn", "small_cnn_odd", "resnet18", "preact_resnet18"}));
  Fixture f(name);
  CaseObjective<TrainingProgram> objective(f.c, f.training);
  attacks().at("fgsm")({.eps = f.c.eps, .alpha = 0, .steps = 1})->perturb(objective);
  const auto ours = f.c.to_nchw(f.c.x_adv), expected = f.c.read("expected/fgsm/x_adv");
  int off = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) off += std::abs(ours[i] - expected[i]) > 1e-5F;
  CHECK(off <= 2e-3 * double(ours.size()));
}

TEST_CASE("a DAT step's gradient and running statistics agree with PyTorch: adversarial pass, then lambda times clean",
          "[golden]") {
  const std::string name = GENERATE(values<std::string>({"small_cnn", "small_cnn_odd", "resnet18", "preact_resnet18"}));
  Fixture f(name);
  const ActiveSet all = ActiveSet::all(f.c.model.parameters.layers());
  const float* const adversarial = f.c.image("expected/pgd/x_adv");
  std::vector<std::vector<float>> mean, variance;
  for (const Norm& norm : f.c.model.graph.norms) {
    mean.push_back(f.c.read("bn/" + norm.name + ".running_mean"));
    variance.push_back(f.c.read("bn/" + norm.name + ".running_var"));
  }
  for (int pass = 0; pass < 2; ++pass) {
    const float* const x = pass == 0 ? adversarial : f.c.x;
    f.training.forward(x);
    cross_entropy(f.c, f.training, static_cast<float>(pass == 0 ? 1.0 : f.c.lambda) / static_cast<float>(f.c.n));
    f.training.backward(x, {.weights = &all, .gradients = f.c.model.parameters.gradients, .accumulate = pass == 1});
    for (std::size_t k = 0; k < mean.size(); ++k) {
      const Norm& norm = f.c.model.graph.norms[k];
      const auto m = f.c.to_host(f.training.batch_mean() + norm.begin, norm.channels);
      const auto v = f.c.to_host(f.training.statistics() + f.c.model.graph.statistics + norm.begin, norm.channels);
      for (std::size_t i = 0; i < m.size(); ++i) {
        mean[k][i] = 0.9F * mean[k][i] + 0.1F * m[i];
        variance[k][i] = 0.9F * variance[k][i] + 0.1F * v[i];
      }
    }
  }
  compare_gradients(f.c, "step/grad_total");
  for (std::size_t k = 0; k < mean.size(); ++k) {
    compare(f.c, "step/bn_after_step/" + f.c.model.graph.norms[k].name + ".running_mean", mean[k]);
    compare(f.c, "step/bn_after_step/" + f.c.model.graph.norms[k].name + ".running_var", variance[k]);
  }
}
