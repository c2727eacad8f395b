#include "data/images/indexed.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <filesystem>
#include <optional>

#include "dat/error.hpp"
#include "data/images/decode.hpp"
#include "data/images/image_files.hpp"
#include "data/images/index.hpp"
#include "data/images/view.hpp"
#include "files/bytes.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

/// Names that end in a zero each.
[[nodiscard]] std::vector<std::string> split_at_zeros(const std::string& text) {
  std::vector<std::string> names;
  for (auto begin = text.begin(), end = begin; (end = std::find(begin, text.end(), '\0')) != text.end();
       begin = end + 1)
    names.emplace_back(begin, end);
  return names;
}

/// A dataset of `most` bytes at most, which is looked at before memory is taken.
[[nodiscard]] std::string text_in(const Hdf5Reader& file, const std::string& name, std::size_t most) {
  require(!file.is_group(name) && file.elements(name) <= most, ExitCode::data, file.path(), ": ", name, " is damaged");
  std::string text;
  file.read_blocks<std::uint8_t>(name,
                                 [&](std::span<const std::uint8_t> block) { text.append(block.begin(), block.end()); });
  return text;
}

/// The containers of an index, whose sizes must be those that it says.
[[nodiscard]] ImageFiles files_of_index(const Hdf5Reader& file) {
  std::vector<std::string> names;
  std::vector<std::int64_t> bytes;
  Shape shape;
  if (file.has("/containers")) {
    names = split_at_zeros(container_names(file));
    bytes = file.read<std::int64_t>("/container_bytes", shape);
  }
  ImageFiles files(folder_of_index(file), names);
  for (std::size_t k = 0; k < names.size(); ++k)
    require(files.container_bytes(k) == bytes[k], ExitCode::data, files.place(-1, names[k]), ": has ",
            files.container_bytes(k), " bytes instead of ", bytes[k]);
  return files;
}

class IndexedImages final : public Dataset {
 public:
  IndexedImages(const Hdf5Reader& file, const std::string& split, int classes, const Sight& sight)
      : path_(file.path()), fast_(sight.fast), source_(open_bytes(file.path())) {
    try {
      files_.emplace(files_of_index(file));
    } catch (const Error& error) {
      fail_with(error, "");
    }
    if (file.has("/containers")) containers_ = file.elements("/container_bytes");
    const std::string records = "/" + split + "/records", names = "/" + split + "/names";
    require(file.has(records) && file.has(names), ExitCode::data, path_, ": has no ", split, " images");
    const Hdf5Info about = file.info(records), about_names = file.info(names);
    require(about.kind == Hdf5Info::Kind::u8 && about.shape.size() == 2 && about.shape[1] == sizeof(ImageRecord) &&
                about.shape[0] > 0 && about_names.kind == Hdf5Info::Kind::u8 && about_names.shape.size() == 1,
            ExitCode::data, path_, ": ", records, " is damaged");
    records_ = about.offset;
    names_ = about_names.offset;
    name_bytes_ = about_names.shape[0];
    info_.decoded = true;
    info_.classes = classes;
    take(about.shape[0]);
    info_.size = sight.size != 0 ? sight.size : sight.usual != 0 ? sight.usual : size_of_all();
  }

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(heads_); }
  [[nodiscard]] int label(std::int64_t index) const override { return head(index).label; }
  [[nodiscard]] std::uint64_t hash(std::int64_t index) const override { return record_of(index).hash; }
  std::int64_t stored_hashes(std::int64_t first, std::span<std::uint64_t> to) const override {
    std::vector<ImageRecord> records(to.size());
    constexpr std::int64_t kBytes = sizeof(ImageRecord);
    source_->read(records_ + first * kBytes, records.data(), std::ssize(records) * kBytes);
    std::ranges::transform(records, to.begin(), &ImageRecord::hash);
    return std::ssize(to);
  }
  [[nodiscard]] std::string name(std::int64_t index) const override { return path_of(index, record_of(index)); }
  [[nodiscard]] ImageShape shape(std::int64_t index) const override { return {head(index).height, head(index).width}; }
  void read(std::int64_t index, std::uint8_t* pixels) const override {
    see(index, centre_view(shape(index), info_.size), pixels);
  }

  void see(std::int64_t index, const ImageView& view, std::uint8_t* pixels) const override {
    const ImageRecord record = record_of(index);
    thread_local std::vector<std::uint8_t> bytes;
    thread_local ImageDecoder decoder;
    const auto give_back = [&] {
      if (record.bytes > kLargeImageBytes) std::vector<std::uint8_t>().swap(bytes);
    };
    try {
      fetch(index, record, bytes);
      decoder.see(bytes, shape(index), view, fast_, pixels);
      give_back();
    } catch (const Error& error) {
      give_back();
      if (error.code() != ExitCode::data) throw;
      fail_with(error, files_->place(record.container, path_of(index, record)));
    }
  }

 private:
  /// Part of a record that is in memory: 6 bytes an image.
  struct Head {
    std::int16_t label;
    std::uint16_t height, width;
  };
  [[nodiscard]] const Head& head(std::int64_t index) const { return heads_[static_cast<std::size_t>(index)]; }

  /// Heads of all records, which are checked.
  void take(std::int64_t count) {
    constexpr std::int64_t kBlock = 1 << 14;
    std::vector<ImageRecord> block;
    std::int64_t name_end{};
    heads_.reserve(static_cast<std::size_t>(count));
    for (std::int64_t at = 0; at < count; at += kBlock) {
      block.resize(static_cast<std::size_t>(std::min(kBlock, count - at)));
      source_->read(records_ + at * std::int64_t{sizeof(ImageRecord)}, block.data(),
                    std::ssize(block) * std::int64_t{sizeof(ImageRecord)});
      for (const ImageRecord& one : block) {
        const bool placed = one.container < static_cast<std::int64_t>(containers_) && one.container >= -1 &&
                            one.offset >= 0 && one.bytes > 0 && one.bytes <= kMostImageBytes &&
                            (one.container >= 0 || one.offset == 0);
        const bool shaped = one.height > 0 && one.width > 0 && one.height <= kMostPixels && one.width <= kMostPixels &&
                            area_of({one.height, one.width}) <= kMostArea;
        require(placed && shaped && one.label >= 0 && one.label < info_.classes && one.name_end > name_end &&
                    one.name_end <= name_bytes_,
                ExitCode::data, path_, ": the record of image ", std::ssize(heads_), " is damaged");
        name_end = one.name_end;
        heads_.push_back({one.label, one.height, one.width});
      }
    }
  }

  /// The side of all images. Error(usage): they have several shapes, or are no squares.
  [[nodiscard]] int size_of_all() const {
    const Head& first = heads_.front();
    const bool alike = std::ranges::all_of(
        heads_, [&](const Head& one) { return one.height == first.height && one.width == first.width; });
    require(alike && first.height == first.width, ExitCode::usage, path_,
            ": has images of several shapes, or none that is a square; --size N says what the network sees");
    return first.width;
  }

  [[nodiscard]] ImageRecord record_of(std::int64_t index) const {
    assert(index >= 0 && index < size());
    ImageRecord record;
    source_->read(records_ + index * std::int64_t{sizeof record}, &record, sizeof record);
    return record;
  }
  [[nodiscard]] std::string path_of(std::int64_t index, const ImageRecord& record) const {
    const std::int64_t begin = index == 0 ? 0 : record_of(index - 1).name_end;
    constexpr std::int64_t kLongest = 1 << 16;
    require(record.name_end - begin > 0 && record.name_end - begin <= kLongest, ExitCode::data, path_,
            ": the name of image ", index, " is damaged");
    std::string name(static_cast<std::size_t>(record.name_end - begin), '\0');
    source_->read(names_ + begin, name.data(), std::ssize(name));
    return name;
  }
  void fetch(std::int64_t index, const ImageRecord& record, std::vector<std::uint8_t>& bytes) const {
    const std::string path = record.container < 0 ? path_of(index, record) : "";
    files_->read(record.container, path, record.offset, record.bytes, bytes);
    require(XXH3_64bits(bytes.data(), bytes.size()) == record.hash, ExitCode::data, "has other bytes than it had");
  }
  /// Throws an error about the images' files, to which the image belongs.
  [[noreturn]] void fail_with(const Error& error, const std::string& image) const {
    const std::string text = error.what();
    fail(ExitCode::data, image.empty() || text.starts_with(image) ? "" : image + ": ", text, "; put back what ", path_,
         " was made of, or make it anew");
  }

  std::string path_;
  bool fast_;
  DatasetInfo info_;
  std::unique_ptr<ByteSource> source_;  ///< the index itself
  std::int64_t records_ = 0, names_ = 0, name_bytes_ = 0;
  std::optional<ImageFiles> files_;
  std::size_t containers_ = 0;
  std::vector<Head> heads_;
};

}  // namespace

