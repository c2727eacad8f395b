#pragma once

#include <hdf5.h>

#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "hdf5/hdf5_types.hpp"

namespace dat {

/// The version of the library, such as "1.10.8".
[[nodiscard]] std::string hdf5_version();

/// An HDF5 file, the only door to hdf5.h. The library loops or crashes on some damaged files: files from outside are
/// opened with it by `data convert` alone, in a process of their own; all other code reads with Hdf5Reader. Names are
/// paths in the file ("history/step/lr"; "/" is the root); groups on the way to something new are made. Failures are
/// Error(io) for a created file and Error(code) for an opened one, naming the file, the object and the library's
/// reason. External links, external storage and filter plug-ins are refused. Not thread-safe: one thread at a time for
/// all files.
class Hdf5File {
 public:
  /// Creates a file, in place of an old one. user_block = kSealBytes is what write_sealed wants, 0 is none.
  [[nodiscard]] static Hdf5File create(const std::string& path, std::size_t user_block = kSealBytes);
  /// Opens a file for reading; errors have the code `code`.
  [[nodiscard]] static Hdf5File open(const std::string& path, ExitCode code);
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;
  ~Hdf5File();
  /// Ends writing: what was not yet on disk goes there now. The destructor ends writing, too, but cannot report a
  /// failure.
  void close();

  /// Declares a new contiguous dataset of T, to be filled with write_rows. Shape {} is a scalar.
  template <class T>
  void declare(const std::string& name, const Shape& shape) {
    declare(name, shape, kHdf5Type<T>);
  }
  /// Writes rows first, first + 1, ... of a declared dataset: `values` (vector, span, array) is row-major and holds
  /// whole rows.
  template <class Values>
  void write_rows(const std::string& name, std::int64_t first, const Values& values) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(std::data(values))>>;
    write_rows(name, first, kHdf5Type<T>, std::data(values), static_cast<std::int64_t>(std::size(values)));
  }
  /// Writes a whole new dataset: `values` (vector, span, array) of uint8, uint64, int64, float or double in row-major
  /// order.
  template <class Values>
  void write(const std::string& name, const Shape& shape, const Values& values) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(std::data(values))>>;
    declare(name, shape, kHdf5Type<T>);
    write_rows(name, 0, values);
  }
  /// Writes a new 1-D dataset of UTF-8 strings of variable length.
  void write_texts(const std::string& name, const std::vector<std::string>& values);

  // Attributes of the root ("/"), of a group or of a dataset; a group that is not there is made.
  void set_text(const std::string& object, const std::string& key, const std::string& value);
  void set_texts(const std::string& object, const std::string& key, const std::vector<std::string>& values);
  void set_integer(const std::string& object, const std::string& key, std::int64_t value);

  [[nodiscard]] bool has(const std::string& name) const;
  [[nodiscard]] bool is_group(const std::string& name) const;
  /// Names in a group, in the order in which they were made if the file knows it, else sorted.
  [[nodiscard]] std::vector<std::string> list(const std::string& group) const;
  [[nodiscard]] Hdf5Info info(const std::string& name) const;
  /// All elements. Integers and real numbers are converted within their own kind; another kind is an error. Sizes are
  /// checked against the file's before memory is taken.
  template <class T>
  [[nodiscard]] std::vector<T> read(const std::string& name, Shape& shape) const {
    shape = check_readable(name, kHdf5Type<T>);
    std::int64_t elements = 1;
    for (const std::int64_t dim : shape) elements *= dim;
    std::vector<T> values(static_cast<std::size_t>(elements));
    if (!values.empty()) read(name, kHdf5Type<T>, values.data());
    return values;
  }
  /// `count` rows from `first` on, which have elements.
  template <class T>
  [[nodiscard]] std::vector<T> read_rows(const std::string& name, std::int64_t first, std::int64_t count) const {
    const Shape shape = check_readable(name, kHdf5Type<T>);
    std::int64_t elements = count;
    for (std::size_t i = 1; i < shape.size(); ++i) elements *= shape[i];
    std::vector<T> values(static_cast<std::size_t>(elements));
    read_rows(name, first, count, kHdf5Type<T>, values.data());
    return values;
  }
  /// A 1-D dataset of strings.
  [[nodiscard]] std::vector<std::string> read_texts(const std::string& name) const;

  // Empty where the object has no such attribute or it holds something else.
  [[nodiscard]] std::optional<std::string> text(const std::string& object, const std::string& key) const;
  [[nodiscard]] std::optional<std::vector<std::string>> texts(const std::string& object, const std::string& key) const;
  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& object, const std::string& key) const;
  [[nodiscard]] std::optional<double> real(const std::string& object, const std::string& key) const;
  [[nodiscard]] std::vector<std::string> attribute_names(const std::string& object) const;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  Hdf5File(std::string path, ExitCode code, hid_t file) : path_(std::move(path)), code_(code), file_(file) {}
  void declare(const std::string& name, const Shape& shape, Hdf5Type type);
  void write_rows(const std::string& name, std::int64_t first, Hdf5Type type, const void* values, std::int64_t count);
  [[nodiscard]] Shape check_readable(const std::string& name, Hdf5Type type) const;
  void read(const std::string& name, Hdf5Type type, void* values) const;
  void read_rows(const std::string& name, std::int64_t first, std::int64_t count, Hdf5Type type, void* values) const;
  void make_parents(const std::string& name);
  void make_group(const std::string& name);
  void set_attribute(const std::string& object, const std::string& key, hid_t type, hid_t space, hid_t memory,
                     const void* value);
  void with_attribute(const std::string& object, const std::string& key, H5T_class_t kind,
                      const std::function<void(hid_t, hid_t, hid_t, std::size_t)>& use) const;
  hid_t check(hid_t result, const char* action, const std::string& name) const;

  std::string path_;
  ExitCode code_;
  hid_t file_;
};

/// Creates a file as write_sealed() does, which `write` fills. Error(io).
void write_sealed_hdf5(const std::string& path, const std::function<void(Hdf5File& file)>& write);

}  // namespace dat
