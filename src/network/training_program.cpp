#include <algorithm>
#include <cassert>

#include "dat/program.hpp"
#include "network/training_lowering.hpp"
#include "pointwise.hpp"

namespace dat {

/// An operation, and what the program does after it on the way back.
struct TrainingProgram::Step {
  std::unique_ptr<TrainingOperation> operation;
  std::vector<TrainingLowering::Sum> sums;
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
  norm_gradients_ = backend.allocate_floats(2 * std::int64_t{widest}, "batch-norm gradients");
  backend.plan_weights();
  lower();
  std::vector<float> factors;
  for (const Node& node : model.graph.nodes)
    if (node.op == Op::batch_norm) {
      const float samples = static_cast<float>(n) * static_cast<float>(node.h * node.w);
      factors.insert(factors.end(), static_cast<std::size_t>(node.c), samples / (samples - 1));
    }
  backend.copy_to_device(factors_, factors.data(), factors.size() * sizeof(float));
  workspace_bytes_ = planner_.place();
  backend.request_workspace(workspace_bytes_);
}

TrainingProgram::~TrainingProgram() = default;

void TrainingProgram::lower() {
  TrainingLowering lowering(model_, n_, planner_, {logits_, dlogits_, mean_, variance_, norm_gradients_});
  for (int node = lowering.next_node(); node >= 0; node = lowering.next_node())
    steps_.push_back({training_operation(lowering, node), {}});
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    lowering.next_instruction();
    step->operation->plan_backward(lowering);
    step->sums = lowering.take_sums();
  }
}

void TrainingProgram::refresh() {
  if (model_.backend.take_turn(this) && version_ == model_.parameters.version) return;
  version_ = model_.parameters.version;
  for (const Step& step : steps_) step.operation->refresh();
}

void TrainingProgram::forward(const float* x) {
  refresh();
  for (const Step& step : steps_) step.operation->forward(x);
  each(model_.backend.device(), model_.graph.statistics, kernels::Multiply{variance_, factors_, unbiased_variance_});
}

void TrainingProgram::backward(const float* x, const GradientRequest& request) {
  assert(request.weights == nullptr || request.gradients != nullptr);
  // Where the gradient of a segment goes; null: it is not wanted.
  const auto destination = [&](int segment) -> float* {
    if (segment < 0 || request.weights == nullptr) return nullptr;
    const Segment& s = model_.parameters.segments[static_cast<std::size_t>(segment)];
    return request.weights->active(s.layer) ? request.gradients + s.begin : nullptr;
  };

  // Nothing below the first operation with an active parameter needs a gradient, unless the input's is wanted.
  int lowest = request.input != nullptr ? 0 : static_cast<int>(model_.graph.nodes.size());
  for (const Step& step : steps_) {
    const Node& node = step.operation->node();
    if (destination(node.weight) != nullptr || destination(node.bias) != nullptr)
      lowest = std::min(lowest, step.operation->result());
  }

  for (auto step = steps_.rbegin(); step != steps_.rend() && step->operation->result() >= lowest; ++step) {
    const Node& node = step->operation->node();
    const WantedGradients wanted{.image = x,
                                 .image_gradient = request.input,
                                 .dx = step->operation->input() >= lowest,
                                 .dw = destination(node.weight),
                                 .dbias = destination(node.bias),
                                 .accumulate = request.accumulate};
    step->operation->backward(wanted);
    for (const auto& [a, b, into, elements, value] : step->sums) {
      const auto at = [&](Planner::Buffer buffer) { return planner_.at<float>(model_.backend.workspace(), buffer); };
      if (value >= lowest)
        each(model_.backend.device(), kernels::groups(elements), kernels::Add<float>{at(a), at(b), at(into), elements});
    }
    if (request.ready == nullptr) continue;
    if (wanted.dbias != nullptr) (*request.ready)(node.bias);
    if (wanted.dw != nullptr) (*request.ready)(node.weight);
  }
}

}  // namespace dat
