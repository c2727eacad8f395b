#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "dat/dataset.hpp"
#include "data/arrays/arrays.hpp"
#include "data/sources.hpp"

// The forms that `data convert` takes, each in a file of its own; the table of them is in convert.cpp. Each form has
// two functions: has_... or is_... returns whether a source, a folder or a file as the table says, has the form, going
// by names and first bytes; convert_... makes a data file of the source, in a process of its own (confined.hpp).
// Error(data, io, usage).

namespace dat {

/// CIFAR's binary version: data_batch_1.bin ... and test_batch.bin, or train.bin and test.bin (records.cpp).
[[nodiscard]] bool has_records(const std::string& folder);
void convert_records(const ConvertOptions& options);

/// CIFAR's Python version: data_batch_1 ... 5 and test_batch, or train and test (cifar_pickles.cpp).
[[nodiscard]] bool has_cifar_pickles(const std::string& folder);
void convert_cifar_pickles(const ConvertOptions& options);

/// MNIST's files, as they are or packed: train-images-idx3-ubyte and its three companions, and EMNIST's and QMNIST's.
/// In a folder with several of these sets, the name of a file of one chooses that one (idx.cpp).
[[nodiscard]] bool has_idx_files(const std::string& folder);
void convert_idx_files(const ConvertOptions& options);
[[nodiscard]] bool is_idx(const std::string& file);
/// The files of the set that a file is of, and its mapping, whether there or not: what convert_idx() may read.
[[nodiscard]] std::vector<std::string> idx_files(const std::string& file);
void convert_idx(const ConvertOptions& options);

/// STL-10's binary version: train_X.bin, train_y.bin, test_X.bin and test_y.bin (stl10.cpp).
[[nodiscard]] bool has_stl10(const std::string& folder);
void convert_stl10(const ConvertOptions& options);

/// SVHN's cropped digits: train_32x32.mat and test_32x32.mat in a folder, or such a file alone, as training images
/// (svhn.cpp).
[[nodiscard]] bool has_svhn(const std::string& folder);
void convert_svhn(const ConvertOptions& options);
[[nodiscard]] bool is_mat(const std::string& file);
void convert_mat(const ConvertOptions& options);

/// An HDF5 file of images in any layout that arrays may have, or of weights: of these the result is a plain file with
/// the same numbers, and the attributes of its root (plain_hdf5.cpp; is_hdf5() is that of sources.hpp).
void convert_hdf5(const ConvertOptions& options);

/// An archive as it was downloaded: tar, packed or not, zip, 7z, rar; or one file that is packed (archive.cpp).
[[nodiscard]] bool is_archive(const std::string& file);
/// Puts the files of an archive below `folder`, which is empty: but for images that are files of their own (JPEG, PNG),
/// tars, and STL-10's unlabelled images, which no form reads. Error(data): it is damaged, encrypted, has a link or a
/// path that leaves the folder, or grows a thousandfold; more than some of its files are images. Error(io): they do not
/// fit onto the disk.
void unpack_archive(const std::string& archive, const std::string& folder);

/// A pickle, an .npz or .npy files: one set of images, or training and test images, as the names say
/// (named_arrays.cpp).
[[nodiscard]] bool is_arrays(const std::string& file);
void convert_arrays(const ConvertOptions& options);
/// Detect and convert an open file, if it has images under any known name. names: the classes', if the source has them;
/// origin: what the source says of its own; empty: nothing.
[[nodiscard]] bool has_named(const ArrayFile& arrays);
void convert_named(const ConvertOptions& options, const ArrayFile& arrays, const std::vector<std::string>& names,
                   const std::string& origin);

/// Returns whether a folder has this file.
[[nodiscard]] bool has_file(const std::filesystem::path& folder, const std::string& name);
/// Names of classes, one a line; none where there is no such file. Error(data): one name, or more than kMostClasses.
[[nodiscard]] std::vector<std::string> names_in_file(const std::string& path);
/// The names of CIFAR-10's classes, for a folder that does not name them.
[[nodiscard]] std::vector<std::string> cifar10_names();

/// Calls `use` with the pixels [k][size][size][3] and labels [k] of one block of binary records after the other: label
/// bytes of which the last one counts, then the planes of a square image. Error(data): a label >= classes.
using UseRecords =
    std::function<void(const std::vector<std::uint8_t>& pixels, const std::vector<std::uint8_t>& labels)>;
void read_records(const ByteSource& file, int size, int label_bytes, int classes, const UseRecords& use);

/// A split and its arrays, end to end.
struct SplitArrays {
  std::string split;
  std::vector<ImageArrays> parts;
};
/// Writes the data file of some splits. `names` are the classes', if the source has them; `source` is what the file
/// says of its origin. Error(data): images of several sizes, another size than asked for, a label that is no class's, a
/// test image without label; all labels are read before the file is begun. Error(io).
void write_arrays(const ConvertOptions& options, const std::vector<SplitArrays>& splits,
                  const std::vector<std::string>& names, const std::string& source);

}  // namespace dat
