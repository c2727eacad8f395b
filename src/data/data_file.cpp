// Data files of pixels: images of one size, one after the other.

#include "data/data_file.hpp"

#include <xxhash.h>

#include <cassert>
#include <utility>

#include "dat/error.hpp"
#include "data/images/index.hpp"
#include "data/sources.hpp"
#include "files/bytes.hpp"

namespace dat {
namespace {

constexpr std::size_t kMostInAttribute = 256;  // names: HDF5 limits attributes to 64 KB
const char* const kNamesDataset = "/class_names";

std::string in_split(const std::string& split, const char* what) { return "/" + split + "/" + what; }

struct Split {
  int size = 0, channels = 0;
  std::int64_t offset = -1,
               hashes = -1;  ///< places of the pixels and the hashes in the file; hashes: -1: there are none
  std::vector<std::int16_t> labels;
};

/// Start of the hashes of a split's images in the file; -1: there are none.
std::int64_t offset_of_hashes(const Hdf5Reader& file, const std::string& split, std::int64_t images) {
  const std::string name = in_split(split, "hashes");
  if (!file.has(name)) return -1;
  require(!file.is_group(name), ExitCode::data, file.path(), ": ", name, " is no dataset");
  const Hdf5Info info = file.info(name);
  require(info.is_unsigned && info.element == sizeof(std::uint64_t) && info.shape == Shape{images}, ExitCode::data,
          file.path(), ": ", name, " must hold one uint64 for each of the ", images, " images");
  return info.offset;
}

/// Shapes, types and labels of a split; no pixels.
Split check_split(const Hdf5Reader& file, const std::string& name, int classes) {
  const std::string& path = file.path();
  const std::string images = in_split(name, "images"), labels = in_split(name, "labels");
  for (const std::string& dataset : {images, labels})
    require(file.has(dataset) && !file.is_group(dataset), ExitCode::data, path, ": there is no dataset ", dataset);
  const Hdf5Info info = file.info(images);
  require(info.kind == Hdf5Info::Kind::u8, ExitCode::data, path, ": ", images, " must be of type uint8 (0..255)");
  require(info.shape.size() == 4, ExitCode::data, path, ": ", images,
          " must have the shape [n, height, width, channels], ", "but has ", info.shape.size(), " dimensions");
  require(info.shape[0] > 0, ExitCode::data, path, ": ", images, " holds no image");
  const std::string turned = "; 'dat_hpc data convert " + quoted_word(path) + " plain.h5' makes such a file";
  const std::int64_t height = info.shape[1], width = info.shape[2];
  require(height == width || width != info.shape[3] || height > 4 || height < 1, ExitCode::data, path, ": ", images,
          " has its channels first, but must have the shape [n, height, width, channels]", turned);
  constexpr std::int64_t kLargestSide = 65536;
  require(height == width && height >= 1 && height <= kLargestSide, ExitCode::data, path, ": ", images,
          " must hold square images, not ", height, " x ", width);
  require(info.shape[3] >= 1 && info.shape[3] <= 4, ExitCode::data, path, ": ", images,
          " must have 1 to 4 channels in the last dimension, not ", info.shape[3]);

  const Hdf5Info label_info = file.info(labels);
  require(label_info.shape.size() == 1 && label_info.shape[0] == info.shape[0], ExitCode::data, path, ": ", labels,
          " must hold one number for each of the ", info.shape[0], " images",
          label_info.shape == Shape{info.shape[0], 1} ? ", in one dimension" + turned : "");
  Split split;
  split.size = static_cast<int>(height);
  split.channels = static_cast<int>(info.shape[3]);
  split.offset = info.offset;
  split.hashes = offset_of_hashes(file, name, info.shape[0]);
  const bool may_lack = name == "train";  // a test image without label tests nothing
  split.labels.reserve(file.elements(labels));
  file.read_blocks<std::int64_t>(labels, [&](std::span<const std::int64_t> block) {
    for (const std::int64_t label : block) {
      require(label >= (may_lack ? -1 : 0) && label < classes, ExitCode::data, path, ": label ", label, " of sample ",
              split.labels.size(), " in ", labels, " is not in 0..", classes - 1,
              may_lack ? ", nor -1 for unknown" : "");
      split.labels.push_back(static_cast<std::int16_t>(label));
    }
  });
  return split;
}

/// Images of one size, whose pixels lie one after the other in a file.
class StoredPixels final : public Dataset {
 public:
  StoredPixels(const std::string& path, Split split)
      : file_(open_bytes(path)), offset_(split.offset), hashes_(split.hashes), labels_(std::move(split.labels)) {
    info_.size = split.size;
    info_.channels = split.channels;
  }
  const DatasetInfo& info() const override { return info_; }
  std::int64_t size() const override { return std::ssize(labels_); }
  int label(std::int64_t index) const override { return labels_[static_cast<std::size_t>(index)]; }
  void labels(std::int64_t first, std::span<std::int16_t> to) const override {
    std::copy_n(labels_.begin() + first, to.size(), to.begin());
  }
  std::uint64_t hash(std::int64_t index) const override {
    if (hashes_ == -1) return Dataset::hash(index);
    std::uint64_t stored{};
    file_->read(hashes_ + index * std::int64_t{sizeof stored}, &stored, sizeof stored);
    return stored;
  }
  std::int64_t stored_hashes(std::int64_t first, std::span<std::uint64_t> to) const override {
    if (hashes_ == -1) return 0;
    constexpr std::int64_t kBytes = sizeof to[0];
    file_->read(hashes_ + first * kBytes, to.data(), std::ssize(to) * kBytes);
    return std::ssize(to);
  }
  void read(std::int64_t index, std::uint8_t* pixels) const override {
    assert(index >= 0 && index < size());
    const auto bytes = static_cast<std::int64_t>(info_.image_bytes());
    file_->read(offset_ + index * bytes, pixels, bytes);
    require(hashes_ == -1 || hash(index) == XXH3_64bits(pixels, info_.image_bytes()), ExitCode::data, file_->name(),
            ": image ", index, " of ", size(), " is damaged: its hash is not the stored one; make the file anew");
  }

