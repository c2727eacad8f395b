// What is exported beside weights: graphs, figures of an evaluation for RobustBench, a card for a hub of models.

#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "hdf5/hdf5.hpp"
#include "interop/hub.hpp"
#include "interop/onnx.hpp"
#include "interop/pytorch_folder.hpp"
#include "interop/robustbench.hpp"

using namespace dat;

namespace {

using Json = nlohmann::json;

Graph graph() { return networks().at("small_cnn")({.width = 4, .size = 8, .channels = 3, .classes = 10}); }

StateDict state() {
  StateDict made;
  made.metadata = {{"classes", "10"}, {"image_size", "8"}, {"channels", "3"},
                   {"step", "7"},     {"weights", "raw"},  {"producer", "us"}};
  return made;
}

/// The fields of this number in a message of Protocol Buffers; numbers as text.
std::vector<std::string> fields(std::string_view rest, std::uint64_t number) {
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(rest.at(0));
      rest.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
  };
  std::vector<std::string> found;
  while (!rest.empty()) {
    const std::uint64_t key = varint(), value = key % 8 == 5 ? 4 : varint();
    const std::string content = key % 8 == 0 ? std::to_string(value) : std::string(rest.substr(0, value));
    if (key % 8 != 0) rest.remove_prefix(value);
    if (key / 8 == number) found.push_back(content);
  }
  return found;
}
std::string joined(std::string_view message, std::uint64_t number) {
  std::string text;
  for (const std::string& field : fields(message, number)) text += field + " ";
  return text;
}

}  // namespace

