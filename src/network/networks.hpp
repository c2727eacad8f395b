#pragma once

#include <string>
#include <vector>

#include "dat/network.hpp"

namespace dat {

[[nodiscard]] Graph preact_resnet18(const NetworkOptions& options);
[[nodiscard]] Graph preact_resnet18_bn(const NetworkOptions& options);
[[nodiscard]] Graph preact_resnet50(const NetworkOptions& options);
[[nodiscard]] Graph resnet18(const NetworkOptions& options);
[[nodiscard]] Graph small_cnn(const NetworkOptions& options);
[[nodiscard]] Graph wrn16_4(const NetworkOptions& options);
[[nodiscard]] Graph wrn28_10(const NetworkOptions& options);
[[nodiscard]] Graph wrn34_10(const NetworkOptions& options);

/// What residual networks are made of, block by block. Stage k has 2^k times the channels of the first; all stages but
/// that begin with stride 2.
struct ResidualBlock {
  std::string name;  ///< PyTorch's, e.g. "layer2.0"
  int channels, stride;
};
/// `counts`: blocks of each stage. The first block is called stage + "1" + separator + "0".
[[nodiscard]] std::vector<ResidualBlock> residual_blocks(const std::string& stage, const std::string& separator,
                                                         int width, const std::vector<int>& counts);

struct ConvolutionShape {
  int channels, kernel, stride;
};
/// Records a residual block with pre-activation (He et al., "Identity Mappings in Deep Residual Networks", 2016): each
/// convolution NAME.convK reads act(bnK(x)). Where the shape changes, the shortcut is a 1x1 convolution without batch
/// norm, NAME.SHORTCUT, which reads what the first convolution reads. Returns the sum.
int preactivation_block(NetworkBuilder& net, int x, const std::string& name,
                        const std::vector<ConvolutionShape>& convolutions, const std::string& shortcut);

}  // namespace dat
