// Images and labels out of the files of NumPy users.

#include <algorithm>
#include <utility>

#include "dat/error.hpp"
#include "data/arrays/arrays.hpp"

namespace dat {

namespace {

// "data" and "extrapolated_targets": Carmon et al., 500,000 pseudo-labelled images. "image" and "label": the generated
// sets of Rebuffi et al., Gowal et al. and Wang et al. Where none of these is there, "X" and "y", "features" and
// "target": users of scikit-learn; "arr_0" and "arr_1": numpy.savez without names.
constexpr const char* kImageNames[] = {"data", "image", "images", "X", "x", "features", "arr_0"};
constexpr const char* kLabelNames[] = {
    "extrapolated_targets", "label", "labels", "targets", "y", "Y", "target", "arr_1"};
constexpr std::size_t kImagesFirst = 3, kLabelsFirst = 4;  // so many count before the others

/// The first names.
template <class Range>
[[nodiscard]] std::string listed(const Range& names) {
  std::string text;
  std::size_t count = 0;
  for (const auto& name : names) {
    text += (text.empty() ? "" : ", ") + (++count > 8 ? "..." : std::string(name));
    if (count > 8) break;
  }
  return text.empty() ? "nothing" : printable(text);
}

/// The one of the `first` candidates that the file has, or else the one of the others. Error(data): none, or several.
template <std::size_t N>
[[nodiscard]] StoredArray one_of(const std::string& path, const ArrayFile& file, const char* what,
                                 const char* const (&candidates)[N], std::size_t first) {
  const std::vector<std::string> names = file.names();
  const char* found = nullptr;
  for (std::size_t k = 0; k < N && (k != first || found == nullptr); ++k) {
    const char* candidate = candidates[k];
    if (std::ranges::find(names, candidate) == names.end()) continue;
    require(found == nullptr, ExitCode::data, path, ": has both ", found, " and ", candidate, " for ", what,
            "; leave one of them out");
    found = candidate;
  }
  const bool labels_alone = std::ranges::find(names, kLabelNames[0]) != names.end();
  require(found != nullptr, ExitCode::data, path, ": has no ", what, " under the names in use (", listed(candidates),
          "); it holds ", listed(names),
          labels_alone
              ? ". The scripts of Carmon et al. write the pseudo-labels without the images: add these as 'data'"
              : "");
  return file.array(found);
}

/// Labels, each as a function makes it.
class Changed final : public ByteStream {
 public:
  Changed(std::unique_ptr<ByteStream> labels, ChangeLabel change)
      : labels_(std::move(labels)), change_(std::move(change)) {}
  void read(void* to, std::int64_t bytes) override {
    labels_->read(to, bytes);
    std::transform(static_cast<std::uint8_t*>(to), static_cast<std::uint8_t*>(to) + bytes,
                   static_cast<std::uint8_t*>(to), change_);
  }

