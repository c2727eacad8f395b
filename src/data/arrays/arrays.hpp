#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dat/error.hpp"
#include "files/bytes.hpp"

namespace dat {

class Hdf5File;

/// An array of NumPy's in a file, as the file describes it.
struct StoredArray {
  std::string name;             ///< name of the array in the file; for messages
  char kind = 0;                ///< kind of the elements: u (unsigned), i (signed), f (real), ...
  std::int64_t item_bytes = 0;  ///< bytes of an element
  bool big_endian = false;
  bool column_major = false;  ///< Fortran's order, where it makes a difference
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;  ///< bytes of all elements
  /// Opens a stream of the elements from the first on, which must not outlive the source. Error(data).
  std::function<std::unique_ptr<ByteStream>()> open;

  /// Type and shape for messages: "uint8 [500000, 32, 32, 3]".
  [[nodiscard]] std::string text() const;
};

/// Takes kind, item_bytes and big_endian from NumPy's name of a type, such as "|u1" or "<i8". False: the text names no
/// such type.
[[nodiscard]] bool read_type(const std::string& text, StoredArray& array);

/// Type of numbers, by the code that a format has for it.
struct NumberType {
  std::uint32_t code;
  char kind;
  int bytes;
};
/// Sets kind and item_bytes by a code, if it is one of these.
void set_type(std::span<const NumberType> types, std::uint32_t code, StoredArray& array);

/// Sets shape and bytes of an array whose type of elements is known. False: a negative or an impossible size.
[[nodiscard]] bool set_shape(std::vector<std::int64_t> shape, StoredArray& array);

/// The integer of `type`, of 1 to 8 bytes, in these ones.
[[nodiscard]] std::int64_t integer_of(const std::uint8_t* digits, const StoredArray& type);

/// Text of a stranger without what a terminal would obey.
[[nodiscard]] std::string printable(std::string text);

/// Labels in unsigned bytes, each as `change` makes it. Error(data): they are others.
using ChangeLabel = std::function<std::uint8_t(std::uint8_t label)>;
[[nodiscard]] StoredArray changed(StoredArray labels, const std::string& file, const ChangeLabel& change);

/// Labels that count from 1, each less one. Error(data), when the elements are read: a 0.
[[nodiscard]] StoredArray from_zero(StoredArray labels, const std::string& file);

/// A file of named arrays, which refers to its source and must not outlive it.
class ArrayFile {
 public:
  virtual ~ArrayFile() = default;
  [[nodiscard]] virtual std::vector<std::string> names() const = 0;
  /// The array of this name, one of names(). Error(data): the name is no array, or the array is not wholly there.
  [[nodiscard]] virtual StoredArray array(const std::string& name) const = 0;
  /// The strings of the list of this name; strings of more than 256 bytes are "?". Error(data): the name is no such
  /// list.
  [[nodiscard]] virtual std::vector<std::string> words(const std::string& name) const = 0;
};

/// A file of arrays alone, without lists of strings.
class NumbersFile : public ArrayFile {
 public:
  explicit NumbersFile(const ByteSource& source) : source_(source) {}
  [[nodiscard]] std::vector<std::string> words(const std::string& name) const override {
    fail(ExitCode::data, source_.name(), ": ", name, " is no list of names");
  }

 protected:
  template <class... Parts>
  void check(bool condition, const Parts&... parts) const {
    require(condition, ExitCode::data, source_.name(), ": ", parts...);
  }

  const ByteSource& source_;
};

/// A pickle of protocol 2 to 5 that holds a dictionary with arrays of NumPy, or lists of integers or strings. Nothing
/// is executed: the few objects that arrays are made of are known by name, and every other one is refused. Memory:
/// four times the file and 1 MiB at most for objects; the arrays stay in the file. Error(data). Source:
/// CPython's Lib/pickletools.py (the opcodes), numpy/core/multiarray.py and numeric.py (how arrays are reduced).
[[nodiscard]] std::unique_ptr<ArrayFile> open_pickle(const ByteSource& source);

/// An .npz: a zip archive, stored or deflated, of .npy files. Error(data).
/// Source: PKWARE's APPNOTE.TXT 6.3 (zip, with zip64), numpy/lib/format.py (.npy).
[[nodiscard]] std::unique_ptr<ArrayFile> open_npz(const ByteSource& source);

/// The datasets of an HDF5 file, by their paths in the file. Error(data).
[[nodiscard]] std::unique_ptr<ArrayFile> open_hdf5_arrays(const Hdf5File& file);

/// A .npy file. Error(data).
[[nodiscard]] StoredArray open_npy(const ByteSource& source);

/// A MATLAB file of version 5, packed or not. Dimensions come in the order of NumPy: the dimension that runs fastest is
/// the last one, and MATLAB's first. Texts and what holds other variables are named, but are no arrays. Error(data).
/// Source: "MAT-File Format", The MathWorks.
[[nodiscard]] std::unique_ptr<ArrayFile> open_mat(const ByteSource& source);

/// A file of type idx, as it is or packed by gzip. Error(data).
/// Source: "The IDX file format" at http://yann.lecun.com/exdb/mnist/; RFC 1952 (gzip).
[[nodiscard]] StoredArray open_idx(const ByteSource& source);

/// The array that begins at the start of a stream: reads its header. `size` bytes are in the stream; returns how many
/// the header takes. Error(data).
[[nodiscard]] std::int64_t read_npy_header(ByteStream& stream, std::int64_t size, const std::string& where,
                                           StoredArray& array);

/// Images and labels that belong together, of known layout.
struct ImageArrays {
  std::string file;  ///< name of the file; for messages
  StoredArray images, labels;
  std::int64_t count = 0;
  int size = 0, channels = 0;
  bool channels_first = false;  ///< [n, c, s, s], else [n, s, s, c]
  bool turned = false;          ///< true: with channels_first, columns of pixels stand where rows do elsewhere
};

/// Puts images, uint8 [n, s, s, c], [n, c, s, s] or [n, s, s], and labels, integers [n], together. Error(data): other
/// types or shapes.
[[nodiscard]] ImageArrays image_arrays(const std::string& file, StoredArray images, StoredArray labels);

/// A pickle or an .npz. Error(data): another kind of file.
[[nodiscard]] std::unique_ptr<ArrayFile> open_arrays(const ByteSource& source);

/// Finds images and labels in a file of arrays, by the names in use. Error(data): no such arrays, other types or
/// shapes.
[[nodiscard]] ImageArrays find_images(const std::string& path, const ArrayFile& file);
/// Returns whether a file of arrays has any array that find_images() would take for images.
[[nodiscard]] bool has_images(const ArrayFile& file);

/// All labels; -1: unknown. Error(data): a label is not in [lowest, classes).
[[nodiscard]] std::vector<std::int16_t> read_labels(const ImageArrays& arrays, int classes, int lowest = -1);

/// Calls `use` with the pixels [k][s][s][c] of one block of images after the other. Error(data).
void read_images(const ImageArrays& arrays, const std::function<void(const std::vector<std::uint8_t>& pixels)>& use);

}  // namespace dat
