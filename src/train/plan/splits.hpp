#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dat/config.hpp"
#include "dat/dataset.hpp"
#include "dat/sampler.hpp"

namespace dat {

/// The images that a run works on.
struct Splits {
  std::unique_ptr<Dataset> train, test;
  std::unique_ptr<Dataset> holdout;             ///< null without --holdout
  std::int64_t test_images = 0;                 ///< test images without --limit-test
  std::map<std::string, std::string> hashes{};  ///< content_hash() by split, of all test images; none if not hashed
};

/// Data of --data, or the built-in synthetic set; cut as the options say. Error(data), Error(io). Error(usage): images
/// without labels, where the options do not allow them. hashed: for a run, which reads images for it.
[[nodiscard]] Splits open_splits(const TrainOptions& options, bool hashed = false);
/// class_remarks() of what is whole: none under --limit-train or --limit-test, whose first images may lack classes.
[[nodiscard]] std::vector<std::string> label_remarks(const TrainOptions& options, const Splits& splits);
/// Number of these images whose label is unknown (-1).
[[nodiscard]] std::int64_t unlabelled_images(const Dataset& images);
/// "1000 training and 200 test images, 300 of the training images without a label".
[[nodiscard]] std::string sizes_text(const Splits& splits);
/// Mixture of batches of training images by --mix, where so many ranks train. Error(usage): as Mix, and as batch_of().
[[nodiscard]] Mix mix_of(const TrainOptions& options, const Dataset& train, int ranks);
/// One of them: train (without what is held out), holdout, test.
/// usual_size: what networks see of the images of an index, without --size; 0: the images', which must be alike.
[[nodiscard]] std::unique_ptr<Dataset> open_split(const TrainOptions& options, const std::string& split,
                                                  int usual_size = 0);

}  // namespace dat
