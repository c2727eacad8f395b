// The attacks that look for a misclassified image: auto-PGD, FAB, Square. Their loops are templates: here they also run
// in double precision, on problems of the host.

#include "allocations.hpp"
#include "apgd.hpp"
#include "assess/evaluation.hpp"
#include "attack/fab_loop.hpp"
#include "attack/l2.hpp"
#include "attack/square_loop.hpp"
#include "batch/view/frozen.hpp"
#include "catch.hpp"
#include "data_path.hpp"
#include "datasets.hpp"
#include "device.hpp"
#include "golden_case.hpp"
#include "margin.hpp"
#include "random_values.hpp"
#include "single.hpp"
#include "small_network.hpp"
#include "train/plan/step_method.hpp"

using namespace dat;
using namespace dat::test;

namespace {

struct Host {};
int newtons = 0, patterns = 0;  ///< passes of FAB's projection, and patterns of Square's window, so far
/// The loop of kernels on it, which the attacks' templates find by their argument.
template <class F>
void each(const Host&, std::int64_t n, const F& f) {
  newtons += std::is_same_v<F, kernels::FabNewton<double>>;
  patterns += std::is_same_v<F, kernels::SquarePattern<double>>;
  for (std::int64_t i = 0; i < n; ++i) f(i);
}

/// What an attack sees, in the precision T, with a network of the test's. Images in CHW order.
template <class T>
struct Problem {
  using Forward = std::function<void(const T* x, T* z)>;
  using Backward = std::function<void(const T* x, const T* dz, T* dx)>;  // adds nothing: overwrites
  using Loss = std::function<void(Problem&)>;                            // losses, right, and dz

  Problem(const Layout& l, int samples, int k, std::vector<T> images)
      : layout(l), n(samples), classes(k), x(std::move(images)) {
    std::iota(ids.begin(), ids.end(), 0);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  void gradient() { look(true); }
  void forward() { look(false); }
  [[nodiscard]] int live() const { return n; }
  void look(bool with_gradient) {
    const std::int64_t pixels = layout.elements();
    for (int k = 0; k < n; ++k) net(x_adv + k * pixels, z.data() + k * classes);
    loss(*this);
    if (with_gradient)
      for (int k = 0; k < n; ++k) back(x_adv + k * pixels, dz.data() + k * classes, gradients.data() + k * pixels);
    asked.push_back(asked_at);
    values.push_back(loss_values);
    rights.push_back(right);
  }

  Host device;
  Layout layout;
  int n, classes;
  std::size_t rows = static_cast<std::size_t>(n);
  std::int64_t scratch_stride = n * (layout.elements() + 100);
  std::vector<T> x, asked_at = std::vector<T>(x.size()), perturbation = asked_at, gradients = asked_at,
                    z = std::vector<T>(rows * static_cast<std::size_t>(classes)), dz = z,
                    loss_values = std::vector<T>(rows), right = loss_values,
                    memory = std::vector<T>(static_cast<std::size_t>(5 * scratch_stride));
  std::vector<std::int32_t> wrong = std::vector<std::int32_t>(rows), through = wrong, aims = wrong;
  std::vector<std::int64_t> ids = std::vector<std::int64_t>(rows);

  const T* clean = x.data();
  T *x_adv = asked_at.data(), *eta = perturbation.data();
  const T *start = nullptr, *dx = gradients.data();
  T scale = 1;
  const std::int32_t* labels = wrong.data();
  std::int32_t* targets = aims.data();
  const std::int64_t* sample_ids = ids.data();
  std::uint64_t seed = 11;
  Purpose purpose = Purpose::evaluation_start;
  std::uint32_t time = 0;
  int run = 0;
  const T *logits = z.data(), *losses = loss_values.data(), *correct = right.data();
  T* scratch = memory.data();
  std::int32_t* done = through.data();

  Forward net;
  Backward back;
  Loss loss;
  std::vector<std::vector<T>> asked, values, rights;  ///< by call: where, and what came out
};

/// Written apart from the program's own, which is float only.
template <class T>
void plain_cross_entropy(Problem<T>& p) {
  for (int n = 0; n < p.n; ++n) {
    const T* z = p.logits + n * p.classes;
    const T* top = std::max_element(z, z + p.classes);
    T total = 0;
    for (int k = 0; k < p.classes; ++k) total += std::exp(z[k] - *top);
    const auto row = static_cast<std::size_t>(n);
    p.loss_values[row] = std::log(total) + *top - z[p.labels[n]];
    p.right[row] = top - z == p.labels[n] ? T{1} : T{0};
    for (int k = 0; k < p.classes; ++k)
      p.dz[row * static_cast<std::size_t>(p.classes) + static_cast<std::size_t>(k)] =
          std::exp(z[k] - *top) / total - (k == p.labels[n] ? T{1} : T{0});
  }
}

template <class T>
typename Problem<T>::Loss margin_of(kernels::Divisor divisor, bool targeted) {
  return [=](Problem<T>& p) {
    each(
        p.device, p.n,
        kernels::MarginLoss<T>{p.logits, p.labels, targeted ? p.targets : nullptr, p.loss_values.data(), p.right.data(),
                               p.dz.data(), p.classes, T{1}, std::numeric_limits<T>::infinity(), divisor});
  };
}

constexpr Layout kImage{3, 5, 5, 1};
constexpr int kSamples = 6, kHidden = 16, kClasses = 10, kDirections = 4;
const auto kPixels = static_cast<std::size_t>(kImage.elements());

std::vector<float> formula(std::uint32_t array, std::size_t count, const std::function<double(double)>& value) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(value(fmix32(static_cast<std::uint32_t>(i) + 0x9E3779B9U * array) / 4294967296.0));
  return values;
}
double half(double u) { return (2 * u - 1) / 2; }
double whole(double u) { return 2 * u - 1; }

/// The network, images and labels of tests/golden/make_attack_golden.py.
struct Case {
  Hdf5File file = Hdf5File::open(data_path("golden/attacks.h5"), ExitCode::data);
  double eps = file.real("/", "eps").value(), eps_l2 = file.real("/", "eps_l2").value();
  std::vector<float> w1 = formula(0, kHidden*kPixels,
                                  [](double u) { return (2 * u - 1) * 1.5 / std::sqrt(double(kPixels)); }),
                     b1 = formula(1, kHidden, half), w2 = formula(2, kClasses*kHidden, whole),
                     b2 = formula(3, kClasses, half), images = formula(4, kSamples*kPixels, [](double u) { return u; }),
                     directions = formula(5, kDirections*kPixels, whole);
  std::vector<std::int64_t> labels = read<std::int64_t>("labels"), ids = read<std::int64_t>("ids");

  [[nodiscard]] double radius(BallNorm norm) const { return norm == BallNorm::l2 ? eps_l2 : eps; }
  /// Of an attack in the file.
  [[nodiscard]] static std::string named(BallNorm norm, const std::string& attack) {
    return (norm == BallNorm::l2 ? "l2/" : "") + attack;
  }

  template <class T>
  [[nodiscard]] std::vector<T> read(const std::string& name) const {
    Shape shape;
    return file.read<T>(name, shape);
  }

  template <class T>
  void hidden(const T* x, T* h) const {
    for (std::size_t j = 0; j < kHidden; ++j) {
      T sum = b1[j];
      for (std::size_t i = 0; i < kPixels; ++i) sum += w1[j * kPixels + i] * x[i];
      h[j] = std::tanh(sum);
    }
  }
  template <class T>
  void logits(const T* x, T* z) const {
    T h[kHidden];
    hidden(x, h);
    for (std::size_t k = 0; k < kClasses; ++k) {
      z[k] = b2[k];
      for (std::size_t j = 0; j < kHidden; ++j) z[k] += w2[k * kHidden + j] * h[j];
    }
  }
  template <class T>
  void gradient(const T* x, const T* dz, T* dx) const {
    T h[kHidden];
    hidden(x, h);
    std::fill_n(dx, kPixels, T{0});
    for (std::size_t j = 0; j < kHidden; ++j) {
      T sum = 0;
      for (std::size_t k = 0; k < kClasses; ++k) sum += dz[k] * w2[k * kHidden + j];
      sum *= 1 - h[j] * h[j];
      for (std::size_t i = 0; i < kPixels; ++i) dx[i] += sum * w1[j * kPixels + i];
    }
  }

