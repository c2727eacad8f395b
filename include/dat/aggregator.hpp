#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dat/parameters.hpp"
#include "dat/registry.hpp"

namespace dat {

class Backend;

struct AggregatorOptions {
  int ranks = 1;  ///< whose gradients become one
};

/// How the gradients of all ranks become one gradient. Every rank computes it for itself from the same bits, and must
/// find the same: a result depends on nothing but the gradients, their order and the options.
class Aggregator {
 public:
  virtual ~Aggregator() = default;

  /// Whether the result is the mean. Then messages are added up by MPI where the codec's can be, and aggregate() sees
  /// only those of codecs whose messages cannot.
  [[nodiscard]] virtual bool is_mean() const { return false; }
  /// Whether the result of a single rank is that rank's gradient, bit for bit.
  [[nodiscard]] virtual bool keeps_one() const = 0;

  /// Sets the elements of `chunks` in `result` from those of every rank: rank r's are at gradients + r * stride. Both
  /// are flat blocks as the gradients of the network are, on the device; what does not belong to `chunks` is undefined
  /// in `gradients` and is left alone in `result`. Allocates nothing.
  virtual void aggregate(const Chunks& chunks, const float* gradients, std::int64_t stride, float* result) = 0;

  /// The ranks that the last call of aggregate() holds guilty of false gradients, in rising order; on all ranks the
  /// same.
  [[nodiscard]] virtual std::vector<int> accused() const { return {}; }
};

[[nodiscard]] const Registry<std::unique_ptr<Aggregator>(Backend&, const Parameters&, const AggregatorOptions&)>&
aggregators();

}  // namespace dat
