#include "batch/buffers/buffers.hpp"
#include "catch.hpp"
#include "device.hpp"
#include "random_values.hpp"

using namespace dat;

namespace {

constexpr int kSize = 5, kClasses = 7;

/// `count` grey images of one level each, in so many micro-batches.
[[nodiscard]] HostBatch levels(int count, int micro_batches) {
  HostBatch batch;
  batch.count = count;
  batch.micro_batches = micro_batches;
  batch.key = {.seed = 3, .epoch = 2, .step = 11};
  batch.make_room(count, 3 * kSize * kSize);
  for (int k = 0; k < count; ++k) {
    const auto at = static_cast<std::size_t>(k);
    std::fill_n(batch.pixels.begin() + k * 3 * kSize * kSize, 3 * kSize * kSize, static_cast<std::uint8_t>(51 * k));
    batch.labels[at] = k % kClasses;
    batch.ids[at] = 100 + k;
  }
  return batch;
}

[[nodiscard]] Buffers buffers_of(Backend& backend) {
  return {backend, {.size = kSize, .channels = 3, .classes = kClasses, .class_names = {}}, 3};
}

}  // namespace

TEST_CASE("a micro-batch is known by its number in what was read, and where it stands in the step", "[batch]") {
  const auto backend = test::test_backend();
  Buffers buffers = buffers_of(*backend);
  HostBatch read = levels(5, 5);
  read.elsewhere = 4;
  for (const bool dealt : {false, true}) {
    read.dealt = dealt;
    for (int index = 0; index < 5; ++index) {
      const Batch& batch = buffers.load(read, index, nullptr);
      CHECK(batch.n == 1);
      CHECK(batch.begins_at == index);
      CHECK(batch.in_step == 5);
      CHECK(batch.key.step == 11);
      CHECK(batch.key.unit == (dealt ? index : 0));
      CHECK(batch.averaged() == (dealt ? 9 : 5));
      CHECK(batch.begins_unit() == (dealt || index == 0));
      CHECK(batch.ends_step() == (index == 4));
      CHECK(test::to_host(*backend, batch.clean, 1)[0] == Approx(0.2 * index));
      CHECK(batch.alone().begins_unit());
      CHECK(batch.alone().place().unit == 0);
      CHECK(batch.alone().share() == batch.share());
    }
  }
}

TEST_CASE("what somebody has changed of a micro-batch is nothing to the next one", "[batch]") {
  const auto backend = test::test_backend();
  Buffers buffers = buffers_of(*backend);
  const HostBatch read = levels(3, 1);
  const Batch before = buffers.load(read, 0, nullptr);
  Batch& batch = buffers.batch();
  batch.x_adv = batch.clean;
  batch.labels = nullptr;
  batch.whole = true;
  const Batch& after = buffers.load(read, 0, nullptr);
  CHECK(after.x_adv == before.x_adv);
  CHECK(after.labels == before.labels);
  CHECK(!after.whole);
}
