#include "interop/onnx.hpp"

#include <cstring>
#include <ostream>
#include <utility>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "files/protobuf.hpp"

namespace dat {

namespace {

// Numbers of fields and values of enums, as onnx.proto has them.
enum { kModelIrVersion = 1, kModelProducerName = 2, kModelProducerVersion = 3 };
enum { kModelGraph = 7, kModelOpsetImport = 8, kModelMetadataProps = 14 };
enum { kOpsetDomain = 1, kOpsetVersion = 2 };
enum { kPropertyKey = 1, kPropertyValue = 2 };
enum { kGraphNode = 1, kGraphName = 2, kGraphInitializer = 5, kGraphInput = 11, kGraphOutput = 12 };
enum { kNodeInput = 1, kNodeOutput = 2, kNodeName = 3, kNodeOpType = 4, kNodeAttribute = 5 };
enum { kAttributeName = 1, kAttributeF = 2, kAttributeI = 3, kAttributeInts = 8, kAttributeType = 20 };
enum { kTensorDims = 1, kTensorDataType = 2, kTensorName = 8, kTensorRawData = 9 };
enum { kValueName = 1, kValueType = 2 };
enum { kTypeTensorType = 1, kTypeElemType = 1, kTypeShape = 2, kTypeDim = 1, kTypeDimValue = 1, kTypeDimParam = 2 };
constexpr std::int64_t kFloatTensor = 1, kFloatAttribute = 1, kIntAttribute = 2, kIntsAttribute = 7;
constexpr std::int64_t kIrVersion = 8, kOpset = 17;
const char *const kMean = "normalize.mean", *const kDeviation = "normalize.std";

/// A NodeProto with one result, field by field.
class Operator {
 public:
  Operator(const char* type, const std::vector<std::string>& inputs, const std::string& output) {
    for (const std::string& input : inputs) message_.bytes(kNodeInput, input);
    message_.bytes(kNodeOutput, output);
    message_.bytes(kNodeName, output);
    message_.bytes(kNodeOpType, type);
  }
  Operator& with(const char* name, float value) {
    return add(name, kFloatAttribute, [&](ProtobufMessage& to) { to.real(kAttributeF, value); });
  }
  Operator& with(const char* name, std::int64_t value) {
    return add(name, kIntAttribute, [&](ProtobufMessage& to) { to.integer(kAttributeI, value); });
  }
  Operator& with(const char* name, const std::vector<std::int64_t>& values) {
    return add(name, kIntsAttribute, [&](ProtobufMessage& to) {
      for (const std::int64_t value : values) to.integer(kAttributeInts, value);
    });
  }
  [[nodiscard]] ProtobufMessage take() { return std::move(message_); }

