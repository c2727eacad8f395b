#include <algorithm>
#include <cstdint>
#include <span>

#include "dat/dataset.hpp"

namespace dat {

namespace {

/// Number of images of each class.
[[nodiscard]] std::vector<std::int64_t> counts_of(const Dataset& images, std::size_t classes) {
  std::vector<std::int64_t> counts(classes);
  for_labels(images, [&](std::span<const std::int16_t> labels) {
    for (const std::int16_t label : labels)
      if (label >= 0) ++counts[static_cast<std::size_t>(label)];
  });
  return counts;
}

}  // namespace

std::vector<std::string> class_remarks(const Dataset& train, const Dataset* test) {
  std::vector<std::string> remarks;
  const std::vector<std::string>& names = train.info().class_names;
  const std::vector<std::int64_t> trained = counts_of(train, names.size());
  const std::vector<std::int64_t> tested =
      test != nullptr ? counts_of(*test, names.size()) : std::vector<std::int64_t>(names.size());
  const auto there = [](std::int64_t count) { return count > 0; };
  const auto with_images = std::ranges::count_if(trained, there);
  if (with_images == 1) {
    const auto only = std::ranges::find_if(trained, there) - trained.begin();
    remarks.push_back("all training images are of one class, " + names[static_cast<std::size_t>(only)] +
                      ": there is nothing to tell apart");
  }
  if (with_images > 1 && trained[0] == 0 && tested[0] == 0)
    remarks.push_back("class 0 (" + names[0] + ") has no image: labels count from 0, and where those of the source " +
                      "begin at 1, each must be one less");
  // Classes that `missing` has, the first ones by name.
  const auto remark = [&](const auto& missing, const char* text) {
    constexpr int kNamed = 5;
    std::string named;
    int count = 0;
    for (std::size_t k = 0; k < names.size(); ++k)
      if (trained[k] == 0 && missing(k) && ++count <= kNamed) named += (count > 1 ? ", " : "") + names[k];
    if (count > 0)
      remarks.push_back(std::to_string(count) + (count == 1 ? " class has " : " classes have ") + text + ": " + named +
                        (count > kNamed ? ", ..." : ""));
  };
  if (with_images > 0) remark([&](std::size_t k) { return tested[k] > 0; }, "test images and no training image");
  // A remark above covers the case in which no class 0 is known.
  if (with_images > 1) remark([&](std::size_t k) { return k > 0 && tested[k] == 0; }, "no image at all");
  return remarks;
}

}  // namespace dat
