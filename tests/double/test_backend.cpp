// What the CUDA backend asks of CUDA's libraries, counted and provoked on their double.

#include "catch.hpp"
#include "device.hpp"
// Catch before the names of the device.
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "dat/program.hpp"
#include "double.hpp"
#include "environment.hpp"
#include "pointwise.hpp"
#include "random_values.hpp"
#include "replica/device_notices.hpp"
#include "small_run.hpp"
#include "train/trainer.hpp"

using namespace dat;
using namespace dat::test;

namespace {

[[nodiscard]] std::unique_ptr<Backend> cuda(const std::string& math = "f32", bool deterministic = true, int gpu = 0,
                                            bool graphs = true) {
  return make_backend(
      {.device = "cuda", .threads = 2, .gpu = gpu, .math = math, .deterministic = deterministic, .graphs = graphs});
}

/// Another machine, until the end of the scope.
struct Capability : Environment {
  explicit Capability(const char* text, const char* cudnn = "91000") : Environment("DAT_DOUBLE_CAPABILITY", text) {
    set("DAT_DOUBLE_CUDNN", cudnn);
  }
};
struct DeviceCount {
  explicit DeviceCount(int count) { dat_double::set_device_count(count); }
  ~DeviceCount() {
    dat_double::set_device_count(1);
    (void)cudaSetDevice(0);
    (void)cudaGetLastError();
  }
  DeviceCount(const DeviceCount&) = delete;
  DeviceCount& operator=(const DeviceCount&) = delete;
};

[[nodiscard]] std::vector<Trial> trials_of(const Backend& backend, const std::string& pass) {
  std::vector<Trial> all;
  for (const Trial& t : backend.trials())
    if (t.pass == pass) all.push_back(t);
  return all;
}

/// Convolutions of every kind whose passes have choices.
[[nodiscard]] std::vector<ConvSpec> specs() {
  const ConvSpec training{.n = 2, .c_in = 16, .h = 8, .w = 8, .c_out = 32};
  ConvSpec strided = training, frozen = training, adding = training, half = training, image = training;
  strided.stride = 2;
  frozen.frozen = frozen.relu = true;
  adding.frozen = adding.accumulate = true;
  half.frozen = half.relu = half.accumulate = true;
  half.storage = DType::f16;
  image.frozen = image.relu = image.image = true;
  image.c_in = 3;
  return {training, strided, frozen, adding, half, image};
}

/// A training program on a backend that records, or calls.
struct Side {
  std::unique_ptr<Backend> backend;
  Model model;
  TrainingProgram program;
  float *x, *dx;
  Side(const std::string& network, bool graphs, Freezing freezing = {})
      : backend(cuda("f32", true, 0, graphs)),
        model(*backend, networks().at(network)({.width = 16, .size = 8, .channels = 3, .classes = 10}),
              Granularity::tensor, freezing),
        program(model, 2),
        x(to_device(*backend, random_values(2 * 3 * 64, 1, 0, 1))),
        dx(backend->allocate_floats(2 * 3 * 64, "test")) {
    model.initialize(1);
    model.freeze(false);
    backend->commit_workspace();
  }
  struct Result {
    std::vector<float> numbers;
    std::vector<int> announced;
    std::vector<std::int64_t> counters;
    long calls = 0;                   ///< of CUDA and its libraries that queue work
    long work = 0;                    ///< what they and graphs have queued
    long recorded = 0, replayed = 0;  ///< graphs, on the way back
    [[nodiscard]] bool same(const Result& other) const {
      return numbers == other.numbers && announced == other.announced && counters == other.counters;
    }
  };
  [[nodiscard]] Result pass(const ActiveSet& active, bool accumulate, bool input) {
    Result result;
    const std::function<void(int)> ready = [&](int segment) { result.announced.push_back(segment); };
    const Counters counters = backend->counters;
    const dat_double::Counts before = dat_double::counts();
    program.forward(x);
    const dat_double::Counts between = dat_double::counts();
    const auto direction = random_values(20, 3);
    backend->copy_to_device(program.dlogits(), direction.data(), direction.size() * sizeof(float));
    program.backward(x, {.weights = &active,
                         .gradients = model.parameters.gradients,
                         .accumulate = accumulate,
                         .input = input ? dx : nullptr,
                         .ready = &ready});
    const dat_double::Counts after = dat_double::counts();
    result.calls = after.kernels - before.kernels + after.graph_launches - before.graph_launches;
    result.work = after.kernels - before.kernels + after.replayed - before.replayed;
    result.recorded = after.graph_instantiations - between.graph_instantiations;
    result.replayed = after.graph_launches - between.graph_launches;
    Counters done = backend->counters;
    done -= counters;
    result.counters = {done.conv_forward, done.conv_backward_data, done.conv_backward_weights,
                       done.linear_backward_weights};
    const auto keep = [&](const float* from, std::int64_t count) {
      const auto part = to_host(*backend, from, count);
      result.numbers.insert(result.numbers.end(), part.begin(), part.end());
    };
    keep(program.logits(), 20);
    keep(program.statistics(), 2 * model.graph.statistics);
    keep(model.parameters.gradients, model.parameters.size);
    keep(dx, 2 * 3 * 64);
    return result;
  }
};

/// x = a*x on the device: work that shows whether and how often it was done.
void scale(Backend& backend, float* x, std::int64_t n, float a) {
  each(backend.device(), n, kernels::Scale{x, x, a, false});
}

}  // namespace

