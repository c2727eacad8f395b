#pragma once

#include <mpi.h>
#include <sched.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dat {

class Turn;
class Watchdog;
enum class Call : std::uint32_t;

/// Says what the communications are for that the main thread begins while the label lives: "gradients conv1 to linear".
/// The last one of several living labels counts. The hang watch names the purpose. The texts must stay as long as the
/// label lives.
class CallLabel {
 public:
  explicit CallLabel(const char* what, const char* first = "", const char* last = "") noexcept : before_(current_) {
    current_ = {what, *first != '\0' ? " " : "", first, *last != '\0' ? " to " : "", last};
  }
  ~CallLabel() { current_ = before_; }
  CallLabel(const CallLabel&) = delete;
  CallLabel& operator=(const CallLabel&) = delete;

 private:
  friend class FlightRecorder;
  using Parts = std::array<const char*, 5>;
  static Parts current_;
  Parts before_;
};

/// A communication of this process's own, which MPI knows nothing of: sums in memory that the ranks of a node share,
/// for instance. A thread that waits for it moves it on, and so does the thread of Communicator::move_on_beside().
class Errand {
 public:
  virtual ~Errand() = default;
  /// Moves it on as far as that goes without waiting for another rank, and returns whether it is done. Called by one
  /// thread at a time. beside: not by the main thread, which has better work for the other threads of the process; then
  /// it has no errors.
  [[nodiscard]] virtual bool advance(bool beside) = 0;
  /// Sleeps until it may go on, a millisecond or so at most. Not called in turn with advance().
  virtual void nap() = 0;
};

/// A communication that was started and goes on beside the caller's work. A request belongs to whoever holds it: its
/// buffers must stay, and must not be touched, until test() has returned true or wait() has returned. A request without
/// anything under way, such as a new one or one that was moved from, is done.
///
/// Destroying or overwriting a request that is not done is a programming error, because MPI would still write to memory
/// that its owner believes to be free: the program says so and ends all ranks with the code of a communication error.
/// Only while an exception leaves the scope is the request dropped in silence: then that error is what the user must
/// read, and it ends all ranks by itself.
class Request {
 public:
  Request() = default;
  ~Request() { forget(); }
  Request(Request&& other) noexcept { *this = std::move(other); }
  Request& operator=(Request&& other) noexcept;

  /// Gives MPI the chance to move the communication on, and returns whether it is done. Error(communication).
  [[nodiscard]] bool test();
  /// Returns when the communication is done. Error(communication).
  void wait();
  /// Ends a receive that nothing has come for; a message that is arriving is received. Error(communication).
  void cancel();

 private:
  friend class Communicator;
  [[nodiscard]] bool done() const { return handle_ == MPI_REQUEST_NULL && errand_ == nullptr; }
  void forget() noexcept;
  void end() noexcept;
  void finish(const Turn& turn, int status, const MPI_Status& about, const char* call);
  void watch(bool collective);

  MPI_Request handle_ = MPI_REQUEST_NULL;
  Errand* errand_ = nullptr;  ///< errand in place of MPI's request
  int expected_ = -1;         ///< bytes of the message to be received; -1: nothing is received from one rank alone
  /// Place among the requests that are moved on beside other work, until this one is done; -1: it is none of them.
  int place_ = -1;
  std::uint64_t record_ = 0;  ///< number of the call's record for the hang watch
};

/// A group of ranks. The only door to MPI. Members but the accessors are **collective**: all ranks of the group call
/// them, in the same order. Messages from rank to rank, at the end, are not. One thread of the program calls the
/// members; MPI is called by one thread at a time.
///
/// A buffer that goes into a single message has at most 2^31 - 1 bytes; a longer one is refused with
/// Error(communication), which is also what a failure of MPI becomes. Members that a training step calls allocate
/// nothing.
class Communicator {
 public:
  /// All ranks of the run. Initialises MPI and finalises it when destroyed. There is one per process, and it outlives
  /// its subgroups. A process that no launcher has started is single() and leaves MPI alone: Open MPI 4.1 would start a
  /// daemon for it, and may crash while it ends (open-mpi/ompi, issue 10117).
  [[nodiscard]] static std::unique_ptr<Communicator> world();
  /// One rank that calls MPI never: for tools, benchmarks and unit tests. A collective brings what this rank has;
  /// messages from rank to rank are refused, since there is nobody else.
  [[nodiscard]] static std::unique_ptr<Communicator> single();
  /// Ends the group; for any but the world **collective** over the group.
  ~Communicator();

