#include "allocations.hpp"
#include "catch.hpp"
#include "dat/attack.hpp"
#include "device.hpp"
#include "perturb.hpp"
#include "random_values.hpp"

using namespace dat;
using namespace dat::test;

namespace {

constexpr int kSamples = 3;

/// Images, and a gradient that has nothing to do with them: random numbers, fresh at each call, one in eight zero.
class RandomObjective final : public Objective {
 public:
  explicit RandomObjective(const Layout& l, int samples = kSamples)
      : x(shared(random_values(samples * l.elements(), 1, -0.2F, 1.2F))),
        perturbed(x.size(), -1.0F),
        perturbation(x.size(), -1.0F),
        gradient_values(x.size()),
        memory(x.size()) {
    for (float& v : x) v = std::clamp(v, 0.0F, 1.0F);  // many pixels at the edge of the box
    for (int k = 0; k < samples; ++k) ids.push_back(100 + k);
    device = kernel_backend().device();
    layout = l;
    n = samples;
    clean = x.data();
    x_adv = perturbed.data();
    eta = perturbation.data();
    dx = gradient_values.data();
    scratch = memory.data();
    scratch_stride = std::ssize(x);
    sample_ids = ids.data();
    seed = 3;
    for (int k = 0; k < 16; ++k) gradients.push_back(random_gradient(static_cast<std::uint32_t>(k)));
    seen.assign(16, std::vector<float>(x.size()));
  }

  void gradient() override {
    kernel_backend().wait();
    std::copy(perturbed.begin(), perturbed.end(), seen[calls].begin());
    std::copy(gradients[calls].begin(), gradients[calls].end(), gradient_values.begin());
    ++calls;
  }

  Shared<float> x, perturbed, perturbation, gradient_values, memory;
  Shared<std::int64_t> ids;
  std::vector<std::vector<float>> gradients, seen;  ///< by call: the answer, and the images it was asked at
  std::size_t calls = 0;

 private:
  [[nodiscard]] std::vector<float> random_gradient(std::uint32_t call) const {
    auto values = random_values(static_cast<std::int64_t>(x.size()), 10 + call);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 8 == call % 8 ? 0.0F : values[i];
    return values;
  }
};

/// The attack, and its end.
void perturb(const Attack& attack, Objective& o) {
  attack.perturb(o);
  kernel_backend().wait();
}

double sign(double v) { return (v > 0) - (v < 0); }

/// Of image n of arrays of images of `pixels`.
template <class Values>
double norm_of(const Values& values, std::size_t n, std::size_t pixels) {
  double squares = 0;
  for (std::size_t i = n * pixels; i < (n + 1) * pixels; ++i) squares += double(values[i]) * double(values[i]);
  return std::sqrt(squares);
}

/// Normal numbers, to five standard deviations: the variances of a number and of its fourth power are 1 and 96. Pixels
/// beside each other, which share their words, are not correlated.
void check_normal(const std::vector<double>& normal) {
  const auto pixels = static_cast<double>(normal.size());
  double first = 0, fourth = 0, beside = 0;
  for (std::size_t i = 0; i < normal.size(); ++i) {
    first += normal[i] / pixels;
    fourth += std::pow(normal[i], 4) / pixels;
    if (i % 2 == 0) beside += 2 * normal[i] * normal[i + 1] / pixels;
  }
  CHECK(std::abs(first) < 5 / std::sqrt(pixels));
  CHECK(std::abs(fourth - 3) < 5 * std::sqrt(96 / pixels));
  CHECK(std::abs(beside) < 5 * std::sqrt(2 / pixels));
}

const Layout kImage{3, 6, 5, 1};

}  // namespace

TEST_CASE("The sign of zero is zero", "[attack]") {
  CHECK((kernels::sign(0.0F) == 0.0F && kernels::sign(-0.0F) == 0.0F));
  CHECK((kernels::sign(1e-38F) == 1.0F && kernels::sign(-1e-38F) == -1.0F));
}

