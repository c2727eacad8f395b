#pragma once

// cuDNN's graph API, as far as frozen convolutions need it: a convolution and the point-wise operations after it as one
// kernel. The library's own C functions (cudnnBackend*), with owners and without much else.

#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/cudnn.hpp"

namespace dat::cuda::graph {

/// Refusal of the library, in its own words. It is no error: another plan is used then.
class Refusal : public std::runtime_error {
 public:
  Refusal(cudnnStatus_t status, const std::string& what) : std::runtime_error(what), status_(status) {}
  [[nodiscard]] cudnnStatus_t status() const { return status_; }

 private:
  cudnnStatus_t status_;
};

/// Owns one of the library's descriptors. Every call throws Refusal where the library does not succeed.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);

  /// Sets an attribute to some values of the C type that belongs to `type`.
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, 1, &value);
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const std::vector<T>& values) {
    set(name, type, static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.raw());
  }
  void finalize();

  /// Number of values of the attribute; those for which `values` has room are written.
  template <class Values>
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, Values& values) const {
    return get(name, type, std::ssize(values), std::data(values));
  }
  /// The value of an attribute that has one.
  template <class T = std::int64_t>
  [[nodiscard]] T value(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type = CUDNN_TYPE_INT64) const {
    std::array<T, 1> only{};
    (void)get(name, type, only);
    return only.front();
  }

  [[nodiscard]] cudnnBackendDescriptor_t raw() const { return descriptor_.get(); }

 private:
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t most,
                   void* values) const;
  std::unique_ptr<void, Destroy<cudnnBackendDestroyDescriptor>> descriptor_;
};

/// The tensors that lie in memory: their values are cuDNN's unique ids.
enum class Place : std::int64_t { x = 1, dy, w, bias, other, result };

/// Channels, rows and columns of a tensor [n, c, h, w] that is packed as NHWC, or of weights [c_out, c_in, h, w].
struct Shape {
  std::int64_t n, c, h, w;
};

/// One operation graph while it is built. Tensors and operations must be given in an order in which they can be
/// computed; sums are in f32, and so is everything between two operations.
class Operations {
 public:
  /// @param storage  the type of every tensor in memory
  Operations(cudnnHandle_t handle, DType storage) : handle_(handle), storage_(cudnn_type(storage)) {}

  [[nodiscard]] Descriptor& in_memory(Place place, const Shape& shape);
  /// Tensor that one operation hands to the next without memory.
  [[nodiscard]] Descriptor& between(const Shape& shape);

  /// to = conv(from, w), or, of a gradient, conv^T(from, w).
  void convolution(const Descriptor& from, const Descriptor& w, const Descriptor& to, int pad, int stride,
                   bool gradient = false);
  /// y = a + b. b may have one value per channel.
  void add(const Descriptor& a, const Descriptor& b, const Descriptor& y);
  /// y = max(a, 0).
  void relu(const Descriptor& a, const Descriptor& y);
  /// dx = dy where x is positive, else 0.
  void relu_gradient(const Descriptor& dy, const Descriptor& x, const Descriptor& dx);

  /// Ends the building. Everything must stay where it is as long as plans for this graph live.
  const Descriptor& finish();
  [[nodiscard]] const std::vector<Place>& places() const { return places_; }

 private:
  [[nodiscard]] Descriptor& tensor(cudnnDataType_t type, std::int64_t id, const Shape& shape, bool is_virtual);
  void pointwise(cudnnPointwiseMode_t mode,
                 std::initializer_list<std::pair<cudnnBackendAttributeName_t, const Descriptor*>> tensors);

  cudnnHandle_t handle_;
  cudnnDataType_t storage_;
  std::deque<Descriptor> parts_;  // descriptors refer to each other
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<Place> places_;
  std::int64_t next_virtual_ = 100;
};

/// One of the library's engines with its knobs, for one graph.
class Engine {
 public:
  /// Engine of a name, from heuristics that were asked elsewhere or at another time. Throws Refusal where that is no
  /// name, or the library has no such engine for the graph.
  Engine(const Descriptor& graph, const std::string& name);
  [[nodiscard]] bool deterministic() const;
  [[nodiscard]] const Descriptor& configuration() const { return parts_.back(); }

 private:
  std::deque<Descriptor> parts_;  ///< the engine, its knobs, and the configuration, which refers to them
};

/// The names of the engines that cuDNN's heuristics recommend for the graph, the best first: "engine 38 2=10 24=3" are
/// the engine's number, and type=value of its knobs. Empty: none.
[[nodiscard]] std::vector<std::string> recommended(const Descriptor& graph, cudnnBackendHeurMode_t mode);

/// An engine made ready for one graph. Building it may take a second: code is compiled.
class Execution {
 public:
  Execution(cudnnHandle_t handle, const Engine& engine);
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_; }
  /// Queues the execution. The pack says where the tensors lie.
  [[nodiscard]] cudnnStatus_t run(const Descriptor& pack) const {
    return cudnnBackendExecute(handle_, plan_.raw(), pack.raw());
  }

 private:
  cudnnHandle_t handle_;
  Descriptor plan_;
  std::size_t scratch_ = 0;
};

/// Addresses of the tensors in one call: one for each of the places.
[[nodiscard]] Descriptor variant_pack(const std::vector<Place>& places, void* const* addresses, void* scratch);

}  // namespace dat::cuda::graph