  [[nodiscard]] std::unique_ptr<Problem<double>> problem(Problem<double>::Loss loss) const {
    auto p = std::make_unique<Problem<double>>(kImage, kSamples, kClasses,
                                               std::vector<double>(images.begin(), images.end()));
    p->net = [this](const double* x, double* z) { logits(x, z); };
    p->back = [this](const double* x, const double* dz, double* dx) { gradient(x, dz, dx); };
    p->loss = std::move(loss);
    std::copy(labels.begin(), labels.end(), p->wrong.begin());
    std::copy(ids.begin(), ids.end(), p->ids.begin());
    return p;
  }
  /// The golden file's view of images: their products with its directions.
  [[nodiscard]] std::vector<double> seen(const std::vector<double>& all) const {
    std::vector<double> products;
    for (std::size_t n = 0; n < kSamples; ++n)
      for (std::size_t d = 0; d < kDirections; ++d)
        products.push_back(
            std::inner_product(&all[n * kPixels], &all[n * kPixels] + kPixels, &directions[d * kPixels], 0.0));
    return products;
  }
  /// The largest difference between `ours` and the expected numbers from `at` on.
  [[nodiscard]] static double off(const std::vector<double>& ours, const std::vector<double>& expected,
                                  std::size_t at = 0) {
    double most = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) most = std::max(most, std::abs(ours[i] - expected.at(at + i)));
    return most;
  }
  void check_result(const Problem<double>& p, const std::string& name) const {
    const auto done = read<std::int64_t>(name + "/done");
    CHECK(std::equal(done.begin(), done.end(), p.through.begin()));
    CHECK(off(seen(p.asked_at), read<double>(name + "/found")) <= 1e-9);
    for (std::size_t i = 0; i < p.x.size(); ++i) REQUIRE(p.perturbation[i] == p.asked_at[i] - p.x[i]);
  }
};

/// The same network in float on the device's memory, in any layout.
class NetObjective final : public Objective {
 public:
  NetObjective(const Case& c, const std::vector<int>& samples, const Layout& l, int k = kClasses)
      : case_(c),
        x_(samples.size() * kPixels),
        logits_(samples.size() * static_cast<std::size_t>(k)),
        losses_(samples.size()),
        targets_(samples.size(), -1),
        ids_(samples.size()) {
    device = kernel_backend().device();
    layout = l;
    n = static_cast<int>(samples.size());
    classes = k;
    for (std::size_t s = 0; s < samples.size(); ++s) {
      const auto from = static_cast<std::size_t>(samples[s]);
      for (std::size_t i = 0; i < kPixels; ++i) x_[place(s, i)] = c.images[from * kPixels + i];
      labels_[s] = static_cast<std::int32_t>(c.labels[from]) % k;
      ids_[s] = c.ids[from];
    }
    clean = x_.data();
    x_adv = x_adv_.data();
    eta = eta_.data();
    dx = dx_.data();
    labels = labels_.data();
    targets = targets_.data();
    sample_ids = ids_.data();
    seed = 11;
    purpose = Purpose::evaluation_start;
    logits = logits_.data();
    losses = losses_.data();
    correct = correct_.data();
    scratch = scratch_.data();
    scratch_stride = static_cast<std::int64_t>(x_.size());
    done = done_.data();
  }
  void gradient() override { look(true); }
  void forward() override { look(false); }
  [[nodiscard]] int live() override { return calls < most_calls ? n : 0; }

  /// Sample s of the result, in CHW order.
  [[nodiscard]] std::vector<float> result(std::size_t s, const Shared<float>& of) const {
    std::vector<float> image(kPixels);
    for (std::size_t i = 0; i < kPixels; ++i) image[i] = of[place(s, i)];
    return image;
  }
  [[nodiscard]] std::vector<float> x_adv_of(std::size_t s) const { return result(s, x_adv_); }
  [[nodiscard]] std::vector<float> eta_of(std::size_t s) const { return result(s, eta_); }
  [[nodiscard]] std::vector<float> x_of(std::size_t s) const { return result(s, x_); }

  std::vector<std::vector<float>>* record = nullptr;         ///< x_adv of each sample and call, in CHW order
  std::vector<std::vector<float>>* record_losses = nullptr;  ///< of each call
  int calls = 0;
  int most_calls = cases(10000, 1000);  ///< about where an attack ends; on a GPU only Square has more

 private:
  [[nodiscard]] std::size_t place(std::size_t s, std::size_t i) const {
    const int hw = kImage.h * kImage.w, at = static_cast<int>(i);
    return static_cast<std::size_t>(
        layout.offset(static_cast<std::int64_t>(s), at / hw, at % hw / kImage.w, at % kImage.w));
  }
  void look(bool with_gradient) {
    kernel_backend().wait();
    ++calls;
    float z[kClasses], dz[kClasses] = {};
    for (std::size_t s = 0; s < static_cast<std::size_t>(n); ++s) {
      for (std::size_t i = 0; i < kPixels; ++i) plain_[i] = x_adv_[place(s, i)];
      case_.logits(plain_.data(), z);
      std::copy_n(z, classes, logits_.begin() + static_cast<std::ptrdiff_t>(s) * classes);
      if (record != nullptr) record->push_back(plain_);
    }
    if (loss == targeted_dlr || loss == class_difference)
      REQUIRE(std::ranges::all_of(targets_, [this](int target) { return target >= 0 && target < classes; }));
    const Samples all{.device = device, .n = n, .classes = classes, .labels = labels, .targets = targets};
    loss({all, logits_.data(), losses_.data(), correct_.data(), with_gradient ? dlogits_.data() : nullptr}, 1.0F);
    kernel_backend().wait();
    if (record_losses != nullptr) record_losses->emplace_back(losses_.begin(), losses_.end());
    if (!with_gradient) return;
    for (std::size_t s = 0; s < static_cast<std::size_t>(n); ++s) {
      for (std::size_t i = 0; i < kPixels; ++i) plain_[i] = x_adv_[place(s, i)];
      std::copy_n(dlogits_.begin() + static_cast<std::ptrdiff_t>(s) * classes, classes, dz);
      case_.gradient(plain_.data(), dz, plain_dx_.data());
      for (std::size_t i = 0; i < kPixels; ++i) dx_[place(s, i)] = plain_dx_[i];
    }
  }

  const Case& case_;
  Shared<float> x_, x_adv_ = x_, eta_ = x_, dx_ = x_, logits_, dlogits_ = logits_, losses_, correct_ = losses_;
  Shared<float> scratch_ = Shared<float>(5 * x_.size());
  Shared<std::int32_t> targets_, labels_ = targets_, done_ = targets_;
  Shared<std::int64_t> ids_;
  std::vector<float> plain_ = std::vector<float>(kPixels), plain_dx_ = plain_;
};

const std::vector<std::string> kSearching = {"apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "square"};
const std::vector<int> kAll = {0, 1, 2, 3, 4, 5};
const std::vector<BallNorm> kNorms = {BallNorm::linf, BallNorm::l2};

/// ||x - y||, from entry `first` on.
template <class T>
double distance(BallNorm norm, const std::vector<T>& x, const std::vector<T>& y, std::size_t first = 0,
                std::size_t count = kPixels) {
  double most = 0, squares = 0;
  for (std::size_t i = first; i < first + count; ++i) {
    const double d = double(x[i]) - double(y[i]);
    most = std::max(most, std::abs(d));
    squares += d * d;
  }
  return norm == BallNorm::l2 ? std::sqrt(squares) : most;
}

void perturb(const Attack& attack, Objective& o) {
  o.loss = cross_entropy;
  attack.perturb(o);
  kernel_backend().wait();
}

}  // namespace

TEST_CASE("Logit ratios have their values and gradients", "[attack][cpu]") {
  // Vectors with seven digits.
  constexpr double kDigits = 6e-8;
  const std::vector<double> z = {2, 1, .5, -1, .25};
  using kernels::Divisor;
  struct Margin {
    double loss = 9, correct = 9;
    std::vector<double> gradient;
  };
  const auto margin_at = [](const std::vector<double>& logits, std::int32_t y, std::int32_t t, Divisor divisor,
                            double cap = std::numeric_limits<double>::infinity()) {
    Margin m{.gradient = std::vector<double>(logits.size(), 9)};
    const std::int32_t* const aim = t < 0 ? nullptr : &t;
    const auto k = static_cast<int>(logits.size());
    kernels::MarginLoss<double>{logits.data(), &y, aim, &m.loss, &m.correct, m.gradient.data(), k, 1, cap, divisor}(0);
    return m;
  };
  const auto at = [&](int y, int t, Divisor divisor, std::vector<double>* gradient = nullptr) {
    const Margin all = margin_at(z, y, t, divisor);
    CHECK(all.correct == (y == 0 ? 1 : 0));
    if (gradient != nullptr) *gradient = all.gradient;
    return all.loss;
  };
  const auto close = [&](const std::vector<double>& ours, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(std::abs(ours[i] - expected[i]) <= kDigits);
  };
  std::vector<double> d;
  CHECK(std::abs(at(0, -1, Divisor::third, &d) + .6666667) <= kDigits);
  close(d, {-.2222222, .6666667, -.4444444, 0, 0});
  CHECK(std::abs(at(1, -1, Divisor::third) - .6666667) <= kDigits);
  CHECK(std::abs(at(3, -1, Divisor::third) - 2) <= kDigits);
  CHECK(std::abs(at(0, 1, Divisor::third_and_fourth, &d) + .6153846) <= kDigits);
  close(d, {-.2366864, .6153846, -.1893491, 0, -.1893491});
  CHECK(std::abs(at(0, 3, Divisor::third_and_fourth) + 1.8461538) <= kDigits);
  CHECK(std::abs(at(1, 0, Divisor::third_and_fourth) - .6153846) <= kDigits);
  CHECK(std::abs(at(2, 4, Divisor::third_and_fourth) + .1538462) <= kDigits);
  CHECK(at(0, -1, Divisor::one, &d) == -1);
  close(d, {-1, 1, 0, 0, 0});
  CHECK(at(3, -1, Divisor::one) == 3);

  const Margin unknown = margin_at(z, -1, -1, Divisor::third);
  CHECK((unknown.loss == 0 && unknown.correct == -1));
  CHECK(unknown.gradient == std::vector<double>(5));

  CHECK(margin_at({1e-12, 0, 0, 0}, 1, -1, Divisor::third).loss == 0.5);  // 1e-12 is added to the divisor
  CHECK(margin_at({1e-12, 0, 0, 0}, 1, 0, Divisor::third_and_fourth).loss == 0.5);

  // Carlini and Wagner's margin stops at its confidence.
  for (const double cap : {2.5, 3.0, 3.5}) {
    const Margin capped = margin_at(z, 3, -1, Divisor::one, cap);
    CHECK(capped.loss == std::min(cap, 3.0));
    CHECK(capped.gradient[0] == (cap <= 3 ? 0 : 1));
    CHECK(capped.gradient[3] == (cap <= 3 ? 0 : -1));
  }
}

