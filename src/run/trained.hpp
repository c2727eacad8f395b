#pragma once

#include <memory>
#include <string>
#include <vector>

#include "assess/classes.hpp"
#include "dat/checkpoint.hpp"
#include "dat/communicator.hpp"
#include "dat/config.hpp"
#include "dat/dataset.hpp"
#include "dat/network.hpp"

namespace dat {

/// A checkpoint, with what its training says about the network, for verbs that look at a trained network.
struct Trained {
  std::string path;  ///< name of the file, as given
  Checkpoint checkpoint{};
  TrainOptions options{};
  Classes classes{};
  std::string options_hash{};  ///< hash of the training's options, which say what the network computes with its weights

  [[nodiscard]] std::int64_t step() const { return checkpoint.integers.at("step"); }
};

/// The newest checkpoint of a run, or a checkpoint. data: files that are given for it. Warns on rank 0 of one that is
/// damaged. Error(usage): it was imported, and there are no files. Error(checkpoint).
[[nodiscard]] Trained read_trained(const Communicator& world, const std::string& path,
                                   const std::vector<std::string>& data);

/// A split of the training's data, or of files in its place.
struct ChosenSplit {
  std::unique_ptr<Dataset> images;   ///< images of the list, of these the first `limit` ones
  std::int64_t size = 0;             ///< images of the whole split
  std::vector<std::string> files{};  ///< files with the images, and the list; none: the built-in set
};
/// split: test, train or holdout; limit: 0 for all; list: a file of names (named_in), empty: all. Error(usage): there
/// is no such split, or images are without a label. Error(data): they do not fit the network.
[[nodiscard]] ChosenSplit open_chosen(const Trained& trained, const std::vector<std::string>& data,
                                      const std::string& split, std::int64_t limit, const std::string& list);

/// Error(usage): what a verb is going to write would replace the checkpoint, or the file of the images.
void require_apart_from(const Trained& trained, const ChosenSplit& chosen, const std::vector<std::string>& outputs);

/// Loads a model with the weights that `wanted` (auto, raw, average) means. Returns which: raw or average; warns on
/// rank 0 where they are raw though there are averaged ones. Error(checkpoint).
[[nodiscard]] std::string load_weights(const Communicator& world, const Trained& trained, const std::string& wanted,
                                       Model& model);

}  // namespace dat
