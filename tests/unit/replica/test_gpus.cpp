#include "backend/cpu/backend.hpp"
#include "catch.hpp"
#include "replica/device_notices.hpp"
#include "replica/gpus.hpp"
#include "single.hpp"

using namespace dat;

namespace {

[[nodiscard]] cpu_set_t cores(const std::vector<int>& numbers) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : numbers) CPU_SET(core, &set);
  return set;
}

constexpr NumaNodes kFirst = 1, kSecond = 2, kBoth = 3, kUnknown = 0;
const std::vector<int> kEight{0, 0, 0, 0, 1, 1, 1, 1};
using Ranks = std::vector<NumaNodes>;
using Gpus = std::vector<int>;

}  // namespace

TEST_CASE("GPUs are dealt by NUMA nodes, and each is used equally often", "[cores]") {
  struct Case {
    const char* what;
    Ranks ranks;
    Gpus gpus, dealt;
  };
  const std::vector<Case> cases{
      {"8 ranks bound to NUMA nodes in blocks", {1, 1, 1, 1, 2, 2, 2, 2}, kEight, {0, 1, 2, 3, 4, 5, 6, 7}},
      {"8 ranks that go round the NUMA nodes", {1, 2, 1, 2, 1, 2, 1, 2}, kEight, {0, 4, 1, 5, 2, 6, 3, 7}},
      {"8 ranks bound to cores of the first", Ranks(8, kFirst), kEight, {0, 1, 2, 3, 4, 5, 6, 7}},
      {"8 ranks that are not bound", Ranks(8, kBoth), kEight, {0, 1, 2, 3, 4, 5, 6, 7}},
      {"8 ranks of which nothing is known", Ranks(8, kUnknown), kEight, {0, 1, 2, 3, 4, 5, 6, 7}},
      {"4 ranks of 8 GPUs", {1, 1, 2, 2}, kEight, {0, 1, 4, 5}},
      {"4 ranks of 8 GPUs, not bound", Ranks(4, kBoth), kEight, {0, 1, 2, 3}},
      {"3 ranks, one not bound: it takes what the others leave", {kBoth, kFirst, kSecond}, {0, 1}, {0, 0, 1}},
      {"2 ranks, the first not bound: the other one chooses before it", {kBoth, kFirst}, {0, 1}, {1, 0}},
      {"GPUs in the order of the other socket", {1, 1, 2, 2}, {1, 1, 0, 0}, {2, 3, 0, 1}},
      {"one GPU each", Ranks(4, kSecond), {0}, {0, 0, 0, 0}},
      {"6 ranks on the first NUMA node", Ranks(6, kFirst), kEight, {0, 1, 2, 3, 4, 5}},
      {"5 ranks of 2 GPUs", {2, 2, 1, 1, 1}, {0, 1}, {1, 1, 0, 0, 0}},
      {"5 ranks of 2 GPUs, where 4 are near one", {2, 2, 2, 2, 1}, {0, 1}, {1, 1, 0, 1, 0}},
      {"no NUMA nodes are told", {1, 1, 2, 2, 2}, {-1, -1, -1}, {0, 1, 2, 0, 1}},
      {"one NUMA node", Ranks(5, kFirst), {0, 0, 0}, {0, 1, 2, 0, 1}},
      {"3 NUMA nodes, one without GPUs", {1, 4, 2}, {0, 2}, {0, 1, 0}},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    const Gpus dealt = deal_gpus(c.ranks, c.gpus);
    CHECK(dealt == c.dealt);
    std::vector<std::ptrdiff_t> used;
    for (std::size_t gpu = 0; gpu < c.gpus.size(); ++gpu)
      used.push_back(std::count(dealt.begin(), dealt.end(), static_cast<int>(gpu)));
    CHECK(*std::max_element(used.begin(), used.end()) - *std::min_element(used.begin(), used.end()) <= 1);
  }
}

TEST_CASE("The NUMA nodes of cores are those in whose lists they stand", "[cores]") {
  const TemporaryFolder folder;
  const std::string root = folder.path(), nodes = root + "/sys/devices/system/node/node";
  CHECK(numa_nodes_of(cores({0}), root) == kUnknown);
  write_bytes(nodes + "0/cpulist", "0-3,8-11\n");
  write_bytes(nodes + "1/cpulist", "4-7,,12-15\n");
  write_bytes(nodes + "2/cpulist", "\n");  // memory alone
  write_bytes(nodes + "3/cpulist", "17,16-,1000-1100\n");
  write_bytes(nodes + "63/cpulist", "99\n");
  const auto of = [&](const std::vector<int>& numbers) { return numa_nodes_of(cores(numbers), root); };
  CHECK((of({0}) == kFirst && of({11}) == kFirst && of({4, 15}) == kSecond && of({3, 4}) == kBoth));
  for (const int core : {17, CPU_SETSIZE - 1}) CHECK(of({core}) == 8);
  CHECK((of({99}) == NumaNodes{1} << 63 && of({16}) == kUnknown && of({}) == kUnknown));
}

TEST_CASE("Cores and a GPU are far from each other where both are known", "[cores]") {
  CHECK((is_near(kFirst, 0) && !is_near(kFirst, 1) && is_near(kBoth, 1)));
  CHECK((is_near(kUnknown, 1) && is_near(kFirst, -1) && !is_near(kSecond, 0) && is_near(kSecond, 64)));
}

TEST_CASE("Ranks whose cores are far from their GPUs are told, where the system says so", "[cores]") {
  struct Far final : cpu::CpuBackend {
    Far() : CpuBackend(1, true, "f32") {}
    [[nodiscard]] int numa_node() const override { return 62; }  // which has none of these cores
    [[nodiscard]] std::string remark() const override { return "it is slow"; }
  } backend;
  const bool told = numa_nodes_of(test::single().launch_node_cores().front()) != kUnknown;
  std::vector<std::string> expected{"warning: it is slow"};
  if (told)
    expected.push_back(
        "warning: cores of these ranks are far from their GPUs: 0; bind ranks to NUMA nodes (mpirun --map-by numa "
        "--bind-to numa), see dat_hpc doctor");
  CHECK(device_notices(test::single(), backend, "cpu", true) == expected);
}

TEST_CASE("Hosts that have dealt their GPUs alike are told together, where one has several ranks", "[cores]") {
  CHECK(gpus_of_hosts({"aa 0", "aa 4", "ab 0", "ab 4", "ac 1"}) == "0, 4 on aa, ab; 1 on ac");
  CHECK(gpus_of_hosts({"aa 0", "ab 0"}).empty());
}