TEST_CASE("A steady training step waits once, allocates nothing, and replays what was recorded", "[double]") {
  // Every pair of values, in 12 of 48 runs: with each way to stop all four of lambda and micro-batch; the precision is
  // tied to another one of the three each time. By day four of them, which have every value.
  const int stopped = GENERATE(0, 1, 2), rest = GENERATE(0, 1, 2, 3);
  if (std::getenv("DAT_ALL_CASES") == nullptr && (stopped + rest) % 3 != 0) return;
  const bool twice = rest % 2 == 1, halves = rest / 2 == 1, parts = twice != halves;
  const bool f16 = std::array{twice, halves, parts}.at(static_cast<std::size_t>(stopped));
  // An early-stopped attack asks after each iteration but the last who is still in it.
  const int stop = std::array{-1, 0, 3}.at(static_cast<std::size_t>(stopped));
  TrainOptions options = small_run();
  options.epochs = 5;
  options.attack_steps = 3;
  options.device = "cuda";
  options.limit_test = 4;
  options.lambda = twice ? 1 : 0;
  options.attack_stop = stop;
  options.batch = 8;
  options.micro_batch = halves ? 4 : 8;
  options.limit_train = parts ? 20 : 80;  // 20: every third batch is a half one
  const std::string precision = f16 ? "f16" : "f32", resident = f16 ? "off" : "auto", selector = f16 ? "all" : "exp3";
  options.attack_precision = precision;
  options.resident = resident;
  options.selector = selector;
  options.bias_correction = selector == "all";
  options.clip_norm = selector == "all" ? 0.5 : 0;
  options.mask = selector == "exp3" && halves ? "per_worker" : "shared";
  test::OneRank trainer(options);
  for (int k = 0; k < 6; ++k) (void)trainer.step(false);  // passes of either size for the second time: recorded
  INFO("lambda " << options.lambda << ", micro-batches of " << options.micro_batch << " of " << options.limit_train
                 << " images, " << precision << ", " << selector << ", " << options.mask);
  const auto steady = [&](int steps) {
    for (int k = 0; k < steps; ++k) {
      const dat_double::Counts before = dat_double::counts();
      const std::int64_t images = trainer.step(false).images;
      const dat_double::Counts after = dat_double::counts();
      const long micro_batches = options.batch / options.micro_batch;  // a part of a batch is dealt to all of them, too
      INFO(images << " images");
      const long waits = after.synchronizations - before.synchronizations;
      if (stop < 0)
        CHECK(waits == 1);
      else
        CHECK((waits > 1 && waits <= 1 + (options.attack_steps - 1) * micro_batches));
      CHECK((after.allocations == before.allocations && after.pageable_copies == before.pageable_copies &&
             after.graph_instantiations == before.graph_instantiations));
      // A training pass is one where all layers are active and no other micro-batch is there. Else there are the way
      // forth and, of the way back, three pieces, which begin with the linear layer and with the last two convolutions,
      // as far down as a layer is active.
      const long passes = (options.lambda > 0 ? 2 : 1) * micro_batches;
      const long trained = after.graph_launches - before.graph_launches - options.attack_steps * micro_batches;
      if (stop < 0 && selector == "all")
        CHECK(trained == (micro_batches == 1 ? 1 : 4) * passes);
      else if (stop < 0)
        CHECK((trained >= passes && trained <= 4 * passes));
    }
  };
  steady(4);
  // An evaluation in between changes nothing of it.
  (void)trainer.evaluate();
  steady(2);
}

TEST_CASE("Every legacy plan adds a residual that has to stay, and leaves it", "[double]") {
  for (ConvSpec spec : specs()) {
    if (!spec.frozen) continue;
    spec.accumulate = spec.keeps_residual = true;
    const auto backend = cuda("f32", false);
    const auto conv = backend->conv2d(spec);
    INFO(conv->implementation());
    int right = 0;
    for (const Trial& t : trials_of(*backend, "forward")) {
      INFO(t.name);
      right += t.refused.empty() ? 1 : 0;
      if (t.name.starts_with("graph")) continue;
      CHECK((t.refused == "wrong results") == t.name.starts_with("WINOGRAD"));  // the double's wrong one
    }
    CHECK(right > 1);
  }
}

