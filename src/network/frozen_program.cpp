#include <algorithm>
#include <cassert>

#include "dat/program.hpp"
#include "pointwise.hpp"

namespace dat {

/// One fused operation. Values are named by the node that ends the fusion; value 0 is the image.
struct FrozenProgram::Step {
  enum class Kind : std::uint8_t { convolution, affine, add, pool, linear };
  Kind kind = Kind::affine;
  int node = -1;              ///< convolution, add, pool or linear node
  int norm = -1;              ///< folded batch norm node
  int x = -1, residual = -1;  ///< values read; residual: what a convolution adds to, or the second operand of add
  int end = -1;               ///< value made
  bool relu = false;
  bool copy_residual = false;  ///< someone still needs the residual: add to a copy of it

  Layout in, out;
  std::int64_t elements = 0;  ///< of the result, all samples
  std::unique_ptr<Conv2d> conv;
  std::unique_ptr<Linear> linear;
  Planner::Buffer x_buffer = -1, residual_buffer = -1, y = -1, mask = -1;

  // The way back: gradient + extra arrive, dx leaves, `sum` folds a third contribution in.
  Planner::Buffer gradient = -1, extra = -1, dx = -1, copy = -1, sum_into = -1, sum_from = -1;
  std::int64_t sum_elements = 0;
  bool dx_accumulates = false;
};

FrozenProgram::FrozenProgram(Model& model, int n) : model_(model), n_(n) {
  const int classes = model.graph.nodes.back().c;
  logits_ = model.backend.allocate_floats(std::int64_t{n} * classes, "logits");
  dlogits_ = model.backend.allocate_floats(std::int64_t{n} * classes, "logits");
  scale_ = model.backend.allocate_floats(model.graph.statistics, "folded batch norm");
  shift_ = model.backend.allocate_floats(model.graph.statistics, "folded batch norm");
  lower();
  workspace_bytes_ = planner_.place();
  model.backend.request_workspace(workspace_bytes_);
}

FrozenProgram::~FrozenProgram() = default;

void FrozenProgram::lower() {
  Backend& backend = model_.backend;
  const std::vector<Node>& nodes = model_.graph.nodes;
  const auto consumers = model_.graph.consumers();
  const auto node = [&](int k) -> const Node& { return nodes[static_cast<std::size_t>(k)]; };
  const auto only_consumer = [&](int k, Op op) {
    const auto& readers = consumers[static_cast<std::size_t>(k)];
    return readers.size() == 1 && node(readers[0]).op == op ? readers[0] : -1;
  };

  // Fuse: convolution + batch norm + residual + ReLU; batch norm + ReLU; add + ReLU.
  std::vector<bool> done(nodes.size(), false), made(nodes.size(), false);
  made[0] = done[0] = true;
  for (int k = 1; k < static_cast<int>(nodes.size()); ++k) {
    if (done[static_cast<std::size_t>(k)]) continue;
    const Node& first = node(k);
    Step step;
    step.node = step.end = k;
    step.x = first.inputs[0];
    const auto absorb = [&](int next) {
      step.end = next;
      done[static_cast<std::size_t>(next)] = true;
    };
    switch (first.op) {
      case Op::convolution:
        step.kind = Step::Kind::convolution;
        if (const int norm = only_consumer(k, Op::batch_norm); norm >= 0) {
          step.norm = norm;
          absorb(norm);
        }
        if (const int add = only_consumer(step.end, Op::add); add >= 0) {
          const auto& operands = node(add).inputs;
          const int other = operands[0] == step.end ? operands[1] : operands[0];
          if (other != step.end && made[static_cast<std::size_t>(other)]) {
            step.residual = other;
            absorb(add);
          }
        }
        break;
      case Op::batch_norm:
        step.norm = k;
        break;
      case Op::add:
        step.kind = Step::Kind::add;
        step.residual = first.inputs[1];
        break;
      case Op::pool:
        step.kind = Step::Kind::pool;
        break;
      case Op::linear:
        step.kind = Step::Kind::linear;
        break;
      default:
        break;
    }
    if (first.op == Op::relu) {
      step.relu = true;
    } else if (const int relu = only_consumer(step.end, Op::relu); relu >= 0) {
      step.relu = true;
      absorb(relu);
    }
    done[static_cast<std::size_t>(k)] = made[static_cast<std::size_t>(step.end)] = true;
    steps_.push_back(std::move(step));
  }

  // Buffers of the way forth.
  const int count = static_cast<int>(steps_.size());
  std::vector<Planner::Buffer> value(nodes.size(), -1);
  const auto read = [&](int v, int instruction) {
    const Planner::Buffer buffer = value[static_cast<std::size_t>(v)];
    if (buffer >= 0) planner_.touch(buffer, instruction);
    return buffer;
  };
  const auto fresh = [&](std::int64_t floats, int instruction) {
    const Planner::Buffer buffer = planner_.add(floats);
    planner_.touch(buffer, instruction);
    return buffer;
  };
  for (int s = 0; s < count; ++s) {
    Step& step = steps_[static_cast<std::size_t>(s)];
    step.in = model_.layout(step.x);
    step.out = model_.layout(step.end);
    step.elements = n_ * step.out.elements();
    step.x_buffer = read(step.x, s);
    if (step.kind == Step::Kind::linear) {
      step.linear = backend.linear(n_, step.in.c, step.out.c);
      continue;
    }
    if (step.residual >= 0) step.residual_buffer = read(step.residual, s);
    const bool adds = step.kind == Step::Kind::convolution && step.residual >= 0;
    if (adds) {
      const bool read_later = std::any_of(steps_.begin() + s + 1, steps_.end(), [&](const Step& later) {
        return later.x == step.residual || later.residual == step.residual;
      });
      step.copy_residual = step.residual == 0 || read_later || step.residual == step.x;
    }
    step.y = adds && !step.copy_residual ? step.residual_buffer : fresh(step.elements, s);
    value[static_cast<std::size_t>(step.end)] = step.y;
    if (step.relu) step.mask = fresh((kernels::groups(step.elements) + 1) / 2, s);
    if (step.kind == Step::Kind::convolution) {
      const Node& c = node(step.node);
      step.conv = backend.conv2d({.n = n_,
                                  .c_in = step.in.c,
                                  .h = step.in.h,
                                  .w = step.in.w,
                                  .c_out = c.c,
                                  .kernel = c.kernel,
                                  .stride = c.stride,
                                  .pad = c.pad,
                                  .frozen = true,
                                  .accumulate = adds,
                                  .relu = step.relu,
                                  .image = step.x == 0});
    }
  }

  // Buffers of the way back. Every gradient buffer belongs to one value; a residual takes over its sum's gradient.
  struct Gradient {
    Planner::Buffer main = -1, extra = -1;
  };
  std::vector<Gradient> gradients(nodes.size());
  for (int s = count - 1; s >= 0; --s) {
    Step& step = steps_[static_cast<std::size_t>(s)];
    const int now = 2 * count - 1 - s;
    const auto contribute = [&](int v, Planner::Buffer buffer) {
      Gradient& g = gradients[static_cast<std::size_t>(v)];
      if (g.main < 0) {
        g.main = buffer;
      } else if (g.extra < 0) {
        g.extra = buffer;
      } else {
        assert(step.sum_into < 0);
        step.sum_into = g.main;
        step.sum_from = buffer;
        step.sum_elements = n_ * model_.layout(v).elements();
        planner_.touch(g.main, now);
      }
    };
    const std::int64_t x_elements = n_ * step.in.elements();
    Gradient& gx = gradients[static_cast<std::size_t>(step.x)];
    step.gradient = gradients[static_cast<std::size_t>(step.end)].main;
    step.extra = gradients[static_cast<std::size_t>(step.end)].extra;
    for (const Planner::Buffer buffer : {step.gradient, step.extra, step.mask})
      if (buffer >= 0) planner_.touch(buffer, now);
    switch (step.kind) {
      case Step::Kind::convolution:
        if (step.x != 0) {
          step.dx_accumulates = gx.main >= 0 && step.conv->backward_data_accumulates();
          step.dx = step.dx_accumulates ? gx.main : fresh(x_elements, now);
          if (!step.dx_accumulates) contribute(step.x, step.dx);
          planner_.touch(step.dx, now);
        }
        if (step.residual > 0) contribute(step.residual, step.gradient);
        break;
      case Step::Kind::affine:
        step.dx_accumulates = gx.main >= 0;
        step.dx = gx.main >= 0 ? gx.main : step.gradient;
        if (!step.dx_accumulates) contribute(step.x, step.dx);
        planner_.touch(step.dx, now);
        break;
      case Step::Kind::add:
        contribute(step.x, step.gradient);
        step.copy = fresh(step.elements, now);
        contribute(step.residual, step.copy);
        break;
      case Step::Kind::pool:
      case Step::Kind::linear:
        step.dx = fresh(x_elements, now);
        contribute(step.x, step.dx);
        break;
    }
  }
}

float* FrozenProgram::at(Planner::Buffer buffer) const {
  return buffer < 0
             ? nullptr
             : reinterpret_cast<float*>(static_cast<char*>(model_.backend.workspace()) + planner_.offset(buffer));
}

std::uint16_t* FrozenProgram::mask_at(Planner::Buffer buffer) const {
  return reinterpret_cast<std::uint16_t*>(at(buffer));
}

void FrozenProgram::refresh() {
  if (version_ == model_.parameters.version) return;
  version_ = model_.parameters.version;
  for (const Step& step : steps_) {
    const float *scale = nullptr, *shift = nullptr;
    if (step.norm >= 0) {
      const Node& bn = model_.graph.nodes[static_cast<std::size_t>(step.norm)];
      const std::int64_t begin = model_.graph.norms[static_cast<std::size_t>(bn.norm)].begin;
      each(model_.backend.device(), bn.c,
           kernels::FoldNorm{model_.values(bn.weight), model_.values(bn.bias), model_.running_mean + begin,
                             model_.running_variance + begin, scale_ + begin, shift_ + begin, Model::kEpsilon});
      scale = scale_ + begin;
      shift = shift_ + begin;
    }
    if (step.conv)
      step.conv->load(model_.values(model_.graph.nodes[static_cast<std::size_t>(step.node)].weight), scale, shift);
  }
}

void FrozenProgram::forward(const float* image) {
  using namespace kernels;
  const Device device = model_.backend.device();
  for (const Step& step : steps_) {
    const float* x = step.x == 0 ? image : at(step.x_buffer);
    float* y = at(step.y);
    const std::int64_t n = step.elements;
    switch (step.kind) {
      case Step::Kind::convolution:
        if (step.copy_residual)
          each(device, groups(n), Add{step.residual == 0 ? image : at(step.residual_buffer), nullptr, y, n});
        step.conv->forward(x, y);
        if (step.relu) each(device, groups(n), MaskFromRelu{y, mask_at(step.mask), n});
        break;
      case Step::Kind::affine: {
        const Node* bn = step.norm >= 0 ? &model_.graph.nodes[static_cast<std::size_t>(step.norm)] : nullptr;
        const std::int64_t begin = bn != nullptr ? model_.graph.norms[static_cast<std::size_t>(bn->norm)].begin : 0;
        each(device, groups(n),
             AffineRelu{x, bn != nullptr ? scale_ + begin : nullptr, shift_ + begin, y, mask_at(step.mask), step.out, n,
                        step.relu});
        break;
      }
      case Step::Kind::add:
        if (step.relu) {
          each(device, groups(n), AddRelu{x, at(step.residual_buffer), y, n});
          each(device, groups(n), MaskFromRelu{y, mask_at(step.mask), n});
        } else {
          each(device, groups(n), Add{x, at(step.residual_buffer), y, n});
        }
        break;
      case Step::Kind::pool:
        each(device, std::int64_t{n_} * step.in.c, PoolForward{x, y, step.in});
        break;
      case Step::Kind::linear: {
        const Node& linear = model_.graph.nodes[static_cast<std::size_t>(step.node)];
        step.linear->forward(x, model_.values(linear.weight), model_.values(linear.bias), logits_);
        break;
      }
    }
  }
}

void FrozenProgram::backward(float* image_gradient) {
  using namespace kernels;
  const Device device = model_.backend.device();
  for (auto it = steps_.rbegin(); it != steps_.rend(); ++it) {
    const Step& step = *it;
    const std::int64_t n = step.elements;
    float *dy = at(step.gradient), *dx = step.x == 0 ? image_gradient : at(step.dx);
    switch (step.kind) {
      case Step::Kind::convolution:
        if (step.relu)
          each(device, groups(n), MaskGradient{dy, at(step.extra), mask_at(step.mask), dy, n});
        else if (step.extra >= 0)
          each(device, groups(n), Add{dy, at(step.extra), dy, n});
        step.conv->backward_data(dy, dx, step.dx_accumulates);
        break;
      case Step::Kind::affine: {
        const Node* bn = step.norm >= 0 ? &model_.graph.nodes[static_cast<std::size_t>(step.norm)] : nullptr;
        each(device, groups(n),
             AffineReluGradient{
                 dy, at(step.extra),
                 bn != nullptr ? scale_ + model_.graph.norms[static_cast<std::size_t>(bn->norm)].begin : nullptr,
                 mask_at(step.mask), dx, step.out, n, step.dx_accumulates});
        break;
      }
      case Step::Kind::add:
        if (step.relu)
          each(device, groups(n), MaskGradient{dy, at(step.extra), mask_at(step.mask), dy, n});
        else if (step.extra >= 0)
          each(device, groups(n), Add{dy, at(step.extra), dy, n});
        each(device, groups(n), Add{dy, nullptr, at(step.copy), n});
        break;
      case Step::Kind::pool:
        each(device, n_ * step.in.elements(), PoolBackward{dy, dx, step.in});
        break;
      case Step::Kind::linear: {
        const Node& linear = model_.graph.nodes[static_cast<std::size_t>(step.node)];
        step.linear->backward_data(dlogits_, model_.values(linear.weight), dx);
        break;
      }
    }
    if (step.sum_into >= 0)
      each(device, groups(step.sum_elements),
           Add{at(step.sum_into), at(step.sum_from), at(step.sum_into), step.sum_elements});
  }
}

std::vector<std::string> FrozenProgram::implementations() const {
  std::vector<std::string> all;
  for (const Step& step : steps_)
    if (step.conv)
      all.push_back(
          model_.parameters
              .segments[static_cast<std::size_t>(model_.graph.nodes[static_cast<std::size_t>(step.node)].weight)]
              .name +
          ": " + step.conv->implementation());
  return all;
}

}  // namespace dat
