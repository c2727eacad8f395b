#include "backend/cpu/backend.hpp"
#include "batch/view/frozen.hpp"
#include "catch.hpp"
#include "dat/program.hpp"
#include "device.hpp"
#include "network/operations.hpp"
#include "perturb.hpp"
#include "random_values.hpp"

using namespace dat;
using namespace dat::test;

namespace {

/// What none of the networks has: activations, additions and batch norms that nothing takes along; values with three
/// and four readers, means with two; a residual that is still needed, and one that is the convolution's own input.
Graph tangled(const NetworkOptions& options) {
  NetworkBuilder net(options);
  net.begin_block("all");
  net.begin_module("all");
  const int a = net.convolution("conv1", net.input(), 16, 3, 1);
  const int b = net.add(net.activation(a), a);
  const int c = net.add(net.convolution("conv2", b, 16, 3, 1), b);
  const int d = net.activation(net.add(net.batch_norm("bn1", net.convolution("conv3", c, 16, 1, 1)), b));
  const int e = net.batch_norm("bn2", c), f = net.batch_norm("bn3", d);
  const int g = net.activation(net.add(net.add(e, f), net.add(f, b)));
  const int h = net.activation(net.batch_norm("bn4", net.convolution("conv4", g, 32, 3, 2)));
  // The gradient of the first of these two comes second, and is not one that can be added in place everywhere.
  const int i = net.convolution("conv5", h, 32, 1, 2);
  const int j = net.add(net.convolution("conv6", h, 32, 3, 2), i);
  const int k = net.convolution("conv8", net.convolution("conv7", g, 32, 1, 2), 32, 1, 2);
  const int l = net.pool(net.add(j, k));
  net.linear("linear", net.add(l, l), 10);
  return net.finish();
}

/// Batch norms that a convolution could apply while it reads: one whose input is the residual of that convolution, and
/// one with another operation between it and its activation. And a sum that two norms read; one is added much later.
Graph crossed(const NetworkOptions& options) {
  NetworkBuilder net(options);
  net.begin_block("all");
  net.begin_module("all");
  const int a = net.convolution("conv1", net.input(), 16, 3, 1);
  const int b = net.batch_norm("bn1", a);
  const int c = net.convolution("conv2", a, 16, 3, 1);
  const int d = net.add(net.convolution("conv3", net.activation(b), 16, 3, 1), c);
  const int late = net.batch_norm("bn5", d);
  const int near = net.add(net.convolution("conv4", net.activation(net.batch_norm("bn2", d)), 16, 3, 1), d);
  const int e = net.add(near, net.add(late, a));
  const int f = net.convolution("conv5", net.activation(net.batch_norm("bn3", e)), 32, 3, 2);
  net.linear("linear", net.pool(net.activation(net.batch_norm("bn4", f))), 10);
  return net.finish();
}

/// Max pools of values of either sign, which several nodes read, and whose result is a residual and is read again; and
/// convolutions with TensorFlow's padding.
Graph pooled(const NetworkOptions& options) {
  NetworkBuilder net(options);
  net.begin_block("all");
  net.begin_module("all");
  const int a = net.max_pool(net.convolution("conv1", net.input(), 16, 7, 2), 3, 2);
  const int b = net.activation(net.batch_norm("bn1", net.convolution("conv2", a, 16, 3, 1, Padding::same)));
  const int c = net.add(net.convolution("conv3", b, 16, 3, 1), a);
  const int d = net.convolution("conv4", net.max_pool(c, 2, 2), 32, 3, 2, Padding::same);
  const int e = net.convolution("conv5", net.activation(c), 32, 3, 2, Padding::same);
  const int f = net.add(net.batch_norm("bn2", net.convolution("conv6", c, 32, 1, 2)), e);
  const int g = net.max_pool(net.add(d, f), 3, 1);
  net.linear("linear", net.pool(net.add(net.activation(net.batch_norm("bn3", net.add(g, g))), f)), 10);
  return net.finish();
}

/// A network of width 16 by its name, or "tangled", "crossed" or "pooled"; ", silu", ", normalized" and ", grey" may
/// follow.
Graph graph_of(const std::string& name, int size) {
  const auto says = [&](const char* word) { return contains(name, word); };
  NetworkOptions options{.width = 16, .size = size, .channels = says(", grey") ? 1 : 3, .classes = 10};
  if (says(", silu")) options.activation = Activation::silu;
  if (says(", normalized"))
    options.normalization =
        says(", grey") ? Normalization{{0.4F}, {0.3F}} : Normalization{{0.5F, 0.25F, 0.7F}, {0.2F, 0.4F, 0.25F}};
  if (says("crossed")) return crossed(options);
  if (says("pooled")) return pooled(options);
  return says("tangled") ? tangled(options) : networks().at(name.substr(0, name.find(',')))(options);
}

/// Such a network with PyTorch's initial values, and images.
struct Fixture {
  Fixture(const std::string& network, int samples, int size, Granularity granularity = Granularity::tensor,
          int threads = 2)
      : Fixture(graph_of(network, size), samples, size, granularity, threads) {}
  Fixture(Graph graph, int samples, int size, Granularity granularity, int threads, Freezing freezing = {})
      : backend(test::test_backend(threads)),
        model(*backend, std::move(graph), granularity, freezing),
        n(samples),
        layout(backend->image_layout(model.graph.nodes[0].c, size, size)) {
    model.initialize(1);
    images = random_values(n * layout.elements(), 12, 0, 1);
    x = to_device(*backend, images);
    dx = backend->allocate_floats(n * layout.elements(), "test");
    direction = random_values(n * 10, 3);
  }

  [[nodiscard]] std::vector<float> gradients() const {
    return to_host(*backend, model.parameters.gradients, model.parameters.size);
  }
  [[nodiscard]] std::vector<float> input_gradient() const { return to_host(*backend, dx, n * layout.elements()); }
  void set_statistics(const std::vector<float>& mean, const std::vector<float>& variance) {
    backend->copy_to_device(model.running_mean, mean.data(), mean.size() * sizeof(float));
    backend->copy_to_device(model.running_variance, variance.data(), variance.size() * sizeof(float));
    ++model.parameters.version;
  }
  /// Those of the batch that went through the program last.
  void take_statistics(const TrainingProgram& program) {
    set_statistics(to_host(*backend, program.statistics(), model.graph.statistics),
                   to_host(*backend, program.batch_variance(), model.graph.statistics));
  }
  void fill_gradients(const std::vector<float>& values) {
    backend->copy_to_device(model.parameters.gradients, values.data(), values.size() * sizeof(float));
  }
  [[nodiscard]] std::vector<float> segment_of(const std::vector<float>& flat, const Segment& segment) const {
    return {flat.begin() + segment.begin, flat.begin() + segment.begin + segment.size};
  }
  [[nodiscard]] int segment(const std::string& name) const {
    const auto& all = model.parameters.segments;
    const auto found = std::ranges::find_if(all, [&](const Segment& s) { return s.name == name; });
    REQUIRE(found != all.end());
    return static_cast<int>(found - all.begin());
  }

  /// The way there and the gradient that comes back: of the sum of direction * logits.
  template <class Program>
  void forward(Program& program, const float* at) {
    program.refresh();
    program.forward(at);
    backend->copy_to_device(program.dlogits(), direction.data(), direction.size() * sizeof(float));
  }
  /// Of the labels, by the logits of a program that has passed forward.
  template <class Program>
  void entropy(Program& program, const std::int32_t* labels, float* loss, float* correct, float scale) {
    const Samples all{.device = backend->device(), .n = n, .classes = 10, .labels = labels};
    cross_entropy({all, program.logits(), loss, correct, program.dlogits()}, scale);
  }
  struct Passed {
    std::vector<float> logits, dx;
  };
  /// The same of the first `wanted` samples of these images, along this direction.
  [[nodiscard]] Passed pass(FrozenProgram& program, const std::vector<float>& at, const std::vector<float>& along,
                            int wanted) {
    backend->copy_to_device(x, at.data(), at.size() * sizeof(float));
    program.forward(x, wanted);
    backend->copy_to_device(program.dlogits(), along.data(), along.size() * sizeof(float));
    program.backward(dx);
    return {to_host(*backend, program.logits(), wanted * 10), to_host(*backend, dx, wanted * layout.elements())};
  }
  template <class Program>
  [[nodiscard]] double loss(Program& program, const float* at) {
    forward(program, at);
    const auto logits = to_host(*backend, program.logits(), n * 10);
    return std::inner_product(logits.begin(), logits.end(), direction.begin(), 0.0, std::plus<>(),
                              [](double a, double b) { return a * b; });
  }

