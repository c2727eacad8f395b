#include "batch/view/smoothed.hpp"
#include "catch.hpp"
#include "dat/attack.hpp"
#include "device.hpp"
#include "noise.hpp"
#include "random_values.hpp"
#include "small_network.hpp"

using namespace dat;
using namespace dat::test;

namespace {

constexpr float kSigma = 0.25F;

/// The copies of images [n] that are zero: noise alone.
[[nodiscard]] std::vector<float> noise_of(const std::vector<std::int64_t>& samples, const Layout& layout, int copies,
                                          std::uint64_t seed, std::uint32_t time) {
  const auto n = std::ssize(samples);
  const Shared<float> x(static_cast<std::size_t>(n * layout.elements()), 0.0F);
  const Shared<std::int64_t> ids = shared(samples);
  Shared<float> to(static_cast<std::size_t>(copies) * x.size(), -7.0F);
  run(n * copies * ((layout.elements() + 3) / 4),
      kernels::NoisyCopies{x.data(), to.data(), ids.data(), layout, seed, time, kSigma, copies});
  return {to.begin(), to.end()};
}

/// Mean and mean square.
[[nodiscard]] std::pair<double, double> moments(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const float v : values) {
    sum += v;
    squares += double{v} * v;
  }
  const auto count = static_cast<double>(values.size());
  return {sum / count, squares / count};
}

/// What the kernels make of the logits of copies [n * copies][classes], and of the gradient of a cross-entropy.
struct Smoothed {
  Shared<float> logits, losses, correct, gradient, of_copies;
  Shared<double> log_means;
};
[[nodiscard]] Smoothed smoothed(const std::vector<float>& of_copies, const std::vector<std::int32_t>& of_labels,
                                int classes, int copies) {
  const auto n = static_cast<int>(of_labels.size());
  const auto count = static_cast<std::size_t>(n * classes);
  const Shared<float> values = shared(of_copies);
  const Shared<std::int32_t> labels = shared(of_labels);
  const Device device = kernel_backend().device();
  Smoothed s{Shared<float>(count), Shared<float>(of_labels.size()), Shared<float>(of_labels.size()),
             Shared<float>(count), Shared<float>(values.size()),    Shared<double>(count)};
  each(device, n, kernels::MeanSoftmax{values.data(), s.logits.data(), s.log_means.data(), classes, copies});
  const Samples all{.device = device, .n = n, .classes = classes, .labels = labels.data()};
  cross_entropy({all, s.logits.data(), s.losses.data(), s.correct.data(), s.gradient.data()}, 1.0F);
  run(std::int64_t{n} * copies, kernels::MeanSoftmaxGradient{values.data(), s.gradient.data(), s.log_means.data(),
                                                             s.of_copies.data(), classes, copies});
  return s;
}

/// -ln of the mean over the copies of softmax_label, in double.
[[nodiscard]] double smoothed_loss(const std::vector<double>& logits, int classes, int copies, int label) {
  double mean = 0;
  for (int j = 0; j < copies; ++j) {
    const double* const z = logits.data() + j * classes;
    double sum = 0;
    for (int c = 0; c < classes; ++c) sum += std::exp(z[c] - z[label]);
    mean += 1 / sum / copies;
  }
  return -std::log(mean);
}

/// Images of some pixels each, and gradients that are given.
class GivenGradients final : public Objective {
 public:
  GivenGradients(const std::vector<float>& images, const std::vector<float>& along, int pixels = 2)
      : x(shared(images)), given(shared(along)), move(x.size(), -7.0F), perturbed(move), memory(x.size()) {
    device = kernel_backend().device();
    layout = {1, 1, pixels, 1};
    n = static_cast<int>(x.size()) / pixels;
    for (int k = 0; k < n; ++k) ids.push_back(40 + k);
    clean = x.data();
    x_adv = perturbed.data();
    eta = move.data();
    dx = given.data();
    scratch = memory.data();
    scratch_stride = std::ssize(x);
    sample_ids = ids.data();
    seed = 3;
  }
  void gradient() override {
    kernel_backend().wait();
    if (++calls == 1) CHECK(perturbed == x);  // it begins at the images
  }

  Shared<float> x, given, move, perturbed, memory;
  Shared<std::int64_t> ids;
  int calls = 0;
};

