#include "backend/cpu/backend.hpp"

namespace dat::cpu {

namespace {

class CpuLinear final : public Linear {
 public:
  CpuLinear(CpuBackend& backend, int n, int in, int out)
      : backend_(backend), weight_count_(std::int64_t{out} * in), bias_count_(out) {
    const FixedSums fixed(backend);
    const auto x = plain_desc({n, in}, Tag::nc), w = plain_desc({out, in}, Tag::oi), b = plain_desc({out}, Tag::x),
               y = plain_desc({n, out}, Tag::nc);
    const dnnl::primitive_attr attr = attributes();
    const dnnl::engine& engine = backend.engine();
    const auto forward =
        describe<dnnl::inner_product_forward>(engine, attr, dnnl::prop_kind::forward_training, x, w, b, y);
    const auto data = describe_backward<dnnl::inner_product_backward_data>(engine, attr, forward, x, w, y);
    // Matrix product: it has the better code for few classes.
    const dnnl::memory::desc transposed({in, out}, dnnl::memory::data_type::f32, dnnl::memory::dims{1, in}),
        row({1, out}, dnnl::memory::data_type::f32, dnnl::memory::dims{out, 1});
    const auto product = describe<dnnl::matmul>(engine, attr, x, transposed, row, y);
    forward_ = Primitive(engine, product, "the linear layer",
                         {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, transposed}, {DNNL_ARG_BIAS, row}, {DNNL_ARG_DST, y}});
    data_ = Primitive(engine, data, "the input gradient of the linear layer",
                      {{DNNL_ARG_DIFF_DST, y}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DIFF_SRC, x}});
    const auto weights = describe_backward<dnnl::inner_product_backward_weights>(engine, attr, forward, x, w, b, y);
    weights_ =
        Primitive(engine, weights, "the weight gradient of the linear layer",
                  {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, y}, {DNNL_ARG_DIFF_WEIGHTS, w}, {DNNL_ARG_DIFF_BIAS, b}});
    gradients_ = backend.allocate_floats(weight_count_ + bias_count_, "linear gradient");
    for (const Primitive* p : {&forward_, &data_, &weights_}) backend.request_scratch(p->scratch_bytes());
  }

  void forward(const float* x, const float* weights, const float* bias, float* y) override {
    const FixedSums fixed(backend_);
    forward_.run(backend_.stream(), backend_.scratch(), {x, weights, bias, y});
  }

  void backward_data(const float* dy, const float* weights, float* dx) override {
    const FixedSums fixed(backend_);
    data_.run(backend_.stream(), backend_.scratch(), {dy, weights, dx});
  }

  void backward_weights(const float* x, const float* dy, float* dw, float* dbias, bool accumulate) override {
    ++backend_.counters.linear_backward_weights;
    const FixedSums fixed(backend_);
    weights_.run(backend_.stream(), backend_.scratch(), {x, dy, gradients_, gradients_ + weight_count_});
    add(gradients_, dw, weight_count_, accumulate);
    add(gradients_ + weight_count_, dbias, bias_count_, accumulate);
  }

 private:
  static void add(const float* from, float* to, std::int64_t count, bool accumulate) {
    if (to == nullptr) return;
    for (std::int64_t i = 0; i < count; ++i) to[i] = accumulate ? to[i] + from[i] : from[i];
  }

  CpuBackend& backend_;
  const std::int64_t weight_count_, bias_count_;
  Primitive forward_, data_, weights_;
  float* gradients_ = nullptr;
};

}  // namespace

std::unique_ptr<Linear> CpuBackend::linear(int n, int in, int out) {
  return std::make_unique<CpuLinear>(*this, n, in, out);
}

}  // namespace dat::cpu