TEST_CASE("A wrong algorithm is listed as refused and never chosen; the fastest right one is", "[double]") {
  for (const ConvSpec& spec : specs()) {
    const auto backend = cuda("f32", false);
    const auto conv = backend->conv2d(spec);
    const std::string chosen = conv->implementation();
    INFO((spec.frozen ? "frozen, " : "training, ") << chosen);
    CHECK(!contains(chosen, "WINOGRAD"));
    int wrong = 0, large = 0;
    std::string expected;
    for (const std::string pass : {"forward", "input gradient", "weight gradient"}) {
      const Trial* best = nullptr;
      const auto all = trials_of(*backend, pass);
      for (const Trial& t : all) {
        INFO(t.convolution << ": " << t.name);
        const bool is_wrong = t.name.starts_with("WINOGRAD"), is_large = t.name.starts_with("ALGO_3");
        wrong += is_wrong;
        large += is_large;
        CHECK(t.refused == (is_wrong   ? "wrong results"
                            : is_large ? "its workspace of 1048576 MiB is above 512, 1/32 of the GPU's memory"
                                       : ""));
        CHECK((t.milliseconds > 0) == (!is_wrong && !is_large));
        if (t.refused.empty() && (best == nullptr || t.milliseconds < best->milliseconds)) best = &t;
      }
      if (pass == "input gradient" && spec.image) {
        CHECK(all.empty());
        expected += " / product and sum";
      } else if (best != nullptr) {
        expected += (expected.empty() ? "" : " / ") + best->name;
      }
    }
    CHECK((chosen == expected && wrong >= 1 && (large > 0) == !spec.frozen));  // a weight gradient

    // An equal convolution is not tried again.
    const std::size_t tried = backend->trials().size();
    CHECK((backend->conv2d(spec)->implementation() == chosen && backend->trials().size() == tried));
  }
}

TEST_CASE("Deterministic: the first right algorithm whose results never vary, without a clock", "[double]") {
  for (const ConvSpec& spec : specs()) {
    const auto free = cuda("f32", false), fixed = cuda("f32", true);
    (void)free->conv2d(spec);
    const std::string chosen = fixed->conv2d(spec)->implementation();
    INFO((spec.frozen ? "frozen, " : "training, ") << chosen);
    const auto varies = [](const Trial& t) { return t.name.starts_with("ALGO_0"); };
    const auto all = free->trials(), ours = fixed->trials();
    CHECK((spec.image || std::ranges::any_of(all, varies)));
    for (const Trial& t : ours)
      if (varies(t)) CHECK(t.refused == "its results vary, which --deterministic does not allow");
    std::string expected;
    for (const std::string pass : {"forward", "input gradient", "weight gradient"}) {
      if (pass == "input gradient" && spec.image) expected += " / product and sum";
      for (const Trial& t : trials_of(*fixed, pass)) {
        CHECK(t.milliseconds == 0);
        if (!t.refused.empty()) continue;
        expected += (expected.empty() ? "" : " / ") + t.name;
        break;
      }
    }
    CHECK((chosen == expected && cuda("f32", true)->conv2d(spec)->implementation() == chosen));
  }
}

TEST_CASE("What trials need is given back, and scratch beyond a part of the memory is not asked for", "[double]") {
  const auto scratch_of = [](int border, bool deterministic) {
    const auto backend = cuda("f32", deterministic);
    ConvSpec spec = specs()[0];
    spec.extra_pad = border;
    const std::size_t before = backend->spare_memory();
    const auto conv = backend->conv2d(spec);
    CHECK(backend->spare_memory() == before);
    backend->commit_workspace();
    std::size_t scratch = 0;
    for (const auto& a : backend->allocations())
      if (a.purpose == "library scratch") scratch += a.bytes;
    return scratch;
  };
  CHECK(scratch_of(0, false) <= 64U << 20U);         // the double's ALGO_3 wants 2^40 bytes
  CHECK(scratch_of(0, true) < scratch_of(1, true));  // a copy of x with a border lies there
}