std::vector<std::string> listed_class_names(const Hdf5Reader& file) {
  constexpr std::size_t kLongest = 201;  // bytes of a name and the end of its line: clean_class_names()
  const std::string lines = text_in(file, "/class_names", kLongest * kMostClasses);
  const auto count = std::ranges::count(lines, '\n');
  require(count <= kMostClasses, ExitCode::data, file.path(), ": class_names lists ", count, " classes, must be 2 to ",
          kMostClasses);
  return class_names_of(lines);
}

std::string folder_of_index(const Hdf5Reader& file) {
  std::error_code error;  // its paths are relative to its own place, not to that of a link to it
  const fs::path real = fs::weakly_canonical(file.path(), error);
  return (real.parent_path() / file.text("/", "folder").value_or("")).lexically_normal().string();
}

std::string container_names(const Hdf5Reader& file) {
  constexpr std::size_t kLongest = 4097;  // bytes of a path and the zero after it
  require(file.has("/container_bytes") && !file.is_group("/container_bytes"), ExitCode::data, file.path(),
          ": has no sizes of its containers");
  const std::size_t count = file.elements("/container_bytes");
  std::string names = text_in(file, "/containers", kLongest * count);
  require(static_cast<std::size_t>(std::ranges::count(names, '\0')) == count, ExitCode::data, file.path(),
          ": the names of its containers are damaged");
  return names;
}

bool is_index(const Hdf5Reader& file) { return file.text("/", "filetype").value_or("") == "image index"; }

OpenedFile open_index(const Hdf5Reader& file, const std::string& split, bool may_lack, const Sight& sight) {
  const std::string& path = file.path();
  OpenedFile opened;
  require(file.has("/class_names"), ExitCode::data, path, ": names no classes");
  opened.class_names = listed_class_names(file);
  const int classes = static_cast<int>(opened.class_names.size());
  require(classes >= 2 && classes <= kMostClasses, ExitCode::data, path, ": names ", classes, " classes, must be 2 to ",
          kMostClasses);
  if (may_lack && !file.has(split)) return opened;
  require(file.has(split), ExitCode::data, path, ": has no ", split == "test" ? "test" : "training", " images (/",
          split, "/records)");
  opened.images = std::make_unique<IndexedImages>(file, split, classes, sight);
  return opened;
}

}  // namespace dat
