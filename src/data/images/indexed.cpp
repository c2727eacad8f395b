#include "data/images/indexed.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <filesystem>
#include <optional>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "data/data_file.hpp"
#include "data/images/decode.hpp"
#include "data/images/index.hpp"
#include "data/images/view.hpp"
#include "files/bytes.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

/// A path of an index, which is a stranger's: below its folder.
[[nodiscard]] std::string below(const std::string& folder, const std::string& path, const std::string& index) {
  const fs::path own(path);
  const bool leaves = own.is_absolute() || std::find(own.begin(), own.end(), "..") != own.end();
  require(!leaves && !path.empty() && path.find('\0') == std::string::npos, ExitCode::data, index, ": the path ",
          in_one_line(without_controls(path)), " leaves the folder of its images");
  return (fs::path(folder) / own).string();
}

/// Names in an index, one a line.
[[nodiscard]] std::vector<std::string> lines(const Hdf5Reader& file, const std::string& name) {
  Shape shape;
  const std::vector<std::uint8_t> text = file.read<std::uint8_t>(name, shape);
  return class_names_of(std::string(text.begin(), text.end()));
}

class IndexedImages final : public Dataset {
 public:
  IndexedImages(const Hdf5Reader& file, const std::string& split, int classes, const Sight& sight)
      : path_(file.path()), fast_(sight.fast), source_(open_bytes(file.path())) {
    folder_ = (fs::path(path_).parent_path() / file.text("/", "folder").value_or("")).string();
    if (file.has("/containers"))
      for (const std::string& name : lines(file, "/containers"))
        containers_.push_back(open_bytes(below(folder_, name, path_)));
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
    info_.size = sight.size > 0 ? sight.size : size_of_all(sight.usual);
  }

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(heads_); }
  [[nodiscard]] int label(std::int64_t index) const override { return head(index).label; }
  [[nodiscard]] std::string name(std::int64_t index) const override { return path_of(index, record_of(index)); }
  [[nodiscard]] ImageShape shape(std::int64_t index) const override { return {head(index).height, head(index).width}; }
  void read(std::int64_t index, std::uint8_t* pixels) const override {
    see(index, centre_view(shape(index), info_.size), pixels);
  }

  void see(std::int64_t index, const ImageView& view, std::uint8_t* pixels) const override {
    const ImageRecord record = record_of(index);
    thread_local std::vector<std::uint8_t> bytes;
    thread_local ImageDecoder decoder;
    bytes.resize(static_cast<std::size_t>(record.bytes));
    try {
      fetch(index, record, bytes);
      decoder.see(bytes, shape(index), view, fast_, pixels);
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      fail(ExitCode::data, name_of(index, record), ": ", error.what());
    }
  }

 private:
  /// What of a record is in memory: 6 bytes an image.
  struct Head {
    std::int16_t label;
    std::uint16_t height, width;
  };
  [[nodiscard]] const Head& head(std::int64_t index) const { return heads_[static_cast<std::size_t>(index)]; }

  /// Heads of all records, which are checked.
  void take(std::int64_t count) {
    constexpr std::int64_t kBlock = 1 << 14;
    std::vector<ImageRecord> block;
    std::int64_t name_end = 0;
    heads_.reserve(static_cast<std::size_t>(count));
    for (std::int64_t at = 0; at < count; at += kBlock) {
      block.resize(static_cast<std::size_t>(std::min(kBlock, count - at)));
      source_->read(records_ + at * std::int64_t{sizeof(ImageRecord)}, block.data(),
                    std::ssize(block) * std::int64_t{sizeof(ImageRecord)});
      for (const ImageRecord& one : block) {
        const bool placed = one.container < std::ssize(containers_) && one.container >= -1 && one.offset >= 0 &&
                            one.bytes > 0 && (one.container >= 0 || one.offset == 0);
        const bool shaped = one.height > 0 && one.width > 0 && one.height <= kMostPixels && one.width <= kMostPixels;
        require(placed && shaped && one.label >= 0 && one.label < info_.classes && one.name_end > name_end &&
                    one.name_end <= name_bytes_,
                ExitCode::data, path_, ": the record of image ", std::ssize(heads_), " is damaged");
        name_end = one.name_end;
        heads_.push_back({one.label, one.height, one.width});
      }
    }
  }

  /// The side of all images; where they have several shapes, or are no squares, `otherwise`. Error(usage): it is 0.
  [[nodiscard]] int size_of_all(int otherwise) const {
    const ImageShape first = shape(0);
    const bool alike = std::all_of(heads_.begin(), heads_.end(), [&](const Head& one) {
      return one.height == first.height && one.width == first.width;
    });
    if (alike && first.height == first.width) return first.width;
    require(otherwise > 0, ExitCode::usage, path_,
            ": has images of several shapes, or none that is a square; --size N says what the network sees");
    return otherwise;
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
  [[nodiscard]] std::string name_of(std::int64_t index, const ImageRecord& record) const {
    const std::string own = in_one_line(without_controls(path_of(index, record)));
    return record.container < 0 ? folder_ + "/" + own
                                : containers_[static_cast<std::size_t>(record.container)]->name() + ": " + own;
  }
  void fetch(std::int64_t index, const ImageRecord& record, std::vector<std::uint8_t>& bytes) const {
    if (record.container >= 0) {
      containers_[static_cast<std::size_t>(record.container)]->read(record.offset, bytes.data(), std::ssize(bytes));
    } else {
      const auto file = open_bytes(below(folder_, path_of(index, record), path_));
      require(file->size() == record.bytes, ExitCode::data, "has ", file->size(), " bytes, where the index says ",
              record.bytes, ": it has changed; make the index anew");
      file->read(0, bytes.data(), std::ssize(bytes));
    }
    require(XXH3_64bits(bytes.data(), bytes.size()) == record.hash, ExitCode::data,
            "is not the file that the index was made of; make the index anew");
  }

  std::string path_, folder_;
  bool fast_;
  DatasetInfo info_;
  std::unique_ptr<ByteSource> source_;  ///< the index itself
  std::int64_t records_ = 0, names_ = 0, name_bytes_ = 0;
  std::vector<std::unique_ptr<ByteSource>> containers_;
  std::vector<Head> heads_;
};

}  // namespace

OpenedFile open_index(const Hdf5Reader& file, const std::string& split, bool may_lack, const Sight& sight) {
  const std::string& path = file.path();
  OpenedFile opened;
  require(file.has("/class_names"), ExitCode::data, path, ": names no classes");
  opened.class_names = lines(file, "/class_names");
  const int classes = static_cast<int>(opened.class_names.size());
  require(classes >= 2 && classes <= kMostClasses, ExitCode::data, path, ": names ", classes, " classes, must be 2 to ",
          kMostClasses);
  opened.highest = classes - 1;
  if (may_lack && !file.has(split)) return opened;
  require(file.has(split), ExitCode::data, path, ": has no ", split == "test" ? "test" : "training", " images (/",
          split, "/records)");
  opened.images = std::make_unique<IndexedImages>(file, split, classes, sight);
  return opened;
}

}  // namespace dat
