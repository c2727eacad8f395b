#include "allocations.hpp"
#include "catch.hpp"
#include "reduction_case.hpp"
#include "small_run.hpp"
#include "train/trainer.hpp"
#include "world.hpp"

using namespace dat;
using namespace dat::test;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

const std::vector<Way> kWays = {{"float32", "sum"},     {"float32", "gather"},     {"float32", "two_sided"},
                                {"bf16", "two_sided"},  {"bf16", "gather"},        {"f16", "two_sided"},
                                {"f16", "gather"},      {"int8", "gather"},        {"int8", "two_sided"},
                                {"terngrad", "gather"}, {"terngrad", "two_sided"}, {"atomo", "gather"},
                                {"powersgd", "sum"}};

/// Elements of the share of each rank: runs of groups of four.
std::vector<std::int64_t> shares_of(std::int64_t size) {
  std::vector<std::int64_t> all;
  const std::int64_t groups = (size + 3) / 4, ranks = world().size();
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    all.push_back(std::min(size, groups * (rank + 1) / ranks * 4) - std::min(size, groups * rank / ranks * 4));
  return all;
}

/// Bytes of a message of so many elements, by hand.
std::int64_t bytes_of(const std::string& codec, std::int64_t size) {
  if (size == 0) return 0;
  return codec == "float32"    ? 4 * size
         : codec == "int8"     ? 4 + (size + 3) / 4 * 4
         : codec == "terngrad" ? 4 + (size + 15) / 16 * 4
                               : (size + 1) / 2 * 4;
}

std::vector<float> mean_of(const std::vector<std::vector<float>>& all) {
  std::vector<float> mean = all.front();
  for (std::size_t i = 0; i < mean.size(); ++i) {
    for (std::size_t rank = 1; rank < all.size(); ++rank) mean[i] += all[rank][i];
    mean[i] *= 1.0F / static_cast<float>(all.size());
  }
  return mean;
}

}  // namespace