TEST_CASE("--math f32 multiplies in f32, tf32 with 11 bits of each factor", "[double]") {
  constexpr int kN = 2, kSize = 6, kIn = 16, kImage = 3, kOut = 32, kPixels = kN * kSize * kSize;
  // With a kernel of one tap, every pass is a product of two matrices.
  const ConvSpec training{.n = kN, .c_in = kIn, .h = kSize, .w = kSize, .c_out = kOut, .kernel = 1, .pad = 0};
  ConvSpec frozen = training, image = training;
  frozen.frozen = image.frozen = image.image = true;
  image.c_in = kImage;
  const auto x = random_values(kPixels * kIn, 1), w = random_values(kOut * kIn, 2),
             dy = random_values(kPixels * kOut, 3);
  struct Pass {
    std::string name;
    std::vector<float> result;
    std::vector<double> exact, size;
  };
  /// exact[row][column] = sum over k of a(row, k) * b(column, k).
  const auto product = [](int rows, int columns, int depth, auto a, auto b, Pass& pass) {
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; ++column) {
        double sum = 0, terms = 0;
        for (int k = 0; k < depth; ++k) {
          sum += double(a(row, k)) * double(b(column, k));
          terms += std::abs(double(a(row, k)) * double(b(column, k)));
        }
        pass.exact.push_back(sum);
        pass.size.push_back(terms);
      }
  };
  const auto at = [](const std::vector<float>& m, int index) { return m[static_cast<std::size_t>(index)]; };
  const auto all = [&](const std::string& math) {
    const auto backend = cuda(math);
    std::vector<Pass> passes;
    const float *x_device = to_device(*backend, x), *w_device = to_device(*backend, w),
                *dy_device = to_device(*backend, dy), *ones = to_device(*backend, std::vector<float>(kOut, 1.0F)),
                *zeros = backend->allocate_floats(kOut, "test");
    float* out = backend->allocate_floats(kPixels * kOut, "test");
    const auto done = [&](const std::string& name, std::int64_t count) -> Pass& {
      passes.push_back({name, to_host(*backend, out, count), {}, {}});
      return passes.back();
    };
    for (const ConvSpec& spec : {training, frozen, image}) {
      const auto conv = backend->conv2d(spec);
      backend->commit_workspace();
      const std::string kind = spec.image ? "image" : spec.frozen ? "frozen" : "training";
      conv->load(w_device, spec.frozen ? ones : nullptr, spec.frozen ? zeros : nullptr);
      const int in = spec.c_in;
      const auto weight = [&](int o, int c) { return at(w, o * in + c); };
      conv->forward(x_device, out, nullptr);
      product(
          kPixels, kOut, in, [&](int p, int c) { return at(x, p * in + c); }, weight,
          done(kind + " forward", kPixels * kOut));
      if (spec.image)
        conv->backward_image(dy_device, out, {});
      else
        conv->backward_data(dy_device, out, false);
      product(
          kPixels, in, kOut, [&](int p, int o) { return at(dy, p * kOut + o); },
          [&](int c, int o) { return weight(o, c); }, done(kind + " input gradient", kPixels * in));
      if (spec.frozen) continue;
      conv->backward_weights(x_device, dy_device, out, false);
      product(
          kOut, in, kPixels, [&](int o, int p) { return at(dy, p * kOut + o); },
          [&](int c, int p) { return at(x, p * in + c); }, done("weight gradient", kOut * in));
    }
    return passes;
  };
  const auto worst = [](const Pass& pass) {  // relative to the sum of the terms' sizes
    double most = 0;
    for (std::size_t i = 0; i < pass.exact.size(); ++i)
      most = worse(most, std::abs(double(pass.result[i]) - pass.exact[i]) / pass.size[i]);
    return most;
  };
  const auto exact = all("f32"), rough = all("tf32");
  REQUIRE(exact.size() == 7);
  for (std::size_t k = 0; k < exact.size(); ++k) {
    INFO(exact[k].name);
    // The double adds in double precision and rounds the sum once; one more rounding where the bias comes later.
    CHECK(worst(exact[k]) <= 2.01 * 0x1p-24);
    // Two factors, each rounded to 11 bits; errors of many terms hardly ever sink below a hundredth of that.
    CHECK(worst(rough[k]) <= 2.01 * 0x1p-11);
    CHECK(worst(rough[k]) > 0.02 * 0x1p-11);
  }
}

TEST_CASE("The gradient of more images than are worked on at a time is that of each alone, with PGD's step and without",
          "[double]") {
  // 2 MiB of products per image: 4 of the 20 at a time.
  const ConvSpec many{.n = 20, .c_in = 3, .h = 128, .w = 128, .c_out = 8, .frozen = true, .image = true};
  ConvSpec one = many;
  one.n = 1;
  const auto backend = cuda();
  const auto together = backend->conv2d(many), alone = backend->conv2d(one);
  backend->commit_workspace();
  const std::int64_t image = 3 * 128 * 128, outputs = 8 * 128 * 128;
  const float *w = to_device(*backend, random_values(8 * 9 * 3, 1)),
              *scale_and_bias = to_device(*backend, std::vector<float>(8, 1.0F)),
              *dy = to_device(*backend, random_values(many.n * outputs, 2)),
              *x = to_device(*backend, random_values(many.n * image, 3, 0, 1));
  const auto start = random_values(many.n * image, 4, -0.1F, 0.1F);
  float *dx[2], *eta[2], *x_adv[2];
  for (int k = 0; k < 2; ++k) {
    dx[k] = backend->allocate_floats(many.n * image, "test");
    eta[k] = to_device(*backend, start);
    x_adv[k] = backend->allocate_floats(many.n * image, "test");
  }
  together->load(w, scale_and_bias, scale_and_bias);
  alone->load(w, scale_and_bias, scale_and_bias);
  const auto step = [&](int k, std::int64_t at) { return PgdUpdate{x + at, eta[k] + at, x_adv[k] + at, 0.04F, 0.1F}; };
  together->backward_image(dy, dx[0], {});
  together->backward_image(dy, dx[0], step(0, 0));
  for (int k = 0; k < many.n; ++k) {
    alone->backward_image(dy + k * outputs, dx[1] + k * image, {});
    alone->backward_image(dy + k * outputs, dx[1] + k * image, step(1, k * image));
  }
  const auto equal = [&](float* const(&both)[2]) {
    return to_host(*backend, both[0], many.n * image) == to_host(*backend, both[1], many.n * image);
  };
  CHECK((equal(dx) && equal(eta) && equal(x_adv) && to_host(*backend, eta[0], many.n * image) != start));
}