TEST_CASE("A network is exported node by node, to ONNX and to PyTorch", "[exchange]") {
  NetworkBuilder net({.size = 16,
                      .channels = 3,
                      .classes = 5,
                      .activation = Activation::silu,
                      .normalization = normalization_from("cifar10")});
  int x = net.relu(net.batch_norm("b1", net.convolution("c1", net.input(), 20, 3, 2, Padding::same)));
  x = net.max_pool(x, 3, 2);
  net.linear("fc", net.pool(net.add(x, net.activation(x))), 5);
  const Graph graph = net.finish();
  StateDict with_tensor = state();
  with_tensor.tensors = {{"fc.bias", {5}, {1, 2, 3, 4, 5}}};
  const TemporaryFolder folder;
  write_onnx(folder / "onnx", graph, with_tensor);
  const std::string model = read_bytes(folder / "onnx"), made = fields(model, 7).at(0);
  CHECK(joined(model, 1) + joined(model, 2) + joined(model, 3) + joined(fields(model, 8).at(0), 2) ==
        "8 dat_hpc " + commit() + " 17 ");
  std::string text;
  for (const std::string& property : fields(model, 14)) text += joined(property, 1) + joined(property, 2);
  CHECK(text == "channels 3 classes 10 image_size 8 producer us step 7 weights raw ");
  text.clear();
  for (const std::string& node : fields(made, 1)) {
    text += joined(node, 1) + joined(node, 4) + joined(node, 2);
    for (const std::string& attribute : fields(node, 5))
      text += joined(attribute, 1) + joined(attribute, 20) + joined(attribute, 3) + joined(attribute, 8);
    CHECK(fields(node, 3) == fields(node, 2));
    text += "\n";
  }
  CHECK(text ==
        "images normalize.mean Sub node.1.centered \nnode.1.centered normalize.std Div node.1 \n"
        "node.1 c1.weight Conv node.2 kernel_shape 7 3 3 strides 7 2 2 pads 7 0 0 1 1 \n"
        "node.2 b1.weight b1.bias b1.running_mean b1.running_var BatchNormalization node.3 epsilon 1 \n"
        "node.3 Relu node.4 \nnode.4 MaxPool node.5 kernel_shape 7 3 3 strides 7 2 2 pads 7 1 1 1 1 \n"
        "node.5 Sigmoid node.6.sigmoid \nnode.5 node.6.sigmoid Mul node.6 \nnode.5 node.6 Add node.7 \n"
        "node.7 GlobalAveragePool node.8.mean \nnode.8.mean Flatten node.8 \n"
        "node.8 fc.weight fc.bias Gemm logits transB 2 1 \n");
  text.clear();
  for (const std::string& tensor : fields(made, 5)) text += joined(tensor, 8) + joined(tensor, 1) + joined(tensor, 2);
  CHECK(text == "fc.bias 5 1 normalize.mean 3 1 1 1 normalize.std 3 1 1 1 ");
  const std::string data = fields(fields(made, 5).at(0), 9).at(0);
  CHECK((data.size() == 20 && std::memcmp(data.data(), with_tensor.tensors[0].values.data(), 20) == 0));
  text.clear();
  for (const int number : {11, 12})
    for (const std::string& value : fields(made, static_cast<std::uint64_t>(number))) {
      const std::string tensor = fields(fields(value, 2).at(0), 1).at(0);
      text += joined(value, 1) + joined(tensor, 1);
      for (const std::string& dim : fields(fields(tensor, 2).at(0), 1)) text += joined(dim, 1) + joined(dim, 2);
    }
  CHECK(text == "images 1 batch 3 16 16 logits 1 batch 5 ");

  with_tensor.metadata["format"] = "pt";
  with_tensor.metadata["class_names"] = "a";
  write_pytorch_folder(folder / "torch", graph, with_tensor, "net");
  Json wanted = Json::parse(R"({"model_type": "dat_hpc", "architectures": ["Network"], "architecture": "net",
    "classes": "10", "image_size": "8", "channels": "3", "step": "7", "weights": "raw", "producer": "us", "num_labels": 5,
    "nodes": [{"op": "normalize", "inputs": [0], "arguments": {}},
              {"op": "convolution", "inputs": [1], "extra_pad": 1, "module": "c1", "arguments": {"in_channels": 3,
               "out_channels": 20, "kernel_size": 3, "stride": 2, "padding": 0, "bias": false}},
              {"op": "batch_norm", "inputs": [2], "module": "b1", "arguments": {"num_features": 20}},
              {"op": "relu", "inputs": [3]},
              {"op": "max_pool", "inputs": [4], "arguments": {"kernel_size": 3, "stride": 2, "padding": 1}},
              {"op": "silu", "inputs": [5]}, {"op": "add", "inputs": [5, 6]}, {"op": "pool", "inputs": [7]},
              {"op": "linear", "inputs": [8], "module": "fc", "arguments": {"in_features": 20, "out_features": 5}}]})");
  wanted["nodes"][0]["arguments"] = {{"mean", graph.normalization.mean}, {"std", graph.normalization.deviation}};
  const std::string config = read_bytes(folder / "torch/config.json");
  CHECK((Json::parse(config) == wanted && config.starts_with("{\n \"model_type\": \"dat_hpc\",\n \"")));
}

