#include "backend/cpu/library_convolution.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "perturb.hpp"
#include "pointwise.hpp"

namespace dat::cpu {

namespace {

using Algorithm = dnnl::algorithm;
using Dims = dnnl::memory::dims;

/// make(algorithm), direct where the library has that.
template <class Make>
[[nodiscard]] auto best_algorithm(Make make) {
  try {
    return make(Algorithm::convolution_direct);
  } catch (const dnnl::error&) {
    return make(Algorithm::convolution_auto);
  }
}

[[nodiscard]] std::string text(const ConvSpec& s) {
  return "a convolution " + std::to_string(s.c_in) + " to " + std::to_string(s.c_out) + " channels at " +
         std::to_string(s.h) + "x" + std::to_string(s.w);
}

[[nodiscard]] dnnl::memory::desc input_desc(const CpuBackend& backend, const ConvSpec& s) {
  return activation_desc(
      s.n, s.image ? backend.image_layout(s.c_in, s.h, s.w) : backend.activation_layout(s.c_in, s.h, s.w));
}

[[nodiscard]] dnnl::memory::desc output_desc(const CpuBackend& backend, const ConvSpec& s) {
  return activation_desc(s.n, backend.activation_layout(s.c_out, s.h_out(), s.w_out()));
}

/// y = epilogue(conv(x)) with packed weights.
class ForwardPass {
 public:
  ForwardPass() = default;
  ForwardPass(CpuBackend& backend, const ConvSpec& s, bool accumulate, bool relu, bool bias) {
    const auto x = input_desc(backend, s), y = output_desc(backend, s);
    const auto w = plain_desc({s.c_out, s.c_in, s.kernel, s.kernel}, Tag::any);
    const auto b = plain_desc({s.c_out}, Tag::x);
    const auto attr = attributes(accumulate, relu);
    const auto kind = dnnl::prop_kind::forward_training;
    desc_ = best_algorithm([&](Algorithm algorithm) {
      const Dims stride(2, s.stride), before(2, s.pad), after(2, s.pad + s.extra_pad);
      using Forward = dnnl::convolution_forward;
      return bias ? describe<Forward>(backend.engine(), attr, kind, algorithm, x, w, b, y, stride, before, after)
                  : describe<Forward>(backend.engine(), attr, kind, algorithm, x, w, y, stride, before, after);
    });
    std::vector<Primitive::Argument> arguments = {
        {DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, desc_.weights_desc()}, {DNNL_ARG_DST, y}};
    if (bias) arguments.emplace_back(DNNL_ARG_BIAS, b);
    primitive_ = Primitive(backend.engine(), desc_, text(s), arguments);
    backend.request_scratch(primitive_.scratch_bytes());
  }
  /// b: null where there is no bias.
  void run(const CpuBackend& backend, const void* x, const void* w, const void* b, void* y) {
    if (b != nullptr)
      primitive_.run(backend.stream(), backend.scratch(), {x, w, y, b});
    else
      primitive_.run(backend.stream(), backend.scratch(), {x, w, y});
  }
  [[nodiscard]] dnnl::memory::desc weights_desc() const { return desc_.weights_desc(); }
  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(primitive_); }
  [[nodiscard]] const std::string& implementation() const { return primitive_.implementation(); }

 private:
  dnnl::convolution_forward::primitive_desc desc_;
  Primitive primitive_;
};

/// Convolution by the library's primitives.
class LibraryConv2d final : public Conv2d {
 public:
  LibraryConv2d(CpuBackend& backend, const ConvSpec& spec) : backend_(backend), spec_(spec) {
    forward_ = ForwardPass(backend, spec, spec.accumulate, spec.relu, spec.frozen);
    const dnnl::memory::dims dims{spec.c_out, spec.c_in, spec.kernel, spec.kernel};
    const auto master = plain_desc(dims, Tag::ohwi), source = plain_desc(dims, spec.frozen ? Tag::oihw : Tag::ohwi);
    pack_forward_ = reorder(source, forward_.weights_desc(), false);
    packed_ = backend.reserve_weights(forward_.weights_desc().get_size());
    weight_bytes_ = aligned(source.get_size(), kLine);
    if (spec.frozen) bias_ = backend.allocate_floats(spec.c_out, "folded bias");
    spec.frozen&& spec.stride == 1 && !spec.image ? plan_rotated() : plan_backward_data(source);
    if (!spec.frozen) plan_backward_weights(master);
    backend.request_scratch(weight_bytes_ + pack_scratch_);
  }

