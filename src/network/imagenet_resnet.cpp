#include "network/networks.hpp"

namespace dat {

namespace {

/// ResNet for images of 224 pixels (He et al. 2015, as in torchvision): a 7x7 first convolution with stride 2 and a max
/// pool. With bottlenecks, blocks have 1x1, 3x3 and 1x1 convolutions, `wider` times as many channels inside, and four
/// times as many between them; the 3x3 convolution has the stride ("v1.5").
Graph imagenet_resnet(const NetworkOptions& options, const std::vector<int>& counts, bool bottleneck, int wider = 1) {
  constexpr int kExpansion = 4;
  NetworkBuilder net(options);
  net.begin_weights(Initial::normal_fan_out);
  int x = stem_of(net, "conv1", options.width, 7, 2);
  x = net.max_pool(net.activation(net.batch_norm("bn1", x)), 3, 2);
  for (const auto& [block, width, stride] : residual_blocks("layer", ".", options.width, counts)) {
    const int inside = wider * width, channels = bottleneck ? kExpansion * width : width;
    const std::vector<ConvolutionShape> convolutions =
        bottleneck ? std::vector<ConvolutionShape>{{inside, 1, 1}, {inside, 3, stride}, {channels, 1, 1}}
                   : std::vector<ConvolutionShape>{{inside, 3, stride}, {channels, 3, 1}};
    x = postactivation_block(net, x, block, convolutions, "downsample");
  }
  return end_of(net, x, "fc", options.classes);
}

}  // namespace

/// 62 tensors; 11,689,512 parameters at width 64 and 1000 classes.
Graph imagenet_resnet18(const NetworkOptions& options) { return imagenet_resnet(options, {2, 2, 2, 2}, false); }

/// 161 tensors; 25,557,032 parameters at width 64 and 1000 classes.
Graph imagenet_resnet50(const NetworkOptions& options) { return imagenet_resnet(options, {3, 4, 6, 3}, true); }

/// ResNet-50 with twice as many channels inside its blocks (Zagoruyko and Komodakis 2016).
/// 161 tensors; 68,883,240 parameters at width 64 and 1000 classes.
Graph imagenet_wrn50_2(const NetworkOptions& options) { return imagenet_resnet(options, {3, 4, 6, 3}, true, 2); }

}  // namespace dat
