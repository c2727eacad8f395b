#include <cerrno>

#include "environment.hpp"
#include "replica/control_groups.hpp"
#include "replica/cores.hpp"
#include "verbs/doctor/machine.hpp"

using namespace dat;

namespace {

const std::optional<double> kNone;
const char* const kSecond = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
const char* const kFirst =
    "30 23\n"
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";

}  // namespace

TEST_CASE("Quotas of control groups: the least of a process's own group and those above it", "[cores]") {
  const TemporaryFolder folder;
  const std::string root = folder.path();
  CHECK(!cores_of_groups(root));  // nothing is mounted
  write_bytes(root + "/proc/self/mountinfo", kSecond);
  write_bytes(root + "/proc/self/cgroup", "\n0::/a/b\n");
  CHECK(!cores_of_groups(root));
  for (const auto& [group, quota, cores] : {std::tuple("a/b", "max 100000\n", kNone),
                                            {"a", "150000 100000\n", 1.5},
                                            {"a/b", "400000 100000\n", 1.5},
                                            {"a/b", "50000 100000\n", 0.5},
                                            {"a/b", "50000 0\n", 1.5},
                                            {"a/b", "0 100000\n", 1.5},
                                            {"a/b", "50000\n", 1.5},
                                            {"a/b", "50000 100000\n", 0.5},
                                            {"a/other", "1000 100000\n", 0.5}}) {  // not an ancestor
    write_bytes(root + "/sys/fs/cgroup/" + group + "/cpu.max", quota);
    CHECK(cores_of_groups(root) == cores);
  }
}

