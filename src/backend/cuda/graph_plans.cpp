// cuDNN's graph API as plans: the whole pass as one kernel, masks of ReLUs included (docs/design.md, "The graph API").

#include <algorithm>
#include <thread>

#include "backend/cuda/backend.hpp"
#include "backend/cuda/graph.hpp"
#include "backend/cuda/pass_plan.hpp"
#include "pointwise.hpp"

namespace dat::cuda {

namespace {

using graph::Place;

/// The operations of a pass. Rotated: the input gradient of a stride-1 convolution as the convolution of dy with
/// rotated weights that it is.
[[nodiscard]] std::unique_ptr<graph::Operations> describe(cudnnHandle_t cudnn, const PassSpec& spec, bool rotated) {
  const ConvSpec& s = spec.conv;
  auto all = std::make_unique<graph::Operations>(cudnn, s.storage);
  graph::Operations& o = *all;
  const graph::Shape x{s.n, spec.channels(), s.h, s.w}, y{s.n, s.c_out, s.h_out(), s.w_out()};
  if (spec.pass == Pass::forward) {
    const graph::Descriptor* sum = &o.between(y);
    o.convolution(o.in_memory(Place::x, x), o.in_memory(Place::w, {s.c_out, x.c, s.kernel, s.kernel}), *sum, s.pad,
                  s.stride);
    // Residual, then bias: the order of cuDNN's own fused convolution.
    if (s.accumulate) {
      const graph::Descriptor& added = o.between(y);
      o.add(*sum, o.in_memory(Place::other, y), added);
      sum = &added;
    }
    const graph::Descriptor& bias = o.in_memory(Place::bias, {1, s.c_out, 1, 1});
    const graph::Descriptor& result = o.in_memory(Place::result, y);
    const graph::Descriptor& biased = s.relu ? o.between(y) : result;
    o.add(*sum, bias, biased);
    if (s.relu) o.relu(biased, result);
    return all;
  }
  const graph::Descriptor* gradient = &o.between(x);
  const graph::Descriptor& dy = o.in_memory(Place::dy, y);
  if (rotated)
    o.convolution(dy, o.in_memory(Place::w, {x.c, s.c_out, s.kernel, s.kernel}), *gradient, s.kernel - 1 - s.pad, 1);
  else
    o.convolution(dy, o.in_memory(Place::w, {s.c_out, x.c, s.kernel, s.kernel}), *gradient, s.pad, s.stride, true);
  if (s.other_gradient) {
    const graph::Descriptor& added = o.between(x);
    o.add(*gradient, o.in_memory(Place::other, x), added);
    gradient = &added;
  }
  o.relu_gradient(*gradient, o.in_memory(Place::x, x), o.in_memory(Place::result, x));
  return all;
}

/// First part of the names of plans, before the engine's.
[[nodiscard]] std::string form(bool rotated) { return rotated ? "graph rotated" : "graph"; }

class GraphPlan final : public PassPlan {
 public:
  GraphPlan(CudaBackend& backend, const PassSpec& spec, bool rotated, const std::string& engine, cudnnHandle_t cudnn)
      : backend_(backend),
        spec_(spec),
        rotated_(rotated),
        name_(form(rotated) + " " + engine),
        operations_(describe(cudnn, spec, rotated)),
        engine_(operations_->finish(), engine),
        execution_(cudnn, engine_) {}

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::size_t scratch_bytes() const override { return execution_.scratch_bytes(); }
  [[nodiscard]] bool deterministic() const override { return engine_.deterministic(); }
  [[nodiscard]] bool rotated_weights() const override { return rotated_; }

  [[nodiscard]] cudnnStatus_t run(const Operands& o) const override {
    addresses_.clear();
    for (const Place place : operations_->places()) addresses_.push_back(address(o, place));
    addresses_.push_back(o.scratch);
    auto pack = std::ranges::find(packs_, addresses_, &Pack::addresses);
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    try {
      if (pack == packs_.end()) {
        packs_.push_back({addresses_, graph::variant_pack(operations_->places(), addresses_.data(), o.scratch)});
        pack = packs_.end() - 1;
      }
      status = execution_.run(pack->variant);
    } catch (const graph::Refusal& refusal) {
      return refusal.status();
    }
    if (status == CUDNN_STATUS_SUCCESS) store_mask(backend_, spec_, o);
    return status;
  }

 private:
  /// Addresses of the tensors in one call, in cuDNN's form. A convolution's never move, so that steps find one.
  struct Pack {
    std::vector<void*> addresses;  ///< the last one is that of the scratch memory
    graph::Descriptor variant;
  };

  [[nodiscard]] static void* address(const Operands& o, Place place) {
    const void* const all[] = {o.x, o.dy, o.w, o.rounded_bias, o.other, o.result};  // in the order of Place
    return const_cast<void*>(all[static_cast<std::size_t>(place) - static_cast<std::size_t>(Place::x)]);
  }