TEST_CASE("Ratios of logits leave out what a network of few classes has not", "[attack]") {
  const Shared<float> z = shared(std::vector<float>{2, 1, 0.5F, -1});
  Shared<std::int32_t> label(1, 0), target(1, 1);
  const auto at = [&](SampleLoss* loss, int classes) {
    Shared<float> value(1), correct(1), gradient(4);
    Samples one{.device = kernel_backend().device(), .n = 1, .classes = classes, .labels = label.data()};
    one.targets = target.data();
    loss({one, z.data(), value.data(), correct.data(), gradient.data()}, 1.0F);
    kernel_backend().wait();
    return double{value[0]};
  };
  for (const auto& [classes, ratio, targeted] :
       {std::tuple(2, -1.0, -1.0), {3, -1 / 1.5, -1 / 1.5}, {4, -1 / 1.5, -1 / 2.25}}) {
    CHECK(at(dlr, classes) == Approx(ratio));
    CHECK(at(targeted_dlr, classes) == Approx(targeted));
  }
}

TEST_CASE("To norms by which something is divided 1e-12 is added", "[attack][cpu]") {
  CHECK(kernels::into_ball(1e-12, 1.0) == 0.5);
  const double dark = 0, grey = 0.5, size = 1e-12, nothing = 0;
  double x_adv = 1e-12, u[4];
  kernels::SquareScale<double>{kernels::Strips{1}, 1, &dark, &size, &x_adv, 0.5}(0);
  CHECK(x_adv == Approx(0.25));
  const std::int64_t id = 3;
  const kernels::StartNoise noise{BallNorm::linf, &id, {1, 1, 1, 1}, 11, Purpose::attack_start};
  noise.draw(0, 0, u);
  kernels::ScaledStart<double>{noise, &grey, &nothing, &x_adv, 1e-13}(0);
  CHECK(x_adv == Approx(0.5 + 0.1 * u[0]));
}

TEST_CASE("A target is the class of its rank, the first of equal ones first", "[attack][cpu]") {
  const std::vector<float> z = {1, 3, 2, 3, 1};
  std::vector<int> order;
  for (int rank = 0; rank < 5; ++rank) order.push_back(kernels::class_of_rank(z.data(), 5, rank));
  CHECK(order == std::vector<int>{1, 3, 2, 0, 4});
  const std::vector<float> none(5, std::nanf(""));
  for (int rank = 0; rank < 5; ++rank) {
    const int some = kernels::class_of_rank(none.data(), 5, rank);
    CHECK((some >= 0 && some < 5));
  }
  const kernels::LargestFour top = kernels::largest_four(z.data(), 5), few = kernels::largest_four(z.data(), 2);
  CHECK(std::vector<int>(top.at, top.at + 4) == std::vector<int>{1, 3, 2, 0});
  CHECK(std::vector<int>(few.at, few.at + 4) == std::vector<int>{1, 0, -1, -1});
}

TEST_CASE("The checkpoints of auto-PGD", "[attack][cpu]") {
  const auto checkpoints = [](int iterations) {
    ApgdWindows windows(iterations);
    std::vector<int> all;
    for (int k = 1; k <= iterations; ++k)
      if (windows.next() > 0) all.push_back(k);
    return all;
  };
  CHECK(checkpoints(100) == std::vector<int>{22, 41, 57, 70, 80, 87, 93, 99});
  CHECK(checkpoints(50) == std::vector<int>{11, 21, 30, 38, 45});
  const auto twenty = checkpoints(20), ten = checkpoints(10);
  CHECK(std::vector<int>(twenty.begin(), twenty.begin() + 4) == std::vector<int>{4, 7, 9, 10});
  CHECK(twenty.back() == 20);
  CHECK(ten == std::vector<int>{2, 3, 4, 5, 6, 7, 8, 9, 10});
}

namespace {

/// The moves of points q onto <w, .> = c by FAB's projection, in the precision T: both rows of a problem whose image
/// and iterate are q.
template <class T>
std::vector<T> project(const std::vector<T>& q, const std::vector<T>& w, T c, int row, BallNorm norm,
                       T* radius = nullptr) {
  Problem<T> p({1, 1, static_cast<int>(q.size()), 1}, 1, 2, q);
  p.asked_at = q;
  p.x_adv = p.asked_at.data();
  Scratch<Problem<T>> scratch(p, 0);
  const auto state = fab_state(scratch, norm);
  CHECK(scratch.rest() - p.scratch == 5 + 4 * 2);  // five numbers of each image, and four of each of its two rows
  double df = -double(c);
  for (std::size_t i = 0; i < q.size(); ++i) df += double(w[i]) * double(q[i]);
  state.df[0] = static_cast<T>(df);
  const kernels::Strips strips{p.layout.elements()};
  std::vector<T> partial(static_cast<std::size_t>(9 * strips.per_image()), T{-7});
  fab_project(p, strips, state, w.data(), partial.data());
  CHECK(std::count(partial.begin() + 6 * strips.per_image(), partial.end(), T{-7}) == 3 * strips.per_image());
  std::vector<T> moves;
  for (std::size_t i = 0; i < q.size(); ++i)
    moves.push_back(kernels::fab_move(q[i], w[i], state.side[row], state.radius[row], norm));
  if (radius != nullptr) *radius = state.radius[row];
  return moves;
}

}  // namespace

TEMPLATE_TEST_CASE("FAB's projection is the least move inside the box that reaches the plane", "[attack][cpu]", float,
                   double) {
  const BallNorm norm = GENERATE(BallNorm::linf, BallNorm::l2);
  // What the precision of sums of 200 products below 2 allows; double: of the inputs' and the radius's rounding.
  constexpr double kError = std::is_same_v<TestType, float> ? 200 * 0x1p-22 : 200 * 0x1p-51;
  constexpr std::size_t kCount = 150;  // three strips
  int at_faces = 0, unreachable = 0;
  for (std::uint32_t trial = 0; trial < 300; ++trial) {
    const auto a = random_values(kCount, 2 * trial + 1, -0.3F, 1.3F), b = random_values(kCount, 2 * trial + 2);
    std::vector<TestType> q, w;
    double now = 0, low = 0, high = 0;
    const float least = trial % 3 == 2 ? 0.2F : 0.0F;  // 0: many at faces
    for (std::size_t i = 0; i < kCount; ++i) {
      q.push_back(std::clamp(a[i], least, 1 - least));
      w.push_back(i % 7 == 0 ? 0.0F : b[i] * b[i] * b[i]);
      now += double(w[i]) * double(q[i]);
      low += std::min(0.0, double(w[i]));
      high += std::max(0.0, double(w[i]));
    }
    const double share = random_values(1, trial + 9000, -1.2F, 1.2F)[0];
    const auto c = static_cast<TestType>(share < 0 ? now + share * (now - low) : now + share * (high - now));
    TestType radius = 0;
    const auto d = project<TestType>(q, w, c, static_cast<int>(trial % 2), norm, &radius);
    double there = 0, most = 0, room = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      there += double(w[i]) * (double(q[i]) + double(d[i]));
      most = std::max(most, std::abs(double(d[i])));
      REQUIRE((q[i] + d[i] >= -kError && q[i] + d[i] <= 1 + kError));
      if (w[i] == 0) {
        REQUIRE(d[i] == 0);
        continue;
      }
      // All move the right way, as far as the radius or their face: no smaller radius would reach as far.
      const bool up = (double(c) > now) == (w[i] > 0);
      // In L2 the least move is along w, but for the faces: 1e-8 is where it stops to count.
      const TestType free = up ? 1 - q[i] : q[i], size = std::abs(w[i]);
      const TestType speed = norm == BallNorm::linf ? TestType{1} : size < TestType(1e-8) ? TestType{0} : size;
      if (speed > 0) room = std::max(room, double(free / speed));
      REQUIRE(std::abs(d[i]) == std::min(radius * speed, free));
      REQUIRE((d[i] == 0 || (d[i] > 0) == up));
      at_faces += d[i] != 0 && free < radius * speed;
    }
    if (std::abs(share) > 1.001) {
      ++unreachable;
      REQUIRE(double(radius) == room);
    } else if (std::abs(share) < 0.999) {
      REQUIRE(std::abs(there - double(c)) <= kError);
    }
    if (norm == BallNorm::linf) REQUIRE(most == double(radius));
  }
  CHECK(at_faces > 1000);
  CHECK(unreachable > 20);
}