  std::unique_ptr<Backend> backend;
  Model model;
  int n;
  Layout layout;
  std::vector<float> images, direction;
  float *x, *dx;
};

/// Float's rounding of the loss spoils small steps, ReLUs that open or close within the step and curvature the large
/// ones. A missing or doubled contribution makes tens of percent, at every step.
constexpr double kDifferenceTolerance = 0.05;
constexpr float kDifferenceSteps[] = {1e-4F, 2e-5F, 1e-3F};

/// How far a gradient is from the central differences of the loss, relative to its length. Each of the directions moves
/// every element by +-step: over random signs, (difference quotient - gradient * direction) is normally distributed
/// with the distance between the two gradients as standard deviation, which is the median of its size over 0.6745. The
/// median, because a ReLU that opens or closes within the step spoils single directions. Of several steps, the first
/// result within the tolerance, or the least.
template <class Loss>
double distance_from_differences(const std::vector<float>& values, const std::vector<float>& gradient, Loss loss) {
  constexpr int kDirections = 15;
  double square = 0, least = std::numeric_limits<double>::infinity();
  for (const float g : gradient) square += double(g) * g;
  for (const float step : kDifferenceSteps) {
    std::vector<double> sizes;
    for (std::uint32_t k = 0; k < kDirections; ++k) {
      auto up = values, down = values;
      const auto signs = random_values(std::ssize(values), 100 + k);
      double expected = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        up[i] += std::copysign(step, signs[i]);
        down[i] -= std::copysign(step, signs[i]);
        expected += double(gradient[i]) * (double(up[i]) - double(down[i]));
      }
      sizes.push_back(std::abs(loss(up) - loss(down) - expected) / (2 * double(step)));
    }
    std::nth_element(sizes.begin(), sizes.begin() + kDirections / 2, sizes.end());
    least = std::min(least, sizes[kDirections / 2] / 0.6745 / std::sqrt(square));
    if (least < kDifferenceTolerance) break;
  }
  return least;
}

/// Of the gradient of the images that the program has left.
template <class Program>
double distance_of_input_gradient(Fixture& f, Program& program) {
  const auto gradient = f.input_gradient();
  float* const moved_x = to_device(*f.backend, f.images);
  return distance_from_differences(f.images, gradient, [&](const std::vector<float>& moved) {
    f.backend->copy_to_device(moved_x, moved.data(), moved.size() * sizeof(float));
    return f.loss(program, moved_x);
  });
}

}  // namespace

TEST_CASE("PreActResNet-18 has 54 tensors, 11,171,146 parameters and 555,422,720 multiply-adds", "[network]") {
  const Graph graph = networks().at("preact_resnet18")({});
  REQUIRE(graph.segments.size() == 54);
  CHECK(graph.parameters == 11171146);
  CHECK(graph.macs() + 512 * 10 == 555422720);
  struct Row {
    std::size_t index;
    const char* name;
    std::vector<int> shape;
    std::int64_t begin;
  };
  for (const Row& row : std::vector<Row>{{0, "conv1.weight", {64, 3, 3, 3}, 0},
                                         {1, "layer1.0.bn1.weight", {64}, 1728},
                                         {3, "layer1.0.conv1.weight", {64, 64, 3, 3}, 1856},
                                         {15, "layer2.0.conv1.weight", {128, 64, 3, 3}, 149824},
                                         {19, "layer2.0.shortcut.0.weight", {128, 64, 1, 1}, 371264},
                                         {30, "layer3.0.bn2.bias", {256}, 970304},
                                         {44, "layer4.0.conv2.weight", {512, 512, 3, 3}, 3955008},
                                         {51, "layer4.1.conv2.weight", {512, 512, 3, 3}, 8806720},
                                         {52, "linear.weight", {10, 512}, 11166016},
                                         {53, "linear.bias", {10}, 11171136}}) {
    const Segment& segment = graph.segments[row.index];
    CHECK(segment.name == row.name);
    CHECK(segment.shape == row.shape);
    CHECK(segment.begin == row.begin);
  }
}

TEST_CASE("Other networks have the published numbers of parameters and multiply-adds, and PyTorch's names",
          "[network]") {
  // Published, rounded: 36.48, 46.16 and 23.5 million. To the last one: PyTorch's classes in tests/golden/reference.py,
  // counted. torchvision's table of its weights: 11,689,512, 25,557,032 and 68,883,240 parameters; 1.81, 4.09 and 11.40
  // billion multiply-adds of an image of 224 pixels.
  struct Row {
    const char* name;
    std::size_t tensors;
    std::int64_t parameters;
    std::vector<const char*> some;
    double macs = 0;  // ImageNet's networks; the last tensor of these is fc.bias
  };
  for (const Row& row : std::vector<Row>{
           {"resnet18", 62, 11173962, {"bn1.weight", "linear.bias"}},
           {"wrn_16_4", 44, 2748890, {"block1.layer.0.convShortcut.weight", "block3.layer.1.conv2.weight"}},
           {"wrn_28_10", 80, 36479194, {"conv1.weight", "block1.layer.0.bn1.weight", "block3.layer.3.bn2.bias"}},
           {"wrn_34_10", 98, 46160474, {"block2.layer.4.conv1.weight", "bn1.weight", "fc.weight", "fc.bias"}},
           {"wrn_10_1", 25, 77850, {"block3.layer.0.convShortcut.weight"}},
           {"dm_wrn_28_10", 80, 36479194, {"init_conv.weight", "layer.0.block.0.batchnorm_0.weight", "logits.bias"}},
           {"dm_wrn_70_16", 206, 266796506, {"layer.2.block.10.conv_1.weight", "layer.1.block.0.shortcut.weight"}},
           {"preact_resnet18_bn", 56, 11172170, {"layer4.1.conv2.weight", "bn.weight", "bn.bias", "linear.weight"}},
           {"imagenet_resnet18", 62, 11689512, {"layer2.0.downsample.1.bias"}, 1.814e9},
           {"imagenet_resnet50", 161, 25557032, {"layer1.0.downsample.0.weight"}, 4.089e9},
           {"imagenet_wrn50_2", 161, 68883240, {"layer4.2.conv3.weight"}, 11.398e9},
           {"preact_resnet50",
            151,
            23509066,
            {"layer1.0.shortcut.0.weight", "layer3.5.conv3.weight", "linear.bias"}}}) {
    const bool imagenet = row.macs > 0;
    const Graph graph = networks().at(row.name)(imagenet ? NetworkOptions{.size = 224, .classes = 1000}
                                                         : NetworkOptions{.width = default_width(row.name)});
    INFO(row.name);
    CHECK(graph.segments.size() == row.tensors);
    CHECK(file_size(graph.segments) == row.parameters);
    for (const std::string name : row.some)
      CHECK(std::ranges::any_of(graph.segments, [&](const Segment& s) { return s.name == name; }));
    if (!imagenet) continue;
    const Node& head = graph.nodes.back();
    const double channels = graph.nodes[static_cast<std::size_t>(head.inputs[0])].c;
    CHECK(std::abs(graph.macs() + channels * head.c - row.macs) < 0.001e9);
    CHECK(graph.segments.back().name == "fc.bias");
  }
  // Of width 16, the first stage of a WRN has as many channels as the stem: it needs no convolution in the shortcut.
  CHECK(networks().at("wrn_16_4")({.width = 16}).segments.size() == 43);
  // Channels that are padded change nothing: where a block has as many as the one before, nothing is in its shortcut.
  CHECK(networks().at("wrn_16_4")({.width = 20}).segments.size() == 44);
  CHECK(networks().at("resnet18")({.width = 20}).segments.size() == 62);
}

