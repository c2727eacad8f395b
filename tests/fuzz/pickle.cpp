#include "fuzz/all_arrays.hpp"

void dat::fuzz::pickle(Bytes bytes) {
  const Memory source(bytes);
  answered([&] { read_file(source, *open_pickle(source)); });
}
