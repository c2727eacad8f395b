// Sums by NCCL's double (tests/double/nccl/), on the double of CUDA's libraries, as if each rank saw a GPU of its own.

#include "../../double/double.hpp"
#include "catch.hpp"
#include "communicate/hang/beside.hpp"
#include "communicate/nccl/group.hpp"
#include "environment.hpp"
#include "reduce/sums/sums.hpp"
#include "reduction_case.hpp"
#include "replica/device_notices.hpp"
#include "world.hpp"

using namespace dat;
using namespace dat::test;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

struct OwnGpu : Environment {
  OwnGpu() : Environment("DAT_DOUBLE_OWN_GPU", "1") {}
};

/// Why the ranks cannot add up by NCCL; "joined": they can.
[[nodiscard]] std::string joined(const Backend& backend) {
  std::string why;
  return NcclGroup::join(world(), backend.device_id(), why) != nullptr ? "joined" : why;
}

}  // namespace

TEST_CASE("NCCL adds up what MPI adds up, but for rounding", "[reducer][nccl]") {
  const OwnGpu own;
  ReductionCase f(world(), 21);
  const ActiveSet active = random_active(f.model.parameters.layers(), 3, 0.7F);
  const int ranks = world().size();
  for (const std::string codec : {"float32", "powersgd", "f16", "bf16"})
    for (const bool overlap : {false, true}) {
      const auto sum = [&](const std::string& by) {
        GradientReducer reducer = f.reducer({.bucket_elements = 1000, .overlap = overlap, .node_sums = by}, codec);
        auto first = f.reduce(reducer, active, 1);
        const auto second = f.reduce(reducer, active, 2);
        first.insert(first.end(), second.begin(), second.end());
        return first;
      };
      const auto expected = sum("mpi"), ours = sum("nccl");
      // The rounding of each addition, of a sum of numbers between -1 and 1, divided by the number of ranks. A codec of
      // powers multiplies what has been rounded.
      const double unit = codec == "bf16" ? 0x1p-8 : codec == "f16" ? 0x1p-11 : codec == "float32" ? 0x1p-24 : 1e-5;
      double most = 0;
      for (std::size_t i = 0; i < ours.size(); ++i) most = std::max(most, std::abs(double(ours[i]) - expected[i]));
      INFO(codec << (overlap ? ", overlapped" : ""));
      CHECK(most <= ranks * unit);
      if (ranks == 2 && codec == "float32") CHECK(differing(ours, expected) == 0);
    }
  if (ranks == 1) return;
  const auto by = [&](const std::string& name) {
    GradientReducer reducer = f.reducer({.node_sums = name});
    return f.reduce(reducer, active, 1);
  };
  const auto expected = by("mpi");
  const Environment fault("DAT_DOUBLE_NCCL", "wrong@0#1");
  CHECK(differing(by("nccl"), expected) > 0);
}

