#include "catch.hpp"
#include "reduce/tree/tree_reducer.hpp"
#include "reduction_case.hpp"
#include "tree_case.hpp"
#include "world.hpp"

using namespace dat;
using namespace dat::test;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

/// Numbers of leaves that this number of ranks divides, and that it does not.
[[nodiscard]] std::vector<int> leaves_for(int ranks) {
  return {ranks, 2 * ranks, 2 * ranks + 1, 4 * ranks, 5 * ranks + 1};
}

}  // namespace

TEST_CASE("Partial sums of the ranks become the sum that the tree defines, bit for bit, in any pieces", "[tree]") {
  constexpr std::int64_t kCount = 303;
  const int me = world().rank(), ranks = world().size();
  for (const int leaves : leaves_for(ranks)) {
    std::vector<std::vector<float>> numbers;
    for (int leaf = 0; leaf < leaves; ++leaf)
      numbers.push_back(random_values(kCount, static_cast<std::uint32_t>(100 + leaf), 0.1F, 99.7F));
    const SummationTree tree(leaves, ranks);
    std::vector<float> mine(static_cast<std::size_t>(tree.places(me) * kCount)), result(kCount);
    const auto place = [&](std::size_t k) { return mine.begin() + static_cast<std::ptrdiff_t>(k) * kCount; };
    TreeFold fold(leaves);
    for (int leaf = tree.first(me); leaf < tree.first(me + 1); ++leaf) {
      const std::vector<float>& own = numbers[static_cast<std::size_t>(leaf)];
      std::copy(own.begin(), own.end(), place(fold.size()));
      fold.push({0, leaf}, [&](std::size_t left) {
        std::transform(place(left), place(left) + kCount, place(left + 1), place(left), std::plus<>());
      });
    }
    for (const std::int64_t piece : {std::int64_t{1}, std::int64_t{100}, std::int64_t{1} << 20}) {
      TreeSum<float> sum(world(), tree, piece);
      sum.reserve(kCount);
      for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2}, kCount}) {
        const std::int64_t given = world().bytes_given();
        sum.sum(mine.data(), kCount, count, result.data());
        const std::int64_t sent = world().bytes_given() - given;
        std::int64_t wrong = 0;
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
          wrong +=
              result[i] != sum_by_tree(leaves, [&](int leaf) { return numbers[static_cast<std::size_t>(leaf)][i]; });
        INFO(leaves << " leaves, " << count << " numbers in pieces of " << piece);
        CHECK(wrong == 0);
        // Each number has an owner: partial sums go there, and the sum from there to all.
        const std::int64_t own = count * (me + 1) / ranks - count * me / ranks;
        const std::int64_t nodes = std::ssize(tree.nodes(me));
        if (piece > count) CHECK(sent == (ranks > 1 ? 4 * (nodes * (count - own) + own) : 0));
      }
    }
  }
}

namespace {

struct TreeCase : ReductionCase {
  explicit TreeCase(int leaves, std::int64_t bucket = 1000, const std::string& sums = "auto")
      : ReductionCase(world()),
        tree(leaves, world().size()),
        reducer(*backend, world(), model.parameters, gradients, tree,
                {.bucket_elements = bucket, .node_sums = sums, .ended = [this](ReducerStage stage) {
                   stages += "oecda"[static_cast<std::size_t>(stage)];
                 }}) {}
  void run(const ActiveSet& active, std::int64_t step, const std::vector<std::vector<float>>& of_units) {
    reducer.begin({&active, 1}, step);
    for (int unit = 0; unit < tree.leaves_of(world().rank()); ++unit) {
      float* const place = reducer.place(unit);
      moved += place != reducer.place(unit);
      const std::vector<float>& numbers = of_units[static_cast<std::size_t>(unit)];
      backend->copy_to_device(place, numbers.data(), numbers.size() * sizeof(float));
    }
    if (step % 2 == 0) {  // else nobody looks at them before
      const auto own = reducer.own();
      moved += own.size() != tree.nodes(world().rank()).size() || own[0] != gradients;
    }
    reducer.finish();
  }
  [[nodiscard]] std::vector<std::vector<float>> units(std::int64_t step) const {
    std::vector<std::vector<float>> all;
    for (int leaf = tree.first(world().rank()); leaf < tree.first(world().rank() + 1); ++leaf)
      all.push_back(gradient_of(leaf, step));
    return all;
  }
  SummationTree tree;
  TreeReducer reducer;
  int moved = 0;       ///< places of units that were asked for twice, or in the end, and were other ones
  std::string stages;  ///< outside, encode, communicate, decode
};

}  // namespace