TEST_CASE("RobustBench's figures are those of an evaluation of these weights in this ball on all test images",
          "[exchange]") {
  const TemporaryFolder folder;
  const std::string path = folder / "eval.json", out = folder / "out";
  const Json whole =
      Json::parse(R"({"filetype": "evaluation", "weights_hash": "ab", "split": "test", "verdict": "VALID",
    "images": 10000, "split_images": 10000, "clean": {"accuracy": 0.9},
    "attacks": [{"name": "fgsm", "accuracy": 0.5, "eps": 0.03137254901960784, "norm": "linf"},
                {"name": "pgd3", "accuracy": 0.1, "eps": 0.5, "norm": "l2"}],
    "sequence": {"name": "aa-standard", "accuracy": 0.25, "eps": 0.03137254901960784, "norm": "linf"}})");
  RobustBenchEntry entry{.architecture = "net",
                         .dataset = "cifar10",
                         .norm = BallNorm::linf,
                         .eps = 8.0 / 255,
                         .additional_data = false,
                         .weights = "ab",
                         .evaluation = path};
  std::string remarks;
  const auto written = [&] {
    std::filesystem::remove_all(out);
    remarks = write_robustbench(out, graph(), state(), entry);
    const std::string text = read_bytes(out + "/model_info.json");
    CHECK(text.starts_with("{\n  \"link\": \"\",\n"));
    return Json::parse(text);
  };
  const auto with = [&](const std::string& changes) {
    Json changed = whole;
    changed.merge_patch(Json::parse(changes));
    write_bytes(path, changed.dump());
    return written();
  };
  Json info = Json::parse(R"j({"link": "", "name": "", "authors": "", "additional_data": false, "venue": "",
    "number_forward_passes": 1, "dataset": "cifar10", "architecture": "net", "eps": "8/255", "clean_acc": "90.00",
    "reported": "25.00", "autoattack_acc": "25.00"})j");
  info["footnote"] =
      "On 10000 test images: fgsm 50.00 % (eps 8/255), pgd3 10.00 % (l2 eps 0.5), aa-standard 25.00 % (eps 8/255)";
  const std::string yours = "model_info.json: link, name, authors and venue are yours to fill in",
                    place = ". Its place there is model_info/cifar10/Linf.\n";
  CHECK((with("{}") == info && remarks == yours + place));
  CHECK(with(R"({"verdict": null})") == info);
  info["autoattack_acc"] = nullptr;
  info["reported"] = "100.00";
  info["footnote"] = "On 10000 test images: x 100.00 % (eps 8/255)";
  const std::string one = R"("attacks": [{"name": "x", "accuracy": 1, "eps": 0.03137254901960784, "norm": "linf"}])";
  CHECK(with("{" + one + R"(, "sequence": null})") == info);
  CHECK(contains(remarks, place + "autoattack_acc is null: the evaluation has not run aa-standard"));
  // AutoAttack's figure is one of this ball, on all images of the file, which are all of CIFAR-10's.
  const std::string part = place + "autoattack_acc is null: the evaluation is of a part of the test images";
  CHECK(with(R"({"sequence": {"norm": "l2"}})").at("autoattack_acc").is_null());
  CHECK(with(R"({"images": 9999, "split_images": 9999})").at("autoattack_acc").is_null());
  CHECK(contains(remarks, part));
  entry.dataset = "";
  CHECK(with(R"({"images": 9999, "split_images": 9999})").at("autoattack_acc") == "25.00");
  CHECK(with(R"({"images": 9999})").at("autoattack_acc").is_null());
  CHECK(with(R"({"images": 1, "split_images": 1, "sequence": {"eps": 0.031372550}})").at("reported") == "25.00");

  entry.eps = 0;  // trained without an attack
  CHECK(with(R"({"attacks": [], "sequence": {"eps": 0}})").at("eps") == "0");
  entry.eps = 8.0 / 255;

  const std::pair<const char*, const char*> refused[] = {
      {R"({"sequence": {"eps": 0.0313727}})",
       "attacks with eps 0.0313727 (aa-standard), and the network was trained for"},
      {R"({"weights_hash": "cd"})", "is the evaluation of other weights (cd), the exported ones are ab"},
      {R"({"split": "train"})", "is an evaluation of other images than the test images"},
      {R"({"noise": 0.1})", "is of the network under noise"},
      {R"({"verdict": "INVALID"})", "is INVALID"},
      {R"({"images": 0})", "is of 0 of 10000 images"},
      {R"({"split_images": 1.5})", "is of 10000 of 1.5 images"},
      {R"({"filetype": "forecast"})", "is no evaluation that 'eval --out' wrote"},
      {R"({"filetype": null})", "is no evaluation that 'eval --out' wrote"},
      {R"({"attacks": [], "sequence": null})", "has no attack in eps 8/255"},
      {R"({"clean": null})", "is no evaluation of this version of the program"}};
  const auto refuses = [&](const std::function<void()>& write, const std::string& told) {
    const std::string error = error_of(write);
    CAPTURE(error, told);
    CHECK((error.starts_with("3: ") && contains(error, told) && !std::filesystem::exists(out)));
  };
  for (const auto& [changes, told] : refused) refuses([&] { with(changes); }, path + ": " + told);
  for (const std::string& text : {std::string("[1]"), std::string("{"), std::string()}) {
    write_bytes(path, text);
    refuses([&] { written(); }, path + ": is no evaluation that");
  }
  write_bytes(path, std::string(65, '['));
  refuses([&] { written(); }, "its JSON is nested too deeply");
  entry.evaluation = folder / "none.json";
  refuses([&] { written(); }, "cannot read the evaluation " + entry.evaluation);

  entry.evaluation = "";
  entry.norm = BallNorm::l2;
  entry.eps = 0.5;
  entry.additional_data = {};
  info = written();
  for (const char* name : {"additional_data", "clean_acc", "reported", "autoattack_acc"})
    CHECK(info.at(name).is_null());
  CHECK((info.at("eps") == "0.5" && info.at("dataset") == "" && info.at("footnote") == ""));
  CHECK(remarks == yours +
                       "; so is dataset. Its place there is model_info/DATASET/L2.\nadditional_data is null: nobody "
                       "knows what the network was trained on.\nNo figures: give the JSON file of 'dat_hpc eval "
                       "--out' with --evaluation.\n");
}

