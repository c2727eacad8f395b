#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dat {

/// The ranks of a run. The only door to MPI. All members but the accessors are **collective**.
/// Errors of MPI: Error(communication).
class Communicator {
 public:
  /// Initialises MPI; finalises it when destroyed. One per process.
  [[nodiscard]] static std::unique_ptr<Communicator> world();
  /// One rank, no MPI call at all: tools, benchmarks, unit tests.
  [[nodiscard]] static std::unique_ptr<Communicator> single();
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int node_rank() const { return node_rank_; }  ///< rank among those that share memory with this one
  [[nodiscard]] int node_size() const { return node_size_; }
  [[nodiscard]] bool root() const { return rank_ == 0; }

  void sum(float* data, std::int64_t count);         ///< in place
  void sum(double* data, std::int64_t count);        ///< in place
  void sum(std::int64_t* data, std::int64_t count);  ///< in place
  [[nodiscard]] std::int64_t minimum(std::int64_t value);
  /// Whether all ranks hold the same value.
  [[nodiscard]] bool agree(std::uint64_t value);
  void broadcast(void* data, std::size_t bytes);  ///< from rank 0
  void broadcast(std::string& text);              ///< from rank 0
  /// values of all ranks, in rank order, on rank 0; empty elsewhere. Same count on all ranks.
  [[nodiscard]] std::vector<double> gather(const std::vector<double>& values);
  [[nodiscard]] std::vector<std::string> gather(const std::string& text);
  /// Bytes from every rank to every rank: rank r gets the next `to[r]` bytes of `send`, and its `from[r]` bytes are the
  /// next ones in `receive`. from[r] here is what rank r has as `to` of this rank. Allocates nothing. Less than 2 GiB a
  /// rank and direction.
  void exchange(const void* send, const std::vector<int>& to, void* receive, const std::vector<int>& from);
  void barrier();

  /// Starts an in-place sum that runs while the caller works on. `poll` gives MPI the chance
  /// to move it on; `finish_pending` waits for all.
  void start_sum(float* data, std::int64_t count);
  void poll();
  void finish_pending();

  /// Ends all ranks with this exit code. Not collective. Never returns.
  [[noreturn]] void abort(int exit_code);

  [[nodiscard]] static std::string library_version();
  /// Whether the library reads and writes GPU memory; asked of it, where it can tell.
  [[nodiscard]] bool takes_device_memory() const;

 private:
  explicit Communicator(bool mpi);
  bool mpi_;
  int rank_ = 0, size_ = 1, node_rank_ = 0, node_size_ = 1;
  std::vector<MPI_Request> pending_;
  std::vector<int> send_at_, receive_at_;  ///< [size], of an exchange
};

/// This process's rank as the launcher's environment tells it, before MPI starts; 0 where there is no launcher.
[[nodiscard]] int rank_from_environment();

}  // namespace dat
