#pragma once

// The one door to oneDNN.

#include <array>
#include <cassert>
#include <dnnl.hpp>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "dat/error.hpp"
#include "dat/tensor.hpp"

namespace dat::cpu {

using Tag = dnnl::memory::format_tag;

[[nodiscard]] inline dnnl::memory::desc plain_desc(const dnnl::memory::dims& dims, Tag tag) {
  return {dims, dnnl::memory::data_type::f32, tag};
}

/// Descriptor of [n] activations in `layout`.
[[nodiscard]] inline dnnl::memory::desc activation_desc(int n, const Layout& layout) {
  // Layout nhwc is the same in memory for one channel, but the library has fast code for nchw only.
  const Tag tag = layout.block == 16  ? Tag::nChw16c
                  : layout.block == 8 ? Tag::nChw8c
                  : layout.block == 1 ? Tag::nchw
                                      : Tag::nhwc;
  return plain_desc({n, layout.c, layout.h, layout.w}, tag);
}

/// Returns whether the library has no more than its slow reference code for this.
template <class PrimitiveDesc>
[[nodiscard]] bool only_reference(const PrimitiveDesc& desc) {
  return std::string(desc.impl_info_str()).find("ref") != std::string::npos;
}

/// Number of inputs that a primitive demands.
template <class PrimitiveDesc>
[[nodiscard]] int inputs_of(const PrimitiveDesc& desc) {
  constexpr int kUnused = 0;
  int count{};
  dnnl::error::wrap_c_api(dnnl_primitive_desc_query(desc.get(), dnnl_query_num_of_inputs_s32, kUnused, &count),
                          "oneDNN does not say what a primitive reads");
  return count;
}

/// Description of primitive P, in the words of oneDNN 2 and of oneDNN 3. Throws dnnl::error where the library has none.
template <class P, class... Words>
[[nodiscard]] typename P::primitive_desc describe(const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
                                                  const Words&... words) {
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine, words..., attributes);
#else
  return typename P::primitive_desc(typename P::desc(words...), attributes, engine);
#endif
}

/// Description of the backward pass P of what `forward` describes.
template <class P, class Forward, class... Words>
[[nodiscard]] typename P::primitive_desc describe_backward(const dnnl::engine& engine,
                                                           const dnnl::primitive_attr& attributes,
                                                           const Forward& forward, const Words&... words) {
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine, words..., forward, attributes);
#else
  return typename P::primitive_desc(typename P::desc(words...), attributes, engine, forward);
#endif
}

/// What descriptions of batch norm say of its input and output, or of their gradients, which lie alike: oneDNN 2 is
/// told once.
#if DNNL_VERSION_MAJOR >= 3
#define DAT_NORM_PAIR(desc) desc, desc
#else
#define DAT_NORM_PAIR(desc) desc
#endif

inline void append_relu(dnnl::post_ops& post) {
  constexpr float kUnused = 0;
#if DNNL_VERSION_MAJOR >= 3
  post.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0F, kUnused);
#else
  post.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, kUnused);
#endif
}

/// Attributes of a primitive that adds to what is there, or ends with a ReLU. Its scratch memory is its caller's.
[[nodiscard]] inline dnnl::primitive_attr attributes(bool accumulate = false, bool relu = false) {
  dnnl::primitive_attr attr;
  dnnl::post_ops post;
  if (accumulate) post.append_sum(1.0F);
  if (relu) append_relu(post);
  attr.set_post_ops(post);
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

/// A primitive with its arguments in place: run() changes pointers and executes, nothing else.
class Primitive {
 public:
  using Argument = std::pair<int, dnnl::memory::desc>;

  Primitive() = default;

  /// arguments: those whose places run() is given, in this order.
  template <class PrimitiveDesc>
  Primitive(const dnnl::engine& engine, const PrimitiveDesc& desc, const std::string& what,
            const std::vector<Argument>& arguments)
      : engine_(engine), primitive_(desc.get()), implementation_(desc.impl_info_str()) {
    require(!only_reference(desc), ExitCode::device, "oneDNN has only its slow reference code for ", what, " (",
            implementation_, "); choose a width that is a multiple of 16");
    for (const auto& [argument, of] : arguments) add(argument, of, nullptr);
    scratch_index_ = memories_.size();
    add(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc(), nullptr);  // one that is empty is not looked at
  }

  /// Declares one more argument, which stays where it is.
  void add(int argument, const dnnl::memory::desc& desc, void* data) {
    memories_.emplace_back(desc, engine_, data);
    arguments_.push_back({argument, memories_.back().get()});
  }
  void run(const dnnl::stream& stream, void* scratch, std::initializer_list<const void*> places) {
    assert(places.size() == scratch_index_);
    std::size_t k = 0;
    for (const void* place : places) memories_[k++].set_data_handle(const_cast<void*>(place));
    memories_[scratch_index_].set_data_handle(scratch);
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive_.get(), stream.get(), static_cast<int>(arguments_.size()), arguments_.data()),
        "oneDNN could not execute a primitive");
  }

  [[nodiscard]] explicit operator bool() const { return !implementation_.empty(); }
  [[nodiscard]] std::size_t scratch_bytes() const { return memories_.at(scratch_index_).get_desc().get_size(); }
  [[nodiscard]] const std::string& implementation() const { return implementation_; }

 private:
  dnnl::engine engine_;
  dnnl::primitive primitive_;
  std::string implementation_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
  std::size_t scratch_index_ = 0;
};

}  // namespace dat::cpu
