#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dat/network.hpp"
#include "dat/norm.hpp"
#include "interop/safetensors.hpp"

namespace dat {

/// Subject of a model card.
struct HubEntry {
  std::string architecture;                                      ///< name of it, such as "resnet18, width 16"
  std::string dataset{};                                         ///< cifar10; empty: another one
  BallNorm norm = BallNorm::linf;                                ///< norm of the ball that the network was trained for
  double eps = 0;                                                ///< radius of that ball; 0: there was no attack
  bool noise = false;                                            ///< true: the run evaluates under noise
  std::string weights{};                                         ///< raw | average: which are exported
  std::string hash{}, raw_hash{};                                ///< weights_hash of these, and of the raw ones
  std::string test_images{};                                     ///< content_hash of the whole test set
  std::string results{};                                         ///< path of the run's results.h5; empty: no run
  std::string evaluation{};                                      ///< path of an evaluation's results.h5; empty: none
  std::vector<std::string> options{};                            ///< options that differ from the defaults
  std::vector<std::pair<std::string, std::string>> citations{};  ///< citations() of the options
};

/// Writes a folder for a hub of models: write_pytorch_folder's, and README.md, a model card with metadata. Figures come
/// from sealed files alone: from the run's results, where they are of the exported weights' checkpoint and of the whole
/// test set; and from an evaluation, which must be of the exported weights on the whole test set. What only the author
/// knows (licence, use) is left out. Returns what is still missing, a sentence a line. Error(data): the evaluation is
/// damaged, of other weights or of other images. Error(usage): there is a README.md. Error(io). Source:
/// huggingface/hub-docs, modelcard.md.
[[nodiscard]] std::string write_hub(const std::string& folder, const Graph& graph, const StateDict& state,
                                    const HubEntry& entry);

}  // namespace dat
