#include "catch.hpp"
#include "device.hpp"
#include "pointwise.hpp"
#include "random_values.hpp"
#include "single.hpp"
#include "train/learner/learner.hpp"

using namespace dat;
using test::to_host;

namespace {

constexpr int kSize = 8, kClasses = 10, kBatch = 8;

/// Logit pairing: half of the mean squared distance between the logits of the attacked and of the clean image
/// (Kannan, Kurakin, Goodfellow, "Adversarial Logit Pairing", 2018): a loss whose passes need each other's logits.
class LogitPairing final : public Loss {
 public:
  [[nodiscard]] std::vector<Images> passes() const override { return {Images::attacked, Images::clean}; }
  [[nodiscard]] Others looks_at() const override { return Others::all; }
  void differentiate(std::size_t k, const std::vector<Logits>& logits, int batch) const override {
    cross_entropy(logits[k], 1.0F);  // for the losses and correctness that are reported
    const std::int64_t count = std::int64_t{logits[k].n} * logits[k].classes;
    const float share = 1.0F / static_cast<float>(batch);
    each(logits[k].device, count, kernels::Scale{logits[k].values, logits[k].gradient, share, false});
    each(logits[k].device, count, kernels::Scale{logits[1 - k].values, logits[k].gradient, -share, true});
  }
};

/// copies: under noise that is nothing beside the images.
[[nodiscard]] ReplicaOptions small_replica(const Loss& loss, int copies) {
  return {.backend = {.device = test::test_device(), .threads = 2, .math = "f32", .deterministic = true},
          .network = "small_cnn",
          .width = 16,
          .images = {.size = kSize, .channels = 3, .classes = kClasses, .class_names = {}},
          .micro_batch = kBatch,
          .needs = loss.needs(),
          .training_batches = {kBatch, kBatch / 2},
          .noise = copies > 1 ? 1e-30 : 0,
          .noise_samples = copies};
}

struct Fixture {
  explicit Fixture(const Loss& loss, int copies = 1, bool unlabelled = false)
      : replica(small_replica(loss, copies)),
        statistics(test::single(), replica.model(),
                   loss.passes().size() == 1 ? std::vector<int>{0} : std::vector<int>{0, 1},
                   unlabelled ? &two_units : nullptr),
        timer(replica.backend()),
        learner(
            replica, loss, kBatch, statistics, 0, timer, [this](int segment) { finished.push_back(segment); },
            unlabelled),
        message(test::single(), replica.backend()),
        active(ActiveSet::all(replica.model().parameters.layers())) {
    message.add(learner);
    message.add(statistics);
    replica.commit();
    replica.model().initialize(1);
    fill(replica.images().clean, 1);
    fill(replica.images().x_adv, 2);
    std::vector<std::int32_t> labels(kBatch);
    std::iota(labels.begin(), labels.end(), 0);
    if (unlabelled) labels.back() = -1;
    replica.backend().copy_to_device(replica.images().labels, labels.data(), labels.size() * sizeof(std::int32_t));
  }
  void fill(float* images, std::uint32_t seed) {
    const auto values = test::random_values(kBatch * replica.images().layout.elements(), seed, 0, 1);
    replica.backend().copy_to_device(images, values.data(), values.size() * sizeof(float));
  }
  /// The gradient of the batch, in micro-batches of this size, which may be units of work.
  std::vector<float> gradient(int micro_batch, bool units = false) {
    Buffers& images = replica.images();
    for (int first = 0; first < kBatch; first += micro_batch) {
      const std::int64_t at = first * images.layout.elements();
      Batch batch = images.batch();
      batch.n = micro_batch;
      batch.labels += first;
      batch.sample_ids += first;
      batch.x_adv += at;
      batch.clean += at;
      batch.begins_at = first;
      batch.key.unit = units ? first / micro_batch : 0;
      batch.in_step = kBatch;
      learner.train(batch, active, replica.model().parameters.gradients);
    }
    message.sum();
    const Parameters& p = replica.model().parameters;
    return to_host(replica.backend(), p.gradients, p.size);
  }
  /// Half of the mean squared distance between the logits, in training mode, with weights moved by t along `direction`.
  double pairing_loss(const std::vector<float>& direction, double t) {
    Model& model = replica.model();
    Parameters& p = model.parameters;
    const std::vector<float> before = to_host(replica.backend(), p.values, p.size);
    std::vector<float> moved = before;
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += static_cast<float>(t) * direction[i];
    const auto set = [&](const std::vector<float>& values) {
      replica.backend().copy_to_device(p.values, values.data(), values.size() * sizeof(float));
      ++p.version;
    };
    const auto logits = [&](const float* x) {
      replica.training(kBatch).forward(x);
      return to_host(replica.backend(), replica.training(kBatch).logits(), kBatch * kClasses);
    };
    set(moved);
    const std::vector<float> a = logits(replica.images().x_adv), c = logits(replica.images().clean);
    set(before);
    double loss = 0;
    for (std::size_t i = 0; i < a.size(); ++i) loss += 0.5 * (double(a[i]) - c[i]) * (double(a[i]) - c[i]) / kBatch;
    return loss;
  }

