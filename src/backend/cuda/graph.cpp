#include "backend/cuda/graph.hpp"

#include <algorithm>
#include <sstream>

#include "dat/number.hpp"

namespace dat::cuda::graph {

namespace {

/// Throws Refusal unless the status is success.
void ask(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::string why = std::string(call) + ": " + cudnnGetErrorString(status);
#if CUDNN_MAJOR >= 9
  char words[512] = "";
  cudnnGetLastErrorString(words, sizeof words);
  if (const std::string said = words; !said.empty()) why += " (" + said + ")";
  std::ranges::replace(why, '\n', ' ');
#endif
  throw Refusal(status, why);
}

constexpr std::int64_t kAlignment = 16;  // bytes; the planner and the backend align to 64

/// cuDNN's names of a convolution, or of its input gradient, and of its operands.
struct ConvolutionNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, from, w, to, alpha, beta;
};
constexpr ConvolutionNames kConvolution = {.operation = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                           .convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                           .from = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                           .w = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                           .to = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                           .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                           .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
constexpr ConvolutionNames kConvolutionGradient = {
    .operation = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    .convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
    .from = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
    .w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
    .to = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
    .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
    .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};

}  // namespace

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made{};
  ask(cudnnBackendCreateDescriptor(type, &made), "cudnnBackendCreateDescriptor");
  descriptor_.reset(made);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                     const void* values) {
  ask(cudnnBackendSetAttribute(raw(), name, type, count, values), "cudnnBackendSetAttribute");
}

void Descriptor::finalize() { ask(cudnnBackendFinalize(raw()), "cudnnBackendFinalize"); }

std::int64_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t most,
                             void* values) const {
  std::int64_t count{};
  ask(cudnnBackendGetAttribute(raw(), name, type, most, &count, values), "cudnnBackendGetAttribute");
  return count;
}

Descriptor& Operations::tensor(cudnnDataType_t type, std::int64_t id, const Shape& s, bool is_virtual) {
  Descriptor& t = parts_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::vector{s.n, s.c, s.h, s.w});
  t.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::vector{s.c * s.h * s.w, std::int64_t{1}, s.c * s.w, s.c});
  t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment);
  t.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  t.finalize();
  return t;
}

Descriptor& Operations::in_memory(Place place, const Shape& shape) {
  places_.push_back(place);
  return tensor(storage_, static_cast<std::int64_t>(place), shape, false);
}

Descriptor& Operations::between(const Shape& shape) { return tensor(CUDNN_DATA_FLOAT, next_virtual_++, shape, true); }

void Operations::convolution(const Descriptor& from, const Descriptor& w, const Descriptor& to, int pad, int stride,
                             bool gradient) {
  const ConvolutionNames& names = gradient ? kConvolutionGradient : kConvolution;
  const std::vector<std::int64_t> pads(2, pad), strides(2, stride), dilations(2, 1);
  Descriptor& c = parts_.emplace_back(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  c.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::ssize(pads));
  c.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  c.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  c.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, pads);
  c.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, pads);
  c.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, strides);
  c.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dilations);
  c.finalize();
  Descriptor& o = parts_.emplace_back(names.operation);
  o.set(names.convolution, c);
  o.set(names.from, from);
  o.set(names.w, w);
  o.set(names.to, to);
  o.set(names.alpha, CUDNN_TYPE_FLOAT, 1.0F);
  o.set(names.beta, CUDNN_TYPE_FLOAT, 0.0F);
  o.finalize();
  operations_.push_back(o.raw());
}

void Operations::pointwise(cudnnPointwiseMode_t mode,
                           std::initializer_list<std::pair<cudnnBackendAttributeName_t, const Descriptor*>> tensors) {
  Descriptor& p = parts_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  p.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  p.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  p.finalize();
  Descriptor& o = parts_.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  o.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
  for (const auto& [name, operand] : tensors) o.set(name, *operand);
  o.finalize();
  operations_.push_back(o.raw());
}

void Operations::add(const Descriptor& a, const Descriptor& b, const Descriptor& y) {
  pointwise(CUDNN_POINTWISE_ADD, {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &a},
                                  {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &b},
                                  {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &y}});
}

