#include "fuzz/all_arrays.hpp"

void dat::fuzz::pickle(Bytes bytes) {
  const test::MemoryBytes source = memory(bytes);
  answered([&] { read_file(source, *open_pickle(source)); });
}