TEST_CASE("PGD walks from the given start: box first, ball second, each step of length alpha", "[attack]") {
  RandomObjective o(GENERATE(Layout{3, 6, 5, 1}, Layout{3, 6, 5, 3}, Layout{1, 7, 7, 1}));
  constexpr double kEps = 0.1, kAlpha = 0.04;
  const auto start = shared(random_values(static_cast<std::int64_t>(o.x.size()), 99, -0.1F, 0.1F));
  o.start = start.data();
  constexpr int kSteps = 6;
  const auto attack = attacks().at("pgd")({.eps = kEps, .alpha = kAlpha, .steps = kSteps});
  CHECK((attack->gradient_evaluations() == kSteps && !attack->prefers_batch_statistics()));
  CHECK(attack->needs().scratch_images == 0);
  perturb(*attack, o);
  REQUIRE(o.calls == kSteps);
  std::vector<double> eta(start.begin(), start.end());
  for (std::size_t k = 0; k < kSteps; ++k)
    for (std::size_t i = 0; i < eta.size(); ++i) {
      // Each iteration rounds three sums of numbers below 2.
      REQUIRE(std::abs(o.seen[k][i] - (o.x[i] + eta[i])) <= double(3 * k + 1) * 0x1p-23);
      // x + eta lies between x and the box's z after a step, and rounds to a number between them.
      if (k > 0) REQUIRE((o.seen[k][i] >= 0.0F && o.seen[k][i] <= 1.0F));
      const double z = std::clamp(o.x[i] + eta[i] + kAlpha * sign(o.gradients[k][i]), 0.0, 1.0);
      eta[i] = std::clamp(z - o.x[i], -kEps, kEps);
    }
  for (std::size_t i = 0; i < eta.size(); ++i) {
    REQUIRE(std::abs(o.perturbed[i] - std::clamp(o.x[i] + eta[i], 0.0, 1.0)) <= (3 * kSteps + 1) * 0x1p-23);
    REQUIRE((std::abs(o.perturbation[i]) <= float(kEps) && o.perturbed[i] >= 0.0F && o.perturbed[i] <= 1.0F));
    REQUIRE(std::abs(o.perturbed[i] - (double(o.x[i]) + o.perturbation[i])) <= 0x1p-23);
  }
}

TEST_CASE("PGD in the L2 ball walks along the gradient, then back to the ball, then into the box", "[attack]") {
  const Layout layout = GENERATE(Layout{3, 6, 5, 1}, Layout{3, 6, 5, 3}, Layout{1, 17, 7, 1});
  constexpr double kEps = 0.8, kAlpha = 0.3;
  constexpr int kSteps = 6;
  const auto walk = [&](float scale) {
    RandomObjective o(layout);
    const auto start = shared(random_values(std::ssize(o.x), 99, -0.1F, 0.1F));
    o.start = start.data();
    o.scale = scale;
    for (auto& gradient : o.gradients)
      for (float& v : gradient) v *= scale;
    const auto attack = attacks().at("pgd")({.norm = BallNorm::l2, .eps = kEps, .alpha = kAlpha, .steps = kSteps});
    CHECK((attack->gradient_evaluations() == kSteps && attack->needs().scratch_images == 1));
    perturb(*attack, o);
    REQUIRE(o.calls == kSteps);
    const auto pixels = static_cast<std::size_t>(layout.elements());
    std::vector<double> eta(start.begin(), start.end());
    int shortened = 0;
    for (std::size_t k = 0; k < kSteps; ++k) {
      // Sums of numbers below 2 in each iteration, and the norms' part of 1e-7 of them.
      for (std::size_t i = 0; i < eta.size(); ++i)
        REQUIRE(std::abs(o.seen[k][i] - (o.x[i] + eta[i])) <= double(5 * k + 1) * 0x1p-23);
      for (std::size_t n = 0; n < kSamples; ++n) {
        const double length = norm_of(o.gradients[k], n, pixels);
        for (std::size_t i = n * pixels; i < (n + 1) * pixels; ++i) eta[i] += kAlpha * o.gradients[k][i] / length;
        const double far = norm_of(eta, n, pixels);
        shortened += far > kEps;
        for (std::size_t i = n * pixels; i < (n + 1) * pixels; ++i)
          eta[i] = std::clamp(o.x[i] + eta[i] * std::min(1.0, kEps / far), 0.0, 1.0) - o.x[i];
      }
    }
    CHECK(shortened > 0);
    for (std::size_t i = 0; i < eta.size(); ++i) {
      REQUIRE(std::abs(o.perturbed[i] - (o.x[i] + eta[i])) <= (5 * kSteps + 1) * 0x1p-23);
      REQUIRE((o.perturbed[i] >= 0.0F && o.perturbed[i] <= 1.0F));
      REQUIRE(std::abs(o.perturbed[i] - (double(o.x[i]) + o.perturbation[i])) <= 0x1p-23);
    }
    return std::vector<float>(o.perturbed.begin(), o.perturbed.end());
  };
  // Gradients that are multiplied by a power of two, as a network in f16 does, give the same bits; so do small ones.
  const auto plain = walk(1);
  CHECK(walk(1024) == plain);
}

