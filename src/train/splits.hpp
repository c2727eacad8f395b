#pragma once

#include <memory>
#include <string>

#include "dat/config.hpp"
#include "dat/dataset.hpp"
#include "dat/sampler.hpp"

namespace dat {

/// The images that a run works on.
struct Splits {
  std::unique_ptr<Dataset> train, test;
  std::unique_ptr<Dataset> holdout;  ///< null without --holdout
};

/// What --data says, or the built-in synthetic set; cut as the options say. Error(data), Error(io).
[[nodiscard]] Splits open_splits(const TrainOptions& options);
/// How --mix puts batches together from the training images. Error(usage): as Mix.
[[nodiscard]] Mix mix_of(const TrainOptions& options, const Dataset& train);
/// One of them: train (without what is held out), holdout, test.
[[nodiscard]] std::unique_ptr<Dataset> open_split(const TrainOptions& options, const std::string& split);

}  // namespace dat
