#include "interop/onnx.hpp"

#include <cstring>
#include <limits>
#include <ostream>
#include <utility>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "files/protobuf.hpp"

namespace dat {

namespace {

// Numbers of fields and values of enums, as onnx.proto has them.
namespace model_field {
enum { ir_version = 1, producer_name = 2, producer_version = 3, graph = 7, opset_import = 8, metadata_props = 14 };
}
namespace opset_field {
enum { domain = 1, version = 2 };
}
namespace property_field {
enum { key = 1, value = 2 };
}
namespace graph_field {
enum { node = 1, name = 2, initializer = 5, input = 11, output = 12 };
}
namespace node_field {
enum { input = 1, output = 2, name = 3, op_type = 4, attribute = 5 };
}
namespace attribute_field {
enum { name = 1, f = 2, i = 3, ints = 8, type = 20 };
}
namespace tensor_field {
enum { dims = 1, data_type = 2, name = 8, raw_data = 9 };
}
namespace value_field {
enum { name = 1, type = 2 };
}
namespace type_field {
enum { tensor_type = 1, elem_type = 1, shape = 2, dim = 1, dim_value = 1, dim_param = 2 };
}
constexpr std::int64_t kFloatTensor = 1, kFloatAttribute = 1, kIntAttribute = 2, kIntsAttribute = 7;
constexpr std::int64_t kIrVersion = 8, kOpset = 17;
const char *const kMean = "normalize.mean", *const kDeviation = "normalize.std";

/// A NodeProto with one result, field by field.
class Operator {
 public:
  Operator(const char* type, const std::vector<std::string>& inputs, const std::string& output) {
    for (const std::string& input : inputs) message_.bytes(node_field::input, input);
    message_.bytes(node_field::output, output);
    message_.bytes(node_field::name, output);
    message_.bytes(node_field::op_type, type);
  }
  Operator& with(const char* name, float value) {
    return add(name, kFloatAttribute, [&](ProtobufMessage& to) { to.real(attribute_field::f, value); });
  }
  Operator& with(const char* name, std::int64_t value) {
    return add(name, kIntAttribute, [&](ProtobufMessage& to) { to.integer(attribute_field::i, value); });
  }
  Operator& with(const char* name, const std::vector<std::int64_t>& values) {
    return add(name, kIntsAttribute, [&](ProtobufMessage& to) {
      for (const std::int64_t value : values) to.integer(attribute_field::ints, value);
    });
  }
  [[nodiscard]] ProtobufMessage take() { return std::move(message_); }

 private:
  template <class Fill>
  Operator& add(const char* name, std::int64_t type, const Fill& fill) {
    ProtobufMessage attribute;
    attribute.bytes(attribute_field::name, name);
    attribute.integer(attribute_field::type, type);
    fill(attribute);
    message_.message(node_field::attribute, std::move(attribute));
    return *this;
  }
  ProtobufMessage message_;
};

[[nodiscard]] ProtobufMessage initializer_of(const Checkpoint::Array& tensor) {
  ProtobufMessage message;
  for (const std::int64_t extent : tensor.shape) message.integer(tensor_field::dims, extent);
  message.integer(tensor_field::data_type, kFloatTensor);
  message.bytes(tensor_field::name, tensor.name);
  std::string raw(tensor.values.size() * sizeof(float), '\0');
  std::memcpy(raw.data(), tensor.values.data(), raw.size());  // little-endian, as safetensors.cpp makes sure
  message.bytes(tensor_field::raw_data, std::move(raw));
  return message;
}

/// A ValueInfoProto of float32 [batch, extents...].
[[nodiscard]] ProtobufMessage value_info(const std::string& name, const std::vector<std::int64_t>& extents) {
  ProtobufMessage shape, tensor, type, value, batch;
  batch.bytes(type_field::dim_param, "batch");
  shape.message(type_field::dim, std::move(batch));
  for (const std::int64_t extent : extents) {
    ProtobufMessage dimension;
    dimension.integer(type_field::dim_value, extent);
    shape.message(type_field::dim, std::move(dimension));
  }
  tensor.integer(type_field::elem_type, kFloatTensor);
  tensor.message(type_field::shape, std::move(shape));
  type.message(type_field::tensor_type, std::move(tensor));
  value.bytes(value_field::name, name);
  value.message(value_field::type, std::move(type));
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
  for (std::size_t k = 0; k < graph.nodes.size(); ++k) {
    std::vector<std::string> inputs;
    for (const int input : graph.nodes[k].inputs) inputs.push_back(name_of(input));
    for (ProtobufMessage& node : operators_of(graph, graph.nodes[k], inputs, name_of(static_cast<int>(k))))
      message.message(graph_field::node, std::move(node));
  }
  message.bytes(graph_field::name, "network");
  for (const Checkpoint::Array& tensor : state.tensors)
    message.message(graph_field::initializer, initializer_of(tensor));
  const Normalization& normalization = graph.normalization;
  const std::vector<std::int64_t> channels = {std::ssize(normalization.mean), 1, 1};
  if (!normalization.mean.empty()) {
    message.message(graph_field::initializer, initializer_of({kMean, channels, normalization.mean}));
    message.message(graph_field::initializer, initializer_of({kDeviation, channels, normalization.deviation}));
  }
  const Node& images = graph.nodes.front();
  message.message(graph_field::input, value_info("images", {images.c, images.h, images.w}));
  message.message(graph_field::output, value_info("logits", {graph.nodes.back().c}));
  return message;
}

}  // namespace

void write_onnx(const std::string& path, const Graph& graph, const StateDict& state) {
  ProtobufMessage model, opset;
  model.integer(model_field::ir_version, kIrVersion);
  model.bytes(model_field::producer_name, "dat_hpc");
  model.bytes(model_field::producer_version, commit());
  opset.bytes(opset_field::domain, "");
  opset.integer(opset_field::version, kOpset);
  model.message(model_field::opset_import, std::move(opset));
  for (const auto& [key, value] : state.metadata) {
    ProtobufMessage property;
    property.bytes(property_field::key, key);
    property.bytes(property_field::value, value);
    model.message(model_field::metadata_props, std::move(property));
  }
  model.message(model_field::graph, graph_of(graph, state));
  require(model.size() <= std::numeric_limits<std::int32_t>::max(), ExitCode::usage, path, ": the model has ",
          model.size(), " bytes, ONNX files have 2 GiB at most; take --format safetensors");
  write_stream_atomically(path, [&](std::ostream& file) {
    for (const std::string& piece : model.pieces()) file.write(piece.data(), std::ssize(piece));
  });
}

}  // namespace dat
