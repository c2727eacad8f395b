#include "network/networks.hpp"

namespace dat {

namespace {

/// Wide ResNet (Zagoruyko and Komodakis 2016) as TRADES and RobustBench have it (wideresnet.py): three stages, a batch
/// norm before the pool. The first convolution has 16 channels; the first stage has `width`, 16 times the widening
/// factor. TRADES's class has a second first stage, sub_block1, which takes no part; it is not here.
Graph wide_resnet(const NetworkOptions& options, int depth) {
  constexpr int kStem = 16;
  const int blocks = (depth - 4) / 6;
  NetworkBuilder net(options);
  net.begin_block("stem");
  net.begin_module("conv1");
  int x = net.convolution("conv1", net.input(), kStem, 3, 1);
  for (const auto& [block, channels, stride] :
       residual_blocks("block", ".layer.", options.width, {blocks, blocks, blocks}))
    x = preactivation_block(net, x, block, {{channels, 3, stride}, {channels, 3, 1}}, "convShortcut");
  net.begin_block("fc");
  net.begin_module("fc");
  x = net.activation(net.batch_norm("bn1", x));
  net.linear("fc", net.pool(x), options.classes);
  return net.finish();
}

}  // namespace

/// 44 tensors; 2,748,890 parameters at width 64 and 10 classes.
Graph wrn16_4(const NetworkOptions& options) { return wide_resnet(options, 16); }

/// 80 tensors; 36,479,194 parameters at width 160 and 10 classes.
Graph wrn28_10(const NetworkOptions& options) { return wide_resnet(options, 28); }

/// 98 tensors; 46,160,474 parameters at width 160 and 10 classes.
Graph wrn34_10(const NetworkOptions& options) { return wide_resnet(options, 34); }

}  // namespace dat
