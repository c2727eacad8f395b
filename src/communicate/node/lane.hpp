#pragma once

#include <cstdint>
#include <vector>

#include "dat/communicator.hpp"

namespace dat {

/// The node of each rank of the group, by a number of its own: as MPI and the names of hosts say. Empty where these do
/// not agree. **Collective.**
[[nodiscard]] std::vector<int> nodes_of(Communicator& ranks);

/// Sums over ranks of different nodes, one of each, which an errand makes: with the turn that it has, and unknown to
/// the hang watch, which sees the errand. Numbers are added up in an order of MPI's; the sum has equal bits on all
/// ranks, as MPI recommends it.
class Lane {
 public:
  static constexpr std::int64_t kLongest = 1 << 28;  ///< most numbers of a sum

  /// members: the ranks of `ranks` that take part, this one among them. sums: most that are under way. Callers stand in
  /// ranks.meet(), the others as well: nothing here is known to the hang watch.
  /// **Collective** over the members. Error(communication).
  Lane(Communicator& ranks, const std::vector<int>& members, int sums);
  ~Lane();  ///< **collective** over the members, but where it is busy
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Starts adding up `data` [count] over the members, in place. All start the same sums in the same order. `sum`: one
  /// of the places of sums that is free, until done() has said yes. An error of MPI is kept.
  void start(int sum, float* data, std::int64_t count);
  /// Gives MPI the chance to move on what is under way; false also after an error.
  [[nodiscard]] bool done(int sum);
  /// Returns whether a sum is under way, or has ended with an error.
  [[nodiscard]] bool busy() const;
  /// Error(communication): the error that was kept.
  void check() const;

 private:
  void keep(int status, const char* call);

  MPI_Comm members_ = MPI_COMM_NULL;
  std::vector<MPI_Request> requests_;  ///< [sums]
  int status_ = MPI_SUCCESS;
  const char* call_ = "";
};

}  // namespace dat
