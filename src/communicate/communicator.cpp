#include "dat/communicator.hpp"

#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "communicate/hang/flight_recorder.hpp"
#include "communicate/hang/watchdog.hpp"
#include "communicate/mpi_calls.hpp"
#include "communicate/progress.hpp"
#include "dat/error.hpp"

namespace dat {

namespace {

/// Numbers of a sum that go at a time.
constexpr std::int64_t kPiece = 1 << 28;

/// MPI counts in int.
[[nodiscard]] int checked(std::size_t bytes, const char* what) {
  require(bytes <= static_cast<std::size_t>(std::numeric_limits<int>::max()), ExitCode::communication, what, " of ",
          bytes, " bytes is too long: 2^31 - 1 is the most that goes at once");
  return static_cast<int>(bytes);
}

/// The pointers may be null where there are no bytes.
void copy(const void* from, void* to, std::size_t bytes) {
  std::copy_n(static_cast<const std::byte*>(from), bytes, static_cast<std::byte*>(to));
}

[[nodiscard]] Request copied(const void* from, void* to, std::size_t bytes) {
  copy(from, to, bytes);
  return {};
}

/// Places of the blocks, one after the other.
void lay_out(const std::vector<int>& bytes, std::vector<int>& at, const char* what) {
  std::size_t before = 0;
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    at[rank] = static_cast<int>(before);
    before = static_cast<std::size_t>(checked(before + static_cast<std::size_t>(bytes[rank]), what));
  }
}

/// The cores that this thread may run on; none where the system does not say.
[[nodiscard]] cpu_set_t own_cores() {
  cpu_set_t cores{};
  (void)pthread_getaffinity_np(pthread_self(), sizeof cores, &cores);
  return cores;
}

[[nodiscard]] std::int64_t total(const std::vector<int>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

}  // namespace

/// A call that returns when it is done, for the hang watch.
class Communicator::Blocking {
 public:
  explicit Blocking(FlightRecorder::Ticket ticket) : ticket_(ticket), waiting_(ticket) {}
  ~Blocking() { FlightRecorder::of_process().end(ticket_); }
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;

 private:
  FlightRecorder::Ticket ticket_;
  FlightRecorder::Waiting waiting_;
};

std::uint64_t Communicator::record(Call call, std::int64_t bytes) {
  return FlightRecorder::of_process().begin(call, name_, ++collectives_, bytes);
}

Communicator::Communicator(MPI_Comm group, bool world) : group_(group), world_(world), launch_node_cores_{own_cores()} {
  if (alone()) return;
  const Turn turn;
  MPI_Comm_rank(group, &rank_);
  MPI_Comm_size(group, &size_);
  MPI_Comm node = MPI_COMM_NULL;
  turn.check(MPI_Comm_split_type(group, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  MPI_Comm_rank(node, &node_rank_);
  launch_node_rank_ = node_rank_;
  MPI_Comm_size(node, &node_size_);
  const cpu_set_t mine = own_cores();
  launch_node_cores_.resize(static_cast<std::size_t>(node_size_));
  turn.check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, launch_node_cores_.data(), sizeof mine, MPI_BYTE, node),
             "MPI_Allgather");
  MPI_Comm_free(&node);
  launch_ranks_.resize(static_cast<std::size_t>(size_));
  std::iota(launch_ranks_.begin(), launch_ranks_.end(), 0);
  send_at_.resize(static_cast<std::size_t>(size_));
  receive_at_.resize(static_cast<std::size_t>(size_));
}

std::unique_ptr<Communicator> Communicator::world() {
  if (!launched()) return single();
  // A ring, 2 (R - 1) / R times the bytes past each rank, is the least that a sum over one link a rank can take. Open
  // MPI's own choice for MPI_Iallreduce sends more where R is no power of two, and with two ranks. Whoever has set this
  // otherwise, by mpirun's --mca, too, keeps it; other libraries do not look.
  setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "1", 0);
  MPI_Comm group = MPI_COMM_NULL;
  {
    const Turn turn;
    int provided;
    turn.check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    Progress::of_process().allow(provided >= MPI_THREAD_SERIALIZED);
    // Groups inherit it.
    turn.check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    // A duplicate: what other libraries of the process send over MPI_COMM_WORLD does not meet our messages.
    turn.check(MPI_Comm_dup(MPI_COMM_WORLD, &group), "MPI_Comm_dup");
  }
  return std::unique_ptr<Communicator>(new Communicator(group, true));
}

