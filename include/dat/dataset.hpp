#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dat/image.hpp"

namespace dat {

/// The highest number of classes: labels are kept in 16 bits.
constexpr int kMostClasses = 32767;

/// Facts that a data file states about itself.
struct DatasetInfo {
  int size = 0;                          ///< height = width of what networks see
  int channels = 3;                      ///< 1..4
  int classes = 0;                       ///< 2..kMostClasses
  std::vector<std::string> class_names;  ///< [classes]
  bool decoded = false;                  ///< pixels are made of JPEG or PNG files each time they are read

  [[nodiscard]] std::size_t image_bytes() const {
    return static_cast<std::size_t>(size) * static_cast<std::size_t>(size) * static_cast<std::size_t>(channels);
  }
};

/// The names of classes that no file has named: "class 0", "class 1", ...
[[nodiscard]] std::vector<std::string> numbered_classes(int classes);

/// Names of classes as they are kept, whoever has given them: valid UTF-8 on one line, of 200 bytes at most. Controls,
/// ends of lines and blanks become one blank, bytes that are no UTF-8 a question mark, byte order marks nothing; a name
/// without a character becomes "class K". So what has come in goes through every file and comes back.
[[nodiscard]] std::vector<std::string> clean_class_names(std::vector<std::string> names);
/// The names in a text that has one a line, as checkpoints and exported networks do; and such a text.
[[nodiscard]] std::vector<std::string> class_names_of(const std::string& lines);
[[nodiscard]] std::string lines_of(const std::vector<std::string>& class_names);

/// uint8 images of one split ("train" or "test") from one or more files, which are one pool, in the order given. Labels
/// are in memory; pixels are read from disk when asked for (the page cache is shared by the ranks of a node).
class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual const DatasetInfo& info() const = 0;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Number of samples from the first file, which come first.
  [[nodiscard]] virtual std::int64_t first_file() const { return size(); }
  /// 0 ... classes - 1; -1: unknown.
  [[nodiscard]] virtual int label(std::int64_t index) const = 0;
  /// Labels of the samples first, first + 1, ..., as label() has them.
  virtual void labels(std::int64_t first, std::span<std::int16_t> to) const;
  /// XXH3-64 of one image as it is stored: the bytes of its file, or its pixels. A set that has stored this hash reads
  /// no pixel for it. Error(data), as read().
  [[nodiscard]] virtual std::uint64_t hash(std::int64_t index) const;
  /// Stored hashes of the samples first, first + 1, ... Returns how many there are without a gap: those of some of
  /// `to`, of which others may follow; 0: that of the first is not stored. Error(data).
  virtual std::int64_t stored_hashes(std::int64_t, std::span<std::uint64_t>) const { return 0; }
  /// Name of the image: its path in an index; else its number, from 0. Untrusted text. Error(data).
  [[nodiscard]] virtual std::string name(std::int64_t index) const { return std::to_string(index); }
  /// Shape of the image as it is stored.
  [[nodiscard]] virtual ImageShape shape(std::int64_t) const { return {info().size, info().size}; }
  /// Pixels [size][size][channels] of one sample, as evaluations see it. Thread-safe. Error(data): the image is
  /// damaged, has changed, or is not there any more.
  virtual void read(std::int64_t index, std::uint8_t* pixels) const = 0;
  /// Pixels [part.height][part.width][channels] of a view of one sample. Thread-safe. Error(data), as read().
  virtual void see(std::int64_t index, const ImageView& view, std::uint8_t* pixels) const;
};

/// Calls `use` with all labels of a set, in order, some thousands of them at a time.
void for_labels(const Dataset& images, const std::function<void(std::span<const std::int16_t>)>& use);

/// Options of reading data files.
struct Sight {
  int size = 0;       ///< height = width of what the network sees; 0: the images', which must be alike and square
  int usual = 0;      ///< value of `size` for an index; 0: the images' size
  bool fast = false;  ///< JPEG is made smaller by its transform, where it is larger than what is wanted
};

/// Opens `/split/images` uint8 [n,s,s,c] and `/split/labels` integer [n] of all files (data/README.md). The classes are
/// those named in a file; where no file names any, the highest label of all splits + 1. Error(data): a file is missing,
/// no plain HDF5 (hdf5/hdf5_reader.hpp; convert_dataset makes it), damaged (files made by write_synthetic and
/// convert_dataset are sealed: file.hpp), has no such split, has other shapes or types than said, labels out of range
/// (training images may have -1: unknown), or files that do not fit together. Files without test images add none to
/// "test" where there are several files. limit > 0: the first `limit` samples only. A file may be an index of images
/// (images/index.hpp), too. Error(usage): images of several shapes, without a size.
[[nodiscard]] std::unique_ptr<Dataset> open_dataset(const std::vector<std::string>& paths, const std::string& split,
                                                    std::int64_t limit, const Sight& sight = {});