  const SummationTree two_units{kBatch / 4, 1};
  Replica replica;
  BatchStatistics statistics;
  std::vector<int> finished;
  PhaseTimer timer;
  Learner learner;
  StepMessage message;
  ActiveSet active;
};

}  // namespace

TEST_CASE("a joint loss gives both passes the logits of both", "[trainer]") {
  const LogitPairing loss;
  Fixture f(loss);
  CHECK(f.statistics.count() == 2 * 2 * f.replica.model().graph.statistics);  // means and variances of both
  const std::vector<float> gradient = f.gradient(kBatch);
  const double square = std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0);
  REQUIRE(square > 0);
  // Every segment of the gradient is announced once, in the last pass, the last layer first.
  std::vector<int> announced(f.replica.model().parameters.segments.size());
  std::iota(announced.rbegin(), announced.rend(), 0);
  CHECK(f.finished == announced);
  // The statistics of the attacked images come first.
  const std::int64_t count = f.statistics.count() / 2;
  std::vector<float> expected;
  for (const float* const images : {f.replica.images().x_adv, f.replica.images().clean}) {
    f.replica.training(kBatch).forward(images);
    const std::vector<float> one = to_host(f.replica.backend(), f.replica.training(kBatch).statistics(), count);
    expected.insert(expected.end(), one.begin(), one.end());
  }
  CHECK(to_host(f.replica.backend(), f.statistics.values(), 2 * count) == expected);
  CHECK(BatchStatistics(test::single(), f.replica.model(), {0}, nullptr, true).places() ==
        0);  // a rank's own are not sent
  // Central difference along the gradient: the derivative is its squared norm. A change of the loss by 1 % is far above
  // the 1e-6 of f32 logits, and its curvature and the ReLUs that turn cost some percent.
  const double here = f.pairing_loss(gradient, 0), t = 0.005 * here / square;
  const double slope = (f.pairing_loss(gradient, t) - f.pairing_loss(gradient, -t)) / (2 * t);
  CHECK(slope == Approx(square).epsilon(0.03));

  // Equal images have equal logits: nothing is left to learn.
  f.fill(f.replica.images().x_adv, 1);
  for (const float g : f.gradient(kBatch)) REQUIRE(g == 0);
}

TEST_CASE("copies that are all alike have the gradient, losses and accuracies of one", "[trainer]") {
  const std::string name = GENERATE("cross_entropy", "trades");
  const auto loss = losses().at(name)({.lambda = 0.7, .beta = 6});
  Fixture one(*loss), several(*loss, GENERATE(2, 3));
  const std::vector<float> wanted = one.gradient(kBatch), found = several.gradient(kBatch);
  INFO(name);
  CHECK(test::relative_l2(found, wanted) < 1e-3);
  for (const Loss::Images images : {Loss::Images::attacked, Loss::Images::clean}) {
    CHECK(several.learner.of(images).loss == Approx(one.learner.of(images).loss).epsilon(1e-4));
    CHECK(several.learner.of(images).accuracy == one.learner.of(images).accuracy);
  }
}

TEST_CASE("a learner takes memory for logits that passes look at, and for logits and labels of copies", "[trainer]") {
  const auto [name, copies, logits] = GENERATE(table<std::string, int, int>(
      {{"cross_entropy", 1, 0}, {"cross_entropy", 3, 0}, {"mart", 1, 2}, {"trades", 3, 3}, {"nuat", 1, 2}}));
  const auto loss = losses().at(name)({.lambda = 0, .beta = 6});
  Fixture f(*loss, copies);
  Backend& backend = f.replica.backend();
  const std::int64_t most = std::int64_t{f.replica.images().capacity} * copies;
  std::int64_t expected = 8 * (std::ssize(loss->passes()) * kBatch * copies + loss->scratch(kClasses)) +
                          4 * (logits * most * kClasses + (copies > 1 ? most : 0));
  const std::size_t before = backend.allocations().size();
  const Learner other(f.replica, *loss, kBatch, f.statistics, 0, f.timer, [](int) {});
  const std::vector<Backend::Allocation> all = backend.allocations();
  for (const Backend::Allocation& one : std::span(all).subspan(before))
    if (one.purpose != "results") expected -= static_cast<std::int64_t>(one.bytes);
  CHECK(expected == 0);
}

