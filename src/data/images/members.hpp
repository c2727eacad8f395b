#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// File of the names of the classes in a folder of shards, one a line.
constexpr const char* kClassNamesFile = "class_names.txt";

/// An image among the files of a source.
struct Member {
  int container = -1;  ///< number of the tar that it lies in; -1: a file of its own
  std::string path;    ///< path in the source's folder, or in the tar; a tar inside it counts as a folder
  std::int64_t offset = 0, bytes = 0;  ///< -1 bytes: no file, such as a link that leads nowhere, or one in a tar
  bool test = false;                   ///< else for training
  int label = 0;
};

/// The images of a source, in the order of their paths, wherever they lie: so a run has the same bits on a folder and
/// on its tars.
struct Members {
  std::string folder;                   ///< folder in which the paths of containers and of single files begin
  std::vector<std::string> containers;  ///< tars
  std::vector<std::string> class_names;
  std::vector<Member> all;
  std::int64_t others = 0;  ///< files that are no images
};

/// Finds the images of a source by the names of its files; none is read but the labels of shards. Error(data).
///
/// - A folder, or a tar, with a folder for each class, below "train", "test", "val", "valid" or "validation". Without
///   these a tar's name may begin with one; else they are training images. Classes are then the first folders that
///   differ (torchvision's ImageFolder). Labels are the places of the names in their order.
/// - Tars in a folder, or one, of WebDataset: x.jpg beside x.cls, or beside x.json with "cls". Splits are what folders
///   in them say, else what names of tars begin with. Without kClassNamesFile the classes are "class K".
/// - A tar of tars, each as good as a folder of its name: ImageNet's training images.
///
/// Where there is "test", images of "val" are left out; else these are the test images. Files and folders whose names
/// begin with a dot count as no images. Tars with images beside them in a folder are refused.
///
/// Symbolic links in a folder are followed: a folder of links is as good as one of files.
[[nodiscard]] Members members_of(const std::string& source);

}  // namespace dat
