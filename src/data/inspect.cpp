#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "data/data_file.hpp"
#include "data/images/index.hpp"

namespace dat {
namespace {

std::string split_hash(const Dataset& set) {
  std::vector<std::uint8_t> image(set.info().image_bytes());
  std::vector<std::int16_t> labels;
  Sha256 hash;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    set.read(i, image.data());
    hash.add(image.data(), image.size());
    labels.push_back(static_cast<std::int16_t>(set.label(i)));
  }
  with_stored_labels(labels, [&](const auto& stored) { hash.add(stored.data(), stored.size() * sizeof stored[0]); });
  return hash.hex();
}

/// Places of the images from which an index was made.
std::string places(const Hdf5Reader& file) {
  const std::string text = "images in " + file.text("/", "folder").value_or(".");
  if (!file.has("/containers")) return text + ", files of their own";
  const std::string names = container_names(file);
  const auto tars = std::ranges::count(names, '\0');
  const std::string first(names.c_str());
  return text + ", in " + std::to_string(tars) + (tars == 1 ? " tar: " : " tars: ") + first + (tars > 1 ? ", ..." : "");
}

/// "32 x 32 x 3", or between which heights and widths the images are.
std::string shapes(const Dataset& set) {
  ImageShape least = set.shape(0), most = least;
  for (std::int64_t i = 1; i < set.size(); ++i) {
    const ImageShape one = set.shape(i);
    least = {std::min(least.height, one.height), std::min(least.width, one.width)};
    most = {std::max(most.height, one.height), std::max(most.width, one.width)};
  }
  const auto range = [](int low, int high) {
    return low == high ? std::to_string(low) : "(" + std::to_string(low) + " to " + std::to_string(high) + ")";
  };
  return range(least.height, most.height) + " x " + range(least.width, most.width) + " x " +
         std::to_string(set.info().channels);
}

/// A line for each class and how many images each split has of it; of thousands of classes the first ones.
std::string table_of(const std::vector<std::string>& splits, const std::vector<std::string>& names,
                     const std::vector<std::vector<std::int64_t>>& counts) {
  constexpr std::size_t kMostLines = 256;
  std::ostringstream text;
  const auto line = [&](int label, std::size_t at, const std::string& name) {
    text << std::setw(5) << label;
    for (const auto& count : counts) text << std::setw(10) << count[at];
    text << "  " << in_one_line(name) << "\n";
  };
  text << std::setw(5) << "class";
  for (const std::string& split : splits) text << std::setw(10) << split;
  text << "  name\n";
  const std::size_t shown = std::min(names.size(), kMostLines);
  for (std::size_t label = 0; label < shown; ++label) line(static_cast<int>(label), label, names[label]);
  if (std::ranges::any_of(counts, [](const auto& count) { return count.back() > 0; }))
    line(-1, names.size(), "unknown");
  if (shown == names.size()) return text.str();
  text << "and " << names.size() - shown << " classes more:";
  for (std::size_t s = 0; s < splits.size(); ++s) {
    const auto [least, most] = std::minmax_element(counts[s].begin() + std::ptrdiff_t(shown), counts[s].end() - 1);
    text << (s == 0 ? " " : ", ") << *least << " to " << *most << " " << splits[s] << " images each";
  }
  text << "\n";
  return text.str();
}

}  // namespace

std::string inspect_dataset(const std::string& path) {
  std::vector<std::string> splits;
  const Hdf5Reader file = open_data_file(path);
  const bool index = is_index(file);
  for (const char* name : kSplits)
    if (file.has(name)) splits.emplace_back(name);
  const std::string source = index ? places(file) : file.text("/", "source").value_or("not recorded");
  require(!splits.empty(), ExitCode::data, path, ": has neither /train nor /test, so it is no data file");

  std::ostringstream text;
  text << "file     " << path << "\nbytes    " << std::filesystem::file_size(path) << "\nsource   "
       << in_one_line(source) << "\n";
  std::vector<std::string> names;
  std::vector<std::vector<std::int64_t>> counts;
  for (std::size_t s = 0; s < splits.size(); ++s) {
    const std::unique_ptr<Dataset> set = open_dataset({path}, splits[s], 0, {.usual = 1});
    const DatasetInfo& info = set->info();
    const std::string hash = index ? "" : split_hash(*set),
                      recorded = file.text("/", "sha256_" + splits[s]).value_or("");
    text << std::left << std::setw(8) << splits[s] << " " << set->size() << " images of " << shapes(*set) << ", "
         << info.classes << " classes"
         << (index              ? "; an image is checked when it is read"
             : recorded.empty() ? ", sha256 " + hash + " (none recorded)"
             : recorded == hash ? ", sha256 " + hash + " (as recorded)"
                                : ", sha256 " + hash + " (NOT AS RECORDED)")
         << "\n";
    names = info.class_names;
    counts.emplace_back(names.size() + 1, 0);  // the place after the classes: unknown
    for (std::int64_t i = 0; i < set->size(); ++i)
      ++counts.back()[set->label(i) < 0 ? names.size() : static_cast<std::size_t>(set->label(i))];
  }
  return text.str() + table_of(splits, names, counts);
}

}  // namespace dat
