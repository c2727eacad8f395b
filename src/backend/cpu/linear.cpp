#include "backend/cpu/backend.hpp"

namespace dat::cpu {

namespace {

class CpuLinear final : public Linear {
 public:
  CpuLinear(CpuBackend& backend, int n, int in, int out) : backend_(backend) {
    const FixedSums fixed(backend);
    const auto x = plain_desc({n, in}, Tag::nc), w = plain_desc({out, in}, Tag::oi), b = plain_desc({out}, Tag::x),
               y = plain_desc({n, out}, Tag::nc);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::engine& engine = backend.engine();
    const auto forward =
        describe<dnnl::inner_product_forward>(engine, attr, dnnl::prop_kind::forward_training, x, w, b, y);
    const auto data = describe_backward<dnnl::inner_product_backward_data>(engine, attr, forward, x, w, y);
    // Matrix product: it has the better code for few classes.
    const dnnl::memory::desc transposed({in, out}, dnnl::memory::data_type::f32, dnnl::memory::dims{1, in}),
        row({1, out}, dnnl::memory::data_type::f32, dnnl::memory::dims{out, 1});
    const auto product = describe<dnnl::matmul>(engine, attr, x, transposed, row, y);
    forward_ = Primitive(engine, product, "the linear layer");
    f_x_ = forward_.add(DNNL_ARG_SRC, x);
    f_w_ = forward_.add(DNNL_ARG_WEIGHTS, transposed);
    f_b_ = forward_.add(DNNL_ARG_BIAS, row);
    f_y_ = forward_.add(DNNL_ARG_DST, y);
    data_ = Primitive(engine, data, "the input gradient of the linear layer");
    d_dy_ = data_.add(DNNL_ARG_DIFF_DST, y);
    d_w_ = data_.add(DNNL_ARG_WEIGHTS, w);
    d_dx_ = data_.add(DNNL_ARG_DIFF_SRC, x);
    const auto weights = describe_backward<dnnl::inner_product_backward_weights>(engine, attr, forward, x, w, b, y);
    weights_ = Primitive(engine, weights, "the weight gradient of the linear layer");
    w_x_ = weights_.add(DNNL_ARG_SRC, x);
    w_dy_ = weights_.add(DNNL_ARG_DIFF_DST, y);
    w_dw_ = weights_.add(DNNL_ARG_DIFF_WEIGHTS, w);
    w_db_ = weights_.add(DNNL_ARG_DIFF_BIAS, b);
    gradients_ = backend.allocate_floats(std::int64_t{out} * in + out, "linear gradient");
    weight_count_ = std::int64_t{out} * in;
    bias_count_ = out;
    for (const Primitive* p : {&forward_, &data_, &weights_}) backend.request_scratch(p->scratch_bytes());
  }

  void forward(const float* x, const float* weights, const float* bias, float* y) override {
    const FixedSums fixed(backend_);
    forward_.bind(f_x_, x);
    forward_.bind(f_w_, weights);
    forward_.bind(f_b_, bias);
    forward_.bind(f_y_, y);
    forward_.run(backend_.stream(), backend_.scratch());
  }

  void backward_data(const float* dy, const float* weights, float* dx) override {
    const FixedSums fixed(backend_);
    data_.bind(d_dy_, dy);
    data_.bind(d_w_, weights);
    data_.bind(d_dx_, dx);
    data_.run(backend_.stream(), backend_.scratch());
  }

  void backward_weights(const float* x, const float* dy, float* dw, float* dbias, bool accumulate) override {
    ++backend_.counters.linear_backward_weights;
    const FixedSums fixed(backend_);
    weights_.bind(w_x_, x);
    weights_.bind(w_dy_, dy);
    weights_.bind(w_dw_, gradients_);
    weights_.bind(w_db_, gradients_ + weight_count_);
    weights_.run(backend_.stream(), backend_.scratch());
    add(gradients_, dw, weight_count_, accumulate);
    add(gradients_ + weight_count_, dbias, bias_count_, accumulate);
  }

 private:
  static void add(const float* from, float* to, std::int64_t count, bool accumulate) {
    if (to == nullptr) return;
    for (std::int64_t i = 0; i < count; ++i) to[i] = accumulate ? to[i] + from[i] : from[i];
  }

  CpuBackend& backend_;
  Primitive forward_, data_, weights_;
  int f_x_ = 0, f_w_ = 0, f_b_ = 0, f_y_ = 0, d_dy_ = 0, d_w_ = 0, d_dx_ = 0, w_x_ = 0, w_dy_ = 0, w_dw_ = 0, w_db_ = 0;
  float* gradients_ = nullptr;
  std::int64_t weight_count_ = 0, bias_count_ = 0;
};

}  // namespace

std::unique_ptr<Linear> CpuBackend::linear(int n, int in, int out) {
  return std::make_unique<CpuLinear>(*this, n, in, out);
}

}  // namespace dat::cpu
