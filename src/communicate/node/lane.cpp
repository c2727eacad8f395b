#include "communicate/node/lane.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "communicate/mpi_calls.hpp"

namespace dat {

std::vector<int> nodes_of(Communicator& ranks) {
  struct Seen {
    std::uint64_t host = 0, size = 0;  ///< host and size of a node
  };
  const Seen mine{std::hash<std::string>()(host_name()), static_cast<std::uint64_t>(ranks.node_size())};
  std::vector<Seen> all(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(&mine, all.data(), sizeof mine);
  std::vector<int> nodes(all.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  // Names of containers may all be "localhost".
  if (std::ranges::all_of(all, [](const Seen& one) { return one.size == 1; })) return nodes;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Seen& one = all[rank];
    const auto same = [&](const Seen& other) { return other.host == one.host; };
    if (static_cast<std::uint64_t>(std::ranges::count_if(all, same)) != one.size) return {};
    nodes[rank] = static_cast<int>(std::ranges::find_if(all, same) - all.begin());
  }
  return nodes;
}

Lane::Lane(Communicator& ranks, const std::vector<int>& members, int sums)
    : requests_(static_cast<std::size_t>(sums), MPI_REQUEST_NULL) {
  std::vector<int> launch;
  for (const int rank : members) launch.push_back(ranks.launch_rank(rank));
  const Turn turn;
  MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  turn.check(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
  turn.check(MPI_Group_incl(all, static_cast<int>(launch.size()), launch.data(), &some), "MPI_Group_incl");
  constexpr int kTag = 1;
  turn.check(MPI_Comm_create_group(MPI_COMM_WORLD, some, kTag, &members_), "MPI_Comm_create_group");
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  turn.check(MPI_Comm_set_errhandler(members_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

bool Lane::busy() const {
  return std::ranges::any_of(requests_, [](MPI_Request one) { return one != MPI_REQUEST_NULL; });
}

Lane::~Lane() {
  if (busy()) return;  // the others may not come
  const Turn turn;
  MPI_Comm_free(&members_);
}

void Lane::start(int sum, float* data, std::int64_t count) {
  keep(MPI_Iallreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, members_,
                      &requests_[static_cast<std::size_t>(sum)]),
       "MPI_Iallreduce");
}

bool Lane::done(int sum) {
  int done;
  keep(MPI_Test(&requests_[static_cast<std::size_t>(sum)], &done, MPI_STATUS_IGNORE), "MPI_Test");
  return status_ == MPI_SUCCESS && done != 0;
}

void Lane::check() const { check_status(status_, call_); }

void Lane::keep(int status, const char* call) {
  if (status_ != MPI_SUCCESS) return;
  status_ = status;
  call_ = call;
}

}  // namespace dat
