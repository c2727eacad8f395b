// cuDNN's graph API, as far as its documentation goes for a convolution and the point-wise operations after it. See
// double.hpp. Status codes are those of the documented categories; the library's own are finer.
//
// The engines stand for the three support surfaces of the generic runtime fusion engine (cuDNN's developer guide,
// "Supported Graph Patterns"), each with what it documents: compute capability, gradients, strides, alignment, data
// types. Beside them the heuristics recommend one that computes wrong numbers, one that takes long, one whose results
// vary, and one that never supports anything.

#include <cudnn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "double.hpp"
#include "storage.hpp"

using namespace dat_double;

namespace {

constexpr auto kOk = CUDNN_STATUS_SUCCESS, kBad = CUDNN_STATUS_BAD_PARAM, kUnsupported = CUDNN_STATUS_NOT_SUPPORTED,
               kNotReady = CUDNN_STATUS_NOT_INITIALIZED;

thread_local std::string last_words;
cudnnStatus_t refuse(cudnnStatus_t status, const std::string& words) {
  last_words = words;
  return status;
}

struct Attribute {
  cudnnBackendAttributeType_t type;
  std::vector<std::int64_t> words;  // of each element its bytes, and zeros
};

struct Graph;
struct Configuration;

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool final = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  std::shared_ptr<const Graph> graph;                         // operation graph
  std::vector<Configuration> results;                         // heuristics
  std::shared_ptr<const Configuration> configuration;         // engine, configuration, plan
  std::pair<cudnnBackendKnobType_t, std::int64_t> knob = {};  // choice of a knob
  std::map<std::int64_t, void*> addresses;                    // variant pack
  void* workspace = nullptr;

  [[nodiscard]] bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
  [[nodiscard]] std::size_t count(cudnnBackendAttributeName_t name) const {
    return has(name) ? attributes.at(name).words.size() : 0;
  }
  template <class T>
  [[nodiscard]] T get(cudnnBackendAttributeName_t name, std::size_t k = 0) const {
    T value{};
    std::memcpy(&value, &attributes.at(name).words.at(k), sizeof value);
    return value;
  }
  [[nodiscard]] const Descriptor& other(cudnnBackendAttributeName_t name, std::size_t k = 0) const {
    return *static_cast<const Descriptor*>(get<void*>(name, k));
  }
};

std::size_t size_of_type(cudnnBackendAttributeType_t type) {
  constexpr cudnnBackendAttributeType_t kWords[] = {CUDNN_TYPE_DATA_TYPE,      CUDNN_TYPE_CONVOLUTION_MODE,
                                                    CUDNN_TYPE_POINTWISE_MODE, CUDNN_TYPE_HEUR_MODE,
                                                    CUDNN_TYPE_KNOB_TYPE,      CUDNN_TYPE_FLOAT};
  if (type == CUDNN_TYPE_BOOLEAN) return sizeof(bool);
  return std::ranges::find(kWords, type) != std::end(kWords) ? 4 : 8;
}

using Type = cudnnBackendAttributeType_t;
/// What may be set, of which type, and how often it must be there at the end; -1: as often as it is set.
struct Rule {
  Type type;
  int count;
  bool needed = true;
};
using Rules = std::map<cudnnBackendAttributeName_t, Rule>;

