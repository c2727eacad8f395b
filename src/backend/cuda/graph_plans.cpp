// cuDNN's graph API as plans: the whole pass as one kernel, masks of ReLUs included (docs/design.md, "The graph API").

#include <algorithm>
#include <optional>
#include <set>
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
    if (s.relu) {
      const graph::Descriptor& biased = o.between(y);
      o.add(*sum, bias, biased);
      o.relu(biased, result);
    } else {
      o.add(*sum, bias, result);
    }
    return all;
  }
  const graph::Descriptor* gradient = &o.between(x);
  const graph::Descriptor& dy = o.in_memory(Place::dy, y);
  if (rotated)
    o.convolution(dy, o.in_memory(Place::w, {x.c, s.c_out, s.kernel, s.kernel}), *gradient, s.kernel - 1 - s.pad, 1);
  else
    o.convolution_gradient(dy, o.in_memory(Place::w, {s.c_out, x.c, s.kernel, s.kernel}), *gradient, s.pad, s.stride);
  if (s.other_gradient) {
    const graph::Descriptor& added = o.between(x);
    o.add(*gradient, o.in_memory(Place::other, x), added);
    gradient = &added;
  }
  o.relu_gradient(*gradient, o.in_memory(Place::x, x), o.in_memory(Place::result, x));
  return all;
}

class GraphPlan final : public PassPlan {
 public:
  /// @param operations  what the engine was found for
  GraphPlan(CudaBackend& backend, const PassSpec& spec, bool rotated,
            std::shared_ptr<const graph::Operations> operations, graph::Engine engine, cudnnHandle_t cudnn)
      : backend_(backend),
        spec_(spec),
        rotated_(rotated),
        operations_(std::move(operations)),
        engine_(std::move(engine)),
        execution_(cudnn, engine_) {}

  [[nodiscard]] std::string name() const override { return (rotated_ ? "graph rotated " : "graph ") + engine_.name(); }
  [[nodiscard]] std::size_t scratch_bytes() const override { return execution_.scratch_bytes(); }
  [[nodiscard]] bool deterministic() const override { return engine_.deterministic(); }
  [[nodiscard]] bool rotated_weights() const override { return rotated_; }

  [[nodiscard]] cudnnStatus_t run(const Operands& o) const override {
    std::vector<void*>& addresses = addresses_;
    addresses.clear();
    for (const Place place : operations_->places()) addresses.push_back(address(o, place));
    addresses.push_back(o.scratch);
    auto pack = std::find_if(packs_.begin(), packs_.end(), [&](const Pack& p) { return p.addresses == addresses; });
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    try {
      if (pack == packs_.end())
        pack =
            packs_.insert(pack, {addresses, graph::variant_pack(operations_->places(), addresses.data(), o.scratch)});
      status = execution_.run(pack->variant);
    } catch (const graph::Refusal& refusal) {
      return refusal.status();
    }
    if (status == CUDNN_STATUS_SUCCESS) store_mask(backend_, spec_, o);
    return status;
  }

 private:
  /// Where the tensors lie in one call, as cuDNN wants to be told. A convolution's never move, so that steps find one.
  struct Pack {
    std::vector<void*> addresses;  ///< the last one is that of the scratch memory
    graph::Descriptor variant;
  };

  [[nodiscard]] static void* address(const Operands& o, Place place) {
    switch (place) {
      case Place::x:
        return const_cast<void*>(o.x);
      case Place::dy:
        return const_cast<void*>(o.dy);
      case Place::w:
        return const_cast<void*>(o.w);
      case Place::bias:
        return const_cast<void*>(o.rounded_bias);
      case Place::other:
        return const_cast<void*>(o.other);
      case Place::result:
        break;
    }
    return o.result;
  }

  CudaBackend& backend_;
  const PassSpec spec_;
  const bool rotated_;
  // What was made first is needed by what follows.
  const std::shared_ptr<const graph::Operations> operations_;
  const graph::Engine engine_;
  const graph::Execution execution_;
  mutable std::vector<Pack> packs_;
  mutable std::vector<void*> addresses_;
};

/// Engines beyond these are not worth a second of compilation each.
constexpr std::size_t kMostOfA = 8, kMostOfB = 4;

