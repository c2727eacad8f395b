#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "dat/error.hpp"
#include "memory_bytes.hpp"

/// Everything that reads bytes from outside, each as a function of some bytes: it returns, whatever they are. A target
/// is one file in tests/fuzz, a declaration and a line here, and a folder in tests/fuzz/corpus. They are run on the
/// corpus and on mutants of it by dat_tests (test_fuzz.cpp), and by libFuzzer (DAT_FUZZ, nightly.sh).
namespace dat::fuzz {

using Bytes = std::span<const std::uint8_t>;

void toml(Bytes bytes);         ///< a configuration file
void options(Bytes bytes);      ///< a command line, an argument a line
void records(Bytes bytes);      ///< CIFAR's; the first two bytes are image size and label bytes
void npz(Bytes bytes);          ///< images and labels of NumPy
void npy(Bytes bytes);          ///< one array
void mat(Bytes bytes);          ///< MATLAB's arrays
void idx(Bytes bytes);          ///< one array of MNIST's, packed or not
void pickle(Bytes bytes);       ///< images and labels
void checkpoint(Bytes bytes);   ///< after the seal
void data_file(Bytes bytes);    ///< the same
void image(Bytes bytes);        ///< a JPEG or PNG file
void tar(Bytes bytes);          ///< an archive, and the images in it
void image_index(Bytes bytes);  ///< beside the images that it names
void safetensors(Bytes bytes);  ///< weights, and what a network makes of their names

struct Target {
  const char* name;
  void (*run)(Bytes bytes);
};
inline constexpr Target kTargets[] = {{"toml", toml},
                                      {"options", options},
                                      {"records", records},
                                      {"npz", npz},
                                      {"npy", npy},
                                      {"idx", idx},
                                      {"mat", mat},
                                      {"pickle", pickle},
                                      {"checkpoint", checkpoint},
                                      {"data_file", data_file},
                                      {"image", image},
                                      {"tar", tar},
                                      {"image_index", image_index},
                                      {"safetensors", safetensors}};

/// Bytes in memory as a file.
[[nodiscard]] inline test::MemoryBytes memory(Bytes bytes) { return test::MemoryBytes({bytes.begin(), bytes.end()}); }

/// An Error is an answer; anything else is a finding.
template <class Read>
void answered(const Read& read) {
  try {
    read();
  } catch (const Error&) {
  }
}

}  // namespace dat::fuzz
