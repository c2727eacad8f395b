#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dat/by_epoch.hpp"

namespace dat {

/// The images of a training. Rows and rules: src/options/train/data.cpp.
struct DataSettings {
  std::vector<std::string> data;  ///< files of one pool; empty: the built-in synthetic set
  std::string mix = "pool";       ///< pool | balanced:SHARE, as read_mix takes it
  std::int64_t limit_train = 0;   ///< first N samples; 0: all
  std::int64_t limit_test = 0;
  std::int64_t holdout = 0;      ///< training images that are held out to choose the best checkpoint by
  int size = 0;                  ///< height = width of what the network sees; 0: the images'
  std::string augment = "crop";  ///< crop | resized | none
  std::string decode = "exact";  ///< exact | fast
  int data_threads = 0;          ///< threads that read images; 0: one, on a GPU its share of the cores
  int prefetch = 2;              ///< batches that are read ahead
  ByEpoch<int> train_size = 0;   ///< height = width of training images; 0: the data's

  friend bool operator==(const DataSettings&, const DataSettings&) = default;
};

}  // namespace dat
