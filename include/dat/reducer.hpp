#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dat/aggregator.hpp"
#include "dat/backend.hpp"
#include "dat/codec.hpp"
#include "dat/communicator.hpp"
#include "dat/device_state.hpp"
#include "dat/parameters.hpp"

namespace dat {

class PartsWatch;

/// Uses of a step's time while the reducer has its part in it; `outside`: what the caller does in between; `aside`:
/// work that is done only in a simulation, and belongs to no step.
enum class ReducerStage : std::uint8_t { outside, encode, communicate, decode, aside };

/// Gradients of a message, where nobody has chosen. Messages of 4 MB are as fast as one of all gradients, and one is on
/// its way while another is added up (docs/performance.md, "Sums on a node"). Beside other work a message leaves as
/// soon as it is complete; the last one, at least, is exposed. 2 MB take 18 ms at 1 Gbit/s and 0.2 ms at 100 Gbit/s,
/// far above the microseconds that a message costs by itself. It is a number and no measurement, because the order of a
/// sum over more than two ranks depends on it.
[[nodiscard]] constexpr std::int64_t default_bucket(bool overlap) { return overlap ? 1 << 19 : 1 << 20; }

struct ReducerOptions {
  std::int64_t bucket_elements =
      default_bucket(false);  ///< gradients of one message, which goes as soon as it is complete
  bool overlap = false;       ///< start a message during the backward pass, as soon as it is complete
  /// Combination of the gradients of ranks that have them for different layers. Empty: all have the same layers.
  ///   dense      messages of all layers; a rank sends zeros for those that it has not drawn
  ///   union      the same of those layers only that any rank has drawn
  ///   allgather  each rank sends its own layers to all, and every rank adds them up in the order of the ranks
  std::string mask_transport{};
  /// Combination of messages: auto, or a transport (src/reduce/transport/). auto: the codec's default; where that does
  /// not serve the aggregator, or the masks meet by allgather, one that does: gather.
  std::string codec_transport = "auto";
  /// Summation of messages: auto, or one of node_sums_names().
  std::string node_sums = "auto";
  /// Weight of each rank's gradient (Contributions::weights). Empty: all alike, as always with transports other than
  /// gather.
  std::vector<double> weights{};
  /// Looks on where gradients go by parts, which is by butterfly then, in one bucket. Null: nobody.
  PartsWatch* watch = nullptr;
  /// Called when a stage has queued its last work. A stage lasts from the previous call to this one.
  std::function<void(ReducerStage)> ended = [](ReducerStage) {};
};

/// Makes one gradient of the gradients of all ranks, for the layers that take part in a step. A rank computes its part
/// in units of work, each of which has a place for its gradient; segments are announced as they are finished.
class Reducer {
 public:
  virtual ~Reducer() = default;

  /// Begins the reduction of a step, `step` being its number in the training. layers: those whose gradients the ranks
  /// have, one set for all, or one of each rank. To be called before the step's first place().
  virtual void begin(std::span<const ActiveSet> layers, std::int64_t step) = 0;
  /// Place where the gradient of this rank's unit number `unit` is to be put together: a flat block [parameters.size]
  /// on the device, of which nothing counts so far. Units come in order; asking for the same one again gives the same
  /// place.
  [[nodiscard]] virtual float* place(int unit) = 0;
  /// Says that the gradient of this one of `parameters.segments` is complete in the rank's last unit.
  virtual void ready(int segment) = 0;
  /// Once all units are complete: the blocks [parameters.size] on the device that this rank brings, until finish().
  [[nodiscard]] virtual std::span<float* const> own() = 0;
  /// Waits for everything and leaves the result in the gradients. **Collective.**
  virtual void finish() = 0;

  [[nodiscard]] virtual std::int64_t elements() const = 0;  ///< elements of this rank's layers in this step
  /// Bytes that this rank has given to MPI for others in this step; of a sum, the message. One rank sends nothing.
  [[nodiscard]] virtual std::int64_t bytes_sent() const = 0;
  [[nodiscard]] virtual std::string transport() const = 0;  ///< its name in the registry
  /// bytes_sent() of a step where there are so many ranks, in the mean over draws of layers with these probabilities.
  [[nodiscard]] virtual double bytes_sent(const std::vector<double>& probabilities, int ranks) const = 0;
  /// Memory for messages and what is made of them, where there are so many ranks.
  [[nodiscard]] virtual std::int64_t memory(int ranks) const = 0;
  /// Bytes of these messages, of the rank that has most, that are added up as ReducerOptions::node_sums says.
  [[nodiscard]] virtual std::int64_t added_up(int ranks) const = 0;
  /// Seconds in which any message of this step was under way beside other work; after finish().
  [[nodiscard]] virtual double seconds_under_way() const { return 0; }
  struct State : DeviceState {
    std::string of;  ///< codec | aggregator
  };
  /// State that codec and aggregator remember from step to step.
  [[nodiscard]] virtual std::vector<State> state() const { return {}; }
};

/// Makes the reducer of a codec, an aggregator and the transport that the options name. gradients: a flat block
/// [parameters.size] on the device, which the backward passes fill, and where the result appears. Error(usage): no such
/// transport; one that the codec or the aggregator does not allow; or masks per worker with an aggregator that is not
/// the mean, the only one that does not take zeros for gradients.
[[nodiscard]] std::unique_ptr<Reducer> make_reducer(Backend&, Communicator& ranks, const Parameters& parameters,
                                                    float* gradients, std::unique_ptr<Codec>,
                                                    std::unique_ptr<Aggregator>, const ReducerOptions&);

}  // namespace dat
