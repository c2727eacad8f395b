#pragma once

#include <cstdint>
#include <string>

namespace dat {

/// How the gradients of all ranks become one. Rows and rules: src/options/train/reduction.cpp.
struct ReductionSettings {
  std::string codec = "float32";         ///< how gradients become messages
  std::string codec_transport = "auto";  ///< auto (the codec's own) | sum | gather | two_sided
  int codec_rank = 0;                    ///< columns of powersgd's factors, atoms of atomo; 0: the codec's own
  double codec_clip = 2.5;               ///< of terngrad, in standard deviations; 0: none
  std::string aggregator = "mean";       ///< how the gradients of all ranks become one
  int faults = -1;                       ///< ranks that may bring anything; -1: as many as the aggregator is made for
  bool aggregator_mixing = false;        ///< nearest-neighbour mixing before
  double aggregator_tau = 0;             ///< of centered_clip; 0: from the distances of a step
  bool byzantine = false;                ///< ranks that bring false gradients are found out and banned (BTARD)
  int validators = 1;                    ///< ranks that do others' work once more in a step, with byzantine
  int aggregator_iterations = 2000;      ///< most of centered_clip and geometric_median
  std::string mask_transport = "union";  ///< of masks per worker: dense | union | allgather
  bool overlap = false;                  ///< send gradients while the backward pass runs
  std::int64_t bucket = 0;               ///< elements of one message; 0: 2^19 with overlap, else 2^23

  friend bool operator==(const ReductionSettings&, const ReductionSettings&) = default;
};

}  // namespace dat
