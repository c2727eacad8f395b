#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dat {

class Backend;

/// Unit that counts as one "layer" of JointSpar. `tensor` is the literature's unit (54 layers of PreActResNet-18).
enum class Granularity : std::uint8_t { tensor, module, block };

[[nodiscard]] Granularity granularity_from(const std::string& name);

/// Initial value of a parameter.
enum class Initial : std::uint8_t {
  uniform,  ///< U(-1/sqrt(fan_in), 1/sqrt(fan_in)), of a bias with the fan-in of the weights before it: PyTorch's
            ///< default
  normal_fan_out,  ///< normal, with variance 2/fan_out: He et al., "Delving Deep into Rectifiers", 2015
  zero,
  one
};

/// One parameter tensor: a piece of the flat block. Convolution weights lie as [out][kh][kw][in] in memory; `shape` has
/// PyTorch's order [out, in, kh, kw], which is also that of files.
///
/// Where a network's channels are no multiple of what devices work on, the last channels of out and in are padding:
/// zeros in values, gradients and any optimizer's state, which no file holds. The padding stays zero, because zeros go
/// into a padding channel, its gamma is zero, and so are the weights that read it.
struct Segment {
  std::string name;        ///< PyTorch's name, e.g. "layer1.0.conv1.weight"
  std::vector<int> shape;  ///< PyTorch's shape, with the padding
  std::string module;      ///< the convolution or linear layer it belongs to, with its batch norm
  std::string block;       ///< the residual block (or stem, head) it belongs to
  std::int64_t begin = 0;  ///< first element in the flat block
  std::int64_t size = 0;   ///< elements, with the padding
  int layer = 0;           ///< JointSpar's layer
  int padding_out = 0;     ///< padding channels of shape[0]
  int padding_in = 0;      ///< padding channels of shape[1]
  Initial initial = Initial::uniform;

  /// PyTorch's shape, which files have: without the padding.
  [[nodiscard]] std::vector<int> file_shape() const;
  /// Elements of file_shape().
  [[nodiscard]] std::int64_t file_size() const;
  /// Number of real elements, which are no padding, among the first `count` in memory.
  [[nodiscard]] std::int64_t real_before(std::int64_t count) const;
};

/// Elements of all segments in files: the number of a network's parameters.
[[nodiscard]] std::int64_t file_size(const std::vector<Segment>& segments);

/// The model's parameters as one flat block. Owns nothing: the blocks belong to the backend.
struct Parameters {
  std::vector<Segment> segments;
  std::vector<std::string> layer_names;   ///< [layers]
  std::vector<std::int64_t> layer_sizes;  ///< [layers], elements
  std::int64_t size = 0;                  ///< elements of all segments
  float* values = nullptr;                ///< [size], on the device
  float* gradients = nullptr;             ///< [size], on the device
  std::uint64_t version = 1;              ///< raised whenever `values` changes: packed copies are refreshed by it

  [[nodiscard]] int layers() const { return static_cast<int>(layer_names.size()); }
};

/// Numbers the layers of all segments by `granularity` and fills layer_names and layer_sizes.
void assign_layers(Parameters& parameters, Granularity granularity);

/// PyTorch's [out, in, kh, kw] of file_size() elements to our [out][kh][kw][in] of `size`, and back. In memory the
/// padding becomes zero; in vectors and matrices there is nothing else to be done.
void to_memory_order(const Segment& segment, const float* file, float* memory);
void to_file_order(const Segment& segment, const float* memory, float* file);

/// The layers that take part in one step. scale = 0: inactive (no weight gradient, not sent, stands still);
/// otherwise 1/p, the importance weight that keeps the gradient unbiased.
struct ActiveSet {
  std::vector<float> scale;  ///< [layers]

  [[nodiscard]] bool active(int layer) const { return scale[static_cast<std::size_t>(layer)] != 0.0F; }
  [[nodiscard]] static ActiveSet all(int layers) {
    return {std::vector<float>(static_cast<std::size_t>(layers), 1.0F)};
  }
};

/// A run of at most kChunk elements of one segment: the unit in which many-tensor kernels work. kChunk is fixed, so
/// that sums have one order at any number of threads.
struct Chunk {
  std::int64_t begin = 0;
  std::int32_t size = 0;
  std::int32_t segment = 0;
};
constexpr std::int32_t kChunk = 8192;

/// Chunks on the device, ordered by segment.
struct Chunks {
  const Chunk* data = nullptr;          ///< [count]
  const std::int32_t* first = nullptr;  ///< [segments + 1] the first chunk of each segment, where data[0] is `origin`
  std::int32_t count = 0, segments = 0;
  std::int32_t origin = 0;
};

/// The chunks of the active segments, on the device, in memory that is allocated once.
class ChunkTable {
 public:
  ChunkTable(Backend& backend, const Parameters& parameters);
  /// The chunks of the segments of active layers. Valid until the next call. Allocates nothing.
  [[nodiscard]] const Chunks& select(const ActiveSet& active);
  /// The chunks of the segments begin..end - 1 alone, of the last selection. Results of `sum` begin with segment
  /// `begin`.
  [[nodiscard]] Chunks between(int begin, int end) const;
  [[nodiscard]] std::int64_t largest() const { return static_cast<std::int64_t>(all_.size()); }

 private:
  Backend& backend_;
  const Parameters& parameters_;
  std::vector<Chunk> all_, selected_;
  std::vector<std::int32_t> first_;
  std::vector<char> active_;  ///< [segments] of the last selection
  Chunk* device_chunks_;
  std::int32_t* device_first_;
  Chunks chunks_;
};

/// An array of any numbers in chunks, as one segment.
struct ArrayInChunks {
  ArrayInChunks(Backend& backend, std::int64_t size);
  Parameters parameters;
  ChunkTable table;
  Chunks chunks;
};

}  // namespace dat
