#include "catch.hpp"
#include "reduce/transport/message.hpp"
#include "reduce/tree/mean_of_units.hpp"
#include "reduction_case.hpp"
#include "train/message/codec_state.hpp"

using namespace dat;
using namespace dat::test;

// One rank without MPI. Several: tests/mpi/test_reducer.cpp.

TEST_CASE("One rank whose gradients are the result already does nothing: no message, no memory for one", "[reducer]") {
  ReductionCase f;
  GradientReducer reducer = f.reducer({});
  const ActiveSet active = random_active(f.model.parameters.layers(), 3, 0.7F);
  CHECK(differing(f.reduce(reducer, active, 1), f.gradient_of(0, 1)) == 0);
  const std::vector<double> half(active.scale.size(), 0.5);
  CHECK(reducer.bytes_sent(half, 3) == 2.0 * static_cast<double>(f.model.parameters.size));
  CHECK((reducer.elements() > 0 && reducer.bytes_sent() == 0 && reducer.seconds_under_way() == 0));
  const auto memory = f.backend->allocations();
  CHECK(std::none_of(memory.begin(), memory.end(), [](const auto& one) { return one.purpose == "gradient message"; }));
}

TEST_CASE(
    "Transports of masks per worker: unknown ones are refused, and aggregators that would take zeros for gradients",
    "[reducer]") {
  ReductionCase f;
  const auto refusal = [&](const std::string& transport, const std::string& aggregator) -> std::string {
    return message_of([&] { (void)f.reducer({.mask_transport = transport}, "float32", aggregator); });
  };
  CHECK(contains(refusal("ring", "mean"), "known: dense, union, allgather"));
  for (const std::string transport : {"dense", "union", "allgather"}) {
    CHECK((refusal(transport, "mean").empty() && contains(refusal(transport, "largest"), "--aggregator mean")));
  }
  CHECK(refusal("", "largest").empty());
}

TEST_CASE("What an aggregator remembers is in checkpoints and shared, beside what the codec does", "[reducer]") {
  ReductionCase f;
  const ActiveSet all = ActiveSet::all(f.model.parameters.layers());
  GradientReducer straight = f.reducer({}, "coarse", "heavy");
  (void)f.reduce(straight, all, 1);
  Checkpoint checkpoint;
  CodecState(f.group, *f.backend, straight).save(checkpoint);
  REQUIRE(checkpoint.arrays.size() == 2);
  CHECK((checkpoint.arrays[0].name == "codec/residual" && checkpoint.arrays[1].name == "aggregator/before"));
  const auto expected = f.reduce(straight, all, 2);
  const auto resumed = [&](const Checkpoint& from) {
    GradientReducer other = f.reducer({}, "coarse", "heavy");
    CodecState state(f.group, *f.backend, other);
    state.restore(from);
    state.share(f.group);
    return f.reduce(other, all, 2);
  };
  CHECK(differing(resumed(checkpoint), expected) == 0);
  // Of a run with another codec, or with another aggregator: what there is goes on.
  for (const std::size_t kept : {0, 1}) {
    Checkpoint part;
    part.arrays.push_back(checkpoint.arrays[kept]);
    CHECK((differing(resumed(part), expected) > 0 && differing(resumed(part), resumed({})) > 0));
  }
  const auto copies = [&] {
    const auto memory = f.backend->allocations();
    return std::count_if(memory.begin(), memory.end(),
                         [](const auto& one) { return one.purpose == "codec state before the step"; });
  };
  CHECK(copies() == 0);
  const CodecState goes_back(f.group, *f.backend, straight, true);
  CHECK(copies() == 2);
  checkpoint.arrays[1].shape[0] -= 1;
  checkpoint.arrays[1].values.pop_back();
  CHECK_THROWS_WITH(resumed(checkpoint), Catch::Matchers::Contains("--aggregator"));
}

