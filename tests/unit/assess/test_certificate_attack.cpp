#include "assess/certification/certificate_attack.hpp"
#include "catch.hpp"
#include "communicate/together.hpp"
#include "device.hpp"
#include "random_values.hpp"
#include "single.hpp"

using namespace dat;
using namespace dat::test;

namespace {

constexpr int kImages = 5, kSize = 16, kClasses = 4, kCopies = 3;

/// A network with its first weights, under noise.
struct Fixture {
  Fixture()
      : replica({.backend = {.device = test_device(), .threads = 1, .deterministic = true},
                 .network = "small_cnn",
                 .width = 16,
                 .images = images->info(),
                 .micro_batch = kCopies,
                 .attack_batch = 1,
                 .needs = certificate_attack_needs(20),
                 .training_batches = {},
                 .noise = 0.1,
                 .noise_samples = kCopies}),
        certifier(single(), replica, 0.1, true, 2) {
    replica.model().initialize(1);
    replica.commit();
  }

  /// Certificates of all images for the classes that the network gives them, that all say `radius`.
  [[nodiscard]] CertificationResult certified(double radius) {
    CertificationPlan plan{.sigma = 0.1, .predicts = true, .n = 500, .radii = {}};
    std::vector<std::int64_t> numbers(kImages);
    std::iota(numbers.begin(), numbers.end(), 0);
    double seconds = 0;
    const auto add = [&](const CertificationEntry& entry) { seconds += entry.seconds; };
    Certifier::Progress last;
    std::vector<double> parts;
    const auto keep = [&](const Certifier::Progress& now) { last = now, parts.push_back(now.part); };
    CertificationResult result =
        certifier.run({images.get(), numbers, plan}, {.found = {}, .entry = add, .progress = keep});
    CHECK((last.finished == result.images.size() && last.images == result.images.size()));
    CHECK(last.samples == result.samples());
    CHECK(parts == std::vector{0.2, 0.4, 0.6, 0.8, 1.0});  // two blocks of the ten at a time
    for (const Certificate& c : result.certificates) seconds -= c.seconds;
    CHECK(std::abs(seconds) < 1e-9);  // the images share out all of them
    CHECK((result.certificates[0].seconds > 0 && replica.images().batch().n == 1));
    for (Certificate& c : result.certificates) c.radius = radius;
    return result;
  }
  [[nodiscard]] AttackedCertificates attacked(const CertificationResult& result) {
    std::int64_t begun = 0;
    const std::int64_t all = std::ranges::count_if(result.certificates, [](const auto& c) { return c.radius > 0; });
    AttackedImages found =
        attack_certificates(single(), *images, replica, result, 20, 1,
                            [&](std::int64_t done, std::int64_t most) { CHECK((done == begun++ && most == all)); });
    const Batch& last = replica.images().batch();
    CHECK((begun == all && last.n == 1));
    CHECK(to_host(replica.backend(), last.sample_ids, 1).front() == 4);
    CHECK(to_host(replica.backend(), last.labels, 1).front() == result.certificates[4].prediction);
    const CertificationPlan plan = prediction_plan({.sigma = 0.1, .n0 = 10, .n = 500, .radii = {0.1}});
    CHECK((plan.predicts && !plan.sequential() && plan.seed == 2));
    CertificationResult predicted = certifier.run({&found, found.images(), plan}, {});
    return {std::move(found), std::move(predicted)};
  }

  std::unique_ptr<Dataset> images =
      synthetic_dataset({.classes = kClasses, .size = kSize, .train = 8, .test = kImages}, "test");
  Replica replica;
  Certifier certifier;
};

[[nodiscard]] double distance(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  double squares = 0;
  for (std::size_t p = 0; p < a.size(); ++p) squares += (a[p] - b[p]) * (a[p] - b[p]);
  return std::sqrt(squares) / 255;
}

}  // namespace