TEST_CASE("A name says depth and widening factor; another one is told the good forms", "[network]") {
  CHECK(default_width("wrn_16_8") == 128);
  CHECK(default_width("dm_wrn_34_20") == 320);
  CHECK(default_width("resnet18") == 64);
  CHECK(default_activation("dm_wrn_34_20") == "silu");
  CHECK(default_activation("wrn_34_20") == "relu");
  CHECK(error_of([] { (void)activation_from("tanh"); }) == "2: unknown activation 'tanh'; known: relu, silu");
  CHECK(contains(networks().cites("dm_wrn_10_1"), "Gowal"));
  CHECK(contains(networks().cites("wrn_1000_256"), "Zagoruyko"));
  CHECK(contains(networks().cites("preact_resnet50"), "2016"));
  CHECK(networks().cites("small_cnn").empty());
  CHECK(networks().at("wrn_22_3")({.width = 48}).segments.size() == 62);
  for (const char* wrong : {"wrn", "wrn_28", "wrn_27_10", "wrn_4_10", "wrn_28_0", "wrn_28_257", "wrn_1006_1",
                            "wrn_28_10_2", "wrn_028_10", "wrn28_10", "dm_wrn_D_W", "resnet50", ""}) {
    INFO(wrong);
    CHECK(!is_formed_network(wrong));
    const std::string error = error_of([&] { (void)networks().at(wrong); });
    CHECK(error.starts_with("2: "));
    CHECK(contains(error, "any wrn_D_W and dm_wrn_D_W, where D"));
    CHECK(contains(error, "imagenet_resnet50, "));
  }
}

TEST_CASE("Networks have 1 to 4096 channels, images of 8 pixels and above, and no more parameters than 32 bits count",
          "[network]") {
  const auto code = [](const char* name, int width, int size) {
    return code_of([&] { (void)networks().at(name)({.width = width, .size = size}); });
  };
  for (const auto& [width, size] : {std::pair{1, 8}, std::pair{4096, 8}})
    CHECK(code("small_cnn", width, size) == ExitCode::done);
  for (const int width : {0, 4097}) CHECK(code("small_cnn", width, 8) == ExitCode::usage);
  CHECK(code("small_cnn", 16, 7) == ExitCode::data);
  CHECK(code("resnet18", 4096, 8) == ExitCode::usage);
}

TEST_CASE("TensorFlow's padding is a row less above where an even number of rows is halved", "[network]") {
  for (const auto& [size, pad, extra] : {std::tuple{16, 0, 1}, std::tuple{21, 1, 0}}) {
    NetworkBuilder net({.size = size});
    const int x = net.convolution("a", net.input(), 16, 3, 2, Padding::same);
    net.convolution("b", x, 16, 3, 1, Padding::same);
    net.convolution("c", net.input(), 16, 1, 2, Padding::same);
    const Graph graph = net.finish();
    const auto check = [&](std::size_t k, const std::tuple<int, int, int, int>& expected) {
      const Node& node = graph.nodes[k];
      CHECK(std::tuple(node.pad, node.extra_pad, node.h, node.w) == expected);
    };
    const int half = (size + 1) / 2;
    check(1, {pad, extra, half, half});
    check(2, {1, 0, half, half});
    check(3, {0, 0, half, half});
  }
}

TEST_CASE("A normalization is a known one, or as many means as deviations", "[network]") {
  using Numbers = std::vector<float>;
  for (const auto& [text, mean, deviation] : std::vector<std::tuple<const char*, Numbers, Numbers>>{
           {"none", {}, {}},
           {"cifar10", {0.4914F, 0.4822F, 0.4465F}, {0.2471F, 0.2435F, 0.2616F}},
           {"cifar100", {0.5071F, 0.4865F, 0.4409F}, {0.2673F, 0.2564F, 0.2762F}},
           {"imagenet", {0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}},
           {"0.1307, 1/4", {0.1307F}, {0.25F}},
           {"1,2,3,4,5,6,7,8", {1, 2, 3, 4}, {5, 6, 7, 8}}}) {
    INFO(text);
    CHECK(normalization_from(text).mean == mean);
    CHECK(normalization_from(text).deviation == deviation);
  }
  for (const char* wrong : {"", "mnist", "0.5", "0.5,0.5,0.5", "0.5,0", "0.5,-1", "0.5,x", "x,0.5", "0.5,0.1 0.2",
                            "nan,1", "0,inf", "1e39,1", "0,1e39", "1,1,1,1,1,1,1,1,1,1"})
    CHECK_THROWS_AS(normalization_from(wrong), Error);
  CHECK_THROWS_AS(networks().at("small_cnn")({.channels = 1, .normalization = normalization_from("cifar10")}), Error);
}

TEST_CASE("Segments fill the flat block without gaps, statistics likewise, and size and classes pass through",
          "[network]") {
  for (const std::string& name : networks().names())
    for (const auto& [size, classes] : {std::pair{32, 10}, std::pair{28, 100}, std::pair{64, 200}}) {
      const Graph graph = networks().at(name)({.width = 32, .size = size, .channels = 3, .classes = classes});
      std::int64_t next = 0, statistics = 0;
      for (const Segment& segment : graph.segments) {
        CHECK(segment.begin == next);
        CHECK((!segment.module.empty() && !segment.block.empty()));
        next += segment.size;
      }
      CHECK(next == graph.parameters);
      for (const Norm& norm : graph.norms) {
        CHECK(norm.begin == statistics);
        statistics += norm.channels;
      }
      CHECK(statistics == graph.statistics);
      for (const Node& node : graph.nodes)
        if (node.op == Op::batch_norm)
          CHECK(graph.statistics_of(node.weight) == graph.norms[static_cast<std::size_t>(node.norm)].begin);
      CHECK(graph.statistics_of(graph.nodes.back().weight) == graph.statistics);
      CHECK(graph.nodes.back().c == classes);
      CHECK(graph.nodes[0].h == size);
    }
}

TEST_CASE("A network counts its tensors, its modules or its blocks as layers", "[network]") {
  for (const auto& [name, tensors, modules, blocks, activations] :
       {std::tuple{"preact_resnet18", 54, 21, 10, 16}, std::tuple{"resnet18", 62, 21, 10, 1 + 16},
        std::tuple{"preact_resnet50", 151, 1 + 16 * 3 + 4 + 1, 1 + 16 + 1, 16 * 3}})
    for (const auto& [granularity, layers] :
         {std::pair{Granularity::tensor, tensors}, std::pair{Granularity::module, modules},
          std::pair{Granularity::block, blocks}}) {
      const Graph graph = networks().at(name)({});
      CHECK(std::ranges::count(graph.nodes, Op::relu, &Node::op) == activations);
      Parameters p;
      p.segments = graph.segments;
      assign_layers(p, granularity);
      CHECK(p.layers() == layers);
      if (granularity == Granularity::module) CHECK(std::ranges::count(p.layer_names, "layer2.0.shortcut") == 1);
      CHECK(std::accumulate(p.layer_sizes.begin(), p.layer_sizes.end(), std::int64_t{0}) ==
            p.segments.back().begin + p.segments.back().size);
    }
}

