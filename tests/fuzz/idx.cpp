#include "fuzz/all_arrays.hpp"

void dat::fuzz::idx(Bytes bytes) {
  const test::MemoryBytes source = memory(bytes);
  answered([&] { read_array(open_idx(source)); });
}
