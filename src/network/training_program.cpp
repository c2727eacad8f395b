#include <algorithm>

#include "dat/program.hpp"
#include "pointwise.hpp"

namespace dat {

struct TrainingProgram::Step {
  Op op = Op::relu;
  int node = -1, end = -1;  ///< the node, and the ReLU fused behind it (or the node itself)
  int x = -1, other = -1;   ///< values read; other: second operand of add
  bool relu = false;        ///< a ReLU is fused
  Layout in, out;
  std::int64_t elements = 0;
  std::unique_ptr<Conv2d> conv;
  std::unique_ptr<BatchNorm> norm;
  std::unique_ptr<Linear> linear;
  std::int64_t statistics = 0;  ///< batch norm: place in the statistics
  Planner::Buffer x_buffer = -1, other_buffer = -1, y = -1;

  /// Where the gradient of the result lies, and where that of x goes. For add, dx is the masked gradient that both
  /// operands share.
  Planner::Buffer dy = -1, dx = -1;
  struct Sum {
    Planner::Buffer a, b, into;
    std::int64_t elements;
    int value;
  };
  std::vector<Sum> sums;  ///< contributions that meet those of other readers
};

TrainingProgram::TrainingProgram(Model& model, int n) : model_(model), n_(n) {
  Backend& backend = model.backend;
  const int classes = model.graph.nodes.back().c;
  logits_ = backend.allocate_floats(std::int64_t{n} * classes, "logits");
  dlogits_ = backend.allocate_floats(std::int64_t{n} * classes, "logits");
  const std::int64_t statistics = model.graph.statistics;
  mean_ = backend.allocate_floats(3 * statistics, "batch statistics");
  unbiased_variance_ = mean_ + statistics;
  variance_ = unbiased_variance_ + statistics;
  factors_ = backend.allocate_floats(statistics, "batch statistics");
  int widest = 0;
  for (const Norm& norm : model.graph.norms) widest = std::max(widest, norm.channels);
  dgamma_ = backend.allocate_floats(2 * std::int64_t{widest}, "batch-norm gradients");
  model.backend.plan_weights();
  lower();
  std::vector<float> factors;
  for (const Step& step : steps_)
    if (step.norm) {
      const float samples = static_cast<float>(n) * static_cast<float>(step.out.h * step.out.w);
      factors.insert(factors.end(), static_cast<std::size_t>(step.out.c), samples / (samples - 1));
    }
  backend.copy_to_device(factors_, factors.data(), factors.size() * sizeof(float));
  workspace_bytes_ = planner_.place();
  backend.request_workspace(workspace_bytes_);
}

TrainingProgram::~TrainingProgram() = default;

void TrainingProgram::lower() {
  Backend& backend = model_.backend;
  const std::vector<Node>& nodes = model_.graph.nodes;
  const auto consumers = model_.graph.consumers();
  const auto node = [&](int k) -> const Node& { return nodes[static_cast<std::size_t>(k)]; };

  std::vector<bool> done(nodes.size(), false);
  for (int k = 1; k < static_cast<int>(nodes.size()); ++k) {
    if (done[static_cast<std::size_t>(k)]) continue;
    Step step;
    step.op = node(k).op;
    step.node = step.end = k;
    step.x = node(k).inputs[0];
    if (step.op == Op::add) step.other = node(k).inputs[1];
    const auto& readers = consumers[static_cast<std::size_t>(k)];
    if ((step.op == Op::batch_norm || step.op == Op::add) && readers.size() == 1 && node(readers[0]).op == Op::relu) {
      step.relu = true;
      step.end = readers[0];
      done[static_cast<std::size_t>(step.end)] = true;
    }
    steps_.push_back(std::move(step));
  }

  const int count = static_cast<int>(steps_.size());
  std::vector<Planner::Buffer> value(nodes.size(), -1);
  const auto read = [&](int v, int instruction) {
    const Planner::Buffer buffer = value[static_cast<std::size_t>(v)];
    if (buffer >= 0) planner_.touch(buffer, instruction);
    return buffer;
  };
  const auto fresh = [&](std::int64_t floats, int instruction) {
    const Planner::Buffer buffer = planner_.add(static_cast<std::size_t>(floats) * sizeof(float));
    planner_.touch(buffer, instruction);
    return buffer;
  };
  for (int s = 0; s < count; ++s) {
    Step& step = steps_[static_cast<std::size_t>(s)];
    const int back = 2 * count - 1 - s;
    step.in = model_.layout(step.x);
    step.out = model_.layout(step.end);
    step.elements = n_ * step.out.elements();
    step.x_buffer = read(step.x, s);
    if (step.other >= 0) step.other_buffer = read(step.other, s);
    if (step.op != Op::linear) {
      step.y = fresh(step.elements, s);
      value[static_cast<std::size_t>(step.end)] = step.y;
    }
    const Node& at_node = node(step.node);
    switch (step.op) {
      case Op::convolution:
        step.conv = backend.conv2d({.n = n_,
                                    .c_in = step.in.c,
                                    .h = step.in.h,
                                    .w = step.in.w,
                                    .c_out = at_node.c,
                                    .kernel = at_node.kernel,
                                    .stride = at_node.stride,
                                    .pad = at_node.pad,
                                    .image = step.x == 0});
        read(step.x, back);
        break;
      case Op::batch_norm: {
        step.norm = backend.batch_norm(
            {.n = n_, .c = at_node.c, .h = at_node.h, .w = at_node.w, .relu = step.relu, .epsilon = Model::kEpsilon});
        step.statistics = model_.graph.norms[static_cast<std::size_t>(at_node.norm)].begin;
        require(std::int64_t{n_} * at_node.h * at_node.w > 1, ExitCode::usage,
                "batch norm needs more than one value per channel; take a larger batch");
        read(step.x, back);
        break;
      }
      case Op::linear:
        step.linear = backend.linear(n_, step.in.c, step.out.c);
        read(step.x, back);
        break;
      case Op::relu:
      case Op::add:
        planner_.touch(step.y, back);
        break;
      default:
        break;
    }
  }

  // The way back. A gradient is owned by its value, or shared with others and then only read.
  struct Gradient {
    Planner::Buffer buffer = -1;
    bool owned = false;
  };
  std::vector<Gradient> gradients(nodes.size());
  for (int s = count - 1; s >= 0; --s) {
    Step& step = steps_[static_cast<std::size_t>(s)];
    const int now = 2 * count - 1 - s;
    const auto contribute = [&](int v, Planner::Buffer buffer, bool owned) {
      Gradient& g = gradients[static_cast<std::size_t>(v)];
      planner_.touch(buffer, now);
      if (g.buffer < 0) {
        g = {buffer, owned};
        return;
      }
      planner_.touch(g.buffer, now);
      const std::int64_t elements = n_ * model_.layout(v).elements();
      const Planner::Buffer into = g.owned ? g.buffer : owned ? buffer : fresh(elements, now);
      step.sums.push_back({g.buffer, buffer, into, elements, v});
      g = {into, true};
    };
    const Gradient arriving = gradients[static_cast<std::size_t>(step.end)];
    step.dy = arriving.buffer;
    if (step.dy >= 0) planner_.touch(step.dy, now);
    const std::int64_t x_elements = n_ * step.in.elements();
    switch (step.op) {
      case Op::convolution:
        if (step.x == 0) break;
        step.dx = fresh(x_elements, now);
        contribute(step.x, step.dx, true);
        break;
      case Op::batch_norm:
      case Op::relu:
        step.dx = arriving.owned ? step.dy : fresh(x_elements, now);
        contribute(step.x, step.dx, true);
        break;
      case Op::add:
        step.dx = step.dy;
        if (step.relu && !arriving.owned) step.dx = fresh(x_elements, now);
        contribute(step.x, step.dx, false);
        contribute(step.other, step.dx, false);
        break;
      default:
        step.dx = fresh(x_elements, now);
        contribute(step.x, step.dx, true);
        break;
    }
  }
}

float* TrainingProgram::at(Planner::Buffer buffer) const {
  return buffer < 0
             ? nullptr
             : reinterpret_cast<float*>(static_cast<char*>(model_.backend.workspace()) + planner_.offset(buffer));
}

void TrainingProgram::refresh() {
  if (model_.backend.take_turn(this) && version_ == model_.parameters.version) return;
  version_ = model_.parameters.version;
  for (const Step& step : steps_)
    if (step.conv) {
      const int segment = model_.graph.nodes[static_cast<std::size_t>(step.node)].weight;
      step.conv->load(model_.values(segment), nullptr, nullptr);
    }
}

void TrainingProgram::forward(const float* image) {
  refresh();
  using namespace kernels;
  const Device device = model_.backend.device();
  for (const Step& step : steps_) {
    const Node& node = model_.graph.nodes[static_cast<std::size_t>(step.node)];
    const float* x = step.x == 0 ? image : at(step.x_buffer);
    float* y = at(step.y);
    const std::int64_t n = step.elements;
    switch (step.op) {
      case Op::convolution:
        step.conv->forward(x, y, nullptr);
        break;
      case Op::batch_norm:
        step.norm->forward(x, model_.values(node.weight), model_.values(node.bias), y, mean_ + step.statistics,
                           variance_ + step.statistics);
        break;
      case Op::add:
        each(device, groups(n), Add<float>{x, at(step.other_buffer), y, n, step.relu});
        break;
      case Op::relu:
        each(device, groups(n), Add<float>{x, nullptr, y, n, true});
        break;
      case Op::pool:
        each(device, std::int64_t{n_} * step.in.c, PoolForward<float>{x, y, step.in});
        break;
      case Op::linear:
        step.linear->forward(x, model_.values(node.weight), model_.values(node.bias), logits_);
        break;
      default:
        break;
    }
  }
  each(device, model_.graph.statistics, Multiply{variance_, factors_, unbiased_variance_});
}

void TrainingProgram::backward(const float* image, const GradientRequest& request) {
  using namespace kernels;
  const Device device = model_.backend.device();
  const Parameters& p = model_.parameters;
  const auto wanted = [&](int segment) {
    return segment >= 0 && request.weights != nullptr &&
           request.weights->active(p.segments[static_cast<std::size_t>(segment)].layer);
  };
  const auto announce = [&](int segment) {
    if (request.ready != nullptr && wanted(segment)) (*request.ready)(segment);
  };

  // Nothing below the first node with an active parameter needs a gradient, unless the input's is wanted.
  int lowest = request.input != nullptr ? 0 : static_cast<int>(model_.graph.nodes.size());
  for (const Step& step : steps_) {
    const Node& node = model_.graph.nodes[static_cast<std::size_t>(step.node)];
    if (wanted(node.weight) || wanted(node.bias)) lowest = std::min(lowest, step.end);
  }

  for (auto it = steps_.rbegin(); it != steps_.rend() && it->end >= lowest; ++it) {
    const Step& step = *it;
    const Node& node = model_.graph.nodes[static_cast<std::size_t>(step.node)];
    const float* x = step.x == 0 ? image : at(step.x_buffer);
    float *dy = at(step.dy), *dx = at(step.dx);
    const bool needs_dx = step.x >= lowest;
    const std::int64_t n = step.elements;
    switch (step.op) {
      case Op::convolution:
        if (wanted(node.weight)) step.conv->backward_weights(x, dy, model_.gradients(node.weight), request.accumulate);
        if (step.x != 0 && needs_dx) step.conv->backward_data(dy, dx, false);
        if (step.x == 0 && request.input != nullptr) step.conv->backward_image(dy, request.input, {});
        break;
      case Op::batch_norm:
        if (needs_dx || wanted(node.weight) || wanted(node.bias)) {
          float* dbeta = dgamma_ + node.c;
          step.norm->backward(x, dy, model_.values(node.weight), mean_ + step.statistics, variance_ + step.statistics,
                              dx, dgamma_, dbeta);
          if (wanted(node.weight))
            each(device, node.c, Scale{dgamma_, model_.gradients(node.weight), 1.0F, request.accumulate});
          if (wanted(node.bias))
            each(device, node.c, Scale{dbeta, model_.gradients(node.bias), 1.0F, request.accumulate});
        }
        break;
      case Op::add:
        if (step.relu) each(device, groups(n), ReluGradient{at(step.y), dy, dx, n});
        break;
      case Op::relu:
        if (needs_dx) each(device, groups(n), ReluGradient{at(step.y), dy, dx, n});
        break;
      case Op::pool:
        if (needs_dx)
          each(device, groups(n_ * step.in.elements()), PoolBackward<float>{dy, dx, step.in, n_ * step.in.elements()});
        break;
      case Op::linear:
        if (wanted(node.weight) || wanted(node.bias))
          step.linear->backward_weights(x, dlogits_, wanted(node.weight) ? model_.gradients(node.weight) : nullptr,
                                        wanted(node.bias) ? model_.gradients(node.bias) : nullptr, request.accumulate);
        if (needs_dx) step.linear->backward_data(dlogits_, model_.values(node.weight), dx);
        break;
      default:
        break;
    }
    for (const Step::Sum& sum : step.sums)
      if (sum.value >= lowest)
        each(device, groups(sum.elements), Add<float>{at(sum.a), at(sum.b), at(sum.into), sum.elements});
    announce(node.bias);
    announce(node.weight);
  }
}

}  // namespace dat
