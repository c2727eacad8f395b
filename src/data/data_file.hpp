#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
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

/// Calls `use` with the labels as data files hold them and as they are hashed: a byte each, or eight with the sign
/// where some are unknown (-1).
template <class Use>
void with_stored_labels(const std::vector<std::int16_t>& labels, const Use& use) {
  if (std::find(labels.begin(), labels.end(), -1) == labels.end())
    use(std::vector<std::uint8_t>(labels.begin(), labels.end()));
  else
    use(std::vector<std::int64_t>(labels.begin(), labels.end()));
}

/// Writes a data file split by split, block by block: no more than a block is in memory. For the inside of
/// write_sealed. Without class names the file names none. Error(io).
class DataFileWriter {
 public:
  DataFileWriter(const std::string& path, const DatasetInfo& info, const std::string& source);
  void begin(const std::string& split, std::int64_t samples);
  /// The next samples of the split: pixels [labels.size()][size][size][channels].
  void add(const std::vector<std::uint8_t>& pixels, const std::vector<std::int16_t>& labels);
  void end();    ///< ends the split, all of whose samples have been added
  void close();  ///< ends the file

 private:
  Hdf5File file_;
  DatasetInfo info_;
  std::string split_;
  std::optional<Sha256> hash_;
  std::vector<std::int16_t> labels_;
  std::int64_t samples_ = 0;
};

}  // namespace dat