TEST_CASE("A recording is done when it is replayed, each time with what its memory then holds", "[double]") {
  const auto backend = cuda();
  float* x = to_device(*backend, std::vector<float>{1, 2, 3});
  const auto twice = backend->record([&] { scale(*backend, x, 3, 2); });
  CHECK(to_host(*backend, x, 3) == std::vector<float>{1, 2, 3});
  twice->replay();
  twice->replay();
  CHECK(to_host(*backend, x, 3) == std::vector<float>{4, 8, 12});
  const std::vector<float> other = {-1, 0, 5};
  backend->copy_to_device(x, other.data(), 3 * sizeof(float));
  twice->replay();
  CHECK(to_host(*backend, x, 3) == std::vector<float>{-2, 0, 10});
}

TEST_CASE("A recording counts its primitives when it is replayed", "[double]") {
  const auto backend = cuda();
  const ConvSpec spec = specs()[0];
  const auto conv = backend->conv2d(spec);
  backend->commit_workspace();
  float* w = backend->allocate_floats(32 * 9 * 16, "test");
  float *x = backend->allocate_floats(2 * 16 * 64, "test"), *y = backend->allocate_floats(2 * 32 * 64, "test");
  conv->load(w, nullptr, nullptr);
  conv->forward(x, y, nullptr);
  CHECK(backend->counters.conv_forward == 1);
  const auto all = backend->record([&] {
    conv->forward(x, y, nullptr);
    conv->backward_data(y, x, false);
    conv->backward_weights(x, y, w, false);
  });
  CHECK(backend->counters.conv_forward == 1);
  for (int k = 1; k <= 3; ++k) {
    all->replay();
    const Counters& all_done = backend->counters;
    CHECK((all_done.conv_forward == 1 + k && all_done.conv_backward_data == k && all_done.conv_backward_weights == k));
  }
}

TEST_CASE("A recording follows memory that moves", "[double]") {
  const auto backend = cuda();
  backend->request_workspace(3 * sizeof(float));
  backend->commit_workspace();
  const auto x = [&] { return static_cast<float*>(backend->workspace()); };
  const std::vector<float> values = {1, 2, 3};
  const auto twice = backend->record([&] { scale(*backend, x(), 3, 2); });
  for (const std::size_t bytes : {std::size_t{3 * sizeof(float)}, std::size_t{1} << 20U}) {
    backend->request_workspace(bytes);
    backend->commit_workspace();
    backend->copy_to_device(x(), values.data(), 3 * sizeof(float));
    const long instantiations = dat_double::counts().graph_instantiations;
    twice->replay();
    twice->replay();
    CHECK(to_host(*backend, x(), 3) == std::vector<float>{4, 8, 12});
    CHECK(dat_double::counts().graph_instantiations == instantiations + (bytes > 3 * sizeof(float) ? 1 : 0));
  }
}

TEST_CASE("A training pass that is replayed has the bits and the counters of one that is called", "[double]") {
  const std::string name = GENERATE(from_range(
      drawn<std::string>({"small_cnn", "resnet18", "preact_resnet18", "imagenet_resnet18", "dm_wrn_10_2"}, 2)));
  Side replayed(name, true, {.segments = 6}), called(name, false, {.segments = 6});
  CHECK((replayed.backend->replays() && !replayed.backend->leaves_samples_out()));
  CHECK((replayed.backend->take_turn(nullptr) && !replayed.backend->takes_norm({})));
  CHECK(!called.backend->replays());
  const int layers = called.model.parameters.layers();
  (void)replayed.pass(ActiveSet::all(layers), false, true);  // records
  (void)called.pass(ActiveSet::all(layers), false, true);
  for (std::uint32_t draw = 0; draw < 10; ++draw) {
    const ActiveSet active = draw == 9 ? ActiveSet::all(layers) : random_active(layers, draw, float(draw) / 8);
    const auto ours = replayed.pass(active, draw % 3 == 1, draw % 2 == 0);
    const auto expected = called.pass(active, draw % 3 == 1, draw % 2 == 0);
    INFO(name << ", draw " << draw << ", " << ours.calls << " calls instead of " << expected.calls);
    CHECK(ours.same(expected));
    CHECK(std::ranges::all_of(ours.numbers, [](float v) { return std::isfinite(v); }));
    CHECK(ours.calls < expected.calls);
    // Nothing for layers that are not active. What a recording leaves of a batch norm's two gradients is copied at
    // once.
    CHECK((ours.work >= expected.work && ours.work <= expected.work + std::ssize(called.model.graph.norms)));
    CHECK((ours.recorded == 0 && (ours.replayed > 0 || draw % 2 != 0)));  // at least where images' gradients are wanted
  }
  // Batch norms stand still, and do so no longer: what was recorded is recorded anew.
  for (const bool on : {true, false}) {
    const auto pass = [&](Side& side) {
      side.model.freeze(on);
      ActiveSet active = ActiveSet::all(layers);
      for (int k = 0; k < side.model.frozen; ++k) active.scale[static_cast<std::size_t>(k)] = 0;
      return side.pass(active, false, true);
    };
    INFO(name << (on ? ", frozen" : ", no longer"));
    CHECK(pass(replayed).same(pass(called)));
    const auto again = pass(replayed);
    CHECK((again.same(pass(called)) && again.recorded == 0));
  }
  // A larger program moves the workspace, and what was recorded with it.
  TrainingProgram larger(replayed.model, 4);
  replayed.backend->commit_workspace();
  CHECK(replayed.pass(ActiveSet::all(layers), false, true).same(called.pass(ActiveSet::all(layers), false, true)));
}

