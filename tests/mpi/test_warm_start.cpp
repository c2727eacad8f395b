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

/// What one rank of `ranks` trains on in an epoch, in steps of kBatch.
struct Order {
  Order(std::int64_t samples, int ranks, int rank) : ranks_(ranks), sampler(samples, ranks, rank, kBatch, kBatch, 1) {}
  [[nodiscard]] HostBatch batch(std::int64_t step) const {
    std::vector<std::int64_t> mine(kBatch), everyone(static_cast<std::size_t>(kBatch * ranks_));
    const int count = sampler.batch(step, mine.data());
    mine.resize(static_cast<std::size_t>(count));
    for (int rank = 0; rank < ranks_; ++rank) (void)sampler.batch(step, rank, everyone.data() + rank * count);
    everyone.resize(static_cast<std::size_t>(count * ranks_));
    return batch_of(mine, everyone);
  }
  int ranks_;
  Sampler sampler;
};

struct Side {
  Side(Backend& backend, Communicator& ranks, std::int64_t samples, int capacity, std::int64_t reset_steps)
      : stage(backend, backend.image_layout(3, kSize, kSize), capacity),
        warm(ranks, backend,
             {.samples = samples, .layout = stage.layout, .micro_batch = capacity, .reset_steps = reset_steps}) {}

  std::vector<float> attack(const HostBatch& batch, std::uint32_t epoch, std::int64_t step, std::int64_t& sent) {
    stage.show(batch.ids, epoch);
    sent = warm.load(stage, Stage::kEps, stage.crops, batch, 0, step);
    auto start = stage.etas();
    stage.attack();
    warm.keep(stage, Stage::kEps, stage.crops);
    return start;
  }

  Stage stage;
  WarmStart warm;
};

}  // namespace

TEST_CASE("An exchange brings each rank the bytes that every other has for it", "[communicator]") {
  const int size = world().size(), me = world().rank();
  // Rank r has 100 r + 7 s bytes for rank s, none at all in the second round, and some for rank 0 only in the third.
  for (int round = 0; round < 3; ++round) {
    const auto bytes = [&](int r, int s) { return round == 0 ? 100 * r + 7 * s : round == 2 && s == 0 ? 5 : 0; };
    const auto value = [](int r, int s, int k) { return static_cast<std::uint8_t>(31 * r + 17 * s + k); };
    std::vector<int> to, from;
    std::vector<std::uint8_t> send, expected;
    for (int rank = 0; rank < size; ++rank) {
      to.push_back(bytes(me, rank));
      from.push_back(bytes(rank, me));
      for (int k = 0; k < to.back(); ++k) send.push_back(value(me, rank, k));
      for (int k = 0; k < from.back(); ++k) expected.push_back(value(rank, me, k));
    }
    std::vector<std::uint8_t> receive(expected.size() + 1, 99);
    world().exchange(send.data(), to, receive.data(), from);
    expected.push_back(99);
    CHECK(receive == expected);
  }
}

