#include "catch.hpp"
#include "dat/sampler.hpp"
#include "single.hpp"
#include "warm_start_case.hpp"
#include "world.hpp"

using namespace dat;
using namespace dat::test;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

constexpr int kSize = 5, kBatch = 4;

/// What one rank of `ranks` trains on in an epoch, in steps of so many micro-batches.
struct Order {
  Order(std::int64_t samples, int ranks, int rank, int micro_batches)
      : ranks_(ranks), rank_(rank), sampler(samples, ranks, micro_batches * kBatch, kBatch, 1) {}
  [[nodiscard]] HostBatch batch(std::int64_t step) const {
    const auto most = static_cast<std::size_t>(sampler.plan().batch);
    std::vector<std::int64_t> mine(most), everyone(most * static_cast<std::size_t>(ranks_));
    const int count = sampler.batch(step, rank_, mine.data());
    mine.resize(static_cast<std::size_t>(count));
    for (int rank = 0; rank < ranks_; ++rank) (void)sampler.batch(step, rank, everyone.data() + rank * count);
    everyone.resize(static_cast<std::size_t>(count * ranks_));
    return batch_of(mine, everyone);
  }
  int ranks_, rank_;
  Sampler sampler;
};

struct Side {
  Side(Backend& backend, Communicator& ranks, std::int64_t samples, int capacity, std::int64_t reset_steps)
      : stage(backend, backend.image_layout(3, kSize, kSize), capacity),
        warm(ranks, backend,
             {.samples = samples, .layout = stage.layout, .micro_batch = capacity, .reset_steps = reset_steps}) {}

  /// The start of the attack on samples [first, first + n) of the batch; `sent`: bytes.
  std::vector<float> attack(const HostBatch& batch, int first, int n, std::uint32_t epoch, std::int64_t step,
                            std::int64_t& sent) {
    stage.show({batch.ids.begin() + first, batch.ids.begin() + first + n}, epoch);
    sent = warm.load(stage, Stage::kEps, stage.crops, batch, first, step);
    auto start = stage.etas();
    stage.attack();
    warm.keep(stage, Stage::kEps, stage.crops);
    return start;
  }

  Stage stage;
  WarmStart warm;
};

}  // namespace

TEST_CASE("Where an attack starts does not depend on the ranks that its sample has been on", "[warm start]") {
  const auto backend = test_backend(1);
  const int ranks = world().size(), me = world().rank();
  // With and without samples that come twice; fewer samples than ranks and batches; resets on the way.
  for (const auto& [samples, micro_batches] : {std::pair(1, 1), std::pair(2, 1), std::pair(12, 1), std::pair(23, 1),
                                               std::pair(12, 2), std::pair(48 * ranks, 2)}) {
    INFO(samples << " samples, " << micro_batches << " micro-batches");
    Order order(samples, ranks, me, micro_batches);
    const std::int64_t steps = order.sampler.plan().steps();
    // The one rank gets samples twice as well, for which it has room if it knows of some more.
    Side all(*backend, world(), samples, kBatch, 3 * steps),
        one(*backend, single(), samples + ranks, kBatch * ranks, 3 * steps);
    std::int64_t wrong = 0, sent = 0, ignored = 0, wrong_bytes = 0, warm = 0;
    // One rank with the samples of all, rank after rank.
    const auto expected = [&](const HostBatch& mine, int first, int n, std::uint32_t epoch, std::int64_t step) {
      std::vector<std::int64_t> ids;
      for (auto from = mine.everyone.begin() + first; std::ssize(ids) < n * ranks; from += mine.count)
        ids.insert(ids.end(), from, from + n);
      const auto start = one.attack(batch_of(ids, ids), 0, n * ranks, epoch, step, ignored);
      // Each way, what lies elsewhere and what others need of this rank's.
      std::int64_t elsewhere = 0;
      for (std::int64_t k = 0; k < std::ssize(ids); ++k)
        elsewhere += (k / n == me) != (ids[static_cast<std::size_t>(k)] % ranks == me);
      wrong_bytes += sent != elsewhere * 3 * kSize * kSize;
      const auto part = std::ssize(start) / ranks;
      return std::vector<float>(start.begin() + me * part, start.begin() + (me + 1) * part);
    };
    for (std::uint32_t epoch = 0; epoch < 5; ++epoch) {
      order.sampler.shuffle(epoch);
      for (std::int64_t step = epoch * steps; step < (epoch + 1) * steps; ++step) {
        const HostBatch mine = order.batch(step % steps);
        const int n = mine.count / micro_batches;
        for (int first = 0; first < mine.count; first += n) {
          const auto start = all.attack(mine, first, n, epoch, step, sent);
          wrong += start != expected(mine, first, n, epoch, first == 0 ? step : 1);  // there is one reset in a step
          warm += start != all.stage.random_start();
        }
      }
    }
    CHECK(wrong == 0);
    CHECK(wrong_bytes == 0);
    CHECK(warm > 0);

    // A checkpoint of all ranks is that of one; one rank, and all of them, go on from it.
    Checkpoint state, of_one;
    all.warm.save(state);
    one.warm.save(of_one);
    CHECK(state.bytes.size() == (me == 0 ? 1 : 0));
    Side again(*backend, world(), samples, kBatch, 1 << 20);
    const std::int64_t given = world().bytes_given();
    again.warm.share(world());  // of nothing
    CHECK(world().bytes_given() - given <= 1);
    if (world().root()) {
      of_one.bytes["perturbations"].values.resize(static_cast<std::size_t>(samples * 3 * kSize * kSize));
      CHECK(state.bytes["perturbations"].values == of_one.bytes["perturbations"].values);
      again.warm.restore(state);
    }
    again.warm.share(world());
    const HostBatch mine = order.batch(0);
    const int n = mine.count / micro_batches;
    const auto start = again.attack(mine, 0, n, 9, 1, sent);
    CHECK(start == expected(mine, 0, n, 9, 1));
  }
  // All that ranks borrow at once may be one rank's, where a step may have its sample any number of times.
  const Layout layout = backend->image_layout(3, kSize, kSize);
  const auto many = static_cast<int>(std::numeric_limits<int>::max() / (layout.elements() * ranks) + 1);
  const WarmStartOptions repeats{.samples = 1, .layout = layout, .micro_batch = many, .repeats = true};
  CHECK(error_of([&] { WarmStart(world(), *backend, repeats); }).starts_with("2: --warm-start would send messages"));
}
