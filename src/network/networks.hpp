#pragma once

#include <string>
#include <vector>

#include "dat/network.hpp"

namespace dat {

[[nodiscard]] Graph imagenet_resnet18(const NetworkOptions& options);
[[nodiscard]] Graph imagenet_resnet50(const NetworkOptions& options);
[[nodiscard]] Graph imagenet_wrn50_2(const NetworkOptions& options);
[[nodiscard]] Graph preact_resnet18(const NetworkOptions& options);
[[nodiscard]] Graph preact_resnet18_bn(const NetworkOptions& options);
[[nodiscard]] Graph preact_resnet50(const NetworkOptions& options);
[[nodiscard]] Graph resnet18(const NetworkOptions& options);
[[nodiscard]] Graph small_cnn(const NetworkOptions& options);
/// depth: 6k + 4.
[[nodiscard]] Graph wide_resnet(const NetworkOptions& options, int depth);
[[nodiscard]] Graph dm_wide_resnet(const NetworkOptions& options, int depth);

/// Records the first block of a network, a convolution of the images with this name.
[[nodiscard]] int stem_of(NetworkBuilder& net, const std::string& name, int channels, int kernel = 3, int stride = 1);

/// Block of residual networks. Stage k has 2^k times the channels of the first; all stages but that begin with stride
/// 2.
struct ResidualBlock {
  std::string name;  ///< PyTorch's, e.g. "layer2.0"
  int channels, stride;
};
/// `counts`: blocks of each stage. The first block is called stage + `first` + separator + "0".
[[nodiscard]] std::vector<ResidualBlock> residual_blocks(const std::string& stage, const std::string& separator,
                                                         int width, const std::vector<int>& counts, int first = 1);

struct ConvolutionShape {
  int channels, kernel, stride;
};
/// PyTorch's names within a block: those of batch norms and convolutions end with a number, from `first` on.
struct BlockNames {
  std::string norm = "bn", convolution = "conv", shortcut = "shortcut.0";
  int first = 1;
};
/// Records a residual block with pre-activation (He et al., "Identity Mappings in Deep Residual Networks", 2016): each
/// convolution NAME.convK reads act(bnK(x)). Where the shape changes, the shortcut is a 1x1 convolution without batch
/// norm, NAME.SHORTCUT, which reads what the first convolution reads. Returns the sum.
int preactivation_block(NetworkBuilder& net, int x, const std::string& name,
                        const std::vector<ConvolutionShape>& convolutions, const BlockNames& names = {},
                        Padding padding = Padding::around);
/// Records a residual block (He et al., "Deep Residual Learning for Image Recognition", 2015): bnK(NAME.convK(x)) one
/// after the other, an activation between them and after the addition. Where the shape changes, the shortcut is a 1x1
/// convolution, NAME.SHORTCUT.0, with a batch norm, NAME.SHORTCUT.1.
int postactivation_block(NetworkBuilder& net, int x, const std::string& name,
                         const std::vector<ConvolutionShape>& convolutions, const std::string& shortcut);
/// Records the end of a network, its last block: a batch norm of this name with an activation, where it has one, the
/// mean over all pixels, and the linear layer.
[[nodiscard]] Graph end_of(NetworkBuilder& net, int x, const std::string& linear, int classes,
                           const std::string& norm = "");

}  // namespace dat
