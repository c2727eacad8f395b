#include "dat/program.hpp"
#include "dat/tick.hpp"
#include "network/operations.hpp"
#include "pointwise.hpp"

namespace dat {

/// An operation, and what the program does in the backward pass before and after it.
struct FrozenProgram::Step {
  std::unique_ptr<FrozenOperation> operation;
  FrozenLowering::Upkeep upkeep;
};

DType storage_from(const std::string& name) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    if (name == storage_name(type)) return type;
  fail(ExitCode::usage, "unknown precision '", name, "'; known: f32, f16, bf16");
}

FrozenProgram::FrozenProgram(Model& model, int n, DType storage, const Graph* of)
    : FrozenProgram(model, n, storage, of, nullptr) {}

FrozenProgram::FrozenProgram(Model& model, int n, DType storage, const Graph* of, std::shared_ptr<Turn> turn)
    : model_(model), graph_(of != nullptr ? *of : model.graph), n_(n), storage_(storage), turn_(std::move(turn)) {
  require(model.backend.refuses(storage).empty(), ExitCode::usage, model.backend.refuses(storage));
  const int classes = model.graph.nodes.back().c;
  logits_ = model.backend.allocate_floats(std::int64_t{n} * classes, "logits");
  dlogits_ = model.backend.allocate_floats(std::int64_t{n} * classes, "logits");
  scale_ = model.backend.allocate_floats(model.graph.statistics, "folded batch norm");
  shift_ = model.backend.allocate_floats(model.graph.statistics, "folded batch norm");
  norms_ = find_norms(model, model.graph.statistics);
  if (turn_ == nullptr) {
    turn_ = std::make_shared<Turn>();
    model.backend.plan_weights();
  }
  lower();
  std::vector<Backend::Load> all;
  for (const Step& step : steps_) step.operation->load(all);
  weights_ = model.backend.loads(std::move(all));
  model.backend.request_workspace(planner_.place());
}

std::vector<std::unique_ptr<FrozenProgram>> FrozenProgram::of_sizes(Model& model, const std::vector<int>& sizes,
                                                                    DType storage, const Graph* of) {
  std::vector<std::unique_ptr<FrozenProgram>> all;
  for (const int n : sizes)
    all.emplace_back(new FrozenProgram(model, n, storage, of, all.empty() ? nullptr : all.front()->turn_));
  return all;
}

FrozenProgram::~FrozenProgram() = default;

void FrozenProgram::lower() {
  FrozenLowering lowering(model_, graph_, n_, planner_, storage_, {scale_, shift_, logits_, dlogits_});
  for (int node = lowering.next_node(); node != -1; node = lowering.next_node())
    steps_.push_back({operations_of(lowering.node(node).op).frozen(lowering, node), {}});
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    lowering.next_instruction();
    step->operation->plan_backward(lowering);
    step->upkeep = lowering.take_upkeep();
  }
}

void FrozenProgram::refresh() {
  if (!model_.backend.take_turn(turn_.get())) ++turn_->number;
  if (packed_in_ == turn_->number && version_ == model_.parameters.version) return;
  packed_in_ = turn_->number;
  version_ = model_.parameters.version;
  each(model_.backend.device(), model_.graph.statistics,
       kernels::FoldNorms{model_.parameters.values, norms_.gamma, norms_.beta, model_.running_mean,
                          model_.running_variance, scale_, shift_, Model::kEpsilon});
  weights_->replay();
}

void FrozenProgram::forward(const float* x, int wanted) {
  refresh();
  for (const Step& step : steps_) step.operation->want(wanted);
  for (const Step& step : steps_) {
    tick();
    step.operation->forward(x);
  }
}

void FrozenProgram::backward(float* dx, const PgdUpdate& update) {
  const Device device = model_.backend.device();
  const auto at = [&](Planner::Buffer buffer) { return planner_.at<void>(model_.backend.workspace(), buffer); };
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    tick();
    for (const auto& [gradient, bits, elements, type] : step->upkeep.before)
      mask(device, type, at(gradient), nullptr, static_cast<const std::uint16_t*>(at(bits)),
           step->operation->wanted(elements));
    step->operation->backward(dx, update);
    for (const auto& [into, from, elements, type] : step->upkeep.after)
      add(device, type, at(into), at(from), at(into), step->operation->wanted(elements));
  }
}

std::vector<std::string> FrozenProgram::implementations() const {
  std::vector<std::string> all;
  for (const Step& step : steps_)
    if (std::string one = step.operation->implementation(); !one.empty()) all.push_back(std::move(one));
  return all;
}

}  // namespace dat
