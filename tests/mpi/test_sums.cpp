// Messages that are added up in memory that the ranks of a node share, beside MPI's sums of them.

#include <sys/resource.h>
#include <unistd.h>

#include <iostream>
#include <sstream>

#include "catch.hpp"
#include "communicate/mpi_calls.hpp"
#include "communicate/node/lane.hpp"
#include "communicate/node/node_window.hpp"
#include "reduce/sums/sums.hpp"
#include "reduction_case.hpp"
#include "world.hpp"

using namespace dat;
using namespace dat::test;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

constexpr std::int64_t kFloat = sizeof(float);

int ranks_of_a_node = 0;  // 0: as the machine is

/// Numbers of a row of a rank in a step.
[[nodiscard]] std::vector<float> numbers_of(int rank, std::size_t row, std::uint32_t step, std::int64_t count) {
  return random_values(count, 1000 * step + 10 * static_cast<std::uint32_t>(rank) + static_cast<std::uint32_t>(row),
                       0.1F, 99.7F);
}

/// Sums of parts of these lengths, two steps of them, by the member of the family. node: of this rank; as in
/// SumOptions.
[[nodiscard]] std::vector<float> added(const std::string& name, const std::vector<std::int64_t>& counts,
                                       const SummationTree* tree, bool overlap, Communicator& ranks = world(),
                                       std::optional<int> node = {}) {
  const auto backend = test_backend(1);
  std::int64_t all = 0, most = 1;
  for (const std::int64_t count : counts) {
    all += count;
    most = std::max(most, count);
  }
  const auto sums = make_sums(name, {.backend = *backend,
                                     .ranks = ranks,
                                     .tree = tree,
                                     .bytes = all * kFloat,
                                     .longest = most,
                                     .parts = static_cast<int>(std::ssize(counts)),
                                     .overlap = overlap,
                                     .node = node});
  const std::size_t rows = tree == nullptr ? 1 : tree->nodes(ranks.rank()).size();
  std::vector<float> result;
  for (std::uint32_t step = 0; step < 2; ++step) {
    for (std::size_t row = 0; row < rows; ++row) {
      const auto numbers = numbers_of(ranks.rank(), row, step, all);
      backend->copy_to_device(sums->device(static_cast<int>(row), 0), numbers.data(), numbers.size() * sizeof(float));
    }
    std::vector<Request> requests;
    std::int64_t at = 0;
    for (const std::int64_t count : counts) {
      backend->wait_for(sums->fetch(at * kFloat, count * kFloat));
      requests.push_back(sums->start(at * kFloat, count));
      at += count;
    }
    at = 0;
    for (std::size_t k = 0; k < counts.size(); ++k) {
      requests[k].wait();
      sums->send(at * kFloat, counts[k] * kFloat);
      at += counts[k];
    }
    const auto sum = to_host(*backend, reinterpret_cast<const float*>(sums->device(0, 0)), all);
    result.insert(result.end(), sum.begin(), sum.end());
  }
  return result;
}

/// What this process may have of something, by default the longest file that it may make, as long as the object lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t most, decltype(RLIMIT_FSIZE) of = RLIMIT_FSIZE) : of_(of) {
    getrlimit(of_, &before_);
    const rlimit limit{most, before_.rlim_max};
    setrlimit(of_, &limit);
  }
  ~FileLimit() { setrlimit(of_, &before_); }

 private:
  const decltype(RLIMIT_FSIZE) of_;
  rlimit before_{};
};

}  // namespace

TEST_CASE("The memory of a node adds up with the bits of MPI's sums, in parts of any length", "[sums]") {
  const std::int64_t p = world().size();
  const std::vector<std::int64_t> counts{0, 1, p - 1, p + 1, 3 * p, 20011, 0, 303};
  if (p > 1) (void)world().move_on_beside();
  const SummationTree one(static_cast<int>(p), world().size());
  CHECK(
      error_of([&] { (void)added("nccl", {303}, &one, false); }) ==
      "6: --node-sums nccl cannot be had: NCCL does not add up in the order that --deterministic wants; choose mpi, or "
      "leave it off");
  for (const bool overlap : {false, true}) {
    INFO((overlap ? "overlapped" : "blocking"));
    CHECK(differing(added("window", counts, nullptr, overlap), added("mpi", counts, nullptr, overlap)) == 0);
  }
  for (const int leaves : {static_cast<int>(p), static_cast<int>(2 * p) + 1, static_cast<int>(5 * p) + 1}) {
    const SummationTree tree(leaves, world().size());
    INFO(leaves << " leaves");
    CHECK(differing(added("window", counts, &tree, false), added("mpi", counts, &tree, false)) == 0);
  }
}

