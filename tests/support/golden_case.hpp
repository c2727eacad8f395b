#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "all.hpp"
#include "dat/attack.hpp"
#include "dat/program.hpp"
#include "hdf5/hdf5.hpp"

/// A golden file (tests/golden/make_golden.py): a network with formula-made weights, or those below /param, and a
/// batch.
namespace dat::test {

[[nodiscard]] inline std::uint32_t fmix32(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x85EBCA6BU;
  x ^= x >> 13;
  x *= 0xC2B2AE35U;
  return x ^ (x >> 16);
}

/// The weights that make_golden.py's docstring defines, in PyTorch's order of elements.
[[nodiscard]] inline std::vector<float> formula_values(std::uint32_t t, const Segment& segment, int features) {
  std::vector<float> values(static_cast<std::size_t>(segment.size));
  double fan_in = features;
  if (segment.shape.size() > 1) {
    fan_in = 1;
    for (std::size_t d = 1; d < segment.shape.size(); ++d) fan_in *= segment.shape[d];
  }
  const bool linear = segment.shape.size() > 1 || segment.name == "linear.bias" || segment.name == "fc.bias";
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double u = fmix32(static_cast<std::uint32_t>(i) + 0x9E3779B9U * t) / 4294967296.0;
    values[i] = static_cast<float>(linear                             ? (2 * u - 1) / std::sqrt(fan_in)
                                   : segment.name.ends_with("weight") ? 0.75 + 0.5 * u
                                                                      : (u - 0.5) * 0.4);
  }
  return values;
}

struct GoldenCase {
  GoldenCase(Backend& backend, const std::string& path)
      : file(Hdf5File::open(path, ExitCode::data)),
        network(file.text("/", "network").value()),
        n(static_cast<int>(file.integer("/", "batch").value())),
        classes(static_cast<int>(file.integer("/", "classes").value())),
        size(static_cast<int>(file.integer("/", "size").value())),
        steps(static_cast<int>(file.integer("/", "steps").value())),
        eps(file.real("/", "eps").value()),
        alpha(file.real("/", "alpha").value()),
        lambda(file.real("/", "lambda").value()),
        model(
            backend,
            networks().at(network)({.width = static_cast<int>(file.integer("/", "width").value()),
                                    .size = size,
                                    .channels = 3,
                                    .classes = classes,
                                    .activation = activation_from(file.text("/", "activation").value_or("relu")),
                                    .normalization = normalization_from(file.text("/", "normalize").value_or("none"))}),
            Granularity::tensor),
        layout(backend.image_layout(3, size, size)) {
    const int features = model.parameters.segments.end()[-2].shape[1];
    for (std::size_t t = 0; t < model.parameters.segments.size(); ++t) {
      const Segment& segment = model.parameters.segments[t];
      const std::string own = "param/" + segment.name;
      model.upload(segment,
                   file.has(own) ? read(own) : formula_values(static_cast<std::uint32_t>(t), segment, features),
                   model.parameters.values);
    }
    for (const Norm& norm : model.graph.norms) {
      const auto mean = read("bn/" + norm.name + ".running_mean"), variance = read("bn/" + norm.name + ".running_var");
      backend.copy_to_device(model.running_mean + norm.begin, mean.data(), mean.size() * sizeof(float));
      backend.copy_to_device(model.running_variance + norm.begin, variance.data(), variance.size() * sizeof(float));
    }
    elements = n * layout.elements();
    x = image("input/x");
    start = image("input/start");
    Shape shape;
    const auto stored = file.read<std::int64_t>("input/labels", shape);
    const std::vector<std::int32_t> narrow(stored.begin(), stored.end());
    labels = static_cast<std::int32_t*>(backend.allocate(narrow.size() * sizeof(std::int32_t), "labels"));
    backend.copy_to_device(labels, narrow.data(), narrow.size() * sizeof(std::int32_t));
    const std::vector<std::int64_t> zero(static_cast<std::size_t>(n), 0);
    ids = static_cast<std::int64_t*>(backend.allocate(zero.size() * sizeof(std::int64_t), "sample ids"));
    loss = backend.allocate_floats(n, "loss");
    correct = backend.allocate_floats(n, "correct");
    eta = backend.allocate_floats(elements, "eta");
    x_adv = backend.allocate_floats(elements, "x_adv");
    dx = backend.allocate_floats(elements, "dx");
  }