/// Recommended engines, each once, the best first. One mode may know what another refuses.
[[nodiscard]] std::vector<graph::Engine> recommended(const graph::Descriptor& of, bool fallback) {
  std::vector<graph::Engine> all;
  std::set<std::string> names;
  std::optional<graph::Refusal> refusal;
  const auto add = [&](cudnnBackendHeurMode_t mode, std::size_t most) {
    try {
      for (graph::Engine& engine : graph::engines(of, mode))
        if (most > 0 && names.insert(engine.name()).second) {
          all.push_back(std::move(engine));
          --most;
        }
    } catch (const graph::Refusal& why) {
      if (!refusal) refusal = why;
    }
  };
  if (fallback) {
    add(CUDNN_HEUR_MODE_FALLBACK, kMostOfA);
  } else {
    add(CUDNN_HEUR_MODE_A, kMostOfA);
    add(CUDNN_HEUR_MODE_B, kMostOfB);
  }
  if (all.empty() && refusal) throw graph::Refusal(*refusal);
  return all;
}

/// What one of the threads that build plans has made, by the engine's number in the recommendation.
struct Built {
  std::map<std::size_t, std::unique_ptr<const PassPlan>> plans;
  std::map<std::size_t, Plans::Refusal> refused;
};

/// Builds every step-th plan from the first-th on. cuDNN is safe to be called from several threads that do not share a
/// handle: each has its own, and its own graph, and its plans keep that handle for their calls.
[[nodiscard]] Built build(CudaBackend& backend, const PassSpec& spec, bool rotated, bool fallback, cudnnHandle_t cudnn,
                          std::size_t first, std::size_t step) {
  Built made;
  const std::string name = rotated ? "graph rotated" : "graph";
  try {
    check(cudaSetDevice(backend.gpu().index));
    const std::shared_ptr<graph::Operations> operations = describe(cudnn, spec, rotated);
    std::vector<graph::Engine> engines = recommended(operations->finish(), fallback);
    if (engines.empty() && first == 0) made.refused[0] = {name, "cuDNN recommends no engine"};
    for (std::size_t k = first; k < engines.size(); k += step) {
      const std::string engine = engines[k].name();
      try {
        made.plans[k] = std::make_unique<GraphPlan>(backend, spec, rotated, operations, std::move(engines[k]), cudnn);
      } catch (const graph::Refusal& refusal) {
        made.refused[k] = {name + " " + engine, refusal.what()};
      }
    }
  } catch (const std::exception& refusal) {  // the same for all threads
    if (first == 0) made.refused[0] = {name, refusal.what()};
  }
  return made;
}

/// Adds the plans of one graph in the order of the recommendation.
void add(CudaBackend& backend, const PassSpec& spec, bool rotated, bool fallback, Plans& all) {
  const std::vector<cudnnHandle_t> handles = backend.builders();
  std::vector<Built> built(handles.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < handles.size(); ++t)
      threads.emplace_back(
          [&, t] { built[t] = build(backend, spec, rotated, fallback, handles[t], t, handles.size()); });
  }
  Built merged;
  for (Built& part : built) {
    merged.plans.merge(part.plans);
    merged.refused.merge(part.refused);
  }
  const bool none = merged.plans.empty();
  for (auto& [number, plan] : merged.plans) all.plans.push_back(std::move(plan));
  for (auto& [number, refusal] : merged.refused)
    if (all.refused.empty() || all.refused.back().why != refusal.why) all.refused.push_back(std::move(refusal));
  if (none && !fallback) add(backend, spec, rotated, true, all);
}

}  // namespace

Plans graph_plans(CudaBackend& backend, const PassSpec& spec) {
  Plans all;
  const ConvSpec& s = spec.conv;
  if (!s.frozen || s.storage == DType::f32 || backend.deterministic()) return all;
  if (spec.pass == Pass::forward) {
    // cuDNN does not say that a result may lie where an operand does.
    if (!s.accumulate || s.keeps_residual) add(backend, spec, false, false, all);
  } else if (spec.through_relu) {
    if (s.stride == 1) add(backend, spec, true, false, all);
    add(backend, spec, false, false, all);
  }
  return all;
}

std::string graph_report(CudaBackend& backend) {
  const ConvSpec conv{.n = 8,
                      .c_in = 64,
                      .h = 32,
                      .w = 32,
                      .c_out = 64,
                      .frozen = true,
                      .relu = true,
                      .relu_input = true,
                      .storage = DType::f16};
  const Plans offered = graph_plans(backend, {conv, Pass::data, true});
  return offered.plans.empty() ? "not usable: " + offered.refused.front().why : "usable";
}

}  // namespace dat::cuda
