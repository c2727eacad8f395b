#include "network/networks.hpp"

namespace dat {

std::vector<ResidualBlock> residual_blocks(const std::string& stage, const std::string& separator, int width,
                                           const std::vector<int>& counts) {
  std::vector<ResidualBlock> blocks;
  for (std::size_t k = 0; k < counts.size(); ++k)
    for (int index = 0; index < counts[k]; ++index)
      blocks.push_back(
          {stage + std::to_string(k + 1) + separator + std::to_string(index), width << k, k > 0 && index == 0 ? 2 : 1});
  return blocks;
}

int preactivation_block(NetworkBuilder& net, int x, const std::string& name,
                        const std::vector<ConvolutionShape>& convolutions, const std::string& shortcut) {
  const int channels = convolutions.back().channels;
  int y = x, activated = -1, stride = 1;
  net.begin_block(name);
  for (std::size_t k = 0; k < convolutions.size(); ++k) {
    const std::string number = std::to_string(k + 1);
    net.begin_module(name + ".conv" + number);
    y = net.activation(net.batch_norm(name + ".bn" + number, y));
    if (k == 0) activated = y;
    y = net.convolution(name + ".conv" + number, y, convolutions[k].channels, convolutions[k].kernel,
                        convolutions[k].stride);
    stride *= convolutions[k].stride;
  }
  if (stride != 1 || net.channels(x) != channels) {
    net.begin_module(name + "." + shortcut.substr(0, shortcut.find('.')));
    x = net.convolution(name + "." + shortcut, activated, channels, 1, stride);
  }
  return net.add(y, x);
}

}  // namespace dat
