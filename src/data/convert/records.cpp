// CIFAR's binary version, and other records like it: label bytes, then the planes of a square image.
// Source: https://www.cs.toronto.edu/~kriz/cifar.html

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "dat/number.hpp"
#include "data/convert/forms.hpp"
#include "data/data_file.hpp"

namespace dat {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFineNames = "fine_label_names.txt";

[[noreturn]] void refuse_two(const fs::path& folder, const fs::path& one, const fs::path& other) {
  const std::string names[] = {one.filename().string(), other.filename().string()};
  fail(ExitCode::data, folder.string(), ": has both ", std::min(names[0], names[1]), " and ",
       std::max(names[0], names[1]), " for the same images; leave one of them out");
}

// data_batch_N.bin in the order of N, or train.bin.
std::vector<fs::path> training_files(const fs::path& folder) {
  constexpr std::string_view kPrefix = "data_batch_";
  std::map<int, fs::path> batches;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() != ".bin" || !stem.starts_with(kPrefix)) continue;
    int number{};
    if (!read_number(std::string_view(stem).substr(kPrefix.size()), number)) continue;
    const auto [other, first] = batches.emplace(number, entry.path());
    if (!first) refuse_two(folder, other->second, entry.path());
  }
  if (fs::exists(folder / "train.bin")) {
    if (!batches.empty()) refuse_two(folder, batches.begin()->second, "train.bin");
    return {folder / "train.bin"};
  }
  require(!batches.empty(), ExitCode::data, folder.string(),
          ": there is neither data_batch_1.bin nor train.bin in this folder");
  std::vector<fs::path> files;
  int expected = std::min(1, batches.begin()->first);
  for (const auto& [number, path] : batches) {
    require(number == expected, ExitCode::data, folder.string(), ": data_batch_", expected, ".bin is missing");
    files.push_back(path);
    ++expected;
  }
  return files;
}

std::vector<fs::path> test_files(const fs::path& folder) {
  const fs::path one = folder / "test_batch.bin", other = folder / "test.bin";
  if (fs::exists(one) && fs::exists(other)) refuse_two(folder, one, other);
  if (fs::exists(one) || fs::exists(other)) return {fs::exists(one) ? one : other};
  fail(ExitCode::data, folder.string(), ": there is neither test_batch.bin nor test.bin in this folder");
}

std::vector<std::string> class_names(const ConvertOptions& options) {
  std::vector<std::string> names;
  for (const char* name : {"batches.meta.txt", kFineNames})
    if (names.empty()) names = names_in_file((fs::path(options.source) / name).string());
  const int classes = options.classes != 0 ? options.classes : names.empty() ? 10 : static_cast<int>(names.size());
  if (names.empty()) {
    const bool cifar10 = classes == 10 && options.size == 32 && options.label_bytes == 1;
    names = cifar10 ? cifar10_names() : numbered_classes(classes);
  }
  require(static_cast<int>(names.size()) == classes, ExitCode::data, options.source, ": names ", names.size(),
          " classes, but ", classes, " were asked for");
  return names;
}

void convert_split(const ConvertOptions& options, const std::vector<fs::path>& files, int classes,
                   const std::string& split, DataFileWriter& writer) {
  const std::int64_t area = std::int64_t{options.size} * options.size;
  const std::int64_t record = options.label_bytes + 3 * area;
  std::int64_t samples = 0;
  for (const fs::path& path : files) {
    std::error_code error;
    const auto bytes = static_cast<std::int64_t>(fs::file_size(path, error));
    require(!error, ExitCode::data, path.string(), ": cannot be read: ", error.message());
    require(bytes != 0 && bytes % record == 0, ExitCode::data, path.string(), ": has ", bytes,
            " bytes, which is no positive multiple of a record's ", record, " (", options.label_bytes, " + 3 x ",
            options.size, " x ", options.size, "): it is damaged, or the image size is another");
    samples += bytes / record;
  }
  writer.begin(split, samples);
  for (const fs::path& path : files)
    read_records(*open_bytes(path.string()), options.size, options.label_bytes, classes,
                 [&](const auto& pixels, const auto& labels) {
                   writer.add(pixels, {labels.begin(), labels.end()});
                 });
  writer.end();
}

}  // namespace

void read_records(const ByteSource& file, int size, int label_bytes, int classes, const UseRecords& use) {
  const std::int64_t area = std::int64_t{size} * size, record = label_bytes + 3 * area;
  const std::int64_t total = file.size() / record, block = rows_at_once(record);
  std::vector<std::uint8_t> records, pixels, labels;
  for (std::int64_t begin = 0; begin < total; begin += block) {
    const std::int64_t count = std::min(block, total - begin);
    records.resize(static_cast<std::size_t>(count * record));
    file.read(begin * record, records.data(), count * record);
    pixels.resize(static_cast<std::size_t>(count * 3 * area));
    labels.resize(static_cast<std::size_t>(count));
    std::uint8_t* pixel = pixels.data();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint8_t* planes = records.data() + i * record + label_bytes;
      const std::uint8_t label = planes[-1];
      require(label < classes, ExitCode::data, file.name(), ": label ", int{label}, " of record ", begin + i, " (byte ",
              (begin + i) * record + label_bytes - 1, ") is not in 0..", classes - 1);
      labels[static_cast<std::size_t>(i)] = label;
      for (std::int64_t at = 0; at < area; ++at)
        for (int channel = 0; channel < 3; ++channel) *pixel++ = planes[channel * area + at];
    }
    use(pixels, labels);
  }
}

std::vector<std::string> names_in_file(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> names;
  std::string line;
  while (names.size() <= kMostClasses && std::getline(file, line))
    if (line.find_first_not_of("\r ") != std::string::npos) names.push_back(line);
  require(names.size() != 1, ExitCode::data, path, ": lists one class only");
  require(names.size() <= kMostClasses, ExitCode::data, path, ": lists more than ", kMostClasses, " classes");
  return names;
}

std::vector<std::string> cifar10_names() {
  return {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
}

bool has_records(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string stem = entry.path().stem().string();
    const bool known = stem == "train" || stem == "test" || stem == "test_batch" || stem.starts_with("data_batch_");
    if (known && entry.path().extension() == ".bin") return true;
  }
  return false;
}

void convert_records(const ConvertOptions& given) {
  ConvertOptions options = given;
  if (options.size == 0) options.size = 32;
  // CIFAR-100's records have a coarse and a fine one.
  if (options.label_bytes == 0) options.label_bytes = fs::exists(fs::path(options.source) / kFineNames) ? 2 : 1;
  const std::vector<fs::path> train = training_files(options.source), test = test_files(options.source);
  DatasetInfo info;
  info.size = options.size;
  info.class_names = class_names(options);
  info.classes = static_cast<int>(info.class_names.size());
  std::string source = "binary records of";
  for (const auto* files : {&train, &test})
    for (const fs::path& path : *files) source += " " + path.filename().string();
  write_data_file(options.output, info, source, [&](DataFileWriter& writer) {
    convert_split(options, train, info.classes, "train", writer);
    convert_split(options, test, info.classes, "test", writer);
  });
}

}  // namespace dat
