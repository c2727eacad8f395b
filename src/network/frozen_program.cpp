#include <algorithm>
#include <cassert>
#include <utility>

#include "dat/half.hpp"
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
  bool masks_inside = false;     ///< the convolution applies this step's mask to the gradient that it reads
  Planner::Buffer dx_mask = -1;  ///< that the convolution applies to the dx it adds to
  struct Masking {
    Planner::Buffer gradient, mask;
    std::int64_t elements;
  };
  std::vector<Masking> masked_first;  ///< before the step: masks that others left to it
};

DType storage_from(const std::string& name) {
  if (name == "f32") return DType::f32;
  if (name == "f16") return DType::f16;
  if (name == "bf16") return DType::bf16;
  fail(ExitCode::usage, "unknown precision '", name, "'; known: f32, f16, bf16");
}

FrozenProgram::FrozenProgram(Model& model, int n, DType storage) : FrozenProgram(model, n, storage, nullptr) {}

FrozenProgram::FrozenProgram(Model& model, int n, DType storage, std::shared_ptr<Turn> turn)
    : model_(model), n_(n), storage_(storage), turn_(std::move(turn)) {
  require(model.backend.refuses(storage).empty(), ExitCode::usage, model.backend.refuses(storage));
  const int classes = model.graph.nodes.back().c;
  logits_ = model.backend.allocate_floats(std::int64_t{n} * classes, "logits");
  dlogits_ = model.backend.allocate_floats(std::int64_t{n} * classes, "logits");
  scale_ = model.backend.allocate_floats(model.graph.statistics, "folded batch norm");
  shift_ = model.backend.allocate_floats(model.graph.statistics, "folded batch norm");
  if (turn_ == nullptr) {
    turn_ = std::make_shared<Turn>();
    model.backend.plan_weights();
  }
  lower();
  workspace_bytes_ = planner_.place();
  model.backend.request_workspace(workspace_bytes_);
}

