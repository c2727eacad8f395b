#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "dat/backend.hpp"
#include "dat/communicator.hpp"
#include "dat/node_sums.hpp"
#include "dat/registry.hpp"
#include "reduce/sums/summation_tree.hpp"

namespace dat {

/// Summation of messages: rows of floats of all ranks, in memory that is theirs, which become their sum part by part.
/// Calls for a part come in the order fetch(), start(), send(), once; all ranks start the same parts in the same order.
/// Steps allocate nothing.
class NodeSums {
 public:
  virtual ~NodeSums() = default;

  /// Place of this rank's row number `row`, from byte `at` on, and of the sum in row 0 when the last part has come
  /// back; on the device.
  [[nodiscard]] virtual std::byte* device(int row, std::int64_t at) = 0;
  /// Queues the way of a part of each of this rank's rows to where it is added up. The ticket arrives at its end.
  [[nodiscard]] virtual Backend::Ticket fetch(std::int64_t at, std::int64_t bytes) = 0;
  /// Starts adding up `count` floats, or the numbers in as many bytes, of all rows, once the ticket has arrived; may
  /// return when that is done. The sum takes the place of row 0, and the other rows are lost. The requests may be
  /// waited for, and tested, in the order of the calls only.
  [[nodiscard]] virtual Request start(std::int64_t at, std::int64_t count) = 0;
  /// Queues the return of a part of the sum.
  virtual void send(std::int64_t at, std::int64_t bytes) = 0;
};

/// Settings of sums.
struct SumOptions {
  Backend& backend;
  Communicator& ranks;
  /// Tree that gives the order, with a row for each partial sum of a rank (SummationTree::nodes). Null: each rank has
  /// one row, and the order is the ring's: of `count` numbers, cut into a run for each rank, of which the first ones
  /// have one more where they are not equal, run k is added up from rank k - 1 over k, k + 1, ... round to k - 2.
  const SummationTree* tree = nullptr;
  DType type = DType::f32;   ///< type of the numbers; another one is NCCL's alone
  std::int64_t bytes = 0;    ///< bytes of a row
  std::int64_t longest = 0;  ///< most numbers of a part
  int parts = 1;             ///< most that are under way
  bool overlap = false;      ///< start() returns at once, and other work goes on
  /// Number of this rank's node, equal to those of the ranks that it shares memory with. Empty: as the machine is.
  std::optional<int> node{};

  /// Rows of this rank.
  [[nodiscard]] int rows() const { return tree == nullptr ? 1 : static_cast<int>(tree->nodes(ranks.rank()).size()); }
};

/// Sums as they stand in the registry.
struct SumKind {
  const char* title;  ///< name in validate
  /// Takes the memory. Null: they cannot be had, as `why` says, alike on all ranks; empty: there is nothing to be
  /// gained by them, and nothing wrong. **Collective.**
  std::unique_ptr<NodeSums> (*make)(const SumOptions&, std::string& why);
};

[[nodiscard]] const Registry<SumKind()>& sums();

/// Makes the sums of this name. auto: the first ones in the registry that can be had; rank 0 says, once, what another
/// one lacks. Else, Error(communication): they cannot be had; where there is nothing to be gained, MPI's are taken.
/// **Collective.**
[[nodiscard]] std::unique_ptr<NodeSums> make_sums(const std::string& name, const SumOptions&);

}  // namespace dat