namespace {

/// Sums over ranks of which `node_of` says the node, against sums in double; and their bits on all ranks.
void compare_over_nodes(Communicator& ranks, int (*node_of)(int rank), bool overlap) {
  const std::int64_t p = ranks.size();
  const std::vector<std::int64_t> counts{20011, 1, 0, p - 1, p + 1, 70001, 303};
  const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  std::map<int, int> nodes;
  for (int rank = 0; rank < p; ++rank) ++nodes[node_of(rank)];
  const auto [least, most] =
      std::minmax_element(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (2 * least->second < most->second) return;  // goes by MPI
  INFO(p << " ranks on " << nodes.size() << " nodes" << (overlap ? ", overlapped" : ""));
  const std::int64_t given = ranks.bytes_given();
  const auto sums = added("window", counts, nullptr, overlap, ranks, node_of(ranks.rank()));
  CHECK(ranks.bytes_given() - given < all);  // not by MPI over all ranks
  const double bound = static_cast<double>(p) * std::numeric_limits<float>::epsilon() / 2;
  int wrong = 0;  // numbers that are no numbers, too
  for (std::uint32_t step = 0; step < 2; ++step) {
    std::vector<double> expected(static_cast<std::size_t>(all));
    for (int rank = 0; rank < p; ++rank) {
      const auto numbers = numbers_of(rank, 0, step, all);
      for (std::size_t k = 0; k < numbers.size(); ++k) expected[k] += double{numbers[k]};
    }
    for (std::size_t k = 0; k < expected.size(); ++k)
      wrong += std::abs(sums[step * expected.size() + k] / expected[k] - 1) < bound ? 0 : 1;  // numbers are positive
  }
  CHECK(wrong == 0);
  std::vector<float> of_all(sums.size() * static_cast<std::size_t>(p));
  ranks.all_gather(sums.data(), of_all.data(), sums.size() * sizeof(float));
  int others = 0;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(p); ++rank)
    others += std::memcmp(&of_all[rank * sums.size()], sums.data(), sums.size() * sizeof(float)) != 0 ? 1 : 0;
  CHECK(others == 0);
}

}  // namespace

TEST_CASE("Over several nodes, shares are added up in the memory of each and by MPI between them", "[sums]") {
  if (world().size() < 3) return;
  (void)world().move_on_beside();
  const int six = std::min(world().size(), 6);
  const auto group = world().subgroup(world().rank() < six ? 0 : Communicator::kNoColor, -world().rank());
  for (const bool overlap : {false, true}) {
    for (const auto node_of : {+[](int rank) { return rank / 2; }, +[](int rank) { return rank / 3; },
                               +[](int rank) { return 7 - rank % 2; }}) {
      compare_over_nodes(world(), node_of, overlap);
      if (group != nullptr && six < world().size()) compare_over_nodes(*group, node_of, overlap);
    }
  }
  const auto backend = test_backend(1);
  const auto refused = [&](std::int64_t longest) {
    return error_of([&] {
      (void)make_sums(
          "window",
          {.backend = *backend, .ranks = world(), .bytes = kFloat, .longest = longest, .node = world().rank() / 2});
    });
  };
  const std::int64_t longest = (world().size() % 2 == 0 ? std::int64_t{2} : 1) << 28;  // by the least ranks of a node
  CHECK(contains(refused(longest), "messages of more than 2^28 numbers a share are too long between nodes"));
  CHECK(refused(longest - 1) == "none");
  // The order of a tree is MPI's matter, with the bits that it has on one node.
  const SummationTree tree(2 * world().size() + 1, world().size());
  const std::string error = error_of([&] { (void)added("window", {303}, &tree, false, world(), world().rank() / 2); });
  CHECK(error ==
        "6: --node-sums window cannot be had: the ranks are on several nodes, and --deterministic adds up over all of "
        "them in one order; choose mpi, or leave it off");
  CHECK(differing(added("auto", {303}, &tree, false, world(), world().rank() / 2),
                  added("window", {303}, &tree, false)) == 0);
  // A rank on each node has nobody to share memory with.
  const std::int64_t given = world().bytes_given();
  const auto alone = added("window", {303}, nullptr, true, world(), world().rank());
  CHECK(world().bytes_given() - given > 303);  // by MPI over all ranks
  CHECK(differing(alone, added("mpi", {303}, nullptr, true)) == 0);
  CHECK(!contains(read_bytes("/proc/self/maps"), "memfd:dat_hpc"));  // of the nodes' memory nothing is left
  // One rank would add up for three and more.
  if (world().size() > 3)
    CHECK(
        contains(error_of([&] { (void)added("window", {303}, nullptr, false, world(), world().rank() == 0 ? 1 : 0); }),
                 "a node has less than half as many ranks as another one"));
}

