#include "catch.hpp"
#include "dat/backend.hpp"
#include "dat/parameters.hpp"
#include "device.hpp"
#include "gradients.hpp"
#include "random_values.hpp"

using namespace dat;

namespace {

/// Two convolutions with batch norm in one block, and a head: the order of PyTorch's pre-activation block.
Parameters two_blocks() {
  Parameters p;
  const auto add = [&](const char* name, std::vector<int> shape, const char* module, const char* block) {
    Segment segment{name, shape, module, block, p.size, 1, -1};
    for (const int dim : shape) segment.size *= dim;
    p.size += segment.size;
    p.segments.push_back(segment);
  };
  add("a.bn1.weight", {3}, "a.conv1", "a");
  add("a.conv1.weight", {4, 3, 3, 3}, "a.conv1", "a");
  add("a.bn2.weight", {4}, "a.conv2", "a");
  add("a.conv2.weight", {1000, 4, 3, 3}, "a.conv2", "a");
  add("linear.weight", {10, 4}, "linear", "head");
  add("linear.bias", {10}, "linear", "head");
  return p;
}

}  // namespace

TEST_CASE("The granularity says which segments form one layer", "[parameters]") {
  Parameters p = two_blocks();
  const auto layers = [&] {
    std::vector<int> all;
    for (const Segment& segment : p.segments) all.push_back(segment.layer);
    return all;
  };

  assign_layers(p, granularity_from("tensor"));
  CHECK((layers() == std::vector<int>{0, 1, 2, 3, 4, 5} && p.layer_names[3] == "a.conv2.weight"));
  CHECK(p.layer_sizes == std::vector<std::int64_t>{3, 108, 4, 36000, 40, 10});

  assign_layers(p, granularity_from("module"));
  CHECK(layers() == std::vector<int>{0, 0, 1, 1, 2, 2});
  CHECK(p.layer_names == std::vector<std::string>{"a.conv1", "a.conv2", "linear"});
  CHECK(p.layer_sizes == std::vector<std::int64_t>{111, 36004, 50});

  assign_layers(p, granularity_from("block"));
  CHECK((layers() == std::vector<int>{0, 0, 0, 0, 1, 1} && p.layer_names == std::vector<std::string>{"a", "head"}));
  CHECK(std::accumulate(p.layer_sizes.begin(), p.layer_sizes.end(), std::int64_t{0}) == p.size);

  CHECK_THROWS_AS(granularity_from("neuron"), Error);
}

TEST_CASE("Convolution weights are [out][kh][kw][in] in memory and [out][in][kh][kw] in files", "[parameters]") {
  const Segment conv{"conv", {2, 3, 2, 2}, "conv", "conv", 0, 24, 0};
  std::vector<float> file(24), memory(24), back(24);
  std::iota(file.begin(), file.end(), 0.0F);
  to_memory_order(conv, file.data(), memory.data());
  for (int out = 0; out < 2; ++out)
    for (int in = 0; in < 3; ++in)
      for (int y = 0; y < 2; ++y)
        for (int x = 0; x < 2; ++x) {
          const auto from = static_cast<std::size_t>(((out * 3 + in) * 2 + y) * 2 + x);
          const auto to = static_cast<std::size_t>(((out * 2 + y) * 2 + x) * 3 + in);
          CHECK(memory[to] == file[from]);
        }
  to_file_order(conv, memory.data(), back.data());
  CHECK(back == file);

  const Segment matrix{"linear", {4, 6}, "linear", "head", 0, 24, 0};
  to_memory_order(matrix, file.data(), memory.data());
  CHECK(memory == file);
  to_file_order(matrix, memory.data(), back.data());
  CHECK(back == file);
}