TEST_CASE("PowerSGD goes on where its rank is so large that it factors no tensor", "[reducer]") {
  ReductionCase f;
  f.codec_options.settings.codec_rank = 1000;
  const ActiveSet all = ActiveSet::all(f.model.parameters.layers());
  GradientReducer straight = f.reducer({}, "powersgd"), resumed = f.reducer({}, "powersgd");
  (void)f.reduce(straight, all, 1);
  Checkpoint checkpoint;
  CodecState(f.group, *f.backend, straight).save(checkpoint);
  REQUIRE(checkpoint.arrays.size() == 2);
  CHECK(checkpoint.arrays[1].values.empty());
  CodecState state(f.group, *f.backend, resumed);
  state.restore(checkpoint);
  state.share(f.group);
  CHECK(differing(f.reduce(resumed, all, 2), f.reduce(straight, all, 2)) == 0);
}

TEST_CASE("What wraps a reducer hands on what it does not do itself", "[reducer]") {
  ReductionCase f;
  const Parameters& p = f.model.parameters;
  const SummationTree order(3, 1);
  auto made = make_reducer(*f.backend, f.group, p, f.gradients, f.codec("powersgd"), f.aggregator("mean"), {});
  const Reducer& of = *made;
  MeanOfUnits wrapper(*f.backend, p, f.gradients, order, 0, std::move(made));
  const ActiveSet all = ActiveSet::all(p.layers());
  wrapper.begin({&all, 1}, 1);
  CHECK(wrapper.place(0) == f.gradients);
  wrapper.finish();
  CHECK((wrapper.elements() == p.size && wrapper.bytes_sent() == 0 && wrapper.seconds_under_way() == 0));
  CHECK((wrapper.transport() == "sum" && wrapper.state().size() == 2));
  const std::vector<double> half(all.scale.size(), 0.5);
  CHECK((of.bytes_sent(half, 3) > 0 && wrapper.bytes_sent(half, 3) == of.bytes_sent(half, 3)));
  CHECK((of.added_up(3) > 0 && wrapper.added_up(3) == of.added_up(3)));
  // Room for a unit after the first one, where any rank has several.
  CHECK((wrapper.memory(2) == of.memory(2) + 4 * p.size && wrapper.memory(3) == of.memory(3)));
}

TEST_CASE("A reduction says when each of its stages ends, in buckets as long as they may be", "[reducer]") {
  ReductionCase f;
  const Parameters& p = f.model.parameters;
  const auto stages = [&](const std::string& codec, std::int64_t bucket, bool overlap) {
    std::string all;  // outside, encode, communicate, decode, aside
    ReducerOptions options{.bucket_elements = bucket, .overlap = overlap};
    options.ended = [&](ReducerStage stage) { all += "oecda"[static_cast<std::size_t>(stage)]; };
    GradientReducer reducer = f.reducer(options, codec);
    (void)f.reduce(reducer, ActiveSet::all(p.layers()), 1);
    return all;
  };
  CHECK((stages("float32", p.size, false).empty() && stages("coarse", p.size, false) == "oecdd"));
  CHECK(stages("coarse", p.size - 1, false) == "oeoecdcdd");  // the first tensor by itself
  CHECK(stages("coarse", p.size - 1, true) == "oecoeccdcdd");
  CHECK(stages("powersgd", p.size - 1, false) == "oeoecdoecdoecdcdd");
}

TEST_CASE("Buckets of no element, and of more bytes than MPI counts, are refused", "[reducer]") {
  ReductionCase f;
  CHECK(error_of([&] { (void)f.reducer({.bucket_elements = 0}); }) == "2: DAT_BUCKET must be at least 1 element");
  const auto checked = [](std::int64_t bytes) {
    return error_of([&] { check_length({.elements = 7}, bytes, "a message of ", " bytes"); });
  };
  CHECK(checked(0x7fffffff) == "none");
  CHECK(checked(0x80000000) ==
        "6: a bucket of 7 gradients is a message of 2147483648 bytes: 2^31 - 1 is the most that goes at once; choose a "
        "smaller DAT_BUCKET");
  Segment tensor;
  for (; tensor.size < 2; ++tensor.size) CHECK(bytes_of(*f.codec("int8"), tensor) == 8 * tensor.size);
}

