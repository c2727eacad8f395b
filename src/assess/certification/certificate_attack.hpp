#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "assess/certification/certification.hpp"
#include "dat/communicator.hpp"
#include "dat/dataset.hpp"
#include "replica/replica.hpp"

namespace dat {

/// The bytes [pixels] of a perturbed image, none farther than `radius` in L2 from `clean`: as they are rounded, of the
/// longest part of the perturbation for which that holds. x: the perturbed image, in [0, 1]; radius: in units of the
/// pixels' range.
[[nodiscard]] std::vector<std::uint8_t> bytes_within(std::span<const std::uint8_t> clean, std::span<const float> x,
                                                     double radius);

/// Images as attacks within their certified radii have left them. Their numbers are those in the set of clean images,
/// their labels the classes that they are certified for.
class AttackedImages final : public Dataset {
 public:
  AttackedImages(const Dataset& clean, std::vector<std::int64_t> images, std::vector<int> classes,
                 std::vector<std::uint8_t> pixels)
      : clean_(&clean), images_(std::move(images)), classes_(std::move(classes)), pixels_(std::move(pixels)) {}

  [[nodiscard]] const DatasetInfo& info() const override { return clean_->info(); }
  [[nodiscard]] std::int64_t size() const override { return clean_->size(); }
  [[nodiscard]] int label(std::int64_t image) const override { return classes_[place(image)]; }
  void read(std::int64_t image, std::uint8_t* pixels) const override;
  /// Increasing.
  [[nodiscard]] const std::vector<std::int64_t>& images() const { return images_; }
  /// [images][size][size][channels].
  [[nodiscard]] const std::vector<std::uint8_t>& pixels() const { return pixels_; }
  /// Distance of an image from the clean one, in L2 and in units of the pixels' range.
  [[nodiscard]] double distance(std::int64_t image) const;

 private:
  [[nodiscard]] std::size_t place(std::int64_t image) const;

  const Dataset* clean_;
  std::vector<std::int64_t> images_;
  std::vector<int> classes_;
  std::vector<std::uint8_t> pixels_;
};

/// Attacks the smoothed network of a replica with noise within each certified radius, by PGD in L2 with steps of 2.5
/// radii by their number. Each rank takes its part of the images, one at a time, and calls `progress`, where it is
/// given, how many of how many it has done. **Collective.**
[[nodiscard]] AttackedImages attack_certificates(Communicator& ranks, const Dataset& dataset, Replica& replica,
                                                 const CertificationResult& certified, int steps, std::uint64_t seed,
                                                 const std::function<void(std::int64_t, std::int64_t)>& progress = {});

/// Plan of the prediction of the attacked images' classes, from samples of their own.
[[nodiscard]] CertificationPlan prediction_plan(CertificationPlan certified);

/// The images that attacks have left, and what the smoothed network says of them.
struct AttackedCertificates {
  AttackedImages images;
  CertificationResult predicted;

  /// Number of images whose class is another than the one that they are certified for.
  [[nodiscard]] std::int64_t broken() const;
};

/// Needs of this attack.
[[nodiscard]] Needs certificate_attack_needs(int steps);

}  // namespace dat
