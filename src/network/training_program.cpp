#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

#include "dat/program.hpp"
#include "dat/tick.hpp"
#include "network/operations.hpp"
#include "pointwise.hpp"

namespace dat {

/// An operation, and what the program does before and after it in the backward pass.
struct TrainingProgram::Step {
  std::unique_ptr<TrainingOperation> operation;
  std::vector<TrainingLowering::Sum> sums{};
  std::vector<std::shared_ptr<const TrainingLowering::Again>> again{};  ///< recomputations before it

  /// Queues operation and sums.
  void backward(const Model& model, const Planner& planner, const WantedGradients& wanted) const {
    operation->backward(wanted);
    const auto at = [&](Planner::Buffer buffer) { return planner.at<void>(model.backend.workspace(), buffer); };
    for (const auto& [a, b, into, elements, type] : sums)
      add(model.backend.device(), type, at(a), at(b), at(into), elements);
  }
};

/// A part of the backward pass that is the same in every pass that needs all of it: no gradient of parameters within.
struct TrainingProgram::Piece {
  std::size_t first = 0, end = 0;  ///< steps, counted from the last one
  int lowest = 0;                  ///< lowest of the values whose gradients it computes
  std::unique_ptr<Backend::Recording> recording;
};

TrainingProgram::TrainingProgram(Model& model, int n, const Graph* of, DType storage, const float* scale, bool again)
    : model_(model), graph_(of != nullptr ? *of : model.graph), n_(n), storage_(storage), scale_(scale), again_(again) {
  Backend& backend = model.backend;
  require(backend.refuses(storage).empty(), ExitCode::usage, backend.refuses(storage));
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
  const std::int64_t frozen = model.graph.statistics_of(model.freezing.segments);
  norm_scale_ = backend.allocate_floats(2 * frozen, "folded batch norm");
  norm_shift_ = norm_scale_ + frozen;
  norm_places_ = find_norms(model, frozen);
  backend.plan_weights();
  lower();
  cut();
  std::vector<float> factors;
  for (const Node& node : graph_.nodes)
    if (node.op == Op::batch_norm) {
      const float samples = static_cast<float>(n) * static_cast<float>(node.h * node.w);
      factors.insert(factors.end(), static_cast<std::size_t>(node.c), samples / std::max(samples - 1, 1.0F));
    }
  backend.copy_to_device(factors_, factors.data(), factors.size() * sizeof(float));
  std::vector<Backend::Load> all;
  for (const Step& step : steps_) step.operation->load(all);
  weights_ = backend.loads(std::move(all));
  workspace_bytes_ = planner_.place();
  backend.request_workspace(workspace_bytes_);
}

TrainingProgram::~TrainingProgram() = default;

void TrainingProgram::lower() {
  TrainingLowering lowering(model_, graph_, n_, planner_, storage_,
                            {logits_, dlogits_, mean_, variance_, norm_gradients_, scale_, norm_scale_, norm_shift_},
                            again_);
  border_ = lowering.border;
  for (int node = lowering.next_node(); node != -1; node = lowering.next_node())
    steps_.push_back({operations_of(lowering.node(node).op).training(lowering, node)});
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (step->operation->result() < border_) break;
    lowering.next_instruction();
    step->operation->plan_backward(lowering);
    step->sums = lowering.take_sums();
    step->again = lowering.take_again();
  }
}

void TrainingProgram::refresh() {
  if (model_.backend.take_turn(this) && version_ == model_.parameters.version) return;
  version_ = model_.parameters.version;
  const std::int64_t frozen = model_.graph.statistics_of(model_.frozen);
  each(model_.backend.device(), frozen,
       kernels::FoldNorms{model_.parameters.values, norm_places_.gamma, norm_places_.beta, model_.running_mean,
                          model_.running_variance, norm_scale_, norm_shift_, Model::kEpsilon});
  if (std::exchange(frozen_, model_.frozen) != model_.frozen) {
    // Other batch norms stand still than when the passes were recorded. These leave nothing in the statistics.
    const std::vector<float> none(static_cast<std::size_t>(frozen), 0.0F);
    for (float* statistics : {mean_, unbiased_variance_, variance_})
      model_.backend.copy_to_device(statistics, none.data(), none.size() * sizeof(float));
    forward_.reset();
    for (Piece& piece : pieces_) piece.recording.reset();
  }
  weights_->replay();
}

/// A piece begins before gradients of parameters that come first, and before what is made again, and ends with
/// gradients of parameters that come after it.
void TrainingProgram::cut() {
  bool begins = true;
  for (std::size_t k = 0; k < steps_.size(); ++k) {
    const Step& step = steps_[steps_.size() - 1 - k];
    const TrainingOperation& operation = *step.operation;
    if (operation.result() < border_) break;
    const bool has_weights = operation.node().weight != -1;
    if (begins || !step.again.empty() || (has_weights && operation.weights_first()))
      pieces_.push_back({k, k, operation.result(), nullptr});
    Piece& piece = pieces_.back();
    piece.end = k + 1;
    piece.lowest = std::min({piece.lowest, operation.result(), operation.input()});
    begins = has_weights && !operation.weights_first();
  }
}

/// Everything once, for the device to load its code, and then into recordings. The workspace holds nothing yet; what
/// is computed from it is computed again.
void TrainingProgram::record(const float* x) {
  Backend& backend = model_.backend;
  const Counters before = backend.counters;
  steps_.front().operation->forward(x);
  forward_rest();
  for (const Piece& piece : pieces_)
    if (piece.lowest > 0) backward(piece);
  backend.counters = before;
  forward_ = backend.record([this] { forward_rest(); });
  for (Piece& piece : pieces_)
    if (piece.lowest > 0) piece.recording = backend.record([this, &piece] { backward(piece); });
}