TEST_CASE("Initial values are PyTorch's: uniform within 1/sqrt(fan-in), batch norms neutral", "[network]") {
  Fixture f("resnet18", 1, 16);
  const auto& segments = f.model.parameters.segments;
  for (std::size_t k = 0; k < segments.size(); ++k) {
    const Segment& segment = segments[k];
    const auto values = f.model.download(segment, f.model.parameters.values);
    INFO(segment.name);
    if (segment.shape.size() == 1 && segment.name != "linear.bias") {
      CHECK(values == std::vector<float>(values.size(), segment.name.ends_with("weight") ? 1.0F : 0.0F));
      continue;
    }
    const Segment& weights = segment.name == "linear.bias" ? segments[k - 1] : segment;
    const double bound = 1 / std::sqrt(double(weights.size / weights.shape[0])), count = double(values.size());
    CHECK(values.back() != 0);
    const Philox4 second = random_words(1, Purpose::initial_weights, 0, k, 1);  // of numbers 4 to 7
    CHECK(values[5] == (2 * uniform(second.v[1]) - 1) * static_cast<float>(bound));
    double mean = 0, square = 0;
    for (const float v : values) {
      REQUIRE(std::abs(v) <= static_cast<float>(bound));
      mean += v / bound / count;
      square += v / bound * v / bound / count;
    }
    // U(-1, 1): mean 0 with variance 1/3, mean square 1/3 with variance 4/45; five standard deviations.
    CHECK(std::abs(mean) < 5 * std::sqrt(1.0 / 3 / count));
    CHECK(std::abs(square - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / count));
  }
  const auto statistics = f.model.graph.statistics;
  const auto values = to_host(*f.backend, f.model.parameters.values, f.model.parameters.size);
  f.set_statistics(std::vector<float>(static_cast<std::size_t>(statistics), 7.0F),
                   std::vector<float>(static_cast<std::size_t>(statistics), 7.0F));
  f.model.batches_tracked = 7;
  f.model.initialize(1);
  CHECK(f.model.batches_tracked == 0);
  CHECK(to_host(*f.backend, f.model.running_mean, statistics) ==
        std::vector<float>(static_cast<std::size_t>(statistics), 0.0F));
  CHECK(to_host(*f.backend, f.model.running_variance, statistics) ==
        std::vector<float>(static_cast<std::size_t>(statistics), 1.0F));
  CHECK(to_host(*f.backend, f.model.parameters.values, f.model.parameters.size) == values);
  f.model.initialize(2);
  CHECK(to_host(*f.backend, f.model.parameters.values, f.model.parameters.size) != values);
}

TEST_CASE("Networks that begin otherwise have normal weights by the fan-out", "[network]") {
  for (const char* network : {"imagenet_resnet18", "dm_wrn_10_2"}) {
    const Graph graph = networks().at(network)({.width = 20, .size = 32});
    for (std::size_t k = 0; k < graph.segments.size(); ++k) {
      const Segment& segment = graph.segments[k];
      const auto values = initial_values(graph.segments, k, 1);
      const std::vector<int> shape = segment.file_shape();
      INFO(network << ", " << segment.name);
      const double count = double(values.size());
      double square = 0, fourth = 0;
      for (const float v : values) square += double(v) * v / count;
      if (shape.size() == 4) {
        const double variance = 2.0 / (shape[0] * shape[2] * shape[3]);
        for (const float v : values) fourth += std::pow(double(v), 4) / count / variance / variance;
        // Mean square and mean fourth power of a normal variable are 1 and 3, their variances 2 and 96.
        CHECK(std::abs(square / variance - 1) < 5 * std::sqrt(2 / count));
        CHECK(std::abs(fourth - 3) < 5 * std::sqrt(96 / count));
      } else if (segment.name == "logits.bias") {
        CHECK(square == 0);
      } else if (segment.name.ends_with("bias") && segment.name != "fc.bias") {
        CHECK(square == 0);
      } else if (k + 2 < graph.segments.size()) {
        CHECK(values == std::vector<float>(values.size(), 1.0F));
      } else {
        CHECK(square > 0);
        CHECK(square < 1.0 / graph.segments[graph.segments.size() - 2].file_shape()[1]);
      }
    }
  }
}

TEST_CASE("Weights make the round trip between PyTorch's order and memory, and a change raises the version",
          "[network]") {
  Fixture f("small_cnn", 1, 8);
  const Segment& segment = f.model.parameters.segments[static_cast<std::size_t>(f.segment("conv2.weight"))];
  const auto file = random_values(segment.size, 4);
  const std::uint64_t version = f.model.parameters.version;
  f.model.upload(segment, file, f.model.parameters.values);
  CHECK(f.model.parameters.version > version);
  CHECK(f.model.download(segment, f.model.parameters.values) == file);
  const auto memory = to_host(*f.backend, f.model.parameters.values + segment.begin, segment.size);
  const int in = segment.shape[1];
  for (int o = 0; o < segment.shape[0]; ++o)
    for (int i = 0; i < in; ++i)
      for (int tap = 0; tap < 9; ++tap)
        REQUIRE(memory[static_cast<std::size_t>((o * 9 + tap) * in + i)] ==
                file[static_cast<std::size_t>((o * in + i) * 9 + tap)]);
}

TEST_CASE("The training program's gradients are the central differences of its loss", "[network]") {
  const std::string name =
      GENERATE(values<std::string>({"small_cnn", "tangled", "tangled, silu", "small_cnn, silu, normalized",
                                    "small_cnn, grey", "pooled", "pooled, silu, grey"}));
  Fixture f(name, 4, 8, Granularity::tensor, 1);
  TrainingProgram program(f.model, f.n);
  f.backend->commit_workspace();
  const Parameters& p = f.model.parameters;
  const ActiveSet all = ActiveSet::all(p.layers());
  f.dx = to_device(*f.backend, std::vector<float>(f.images.size() + 1, 1.0F));
  f.forward(program, f.x);
  program.backward(f.x, {.weights = &all, .gradients = f.model.parameters.gradients, .input = f.dx});
  CHECK(to_host(*f.backend, f.dx, std::ssize(f.images) + 1).back() == 1);  // not one of them
  const auto gradients = f.gradients();
  const double of_input = distance_of_input_gradient(f, program);
  const auto values = to_host(*f.backend, p.values, p.size);
  for (const Segment& segment : p.segments) {
    const auto begin = values.begin() + segment.begin;
    const double distance = distance_from_differences(
        {begin, begin + segment.size}, f.segment_of(gradients, segment), [&](const std::vector<float>& moved) {
          f.backend->copy_to_device(p.values + segment.begin, moved.data(), moved.size() * sizeof(float));
          ++f.model.parameters.version;
          return f.loss(program, f.x);
        });
    f.backend->copy_to_device(p.values, values.data(), values.size() * sizeof(float));
    INFO(name << ", " << segment.name << ": " << distance);
    CHECK(distance < kDifferenceTolerance);
  }
  INFO(name << ", input: " << of_input);
  CHECK(of_input < kDifferenceTolerance);
}

TEST_CASE("The frozen program's input gradient is the central difference of its loss", "[network]") {
  const std::string name = GENERATE(values<std::string>(
      {"preact_resnet18_bn", "resnet18", "small_cnn", "tangled", "crossed", "preact_resnet50", "wrn_16_4",
       "tangled, silu", "resnet18, silu", "wrn_16_4, silu, normalized", "small_cnn, normalized, grey", "pooled",
       "pooled, silu", "imagenet_resnet18, silu", "dm_wrn_10_2, silu, normalized"}));
  Fixture f(name, 2, 16, Granularity::tensor, 1);
  // Statistics that are not neutral: a fold that forgets one of them shows.
  const auto count = f.model.graph.statistics;
  f.set_statistics(random_values(count, 5, -0.1F, 0.1F), random_values(count, 6, 0.2F, 0.6F));
  FrozenProgram program(f.model, f.n);
  f.backend->commit_workspace();
  f.forward(program, f.x);
  program.backward(f.dx);
  const double distance = distance_of_input_gradient(f, program);
  INFO(name << ": " << distance);
  CHECK(distance < kDifferenceTolerance);
}