TEST_CASE("Work that cannot be recorded is an error, after which the backend goes on", "[double]") {
  const auto backend = cuda();
  const ConvSpec spec = specs()[0];
  const auto conv = backend->conv2d(spec);
  backend->commit_workspace();
  float* w = backend->allocate_floats(32 * 9 * 16, "test");
  float *x = backend->allocate_floats(2 * 16 * 64, "test"), *y = backend->allocate_floats(2 * 32 * 64, "test");
  conv->load(w, nullptr, nullptr);
  float* value = to_device(*backend, std::vector<float>{1, 2, 3});
  std::vector<float> host(3);
  const auto ticket = backend->mark();
  backend->wait();
  const std::vector<std::pair<std::string, std::function<void()>>> all = {
      {"allocates", [&] { (void)backend->allocate(1000, "test"); }},
      {"allocates pinned memory", [&] { (void)backend->allocate_pinned(1000, "test"); }},
      {"waits", [&] { backend->wait(); }},
      {"waits for a ticket", [&] { backend->wait_for(ticket); }},
      {"asks for a ticket", [&] { (void)backend->arrived(ticket); }},
      {"reads", [&] { backend->copy_to_host(host.data(), value, 3 * sizeof(float)); }},
      {"ends with another error", [&] { fail(ExitCode::device, "of the work itself"); }}};
  for (const auto& [what, work] : all) {
    INFO("work that " << what);
    const Counters before = backend->counters;
    CHECK(code_of([&, &work = work] {
            (void)backend->record([&] {
              conv->forward(x, y, nullptr);
              work();
            });
          }) == ExitCode::device);
    CHECK(backend->counters.conv_forward == before.conv_forward);  // nothing of it was or will be done
    scale(*backend, value, 3, 2);
    backend->record([&] { scale(*backend, value, 3, 0.5F); })->replay();
    (void)backend->allocate(16, "test");
    CHECK(to_host(*backend, value, 3) == std::vector<float>{1, 2, 3});
  }
}

TEST_CASE("What is copied to the device arrives intact, whatever its size and whatever happens to its source",
          "[double]") {
  const auto backend = cuda();
  // More than the 16 MiB of staging, not a multiple of anything; then many of all sizes through the same source.
  const std::size_t large = (40U << 20U) + 13;
  std::vector<std::size_t> sizes = {large, 1, 8U << 20U, 16U << 20U, (8U << 20U) - 1, 5};
  for (int k = 0; k < 12; ++k) sizes.push_back((3U << 20U) + 4097U * static_cast<unsigned>(k));
  std::vector<std::uint8_t> source(large);
  std::vector<std::uint8_t*> targets;
  for (const std::size_t size : sizes) targets.push_back(static_cast<std::uint8_t*>(backend->allocate(size, "test")));
  const auto byte = [](std::size_t copy, std::size_t i) {
    return static_cast<std::uint8_t>((i * 2654435761U >> 13U) + 31 * copy);
  };
  const dat_double::Counts before = dat_double::counts();
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    for (std::size_t i = 0; i < sizes[k]; ++i) source[i] = byte(k, i);
    backend->copy_to_device(targets[k], source.data(), sizes[k]);
    std::fill_n(source.begin(), sizes[k], std::uint8_t{0});
  }
  CHECK(dat_double::counts().pageable_copies == before.pageable_copies);
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const auto there = to_host(*backend, targets[k], static_cast<std::int64_t>(sizes[k]));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < sizes[k]; ++i) wrong += there[i] != byte(k, i);
    INFO("copy " << k << " of " << sizes[k] << " bytes");
    CHECK(wrong == 0);
  }
}

TEST_CASE("A copy to the device comes after the work before it and before the work after it", "[double]") {
  const auto backend = cuda();
  float *a = to_device(*backend, std::vector<float>{1}), *b = backend->allocate_floats(1, "test");
  const float five = 5;
  each(backend->device(), 1, kernels::Scale{a, b, 1, false});
  backend->copy_to_device(a, &five, sizeof five);
  scale(*backend, a, 1, 2);
  CHECK((to_host(*backend, a, 1) == std::vector{10.0F} && to_host(*backend, b, 1) == std::vector{1.0F}));
}

