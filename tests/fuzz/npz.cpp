#include "fuzz/all_arrays.hpp"

void dat::fuzz::npz(Bytes bytes) {
  const Memory source(bytes);
  answered([&] { read_file(source, *open_npz(source)); });
}