TEST_CASE(
    "A batch norm is left to the convolution that reads it next, and a gradient is told whose last part is missing",
    "[network]") {
  struct Taking final : cpu::CpuBackend {  // as with AVX-512
    Taking() : CpuBackend(1, true, "f32") {}
    [[nodiscard]] bool takes_norm(const ConvSpec& spec) const override { return takes && spec.frozen; }
    bool takes = false;
  } backend;
  constexpr int kSamples = 4;
  Model model(backend, graph_of("preact_resnet18", 16), Granularity::tensor);
  Planner planner;
  FrozenLowering lowering(model, model.graph, kSamples, planner, DType::f32, {});
  // A convolution, whose result is a residual, too; a batch norm with its ReLU, and the convolution that reads that.
  int norm = 2;
  REQUIRE((lowering.next_node() == 1 && lowering.next_node() == norm && lowering.fuse(norm, Op::relu)));
  CHECK((!lowering.leave_norm(norm, {}) && !lowering.take_norm(norm)));
  backend.takes = true;
  CHECK((!lowering.leave_norm(1, {}) && lowering.leave_norm(norm, {}) && lowering.read(norm) == -1));
  CHECK((!lowering.take_norm(1) && lowering.take_norm(norm).has_value()));
  const int part = lowering.fresh(1), mask = lowering.fresh(1), whole = lowering.fresh(1);  // of what two nodes read
  CHECK(!lowering.one_part_missing(1));
  lowering.contribute(1, part);
  CHECK((lowering.one_part_missing(1) && lowering.go_through_relu(1, whole) == part));
  CHECK((lowering.arriving(1).main == whole && lowering.arriving(1).through_relu && !lowering.one_part_missing(1)));
  lowering.contribute(8, part, mask);
  CHECK((!lowering.one_part_missing(8) && lowering.add_to(8) == part));
  CHECK((lowering.take_upkeep().before.size() == 1 && lowering.arriving(8).mask == -1));
  for (const int more : {whole, mask}) lowering.contribute(8, more);  // two parts lie side by side, a third is added
  CHECK((lowering.arriving(8).extra == whole && lowering.take_upkeep().after.size() == 1));
  Planner::Buffer taken = -1;
  lowering.contribute(9, part, mask);
  CHECK((lowering.add_to(9, &taken) == part && taken == mask && lowering.arriving(9).mask == -1));
  CHECK(lowering.take_upkeep().before.empty());
  const auto pool = operations_of(Op::pool).frozen(lowering, static_cast<int>(model.graph.nodes.size()) - 2);
  pool->want(1);
  CHECK(pool->wanted(kSamples * 7) == 7);
}

TEST_CASE("With the statistics of the batch, both programs make the same logits", "[network]") {
  const std::string name = GENERATE(
      values<std::string>({"preact_resnet18_bn", "resnet18", "small_cnn", "tangled", "crossed", "preact_resnet50",
                           "wrn_16_4", "tangled, silu", "crossed, silu", "wrn_16_4, silu, normalized",
                           "small_cnn, grey", "pooled", "imagenet_resnet50", "dm_wrn_10_2"}));
  // So large that a convolution writes its first tiles while it has not read the last ones.
  Fixture f(name, 4, name.starts_with("crossed") || name.starts_with("imagenet") ? 64 : 16);
  TrainingProgram training(f.model, f.n);
  FrozenProgram frozen(f.model, f.n);
  f.backend->commit_workspace();
  training.forward(f.x);
  const auto expected = to_host(*f.backend, training.logits(), f.n * 10);
  f.take_statistics(training);
  frozen.forward(f.x, f.n);
  const double distance = relative_l2(to_host(*f.backend, frozen.logits(), f.n * 10), expected);
  INFO(name << ": " << distance);
  // Of f32: some 1e-6, more where a batch norm has few values: 16 of them at the end of imagenet_resnet50.
  CHECK(distance < (name == "imagenet_resnet50" ? 1e-3 : 1e-4));
}

TEST_CASE("Samples get the same bits from a frozen program, however many are asked for", "[network]") {
  const std::string name =
      GENERATE(values<std::string>({"preact_resnet18", "resnet18", "small_cnn", "tangled", "preact_resnet50",
                                    "tangled, silu", "wrn_16_4, silu, normalized", "small_cnn, grey", "pooled"}));
  INFO(name);
  constexpr int kSamples = 9;
  Fixture f(name, kSamples, 16);
  FrozenProgram program(f.model, kSamples);
  f.backend->commit_workspace();
  const std::int64_t pixels = f.layout.elements();
  std::vector<float> others = f.images;
  const Fixture::Passed all = f.pass(program, others, f.direction, kSamples);
  for (const int wanted : {1, 4, 8, 3, kSamples}) {
    // The others may hold anything.
    std::copy(f.images.begin(), f.images.end(), others.begin());
    std::fill(others.begin() + wanted * pixels, others.end(), std::numeric_limits<float>::quiet_NaN());
    const Fixture::Passed some = f.pass(program, others, f.direction, wanted);
    INFO(wanted << " of " << kSamples);
    CHECK(std::equal(some.logits.begin(), some.logits.end(), all.logits.begin()));
    CHECK(std::equal(some.dx.begin(), some.dx.end(), all.dx.begin()));
  }
}

TEST_CASE("Samples of the frozen program do not influence each other", "[network]") {
  const std::string name = GENERATE(values<std::string>({"preact_resnet18", "resnet18"}));
  constexpr int kSamples = 5;
  Fixture f(name, kSamples, 16);
  FrozenProgram program(f.model, kSamples), single(f.model, 1);
  f.backend->commit_workspace();
  const std::int64_t pixels = f.layout.elements();
  // Sample k of the batch is image order[k].
  const auto run = [&](FrozenProgram& p, const std::vector<int>& order) {
    std::vector<float> images, direction;
    for (const int k : order) {
      images.insert(images.end(), f.images.begin() + k * pixels, f.images.begin() + (k + 1) * pixels);
      direction.insert(direction.end(), f.direction.begin() + k * 10, f.direction.begin() + (k + 1) * 10);
    }
    return f.pass(p, images, direction, static_cast<int>(order.size()));
  };
  const std::vector<int> shuffled = {3, 0, 4, 2, 1};
  const Fixture::Passed plain = run(program, {0, 1, 2, 3, 4}), permuted = run(program, shuffled);
  for (int k = 0; k < kSamples; ++k) {
    const int image = shuffled[static_cast<std::size_t>(k)];
    const auto part = [](const std::vector<float>& all, int index, std::int64_t size) {
      return std::vector<float>(all.begin() + index * size, all.begin() + (index + 1) * size);
    };
    CHECK(part(permuted.logits, k, 10) == part(plain.logits, image, 10));
    CHECK(part(permuted.dx, k, pixels) == part(plain.dx, image, pixels));
    // Alone, a sample may take other library code: twenty layers deep, each with Winograd's rounding of some 1e-6.
    const Fixture::Passed alone = run(single, {image});
    CHECK(relative_l2(alone.logits, part(plain.logits, image, 10)) < 2e-5);
    CHECK(relative_l2(alone.dx, part(plain.dx, image, pixels)) < 2e-5);
  }
}

