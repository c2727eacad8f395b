// Choices of plans that are kept for the next process.

#include "catch.hpp"
// Catch before the names of the device.
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "backend/cuda/backend.hpp"
#include "dat/file.hpp"
#include "double.hpp"

using namespace dat;
using cuda::PlanCache;

namespace {

using namespace std::chrono_literals;

const ConvSpec kAttacked{.n = 2,
                         .c_in = 16,
                         .h = 8,
                         .w = 8,
                         .c_out = 32,
                         .frozen = true,
                         .relu = true,
                         .relu_input = true,
                         .storage = DType::f16};

struct Planned {
  std::string implementation, remark;
  std::vector<Trial> trials;
  int asked, built;
  long launches;
};
[[nodiscard]] Planned plan(const std::string& file, double seconds = 30, bool deterministic = false) {
  auto& s = dat_double::graph_switches();
  s.asked_a = s.asked_b = s.built = 0;
  const long before = dat_double::counts().graph_launches;
  const auto backend = make_backend(
      {.device = "cuda", .threads = 2, .deterministic = deterministic, .planning_seconds = seconds, .plans = file});
  const std::string chosen = backend->conv2d(kAttacked)->implementation();
  backend->commit_workspace();
  return {chosen,    backend->remark(), backend->trials(),
          s.asked_a, s.built,           dat_double::counts().graph_launches - before};
}

/// What the choices of a file are for.
[[nodiscard]] std::string machine_of(const std::string& file) {
  const std::string text = read_bytes(file);
  return text.substr(0, text.find('\t'));
}

/// Legacy calls that take long, so that plans of the graph API are chosen.
struct SlowLegacy {
  SlowLegacy() { dat_double::slow_legacy(20ms); }
  ~SlowLegacy() {
    dat_double::clear_vices();
    dat_double::graph_switches().wrong = false;
    unsetenv("DAT_DOUBLE_NAME");
  }
  SlowLegacy(const SlowLegacy&) = delete;
  SlowLegacy& operator=(const SlowLegacy&) = delete;
};

}  // namespace

TEST_CASE("The next process takes what was chosen: checked, not timed, and nothing else is built", "[double]") {
  const SlowLegacy slow;
  const TemporaryFolder folder;
  const std::string file = folder / "cache/dat_hpc/plans";
  const Planned first = plan(file), second = plan(file);
  INFO(first.implementation);
  REQUIRE(first.implementation.starts_with("graph engine "));
  CHECK((second.implementation == first.implementation && first.asked == 3));  // forward, gradient, rotated gradient
  CHECK((second.asked == 0 && second.built == 2 && second.launches == 0));
  CHECK(second.trials.size() == 3);  // with the gradient that the other one stands beside
  for (const Trial& t : second.trials) {
    INFO(t.pass << ", " << t.name);
    CHECK((t.refused.empty() && t.milliseconds > 0));
    CHECK(std::ranges::any_of(first.trials, [&](const Trial& then) {
      return then.pass == t.pass && then.name == t.name && then.milliseconds == t.milliseconds;
    }));
  }
  CHECK((first.remark.empty() && second.remark.empty()));

  // Nothing of another GPU, and nothing where trials decide nothing.
  setenv("DAT_DOUBLE_NAME", "another GPU", 1);
  for (const int asked : {3, 0}) CHECK(plan(file).asked == asked);
  unsetenv("DAT_DOUBLE_NAME");
  CHECK(plan(file).asked == 0);
  CHECK(!contains(plan(file, 30, true).implementation, "graph"));
}

