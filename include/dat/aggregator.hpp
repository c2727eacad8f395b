#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dat/device_state.hpp"
#include "dat/parameters.hpp"
#include "dat/registry.hpp"

namespace dat {

class Backend;

struct AggregatorOptions {
  int ranks = 1;  ///< whose gradients become one
};

/// What the ranks have brought, and where one gradient is to be made of it. All on the device, and the gradients of all
/// ranks and the result laid out alike: as the gradients of the network are, or as a transport says by the chunks, of
/// which an aggregator sees a part at a time.
struct Contributions {
  Chunks chunks;                     ///< the elements that count; what else is in the blocks is undefined
  const float* gradients = nullptr;  ///< rank r's begin at gradients + r * stride
  std::int64_t stride = 0;
  std::int64_t step = 0;    ///< of the training
  float* result = nullptr;  ///< what does not belong to `chunks` is to be left alone
};

/// How the gradients of all ranks become one gradient. Every rank computes it for itself from the same bits, and must
/// find the same: a result depends on nothing but the gradients, their order, the step's number, what is remembered and
/// the options.
class Aggregator {
 public:
  virtual ~Aggregator() = default;

  /// Whether the result is the mean. Then messages are added up by MPI where the codec's can be, and aggregate() sees
  /// only those of codecs whose messages cannot.
  [[nodiscard]] virtual bool is_mean() const { return false; }
  /// Whether the result of a single rank is that rank's gradient, bit for bit, and nothing is remembered.
  [[nodiscard]] virtual bool keeps_one() const = 0;

  /// Makes the result. Allocates nothing, and queues its work on the device.
  virtual void aggregate(const Contributions& all) = 0;

  using State = DeviceState;
  /// What is remembered from step to step, such as the result of the last one.
  [[nodiscard]] virtual std::vector<State> state() const { return {}; }
};

[[nodiscard]] const Registry<std::unique_ptr<Aggregator>(Backend&, const Parameters&, const AggregatorOptions&)>&
aggregators();

/// When a run with this aggregator can be repeated bit for bit (--deterministic).
enum class Repeats : std::uint8_t {
  at_any_ranks,   ///< a sum over micro-batches is all that it wants, which has an order at any number of ranks
  at_equal_ranks  ///< it looks at what each rank has brought
};
/// Error(usage): no such aggregator.
[[nodiscard]] Repeats repeats(const std::string& aggregator);

}  // namespace dat