TEST_CASE(
    "A normalizing network is the same one on normalized images, and its input gradient divided by the deviations",
    "[network]") {
  const std::string name = GENERATE(values<std::string>({"small_cnn", "wrn_16_4", "small_cnn, grey"}));
  constexpr int kSamples = 4;
  Fixture f(name + ", normalized", kSamples, 8);
  Model plain(*f.backend, graph_of(name, 8), Granularity::tensor);
  plain.initialize(1);
  FrozenProgram frozen(f.model, kSamples), frozen_plain(plain, kSamples);
  TrainingProgram training(f.model, kSamples), training_plain(plain, kSamples);
  f.backend->commit_workspace();
  const Normalization& by = f.model.graph.normalization;
  const auto channel = [&](std::size_t i) {
    return static_cast<std::size_t>(f.layout.channel(static_cast<std::int64_t>(i)));
  };
  auto images = f.images;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const float difference = images[i] - by.mean[channel(i)];
    images[i] = difference / by.deviation[channel(i)];
  }
  const float* normalized = to_device(*f.backend, images);
  const auto logits = [&](auto& program) { return to_host(*f.backend, program.logits(), kSamples * 10); };
  const auto divided = [&](std::vector<float> gradient) {
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] /= by.deviation[channel(i)];
    return gradient;
  };

  // The same numbers go through the same code: equal bits.
  f.forward(frozen_plain, normalized);
  const auto logits_plain = logits(frozen_plain);
  frozen_plain.backward(f.dx);
  const auto gradient_plain = f.input_gradient();
  f.forward(frozen, f.x);
  CHECK(logits(frozen) == logits_plain);
  frozen.backward(f.dx);
  CHECK(f.input_gradient() == divided(gradient_plain));

  const ActiveSet all = ActiveSet::all(plain.parameters.layers());
  f.forward(training_plain, normalized);
  const auto trained_plain = logits(training_plain);
  training_plain.backward(normalized, {.weights = &all, .gradients = plain.parameters.gradients, .input = f.dx});
  const auto trained_gradient = f.input_gradient();
  const auto weights_plain = to_host(*f.backend, plain.parameters.gradients, plain.parameters.size);
  f.forward(training, f.x);
  CHECK(logits(training) == trained_plain);
  training.backward(f.x, {.weights = &all, .gradients = f.model.parameters.gradients, .input = f.dx});
  CHECK(f.input_gradient() == divided(trained_gradient));
  CHECK((f.gradients() == weights_plain));
  f.forward(training, f.x);
  f.fill_gradients(std::vector<float>(weights_plain.size(), 0.0F));
  training.backward(f.x, {.weights = &all, .gradients = f.model.parameters.gradients});
  CHECK((f.gradients() == weights_plain));
}

TEST_CASE("A frozen program in 16 bits follows the one in 32", "[network]") {
  const std::string name = GENERATE(values<std::string>(
      {"resnet18", "preact_resnet18", "wrn_16_4, silu, normalized", "imagenet_resnet18", "dm_wrn_10_2, silu"}));
  const DType storage = GENERATE(DType::f16, DType::bf16);
  const std::string what = storage == DType::f16 ? "f16" : "bf16";
  constexpr int kSamples = 4;
  Fixture f(name, kSamples, name.starts_with("imagenet") ? 64 : 16);  // or norms would be of single pixels
  if (const std::string why = f.backend->refuses(storage); !why.empty()) {
    CHECK_THROWS_AS(FrozenProgram(f.model, kSamples, storage), Error);
    CHECK_THROWS_AS(TrainingProgram(f.model, kSamples, nullptr, storage), Error);
    SUCCEED(what << " is refused here: " << why);
    return;
  }
  TrainingProgram training(f.model, kSamples);
  FrozenProgram exact(f.model, kSamples), program(f.model, kSamples, storage);
  f.backend->commit_workspace();
  // Running statistics as after some training: those of these images. Without them the initial network shrinks its
  // activations from layer to layer.
  training.refresh();
  training.forward(f.x);
  f.take_statistics(training);

  const auto* labels = to_device(*f.backend, std::vector<std::int32_t>{3, 0, 9, 3});
  float *loss = f.backend->allocate_floats(kSamples, "test"), *correct = f.backend->allocate_floats(kSamples, "test");
  struct Result {
    std::vector<float> logits, loss, dx;
  };
  const auto run = [&](FrozenProgram& p) {
    p.refresh();
    p.forward(f.x);
    f.entropy(p, labels, loss, correct, p.gradient_scale());
    p.backward(f.dx);
    return Result{to_host(*f.backend, p.logits(), kSamples * 10), to_host(*f.backend, loss, kSamples),
                  f.input_gradient()};
  };
  const Result a = run(exact), b = run(program);

  // About 20 layers store an activation each and multiply it by stored weights: 40 roundings. They are as often up as
  // down, so a logit is off by a few times sqrt(40) of them at most; the loss by no more than twice that.
  const double unit = storage == DType::f16 ? 0x1p-11 : 0x1p-8;
  const float largest =
      std::abs(*std::ranges::max_element(a.logits, [](float u, float v) { return std::abs(u) < std::abs(v); }));
  const double allowed = 2 * 4 * std::sqrt(40.0) * unit * double(largest);
  double worst = 0;
  for (std::size_t k = 0; k < a.loss.size(); ++k) worst = worse(worst, std::abs(double(a.loss[k]) - b.loss[k]));
  CHECK(worst <= allowed);
  CHECK(b.logits != a.logits);  // it does compute in 16 bits

  std::int64_t equal = 0, zeros = 0;
  const auto sign = [](float v) { return (v > 0) - (v < 0); };
  for (std::size_t i = 0; i < a.dx.size(); ++i) {
    equal += sign(a.dx[i]) == sign(b.dx[i]);
    zeros += b.dx[i] == 0;
  }
  // Most differences come from ReLUs whose input is within its error of zero. An input has relative errors of some
  // a = sqrt(40) roundings, so a fraction p = atan(a)/pi of normally distributed inputs changes sign. Each of 17 ReLUs
  // then turns 2p of the gradient's energy into something else, and a gradient that is off by the fraction e changes
  // atan(e)/pi of its signs: 6 % in f16, 15 % in bf16. Half as much again for this one network. (A gradient that lacks
  // one of its contributions is off by far more; f32 with TF32's factors would differ as much as f16.)
  const double p = std::atan(std::sqrt(40.0) * unit) / std::acos(-1.0);
  const double differing = 1.5 * std::atan(std::sqrt(17 * 2 * p)) / std::acos(-1.0);
  const double agreement = double(equal) / double(a.dx.size());
  const std::string measured = name + " " + what + ": " + std::to_string(100 * agreement) +
                               " % equal signs, loss off by " + std::to_string(worst) + " of at most " +
                               std::to_string(allowed) + ", " + std::to_string(zeros) + " zeros";
  INFO(measured);
  if (std::getenv("DAT_TEST_FIGURES") != nullptr) WARN(measured);
  CHECK(agreement >= 1 - differing);
  CHECK(zeros <= std::ssize(a.dx) / 100);  // the gradient did not sink below the smallest numbers
}

TEST_CASE("A backward pass that ends with PGD's step is one followed by the step", "[network]") {
  const std::string name = GENERATE(values<std::string>(
      {"small_cnn", "resnet18", "preact_resnet18", "small_cnn, silu, normalized", "small_cnn, grey"}));
  const DType storage = GENERATE(DType::f32, DType::f16, DType::bf16);
  constexpr int kSamples = 3;
  Fixture f(name, kSamples, 16);
  if (!f.backend->refuses(storage).empty()) {
    SUCCEED("refused here: " << f.backend->refuses(storage));
    return;
  }
  FrozenProgram program(f.model, kSamples, storage);
  f.backend->commit_workspace();
  const std::int64_t pixels = kSamples * f.layout.elements();
  // Some pixels at the edge of the box, and perturbations at the edge of the ball: both clamps have work to do.
  auto images = f.images;
  for (std::size_t i = 0; i < images.size(); i += 7) images[i] = i % 2 == 0 ? 0.0F : 1.0F;
  auto start = random_values(pixels, 4, -0.05F, 0.05F);
  for (std::size_t i = 0; i < start.size(); i += 3) start[i] = i % 2 == 0 ? 0.05F : -0.05F;
  const float* x = to_device(*f.backend, images);
  float* x_adv[2];
  float* eta[2];
  for (int k = 0; k < 2; ++k) {
    eta[k] = to_device(*f.backend, start);
    x_adv[k] = f.backend->allocate_floats(pixels, "test");
  }
  const PgdUpdate apart{x, eta[0], x_adv[0], 0.02F, 0.05F}, together{x, eta[1], x_adv[1], 0.02F, 0.05F};
  for (int step = 0; step < 2; ++step) {
    f.forward(program, step == 0 ? x : x_adv[0]);
    program.backward(f.dx);
    each(f.backend->device(), pixels, kernels::PgdStep{apart, f.dx});
    f.forward(program, step == 0 ? x : x_adv[1]);
    program.backward(f.dx, together);
    const auto expected = to_host(*f.backend, eta[0], pixels);
    CHECK(to_host(*f.backend, eta[1], pixels) == expected);
    CHECK(to_host(*f.backend, x_adv[1], pixels) == to_host(*f.backend, x_adv[0], pixels));
    CHECK(expected != start);
  }
}

