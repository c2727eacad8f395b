#include "by_epoch.hpp"
#include "catch.hpp"
#include "dat/loader.hpp"

using namespace dat;

TEST_CASE("Cuts have the size of their epoch and lie anywhere in the padded image; whole ones lie where they did") {
  constexpr int kSize = 16, kPadding = 4;
  const auto data = synthetic_dataset({.classes = 2, .size = kSize, .train = 300, .test = 2, .seed = 1}, "train");
  const LoaderOptions plain{.batch = 300, .micro_batch = 300, .warmup_epochs = 1, .seed = 7};
  LoaderOptions growing = plain;
  growing.sizes = test::by_epoch({{9, 0}, {12, 2}, {0, 3}});
  BatchReader whole(*data, 1, plain), cut(*data, 1, growing);
  HostBatch of_whole = whole.batch(), of_cut = cut.batch();
  for (int epoch = 0; epoch < 4; ++epoch) {
    const int size = epoch < 2 ? 9 : epoch < 3 ? 12 : 16;
    whole.fill(of_whole, epoch, 0);
    cut.fill(of_cut, epoch, 0);
    CHECK((of_whole.key.size == kSize && of_cut.key.size == size));
    CHECK((of_cut.ids == of_whole.ids && of_cut.pixels == of_whole.pixels));
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
      CHECK((places->front() == -kPadding && places->back() == kSize + kPadding - size));
    }
  }
  growing.augment = Augment::none;
  BatchReader middle(*data, 1, growing);
  middle.fill(of_cut, 0, 0);
  CHECK(std::all_of(of_cut.crops.begin(), of_cut.crops.end(),
                    [](const Crop& crop) { return crop.top == 3 && crop.left == 3 && crop.flip == 0; }));
  middle.fill(of_cut, 3, 0);
  CHECK(std::all_of(of_cut.crops.begin(), of_cut.crops.end(),
                    [](const Crop& crop) { return crop.top == 0 && crop.left == 0 && crop.flip == 0; }));
}
