#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "data/images/write_png.hpp"
#include "record/evaluation_file.hpp"
#include "verbs/report/sections.hpp"

namespace dat {

namespace {

constexpr std::size_t kMostTriples = 12;
constexpr std::size_t kLargestTile = 128;  ///< pixels of a side; of larger images every second, third, ... one is shown

/// The PNG of an image whose channels value(element) gives, from 0 to 1; NaN is 0.
template <class Value>
[[nodiscard]] std::string png_of_values(std::size_t size, std::size_t channels, const Value& value) {
  const std::size_t stride = (size + kLargestTile - 1) / kLargestTile, side = (size + stride - 1) / stride;
  std::vector<std::uint8_t> rgb;
  for (std::size_t y = 0; y < size; y += stride)
    for (std::size_t x = 0; x < size; x += stride)
      for (std::size_t colour = 0; colour < 3; ++colour) {
        const std::size_t of = channels == 1 ? 0 : std::min(colour, channels - 1);
        const double bright = value((y * size + x) * channels + of);
        rgb.push_back(bright >= 0 ? static_cast<std::uint8_t>(std::min(255.0, std::round(255 * bright))) : 0);
      }
  return png_of({static_cast<int>(side), static_cast<int>(side)}, rgb);
}

[[nodiscard]] std::string img_html(const std::string& png, const std::string& alt) {
  return "<img src=\"" + png_address(png) + "\" alt=\"" + html_text(alt) + "\">";
}

}  // namespace

void add_image_grid(Page& page, const std::string& evaluation_file) {
  namespace fs = std::filesystem;
  const std::string saved = (fs::path(evaluation_file).parent_path() / "adversarial.h5").string();
  std::error_code ignored;
  if (fs::path(evaluation_file).filename() != "eval.json" || !fs::exists(saved, ignored)) return;
  const EvaluationFile file = read_evaluation(evaluation_file);
  const EvaluationFile::Outcome &clean = file.outcomes.front(), &attacked = file.outcomes.back();
  std::vector<std::size_t> wanted;
  for (std::size_t i = 0; i < file.images() && wanted.size() < kMostTriples; ++i)
    if (clean.correct[i] != 0 && attacked.correct[i] == 0) wanted.push_back(i);
  if (wanted.empty()) return page.paragraph(attacked.name + " has broken no image that was right.");
  const ShownImages images = read_attacked_images(saved, file.label, wanted);
  const auto size = static_cast<std::size_t>(images.size), channels = static_cast<std::size_t>(images.channels);
  const std::size_t elements = size * size * channels;
  const auto before = [&](std::size_t at) { return images.clean[at] / 255.0; };
  double largest = 0;
  for (std::size_t at = 0; at < images.clean.size(); ++at)
    largest = std::max(largest, std::abs(double{images.attacked[at]} - before(at)));
  const double scale = largest > 0 ? 0.5 / largest : 1;
  page.paragraph(
      fmt::format("The first images that are right, and wrong after {}: clean, the perturbation enlarged "
                  "{:.3g} times, attacked.",
                  attacked.name, scale));
  std::string grid = "<div class=\"triples\">\n";
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const std::size_t i = wanted[k], first = k * elements;
    const auto name = [&](int label) { return file.class_names[static_cast<std::size_t>(label)]; };
    const std::string label = name(file.label[i]), taken = name(attacked.prediction[i]);
    const std::string sure = i < file.clean_loss.size() && std::isfinite(file.clean_loss[i])
                                 ? fmt::format(" (probability {:.3f})", std::exp(-file.clean_loss[i]))
                                 : "";
    grid +=
        "<figure>" +
        img_html(png_of_values(size, channels, [&](std::size_t at) { return before(first + at); }), "clean: " + label) +
        " " +
        img_html(png_of_values(size, channels,
                               [&](std::size_t at) {
                                 return 0.5 + scale * (double{images.attacked[first + at]} - before(first + at));
                               }),
                 "perturbation") +
        " " +
        img_html(png_of_values(size, channels, [&](std::size_t at) { return double{images.attacked[first + at]}; }),
                 "attacked: " + taken) +
        "<figcaption>" +
        html_text(fmt::format("image {}: ", i) + label + sure + ", after " + file.broken_by[i] + " taken for " +
                  taken) +
        "</figcaption></figure>\n";
  }
  page.html(grid + "</div>\n", "the images of " + attacked.name);
}

}  // namespace dat