TEST_CASE("In the L2 ball a gradient of zero moves nothing, and a small one moves as far as any", "[attack]") {
  const auto moved = [](float factor, float scale = 1) {
    RandomObjective o(kImage);
    o.scale = scale;
    std::fill(o.x.begin(), o.x.end(), 0.5F);
    const Shared<float> start(o.x.size(), 0.0F);
    o.start = start.data();
    for (float& v : o.gradients[0]) v *= factor * scale;
    perturb(*attacks().at("pgd")({.norm = BallNorm::l2, .eps = 0.25, .alpha = 0.2, .steps = 1}), o);
    const auto pixels = static_cast<std::size_t>(kImage.elements());
    const double length = norm_of(o.gradients[0], 0, pixels) / scale;
    CHECK(std::abs(norm_of(o.perturbation, 0, pixels) - 0.2 * length / (length + 1e-12)) <= 1e-6);
    return norm_of(o.perturbation, 0, pixels);
  };
  CHECK(moved(0) == 0);
  CHECK(moved(1) > 0.199);
  CHECK(moved(1e-9F) > 0.199);
  CHECK(moved(1e-15F) < 0.01);
  CHECK(moved(1e-15F, 1024) < 0.01);  // a network in f16 multiplies its gradients
}

TEST_CASE("The start in the L2 ball is normal, of length eps", "[attack]") {
  RandomObjective o({3, 32, 32, 1}, 2);
  std::fill(o.x.begin(), o.x.end(), 0.5F);
  perturb(*attacks().at("pgd")({.norm = BallNorm::l2, .eps = 0.5, .alpha = 1e-6, .steps = 1}), o);
  std::vector<double> normal;
  for (const float v : o.seen[0]) normal.push_back((double(v) - 0.5) / 0.5 * std::sqrt(3072));
  for (const std::size_t n : {0U, 1U}) CHECK(std::abs(norm_of(normal, n, 3072) - std::sqrt(3072)) <= 1e-4);
  check_normal(normal);
  CHECK(std::equal(normal.begin(), normal.begin() + 3072, normal.begin() + 3072) == false);
  // Where images are dark, the rounded perturbation is the one that counts.
  std::fill(o.x.begin(), o.x.end(), 0.01F);
  attacks().at("pgd")({.norm = BallNorm::l2, .eps = 0.5, .steps = 1})->advance(o, 0, 0);
  kernel_backend().wait();
  for (std::size_t i = 0; i < o.x.size(); ++i)
    REQUIRE(o.perturbed[i] == std::clamp(o.x[i] + o.perturbation[i], 0.0F, 1.0F));

  // Another place in the batch and another layout do not change it; another epoch does.
  const auto start = [](const Layout& layout, std::int64_t id, std::uint32_t time) {
    RandomObjective other(layout, 2);
    std::fill(other.x.begin(), other.x.end(), 0.5F);
    other.ids[1] = id;
    other.time = time;
    perturb(*attacks().at("pgd")({.norm = BallNorm::l2, .eps = 0.5, .alpha = 1e-6, .steps = 1}), other);
    std::vector<float> one;
    for_each_pixel(1, layout, [&](std::int64_t, int y, int x, int c) {
      one.push_back(other.seen[0][static_cast<std::size_t>(layout.offset(1, c, y, x))]);
    });
    return one;
  };
  CHECK(start({3, 5, 5, 1}, 7, 0) == start({3, 5, 5, 3}, 7, 0));
  CHECK(start({3, 5, 5, 1}, 7, 0) != start({3, 5, 5, 1}, 8, 0));
  CHECK(start({3, 5, 5, 1}, 7, 0) != start({3, 5, 5, 1}, 7, 1));
}