/// Names of a convolution's attributes: x or dx, w, y or dy, its description, and factors of it and of what is there.
struct ConvolutionNames {
  cudnnBackendAttributeName_t x, w, y, conv, alpha, beta;
};
constexpr ConvolutionNames kForwardNames = {
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
constexpr ConvolutionNames kGradientNames = {
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};

const Rules& rules(cudnnBackendDescriptorType_t type) {
  constexpr Type kDescriptor = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  const auto convolution = [](const ConvolutionNames& n) {
    Rules all{{n.alpha, {CUDNN_TYPE_FLOAT, 1}}, {n.beta, {CUDNN_TYPE_FLOAT, 1}}};
    for (const auto one : {n.conv, n.x, n.w, n.y}) all[one] = {kDescriptor, 1};
    return all;
  };
  static const std::map<cudnnBackendDescriptorType_t, Rules> all = {
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
       {{CUDNN_ATTR_TENSOR_DATA_TYPE, {CUDNN_TYPE_DATA_TYPE, 1}},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, {CUDNN_TYPE_INT64, -1}},
        {CUDNN_ATTR_TENSOR_STRIDES, {CUDNN_TYPE_INT64, -1}},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, {CUDNN_TYPE_INT64, 1}},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {CUDNN_TYPE_INT64, 1}},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, {CUDNN_TYPE_BOOLEAN, 1, false}}}},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
       {{CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {CUDNN_TYPE_INT64, 1}},
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, {CUDNN_TYPE_DATA_TYPE, 1}},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, {CUDNN_TYPE_CONVOLUTION_MODE, 1}},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {CUDNN_TYPE_INT64, 2}},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {CUDNN_TYPE_INT64, 2}},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {CUDNN_TYPE_INT64, 2}},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, {CUDNN_TYPE_INT64, 2}}}},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
       {{CUDNN_ATTR_POINTWISE_MODE, {CUDNN_TYPE_POINTWISE_MODE, 1}},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, {CUDNN_TYPE_DATA_TYPE, 1}}}},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, convolution(kForwardNames)},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, convolution(kGradientNames)},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, {kDescriptor, 1}},
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {kDescriptor, 1, false}},
        {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, {kDescriptor, 1, false}},
        {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, {kDescriptor, 1, false}},
        {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, {kDescriptor, 1, false}},
        {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, {kDescriptor, 1, false}}}},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, {CUDNN_TYPE_HANDLE, 1}},
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, {kDescriptor, -1}}}},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
       {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {kDescriptor, 1}},
        {CUDNN_ATTR_ENGINEHEUR_MODE, {CUDNN_TYPE_HEUR_MODE, 1}}}},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
       {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, {CUDNN_TYPE_HANDLE, 1}},
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {kDescriptor, 1}}}},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
       {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {CUDNN_TYPE_INT64, -1}},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {CUDNN_TYPE_VOID_PTR, -1}},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {CUDNN_TYPE_VOID_PTR, 1}}}},
      // These the library fills in, too.
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR,
       {{CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {kDescriptor, 1}},
        {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {CUDNN_TYPE_INT64, 1}}}},
      {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
       {{CUDNN_ATTR_ENGINECFG_ENGINE, {kDescriptor, 1}},
        {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, {kDescriptor, -1, false}}}},
      {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
       {{CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, {CUDNN_TYPE_KNOB_TYPE, 1}},
        {CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, {CUDNN_TYPE_INT64, 1}}}}};
  static const Rules none;
  const auto it = all.find(type);
  return it == all.end() ? none : it->second;
}

struct Tensor {
  cudnnDataType_t type;
  std::vector<std::int64_t> dims, strides;
  std::int64_t id, alignment;
  bool is_virtual;

  [[nodiscard]] std::size_t elements() const {
    return std::size_t(std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>()));
  }
  [[nodiscard]] bool packed_nhwc() const {
    return dims.size() == 4 &&
           strides == std::vector{dims[1] * dims[2] * dims[3], std::int64_t{1}, dims[1] * dims[3], dims[1]};
  }
  [[nodiscard]] cudaDataType_t storage() const {
    return type == CUDNN_DATA_HALF ? CUDA_R_16F : type == CUDNN_DATA_BFLOAT16 ? CUDA_R_16BF : CUDA_R_32F;
  }
  [[nodiscard]] std::size_t bytes() const { return elements() * size_of(storage()); }
  /// Bits at which every pixel's channels begin.
  [[nodiscard]] std::int64_t alignment_bits() const {
    const std::int64_t pixel = dims[1] * static_cast<std::int64_t>(8 * size_of(storage()));
    return std::gcd(pixel, 8 * alignment);
  }
};
Tensor tensor(const Descriptor& d) {
  Tensor t{d.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
           {},
           {},
           d.get<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
           d.get<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
           d.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && d.get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)};
  for (std::size_t k = 0; k < d.count(CUDNN_ATTR_TENSOR_DIMENSIONS); ++k) {
    t.dims.push_back(d.get<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, k));
    t.strides.push_back(d.get<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES, k));
  }
  return t;
}

struct Operation {
  enum class Kind { convolution, gradient, add, relu, relu_gradient } kind;
  std::int64_t a, b, out;  // unique ids; convolution: x or dy, and w; relu_gradient: dy and x; b -1: there is none
  std::int64_t pad[2] = {0, 0}, stride[2] = {1, 1};
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  bool cross_correlation = true, dilated = false;
};

struct Graph {
  std::map<std::int64_t, Tensor> tensors;
  std::vector<Operation> operations;  // in an order in which they can be done
  [[nodiscard]] const Operation& convolution() const { return operations.front(); }
  [[nodiscard]] bool fused() const { return operations.size() > 1; }
};

