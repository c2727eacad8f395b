#include "catch.hpp"
#include "data_path.hpp"
#include "device.hpp"
#include "golden_case.hpp"
#include "random_values.hpp"

using namespace dat;
using namespace dat::test;

namespace {

/// PyTorch's own float32 result differs from the double one by the yardstick stored beside each array. Ours takes other
/// roundings (Winograd: 2 to 6 times those of direct convolution), so it may differ by:
constexpr double kFactor = 25;

/// Compares with expected/NAME: relative L2 within kFactor times PyTorch's own float32 error (at least one rounding).
void compare(const GoldenCase& c, const std::string& name, const std::vector<float>& ours) {
  const std::string path = "expected/" + name;
  const auto expected = c.read(path);
  REQUIRE(ours.size() == expected.size());
  const double yardstick = std::max(c.file.real(path, "float32_error").value(), 6e-8);
  const double off = relative_l2(ours, expected);
  INFO(c.network << " " << name << ": relative L2 " << off << ", PyTorch float32 " << yardstick);
  CHECK(off <= kFactor * yardstick);
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

/// Pixels of the attacked images that differ.
int pixels_off(const std::vector<float>& ours, const std::vector<float>& expected) {
  int off = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) off += std::abs(ours[i] - expected[i]) > 1e-5F;
  return off;
}

/// Each of the cases, every program it needs, planned on one backend.
struct Fixture {
  Fixture() : Fixture(GENERATE(values<std::string>({"small_cnn", "small_cnn_odd", "resnet18", "preact_resnet18"}))) {}
  explicit Fixture(const std::string& name)
      : backend(test::test_backend()),
        c(*backend, test::data_path("golden/" + name + ".h5")),
        frozen(c.model, c.n),
        training(c.model, c.n) {
    backend->commit_workspace();
    frozen.refresh();
    training.refresh();
    for (const Norm& norm : c.model.graph.norms) {
      mean.push_back(c.read("bn/" + norm.name + ".running_mean"));
      variance.push_back(c.read("bn/" + norm.name + ".running_var"));
    }
  }

  /// Lets the running statistics follow those of the batch that went through the training program last.
  void follow_batch() {
    for (std::size_t k = 0; k < mean.size(); ++k) {
      const Norm& norm = c.model.graph.norms[k];
      const auto m = c.to_host(training.statistics() + norm.begin, norm.channels);
      const auto v = c.to_host(training.statistics() + c.model.graph.statistics + norm.begin, norm.channels);
      for (std::size_t i = 0; i < m.size(); ++i) {
        mean[k][i] = 0.9F * mean[k][i] + 0.1F * m[i];
        variance[k][i] = 0.9F * variance[k][i] + 0.1F * v[i];
      }
    }
  }
  void compare_statistics(const std::string& group) const {
    for (std::size_t k = 0; k < mean.size(); ++k) {
      const std::string name = group + "/" + c.model.graph.norms[k].name;
      compare(c, name + ".running_mean", mean[k]);
      compare(c, name + ".running_var", variance[k]);
    }
  }

  std::unique_ptr<Backend> backend;
  GoldenCase c;
  FrozenProgram frozen;
  TrainingProgram training;
  std::vector<std::vector<float>> mean, variance;  ///< running, of each batch norm
};

}  // namespace

TEST_CASE("the frozen network agrees with PyTorch in evaluation mode", "[golden]") {
  Fixture f;
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
  Fixture f;
  const ActiveSet all = ActiveSet::all(f.c.model.parameters.layers());
  f.training.forward(f.c.x);
  compare(f.c, "logits_train", f.c.to_host(f.training.logits(), f.c.n * f.c.classes));
  cross_entropy(f.c, f.training, 1.0F / static_cast<float>(f.c.n));
  f.training.backward(f.c.x, {.weights = &all, .gradients = f.c.model.parameters.gradients, .input = f.c.dx});
  compare_gradients(f.c, "grad");
  compare(f.c, "input_gradient_train", f.c.to_nchw(f.c.dx));
  f.follow_batch();
  f.compare_statistics("bn_after");
}

TEST_CASE("PGD walks the same path as PyTorch, iteration by iteration", "[golden]") {
  Fixture f;
  CaseObjective<FrozenProgram> objective(f.c, f.frozen);
  for (int k = 1; k <= f.c.steps; ++k) {
    attacks().at("pgd")({.eps = f.c.eps, .alpha = f.c.alpha, .steps = k})->perturb(objective);
    auto seen = f.c.to_nchw(f.c.x);
    const auto eta = f.c.to_nchw(f.c.eta);
    for (std::size_t i = 0; i < seen.size(); ++i) seen[i] += eta[i];
    const std::string path = "expected/pgd/x_adv_" + std::to_string(k);
    const auto expected = f.c.read(path);
    const int off = pixels_off(seen, expected);
    // A pixel differs only where a gradient so small that rounding decides its sign stood at some iteration.
    const double share = f.c.file.real(path, "float32_pixels_off").value();
    INFO(f.c.network << " iteration " << k << ": " << off << " of " << seen.size() << " pixels differ");
    CHECK(off <= std::max(kFactor * share, 2e-3) * double(seen.size()));
  }
  // The final image: the same, and inside the ball and the box.
  const auto x = f.c.to_nchw(f.c.x), adversarial = f.c.to_nchw(f.c.x_adv), eta = f.c.to_nchw(f.c.eta);
  for (std::size_t i = 0; i < x.size(); ++i) {
    REQUIRE(std::abs(eta[i]) <= static_cast<float>(f.c.eps));
    REQUIRE((adversarial[i] >= 0.0F && adversarial[i] <= 1.0F));
  }
  CHECK(pixels_off(adversarial, f.c.read("expected/pgd/x_adv")) <= 2e-3 * double(x.size()));
}

TEST_CASE("fast FGSM in training mode makes PyTorch's images", "[golden]") {
  Fixture f;
  CaseObjective<TrainingProgram> objective(f.c, f.training);
  attacks().at("fgsm")({.eps = f.c.eps, .alpha = 0, .steps = 1})->perturb(objective);
  const auto ours = f.c.to_nchw(f.c.x_adv);
  CHECK(pixels_off(ours, f.c.read("expected/fgsm/x_adv")) <= 2e-3 * double(ours.size()));
}

TEST_CASE("a DAT step's gradient and running statistics agree with PyTorch: adversarial pass, then lambda times clean",
          "[golden]") {
  Fixture f;
  const ActiveSet all = ActiveSet::all(f.c.model.parameters.layers());
  const float* const adversarial = f.c.image("expected/pgd/x_adv");
  for (int pass = 0; pass < 2; ++pass) {
    const float* const x = pass == 0 ? adversarial : f.c.x;
    f.training.forward(x);
    cross_entropy(f.c, f.training, static_cast<float>(pass == 0 ? 1.0 : f.c.lambda) / static_cast<float>(f.c.n));
    f.training.backward(x, {.weights = &all, .gradients = f.c.model.parameters.gradients, .accumulate = pass == 1});
    f.follow_batch();
  }
  compare_gradients(f.c, "step/grad_total");
  f.compare_statistics("step/bn_after_step");
}
