#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dat/device_state.hpp"
#include "dat/parameters.hpp"
#include "dat/registry.hpp"

namespace dat {

class Backend;

/// Most ranks of an aggregator that is not the mean.
constexpr int kMostRanks = 64;

/// centered_clip: a step of its iteration that is no longer than this is the last one.
constexpr double kClipAtRest = 1e-6;

/// tau of centered_clip where none is given, for the distances [n] of the gradients from the result, and their weights
/// [n]: the shortest distance within which more than half of the weight lies, and more than half of the gradients whose
/// weight is not 0.
[[nodiscard]] double clip_length(std::span<const double> distances, std::span<const double> weights);

/// Fields are called like the options of the command line, whose structs inherit them.
struct AggregatorSettings {
  double aggregator_tau = 0;  ///< centered_clip: the longest that a rank's difference counts with; 0: clip_length()
  int aggregator_iterations = 2000;  ///< centered_clip, geometric_median: most iterations
  /// Each gradient is replaced by the mean of its n - f nearest ones, itself among them, before.
  bool aggregator_mixing = false;

  friend bool operator==(const AggregatorSettings&, const AggregatorSettings&) = default;
};

struct AggregatorOptions {
  int ranks = 1;   ///< number of ranks whose gradients become one
  int faults = 0;  ///< f: ranks that may bring anything, as faults_of() says
  AggregatorSettings settings{};
};

/// Gradients that the ranks have brought, and the place of the one that is to be made of them. All are on the device,
/// and the gradients of all ranks and the result are laid out alike: as the gradients of the network are, or as a
/// transport says by the chunks, of which an aggregator sees a part at a time.
struct Contributions {
  Chunks chunks;                     ///< the elements that count; what else is in the blocks is undefined
  const float* gradients = nullptr;  ///< rank r's begin at gradients + r * stride
  std::int64_t stride = 0;
  std::int64_t step = 0;    ///< step of the training
  float* result = nullptr;  ///< result of the aggregation; elements outside `chunks` are left alone; overlaps with no
                            ///< rank's gradients
  /// [ranks], on the host: how much each rank's gradient counts in a mean; 0: it does not count at all, whatever is in
  /// its place. Empty: each counts 1.
  std::span<const double> weights{};
};

/// A rule by which the gradients of all ranks become one gradient. Every rank computes it for itself from the same
/// bits, and must find the same: a result depends on nothing but the gradients, their weights and order, the step's
/// number, what is remembered and the options.
///
/// All but the mean see n gradients, f of which may be anything. n counts the ranks whose weight is not 0 and whose
/// gradient is finite; where more than f of weight above 0 are not finite, the result is NaN throughout, and otherwise
/// nothing of them reaches it. f is what the options say, but less than half of n.
class Aggregator {
 public:
  virtual ~Aggregator() = default;

  /// Returns whether the result is the mean. Then messages are added up by MPI where the codec's can be, and
  /// aggregate() sees only those of codecs whose messages cannot.
  [[nodiscard]] virtual bool is_mean() const { return false; }
  /// Returns whether the result of a single rank is that rank's gradient, bit for bit, and nothing is remembered.
  [[nodiscard]] virtual bool keeps_one() const = 0;

  /// Returns whether it serves its purpose on a part of the gradients alone; otherwise it needs whole gradients, whose
  /// distances it measures.
  [[nodiscard]] virtual bool by_parts() const { return false; }

  /// Makes the result: queues the work for it on the device. Allocates nothing. May wait for the device, for sums that
  /// the host decides by.
  virtual void aggregate(const Contributions& all) = 0;
  /// Returns whether the last result is where an iteration was cut off, before it came to rest.
  [[nodiscard]] virtual bool unfinished() const { return false; }
  /// Memory on the device beside the gradients, where there are so many ranks.
  [[nodiscard]] virtual std::int64_t memory(int /*ranks*/) const { return 0; }

  using State = DeviceState;
  /// State that is remembered from step to step, such as the result of the last one.
  [[nodiscard]] virtual std::vector<State> state() const { return {}; }
};

[[nodiscard]] const Registry<std::unique_ptr<Aggregator>(Backend&, const Parameters&, const AggregatorOptions&)>&
aggregators();

/// Conditions under which a run with this aggregator repeats bit for bit (--deterministic).
enum class Repeats : std::uint8_t {
  at_any_ranks,   ///< a sum over micro-batches is all that it wants, which has an order at any number of ranks
  at_equal_ranks  ///< the number of ranks must be equal: it looks at what each rank has brought
};
/// Error(usage): no such aggregator.
[[nodiscard]] Repeats repeats(const std::string& aggregator);

/// The ranks that may be at fault where `ranks` bring gradients. asked: so many; below 0: the most that the aggregator
/// is made for, (ranks - 3) / 2 with krum and multi_krum, else (ranks - 1) / 2; none with the mean. Error(usage): half
/// of the ranks or more, or more ranks than the aggregator takes.
[[nodiscard]] int faults_of(const std::string& aggregator, int asked, int ranks);
/// Warning for an aggregator that is asked to withstand more than it is made for; empty: there is nothing to say.
[[nodiscard]] std::string fault_warning(const std::string& aggregator, int asked, int ranks);

}  // namespace dat