/// An engine and its knobs.
struct Configuration {
  std::shared_ptr<const Graph> graph;
  std::int64_t engine;
  std::vector<std::pair<cudnnBackendKnobType_t, std::int64_t>> knobs;
};
// Engines. The first three bear the numbers of their support surfaces.
constexpr std::int64_t k90 = 90, k80 = 80, k70 = 70, kWrong = 1, kSlow = 2, kVaries = 3, kNothing = 4;

bool finished(const void* pointer, cudnnBackendDescriptorType_t type) {
  const auto* d = static_cast<const Descriptor*>(pointer);
  return d != nullptr && d->final && d->type == type;
}
template <class... Names>
bool tensors_finished(const Descriptor& d, Names... names) {
  return ((d.has(names) && finished(d.get<void*>(names), CUDNN_BACKEND_TENSOR_DESCRIPTOR)) && ...);
}

bool is_convolution(const Descriptor& d) {
  return d.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
         d.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
}

const ConvolutionNames& names_of(const Descriptor& d) {
  return d.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ? kForwardNames : kGradientNames;
}

/// The small tensor of the two, n and channels first, of a convolution: x or dx, w, y or dy.
bool fits(const Tensor& x, const Tensor& w, const Tensor& y, const Descriptor& conv) {
  if (x.dims.size() != 4 || w.dims.size() != 4 || y.dims.size() != 4) return false;
  const auto out = [&](std::size_t k) {
    const auto number = [&](auto name) { return conv.get<std::int64_t>(name, k); };
    const std::int64_t pads =
        number(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS) + number(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    const std::int64_t reach = (w.dims[2 + k] - 1) * number(CUDNN_ATTR_CONVOLUTION_DILATIONS) + 1;
    return (x.dims[2 + k] + pads - reach) / number(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES) + 1;
  };
  return x.dims[0] == y.dims[0] && x.dims[1] == w.dims[1] && y.dims[1] == w.dims[0] && y.dims[2] == out(0) &&
         y.dims[3] == out(1);
}

cudnnStatus_t finalize_tensor(Descriptor& d) {
  const auto alignment = d.get<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  if (d.count(CUDNN_ATTR_TENSOR_DIMENSIONS) != d.count(CUDNN_ATTR_TENSOR_STRIDES) ||
      d.count(CUDNN_ATTR_TENSOR_DIMENSIONS) > CUDNN_DIM_MAX || alignment < 1 || (alignment & (alignment - 1)) != 0)
    return refuse(kBad, "dimensions, strides or alignment of a tensor");
  return kOk;
}

cudnnStatus_t finalize_convolution(Descriptor& d) {
  const auto [x, w, y, conv, alpha, beta] = names_of(d);
  if (!tensors_finished(d, x, w, y) || !finished(d.get<void*>(conv), CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR))
    return refuse(kBad, "a descriptor of the convolution is not finalized");
  if (!fits(tensor(d.other(x)), tensor(d.other(w)), tensor(d.other(y)), d.other(conv)))
    return refuse(kBad, "the shapes of the convolution do not fit");
  if (d.get<float>(alpha) != 1 || d.get<float>(beta) != 0) return refuse(kUnsupported, "a convolution with factors");
  return kOk;
}

cudnnStatus_t finalize_pointwise(Descriptor& d) {
  if (!finished(d.get<void*>(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), CUDNN_BACKEND_POINTWISE_DESCRIPTOR))
    return refuse(kBad, "the point-wise descriptor is not finalized");
  bool complete = false;
  switch (d.other(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR).get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE)) {
    case CUDNN_POINTWISE_ADD:
      complete = tensors_finished(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                  CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
      break;
    case CUDNN_POINTWISE_RELU_FWD:
      complete = tensors_finished(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
      break;
    case CUDNN_POINTWISE_RELU_BWD:
      complete = tensors_finished(d, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                  CUDNN_ATTR_OPERATION_POINTWISE_DXDESC);
      break;
    default:
      return refuse(kUnsupported, "a point-wise mode that the double does not know");
  }
  return complete ? kOk : refuse(kBad, "a tensor of the point-wise operation is missing");
}

Operation operation(const Descriptor& d, std::map<std::int64_t, Tensor>& tensors, bool& consistent) {
  const auto id = [&](cudnnBackendAttributeName_t name) {
    const Tensor t = tensor(d.other(name));
    const auto [it, fresh] = tensors.emplace(t.id, t);
    if (!fresh && (it->second.dims != t.dims || it->second.type != t.type)) consistent = false;
    return t.id;
  };
  if (!is_convolution(d)) {
    const Descriptor& pw = d.other(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    Operation o{};
    o.compute = pw.get<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC);
    switch (pw.get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE)) {
      case CUDNN_POINTWISE_RELU_BWD:
        o.kind = Operation::Kind::relu_gradient;
        o.a = id(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC);
        o.b = id(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
        o.out = id(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC);
        return o;
      case CUDNN_POINTWISE_ADD:
        o.kind = Operation::Kind::add;
        o.b = id(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
        break;
      default:
        o.kind = Operation::Kind::relu;
        o.b = -1;
    }
    o.a = id(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    o.out = id(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    return o;
  }
  const bool forward = d.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
  const ConvolutionNames& names = names_of(d);
  const Descriptor& conv = d.other(names.conv);
  Operation o{};
  o.kind = forward ? Operation::Kind::convolution : Operation::Kind::gradient;
  o.a = id(forward ? names.x : names.y);
  o.b = id(names.w);
  o.out = id(forward ? names.y : names.x);
  o.compute = conv.get<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
  o.cross_correlation = conv.get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION;
  for (std::size_t k = 0; k < 2; ++k) {
    o.pad[k] = conv.get<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, k);
    o.stride[k] = conv.get<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, k);
    o.dilated |= conv.get<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, k) != 1;
  }
  return o;
}

cudnnStatus_t finalize_graph(Descriptor& d) {
  auto graph = std::make_shared<Graph>();
  bool consistent = true;
  for (std::size_t k = 0; k < d.count(CUDNN_ATTR_OPERATIONGRAPH_OPS); ++k) {
    const auto* one = static_cast<const Descriptor*>(d.get<void*>(CUDNN_ATTR_OPERATIONGRAPH_OPS, k));
    if (one == nullptr || !one->final ||
        (!is_convolution(*one) && one->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR))
      return refuse(kBad, "an operation is not finalized, or none");
    graph->operations.push_back(operation(*one, graph->tensors, consistent));
  }
  if (!consistent) return refuse(kBad, "two tensors with one unique id");
  if (d.get<void*>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE) == nullptr) return refuse(kBad, "no handle");
  d.graph = std::move(graph);
  return kOk;
}

/// Why a support surface does not have the graph; empty: it has it.
std::string lacks(const Graph& g, std::int64_t surface) {
  using Kind = Operation::Kind;
  if (capability() < surface) return "compute capability\nbelow " + std::to_string(surface);
  const Operation& conv = g.convolution();
  const bool gradient = conv.kind == Kind::gradient;
  if (conv.kind != Kind::convolution && !gradient) return "the graph does not begin with a convolution";
  if (!g.fused()) return "the double has no engine for a single operation";
  if (gradient && surface == k80) return "ConvolutionBwdData fusions";
  if (gradient && surface == k90 && (conv.stride[0] != 1 || conv.stride[1] != 1))
    return "strided ConvolutionBwdData fusions";
  if (conv.compute != CUDNN_DATA_FLOAT || !conv.cross_correlation || conv.dilated) return "this convolution";
  std::set<std::int64_t> written, read;
  std::int64_t previous = -1;
  for (const Operation& o : g.operations) {
    if (o.compute != CUDNN_DATA_FLOAT) return "a compute type other than FLOAT";
    if (&o != &conv) {
      if (o.kind == Kind::convolution || o.kind == Kind::gradient) return "a second convolution";
      // The tensor from the convolution comes first, and what is broadcast does not.
      if (o.a != previous) return "a first operand that does not come from the convolution";
      if (g.tensors.at(o.a).dims != g.tensors.at(o.out).dims) return "a broadcast first operand";
    }
    read.insert({o.a, o.b});
    written.insert(o.out);
    previous = o.out;
  }
  read.erase(-1);
  for (const auto& [id, t] : g.tensors) {
    const bool input = !written.contains(id), output = !t.is_virtual && !input;
    if (t.is_virtual != (written.contains(id) && read.contains(id))) return "a virtual tensor that is no intermediate";
    if (t.is_virtual && t.type != CUDNN_DATA_FLOAT) return "an intermediate that is not FLOAT";
    if (!t.packed_nhwc()) return "a layout other than packed NHWC";
    if (t.type == CUDNN_DATA_BOOLEAN && (!output || surface != k70)) return "BOOLEAN tensors";
    if (t.type != CUDNN_DATA_HALF && t.type != CUDNN_DATA_BFLOAT16 && t.type != CUDNN_DATA_FLOAT)
      return "a data type that the double does not compute";
    const bool mainloop = id == conv.a || id == conv.b;
    const std::int64_t needed = surface == k90 && mainloop ? 128 : surface == k70 && input ? 32 : 8;
    if (t.alignment_bits() % needed != 0) return "an alignment below " + std::to_string(needed) + " bits";
    if (!mainloop && !t.is_virtual && t.dims != g.tensors.at(conv.out).dims &&
        t.dims != std::vector{std::int64_t{1}, g.tensors.at(conv.out).dims[1], std::int64_t{1}, std::int64_t{1}})
      return "the shape of an operand";
  }
  const cudnnDataType_t storage = g.tensors.at(conv.a).type;
  if (g.tensors.at(conv.b).type != storage) return "mixed input types";
  return "";
}
std::string lacks(const Configuration& c) {
  return lacks(*c.graph, c.engine == k90 || c.engine == k80 ? c.engine : k70);
}

cudnnStatus_t finalize_heuristics(Descriptor& d) {
  if (!finished(d.get<void*>(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR))
    return refuse(kBad, "the operation graph is not finalized");
  if (graph_switches().refuse) return refuse(kUnsupported, "the double was told to refuse every graph");
  const auto graph = d.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).graph;
  if (const std::string why = lacks(*graph, k70); !why.empty()) return refuse(kUnsupported, "no engine: " + why);
  const auto add = [&](std::int64_t engine, std::int64_t tile) {
    d.results.push_back({graph, engine, {{CUDNN_KNOB_TYPE_TILE_SIZE, tile}}});
  };
  switch (d.get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE)) {
    case CUDNN_HEUR_MODE_A:
      ++graph_switches().asked_a;
      add(kWrong, 1);
      add(k90, 1);
      add(kNothing, 1);
      add(k80, 2);
      add(k80, 3);
      add(k70, 3);
      d.results.resize(std::min(d.results.size(), graph_switches().most_of_a));
      break;
    case CUDNN_HEUR_MODE_B:
      ++graph_switches().asked_b;
      add(k90, 1);
      add(kSlow, 1);
      add(kVaries, 1);
      break;
    case CUDNN_HEUR_MODE_FALLBACK:
      add(k70, 1);
      break;
    default:
      return refuse(kUnsupported, "this mode of heuristics");
  }
  return kOk;
}

