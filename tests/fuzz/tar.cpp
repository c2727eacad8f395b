#include "data/images/tar.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "data/images/members.hpp"
#include "fuzz/targets.hpp"

void dat::fuzz::tar(Bytes bytes) {
  answered([&] {
    for_each_in_tar(memory(bytes), [&](const TarEntry& entry) {
      if (entry.offset < 0 || entry.bytes < -1 || entry.offset + entry.bytes > std::ssize(bytes)) std::abort();
    });
  });
  const int file = memfd_create("images.tar", MFD_CLOEXEC);
  if (file < 0 || write(file, bytes.data(), bytes.size()) != std::ssize(bytes)) std::abort();
  answered([&] {
    const Members members = members_of("/proc/self/fd/" + std::to_string(file));
    for (const Member& one : members.all) {
      if (one.offset < 0 || one.bytes < -1 || one.offset + one.bytes > std::ssize(bytes)) std::abort();
      if (one.label < 0 || one.label >= std::ssize(members.class_names)) std::abort();
    }
  });
  close(file);
}
