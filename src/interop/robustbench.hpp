#pragma once

#include <optional>
#include <string>

#include "dat/network.hpp"
#include "dat/norm.hpp"
#include "interop/safetensors.hpp"

namespace dat {

/// Description of a model for RobustBench beside its weights.
struct RobustBenchEntry {
  std::string architecture;             ///< name of the architecture, such as "resnet18, width 16"
  std::string dataset;                  ///< cifar10; empty: another one
  BallNorm norm = BallNorm::linf;       ///< norm of the ball that the network was trained for: the threat model
  double eps = 0;                       ///< radius of that ball
  std::optional<bool> additional_data;  ///< true: the network was trained on more than `dataset`; empty: unknown
  std::string weights;                  ///< weights_hash of the exported weights
  std::string evaluation;               ///< path of an evaluation that `eval --out` wrote; empty: there are no figures
};

/// Writes a folder with all that RobustBench asks of a model: write_pytorch_folder's, and model_info.json with the
/// fields of its model_info/; fields that only the author knows (title, authors, venue, link) are empty. Figures are
/// percents of the evaluation: clean_acc, reported (the attack that hurts most), autoattack_acc where AutoAttack's
/// standard version has been run on all test images, else null; figures in another norm are in the footnote alone.
/// Returns what is still missing, a sentence a line, and the place of model_info.json, which says the threat model
/// there. Error(data): the evaluation is not of these weights on the test images, or of another eps. Error(io). Source:
/// README and model_info/ of RobustBench/robustbench.
[[nodiscard]] std::string write_robustbench(const std::string& folder, const Graph& graph, const StateDict& state,
                                            const RobustBenchEntry& entry);

}  // namespace dat
