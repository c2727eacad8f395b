#include "catch.hpp"
#include "device.hpp"
#include "train/message/step_message.hpp"
#include "world.hpp"

using namespace dat;
using test::world;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

struct Numbers final : MessagePart {
  Numbers(std::size_t places, Estimate estimate) : how(estimate), mine(places) {}
  [[nodiscard]] std::size_t places() const override { return mine.size(); }
  void write(double* to, int unit) override {
    for (std::size_t i = 0; i < mine.size(); ++i) to[i] = mine[i] + unit;
  }
  void read(const double* from) override { found.assign(from, from + places()); }
  [[nodiscard]] Estimate estimate() const override { return how; }

  Estimate how;
  std::vector<double> mine, found;
};

/// What rank `rank` says of place i.
[[nodiscard]] double says(int rank, std::size_t i) { return (rank + 1) * std::cos(double(7 * i + 3) * (rank + 2)); }

/// Lower median, and mean without the `faults` highest and lowest, of what these ranks estimate.
[[nodiscard]] double estimated(std::vector<double> all, MessagePart::Estimate how, std::size_t faults) {
  std::sort(all.begin(), all.end());
  if (how == MessagePart::Estimate::median) return all[(all.size() - 1) / 2];
  double sum = 0;
  for (std::size_t k = faults; k < all.size() - faults; ++k) sum += all[k];
  return sum / static_cast<double>(all.size() - 2 * faults);
}

}  // namespace

TEST_CASE("Where ranks may be false, a step's numbers are medians or trimmed means of what all say", "[message]") {
  const int n = world().size(), faults = (n - 1) / 2, me = world().rank();
  const auto backend = test::test_backend(1);
  Tolerance tolerance{.faults = faults, .shares = std::vector<double>(static_cast<std::size_t>(n), 1.0 / n)};
  Numbers losses(3, MessagePart::Estimate::trimmed_mean), statistics(4, MessagePart::Estimate::median);
  Vote vote;
  StepMessage message(world(), *backend, nullptr, tolerance);
  for (MessagePart* part : std::initializer_list<MessagePart*>{&losses, &vote, &statistics}) message.add(*part);
  // The last ranks say nothing that is a number, of one place of each part.
  for (int liars = 0; liars <= n; ++liars) {
    for (Numbers* part : {&losses, &statistics})
      for (std::size_t i = 0; i < part->mine.size(); ++i) {
        part->mine[i] = says(me, i);
        if (i == 1 && me >= n - liars) part->mine[i] = part == &losses ? std::nan("") : HUGE_VAL;
      }
    vote.bad = me >= n - liars;
    message.sum();
    int wrong = 0;
    for (const Numbers* part : {&losses, &statistics})
      for (std::size_t i = 0; i < part->mine.size(); ++i) {
        const double found = part->found[i];
        if (liars > faults || liars == n) {
          wrong += !std::isnan(found);
          continue;
        }
        std::vector<double> all;
        for (int rank = 0; rank < n - liars; ++rank) all.push_back(says(rank, i) * n);
        const std::size_t out = std::min<std::size_t>(static_cast<std::size_t>(faults), (all.size() - 1) / 2);
        wrong += !(std::abs(found - estimated(all, part->estimate(), out)) <= 1e-12 * n);
      }
    INFO(liars << " of " << n << " ranks lie");
    CHECK((wrong == 0 && vote.bad_agreed() == (liars > faults) && message.bytes_sent() == (n > 1 ? 8 * 8 : 0)));
  }
}

TEST_CASE("A rank's numbers count by its share of the micro-batches", "[message]") {
  const int n = world().size(), leaves = 2 * n - 1;
  const SummationTree order(leaves, n);
  const auto backend = test::test_backend(1);
  Tolerance tolerance{.faults = 0, .shares = {}};
  for (int rank = 0; rank < n; ++rank) tolerance.shares.push_back(static_cast<double>(order.leaves_of(rank)) / leaves);
  Numbers numbers(1, MessagePart::Estimate::trimmed_mean);
  StepMessage message(world(), *backend, &order, tolerance);
  message.add(numbers);
  numbers.mine[0] = says(world().rank(), 0);
  message.sum();
  double mean = 0;
  for (int rank = 0; rank < n; ++rank) {
    const int units = order.leaves_of(rank);
    mean += (units * says(rank, 0) + units * (units - 1) / 2) * leaves / units / n;
  }
  CHECK(std::abs(numbers.found[0] - mean) <= 1e-12 * leaves);
  if (n == 1) return;
  // A rank without images is not listened to.
  std::vector<double> all{std::nan("")}, shares(static_cast<std::size_t>(n), 1.0 / (n - 1));
  shares[0] = mean = 0;
  for (int rank = 1; rank < n; ++rank) mean += all.emplace_back(says(rank, 0));
  message.read_said(all, shares);
  CHECK(std::abs(numbers.found[0] - mean) <= 1e-12 * n);
}