 private:
  DatasetInfo info_;
  std::unique_ptr<ByteSource> file_;
  std::int64_t offset_, hashes_;
  std::vector<std::int16_t> labels_;
};

/// Images and hashes of the splits that have both, as a seal leaves them out.
std::vector<SealGap> gaps_in(const Hdf5Reader& file) {
  std::vector<SealGap> gaps;
  const auto there = [&](const std::string& name) { return file.has(name) && !file.is_group(name); };
  for (const char* split : kSplits) {
    const std::string names[] = {in_split(split, "images"), in_split(split, "hashes")};
    for (const std::string& name : names)
      if (std::ranges::all_of(names, there))
        gaps.push_back(
            {file.info(name).offset, static_cast<std::int64_t>(file.elements(name)) * file.info(name).element});
  }
  std::ranges::sort(gaps, {}, &SealGap::offset);
  return gaps;
}

/// Error(data): the seal leaves out what has no hashes.
void check_gaps(const Hdf5Reader& file, const std::vector<SealGap>& gaps) {
  const std::vector<SealGap> hashed = gaps_in(file);
  for (const SealGap& gap : gaps)
    require(std::ranges::find(hashed, gap) != hashed.end(), ExitCode::data, file.path(), ": the seal leaves out ",
            gap.bytes, " bytes from byte ", gap.offset, " on, which are no images with hashes; make the file anew");
}

}  // namespace

Hdf5Reader open_data_file(const std::string& path) {
  std::vector<SealGap> gaps;
  if (has_seal(path)) {
    const std::string damage = check_seal(path, &gaps);
    require(damage.empty(), ExitCode::data, path, ": the data file ", damage,
            "; make it anew, or, if the change was meant, take the seal off (data/README.md)");
  } else {
    require_data_file(path);
  }
  Hdf5Reader file = Hdf5Reader::open(path, ExitCode::data);
  check_gaps(file, gaps);
  const std::string kind = file.text("/", "filetype").value_or("dataset");
  require(kind == "dataset" || is_index(file), ExitCode::data, path, ": is a file of kind '", kind,
          "', not a data file");
  const std::int64_t version = file.integer("/", "format_version").value_or(kDatasetFormat);
  require(version == kDatasetFormat, ExitCode::data, path, ": has the data format ", version, ", this program knows ",
          kDatasetFormat);
  return file;
}

OpenedFile open_pixels(const Hdf5Reader& file, const std::string& split, bool may_lack) {
  const std::string& path = file.path();
  OpenedFile opened;
  int classes = kMostClasses;
  if (auto names = stored_class_names(file)) {
    require(names->size() >= 2 && names->size() <= kMostClasses, ExitCode::data, path, ": class_names lists ",
            names->size(), " classes, must be 2 to ", kMostClasses);
    opened.class_names = clean_class_names(std::move(*names));
    classes = static_cast<int>(opened.class_names.size());
  }
  const auto checked = [&](const std::string& name) {
    Split one = check_split(file, name, classes);
    opened.highest = std::max<int>(opened.highest, *std::ranges::max_element(one.labels));
    return one;
  };
  for (const char* name : kSplits)
    if (name != split && file.has(name)) (void)checked(name);
  if (split == "test" && !file.has(split) && file.has("train")) {
    require(
        may_lack, ExitCode::data, path,
        ": has training images and no test images (/test/images); a training needs some, and eval and certify take ",
        "training images with --split train");
    return opened;
  }
  opened.images = std::make_unique<StoredPixels>(path, checked(split));
  return opened;
}

std::optional<std::vector<std::string>> stored_class_names(const Hdf5Reader& file) {
  const bool listed = file.has(kNamesDataset) && !file.is_group(kNamesDataset) &&
                      file.info(kNamesDataset).kind == Hdf5Info::Kind::u8;  // strings are somebody else's
  return listed ? listed_class_names(file) : file.texts("/", "class_names");
}

DataFileWriter::DataFileWriter(const std::string& path, const DatasetInfo& info, const std::string& source,
                               std::int64_t sealed)
    : file_(Hdf5File::create(path)), info_(info), sealed_(sealed) {
  file_.set_text("/", "filetype", "dataset");
  file_.set_integer("/", "format_version", kDatasetFormat);
  const std::vector<std::string> names = clean_class_names(info.class_names);
  if (!names.empty() && names.size() <= kMostInAttribute) file_.set_texts("/", "class_names", names);
  file_.set_text("/", "source", source);
  if (names.size() <= kMostInAttribute) return;
  const std::string lines = lines_of(names);
  file_.write(kNamesDataset, {std::ssize(lines)}, std::vector<std::uint8_t>(lines.begin(), lines.end()));
}

void DataFileWriter::begin(const std::string& split, std::int64_t samples) {
  split_ = split;
  samples_ = samples;
  hash_.emplace();
  labels_.clear();
  file_.declare<std::uint8_t>(in_split(split, "images"), {samples, info_.size, info_.size, info_.channels});
  hashed_ = samples > sealed_ / static_cast<std::int64_t>(info_.image_bytes());
  if (hashed_) file_.declare<std::uint64_t>(in_split(split, "hashes"), {samples});
}

void DataFileWriter::add(const std::vector<std::uint8_t>& pixels, const std::vector<std::int16_t>& labels) {
  const std::int64_t first = std::ssize(labels_);
  file_.write_rows(in_split(split_, "images"), first, pixels);
  hash_->add(pixels.data(), pixels.size());
  if (hashed_) {
    std::vector<std::uint64_t> hashes;
    for (auto image = pixels.begin(); image != pixels.end(); image += static_cast<std::ptrdiff_t>(info_.image_bytes()))
      hashes.push_back(XXH3_64bits(&*image, info_.image_bytes()));
    file_.write_rows(in_split(split_, "hashes"), first, hashes);
  }
  labels_.insert(labels_.end(), labels.begin(), labels.end());
}

void DataFileWriter::end() {
  assert(static_cast<std::int64_t>(labels_.size()) == samples_);
  const std::string name = in_split(split_, "labels");
  std::int64_t first = 0;
  with_stored_labels(labels_, [&]<class T>(const std::vector<T>& stored) {
    if (first == 0) file_.declare<T>(name, {samples_});
    file_.write_rows(name, first, stored);
    hash_->add(stored.data(), stored.size() * sizeof(T));
    first += std::ssize(stored);
  });
  file_.set_text("/", "sha256_" + split_, hash_->hex());
}

void DataFileWriter::close() {
  file_.close();
  const std::vector<SealGap> gaps = gaps_in(Hdf5Reader::open(file_.path(), ExitCode::io));
  if (!gaps.empty()) leave_out(file_.path(), gaps);
}

void write_data_file(const std::string& path, const DatasetInfo& info, const std::string& source,
                     const std::function<void(DataFileWriter&)>& fill, std::int64_t sealed) {
  write_sealed(path, [&](const std::string& temporary) {
    DataFileWriter writer(temporary, info, source, sealed);
    fill(writer);
    writer.close();
  });
}

}  // namespace dat