cudnnStatus_t finalize_engine(Descriptor& d) {
  if (!finished(d.get<void*>(CUDNN_ATTR_ENGINE_OPERATION_GRAPH), CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR))
    return refuse(kBad, "the operation graph is not finalized");
  const auto engine = d.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  if (const std::set all{k90, k80, k70, kWrong, kSlow, kVaries, kNothing}; !all.contains(engine))
    return refuse(kUnsupported, "no engine of this number");
  d.configuration = std::make_shared<const Configuration>(
      Configuration{d.other(CUDNN_ATTR_ENGINE_OPERATION_GRAPH).graph, engine, {}});
  return kOk;
}

cudnnStatus_t finalize_knob(Descriptor& d) {
  d.knob = {d.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE),
            d.get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)};
  return kOk;
}

cudnnStatus_t finalize_configuration(Descriptor& d) {
  if (!finished(d.get<void*>(CUDNN_ATTR_ENGINECFG_ENGINE), CUDNN_BACKEND_ENGINE_DESCRIPTOR))
    return refuse(kBad, "the engine is not finalized");
  Configuration made = *d.other(CUDNN_ATTR_ENGINECFG_ENGINE).configuration;
  for (std::size_t k = 0; k < d.count(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES); ++k) {
    if (!finished(d.get<void*>(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, k), CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR))
      return refuse(kBad, "a knob is not finalized");
    const auto& knob = d.other(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, k).knob;
    if (knob.first != CUDNN_KNOB_TYPE_TILE_SIZE || knob.second < 1 || knob.second > 3)
      return refuse(kUnsupported, "a knob, or its value, that the engine does not have");
    made.knobs.push_back(knob);
  }
  d.configuration = std::make_shared<const Configuration>(std::move(made));
  return kOk;
}