TEST_CASE("Padding is zero in memory, and in no file", "[parameters]") {
  Segment conv{"conv", {4, 5, 1, 2}, "conv", "conv", 0, 40, 0};
  conv.padding_out = 2;
  conv.padding_in = 1;
  CHECK(conv.file_shape() == std::vector<int>{2, 4, 1, 2});
  REQUIRE(conv.file_size() == 16);
  std::vector<float> file(16), memory(40, -1.0F), back(16);
  std::iota(file.begin(), file.end(), 1.0F);
  to_memory_order(conv, file.data(), memory.data());
  for (std::size_t out = 0; out < 4; ++out)
    for (std::size_t x = 0; x < 2; ++x)
      for (std::size_t in = 0; in < 5; ++in)
        CHECK(memory[(out * 2 + x) * 5 + in] == (out < 2 && in < 4 ? file[(out * 4 + in) * 2 + x] : 0));
  to_file_order(conv, memory.data(), back.data());
  CHECK(back == file);

  Segment gamma{"bn.weight", {5}, "conv", "conv", 0, 5, 0};
  gamma.padding_out = 3;
  std::vector<float> five(5, -1.0F);
  to_memory_order(gamma, file.data(), five.data());
  CHECK((five == std::vector<float>{1, 2, 0, 0, 0} && file_size({conv, gamma}) == 18));
  for (std::ptrdiff_t n = 0; n <= 40; ++n)
    CHECK(conv.real_before(n) == n - std::count(memory.begin(), memory.begin() + n, 0.0F));
  CHECK((gamma.real_before(1) == 1 && gamma.real_before(5) == 2));
  Segment matrix{"linear", {2, 3}, "linear", "head", 0, 6, 0};
  matrix.padding_in = 1;
  std::vector<float> six(6, -1.0F);
  to_memory_order(matrix, file.data(), six.data());
  CHECK((six == std::vector<float>{1, 2, 0, 3, 4, 0} && matrix.real_before(4) == 3));
  CHECK(Segment().file_shape().empty());  // of an array that is no tensor
}

TEST_CASE("The chunk table covers exactly the active layers, in order, in pieces of one segment", "[parameters]") {
  Parameters p = two_blocks();
  assign_layers(p, Granularity::module);
  const auto backend = test::test_backend(1);
  ChunkTable table(*backend, p);
  CHECK(table.largest() == 10);  // the 36,000 elements of a.conv2 are five chunks

  for (int mask = 0; mask < 8; ++mask) {
    ActiveSet active = ActiveSet::all(3);
    for (int d = 0; d < 3; ++d)
      if ((mask >> d & 1) == 0) active.scale[static_cast<std::size_t>(d)] = 0;
    std::vector<int> covered(static_cast<std::size_t>(p.size), 0);
    std::int64_t last_end = 0;
    const Chunks chunks = table.select(active);
    CHECK(chunks.segments == std::ssize(p.segments));
    const auto all = test::to_host(*backend, chunks.data, chunks.count);
    const auto first = test::to_host(*backend, chunks.first, chunks.segments + 1);
    CHECK(first.back() == chunks.count);
    for (std::int32_t k = 0; k < chunks.count; ++k) {
      const Chunk& chunk = all[static_cast<std::size_t>(k)];
      CHECK(k >= first[static_cast<std::size_t>(chunk.segment)]);
      CHECK(k < first[static_cast<std::size_t>(chunk.segment) + 1]);
      const Segment& segment = p.segments[static_cast<std::size_t>(chunk.segment)];
      CHECK((chunk.size > 0 && chunk.size <= kChunk && chunk.begin >= last_end));
      CHECK((chunk.begin >= segment.begin && chunk.begin + chunk.size <= segment.begin + segment.size));
      last_end = chunk.begin + chunk.size;
      for (std::int64_t i = chunk.begin; i < last_end; ++i) ++covered[static_cast<std::size_t>(i)];
    }
    for (const Segment& segment : p.segments)
      for (std::int64_t i = segment.begin; i < segment.begin + segment.size; ++i)
        if (covered[static_cast<std::size_t>(i)] != (active.active(segment.layer) ? 1 : 0))
          FAIL("element " << i << " of mask " << mask);
  }
}

TEST_CASE("Sums over a part of the chunk table are those of the whole, from the part's first segment on",
          "[parameters]") {
  Parameters p = two_blocks();
  assign_layers(p, Granularity::module);
  const auto backend = test::test_backend(1);
  ChunkTable table(*backend, p);
  const auto x = test::to_device(*backend, test::random_values(p.size, 1));
  const auto segments = static_cast<int>(p.segments.size());
  const auto doubles = [&](std::int64_t count) { return backend->allocate_array<double>(count, "test"); };
  double *const partial = doubles(table.largest() * kSums), *const out = doubles(segments * kSums);
  const auto sums = [&](const Chunks& chunks) {
    sum(backend->device(), chunks, kernels::SquaredNorm{x}, partial, out);
    return test::to_host(*backend, out, chunks.segments * kSums);
  };
  for (const bool middle : {true, false}) {
    const Chunks chunks = table.select({{1.0F, middle ? 1.0F : 0.0F, 1.0F}});
    const auto whole = sums(chunks);
    CHECK((whole[3 * kSums] > 0) == middle);
    for (int begin = 0; begin < segments; ++begin)
      for (int end = begin + 1; end <= segments; ++end) {
        const Chunks part = table.between(begin, end);
        CHECK(part.segments == end - begin);
        CHECK(sums(part) == std::vector<double>(whole.begin() + begin * kSums, whole.begin() + end * kSums));
      }
  }
}
