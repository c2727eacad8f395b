#include "network/frozen_lowering.hpp"

#include <cassert>

#include "pointwise.hpp"

namespace dat {

FoldedNorm FrozenLowering::folded_norm(int batch_norm) const {
  const std::int64_t begin = model.graph.norms[static_cast<std::size_t>(node(batch_norm).norm)].begin;
  return {arrays.scale + begin, arrays.shift + begin};
}

bool FrozenLowering::leave_norm(int value, const Norm& norm) {
  const int next = first_not_taken();  // before others could write over what the norm reads
  if (readers(value) != std::vector{next} || node(next).op != Op::convolution) return false;
  ConvSpec spec = conv_spec(*this, node(next));
  spec.frozen = true;
  if (!model.backend.takes_norm(spec)) return false;
  make_in(-1, value, storage);
  norm_ = {value, norm};
  return true;
}

std::optional<FrozenLowering::Norm> FrozenLowering::take_norm(int value) {
  if (norm_.first != value) return std::nullopt;
  touch(norm_.second.x);
  touch(norm_.second.bits);
  return norm_.second;
}

FrozenLowering::Gradient FrozenLowering::arriving(int result) {
  Gradient gradient = at(result);
  gradient.elements = elements(result);
  gradient.type = type(result);
  touch(gradient.main);
  touch(gradient.extra);
  mask_first(result);
  return gradient;
}

void FrozenLowering::mask_first(int value) {
  Gradient& g = at(value);
  if (g.mask == -1) return;
  upkeep_.before.push_back({g.main, g.mask, elements(value), type(value)});
  touch(std::exchange(g.mask, -1));
}

void FrozenLowering::contribute(int value, Buffer part, Buffer mask) {
  Gradient& g = at(value);
  ++activation(value).parts;
  assert((mask < 0 || g.main < 0) && !g.through_relu);
  if (g.main == -1) {
    g = {.main = part, .mask = mask};
  } else if (g.extra == -1) {
    g.extra = part;
  } else {
    mask_first(value);
    upkeep_.after.push_back({g.main, part, elements(value), type(value)});
    touch(g.main);
  }
}

Lowering::Buffer FrozenLowering::add_to(int value, Buffer* mask) {
  Gradient& g = at(value);
  ++activation(value).parts;
  assert(!g.through_relu);
  if (mask != nullptr)
    touch(*mask = std::exchange(g.mask, -1));
  else
    mask_first(value);
  touch(g.main);
  return g.main;
}

bool FrozenLowering::one_part_missing(int value) const {
  const Gradient& g = at(value);
  return activation(value).parts + 1 == readers(value).size() && g.extra == -1 && g.mask == -1;
}

Lowering::Buffer FrozenLowering::go_through_relu(int value, Buffer whole) {
  ++activation(value).parts;
  touch(read(value));
  const Buffer rest = at(value).main;
  touch(rest);
  at(value) = {.main = whole, .through_relu = true};
  return rest;
}

void add(const Device& device, DType type, const void* a, const void* b, void* y, std::int64_t elements, bool relu,
         std::uint16_t* bits) {
  with_storage(type, [&](auto one) {
    using T = decltype(one);
    each(device, kernels::groups(elements),
         kernels::Add<T>{static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(y), elements, relu, bits});
  });
}

void mask(const Device& device, DType type, void* gradient, const void* extra, const std::uint16_t* bits,
          std::int64_t elements) {
  with_storage(type, [&](auto one) {
    using T = decltype(one);
    auto* g = static_cast<T*>(gradient);
    each(device, kernels::groups(elements),
         kernels::MaskGradient<T>{g, static_cast<const T*>(extra), bits, g, elements});
  });
}

void FrozenOperation::gather(const Gradient& dy, Buffer bits) const {
  void *main = at<void>(dy.main), *extra = at<void>(dy.extra);
  if (bits != -1)
    mask(device(), dy.type, main, extra, at<std::uint16_t>(bits), wanted(dy.elements));
  else if (extra != nullptr)
    add(device(), dy.type, main, extra, main, wanted(dy.elements));
}

}  // namespace dat