TEST_CASE("FAB chooses the plane whose distance by the dual norm is least, however small gradients are",
          "[attack][cpu]") {
  const BallNorm norm = GENERATE(BallNorm::linf, BallNorm::l2);
  constexpr std::size_t kCount = 65;  // two strips, the second of one pixel
  constexpr double kScale = 2;
  const kernels::Strips strips{kCount};
  CHECK((strips.per_image() == 2 && kernels::Strips{64}.per_image() == 1));
  double df = 0, nearest = 0, take = 0;
  kernels::FabState<double> state{};
  state.norm = norm;
  state.df = &df;
  state.nearest = &nearest;
  state.take = &take;
  // Distance of the plane of a class whose gradient has this size in each pixel.
  const auto look = [&](double size, double loss, bool first) {
    const std::vector<double> dx(kCount, kScale * size);
    std::vector<double> partial(static_cast<std::size_t>(strips.per_image()));
    for (std::int64_t i = 0; i < strips.per_image(); ++i)
      kernels::FabNorm<double>{strips, norm, dx.data(), partial.data()}(i);
    kernels::FabNearest<double>{strips, state, &loss, partial.data(), kScale, first}(0);
    return std::abs(loss) / (size * (norm == BallNorm::l2 ? std::sqrt(double(kCount)) : double(kCount)));
  };
  const double at_first = look(0.002, -1, true);
  CHECK(nearest == Approx(at_first));
  CHECK((take == 1 && df == -1));
  (void)look(0.0002, 0.5, false);  // less to change, and farther
  CHECK((take == 0 && df == -1 && nearest == Approx(at_first)));
  const double at_last = look(0.02, 2, false);
  CHECK(nearest == Approx(at_last));
  CHECK((take == 1 && df == 2));
  for (const double size : {0.02, 0.0}) {  // as far, and nowhere
    (void)look(size, -2, false);
    CHECK((take == 0 && df == 2));
  }
}

TEST_CASE("FAB keeps what is nearer than before, and is done with an image inside the ball or at its edge",
          "[attack][cpu]") {
  double correct = 0, partial = 0, distance = HUGE_VAL, take = 9, back = 9;
  std::int32_t done = 0;
  kernels::FabState<double> state{};
  state.distance = &distance;
  state.take = &take;
  state.back = &back;
  std::ostringstream told;
  for (const auto& [right, far] : {std::pair(1.0, .25), {0.0, .75}, {0.0, .75}, {0.0, .5}, {0.0, .25}}) {
    correct = right;
    partial = far;
    kernels::FabJudge<double>{kernels::Strips{1}, state, &correct, &partial, &done, 0.5}(0);
    told << take << ' ' << back << ' ' << distance << ' ' << done << "; ";
  }
  CHECK(told.str() == "0 0 inf 0; 1 1 0.75 0; 0 1 0.75 0; 1 1 0.5 1; 0 1 0.25 1; ");
}

TEST_CASE("FAB's step goes towards the image's projection by its part of both distances, a tenth at most",
          "[attack][cpu]") {
  double side[] = {-1, -1}, radius[] = {0.125, 0.0625};
  kernels::FabState<double> state{};
  state.norm = BallNorm::linf;
  state.side = side;
  state.radius = radius;
  const double w[] = {1, -1}, x[] = {0.25, 0.75};
  for (const auto& [far_x, part] : {std::pair(1.0, 0.1), std::pair(19.0, 0.05)}) {
    const double far[] = {1, far_x};
    double p[] = {0.5, 0.5};
    kernels::FabStep<double>{kernels::Strips{2}, state, w, x, far, p, 1.0, 0.1}(0);
    CHECK(p[0] == Approx(0.625 * (1 - part) + 0.3125 * part));
    CHECK(p[1] == Approx(0.375 * (1 - part) + 0.6875 * part));
  }
}

TEST_CASE("Auto-PGD takes the golden path in double precision", "[attack][cpu]") {
  const Case c;
  const BallNorm norm = GENERATE(BallNorm::linf, BallNorm::l2);
  const auto check = [&](const std::string& word, Searching attack, int rank, Problem<double>::Loss loss) {
    const std::string name = Case::named(norm, word);
    INFO(name);
    const auto p = c.problem(std::move(loss));
    std::ranges::fill(p->perturbation, std::nan(""));  // what was there before counts nowhere
    apgd(*p, {.norm = norm, .eps = c.radius(norm), .rank = rank, .attack = attack});
    const auto where = c.read<double>(name + "/where"), value = c.read<double>(name + "/value");
    const std::size_t first = rank > 0 ? 1 : 0;  // the clean image, to find the targets
    REQUIRE(p->asked.size() == 101 + first);
    for (std::size_t step = 0; step <= 100; ++step) {
      INFO("step " << step);
      REQUIRE(Case::off(c.seen(p->asked[first + step]), where, step * kSamples * kDirections) <= 1e-9);
      REQUIRE(Case::off(p->values[first + step], value, step * kSamples) <= 1e-9);
    }
    c.check_result(*p, name);
  };
  using kernels::Divisor;
  check("apgd_ce", Searching::apgd_ce, 0, plain_cross_entropy<double>);
  check("apgd_dlr", Searching::apgd_dlr, 0, margin_of<double>(Divisor::third, false));
  check("apgd_t", Searching::apgd_t, 1, margin_of<double>(Divisor::third_and_fourth, true));
}

TEST_CASE("FAB takes the golden path in double precision", "[attack][cpu]") {
  const Case c;
  const BallNorm norm = GENERATE(BallNorm::linf, BallNorm::l2);
  for (const bool targeted : {false, true}) {
    const std::string name = Case::named(norm, targeted ? "fab_t" : "fab");
    INFO(name);
    const auto p = c.problem(margin_of<double>(kernels::Divisor::one, true));
    newtons = 0;
    fab(*p, {.norm = norm, .eps = c.radius(norm), .rank = targeted ? 2 : 0});
    CHECK(newtons == 100 * kFabPasses);
    const auto where = c.read<double>(name + "/where"), value = c.read<double>(name + "/value");
    const std::size_t calls = targeted ? 2 : kClasses;  // in each iteration, the last one without a gradient
    REQUIRE(p->asked.size() == 1 + 100 * calls);
    for (std::size_t step = 0; step <= 100; ++step) {
      INFO("step " << step);
      const std::vector<double>& asked = p->asked[step * calls];
      REQUIRE(Case::off(c.seen(asked), where, step * kSamples * kDirections) <= 1e-9);
      std::vector<double> distances(kSamples, -1);
      for (std::size_t n = 0; n < kSamples && step > 0; ++n)
        if (p->rights[step * calls][n] == 0) distances[n] = distance(norm, asked, p->x, n * kPixels);
      REQUIRE(Case::off(distances, value, step * kSamples) <= 1e-9);
    }
    c.check_result(*p, name);
  }
}