TEST_CASE("Gradients of micro-batches become their sum in the order of the tree, and the others stand still",
          "[tree]") {
  const std::int64_t size = TreeCase(world().size()).model.parameters.size;
  for (const int leaves : leaves_for(world().size()))
    // All layers: of the last piece a single element is left.
    for (const auto& [bucket, sums] : {std::pair(std::int64_t{1000}, "auto"), {size - 1, "mpi"}}) {
      TreeCase f(leaves, bucket, sums);
      const Parameters& p = f.model.parameters;
      std::int64_t taken = 0;
      for (const auto& [purpose, bytes] : f.backend->allocations())
        if (purpose == "partial sums of gradients" || purpose == "gradient message")
          taken += static_cast<std::int64_t>(bytes);
      taken = -world().minimum(-taken);  // of the rank that takes most
      if (bucket > 1000)
        CHECK(f.reducer.memory(world().size()) == taken + TreeSum<float>::memory(f.tree, size, bucket));
      for (std::uint32_t draw = 1; draw < 4; ++draw) {
        const ActiveSet active = random_active(p.layers(), draw, static_cast<float>(draw) / 3);
        const std::int64_t before = world().bytes_given();
        f.run(active, draw, f.units(draw));
        const std::int64_t given = world().bytes_given() - before;
        const auto ours = to_host(*f.backend, f.gradients, p.size);
        std::vector<std::vector<float>> all;
        for (int leaf = 0; leaf < leaves; ++leaf) all.push_back(f.gradient_of(leaf, draw));
        std::int64_t wrong = 0, elements = 0;
        for (const Segment& segment : p.segments) {
          if (!active.active(segment.layer)) continue;
          elements += segment.size;
          for (const std::size_t k : elements_of(segment)) {
            wrong += ours[k] != sum_by_tree(leaves, [&](int leaf) { return all[static_cast<std::size_t>(leaf)][k]; });
          }
        }
        INFO(leaves << " leaves, bucket " << bucket);
        CHECK((wrong == 0 && f.moved == 0 && std::exchange(f.stages, "") == (world().size() > 1 ? "oecd" : "")));
        CHECK((f.reducer.elements() == elements && f.reducer.seconds_under_way() == 0));
        CHECK((f.reducer.bytes_sent() > 0) == (world().size() > 1 && elements > 0));
        if (bucket > 1000) CHECK(f.reducer.bytes_sent() == given);
        // In the mean over all ranks, each of which has an element more or less of each sum.
        std::int64_t sent = f.reducer.bytes_sent();
        world().sum(&sent, 1);
        std::vector<double> drawn;
        for (const float scale : active.scale) drawn.push_back(scale != 0 ? 1 : 0);
        const double mean = static_cast<double>(sent) / world().size();
        const auto pieces = static_cast<double>(1 + elements / bucket);
        CHECK(std::abs(f.reducer.bytes_sent(drawn, world().size()) - mean) <=
              8 * pieces * static_cast<double>(f.tree.all_nodes()));
      }
    }
  const TreeCase of_twelve(12 * world().size());
  const std::int64_t bytes = 4 * of_twelve.model.parameters.size;
  CHECK((of_twelve.reducer.added_up(1) == 0 && of_twelve.reducer.added_up(3 * world().size()) == bytes));
  CHECK(of_twelve.reducer.added_up(4 * world().size()) == 2 * bytes);  // three leaves each
  CHECK(of_twelve.reducer.seconds_under_way() == 0);                   // it sends nothing beside other work
  const std::vector<double> drawn(static_cast<std::size_t>(of_twelve.model.parameters.layers()), 1.0);
  CHECK(of_twelve.reducer.bytes_sent(drawn, 1) == 0);
  // R ranks send (nodes of all) / R (1 - 1 / R) + 1 / R of the numbers each: with one node a rank all of them.
  const double ranks = world().size();
  CHECK(of_twelve.reducer.bytes_sent(drawn, 3 * world().size()) == Approx(double(bytes)).epsilon(1e-12));
  CHECK(of_twelve.reducer.bytes_sent(std::vector<double>(drawn.size(), 0.5), 4 * world().size()) ==
        Approx(double(bytes) / 2 * (2 - 0.25 / ranks)).epsilon(1e-12));
}