TEST_CASE("A fetch brings what the work queued before it leaves, and its ticket says when it is there", "[double]") {
  const auto backend = cuda();
  constexpr int kCount = Backend::kTickets + 100;
  auto* pinned = static_cast<float*>(backend->allocate_pinned(kCount * sizeof(float), "test"));
  float* x = to_device(*backend, std::vector<float>(kCount, 1.0F));
  backend->wait();

  // Asked for until it is there: it is there then, and the question does no harm to later work.
  scale(*backend, x, 1, 3);
  auto ticket = backend->fetch(pinned, x, sizeof(float));
  int asked = 1;
  while (!backend->arrived(ticket)) {
    ++asked;
    scale(*backend, x + 1, 1, 1);
  }
  CHECK(asked > 1);  // the double is never done at once
  CHECK(pinned[0] == 3);

  // Waited for, the later of two: the earlier one is there, too. Work after the fetch goes on beside it.
  scale(*backend, x + 2, 1, 4);
  const auto first = backend->fetch(pinned + 2, x + 2, sizeof(float));
  scale(*backend, x + 3, 1, 5);
  const auto second = backend->fetch(pinned + 3, x + 3, sizeof(float));
  scale(*backend, x + 4, 1, 6);
  backend->wait_for(second);
  CHECK((backend->arrived(first) && backend->arrived(second) && pinned[2] == 4 && pinned[3] == 5));
  const auto later = backend->fetch(pinned + 4, x + 4, sizeof(float));
  CHECK(backend->arrived(second));  // whatever is asked for after it
  backend->wait_for(later);

  // Each of many, in turn.
  int wrong = 0;
  for (int k = 0; k < kCount; ++k) {
    const auto value = static_cast<float>(k);
    backend->copy_to_device(x + k, &value, sizeof value);
    ticket = backend->fetch(pinned + k, x + k, sizeof value);
    if (k % 2 == 0) backend->wait_for(ticket);
    if (k % 2 == 0) wrong += pinned[k] != value;
  }
  backend->wait();
  for (int k = 0; k < kCount; ++k) wrong += pinned[k] != static_cast<float>(k);
  CHECK(wrong == 0);
}

TEST_CASE("A mark arrives when the work queued before it is done", "[double]") {
  const auto backend = cuda();
  auto* pinned = static_cast<float*>(backend->allocate_pinned(sizeof(float), "test"));
  float* x = to_device(*backend, std::vector<float>{7});
  backend->wait();
  // Kernels reach pinned memory: what they leave there shows whether they have run.
  each(backend->device(), 1, kernels::Scale{x, pinned, 1, false});
  const auto waited = backend->mark();
  CHECK(pinned[0] == 0);
  backend->wait_for(waited);
  CHECK(pinned[0] == 7);
  each(backend->device(), 1, kernels::Scale{x, pinned, 2, false});
  const auto asked = backend->mark();
  while (!backend->arrived(asked)) {
  }
  CHECK(pinned[0] == 14);
  each({DeviceKind::cuda, backend->side_queue()}, 1, kernels::Scale{x, pinned, 3, false});
  const auto beside = backend->mark_side();
  CHECK(pinned[0] == 14);
  backend->wait_for(beside);
  CHECK(pinned[0] == 21);
}

TEST_CASE("A stamp has passed when the work before it is done, and the time between two is the work's", "[double]") {
  const auto backend = cuda();
  const auto begin = backend->stamp();
  dat_double::enqueue(static_cast<cudaStream_t>(backend->device().stream),
                      [] { dat_double::rest(std::chrono::seconds(1)); });
  const auto end = backend->stamp();
  CHECK((begin == 0 && end == 1));
  CHECK(!backend->passed(end));
  backend->wait();
  CHECK(backend->passed(end));
  const double seconds = backend->seconds(begin, end);
  CHECK((seconds >= 1 && seconds < 10));
}

TEST_CASE("What is sent comes in order, and its source is free when a later fetch has arrived", "[double]") {
  const auto backend = cuda();
  auto* pinned = static_cast<float*>(backend->allocate_pinned(2 * sizeof(float), "test"));
  float *a = backend->allocate_floats(1, "test"), *b = backend->allocate_floats(1, "test");
  for (int round = 1; round < 5; ++round) {
    pinned[0] = static_cast<float>(round);
    backend->send(a, pinned, sizeof(float));
    scale(*backend, a, 1, 10);
    const auto ticket = backend->fetch(pinned + 1, b, sizeof(float));
    backend->wait_for(ticket);
    pinned[0] = -1;
    CHECK(to_host(*backend, a, 1) == std::vector<float>{10 * static_cast<float>(round)});
  }
}