TEST_CASE("Square decides as the golden one, draw by draw, in double precision", "[attack][cpu]") {
  const Case c;
  const BallNorm norm = GENERATE(BallNorm::linf, BallNorm::l2);
  const std::string name = Case::named(norm, "square");
  INFO(name);
  const auto p = c.problem(margin_of<double>(kernels::Divisor::one, false));
  patterns = 0;
  square(*p, {.norm = norm, .eps = c.radius(norm)});
  CHECK(patterns == (norm == BallNorm::l2 ? 3 : 0));  // of the tiles, and of sides of 5 and of 3
  CHECK(std::all_of(p->memory.begin() + square_images(norm) * p->scratch_stride, p->memory.end(),
                    [](double v) { return v == 0; }));
  const auto accepted = c.read<std::uint8_t>(name + "/accepted");
  const auto expected = c.read<double>(name + "/margin");
  REQUIRE(p->values.size() == 5001);
  if (norm == BallNorm::l2) {
    const auto proposed = c.read<double>(name + "/proposed");
    for (std::size_t at = 0; at < proposed.size(); ++at)
      if (accepted[at] != 2) CHECK(std::abs(-p->values[1 + at / kSamples][at % kSamples] - proposed[at]) <= 1e-9);
  }
  std::vector<double> least;
  for (const double loss : p->values[0]) least.push_back(-loss);
  int ties = 0, decisions = 0;
  for (std::size_t k = 0; k < 5000; ++k) {
    INFO("iteration " << k);
    for (std::size_t n = 0; n < kSamples; ++n) {
      if (least[n] <= 0) {
        REQUIRE(accepted[k * kSamples + n] == 2);
        continue;
      }
      const double margin = -p->values[k + 1][n];
      const bool accept = margin < least[n] || margin <= 0;
      // Nine digits are compared below. Where a proposal moves pixels to where they are already, only rounding decides.
      const bool tie = std::abs(margin - least[n]) <= 1e-12;
      ties += tie ? 1 : 0;
      INFO("sample " << n << ": " << margin << " after " << least[n] << ", less by " << least[n] - margin);
      if (!tie) REQUIRE(accepted[k * kSamples + n] == (accept ? 1 : 0));
      if (accept) least[n] = margin;
      ++decisions;
    }
    if (k % 10 == 9) REQUIRE(Case::off(least, expected, k / 10 * kSamples) <= 1e-9);
  }
  CHECK(ties < decisions / 4);
  c.check_result(*p, name);
}

TEST_CASE("PGD in the L2 ball takes the golden path in double precision", "[attack][cpu]") {
  const Case c;
  const auto p = c.problem(plain_cross_entropy<double>);
  start_in_l2(*p, c.eps_l2);
  for (int step = 0; step <= 40; ++step) {
    p->gradient();
    l2_step(*p, c.eps_l2 / 8, c.eps_l2);
  }
  const auto where = c.read<double>("l2/pgd/where"), value = c.read<double>("l2/pgd/value");
  for (std::size_t step = 0; step <= 40; ++step) {
    INFO("step " << step);
    REQUIRE(Case::off(c.seen(p->asked[step]), where, step * kSamples * kDirections) <= 1e-9);
    REQUIRE(Case::off(p->values[step], value, step * kSamples) <= 1e-9);
  }
}

TEST_CASE("In float, on the device, the first 20 steps stay beside the golden path", "[attack]") {
  // sign() amplifies rounding afterwards; before, the gradients of the golden case are away from 0. What is compared
  // are products of 75 pixels with numbers up to 1: sums of as many roundings.
  const Case c;
  const BallNorm norm = GENERATE(BallNorm::linf, BallNorm::l2);
  for (const std::string word : {"apgd_ce", "apgd_dlr", "apgd_t", "fab", "fab_t"}) {
    INFO(name_of(norm) << " " << word);
    NetObjective o(c, kAll, kImage);
    std::vector<std::vector<float>> asked;
    o.record = &asked;
    std::string attack = word;
    std::replace(attack.begin(), attack.end(), '_', '-');
    o.run = word == "fab_t" ? 1 : 0;
    perturb(*attacks().at(attack)({.norm = norm, .eps = c.radius(norm)}), o);
    const auto where = c.read<double>(Case::named(norm, word) + "/where");
    // The calls of each step, and those before the first one.
    const std::size_t calls = word == "fab" ? kClasses : word == "fab_t" ? 2 : 1, before = word == "apgd_t" ? 1 : 0;
    double most = 0;
    for (std::size_t step = 0; step <= 20; ++step) {
      std::vector<double> images;
      for (std::size_t n = 0; n < kSamples; ++n) {
        const std::vector<float>& one = asked[(before + step * calls) * kSamples + n];
        images.insert(images.end(), one.begin(), one.end());
      }
      most = std::max(most, Case::off(c.seen(images), where, step * kSamples * kDirections));
    }
    CHECK(most <= 1e-5);
  }
}

TEST_CASE("A searching attack leaves a misclassified image of the ball, or the clean one", "[attack]") {
  const Case c;
  const BallNorm norm = GENERATE(BallNorm::linf, BallNorm::l2);
  int found = 0, left = 0;
  for (const std::string& name : kSearching)
    for (const double eps : {0.5 * c.radius(norm), 2 * c.radius(norm)}) {
      INFO(name << " " << name_of(norm) << " " << eps);
      NetObjective o(c, kAll, kImage);
      perturb(*attacks().at(name)({.norm = norm, .eps = eps}), o);
      o.loss = cross_entropy;
      o.forward();
      kernel_backend().wait();
      for (std::size_t s = 0; s < kSamples; ++s) {
        const auto x = o.x_of(s), x_adv = o.x_adv_of(s), eta = o.eta_of(s);
        const bool misclassified = o.correct[s] == 0;
        CHECK(misclassified == (o.done[s] != 0));
        (misclassified ? found : left) += s + 1 < kSamples;
        if (norm == BallNorm::l2) CHECK(distance(norm, x_adv, x) <= eps * (1 + 1e-6));
        for (std::size_t i = 0; i < kPixels; ++i) {
          REQUIRE((x_adv[i] >= 0 && x_adv[i] <= 1));
          if (norm == BallNorm::linf) REQUIRE(std::abs(double(x_adv[i]) - x[i]) <= eps + 1e-6);
          REQUIRE(eta[i] == x_adv[i] - x[i]);
          if (!misclassified) REQUIRE(x_adv[i] == x[i]);
        }
      }
    }
  CHECK(found > 5);
  CHECK(left > 5);
}

TEST_CASE("Auto-PGD counts rises, from the first iteration on, and halves its step where they are few or lead nowhere",
          "[attack]") {
  Shared<float> memory(9), losses(1, 1.5F), correct(1, 1.0F);
  Shared<std::int32_t> done(1, 0);
  const auto at = [&](std::size_t k) { return memory.data() + k; };
  const kernels::ApgdState<float> state{at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8)};
  run(1, kernels::ApgdBegin<float>{state, losses.data(), correct.data(), done.data(), 2});
  using Iteration = std::array<float, 4>;  // loss, window; rises and step after it
  const std::vector<Iteration> all = {{1, 0, 1, 2},     {.5, 0, 1, 2},   {.75, 0, 2, 2},   {.75, 0, 2, 2},
                                      {1.5, 4, 0, 1},   {.125, 0, 0, 1}, {.25, 0, 1, 1},   {.5, 0, 2, 1},
                                      {.75, 0, 3, 1},   {1, 5, 0, 1},    {1.125, 0, 1, 1}, {1.25, 0, 2, 1},
                                      {1.375, 0, 3, 1}, {1.5, 4, 0, .5}};
  for (const auto& [loss, window, rises, step] : all) {
    losses[0] = loss;
    run(1, kernels::ApgdJudge<float>{state, losses.data(), correct.data(), done.data(), static_cast<int>(window)});
    INFO("loss " << loss << ", window " << window);
    CHECK((*state.rises == rises && *state.step == step && *state.improved == 0));
  }
}

TEST_CASE("Auto-PGD for a training leaves the iterate of the highest loss", "[attack]") {
  const Case c;
  NetObjective o(c, kAll, kImage);
  std::vector<std::vector<float>> losses;
  o.record_losses = &losses;
  o.most_calls = 0;  // whatever is misclassified
  TrainOptions options;
  options.attack = "apgd-ce";
  options.eps = c.eps;
  perturb(*attack_of(options, 10), o);
  REQUIRE(losses.size() == 101);
  o.forward();
  for (std::size_t s = 0; s < kSamples; ++s) {
    float best = losses[0][s];
    for (std::size_t k = 0; k <= 100; ++k) best = std::max(best, losses[k][s]);
    CHECK(losses.back()[s] == best);
    CHECK(best > losses[0][s]);
  }
}

TEST_CASE("What a searching attack does to an image depends on nothing but its number", "[attack]") {
  const Case c;
  const BallNorm norm = GENERATE(BallNorm::linf, BallNorm::l2);
  for (const std::string& name : kSearching) {
    INFO(name << " " << name_of(norm));
    const auto attack = attacks().at(name)({.norm = norm, .eps = c.radius(norm)});
    NetObjective all(c, kAll, kImage);
    perturb(*attack, all);
    const std::vector<int> some = {4, 0, 3};
    // Another order; and another layout, but where sums take the pixels as they lie in memory: FAB's, and APGD's norms.
    const bool in_memory = name.starts_with("fab") || (norm == BallNorm::l2 && name.starts_with("apgd"));
    NetObjective few(c, some, in_memory ? kImage : Layout{3, 5, 5, 3});
    perturb(*attack, few);
    for (std::size_t s = 0; s < some.size(); ++s)
      CHECK(few.x_adv_of(s) == all.x_adv_of(static_cast<std::size_t>(some[s])));
  }
}