TEST_CASE("A kept choice that is not right any more is tried anew with all others", "[double]") {
  const SlowLegacy slow;
  const TemporaryFolder folder;
  const std::string file = folder / "plans";
  const Planned first = plan(file);
  dat_double::graph_switches().wrong = true;
  const Planned wrong = plan(file);
  CHECK(!contains(wrong.implementation, "graph"));
  dat_double::graph_switches().wrong = false;
  CHECK(plan(file).implementation == wrong.implementation);  // which is right, too, and was kept
  // An engine, and a legacy call, that this version of the library does not have; sealed as it should be.
  for (const std::string& name : std::vector<std::string>{
           "graph engine 12345 1=2", "graph engine 90 2=77", "graph engine 90 2", "graph engine -1", "MAGIC_GEMM",
           "graph motor" + first.implementation.substr(12, first.implementation.find(" / ") - 12)}) {
    INFO(name);
    PlanCache(file, machine_of(file), true)
        .keep("3x3, 16 to 32 channels, 2 of 8x8, frozen, ReLU, f16, forward", {name, 0.5});
    const Planned next = plan(file);
    CHECK((next.asked == 1 && next.implementation.substr(0, 5) == "graph" && next.remark.empty()));
  }
}

TEST_CASE("A batch norm whose result is made again is this program's own, and the library's is refused with the reason",
          "[double]") {
  const auto backend = make_backend({.device = "cuda", .threads = 2});
  BatchNormSpec spec{.n = 2, .c = 16, .h = 4, .w = 4, .relu = true};
  spec.again = true;
  CHECK(backend->batch_norm(spec)->implementation() == "own");
  const std::vector<Trial> trials = backend->trials();
  REQUIRE(trials.size() == 1);
  CHECK(trials[0].convolution == "batch norm, 16 channels, 2 of 4x4, ReLU, made again, f32");
  CHECK(trials[0].refused == "it cannot make the same result a second time, as --recompute asks");
  CHECK((trials[0].name == "cuDNN" && trials[0].milliseconds == 0));
  // In bf16 the library's is not asked at all.
  const auto another = make_backend({.device = "cuda", .threads = 2});
  spec.again = false;
  spec.storage = DType::bf16;
  const auto norm = another->batch_norm(spec);
  CHECK((norm->implementation() == "own" && !norm->reads_result()));
  CHECK(another->trials().empty());
}

TEST_CASE("A batch norm of the library is compared in every process, and one that is wrong is not tried again",
          "[double]") {
  struct Clean {
    ~Clean() { dat_double::clear_vices(); }
  } const clean;
  const TemporaryFolder folder;
  const std::string file = folder / "plans", words = "batch norm, 16 channels, 2 of 4x4, ReLU, f32";
  const auto planned = [&](double seconds = 30) {
    const auto backend = make_backend({.device = "cuda", .threads = 2, .planning_seconds = seconds, .plans = file});
    const std::string chosen = backend->batch_norm({.n = 2, .c = 16, .h = 4, .w = 4, .relu = true})->implementation();
    backend->commit_workspace();
    return std::pair{chosen, backend->trials()};
  };
  const auto keep = [&](const std::string& name) { PlanCache(file, machine_of(file), true).keep(words, {name, 0.5}); };
  CHECK(planned(0).second.back().refused == "not tried: its share of DAT_PLANNING_SECONDS 0 is over");
  const auto [fastest, both] = planned();
  REQUIRE(both.size() == 2);
  CHECK(fastest == std::ranges::min_element(both, {}, &Trial::milliseconds)->name);
  // Known: neither timed nor in need of time, but compared.
  keep("cuDNN persistent");
  const long before = dat_double::counts().graph_launches;
  auto [chosen, trials] = planned(0);
  REQUIRE(trials.size() == 1);
  CHECK((chosen == "cuDNN persistent" && trials[0].milliseconds == 0.5));
  CHECK(dat_double::counts().graph_launches == before);
  // One that does not add, and one that leaves means as they were, as in a pass before.
  for (const bool adds : {false, true}) {
    dat_double::clear_vices();
    auto& vices = dat_double::vices(dat_double::Call::norm, 0);
    vices.ignores_beta = !adds;
    vices.half = adds;
    keep("cuDNN persistent");
    std::tie(chosen, trials) = planned();
    REQUIRE(trials.size() == 1);
    CHECK((chosen == "own" && trials[0].refused == "wrong results"));
    std::tie(chosen, trials) = planned();
    CHECK((chosen == "own" && trials.empty()));
  }
  dat_double::clear_vices();
  dat_double::vices(dat_double::Call::norm, 0).plain = true;
  keep("cuDNN");
  CHECK(planned(0).first == "cuDNN");
  // Sums over 800 numbers, of which some are near zero, may be off by the root of so many roundings, added twice.
  // A number may be off by a few of its own.
  using dat_double::Vices;
  for (const auto& [of, roundings, right] : {std::tuple(&Vices::off, 10.0, true),
                                             {&Vices::off, 100.0, false},
                                             {&Vices::off_y, 2.0, true},
                                             {&Vices::off_y, 4.5, false},
                                             {&Vices::off_y, 20.0, false}}) {
    dat_double::clear_vices();
    dat_double::vices(dat_double::Call::norm, 0).*of = roundings * 0x1p-17;
    const auto backend = make_backend({.device = "cuda", .threads = 2});
    (void)backend->batch_norm({.n = 2, .c = 16, .h = 20, .w = 20, .relu = of == &Vices::off});
    const auto tried = backend->trials();
    REQUIRE(!tried.empty());
    CHECK(tried.back().refused == (right ? "" : "wrong results"));
  }
}