TEST_CASE("Where an attack starts does not depend on the ranks that its sample has been on", "[warm start]") {
  const auto backend = test_backend(1);
  const int ranks = world().size(), me = world().rank();
  // With and without samples that come twice; fewer samples than ranks and batches; resets on the way.
  for (const std::int64_t samples : {std::int64_t{1}, std::int64_t{2}, std::int64_t{12}, std::int64_t{23}}) {
    INFO(samples << " samples");
    Order order(samples, ranks, me);
    const std::int64_t steps = order.sampler.plan().steps();
    // The one rank gets samples twice as well, for which it has room if it knows of some more.
    Side all(*backend, world(), samples, kBatch, 3 * steps),
        one(*backend, single(), samples + ranks, kBatch * ranks, 3 * steps);
    std::int64_t wrong = 0, sent = 0, ignored = 0, wrong_bytes = 0, warm = 0;
    for (std::uint32_t epoch = 0; epoch < 5; ++epoch) {
      order.sampler.shuffle(epoch);
      for (std::int64_t step = 0; step < steps; ++step) {
        const HostBatch mine = order.batch(step);
        const auto start = all.attack(mine, epoch, epoch * steps + step, sent);
        // One rank with the samples of all, rank after rank.
        const auto expected = one.attack(batch_of(mine.everyone, mine.everyone), epoch, epoch * steps + step, ignored);
        const auto from = static_cast<std::size_t>(me) * start.size();
        for (std::size_t i = 0; i < start.size(); ++i) wrong += start[i] != expected[from + i];
        warm += start != all.stage.random_start();
        // Each way, what lies elsewhere and what others need of this rank's.
        std::int64_t elsewhere = 0;
        for (std::size_t k = 0; k < mine.everyone.size(); ++k) {
          const bool here = static_cast<std::int64_t>(k) / mine.count == me;
          elsewhere += here != (mine.everyone[k] % ranks == me);
        }
        wrong_bytes += sent != elsewhere * 3 * kSize * kSize;
      }
    }
    CHECK(wrong == 0);
    CHECK(wrong_bytes == 0);
    CHECK(warm > 0);

    // A checkpoint of all ranks is that of one; one rank, and all of them, go on from it.
    Checkpoint state, expected;
    all.warm.save(state);
    one.warm.save(expected);
    CHECK(state.bytes.size() == (me == 0 ? 1 : 0));
    Side again(*backend, world(), samples, kBatch, 1 << 20);
    if (world().root()) {
      expected.bytes["perturbations"].values.resize(static_cast<std::size_t>(samples * 3 * kSize * kSize));
      CHECK(state.bytes["perturbations"].values == expected.bytes["perturbations"].values);
      again.warm.restore(state);
    }
    again.warm.share();
    const HostBatch mine = order.batch(0);
    const auto start = again.attack(mine, 9, 1, sent);
    const auto reference = one.attack(batch_of(mine.everyone, mine.everyone), 9, 1, ignored);
    CHECK(start == std::vector<float>(reference.begin() + std::ssize(start) * me,
                                      reference.begin() + std::ssize(start) * (me + 1)));
  }
}

TEST_CASE("R ranks with a micro-batch each start as one rank with R micro-batches does", "[warm start]") {
  const auto backend = test_backend(1);
  const int ranks = world().size(), me = world().rank();
  const std::int64_t samples = 6 * ranks * kBatch;
  // In each step one rank deals what all have to its micro-batches like cards (dat/sampler.hpp).
  for (const int per_rank : {1, 2}) {
    Sampler mine(samples, ranks, me, per_rank * kBatch, kBatch, 1);
    Sampler alone(samples, 1, 0, ranks * per_rank * kBatch, kBatch, 1);
    Side all(*backend, world(), samples, kBatch, 1 << 20), one(*backend, single(), samples, kBatch, 1 << 20);
    std::vector<std::int64_t> ids(static_cast<std::size_t>(per_rank * kBatch)),
        all_ids(static_cast<std::size_t>(ranks * per_rank * kBatch)), everyone(all_ids.size());
    std::map<std::int64_t, std::vector<float>> starts;
    std::int64_t wrong = 0, sent = 0;
    for (std::uint32_t epoch = 0; epoch < 4; ++epoch) {
      mine.shuffle(epoch);
      alone.shuffle(epoch);
      for (std::int64_t step = 0; step < mine.plan().steps(); ++step) {
        (void)alone.batch(step, all_ids.data());
        for (int m = 0; m < ranks * per_rank; ++m) {
          const std::vector<std::int64_t> part(all_ids.begin() + m * kBatch, all_ids.begin() + (m + 1) * kBatch);
          const auto start = one.attack(batch_of(part, part), epoch, 1, sent);
          const auto image = start.size() / part.size();
          for (std::size_t k = 0; k < part.size(); ++k)
            starts[part[k]].assign(start.begin() + static_cast<std::ptrdiff_t>(k * image),
                                   start.begin() + static_cast<std::ptrdiff_t>((k + 1) * image));
        }
        (void)mine.batch(step, ids.data());
        for (int rank = 0; rank < ranks; ++rank)
          (void)mine.batch(step, rank, everyone.data() + rank * per_rank * kBatch);
        HostBatch batch = batch_of(ids, everyone);
        for (int first = 0; first < batch.count; first += kBatch) {
          const std::vector<std::int64_t> part(ids.begin() + first, ids.begin() + first + kBatch);
          all.stage.show(part, epoch);
          (void)all.warm.load(all.stage, Stage::kEps, all.stage.crops, batch, first, 1);
          const auto start = all.stage.etas();
          all.stage.attack();
          all.warm.keep(all.stage, Stage::kEps, all.stage.crops);
          const auto image = start.size() / part.size();
          for (std::size_t k = 0; k < part.size(); ++k)
            for (std::size_t i = 0; i < image; ++i) wrong += start[k * image + i] != starts[part[k]][i];
        }
      }
    }
    CHECK(wrong == 0);
  }
}
