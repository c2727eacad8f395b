#include "fuzz/targets.hpp"
#include "interop/state_dict.hpp"

void dat::fuzz::safetensors(Bytes bytes) {
  const Memory source(bytes);
  answered([&] {
    StateDict state = read_safetensors(source);
    const auto& make = networks().at("small_cnn");
    const NetworkOptions sizes = sizes_of(make, state, {.width = 2, .size = 8});
    static_cast<void>(fitted(make(sizes), std::move(state), {.file = "memory", .network = "small_cnn"}));
  });
}
