#include "fuzz/all_arrays.hpp"

void dat::fuzz::mat(Bytes bytes) {
  const test::MemoryBytes source = memory(bytes);
  answered([&] {
    const auto file = open_mat(source);
    for (const std::string& name : file->names()) answered([&] { read_array(file->array(name)); });
  });
}