TEST_CASE("A choice that was cut short is made anew where there is more time", "[double]") {
  const SlowLegacy slow;
  const TemporaryFolder folder;
  const std::string file = folder / "plans";
  const Planned none = plan(file, 0);
  CHECK((none.asked == 0 && !contains(none.implementation, "graph")));
  CHECK(plan(file, 0).trials.size() < none.trials.size());
  const Planned all = plan(file, 60);
  CHECK((all.asked == 3 && all.implementation.starts_with("graph engine ")));
  CHECK(plan(file, 0).implementation == all.implementation);
}

TEST_CASE("Time that is forgiven is there for the passes to come, and other time is not", "[double]") {
  for (const bool forgiven : {false, true}) {
    bool left = false;
    for (int attempt = 0; attempt < 5 && !left; ++attempt) {  // a machine with other work may be late
      cuda::PlanningTime time(0.1), of_engines(1.2);
      {
        cuda::PlanningTime::Share share(time), engines(of_engines);
        std::this_thread::sleep_for(100ms);
        CHECK((share.over() && engines.over_for_engines()));  // an eighth of two thirds
        if (forgiven) share.forgive();
      }
      left = !cuda::PlanningTime::Share(time).over();
    }
    CHECK(left == forgiven);
  }
}

TEST_CASE("A damaged file of choices is ignored with a word, and written anew", "[double]") {
  const SlowLegacy slow;
  const TemporaryFolder folder;
  const std::string file = folder / "plans";
  (void)plan(file);
  const std::string good = read_bytes(file), words = "3x3, 16 to 32 channels", machine = machine_of(file);
  std::string changed = good;
  changed[good.find("engine ") + 7] ^= 1;
  const auto whole = [](const std::string& fields) {
    const std::string body = "GPU\tpass\tplan\t" + fields + "\n";
    return body + "sha256 " + sha256_hex(body.data(), body.size()) + "\n";
  };
  for (const std::string& bad :
       {std::string(), good.substr(0, good.size() / 2), good.substr(0, good.size() - 1), changed, good + good,
        std::string("no choices\n"), std::string(5U << 20U, 'x'), std::string(300, '\0'), whole("1"),
        whole("1\twhole\tx"), whole("-1\twhole"), whole("inf\twhole"), whole("1\t-1"), whole("1\tx")}) {
    write_bytes(file, bad);
    INFO(bad.substr(0, 100));
    PlanCache cache(file, machine, true);
    CHECK(!cache.find(words));
    cache.keep(words, {"plan", 0.5});
    cache.write();
    CHECK(contains(cache.remark(), "is ignored and written anew"));
    CHECK(cache.remark().ends_with(bad.size() > (4U << 20U)   ? "it is larger than any that was written"
                                   : bad.starts_with("GPU\t") ? "a line is no choice"
                                                              : ""));
    PlanCache anew(file, machine, false);
    CHECK((anew.find(words) && anew.remark().empty()));
  }
  write_bytes(file, changed);
  const Planned next = plan(file);
  CHECK((contains(next.remark, "is ignored and written anew") && next.asked == 3));
  CHECK(plan(file).asked == 0);
  // One that cannot be written costs trials and nothing else.
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  CHECK(PlanCache(file, machine, false).remark().ends_with("it is no file"));
  const Planned folder_there = plan(file);
  CHECK(folder_there.implementation.starts_with("graph engine "));
  CHECK(contains(folder_there.remark, "cannot be kept"));
}

