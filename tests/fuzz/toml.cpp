#include "dat/config.hpp"
#include "fuzz/targets.hpp"

void dat::fuzz::toml(Bytes bytes) {
  answered([&] { static_cast<void>(parse_train_options({bytes.begin(), bytes.end()}, "memory")); });
}
