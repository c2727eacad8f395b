#include "data/images/image_files.hpp"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <utility>

#include "dat/error.hpp"

namespace dat {

namespace {

/// The path of a file that must lie below a folder, whatever an index says.
[[nodiscard]] std::string below(const std::string& folder, const std::string& path) {
  const std::filesystem::path own(path);
  const bool leaves = own.is_absolute() || std::ranges::find(own, "..") != own.end();
  require(!leaves && !path.empty() && path.find('\0') == std::string::npos, ExitCode::data, "the path ",
          in_one_line(without_controls(path)), " leaves the folder of the images");
  return (std::filesystem::path(folder) / own).string();
}

std::atomic<std::size_t> open_files = 0;  // number of open files of all objects: systems allow few

}  // namespace

ImageFiles::ImageFiles(std::string folder, std::vector<std::string> containers)
    : folder_(std::move(folder)), containers_(std::move(containers)) {
  constexpr std::size_t kMostOpen = 400;
  for (const std::string& name : containers_) {
    auto file = open_bytes(below(folder_, name));
    bytes_.push_back(file->size());
    if (open_files + open_.size() < kMostOpen) open_.push_back(std::move(file));
  }
  open_files += open_.size();
}

ImageFiles::~ImageFiles() { open_files -= open_.size(); }

std::string ImageFiles::place(int container, const std::string& path) const {
  const std::string& file = container < 0 ? path : containers_[static_cast<std::size_t>(container)];
  const std::string where = (std::filesystem::path(folder_) / file).string();
  return in_one_line(without_controls(container < 0 ? where : where + ": " + path));
}

void ImageFiles::read(int container, const std::string& path, std::int64_t offset, std::int64_t bytes,
                      std::vector<std::uint8_t>& to) const {
  const auto number = static_cast<std::size_t>(container);  // number beyond all where there is no container
  std::unique_ptr<ByteSource> own;
  if (number >= open_.size()) own = open_bytes(below(folder_, container < 0 ? path : containers_[number]));
  const ByteSource& file = own ? *own : *open_[number];
  require(container >= 0 ? bytes <= file.size() - offset : bytes == file.size(), ExitCode::data, "has ", file.size(),
          " bytes instead of ", bytes);
  to.resize(static_cast<std::size_t>(bytes));
  file.read(offset, to.data(), bytes);
}

}  // namespace dat
