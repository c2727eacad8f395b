#include "fuzz/all_arrays.hpp"

void dat::fuzz::npy(Bytes bytes) {
  const test::MemoryBytes source = memory(bytes);
  answered([&] { read_array(open_npy(source)); });
}