std::unique_ptr<Communicator> Communicator::single() {
  return std::unique_ptr<Communicator>(new Communicator(MPI_COMM_NULL, false));
}

std::unique_ptr<Communicator> Communicator::subgroup(int color, int key) {
  require(color >= 0 || color == kNoColor, ExitCode::communication, "a group has the colour ", color,
          "; colours are numbers of at least 0, or kNoColor");
  if (alone()) return color == kNoColor ? nullptr : single();
  MPI_Comm group = MPI_COMM_NULL;
  {
    const Blocking call(record(Call::subgroup, 0));
    const Turn turn;
    turn.check(MPI_Comm_split(group_, color == kNoColor ? MPI_UNDEFINED : color, key, &group), "MPI_Comm_split");
  }
  const std::int64_t path[] = {name_, ++subgroups_, color};
  if (group == MPI_COMM_NULL) return nullptr;
  std::unique_ptr<Communicator> part(new Communicator(group, false));
  part->name_ = static_cast<std::uint32_t>(XXH3_64bits(path, sizeof path));
  part->launch_ = launch_;
  part->launch_node_rank_ = launch_node_rank_;
  part->launch_node_cores_ = launch_node_cores_;
  const int mine = launch_rank();
  part->all_gather(&mine, part->launch_ranks_.data(), sizeof mine);
  return part;
}

Communicator::~Communicator() {
  if (alone()) return;
  if (world_) Progress::of_process().stop();
  std::optional<Blocking> call;
  if (world_) call.emplace(record(Call::finalize, 0));
  const Turn turn;
  // Early ranks wait here: where one is killed in MPI_Finalize (PMIx's fence), mpirun 4.1 with PMIx 4.2 may never end.
  if (world_) MPI_Barrier(MPI_COMM_WORLD);
  MPI_Comm_free(&group_);
  if (world_) MPI_Finalize();
}

template <class T>
void Communicator::sum_in_place(T* data, std::int64_t count, MPI_Datatype type) {
  if (alone()) return;
  give(count * std::int64_t{sizeof *data});
  const Blocking call(record(Call::sum, count * std::int64_t{sizeof *data}));
  const Turn turn;
  while (count > 0) {  // from the end
    const auto piece = static_cast<int>(std::min(kPiece, count));
    count -= piece;
    turn.check(MPI_Allreduce(MPI_IN_PLACE, data + count, piece, type, MPI_SUM, group_), "MPI_Allreduce");
  }
}
void Communicator::sum(float* data, std::int64_t count) { sum_in_place(data, count, MPI_FLOAT); }
void Communicator::sum(double* data, std::int64_t count) { sum_in_place(data, count, MPI_DOUBLE); }
void Communicator::sum(std::int64_t* data, std::int64_t count) { sum_in_place(data, count, MPI_INT64_T); }

std::int64_t Communicator::minimum(std::int64_t value) {
  if (alone()) return value;
  give(sizeof value);
  const Blocking call(record(Call::minimum, sizeof value));
  const Turn turn;
  turn.check(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MIN, group_), "MPI_Allreduce");
  return value;
}

bool Communicator::agree(std::uint64_t value) {
  std::uint64_t bounds[2] = {value, ~value};
  if (alone()) return true;
  give(sizeof bounds);
  const Blocking call(record(Call::agree, sizeof bounds));
  const Turn turn;
  turn.check(MPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_UINT64_T, MPI_MIN, group_), "MPI_Allreduce");
  return bounds[0] == ~bounds[1];
}

void Communicator::broadcast(void* data, std::size_t bytes) {
  const int count = checked(bytes, "a broadcast");
  if (alone()) return;
  if (root()) give(count);
  const Blocking call(record(Call::broadcast, count));
  const Turn turn;
  turn.check(MPI_Bcast(data, count, MPI_BYTE, 0, group_), "MPI_Bcast");
}

void Communicator::broadcast(std::string& text) {
  std::uint64_t length = text.size();
  broadcast(&length, sizeof length);
  text.resize(length);
  broadcast(text.data(), length);
}

std::vector<double> Communicator::gather(const std::vector<double>& values) {
  if (alone()) return values;
  std::vector<double> all(root() ? values.size() * static_cast<std::size_t>(size_) : 0);
  const auto count = static_cast<int>(values.size());
  if (!root()) give(std::ssize(values) * std::int64_t{sizeof(double)});
  const Blocking call(record(Call::gather, std::ssize(values) * std::int64_t{sizeof(double)}));
  const Turn turn;
  turn.check(MPI_Gather(values.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, 0, group_), "MPI_Gather");
  return all;
}

