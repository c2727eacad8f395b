#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "dat/dataset.hpp"
#include "fuzz/targets.hpp"

void dat::fuzz::data_file(Bytes bytes) {
  const int file = memfd_create("data.h5", MFD_CLOEXEC);
  if (file < 0 || write(file, bytes.data(), bytes.size()) != std::ssize(bytes)) std::abort();
  for (const char* split : {"train", "test"})
    answered([&] {
      const auto set = open_dataset({"/proc/self/fd/" + std::to_string(file)}, split, 0);
      std::vector<std::uint8_t> image(set->info().image_bytes());
      if (static_cast<std::int64_t>(image.size()) > std::ssize(bytes) || set->size() > std::ssize(bytes)) std::abort();
      for (const std::int64_t index : {std::int64_t{0}, set->size() / 2, set->size() - 1}) {
        set->read(index, image.data());
        if (set->label(index) >= set->info().classes) std::abort();
      }
    });
  close(file);
}