TEST_CASE("Runs, restarts, seeds and purposes have random numbers of their own", "[attack]") {
  const Case c;
  const auto start = [&](const char* name, int run, std::uint64_t seed, Purpose purpose, std::uint32_t time) {
    NetObjective o(c, {0}, kImage);
    std::vector<std::vector<float>> asked;
    o.record = &asked;
    o.run = run;
    o.seed = seed;
    o.purpose = purpose;
    o.time = time;
    o.most_calls = 2;
    perturb(*attacks().at(name)({.eps = c.eps, .restarts = 3}), o);
    return asked[std::string(name) == "apgd-t" ? 1 : 0];
  };
  std::vector<std::vector<float>> all;
  for (const char* name : {"apgd-ce", "apgd-dlr", "apgd-t", "square"})
    for (const int run : {0, 1}) {
      all.push_back(start(name, run, 11, Purpose::evaluation_start, 0));
      all.push_back(start(name, run, 12, Purpose::evaluation_start, 0));
      all.push_back(start(name, run, 11, Purpose::attack_start, 0));
      all.push_back(start(name, run, 11, Purpose::evaluation_start, 1));
    }
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t k = 0; k < i; ++k) CHECK(all[i] != all[k]);
  CHECK(start("apgd-ce", 0, 11, Purpose::evaluation_start, 0) == all[0]);
}

TEST_CASE("FAB begins at the image itself, and at random in half the ball in further runs", "[attack]") {
  const Case c;
  const BallNorm norm = GENERATE(BallNorm::linf, BallNorm::l2);
  const double eps = c.radius(norm);
  const auto first = [&](int run, std::uint32_t time) {
    NetObjective o(c, {0}, kImage);
    std::vector<std::vector<float>> asked;
    o.record = &asked;
    o.run = run;
    o.time = time;
    perturb(*attacks().at("fab-t")({.norm = norm, .eps = eps, .restarts = 2}), o);
    return distance(norm, asked[1], o.x_of(0));
  };
  CHECK(first(0, 0) == 0);
  CHECK(first(2, 0) == 0);  // another target
  for (const double most : {first(1, 0), first(3, 0), first(0, 1)}) {
    CHECK(most > 0.4 * eps);  // half of eps away, but for the box
    CHECK(most <= 0.5 * eps + 0x1p-24);
  }
  // A start that is given is taken by whoever starts at random.
  for (const auto& [name, call] : {std::pair("apgd-ce", 0), {"fab", 1}}) {
    NetObjective o(c, {0}, kImage);
    std::vector<std::vector<float>> asked;
    const Shared<float> given(kPixels, 0.125F);
    o.record = &asked;
    o.start = given.data();
    perturb(*attacks().at(name)({.norm = norm, .eps = eps}), o);
    std::vector<float> expected = o.x_of(0);
    for (float& v : expected) v = std::min(v + 0.125F, 1.0F);
    CHECK(asked[static_cast<std::size_t>(call)] == expected);
  }
}

TEST_CASE("Targets and losses fit the number of classes", "[attack]") {
  const auto runs = [](const char* name, int classes, int restarts = 1) {
    return attacks().at(name)({.classes = classes, .restarts = restarts})->runs();
  };
  CHECK(runs("apgd-t", 10) == 9);
  CHECK(runs("apgd-t", 200) == 9);
  CHECK(runs("apgd-t", 4) == 3);
  CHECK(runs("fab-t", 3) == 2);
  CHECK(runs("fab-t", 10, 2) == 18);
  CHECK(runs("apgd-ce", 2, 5) == 5);
  CHECK(runs("fab", 10, 5) == 5);
  CHECK(runs("square", 10) == 1);
  CHECK(runs("pgd", 10) == 1);
  CHECK_THROWS_AS(runs("apgd-t", 1), Error);
  const auto notice = [](const char* name, int classes) { return attacks().at(name)({.classes = classes})->notice(); };
  for (const char* name : {"apgd-ce", "fab", "square"}) CHECK(notice(name, 2).empty());
  for (const char* name : {"apgd-t", "fab-t"}) {
    CHECK(notice(name, 10).empty());
    CHECK(contains(notice(name, 9), "9 classes has no 9 wrong ones: apgd-t and fab-t aim at the 8"));
    CHECK(contains(notice(name, 4), "aim at the 3 that there are"));
  }
  CHECK(contains(notice("fab-t", 2), "aim at the 1 that"));
  CHECK(contains(notice("apgd-t", 3), "aim at the 2 that there are; there is no fourth logit"));
  CHECK(contains(notice("apgd-t", 2), "aim at the 1 that there are; there is no third logit"));
  CHECK(notice("apgd-dlr", 3).empty());
  CHECK(contains(notice("apgd-dlr", 2), "no third logit"));
  CHECK(attacks().at("apgd-t")({})->gradient_evaluations() == 909);
  CHECK(attacks().at("apgd-t")({})->gradients_of_run() == 101);  // a training makes one run
  CHECK(attacks().at("fab-t")({})->gradient_evaluations() == 900);
  CHECK(attacks().at("fab")({})->gradient_evaluations() == 900);
  CHECK(attacks().at("square")({})->gradient_evaluations() == 0);
  CHECK(attacks().at("apgd-ce")({.eps = 0.25})->alpha() == 0.5);
  CHECK(attacks().at("fab-t")({.classes = 3, .restarts = 2})->gradient_evaluations() == 400);

  // With two or three of the classes, every attack still runs, and aims twice at each wrong class, the likeliest first.
  const Case c;
  for (const int classes : {2, 3})
    for (const std::string& name : kSearching) {
      INFO(name << " " << classes);
      const auto attack = attacks().at(name)({.eps = c.eps, .classes = classes, .restarts = 2});
      NetObjective o(c, kAll, kImage, classes);
      for (o.run = 0; o.run < attack->runs(); ++o.run) {
        perturb(*attack, o);
        for (std::size_t s = 0; s < kSamples; ++s) {
          for (const float v : o.x_adv_of(s)) REQUIRE((v >= 0 && v <= 1));
          float z[kClasses];
          c.logits(o.x_of(s).data(), z);
          if (name == "apgd-t" || name == "fab-t")
            CHECK(o.targets[s] == kernels::class_of_rank(z, classes, 1 + o.run / 2));
        }
      }
    }
}

TEST_CASE("A searching attack ends when it is done with all images", "[attack]") {
  class Looking final : public Objective {
   public:
    explicit Looking(NetObjective& inner) : Objective(inner), inner_(inner) {}
    void gradient() override { inner_.gradient(); }
    void forward() override { inner_.forward(); }
    [[nodiscard]] int live() override {
      kernel_backend().wait();
      return static_cast<int>(std::count(done, done + n, 0));
    }

   private:
    NetObjective& inner_;
  };
  const Case c;
  const BallNorm norm = GENERATE(BallNorm::linf, BallNorm::l2);
  for (const std::string& name : kSearching) {
    INFO(name << " " << name_of(norm));
    NetObjective whole(c, kAll, kImage), inner(c, kAll, kImage);
    Looking looking(inner);
    const auto attack = attacks().at(name)({.norm = norm, .eps = norm == BallNorm::l2 ? 5.0 : 1.0});
    inner.loss = whole.loss = cross_entropy;
    perturb(*attack, whole);
    // The inner objective computes its own loss.
    const std::map<std::string, SampleLoss*> climbed = {{"apgd-ce", cross_entropy},  {"apgd-dlr", dlr},
                                                        {"apgd-t", targeted_dlr},    {"fab", class_difference},
                                                        {"fab-t", class_difference}, {"square", margin}};
    inner.loss = climbed.at(name);
    attack->perturb(looking);
    kernel_backend().wait();
    for (std::size_t s = 0; s < kSamples; ++s) CHECK(inner.x_adv_of(s) == whole.x_adv_of(s));
    CHECK(inner.calls < whole.calls / 2);
    // The second look comes after four iterations, or ten proposals.
    NetObjective early(c, kAll, kImage);
    early.most_calls = 3;
    perturb(*attack, early);
    const std::map<std::string, int> calls = {{"apgd-ce", 5}, {"apgd-dlr", 5}, {"apgd-t", 6},
                                              {"fab", 41},    {"fab-t", 9},    {"square", 11}};
    CHECK(early.calls == calls.at(name));
  }
}

