#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dat/error.hpp"
#include "files/bytes.hpp"
#include "hdf5/hdf5_types.hpp"

namespace dat {

/// Reads plain HDF5 files without the HDF5 library, which loops or crashes on some damaged files: what a run opens,
/// whoever made it, is opened here. Plain are files of groups, attributes, and datasets whose elements lie in one
/// piece: all that Hdf5File writes, and what h5py and others write unless they are asked for chunks, filters or links.
/// The structure of the whole file is read and checked at once: every address and size against the file's, each object
/// once (no cycles), and no two datasets' elements may be more than the file. Time and memory are bounded by the file's
/// size. Error(code) names the file and what is wrong; where the library could read it, also the command that makes a
/// plain file of it. Source: "HDF5 File Format Specification Version 3.0" (The HDF Group).
class Hdf5Reader {
 public:
  [[nodiscard]] static Hdf5Reader open(const std::string& path, ExitCode code);
  Hdf5Reader(std::unique_ptr<ByteSource> source, ExitCode code);
  Hdf5Reader(Hdf5Reader&&) noexcept;
  Hdf5Reader& operator=(Hdf5Reader&&) = delete;
  ~Hdf5Reader();

  // Names are paths in the file ("history/step/lr"; "/" is the root).
  [[nodiscard]] bool has(const std::string& name) const;
  [[nodiscard]] bool is_group(const std::string& name) const;
  /// Names in a group, in the order in which they were made if the file knows it, else sorted.
  [[nodiscard]] std::vector<std::string> list(const std::string& group) const;
  /// Description of a dataset; `offset` is always that of its elements.
  [[nodiscard]] Hdf5Info info(const std::string& name) const;

  /// All elements. Integers and real numbers are converted within their own kind; another kind is an error.
  template <class T>
  [[nodiscard]] std::vector<T> read(const std::string& name, Shape& shape) const {
    shape = info(name).shape;
    std::vector<T> values;
    values.reserve(elements(name));
    read_blocks<T>(name, [&](std::span<const T> block) { values.insert(values.end(), block.begin(), block.end()); });
    return values;
  }
  template <class T>
  using UseBlock = std::function<void(std::span<const T>)>;
  /// Calls `use` with the first `most` elements, or all, some thousands of them at a time.
  template <class T>
  void read_blocks(const std::string& name, const UseBlock<T>& use,
                   std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) const;
  [[nodiscard]] std::size_t elements(const std::string& name) const;

  // Attributes. Empty where the object has no such attribute or it holds something else.
  [[nodiscard]] std::optional<std::string> text(const std::string& object, const std::string& key) const;
  [[nodiscard]] std::optional<std::vector<std::string>> texts(const std::string& object, const std::string& key) const;
  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& object, const std::string& key) const;
  [[nodiscard]] std::vector<std::string> attribute_names(const std::string& object) const;

  [[nodiscard]] const std::string& path() const;

 private:
  class File;
  std::unique_ptr<File> file_;
};

}  // namespace dat
