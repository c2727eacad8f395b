#include "fuzz/all_arrays.hpp"

void dat::fuzz::idx(Bytes bytes) {
  const Memory source(bytes);
  answered([&] { read_array(open_idx(source)); });
}
