#include <latch>

#include "catch.hpp"
#include "dat/loader.hpp"
#include "data/on_threads.hpp"
#include "datasets.hpp"

using namespace dat;

namespace {

/// Images that take some time, some of them more (in microseconds); some cannot be read.
struct Slow final : test::Wrapped {
  explicit Slow(int images)
      : Wrapped(synthetic_dataset({.classes = 3, .size = 9, .train = images, .test = 1, .seed = 1}, "train")),
        about(whole->info()) {
    about.decoded = true;  // several threads read one batch
  }
  DatasetInfo about;
  std::set<std::int64_t> failing{};
  std::int64_t once = -1;  // fails the first time
  mutable std::atomic<int> reads = 0, asked = 0, delay = 0;
  [[nodiscard]] const DatasetInfo& info() const override { return about; }
  void read(std::int64_t index, std::uint8_t* pixels) const override {
    if (++reads % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300 + delay));
    require(!failing.contains(index), ExitCode::data, "image ", index);
    require(index != once || ++asked > 1, ExitCode::data, "not yet");
    whole->read(index, pixels);
  }
};

}  // namespace

TEST_CASE("Batches are equal at any number of threads and of batches read ahead") {
  const Slow data(37);
  for (const Augment augment : {Augment::none, Augment::crop, Augment::resized}) {
    LoaderOptions options{.batch = 7, .micro_batch = 7, .augment = augment, .warmup_epochs = 1, .seed = 3};
    options.sizes = ByEpoch<int>(
        std::vector<ByEpoch<int>::Part>{{.from = 0, .value = 5, .end = 5}, {.from = 2, .value = 9, .end = 9}});
    options.first_step = 2;
    BatchReader reader(data, 3, options);
    HostBatch expected = reader.batch();
    for (const auto& [threads, prefetch] : {std::pair{1, 1}, std::pair{4, 1}, std::pair{3, 5}}) {
      options.threads = threads;
      options.prefetch = prefetch;
      Loader loader(data, 3, 1, options);
      for (int step = 2; step < 9; ++step) {  // four epochs
        reader.fill(expected, step, 1);
        data.delay = 2000;  // of some images: who does not wait for them has others
        const HostBatch& batch = loader.next();
        const std::vector<std::uint8_t> pixels = batch.pixels;
        data.delay = 0;
        CHECK((batch.key.step == step && batch.key.size == expected.key.size && batch.side == expected.side));
        CHECK(batch.side == (augment == Augment::resized && step < 4 ? 5 : 9));
        if (augment == Augment::none) CHECK(batch.crops[0].left == (step < 4 ? 2 : 0));  // 5 pixels amid 9
        CHECK(batch.count == expected.count);
        CHECK(std::equal(batch.ids.begin(), batch.ids.begin() + batch.count, expected.ids.begin()));
        CHECK(std::equal(batch.labels.begin(), batch.labels.begin() + batch.count, expected.labels.begin()));
        const auto bytes = std::ptrdiff_t{batch.count} * batch.side * batch.side * 3;
        CHECK(std::equal(pixels.begin(), pixels.begin() + bytes, expected.pixels.begin()));
        for (std::size_t k = 0; k < static_cast<std::size_t>(batch.count); ++k)
          CHECK((batch.crops[k].top == expected.crops[k].top && batch.crops[k].left == expected.crops[k].left &&
                 batch.crops[k].flip == expected.crops[k].flip));
      }
    }
  }
}

TEST_CASE("Work is done on as many threads as are asked for") {
  std::latch all(3);  // who waits for fewer waits for ever
  CHECK_NOTHROW(on_threads(3, 3, [&](int) { all.arrive_and_wait(); }));
}

TEST_CASE("Batches are read before anybody asks for them, as many as --prefetch says") {
  const Slow data(64);
  const Loader loader(data, 1, 0, {.batch = 16, .micro_batch = 16, .seed = 3, .prefetch = 3});
  for (int k = 0; k < 10000 && data.reads < 48; ++k) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(data.reads == 48);
}

TEST_CASE("Windows that are resized have the size of their epoch, and change with it") {
  const Slow data(12);
  LoaderOptions options{.batch = 12, .micro_batch = 12, .augment = Augment::resized, .seed = 3};
  options.sizes = ByEpoch<int>(
      std::vector<ByEpoch<int>::Part>{{.from = 0, .value = 5, .end = 5}, {.from = 1, .value = 8, .end = 8}});
  BatchReader reader(data, 1, options), small(data, 1, options);
  HostBatch first = reader.batch(), second = reader.batch();
  reader.fill(first, 0, 0);
  small.fill(second, 1, 0);
  CHECK((first.side == 5 && first.key.size == 5 && second.side == 8 && second.key.size == 8));
  options.sizes = 8;
  BatchReader whole(data, 1, options);
  whole.fill(first, 1, 0);
  CHECK(first.pixels == second.pixels);
  // The same image, wherever it is in the batch.
  const auto image_of = [](const HostBatch& batch, std::int64_t id) {
    const auto at = std::find(batch.ids.begin(), batch.ids.end(), id) - batch.ids.begin();
    const auto begin = batch.pixels.begin() + at * 8 * 8 * 3;
    return std::vector<std::uint8_t>(begin, begin + std::ptrdiff_t{8} * 8 * 3);
  };
  CHECK(image_of(first, 5) == image_of(second, 5));
  whole.fill(first, 2, 0);
  CHECK(image_of(first, 5) != image_of(second, 5));
}

TEST_CASE("The first damaged image of a batch is told when its turn comes, whoever finds it first") {
  Slow data(64);
  LoaderOptions options{.batch = 16, .micro_batch = 16, .seed = 3, .prefetch = 3};
  BatchReader reader(data, 1, options);
  HostBatch batch = reader.batch();
  reader.fill(batch, 2, 0);
  const std::vector<std::int64_t> ids = batch.ids;
  data.failing = {ids[3], ids[9], ids[14]};
  const std::string lowest = "image " + std::to_string(*data.failing.begin());
  for (const int threads : {1, 4}) {
    options.threads = threads;
    BatchReader at_once(data, 1, options);
    at_once.fill(batch, 1, 0);
    CHECK_THROWS_WITH(at_once.fill(batch, 2, 0), lowest);
    const std::set<std::int64_t> some = std::exchange(data.failing, {*std::ranges::max_element(ids)});
    CHECK_THROWS_WITH(at_once.fill(batch, 2, 0), "image " + std::to_string(*data.failing.begin()));
    data.failing = some;
    Loader loader(data, 1, 0, options);
    CHECK((loader.next().key.step == 0 && loader.next().key.step == 1));
    for (int again = 0; again < 2; ++again) CHECK_THROWS_WITH(loader.next(), lowest);
  }
}

TEST_CASE("An image that is read the second time leaves none after it unread") {
  for (const int threads : {1, 4}) {
    Slow data(64);
    const LoaderOptions options{.batch = 64, .micro_batch = 16, .seed = 3, .threads = threads};
    BatchReader reader(data, 1, options);
    HostBatch expected = reader.batch(), batch = reader.batch();
    reader.fill(expected, 0, 0);
    data.once = 5;
    reader.fill(batch, 0, 0);
    CHECK(batch.pixels == expected.pixels);
    std::fill(batch.pixels.begin(), batch.pixels.end(), std::uint8_t{0});
    for (int index = 0; index < 4; ++index) reader.read_micro_batch(batch, index);
    CHECK(batch.pixels == expected.pixels);
  }
}
