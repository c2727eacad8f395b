#include "fuzz/all_arrays.hpp"

void dat::fuzz::npy(Bytes bytes) {
  const Memory source(bytes);
  answered([&] { read_array(open_npy(source)); });
}
