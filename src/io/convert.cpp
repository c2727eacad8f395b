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
#include "io/confined.hpp"
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

}  // namespace

void read_records(const ByteSource& file, int size, int label_bytes, int classes, const UseRecords& use) {
  const std::int64_t area = std::int64_t{size} * size, record = label_bytes + 3 * area;
  const std::int64_t total = file.size() / record, block = std::max<std::int64_t>(1, (std::int64_t{4} << 20) / record);
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
      for (std::int64_t at = 0; at < area; ++at) {
        for (int channel = 0; channel < 3; ++channel) *pixel++ = planes[channel * area + at];
      }
    }
    use(pixels, labels);
  }
}

namespace {

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
  for (const fs::path& path : files)
    read_records(*open_bytes(path.string()), options.size, options.label_bytes, classes,
                 [&](const auto& pixels, const auto& labels) {
                   writer.add(pixels, {labels.begin(), labels.end()});
                 });
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
  const std::vector<std::int16_t> labels = read_labels(arrays, options.classes > 0 ? options.classes : 256);
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

/// All datasets below `group`, each in one piece.
void copy_plainly(const Hdf5File& from, const std::string& group, int depth, Hdf5File& to) {
  constexpr int kMaxDepth = 16;
  require(depth <= kMaxDepth, ExitCode::data, from.path(), ": has groups in groups without end");
  const auto copy = [&]<class T>(const std::string& name, const Shape& shape, T) {
    to.declare<T>(name, shape);
    const std::int64_t rows = shape.empty() ? 1 : shape[0];
    std::int64_t row = sizeof(T);
    for (std::size_t i = 1; i < shape.size(); ++i) row *= shape[i];
    const std::int64_t block = std::max<std::int64_t>(1, (std::int64_t{4} << 20) / std::max<std::int64_t>(1, row));
    Shape whole;
    if (shape.empty()) return to.write_rows(name, 0, from.read<T>(name, whole));
    for (std::int64_t first = 0; first < rows && row > 0; first += block)
      to.write_rows(name, first, from.read_rows<T>(name, first, std::min(block, rows - first)));
  };
  for (const std::string& member : from.list(group)) {
    const std::string name = group == "/" ? member : group + "/" + member;
    if (from.is_group(name)) {
      copy_plainly(from, name, depth + 1, to);
      continue;
    }
    const Hdf5Info info = from.info(name);
    switch (info.kind) {
      case Hdf5Info::Kind::u8:
        copy(name, info.shape, std::uint8_t{});
        break;
      case Hdf5Info::Kind::integer:
        copy(name, info.shape, std::int64_t{});
        break;
      case Hdf5Info::Kind::real:
        if (info.element <= 4)
          copy(name, info.shape, float{});
        else
          copy(name, info.shape, double{});
        break;
      default:
        fail(ExitCode::data, from.path(), ": dataset ", name, " holds neither integers nor real numbers; leave it out");
    }
  }
}

/// A plain file (Hdf5Reader) with the numbers of another one, and the attributes of its root.
void convert_hdf5(const ConvertOptions& options) {
  require(options.labels.empty() && options.size == 0 && options.label_bytes == 1 && options.classes == 0,
          ExitCode::usage, options.source,
          " is an HDF5 file, which says for itself what it holds; leave the options off");
  const Hdf5File from = Hdf5File::open(options.source, ExitCode::data);
  write_sealed(options.output, [&](const std::string& temporary) {
    Hdf5File to = Hdf5File::create(temporary);
    for (const std::string& name : from.attribute_names("/")) {
      if (const auto number = from.integer("/", name)) to.set_integer("/", name, *number);
      const auto texts = from.texts("/", name);
      if (texts && texts->size() == 1) to.set_text("/", name, texts->front());
      if (texts && texts->size() > 1) to.set_texts("/", name, *texts);
    }
    copy_plainly(from, "/", 0, to);
    to.close();
  });
}

bool is_hdf5(const ByteSource& file) {
  char begin[8] = {};
  for (std::int64_t at = 0; at + std::ssize(begin) <= file.size(); at = at == 0 ? 512 : 2 * at) {
    file.read(at, begin, sizeof begin);
    if (std::equal(std::begin(begin), std::end(begin), "\x89HDF\r\n\x1a\n")) return true;
  }
  return false;
}

/// Bytes of all files that are read.
std::int64_t bytes_of(const ConvertOptions& options) {
  std::int64_t bytes = 0;
  std::error_code error;
  const auto add = [&](const fs::path& path) {
    const std::uintmax_t size = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
    if (!error) bytes += static_cast<std::int64_t>(size);
  };
  for (const std::string& path : {options.source, options.labels}) add(path);
  for (const auto& entry : fs::directory_iterator(options.source, error)) add(entry.path());
  return bytes;
}

void convert_here(const ConvertOptions& options, bool folder) {
  if (folder) {
    ConvertOptions records = options;
    if (records.size == 0) records.size = 32;
    return convert_records(records);
  }
  if (is_hdf5(*open_bytes(options.source))) return convert_hdf5(options);
  convert_arrays(options);
}

}  // namespace

void convert_dataset(const ConvertOptions& options) {
  require(options.classes == 0 || (options.classes >= 2 && options.classes <= 256), ExitCode::usage,
          "there can be 2 to 256 classes, not ", options.classes);
  std::error_code error;
  const auto kind = fs::status(options.source, error).type();
  require(kind == fs::file_type::directory || kind == fs::file_type::regular, ExitCode::data, options.source,
          ": there is no such folder or file");
  // 4 MB a second is slow, a hundredfold of compressed data included.
  const std::int64_t bytes = bytes_of(options);
  const Limits limits{.cpu_seconds = 60 + bytes / 4'000'000, .memory = 3 * bytes + (64 << 20)};
  try {
    confined(options.source, limits, [&] { convert_here(options, kind == fs::file_type::directory); });
  } catch (...) {
    const fs::path output(options.output);
    const std::string folder = output.has_parent_path() ? output.parent_path().string() : ".";
    if (fs::is_directory(folder, error)) remove_temporaries(folder, output.filename().string());
    throw;
  }
}

}  // namespace dat