  static constexpr int kNoColor = -1;
  /// Divides this group: the ranks that give the same colour, a number of at least 0, form a new group, numbered by
  /// `key`, and by their numbers in this group where keys are equal. Null for a rank that gives kNoColor.
  [[nodiscard]] std::unique_ptr<Communicator> subgroup(int color, int key);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int node_rank() const { return node_rank_; }  ///< rank among those that share memory with this one
  [[nodiscard]] int node_size() const { return node_size_; }
  [[nodiscard]] bool root() const { return rank_ == 0; }
  /// The number that a rank of this group has in the launch: the one under which people know the rank.
  [[nodiscard]] int launch_rank(int rank) const { return launch_ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int launch_rank() const { return launch_rank(rank_); }
  /// All ranks of the launch: the group that this one comes from.
  [[nodiscard]] Communicator& launch() { return *launch_; }
  /// node_rank() in the launch: so a rank keeps its device in whatever group it is.
  [[nodiscard]] int launch_node_rank() const { return launch_node_rank_; }
  /// [ranks of the launch on this node] the cores that each may run on.
  [[nodiscard]] const std::vector<cpu_set_t>& launch_node_cores() const { return launch_node_cores_; }
  [[nodiscard]] bool alone() const { return group_ == MPI_COMM_NULL; }  ///< single(): without MPI

  /// Adds up `data` [count] over the ranks, in place. `count` may be any number: long arrays go in pieces of 2^28
  /// numbers.
  void sum(float* data, std::int64_t count);
  void sum(double* data, std::int64_t count);
  void sum(std::int64_t* data, std::int64_t count);
  [[nodiscard]] std::int64_t minimum(std::int64_t value);
  /// Returns whether all ranks hold the same value.
  [[nodiscard]] bool agree(std::uint64_t value);
  void broadcast(void* data, std::size_t bytes);  ///< broadcasts bytes of rank 0
  void broadcast(std::string& text);              ///< broadcasts a text of rank 0
  /// The values of all ranks, in rank order, on rank 0; empty elsewhere. The count is the same on all ranks.
  [[nodiscard]] std::vector<double> gather(const std::vector<double>& values);
  /// The texts of all ranks, in rank order, on rank 0; empty elsewhere. Texts may have any length; all together are a
  /// single message.
  [[nodiscard]] std::vector<std::string> gather(const std::string& text);
  /// Brings each rank's block of `bytes` bytes to all: the block of rank r stands at `all` + r * bytes. The size is the
  /// same on all ranks. `mine` lies outside `all`.
  void all_gather(const void* mine, void* all, std::size_t bytes);
  /// all_gather() for blocks of different sizes: rank r's block has bytes[r] bytes, and the blocks stand in `all` one
  /// after the other. All ranks give the same `bytes` [size()], whose sum must fit into a single message.
  void all_gather(const void* mine, void* all, const std::vector<int>& bytes);
  /// Brings bytes from every rank to every rank: rank r gets the next `to[r]` bytes of `send`, and its `from[r]` bytes
  /// are the next ones in `receive`. from[r] here is what rank r has as `to` of this rank. All that a rank sends is a
  /// single message, and so is all that it receives.
  void exchange(const void* send, const std::vector<int>& to, void* receive, const std::vector<int>& from);
  /// Exchanges blocks of which each has a place of its own: what rank r gets stands at `send` + to_at[r], what it has
  /// for this rank goes to `receive` + from_at[r]. No place may be further than 2^31 - 1 bytes.
  void exchange(const void* send, const std::vector<int>& to, const std::vector<int>& to_at, void* receive,
                const std::vector<int>& from, const std::vector<int>& from_at);
  void barrier();
  /// Makes a call in which all ranks of the group wait for each other without MPI: to the hang watch, a barrier.
  void meet(const std::function<void()>& call);

  /// Lets a thread move on, from now on, what members that return a Request start, while the caller computes: without
  /// it, that happens in test(), in wait() and in other members only. The thread sleeps while nothing is under way, and
  /// most of the time otherwise. There is one such thread for all groups of the process. False: MPI does not grant the
  /// calls of a second thread.
  [[nodiscard]] bool move_on_beside();
  /// Seconds of this process so far, during which any collective was under way that such members have started.
  [[nodiscard]] double seconds_under_way() const;
  /// Starts what sum() does, of at most 2^28 numbers. The calls are collective, waiting for the request is not.
  [[nodiscard]] Request start_sum(float* data, std::int64_t count);
  /// Starts what all_gather() does with blocks of one size.
  [[nodiscard]] Request start_all_gather(const void* mine, void* all, std::size_t bytes);
  /// Starts what all_gather() does with blocks of different sizes: the block of rank r has bytes[r] bytes and stands at
  /// `all` + at[r]. All ranks give the same `bytes` and `at` [size()], which must stay as they are until the request is
  /// done.
  [[nodiscard]] Request start_all_gather(const void* mine, void* all, const std::vector<int>& bytes,
                                         const std::vector<int>& at);
  /// Starts what exchange() does: what rank r gets stands at `send` + to_at[r], what it has for this rank goes to
  /// `receive` + from_at[r]. The arrays must stay as they are until the request is done.
  [[nodiscard]] Request start_exchange(const void* send, const std::vector<int>& to, const std::vector<int>& to_at,
                                       void* receive, const std::vector<int>& from, const std::vector<int>& from_at);

  /// Starts an errand that every rank of the group has a part in, which the caller has made ready; it must live until
  /// the request is done. To the hang watch it is a sum of so many bytes. No member that waits for other
  /// ranks may be called before all ranks can be done with it: nobody moves it on there.
  [[nodiscard]] Request start(Errand& errand, std::int64_t bytes);

  /// Sends a message to another rank of the group. `tag`, a number from 0 to 32767, names its kind: messages with the
  /// same tag arrive in the order in which they were sent. Returns when `data` may change, which may be before anybody
  /// has asked for the message. Not collective, like all members from here to wait_for_work().
  void send(const void* data, std::size_t bytes, int to, int tag);
  [[nodiscard]] Request start_send(const void* data, std::size_t bytes, int to, int tag);
  /// Receives the next message with this tag from this rank, which must have this length: where it is not known,
  /// probe() returns it. Error(communication): the message has another length.
  void receive(void* data, std::size_t bytes, int from, int tag);
  [[nodiscard]] Request start_receive(void* data, std::size_t bytes, int from, int tag);
  /// A message that has arrived and that nobody has asked for yet.
  struct Arrival {
    int from = 0, tag = 0;
    std::size_t bytes = 0;
  };
  static constexpr int kAnyRank = MPI_ANY_SOURCE, kAnyTag = MPI_ANY_TAG;
  /// The first message that has arrived from this rank, or from any, with this tag, or with any; empty where no such
  /// message is there yet. Does not wait, and leaves the message to receive().
  [[nodiscard]] std::optional<Arrival> probe(int from, int tag);
  /// Returns when a message with this tag has arrived from this rank, and is asleep until then: the rank takes next to
  /// nothing of a core, and sees the message up to kNap late. To the hang watch the rank has left meanwhile: nobody
  /// waits for it. Error(communication).
  void sleep_until_called(int from, int tag);
  static constexpr std::chrono::milliseconds kNap{50};
  /// Asks `done` again and again, with short naps in between, until it says yes; it looks for messages itself. To the
  /// hang watch this rank waits meanwhile for a message from rank `from`, which it needs in order to get on.
  void wait_for_message(int from, const std::function<bool()>& done);
  /// Waits for a message of rank `from`, for a rank that has nothing to do until then.
  void wait_for_work(int from, const std::function<bool()>& done);

  /// Bytes that this rank has given to MPI for others, counted at the calls: its own part of sums and gathered blocks,
  /// once for all ranks that get it; a broadcast counts on rank 0 alone.
  [[nodiscard]] std::int64_t bytes_given() const { return bytes_given_; }

  /// Ends all ranks of the run, of which there are several, with this exit code. Never returns.
  [[noreturn]] void abort(int exit_code);

  /// Starts the hang watch (0: none): where no rank gets on for so many seconds, or one is not heard of, all ranks
  /// end with the code of a communication error, and one message says whose fault it is. The watch lasts until MPI has
  /// ended, or another one begins. Only the world can be watched; one rank has nobody to watch. **Collective.**
  /// Error(communication).
  void watch(double timeout_seconds);
  /// The folder where each rank writes its last communications, as hang-rank-N.txt, if the run hangs.
  void keep_records_in(const std::string& folder);
  [[nodiscard]] bool watched() const { return watchdog_ != nullptr; }
  /// Marks a rank as gone for the hang watch of this rank, whatever it says from now on: nobody waits for it.
  void excuse(int rank);
  /// Ends all ranks, which are watched, because of an error of MPI at this one: the message says what all of them have
  /// called. The code is that of a communication error. Never returns.
  [[noreturn]] void end(const std::string& why);
  /// Seconds that the main thread has waited so far in calls of any group.
  [[nodiscard]] static double seconds_waited();

  [[nodiscard]] static std::string library_version();

 private:
  Communicator(MPI_Comm group, bool world);
  void give(std::int64_t bytes) { bytes_given_ += size_ > 1 ? bytes : 0; }
  class Blocking;
  [[nodiscard]] std::uint64_t record(Call call, std::int64_t bytes);
  /// Request that start(handle), the MPI function `name`, begins.
  template <class Start>
  [[nodiscard]] Request started(Call call, std::int64_t bytes, const char* name, const Start& start);
  template <class T>
  void sum_in_place(T* data, std::int64_t count, MPI_Datatype type);
  /// The length of a message to or from another rank, as MPI counts. Error(communication): too long, or no such rank.
  [[nodiscard]] int message(std::size_t bytes, int other) const;

  MPI_Comm group_;  ///< null: single()
  bool world_;      ///< MPI ends with it
  int rank_ = 0, size_ = 1, node_rank_ = 0, node_size_ = 1, launch_node_rank_ = 0;
  Communicator* launch_ = this;
  std::vector<int> launch_ranks_{0};  ///< [size]
  std::vector<cpu_set_t> launch_node_cores_;
  std::vector<int> send_at_{0}, receive_at_{0};  ///< [size], of an exchange
  std::int64_t bytes_given_ = 0;
  /// Equal on all ranks of the group, hardly ever equal to another group's.
  std::uint32_t name_ = 0;
  std::int64_t collectives_ = 0, subgroups_ = 0;  ///< collectives and subgroups so far
  std::unique_ptr<Watchdog> watchdog_;
};

/// The name of the host that this process runs on.
[[nodiscard]] std::string host_name();

/// Returns whether an MPI launcher has made this process another rank than the first: the first rank reports what is
/// equal on all ranks, and this one is silent. The tasks of Slurm alone do not know of each other, and each reports for
/// itself.
[[nodiscard]] bool another_rank_speaks();

/// The number of ranks that a launcher or Slurm has announced, in all and on this node; 1 where nobody has.
[[nodiscard]] int announced_ranks();
[[nodiscard]] int announced_ranks_on_node();

/// The number of processes that were started together, by a launcher or in a step of Slurm (srun); 1 where nobody says.
/// An allocation of Slurm is not announced to a batch script, or a shell in an allocation, as started.
[[nodiscard]] int started_together();

/// Returns whether a launcher (mpirun of Open MPI, MPICH, Intel MPI, MVAPICH and HPE MPT, srun, flux, jsrun, PALS,
/// ALPS) has started this process, judged by the environment variables that MPI starts from.
[[nodiscard]] bool launched();

}  // namespace dat