TEST_CASE("Bytes of a perturbed image are rounded within the ball", "[certification]") {
  const std::vector<float> values = random_values(768, 1, 0, 1), moves = random_values(768, 2, -0.02F, 0.02F);
  std::vector<std::uint8_t> clean(values.size()), rounded(values.size());
  std::vector<float> x(values.size());
  for (std::size_t p = 0; p < values.size(); ++p) {
    clean[p] = static_cast<std::uint8_t>(std::lround(255 * values[p]));
    x[p] = std::clamp(static_cast<float>(clean[p]) / 255 + moves[p], 0.0F, 1.0F);
    rounded[p] = static_cast<std::uint8_t>(std::lround(255 * x[p]));
  }
  const double whole = distance(rounded, clean);
  CHECK(bytes_within(clean, x, 10) == rounded);
  CHECK(bytes_within(std::array<std::uint8_t, 1>{127}, std::array{0.5F}, 1) == std::vector<std::uint8_t>{128});
  CHECK(bytes_within(clean, x, whole) == rounded);
  for (const double part : {0.999, 0.5, 0.1}) {
    const std::vector<std::uint8_t> bytes = bytes_within(clean, x, part * whole);
    CHECK((distance(bytes, clean) <= part * whole && distance(bytes, clean) > 0.9 * part * whole));
    for (std::size_t p = 0; p < clean.size(); ++p)
      REQUIRE(std::clamp(bytes[p], std::min(clean[p], rounded[p]), std::max(clean[p], rounded[p])) == bytes[p]);
  }
  CHECK(bytes_within(clean, x, 0.5 / 255) == clean);
}

TEST_CASE("An attack on certificates breaks what is certified too far, and stays within what is certified",
          "[certification]") {
  Fixture f;
  CHECK_NOTHROW(Certifier(single(), f.replica, 1e-4, false, 1));  // no table of so little noise is wanted
  CertificationResult result = f.certified(3);
  REQUIRE(result.abstained() == 0);
  const AttackedCertificates far = f.attacked(result);
  CHECK((far.images.images() == result.images && far.images.size() == kImages && far.broken() >= 2));
  for (std::size_t i = 0; i < kImages; ++i) {
    CHECK(far.predicted.labels[i] == result.certificates[i].prediction);
    CHECK(far.predicted.certificates[i].samples == 500);
    CHECK((far.images.distance(result.images[i]) <= 3 && far.images.distance(result.images[i]) > 0.5));
  }

  // Each within its own radius; without one, none. Less than a pixel's step: the image stays.
  result.certificates[0].radius = 0.002;
  result.certificates[3].radius = 0;
  const AttackedCertificates near = f.attacked(result);
  CHECK(near.images.images() == std::vector<std::int64_t>{0, 1, 2, 4});
  CHECK((near.images.distance(0) == 0 && near.images.distance(2) == far.images.distance(2)));
  CHECK(near.predicted.certificates[0].prediction == result.certificates[0].prediction);
  CHECK(near.broken() < far.broken());
  std::vector<std::uint8_t> pixels(f.images->info().image_bytes()), attacked(pixels.size());
  far.images.read(4, pixels.data());
  near.images.read(4, attacked.data());
  CHECK(attacked == pixels);
}

TEST_CASE("Logits that are not finite are certified by nobody", "[certification]") {
  Fixture f;
  auto& parameters = f.replica.model().parameters;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  f.replica.backend().copy_to_device(parameters.values + parameters.segments.back().begin, &nan, sizeof nan);
  ++parameters.version;
  CHECK(error_of([&] { (void)f.certified(1); }) ==
        "7: the logits of image 0 are not finite in 256 samples: a certificate of this network means nothing");
}

TEST_CASE("Votes that cannot be are refused", "[certification]") {
  Fixture f;
  const auto refused = [&](const CertificationEntry& entry) {
    const CertificationPlan plan{.sigma = 0.1, .predicts = true, .n = 512, .radii = {}};  // two blocks
    try {
      (void)f.certifier.run({f.images.get(), {0, 2}, plan}, {.found = {entry}});
    } catch (const Agreed& agreed) {
      return agreed.code == ExitCode::data;
    }
    return false;
  };
  const Votes none(kClasses);
  for (const auto& [image, block, votes] : std::vector<std::tuple<int, int, Votes>>{
           {1, 0, none}, {3, 0, none}, {0, -1, none}, {0, 2, none}, {0, 0, {0, 0, 0}}, {0, 1, {200, 57, 0, 0}}})
    CHECK(refused({.images = {image}, .blocks = {block}, .votes = {votes}}));
  CHECK(refused({.images = {0, 0}, .blocks = {1, 1}, .votes = {none, none}}));
}
