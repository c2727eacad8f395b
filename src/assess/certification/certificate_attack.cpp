#include "assess/certification/certificate_attack.hpp"

#include <algorithm>
#include <cmath>

#include "assess/broken_images.hpp"
#include "communicate/together.hpp"
#include "dat/attack.hpp"

namespace dat {

namespace {

[[nodiscard]] std::unique_ptr<Attack> attack_within(double radius, int steps) {
  return attacks().at("pgd")({.norm = BallNorm::l2, .eps = radius, .steps = steps});
}

[[nodiscard]] double distance_of(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  std::int64_t squares = 0;
  for (std::size_t p = 0; p < a.size(); ++p) squares += std::int64_t{a[p] - b[p]} * (a[p] - b[p]);
  return std::sqrt(static_cast<double>(squares)) / 255;
}

}  // namespace

std::vector<std::uint8_t> bytes_within(std::span<const std::uint8_t> clean, std::span<const float> x, double radius) {
  std::vector<std::uint8_t> bytes(clean.size());
  const auto take = [&](double part) {
    for (std::size_t p = 0; p < clean.size(); ++p) {
      const double to = clean[p] + part * (255.0 * static_cast<double>(x[p]) - clean[p]);
      bytes[p] = static_cast<std::uint8_t>(std::lround(to));
    }
    return distance_of(bytes, clean) <= radius;
  };
  double within = 0, beyond = 1;  // each byte moves away from the clean one as the part grows, and so does the image
  if (take(beyond)) return bytes;
  while (beyond - within > 1e-9) {
    const double part = (within + beyond) / 2;
    (take(part) ? within : beyond) = part;
  }
  take(within);
  return bytes;
}

std::size_t AttackedImages::place(std::int64_t image) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(images_, image) - images_.begin());
}

void AttackedImages::read(std::int64_t image, std::uint8_t* pixels) const {
  const std::size_t bytes = info().image_bytes();
  std::copy_n(pixels_.begin() + static_cast<std::ptrdiff_t>(place(image) * bytes), bytes, pixels);
}

double AttackedImages::distance(std::int64_t image) const {
  std::vector<std::uint8_t> attacked(info().image_bytes()), clean(attacked.size());
  read(image, attacked.data());
  clean_->read(image, clean.data());
  return distance_of(attacked, clean);
}

AttackedImages attack_certificates(Communicator& ranks, const Dataset& dataset, Replica& replica,
                                   const CertificationResult& certified, int steps, std::uint64_t seed,
                                   const std::function<void(std::int64_t, std::int64_t)>& progress) {
  std::vector<std::int64_t> numbers;
  std::vector<int> classes;
  std::vector<double> radii;
  for (std::size_t i = 0; i < certified.images.size(); ++i) {
    const Certificate& c = certified.certificates[i];
    if (c.radius == 0) continue;
    numbers.push_back(certified.images[i]);
    classes.push_back(c.prediction);
    radii.push_back(c.radius);
  }
  const std::size_t bytes = dataset.info().image_bytes(), size = static_cast<std::size_t>(ranks.size());
  const std::size_t most = (numbers.size() + size - 1) / size;  // most images of a rank
  std::vector<std::uint8_t> mine(most * bytes), all(size * bytes), pixels(numbers.size() * bytes);
  together(ranks, [&] {
    Buffers& images = replica.images();
    std::vector<float> there(static_cast<std::size_t>(images.layout.elements()));
    HostBatch batch;
    batch.count = 1;
    batch.make_room(batch.count, static_cast<std::int64_t>(bytes));
    std::size_t done = 0;
    for (std::size_t i = static_cast<std::size_t>(ranks.rank()); i < numbers.size(); i += size, ++done) {
      if (progress) progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(most));
      dataset.read(numbers[i], batch.pixels.data());
      batch.labels[0] = classes[i];
      batch.ids[0] = numbers[i];
      images.load(batch, 0, nullptr);
      replica.attacked().prepare(seed);
      attack_within(radii[i], steps)->perturb(replica.attacked());
      images.backend.copy_to_host(there.data(), images.x_adv, there.size() * sizeof(float));
      const auto attacked = bytes_within({batch.pixels.data(), bytes}, image_at(images.layout, there), radii[i]);
      std::ranges::copy(attacked, mine.begin() + static_cast<std::ptrdiff_t>(done * bytes));
    }
  });
  for (std::size_t done = 0; done < most; ++done) {  // an image of each rank
    ranks.all_gather(mine.data() + done * bytes, all.data(), bytes);
    std::copy_n(all.begin(), std::min(size, numbers.size() - done * size) * bytes,
                pixels.begin() + static_cast<std::ptrdiff_t>(done * size * bytes));
  }
  return {dataset, std::move(numbers), std::move(classes), std::move(pixels)};
}

CertificationPlan prediction_plan(CertificationPlan certified) {
  certified.predicts = true;
  certified.radii = {};
  ++certified.seed;
  return certified;
}

std::int64_t AttackedCertificates::broken() const {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < predicted.images.size(); ++i)
    count += predicted.certificates[i].prediction != Certificate::kAbstains && !predicted.correct(i);
  return count;
}

Needs certificate_attack_needs(int steps) { return attack_within(1, steps)->needs(); }

}  // namespace dat
