#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/report.hpp"
#include "verbs/report/sections.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

/// Adds the pictures that `draw` makes in a folder, or says why there are none.
void add_pictures(
    Page& page, const std::string& of,
    const std::function<std::vector<std::string>(const std::string& folder, const PictureFormat& format)>& draw) {
  try {
    PictureFormat format("svg");
    format.sharp_images = true;
    const std::string place = fs::temp_directory_path();
    const OwnFolder workshop(place + "/dat-report-", "cannot create a folder for pictures in " + place);
    for (const std::string& path : draw(workshop.path(), format)) {
      std::ifstream file(path, std::ios::binary);
      page.chart({std::istreambuf_iterator<char>(file), {}}, of + ": " + fs::path(path).stem().string());
    }
  } catch (const Error& error) {
    std::string what = error.what();
    if (error.code() == ExitCode::device)  // what else it says is about a folder that is gone
      what = what.substr(0, what.find(';')) + "; 'dat_hpc plot' says more";
    page.paragraph(of + " has no pictures: " + what, "alarm");
  } catch (const fs::filesystem_error& error) {
    page.paragraph(of + " has no pictures: " + error.what(), "alarm");
  }
}

}  // namespace

void add_curves(Page& page, const Comparison& comparison) {
  std::vector<RunGroup> groups;
  std::vector<const Subject*> runs;
  std::size_t begun = 0;  // those that have something to draw
  for (const ComparedRow& row : comparison.rows) {
    RunGroup group{row.name, {}};
    for (const Subject* one : row.subjects) {
      if (one->evaluation || !one->failure.empty()) continue;
      runs.push_back(one);
      if (one->record.steps.empty() && one->record.evaluations.empty()) continue;
      group.folders.push_back(one->path);
      ++begun;
    }
    if (!group.folders.empty()) groups.push_back(group);
  }
  if (runs.empty()) return;
  page.heading(2, "Curves, time and layers");
  if (begun > 1) {
    page.heading(3, "All runs");
    add_pictures(page, "all runs", [&](const std::string& folder, const PictureFormat& format) {
      return compare_runs(groups, folder, format);
    });
  }
  for (const Subject* run : runs) {
    if (runs.size() > 1) page.heading(3, run->name);
    add_pictures(page, run->name, [&](const std::string& folder, const PictureFormat& format) {
      return plot_run(run->path, format, folder);
    });
  }
}

void add_evaluation_pictures(Page& page, const Subject& evaluation) {
  page.heading(3, evaluation.name);
  const std::string file = evaluation_in(evaluation.path);
  add_pictures(page, evaluation.name, [&](const std::string& folder, const PictureFormat& format) {
    return plot_evaluation(file, format, folder).paths;
  });
  try {
    add_image_grid(page, file);
  } catch (const Error& error) {
    page.paragraph(error.what(), "alarm");
  }
}

}  // namespace dat