TEST_CASE("A GPU is refused what it cannot do", "[double]") {
  {
    const Capability turing("7.5");
    const auto backend = cuda("tf32");
    CHECK((backend->refuses(DType::f32).empty() && backend->refuses(DType::f16).empty()));
    CHECK(contains(backend->refuses(DType::bf16), "f16"));
    // No TF32 either: results are f32's.
    CHECK(!contains(backend->description(), "TF32"));
    Model model(*backend, networks().at("small_cnn")({.width = 16, .size = 8, .channels = 3, .classes = 10}),
                Granularity::tensor);
    CHECK(contains(message_of([&] { FrozenProgram(model, 2, DType::bf16); }), "f16"));
    CHECK_NOTHROW(FrozenProgram(model, 2, DType::f16));
  }
  {
    const Capability ampere("8.0");
    const auto backend = cuda("tf32");
    CHECK(backend->refuses(DType::bf16).empty());
    CHECK(contains(backend->description(), "compute capability 8.0), cuDNN 9.10.0, TF32, deterministic"));
    CHECK(!contains(cuda("f32")->description(), "TF32"));
    CHECK(contains(backend->description(), "NUMA") == (backend->numa_node() >= 0));
    CHECK(cuda_version() ==
          std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10) + ", cuDNN 9.10.0");
    CHECK(backend->arithmetic() == "cuda: cuDNN 9.10.0, TF32, deterministic, compute capability 80");
    CHECK(cuda("f32", false)->arithmetic() == "cuda: cuDNN 9.10.0, f32");
    CHECK(cuda("f32", false)->description().ends_with("), cuDNN 9.10.0, f32"));
  }
  {
    const Capability turing("7.5", "91100");
    CHECK_NOTHROW(cuda());
  }
  for (const auto& [version, words] : {std::pair("8905", ", cuDNN 8.9.5"), std::pair("90000", ", cuDNN 9.0.0")}) {
    const Environment library("DAT_DOUBLE_CUDNN", version);
    CHECK(cuda_version().ends_with(words));
  }
  for (const char* old : {"6.0", "7.0"}) {
    INFO(old);
    {
      const Capability capability(old, "91002");
      CHECK((!cuda()->refuses(DType::bf16).empty() && cuda()->refuses(DType::f16).empty()));
    }
    // The library has no handle for it, either: the check comes before.
    const Capability capability(old, "91100");
    const std::string error = message_of([] { (void)cuda(); }, ExitCode::device);
    CHECK((contains(error, "cuDNN 9.10") && contains(error, old) && contains(cuda_report(), "cuDNN 9.10")));
  }
}

TEST_CASE("A backend takes the GPU that it is told", "[double]") {
  const DeviceCount three(3);
  std::set<std::string> ids;
  for (int gpu = 0; gpu < 3; ++gpu) {
    const auto backend = cuda("f32", true, gpu);
    CHECK(contains(backend->description(), "GPU " + std::to_string(gpu) + " of 3"));
    const int node = numa_nodes_of_gpus().at(static_cast<std::size_t>(gpu));
    CHECK((backend->gpu_number() == gpu && backend->numa_node() == node));
    cudaDeviceProp properties{};
    REQUIRE(cudaGetDeviceProperties(&properties, gpu) == cudaSuccess);
    char id[33] = {};
    for (int k = 0; k < 16; ++k)
      std::snprintf(id + 2 * k, 3, "%02x", static_cast<unsigned char>(properties.uuid.bytes[k]));
    CHECK(backend->device_id() == id);
    ids.insert(id);
  }
  CHECK(ids.size() == 3);
}

TEST_CASE("The NUMA nodes of GPUs are found by their places on the bus", "[double]") {
  const DeviceCount three(3);
  const TemporaryFolder folder;
  const std::string devices = folder.path() + "/sys/bus/pci/devices/0000:a";
  for (const auto& [gpu, node] : {std::pair("0", "1\n"), std::pair("1", "-1\n")}) {
    std::filesystem::create_directories(devices + gpu + ":00.0");
    std::ofstream(devices + gpu + ":00.0/numa_node") << node;
  }
  CHECK(numa_nodes_of_gpus(folder.path()) == std::vector{1, -1, -1});
  dat_double::set_device_count(0);
  CHECK(numa_nodes_of_gpus(folder.path()).empty());
}

TEST_CASE("Without a GPU, cuda is refused with the reason and auto takes the CPU", "[double]") {
  CHECK(cuda_missing().empty());
  const DeviceCount none(0);
  const std::string missing = cuda_missing();
  CHECK(missing == "this machine has no NVIDIA driver");
  const std::string error = message_of([] { (void)cuda(); }, ExitCode::device);
  CHECK((contains(error, missing) && contains(error, "--device cpu")));
  const auto instead = make_backend({.device = "auto", .threads = 2});
  CHECK(instead->device().kind == DeviceKind::cpu);
  CHECK(device_notices(single(), *instead, "auto") == std::vector{"no GPU: " + missing + "; using the CPU"});
  for (const char* told : {"cpu", "auto"}) CHECK(device_notices(single(), *instead, told, told[0] == 'a').empty());
  CHECK((contains(cuda_report(), missing) && cuda_report().starts_with("driver    none\n")));
  Environment hidden("DAT_DOUBLE_DRIVER", "10020");
  CHECK(cuda_report().starts_with("driver    for CUDA 10.2\n"));
  CHECK(cuda_missing().starts_with("the NVIDIA driver is for CUDA 10.2, this program needs "));
  hidden.set("DAT_DOUBLE_DRIVER", std::to_string(CUDART_VERSION));
  hidden.set("CUDA_VISIBLE_DEVICES", "7");
  CHECK(cuda_missing() == "no GPU is to be seen (CUDA_VISIBLE_DEVICES=7): cudaErrorNoDevice");
}

TEST_CASE("A full GPU is an error that says what for and what helps, after which the backend goes on", "[double]") {
  const auto backend = cuda();
  float* x = to_device(*backend, std::vector<float>{1});
  const std::string error =
      message_of([&] { (void)backend->allocate(std::size_t{64} << 30U, "a large purpose"); }, ExitCode::device);
  CHECK((contains(error, "a large purpose") && contains(error, "--micro-batch")));
  scale(*backend, x, 1, 2);
  CHECK(to_host(*backend, x, 1) == std::vector<float>{2});
}
