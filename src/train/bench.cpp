#include "train/bench.hpp"

#include <sys/resource.h>

#include <cmath>
#include <numeric>

#include "all.hpp"
#include "dat/error.hpp"
#include "dat/half.hpp"
#include "dat/provenance.hpp"

namespace dat {

Sample summarize(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  return {.median = ms[ms.size() / 2], .least = ms.front(), .runs = static_cast<int>(ms.size())};
}

double peak_resident_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

namespace {

template <int kLanes>
struct Lanes;
template <>
struct Lanes<4> {
  typedef float Vector __attribute__((vector_size(16)));
};
template <>
struct Lanes<8> {
  typedef float Vector __attribute__((vector_size(32)));
};
template <>
struct Lanes<16> {
  typedef float Vector __attribute__((vector_size(64)));
};

/// Vectors that stay in registers: enough of them to hide the latency, few enough to fit.
constexpr int kChains = 12;

/// `rounds` multiply-adds in each lane of each chain. Returns something that depends on all of them.
template <int kLanes>
[[gnu::always_inline]] inline float multiply_add(std::int64_t rounds, float factor) {
  using Vector = typename Lanes<kLanes>::Vector;
  const Vector a = Vector{} + factor, b = Vector{} + 1e-3F;
  Vector chains[kChains];
  for (int c = 0; c < kChains; ++c) chains[c] = Vector{} + static_cast<float>(c);
  for (std::int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) chains[c] = chains[c] * a + b;
  Vector sum{};
  for (int c = 0; c < kChains; ++c) sum += chains[c];
  float total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += sum[lane];
  return total;
}

/// The same in the widest registers there are, found at run time as the libraries do.
struct MultiplyAdd {
  int lanes;
  const char* name;
  float (*run)(std::int64_t rounds, float factor);
};
#ifdef __x86_64__
[[gnu::target("avx512f")]] float multiply_add_512(std::int64_t rounds, float factor) {
  return multiply_add<16>(rounds, factor);
}
[[gnu::target("avx2,fma")]] float multiply_add_256(std::int64_t rounds, float factor) {
  return multiply_add<8>(rounds, factor);
}
#endif
float multiply_add_128(std::int64_t rounds, float factor) { return multiply_add<4>(rounds, factor); }

[[nodiscard]] MultiplyAdd widest_multiply_add() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return {16, "AVX-512", multiply_add_512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {8, "AVX2", multiply_add_256};
#endif
  return {4, "128 bits", multiply_add_128};
}

}  // namespace

std::vector<Ceiling> measure_ceilings(const BackendOptions& options, double seconds) {
  const auto backend = make_backend(options);
  const Device device = backend->device();
  const bool gpu = device.kind == DeviceKind::cuda;
  const Effort effort{.seconds = seconds / 4, .least = 3, .most = 200};
  // `work`: 10^6 operations or bytes of a run; per millisecond that is 10^9 a second.
  const auto ceiling = [](const std::string& name, const std::string& unit, double work, const Sample& sample,
                          const std::string& note) -> Ceiling {
    return {name, unit, work / sample.median, work / sample.least, note};
  };
  std::vector<Ceiling> all;

  if (gpu) {
    all.push_back({"FMA in registers", "GFLOP/s", 0, 0, "not measured on a GPU"});
  } else {
    constexpr std::int64_t kRounds = 1 << 21;
    const MultiplyAdd fma = widest_multiply_add();
    float result = 0;
    const Sample sample = repeat(effort, [&] {
#pragma omp parallel num_threads(options.threads) reduction(+ : result)
      result += fma.run(kRounds, 0.5F);
    });
    require(std::isfinite(result), ExitCode::numerical, "FMA in registers gives ", result);
    all.push_back(ceiling("FMA in registers", "GFLOP/s", 2e-6 * kRounds * kChains * fma.lanes * options.threads, sample,
                          fma.name));
  }

  // Arrays that no cache holds.
  const std::int64_t elements = gpu ? 1LL << 26 : std::max<std::int64_t>(1 << 24, std::int64_t{options.threads} << 21);
  float *a = backend->allocate_floats(elements, "arrays"), *b = backend->allocate_floats(elements, "arrays"),
        *c = backend->allocate_floats(elements, "arrays");
  const std::string size = "arrays of " + std::to_string(elements * 4 >> 20) + " MiB";
  const auto bandwidth = [&](const std::string& name, int arrays, const float* second) {
    const Sample sample = repeat(effort, [&] {
      each(device, kernels::groups(elements), kernels::Add<float>{a, second, c, elements});
      backend->wait();
    });
    all.push_back(ceiling(name, "GB/s", 4e-6 * arrays * static_cast<double>(elements), sample, size));
  };
  bandwidth("memory, y = a", 2, nullptr);
  bandwidth("memory, y = a + b", 3, b);

  const int n = gpu ? 8192 : 2048;
  const auto product = backend->linear(n, n, n);
  backend->commit_workspace();
  const Sample sample = repeat(effort, [&] {
    product->backward_data(a, b, c);
    backend->wait();
  });
  all.push_back(ceiling("matrix product", "GFLOP/s", 2e-6 * n * double(n) * n, sample, std::to_string(n) + " squared"));
  return all;
}

namespace {

constexpr int kSize = 32, kChannels = 3, kClasses = 10;
constexpr float kEps = 8.0F / 255, kAlpha = 2.0F / 255;

[[nodiscard]] StepOptions checked(StepOptions options) {
  const auto divide = [](int& part, const char* name, int whole, const char* of) {
    if (part == 0) part = whole;
    require(part > 0 && whole % part == 0, ExitCode::usage, name, " ", part, " does not divide ", of, " ", whole);
  };
  require(options.batch > 0, ExitCode::usage, "--batch must be at least 1");
  divide(options.micro_batch, "--micro-batch", options.batch, "--batch");
  divide(options.attack_batch, "--attack-batch", options.micro_batch, "the micro-batch of");
  return options;
}

[[nodiscard]] Philox4 draw(std::size_t i) { return random_words(1, Purpose::synthetic_data, 0, i, 0); }

}  // namespace

TrainingStep::TrainingStep(const StepOptions& options)
    : options_(checked(options)),
      backend_(make_backend(options.backend)),
      model_(*backend_, networks().at(options.network)({.width = options.width}), Granularity::tensor),
      images_(*backend_, {.size = kSize, .channels = kChannels, .classes = kClasses, .class_names = {}},
              options_.micro_batch),
      frozen_(model_, options_.attack_batch, storage_from(options.attack_precision)),
      training_(model_, options_.micro_batch),
      attack_(attacks().at("pgd")({.eps = kEps, .alpha = kAlpha, .steps = options.attack_steps})),
      objective_(images_, frozen_, kClasses),
      optimizer_(optimizers().at("sgd")(*backend_, model_.parameters, {.momentum = 0.9, .weight_decay = 0})),
      active_(ActiveSet::all(model_.parameters.layers())),
      labels_(static_cast<std::size_t>(options.batch)),
      ids_(labels_.size()) {
  x_ = backend_->allocate_floats(options.batch * images_.layout.elements(), "images");
  loss_ = backend_->allocate_floats(options.batch, "losses");
  correct_ = backend_->allocate_floats(options.batch, "losses");
  statistics_ = backend_->allocate_floats(2 * model_.graph.statistics, "batch statistics");
  backend_->commit_workspace();
  model_.initialize(1);
  std::vector<float> nchw(static_cast<std::size_t>(options.batch * images_.layout.elements())), values(nchw.size());
  for (std::size_t i = 0; i < nchw.size(); ++i) nchw[i] = uniform(draw(i).v[0]);
  for_each_pixel([&](std::size_t i, std::size_t at) { values[at] = nchw[i]; });
  backend_->copy_to_device(x_, values.data(), values.size() * sizeof(float));
  for (std::size_t i = 0; i < labels_.size(); ++i) labels_[i] = static_cast<std::int32_t>(draw(i).v[1] % kClasses);
  std::iota(ids_.begin(), ids_.end(), 0);
}

template <class F>
void TrainingStep::for_each_pixel(const F& f) const {
  std::size_t i = 0;
  for (int n = 0; n < options_.batch; ++n)
    for (int c = 0; c < kChannels; ++c)
      for (int y = 0; y < kSize; ++y)
        for (int x = 0; x < kSize; ++x) f(i++, static_cast<std::size_t>(images_.layout.offset(n, c, y, x)));
}

void TrainingStep::run() {
  attack_ms = train_ms = update_ms = 0;
  double begin = now_ms();
  const auto lap = [&](double& ms) {
    backend_->wait();
    const double now = now_ms();
    ms += now - begin;
    begin = now;
  };
  for (int first = 0; first < options_.batch; first += options_.micro_batch) {
    load(first);
    attack_->perturb(objective_);
    lap(attack_ms);
    training_.forward(images_.x_adv);
    cross_entropy(*backend_, training_.logits(), images_.labels, images_.count, kClasses, loss_ + first,
                  correct_ + first, training_.dlogits(), 1.0F / static_cast<float>(options_.batch));
    add_statistics(first > 0);
    training_.backward(images_.x_adv,
                       {.weights = &active_, .gradients = model_.parameters.gradients, .accumulate = first > 0});
    lap(train_ms);
  }
  optimizer_->step(active_, 0.01);
  update_running_statistics();
  lap(update_ms);
}

void TrainingStep::attack_iteration() {
  objective_.gradient_step(kAlpha, kEps);
  backend_->wait();
}

TrainingStep::Losses TrainingStep::check() {
  const double clean = loss(false), attacked = loss(true);
  run();
  const double trained = mean_loss();
  require(std::isfinite(clean) && std::isfinite(trained) && attacked > clean, ExitCode::numerical,
          "the training step is wrong: clean loss ", clean, ", attacked ", attacked, ", in training ", trained);
  return {clean, attacked, trained};
}

TrainingStep::Results TrainingStep::results() {
  require(options_.micro_batch == options_.batch, ExitCode::usage, "--check needs the whole batch at once");
  load(0);
  for (int pass = 0; pass < 3; ++pass) {
    training_.forward(images_.clean);
    add_statistics(false);
    update_running_statistics();
  }
  Results results;
  const auto batch = static_cast<std::size_t>(options_.batch);
  results.logits.resize(batch * kClasses);
  for (int first = 0; first < options_.batch; first += frozen_.n()) {
    frozen_.forward(images_.clean + first * images_.layout.elements());
    backend_->copy_to_host(results.logits.data() + first * kClasses, frozen_.logits(),
                           static_cast<std::size_t>(frozen_.n()) * kClasses * sizeof(float));
  }
  copy(images_.clean, images_.x_adv);
  objective_.gradient();
  std::vector<float> dx(static_cast<std::size_t>(options_.batch * images_.layout.elements()));
  backend_->wait();
  backend_->copy_to_host(dx.data(), images_.dx, dx.size() * sizeof(float));
  results.input_gradient.resize(dx.size());
  for_each_pixel([&](std::size_t i, std::size_t at) { results.input_gradient[i] = dx[at] / frozen_.gradient_scale(); });
  results.clean_loss = loss(false);
  objective_.start = backend_->allocate_floats(options_.batch * images_.layout.elements(), "zeros");
  results.attacked_loss = loss(true);
  objective_.start = nullptr;
  return results;
}

nlohmann::ordered_json TrainingStep::about() const {
  std::size_t bytes = 0;
  for (const Backend::Allocation& allocation : backend_->allocations()) bytes += allocation.bytes;
  const bool cpu = backend_->device().kind == DeviceKind::cpu;
  return {{"network", options_.network},
          {"width", options_.width},
          {"batch", options_.batch},
          {"micro_batch", options_.micro_batch},
          {"steps", options_.attack_steps},
          {"device", backend_->description()},
          {"math", cpu ? "f32" : options_.backend.math},
          {"attack_precision", options_.attack_precision},
          {"threads", options_.backend.threads},
          {"device_bytes", bytes},
          {"commit", commit()}};
}

void TrainingStep::copy(const float* from, float* to) {
  each(backend_->device(), options_.micro_batch * images_.layout.elements(), kernels::Scale{from, to, 1.0F, false});
}

void TrainingStep::load(int first) {
  const auto at = static_cast<std::size_t>(first), count = static_cast<std::size_t>(options_.micro_batch);
  copy(x_ + first * images_.layout.elements(), images_.clean);
  backend_->copy_to_device(images_.labels, labels_.data() + at, count * sizeof(std::int32_t));
  backend_->copy_to_device(images_.ids, ids_.data() + at, count * sizeof(std::int64_t));
  images_.count = options_.micro_batch;
  objective_.prepare(1, Purpose::attack_start, 0);
}

void TrainingStep::add_statistics(bool accumulate) {
  const float share = static_cast<float>(options_.micro_batch) / static_cast<float>(options_.batch);
  each(backend_->device(), 2 * model_.graph.statistics,
       kernels::Scale{training_.statistics(), statistics_, share, accumulate});
}

void TrainingStep::update_running_statistics() {
  const std::int64_t count = model_.graph.statistics;
  each(backend_->device(), count, kernels::RunningStatistic{statistics_, model_.running_mean, Model::kMomentum});
  each(backend_->device(), count,
       kernels::RunningStatistic{statistics_ + count, model_.running_variance, Model::kMomentum});
  ++model_.parameters.version;
}

double TrainingStep::loss(bool attacked) {
  for (int first = 0; first < options_.batch; first += options_.micro_batch) {
    load(first);
    if (attacked) attack_->perturb(objective_);
    objective_.measure(attacked ? images_.x_adv : images_.clean, loss_ + first, correct_ + first);
  }
  return mean_loss();
}

double TrainingStep::mean_loss() {
  std::vector<float> losses(static_cast<std::size_t>(options_.batch));
  backend_->wait();
  backend_->copy_to_host(losses.data(), loss_, losses.size() * sizeof(float));
  return std::accumulate(losses.begin(), losses.end(), 0.0) / options_.batch;
}

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
                        .image = from.op == Op::input,
                        .input_gradient = from.op != Op::input};
    const auto same = std::find_if(shapes_.begin(), shapes_.end(), [&](const Shape& shape) {
      const ConvSpec& s = shape.spec;
      return s.c_in == spec.c_in && s.h == spec.h && s.c_out == spec.c_out && s.kernel == spec.kernel &&
             s.stride == spec.stride && s.image == spec.image;
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
    frozen.frozen = frozen.relu = frozen.input_gradient = true;
    frozen.storage = storage;
    shape.frozen = backend.conv2d(frozen);
    if (training) shape.training = backend.conv2d(s);
    largest_ = std::max(
        {largest_, std::int64_t{s.n} * s.c_in * s.h * s.w, std::int64_t{s.n} * s.c_out * s.h_out() * s.w_out()});
    weights_ = std::max(weights_, std::int64_t{s.c_out} * s.c_in * s.kernel * s.kernel);
  }
  x_ = backend.allocate_floats(largest_, "x");
  y_ = backend.allocate_floats(largest_, "y");
  w_ = backend.allocate_floats(weights_, "weights");
  dw_ = backend.allocate_floats(weights_, "weights");
  scale_ = backend.allocate_floats(weights_, "scale");
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
    upload(x_, largest_, s.image ? DType::f32 : type);
    upload(y_, largest_, type);
  };
  const auto time = [&](int pass, const auto& work) { row.passes[pass] = repeat_recorded(backend_, effort, work); };
  static_cast<void>(backend_.take_turn(this));
  fill(storage_);
  shape.frozen->load(w_, scale_, scale_);
  time(frozen_forward, [&] { shape.frozen->forward(x_, y_, nullptr); });
  time(frozen_input_gradient,
       [&] { s.image ? shape.frozen->backward_image(y_, x_, {}) : shape.frozen->backward_data(y_, x_, false); });
  if (shape.training) {
    fill(DType::f32);
    shape.training->load(w_, nullptr, nullptr);
    time(train_forward, [&] { shape.training->forward(x_, y_, nullptr); });
    if (s.input_gradient) time(train_input_gradient, [&] { shape.training->backward_data(y_, x_, false); });
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