  void load(const float* weights, const float* scale, const float* bias) override {
    const float* source = spec_.frozen ? staged(weights, scale, false) : weights;
    pack(pack_forward_, source, backend_.weights(packed_));
    if (bias != nullptr) std::memcpy(bias_, bias, static_cast<std::size_t>(spec_.c_out) * sizeof(float));
    if (rotated_) source = staged(weights, scale, true);
    if (packed_backward_ != packed_) pack(pack_backward_, source, backend_.weights(packed_backward_));
  }

  void forward(const void* x, void* y, std::uint16_t* bits) override {
    ++backend_.counters.conv_forward;
    forward_.run(backend_, x, backend_.weights(packed_), bias_, y);
    mask_from_relu(backend_, spec_, static_cast<const float*>(y), bits);
  }

  void backward_data(const void* dy, void* dx, bool accumulate, const Masks&) override {
    ++backend_.counters.conv_backward_data;
    if (rotated_)
      (accumulate ? rotated_accumulate_ : rotated_).run(backend_, dy, backend_.weights(packed_backward_), nullptr, dx);
    else
      run_backward_data(dy, dx);
  }

  void backward_image(const void* dy, float* dx, const PgdUpdate& update, const float*) override {
    ++backend_.counters.conv_backward_data;
    auto* blocked = reinterpret_cast<float*>(static_cast<char*>(backend_.scratch()) + image_offset_);
    run_backward_data(dy, blocked);
    unblock_.run(backend_.stream(), backend_.scratch(), {blocked, dx});
    if (update.x != nullptr)
      each(backend_.device(), std::int64_t{spec_.n} * spec_.c_in * spec_.h * spec_.w, kernels::PgdStep{update, dx});
  }

  [[nodiscard]] bool backward_data_accumulates() const override { return static_cast<bool>(rotated_); }
  [[nodiscard]] bool backward_data_masks() const override { return false; }

  void backward_weights(const void* x, const void* dy, float* dw, bool accumulate, const float*) override {
    ++backend_.counters.conv_backward_weights;
    const FixedSums fixed(backend_);
    // The packed gradient lies after the library's own scratch.
    auto* packed = reinterpret_cast<float*>(static_cast<char*>(backend_.scratch()) + gradient_offset_);
    const bool plain = plain_x_ != nullptr;
    if (plain) {
      to_plain_x_.run(backend_.stream(), backend_.scratch(), {x, plain_x_});
      to_plain_dy_.run(backend_.stream(), backend_.scratch(), {dy, plain_dy_});
    }
    backward_weights_.run(backend_.stream(), backend_.scratch(),
                          {plain ? plain_x_ : x, plain ? plain_dy_ : dy, packed});
    (accumulate ? unpack_add_ : unpack_).run(backend_.stream(), backend_.scratch(), {packed, dw});
  }

  [[nodiscard]] std::string implementation() const override {
    std::string all = forward_.implementation() + " / " +
                      (rotated_ ? rotated_.implementation() + " rotated" : backward_data_.implementation());
    if (backward_weights_) all += " / " + backward_weights_.implementation();
    return all;
  }

 private:
  void run_backward_data(const void* dy, void* dx) {
    std::optional<FixedSums> fixed;
    if (plain_image_) {
      fixed.emplace(backend_);
      to_plain_dy_.run(backend_.stream(), backend_.scratch(), {dy, plain_dy_});
    }
    backward_data_.run(backend_.stream(), backend_.scratch(),
                       {plain_image_ ? plain_dy_ : dy, backend_.weights(packed_backward_), dx});
  }

