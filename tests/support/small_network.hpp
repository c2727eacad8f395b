#pragma once

#include "catch.hpp"
#include "dat/loader.hpp"
#include "dat/program.hpp"
#include "random_values.hpp"

namespace dat::test {

/// small_cnn of width 16 with its initial values, for images [3][size][size] of 10 classes.
struct SmallNetwork : Model {
  SmallNetwork(Backend& of, int size)
      : Model(of, networks().at("small_cnn")({.width = 16, .size = size, .channels = 3, .classes = 10}),
              Granularity::tensor) {
    initialize(1);
  }
};

/// Images of these labels that nobody has augmented, with `bytes` random bytes each: numbers from `first` on.
[[nodiscard]] inline HostBatch host_batch(const std::vector<std::int32_t>& labels, std::int64_t bytes,
                                          std::int64_t first = 0) {
  HostBatch batch;
  batch.count = static_cast<int>(labels.size());
  batch.labels = labels;
  batch.crops.resize(labels.size());
  for (std::int64_t id = first; id < first + batch.count; ++id) {
    batch.ids.push_back(id);
    for (const float v : random_values(bytes, 20 + static_cast<std::uint32_t>(id), 0, 256))
      batch.pixels.push_back(static_cast<std::uint8_t>(v));
  }
  return batch;
}

}  // namespace dat::test