[[nodiscard]] std::vector<float> attacked(GivenGradients& o, const AttackOptions& options) {
  attacks().at("smooth-pgd")(options)->perturb(o);
  kernel_backend().wait();
  for (std::size_t i = 0; i < o.x.size(); ++i) CHECK(o.perturbed[i] == o.x[i] + o.move[i]);
  return {o.move.begin(), o.move.end()};
}

void check_near(const std::vector<float>& found, const std::vector<double>& wanted, double tolerance = 1e-7) {
  REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - wanted[i]) <= tolerance);
}

}  // namespace

TEST_CASE("noise is normal, each copy's its own, and hangs on sample, seed and epoch alone", "[smoothed]") {
  const Layout layout{3, 32, 32, 1};
  const auto all = noise_of({5, 6, 1LL << 33}, layout, 4, 7, 2);
  const auto [mean, square] = moments(all);  // of 36 864 numbers: four deviations of each
  CHECK(std::abs(mean) < 4 * kSigma / std::sqrt(36864.0));
  CHECK(std::abs(square - kSigma * kSigma) < 4 * kSigma * kSigma * std::sqrt(2.0 / 36864));
  CHECK(*std::max_element(all.begin(), all.end()) > 3.3 * kSigma);  // not cut off
  CHECK(*std::min_element(all.begin(), all.end()) < -3.3 * kSigma);
  const auto part = [&](const std::vector<float>& of, int copy) {
    const auto begin = of.begin() + copy * layout.elements();
    return std::vector<float>(begin, begin + layout.elements());
  };
  double product = 0;
  for (std::int64_t i = 0; i < layout.elements(); ++i)
    product += double{all[static_cast<std::size_t>(i)]} * all[static_cast<std::size_t>(i + layout.elements())];
  CHECK(std::abs(product / 3072) < 4 * kSigma * kSigma / std::sqrt(3072.0));
  // Neither neighbours nor the number of copies change anything; the sample, the seed and the epoch do.
  CHECK(part(noise_of({6}, layout, 2, 7, 2), 1) == part(all, 5));
  CHECK(part(noise_of({1LL << 33}, layout, 1, 7, 2), 0) == part(all, 8));
  CHECK(part(noise_of({0}, layout, 1, 7, 2), 0) != part(all, 8));
  CHECK(part(noise_of({5}, layout, 1, 8, 2), 0) != part(all, 0));
  CHECK(part(noise_of({5}, layout, 1, 7, 3), 0) != part(all, 0));
  // It is not that of the attack's start.
  const Philox4 words = random_words(7, Purpose::noise, 2, 5, 0);
  CHECK(std::abs(all[0] - kSigma * kernels::normal_number<double>(words, 0)) < 1e-6);
}

TEST_CASE("noise is the same picture in every layout", "[smoothed]") {
  const Layout planes{3, 3, 5, 1}, pixels{3, 3, 5, 3};
  const auto one = noise_of({8, 9}, planes, 2, 1, 0), other = noise_of({8, 9}, pixels, 2, 1, 0);
  for_each_pixel(4, planes, [&](std::int64_t n, int y, int x, int c) {
    REQUIRE(one[static_cast<std::size_t>(planes.offset(n, c, y, x))] ==
            other[static_cast<std::size_t>(pixels.offset(n, c, y, x))]);
  });
}

TEST_CASE("the loss of copies is that of their mean prediction", "[smoothed]") {
  const Smoothed s = smoothed({2, 0, 0, 0, 1, 0}, {0}, 3, 2);
  CHECK(std::abs(s.losses[0] - 0.6942201562) < 1e-7);
  CHECK(s.correct[0] == 1);
  // The mean of their cross-entropies, which training has, is another number.
  const Smoothed single = smoothed({2, 0, 0, 0, 1, 0}, {0, 0}, 3, 1);
  CHECK(std::abs((single.losses[0] + single.losses[1]) / 2 - 0.8954947401) < 1e-7);
}

