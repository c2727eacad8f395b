#include "measure/convolutions.hpp"

#include "dat/half.hpp"
#include "dat/random.hpp"
#include "pointwise.hpp"

namespace dat {

Convolutions::Convolutions(Backend& backend, const Graph& graph, int batch, DType storage, bool training)
    : backend_(backend), storage_(storage) {
  for (const Node& node : graph.nodes) {
    if (node.op != Op::convolution) continue;
    const Node& from = graph.nodes[static_cast<std::size_t>(node.inputs[0])];
    const ConvSpec spec{.n = batch,
                        .c_in = from.c,
                        .h = from.h,
                        .w = from.w,
                        .c_out = node.c,
                        .kernel = node.kernel,
                        .stride = node.stride,
                        .pad = node.pad,
                        .extra_pad = node.extra_pad,
                        .image = from.makes_images()};
    const auto same = std::ranges::find_if(shapes_, [&](const Shape& shape) {
      const ConvSpec& s = shape.spec;
      return s.c_in == spec.c_in && s.h == spec.h && s.c_out == spec.c_out && s.kernel == spec.kernel &&
             s.stride == spec.stride && s.extra_pad == spec.extra_pad && s.image == spec.image;
    });
    if (same != shapes_.end())
      ++same->count;
    else
      shapes_.push_back({spec, 1, nullptr, nullptr});
  }
  backend.plan_weights();
  for (Shape& shape : shapes_) {
    const ConvSpec& s = shape.spec;
    ConvSpec frozen = s;
    frozen.frozen = frozen.relu = true;
    frozen.relu_input = !s.image;
    frozen.storage = storage;
    shape.frozen = backend.conv2d(frozen);
    if (training) shape.training = backend.conv2d(s);
    largest_ = std::max(
        {largest_, std::int64_t{s.n} * s.c_in * s.h * s.w, std::int64_t{s.n} * s.c_out * s.h_out() * s.w_out()});
    weights_ = std::max(weights_, std::int64_t{s.c_out} * s.c_in * s.kernel * s.kernel);
  }
  x_ = backend.allocate_floats(largest_, "x");
  y_ = backend.allocate_floats(largest_, "y");
  dx_ = backend.allocate_floats(largest_, "dx");
  w_ = backend.allocate_floats(weights_, "weights");
  dw_ = backend.allocate_floats(weights_, "weights");
  scale_ = backend.allocate_floats(weights_, "scale");
  bits_ = backend.allocate_array<std::uint16_t>(kernels::groups(largest_), "ReLU masks");
  backend.commit_workspace();
  values_.resize(static_cast<std::size_t>(std::max(largest_, weights_)));
  for (std::size_t i = 0; i < values_.size(); ++i)
    values_[i] = uniform(random_words(1, Purpose::synthetic_data, 0, i, 0).v[0]) - 0.5F;
  upload(w_, weights_, DType::f32);
  upload(scale_, weights_, DType::f32);
}

Convolutions::~Convolutions() = default;

/// The first of `values_` to the device, in the type `storage`.
void Convolutions::upload(void* to, std::int64_t count, DType storage) {
  const auto put = [&](auto type) {
    using T = decltype(type);
    std::vector<T> stored(static_cast<std::size_t>(count));
    std::transform(values_.begin(), values_.begin() + count, stored.begin(), Stored<T>::from);
    backend_.copy_to_device(to, stored.data(), stored.size() * sizeof(T));
  };
  with_storage(storage, put);
}

Convolutions::Row Convolutions::measure(int k, const Effort& effort) {
  const Shape& shape = shapes_[static_cast<std::size_t>(k)];
  const ConvSpec& s = shape.spec;
  const auto square = [](int kernel) { return std::to_string(kernel) + "x" + std::to_string(kernel); };
  Row row{.name = std::to_string(s.c_in) + "-" + std::to_string(s.c_out) + " " + square(s.kernel) + "/" +
                  std::to_string(s.stride) + " @" + std::to_string(s.h),
          .count = shape.count,
          .macs = s.macs(),
          .passes = {},
          .implementation = shape.frozen->implementation()};
  const auto fill = [&](DType type) {
    upload(x_, std::int64_t{s.n} * s.c_in * s.h * s.w, s.image ? DType::f32 : type);
    upload(y_, std::int64_t{s.n} * s.c_out * s.h_out() * s.w_out(), type);
  };
  const auto time = [&](int pass, const auto& work) { row.passes[pass] = repeat_recorded(backend_, effort, work); };
  static_cast<void>(backend_.take_turn(this));
  fill(storage_);
  shape.frozen->load(w_, scale_, scale_);
  time(frozen_forward, [&] { shape.frozen->forward(x_, y_, bits_); });
  const Conv2d::Masks masks{!s.image && shape.frozen->backward_data_masks() ? bits_ : nullptr, nullptr};
  time(frozen_input_gradient, [&] {
    if (s.image)
      shape.frozen->backward_image(y_, dx_, {});
    else if (shape.frozen->backward_relu_pays())
      shape.frozen->backward_relu(y_, x_, nullptr, dx_);
    else
      shape.frozen->backward_data(y_, dx_, false, masks);
  });
  if (shape.training) {
    fill(DType::f32);
    shape.training->load(w_, nullptr, nullptr);
    time(train_forward, [&] { shape.training->forward(x_, y_, nullptr); });
    if (!s.image) time(train_input_gradient, [&] { shape.training->backward_data(y_, x_, false); });
    time(train_weight_gradient, [&] { shape.training->backward_weights(x_, y_, dw_, false); });
    row.implementation += " | " + shape.training->implementation();
  }
  return row;
}

Convolutions::Row total(const std::vector<Convolutions::Row>& rows) {
  Convolutions::Row all{.name = "sum", .count = 0, .macs = 0, .passes = {}, .implementation = ""};
  for (const Convolutions::Row& row : rows) {
    all.count += row.count;
    all.macs += row.count * row.macs;
    for (int k = 0; k < kPasses; ++k) {
      all.passes[k].median += row.count * row.passes[k].median;
      all.passes[k].least += row.count * row.passes[k].least;
      all.passes[k].runs = std::max(all.passes[k].runs, row.passes[k].runs);
    }
  }
  return all;
}

}  // namespace dat