/// Stands before the MPI library (see requests.cpp), for groups that are on nodes of so many ranks.
extern "C" int MPI_Comm_split_type(MPI_Comm group, int type, int key, MPI_Info info, MPI_Comm* node) {
  if (ranks_of_a_node == 0) return PMPI_Comm_split_type(group, type, key, info, node);
  int rank = 0;
  PMPI_Comm_rank(group, &rank);
  return PMPI_Comm_split(group, rank / ranks_of_a_node, key, node);
}

TEST_CASE("Ranks that MPI finds on several nodes add up by it, and one name of all hosts tells no nodes", "[sums]") {
  if (world().size() < 3) return;
  const auto on_nodes_of = [](int ranks) {
    ranks_of_a_node = ranks;
    auto group = world().subgroup(0, world().rank());
    ranks_of_a_node = 0;
    return group;
  };
  const auto apart = on_nodes_of(1), pairs = on_nodes_of(2);
  std::vector<int> every(static_cast<std::size_t>(world().size()));
  std::iota(every.begin(), every.end(), 0);
  CHECK(apart->node_size() == 1);
  CHECK(nodes_of(*apart) == every);
  CHECK(nodes_of(*pairs).empty());
  CHECK(error_of([&] { (void)added("window", {303}, nullptr, false, *pairs); }) ==
        "6: --node-sums window cannot be had: the names of hosts do not tell which ranks share memory; choose mpi, or "
        "leave it off");
  const auto one = added("mpi", {303}, nullptr, false), other = added("mpi", {303}, nullptr, false, *apart);
  int wrong = 0;
  for (std::size_t k = 0; k < one.size(); ++k) wrong += std::abs(other[k] / one[k] - 1) < 1e-5F ? 0 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("Where a sum is only tested, nobody waits for ranks that have not begun it, or not added up", "[sums]") {
  if (world().size() == 1) return;
  Progress::of_process().stop();  // nobody adds up beside
  const auto backend = test_backend(1);
  const auto sums = make_sums("window", {.backend = *backend, .ranks = world(), .bytes = kFloat, .longest = 1});
  Request sum;
  for (const bool root : {true, false}) {
    if (world().root() == root) sum = sums->start(0, 1);
    if (world().root()) CHECK(!sum.test());
    world().barrier();
    if (world().root() && !root) CHECK(!sum.test());
    world().barrier();
  }
  sum.wait();
}

TEST_CASE("The first error of MPI between nodes is kept, and after it no sum is ever done", "[sums]") {
  if (world().size() == 1) return;
  std::vector<int> all(static_cast<std::size_t>(world().size()));
  std::iota(all.begin(), all.end(), 0);
  std::unique_ptr<Lane> lane;
  world().meet([&] { lane = std::make_unique<Lane>(world(), all, 1); });
  CHECK_NOTHROW(lane->check());
  {
    const Turn turn;
    float number = 1;
    lane->start(0, &number, -1);
    CHECK((!lane->done(0) && !lane->busy()));
    CHECK(contains(message_of([&] { lane->check(); }, ExitCode::communication), "MPI: MPI_Iallreduce failed: "));
  }
  world().meet([&] { lane.reset(); });
}

TEST_CASE("Where one rank lacks shared memory, all go by MPI, or none where the memory was asked for", "[sums]") {
  if (world().size() == 1) return;
  const int lacking = world().size() - 1;
  std::string why, error;
  std::unique_ptr<NodeWindow> window;
  std::vector<float> numbers;
  std::ostringstream told;
  {
    std::optional<FileLimit> limit;
    if (world().rank() == lacking) limit.emplace(1 << 20);
    window = NodeWindow::make(world(), 2 << 20, why);
    const auto backend = test_backend(1);
    const SumOptions options{.backend = *backend, .ranks = world(), .bytes = 2 << 20, .longest = 1 << 19};
    error = error_of([&] { (void)make_sums("window", options); });
    SumOptions over_nodes = options;
    over_nodes.node = world().rank() / 2;  // the reason of one node is that of all
    CHECK(error_of([&] { (void)make_sums("window", over_nodes); }) == error);
    std::streambuf* const before = std::cerr.rdbuf(told.rdbuf());
    const auto sums = make_sums("auto", options);
    (void)make_sums("auto", options);
    std::cerr.rdbuf(before);
    const float one = 1;
    backend->copy_to_device(sums->device(0, 0), &one, sizeof one);
    backend->wait_for(sums->fetch(0, kFloat));
    sums->start(0, 1).wait();
    sums->send(0, kFloat);
    numbers = to_host(*backend, reinterpret_cast<const float*>(sums->device(0, 0)), 1);
  }
  CHECK((window == nullptr && why == "files may have 1 MiB here (ulimit -f), and 3 MiB of shared memory are needed"));
  CHECK(error == "6: --node-sums window cannot be had: " + why + "; choose mpi, or leave it off");
  CHECK(told.str() ==
        (world().root() ? "dat_hpc: note: --node-sums window cannot be had: " + why + "\n" : ""));  // once
  CHECK(numbers.front() == static_cast<float>(world().size()));
  const int next = dup(STDERR_FILENO);
  close(next);
  const FileLimit enough((2 << 20) + (1 << 16));  // what is asked for, after a page of counters
  CHECK(NodeWindow::make(world(), 2 << 20, why) != nullptr);
  // Files are closed again; and now that rank can have no more, or its own alone.
  for (const auto& [most, words] : {std::pair(next, "no file in memory: Too many open files"),
                                    {next + 1, "memory of another rank of this node cannot be opened, /proc/"}}) {
    std::optional<FileLimit> limit;
    if (world().rank() == lacking) limit.emplace(static_cast<rlim_t>(most), RLIMIT_NOFILE);
    CHECK((NodeWindow::make(world(), 1, why) == nullptr && why.starts_with(words)));
  }
}

TEST_CASE("What a rank has written before it says so is seen by those who have waited for it", "[sums]") {
  std::string why;
  const auto window = NodeWindow::make(world(), 1, why);
  CHECK(window != nullptr);
  if (window == nullptr) return;
  CHECK(window->bytes() == 1U << 16);                                                      // a page
  CHECK(nodes_of(world()) == std::vector<int>(static_cast<std::size_t>(world().size())));  // one node
  const int me = world().rank(), next = (me + 1) % world().size();
  std::int64_t wrong = 0;
  // Counters go round.
  constexpr std::uint32_t kBefore = 0xfffffeffU;
  window->say(1, kBefore - 1);
  window->say(0, kBefore);
  CHECK(!window->has(me, 1, kBefore));
  world().barrier();
  for (std::uint32_t k = kBefore + 1, turn = 1; turn < 500; ++turn, ++k) {
    std::memcpy(window->block(me), &turn, sizeof turn);
    window->say(0, k);
    while (!window->has(next, 0, k)) window->nap(next, 0, k);
    std::uint32_t found = 0;
    std::memcpy(&found, window->block(next), sizeof found);
    wrong += found != turn;
    window->say(1, k);
    for (int rank = 0; rank < world().size(); ++rank)
      while (!window->has(rank, 1, k)) window->nap(rank, 1, k);
  }
  CHECK(wrong == 0);
}