TEST_CASE("the gradient by the copies' logits is that of finite differences", "[smoothed]") {
  constexpr int kClasses = 5, kCopies = 3;
  const float range = GENERATE(1.0F, 8.0F, 40.0F);
  const auto logits = random_values(2 * kCopies * kClasses, 4, -range, range);
  const std::vector<std::int32_t> labels = {3, 0};
  const Smoothed s = smoothed(logits, labels, kClasses, kCopies);
  for (std::size_t n = 0; n < 2; ++n) {
    const std::size_t each_image = kCopies * kClasses;
    std::vector<double> z(logits.begin() + static_cast<std::ptrdiff_t>(n * each_image),
                          logits.begin() + static_cast<std::ptrdiff_t>((n + 1) * each_image));
    CHECK(std::abs(s.losses[n] - smoothed_loss(z, kClasses, kCopies, labels[n])) < 1e-5 * (1 + double{range}));
    for (std::size_t i = 0; i < z.size(); ++i) {
      constexpr double kStep = 1e-5;
      const double here = z[i];
      z[i] = here + kStep;
      const double above = smoothed_loss(z, kClasses, kCopies, labels[n]);
      z[i] = here - kStep;
      const double below = smoothed_loss(z, kClasses, kCopies, labels[n]);
      z[i] = here;
      REQUIRE(std::abs(s.of_copies[n * each_image + i] - (above - below) / (2 * kStep)) < 2e-6);
    }
  }
}

TEST_CASE("a floor under the likelihood has no gradient", "[smoothed]") {
  Shared<float> loss{46.0F, 46.1F}, gradient(4, 0.5F);
  run(2, kernels::FloorOfLikelihood{loss.data(), gradient.data(), 2});
  CHECK(loss[0] == 46.0F);
  CHECK(std::abs(loss[1] + std::log(1e-20)) < 1e-5);
  CHECK(std::vector<float>(gradient.begin(), gradient.end()) == std::vector<float>{0.5F, 0.5F, 0, 0});
  loss[0] = 47;
  run(2, kernels::FloorOfLikelihood{loss.data(), nullptr, 2});  // where nobody wants the gradient
  CHECK(loss[0] == loss[1]);
}

TEST_CASE("steps of smooth-pgd are those of SmoothAdv", "[smoothed]") {
  const auto along = [](const std::vector<float>& x, int steps, double alpha = 0) {
    GivenGradients o(x, {3e-3F, 4e-3F});
    return attacked(o, {.norm = BallNorm::l2, .eps = 0.5, .alpha = alpha, .steps = steps});
  };
  check_near(along({0.5F, 0.2F}, 2), {0.2649995, 0.4239992});
  check_near(along({0.5F, 0.2F}, 10), {0.3, 0.4});
  check_near(along({0.9F, 0.2F}, 2), {0.0620174, 0.4961389});
  check_near(along({0.5F, 0.2F}, 2, 0.1), {0.12, 0.16});
  GivenGradients o({0.5F, 0.2F}, {1, 0});
  const auto attack = attacks().at("smooth-pgd")({.norm = BallNorm::l2, .eps = 0.5, .steps = 4});
  attack->perturb(o);
  CHECK(o.calls == 4);
  CHECK(attack->alpha() == 0.25);
  CHECK_FALSE(attack->random());
  CHECK(o.loss == cross_entropy);  // of one copy
  o.copies = 2;
  attack->perturb(o);
  Shared<float> logits{60, 0}, loss(1), correct(1), gradient(2, 1.0F);
  const Shared<std::int32_t> label{1};
  const Samples one{.device = o.device, .n = 1, .classes = 2, .labels = label.data()};
  o.loss({one, logits.data(), loss.data(), correct.data(), gradient.data()}, 1.0F);
  kernel_backend().wait();
  CHECK((std::abs(loss[0] + std::log(1e-20)) < 1e-5 && gradient[0] == 0 && gradient[1] == 0));
  CHECK_THROWS_AS(attacks().at("smooth-pgd")({.eps = 0.5}), Error);
}

TEST_CASE("where the gradient is zero smooth-pgd goes anywhere, differently in each iteration", "[smoothed]") {
  const auto move_of = [](int steps, double eps) {
    GivenGradients o({0.5F, 0.5F, 0.5F, 0.5F}, {0, 0, 0, 1});
    return attacked(o, {.norm = BallNorm::l2, .eps = eps, .alpha = 0.01, .steps = steps});
  };
  const auto one = move_of(1, 5), two = move_of(2, 5);
  const double length = std::hypot(one[0], one[1]);
  CHECK(length > 0);
  CHECK(std::abs(length - 0.01) > 1e-5);  // not normalized
  const Philox4 words = random_words(3, Purpose::attack_start, 0, 40, 0);
  check_near({one[0], one[1]},
             {0.01 * kernels::normal_number<double>(words, 0), 0.01 * kernels::normal_number<double>(words, 1)});
  CHECK(std::abs(two[0] - 2 * one[0]) > 1e-5);
  check_near({two[2], two[3]}, {0, 0.02});
  // Of six pixels an iteration takes two groups of four numbers.
  GivenGradients six(std::vector<float>(12, 0.5F), std::vector<float>(12, 0.0F), 6);
  std::vector<double> wanted;
  for (const std::uint64_t id : {40U, 41U})
    for (std::uint32_t p = 0; p < 6; ++p) {
      double& sum = wanted.emplace_back(0);
      for (const std::uint32_t index : {p / 4, 2 + p / 4})
        sum += 0.01 * kernels::normal_number<double>(random_words(3, Purpose::attack_start, 0, id, index), p % 4);
    }
  check_near(attacked(six, {.norm = BallNorm::l2, .eps = 5, .alpha = 0.01, .steps = 2}), wanted, 2e-7);
}

