#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dat/options/machine.hpp"

namespace dat {

/// Options of `certify`. Rows and rules: src/verbs/certify.cpp.
struct CertifyOptions : MachineSettings {
  std::string checkpoint;         ///< a checkpoint file, or the folder of a run: its newest
  std::vector<std::string> data;  ///< empty: the data that the network was trained on
  std::string split = "test";     ///< test | train | holdout
  std::string images;             ///< a file with the names of the images, one a line; empty: all of the split
  std::int64_t every = 20;        ///< images 0, every, 2 every, ... of the split
  std::int64_t limit = 0;         ///< number of these that are taken, the first ones; 0: all
  std::string weights = "auto";   ///< auto (the averaged ones, where there are any) | raw | average
  double sigma = 0;               ///< standard deviation of the noise, in units of the pixels' range; 0: the training's
  std::string noise_kind = "grid";  ///< grid | float
  bool predict = false;             ///< PREDICT instead of CERTIFY
  std::int64_t n0 = 100;            ///< samples that choose the class
  std::int64_t n = 100'000;         ///< samples, or the most of them
  double alpha = 0.001;             ///< the chance that an answer is wrong
  std::vector<double> radii;        ///< sequential: each is decided; empty: all n samples
  int attack_steps = 0;             ///< steps of the attack on certified images; 0: none
  int noise_samples = 100;          ///< copies of an image that this attack sees
  std::string precision = "f32";    ///< f32 | f16 | bf16: the network's activations and weights
  int batch = 2048;                 ///< samples per rank between two exchanges of votes
  std::string out;                  ///< folder for what is found out; empty: none
  double progress = 10;             ///< seconds between progress lines

  friend bool operator==(const CertifyOptions&, const CertifyOptions&) = default;
};

}  // namespace dat
