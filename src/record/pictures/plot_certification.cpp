// Certified accuracy against the radius.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "dat/error.hpp"
#include "dat/report.hpp"
#include "files/outside_json.hpp"
#include "record/pictures/chart.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

struct CertifiedImages {
  std::string name;
  std::size_t images = 0;
  std::vector<double> radii;  ///< radii of the images that are classified right, increasing
};

[[nodiscard]] CertifiedImages read_certification(const std::string& path) {
  const std::string text = json_text_in(path, "certification");
  CertifiedImages found;
  try {
    const auto all = nlohmann::json::parse(text);
    require(all.is_object() && all.value("filetype", "") == "certification", ExitCode::data, path,
            ": is no certification that 'certify --out' wrote");
    const nlohmann::json& settings = all.at("settings");
    require(settings.at("procedure") != "predict", ExitCode::data, path, ": holds predictions, which have no radii");
    found.name = fs::absolute(path).lexically_normal().parent_path().filename().string() +
                 fmt::format(", sigma {}", settings.at("sigma").get<double>());
    for (const nlohmann::json& image : all.at("images")) {
      ++found.images;
      const auto radius = image.at("radius").get<double>();
      require(std::isfinite(radius) && radius >= 0, ExitCode::data, path, ": has a radius of ", radius);
      if (image.at("prediction") == image.at("label")) found.radii.push_back(radius);
    }
  } catch (const nlohmann::json::exception& wrong) {
    fail(ExitCode::data, path, ": is no certification that 'certify --out' wrote, or cut off (", wrong.what(), ")");
  }
  require(found.images > 0, ExitCode::data, path, ": is of no image");
  std::ranges::sort(found.radii);
  return found;
}

}  // namespace

std::string certification_in(const std::string& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return fs::path(path).filename() == "certify.json" ? path : "";
  const std::string inside = (fs::path(path) / "certify.json").string();
  return fs::is_regular_file(inside, ignored) ? inside : "";
}

std::vector<std::string> plot_certifications(const std::vector<std::string>& files, const std::string& folder,
                                             const PictureFormat& format) {
  std::vector<CertifiedImages> all;
  std::vector<std::string> columns = {"radius"};
  std::vector<Series> lines;
  std::set<std::size_t> counts;
  for (const std::string& file : files) {
    const CertifiedImages& one = all.emplace_back(read_certification(file));
    columns.push_back(one.name + " (%)");
    lines.push_back(
        {"curves.csv", fmt::format("1:{}", columns.size()), line_style(colour_of(all.size() - 1), 2), one.name});
    counts.insert(one.images);
  }
  const bool single = all.size() == 1;
  Plots plots(folder, single ? all[0].name : fmt::format("{} certifications", all.size()), format);
  Csv csv(columns);
  for (std::size_t k = 0; k < all.size(); ++k) {
    const auto point = [&](double radius, std::size_t right) {
      std::vector<double> row(columns.size(), std::nan(""));
      row[0] = radius;
      row[k + 1] = 100 * static_cast<double>(right) / static_cast<double>(all[k].images);
      csv.row(row);
    };
    const std::size_t right = all[k].radii.size();
    point(0, right);
    for (std::size_t i = 0; i < right; ++i) {  // down by one image after each radius
      point(all[k].radii[i], right - i);
      point(all[k].radii[i], right - i - 1);
    }
  }
  plots.write("curves.csv", csv.text());
  plots.add(
      {.picture = "curves",
       .title = "certified accuracy",
       .facts = fmt::format("{} images", fmt::join(counts, " or ")),
       .height = 560,
       .panels = {{.x = {"L2 radius", "0:*"}, .y = {"images right and certified (%)", "0:100"}, .series = lines}}});
  return plots.draw();
}

}  // namespace dat
