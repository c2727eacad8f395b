#include "assess/classes.hpp"

#include <algorithm>

#include "dat/error.hpp"

namespace dat {

namespace {

void require_same_classes(const DatasetInfo& info, const Classes& classes, const std::string& path) {
  const auto numbered = [](const std::vector<std::string>& names) {
    return names == numbered_classes(static_cast<int>(names.size()));
  };
  if (classes.names.empty() || numbered(info.class_names) || numbered(classes.names)) {
    require(info.classes <= classes.count, ExitCode::data, "the data has ", info.classes, " classes, the network in ",
            path, " knows ", classes.count, "; take the data it was trained for");
    return;
  }
  require(info.class_names == classes.names, ExitCode::data, "the data's classes (", info.class_names.front(), " ... ",
          info.class_names.back(), ") are not those of the network in ", path, " (", classes.names.front(), " ... ",
          classes.names.back(), "); take the data it was trained for");
}

}  // namespace

std::string Classes::name(int label) const {
  const auto k = static_cast<std::size_t>(label);
  return k < names.size() ? names[k] : "class " + std::to_string(label);
}

Classes classes_of(const Checkpoint& checkpoint, const std::string& path) {
  // The only matrix is the last layer's.
  const auto head = std::ranges::find_if(checkpoint.arrays, [](const Checkpoint::Array& a) {
    return a.name.starts_with("param/") && a.shape.size() == 2;
  });
  require(head != checkpoint.arrays.end(), ExitCode::checkpoint, path, " holds no network");
  Classes classes{static_cast<int>(head->shape[0]), {}};
  if (const auto names = checkpoint.texts.find("class_names"); names != checkpoint.texts.end()) {
    classes.names = class_names_of(names->second);
    if (std::ssize(classes.names) != classes.count) classes.names.clear();  // a version kept names of two lines
  }
  return classes;
}

void require_fitting_images(const DatasetInfo& info, const Checkpoint& checkpoint, const Classes& classes,
                            const std::string& path) {
  require_same_classes(info, classes, path);
  if (const auto size = checkpoint.integers.find("image_size"); size != checkpoint.integers.end())
    require(size->second == info.size, ExitCode::data, "the data's images have ", info.size, "x", info.size,
            " pixels, the network in ", path, " was trained on ", size->second, "x", size->second);
  if (const auto channels = checkpoint.integers.find("image_channels"); channels != checkpoint.integers.end())
    require(channels->second == info.channels, ExitCode::data, "the data's images have ", info.channels,
            " channels, the network in ", path, " was trained on ", channels->second);
}

}  // namespace dat