TEST_CASE("A card for a hub has the figures of these weights on all test images, and says why it has none",
          "[exchange]") {
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  using Texts = std::map<std::string, std::string>;
  const auto put = [&](const std::string& name, const Texts& texts, const Texts& changes) {
    write_sealed_hdf5(folder / name, [&](Hdf5File& file) {
      for (const auto& [key, text] : texts) file.set_text("/", key, changes.contains(key) ? changes.at(key) : text);
      file.write("image/clean_correct", {5}, std::vector<std::uint8_t>{1, 1, 1, 1, 0});
      file.write("image/robust", {5}, std::vector<std::uint8_t>{1, 1, 1, 0, 0});
    });
    return folder / name;
  };
  const auto run = [&](const Texts& changes) {
    return put("run.h5",
               {{"weights_hash", "cd"},
                {"verdict", "VALID"},
                {"figures", R"([{"weights": "average"}, {"weights": "raw", "images": 5, "clean_acc": 0.9, "attack": )"
                            R"("n_fgsm", "norm": "l2", "eps": 0.5, "adv_acc": 0.125}])"}},
               changes);
  };
  const auto evaluation = [&](const Texts& changes) {
    return put("eval.h5",
               {{"filetype", "evaluation"},
                {"weights_hash", "ab"},
                {"provenance", R"({"hashes_of_images": {"test": "ef"}})"},
                {"sequence", "aa-standard"},
                {"norm", "linf"},
                {"eps", "8/255"}},
               changes);
  };
  HubEntry entry{.architecture = "net",
                 .dataset = "cifar10",
                 .norm = BallNorm::linf,
                 .eps = 8.0 / 255,
                 .weights = "raw",
                 .hash = "ab",
                 .raw_hash = "cd",
                 .test_images = "ef",
                 .results = run({}),
                 .evaluation = evaluation({}),
                 .options = {"epochs = 3", "lr = 1"},
                 .citations = {{"attack pgd", "Madry"}}};
  std::string remarks;
  const auto card = [&] {
    std::filesystem::remove_all(out);
    remarks = write_hub(out, graph(), state(), entry);
    return read_bytes(out + "/README.md");
  };
  const std::string yours = "README.md: licence, authors and intended use are yours to add";
  const auto metric = [](const std::string& value, const std::string& name) {
    return "    - type: accuracy\n      value: " + value + "\n      name: \"" + name + "\"\n";
  };
  std::string text = card();
  CHECK(remarks == yours + ".\n");
  CHECK(contains(text, "- dat_hpc\ndatasets:\n- cifar10\nmetrics:\n- accuracy\nmodel-index:\n- name: \"net\"\n"));
  CHECK(contains(text, "      name: cifar10\n      type: cifar10\n      split: test\n    metrics:\n" +
                           metric("80.00", "clean accuracy (%)") +
                           metric("60.00", "accuracy under aa-standard, linf eps 8/255 (%)") +
                           metric("12.50", "accuracy under n_fgsm, l2 eps 0.5 (%)") +
                           "---\n\n# net\n\nA classifier of "
                           "10 classes for images of 8x8x3 in [0, 1], trained to withstand perturbations in the ball "
                           "linf eps 8/255.\nStep 7, raw weights, hash `ab`; made by us.\n"));
  CHECK(contains(text,
                 "On all 5 test images (hash `ef`):\n\n| attack | ball | accuracy (%) |\n|---|---|---|\n"
                 "| none (clean) |  | 80.00 |\n| aa-standard | linf eps 8/255 | 60.00 |\n"
                 "| n_fgsm | l2 eps 0.5 | 12.50 |\n\n## Training\n"));
  CHECK(contains(text, "```\nepochs = 3\nlr = 1\n```\n\n## Cite\n\n- Madry (attack pgd)\n"));
  CHECK(error_of([&] {
          (void)write_hub(out, graph(), state(), entry);
        }).starts_with("2: " + out + "/README.md is there"));

  entry.results = run({{"verdict", "PARTIAL"}});
  CHECK(contains(card(), "| aa-standard | linf eps 8/255 | 60.00 |\n\n"));
  CHECK(remarks == yours +
                       ".\nNo figures but the evaluation's: the run's last evaluation is of a part of the test "
                       "images, or not finite.\n");
  const std::pair<Texts, const char*> refused[] = {
      {{{"filetype", "checkpoint"}}, "is no results.h5 that"},
      {{{"weights_hash", "cd"}}, "is the evaluation of other weights (cd), the exported ones are ab"},
      {{{"provenance", R"({"hashes_of_images": {"test": "no"}})"}}, "is not of the whole test set"},
      {{{"provenance", "{}"}}, "is not of the whole test set"},
      {{{"provenance", "[]"}}, "is not of the whole test set"},
      {{{"eps", "small"}}, "does not say its eps"}};
  for (const auto& [changes, told] : refused) {
    entry.evaluation = evaluation(changes);
    CHECK(contains(error_of([&] { (void)card(); }), "3: " + entry.evaluation + ": " + told));
  }
  entry.evaluation = evaluation({{"sequence", "a b"}});
  CHECK(contains(error_of([&] { (void)card(); }), "3: an evaluation names the attack 'a b', which there is not"));
  entry.evaluation = evaluation({{"provenance", R"({"hashes_of_images": {}})"}});
  entry.test_images = "";
  CHECK(contains(error_of([&] { (void)card(); }), "is not of the whole test set"));
  std::filesystem::resize_file(entry.evaluation, 3000);
  CHECK(contains(error_of([&] { (void)card(); }), "3: " + entry.evaluation + ": has 3000 bytes instead of"));

  entry.evaluation = "";
  entry.dataset = "";
  entry.eps = 0;
  entry.results = run({});
  text = card();
  CHECK((remarks == yours + ", and the name of the data set.\n" && contains(text, "- dat_hpc\nmetrics:\n")));
  CHECK(contains(text, "      name: the training's own\n      type: other\n"));
  CHECK(contains(text, "in [0, 1], trained without an attack.\n"));
  CHECK(contains(text,
                 "On all 5 test images:\n\n| attack | ball | accuracy (%) |\n|---|---|---|\n| none (clean) |  | "
                 "90.00 |\n| n_fgsm | l2 eps 0.5 | 12.50 |\n"));
  for (const char* figures : {R"([{"weights": "raw"}])", "{"}) {
    entry.results = run({{"figures", figures}});
    CHECK(contains(error_of([&] { (void)card(); }), "3: the results of the run or of the evaluation are not of this"));
  }
  entry.results = run({{"figures", R"([{"weights": "raw", "images": 0}])"}});
  CHECK(error_of([&] { (void)card(); }) == "3: " + entry.results + ": its figures are of 0 images");
  entry.results = run({{"figures", R"([{"weights": "raw", "images": 1, "clean_acc": 1.0, "attack": "fgsm", "norm": )"
                                   R"("linf", "eps": 0.5, "adv_acc": 0.0}])"}});
  CHECK(contains(card(), "On all 1 test images:\n"));
  const auto none = [&](const std::string& results, const std::string& why) {
    entry.results = results;
    text = card();
    CHECK((contains(text, "- dat_hpc\n---\n") && contains(text, "There are no figures of the whole test set.\n")));
    CHECK((contains(remarks, "No figures: " + why) && contains(remarks, ".\nFor figures give --evaluation FOLDER")));
  };
  none("", "the run has no results.h5");
  none(folder / "none.h5", "the run has no results.h5");
  none(run({{"weights_hash", "ab"}}), "the run's last evaluation is of other weights");
  entry.noise = true;
  none(run({}), "the run evaluates under noise");
}