void TrainingProgram::forward(const float* x, bool whole) {
  refresh();
  if (!whole && forward_ == nullptr && model_.backend.replays()) record(x);
  steps_.front().operation->forward(x);
  if (!whole && forward_ != nullptr)
    forward_->replay();
  else
    forward_rest();
}

/// All but the operation that reads the images.
void TrainingProgram::forward_rest() {
  for (auto step = steps_.begin() + 1; step != steps_.end(); ++step) {
    tick();
    step->operation->forward(nullptr);
  }
  each(model_.backend.device(), model_.graph.statistics, kernels::Multiply{variance_, factors_, unbiased_variance_});
}

void TrainingProgram::backward(const Piece& piece) {
  for (std::size_t k = piece.first; k < piece.end; ++k)
    steps_[steps_.size() - 1 - k].backward(model_, planner_, {.dx = true});
}

void TrainingProgram::backward(const float* x, const GradientRequest& request) {
  assert(request.weights == nullptr || request.gradients != nullptr);
  assert(request.input == nullptr || border_ == 0);
  // Destination of the gradient of a segment; null: it is not wanted.
  const auto destination = [&](int segment) -> float* {
    if (segment == -1 || request.weights == nullptr) return nullptr;
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

  const auto tell = [&](const TrainingOperation& operation, const WantedGradients& wanted) {
    if (request.ready == nullptr) return;
    if (wanted.dbias != nullptr) (*request.ready)(operation.node().bias);
    if (wanted.dw != nullptr) (*request.ready)(operation.node().weight);
  };
  const auto backward_weights = [&](TrainingOperation& operation, const WantedGradients& wanted) {
    if (wanted.dw == nullptr && wanted.dbias == nullptr) return;
    operation.backward_weights(wanted);
    tell(operation, wanted);
  };
  for (const Piece& piece : pieces_) {
    const bool replayed = !request.whole && piece.recording != nullptr && piece.lowest >= lowest;
    for (std::size_t k = piece.first; k < piece.end; ++k) {
      tick();
      const Step& step = steps_[steps_.size() - 1 - k];
      TrainingOperation& operation = *step.operation;
      if (operation.result() < lowest) return;
      const WantedGradients wanted{.image = x,
                                   .image_gradient = request.input,
                                   .dx = operation.input() >= lowest,
                                   .dw = destination(operation.node().weight),
                                   .dbias = destination(operation.node().bias),
                                   .accumulate = request.accumulate};
      for (const auto& one : step.again)
        if (std::ranges::any_of(one->segments,
                                [&](int segment) { return segment == -1 || destination(segment) != nullptr; }))
          one->operation->make_again();
      if (operation.weights_first()) backward_weights(operation, wanted);
      if (!replayed)
        step.backward(model_, planner_, wanted);
      else if (k == piece.first)
        piece.recording->replay();
      if (!operation.weights_first() && replayed) backward_weights(operation, wanted);
      if (!operation.weights_first() && !replayed) tell(operation, wanted);
    }
  }
}

void TrainingProgram::announce(const ActiveSet& active, const std::function<void(int)>& ready) const {
  const auto tell = [&](int segment) {
    if (segment != -1 && active.active(model_.parameters.segments[static_cast<std::size_t>(segment)].layer))
      ready(segment);
  };
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    tell(step->operation->node().bias);
    tell(step->operation->node().weight);
  }
}

std::vector<double> TrainingProgram::weight_gradient_seconds(const float* x, float* gradients) {
  constexpr int kRuns = 5;
  constexpr double kEnough = 1e-3;  // seconds by the clock
  Backend& backend = model_.backend;
  const Counters before = backend.counters;
  ActiveSet all = ActiveSet::all(model_.parameters.layers());
  for (int k = 0; k < model_.frozen; ++k)
    all.scale[static_cast<std::size_t>(model_.parameters.segments[static_cast<std::size_t>(k)].layer)] = 0;
  const std::vector<float> dlogits(static_cast<std::size_t>(std::int64_t{n_} * model_.graph.nodes.back().c),
                                   1.0F / static_cast<float>(n_));
  forward(x);
  backend.copy_to_device(dlogits_, dlogits.data(), dlogits.size() * sizeof(float));
  backward(x, {.weights = &all, .gradients = gradients});

  const auto seconds_of = [&](TrainingOperation& operation, const WantedGradients& wanted) {
    const auto time = [&](int calls) {
      backend.wait();
      const auto begin = std::chrono::steady_clock::now();
      for (int k = 0; k < calls; ++k) operation.backward_weights(wanted);
      backend.wait();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
    };
    double least = time(1);
    const int calls = std::clamp(static_cast<int>(kEnough / least), 1, 100);
    for (int run = 0; run < kRuns; ++run) least = std::min(least, time(calls));
    return least;
  };
  std::vector<double> seconds(all.scale.size(), 0.0);
  for (const Step& step : steps_) {
    if (step.operation->result() < border_ || model_.stands_still(step.operation->node().weight)) continue;
    const Node& node = step.operation->node();
    const auto add = [&](int number, float* WantedGradients::*place) {
      if (number == -1) return;
      const Segment& segment = model_.parameters.segments[static_cast<std::size_t>(number)];
      WantedGradients wanted{.image = x};
      wanted.*place = gradients + segment.begin;
      seconds[static_cast<std::size_t>(segment.layer)] += seconds_of(*step.operation, wanted);
    };
    add(node.weight, &WantedGradients::dw);
    add(node.bias, &WantedGradients::dbias);
  }
  backend.counters = before;
  return seconds;
}

}  // namespace dat