TEST_CASE("Codecs: gathered messages give the mean of what each is alone", "[codec]") {
  ReductionCase f(world());
  ReductionCase alone;
  const ActiveSet active = random_active(f.model.parameters.layers(), 2, 0.8F);
  for (const Way& way : kWays) {
    if (way.transport != "gather") continue;
    for (const bool overlap : {false, true}) {
      GradientReducer reducer =
          f.reducer({.bucket_elements = 3000, .overlap = overlap, .codec_transport = "gather"}, way.codec);
      const auto ours = f.reduce(reducer, active, 3);
      std::vector<std::vector<float>> parts;
      for (alone.sender = 0; alone.sender < world().size(); ++alone.sender) {
        GradientReducer one = alone.reducer({.codec_transport = "gather"}, way.codec);
        parts.push_back(alone.reduce(one, active, 3, f.gradient_of(alone.sender, 3)));
      }
      const auto expected = mean_of(parts), mine = f.gradient_of(world().rank(), 3);
      std::int64_t wrong = 0;
      for (const Segment& segment : f.model.parameters.segments)
        for (const std::size_t i : elements_of(segment)) {
          wrong += ours[i] != (active.active(segment.layer) ? expected[i] : mine[i]);
        }
      INFO(text(way) << (overlap ? ", overlapped" : ""));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("Codecs: near the mean, on all ranks the same, in any buckets, and the bytes by hand", "[codec]") {
  ReductionCase f(world(), 12, 1);  // so few classes that ranks have no share of the last bias
  f.codec_options.settings.codec_clip = 0;
  const Parameters& p = f.model.parameters;
  const std::int64_t ranks = world().size();
  for (const Way& way : kWays)
    for (const bool overlap : {false, true})
      for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{3000}, std::int64_t{8} << 20}) {
        GradientReducer reducer =
            f.reducer({.bucket_elements = bucket, .overlap = overlap, .codec_transport = way.transport}, way.codec);
        const ActiveSet active = random_active(p.layers(), 4, 0.7F);
        const double before = world().seconds_under_way();
        const auto ours = f.reduce(reducer, active, 1);
        INFO(text(way) << ", buckets of " << bucket << (overlap ? ", overlapped" : ""));
        if (way.transport != "sum" && ranks > 1)
          CHECK((world().seconds_under_way() > before) == overlap);  // else each call waits
        std::vector<std::vector<float>> gradients;
        for (int rank = 0; rank < ranks; ++rank) gradients.push_back(f.gradient_of(rank, 1));
        const auto mean = mean_of(gradients), mine = f.gradient_of(world().rank(), 1);
        std::int64_t wrong = 0, sent = 0;
        double common = 0;
        for (const Segment& segment : p.segments) {
          const bool is_active = active.active(segment.layer);
          double largest = 0, norm = 0;
          for (const auto& gradient : gradients) {
            for (const std::size_t i : elements_of(segment)) largest = std::max(largest, std::abs(double(gradient[i])));
            norm += norm_of(gradient, segment) / static_cast<double>(ranks);
          }
          for (const std::size_t i : elements_of(segment)) {
            common += is_active ? static_cast<double>(i % 97 + 1) * ours[i] : 0;
            if (!is_active) {
              wrong += ours[i] != mine[i];
              continue;
            }
            // A level of the norm, and one of the mean's; the scale, and the mean's, which is of signs times scales;
            // half a unit in the last place of each and of the mean. Elsewhere no plain bound.
            const double bound = way.codec == "int8"       ? 2.2 * norm / 127
                                 : way.codec == "terngrad" ? 2 * largest
                                 : way.codec == "bf16"     ? 2 * 0x1p-8
                                 : way.codec == "f16"      ? 2 * 0x1p-11
                                 : way.codec == "float32"  ? 4 * 0x1p-24 * static_cast<double>(ranks)
                                                           : 1e9;
            wrong += !(std::abs(double(ours[i]) - mean[i]) <= bound * 1.001);
          }
          if (!is_active || way.codec == "atomo" || way.codec == "powersgd") continue;
          const std::int64_t whole = bytes_of(way.codec, segment.size);
          if (way.transport == "sum" || way.transport == "gather")
            sent += whole;
          else
            for (const std::int64_t share : shares_of(segment.size)) sent += bytes_of(way.codec, share);
        }
        CHECK(wrong == 0);
        double others = common;
        world().broadcast(&others, sizeof others);
        CHECK(others == common);
        if (way.codec != "atomo" && way.codec != "powersgd") {
          CHECK(reducer.bytes_sent() == (ranks > 1 ? sent : 0));
        } else if (ranks > 1) {
          CHECK((reducer.bytes_sent() > 0 && reducer.bytes_sent() < 4 * reducer.elements()));
        }
        std::vector<double> drawn(active.scale.size());
        for (std::size_t d = 0; d < drawn.size(); ++d) drawn[d] = active.scale[d] != 0 ? 1 : 0;
        if (ranks > 1)
          CHECK(reducer.bytes_sent(drawn, static_cast<int>(ranks)) == static_cast<double>(reducer.bytes_sent()));
      }
}

TEST_CASE("TernGrad clips each tensor that it is given by that tensor's own elements, padding apart", "[codec]") {
  // One element of a share is large and the others are zero: clipped to 2.5 deviations of the share it goes for
  // certain, and the same again in the mean's way back. Shares are runs of groups of four.
  for (const int width : {16, 12})
    for (const std::string transport : {"gather", "two_sided"}) {
      ReductionCase f(world(), width);
      const Parameters& p = f.model.parameters;
      std::vector<float> mine(static_cast<std::size_t>(p.size)), expected = mine;
      for (const Segment& segment : p.segments) {
        std::int64_t begin = segment.begin;
        for (const std::int64_t share :
             transport == "gather" ? std::vector<std::int64_t>{segment.size} : shares_of(segment.size)) {
          const std::int64_t end = begin + share;
          double count = 0;
          for (std::int64_t i = begin; i < end; ++i) count += f.real[static_cast<std::size_t>(i)];
          std::int64_t large = begin;
          while (large < end && f.real[static_cast<std::size_t>(large)] == 0) ++large;
          begin = end;
          if (large == end) continue;
          const double clipped = std::min(1.0, 2.5 * std::sqrt(1 / count - 1 / (count * count)));
          mine[static_cast<std::size_t>(large)] = 3;
          expected[static_cast<std::size_t>(large)] =
              static_cast<float>(3 * (count > 1 ? transport == "gather" ? clipped : clipped * clipped : 1));
        }
      }
      GradientReducer reducer = f.reducer({.codec_transport = transport}, "terngrad");
      const auto ours = f.reduce(reducer, ActiveSet::all(p.layers()), 0, mine);
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < ours.size(); ++i)
        wrong += !(std::abs(ours[i] - expected[i]) <= 1e-5 * std::abs(expected[i]));
      INFO(transport << ", width " << width);
      CHECK(wrong == 0);
    }
}

