#include "dat/dataset.hpp"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "dat/error.hpp"
#include "data/data_file.hpp"
#include "data/images/index.hpp"
#include "data/images/indexed.hpp"
#include "data/images/pixels.hpp"
#include "data/images/view.hpp"

namespace dat {
namespace {

/// The images of several files, one after the other.
class Pool final : public Dataset {
 public:
  void add(std::unique_ptr<Dataset> file) {
    size_ += file->size();
    begins_.push_back(size_);
    files_.push_back(std::move(file));
  }
  void limit(std::int64_t most) { size_ = std::min(size_, most); }
  DatasetInfo info_;

  const DatasetInfo& info() const override { return info_; }
  std::int64_t size() const override { return size_; }
  std::int64_t first_file() const override { return std::min(begins_[1], size_); }
  int label(std::int64_t index) const override {
    const std::size_t k = file_of(index);
    return files_[k]->label(index - begins_[k]);
  }
  void labels(std::int64_t first, std::span<std::int16_t> to) const override {
    while (!to.empty()) {
      const std::size_t k = file_of(first);
      const auto count = static_cast<std::size_t>(std::min(std::ssize(to), begins_[k + 1] - first));
      files_[k]->labels(first - begins_[k], to.first(count));
      to = to.subspan(count);
      first += static_cast<std::int64_t>(count);
    }
  }
  std::uint64_t hash(std::int64_t index) const override {
    const std::size_t k = file_of(index);
    return files_[k]->hash(index - begins_[k]);
  }
  std::int64_t stored_hashes(std::int64_t first, std::span<std::uint64_t> to) const override {
    const std::size_t k = file_of(first);
    const std::int64_t own = std::min(std::ssize(to), begins_[k + 1] - first);
    return files_[k]->stored_hashes(first - begins_[k], to.first(static_cast<std::size_t>(own)));
  }
  std::string name(std::int64_t index) const override {
    const std::size_t k = file_of(index);
    // Numbers are those of the pool.
    return files_[k]->info().decoded ? files_[k]->name(index - begins_[k]) : Dataset::name(index);
  }
  ImageShape shape(std::int64_t index) const override {
    const std::size_t k = file_of(index);
    return files_[k]->shape(index - begins_[k]);
  }
  void read(std::int64_t index, std::uint8_t* pixels) const override {
    see(index, centre_view(shape(index), info_.size), pixels);
  }
  void see(std::int64_t index, const ImageView& view, std::uint8_t* pixels) const override {
    const std::size_t k = file_of(index);
    files_[k]->see(index - begins_[k], view, pixels);
  }

 private:
  [[nodiscard]] std::size_t file_of(std::int64_t index) const {
    return static_cast<std::size_t>(std::upper_bound(begins_.begin() + 1, begins_.end(), index) - begins_.begin()) - 1;
  }
  std::vector<std::unique_ptr<Dataset>> files_;
  std::vector<std::int64_t> begins_ = {0};  ///< first image of each file, and the end of the last one
  std::int64_t size_ = 0;
};

void require_apart_from_each_other(const std::vector<std::string>& paths) {
  std::error_code unreadable;
  for (const std::string& path : paths)
    for (const std::string* other = paths.data(); other != &path; ++other)
      require(!std::filesystem::equivalent(path, *other, unreadable), ExitCode::usage, "--data has one file twice, ",
              *other, path == *other ? "" : " and " + path, ", whose images would count twice; leave one off");
}

}  // namespace

void Dataset::labels(std::int64_t first, std::span<std::int16_t> to) const {
  for (std::int16_t& one : to) one = static_cast<std::int16_t>(label(first++));
}

std::uint64_t Dataset::hash(std::int64_t index) const {
  thread_local std::vector<std::uint8_t> pixels;
  pixels.resize(info().image_bytes());
  read(index, pixels.data());
  return XXH3_64bits(pixels.data(), pixels.size());
}

void for_labels(const Dataset& images, const std::function<void(std::span<const std::int16_t>)>& use) {
  constexpr std::int64_t kBlock = 1 << 12;
  std::vector<std::int16_t> block;
  for (std::int64_t first = 0; first < images.size(); first += kBlock) {
    block.resize(static_cast<std::size_t>(std::min(kBlock, images.size() - first)));
    images.labels(first, block);
    use(block);
  }
}

void Dataset::see(std::int64_t index, const ImageView& view, std::uint8_t* pixels) const {
  const ImageShape own = shape(index);
  if (view == centre_view(own, own.width)) return read(index, pixels);
  thread_local std::vector<std::uint8_t> whole;
  whole.resize(info().image_bytes());
  read(index, whole.data());
  see_pixels(whole.data(), own, info().channels, view, pixels);
}

std::unique_ptr<Dataset> open_dataset(const std::vector<std::string>& paths, const std::string& split,
                                      std::int64_t limit, const Sight& sight) {
  require(!paths.empty(), ExitCode::usage, "no data file is given");
  require_apart_from_each_other(paths);
  auto pool = std::make_unique<Pool>();
  DatasetInfo& info = pool->info_;
  std::string named_by;   // the file that named the classes
  std::string shaped_by;  // the last one that was taken
  int highest = 1;
  for (const std::string& path : paths) {
    const Hdf5Reader file = open_data_file(path);
    // Sets of extra images have none to test with. That no file has any is found at the last one.
    const bool may_lack = split == "test" && (&path != &paths.back() || pool->size() != 0);
    OpenedFile opened = is_index(file) ? open_index(file, split, may_lack, sight) : open_pixels(file, split, may_lack);
    highest = std::max(highest, opened.highest);
    if (!opened.class_names.empty()) {
      require(named_by.empty() || opened.class_names == info.class_names, ExitCode::data, path,
              ": has other class names than ", named_by);
      info.class_names = std::move(opened.class_names);
      named_by = path;
    }
    if (opened.images == nullptr) continue;
    const DatasetInfo& own = opened.images->info();
    const int size = sight.size != 0 ? sight.size : own.size;
    require(shaped_by.empty() || (size == info.size && own.channels == info.channels), ExitCode::data, path,
            ": has images of ", size, " x ", size, " x ", own.channels, ", but ", shaped_by, " of ", info.size, " x ",
            info.size, " x ", info.channels);
    shaped_by = path;
    info.size = size;
    info.channels = own.channels;
    info.decoded = info.decoded || own.decoded;
    pool->add(std::move(opened.images));
  }
  if (named_by.empty()) info.class_names = numbered_classes(highest + 1);
  info.classes = static_cast<int>(info.class_names.size());
  require(highest < info.classes, ExitCode::data, "a file without class names has the label ", highest, ", but ",
          named_by, " names only ", info.classes, " classes");
  if (limit != 0) pool->limit(limit);
  return pool;
}

}  // namespace dat