  [[nodiscard]] std::vector<float> read(const std::string& name) const {
    Shape shape;
    return file.read<float>(name, shape);
  }

  /// NCHW images of the file in the backend's image layout, on the device.
  [[nodiscard]] float* image(const std::string& name) {
    const auto nchw = read(name);
    std::vector<float> values(nchw.size());
    std::size_t from = 0;
    for (int k = 0; k < n; ++k)
      for (int c = 0; c < 3; ++c)
        for (int y = 0; y < size; ++y)
          for (int column = 0; column < size; ++column)
            values[static_cast<std::size_t>(layout.offset(k, c, y, column))] = nchw[from++];
    float* device = model.backend.allocate_floats(static_cast<std::int64_t>(values.size()), name);
    model.backend.copy_to_device(device, values.data(), values.size() * sizeof(float));
    return device;
  }

  /// Images on the device as NCHW on the host.
  [[nodiscard]] std::vector<float> to_nchw(const float* device) const {
    std::vector<float> values(static_cast<std::size_t>(elements)), nchw(values.size());
    model.backend.wait();
    model.backend.copy_to_host(values.data(), device, values.size() * sizeof(float));
    std::size_t to = 0;
    for (int k = 0; k < n; ++k)
      for (int c = 0; c < 3; ++c)
        for (int y = 0; y < size; ++y)
          for (int column = 0; column < size; ++column)
            nchw[to++] = values[static_cast<std::size_t>(layout.offset(k, c, y, column))];
    return nchw;
  }

  [[nodiscard]] std::vector<float> to_host(const float* device, std::int64_t count) const {
    std::vector<float> values(static_cast<std::size_t>(count));
    model.backend.wait();
    model.backend.copy_to_host(values.data(), device, values.size() * sizeof(float));
    return values;
  }

  Hdf5File file;
  std::string network;
  int n, classes, size, steps;
  double eps, alpha, lambda;
  Model model;
  Layout layout;
  std::int64_t elements = 0;
  float *x = nullptr, *start = nullptr, *loss = nullptr, *correct = nullptr, *eta = nullptr, *x_adv = nullptr,
        *dx = nullptr;
  std::int32_t* labels = nullptr;
  std::int64_t* ids = nullptr;
};

/// Loss and dlogits of a program's logits; the gradient is that of gradient_scale * sum of losses.
template <class Program>
void cross_entropy(const GoldenCase& c, Program& program, float gradient_scale) {
  each(c.model.backend.device(), c.n,
       kernels::SoftmaxCrossEntropy{program.logits(), c.labels, c.loss, c.correct, program.dlogits(), c.classes,
                                    gradient_scale});
}

/// The attack's view of a case: the gradient through the frozen program, or through the training program.
template <class Program>
class CaseObjective : public Objective {
 public:
  CaseObjective(GoldenCase& c, Program& program) : case_(c), program_(program) {
    device = c.model.backend.device();
    layout = c.layout;
    n = c.n;
    clean = c.x;
    x_adv = c.x_adv;
    eta = c.eta;
    start = c.start;
    dx = c.dx;
    sample_ids = c.ids;
  }
  void gradient() override {
    program_.refresh();
    program_.forward(x_adv);
    cross_entropy(case_, program_, 1.0F);
    if constexpr (std::is_same_v<Program, FrozenProgram>)
      program_.backward(case_.dx);
    else
      program_.backward(x_adv, {.input = case_.dx});
  }

 private:
  GoldenCase& case_;
  Program& program_;
};

}  // namespace dat::test