/// The handle in use by this thread, and by no other one at the same time.
class InUse {
 public:
  explicit InUse(void* handle) : handle_(handle) {
    const std::lock_guard guard(mutex());
    if (!all().insert(handle).second) fail("two threads use one cuDNN handle at the same time");
    int& most = graph_switches().most_at_once;
    most = std::max(most, static_cast<int>(all().size()));
  }
  ~InUse() {
    const std::lock_guard guard(mutex());
    all().erase(handle_);
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::set<void*>& all() {
    static std::set<void*> handles;
    return handles;
  }
  void* handle_;
};

/// As long as the switch says; or, for whole programs, DAT_DOUBLE_ENGINE_MS, one thread after the other.
void compile() {
  ++graph_switches().built;
  static const char* const milliseconds = std::getenv("DAT_DOUBLE_ENGINE_MS");
  if (milliseconds == nullptr) return std::this_thread::sleep_for(graph_switches().compile);
  static std::mutex one;
  const std::lock_guard guard(one);
  std::this_thread::sleep_for(std::chrono::milliseconds(std::strtol(milliseconds, nullptr, 10)));
}

cudnnStatus_t finalize_plan(Descriptor& d) {
  const auto* config = static_cast<const Descriptor*>(d.get<void*>(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
  if (!finished(config, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR))
    return refuse(kBad, "the engine configuration is not finalized");
  void* const handle = d.get<void*>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
  if (handle == nullptr) return refuse(kBad, "no handle");
  const InUse in_use(handle);
  compile();
  if (config->configuration->engine == kNothing || graph_switches().unbuilt) return refuse(kUnsupported, "");
  if (const std::string why = lacks(*config->configuration); !why.empty())
    return refuse(kUnsupported, "not supported: " + why);
  d.configuration = config->configuration;
  return kOk;
}

cudnnStatus_t finalize_pack(Descriptor& d) {
  if (d.count(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) != d.count(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS))
    return refuse(kBad, "not as many addresses as unique ids");
  for (std::size_t k = 0; k < d.count(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS); ++k)
    if (!d.addresses
             .emplace(d.get<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, k),
                      d.get<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, k))
             .second)
      return refuse(kBad, "a unique id twice");
  d.workspace = d.get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  return kOk;
}

constexpr std::size_t kWorkspace = 4096;
std::size_t workspace_bytes(const Configuration& c) { return c.engine == k90 ? kWorkspace : 0; }

using Numbers = std::vector<double>;

/// The convolution of a graph, or its gradient, in double precision.
Numbers convolve(const Graph& g, const std::vector<float>& from, const std::vector<float>& w) {
  const Operation& o = g.convolution();
  const auto &in = g.tensors.at(o.a).dims, &filter = g.tensors.at(o.b).dims, &out = g.tensors.at(o.out).dims;
  const bool gradient = o.kind == Operation::Kind::gradient;
  const auto channels_in = static_cast<std::size_t>(in[1]), channels_out = static_cast<std::size_t>(out[1]);
  // As [r][s][from][to].
  Numbers turned(w.size());
  const auto per_filter = static_cast<std::size_t>(filter[1]);
  const auto taps = static_cast<std::size_t>(filter[2] * filter[3]);
  for (std::size_t k = 0; k < static_cast<std::size_t>(filter[0]); ++k)
    for (std::size_t tap = 0; tap < taps; ++tap)
      for (std::size_t c = 0; c < per_filter; ++c) {
        const std::size_t a = gradient ? k : c, b = gradient ? c : k;
        turned[(tap * channels_in + a) * channels_out + b] = w[(k * taps + tap) * per_filter + c];
      }
  Numbers result(g.tensors.at(o.out).elements());
#pragma omp parallel for collapse(2) schedule(static)
  for (std::int64_t n = 0; n < out[0]; ++n)
    for (std::int64_t p = 0; p < out[2]; ++p)
      for (std::int64_t q = 0; q < out[3]; ++q)
        for (std::int64_t r = 0; r < filter[2]; ++r)
          for (std::int64_t s = 0; s < filter[3]; ++s) {
            std::int64_t h = p * o.stride[0] - o.pad[0] + r, v = q * o.stride[1] - o.pad[1] + s;
            if (gradient) {
              h = p + o.pad[0] - r;
              v = q + o.pad[1] - s;
              if (h % o.stride[0] != 0 || v % o.stride[1] != 0) continue;
              h /= o.stride[0];
              v /= o.stride[1];
            }
            if (h < 0 || h >= in[2] || v < 0 || v >= in[3]) continue;
            const float* const x = &from[static_cast<std::size_t>((n * in[2] + h) * in[3] + v) * channels_in];
            double* const y = &result[static_cast<std::size_t>((n * out[2] + p) * out[3] + q) * channels_out];
            const double* weights = &turned[static_cast<std::size_t>(r * filter[3] + s) * channels_in * channels_out];
            for (std::size_t c = 0; c < channels_in; ++c, weights += channels_out)
#pragma omp simd
              for (std::size_t k = 0; k < channels_out; ++k) y[k] += double(x[c]) * weights[k];
          }
  return result;
}

void compute(const Configuration& c, const std::map<std::int64_t, void*>& at) {
  const Graph& g = *c.graph;
  const auto input = [&](std::int64_t id) {
    const Tensor& t = g.tensors.at(id);
    return read(at.at(id), t.storage(), t.elements(), false);
  };
  const Operation& conv = g.convolution();
  Numbers value = convolve(g, input(conv.a), input(conv.b));
  for (const Operation& o : g.operations) {
    if (&o == &conv) continue;
    if (o.kind == Operation::Kind::relu) {
      for (double& v : value) v = v > 0 ? v : 0;
      continue;
    }
    const std::vector<float> b = input(o.b);
    const bool gradient = o.kind == Operation::Kind::relu_gradient, zeros = graph_switches().open_zeros;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const double operand = b[i % b.size()];  // one value per channel, or all of them: channels are innermost
      value[i] = gradient ? (operand > 0 || (zeros && operand == 0) ? value[i] : 0) : value[i] + operand;
    }
  }
  static std::atomic<unsigned> calls = 0;
  const double noise = c.engine == kVaries && calls++ % 2 == 1 ? 1 + 0x1p-22 : 1;
  const bool wrong = c.engine == kWrong || graph_switches().wrong;
  const Operation& last = g.operations.back();
  const Tensor& result = g.tensors.at(last.out);
#pragma omp parallel for schedule(static)
  for (std::size_t i = 0; i < value.size(); ++i)
    blend(at.at(last.out), result.storage(), i, value[i] * noise * (wrong && i % 16 == 5 ? 1.2 : 1), 0);
  const int slow = c.engine == kSlow ? 10 : c.engine == kVaries ? 1 : 0;
  dat_double::rest(graph_switches().device + std::chrono::milliseconds(slow));
}

