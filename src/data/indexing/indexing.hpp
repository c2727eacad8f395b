#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dat {

/// Options of indexing the images of a source (images/members.hpp).
struct IndexOptions {
  std::string source, output;
  int threads = 1;
  bool skip_damage = false;                     ///< damaged images are left out, else nothing is made of the source
  int size = 0;                                 ///< write_sized: height = width
  std::int64_t shard_bytes = 1'000'000'000;     ///< write_pack: about so many
  std::function<void(double part)> progress{};  ///< called with the part of the work that is done; one thread at a time
};

/// Result of indexing.
struct Indexed {
  std::int64_t train = 0, test = 0;
  std::int64_t classes = 0;
  std::int64_t containers = 0;         ///< tars: of the source, or, of a pack, its own
  std::int64_t others = 0;             ///< files of the source that are no images
  std::int64_t damaged = 0;            ///< images that were left out
  std::int64_t kept = 0;               ///< tars of a pack that were there
  std::vector<std::string> remarks{};  ///< class_remarks()
};

/// Seconds that each image, and the listing of a source, may take at most, for confined().
constexpr std::int64_t kIndexSeconds = 600;

/// Path of the list of all damaged images, a line each, "PATH: why"; there is no file where no image is damaged.
[[nodiscard]] std::string damage_list(const std::string& output, bool pack);

// All of them read and decode every image of the source once. Each file that they write is equal at any number of
// threads, and there as a whole or not at all. Error(data): a damaged image, and skip_damage is not set; there is no
// image, or less than two classes. Error(io).

/// Writes an index: a sealed file of what images there are, and where.
Indexed write_index(const IndexOptions& options);
/// Writes tars of about shard_bytes into the folder `output`, as WebDataset has them: NAME.jpg or NAME.png, and
/// NAME.cls, the label; train-000000.tar ..., test-000000.tar ..., and class_names.txt. The images are shuffled, each
/// time alike. Tars that are there and fit are kept, and those that are written before the first damaged image is met;
/// class_names.txt is written last.
Indexed write_pack(const IndexOptions& options);
/// Writes a plain data file: of each image the centre, options.size pixels high and wide.
Indexed write_sized(const IndexOptions& options);

}  // namespace dat
