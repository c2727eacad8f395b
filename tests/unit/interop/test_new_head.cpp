// Files of others with a last layer of a thousand classes, damaged, for a network with one of ten (--new-head).

#include "catch.hpp"
#include "checkpoint/checkpoint_file.hpp"
#include "hdf5/hdf5.hpp"
#include "hdf5/hdf5_reader.hpp"
#include "interop/source.hpp"
#include "interop/state_dict.hpp"
#include "memory_bytes.hpp"

using namespace dat;

namespace {

// nightly.sh asks for more.
int mutants() {
  const char* count = std::getenv("DAT_NEW_HEAD_MUTANTS");
  return count != nullptr ? std::atoi(count) : 150;
}

[[nodiscard]] NetworkOptions options_of(int classes) { return {.width = 16, .size = 8, .classes = classes}; }

[[nodiscard]] StateDict thousand_classes() {
  const Graph graph = networks().at("small_cnn")(options_of(1000));
  StateDict state;
  for (std::size_t k = 0; k < graph.segments.size(); ++k) {
    const std::vector<int> shape = graph.segments[k].file_shape();
    state.tensors.push_back(
        {graph.segments[k].name, {shape.begin(), shape.end()}, initial_values(graph.segments, k, 1)});
  }
  for (const Norm& norm : graph.norms) {
    const auto channels = static_cast<std::size_t>(norm.file_channels());
    state.tensors.push_back({norm.name + ".running_mean", {norm.file_channels()}, std::vector<float>(channels, 0)});
    state.tensors.push_back({norm.name + ".running_var", {norm.file_channels()}, std::vector<float>(channels, 1)});
    state.counters[norm.name + ".num_batches_tracked"] = 3;
  }
  return state;
}

[[nodiscard]] StateDict read(const std::string& kind, const std::string& bytes) {
  if (kind == "safetensors") return read_safetensors(test::MemoryBytes(bytes));
  const Hdf5Reader file(std::make_unique<test::MemoryBytes>(bytes), ExitCode::checkpoint);
  return state_dict_of(kind == "checkpoint" ? read_checkpoint(file) : read_weights(file));
}

/// As `import` and `train --initialize` do. False: the file is refused.
[[nodiscard]] bool takes(const std::string& kind, const std::string& bytes) {
  const auto& make = networks().at("small_cnn");
  try {
    StateDict state = read(kind, bytes);
    static_cast<void>(sizes_of(make, state, options_of(10)));
    const StateDict found = fitted(make(options_of(10)), std::move(state),
                                   {.file = kind, .network = "small_cnn", .new_head = true, .seed = 1});
    check_values(found, kind);
    const auto head = std::find_if(found.tensors.begin(), found.tensors.end(),
                                   [](const Checkpoint::Array& one) { return one.name == "linear.weight"; });
    REQUIRE(head != found.tensors.end());
    REQUIRE(head->values.size() == 320);
    return true;
  } catch (const Error& error) {
    REQUIRE(error.code() == ExitCode::checkpoint);
    return false;
  }
}

}  // namespace

TEST_CASE("A damaged file gives a network a new last layer, or a message", "[interop]") {
  const TemporaryFolder folder;
  const StateDict state = thousand_classes();
  write_safetensors(folder / "safetensors", state);
  write_checkpoint(folder / "checkpoint", checkpoint_of(state));
  Hdf5File plain = Hdf5File::create(folder / "weights");  // a state_dict
  for (const Checkpoint::Array& tensor : state.tensors) plain.write(tensor.name, tensor.shape, tensor.values);
  plain.close();
  std::mt19937 random(1);
  for (const std::string kind : {"safetensors", "checkpoint", "weights"}) {
    const std::string whole = read_bytes(folder / kind);
    REQUIRE(takes(kind, whole));
    int refused = 0;
    for (int number = 0; number < mutants(); ++number) {
      std::string mutant = whole;
      for (int k = 0; k <= number % 8; ++k)  // where the structure is, mostly
        mutant[random() % std::min<std::size_t>(number % 2 == 0 ? 4096 : 16384, whole.size())] =
            static_cast<char>(random());
      if (number % 10 == 9) mutant.resize(random() % whole.size());
      INFO(kind << ", number " << number);
      refused += takes(kind, mutant) ? 0 : 1;
    }
    CHECK(refused > mutants() / 20);
    CHECK(refused < mutants());
  }
}
