// A plain data file of images of any shape.

#include <algorithm>
#include <filesystem>

#include "dat/dataset.hpp"
#include "data/data_file.hpp"
#include "data/images/decode.hpp"
#include "data/images/view.hpp"
#include "data/indexing/check.hpp"
#include "data/on_threads.hpp"
#include "files/confined.hpp"

namespace dat {

constexpr double kCheckShare = 0.6;  // share of the time for the check: the rest is for decoding again, and resizing

Indexed write_sized(const IndexOptions& options) {
  const CheckedSource source(options, kCheckShare);
  const Members& members = source.members;
  const std::vector<MemberReader::Checked>& seen = source.seen;
  const DatasetInfo info{.size = options.size,
                         .channels = 3,
                         .classes = static_cast<int>(members.class_names.size()),
                         .class_names = members.class_names};
  const std::size_t bytes = info.image_bytes();
  constexpr std::size_t kBytes = 32 << 20;  // in memory at once
  const std::size_t block = std::max(kBytes / bytes, static_cast<std::size_t>(options.threads));
  double done = 0;
  const std::string name = std::filesystem::path(options.source).filename().string();
  write_data_file(options.output, info, "images of " + name + ", resized, their centres", [&](DataFileWriter& writer) {
    for (const bool test : {false, true}) {
      std::vector<std::size_t> own;
      for (std::size_t k = 0; k < seen.size(); ++k)
        if (members.all[k].test == test && seen[k].damage.empty()) own.push_back(k);
      if (own.empty()) continue;
      writer.begin(test ? "test" : "train", std::ssize(own));
      for (std::size_t first = 0; first < own.size(); first += block) {
        const std::size_t count = std::min(block, own.size() - first);
        std::vector<std::uint8_t> pixels(count * bytes);
        std::vector<std::int16_t> labels(count);
        on_threads(options.threads, count, [&](std::size_t k) {
          thread_local ImageDecoder decoder;
          thread_local std::vector<std::uint8_t> file;
          const std::size_t number = own[first + k];
          source.reader.read_again(number, seen[number], file);
          const ImageShape shape = seen[number].shape;
          decoder.see(file, shape, centre_view(shape, options.size), false, pixels.data() + k * bytes);
          labels[k] = static_cast<std::int16_t>(members.all[number].label);
        });
        writer.add(pixels, labels);
        done += static_cast<double>(count);
        source.reader.tell(kCheckShare + (1 - kCheckShare) * done / static_cast<double>(seen.size()));
      }
      writer.end();
    }
    constexpr std::int64_t kSealed = 50'000'000;  // bytes a second, at least
    more_time(kIndexSeconds + (source.made.train + source.made.test) * static_cast<std::int64_t>(bytes) / kSealed);
  });
  return source.made;
}

}  // namespace dat
