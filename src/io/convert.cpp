#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "io/arrays.hpp"
#include "io/data_file.hpp"

namespace dat {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kCifar10Names = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                "dog",      "frog",       "horse", "ship", "truck"};

// data_batch_N.bin in the order of N, or train.bin.
std::vector<fs::path> training_files(const fs::path& folder) {
  constexpr std::string_view kPrefix = "data_batch_";
  std::map<int, fs::path> batches;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() != ".bin" || !stem.starts_with(kPrefix)) continue;
    int number = 0;
    const auto [end, error] = std::from_chars(stem.data() + kPrefix.size(), stem.data() + stem.size(), number);
    if (error == std::errc() && end == stem.data() + stem.size()) batches[number] = entry.path();
  }
  if (batches.empty() && fs::exists(folder / "train.bin")) return {folder / "train.bin"};
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
  for (const char* name : {"test_batch.bin", "test.bin"}) {
    if (fs::exists(folder / name)) return {folder / name};
  }
  fail(ExitCode::data, folder.string(), ": there is neither test_batch.bin nor test.bin in this folder");
}

// One name a line. Empty where the folder has no such file.
std::vector<std::string> names_in_folder(const fs::path& folder) {
  for (const char* name : {"batches.meta.txt", "fine_label_names.txt"}) {
    std::ifstream file(folder / name);
    std::vector<std::string> names;
    std::string line;
    while (names.size() <= 256 && std::getline(file, line)) {
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (!line.empty()) names.push_back(line);
    }
    if (names.empty()) continue;
    require(names.size() >= 2 && names.size() <= 256, ExitCode::data, (folder / name).string(), ": lists ",
            names.size() > 256 ? "more than 256 classes" : "one class only");
    return names;
  }
  return {};
}

std::vector<std::string> class_names(const ConvertOptions& options) {
  std::vector<std::string> names = names_in_folder(options.source);
  const int classes = options.classes > 0 ? options.classes : names.empty() ? 10 : static_cast<int>(names.size());
  if (names.empty()) {
    const bool cifar10 = classes == 10 && options.size == 32 && options.label_bytes == 1;
    names = cifar10 ? kCifar10Names : numbered_classes(classes);
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
    require(bytes > 0 && bytes % record == 0, ExitCode::data, path.string(), ": has ", bytes,
            " bytes, which is no positive multiple of a record's ", record, " (", options.label_bytes, " + 3 x ",
            options.size, " x ", options.size, "): it is damaged, or the image size is another");
    samples += bytes / record;
  }
  writer.begin(split, samples);
  const std::int64_t block = std::max<std::int64_t>(1, (std::int64_t{4} << 20) / record);
  std::vector<std::uint8_t> records(static_cast<std::size_t>(block * record)), pixels, labels;
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::int64_t total = static_cast<std::int64_t>(fs::file_size(path)) / record;
    for (std::int64_t begin = 0; begin < total; begin += block) {
      const std::int64_t count = std::min(block, total - begin);
      file.read(reinterpret_cast<char*>(records.data()), count * record);
      require(file.good(), ExitCode::data, path.string(), ": cannot be read beyond record ", begin);
      pixels.resize(static_cast<std::size_t>(count * 3 * area));
      labels.resize(static_cast<std::size_t>(count));
      std::uint8_t* pixel = pixels.data();
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint8_t* planes = records.data() + i * record + options.label_bytes;
        const std::uint8_t label = planes[-1];
        require(label < classes, ExitCode::data, path.string(), ": label ", int{label}, " of record ", begin + i,
                " (byte ", (begin + i) * record + options.label_bytes - 1, ") is not in 0..", classes - 1);
        labels[static_cast<std::size_t>(i)] = label;
        for (std::int64_t at = 0; at < area; ++at) {
          for (int channel = 0; channel < 3; ++channel) *pixel++ = planes[channel * area + at];
        }
      }
      writer.add(pixels, labels);
    }
  }
  writer.end();
}

void convert_records(const ConvertOptions& options) {
  require(options.labels.empty(), ExitCode::usage, "--labels is for a .npy file of images, and ", options.source,
          " is a folder; leave it off");
  require(options.size >= 1 && options.size <= 4096, ExitCode::usage, "the image size must be 1 to 4096, not ",
          options.size);
  require(options.label_bytes >= 1 && options.label_bytes <= 16, ExitCode::usage,
          "the label bytes of a record must be 1 to 16, not ", options.label_bytes);
  const std::vector<fs::path> train = training_files(options.source), test = test_files(options.source);
  DatasetInfo info;
  info.size = options.size;
  info.class_names = class_names(options);
  info.classes = static_cast<int>(info.class_names.size());
  std::string source = "binary records of";
  for (const auto* files : {&train, &test}) {
    for (const fs::path& path : *files) source += " " + path.filename().string();
  }
  write_sealed(options.output, [&](const std::string& temporary) {
    DataFileWriter writer(temporary, info, source);
    convert_split(options, train, info.classes, "train", writer);
    convert_split(options, test, info.classes, "test", writer);
    writer.close();
  });
}

void convert_arrays(const ConvertOptions& options) {
  const auto file = open_bytes(options.source);
  const auto labels_file = options.labels.empty() ? nullptr : open_bytes(options.labels);
  const ImageArrays arrays = find_images(*file, labels_file.get());
  require(options.size == 0 || options.size == arrays.size, ExitCode::data, options.source, ": has images of ",
          arrays.size, " x ", arrays.size, ", not of ", options.size, "; leave --size off");
  require(options.label_bytes == 1, ExitCode::usage, "--label-bytes is for a folder of binary records, and ",
          options.source, " is a file; leave it off");
  const std::vector<std::uint8_t> labels = read_labels(arrays, options.classes > 0 ? options.classes : 256);
  DatasetInfo info;  // without names: those of the labelled set hold
  info.size = arrays.size;
  info.channels = arrays.channels;
  const std::string source = "arrays " + arrays.images.name + " and " + arrays.labels.name + " of " +
                             fs::path(options.source).filename().string();
  write_sealed(options.output, [&](const std::string& temporary) {
    DataFileWriter writer(temporary, info, source);
    writer.begin("train", arrays.count);
    auto next = labels.begin();
    read_images(arrays, [&](const std::vector<std::uint8_t>& pixels) {
      const auto end = next + std::ssize(pixels) / static_cast<std::int64_t>(info.image_bytes());
      writer.add(pixels, {next, end});
      next = end;
    });
    writer.end();
    writer.close();
  });
}

}  // namespace

void convert_dataset(const ConvertOptions& options) {
  require(options.classes == 0 || (options.classes >= 2 && options.classes <= 256), ExitCode::usage,
          "there can be 2 to 256 classes, not ", options.classes);
  std::error_code error;
  const auto kind = fs::status(options.source, error).type();
  require(kind == fs::file_type::directory || kind == fs::file_type::regular, ExitCode::data, options.source,
          ": there is no such folder or file");
  if (kind == fs::file_type::regular) return convert_arrays(options);
  ConvertOptions records = options;
  if (records.size == 0) records.size = 32;
  convert_records(records);
}

}  // namespace dat
