#include "data/images/image_files.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "dat/error.hpp"

namespace dat {

namespace {

/// The path of a file that must lie below a folder, whatever an index says.
[[nodiscard]] std::string below(const std::string& folder, const std::string& path) {
  const std::filesystem::path own(path);
  const bool leaves = own.is_absolute() || std::find(own.begin(), own.end(), "..") != own.end();
  require(!leaves && !path.empty() && path.find('\0') == std::string::npos, ExitCode::data, "the path ",
          in_one_line(without_controls(path)), " leaves the folder of the images");
  return (folder.empty() ? own : folder / own).string();
}

}  // namespace

ImageFiles::ImageFiles(std::string folder, std::vector<std::string> containers)
    : folder_(std::move(folder)), containers_(std::move(containers)) {
  constexpr std::size_t kMostOpen = 200;
  for (const std::string& name : containers_) {
    auto file = open_bytes(below(folder_, name));
    bytes_.push_back(file->size());
    if (open_.size() < kMostOpen) open_.push_back(std::move(file));
  }
}

std::string ImageFiles::place(int container, const std::string& path) const {
  const std::string& file = container < 0 ? path : containers_[static_cast<std::size_t>(container)];
  const std::string where = (std::filesystem::path(folder_) / file).string();
  return in_one_line(without_controls(container < 0 ? where : where + ": " + path));
}

void ImageFiles::read(int container, const std::string& path, std::int64_t offset, std::span<std::uint8_t> to) const {
  if (container >= 0 && static_cast<std::size_t>(container) < open_.size())
    return open_[static_cast<std::size_t>(container)]->read(offset, to.data(), std::ssize(to));
  const auto file = open_bytes(below(folder_, container < 0 ? path : containers_[static_cast<std::size_t>(container)]));
  require(container >= 0 || file->size() == std::ssize(to), ExitCode::data, "has ", file->size(), " bytes instead of ",
          to.size());
  file->read(offset, to.data(), std::ssize(to));
}

}  // namespace dat