TEST_CASE("each unit of work says the images, losses and right answers of its own", "[trainer]") {
  const int copies = GENERATE(1, 3);
  const auto loss = losses().at("cross_entropy")({.lambda = 0.7});
  Fixture f(*loss, copies, true);
  REQUIRE(f.learner.places() == 6);
  CHECK(f.statistics.count() == 2 * 2 * 2 * f.replica.model().graph.statistics);  // of both units and passes
  (void)f.gradient(4, true);
  const Learner::Losses there = f.learner.losses();
  REQUIRE((there.passes == 2 && there.stride == kBatch * copies && there.images == kBatch * copies));
  // Losses of both passes, then whether the answers are right.
  const std::vector<float> all = to_host(f.replica.backend(), there.values, 4 * there.stride);
  const auto of = [&](int number, int begin, int end) {
    return std::vector<float>(all.begin() + number * there.stride + begin * copies,
                              all.begin() + number * there.stride + end * copies);
  };
  std::vector<double> sums(6);
  for (const int unit : {0, 1}) {
    std::vector<double> found(6), expected{4};
    f.learner.write(found.data(), unit);
    for (const int number : {0, 1, 2, 3}) {
      const std::vector<float> part = of(number, 4 * unit, 4 * unit + 4);
      expected.push_back(number < 2 ? std::accumulate(part.begin(), part.end(), 0.0) / copies
                                    : static_cast<double>(std::ranges::count(part, 1.0F)) / copies);
    }
    expected.push_back(unit == 0 ? 4 : 3);  // the last label is unknown
    CHECK(found == expected);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += found[i];
  }
  f.learner.read(sums.data());
  CHECK(f.learner.images() == kBatch);
  for (const Loss::Images images : {Loss::Images::attacked, Loss::Images::clean}) {
    const std::size_t k = images == Loss::Images::attacked ? 1 : 2;
    CHECK(f.learner.of(images).loss == sums[k] / kBatch);
    CHECK(f.learner.of(images).accuracy == sums[k + 2] / (kBatch - 1));
  }
  sums[0] = std::nextafter(sums[0], 0.0);  // as an estimate of false ranks' numbers may come out
  f.learner.read(sums.data());
  CHECK(f.learner.images() == kBatch);
  double total = 0;
  for (const int number : {0, 1})
    for (const float one : of(number, 2, 5)) total += one;
  CHECK(f.learner.loss_of(3, 2) == total / copies);
}

TEST_CASE("without a weight the clean images are not looked at, and their loss is not a number", "[trainer]") {
  const auto loss = losses().at("cross_entropy")({.lambda = 0});
  Fixture f(*loss);
  CHECK(f.learner.places() == 3);
  (void)f.gradient(kBatch);
  CHECK(std::isfinite(f.learner.of(Loss::Images::attacked).loss));
  CHECK(std::isnan(f.learner.of(Loss::Images::clean).loss));
  CHECK(f.learner.own_finite());
  CHECK(f.learner.images() == kBatch);
}

TEST_CASE("the step's message sums every part's numbers in its own places, and waits only for what was fetched",
          "[trainer]") {
  struct Part final : MessagePart {
    explicit Part(std::vector<double> numbers) : mine(std::move(numbers)) {}
    [[nodiscard]] std::size_t places() const override { return mine.size(); }
    void fetch(Backend::Ticket& ticket) override {
      ++fetched;
      if (device != nullptr) ticket = told = backend->fetch(host, device, sizeof(float));
    }
    void write(double* to, int) override {
      std::copy(mine.begin(), mine.end(), to);
      if (device != nullptr) *to += *host;
    }
    void read(const double* from) override { sums.assign(from, from + mine.size()); }
    std::vector<double> mine, sums;
    int fetched = 0;
    Backend::Ticket told = 0;
    Backend* backend = nullptr;
    float *host = nullptr, *device = nullptr;  // one number
  };
  const auto backend = test::test_backend();
  StepMessage message(test::single(), *backend);
  Part a({1, 2, 3}), b({4});
  MessagePart none;
  Vote vote;
  for (MessagePart* part : std::initializer_list<MessagePart*>{&a, &none, &vote, &b}) message.add(*part);
  CHECK(message.numbers() == 5);
  b.backend = backend.get();
  b.host = static_cast<float*>(backend->allocate_pinned(sizeof(float), "test"));
  b.device = backend->allocate_floats(1, "test");
  int round = 0;
  for (const auto& [wish, bad] : std::initializer_list<std::pair<bool, bool>>{
           {false, false}, {true, false}, {false, true}, {true, true}, {false, false}}) {
    vote.wish = wish;
    vote.bad = bad;
    const auto there = static_cast<float>(++round);
    backend->copy_to_device(b.device, &there, sizeof there);
    if (const Backend::Ticket last = wish ? message.fetch_ahead() : b.told; wish) CHECK(last == b.told);
    message.sum();
    CHECK(a.sums == a.mine);
    CHECK(b.sums == std::vector<double>{4.0 + round});
    CHECK((a.fetched == round && b.fetched == round));
    CHECK(vote.stop_agreed() == wish);
    CHECK(vote.bad_agreed() == bad);
  }
  CHECK(message.bytes_sent() == 0);  // of one rank
}
