#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "data/images/png.hpp"
#include "record/evaluation_file.hpp"
#include "verbs/report/sections.hpp"

namespace dat {

namespace {

constexpr std::size_t kMostTriples = 12;
constexpr std::size_t kMostGridBytes = 700'000;  ///< of pictures of large images there is room for few
constexpr std::size_t kLargestTile = 128;  ///< pixels of a side; of larger images every second, third, ... one is shown

/// The PNG of an image whose channels value(element) gives, from 0 to 1; NaN is 0.
template <class Value>
[[nodiscard]] std::string png_of_values(std::size_t size, std::size_t channels, const Value& value) {
  const std::size_t stride = (size + kLargestTile - 1) / kLargestTile, side = (size + stride - 1) / stride;
  std::vector<std::uint8_t> rgb;
  for (std::size_t y = 0; y < size; y += stride)
    for (std::size_t x = 0; x < size; x += stride)
      for (std::size_t colour = 0; colour < 3; ++colour) {
        const double bright = value((y * size + x) * channels + std::min(colour, channels - 1));
        rgb.push_back(bright >= 0 ? static_cast<std::uint8_t>(std::min(255.0, std::round(255 * bright))) : 0);
      }
  return png_of({static_cast<int>(side), static_cast<int>(side)}, rgb);
}

}  // namespace

void add_image_grid(Page& page, const std::string& evaluation_file) {
  namespace fs = std::filesystem;
  const std::string saved = (fs::path(evaluation_file).parent_path() / "adversarial.h5").string();
  std::error_code ignored;
  if (fs::path(evaluation_file).filename() != "eval.json" || !fs::exists(saved, ignored)) return;
  const EvaluationFile file = read_evaluation(evaluation_file);
  const ShownImages images = read_attacked_images(saved, file, kMostTriples);
  const std::string attacks = file.attack_names();
  if (images.numbers.empty())
    return page.paragraph((attacks.empty() ? "No attack" : attacks) + " has broken no image that was right.");
  const auto size = static_cast<std::size_t>(images.size), channels = static_cast<std::size_t>(images.channels);
  const std::size_t elements = size * size * channels;
  const auto before = [&](std::size_t at) { return images.clean[at] / 255.0; };
  const auto after = [&](std::size_t at) { return double{images.attacked[at]}; };
  page.paragraph(
      fmt::format("The first images that are right, and wrong after {}: clean, the perturbation enlarged {:.3g} times, "
                  "attacked. In brackets: the probability that the network gives to the class.",
                  attacks, images.scale));
  const auto called = [&](int label, double probability) {
    return file.class_names[static_cast<std::size_t>(label)] +
           (std::isfinite(probability) ? fmt::format(" ({:.1f} %)", 100 * probability) : "");
  };
  const auto picture = [&](const std::string& about, const auto& value) {
    return "<img src=\"" + png_address(png_of_values(size, channels, value)) + "\" alt=\"" + html_text(about) + "\">";
  };
  std::string grid = "<div class=\"triples\">\n";
  for (std::size_t k = 0; k < images.numbers.size() && grid.size() < kMostGridBytes; ++k) {
    const std::size_t i = images.numbers[k], first = k * elements;
    const EvaluationFile::Outcome& attacked = *file.breaker(i);
    // A clean image that is right: its loss is that of the class that the network says.
    const std::string label = called(file.label[i], std::exp(-file.clean_loss[i])),
                      taken = called(attacked.prediction[i], double{images.confidence[k]});
    grid += "<figure>" + picture("clean: " + label, [&](std::size_t at) { return before(first + at); }) + " " +
            picture("perturbation",
                    [&](std::size_t at) { return 0.5 + images.scale * (after(first + at) - before(first + at)); }) +
            " " + picture("attacked: " + taken, [&](std::size_t at) { return after(first + at); }) + "<figcaption>" +
            html_text(fmt::format("image {}: {}, after {} taken for {}", i, label,
                                  attacked.sequence ? file.broken_by[i] : attacked.name, taken)) +
            "</figcaption></figure>\n";
  }
  page.html(grid + "</div>\n", "the images of " + attacks);
}

}  // namespace dat
