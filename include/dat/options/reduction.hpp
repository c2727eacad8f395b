#pragma once

#include <cstdint>
#include <string>

#include "dat/aggregator.hpp"
#include "dat/codec.hpp"

namespace dat {

/// Reduction of the gradients of all ranks to one. Rows and rules: src/options/train/reduction.cpp.
struct ReductionSettings : CodecSettings, AggregatorSettings {
  std::string codec = "float32";         ///< codec of the gradients' messages
  std::string codec_transport = "auto";  ///< auto (the codec's own) | one of transport_names()
  std::string node_sums = "auto";        ///< summation of messages: auto | one of node_sums_names()
  std::string aggregator = "mean";       ///< rule by which the gradients of all ranks become one
  int faults = -1;                       ///< ranks that may bring anything; -1: as many as the aggregator is made for
  bool byzantine = false;                ///< ranks that bring false gradients are found out and banned (BTARD)
  int validators = 1;                    ///< ranks that do others' work once more in a step, with byzantine
  std::string mask_transport = "union";  ///< combination of masks per worker: dense | union | allgather
  bool overlap = false;                  ///< send gradients while the backward pass runs
  std::int64_t bucket = 0;               ///< elements of one message; 0: 2^19 with overlap, else 2^20

  friend bool operator==(const ReductionSettings&, const ReductionSettings&) = default;
};

}  // namespace dat