TEST_CASE("FGSM in the L2 ball is one step of PGD of 1.25 eps", "[attack]") {
  RandomObjective fast(kImage), plain(kImage);
  const auto attack = attacks().at("fgsm")({.norm = BallNorm::l2, .eps = 0.5});
  CHECK(attack->alpha() == 0.625);
  CHECK(attack->gradient_evaluations() == 1);
  CHECK((attack->prefers_batch_statistics() && attack->needs().scratch_images == 1));
  perturb(*attack, fast);
  perturb(*attacks().at("pgd")({.norm = BallNorm::l2, .eps = 0.5, .alpha = 0.625, .steps = 1}), plain);
  CHECK(fast.calls == 1);
  CHECK(fast.perturbed == plain.perturbed);
  CHECK(fast.perturbation == plain.perturbation);
}

TEST_CASE("PGD in two parts is PGD, bit for bit, wherever it is parted", "[attack]") {
  const BallNorm norm = GENERATE(BallNorm::linf, BallNorm::l2);
  for (const bool given : {false, true}) {
    const auto attack = attacks().at("pgd")({.norm = norm, .eps = 0.1, .alpha = 0.02, .steps = 5});
    Shared<float> from;
    const auto begun = [&] {
      RandomObjective o(kImage);
      if (from.empty()) from = shared(random_values(std::ssize(o.x), 77, -0.1F, 0.1F));
      if (given) o.start = from.data();
      return o;
    };
    RandomObjective whole = begun();
    perturb(*attack, whole);
    for (int done = 0; done <= 5; ++done) {
      RandomObjective o = begun();
      attack->advance(o, 0, done);
      kernel_backend().wait();
      if (done < 5) CHECK(std::ranges::equal(o.perturbed, whole.seen[static_cast<std::size_t>(done)]));
      Shared<float> kept = o.perturbation;
      std::fill(o.perturbation.begin(), o.perturbation.end(), -1.0F);
      std::fill(o.perturbed.begin(), o.perturbed.end(), -1.0F);
      o.start = kept.data();
      attack->advance(o, done, 5 - done);
      kernel_backend().wait();
      CHECK(o.calls == 5);
      CHECK(o.perturbation == whole.perturbation);
      CHECK(o.perturbed == whole.perturbed);
      CHECK(o.seen == whole.seen);
    }
  }
}

TEST_CASE("PGD's default step is 2/255, in L2 2.5 eps by the number of steps; FGSM's 1.25 eps", "[attack]") {
  const auto alpha = [](const char* name, const AttackOptions& options) {
    return attacks().at(name)(options)->alpha();
  };
  CHECK(alpha("pgd", {.eps = 0.3, .steps = 7}) == 2.0 / 255);
  CHECK(alpha("pgd", {.norm = BallNorm::l2, .eps = 0.5, .steps = 7}) == 2.5 * 0.5 / 7);
  CHECK(alpha("fgsm", {.eps = 0.3}) == 1.25 * 0.3);
  // In an evaluation eps/4, of attacks of any number of steps in L-infinity.
  const auto in_evaluation = [](const char* word, BallNorm norm, double wanted) {
    return evaluation_alpha(read_attack_word(word), norm, 0.5, wanted);
  };
  CHECK((in_evaluation("pgd7", BallNorm::linf, 0) == 0.125 && in_evaluation("pgd7", BallNorm::linf, 0.25) == 0.25));
  CHECK(evaluation_options(read_attack_word("pgd1"), BallNorm::linf, 0.5, 0, 10).steps == 1);
  CHECK((in_evaluation("pgd7", BallNorm::l2, 0) == 0 && in_evaluation("fgsm", BallNorm::linf, 0) == 0));
}

TEST_CASE("FGSM ignores the gradient where the start was clamped", "[attack]") {
  RandomObjective o(kImage);
  constexpr double kEps = 0.1, kAlpha = 0.06;
  const auto start = shared(random_values(static_cast<std::int64_t>(o.x.size()), 98, -0.1F, 0.1F));
  o.start = start.data();
  const auto attack = attacks().at("fgsm")({.eps = kEps, .alpha = kAlpha, .steps = 10});
  perturb(*attack, o);
  REQUIRE(o.calls == 1);
  CHECK(attack->gradient_evaluations() == 1);
  CHECK((attack->prefers_batch_statistics() && attack->needs().scratch_images == 0));
  std::size_t masked = 0, changed = 0;
  for (std::size_t i = 0; i < o.x.size(); ++i) {
    const double inside = double(o.x[i]) + start[i];
    REQUIRE(o.seen[0][i] == static_cast<float>(std::clamp(inside, 0.0, 1.0)));
    const bool clamped = inside < 0 || inside > 1;
    masked += clamped;
    const double g = clamped ? 0 : double(o.gradients[0][i]);
    const double eta = std::clamp(start[i] + kAlpha * sign(g), -kEps, kEps);
    REQUIRE(std::abs(o.perturbed[i] - std::clamp(o.x[i] + eta, 0.0, 1.0)) <= 3 * 0x1p-24);
    changed += std::abs(start[i] + kAlpha * sign(o.gradients[0][i]) - eta) > 1e-3;
  }
  CHECK((masked > 0 && changed > 0));
}