/// Copies what an attribute is into the caller's array.
template <class T>
cudnnStatus_t give(const std::vector<T>& values, std::int64_t requested, std::int64_t* count, void* array) {
  if (count != nullptr) *count = static_cast<std::int64_t>(values.size());
  if (requested > 0 && array == nullptr) return refuse(kBad, "no array");
  const auto n = std::min(values.size(), static_cast<std::size_t>(std::max<std::int64_t>(requested, 0)));
  if (n > 0) std::memcpy(array, values.data(), n * sizeof(T));
  return kOk;
}
/// Fills in descriptors that the caller has made.
template <class F>
cudnnStatus_t fill(std::size_t there, cudnnBackendDescriptorType_t type, std::int64_t requested, std::int64_t* count,
                   void* array, const F& one) {
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(requested, 0));
  if (wanted > 0 && array == nullptr) return refuse(kBad, "no array");
  if (count != nullptr) *count = static_cast<std::int64_t>(wanted == 0 ? there : std::min(there, wanted));
  for (std::size_t k = 0; k < std::min(there, wanted); ++k) {
    auto* d = static_cast<Descriptor*>(static_cast<void**>(array)[k]);
    if (d == nullptr || d->type != type) return refuse(kBad, "a descriptor of another type");
    one(*d, k);
    d->final = true;
  }
  return kOk;
}

}  // namespace

