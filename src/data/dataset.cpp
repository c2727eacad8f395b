#include "dat/dataset.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <map>
#include <utility>

#include "dat/error.hpp"
#include "data/data_file.hpp"
#include "data/forms.hpp"
#include "hdf5/hdf5_reader.hpp"

namespace dat {
namespace {

constexpr int kMaxClasses = 256;  // a label is one byte

// Samples begin, begin + 1, ... of a pool lie in one file, at `offset`.
struct Part {
  std::string path;
  std::int64_t begin = 0;
  int fd = -1;
  std::int64_t offset = 0;

  Part() = default;
  Part(Part&& other) noexcept
      : path(std::move(other.path)), begin(other.begin), fd(std::exchange(other.fd, -1)), offset(other.offset) {}
  Part& operator=(Part&&) = delete;
  ~Part() {
    if (fd >= 0) ::close(fd);
  }
};

class FileDataset : public Dataset {
 public:
  FileDataset(DatasetInfo info, std::vector<Part> parts, std::vector<std::int16_t> labels)
      : info_(std::move(info)), parts_(std::move(parts)), labels_(std::move(labels)) {}

  const DatasetInfo& info() const override { return info_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  std::int64_t first_file() const override { return parts_.size() > 1 ? std::min(parts_[1].begin, size()) : size(); }
  int label(std::int64_t index) const override { return labels_[static_cast<std::size_t>(index)]; }

  void read(std::int64_t index, std::uint8_t* pixels) const override {
    assert(index >= 0 && index < size());
    const auto after = std::upper_bound(parts_.begin(), parts_.end(), index,
                                        [](std::int64_t i, const Part& part) { return i < part.begin; });
    const Part& part = *std::prev(after);
    const auto bytes = static_cast<std::int64_t>(info_.image_bytes());
    const std::int64_t at = (index - part.begin) * bytes;
    for (std::int64_t done = 0; done < bytes;) {
      const ssize_t got =
          ::pread(part.fd, pixels + done, static_cast<std::size_t>(bytes - done), part.offset + at + done);
      if (got < 0 && errno == EINTR) continue;
      require(got > 0, ExitCode::data, part.path, ": cannot read image ", index - part.begin, ": ",
              got == 0 ? "the file has become shorter" : system_reason(errno));
      done += got;
    }
  }

 private:
  DatasetInfo info_;
  std::vector<Part> parts_;
  std::vector<std::int16_t> labels_;
};

std::string in_split(const std::string& split, const char* what) { return "/" + split + "/" + what; }

struct Split {
  int size = 0, channels = 0;
  std::int64_t offset = -1;
  std::vector<std::int16_t> labels;
};

// Shapes, types and labels of a split; no pixels.
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
  require(kind == "dataset", ExitCode::data, path, ": is a file of kind '", kind, "', not a data file");
  const std::int64_t version = file.integer("/", "format_version").value_or(kDatasetFormat);
  require(version == kDatasetFormat, ExitCode::data, path, ": has the data format ", version, ", this program knows ",
          kDatasetFormat);
  return file;
}

std::unique_ptr<Dataset> open_dataset(const std::vector<std::string>& paths, const std::string& split,
                                      std::int64_t limit) {
  require(!paths.empty(), ExitCode::usage, "no data file is given");
  std::map<std::pair<dev_t, ino_t>, std::string> files;
  for (const std::string& path : paths) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) continue;
    const auto [other, is_new] = files.try_emplace({status.st_dev, status.st_ino}, path);
    require(is_new, ExitCode::usage, "--data has one file twice, ", other->second,
            path == other->second ? "" : " and " + path, ", whose images would count twice; leave one off");
  }
  DatasetInfo info;
  std::vector<Part> parts;
  std::vector<std::int16_t> labels;
  std::string named_by;   // the file that named the classes
  std::string shaped_by;  // the first one that was taken
  int highest = 1;
  for (const std::string& path : paths) {
    const Hdf5Reader file = open_data_file(path);
    int classes = kMaxClasses;
    if (auto names = file.texts("/", "class_names")) {
      require(names->size() >= 2 && names->size() <= kMaxClasses, ExitCode::data, path, ": class_names lists ",
              names->size(), " classes, must be 2 to ", kMaxClasses);
      *names = clean_class_names(std::move(*names));
      require(named_by.empty() || *names == info.class_names, ExitCode::data, path, ": has other class names than ",
              named_by);
      classes = static_cast<int>(names->size());
      info.class_names = std::move(*names);
      named_by = path;
    }
    for (const char* name : kSplits) {
      if (name == split || !file.has(name)) continue;
      const Split other = check_split(file, name, classes);
      highest = std::max<int>(highest, *std::max_element(other.labels.begin(), other.labels.end()));
    }
    // Sets of extra images have none to test with. That no file has any is found at the last one.
    const bool may_lack = split == "test" && (&path != &paths.back() || !parts.empty());
    if (may_lack && !file.has(split) && file.has("train")) continue;
    require(
        split != "test" || file.has(split) || !file.has("train"), ExitCode::data, path,
        ": has training images and no test images (/test/images); a training needs some, and eval and certify take ",
        "training images with --split train");
    Split wanted = check_split(file, split, classes);
    highest = std::max<int>(highest, *std::max_element(wanted.labels.begin(), wanted.labels.end()));
    require(parts.empty() || (wanted.size == info.size && wanted.channels == info.channels), ExitCode::data, path,
            ": has images of ", wanted.size, " x ", wanted.size, " x ", wanted.channels, ", but ", shaped_by, " of ",
            info.size, " x ", info.size, " x ", info.channels);
    if (parts.empty()) shaped_by = path;
    info.size = wanted.size;
    info.channels = wanted.channels;

    Part part;
    part.path = path;
    part.begin = static_cast<std::int64_t>(labels.size());
    part.offset = wanted.offset;
    part.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    require(part.fd >= 0, ExitCode::data, path, ": cannot be opened: ", system_reason(errno));
    parts.push_back(std::move(part));
    labels.insert(labels.end(), wanted.labels.begin(), wanted.labels.end());
  }
  if (named_by.empty()) info.class_names = numbered_classes(highest + 1);
  info.classes = static_cast<int>(info.class_names.size());
  require(highest < info.classes, ExitCode::data, "a file without class names has the label ", highest, ", but ",
          named_by, " names only ", info.classes, " classes");
  if (limit > 0 && limit < static_cast<std::int64_t>(labels.size())) labels.resize(static_cast<std::size_t>(limit));
  return std::make_unique<FileDataset>(std::move(info), std::move(parts), std::move(labels));
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