std::vector<std::string> Communicator::gather(const std::string& text) {
  if (alone()) return {text};
  const int length = checked(text.size(), "a text");
  std::vector<int> lengths(root() ? static_cast<std::size_t>(size_) : 0), at(lengths.size());
  if (!root()) give(std::int64_t{sizeof length} + length);
  const Blocking call(record(Call::gather, length));
  const Turn turn;
  turn.check(MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, group_), "MPI_Gather");
  lay_out(lengths, at, "what all ranks say");
  std::string all(root() ? static_cast<std::size_t>(at.back() + lengths.back()) : 0, '\0');
  turn.check(MPI_Gatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(), at.data(), MPI_CHAR, 0, group_),
             "MPI_Gatherv");
  std::vector<std::string> result;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    result.push_back(all.substr(static_cast<std::size_t>(at[rank]), static_cast<std::size_t>(lengths[rank])));
  return result;
}

void Communicator::all_gather(const void* mine, void* all, std::size_t bytes) {
  const int count = checked(bytes, "a block to all ranks");
  if (alone()) return copy(mine, all, bytes);
  give(count);
  const Blocking call(record(Call::all_gather, count));
  const Turn turn;
  turn.check(MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, group_), "MPI_Allgather");
}

void Communicator::all_gather(const void* mine, void* all, const std::vector<int>& bytes) {
  const int count = bytes[static_cast<std::size_t>(rank_)];
  if (alone()) return copy(mine, all, static_cast<std::size_t>(count));
  lay_out(bytes, receive_at_, "blocks to all ranks: a message");
  give(count);
  const Blocking call(record(Call::all_gather, total(bytes)));
  const Turn turn;
  turn.check(MPI_Allgatherv(mine, count, MPI_BYTE, all, bytes.data(), receive_at_.data(), MPI_BYTE, group_),
             "MPI_Allgatherv");
}

void Communicator::exchange(const void* send, const std::vector<int>& to, void* receive, const std::vector<int>& from) {
  lay_out(to, send_at_, "an exchange");
  lay_out(from, receive_at_, "an exchange");
  exchange(send, to, send_at_, receive, from, receive_at_);
}

void Communicator::exchange(const void* send, const std::vector<int>& to, const std::vector<int>& to_at, void* receive,
                            const std::vector<int>& from, const std::vector<int>& from_at) {
  if (size_ == 1)
    return copy(static_cast<const char*>(send) + to_at[0], static_cast<char*>(receive) + from_at[0],
                static_cast<std::size_t>(to[0]));
  give(total(to) - to[static_cast<std::size_t>(rank_)]);
  const Blocking call(record(Call::exchange, total(to)));
  const Turn turn;
  turn.check(
      MPI_Alltoallv(send, to.data(), to_at.data(), MPI_BYTE, receive, from.data(), from_at.data(), MPI_BYTE, group_),
      "MPI_Alltoallv");
}

void Communicator::barrier() {
  if (alone()) return;
  const Blocking call(record(Call::barrier, 0));
  const Turn turn;
  turn.check(MPI_Barrier(group_), "MPI_Barrier");
}

void Communicator::meet(const std::function<void()>& call) {
  const Blocking meeting(record(Call::barrier, 0));
  call();
}

template <class Start>
Request Communicator::started(Call call, std::int64_t bytes, const char* name, const Start& start) {
  Request request;
  request.record_ = record(call, bytes);
  const Turn turn;
  turn.check(start(&request.handle_), name);
  request.watch(true);
  return request;
}

Request Communicator::start_sum(float* data, std::int64_t count) {
  require(count <= kPiece, ExitCode::communication, "a sum of ", count,
          " numbers beside other work is too long: ", kPiece, " is the most");
  if (alone()) return {};
  give(count * std::int64_t{sizeof *data});
  return started(Call::sum, count * std::int64_t{sizeof *data}, "MPI_Iallreduce", [&](MPI_Request* handle) {
    return MPI_Iallreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, group_, handle);
  });
}

Request Communicator::start_all_gather(const void* mine, void* all, std::size_t bytes) {
  const int count = checked(bytes, "a block to all ranks");
  if (alone()) return copied(mine, all, bytes);
  give(count);
  return started(Call::all_gather, count, "MPI_Iallgather", [&](MPI_Request* handle) {
    return MPI_Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, group_, handle);
  });
}

