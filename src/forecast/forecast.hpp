#pragma once

#include <optional>
#include <string>
#include <vector>

#include "forecast/calibration.hpp"

namespace dat {

/// Algorithm of a sum over the ranks.
///   ring  2 (p - 1) messages of n/p bytes to the neighbour: 2 (p - 1) latency + 2 (p - 1)/p n/bandwidth
///         + (p - 1)/p n/reduction
///   tree  recursive halving, then recursive doubling, partners at distance 1, 2, 4 ..: 2 lg p latency
///         + 2 (p - 1)/p n/bandwidth + (p - 1)/p n/reduction. Where the number of ranks is no power of two, those
///         above it first send everything to a neighbour, and at the end get everything from it.
/// Costs as Thakur, Rabenseifner and Gropp give them (Optimization of Collective Communication Operations in MPICH,
/// 2005); MPICH's allreduce.c states the latter.
enum class SumAlgorithm : std::uint8_t { ring, tree };

/// The ranks of a launch, in blocks of `ranks_per_node` on nodes that have one link each to all others.
struct Cluster {
  int ranks = 1, ranks_per_node = 1;
  Link between{}, within{};
  std::optional<Link> window{};  ///< gradients are added up in memory that a node shares, as Calibration has it
  double reduction = std::numeric_limits<double>::infinity();  ///< bytes a second that a rank adds up
  SumAlgorithm algorithm = SumAlgorithm::ring;
};

/// Seconds until all ranks have the sum of their `bytes`. With several ranks on a node and several nodes: each step of
/// a ring takes as long as on its slowest link, an upper bound; in a tree the ranks of a node share the node's link.
[[nodiscard]] double seconds_of_sum(const Cluster& cluster, double bytes);
/// Seconds until all ranks have the sum of gradients: where ranks share a node, and it is known how long sums take in
/// its memory, these, and then a sum over the nodes, in which each has one rank: together, the ranks of a node send
/// what one would.
[[nodiscard]] double seconds_of_gradients(const Cluster& cluster, double bytes);
/// Seconds until all ranks have the `bytes` of every rank, passed on in a ring.
[[nodiscard]] double seconds_of_gather(const Cluster& cluster, double bytes);
/// Seconds until each rank has the part that is for it of every rank's `bytes`: one partner after the other.
[[nodiscard]] double seconds_of_exchange(const Cluster& cluster, double bytes);

/// Choices of a training run.
struct StepChoice {
  std::string codec = "float32";
  std::vector<double> probabilities{};     ///< [layers] of taking part in a step; empty: all do
  std::int64_t bucket_elements = 8 << 20;  ///< gradients of a message
  bool overlap = false;                    ///< a message leaves when its layers are done
  int stale_attack = 0;                    ///< iterations of the next attack that run while the sum is under way
  double jitter = 0;                       ///< standard deviation of a rank's computing time, as a part of it
};

/// Seconds of a step, which add up to seconds().
struct StepForecast {
  double data = 0, attack = 0, forward = 0, backward = 0, encode = 0;
  double exposed = 0;     ///< communication that nothing covers, the second message of the step included
  double straggling = 0;  ///< seconds that the last of the ranks computes longer than the others in the mean
  double decode = 0, select = 0, update = 0;

  double hidden = 0;  ///< communication beside the backward pass, or beside the next attack; no part of the sum
  double bytes = 0;   ///< bytes of a rank's gradient message, as MPI gets it

  [[nodiscard]] double seconds() const {
    return data + attack + forward + backward + encode + exposed + straggling + decode + select + update;
  }
};

/// The mean step. Buckets leave one after the other, each when its layers are done; layers that are drawn with
/// probability p count as p of a layer, in bytes and in seconds, which is exact without overlap and a lower bound of
/// the mean with it. Jitter delays the whole step by the delay of the slowest rank.
[[nodiscard]] StepForecast forecast_step(const Calibration& calibration, const Cluster& cluster,
                                         const StepChoice& choice);

/// Probabilities [layers] of a budget, in layers: all alike, p = budget / layers. In bytes: the sum of bytes * p is
/// `budget` mean layers' bytes, p = clip(c / sqrt(bytes), p_min, 1), the least variance where all gradients have the
/// same norm. Error(usage): the budget is not within what p_min and the number of layers allow.
[[nodiscard]] std::vector<double> budget_in_layers(const Calibration& calibration, double budget);
[[nodiscard]] std::vector<double> budget_in_bytes(const Calibration& calibration, double budget, double p_min);

/// The mean of the largest of so many independent standard normal numbers.
[[nodiscard]] double expected_maximum(int count);

/// Seconds against bytes, as a line. The line has the least sum of squared relative errors: small messages count as
/// much as large ones.
struct Line {
  double intercept = 0, slope = 0;
};
[[nodiscard]] Line fit_line(const std::vector<double>& x, const std::vector<double>& y);

/// Fits the rest of the times of sums over `ranks` in a ring beside the link: a larger latency where sums have one, and
/// the rate at which ranks add up, which is all that a sum takes longer than its bytes do on the link. Where it takes
/// less, the link is faster. `sum`: seconds against bytes.
void explain_sums(const Line& sum, int ranks, Link& link, double& reduction);

/// Bytes a second of a network: "1gbit" or "100mbit", a line rate of Ethernet, of which TCP leaves 1448 of 1538 bytes
/// (full frames: 1448 of data, 90 of headers, preamble and gap); "117MB/s" or "1.2GB/s", what arrives. Error(usage).
[[nodiscard]] double bandwidth_from(const std::string& word);

}  // namespace dat
