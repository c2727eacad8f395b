#include "network/networks.hpp"

namespace dat {

int stem_of(NetworkBuilder& net, const std::string& name, int channels, int kernel, int stride) {
  net.begin_block("stem");
  net.begin_module(name);
  return net.convolution(name, net.input(), channels, kernel, stride);
}

std::vector<ResidualBlock> residual_blocks(const std::string& stage, const std::string& separator, int width,
                                           const std::vector<int>& counts, int first) {
  std::vector<ResidualBlock> blocks;
  for (std::size_t k = 0; k < counts.size(); ++k)
    for (int index = 0; index < counts[k]; ++index)
      blocks.push_back({stage + std::to_string(first + static_cast<int>(k)) + separator + std::to_string(index),
                        width << k, k > 0 && index == 0 ? 2 : 1});
  return blocks;
}

int preactivation_block(NetworkBuilder& net, int x, const std::string& name,
                        const std::vector<ConvolutionShape>& convolutions, const BlockNames& names, Padding padding) {
  const int channels = convolutions.back().channels;
  int y = x, activated = x, stride = 1;
  net.begin_block(name);
  for (std::size_t k = 0; k < convolutions.size(); ++k) {
    const std::string number = std::to_string(names.first + static_cast<int>(k));
    net.begin_module(name + "." + names.convolution + number);
    y = net.activation(net.batch_norm(name + "." + names.norm + number, y));
    if (k == 0) activated = y;
    y = net.convolution(name + "." + names.convolution + number, y, convolutions[k].channels, convolutions[k].kernel,
                        convolutions[k].stride, padding);
    stride *= convolutions[k].stride;
  }
  if (stride != 1 || net.channels(x) != channels) {
    net.begin_module(name + "." + names.shortcut.substr(0, names.shortcut.find('.')));
    x = net.convolution(name + "." + names.shortcut, activated, channels, 1, stride);
  }
  return net.add(y, x);
}

int postactivation_block(NetworkBuilder& net, int x, const std::string& name,
                         const std::vector<ConvolutionShape>& convolutions, const std::string& shortcut) {
  int y = x, stride = 1;
  net.begin_block(name);
  for (std::size_t k = 0; k < convolutions.size(); ++k) {
    const std::string number = std::to_string(k + 1), convolution = name + ".conv" + number;
    if (k > 0) y = net.activation(y);
    net.begin_module(convolution);
    y = net.convolution(convolution, y, convolutions[k].channels, convolutions[k].kernel, convolutions[k].stride);
    y = net.batch_norm(name + ".bn" + number, y);
    stride *= convolutions[k].stride;
  }
  if (stride != 1 || net.channels(x) != net.channels(y)) {
    net.begin_module(name + "." + shortcut);
    x = net.convolution(name + "." + shortcut + ".0", x, net.channels(y), 1, stride);
    x = net.batch_norm(name + "." + shortcut + ".1", x);
  }
  return net.activation(net.add(y, x));
}

Graph end_of(NetworkBuilder& net, int x, const std::string& linear, int classes, const std::string& norm) {
  net.begin_block(linear);
  net.begin_module(linear);
  if (!norm.empty()) x = net.activation(net.batch_norm(norm, x));
  net.linear(linear, net.pool(x), classes);
  return net.finish();
}

}  // namespace dat