TEST_CASE("Images that an attack is done with leave its passes, and the others keep their bits", "[attack][long]") {
  constexpr int kSize = 8, kCapacity = 8, kAtOnce = 2;
  const auto backend = test_backend();
  SmallNetwork model(*backend, kSize);
  const DatasetInfo info{.size = kSize, .channels = 3, .classes = kClasses, .class_names = {}};
  Buffers images(*backend, info, kCapacity, {.scratch_images = 4});
  FrozenProgram program(model, kAtOnce);
  /// Computes all images to the end.
  class Whole final : public FrozenView {
   public:
    using FrozenView::FrozenView;
    [[nodiscard]] int live() override { return n; }
  };
  FrozenView packed(images, program);
  Whole whole(images, program);
  float *loss = backend->allocate_floats(kCapacity, "test"), *correct = backend->allocate_floats(kCapacity, "test");
  backend->commit_workspace();
  const std::int64_t pixels = images.layout.elements();
  HostBatch batch = host_batch(std::vector<std::int32_t>(kCapacity, 0), pixels);
  images.load(batch, 0, nullptr);
  packed.prepare(1, Purpose::evaluation_start, 0);
  // Labels are what the network says, but for three.
  each(backend->device(), kernels::groups(kCapacity * pixels),
       kernels::Add<float>{images.clean, nullptr, images.x_adv, kCapacity * pixels});
  packed.forward();
  const auto z = to_host(*backend, packed.logits, kCapacity * kClasses);
  for (int k = 0; k < kCapacity; ++k) {
    const auto row = z.begin() + k * kClasses;
    const auto said = static_cast<std::int32_t>(std::max_element(row, row + kClasses) - row);
    batch.labels[static_cast<std::size_t>(k)] = k == 1 || k == 2 || k == 6 ? (said + 1) % kClasses : said;
  }
  images.load(batch, 0, nullptr);
  for (const char* name : {"apgd-ce", "apgd-dlr", "apgd-t", "fab-t"}) {
    INFO(name);
    const auto attack = attacks().at(name)({.eps = 0.01});
    const auto result = [&](FrozenView& objective) {
      objective.prepare(1, Purpose::evaluation_start, 0);
      CHECK(objective.run == 0);
      objective.run = attack->runs() - 1;
      const std::int64_t before = objective.passes;
      attack->perturb(objective);
      auto x_adv = to_host(*backend, images.x_adv, kCapacity * pixels);
      objective.measure(images.x_adv, loss, correct);
      const auto right = to_host(*backend, correct, kCapacity);
      x_adv.insert(x_adv.end(), right.begin(), right.end());
      return std::pair(x_adv, objective.passes - before);
    };
    const auto [expected, all] = result(whole);
    const auto [ours, some] = result(packed);
    CHECK(ours == expected);
    CHECK(some <= all * 4 / 5);  // three of eight images are done with from the start: three passes for four
    const auto [again, same] = result(packed);
    CHECK(again == expected);
    CHECK(same == some);
  }
  // Gradients, too, which the results of so few steps hardly depend on; a single image that is done stays, a single one
  // that is not is alone.
  const std::vector<float> nothing(static_cast<std::size_t>(kCapacity * pixels));
  for (const std::vector<std::int32_t>& done :
       {std::vector{0, 1, 1, 0, 0, 0, 1, 0}, {0, 0, 0, 0, 0, 0, 1, 0}, {1, 1, 1, 0, 1, 1, 1, 1}}) {
    const auto left = static_cast<int>(std::ranges::count(done, 0));
    const auto gradients = [&](FrozenView& objective) {
      objective.prepare(1, Purpose::evaluation_start, 0);
      backend->copy_to_device(images.x_adv, to_host(*backend, images.clean, kCapacity * pixels).data(),
                              nothing.size() * sizeof(float));
      backend->copy_to_device(images.done, done.data(), done.size() * sizeof(std::int32_t));
      backend->copy_to_device(images.dx, nothing.data(), nothing.size() * sizeof(float));
      CHECK(objective.live() == (&objective == &packed ? left : kCapacity));
      objective.forward();
      CHECK(to_host(*backend, images.dx, kCapacity * pixels) == nothing);  // logits alone were asked for
      objective.gradient();
      return to_host(*backend, images.dx, kCapacity * pixels);
    };
    const std::vector<float> of_all = gradients(whole), of_some = gradients(packed);
    for (int k = 0; k < kCapacity; ++k) {
      const auto begin = static_cast<std::ptrdiff_t>(k * pixels), end = begin + static_cast<std::ptrdiff_t>(pixels);
      INFO("image " << k << ", " << left << " left");
      const bool same = std::equal(of_all.begin() + begin, of_all.begin() + end, of_some.begin() + begin);
      CHECK(same == (done[static_cast<std::size_t>(k)] == 0 || left == kCapacity - 1));
    }
  }
}

TEST_CASE("An evaluation makes all runs of an attack, while an image is right", "[attack]") {
  /// The images of a set with other labels.
  struct Relabelled final : Wrapped {
    using Wrapped::Wrapped;
    [[nodiscard]] int label(std::int64_t k) const override { return labels[static_cast<std::size_t>(k)]; }
    std::vector<std::uint8_t> labels = std::vector<std::uint8_t>(8);
  };
  constexpr int kImages = 8;
  Relabelled set(synthetic_dataset({.classes = kClasses, .size = 8, .test = 8}, "test"));
  const auto backend = test_backend();
  Model model(*backend, networks().at("small_cnn")({.width = 16, .size = 8, .channels = 3, .classes = kClasses}),
              Granularity::tensor);
  model.initialize(1);
  const EvaluationAttacks attacked({.attacks = {"apgd-t"}, .eps = 1e-6});
  CHECK(attacked.notices().empty());
  CHECK(EvaluationAttacks({.attacks = {"fab-t", "square", "apgd-t"}, .eps = 0.1, .classes = 3}).notices().size() == 2);
  CHECK(EvaluationAttacks({.attacks = {"fab-t", "apgd-t", "pgd2"}, .eps = 0.1, .classes = 9}).notices().size() == 2);
  Buffers images(*backend, set.info(), kImages, attacked.needs());
  FrozenProgram program(model, kImages);
  FrozenView objective(images, program);
  Evaluator evaluator(single(), set, nullptr, images, objective);
  backend->commit_workspace();
  (void)evaluator.run(attacked, 1);
  const auto z = to_host(*backend, program.logits(), kImages * kClasses);  // at images that have hardly moved
  for (const bool right : {true, false}) {
    for (int k = 0; k < kImages; ++k) {
      const auto row = z.begin() + k * kClasses;
      const auto said = std::max_element(row, row + kClasses) - row;
      set.labels[static_cast<std::size_t>(k)] = static_cast<std::uint8_t>((said + (right ? 0 : 1)) % kClasses);
    }
    const std::int64_t before = objective.passes;
    const EvaluationResult result = evaluator.run(attacked, 1);
    CHECK(result.clean.correct == std::vector<double>(kImages, right ? 1 : 0));
    CHECK(result.attacked[0].correct == result.clean.correct);
    // Nine runs of a start and 100 steps; or a start, at which all images are done with.
    CHECK(objective.passes - before == kImages * (right ? 9 * 101 : 1));
  }
}

TEST_CASE("A searching attack allocates nothing", "[attack][cpu]") {
  const Case c;
  const BallNorm norm = GENERATE(BallNorm::linf, BallNorm::l2);
  for (const std::string& name : kSearching) {
    INFO(name << " " << name_of(norm));
    NetObjective o(c, kAll, kImage);
    const auto attack = attacks().at(name)({.norm = norm, .eps = c.radius(norm)});
    const int images = name == "square" ? 2 : 4, more = norm == BallNorm::l2 ? 1 : 0;
    CHECK(attack->needs().scratch_images == (name.starts_with("fab") ? 3 : images + more));
    o.loss = cross_entropy;
    CHECK(allocations_in(1, [&] { attack->perturb(o); }) == 0);
  }
}

TEST_CASE("The side of Square's window follows its schedule", "[attack][cpu]") {
  const int iterations[] = {0,    10,   11,   50,   51,   200,  201,  500,  501,  1000,
                            1001, 2000, 2001, 4000, 4001, 6000, 6001, 8000, 8001, 9999};
  const auto sides = [&](int size) {
    std::vector<int> all;
    for (const int k : iterations) all.push_back(square_side(k, size, size));
    return all;
  };
  const auto twice = [](const std::vector<int>& each_side) {
    std::vector<int> all;
    for (const int side : each_side) all.insert(all.end(), 2, side);
    return all;
  };
  CHECK(sides(32) == twice({29, 20, 14, 10, 7, 5, 4, 3, 2, 1}));
  CHECK(sides(224) == twice({200, 142, 100, 71, 50, 35, 25, 18, 13, 9}));
  CHECK(sides(28) == twice({25, 18, 13, 9, 6, 4, 3, 2, 2, 1}));
  CHECK(square_side(0, 40, 10) == 10);  // no higher than the image
  CHECK(square_side(4999, 8, 8) == 1);

  // In L2: the next odd number, and 3 at least.
  std::vector<int> odd;
  for (const int k : iterations) odd.push_back(square_side_in_l2(k, 32, 32));
  CHECK(odd == twice({29, 21, 15, 11, 7, 5, 5, 3, 3, 3}));
  CHECK(square_side_in_l2(0, 40, 10) == 10);
  CHECK(square_side_in_l2(0, 6, 6) == 5);
  CHECK(square_side_in_l2(0, 2, 9) == 2);
}

