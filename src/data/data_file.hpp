#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dat/dataset.hpp"
#include "dat/file.hpp"
#include "data/images/indexed.hpp"
#include "hdf5/hdf5.hpp"
#include "hdf5/hdf5_reader.hpp"

namespace dat {

constexpr const char* kSplits[] = {"train", "test"};
constexpr std::int64_t kDatasetFormat = 1;

/// Opens a data file for reading: its seal, if it has one, is checked, then its kind and version. Error(data).
[[nodiscard]] Hdf5Reader open_data_file(const std::string& path);

/// Opens a split of a file of pixels. may_lack: "test" need not be there. Error(data).
[[nodiscard]] OpenedFile open_pixels(const Hdf5Reader& file, const std::string& split, bool may_lack);

/// The names of classes in a data file: of up to 256 in the attribute class_names, of more in the dataset /class_names
/// uint8, one a line. Nothing: the file names none. Error(data).
[[nodiscard]] std::optional<std::vector<std::string>> stored_class_names(const Hdf5Reader& file);

/// Calls `use` with one block of labels after the other, as data files hold them and as they are hashed: a byte each,
/// or eight with the sign where one is unknown (-1) or above 255.
template <class Use>
void with_stored_labels(const std::vector<std::int16_t>& labels, const Use& use) {
  const auto in_blocks = [&]<class T>(std::vector<T> block) {
    constexpr std::ptrdiff_t kBlock = 1 << 16;
    for (auto at = labels.begin(); at != labels.end();) {
      const auto end = at + std::min(kBlock, labels.end() - at);
      block.assign(at, end);
      use(block);
      at = end;
    }
  };
  const bool bytes = std::ranges::all_of(labels, [](int label) { return label >= 0 && label <= 255; });
  bytes ? in_blocks(std::vector<std::uint8_t>()) : in_blocks(std::vector<std::int64_t>());
}

/// Writes a data file split by split, block by block: no more than a block is in memory, beside the labels. Without
/// class names the file names none. A split of more than `sealed` bytes of pixels has a hash of each image,
/// /SPLIT/hashes uint64 [n], and the seal leaves out images and hashes: who reads an image checks its hash, and no
/// start reads more than the head and the labels. Error(io).
class DataFileWriter {
 public:
  static constexpr std::int64_t kSealed = 1'000'000'000;
  DataFileWriter(const std::string& path, const DatasetInfo& info, const std::string& source, std::int64_t sealed);
  void begin(const std::string& split, std::int64_t samples);
  /// The next samples of the split: pixels [labels.size()][size][size][channels].
  void add(const std::vector<std::uint8_t>& pixels, const std::vector<std::int16_t>& labels);
  void end();    ///< ends the split, all of whose samples have been added
  void close();  ///< ends the file

 private:
  Hdf5File file_;
  DatasetInfo info_;
  std::int64_t sealed_;
  std::string split_;
  bool hashed_ = false;  ///< true: the split has a hash of each image
  std::optional<Sha256> hash_;
  std::vector<std::int16_t> labels_;
  std::int64_t samples_ = 0;
};

/// Writes a data file, which `fill` fills, whole or not at all. Error(io).
void write_data_file(const std::string& path, const DatasetInfo& info, const std::string& source,
                     const std::function<void(DataFileWriter&)>& fill, std::int64_t sealed = DataFileWriter::kSealed);

}  // namespace dat
