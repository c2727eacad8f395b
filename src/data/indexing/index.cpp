// The index itself.

#include "data/images/index.hpp"

#include <bit>
#include <filesystem>
#include <span>

#include "dat/dataset.hpp"
#include "data/indexing/check.hpp"
#include "hdf5/hdf5.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little);

[[nodiscard]] ImageRecord record_of_member(const Member& member, const MemberReader::Checked& seen) {
  return {.offset = member.offset,
          .hash = seen.hash,
          .container = member.container,
          .bytes = static_cast<std::int32_t>(member.bytes),
          .height = static_cast<std::uint16_t>(seen.shape.height),
          .width = static_cast<std::uint16_t>(seen.shape.width),
          .label = static_cast<std::int16_t>(member.label)};
}

/// Writes the images of a split that are whole.
void write_records(Hdf5File& file, const CheckedSource& source, bool test) {
  std::vector<ImageRecord> own;
  std::vector<std::uint8_t> names;
  for (std::size_t k = 0; k < source.seen.size(); ++k) {
    const Member& member = source.members.all[k];
    if (member.test != test || !source.seen[k].damage.empty()) continue;
    names.insert(names.end(), member.path.begin(), member.path.end());
    own.push_back(record_of_member(member, source.seen[k]));
    own.back().name_end = std::ssize(names);
  }
  if (own.empty()) return;
  const auto* first = reinterpret_cast<const std::uint8_t*>(own.data());
  const std::string split = test ? "/test" : "/train";
  file.write(split + "/records", {std::ssize(own), std::int64_t{sizeof(ImageRecord)}},
             std::span(first, own.size() * sizeof(ImageRecord)));
  file.write(split + "/names", {std::ssize(names)}, names);
}

void write_containers(Hdf5File& file, const CheckedSource& source) {
  if (source.members.containers.empty()) return;
  std::vector<std::uint8_t> names;
  std::vector<std::int64_t> bytes;
  for (const std::string& name : source.members.containers) {
    names.insert(names.end(), name.begin(), name.end());
    names.push_back(0);
    bytes.push_back(source.reader.files().container_bytes(bytes.size()));
  }
  file.write("/containers", {std::ssize(names)}, names);
  file.write("/container_bytes", {std::ssize(bytes)}, bytes);
}

}  // namespace

Indexed write_index(const IndexOptions& options) {
  const CheckedSource source(options, 1);
  write_sealed_hdf5(options.output, [&](Hdf5File& file) {
    file.set_text("/", "filetype", "image index");
    file.set_integer("/", "format_version", 1);
    std::error_code error;  // the path from where the file really lies to where the images really lie
    const fs::path images = fs::path(source.members.folder) / ".", beside = fs::absolute(options.output).parent_path();
    const fs::path folder = fs::proximate(images, beside, error);
    file.set_text("/", "folder", error ? fs::absolute(images).string() : folder.string());
    write_containers(file, source);
    const std::string names = lines_of(clean_class_names(source.members.class_names));
    file.write("/class_names", {std::ssize(names)}, std::vector<std::uint8_t>(names.begin(), names.end()));
    for (const bool test : {false, true}) write_records(file, source, test);
  });
  return source.made;
}

}  // namespace dat