 private:
  template <class Fill>
  Operator& add(const char* name, std::int64_t type, const Fill& fill) {
    ProtobufMessage attribute;
    attribute.bytes(kAttributeName, name);
    attribute.integer(kAttributeType, type);
    fill(attribute);
    message_.message(kNodeAttribute, std::move(attribute));
    return *this;
  }
  ProtobufMessage message_;
};

[[nodiscard]] ProtobufMessage initializer_of(const Checkpoint::Array& tensor) {
  ProtobufMessage message;
  for (const std::int64_t extent : tensor.shape) message.integer(kTensorDims, extent);
  message.integer(kTensorDataType, kFloatTensor);
  message.bytes(kTensorName, tensor.name);
  std::string raw(tensor.values.size() * sizeof(float), '\0');
  std::memcpy(raw.data(), tensor.values.data(), raw.size());  // little-endian, as safetensors.cpp makes sure
  message.bytes(kTensorRawData, std::move(raw));
  return message;
}

/// A ValueInfoProto of float32 [batch, extents...].
[[nodiscard]] ProtobufMessage value_info(const std::string& name, const std::vector<std::int64_t>& extents) {
  ProtobufMessage shape, tensor, type, value, batch;
  batch.bytes(kTypeDimParam, "batch");
  shape.message(kTypeDim, std::move(batch));
  for (const std::int64_t extent : extents) {
    ProtobufMessage dimension;
    dimension.integer(kTypeDimValue, extent);
    shape.message(kTypeDim, std::move(dimension));
  }
  tensor.integer(kTypeElemType, kFloatTensor);
  tensor.message(kTypeShape, std::move(shape));
  type.message(kTypeTensorType, std::move(tensor));
  value.bytes(kValueName, name);
  value.message(kValueType, std::move(type));
  return value;
}

/// The operators of a node, whose result is `output`.
[[nodiscard]] std::vector<ProtobufMessage> operators_of(const Graph& graph, const Node& node,
                                                        const std::vector<std::string>& inputs,
                                                        const std::string& output) {
  std::vector<std::string> all = inputs;
  for (const int segment : {node.weight, node.bias})
    if (segment >= 0) all.push_back(graph.segments[static_cast<std::size_t>(segment)].name);
  const std::int64_t kernel = node.kernel, stride = node.stride, pad = node.pad, pad_end = pad + node.extra_pad;
  const auto of_windows = [&](const char* type) {
    return Operator(type, all, output)
        .with("kernel_shape", std::vector{kernel, kernel})
        .with("strides", std::vector{stride, stride})
        .with("pads", std::vector{pad, pad, pad_end, pad_end})
        .take();
  };
  switch (node.op) {
    case Op::input:
      return {};
    case Op::normalize:
      return {Operator("Sub", {inputs[0], kMean}, output + ".centered").take(),
              Operator("Div", {output + ".centered", kDeviation}, output).take()};
    case Op::convolution:
      return {of_windows("Conv")};
    case Op::batch_norm: {
      const std::string& norm = graph.norms[static_cast<std::size_t>(node.norm)].name;
      all.insert(all.end(), {norm + ".running_mean", norm + ".running_var"});
      return {Operator("BatchNormalization", all, output).with("epsilon", Model::kEpsilon).take()};
    }
    case Op::relu:
      return {Operator("Relu", all, output).take()};
    case Op::silu:
      return {Operator("Sigmoid", all, output + ".sigmoid").take(),
              Operator("Mul", {inputs[0], output + ".sigmoid"}, output).take()};
    case Op::add:
      return {Operator("Add", all, output).take()};
    case Op::max_pool:
      return {of_windows("MaxPool")};
    case Op::pool:
      return {Operator("GlobalAveragePool", all, output + ".mean").take(),
              Operator("Flatten", {output + ".mean"}, output).take()};
    case Op::linear:
      return {Operator("Gemm", all, output).with("transB", std::int64_t{1}).take()};
  }
  return {};
}

[[nodiscard]] ProtobufMessage graph_of(const Graph& graph, const StateDict& state) {
  ProtobufMessage message;
  const auto name_of = [&](int node) {
    return node == 0                                          ? std::string("images")
           : node + 1 == static_cast<int>(graph.nodes.size()) ? std::string("logits")
                                                              : "node." + std::to_string(node);
  };
  for (std::size_t k = 1; k < graph.nodes.size(); ++k) {  // the first node is the images
    std::vector<std::string> inputs;
    for (const int input : graph.nodes[k].inputs) inputs.push_back(name_of(input));
    for (ProtobufMessage& node : operators_of(graph, graph.nodes[k], inputs, name_of(static_cast<int>(k))))
      message.message(kGraphNode, std::move(node));
  }
  message.bytes(kGraphName, "network");
  for (const Checkpoint::Array& tensor : state.tensors) message.message(kGraphInitializer, initializer_of(tensor));
  const Normalization& normalization = graph.normalization;
  const std::vector<std::int64_t> channels = {std::ssize(normalization.mean), 1, 1};
  if (!normalization.mean.empty()) {
    message.message(kGraphInitializer, initializer_of({kMean, channels, normalization.mean}));
    message.message(kGraphInitializer, initializer_of({kDeviation, channels, normalization.deviation}));
  }
  const Node& images = graph.nodes.front();
  message.message(kGraphInput, value_info("images", {images.c, images.h, images.w}));
  message.message(kGraphOutput, value_info("logits", {graph.nodes.back().c}));
  return message;
}

}  // namespace

void write_onnx(const std::string& path, const Graph& graph, const StateDict& state) {
  ProtobufMessage model, opset;
  model.integer(kModelIrVersion, kIrVersion);
  model.bytes(kModelProducerName, "dat_hpc");
  model.bytes(kModelProducerVersion, commit());
  opset.bytes(kOpsetDomain, "");
  opset.integer(kOpsetVersion, kOpset);
  model.message(kModelOpsetImport, std::move(opset));
  for (const auto& [key, value] : state.metadata) {
    ProtobufMessage property;
    property.bytes(kPropertyKey, key);
    property.bytes(kPropertyValue, value);
    model.message(kModelMetadataProps, std::move(property));
  }
  model.message(kModelGraph, graph_of(graph, state));
  require(std::in_range<std::int32_t>(model.size()), ExitCode::usage, path, ": the model has ", model.size(),
          " bytes, ONNX files have 2 GiB at most; take --format safetensors");
  write_stream_atomically(path, [&](std::ostream& file) {
    for (const std::string& piece : model.pieces()) file.write(piece.data(), std::ssize(piece));
  });
}

}  // namespace dat