TEST_CASE("The first choice is in the file at once, and choices by TF32 are others", "[double]") {
  const TemporaryFolder folder;
  const std::string file = folder / "plans";
  PlanCache first(file, "GPU", true);
  first.keep("a", {"plan", 0.5});
  CHECK(PlanCache(file, "GPU", false).find("a"));
  std::filesystem::remove(file);
  first.write();  // nothing new
  CHECK(!std::filesystem::exists(file));
  {
    PlanCache last(file, "GPU", true);
    for (const char* pass : {"b", "c"}) last.keep(pass, {"plan", 0.5});
    CHECK(!PlanCache(file, "GPU", false).find("c"));
  }
  CHECK(PlanCache(file, "GPU", false).find("c"));  // at the end, and not before every few seconds
  ConvSpec spec = kAttacked;
  spec.storage = DType::f32;
  for (const std::string math : {"tf32", "f32"}) {
    const std::string of = folder / math;
    (void)make_backend({.device = "cuda", .threads = 2, .math = math, .plans = of})->conv2d(spec);
    for (const std::string by : {" by TF32", ""})
      CHECK(PlanCache(of, machine_of(of), false)
                .find("3x3, 16 to 32 channels, 2 of 8x8, frozen, ReLU, f32" + by + ", forward")
                .has_value() == (by.empty() == (math == "f32")));
  }
}

TEST_CASE("Of more choices than a file may hold those of the last process are kept", "[double]") {
  const TemporaryFolder folder;
  const std::string file = folder / "plans";
  for (const char pass : {'a', 'b'}) PlanCache(file, "GPU", true).keep(std::string(3U << 20U, pass), {"plan", 0.5});
  const PlanCache cache(file, "GPU", false);
  CHECK(cache.remark().empty());
  CHECK(!cache.find(std::string(3U << 20U, 'a')));
  CHECK(cache.find(std::string(3U << 20U, 'b')));
}

TEST_CASE("Choices of two processes at the same time leave a whole file", "[double]") {
  const TemporaryFolder folder;
  const std::string file = folder / "plans";
  const auto keep = [&](const std::string& machine) {
    PlanCache cache(file, machine, true);
    for (int k = 0; k < 40; ++k) {
      cache.keep("pass " + std::to_string(k), {"plan", 0.25 * k, 1.0 / 3});
      cache.write();
    }
    return cache.remark();
  };
  std::string others;
  std::jthread other([&] { others = keep("B"); });
  const std::string own = keep("A");
  other.join();
  CHECK(own + others == "");
  // Of the one that wrote last all, and of the other one what was there a moment before.
  bool whole = false;
  for (const std::string machine : {"A", "B"}) {
    PlanCache cache(file, machine, false);
    cache.keep("of this rank alone", {"plan", 1});
    CHECK(cache.remark().empty());
    if (const auto found = cache.find("pass 0")) CHECK(found->cut == 1.0 / 3);
    bool all = true;
    for (int k = 0; k < 40; ++k) all = all && cache.find("pass " + std::to_string(k));
    whole = whole || all;
  }
  CHECK(whole);
  CHECK(!contains(read_bytes(file), "of this rank alone"));
}
