#include "catch.hpp"
#include "dat/dealing.hpp"
#include "random_values.hpp"
#include "reduce/sums/summation_tree.hpp"
#include "tree_case.hpp"

using namespace dat;

TEST_CASE("Micro-batches are dealt in runs, each to one rank, and no rank has more than one above another", "[tree]") {
  for (int all = 1; all <= 40; ++all)
    for (int ranks = 1; ranks <= all; ++ranks) {
      int least = all, most = 0;
      CHECK((first_micro_batch(all, ranks, 0) == 0 && first_micro_batch(all, ranks, ranks) == all));
      for (int rank = 0; rank < ranks; ++rank) {
        const int own = first_micro_batch(all, ranks, rank + 1) - first_micro_batch(all, ranks, rank);
        least = std::min(least, own);
        most = std::max(most, own);
      }
      CHECK((least >= 1 && most - least <= 1));
    }
}

TEST_CASE("A sum in the order of the tree is that of its definition, however its leaves are dealt", "[tree]") {
  for (int leaves = 1; leaves <= 33; ++leaves) {
    // Numbers that use all their bits: no sum of two is exact.
    const std::vector<float> values = test::random_values(leaves, static_cast<std::uint32_t>(leaves), 0.1F, 99.7F);
    const float expected = test::sum_by_tree(leaves, [&](int leaf) { return values[static_cast<std::size_t>(leaf)]; });
    for (int ranks = 1; ranks <= std::min(leaves, 9); ++ranks) {
      const SummationTree tree(leaves, ranks);
      std::int64_t nodes = 0;
      std::vector<float> all;  // the stack of all ranks
      TreeFold over_ranks(leaves);
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<float> places(static_cast<std::size_t>(tree.places(rank)));
        TreeFold fold(leaves);
        for (int leaf = tree.first(rank); leaf < tree.first(rank + 1); ++leaf) {
          places.at(fold.size()) = values[static_cast<std::size_t>(leaf)];
          fold.push({0, leaf}, [&](std::size_t left) { places.at(left) += places.at(left + 1); });
        }
        CHECK(fold.waiting() == tree.nodes(rank));
        nodes += std::ssize(tree.nodes(rank));
        for (std::size_t k = 0; k < fold.size(); ++k) {
          all.push_back(places[k]);
          over_ranks.push(fold.waiting()[k], [&](std::size_t left) {
            all.at(left) += all.at(left + 1);
            all.pop_back();
          });
        }
      }
      REQUIRE(all.size() == 1);
      CHECK((all.front() == expected && tree.all_nodes() == nodes));
    }
  }
}

TEST_CASE("Ranks that divide the tree have one partial sum each", "[tree]") {
  for (const int leaves : {8, 16, 64})
    for (int ranks = 1; ranks <= 8; ranks *= 2) CHECK(SummationTree(leaves, ranks).all_nodes() == ranks);
  CHECK(SummationTree(12, 3).all_nodes() == 3);
  const SummationTree four(12, 4);
  CHECK((four.all_nodes() == 8 && SummationTree(6, 2).all_nodes() == 4));  // 2 + 1, 1 + 2, 2 + 1, 1 + 2; 2 + 1, 1 + 2
  // Rows of a rank's share of pieces of seven numbers; one rank alone has none.
  CHECK((TreeSum<float>::memory(four, 10, 7) == 4 * 8 * 2 && TreeSum<float>::memory({8, 1}, 10, 7) == 0));
  CHECK((SummationTree(8, 1).places(0) == 4 && four.places(1) == 3));  // 0-3, 4-5, 6, 7; 3, 4, 5
}