  /// Primitive that moves one array from one format to another, or adds it to what is there.
  [[nodiscard]] Primitive reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to, bool accumulate) {
    const dnnl::reorder::primitive_desc desc(backend_.engine(), from, backend_.engine(), to, attributes(accumulate));
    Primitive made(backend_.engine(), desc, "packing weights", {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
    pack_scratch_ = std::max(pack_scratch_, made.scratch_bytes());
    return made;
  }
  void pack(Primitive& reorder, const float* from, float* to) {
    reorder.run(backend_.stream(), static_cast<char*>(backend_.scratch()) + weight_bytes_, {from, to});
  }

  /// Weights times scale [out] in scratch as [out][in][kh][kw], the one plain order that the library packs into every
  /// format. Rotated: turned by 180 degrees, input and output channels exchanged.
  [[nodiscard]] const float* staged(const float* weights, const float* scale, bool rotate) const {
    auto* staging = static_cast<float*>(backend_.scratch());
    constexpr int kBlock = 16;
    const int taps = spec_.kernel * spec_.kernel, in = spec_.c_in, out = spec_.c_out;
#pragma omp parallel for schedule(static)
    for (int begin = 0; begin < in; begin += kBlock) {
      const int end = std::min(in, begin + kBlock);
      for (int o = 0; o < out; ++o) {
        const float s = scale != nullptr ? scale[o] : 1.0F;
        for (int tap = 0; tap < taps; ++tap) {
          const float* from = weights + (std::int64_t{o} * taps + tap) * in;
          for (int i = begin; i < end; ++i)
            staging[rotate ? (std::int64_t{i} * out + o) * taps + taps - 1 - tap
                           : (std::int64_t{o} * in + i) * taps + tap] = from[i] * s;
        }
      }
    }
    return staging;
  }

  /// The input gradient of a stride-1 convolution is a convolution of dy with the weights rotated by 180 degrees, input
  /// and output channels exchanged: forward code, which can add to what is in dx.
  void plan_rotated() {
    ConvSpec turned = spec_;
    std::swap(turned.c_in, turned.c_out);
    turned.h = spec_.h_out();
    turned.w = spec_.w_out();
    turned.pad = spec_.kernel - 1 - spec_.pad;
    turned.extra_pad = -spec_.extra_pad;
    rotated_ = ForwardPass(backend_, turned, false, false, false);
    rotated_accumulate_ = ForwardPass(backend_, turned, true, false, false);
    require(rotated_.weights_desc() == rotated_accumulate_.weights_desc(), ExitCode::device,
            "oneDNN wants two weight formats for one convolution: ", text(spec_));
    pack_backward_ = reorder(plain_desc({spec_.c_in, spec_.c_out, spec_.kernel, spec_.kernel}, Tag::oihw),
                             rotated_.weights_desc(), false);
    packed_backward_ = backend_.reserve_weights(rotated_.weights_desc().get_size());
  }

  void plan_backward_data(const dnnl::memory::desc& source) {
    // The library has fast code for the gradient of an image only in its blocked layout, padded to a whole block.
    auto dx = spec_.image ? activation_desc(spec_.n, {spec_.c_in, spec_.h, spec_.w, backend_.block()})
                          : input_desc(backend_, spec_);
    auto dy = output_desc(backend_, spec_);
    auto desc = describe_pass<dnnl::convolution_backward_data>(dx, dy);
    // Without AVX-512 it has none for images that are strided over: there it multiplies plain matrices.
    plain_image_ = spec_.image && only_reference(desc);
    if (plain_image_) {
      const FixedSums fixed(backend_);
      dx = input_desc(backend_, spec_);
      dy = plan_plain_dy();
      desc = describe_pass<dnnl::convolution_backward_data>(dx, dy);
    }
    backward_data_ =
        Primitive(backend_.engine(), desc, "the input gradient of " + text(spec_),
                  {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_WEIGHTS, desc.weights_desc()}, {DNNL_ARG_DIFF_SRC, dx}});
    backend_.request_scratch(backward_data_.scratch_bytes());
    if (spec_.image) {
      unblock_ = reorder(dx, input_desc(backend_, spec_), false);
      image_offset_ = aligned(std::max(backward_data_.scratch_bytes(), unblock_.scratch_bytes()), kLine);
      backend_.request_scratch(image_offset_ + dx.get_size());
    }
    packed_backward_ = packed_;
    if (desc.weights_desc() != forward_.weights_desc()) {
      pack_backward_ = reorder(source, desc.weights_desc(), false);
      packed_backward_ = backend_.reserve_weights(desc.weights_desc().get_size());
    }
  }

  void plan_backward_weights(const dnnl::memory::desc& master) {
    const FixedSums fixed(backend_);
    auto x = input_desc(backend_, spec_), dy = output_desc(backend_, spec_);
    auto desc = describe_pass<dnnl::convolution_backward_weights>(x, dy);
    // Without AVX-512 the library has no blocked code for maps of 2x2 pixels, and none for images of one or two
    // channels: there it multiplies plain matrices.
    if (only_reference(desc)) {
      x = plain_desc({spec_.n, spec_.c_in, spec_.h, spec_.w}, Tag::nchw);
      dy = plan_plain_dy();
      desc = describe_pass<dnnl::convolution_backward_weights>(x, dy);
      to_plain_x_ = reorder(input_desc(backend_, spec_), x, false);
      plain_x_ = static_cast<float*>(backend_.allocate(x.get_size(), "plain activations"));
    }
    backward_weights_ =
        Primitive(backend_.engine(), desc, "the weight gradient of " + text(spec_),
                  {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_WEIGHTS, desc.diff_weights_desc()}});
    unpack_ = reorder(desc.diff_weights_desc(), master, false);
    unpack_add_ = reorder(desc.diff_weights_desc(), master, true);
    gradient_offset_ = aligned(std::max(backward_weights_.scratch_bytes(), pack_scratch_), kLine);
    backend_.request_scratch(gradient_offset_ + desc.diff_weights_desc().get_size());
  }