TEST_CASE("A rank's units become their mean, times all units over its own, once", "[reducer]") {
  ReductionCase f;
  const Parameters& p = f.model.parameters;
  const int units = GENERATE(1, 2, 3);
  const SummationTree order(2 * units + 1, 2);  // so many of them are this rank's
  std::string stages;
  ReducerOptions options;
  options.ended = [&](ReducerStage stage) { stages += "oecda"[static_cast<std::size_t>(stage)]; };
  MeanOfUnits reducer(
      *f.backend, p, f.gradients, order, 0,
      make_reducer(*f.backend, f.group, p, f.gradients, f.codec("bf16"), f.aggregator("mean"), options));
  const auto memory = f.backend->allocations();
  CHECK(std::ranges::count(memory, "gradient of a micro-batch", &Backend::Allocation::purpose) == (units > 1 ? 1 : 0));
  const float factor = static_cast<float>(2 * units + 1) / static_cast<float>(units);
  for (const std::int64_t step : {1, 2}) {
    const ActiveSet active = random_active(p.layers(), static_cast<std::uint32_t>(step), 0.6F);
    reducer.begin({&active, 1}, step);
    const auto one = f.gradient_of(0, step);
    std::vector<float> sum(one.size(), 0.0F);
    for (int unit = 0; unit < units; ++unit) {
      const auto numbers = f.gradient_of(unit, step);
      std::ranges::transform(sum, numbers, sum.begin(), std::plus<>());
      float* const place = reducer.place(unit);
      CHECK(reducer.place(unit) == place);
      f.backend->copy_to_device(place, numbers.data(), numbers.size() * sizeof(float));
    }
    if (step == 2) CHECK(reducer.own()[0] == f.gradients);
    const auto before = to_host(*f.backend, f.gradients, p.size);
    reducer.finish();
    const std::string told = std::exchange(stages, "");  // of each bucket, and of the mean, once
    CHECK((told.ends_with("oecdd") && told.find("dd") == told.size() - 2));
    const auto ours = to_host(*f.backend, f.gradients, p.size);
    std::int64_t wrong = 0;
    for (const Segment& segment : p.segments)
      for (const std::size_t i : elements_of(segment)) {
        const float mean = factor * sum[i];
        const bool sent = (std::bit_cast<std::uint32_t>(ours[i]) << 16) == 0 && (step == 1 || before[i] == mean);
        wrong += active.active(segment.layer) ? !(sent && std::abs(ours[i] - mean) <= 0x1p-8F * std::abs(mean))
                                              : ours[i] != one[i];
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("Families of the reduction refuse what they do not know, and say what they know", "[reducer]") {
  CHECK(codecs().names() ==
        std::vector<std::string>{"atomo", "bf16", "f16", "float32", "int8", "powersgd", "terngrad"});
  CHECK(aggregators().names() == std::vector<std::string>{"centered_clip", "geometric_median", "krum", "mean", "median",
                                                          "multi_krum", "trimmed_mean"});
  CHECK(transport_names() == std::vector<std::string>{"sum", "gather", "two_sided", "butterfly"});
  CHECK(repeats("mean") == Repeats::at_any_ranks);
  CHECK_THROWS_AS(transports().at("ring"), Error);
  CHECK(repeats("krum") == Repeats::at_equal_ranks);
  CHECK_THROWS_AS(repeats("largest"), Error);
  CHECK_THROWS_AS(codecs().at("int4"), Error);
  CHECK_THROWS_AS(aggregators().at("largest"), Error);
  for (const char* const option : {"faults", "aggregator:mixing"})
    CHECK(aggregators().others(option) == std::vector<std::string>{"mean"});
}
