#pragma once

#include "attack/attacks.hpp"
#include "catch.hpp"
#include "device.hpp"
#include "random_values.hpp"
#include "train/examples/warm_start.hpp"

namespace dat::test {

/// Some samples as an attack sees them: images, crops and the attack's result are functions of sample and epoch.
class Stage final : public Objective {
 public:
  static constexpr float kEps = 0.1F;

  Stage(Backend& backend, const Layout& l, int capacity) : backend_(backend) {
    const std::int64_t count = capacity * l.elements();
    device = backend.device();
    layout = l;
    clean = clean_ = backend.allocate_floats(count, "test");
    x_adv = backend.allocate_floats(count, "test");
    eta = backend.allocate_floats(count, "test");
    sample_ids = ids_ =
        static_cast<std::int64_t*>(backend.allocate(static_cast<std::size_t>(capacity) * sizeof(std::int64_t), "test"));
    crops = static_cast<Crop*>(backend.allocate(static_cast<std::size_t>(capacity) * sizeof(Crop), "test"));
    seed = 5;
  }

  [[nodiscard]] static Crop crop(std::int64_t id, std::uint32_t epoch) {
    const auto shift = [&](std::int64_t a, std::int64_t b) {
      return static_cast<std::int8_t>((a * id + b * epoch) % 9 - 4);
    };
    return {shift(7, 5), shift(2, 1), static_cast<std::int8_t>((id + epoch) % 3 == 0)};
  }

  void show(const std::vector<std::int64_t>& ids, std::uint32_t epoch) {
    n = static_cast<int>(ids.size());
    time = epoch;
    start = nullptr;
    std::vector<Crop> cuts;
    x.clear();
    perturbed.clear();
    for (const std::int64_t id : ids) {
      cuts.push_back(crop(id, epoch));
      const auto number = static_cast<std::uint32_t>(1000 * id + epoch);
      const auto image = random_values(layout.elements(), number, 0, 1);
      const auto step = random_values(layout.elements(), number + 500000, -kEps, kEps);
      for (std::size_t i = 0; i < image.size(); ++i) {
        x.push_back(image[i]);
        perturbed.push_back(std::clamp(image[i] + step[i], 0.0F, 1.0F));
      }
    }
    backend_.copy_to_device(clean_, x.data(), x.size() * sizeof(float));
    backend_.copy_to_device(ids_, ids.data(), ids.size() * sizeof(std::int64_t));
    backend_.copy_to_device(crops, cuts.data(), cuts.size() * sizeof(Crop));
  }

  void attack() { backend_.copy_to_device(x_adv, perturbed.data(), perturbed.size() * sizeof(float)); }
  void gradient() override {}

  [[nodiscard]] std::vector<float> etas() { return to_host(backend_, eta, n * layout.elements()); }
  /// Where attacks on what is shown start that know nothing.
  [[nodiscard]] std::vector<float> random_start() {
    start = nullptr;
    dat::start(*this, BallNorm::linf, kEps);
    return etas();
  }

  Crop* crops;
  std::vector<float> x, perturbed;  ///< on the host

 private:
  Backend& backend_;
  float* clean_;
  std::int64_t* ids_;
};

/// A batch that consists of these samples, for `WarmStart`.
[[nodiscard]] inline HostBatch batch_of(const std::vector<std::int64_t>& ids,
                                        const std::vector<std::int64_t>& everyone) {
  HostBatch batch;
  batch.count = static_cast<int>(ids.size());
  batch.ids = ids;
  batch.everyone = everyone;
  for (std::size_t begin = 0; begin <= everyone.size(); begin += ids.size())
    batch.begins.push_back(static_cast<int>(begin));
  return batch;
}

}  // namespace dat::test
