#include "fuzz/targets.hpp"
#include "interop/state_dict.hpp"

void dat::fuzz::safetensors(Bytes bytes) {
  const test::MemoryBytes source = memory(bytes);
  answered([&] {
    const StateDict state = read_safetensors(source);
    const auto& make = networks().at("small_cnn");
    const NetworkOptions sizes = sizes_of(make, state, {.width = 2, .size = 8});
    for (const bool new_head : {false, true})
      answered([&] {
        static_cast<void>(fitted(make(sizes), state, {.file = "memory", .network = "small_cnn", .new_head = new_head}));
      });
  });
}
