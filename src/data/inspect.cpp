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

}  // namespace

std::string inspect_dataset(const std::string& path) {
  std::vector<std::string> splits;
  std::vector<std::string> recorded;
  std::string source;
  {
    const Hdf5Reader file = open_data_file(path);
    for (const char* name : kSplits) {
      if (!file.has(name)) continue;
      splits.emplace_back(name);
      recorded.push_back(file.text("/", "sha256_" + splits.back()).value_or(""));
    }
    source = file.text("/", "source").value_or("not recorded");
  }
  require(!splits.empty(), ExitCode::data, path, ": has neither /train nor /test, so it is no data file");

  std::ostringstream text;
  text << "file     " << path << "\nbytes    " << std::filesystem::file_size(path) << "\nsource   "
       << in_one_line(source) << "\n";
  std::vector<std::string> names;
  std::vector<std::vector<std::int64_t>> counts;
  for (std::size_t s = 0; s < splits.size(); ++s) {
    const std::unique_ptr<Dataset> set = open_dataset({path}, splits[s], 0);
    const DatasetInfo& info = set->info();
    const std::string hash = split_hash(*set);
    text << std::left << std::setw(8) << splits[s] << " " << set->size() << " images of " << info.size << " x "
         << info.size << " x " << info.channels << ", " << info.classes << " classes, sha256 " << hash
         << (recorded[s].empty()   ? " (none recorded)"
             : recorded[s] == hash ? " (as recorded)"
                                   : " (NOT AS RECORDED)")
         << "\n";
    names = info.class_names;
    counts.emplace_back(names.size() + 1, 0);  // behind the classes: unknown
    for (std::int64_t i = 0; i < set->size(); ++i)
      ++counts.back()[set->label(i) < 0 ? names.size() : static_cast<std::size_t>(set->label(i))];
  }
  text << std::right << std::setw(5) << "class";
  for (const std::string& split : splits) text << std::setw(10) << split;
  text << "  name\n";
  const bool unknown = std::any_of(counts.begin(), counts.end(),
                                   [](const std::vector<std::int64_t>& count) { return count.back() > 0; });
  for (std::size_t label = 0; label < names.size() + (unknown ? 1 : 0); ++label) {
    const bool named = label < names.size();
    text << std::setw(5) << (named ? static_cast<int>(label) : -1);
    for (const auto& count : counts) text << std::setw(10) << count[label];
    text << "  " << (named ? in_one_line(names[label]) : "unknown") << "\n";
  }
  return text.str();
}

}  // namespace dat
