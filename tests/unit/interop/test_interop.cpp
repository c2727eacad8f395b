// Weights for other programs, and from them: safetensors, Protocol Buffers, PyTorch's names.

#include "catch.hpp"
#include "dat/random.hpp"
#include "files/protobuf.hpp"
#include "hdf5/hdf5.hpp"
#include "interop/source.hpp"
#include "interop/state_dict.hpp"
#include "memory_bytes.hpp"
#include "replica/model_state.hpp"

using namespace dat;

namespace {

StateDict read(const std::string& bytes) { return read_safetensors(test::MemoryBytes(bytes)); }

/// N, and N bytes of header, and data.
std::string file_of(const std::string& header, const std::string& data, std::uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}
std::string file_of(const std::string& header, const std::string& data = "") {
  return file_of(header, data, header.size());
}

std::string error_in(const std::string& bytes) {
  return error_of([&] { static_cast<void>(read(bytes)); });
}

std::string written(const StateDict& state) {
  const TemporaryFolder folder;
  write_safetensors(folder / "file", state);
  return read_bytes(folder / "file");
}

/// Any bits, NaN and subnormal numbers among them.
std::vector<float> any_values(std::size_t count, std::uint32_t seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = std::bit_cast<float>(random_words(seed, Purpose::shuffle, 0, 0, static_cast<std::uint32_t>(i)).v[0]);
  return values;
}

void check_same(const StateDict& a, const StateDict& b) {
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (std::size_t k = 0; k < a.tensors.size(); ++k) {
    const Checkpoint::Array &one = a.tensors[k], &other = b.tensors[k];
    CHECK((one.name == other.name && one.shape == other.shape));
    REQUIRE(one.values.size() == other.values.size());
    CHECK(std::equal(one.values.begin(), one.values.end(), other.values.begin(), [](float x, float y) {
      return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
    }));
  }
  CHECK((a.counters == b.counters && a.metadata == b.metadata));
}

StateDict example() {
  StateDict state;
  state.tensors = {{"layer1.0.conv1.weight", {3, 2, 1, 1}, any_values(6, 1)},
                   {"scalar", {}, any_values(1, 2)},
                   {"nothing", {0, 5}, {}},
                   {"linear.bias", {7}, any_values(7, 3)}};
  state.counters = {{"bn1.num_batches_tracked", 1234567890123}, {"bn2.num_batches_tracked", -1}};
  state.metadata = {{"class_names", "airplane\nbird\n\"quoted\" \\ \xc3\xa9"}, {"step", "7"}};
  return state;
}

/// The state_dict of a network with random weights.
StateDict network_state(const Graph& graph) {
  StateDict state;
  std::uint32_t seed = 10;
  for (const Segment& segment : graph.segments) {
    const std::vector<int> shape = segment.file_shape();
    state.tensors.push_back({segment.name,
                             {shape.begin(), shape.end()},
                             any_values(static_cast<std::size_t>(segment.file_size()), ++seed)});
  }
  for (const Norm& norm : graph.norms) {
    for (const char* name : {".running_mean", ".running_var"})
      state.tensors.push_back({norm.name + name,
                               {norm.file_channels()},
                               any_values(static_cast<std::size_t>(norm.file_channels()), ++seed)});
    state.counters[norm.name + ".num_batches_tracked"] = 5;
  }
  return state;
}

Graph graph_of(const std::string& network, int classes = 10) {
  return networks().at(network)({.width = 4, .size = 16, .channels = 3, .classes = classes});
}

const Fitting kPlain{.file = "FILE", .network = "NETWORK"};

/// Why a state_dict does not fit a network; "none": it does.
std::string misfit(const Graph& graph, const StateDict& state) {
  return error_of([&] { static_cast<void>(fitted(graph, state, kPlain)); });
}

void replace(std::string& text, const std::string& word, const std::string& by) {
  if (const std::size_t at = text.find(word); at != std::string::npos) text.replace(at, word.size(), by);
}

}  // namespace

TEST_CASE("Safetensors are read as they were written, and each truncation is refused", "[exchange]") {
  const std::string bytes = written(example());
  check_same(read(bytes), example());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);  // so that all elements are aligned: counters of 8 bytes first
  CHECK(bytes.size() == 8 + length + 2 * 8 + 14 * 4);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK(error_in(bytes.substr(0, size)).starts_with("4: memory: is no safetensors file, or damaged: "));
  CHECK(contains(error_in(bytes + '\0'), "its tensors end at byte " + std::to_string(bytes.size())));
}