  /// Makes plain_dy_ and what writes dy into it; both backward passes share them.
  [[nodiscard]] dnnl::memory::desc plan_plain_dy() {
    const auto plain = plain_desc({spec_.n, spec_.c_out, spec_.h_out(), spec_.w_out()}, Tag::nchw);
    if (plain_dy_ == nullptr) {
      to_plain_dy_ = reorder(output_desc(backend_, spec_), plain, false);
      plain_dy_ = static_cast<float*>(backend_.allocate(plain.get_size(), "plain activations"));
    }
    return plain;
  }

  /// Description of a backward pass of tensors x and y, or of their gradients. The library wants the forward
  /// description of the same algorithm.
  template <class Backward>
  [[nodiscard]] typename Backward::primitive_desc describe_pass(const dnnl::memory::desc& x,
                                                                const dnnl::memory::desc& y) const {
    const auto w = plain_desc({spec_.c_out, spec_.c_in, spec_.kernel, spec_.kernel}, Tag::any);
    const Dims stride(2, spec_.stride), before(2, spec_.pad), after(2, spec_.pad + spec_.extra_pad);
    return best_algorithm([&](Algorithm algorithm) {
      const auto forward = describe<dnnl::convolution_forward>(backend_.engine(), dnnl::primitive_attr(),
                                                               dnnl::prop_kind::forward_training, algorithm, x, w, y,
                                                               stride, before, after);
      return describe_backward<Backward>(backend_.engine(), attributes(), forward, algorithm, x, w, y, stride, before,
                                         after);
    });
  }

  CpuBackend& backend_;
  ConvSpec spec_;
  ForwardPass forward_, rotated_, rotated_accumulate_;
  Primitive backward_data_, backward_weights_;
  Primitive pack_forward_, pack_backward_, unpack_, unpack_add_, unblock_, to_plain_x_, to_plain_dy_;
  std::size_t pack_scratch_ = 0, gradient_offset_ = 0, image_offset_ = 0;
  std::size_t weight_bytes_ = 0;                  ///< in scratch, before the packing's own
  std::size_t packed_ = 0, packed_backward_ = 0;  ///< places in the backend's packed weights
  bool plain_image_ = false;                      ///< the image's gradient is made from plain_dy_
  float *bias_ = nullptr, *plain_x_ = nullptr, *plain_dy_ = nullptr;
};

}  // namespace

void mask_from_relu(const CpuBackend& backend, const ConvSpec& s, const float* y, std::uint16_t* bits) {
  if (bits == nullptr) return;
  const std::int64_t count = std::int64_t{s.n} * s.c_out * s.h_out() * s.w_out();
  each(backend.device(), kernels::groups(count), kernels::MaskFromRelu<float>{y, bits, count});
}

std::unique_ptr<Conv2d> library_convolution(CpuBackend& backend, const ConvSpec& spec) {
  return std::make_unique<LibraryConv2d>(backend, spec);
}

}  // namespace dat::cpu