TEST_CASE("A container sees its own group as the top, by whatever name its group has outside", "[cores]") {
  const TemporaryFolder folder;
  const std::string root = folder.path();
  write_bytes(root + "/proc/self/mountinfo", kSecond);
  write_bytes(root + "/sys/fs/cgroup/cpu.max", "300000 100000\n");
  write_bytes(root + "/sys/fs/cpu.max", "1000 100000\n");  // above what is mounted
  for (const char* group : {"0::/\n", "0::/../../else\n", "0::/docker/1f2e\n"}) {
    INFO(group);
    write_bytes(root + "/proc/self/cgroup", group);
    CHECK(cores_of_groups(root) == 3);
  }
  // Part of the hierarchy is mounted, and the group lies below it.
  write_bytes(root + "/proc/self/mountinfo", "30 23 0:26 /kubepods/pod1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write_bytes(root + "/proc/self/cgroup", "0::/kubepods/pod1/c\n");
  write_bytes(root + "/sys/fs/cgroup/c/cpu.max", "200000 100000\n");
  CHECK(cores_of_groups(root) == 2);
}

TEST_CASE("Hierarchies may be mounted in folders with blanks in their names", "[cores]") {
  const TemporaryFolder folder;
  const std::string root = folder.path();
  write_bytes(root + "/proc/self/mountinfo",
              "30 23 0:26 /a\\040b /my\\040own\\134cg100\\x41\\04 rw - cgroup2 cgroup2 rw\n");
  write_bytes(root + "/proc/self/cgroup", "0::/a b/c\n");
  write_bytes(root + "/my own\\cg100\\x41\\04/c/cpu.max", "200000 100000\n");
  CHECK(cores_of_groups(root) == 2);
}

TEST_CASE("Cores are counted where the kernel knows of more than a set of the C library has", "[cores]") {
  const auto machine = [](std::size_t known, std::size_t allowed) {
    return [=](std::size_t bytes, cpu_set_t* cores) {
      errno = EINVAL;
      if (8 * bytes < known) return -1;
      for (std::size_t core = 0; core < allowed; ++core) CPU_SET_S(core, bytes, cores);
      return 0;
    };
  };
  CHECK((cores_allowed(machine(64, 3)) == 3 && cores_allowed(machine(5000, 1500)) == 1500));
  CHECK(cores_allowed([](std::size_t, cpu_set_t*) { return errno = EPERM, -1; }) == 1);
}

TEST_CASE("What the system does not say of its memory is not made up", "[cores]") {
  const TemporaryFolder folder;
  const std::string root = folder.path();
  CHECK(memory_text(root) == "not told by the system; dat_hpc validate says what a training takes");
  write_bytes(root + "/proc/self/mountinfo", kSecond);
  write_bytes(root + "/sys/fs/cgroup/memory.max", "4000000000\n");
  CHECK(contains(memory_text(root), "not told by the system; the control group allows 4.0 GB;"));
  write_bytes(root + "/proc/meminfo", "MemTotal:       2000000 kB\nMemAvailable:    1000000 kB\n");
  const std::string less = "; the control group allows 1.0 GB";
  for (const auto& [limit, said] : {std::pair("4000000000", std::string()), {"2048000000", ""}, {"1000000000", less}}) {
    write_bytes(root + "/sys/fs/cgroup/memory.max", limit);
    CHECK(memory_text(root) == "2.0 GB, 1.0 GB of it free" + said + "; dat_hpc validate says what a training takes");
  }
}

TEST_CASE("Quotas of the first version, beside hierarchies that do not count time", "[cores]") {
  const TemporaryFolder folder;
  const std::string root = folder.path();
  write_bytes(root + "/proc/self/mountinfo", kFirst);
  write_bytes(root + "/proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/slurm/job\n1:name=systemd:/\n");
  for (const char* file : {"quota_us", "period_us"})  // of no meaning there
    write_bytes(root + "/sys/fs/cgroup/cpuset/cpu.cfs_" + file, "1000\n");
  for (const auto& [group, quota, cores] :
       {std::tuple("job/", "-1\n", kNone), {"", "250000\n", 2.5}, {"job/", "100000\n", 1.0}}) {
    const std::string there = root + "/sys/fs/cgroup/cpu,cpuacct/slurm/" + group;
    write_bytes(there + "cpu.cfs_quota_us", quota);
    write_bytes(there + "cpu.cfs_period_us", "100000\n");
    CHECK(cores_of_groups(root) == cores);
  }
}

TEST_CASE("Limits of memory: the least of a process's own group and those above it, in both versions", "[cores]") {
  const TemporaryFolder folder;
  const std::string root = folder.path();
  write_bytes(root + "/proc/self/mountinfo", kSecond);
  write_bytes(root + "/proc/self/cgroup", "0::/a/b\n");
  write_bytes(root + "/sys/fs/cgroup/a/b/memory.max", "max\n");
  write_bytes(root + "/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  CHECK(!memory_of_groups(root));
  write_bytes(root + "/sys/fs/cgroup/a/memory.max", "4294967296\n");
  CHECK(memory_of_groups(root) == 4294967296.0);
  write_bytes(root + "/sys/fs/cgroup/a/b/memory.max", "1073741825\n");
  CHECK(memory_of_groups(root) == 1073741825.0);

  write_bytes(root + "/proc/self/mountinfo",
              "32 31 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n");
  write_bytes(root + "/proc/self/cgroup", "5:cpuset:/x\n4:memory:/slurm/job\n");
  CHECK(!memory_of_groups(root));
  write_bytes(root + "/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "2000000000\n");
  CHECK(memory_of_groups(root) == 2e9);
}

TEST_CASE("Threads of a rank: its cores, its share of a quota, and OMP_NUM_THREADS before both", "[cores]") {
  const auto of = [](int ranks, const KnownCores& known) { return cores_of_rank(ranks, known).count; };
  for (const auto& [ranks, cores] : {std::pair(1, 8), {3, 2}, {0, 8}, {9, 1}})
    CHECK(of(ranks, {.bound = 8, .all = 8}) == cores);
  CHECK(of(3, {.bound = 4, .all = 8}) == 4);
  for (const auto& [ranks, bound, quota, cores] :
       {std::tuple(1, 8, 2.0, 2), {1, 8, 2.9, 2}, {1, 8, 0.5, 1}, {2, 8, 6, 3}, {1, 3, 6, 3}, {1, 8, 1e12, 8}})
    CHECK(of(ranks, {.bound = bound, .all = 8, .quota = quota}) == cores);
  CHECK(cores_of_rank(3, {.bound = 8, .all = 8}).source == "the cores of the node, shared by 3 ranks");
  CHECK(cores_of_rank(1, {.bound = 8, .all = 8, .quota = 8.0}).source == "the cores of the node");
  CHECK(cores_of_rank(1, {.bound = 8, .all = 8, .quota = 1.0}).source == "a quota of 1 core of its control group");
  CHECK(cores_of_rank(2, {.bound = 8, .all = 8, .quota = 6.0}).source ==
        "a quota of 6 cores of its control group, shared by 2 ranks");
  CHECK(cores_of_rank(1, {.bound = 2, .all = 8, .quota = 6.0}).source == "the cores that this rank is bound to");

  CHECK((threads_of_openmp("3") == 3 && !threads_of_openmp(nullptr)));
  CHECK((threads_of_openmp(" 4,2") == 4 && threads_of_openmp("1") == 1 && threads_of_openmp("4096") == 4096));
  for (const char* none : {"", "0", "-2", "two", "4097", "99999999999"}) CHECK(!threads_of_openmp(none));
  const test::Environment threads("OMP_NUM_THREADS", "5");
  CHECK((choose_threads(0, 2) == 5 && choose_threads(7, 2) == 7 && default_threads(2).source == "OMP_NUM_THREADS"));
  unsetenv("OMP_NUM_THREADS");
  CHECK(choose_threads(0, 2) == cores_of_rank(2).count);
}
