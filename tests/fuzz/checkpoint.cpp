#include <memory>

#include "checkpoint/checkpoint_file.hpp"
#include "dat/config.hpp"
#include "fuzz/targets.hpp"

void dat::fuzz::checkpoint(Bytes bytes) {
  answered([&] {
    const Hdf5Reader file(std::make_unique<test::MemoryBytes>(memory(bytes)), ExitCode::checkpoint);
    answered([&] { static_cast<void>(read_weights(file)); });
    const Checkpoint checkpoint = read_checkpoint(file);
    if (const auto toml = checkpoint.texts.find("config_toml"); toml != checkpoint.texts.end())
      static_cast<void>(parse_train_options(toml->second, "memory"));
  });
}