TEST_CASE("Square's pattern in L2 is that of the public code", "[attack]") {
  for (const int side : {1, 2, 3, 4, 5, 6, 7, 15, 29}) {
    INFO("side " << side);
    const auto n = static_cast<std::size_t>(side);
    // Layer by layer, as square.py, eta and eta_rectangles, add them up.
    std::vector<double> expected(n * n);
    for (const bool lower : {false, true}) {
      const int first = lower ? side / 2 : 0, height = lower ? side - side / 2 : side / 2;
      double squares = 0;
      std::vector<double> pyramid(static_cast<std::size_t>(height) * n);
      for (int k = 0, top = height / 2, left = side / 2; k < std::max(height / 2, side / 2) + 1; ++k, --top, --left)
        for (int y = std::max(top, 0); y < std::min(top + 2 * k + 1, height); ++y)
          for (int x = std::max(left, 0); x < std::min(left + 2 * k + 1, side); ++x)
            pyramid[static_cast<std::size_t>(y * side + x)] += 1.0 / ((k + 1) * (k + 1));
      for (const double v : pyramid) squares += v * v;
      for (std::size_t i = 0; i < pyramid.size(); ++i)
        expected[static_cast<std::size_t>(first) * n + i] = (lower ? -1 : 1) * pyramid[i] / std::sqrt(squares);
    }
    double squares = 0, ours = 0;
    for (const double v : expected) squares += v * v;
    Shared<float> pattern(n * n);
    run(std::int64_t{side} * side, kernels::SquarePattern<float>{side, pattern.data()});
    for (std::size_t i = 0; i < expected.size(); ++i) {
      REQUIRE(std::abs(pattern[i] - expected[i] / std::sqrt(squares)) <= 0x1p-24);
      ours += double(pattern[i]) * double(pattern[i]);
    }
    CHECK(std::abs(ours - 1) <= 1e-6);
  }
}

TEST_CASE("Square's windows reach all places in an image of any shape, but its last row and column", "[attack][cpu]") {
  constexpr int kSide = 5;
  const std::int64_t id = 7;
  const Layout layout{3, 12, 10, 1};
  const kernels::SquareDraws draws{&id, 99, Purpose::evaluation_start};
  std::set<std::pair<int, int>> all, windows, others;
  std::set<bool> transposed;
  for (int place = 0; place < 7 * 5; ++place) all.emplace(place / 5, place % 5);
  for (std::uint32_t k = 0; k < 2000; ++k) {
    const kernels::SquarePair pair = draws.pair(0, k, kSide, layout);
    const kernels::SquareWindow alone = draws.window(0, k, kSide, layout);
    REQUIRE((pair.first.top == alone.top && pair.first.left == alone.left && pair.first.signs == alone.signs));
    windows.emplace(alone.top, alone.left);
    others.emplace(pair.second.top, pair.second.left);
    transposed.insert(pair.transposed);
  }
  CHECK((windows == all && others == all && transposed.size() == 2));
  CHECK(draws.window(0, 0, 12, layout).top == 0);  // a window of the whole height
  CHECK((kernels::below(0x7fffffff, 10) == 4 && kernels::below(0x80000000, 10) == 5));
}

TEST_CASE("Square accepts what lowers the margin, and is done with an image whose margin is 0", "[attack][cpu]") {
  double loss = 0, margin = 9, accepted = 9;
  std::int32_t done = 9;
  for (const double first : {1.0, 0.0, -1.0}) {  // the last one goes on
    loss = first;
    kernels::SquareBegin<double>{&loss, &margin, &done}(0);
    CHECK((margin == -first && done == (first < 0 ? 0 : 1)));
  }
  for (const auto& [proposed, took, left] :
       {std::tuple(1.0, 0, 1.0), {1.5, 0, 1.0}, {0.5, 1, 0.5}, {0.0, 1, 0.0}, {-1.0, 0, 0.0}}) {
    loss = -proposed;
    kernels::SquareJudge<double>{&loss, &margin, &accepted, &done}(0);
    CHECK((accepted == took && margin == left && done == (left > 0 ? 0 : 1)));
  }
}

TEST_CASE("Square starts in L2 with five tiles on a side in the middle, and more where there is room",
          "[attack][cpu]") {
  for (const auto& [size, first, last] :
       {std::array{3, 0, 2}, {9, 2, 8}, {12, 1, 10}, {17, 1, 15}, {19, 2, 16}, {24, 2, 21}}) {
    Problem<double> p({1, size, size, 1}, 1, 2, std::vector<double>(static_cast<std::size_t>(size * size), 0.5));
    p.net = [](const double*, double* z) { z[0] = z[1] = 0; };
    p.loss = margin_of<double>(kernels::Divisor::one, false);
    square(p, {.norm = BallNorm::l2, .eps = 0.25, .iterations = 0});
    const auto tiled = [&](int at) { return at >= first && at <= last; };
    int wrong = 0;
    for (int at = 0; at < size * size; ++at)
      wrong += (p.asked[0][static_cast<std::size_t>(at)] != 0.5) != (tiled(at / size) && tiled(at % size));
    INFO("size " << size);
    CHECK(wrong == 0);
  }
}

TEST_CASE("Square starts with vertical stripes, whose signs are bits of random words, one for each channel and column",
          "[attack]") {
  constexpr int kImages = 3;
  constexpr int kWidth = 48;  // 144 stripes take two groups of random words: the second begins within a row
  const Layout layout{3, 2, kWidth, 1};
  const std::int64_t elements = layout.elements();
  Shared<float> x(static_cast<std::size_t>(kImages * elements), 0.5F), best(x.size()), x_adv(x.size());
  Shared<std::int64_t> ids(kImages);
  std::iota(ids.begin(), ids.end(), 3);
  const kernels::SquareDraws draws{ids.data(), 5, Purpose::evaluation_start};
  run(std::int64_t{kImages} * layout.h * layout.c,
      kernels::SquareStart<float>{draws, layout, x.data(), best.data(), x_adv.data(), 0.25F});
  CHECK(best == x_adv);
  for (int n = 0; n < kImages; ++n)
    for (int c = 0; c < 3; ++c)
      for (int column = 0; column < kWidth; ++column) {
        const auto at = [&](int row, int other) {
          return best[static_cast<std::size_t>(layout.offset(n, c, row, other))];
        };
        const int stripe = c * kWidth + column, bit = stripe % 128;
        const bool up = (draws.stripes(n, stripe / 128).v[bit / 32] >> (bit % 32) & 1U) != 0;
        REQUIRE(at(0, column) == (up ? 0.75F : 0.25F));
        REQUIRE(at(1, column) == at(0, column));
      }
}

TEST_CASE("PGD climbs the loss that its word names", "[attack]") {
  const AttackWord word = read_attack_word("pgd50-margin");
  CHECK((word.name == "pgd" && word.steps == 50 && word.loss == "margin"));
  CHECK(word.text() == "pgd50-margin");
  CHECK(read_attack_word("pgd-cw").text() == "pgd10-cw");
  CHECK(read_attack_word("pgd20").text() == "pgd20");
  const AttackWord again = read_attack_word("pgd50x7-margin");
  CHECK((again.steps == 50 && again.restarts == 7 && again.loss == "margin"));
  CHECK(again.text() == "pgd50x7-margin");
  CHECK(read_attack_word("pgdx2").text() == "pgd10x2");
  CHECK(read_attack_word("pgd1x1").text() == "pgd1");
  CHECK((read_attack_word("apgd-tx3").restarts == 3 && read_attack_word("squarex2").restarts == 2));
  for (const std::string& name : kSearching) CHECK(read_attack_word(name).text() == name);
  const auto refusal = [](const char* text) -> std::string {
    return message_of([&] { (void)read_attack_word(text); });
  };
  CHECK(contains(refusal("fgsm-margin"), "climbs a loss of its own; write 'fgsm'"));
  CHECK(contains(refusal("pgd20-hinge"), "no loss 'hinge'"));
  CHECK(contains(refusal("apgd-ce5"), "takes no number of steps"));
  CHECK(contains(refusal("pgd20x0"), "no number of restarts"));
  for (const char* useless : {"nonex2", "smooth-pgd5x2"}) CHECK(contains(refusal(useless), "does not start at random"));
  CHECK(contains(refusal("fab-u"), "climbs a loss of its own"));
  CHECK(contains(refusal("deep-fool"), "unknown attack"));

  // A step of PGD with the loss's own gradient is what the word's attack makes.
  const Case c;
  const auto result = [&](const char* loss, SampleLoss* climbed) {
    NetObjective o(c, kAll, kImage);
    const Shared<float> start(kSamples * kPixels, 0.0F);
    o.start = start.data();
    o.loss = climbed;
    attacks().at("pgd")({.eps = c.eps, .alpha = c.eps / 4, .steps = 5, .loss = loss})->perturb(o);
    kernel_backend().wait();
    std::vector<float> all;
    for (std::size_t s = 0; s < kSamples; ++s)
      for (const float v : o.x_adv_of(s)) all.push_back(v);
    return all;
  };
  CHECK(result("margin", cross_entropy) == result("", margin));
  CHECK(result("cw", cross_entropy) == result("", cw_margin));
  CHECK(result("margin", cross_entropy) != result("", cross_entropy));
}