Request Communicator::start_all_gather(const void* mine, void* all, const std::vector<int>& bytes,
                                       const std::vector<int>& at) {
  const int own = bytes[static_cast<std::size_t>(rank_)];
  if (alone()) return copied(mine, static_cast<char*>(all) + at[0], static_cast<std::size_t>(own));
  give(own);
  return started(Call::all_gather, total(bytes), "MPI_Iallgatherv", [&](MPI_Request* handle) {
    return MPI_Iallgatherv(mine, own, MPI_BYTE, all, bytes.data(), at.data(), MPI_BYTE, group_, handle);
  });
}

Request Communicator::start_exchange(const void* send, const std::vector<int>& to, const std::vector<int>& to_at,
                                     void* receive, const std::vector<int>& from, const std::vector<int>& from_at) {
  if (size_ == 1)
    return copied(static_cast<const char*>(send) + to_at[0], static_cast<char*>(receive) + from_at[0],
                  static_cast<std::size_t>(to[0]));
  give(total(to) - to[static_cast<std::size_t>(rank_)]);
  return started(Call::exchange, total(to), "MPI_Ialltoallv", [&](MPI_Request* handle) {
    return MPI_Ialltoallv(send, to.data(), to_at.data(), MPI_BYTE, receive, from.data(), from_at.data(), MPI_BYTE,
                          group_, handle);
  });
}

int Communicator::message(std::size_t bytes, int other) const {
  require(other >= 0 && other < size_ && other != rank_, ExitCode::communication, "rank ", rank_, " of ", size_,
          " has no message to or from rank ", other, ": there is no such other rank");
  return checked(bytes, "a message");
}

void Communicator::send(const void* data, std::size_t bytes, int to, int tag) {
  const int count = message(bytes, to);
  give(count);
  const Blocking call(FlightRecorder::of_process().begin(Call::send, name_, to, count));
  const Turn turn;
  turn.check(MPI_Send(data, count, MPI_BYTE, to, tag, group_), "MPI_Send");
}

Request Communicator::start_send(const void* data, std::size_t bytes, int to, int tag) {
  Request request;
  const int count = message(bytes, to);
  give(count);
  request.record_ = FlightRecorder::of_process().begin(Call::send, name_, to, count);
  const Turn turn;
  turn.check(MPI_Isend(data, count, MPI_BYTE, to, tag, group_, &request.handle_), "MPI_Isend");
  request.watch(false);
  return request;
}

void Communicator::receive(void* data, std::size_t bytes, int from, int tag) {
  const int expected = message(bytes, from);
  const Blocking call(FlightRecorder::of_process().begin(Call::receive, name_, from, expected));
  const Turn turn;
  MPI_Status about;
  turn.check(MPI_Recv(data, expected, MPI_BYTE, from, tag, group_, &about), "MPI_Recv");
  check_length(turn, about, expected);
}

Request Communicator::start_receive(void* data, std::size_t bytes, int from, int tag) {
  Request request;
  request.expected_ = message(bytes, from);
  request.record_ = FlightRecorder::of_process().begin(Call::receive, name_, from, request.expected_);
  const Turn turn;
  turn.check(MPI_Irecv(data, request.expected_, MPI_BYTE, from, tag, group_, &request.handle_), "MPI_Irecv");
  request.watch(false);
  return request;
}

void Communicator::abort(int exit_code) { end_all_ranks(exit_code); }

void Communicator::watch(double timeout_seconds) {
  watchdog_.reset();  // that of a run before this one, of a sweep
  if (size_ > 1 && timeout_seconds != 0) watchdog_ = std::make_unique<Watchdog>(*this, timeout_seconds);
}

void Communicator::excuse(int rank) {
  if (watchdog_) watchdog_->excuse(rank);
}

void Communicator::keep_records_in(const std::string& folder) {
  if (watchdog_) watchdog_->keep_records_in(folder);
}

void Communicator::end(const std::string& why) { watchdog_->end(why); }

double Communicator::seconds_waited() { return FlightRecorder::of_process().seconds_waited(); }

bool Communicator::move_on_beside() { return alone() || Progress::of_process().start(); }

double Communicator::seconds_under_way() const {
  if (alone()) return 0;
  const Turn turn;
  return Progress::of_process().seconds_under_way();
}

std::string Communicator::library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(text, &length);
  const std::string all = text;
  return all.substr(0, all.find_first_of("\n,"));
}

}  // namespace dat
