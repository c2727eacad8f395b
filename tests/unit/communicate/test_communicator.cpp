#include "catch.hpp"
#include "communicate/hang/processes.hpp"
#include "dat/communicator.hpp"
#include "environment.hpp"

using namespace dat;

// A group of one rank, which calls MPI never: this program does not start MPI. Several ranks: tests/mpi.

TEST_CASE("A single rank needs no launcher and is all ranks", "[communicator]") {
  const auto single = Communicator::single();
  CHECK((single->size() == 1 && single->root() && single->node_rank() == 0 && single->node_size() == 1));
  CHECK(host_name() == first_line("/proc/sys/kernel/hostname"));
  float value = 3;
  single->sum(&value, 1);
  Request sum = single->start_sum(&value, 1);
  CHECK((sum.test() && value == 3 && single->minimum(-4) == -4 && single->agree(7)));
  CHECK(single->gather(std::vector<double>{1, 2}) == std::vector<double>{1, 2});
  CHECK(single->gather("me") == std::vector<std::string>{"me"});
  std::string text = "text";
  single->broadcast(text);
  CHECK(text == "text");
  single->barrier();
  CHECK((single->bytes_given() == 0 && !single->watched()));
}

TEST_CASE("What a single rank gathers and exchanges is its own", "[communicator]") {
  const auto single = Communicator::single();
  const std::vector<std::uint8_t> mine = {1, 2, 3};
  const auto arrives = [&](auto&& call) {
    std::vector<std::uint8_t> all(4, 9);
    call(all.data());
    CHECK(all == std::vector<std::uint8_t>{1, 2, 3, 9});
  };
  arrives([&](void* all) { single->all_gather(mine.data(), all, mine.size()); });
  arrives([&](void* all) { single->all_gather(mine.data(), all, std::vector<int>{3}); });
  arrives([&](void* all) { single->start_all_gather(mine.data(), all, mine.size()).wait(); });
  arrives([&](void* all) {
    const std::vector<int> bytes{2}, at{1};
    *static_cast<std::uint8_t*>(all) = 1;
    single->start_all_gather(mine.data() + 1, all, bytes, at).wait();
  });
  arrives([&](void* all) { single->exchange(mine.data(), {3}, all, {3}); });
  arrives([&](void* all) {
    const std::vector<int> bytes{2}, at{1};
    *static_cast<std::uint8_t*>(all) = 1;
    single->start_exchange(mine.data(), bytes, at, all, bytes, at).wait();
  });
  single->all_gather(nullptr, nullptr, 0);
}

TEST_CASE("What launchers announce is read from the variables of each, and is one rank without them",
          "[communicator]") {
  const auto check = [](auto&& asked, int none, const std::vector<const char*>& names) {
    test::Environment environment;
    for (const char* name : names) environment.set(name, ""), ::unsetenv(name);
    CHECK(asked() == none);
    for (const char* name : names) {
      INFO(name);
      ::setenv(name, "3(x4),1", 1);
      CHECK(asked() == 3);
      ::setenv(name, "0", 1);
      CHECK(asked() == none);
      ::unsetenv(name);
    }
  };
  check([] { return another_rank_speaks() ? 3 : 0; }, 0,
        {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"});
  check(announced_ranks, 1, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS"});
  check(started_together, 1, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"});
  check(announced_ranks_on_node, 1,
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE",
         "SLURM_TASKS_PER_NODE"});
}

TEST_CASE("A launcher is known by any variable of its own", "[communicator]") {
  std::istringstream words(
      "OMPI_COMM_WORLD_SIZE PMIX_NAMESPACE PMIX_RANK PMI_RANK PMI_FD PMI_PORT PMI_ID MPI_LOCALRANKID "
      "MV2_COMM_WORLD_SIZE MVP_COMM_WORLD_SIZE MPT_MPI_RANK SLURM_STEP_ID SLURM_STEPID FLUX_TASK_RANK "
      "JSM_NAMESPACE_RANK PALS_RANKID ALPS_APP_PE");
  const std::vector<std::string> names(std::istream_iterator<std::string>(words), {});
  test::Environment environment;
  for (const std::string& name : names) environment.set(name, ""), ::unsetenv(name.c_str());
  CHECK(!launched());
  for (const std::string& name : names) {
    const test::Environment one(name, "");
    INFO(name);
    CHECK(launched());
  }
}

TEST_CASE("A single rank divides into itself, or into nothing", "[communicator]") {
  const auto single = Communicator::single();
  const auto group = single->subgroup(5, -3);
  REQUIRE(group != nullptr);
  CHECK((group->size() == 1 && group->root() && group->agree(1)));
  CHECK(single->subgroup(Communicator::kNoColor, 0) == nullptr);
  CHECK_THROWS_AS(single->subgroup(-7, 0), Error);
}

TEST_CASE("A single rank has nobody to write to, and no post", "[communicator]") {
  const auto single = Communicator::single();
  char byte = 1;
  for (const int other : {0, 1, -1}) {
    CHECK_THROWS_AS(single->send(&byte, 1, other, 0), Error);
    CHECK_THROWS_AS(single->receive(&byte, 1, other, 0), Error);
    CHECK_THROWS_AS(single->start_send(&byte, 1, other, 0), Error);
    CHECK_THROWS_AS(single->start_receive(&byte, 1, other, 0), Error);
  }
  CHECK(!single->probe(Communicator::kAnyRank, Communicator::kAnyTag).has_value());
}

TEST_CASE("A request without anything under way is done, and may be moved, overwritten and destroyed",
          "[communicator]") {
  Request none;
  CHECK(none.test());
  none.wait();
  Request other = std::move(none);
  CHECK(other.test());
  other = Request();
  other.wait();
}

TEST_CASE("What is too long for one message is refused before MPI sees it", "[communicator]") {
  const auto single = Communicator::single();
  constexpr std::size_t kLong = std::size_t{1} << 31;
  CHECK_THROWS_WITH(single->broadcast(nullptr, kLong), Catch::Matchers::Contains("a broadcast of 2147483648 bytes"));
  CHECK_THROWS_AS(single->all_gather(nullptr, nullptr, kLong), Error);
  CHECK_THROWS_AS(single->start_all_gather(nullptr, nullptr, kLong), Error);
  CHECK_THROWS_AS(single->start_sum(nullptr, (1 << 28) + 1), Error);
  single->broadcast(nullptr, kLong - 1);  // the most
  CHECK(single->start_sum(nullptr, 1 << 28).test());
}