TEST_CASE("A start in parts of eps is that of the ball, scaled; in the box it is cut, and no gradient is lost",
          "[attack]") {
  const Layout layout{3, 8, 8, 1};
  constexpr double kEps = 0.1, kAlpha = 0.03;
  for (const char* name : {"pgd", "fgsm"}) {
    INFO(name);
    // eta of the ordinary start: on black images, x + eta of pgd's first gradient.
    RandomObjective black(layout);
    std::fill(black.x.begin(), black.x.end(), 0.0F);
    perturb(*attacks().at("pgd")({.eps = kEps, .steps = 1}), black);
    for (const bool in_box : {false, true}) {
      RandomObjective o(layout);
      const bool cut = in_box || name == std::string("fgsm");  // fgsm asks at an image, in any case
      perturb(
          *attacks().at(name)(
              {.eps = kEps, .alpha = kAlpha, .start_radius = 2, .start_in_box = in_box, .project = false, .steps = 1}),
          o);
      std::size_t outside = 0, beyond = 0;
      for (std::size_t i = 0; i < o.x.size(); ++i) {
        const double x = o.x[i], far = x + 2 * double(black.seen[0][i]), inside = std::clamp(far, 0.0, 1.0);
        const double g = sign(o.gradients[0][i]), lost = !in_box && cut && far != inside ? 0 : 1;
        REQUIRE(std::abs(o.seen[0][i] - (cut ? inside : far)) <= 4 * 0x1p-24);
        const double moved = (in_box ? inside : far) + kAlpha * lost * g;
        REQUIRE(std::abs(o.perturbed[i] - std::clamp(moved, 0.0, 1.0)) <= 8 * 0x1p-24);
        outside += far != inside ? 1 : 0;
        beyond += std::abs(o.perturbed[i] - x) > kEps ? 1 : 0;
      }
      CHECK((outside > 0 && beyond > 0));
    }
  }
}

TEST_CASE("An attack leaves where it took its first gradient, and the logits there, and goes on as it does",
          "[attack]") {
  for (const auto& [name, norm] : {std::pair{"pgd", BallNorm::linf}, {"pgd", BallNorm::l2}, {"fgsm", BallNorm::linf}}) {
    INFO(name);
    const auto attack = attacks().at(name)({.norm = norm, .eps = 0.1, .alpha = 0.03, .steps = 3});
    RandomObjective plain({3, 4, 4, 1}), keeping({3, 4, 4, 1});
    perturb(*attack, plain);
    Shared<float> images(keeping.x.size(), -7.0F), logits(std::size_t{2} * kSamples, -7.0F);
    const auto there = shared(random_values(2 * kSamples, 5, -1, 1));
    keeping.classes = 2;
    keeping.logits = there.data();
    keeping.first_images = images.data();
    keeping.first_logits = logits.data();
    perturb(*attack, keeping);
    CHECK(keeping.calls == plain.calls);
    CHECK(keeping.perturbed == plain.perturbed);
    CHECK(std::equal(images.begin(), images.end(), plain.seen[0].begin(), plain.seen[0].end()));
    CHECK(logits == there);
    if (attack->gradient_evaluations() < 2) continue;
    // What a later part of the attack sees is not where it began.
    images.assign(images.size(), -7.0F);
    keeping.start = keeping.eta;
    keeping.calls = 1;
    attack->advance(keeping, 1, 2);
    kernel_backend().wait();
    CHECK(images == Shared<float>(images.size(), -7.0F));
  }
}