TEST_CASE("PowerSGD: ranks find what one finds for their mean, and keep what it lacks", "[codec]") {
  ReductionCase f(world());
  ReductionCase alone;
  const Parameters& p = f.model.parameters;
  const ActiveSet all = ActiveSet::all(p.layers());
  GradientReducer reducer = f.reducer({.bucket_elements = 3000}, "powersgd");
  GradientReducer one = alone.reducer({}, "powersgd");
  std::vector<float> before(static_cast<std::size_t>(p.size), 0.0F);
  for (std::int64_t step = 0; step < 3; ++step) {
    const auto mine = f.gradient_of(world().rank(), step);
    const auto ours = f.reduce(reducer, all, step, mine);
    std::vector<std::vector<float>> gradients;
    for (int rank = 0; rank < world().size(); ++rank) gradients.push_back(f.gradient_of(rank, step));
    const auto expected = alone.reduce(one, all, step, mean_of(gradients));
    const auto error = to_host(*f.backend, reducer.state().front().data, p.size);
    std::int64_t wrong = 0;
    for (const Segment& segment : p.segments)
      for (const std::size_t i : elements_of(segment)) {
        if (segment.shape.size() == 1) continue;
        const double input = double(mine[i]) + before[i];
        wrong +=
            std::abs(double(ours[i]) + error[i] - input) > 0x1p-24 * (std::abs(input) + std::abs(error[i])) * 1.0001;
      }
    CHECK(wrong == 0);
    // f32 sums of P, whose columns have a condition of some ten, go through the orthonormal P to the result.
    CHECK(relative_l2(ours, expected) < 1e-5);
    before = error;
  }
}

TEST_CASE("Codecs with masks of each rank's own: the mean counts zeros, in every transport that goes", "[codec]") {
  ReductionCase f(world());
  const Parameters& p = f.model.parameters;
  std::vector<ActiveSet> layers;
  std::vector<std::vector<float>> gradients;
  for (int rank = 0; rank < world().size(); ++rank) {
    layers.push_back(random_active(p.layers(), 10 + static_cast<std::uint32_t>(rank), 0.5F));
    gradients.push_back(f.gradient_of(rank, 1));
  }
  for (const Way& way : kWays)
    for (const std::string masks : {"dense", "union", "allgather"}) {
      if (masks == "allgather" && way.transport != "gather") continue;
      if (masks == "dense" && way.codec == "powersgd") continue;  // refused
      GradientReducer reducer =
          f.reducer({.bucket_elements = 3000, .mask_transport = masks, .codec_transport = way.transport}, way.codec);
      const auto ours = f.reduce(reducer, layers, 1, gradients[static_cast<std::size_t>(world().rank())]);
      INFO(text(way) << ", " << masks);
      std::int64_t wrong = 0;
      double common = 0;
      for (const Segment& segment : p.segments) {
        int count = 0;
        for (const ActiveSet& of : layers) count += of.active(segment.layer) ? 1 : 0;
        for (const std::size_t i : elements_of(segment)) {
          double mean = 0;
          for (int rank = 0; rank < world().size(); ++rank)
            if (layers[static_cast<std::size_t>(rank)].active(segment.layer))
              mean += double(gradients[static_cast<std::size_t>(rank)][i]) / world().size();
          if (count > 0) common += static_cast<double>(i % 89 + 1) * ours[i];
          const double level = std::sqrt(static_cast<double>(segment.size)) / 127;
          if (count > 0 && (way.codec == "bf16" || way.codec == "f16" || way.codec == "float32"))
            wrong += !(std::abs(ours[i] - mean) <= 2 * 0x1p-8 * 1.001);
          if (count > 0 && way.codec == "int8") wrong += !(std::abs(ours[i] - mean) <= 2.2 * level);
        }
      }
      CHECK(wrong == 0);
      double others = common;
      world().broadcast(&others, sizeof others);
      CHECK(others == common);
    }
}

