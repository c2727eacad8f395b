#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dat/aggregator.hpp"
#include "dat/backend.hpp"
#include "dat/codec.hpp"
#include "dat/communicator.hpp"
#include "dat/parameters.hpp"
#include "dat/registry.hpp"
#include "dat/transport_names.hpp"
#include "reduce/transport/parts_watch.hpp"

namespace dat {

/// One of the pieces into which the gradients of a step are cut: some segments of the network that travel together.
struct Bucket {
  int number = 0;             ///< number among the step's buckets
  int first = 0, end = 0;     ///< segments; the active ones among them are meant
  std::int64_t elements = 0;  ///< elements of these segments
  int round = 0;              ///< round of its messages, from 0
};

/// Content of a step's messages.
struct StepMessages {
  std::int64_t step = 0;              ///< its number in the training
  std::span<const Bucket> buckets;    ///< buckets with the same segments, in the same order, on all ranks
  const ActiveSet& any;               ///< layers of the result
  std::span<const ActiveSet> layers;  ///< layers of each rank's message, where it is separate; all others have `any`
};

/// Combination of the messages of all ranks to one gradient. A transport owns the layout of the messages, their memory,
/// the calls of MPI, and the way from what these bring to the result. Its buckets come from outside, which says when:
/// of each bucket and in each round encode(), give() and take() are called once, in this order. All ranks give their
/// buckets in the same order. A step allocates nothing, and waits for nothing but for blocking calls of MPI.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Takes the memory for messages, once, before the first begin(). A transport that is asked for nothing but its
  /// layout takes none.
  virtual void reserve() = 0;
  /// Number of messages of each bucket in a step.
  [[nodiscard]] virtual int rounds() const { return 1; }
  /// Lays out the messages of a step, and returns the bytes that this rank gives to MPI for others.
  [[nodiscard]] virtual std::int64_t begin(const StepMessages& step) = 0;
  /// Queues the writing of this rank's message of the bucket. The ticket arrives when MPI may read it.
  [[nodiscard]] virtual Backend::Ticket encode(const Bucket& bucket) = 0;
  /// Gives the message to MPI, which has brought what others have by the time that the request is done. The requests of
  /// a round are waited for in the order in which they were made.
  [[nodiscard]] virtual Request give(const Bucket& bucket) = 0;
  /// Queues what is made of what MPI has brought; in the last round, the bucket's gradients of the result.
  virtual void take(const Bucket& bucket) = 0;
  /// Queues what wants all buckets.
  virtual void finish() {}
  /// [ranks][parameters.size], on the device: where the gradients of the ranks are put together, each by itself; what
  /// a rank's message lacks must be zero there before take(). Null: they are not.
  [[nodiscard]] virtual float* of_ranks() const { return nullptr; }
};

/// Parts and settings of a transport.
struct TransportOptions {
  Backend& backend;
  Communicator& ranks;
  const Parameters& parameters;
  float* gradients;  ///< [parameters.size], on the device: of this rank, and the result
  Codec& codec;
  Aggregator& aggregator;
  std::span<const double> weights{};  ///< weights of the ranks: see Contributions
  bool separate = false;              ///< each rank's message has layers of its own
  std::string node_sums = "auto";     ///< summation of messages: make_sums()
  bool overlap = false;         ///< give() starts the communication and goes on; else it may return when that is done
  PartsWatch* watch = nullptr;  ///< observer of transports that cut gradients into parts; messages are one bucket then
};

/// Traffic of one rank's message on its way to the result, for forecasts.
struct Traffic {
  bool summed = false;     ///< one all-reduce each round of the codec's
  bool exchanged = false;  ///< every rank gets its own part of each rank's message
  int gathered = 0;        ///< all-gather of the message, divided by this number; 0: none
  int encoded_again = 0;   ///< a part of it, divided by this number, is encoded once more; 0: none
  int decoded = 1;         ///< messages that a rank decodes
};

/// A transport as it stands in the registry: what it is before there are ranks and gradients.
struct TransportKind {
  const char* title;                             ///< name in validate
  bool (*takes)(const Codec& codec);             ///< returns whether a codec whose own is another may have it
  bool (*serves)(const Aggregator& aggregator);  ///< returns whether the aggregator sees all that it needs
  bool separate = false;                         ///< true: each rank's message may have layers of its own
  bool cuts = false;                             ///< true: an aggregator sees parts of gradients
  Traffic (*traffic)(int ranks);
  /// Bytes of memory for messages and what is made of them, on the device.
  std::int64_t (*memory)(const Codec& codec, const Parameters& parameters, int ranks);
  /// Bytes that a rank sends in a step, of one segment, if the segment takes part.
  std::int64_t (*sent)(const Codec& codec, const Segment& segment, int ranks);
  std::unique_ptr<Transport> (*make)(const TransportOptions&);
};

/// TransportKind::make of a class.
template <class T>
[[nodiscard]] std::unique_ptr<Transport> made(const TransportOptions& options) {
  return std::make_unique<T>(options);
}

[[nodiscard]] const Registry<TransportKind()>& transports();
/// Transports for the messages of a codec, its own first.
[[nodiscard]] std::vector<std::string> transports_of(const Codec& codec);

}  // namespace dat
