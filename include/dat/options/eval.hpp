#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dat/options/machine.hpp"

namespace dat {

/// Options of `eval`. Rows and rules: src/verbs/eval.cpp.
struct EvalOptions : MachineSettings {
  std::string checkpoint;         ///< a checkpoint file, or the folder of a run: its newest
  std::vector<std::string> data;  ///< empty: the data that the network was trained on
  std::string split = "test";     ///< test | train | holdout
  std::string images;             ///< a file with the names of the images, one a line; empty: all of the split
  std::int64_t limit = 0;         ///< first N samples; 0: all
  std::string weights = "auto";   ///< auto (the averaged ones, where there are any) | raw | average
  std::vector<std::string> eval = {"pgd"};  ///< attacks, and one sequence of attacks at most
  std::string norm = "auto";                ///< auto (that of the run) | linf | l2
  double eps = 0;                           ///< 0: that of the run
  double alpha = 0;                         ///< 0: the attack's own
  double noise = -1;              ///< standard deviation of the noise that the network sees; -1: that of the training
  int noise_samples = 0;          ///< copies of each image under noise; 0: those of the training, or 1
  int batch = 128;                ///< images per rank and step
  std::string out;                ///< file or folder for the results as JSON; empty: none
  bool save_adversarial = false;  ///< the images that attacks have broken, in the folder `out`
  bool dry_run = false;           ///< true: the costs are printed, and nothing is evaluated
  double progress = 10;           ///< seconds between progress lines

  friend bool operator==(const EvalOptions&, const EvalOptions&) = default;
};

}  // namespace dat
