#include "fuzz/all_arrays.hpp"

void dat::fuzz::npz(Bytes bytes) {
  const test::MemoryBytes source = memory(bytes);
  answered([&] { read_file(source, *open_npz(source)); });
}