void Operations::relu(const Descriptor& a, const Descriptor& y) {
  pointwise(CUDNN_POINTWISE_RELU_FWD,
            {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &a}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &y}});
}

void Operations::relu_gradient(const Descriptor& dy, const Descriptor& x, const Descriptor& dx) {
  pointwise(CUDNN_POINTWISE_RELU_BWD, {{CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, &dy},
                                       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &x},
                                       {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, &dx}});
}

const Descriptor& Operations::finish() {
  Descriptor& g = parts_.emplace_back(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  g.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_);
  g.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_);
  g.finalize();
  return g;
}

namespace {

/// Content of a plan's name.
struct Named {
  std::int64_t engine = -1;
  std::vector<std::pair<cudnnBackendKnobType_t, std::int64_t>> knobs;
};

/// Throws Refusal where the text is no name of an engine. The library knows the engines and knobs.
[[nodiscard]] Named parse(const std::string& name) {
  std::istringstream words(name);
  std::string word;
  Named named;
  bool right = words >> word && word == "engine" && words >> word && read_number(word, named.engine);
  while (words >> word) {
    const auto equals = word.find('=');
    unsigned type{};
    std::int64_t value{};
    right = right && equals != std::string::npos && read_number(word.substr(0, equals), type) &&
            read_number(word.substr(equals + 1), value);
    named.knobs.emplace_back(static_cast<cudnnBackendKnobType_t>(type), value);
  }
  if (!right) throw Refusal(CUDNN_STATUS_BAD_PARAM, "'" + name + "' names no engine");
  return named;
}

/// Descriptors that the library fills in: values of an attribute, up to `most`.
[[nodiscard]] std::vector<Descriptor> filled(const Descriptor& from, cudnnBackendAttributeName_t name,
                                             cudnnBackendDescriptorType_t type, std::int64_t most) {
  std::vector<Descriptor> all;
  std::generate_n(std::back_inserter(all), most, [&] { return Descriptor(type); });
  std::vector<cudnnBackendDescriptor_t> raw;
  std::ranges::transform(all, std::back_inserter(raw), &Descriptor::raw);
  all.erase(all.begin() + from.get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw), all.end());
  return all;
}

/// The name of a configuration that the heuristics have made.
[[nodiscard]] std::string name_of(const Descriptor& configuration) {
  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  std::array raw{engine.raw()};
  (void)configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw);
  std::string name = "engine " + std::to_string(engine.value(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  for (const Descriptor& knob : filled(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                       CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS)) {
    const auto type = knob.value<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE);
    name += " " + std::to_string(static_cast<int>(type)) + "=" +
            std::to_string(knob.value(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  }
  return name;
}

}  // namespace

Engine::Engine(const Descriptor& graph, const std::string& name) {
  const Named named = parse(name);
  Descriptor& engine = parts_.emplace_back(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
  engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, named.engine);
  engine.finalize();
  std::vector<cudnnBackendDescriptor_t> knobs;
  for (const auto& [type, value] : named.knobs) {
    Descriptor& knob = parts_.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, type);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, value);
    knob.finalize();
    knobs.push_back(knob.raw());
  }
  Descriptor& configuration = parts_.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  configuration.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!knobs.empty()) configuration.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, knobs);
  configuration.finalize();
}

bool Engine::deterministic() const {
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  const std::int64_t noted = parts_.front().get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes);
  return std::find(notes, notes + noted, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == notes + noted;
}

std::vector<std::string> recommended(const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  heuristics.finalize();
  std::vector<cudnnBackendDescriptor_t> none;
  const std::int64_t count = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, none);
  std::vector<std::string> names;
  std::ranges::transform(filled(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count),
                         std::back_inserter(names), name_of);
  return names;
}

Execution::Execution(cudnnHandle_t handle, const Engine& engine)
    : handle_(handle), plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine.configuration());
  plan_.finalize();
  scratch_ = static_cast<std::size_t>(plan_.value(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
}

Descriptor variant_pack(const std::vector<Place>& places, void* const* addresses, void* scratch) {
  std::vector<std::int64_t> ids;
  for (const Place place : places) ids.push_back(static_cast<std::int64_t>(place));
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(ids), addresses);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, scratch);
  pack.finalize();
  return pack;
}

}  // namespace dat::cuda::graph
