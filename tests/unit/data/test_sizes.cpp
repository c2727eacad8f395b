#include <algorithm>
#include <string>
#include <vector>

#include "catch.hpp"
#include "dat/loader.hpp"
#include "errors.hpp"

using namespace dat;

TEST_CASE("Sizes by epoch are read, and what is none is refused with an example") {
  CHECK(read_sizes("").empty());
  const std::vector<SizeFrom> sizes = read_sizes("24,28@2,32@6");
  REQUIRE(sizes.size() == 3);
  std::vector<int> by_epoch;
  for (int epoch = 0; epoch < 8; ++epoch) by_epoch.push_back(size_in(sizes, epoch));
  CHECK(by_epoch == std::vector{24, 24, 28, 28, 28, 28, 32, 32});
  CHECK(size_in(read_sizes("16"), 1000) == 16);
  CHECK(read_sizes("16@0").size() == 1);
  for (const char* text : {",", "24,", ",24", "24@1", "24,32", "24,32@0", "24,32@6,40@6", "24,32@6,40@5", "24,32@-1",
                           "24, 32@6", "24.5", "x", "24@", "24,@6", "24,32@6@7", "24,32@99999999999"})
    CHECK(contains(error_of([&] { (void)read_sizes(text); }), "such as 24,32@6"));
  for (const char* text : {"7,32@1", "24,5000@1", "-8"})
    CHECK(contains(error_of([&] { (void)read_sizes(text); }), "networks take from 8 to 4096 pixels"));
}

TEST_CASE("Cuts have the size of their epoch and lie anywhere in the padded image; whole ones lie where they did") {
  constexpr int kSize = 16, kPadding = 4;
  const auto data = synthetic_dataset({.classes = 2, .size = kSize, .train = 300, .test = 2, .seed = 1}, "train");
  const LoaderOptions plain{.batch = 300, .micro_batch = 300, .warmup_epochs = 1, .seed = 7};
  LoaderOptions growing = plain;
  growing.sizes = read_sizes("9,12@2,16@3");
  BatchReader whole(*data, 1, plain), cut(*data, 1, growing);
  HostBatch of_whole = whole.batch(), of_cut = cut.batch();
  for (int epoch = 0; epoch < 4; ++epoch) {
    const int size = epoch < 2 ? 9 : epoch < 3 ? 12 : 16;
    whole.fill(of_whole, epoch, 0);
    cut.fill(of_cut, epoch, 0);
    CHECK(of_whole.size == kSize);
    CHECK(of_cut.size == size);
    CHECK(of_cut.ids == of_whole.ids);
    CHECK(of_cut.pixels == of_whole.pixels);
    std::vector<int> tops, lefts;
    for (std::size_t k = 0; k < of_cut.crops.size(); ++k) {
      tops.push_back(of_cut.crops[k].top);
      lefts.push_back(of_cut.crops[k].left);
      CHECK(of_cut.crops[k].flip == of_whole.crops[k].flip);
      CHECK((size < kSize ||
             (of_cut.crops[k].top == of_whole.crops[k].top && of_cut.crops[k].left == of_whole.crops[k].left)));
    }
    for (std::vector<int>* places : {&tops, &lefts}) {
      std::sort(places->begin(), places->end());
      places->erase(std::unique(places->begin(), places->end()), places->end());
      CHECK(std::ssize(*places) == kSize + 2 * kPadding - size + 1);  // all of them
      CHECK(places->front() == -kPadding);
      CHECK(places->back() == kSize + kPadding - size);
    }
  }
  growing.augment = false;
  BatchReader middle(*data, 1, growing);
  middle.fill(of_cut, 0, 0);
  CHECK(std::all_of(of_cut.crops.begin(), of_cut.crops.end(),
                    [](const Crop& crop) { return crop.top == 3 && crop.left == 3 && crop.flip == 0; }));
  middle.fill(of_cut, 3, 0);
  CHECK(std::all_of(of_cut.crops.begin(), of_cut.crops.end(),
                    [](const Crop& crop) { return crop.top == 0 && crop.left == 0 && crop.flip == 0; }));
}