namespace {

constexpr int kSize = 8, kClasses = 10, kImages = 4, kCopies = 3;

/// A small network, some images, and passes of `pass` of them.
struct Network {
  explicit Network(int pass, int copies = kCopies)
      : backend(test_backend()),
        model(*backend, kSize),
        images(*backend, {.size = kSize, .channels = 3, .classes = kClasses, .class_names = {}}, kImages,
               {.scratch_images = 1}),
        program(model, pass * copies),
        plain(model, kImages * copies),
        objective(under_noise(copies), program) {
    HostBatch batch = host_batch({0, 1, 2, 3}, images.layout.elements(), 70);
    for (std::uint8_t& pixel : batch.pixels) pixel = static_cast<std::uint8_t>(30 + pixel * 196 / 256);
    loss = backend->allocate_floats(kImages, "test");
    correct = backend->allocate_floats(kImages, "test");
    backend->commit_workspace();
    images.load(batch, 0, nullptr);
  }
  [[nodiscard]] Buffers& under_noise(int copies) {
    images.add_noise(kSigma, copies, kImages);
    return images;
  }
  [[nodiscard]] std::vector<float> losses() {
    objective.measure(images.x_adv, loss, correct);
    return to_host(*backend, loss, kImages);
  }

  std::unique_ptr<Backend> backend;
  SmallNetwork model;
  Buffers images;
  FrozenProgram program, plain;
  SmoothedView objective;
  float *loss, *correct;
};

}  // namespace

TEST_CASE("the smoothed network is the mean of the network's predictions of noisy copies", "[smoothed]") {
  Network f(kImages);
  f.objective.prepare(9, Purpose::attack_start, 4);
  attacks().at("none")({})->perturb(f.objective);
  f.objective.forward();
  const auto found = to_host(*f.backend, f.objective.logits, kImages * kClasses);
  const auto right = to_host(*f.backend, f.objective.correct, kImages);
  f.plain.forward(f.images.shown(f.images.clean, f.images.batch(), 9, 4));
  const auto of_copies = to_host(*f.backend, f.plain.logits(), kImages * kCopies * kClasses);
  for (int n = 0; n < kImages; ++n) {
    std::vector<double> mean(kClasses);
    for (int j = 0; j < kCopies; ++j) {
      const float* const z = of_copies.data() + (n * kCopies + j) * kClasses;
      double sum = 0;
      for (int c = 0; c < kClasses; ++c) sum += std::exp(double{z[c]});
      for (std::size_t c = 0; c < kClasses; ++c) mean[c] += std::exp(double{z[c]}) / sum / kCopies;
    }
    for (std::size_t c = 0; c < kClasses; ++c)
      CHECK(std::abs(found[static_cast<std::size_t>(n) * kClasses + c] - std::log(mean[c])) < 1e-5);
    const bool is_right = std::max_element(mean.begin(), mean.end()) - mean.begin() == n;
    CHECK(right[static_cast<std::size_t>(n)] == (is_right ? 1.0F : 0.0F));
  }
  CHECK(f.objective.passes == 0);
  f.objective.gradient();
  CHECK(f.objective.passes == kImages * kCopies);  // each copy counts
}

