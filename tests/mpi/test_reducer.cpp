#include <algorithm>
#include <cmath>

#include "catch.hpp"
#include "dat/network.hpp"
#include "dat/reducer.hpp"
#include "device.hpp"
#include "random_values.hpp"
#include "world.hpp"

using namespace dat;
using namespace dat::test;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

/// FNV-1a over the bits.
std::uint64_t hash(const std::vector<float>& values) {
  std::uint64_t h = 0xcbf29ce484222325;
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (std::size_t i = 0; i < values.size() * sizeof(float); ++i) h = (h ^ bytes[i]) * 0x100000001b3;
  return h;
}

struct Fixture {
  Fixture()
      : backend(test::test_backend(1)),
        model(*backend, networks().at("small_cnn")({.width = 16, .size = 8}), Granularity::tensor) {}

  /// What one rank's backward pass left.
  [[nodiscard]] std::vector<float> gradient_of(int rank, std::uint32_t draw) const {
    return random_values(model.parameters.size, 1000 * draw + static_cast<std::uint32_t>(rank));
  }

  /// One step: the gradients after the reduction.
  std::vector<float> reduce(GradientReducer& reducer, const ActiveSet& active, std::uint32_t draw) {
    Parameters& p = model.parameters;
    const auto mine = gradient_of(world().rank(), draw);
    backend->copy_to_device(p.gradients, mine.data(), mine.size() * sizeof(float));
    reducer.begin(active);
    for (int k = static_cast<int>(p.segments.size()) - 1; k >= 0; --k)
      if (active.active(p.segments[static_cast<std::size_t>(k)].layer)) reducer.ready(k);
    reducer.finish();
    return to_host(*backend, p.gradients, p.size);
  }

  std::unique_ptr<Backend> backend;
  Model model;
};

}  // namespace

TEST_CASE("Active gradients become the mean over ranks, the others stand still, and the bytes are those sent",
          "[reducer]") {
  Fixture f;
  const Parameters& p = f.model.parameters;
  for (const bool overlap : {false, true})
    for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{8} << 20}) {
      GradientReducer reducer(*f.backend, world(), f.model.parameters, {.bucket_elements = bucket, .overlap = overlap});
      for (std::uint32_t draw = 0; draw < 6; ++draw) {
        const ActiveSet active = random_active(p.layers(), draw, static_cast<float>(draw) / 5);
        const auto ours = f.reduce(reducer, active, draw);
        std::vector<double> mean(ours.size(), 0.0), size(ours.size(), 0.0);
        for (int rank = 0; rank < world().size(); ++rank) {
          const auto part = f.gradient_of(rank, draw);
          for (std::size_t i = 0; i < part.size(); ++i) {
            mean[i] += double(part[i]) / world().size();
            size[i] += std::abs(double(part[i])) / world().size();
          }
        }
        const auto mine = f.gradient_of(world().rank(), draw);
        std::int64_t elements = 0, wrong = 0;
        for (const Segment& segment : p.segments) {
          const bool is_active = active.active(segment.layer);
          elements += is_active ? segment.size : 0;
          for (std::int64_t k = segment.begin; k < segment.begin + segment.size; ++k) {
            const auto i = static_cast<std::size_t>(k);
            // size - 1 additions, 1/size and the product: one rounding each.
            wrong +=
                is_active ? std::abs(ours[i] - mean[i]) > (world().size() + 1) * 0x1p-24 * size[i] : ours[i] != mine[i];
          }
        }
        INFO("buckets of " << bucket << (overlap ? ", overlapped" : "") << ", draw " << draw);
        CHECK(wrong == 0);
        CHECK(reducer.elements() == elements);
        CHECK(reducer.bytes_sent() == (world().size() > 1 ? 4 * elements : 0));
        CHECK(reducer.seconds_waiting() >= 0);
        CHECK((draw > 0 || elements == 0));
        std::vector<float> sent;
        for (const Segment& segment : p.segments)
          if (active.active(segment.layer))
            sent.insert(sent.end(), ours.begin() + segment.begin, ours.begin() + segment.begin + segment.size);
        CHECK(world().agree(hash(sent)));
      }
    }
}

TEST_CASE("Buckets and overlap change at most the order of the sum over ranks", "[reducer]") {
  Fixture f;
  const ActiveSet active = random_active(f.model.parameters.layers(), 3, 0.7F);
  GradientReducer plain(*f.backend, world(), f.model.parameters, {});
  const auto expected = f.reduce(plain, active, 9);
  for (const bool overlap : {false, true})
    for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{700}, std::int64_t{8} << 20}) {
      GradientReducer other(*f.backend, world(), f.model.parameters, {.bucket_elements = bucket, .overlap = overlap});
      const auto ours = f.reduce(other, active, 9);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < ours.size(); ++i)
        // Two numbers have one sum. More are added in an order that MPI chooses by the length of the message: partial
        // sums of numbers below 1, one rounding of each.
        wrong += world().size() <= 2 ? ours[i] != expected[i]
                                     : std::abs(ours[i] - expected[i]) > 2 * world().size() * 0x1p-24;
      INFO("buckets of " << bucket << (overlap ? ", overlapped" : ""));
      CHECK(wrong == 0);
      CHECK(other.bytes_sent() == plain.bytes_sent());
    }
}

TEST_CASE("A reduction repeats bit for bit", "[reducer]") {
  Fixture f;
  const ActiveSet all = ActiveSet::all(f.model.parameters.layers());
  for (const bool overlap : {false, true}) {
    GradientReducer reducer(*f.backend, world(), f.model.parameters, {.bucket_elements = 1000, .overlap = overlap});
    const auto first = f.reduce(reducer, all, 1);
    (void)f.reduce(reducer, random_active(f.model.parameters.layers(), 5, 0.5F), 2);
    CHECK(f.reduce(reducer, all, 1) == first);
  }
}
