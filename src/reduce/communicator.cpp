#include "dat/communicator.hpp"

#include <cstdlib>
#include <cstring>
#include <limits>

#include "dat/error.hpp"

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>  // an extension of Open MPI's
#endif

namespace dat {

namespace {

void check(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  fail(ExitCode::communication, "MPI: ", what, " failed: ", std::string(text, static_cast<std::size_t>(length)));
}

/// MPI counts in int: longer messages go in pieces.
constexpr std::int64_t kPiece = 1 << 28;

template <class T>
void sum_in_place(T* data, std::int64_t count, MPI_Datatype type) {
  for (std::int64_t at = 0; at < count; at += kPiece) {
    const auto piece = static_cast<int>(std::min(kPiece, count - at));
    check(MPI_Allreduce(MPI_IN_PLACE, data + at, piece, type, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
  }
}

constexpr std::size_t kPending = 256;

}  // namespace

Communicator::Communicator(bool mpi) : mpi_(mpi) {
  if (!mpi) return;
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  MPI_Comm_rank(node, &node_rank_);
  MPI_Comm_size(node, &node_size_);
  MPI_Comm_free(&node);
  pending_.reserve(kPending);
  send_at_.resize(static_cast<std::size_t>(size_));
  receive_at_.resize(static_cast<std::size_t>(size_));
}

std::unique_ptr<Communicator> Communicator::world() { return std::unique_ptr<Communicator>(new Communicator(true)); }
std::unique_ptr<Communicator> Communicator::single() { return std::unique_ptr<Communicator>(new Communicator(false)); }

Communicator::~Communicator() {
  if (mpi_) MPI_Finalize();
}

void Communicator::sum(float* data, std::int64_t count) {
  if (mpi_) sum_in_place(data, count, MPI_FLOAT);
}
void Communicator::sum(double* data, std::int64_t count) {
  if (mpi_) sum_in_place(data, count, MPI_DOUBLE);
}
void Communicator::sum(std::int64_t* data, std::int64_t count) {
  if (mpi_) sum_in_place(data, count, MPI_INT64_T);
}

std::int64_t Communicator::minimum(std::int64_t value) {
  if (mpi_) check(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD), "MPI_Allreduce");
  return value;
}

bool Communicator::agree(std::uint64_t value) {
  std::uint64_t bounds[2] = {value, ~value};
  if (mpi_) check(MPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD), "MPI_Allreduce");
  return bounds[0] == ~bounds[1];
}

void Communicator::broadcast(void* data, std::size_t bytes) {
  require(bytes <= static_cast<std::size_t>(std::numeric_limits<int>::max()), ExitCode::communication,
          "a broadcast of ", bytes, " bytes is too long");
  if (mpi_) check(MPI_Bcast(data, static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD), "MPI_Bcast");
}

void Communicator::broadcast(std::string& text) {
  std::uint64_t length = text.size();
  broadcast(&length, sizeof length);
  text.resize(length);
  broadcast(text.data(), length);
}

std::vector<double> Communicator::gather(const std::vector<double>& values) {
  if (!mpi_) return values;
  std::vector<double> all(root() ? values.size() * static_cast<std::size_t>(size_) : 0);
  const auto count = static_cast<int>(values.size());
  check(MPI_Gather(values.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, 0, MPI_COMM_WORLD), "MPI_Gather");
  return all;
}

std::vector<std::string> Communicator::gather(const std::string& text) {
  if (!mpi_) return {text};
  constexpr std::size_t kWidth = 256;
  std::string padded = text.substr(0, kWidth - 1);
  padded.resize(kWidth, '\0');
  std::string all(root() ? kWidth * static_cast<std::size_t>(size_) : 0, '\0');
  check(MPI_Gather(padded.data(), kWidth, MPI_CHAR, all.data(), kWidth, MPI_CHAR, 0, MPI_COMM_WORLD), "MPI_Gather");
  std::vector<std::string> result;
  for (std::size_t at = 0; at < all.size(); at += kWidth) result.emplace_back(all.c_str() + at);
  return result;
}

void Communicator::exchange(const void* send, const std::vector<int>& to, void* receive, const std::vector<int>& from) {
  if (size_ == 1) {
    std::memcpy(receive, send, static_cast<std::size_t>(to[0]));
    return;
  }
  const auto lay_out = [](const std::vector<int>& counts, std::vector<int>& at) {
    std::int64_t bytes = 0;
    for (std::size_t rank = 0; rank < counts.size(); bytes += counts[rank++]) {
      require(bytes + counts[rank] <= std::numeric_limits<int>::max(), ExitCode::communication, "an exchange of ",
              bytes + counts[rank], " bytes is too long");
      at[rank] = static_cast<int>(bytes);
    }
  };
  lay_out(to, send_at_);
  lay_out(from, receive_at_);
  check(MPI_Alltoallv(send, to.data(), send_at_.data(), MPI_BYTE, receive, from.data(), receive_at_.data(), MPI_BYTE,
                      MPI_COMM_WORLD),
        "MPI_Alltoallv");
}

void Communicator::barrier() {
  if (mpi_) check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
}

void Communicator::start_sum(float* data, std::int64_t count) {
  if (!mpi_) return;
  for (std::int64_t at = 0; at < count; at += kPiece) {
    require(pending_.size() < kPending, ExitCode::communication, "more than ", kPending, " sums under way at once");
    pending_.push_back(MPI_REQUEST_NULL);
    check(MPI_Iallreduce(MPI_IN_PLACE, data + at, static_cast<int>(std::min(kPiece, count - at)), MPI_FLOAT, MPI_SUM,
                         MPI_COMM_WORLD, &pending_.back()),
          "MPI_Iallreduce");
  }
}

void Communicator::poll() {
  if (pending_.empty()) return;
  int done = 0;
  check(MPI_Testall(static_cast<int>(pending_.size()), pending_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
}

void Communicator::finish_pending() {
  if (pending_.empty()) return;
  check(MPI_Waitall(static_cast<int>(pending_.size()), pending_.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  pending_.clear();
}

void Communicator::abort(int exit_code) {
  if (mpi_) MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

std::string Communicator::library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, static_cast<std::size_t>(length));
  return all.substr(0, all.find_first_of("\n,"));
}

bool Communicator::takes_device_memory() const {
#if defined(MPIX_CUDA_AWARE_SUPPORT) && MPIX_CUDA_AWARE_SUPPORT
  return mpi_ && MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

int rank_from_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 0;
}

}  // namespace dat
