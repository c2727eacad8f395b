#pragma once

#include "catch.hpp"
#include "dat/dataset.hpp"
#include "random_values.hpp"

namespace dat::test {

[[nodiscard]] inline std::vector<std::uint8_t> pixels_of(const Dataset& set, std::int64_t index) {
  std::vector<std::uint8_t> pixels(set.info().image_bytes());
  set.read(index, pixels.data());
  return pixels;
}

/// A set that is another one, but for what a test says otherwise.
struct Wrapped : Dataset {
  explicit Wrapped(std::unique_ptr<Dataset> of) : whole(std::move(of)) {}
  [[nodiscard]] const DatasetInfo& info() const override { return whole->info(); }
  [[nodiscard]] std::int64_t size() const override { return whole->size(); }
  [[nodiscard]] int label(std::int64_t index) const override { return whole->label(index); }
  void read(std::int64_t index, std::uint8_t* pixels) const override { whole->read(index, pixels); }
  std::unique_ptr<Dataset> whole;
};

/// Random images of 8 x 8 x 3, with labels to be set.
class Given final : public Dataset {
 public:
  explicit Given(std::int64_t images) : labels(static_cast<std::size_t>(images), 0) {
    for (const float value : random_values(images * 192, 3, 0, 256))
      pixels_.push_back(static_cast<std::uint8_t>(value));
  }
  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(labels); }
  [[nodiscard]] int label(std::int64_t index) const override { return labels[static_cast<std::size_t>(index)]; }
  void read(std::int64_t index, std::uint8_t* pixels) const override {
    std::copy_n(pixels_.begin() + index * 192, 192, pixels);
  }
  std::vector<std::uint8_t> labels;

 private:
  DatasetInfo info_{8, 3, 10, numbered_classes(10)};
  std::vector<std::uint8_t> pixels_;
};

}  // namespace dat::test