  CudaBackend& backend_;
  const PassSpec spec_;
  const bool rotated_;
  const std::string name_;
  // Members are in the order in which they need each other.
  const std::unique_ptr<graph::Operations> operations_;
  const graph::Engine engine_;
  const graph::Execution execution_;
  mutable std::vector<Pack> packs_;
  mutable std::vector<void*> addresses_;
};

/// Engines that are worth the half second that it takes to build one. Where fewer than kFew of mode A's can be built,
/// the library is asked for mode B's, which may know others; where none can be, for those to fall back to.
constexpr std::size_t kMost = 4, kFew = 3;
struct Mode {
  cudnnBackendHeurMode_t mode;
  std::size_t enough;  ///< plans with which nothing of this mode is built
};
constexpr Mode kModes[] = {{CUDNN_HEUR_MODE_A, kMost}, {CUDNN_HEUR_MODE_B, kFew}, {CUDNN_HEUR_MODE_FALLBACK, 1}};

/// One of the forms of a pass as a graph, and who builds plans for it.
class Builder {
 public:
  Builder(CudaBackend& backend, const PassSpec& spec, bool rotated)
      : backend_(backend), spec_(spec), rotated_(rotated) {}

  /// Adds plans in the order of the recommendations, until the time is over.
  void add(const PlanningTime::Share& time, Plans& all) {
    const std::size_t before = all.plans.size();
    std::vector<std::string> seen;
    for (const auto& [mode, enough] : kModes) {
      const std::size_t there = all.plans.size() - before;
      if (there >= enough) continue;
      if (time.over_for_engines()) {
        all.refused.push_back({form(rotated_), time.words()});
        return;
      }
      std::string why;
      auto recommended = recommend(mode, why);
      if (recommended.empty() && (all.refused.empty() || all.refused.back().why != why))
        all.refused.push_back({form(rotated_), why});
      std::vector<std::string> names;
      for (std::string& name : recommended)
        if (names.size() + there < kMost && std::ranges::find(seen, name) == seen.end())
          names.push_back(std::move(name));
      seen.insert(seen.end(), names.begin(), names.end());
      build(names, time, all);
    }
  }

  struct Built {
    std::unique_ptr<const PassPlan> plan;
    std::string why;  ///< there is none
  };
  /// cuDNN is safe to be called from several threads that do not share a handle: each has its own, and its own graph,
  /// and the plan keeps that handle for its calls.
  [[nodiscard]] Built build(const std::string& engine, cudnnHandle_t cudnn) const {
    try {
      check(cudaSetDevice(backend_.gpu().index));
      return {std::make_unique<GraphPlan>(backend_, spec_, rotated_, engine, cudnn), ""};
    } catch (const std::exception& refusal) {
      return {nullptr, refusal.what()};
    }
  }

  /// Engines that cuDNN recommends; where there are none, `why`.
  [[nodiscard]] std::vector<std::string> recommend(cudnnBackendHeurMode_t mode, std::string& why) const {
    why = "cuDNN recommends no engine";
    try {
      return graph::recommended(describe(backend_.cudnn(), spec_, rotated_)->finish(), mode);
    } catch (const std::exception& refusal) {
      why = refusal.what();
    }
    return {};
  }

 private:
  void build(const std::vector<std::string>& names, const PlanningTime::Share& time, Plans& all) const {
    std::vector<Built> built(names.size());
    {
      const auto handles = backend_.builders(names.size());
      std::vector<std::jthread> threads;
      for (std::size_t t = 0; t < handles.size(); ++t)
        threads.emplace_back([&, t] {
          for (std::size_t k = t; k < names.size(); k += handles.size())
            built[k] = time.over_for_engines() ? Built{nullptr, time.words()} : build(names[k], handles[t]);
        });
    }
    for (std::size_t k = 0; k < names.size(); ++k)
      if (built[k].plan != nullptr)
        all.plans.push_back(std::move(built[k].plan));
      else
        all.refused.push_back({form(rotated_) + " " + names[k], built[k].why});
  }

  CudaBackend& backend_;
  const PassSpec& spec_;
  const bool rotated_;
};

/// The forms of the pass: whether each is the rotated one. Empty: the graph API is not asked for it.
[[nodiscard]] std::vector<bool> forms(const CudaBackend& backend, const PassSpec& spec) {
  const ConvSpec& s = spec.conv;
  if (!s.frozen || s.storage == DType::f32 || backend.deterministic()) return {};
  // cuDNN does not say that a result may lie where an operand does.
  if (spec.pass == Pass::forward) return !s.accumulate || s.keeps_residual ? std::vector{false} : std::vector<bool>{};
  if (!spec.through_relu) return {};
  return s.stride == 1 ? std::vector{true, false} : std::vector{false};
}

}  // namespace

Plans graph_plans(CudaBackend& backend, const PassSpec& spec, const PlanningTime::Share& time) {
  Plans all;
  for (const bool rotated : forms(backend, spec)) Builder(backend, spec, rotated).add(time, all);
  return all;
}

std::unique_ptr<const PassPlan> graph_plan(CudaBackend& backend, const PassSpec& spec, const std::string& name) {
  for (const bool rotated : forms(backend, spec))
    if (const std::string begin = form(rotated) + " "; name.starts_with(begin))
      return Builder(backend, spec, rotated).build(name.substr(begin.size()), backend.cudnn()).plan;
  return nullptr;
}

std::string graph_report(CudaBackend& backend) {
  // An input gradient, which the graph API is asked for through a ReLU only.
  constexpr PassSpec typical{{.n = 8, .c_in = 64, .h = 32, .w = 32, .c_out = 64, .storage = DType::f16}, Pass::data};
  const Builder builder(backend, typical, true);
  std::string why;
  for (const std::string& name : builder.recommend(CUDNN_HEUR_MODE_A, why)) {
    const auto built = builder.build(name, backend.cudnn());
    if (built.plan != nullptr) return "usable";
    why = built.why;
  }
  return "not usable: " + why;
}

}  // namespace dat::cuda