TEST_CASE("For any active set, active gradients have the full pass's bits and the others are not touched",
          "[network][long]") {
  const auto [name, granularity] =
      GENERATE(table<std::string, Granularity>({{"wrn_16_4, silu, normalized", Granularity::module},
                                                {"preact_resnet50", Granularity::block},
                                                {"preact_resnet18", Granularity::tensor},
                                                {"preact_resnet18", Granularity::block},
                                                {"resnet18", Granularity::tensor},
                                                {"resnet18", Granularity::module},
                                                {"small_cnn", Granularity::tensor}}));
  Fixture f(name, 2, 16, granularity);
  TrainingProgram program(f.model, f.n);
  f.backend->commit_workspace();
  const Parameters& p = f.model.parameters;
  const ActiveSet all = ActiveSet::all(p.layers());
  f.forward(program, f.x);
  program.backward(f.x, {.weights = &all, .gradients = f.model.parameters.gradients, .input = f.dx});
  const auto full = f.gradients(), full_dx = f.input_gradient();
  REQUIRE(std::ranges::all_of(full, [](float g) { return std::isfinite(g); }));

  const std::vector<float> untouched(full.size(), std::numeric_limits<float>::quiet_NaN());
  for (std::uint32_t draw = 0; draw < 9; ++draw) {
    const ActiveSet active = random_active(p.layers(), draw, static_cast<float>(draw) / 8);
    const bool with_input = draw % 2 == 0;
    f.forward(program, f.x);
    f.fill_gradients(untouched);
    std::vector<int> announced;
    bool final_when_announced = true;
    const std::function<void(int)> ready = [&](int index) {
      announced.push_back(index);
      const Segment& segment = p.segments[static_cast<std::size_t>(index)];
      final_when_announced &=
          to_host(*f.backend, p.gradients + segment.begin, segment.size) == f.segment_of(full, segment);
    };
    const Counters before = f.backend->counters;
    program.backward(f.x, {.weights = &active,
                           .gradients = f.model.parameters.gradients,
                           .input = with_input ? f.dx : nullptr,
                           .ready = &ready});
    const auto gradients = f.gradients();
    std::vector<int> expected;
    std::int64_t convolutions = 0;
    for (int k = static_cast<int>(p.segments.size()) - 1; k >= 0; --k) {
      const Segment& segment = p.segments[static_cast<std::size_t>(k)];
      const auto ours = f.segment_of(gradients, segment);
      INFO(name << ", draw " << draw << ", " << segment.name);
      if (active.active(segment.layer)) {
        expected.push_back(k);
        convolutions += segment.shape.size() == 4;
        CHECK(ours == f.segment_of(full, segment));
      } else {
        CHECK(std::ranges::all_of(ours, [](float g) { return std::isnan(g); }));
      }
    }
    CHECK(announced == expected);
    announced.clear();
    program.announce(active, ready);
    CHECK(announced == expected);
    CHECK(final_when_announced);
    CHECK(f.backend->counters.conv_backward_weights - before.conv_backward_weights == convolutions);
    if (with_input) CHECK(f.input_gradient() == full_dx);
  }
}

TEST_CASE("The backward pass stops below the lowest active layer", "[network]") {
  Fixture f("preact_resnet18", 2, 16);
  TrainingProgram program(f.model, f.n);
  f.backend->commit_workspace();
  // Convolutions whose input gradient and whose weight gradient are computed.
  const auto passes = [&](const std::vector<std::string>& names, float* input = nullptr) {
    ActiveSet active{std::vector<float>(static_cast<std::size_t>(f.model.parameters.layers()), 0.0F)};
    for (const std::string& name : names) active.scale[static_cast<std::size_t>(f.segment(name))] = 2;
    const Counters before = f.backend->counters;
    f.forward(program, f.x);
    CHECK(f.backend->counters.conv_forward - before.conv_forward == 20);
    program.backward(f.x, {.weights = &active, .gradients = f.model.parameters.gradients, .input = input});
    return std::pair{f.backend->counters.conv_backward_data - before.conv_backward_data,
                     f.backend->counters.conv_backward_weights - before.conv_backward_weights};
  };
  using Passes = std::pair<std::int64_t, std::int64_t>;
  CHECK(passes({}) == Passes{0, 0});
  CHECK(passes({"linear.bias"}) == Passes{0, 0});
  CHECK(passes({"layer4.1.conv2.weight"}) == Passes{0, 1});
  CHECK(passes({"layer4.1.bn2.weight"}) == Passes{1, 0});
  CHECK(passes({"layer4.1.conv1.weight", "linear.weight"}) == Passes{1, 1});
  CHECK(passes({"layer4.1.bn1.bias"}) == Passes{2, 0});
  CHECK(passes({"layer4.0.shortcut.0.weight"}) == Passes{2, 1});
  CHECK(passes({"layer4.0.conv1.weight"}) == Passes{3, 1});
  CHECK(passes({"layer4.0.bn1.weight"}) == Passes{5, 0});
  CHECK(passes({"conv1.weight"}) == Passes{19, 1});
  CHECK(passes({}, f.dx) == Passes{20, 0});
}

TEST_CASE("A request says whether weight gradients are made, where they go, and whether they add to what was there",
          "[network]") {
  Fixture f(GENERATE("resnet18", "preact_resnet18"), 2, 16);
  TrainingProgram program(f.model, f.n);
  f.backend->commit_workspace();
  const std::int64_t size = f.model.parameters.size;
  const ActiveSet all = ActiveSet::all(f.model.parameters.layers());
  const auto before = random_values(size, 7);
  float* const elsewhere = f.backend->allocate_floats(size, "test");
  // What is in the model's array after a request, and what was there.
  const auto after = [&](const GradientRequest& request) {
    f.fill_gradients(before);
    f.forward(program, f.x);
    program.backward(f.x, request);
    return f.gradients();
  };
  // In parentheses: a failure would take minutes to print.
  CHECK((after({.input = f.dx}) == before));
  CHECK(f.backend->counters.conv_backward_weights == 0);
  CHECK(f.backend->counters.linear_backward_weights == 0);
  CHECK((after({.weights = &all, .gradients = elsewhere}) == before));
  const auto once = after({.weights = &all, .gradients = f.model.parameters.gradients});
  CHECK((to_host(*f.backend, elsewhere, size) == once));
  CHECK(f.backend->counters.linear_backward_weights == 2);
  const auto sum = after({.weights = &all, .gradients = f.model.parameters.gradients, .accumulate = true});
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double expected = double(before[i]) + once[i];
    // The sum is rounded, and `once` may have been, where a library adds before it rounds.
    wrong += !(std::abs(sum[i] - expected) <= 0x1.01p-24 * (std::abs(expected) + std::abs(once[i])));
  }
  CHECK(wrong == 0);
}

TEST_CASE("A network that does not begin with one convolution of the images and end with one linear layer is refused",
          "[network]") {
  const auto lower = [](const std::function<void(NetworkBuilder&)>& record, const char* normalized = "none") {
    NetworkBuilder net({.width = 16, .size = 8, .normalization = normalization_from(normalized)});
    record(net);
    const auto backend = test_backend();
    Model model(*backend, net.finish(), Granularity::tensor);
    CHECK_THROWS_AS(FrozenProgram(model, 2), Error);
    CHECK_THROWS_AS(TrainingProgram(model, 2), Error);
  };
  lower([](NetworkBuilder& net) { net.linear("linear", net.pool(net.relu(net.input())), 10); });
  for (const char* normalized : {"none", "cifar10"})
    lower(
        [](NetworkBuilder& net) {
          const int a = net.convolution("a", net.input(), 16, 3, 1), b = net.convolution("b", net.input(), 16, 3, 1);
          net.linear("linear", net.pool(net.add(a, b)), 10);
        },
        normalized);
  lower([](NetworkBuilder& net) { net.pool(net.convolution("a", net.input(), 16, 3, 1)); });
  lower([](NetworkBuilder& net) {
    const int pool = net.pool(net.convolution("a", net.input(), 16, 3, 1));
    for (const char* name : {"one", "two"}) net.linear(name, pool, 10);
  });
}

