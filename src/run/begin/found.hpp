#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dat/checkpoint.hpp"
#include "dat/communicator.hpp"
#include "dat/error.hpp"
#include "interop/state_dict.hpp"
#include "options/train/parse.hpp"
#include "options/train/table.hpp"

namespace dat {

/// The weights that --initialize names, with what the file says of their network. Nothing at all: the file has not been
/// read.
struct GivenWeights {
  std::string config{};                    ///< options of `train`, as key = value lines; empty: it names none
  std::optional<Checkpoint> checkpoint{};  ///< content of a checkpoint, or of a state_dict in HDF5
  std::optional<StateDict> state{};        ///< content of a file of another program
  std::int64_t image_size = 0;             ///< height = width of the images that the file names; else below 1
  std::optional<Error> failure{};          ///< reason why it cannot be read
  std::vector<std::string> warnings{};

  [[nodiscard]] bool read() const { return checkpoint || state || failure; }
};

/// Takes the network of given weights (`initialize`): network, width, activation and normalization of the run become
/// those that the file says it was trained with, where neither the command line nor a file or recipe has set them.
/// Reads what the file says, or, for a run that goes on, what it wrote down when it began. Error(usage): one of them
/// was set to something else. Error(checkpoint): the file cannot be read.
void take_network(TrainOrder& order);
/// Takes the network on all ranks of a run: rank 0 reads the file, once and whole, and all take its content. Returns
/// the weights, on rank 0. Errors in them are for decide() to report: the run in the folder may not need them.
/// **Collective.**
[[nodiscard]] GivenWeights take_network(TrainOrder& order, Communicator& world);
/// A network of the same parameters may compute something else: with another activation, or of images that are
/// normalized in another way. A file that does not say is believed. Error(usage).
void require_same_function(const Written& there, const TrainOptions& here);
/// "--initialize PATH: what is wrong with it".
[[nodiscard]] Error about_weights(const std::string& path, const Error& error);

/// Content of the files that a run may begin from, read once; nothing of it has been judged.
struct Found {
  std::string folder;
  std::string config{};   ///< options that the run in the folder has written down; empty: there are none
  std::string summary{};  ///< report of the run; empty: it is not finished
  bool occupied = false;  ///< there is a run, or what is left of one
  bool own = false;       ///< the checkpoint is that run's
  std::optional<Checkpoint> checkpoint{};  ///< the newest whole one of the folder; else that of --resume PATH
  std::optional<Error> failure{};          ///< reason why it cannot be read
  GivenWeights weights{};                  ///< read only where there is no checkpoint
  std::vector<std::string> warnings{};     ///< warnings about damaged checkpoints
};
/// Looks into the folder and at what the options name. On rank 0, which holds the folder's RunLock. weights: as far as
/// they have been read.
[[nodiscard]] Found look(const TrainOptions& options, const std::string& folder, GivenWeights weights);

}  // namespace dat