TEST_CASE("the smoothed loss's gradient by the image is that of finite differences", "[smoothed]") {
  Network f(kImages);
  f.objective.prepare(9, Purpose::attack_start, 4);
  attacks().at("none")({})->perturb(f.objective);
  f.objective.gradient();
  const std::int64_t pixels = f.images.layout.elements();
  const auto dx = to_host(*f.backend, f.images.dx, kImages * pixels);
  auto x = to_host(*f.backend, f.images.x_adv, kImages * pixels);
  constexpr float kStep = 1e-2F;
  for (std::size_t n = 0; n < kImages; ++n) {
    double wanted = 0, length = 0;  // along the gradient
    const std::size_t first = n * static_cast<std::size_t>(pixels), end = first + static_cast<std::size_t>(pixels);
    for (std::size_t i = first; i < end; ++i) length += double{dx[i]} * dx[i];
    length = std::sqrt(length);
    const auto moved = [&](float step) {
      auto at = x;
      for (std::size_t i = first; i < end; ++i) at[i] += static_cast<float>(step * dx[i] / length);
      f.backend->copy_to_device(f.images.x_adv, at.data(), at.size() * sizeof(float));
      return f.losses()[n];
    };
    wanted = (double{moved(kStep)} - moved(-kStep)) / (2 * kStep);
    CHECK(length > 0);
    CHECK(std::abs(wanted - length) < 0.02 * length + 1e-4);
  }
}

TEST_CASE("a smoothed image does not depend on the passes, its restarts see one noise, and epochs others",
          "[smoothed]") {
  const auto attack = attacks().at("smooth-pgd")({.norm = BallNorm::l2, .eps = 0.5, .steps = 3});
  const auto attacked = [&](int pass, Purpose purpose, std::uint32_t time) {
    Network f(pass);
    f.objective.prepare(9, purpose, time);
    attack->perturb(f.objective);
    auto all = to_host(*f.backend, f.images.x_adv, kImages * f.images.layout.elements());
    const auto losses = f.losses();
    all.insert(all.end(), losses.begin(), losses.end());
    return all;
  };
  const auto whole = attacked(kImages, Purpose::attack_start, 4);
  CHECK(attacked(kImages, Purpose::attack_start, 4) == whole);
  CHECK(attacked(kImages, Purpose::attack_start, 5) != whole);
  const auto parts = attacked(2, Purpose::attack_start, 4);  // another program, which rounds otherwise
  for (std::size_t i = 0; i < whole.size(); ++i) REQUIRE(std::abs(parts[i] - whole[i]) < 1e-4);
  CHECK(attacked(kImages, Purpose::evaluation_start, 0) == attacked(kImages, Purpose::evaluation_start, 1));
}

TEST_CASE("images that an attack goes on with are under noise as before, whatever others it is done with",
          "[smoothed]") {
  for (const int copies : {1, 2}) {
    Network f(kImages, copies);
    f.objective.prepare(9, Purpose::attack_start, 4);
    attacks().at("none")({})->perturb(f.objective);
    f.objective.gradient();
    const std::int64_t pixels = f.images.layout.elements();
    const auto losses = to_host(*f.backend, f.objective.losses, kImages),
               dx = to_host(*f.backend, f.images.dx, kImages * pixels);
    const std::vector<std::int32_t> done = {1, 0, 1, 1};
    f.backend->copy_to_device(f.images.done, done.data(), done.size() * sizeof(std::int32_t));
    CHECK(f.objective.live() == 1);
    f.objective.gradient();
    const auto later = to_host(*f.backend, f.objective.losses, kImages),
               ddx = to_host(*f.backend, f.images.dx, kImages * pixels);
    CHECK(std::abs(later[1] - losses[1]) < 1e-5F);
    for (std::int64_t i = pixels; i < 2 * pixels; ++i)
      REQUIRE(std::abs(ddx[static_cast<std::size_t>(i)] - dx[static_cast<std::size_t>(i)]) < 1e-5F);
  }
}

TEST_CASE("pgd's iterations on a smoothed network move with the noise of the epoch", "[smoothed]") {
  Network f(kImages);
  const auto attack = attacks().at("pgd")({.eps = 0.1, .alpha = 0.02, .steps = 4});
  const auto attacked = [&](std::uint32_t epoch) {
    f.objective.prepare(9, Purpose::attack_start, epoch);
    attack->perturb(f.objective);
    return to_host(*f.backend, f.images.eta, kImages * f.images.layout.elements());
  };
  // Whatever has been recorded on the way.
  const auto zeroth = attacked(0), first = attacked(1);
  CHECK(zeroth != first);
  CHECK(attacked(0) == zeroth);
  Network fresh(kImages);
  fresh.objective.prepare(9, Purpose::attack_start, 1);
  attack->perturb(fresh.objective);
  CHECK(to_host(*fresh.backend, fresh.images.eta, kImages * fresh.images.layout.elements()) == first);
}