TEST_CASE("A program follows the weights when their version says that they changed", "[network]") {
  Fixture f("small_cnn", 2, 8);
  FrozenProgram frozen(f.model, f.n);
  TrainingProgram training(f.model, f.n);
  f.backend->commit_workspace();
  const double frozen_before = f.loss(frozen, f.x), training_before = f.loss(training, f.x);
  CHECK(f.loss(frozen, f.x) == frozen_before);
  CHECK(f.loss(training, f.x) == training_before);
  f.model.initialize(2);
  CHECK(f.loss(frozen, f.x) != frozen_before);
  CHECK(f.loss(training, f.x) != training_before);
  f.model.initialize(1);
  CHECK(f.loss(frozen, f.x) == frozen_before);
  CHECK(f.loss(training, f.x) == training_before);
  // The last one has packed its weights last, and a program that is planned now needs more room: they move.
  Model large(*f.backend, networks().at("small_cnn")({.width = 48, .size = 8}), Granularity::tensor);
  const FrozenProgram later(large, 4);
  f.backend->commit_workspace();
  CHECK(f.loss(training, f.x) == training_before);
  CHECK(f.loss(frozen, f.x) == frozen_before);
  CHECK(frozen.gradient_scale() == 1);
}

TEST_CASE("Programs whose weights lie side by side follow the model and make room for others", "[network]") {
  Fixture f("small_cnn", 4, 8);
  const auto programs = FrozenProgram::of_sizes(f.model, {4, 2, 1});
  // Of another network, so large that it leaves nothing of theirs.
  Model large(*f.backend, networks().at("small_cnn")({.width = 48, .size = 8, .channels = 3, .classes = 10}),
              Granularity::tensor);
  large.initialize(3);
  FrozenProgram other(large, 4);
  f.backend->commit_workspace();
  const auto logits = [&](FrozenProgram& program) {
    program.forward(f.x);
    return to_host(*f.backend, program.logits(), program.n() * 10);
  };
  const auto all = [&] {
    std::vector<std::vector<float>> found;
    for (const auto& program : programs) found.push_back(logits(*program));
    return found;
  };
  const auto expected = all(), again = all();
  CHECK(again == expected);
  for (std::size_t k = 0; k < programs.size(); ++k) {
    other.forward(f.x);
    // The first to come back may be any of them.
    for (std::size_t i = 0; i < programs.size(); ++i) {
      const std::size_t next = (k + i) % programs.size();
      CHECK(logits(*programs[next]) == expected[next]);
    }
  }
  f.model.initialize(2);
  CHECK(logits(*programs[1]) != expected[1]);
  CHECK(logits(*programs[0]) != expected[0]);
  f.model.initialize(1);
  CHECK(all() == expected);
}

TEST_CASE("What stands still has running statistics in training programs, as in frozen ones", "[network]") {
  const std::string name = GENERATE("small_cnn", "resnet18, silu", "resnet18", "preact_resnet18, normalized",
                                    "wrn_16_4", "imagenet_resnet18", "tangled", "crossed");
  const Graph graph = graph_of(name, 8);
  const int head = graph.nodes.back().weight;
  Fixture f(graph, 4, 8, Granularity::tensor, 2, {.segments = head});
  Model& model = f.model;
  const auto random = random_values(2 * graph.statistics, 5, -0.3F, 0.3F);
  std::vector<float> variance(random.begin() + graph.statistics, random.end());
  for (float& v : variance) v += 1;
  f.set_statistics({random.begin(), random.begin() + graph.statistics}, variance);
  FrozenProgram frozen(model, f.n);
  TrainingProgram training(model, f.n);
  f.backend->commit_workspace();
  const auto run = [&](auto& program, const auto& back) {
    program.forward(f.x);
    f.backend->copy_to_device(program.dlogits(), f.direction.data(), f.direction.size() * sizeof(float));
    back(program);
    return std::pair(to_host(*f.backend, program.logits(), f.n * 10), f.input_gradient());
  };
  const auto of_input = [&](TrainingProgram& p) { p.backward(f.x, {.input = f.dx}); };
  const auto close = [](const std::vector<float>& a, const std::vector<float>& b) {
    return relative_l2(a, b) <= 1e-4;  // ReLUs within rounding of their edge
  };
  model.freeze(false);
  const auto batch = run(training, of_input);
  model.freeze(true);
  const std::uint64_t version = model.parameters.version;
  model.freeze(true);  // changes nothing
  CHECK(model.parameters.version == version);
  const auto expected = run(frozen, [&](FrozenProgram& p) { p.backward(f.dx); });
  const auto found = run(training, of_input);
  CHECK(close(found.first, expected.first));
  CHECK(close(found.second, expected.second));
  CHECK(!close(batch.first, expected.first));
  // A gradient of the head goes no further, and leaves the images' as it was.
  ActiveSet active = ActiveSet::all(model.parameters.layers());
  for (int k = 0; k < head; ++k) active.scale[static_cast<std::size_t>(k)] = 0;
  (void)run(training, [&](TrainingProgram& p) {
    p.backward(f.x, {.weights = &active, .gradients = model.parameters.gradients});
  });
  CHECK(f.gradients().front() == 0);
  CHECK(f.input_gradient() == found.second);
  model.freeze(false);
  CHECK((!model.stands_still(0) && run(training, of_input) == batch));
}

TEST_CASE("What always stands still has no way back, and the gradients above it are the same", "[network]") {
  const std::string name = GENERATE("small_cnn", "resnet18", "preact_resnet18, silu", "tangled", "crossed");
  const Graph graph = graph_of(name, 8);
  const int half = graph.nodes.back().weight / 2;
  const auto gradients = [&](bool always) {
    Fixture f(graph, 4, 8, Granularity::tensor, 2, {.segments = half, .always = always});
    TrainingProgram program(f.model, f.n);
    f.backend->commit_workspace();
    ActiveSet active = ActiveSet::all(f.model.parameters.layers());
    for (int k = 0; k < half; ++k) active.scale[static_cast<std::size_t>(k)] = 0;
    f.forward(program, f.x);
    program.backward(f.x, {.weights = &active, .gradients = f.model.parameters.gradients});
    const std::vector<float> all = f.gradients();
    CHECK(all.front() == 0);
    CHECK(std::ranges::any_of(all, [](float value) { return value != 0; }));
    return std::pair(all, program.workspace_bytes());
  };
  const auto kept = gradients(false), dropped = gradients(true);
  CHECK(kept.first == dropped.first);
  CHECK(dropped.second <= kept.second);
}

TEST_CASE("A batch norm needs more than one value a channel, unless it always stands still, which leaves no statistics",
          "[network]") {
  const Graph graph = graph_of("resnet18", 8);  // a single pixel at the end
  Fixture moving(graph, 2, 8, Granularity::tensor, 2);
  CHECK(contains(error_of([&] { TrainingProgram(moving.model, 1); }), "2: batch norm needs more than one value"));
  TrainingProgram two(moving.model, 2);
  moving.backend->commit_workspace();
  two.forward(moving.x);
  const float variance = to_host(*moving.backend, two.batch_variance(), graph.statistics).back();
  CHECK((variance > 0 && to_host(*moving.backend, two.statistics(), 2 * graph.statistics).back() == 2 * variance));
  Fixture f(graph, 1, 8, Granularity::tensor, 2, {.segments = graph.nodes.back().weight, .always = true});
  TrainingProgram program(f.model, 1);
  f.backend->commit_workspace();
  program.forward(f.x);
  const std::int64_t count = 2 * graph.statistics;
  CHECK(to_host(*f.backend, program.statistics(), count) == std::vector<float>(static_cast<std::size_t>(count), 0.0F));
}
