#include "interop/pytorch_folder.hpp"

#include <iterator>
#include <nlohmann/json.hpp>

#include "dat/file.hpp"

namespace dat {

namespace {

using OrderedJson = nlohmann::ordered_json;

/// The class, for every network: it is built from the graph beside it.
const char* const kModelPy =
    R"PY("""A network that dat_hpc has trained: images [n, c, h, w] in [0, 1] to logits [n, classes].

    import model; network = model.load()     # needs torch alone
"""

import json
import pathlib

import torch
from torch import nn

FOLDER = pathlib.Path(__file__).resolve().parent
MODULES = {"convolution": nn.Conv2d, "batch_norm": nn.BatchNorm2d, "linear": nn.Linear}
FUNCTIONS = {"relu": torch.relu, "silu": nn.functional.silu, "add": torch.add, "pool": lambda x: x.mean((2, 3)),
             "max_pool": nn.functional.max_pool2d,
             "normalize": lambda x, mean, std: (x - column(x, mean)) / column(x, std)}


def column(x, numbers):
    return x.new_tensor(numbers).view(-1, 1, 1)


class Network(nn.Module):
    """Computes the nodes of config.json in their order; value 0 are the images, value k is what node k has made."""

    def __init__(self, nodes):
        super().__init__()
        self.nodes = nodes
        for node in nodes:
            if "module" in node:
                *path, name = node["module"].split(".")
                parent = self
                for part in path:
                    if part not in parent._modules:
                        parent.add_module(part, nn.Module())
                    parent = parent._modules[part]
                parent.add_module(name, MODULES[node["op"]](**node["arguments"]))

    def forward(self, images):
        values = [images]
        for node in self.nodes:
            inputs = [values[k] for k in node["inputs"]]
            if "extra_pad" in node:  # below and at the right
                inputs[0] = nn.functional.pad(inputs[0], (0, node["extra_pad"], 0, node["extra_pad"]))
            if "module" in node:
                values.append(self.get_submodule(node["module"])(*inputs))
            else:
                values.append(FUNCTIONS[node["op"]](*inputs, **node.get("arguments", {})))
        return values[-1]


def tensors(path):
    """The tensors of a safetensors file, by name."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    types = {"F32": torch.float32, "I64": torch.int64}
    return {name: torch.frombuffer(bytearray(data[begin + one["data_offsets"][0]:begin + one["data_offsets"][1]]),
                                   dtype=types[one["dtype"]]).reshape(one["shape"])
            for name, one in json.loads(data[8:begin]).items() if name != "__metadata__"}


def load(folder=FOLDER):
    folder = pathlib.Path(folder)
    network = Network(json.loads((folder / "config.json").read_text())["nodes"])
    network.load_state_dict(tensors(folder / "model.safetensors"), strict=True)
    return network.eval()
)PY";

/// Names of operations, in the order of Op.
constexpr const char* kOperations[] = {"images", "normalize", "convolution", "batch_norm", "relu",
                                       "silu",   "add",       "max_pool",    "pool",       "linear"};
static_assert(std::size(kOperations) == kOps);

/// The node; with weights, the name and the arguments of its module in PyTorch.
[[nodiscard]] OrderedJson description_of(const Graph& graph, const Node& node) {
  OrderedJson all = {{"op", kOperations[static_cast<std::size_t>(node.op)]}, {"inputs", node.inputs}};
  if (node.op == Op::normalize)
    all["arguments"] = {{"mean", graph.normalization.mean}, {"std", graph.normalization.deviation}};
  if (node.op == Op::max_pool)
    all["arguments"] = {{"kernel_size", node.kernel}, {"stride", node.stride}, {"padding", node.pad}};
  if (node.extra_pad != 0) all["extra_pad"] = node.extra_pad;
  if (node.weight < 0) return all;
  const Segment& weight = graph.segments[static_cast<std::size_t>(node.weight)];
  all["module"] = weight.name.substr(0, weight.name.rfind('.'));
  const std::vector<int> shape = weight.file_shape();
  OrderedJson& arguments = all["arguments"];
  if (node.op == Op::convolution)
    arguments = {{"in_channels", shape[1]}, {"out_channels", shape[0]}, {"kernel_size", node.kernel},
                 {"stride", node.stride},   {"padding", node.pad},      {"bias", false}};
  else if (node.op == Op::batch_norm)
    arguments["num_features"] = shape[0];
  else
    arguments = {{"in_features", shape[1]}, {"out_features", shape[0]}};
  return all;
}

}  // namespace

void write_pytorch_folder(const std::string& folder, const Graph& graph, const StateDict& state,
                          const std::string& architecture) {
  make_folder(folder);
  OrderedJson config = {{"model_type", "dat_hpc"}, {"architectures", {"Network"}}, {"architecture", architecture}};
  for (const auto& [name, value] : state.metadata)
    if (name != "format" && name != "class_names") config[name] = value;
  config["num_labels"] = graph.nodes.back().c;
  std::string nodes;
  for (std::size_t k = 1; k < graph.nodes.size(); ++k)
    nodes += (nodes.empty() ? "" : ",\n") + description_of(graph, graph.nodes[k]).dump();
  std::string text = config.dump(1, ' ', false, OrderedJson::error_handler_t::replace);
  text.resize(text.size() - 2);  // without the end of the object
  write_safetensors(folder + "/model.safetensors", state);
  write_text_atomically(folder + "/config.json", text + ",\n \"nodes\": [\n" + nodes + "\n]}\n");
  write_text_atomically(folder + "/model.py", kModelPy);
}

}  // namespace dat