TEST_CASE("The writer writes the bytes of the format's own tests", "[exchange]") {
  // test_serialization and test_serialization_forced_alignement of huggingface/safetensors (tensor.rs).
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  std::string data(24, '\0');
  std::memcpy(data.data(), values.data(), 24);
  StateDict state;
  state.tensors = {{"attn.0", {1, 2, 3}, values}};
  CHECK(written(state) == file_of(R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})", data));
  state.tensors = {{"attn0", {1, 1, 2, 3}, values}};
  CHECK(written(state) == file_of(R"({"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}}       )", data));
  // test_empty.
  CHECK(written({}) == file_of("{}      "));
  StateDict said;
  said.metadata = {{"framework", "pt"}};
  CHECK(written(said) == file_of(R"({"__metadata__":{"framework":"pt"}}     )"));
  said.metadata = {{"framework", "\xc3\xa9"}};  // as it is
  CHECK(written(said) == file_of("{\"__metadata__\":{\"framework\":\"\xc3\xa9\"}}     "));
}

TEST_CASE("Other types of real numbers become float32", "[exchange]") {
  const auto raw = [](const auto& values) {
    std::string bytes(values.size() * sizeof(values[0]), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  };
  const auto entry = [](const char* type, int count, int bytes) {
    return R"({"w":{"dtype":")" + std::string(type) + R"(","shape":[)" + std::to_string(count) +
           R"(],"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
  };
  const auto values = [&](const char* type, int count, const std::string& data) {
    return read(file_of(entry(type, count, static_cast<int>(data.size())), data)).tensors.at(0).values;
  };
  CHECK(values("F16", 4, raw(std::vector<std::uint16_t>{0x3c00, 0xc000, 0x0001, 0x7c00})) ==
        std::vector<float>{1, -2, 0x1p-24F, std::numeric_limits<float>::infinity()});
  CHECK(values("BF16", 2, raw(std::vector<std::uint16_t>{0x3f80, 0xc040})) == std::vector<float>{1, -3});
  CHECK(values("F64", 2, raw(std::vector<double>{0.1, -1e300})) ==
        std::vector<float>{0.1F, -std::numeric_limits<float>::infinity()});
  // More than a block of them.
  std::vector<double> many(40000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<double>(i);
  const std::vector<float> found = values("F64", 40000, raw(many));
  for (std::size_t i = 0; i < many.size(); ++i) REQUIRE(found[i] == static_cast<float>(i));
  CHECK(contains(error_in(file_of(entry("U8", 2, 2), "ab")), "'w' is of type U8, but weights are real numbers"));
  CHECK(contains(error_in(file_of(entry("I64", 2, 16), std::string(16, 'a'))), "is of type I64"));
}

TEST_CASE("Counters of batches may be of any type, other whole numbers are refused", "[exchange]") {
  const auto bytes_of = [](auto value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  };
  const auto file = [](const std::string& name, const char* type, const char* shape, const std::string& data) {
    return file_of("{\"" + name + R"(":{"dtype":")" + type + R"(","shape":[)" + shape + R"(],"data_offsets":[0,)" +
                       std::to_string(data.size()) + "]}}",
                   data);
  };
  const std::string name = "module.bn1.num_batches_tracked";
  const auto check = [&](const char* type, const std::string& data) {
    for (const char* shape : {"", "1"}) {
      CAPTURE(type, shape);
      const StateDict state = read(file(name, type, shape, data));
      CHECK((state.tensors.empty() && state.counters == std::map<std::string, std::int64_t>{{name, 7}}));
    }
  };
  check("I64", bytes_of(std::int64_t{7}));
  check("I32", bytes_of(std::int32_t{7}));
  check("F64", bytes_of(7.0));
  check("F32", bytes_of(7.0F));
  check("F16", bytes_of(std::uint16_t{0x4700}));
  check("BF16", bytes_of(std::uint16_t{0x40e0}));
  for (const double none : {-1.0, 1e300, std::numeric_limits<double>::quiet_NaN()})
    CHECK(read(file(name, "F64", "", bytes_of(none))).counters.at(name) == 0);
  CHECK(read(file(name, "F64", "", bytes_of(1.0))).counters.at(name) == 1);
  CHECK(contains(error_in(file(name, "I16", "", "ab")), "is of type I16"));
  CHECK(contains(error_in(file(name, "I64", "2", std::string(16, 'a'))), "is of type I64"));
  // What counts something else is no weight either.
  CHECK(read(file("n_averaged", "I64", "", bytes_of(std::int64_t{7}))).tensors.empty());
  CHECK(read(file("decay", "F32", "1", bytes_of(0.9F))).counters.empty());
  CHECK(read(file(name, "F32", "2", std::string(8, '\0'))).tensors.size() == 1);  // which has no place in a network
}

TEST_CASE("Hostile headers of safetensors are refused", "[exchange]") {
  const auto refused = [](const std::string& bytes, const std::string& part) {
    const std::string error = error_in(bytes);
    INFO(error);
    CHECK((error.starts_with("4: memory: is no safetensors file, or damaged: ") && contains(error, part)));
  };
  const std::string eight(8, 'x');
  const auto tensor = [](const std::string& name, const std::string& shape, const std::string& offsets) {
    return '"' + name + R"(":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}";
  };
  const auto with = [&](const std::string& shape, const std::string& offsets) {
    return file_of("{" + tensor("a", shape, offsets) + "}", eight);
  };
  CHECK(read(with("2", "0,8")).tensors.size() == 1);  // what the others are made of is right

  // Sizes that nobody may believe.
  for (const std::uint64_t length : {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{1} << 40})
    refused(file_of("{}", "", length), "its header would have");
  refused(file_of("{}", "", 3), "its header ends at byte 11, the file at byte 10");
  refused(with("2", "0,9223372036854775807"), "has 9223372036854775807 bytes");
  refused(with("2", "0,18446744073709551615"), "has an impossible data_offsets");
  refused(with("2", "0,99999999999999999999999"), "something unknown");
  refused(with("4294967296,4294967296,2", "0,8"), "has 8 bytes, but its type and shape ask for other ones");
  refused(with("9223372036854775807,4", "0,8"), "ask for other ones");
  refused(file_of("{" + tensor("a", "4294967296,4294967296", "0,0") + "}"), "ask for other ones");  // none, modulo 2^64
  refused(with("4611686018427387906", "0,8"), "ask for other ones");  // times 4 bytes is 8, modulo 2^64
  refused(with("1,1,1,1,1,1,1,1,2", "0,8"), "has an impossible shape");

  // Places.
  refused(with("2", "8,0"), "from byte 8 to 0");
  refused(with("1", "0,4"), "its tensors end at byte");
  refused(with("1", "4,8"), "those before them end at byte 0");
  refused(with("3", "0,12"), "its tensors end at byte");
  const auto two = [&](const std::string& first, const std::string& second) {
    return file_of("{" + tensor("a", "1", first) + "," + tensor("b", "1", second) + "}", eight);
  };
  CHECK(read(two("4,8", "0,4")).tensors.at(0).name == "b");  // the order of names is free
  refused(two("0,4", "0,4"), "'b' lie from byte 0 to 4, those before them end at byte 4");
  refused(two("0,4", "2,6"), "those before them end at byte 4");
  refused(file_of("{" + tensor("a", "1", "0,4") + "," + tensor("b", "0", "2,2") + "}", "abcd"), "from byte 2 to 2");

  // Names.
  refused(two("0,4", "4,8").replace(two("0,4", "4,8").find("\"b\""), 3, "\"a\""), "the name 'a' stands twice");
  refused(file_of("{" + tensor("a", "1", "0,4") + "," + tensor("\\u0061", "1", "4,8") + "}", eight), "stands twice");
  refused(file_of(R"({"__metadata__":{"a":"b","a":"c"}})"), "metadata have the name 'a' twice");
  refused(file_of(R"({"__metadata__":{},"__metadata__":{}})"), "'__metadata__' stands twice");
  for (const char* name : {"a\\u001b[2J", "\\u007f"})
    refused(file_of("{" + tensor(name, "2", "0,8") + "}", eight), "control characters");

  const std::string long_name(1024, 'a');
  CHECK(read(file_of("{" + tensor(long_name, "2", "0,8") + "}", eight)).tensors.size() == 1);
  refused(file_of("{" + tensor(long_name + "a", "2", "0,8") + "}", eight), "a name has 1025 bytes, and may have 1024");

  // What is no such list.
  refused(file_of("[]"), "its header is no list of tensors");
  refused(file_of(" {}"), "its header is no list of tensors");
  refused(file_of(""), "its header is no list of tensors");
  refused(file_of("{"), "is not JSON in UTF-8");
  refused(file_of("{}}"), "is not JSON in UTF-8");
  refused(file_of("{} {}"), "is not JSON in UTF-8");
  refused(file_of("{\"\xff\":1}"), "is not JSON in UTF-8");
  refused(file_of("{\"a\xc3\":1}"), "is not JSON in UTF-8");
  refused(file_of(R"({"a":1})"), "something unknown at 'a'");
  refused(file_of(R"({"a":null})"), "something unknown at 'a'");
  refused(file_of(R"({"a":)" + std::string(1 << 20, '[')), "something unknown at 'a'");
  refused(file_of(R"({"a":)" + std::string(1 << 20, '{')), "is not JSON");
  refused(file_of(R"({"a":{"shape":[[]]}})"), "something unknown at 'shape'");
  refused(file_of(R"({"a":{"b":{}}})"), "something unknown at 'b'");
  refused(file_of(R"({"__metadata__":{"a":1}})"), "something unknown at 'a'");
  refused(file_of(R"({"__metadata__":"a"})"), "something unknown at '__metadata__'");
  refused(file_of(R"({"a":{}})"), "'a' has not all of dtype, shape and data_offsets");
  refused(file_of(R"({"a":{"dtype":"F32","shape":[0]}})"), "has not all of");
  refused(file_of(R"({"a":{"dtype":"F32","data_offsets":[0,0]}})"), "has not all of");
  refused(file_of(R"({"a":{"shape":[],"data_offsets":[0,0]}})"), "has not all of");
  refused(file_of(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0]}})"), "has not all of");
  refused(file_of(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0,0]}})"), "impossible data_offsets");
  refused(file_of(R"({"a":{"dtype":"F32","dtype":"F32"}})"), "something unknown at 'dtype'");
  refused(file_of(R"({"a":{"shape":[],"shape":[]}})"), "something unknown at 'shape'");
  refused(file_of(R"({"a":{"dtype":"F8","shape":[0],"data_offsets":[0,0]}})"), "has an unknown type");
  for (const char* shape : {"-2", "2.0", "\"2\"", "true", "null", "[]", "{}"})
    refused(with(shape, "0,8"), "something unknown at 'shape'");
}