std::vector<std::unique_ptr<FrozenProgram>> FrozenProgram::of_sizes(Model& model, const std::vector<int>& sizes,
                                                                    DType storage) {
  std::vector<std::unique_ptr<FrozenProgram>> all;
  for (const int n : sizes)
    all.emplace_back(new FrozenProgram(model, n, storage, all.empty() ? nullptr : all.front()->turn_));
  return all;
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

  require(consumers[0].size() == 1 && node(consumers[0][0]).op == Op::convolution, ExitCode::usage,
          "a network must begin with one convolution of the image");

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
  const auto fresh = [&](std::int64_t elements, DType type, int instruction) {
    const Planner::Buffer buffer = planner_.add(static_cast<std::size_t>(elements) * size_of(type));
    planner_.touch(buffer, instruction);
    return buffer;
  };
  // From the pool on, values are few: they and their gradients stay f32.
  const auto type_of = [&](int v) {
    return node(v).op == Op::pool || node(v).op == Op::linear ? DType::f32 : storage_;
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
      step.copy_residual = read_later || step.residual == step.x;
    }
    step.y = adds && !step.copy_residual ? step.residual_buffer : fresh(step.elements, type_of(step.end), s);
    value[static_cast<std::size_t>(step.end)] = step.y;
    if (step.relu) step.mask = fresh(kernels::groups(step.elements), DType::f16, s);  // one word of 16 bits each
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
                                  .image = step.x == 0,
                                  .storage = storage_});
    }
  }

  // Buffers of the way back. Every gradient buffer belongs to one value; a residual takes over its sum's gradient.
  struct Gradient {
    Planner::Buffer main = -1, extra = -1;
    Planner::Buffer mask = -1;  ///< still to be applied to main
  };
  std::vector<Gradient> gradients(nodes.size());
  for (int s = count - 1; s >= 0; --s) {
    Step& step = steps_[static_cast<std::size_t>(s)];
    const int now = 2 * count - 1 - s;
    const auto mask_first = [&](int v) {
      Gradient& g = gradients[static_cast<std::size_t>(v)];
      if (g.mask < 0) return;
      step.masked_first.push_back({g.main, g.mask, n_ * model_.layout(v).elements()});
      planner_.touch(g.main, now);
      planner_.touch(std::exchange(g.mask, -1), now);
    };
    const auto contribute = [&](int v, Planner::Buffer buffer, Planner::Buffer mask = -1) {
      Gradient& g = gradients[static_cast<std::size_t>(v)];
      if (g.main < 0) {
        g.main = buffer;
        g.mask = mask;
      } else if (g.extra < 0) {
        g.extra = buffer;
      } else {
        assert(step.sum_into < 0);
        mask_first(v);
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
    mask_first(step.end);
    switch (step.kind) {
      case Step::Kind::convolution:
        // A residual that takes over the gradient takes the mask with it, if it has no other gradient yet.
        step.masks_inside = step.relu && step.extra < 0 && step.x != 0 && step.conv->backward_data_masks() &&
                            step.residual != step.x &&
                            (step.residual <= 0 || gradients[static_cast<std::size_t>(step.residual)].main < 0);
        if (step.x != 0) {
          step.dx_accumulates = gx.main >= 0 && step.conv->backward_data_accumulates();
          step.dx = step.dx_accumulates ? gx.main : fresh(x_elements, type_of(step.x), now);
          if (step.dx_accumulates && gx.mask >= 0 && step.conv->backward_data_masks())
            planner_.touch(step.dx_mask = std::exchange(gx.mask, -1), now);
          else if (step.dx_accumulates)
            mask_first(step.x);
          else
            contribute(step.x, step.dx);
          planner_.touch(step.dx, now);
        }
        if (step.residual > 0) contribute(step.residual, step.gradient, step.masks_inside ? step.mask : -1);
        break;
      case Step::Kind::affine:
        mask_first(step.x);
        step.dx_accumulates = gx.main >= 0;
        step.dx = gx.main >= 0 ? gx.main : step.gradient;
        if (!step.dx_accumulates) contribute(step.x, step.dx);
        planner_.touch(step.dx, now);
        break;
      case Step::Kind::add:
        contribute(step.x, step.gradient);
        step.copy = fresh(step.elements, storage_, now);
        contribute(step.residual, step.copy);
        break;
      case Step::Kind::pool:
      case Step::Kind::linear:
        step.dx = fresh(x_elements, type_of(step.x), now);
        contribute(step.x, step.dx);
        break;
    }
  }
}

template <class T>
T* FrozenProgram::at(Planner::Buffer buffer) const {
  return buffer < 0 ? nullptr
                    : reinterpret_cast<T*>(static_cast<char*>(model_.backend.workspace()) + planner_.offset(buffer));
}

void FrozenProgram::refresh() {
  if (!model_.backend.take_turn(turn_.get())) ++turn_->number;
  if (packed_in_ == turn_->number && version_ == model_.parameters.version) return;
  packed_in_ = turn_->number;
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
  refresh();
  with_storage(storage_, [&](auto type) { forward_in<decltype(type)>(image); });
}

void FrozenProgram::backward(float* image_gradient, const PgdUpdate& update) {
  with_storage(storage_, [&](auto type) { backward_in<decltype(type)>(image_gradient, update); });
}

template <class T>
void FrozenProgram::forward_in(const float* image) {
  using namespace kernels;
  const Device device = model_.backend.device();
  for (const Step& step : steps_) {
    const void* x = step.x == 0 ? image : at<void>(step.x_buffer);
    auto *y = at<T>(step.y), *residual = at<T>(step.residual_buffer);
    auto* bits = at<std::uint16_t>(step.mask);
    const std::int64_t n = step.elements;
    switch (step.kind) {
      case Step::Kind::convolution:
        if (step.copy_residual) each(device, groups(n), Add<T>{residual, nullptr, y, n});
        step.conv->forward(x, y, bits);
        break;
      case Step::Kind::affine: {
        const Node* bn = step.norm >= 0 ? &model_.graph.nodes[static_cast<std::size_t>(step.norm)] : nullptr;
        const std::int64_t begin = bn != nullptr ? model_.graph.norms[static_cast<std::size_t>(bn->norm)].begin : 0;
        each(device, groups(n),
             AffineRelu<T>{static_cast<const T*>(x), bn != nullptr ? scale_ + begin : nullptr,
                           bn != nullptr ? shift_ + begin : nullptr, y, bits, step.out, n, step.relu});
        break;
      }
      case Step::Kind::add:
        each(device, groups(n), Add<T>{static_cast<const T*>(x), residual, y, n, step.relu, bits});
        break;
      case Step::Kind::pool:
        each(device, std::int64_t{n_} * step.in.c,
             PoolForward<T>{static_cast<const T*>(x), at<float>(step.y), step.in});
        break;
      case Step::Kind::linear: {
        const Node& linear = model_.graph.nodes[static_cast<std::size_t>(step.node)];
        step.linear->forward(static_cast<const float*>(x), model_.values(linear.weight), model_.values(linear.bias),
                             logits_);
        break;
      }
    }
  }
}

template <class T>
void FrozenProgram::backward_in(float* image_gradient, const PgdUpdate& update) {
  using namespace kernels;
  const Device device = model_.backend.device();
  for (auto it = steps_.rbegin(); it != steps_.rend(); ++it) {
    const Step& step = *it;
    const std::int64_t n = step.elements;
    auto *dy = at<T>(step.gradient), *extra = at<T>(step.extra), *dx = at<T>(step.dx);
    const auto* bits = at<std::uint16_t>(step.mask);
    for (const Step::Masking& m : step.masked_first)
      each(device, groups(m.elements),
           MaskGradient<T>{at<T>(m.gradient), nullptr, at<std::uint16_t>(m.mask), at<T>(m.gradient), m.elements});
    switch (step.kind) {
      case Step::Kind::convolution:
        if (step.relu && !step.masks_inside)
          each(device, groups(n), MaskGradient<T>{dy, extra, bits, dy, n});
        else if (extra != nullptr)
          each(device, groups(n), Add<T>{dy, extra, dy, n});
        if (step.x == 0)
          step.conv->backward_image(dy, image_gradient, update);
        else
          step.conv->backward_data(dy, dx, step.dx_accumulates,
                                   {step.masks_inside ? bits : nullptr, at<std::uint16_t>(step.dx_mask)});
        break;
      case Step::Kind::affine: {
        const Node* bn = step.norm >= 0 ? &model_.graph.nodes[static_cast<std::size_t>(step.norm)] : nullptr;
        const float* scale =
            bn != nullptr ? scale_ + model_.graph.norms[static_cast<std::size_t>(bn->norm)].begin : nullptr;
        each(device, groups(n), AffineReluGradient<T>{dy, extra, scale, bits, dx, step.out, n, step.dx_accumulates});
        break;
      }
      case Step::Kind::add:
        if (step.relu)
          each(device, groups(n), MaskGradient<T>{dy, extra, bits, dy, n});
        else if (extra != nullptr)
          each(device, groups(n), Add<T>{dy, extra, dy, n});
        each(device, groups(n), Add<T>{dy, nullptr, at<T>(step.copy), n});
        break;
      case Step::Kind::pool:
        each(device, groups(n_ * step.in.elements()),
             PoolBackward<T>{at<float>(step.gradient), dx, step.in, n_ * step.in.elements()});
        break;
      case Step::Kind::linear: {
        const Node& linear = model_.graph.nodes[static_cast<std::size_t>(step.node)];
        step.linear->backward_data(dlogits_, model_.values(linear.weight), at<float>(step.dx));
        break;
      }
    }
    if (step.sum_into >= 0)
      each(device, groups(step.sum_elements),
           Add<T>{at<T>(step.sum_into), at<T>(step.sum_from), at<T>(step.sum_into), step.sum_elements});
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
