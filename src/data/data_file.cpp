// Data files of pixels: images of one size, one after the other.

#include "data/data_file.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "dat/error.hpp"
#include "data/images/index.hpp"
#include "data/sources.hpp"
#include "files/bytes.hpp"

namespace dat {
namespace {

std::string in_split(const std::string& split, const char* what) { return "/" + split + "/" + what; }

struct Split {
  int size = 0, channels = 0;
  std::int64_t offset = -1;
  std::vector<std::int16_t> labels;
};

/// Shapes, types and labels of a split; no pixels.
Split check_split(const Hdf5Reader& file, const std::string& name, int classes) {
  const std::string& path = file.path();
  const std::string images = in_split(name, "images"), labels = in_split(name, "labels");
  for (const std::string& dataset : {images, labels}) {
    require(file.has(dataset) && !file.is_group(dataset), ExitCode::data, path, ": there is no dataset ", dataset);
  }
  const Hdf5Info info = file.info(images);
  require(info.kind == Hdf5Info::Kind::u8, ExitCode::data, path, ": ", images, " must be of type uint8 (0..255)");
  require(info.shape.size() == 4, ExitCode::data, path, ": ", images,
          " must have the shape [n, height, width, channels], ", "but has ", info.shape.size(), " dimensions");
  require(info.shape[0] > 0, ExitCode::data, path, ": ", images, " holds no image");
  const std::string turned = "; 'dat_hpc data convert " + quoted_word(path) + " plain.h5' makes such a file";
  require(info.shape[1] == info.shape[2] || info.shape[2] != info.shape[3] || info.shape[1] > 4 || info.shape[1] < 1,
          ExitCode::data, path, ": ", images,
          " has its channels first, but must have the shape [n, height, width, channels]", turned);
  require(info.shape[1] == info.shape[2] && info.shape[1] >= 1 && info.shape[1] <= 65536, ExitCode::data, path, ": ",
          images, " must hold square images, not ", info.shape[1], " x ", info.shape[2]);
  require(info.shape[3] >= 1 && info.shape[3] <= 4, ExitCode::data, path, ": ", images,
          " must have 1 to 4 channels in the last dimension, not ", info.shape[3]);

  const Hdf5Info label_info = file.info(labels);
  require(label_info.shape.size() == 1 && label_info.shape[0] == info.shape[0], ExitCode::data, path, ": ", labels,
          " must hold one number for each of the ", info.shape[0], " images",
          label_info.shape == Shape{info.shape[0], 1} ? ", in one dimension" + turned : "");
  Split split;
  split.size = static_cast<int>(info.shape[1]);
  split.channels = static_cast<int>(info.shape[3]);
  split.offset = info.offset;
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
      : file_(open_bytes(path)), offset_(split.offset), labels_(std::move(split.labels)) {
    info_.size = split.size;
    info_.channels = split.channels;
  }
  const DatasetInfo& info() const override { return info_; }
  std::int64_t size() const override { return std::ssize(labels_); }
  int label(std::int64_t index) const override { return labels_[static_cast<std::size_t>(index)]; }
  void read(std::int64_t index, std::uint8_t* pixels) const override {
    assert(index >= 0 && index < size());
    const auto bytes = static_cast<std::int64_t>(info_.image_bytes());
    file_->read(offset_ + index * bytes, pixels, bytes);
  }

 private:
  DatasetInfo info_;
  std::unique_ptr<ByteSource> file_;
  std::int64_t offset_;
  std::vector<std::int16_t> labels_;
};

}  // namespace

Hdf5Reader open_data_file(const std::string& path) {
  if (has_seal(path)) {
    const std::string damage = check_seal(path);
    require(damage.empty(), ExitCode::data, path, ": the data file ", damage,
            "; make it anew, or, if the change was meant, take the seal off (data/README.md)");
  } else {
    require_data_file(path);
  }
  Hdf5Reader file = Hdf5Reader::open(path, ExitCode::data);
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
  if (auto names = file.texts("/", "class_names")) {
    require(names->size() >= 2 && names->size() <= kMostClasses, ExitCode::data, path, ": class_names lists ",
            names->size(), " classes, must be 2 to ", kMostClasses);
    opened.class_names = clean_class_names(std::move(*names));
    classes = static_cast<int>(opened.class_names.size());
  }
  const auto checked = [&](const std::string& name) {
    Split one = check_split(file, name, classes);
    opened.highest = std::max<int>(opened.highest, *std::max_element(one.labels.begin(), one.labels.end()));
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

DataFileWriter::DataFileWriter(const std::string& path, const DatasetInfo& info, const std::string& source)
    : file_(Hdf5File::create(path)), info_(info) {
  file_.set_text("/", "filetype", "dataset");
  file_.set_integer("/", "format_version", kDatasetFormat);
  if (!info.class_names.empty()) file_.set_texts("/", "class_names", clean_class_names(info.class_names));
  file_.set_text("/", "source", source);
}

void DataFileWriter::begin(const std::string& split, std::int64_t samples) {
  split_ = split;
  samples_ = samples;
  hash_.emplace();
  labels_.clear();
  file_.declare<std::uint8_t>(in_split(split, "images"), {samples, info_.size, info_.size, info_.channels});
}

void DataFileWriter::add(const std::vector<std::uint8_t>& pixels, const std::vector<std::int16_t>& labels) {
  file_.write_rows(in_split(split_, "images"), static_cast<std::int64_t>(labels_.size()), pixels);
  hash_->add(pixels.data(), pixels.size());
  labels_.insert(labels_.end(), labels.begin(), labels.end());
}

void DataFileWriter::end() {
  assert(static_cast<std::int64_t>(labels_.size()) == samples_);
  with_stored_labels(labels_, [&](const auto& stored) {
    file_.write(in_split(split_, "labels"), {samples_}, stored);
    hash_->add(stored.data(), stored.size() * sizeof stored[0]);
  });
  file_.set_text("/", "sha256_" + split_, hash_->hex());
}

void DataFileWriter::close() { file_.close(); }

}  // namespace dat