TEST_CASE("Protocol Buffers are written as their specification shows", "[exchange]") {
  const auto bytes_of = [](const ProtobufMessage& message) {
    std::string bytes;
    for (const std::string& piece : message.pieces()) bytes += piece;
    CHECK(std::ssize(bytes) == message.size());
    return bytes;
  };
  ProtobufMessage number, text, whole, negative, real;  // the examples of "Encoding"
  number.integer(1, 150);
  CHECK(bytes_of(number) == "\x08\x96\x01");
  text.bytes(2, "testing");
  CHECK(bytes_of(text) == "\x12\x07testing");
  whole.message(3, number);
  CHECK(bytes_of(whole) == "\x1a\x03\x08\x96\x01");
  negative.integer(1, -2);
  CHECK(bytes_of(negative) == "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  real.real(20, 1.5F);
  CHECK(bytes_of(real) == std::string("\xa5\x01\x00\x00\xc0\x3f", 6));
  // Large pieces keep their place.
  ProtobufMessage inner, outer;
  const std::string large(200000, 'a');
  inner.integer(1, 1);
  inner.bytes(2, large);
  inner.integer(3, 3);
  outer.integer(1, 7);
  outer.message(2, inner);
  outer.integer(4, 4);
  const std::string content = "\x08\x01\x12\xc0\x9a\x0c" + large + "\x18\x03";
  REQUIRE(content.size() == 200008);
  CHECK(outer.pieces().size() == 3);  // the large one is not copied
  CHECK(bytes_of(outer) == "\x08\x07\x12\xc8\x9a\x0c" + content + "\x20\x04");
}

TEST_CASE("A file's own words are believed where they are plain and `export` has written them", "[exchange]") {
  const TemporaryFolder folder;
  StateDict state;
  state.metadata = {{"producer", "dat_hpc 1"},      {"network", "wrn_16_4"},   {"width", "16"},
                    {"activation", "si lu"},        {"normalize", "0.5,0.25"}, {"norm", std::string(200, 'a')},
                    {"eps", std::string(199, 'a')}, {"image_size", "16"},      {"class_names", "a\nb"}};
  write_safetensors(folder / "file", state);
  const Source ours = read_tensors(folder / "file");
  CHECK(ours.config ==
        "network = \"wrn_16_4\"\nwidth = 16\nnormalize = \"0.5,0.25\"\neps = \"" + std::string(199, 'a') + "\"\n");
  CHECK((ours.size == 16 && ours.class_names == std::vector<std::string>{"a", "b"}));
  CHECK(config_of_source(folder / "file") == ours.config);
  for (const char* none : {"0", "16x", "x", ""}) {  // "": is not said
    state.metadata["image_size"] = none;
    write_safetensors(folder / "file", state);
    CHECK(read_tensors(folder / "file").size == (*none == '\0' ? 0 : -1));
  }
  state.metadata["producer"] = "other";
  write_safetensors(folder / "file", state);
  const Source other = read_tensors(folder / "file");
  CHECK((other.config.empty() && other.size == 0 && other.class_names.empty()));
  const std::map<std::string, std::vector<const char*>> begins = {
      {"is an ONNX graph", {"\x08\x1f\x12", "\x08\x08\x3a"}},
      {"is a pickle of PyTorch", {"PK\3\4", "\x80\2"}},
      {"is no safetensors file", {"\x08\x20\x12", "\x08\x08\x13", "\x07\x08\x12", ""}}};
  for (const auto& [told, all] : begins)
    for (const char* begin : all) {
      write_bytes(folder / "file", begin);
      CHECK(contains(error_of([&] { static_cast<void>(read_tensors(folder / "file")); }), told));
    }
  write_bytes(folder / "file", file_of("{}" + std::string(126, ' ')));  // its length begins as a pickle does: 0x80
  CHECK(read_tensors(folder / "file").state.tensors.empty());
}

TEST_CASE("A run says what its network is in its resolved configuration, else in its checkpoint; weights do not say",
          "[exchange]") {
  const TemporaryFolder folder;
  Checkpoint checkpoint;
  checkpoint.texts["config_toml"] = "a";
  checkpoint.integers["step"] = 1;
  CheckpointFolder(folder.path(), false).save(1, checkpoint);
  for (const std::string& source : {folder.path(), folder / "step-000000001.h5"})
    CHECK(config_of_source(source) == "a");
  write_bytes(folder / "config.resolved.toml", "b");
  CHECK(config_of_source(folder.path()) == "b");
  write_sealed_hdf5(folder / "weights.h5", [](Hdf5File& file) { file.set_text("/", "config_toml", "c"); });
  CHECK(config_of_source(folder / "weights.h5").empty());
}

TEST_CASE("Tensors under all names in use find their places in every network", "[exchange]") {
  for (const std::string& network : networks().names()) {
    CAPTURE(network);
    const Graph graph = graph_of(network);
    const StateDict own = network_state(graph);
    const auto check_renamed = [&](const std::string& prefix,
                                   const std::vector<std::pair<const char*, const char*>>& words) {
      StateDict state = own;
      for (Checkpoint::Array& tensor : state.tensors) {
        for (const auto& [from, to] : words) replace(tensor.name, from, to);
        tensor.name.insert(0, prefix);
      }
      std::mt19937 random(1);
      std::shuffle(state.tensors.begin(), state.tensors.end(), random);
      check_same(fitted(graph, std::move(state), kPlain), own);
    };
    check_renamed("", {});
    check_renamed("module.", {});
    check_renamed("state_dict.module.model.", {});
    check_renamed("", {{".shortcut.", ".downsample."}, {"linear.", "fc."}});  // torchvision
    check_renamed("", {{"linear.", "module.linear.fc."}});                    // DAT
    check_renamed("_orig_mod.", {{"linear.", "classifier."}});
    check_renamed("net.", {{"linear.", "head."}});
    check_renamed("model._orig_mod.module.", {{"linear.", "logits."}});
    // The WideResNets' name, for others; and the other way round.
    check_renamed("", {{".convShortcut.", ".other."}, {".shortcut.0.", ".convShortcut."}, {".other.", ".shortcut.0."}});
    const NetworkOptions sizes =
        sizes_of(networks().at(network), own,
                 {.width = 4, .channels = 1, .classes = 7, .normalization = normalization_from("cifar10")});
    CHECK((sizes.classes == 10 && sizes.channels == 3));
  }
}

TEST_CASE("Numbers of classes and channels that no network has are not taken from a file", "[exchange]") {
  using Shape = std::vector<std::int64_t>;
  const auto sizes = [](const Shape& head, const Shape& first) {
    StateDict state;
    state.tensors = {{"linear.weight", head, {}}, {"conv1.weight", first, {}}};
    const NetworkOptions found =
        sizes_of(networks().at("small_cnn"), state, {.width = 4, .size = 16, .channels = 2, .classes = 7});
    return std::pair(found.classes, found.channels);
  };
  CHECK((sizes({2, 8}, {4, 1, 3, 3}) == std::pair(2, 1) && sizes({32767, 8}, {4, 4, 3, 3}) == std::pair(32767, 4)));
  for (const Shape& head : std::vector<Shape>{{1, 8}, {32768, 8}, {10}, {10, 8, 1}, {}})
    CHECK(sizes(head, {4, 3, 3, 3}) == std::pair(7, 3));
  for (const Shape& first : std::vector<Shape>{{4, 0, 3, 3}, {4, 5, 3, 3}, {4, 3, 3}, {}})
    CHECK(sizes({10, 8}, first) == std::pair(10, 2));
}

TEST_CASE("A network is found below any prefix, and its copies below others are passed over if they are equal",
          "[exchange]") {
  for (const std::string& network : networks().names()) {
    CAPTURE(network);
    const Graph graph =
        networks().at(network)({.width = 4, .size = 16, .normalization = normalization_from("cifar10")});
    const StateDict own = network_state(graph);
    const auto below = [&](const std::vector<std::string>& prefixes) {
      StateDict state = own;
      state.tensors.clear();
      for (const std::string& prefix : prefixes)
        for (Checkpoint::Array tensor : own.tensors) {
          tensor.name = prefix + tensor.name;
          state.tensors.push_back(tensor);
        }
      return state;
    };
    const auto fit = [&](StateDict state) { return fitted(graph, std::move(state), kPlain); };
    for (const std::string prefix : {"1.", "1.module.", "1._orig_mod.", "backbone.net.", "a.b.c.d.e.f."})
      check_same(fit(below({prefix})), own);
    StateDict sequential = below({"1."});
    sequential.tensors.push_back({"0.mean", {1, 3, 1, 1}, graph.normalization.mean});
    sequential.tensors.push_back({"0.std", {1, 3, 1, 1}, graph.normalization.deviation});
    check_same(fit(sequential), own);
    CHECK(sizes_of(networks().at(network), sequential, {.width = 4, .classes = 7}).classes == 10);
    StateDict madry = below({"module.attacker.model.", "module.model."});
    madry.tensors.push_back({"module.normalizer.new_mean", {3, 1, 1}, graph.normalization.mean});
    madry.tensors.push_back({"module.attacker.normalize.new_std", {3, 1, 1}, graph.normalization.deviation});
    check_same(fit(madry), own);
    madry.tensors.front().values[0] += 1;
    CHECK(contains(misfit(graph, madry), "module.attacker.model." + own.tensors.front().name + " and module.model." +
                                             own.tensors.front().name + " are different tensors"));
    StateDict compiled = own;
    for (Checkpoint::Array& tensor : compiled.tensors) tensor.name.insert(tensor.name.rfind('.') + 1, "_orig_mod.");
    check_same(fit(compiled), own);
    // Beside a network below a prefix a last layer may stand alone, other tensors are strangers.
    const auto stands_apart = [&](const std::string& name) {
      StateDict apart = below({"1."});
      for (Checkpoint::Array& tensor : apart.tensors)
        if (tensor.name == "1." + name) tensor.name = name;
      return error_of([&] { check_same(fit(apart), own); });
    };
    CHECK(stands_apart("linear.weight") == "none");
    const std::string& first = own.tensors.front().name;
    const auto& shape = own.tensors.front().shape;
    const std::string side = std::to_string(shape[2]),
                      size = " [" + std::to_string(shape[0]) + ",3," + side + "," + side + "]";
    CHECK(contains(stands_apart(first), first + size + " has no place in it; " + first));
    // A stranger whose name ends like one of the network's, or that stands below no prefix of it, is none of its.
    StateDict lacking = below({"1."});
    lacking.tensors.front().name = "2.x." + own.tensors.front().name;
    CHECK(contains(misfit(graph, lacking), own.tensors.front().name + size + " is missing"));
  }
}

TEST_CASE("DAT's second names of blocks are passed over if they are copies", "[exchange]") {
  const Graph graph = graph_of("preact_resnet18");
  const StateDict own = network_state(graph);
  StateDict twice = own;
  for (const Checkpoint::Array& tensor : own.tensors)
    if (tensor.name.starts_with("layer1.0.")) {
      twice.tensors.push_back(tensor);
      twice.tensors.back().name.replace(0, 9, "layers.1.");
    }
  check_same(fitted(graph, twice, kPlain), own);
  twice.tensors.back().values[0] = 0.123F;
  CHECK(misfit(graph, twice) ==
        "4: FILE: does not fit NETWORK, in 1 tensor: " + twice.tensors.back().name + " [4] has no place in it");
  // Two names for one tensor: only if they agree.
  StateDict both = own;
  both.tensors.push_back(own.tensors.front());
  both.tensors.back().name = "module.conv1.weight";
  check_same(fitted(graph, both, kPlain), own);
  both.tensors.back().values[0] = 0.123F;
  CHECK(contains(misfit(graph, both), "module.conv1.weight and conv1.weight are different tensors for conv1.weight"));
}

TEST_CASE("What public files have beside the weights is passed over if it changes nothing", "[exchange]") {
  const auto graph_with = [](const char* normalization) {
    return networks().at("wrn_16_4")({.width = 4, .size = 16, .normalization = normalization_from(normalization)});
  };
  const Graph graph = graph_with("cifar10");
  const StateDict own = network_state(graph);
  StateDict more = own;
  more.tensors.push_back({"module.sub_block1.layer.0.bn1.weight", {16}, any_values(16, 1)});
  more.tensors.push_back({"mu", {3, 1, 1}, graph.normalization.mean});
  more.tensors.push_back({"sigma", {1, 3, 1, 1}, graph.normalization.deviation});
  check_same(fitted(graph, more, kPlain), own);
  StateDict below = more;
  for (Checkpoint::Array& tensor : below.tensors) tensor.name.insert(0, "1.");
  check_same(fitted(graph, below, kPlain), own);
  below.tensors.push_back({"s", {1}, {1}});  // a stranger asks for no other numbers
  CHECK(misfit(graph, below).ends_with("in 1 tensor: s [1] has no place in it"));
  CHECK(contains(misfit(graph_with("cifar100"), more),
                 "in 2 tensors: mu [3,1,1] asks for another --normalize; sigma [1,3,1,1] asks for another --normalize; "
                 "to take the numbers of the file, give --normalize 0.4914,0.4822,0.4465,0.2471,0.2435,0.2616"));
  StateDict rounded = more;
  rounded.tensors.back().values[1] = std::nextafter(0.2435F, 1.0F);
  check_same(fitted(graph, rounded, kPlain), own);
  rounded.tensors.back().values[1] = std::nextafter(std::nextafter(0.2435F, 1.0F), 1.0F);
  CHECK(contains(misfit(graph, rounded), "in 1 tensor: sigma"));
  // The numbers of the file are all told, also those that are equal; those of two normalizations are not.
  rounded.tensors.back().values = {0.2023F, 0.1994F, 0.2010F};
  CHECK(misfit(graph, rounded)
            .ends_with("--normalize; to take the numbers of the file, give --normalize "
                       "0.4914,0.4822,0.4465,0.2023,0.1994,0.201"));
  std::vector<float>& mean = (rounded.tensors.end() - 2)->values;
  mean = {0, 1, 0.5F};
  CHECK(misfit(graph, rounded).ends_with("give --normalize 0,1,0.5,0.2023,0.1994,0.201"));
  for (const float none : {-0.5F, 1.5F}) {  // of images that are not in [0, 1]
    mean[2] = none;
    CHECK(misfit(graph, rounded).ends_with("sigma [1,3,1,1] asks for another --normalize"));
  }
  mean = graph.normalization.mean;
  rounded.tensors.push_back({"attacker.mean", {3}, graph.normalization.mean});
  rounded.tensors.push_back({"attacker.std", {3}, graph.normalization.deviation});
  CHECK(misfit(graph, rounded).ends_with("in 1 tensor: sigma [1,3,1,1] asks for another --normalize"));
  CHECK(contains(misfit(graph_with("none"), more), "in 2 tensors: mu"));
  for (const std::string prefix : {"", "normalize.", "module.normalize."}) {
    StateDict other = own;
    other.tensors.push_back({prefix + "mean", {3}, graph.normalization.mean});
    other.tensors.push_back({prefix + "std", {3}, graph.normalization.deviation});
    check_same(fitted(graph, other, kPlain), own);
    std::swap(other.tensors.back().values, (other.tensors.end() - 2)->values);
    const std::string told = misfit(graph, other);
    CHECK((contains(told, "in 2 tensors: " + prefix) &&
           told.ends_with("give --normalize 0.2471,0.2435,0.2616,0.4914,0.4822,0.4465")));
  }
}

TEST_CASE("Values that are not finite, and variances below zero, are refused", "[exchange]") {
  const auto told = [](const std::string& name, float value) {
    StateDict state;
    state.tensors = {{name, {2}, {0, value}}};
    return error_of([&] { check_values(state, "FILE"); });
  };
  CHECK((told("bn.running_var", 0.5F) == "none" && told("bn.running_mean", -1) == "none"));
  CHECK(told("bn.running_var", -1e-30F) == "4: FILE: bn.running_var has negative values; take another file");
  for (const float none : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    CHECK(told("fc.bias", none) == "4: FILE: fc.bias has values that are not finite; take another file");
}

TEST_CASE("Of many tensors that do not fit ten are named", "[exchange]") {
  const Graph graph = graph_of("small_cnn");
  StateDict state = network_state(graph);
  const auto with = [&](int strangers) {
    StateDict more = state;
    for (int k = 0; k < strangers; ++k) more.tensors.push_back({"s" + std::to_string(k), {1}, {1}});
    return misfit(graph, more);
  };
  CHECK(with(10).ends_with("s8 [1] has no place in it; s9 [1] has no place in it"));
  const std::string many = with(1000);
  CHECK((contains(many, "in 1000 tensors: s0 ") && many.ends_with("; s9 [1] has no place in it; and 990 more")));
}

TEST_CASE("A name of many prefixes costs no more than its length", "[exchange]") {
  const Graph graph = graph_of("small_cnn");
  StateDict state = network_state(graph);
  std::string name = "conv1.weight";
  for (int k = 0; k < 20; ++k) name += name;  // 12 MB
  for (std::size_t at = 0; at + 4 <= name.size(); at += 4) name.replace(at, 4, "net.");
  state.tensors[0].name = name + "conv1.weight";
  check_same(fitted(graph, state, kPlain), network_state(graph));
}

TEST_CASE("All tensors that do not fit are named in one message", "[exchange]") {
  const Graph graph = graph_of("small_cnn");
  StateDict state = network_state(graph);
  state.tensors[0].shape = {4, 3, 7, 7};
  state.tensors[0].values.resize(588);
  state.tensors[1].name = "bn9.weight";
  state.tensors.push_back(state.tensors[0]);  // a second one of the wrong shape
  CHECK(misfit(graph, state) ==
        "4: FILE: does not fit NETWORK, in 4 tensors: conv1.weight is [4,3,7,7], not [4,3,3,3]; conv1.weight and "
        "conv1.weight are different tensors for conv1.weight; bn9.weight [4] has no place in it; bn1.weight [4] is "
        "missing");
}

TEST_CASE("A new last layer begins as that of a new network, the others stay", "[exchange]") {
  const Graph graph = graph_of("resnet18", 7);
  StateDict state = network_state(graph_of("resnet18", 10));
  CHECK(contains(misfit(graph, state), "in 2 tensors: linear.weight is"));
  const StateDict result = fitted(graph, state, {.file = "FILE", .network = "NETWORK", .new_head = true, .seed = 3});
  for (std::size_t k = 0; k < graph.segments.size(); ++k) {
    const bool head = graph.segments[k].name.starts_with("linear.");
    if (head) CHECK(result.tensors[k].values == initial_values(graph.segments, k, 3));
    if (!head)
      CHECK(std::memcmp(result.tensors[k].values.data(), state.tensors[k].values.data(),
                        4 * state.tensors[k].values.size()) == 0);
  }
  // A file without a last layer will do.
  std::erase_if(state.tensors, [](const Checkpoint::Array& tensor) { return tensor.name.starts_with("linear."); });
  check_same(fitted(graph, state, {.file = "FILE", .network = "NETWORK", .new_head = true, .seed = 3}), result);
}

TEST_CASE("A model's state_dict has its bits, its hash, and comes back", "[exchange]") {
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const Graph graph = networks().at("resnet18")({.width = 16, .size = 8, .channels = 3, .classes = 5});
  Model model(*backend, graph, Granularity::tensor), other(*backend, graph, Granularity::tensor);
  model.initialize(3);
  std::vector<float> statistics(2 * static_cast<std::size_t>(graph.statistics));
  for (std::size_t i = 0; i < statistics.size(); ++i) statistics[i] = static_cast<float>(i) + 0.5F;
  set_running_statistics(model, statistics);
  Checkpoint checkpoint;
  save_network(model, checkpoint);
  checkpoint.integers["batches_tracked"] = 11;
  const StateDict state = fitted(graph, state_dict_of(checkpoint), kPlain);
  CHECK(weights_hash(graph, state) == weights_hash(model));
  CHECK((state.counters.at("layer4.0.shortcut.1.num_batches_tracked") == 11 && state.counters.size() == 20));
  CHECK(state.tensors.size() + state.counters.size() == 122);  // entries of PyTorch's own state_dict
  const Checkpoint back = checkpoint_of(read(written(state)));
  CHECK(back.integers.at("batches_tracked") == 11);
  load_network(back, other);
  CHECK((weights_hash(other) == weights_hash(model) && running_statistics(other) == statistics));
}