TEST_CASE("The random start of a sample depends on its number, not on its place or the layout", "[attack]") {
  // eta as [sample][y][x][c], from an attack on black images: x + eta is eta.
  const auto starts = [](const Layout& layout, const std::vector<std::int64_t>& ids, std::uint64_t seed = 3,
                         Purpose purpose = Purpose::attack_start, std::uint32_t time = 0) {
    RandomObjective o(layout, static_cast<int>(ids.size()));
    std::fill(o.x.begin(), o.x.end(), 0.0F);
    o.ids.assign(ids.begin(), ids.end());
    o.sample_ids = o.ids.data();
    o.seed = seed;
    o.purpose = purpose;
    o.time = time;
    perturb(*attacks().at("pgd")({.eps = 0.1, .alpha = 0.01, .steps = 1}), o);
    std::vector<std::vector<float>> all(ids.size());
    for_each_pixel(o.n, layout, [&](std::int64_t k, int y, int x, int c) {
      all[static_cast<std::size_t>(k)].push_back(o.seen[0][static_cast<std::size_t>(layout.offset(k, c, y, x))]);
    });
    return all;
  };
  constexpr std::int64_t kFar = std::int64_t{1} << 33;
  const Layout chw{3, 5, 5, 1}, hwc{3, 5, 5, 3};
  const auto three = starts(chw, {5, 9, kFar});
  CHECK(starts(chw, {9})[0] == three[1]);
  CHECK(starts(chw, {kFar, 5})[0] == three[2]);
  CHECK(starts(hwc, {5, 9, kFar}) == three);
  CHECK(three[0] != three[1]);
  CHECK(starts(chw, {9}, 4)[0] != three[1]);
  CHECK(starts(chw, {9}, 3, Purpose::evaluation_start)[0] != three[1]);
  CHECK(starts(chw, {9}, 3, Purpose::attack_start, 1)[0] != three[1]);

  // U(-eps, eps): mean 0 with variance eps^2/3, to five standard deviations.
  const auto large = starts({3, 32, 32, 1}, {7})[0];
  double total = 0;
  for (const float v : large) {
    REQUIRE(std::abs(v) <= 0.1F);
    total += v;
  }
  const auto pixels = static_cast<double>(large.size());
  CHECK(std::abs(total / pixels) < 5 * 0.1 / std::sqrt(3 * pixels));
  CHECK(*std::max_element(large.begin(), large.end()) > 0.099F);
  CHECK(*std::min_element(large.begin(), large.end()) < -0.099F);
}

TEST_CASE("A start beside the image is normal, and not kept inside ball or box", "[attack]") {
  RandomObjective o({3, 32, 32, 1}, 2);
  std::fill(o.x.begin(), o.x.end(), 0.0F);
  o.spread = 0.25F;
  perturb(*attacks().at("pgd")({.eps = 0.1, .alpha = 0.01, .start_in_box = true, .steps = 1}), o);
  std::vector<double> normal;
  for (const float v : o.seen[0]) normal.push_back(v / 0.25);
  check_normal(normal);
  const auto pixels = static_cast<double>(normal.size());
  CHECK(std::abs(norm_of(normal, 0, normal.size()) / std::sqrt(pixels) - 1) < 5 / std::sqrt(2 * pixels));
  CHECK(*std::max_element(normal.begin(), normal.end()) > 3);
  CHECK(std::equal(normal.begin(), normal.begin() + 3072, normal.begin() + 3072) == false);
}

TEST_CASE("No attack copies the images and asks for no gradient", "[attack]") {
  RandomObjective o(kImage);
  const auto attack = attacks().at("none")({});
  perturb(*attack, o);
  CHECK(o.perturbed == o.x);
  CHECK((o.calls == 0 && o.live() == kSamples));
  CHECK(attack->gradient_evaluations() == 0);
}

TEST_CASE("An attack allocates nothing", "[attack][cpu]") {
  const std::int64_t unmoved = allocations;
  { const std::vector<int> some(10); }
  REQUIRE(allocations > unmoved);
  for (const BallNorm norm : {BallNorm::linf, BallNorm::l2})
    for (const std::string& name : attacks().names()) {
      if (name == "smooth-pgd" && norm == BallNorm::linf) continue;
      RandomObjective o(kImage);
      const auto attack = attacks().at(name)({.norm = norm, .eps = 0.1, .alpha = 0.01, .steps = 4});
      if (attack->needs().scratch_images > 1) continue;  // test_searching_attacks.cpp
      CHECK(allocations_in(1, [&] { perturb(*attack, o); }) == 0);
    }
}

TEST_CASE("Impossible attacks are refused", "[attack]") {
  CHECK(contains(message_of([] { (void)attacks().at("deepfool")({}); }), "fgsm, none, pgd"));
  CHECK(contains(message_of([] { (void)norm_from("l1"); }), "unknown norm 'l1'; known: linf, l2"));
}