/// A hash of class names, all labels, and the images' shapes and hashes, as 32 hexadecimal digits: what ranks compare
/// to know that they have the same images, at whatever size these are seen. All hashes that are stored count. Where the
/// images without are more than 65,536 or 256 MiB, the hash takes every second, third, ... one only, so that no start
/// reads more than that, and of the others the labels. Error(data).
[[nodiscard]] std::string content_hash(const Dataset& images);

/// Oddities of the labels of training images, and of test images if there are any, a sentence each: no image of class
/// 0, one class only, classes that only test images have, classes that no image has. Only the first five of many
/// classes are named.
[[nodiscard]] std::vector<std::string> class_remarks(const Dataset& train, const Dataset* test);

/// A set without `count` of its first `among` samples that are drawn at random, a function of the seed (kept: true), or
/// just these `count` samples (kept: false); in both cases in the order of the whole. Error(usage): nothing would be
/// left.
[[nodiscard]] std::unique_ptr<Dataset> held_out(std::unique_ptr<Dataset> whole, std::int64_t among, std::int64_t count,
                                                std::uint64_t seed, bool kept);

/// A set with the first `count` samples of its first file, and all samples of its other files; 0, or more than there
/// are: all.
[[nodiscard]] std::unique_ptr<Dataset> first_of_first_file(std::unique_ptr<Dataset> whole, std::int64_t count);

/// The first `count` samples of a set; 0, or more than there are: all of them.
[[nodiscard]] std::unique_ptr<Dataset> first_of(std::unique_ptr<Dataset> whole, std::int64_t count);
/// The images that a text file names, one a line, in the order of the set: by Dataset::name, or its end after a '/'; of
/// names that fit none, without the ending. Error(data): a line names none, several, or another's; or there is no file.
[[nodiscard]] std::unique_ptr<Dataset> named_in(std::unique_ptr<Dataset> whole, const std::string& list);

/// A procedural, learnable, deterministic set: each class is a coloured shape on a cluttered background. Sample i is a
/// function of (seed, split, i) alone.
struct SyntheticOptions {
  int classes = 10, size = 32;
  std::int64_t train = 2000, test = 500;
  std::uint64_t seed = 1;
};
[[nodiscard]] std::unique_ptr<Dataset> synthetic_dataset(const SyntheticOptions&, const std::string& split);

/// Writes the synthetic set as a data file. Error(io).
void write_synthetic(const SyntheticOptions&, const std::string& path);

/// Converts what others have to a data file (data/README.md): folders of binary records, of pickles (CIFAR) or of idx
/// files (MNIST), or archives with such a folder; arrays of NumPy in a pickle, an .npz or two .npy files; or an HDF5
/// file with chunks, filters or links, of which the result is a plain one (hdf5/hdf5_reader.hpp). Sources with training
/// and test images become a file with both; other arrays become the split "train". Classes are named where the source
/// names them. No more than a block of images is in memory. The work is done in a child process with limits to its time
/// and memory: a damaged file cannot hold it up. Returns what has been written, for a person. Error(data): a missing,
/// short or damaged file, a label >= classes, an unknown layout; see data/arrays/arrays.hpp. Error(io). Error(usage):
/// an option that this source does not take.
struct ConvertOptions {
  std::string source, output;
  std::string labels;         ///< the .npy file of the labels, where `source` is that of the images
  std::string val = "leave";  ///< validation images: left out; or they join ("train") or replace ("test") others
  int size = 0;               ///< height = width of records; 0: 32. Other sources know theirs
  int label_bytes = 0;        ///< label bytes of a record, the last of which counts; 0: 1, of CIFAR-100 2
  int classes = 0;            ///< 0: as many as are named; without names 10 for records, any number for arrays
};
struct Converted {
  std::string contents;              ///< a line for people; empty: weights
  std::vector<std::string> remarks;  ///< class_remarks()
};
Converted convert_dataset(const ConvertOptions&);

/// Text about a data file for a person: shapes, classes with counts, source. The hash of pixels in the file is checked;
/// no image of an index is read. Error(data).
[[nodiscard]] std::string inspect_dataset(const std::string& path);

/// Writes a PNG of some images of a data file, of all classes alike, each above the name of its class. Returns how many
/// images are on it. Error(data), Error(io). Error(usage): a file is there that is no PNG, or an image of the index.
int draw_page(const std::string& path, const std::string& output);

}  // namespace dat
