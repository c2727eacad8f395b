#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "dat/dataset.hpp"
#include "data/indexing/tar_writer.hpp"
#include "fuzz/targets.hpp"

namespace {

// The file that make_corpus.py has, too: 2 x 3 pixels.
constexpr std::uint8_t kPng[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00,
    0x00, 0x02, 0x00, 0x00, 0x00, 0x03, 0x08, 0x02, 0x00, 0x00, 0x00, 0x36, 0x88, 0x49, 0xd6, 0x00, 0x00, 0x00,
    0x20, 0x49, 0x44, 0x41, 0x54, 0x78, 0x01, 0x01, 0x15, 0x00, 0xea, 0xff, 0x00, 0x00, 0x01, 0x02, 0x03, 0x04,
    0x05, 0x00, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x00, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x04, 0x2f, 0x00,
    0x9a, 0x15, 0xf5, 0x71, 0x29, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

/// A folder with the images that the indexes of the corpus name, which goes away with the process.
class ImageFolder {
 public:
  ImageFolder() {
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
    for (const char* name : {"train/a/1.png", "train/b/2.png", "test/a/3.png"}) {
      const std::filesystem::path file = std::filesystem::path(path_) / name;
      std::filesystem::create_directories(file.parent_path());
      std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(kPng), sizeof kPng);
    }
    for (const char* name : {"x.tar", "y.tar"}) {
      dat::TarWriter tar(path_ + "/" + name);
      tar.add("train/a/1.png", kPng);
      tar.add("train/b/2.png", kPng);
      tar.close();
    }
  }
  ~ImageFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ImageFolder(const ImageFolder&) = delete;
  ImageFolder& operator=(const ImageFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "dat-fuzz-XXXXXX").string();
};

}  // namespace

void dat::fuzz::image_index(Bytes bytes) {
  static const ImageFolder folder;
  const std::string index = folder.path() + "/index.h5";
  std::ofstream(index, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  for (const char* split : {"train", "test"})
    answered([&] {
      const auto set = open_dataset({index}, split, 0, {.size = 4});
      std::vector<std::uint8_t> image(set->info().image_bytes());
      if (set->size() > std::ssize(bytes)) std::abort();
      for (std::int64_t k = 0; k < set->size(); ++k) {
        if (set->label(k) >= set->info().classes) std::abort();
        answered([&] { set->read(k, image.data()); });
      }
    });
}