TEST_CASE("A steady step of any codec allocates nothing", "[codec][cpu]") {
  if (test_device() != "cpu") return;  // the double of CUDA's libraries allocates
  ReductionCase f(world());
  const ActiveSet all = ActiveSet::all(f.model.parameters.layers());
  const ActiveSet some = random_active(f.model.parameters.layers(), 3, 0.6F);
  for (const Way& way : kWays)
    for (const bool overlap : {false, true}) {
      GradientReducer reducer =
          f.reducer({.bucket_elements = 1000, .overlap = overlap, .codec_transport = way.transport}, way.codec);
      INFO(text(way) << (overlap ? ", overlapped" : ""));
      CHECK(allocations_in_steps(f, reducer, all, some) == 0);
    }
}

namespace {

TrainOptions with_codec(const Way& way, const std::string& mask) {
  TrainOptions options = small_run();
  options.codec = way.codec;
  options.codec_transport = way.transport;
  options.mask = mask;
  options.bucket = 3000;
  options.epochs = 4;
  options.attack = "none";
  options.lambda = 0;
  options.batch = 4;
  options.micro_batch = 4;
  options.limit_train = 64;
  options.limit_test = 16;
  options.threads = 1;
  return options;
}

/// Of rank 0's checkpoint; empty elsewhere.
std::vector<float> array_of(const Checkpoint& checkpoint, const std::string& name) {
  for (const Checkpoint::Array& array : checkpoint.arrays)
    if (array.name == name) return array.values;
  return {};
}

}  // namespace

TEST_CASE("Errors of other ranks: each takes the mean of what there was; without any, none", "[codec]") {
  const TrainOptions options = with_codec({"powersgd", "sum"}, "shared");
  Started many(world(), options, 3);
  const std::string before = "codec state before the step";  // to which no step goes back
  CHECK(std::ranges::count(many.replica().backend().allocations(), before, &Backend::Allocation::purpose) == 0);
  const Checkpoint state = many.capture();
  if (world().root()) {
    Resumed one(single(), options, state);
    const auto of_all = array_of(state, "codec/powersgd_error"), now = array_of(one.capture(), "codec/powersgd_error");
    const std::size_t size = now.size();
    CHECK(of_all.size() == size * static_cast<std::size_t>(world().size()));
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < size; ++i) {
      double mean = 0;
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(world().size()); ++rank)
        mean += of_all[rank * size + i] / static_cast<double>(world().size());
      wrong += std::abs(now[i] - mean) > 0x1p-24 * std::abs(mean);
    }
    CHECK((wrong == 0 && array_of(one.capture(), "codec/powersgd_q") == array_of(state, "codec/powersgd_q")));

    Checkpoint without = state;
    std::erase_if(without.arrays, [](const Checkpoint::Array& array) { return array.name.starts_with("codec/"); });
    Resumed other(single(), options, without);
    const auto none = array_of(other.capture(), "codec/powersgd_error");
    CHECK(std::all_of(none.begin(), none.end(), [](float value) { return value == 0; }));

    TrainOptions wide = options;
    wide.codec_rank = 3;
    Trainer wider(single(), wide);
    const ExitCode code = code_of([&] { wider.restore(state); });
    CHECK(code == ExitCode::checkpoint);
  }
  world().barrier();
}