TEST_CASE("More sums by NCCL than there are places for, one after the other", "[nccl]") {
  const OwnGpu own;
  (void)world().move_on_beside();
  const auto backend = test_backend(1);
  const auto sums =
      make_sums("nccl", {.backend = *backend, .ranks = world(), .bytes = sizeof(float), .longest = 1, .overlap = true});
  auto* const number = reinterpret_cast<float*>(sums->device(0, 0));
  for (const float value : {1.0F, 2.0F, 3.0F}) {
    backend->copy_to_device(number, &value, sizeof value);
    backend->wait_for(sums->fetch(0, sizeof value));
    Request sum = sums->start(0, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const double before = world().seconds_under_way();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK((world().seconds_under_way() > before || world().size() == 1));  // until this rank asks
    sum.wait();
    CHECK(to_host(*backend, number, 1).front() == value * static_cast<float>(world().size()));
  }
}

TEST_CASE("Why NCCL cannot be used is said alike on all ranks", "[nccl]") {
  std::string shared, own_gpu, none, version, init;
  {
    const auto backend = test_backend(1);
    const auto shares = [&](const char* asked, const std::string& of_version) {
      const Environment asks("NCCL_MULTI_RANK_GPU_ENABLE", asked), fault("DAT_DOUBLE_NCCL", of_version);
      return joined(*backend);
    };
    const std::string newer = "new@" + std::to_string(world().rank());  // from version 2.30 on
    shared = shares("1", "");
    CHECK(shares("0", newer) == (world().size() > 1 ? shared : "joined"));
    CHECK(shares("1", newer) == "joined");
  }
  const OwnGpu own;
  const auto backend = test_backend(1);
  own_gpu = joined(*backend);
  const auto faulty = [&](const std::string& how) {
    const Environment fault("DAT_DOUBLE_NCCL", how);
    return joined(*backend);
  };
  if (world().size() > 1) version = faulty("version@1");
  init = faulty("init@0");
  for (const int parts : {Backend::kTickets / 4, Backend::kTickets / 4 + 1}) {
    const std::string error = error_of([&] {
      (void)make_sums("nccl", {.backend = *backend, .ranks = world(), .bytes = 4, .longest = 1, .parts = parts});
    });
    CHECK(contains(error, std::to_string(parts) + " messages may be under way, ") == (parts > Backend::kTickets / 4));
    CHECK((error == "none") == (parts == Backend::kTickets / 4));
  }
  CHECK(contains(faulty("id@0"), "rank 0: ncclGetUniqueId: "));
  const std::string last = std::to_string(world().size() - 1);
  CHECK(faulty("mute@" + last) == "rank " + last + ": NCCL does not tell its version");
  std::string why;
  CHECK(NcclGroup::join(world(), world().rank() == 0 ? "" : backend->device_id(), why) == nullptr);
  CHECK((why == "rank 0: it has no GPU" && own_gpu == "joined"));
  CHECK(contains(init, "rank 0: ncclCommInitRank: "));
  if (world().size() == 1) return;
  CHECK((contains(shared, "ranks 0 and 1 share one GPU") && contains(version, "rank 0 has 2.28.9, rank 1 has 2.27.5")));
}

TEST_CASE("A group of NCCL's ends in order, or at once where an error goes up", "[nccl]") {
  const OwnGpu own;
  const auto backend = test_backend(1);
  const TemporaryFolder folder;
  const Environment log("DAT_DOUBLE_NCCL_LOG", folder / "log");
  std::string why;
  for (const bool well : {true, false})
    CHECK(error_of([&] {
            const auto group = NcclGroup::join(world(), backend->device_id(), why);
            if (!well) throw Error(ExitCode::numerical, "of the rank");
          }) == (well ? "none" : std::to_string(static_cast<int>(ExitCode::numerical)) + ": of the rank"));
  abort_beside();  // nothing: who has ended has left
  const auto group = NcclGroup::join(world(), backend->device_id(), why);
  abort_beside();
  CHECK((!group->alive() && failure_beside().empty()));
  const Environment fault("DAT_DOUBLE_NCCL", "init@0");  // the others end what they have joined
  CHECK(NcclGroup::join(world(), backend->device_id(), why) == nullptr);
  const std::string rank = "rank " + std::to_string(world().rank()) + ": 0 sums, ", aborted = rank + "aborted\n";
  CHECK(read_bytes(folder / "log") == rank + "ended\n" + aborted + aborted + (world().root() ? "" : aborted));
}

TEST_CASE("Ranks that share a GPU are told by rank 0, and of several GPUs which each has", "[nccl]") {
  const auto told = [](const std::string& of) {
    const auto backend = test_backend(1);
    std::vector<std::string> notices = device_notices(world(), *backend, "auto");
    std::erase_if(notices, [&](const std::string& notice) { return !contains(notice, of); });
    return notices;
  };
  const auto expected = [](const std::string& notice) {
    return std::vector<std::string>(world().root() && world().size() == 2 ? 1 : 0, notice);
  };
  const std::string sharing = " share one GPU", dealt = "GPUs of the ranks, ";
  CHECK(told(sharing) == expected("warning: ranks 0, 1 share one GPU of " + host_name() + ": start one rank per GPU"));
  CHECK(told(dealt).empty());
  dat_double::set_device_count(2);
  CHECK(told(dealt) == expected("GPUs of the ranks, in their order: 0, 0 on " + host_name()));
  dat_double::set_device_count(1);
  const OwnGpu own;
  CHECK(told(sharing).empty());
}

TEST_CASE("A sum that NCCL refuses, and one that fails later, are errors of communication", "[nccl]") {
  const OwnGpu own;
  ReductionCase f(world());
  const ActiveSet active = random_active(f.model.parameters.layers(), 3, 0.7F);
  for (const std::string kind : {"error", "async"}) {
    // Of all ranks, or the others would wait for this one.
    const Environment fault("DAT_DOUBLE_NCCL", kind + "@" + std::to_string(world().rank()) + "#1");
    GradientReducer reducer = f.reducer({.node_sums = "nccl"});
    INFO(kind);
    CHECK(contains(message_of([&] { f.reduce(reducer, active, 1); }, ExitCode::communication), "NCCL has failed: ") ==
          (world().size() > 1));
  }
}