namespace dat_double {
GraphSwitches& graph_switches() {
  static GraphSwitches s;
  return s;
}
}  // namespace dat_double

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made) {
  if (made == nullptr) return refuse(kBad, "nowhere to put the descriptor");
  if (rules(type).empty()) return refuse(kUnsupported, "a type of descriptor that the double does not know");
  auto* d = new Descriptor{};
  d->type = type;
  *made = d;
  ++graph_switches().descriptors;
  return kOk;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  if (descriptor == nullptr) return refuse(kBad, "no descriptor");
  --graph_switches().descriptors;
  delete static_cast<Descriptor*>(descriptor);
  return kOk;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  auto* d = static_cast<Descriptor*>(descriptor);
  if (d == nullptr || values == nullptr || count < 1) return refuse(kBad, "no descriptor, or no values");
  if (d->final) return refuse(kNotReady, "the descriptor is finalized already");
  const auto rule = rules(d->type).find(name);
  if (rule == rules(d->type).end()) return refuse(kBad, "no attribute of this descriptor");
  if (rule->second.type != type) return refuse(kBad, "another type of attribute");
  if (rule->second.count > 0 && rule->second.count != count) return refuse(kBad, "another number of values");
  Attribute a{type, std::vector<std::int64_t>(static_cast<std::size_t>(count))};
  const std::size_t size = size_of_type(type);
  for (std::size_t k = 0; k < a.words.size(); ++k)
    std::memcpy(&a.words[k], static_cast<const char*>(values) + k * size, size);
  d->attributes[name] = std::move(a);
  return kOk;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  auto* d = static_cast<Descriptor*>(descriptor);
  if (d == nullptr) return refuse(kBad, "no descriptor");
  if (d->final) return refuse(kNotReady, "the descriptor is finalized already");
  for (const auto& [name, rule] : rules(d->type))
    if (rule.needed && !d->has(name))
      return refuse(kBad, "attribute " + std::to_string(static_cast<int>(name)) + " is missing");
  static const std::map<cudnnBackendDescriptorType_t, cudnnStatus_t (*)(Descriptor&)> all = {
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, finalize_tensor},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, finalize_convolution},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, finalize_convolution},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, finalize_pointwise},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, finalize_graph},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, finalize_heuristics},
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR, finalize_engine},
      {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, finalize_knob},
      {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, finalize_configuration},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, finalize_plan},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, finalize_pack}};
  const auto own = all.find(d->type);
  const cudnnStatus_t status = own == all.end() ? kOk : own->second(*d);
  d->final = status == kOk;
  return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t requested, std::int64_t* count,
                                       void* array) {
  const auto* d = static_cast<const Descriptor*>(descriptor);
  if (d == nullptr || requested < 0) return refuse(kBad, "no descriptor");
  if (!d->final) return refuse(kNotReady, "the descriptor is not finalized");
  const auto is = [&](cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t what, Type as) {
    return d->type == of && name == what && type == as;
  };
  if (is(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR))
    return fill(d->results.size(), CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, requested, count, array,
                [&](Descriptor& to, std::size_t k) {
                  to.configuration = std::make_shared<const Configuration>(d->results[k]);
                });
  if (is(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR))
    return fill(1, CUDNN_BACKEND_ENGINE_DESCRIPTOR, requested, count, array,
                [&](Descriptor& to, std::size_t) { to.configuration = d->configuration; });
  if (is(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR))
    return fill(d->configuration->knobs.size(), CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, requested, count, array,
                [&](Descriptor& to, std::size_t k) { to.knob = d->configuration->knobs[k]; });
  if (is(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE))
    return give(std::vector{d->knob.first}, requested, count, array);
  if (is(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64))
    return give(std::vector{d->knob.second}, requested, count, array);
  if (is(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64))
    return give(std::vector{d->configuration->engine}, requested, count, array);
  if (is(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE)) {
    std::vector notes{CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    if (d->configuration->engine == kVaries) notes.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    return give(notes, requested, count, array);
  }
  if (is(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64))
    return give(std::vector{static_cast<std::int64_t>(workspace_bytes(*d->configuration))}, requested, count, array);
  return refuse(kBad, "no attribute of this descriptor that can be read");
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  if (handle == nullptr || !finished(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) ||
      !finished(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR))
    return refuse(kBad, "no finalized plan, or no finalized variant pack");
  const InUse in_use(handle);
  const auto configuration = static_cast<const Descriptor*>(plan)->configuration;
  const auto& to = *static_cast<const Descriptor*>(pack);
  const Graph& g = *configuration->graph;
  for (const auto& [id, t] : g.tensors) {
    if (t.is_virtual) continue;
    const auto it = to.addresses.find(id);
    if (it == to.addresses.end() || it->second == nullptr) return refuse(kBad, "a tensor without an address");
    if (reinterpret_cast<std::uintptr_t>(it->second) % static_cast<std::uintptr_t>(t.alignment) != 0)
      return refuse(kBad, "an address that is not aligned as its tensor says");
  }
  const std::int64_t written = g.operations.back().out;
  const auto* out = static_cast<const char*>(to.addresses.at(written));
  for (const auto& [id, t] : g.tensors) {
    if (t.is_virtual) continue;
    // Nothing is said of a result that lies where an operand does.
    const auto* in = static_cast<const char*>(to.addresses.at(id));
    if (id != written && in < out + g.tensors.at(written).bytes() && out < in + t.bytes())
      return refuse(kBad, "the result overlaps an operand");
    require_device("cudnnBackendExecute", "a tensor", in, t.bytes());
  }
  const std::size_t bytes = workspace_bytes(*configuration);
  require_device("cudnnBackendExecute", "the workspace", to.workspace, bytes);
  const auto work = [configuration, addresses = to.addresses, workspace = to.workspace, bytes] {
    scribble(workspace, bytes);
    compute(*configuration, addresses);
  };
  return enqueue(handle->stream, work, {}, "cuDNN engine") == cudaSuccess ? kOk : CUDNN_STATUS_EXECUTION_FAILED;
}

void cudnnGetLastErrorString(char* message, std::size_t size) {
  if (message == nullptr || size == 0) return;
  std::strncpy(message, last_words.c_str(), size - 1);
  message[size - 1] = '\0';
}
}