 private:
  std::unique_ptr<ByteStream> labels_;
  ChangeLabel change_;
};

}  // namespace

StoredArray changed(StoredArray labels, const std::string& file, const ChangeLabel& change) {
  require(labels.kind == 'u' && labels.item_bytes == 1, ExitCode::data, file, ": ", labels.name, " is ", labels.text(),
          ", but must be uint8");
  labels.open = [open = labels.open, change] { return std::make_unique<Changed>(open(), change); };
  return labels;
}

StoredArray from_zero(StoredArray labels, const std::string& file) {
  return changed(std::move(labels), file, [file](std::uint8_t label) {
    require(label > 0, ExitCode::data, file, ": has a label 0, but the labels of this set begin at 1");
    return static_cast<std::uint8_t>(label - 1);
  });
}

std::unique_ptr<ArrayFile> open_arrays(const ByteSource& source) {
  const std::string begin = beginning_of(source, 6);
  if (begin.starts_with("PK")) return open_npz(source);
  if (begin.starts_with('\x80')) return open_pickle(source);
  require(begin != "\x93NUMPY", ExitCode::data, source.name(),
          ": a .npy file holds images or labels, not both; name the other one with --labels");
  fail(ExitCode::data, source.name(),
       ": neither a folder of binary records nor a pickle (protocol 2 to 5), .npz, .npy or HDF5 file; data/README.md "
       "lists the forms that are known");
}

ImageArrays image_arrays(const std::string& file, StoredArray pixels, StoredArray classes) {
  ImageArrays found;
  found.file = file;
  found.images = std::move(pixels);
  found.labels = std::move(classes);
  const StoredArray &images = found.images, &targets = found.labels;
  const auto check = [&](bool condition, const StoredArray& array, const auto&... parts) {
    require(condition, ExitCode::data, file, ": ", array.name, " is ", array.text(), parts...);
  };
  check(images.kind == 'u' && images.item_bytes == 1, images,
        images.kind == 'f'
            ? ", but images must be uint8, 0 to 255; of numbers in [0, 1] that is (255 * x).round().astype('uint8')"
            : ", but images must be uint8, 0 to 255; save images.astype('uint8') if they are that");
  require(images.shape.empty() || images.shape[0] > 0, ExitCode::data, file, ": ", images.name, " holds no image");
  std::vector<std::int64_t> shape = images.shape;
  if (shape.size() == 3) shape.push_back(1);
  const auto square = [&](std::size_t y, std::size_t channels) {
    return shape.size() == 4 && shape[y] == shape[y + 1] && shape[y] >= 1 && shape[y] <= 4096 && shape[channels] >= 1 &&
           shape[channels] <= 4;
  };
  found.channels_first = !square(1, 3);
  check(!found.channels_first || square(2, 1), images,
        ", but images must be square, [n, size, size, channels] or [n, channels, size, size], of 1 to 4 channels, or "
        "[n, size, size]",
        shape.size() == 2 ? "; reshape them" : "");
  check(!images.column_major, images, " in Fortran's order; save numpy.ascontiguousarray of it");
  found.count = shape[0];
  found.size = static_cast<int>(shape[2]);  // the width, or the height, which is the same
  found.channels = static_cast<int>(shape[found.channels_first ? 1 : 3]);
  check((targets.kind == 'i' || targets.kind == 'u') && targets.item_bytes <= 8 &&
            (targets.item_bytes & (targets.item_bytes - 1)) == 0,
        targets, ", but labels must be integers");
  const bool column = targets.shape.size() == 2 && targets.shape[1] == 1;
  check((targets.shape.size() == 1 || column) && targets.shape[0] == found.count, targets,
        ", but there must be one label for each of the ", found.count, " images");
  return found;
}

ImageArrays find_images(const std::string& path, const ArrayFile& file) {
  StoredArray images = one_of(path, file, "images", kImageNames, kImagesFirst);
  return image_arrays(path, std::move(images), one_of(path, file, "labels", kLabelNames, kLabelsFirst));
}

bool has_images(const ArrayFile& file) {
  const std::vector<std::string> names = file.names();
  return std::ranges::any_of(names, [](const std::string& name) {
    return std::find(std::begin(kImageNames), std::end(kImageNames), name) != std::end(kImageNames);
  });
}

std::vector<std::int16_t> read_labels(const ImageArrays& arrays, int classes, int lowest) {
  const StoredArray& stored = arrays.labels;
  const auto stream = stored.open();
  std::vector<std::int16_t> labels;
  std::vector<std::uint8_t> block;
  const auto width = static_cast<std::size_t>(stored.item_bytes);
  constexpr std::int64_t kBlock = 1 << 16;
  for (std::int64_t left = arrays.count; left > 0;) {
    const std::int64_t count = std::min(left, kBlock);
    block.resize(static_cast<std::size_t>(count) * width);
    stream->read(block.data(), std::ssize(block));
    for (std::size_t at = 0; at < block.size(); at += width) {
      const std::int64_t label = integer_of(&block[at], stored);
      require(label >= lowest && label < classes, ExitCode::data, arrays.file, ": label ", label, " of image ",
              labels.size(), " is not in 0..", classes - 1, lowest < 0 ? ", nor -1 for unknown" : "");
      labels.push_back(static_cast<std::int16_t>(label));
    }
    left -= count;
  }
  return labels;
}

void read_images(const ImageArrays& arrays, const std::function<void(const std::vector<std::uint8_t>& pixels)>& use) {
  const auto stream = arrays.images.open();
  const std::int64_t area = std::int64_t{arrays.size} * arrays.size, bytes = area * arrays.channels;
  constexpr std::int64_t kBlocks = 8;  // HDF5 unpacks a chunk once more for each call that wants some of it
  const std::int64_t most = std::min(arrays.count, kBlocks * rows_at_once(bytes));
  std::vector<std::uint8_t> pixels, planes;
  for (std::int64_t left = arrays.count; left > 0;) {
    const std::int64_t count = std::min(left, most);
    pixels.resize(static_cast<std::size_t>(count * bytes));
    stream->read(pixels.data(), count * bytes);
    if (arrays.channels_first) {
      planes = pixels;
      std::uint8_t* to = pixels.data();
      const std::int64_t size = arrays.size;
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t at = 0; at < area; ++at) {
          const std::int64_t from = arrays.turned ? at % size * size + at / size : at;
          for (int channel = 0; channel < arrays.channels; ++channel)
            *to++ = planes[static_cast<std::size_t>(i * bytes + channel * area + from)];
        }
    }
    use(pixels);
    left -= count;
  }
}

}  // namespace dat
