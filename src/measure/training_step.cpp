#include "measure/training_step.hpp"

#include <cmath>
#include <numeric>

#include "dat/error.hpp"
#include "dat/provenance.hpp"
#include "dat/random.hpp"
#include "measure/repeat.hpp"

namespace dat {

namespace {

constexpr int kChannels = 3, kClasses = 10;
constexpr double kEps = 8.0 / 255, kAlpha = 2.0 / 255;
constexpr double kDecayWithFgsm = 5e-4;

/// Square images in ten classes, as CIFAR's, whose pixels are drawn: pixel k of the set in NCHW order is the upper byte
/// of a word.
class DrawnImages final : public Dataset {
 public:
  DrawnImages(std::int64_t count, int size)
      : info_{.size = size, .channels = kChannels, .classes = kClasses, .class_names = numbered_classes(kClasses)},
        labels_(static_cast<std::size_t>(count)) {
    const std::size_t plane = plane_of_image();
    for (std::size_t k = 0; k < labels_.size() * kChannels * plane; ++k) {
      const Philox4 words = random_words(1, Purpose::synthetic_data, 0, k, 0);
      if (k < labels_.size()) labels_[k] = static_cast<std::uint8_t>(words.v[1] % kClasses);
      pixels_.push_back(static_cast<std::uint8_t>(words.v[0] >> 24));
    }
  }
  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(labels_); }
  [[nodiscard]] int label(std::int64_t index) const override { return labels_[static_cast<std::size_t>(index)]; }
  void read(std::int64_t index, std::uint8_t* pixels) const override {
    const std::size_t plane = plane_of_image();
    const std::uint8_t* image = pixels_.data() + static_cast<std::size_t>(index) * kChannels * plane;
    for (std::size_t c = 0; c < kChannels; ++c)
      for (std::size_t i = 0; i < plane; ++i) pixels[i * kChannels + c] = image[c * plane + i];
  }

 private:
  [[nodiscard]] std::size_t plane_of_image() const { return info_.image_bytes() / kChannels; }
  DatasetInfo info_;
  std::vector<std::uint8_t> labels_, pixels_;  ///< [n]; [n, c, h, w]
};

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

[[nodiscard]] TrainOptions training_of(const StepOptions& options) {
  TrainOptions all;
  all.augment = "none";
  all.network = options.network;
  all.width = options.width;
  all.attack = options.attack;
  all.attack_bn = options.attack_bn;
  all.attack_steps = options.attack_steps;
  all.eps = kEps;
  if (options.attack == "pgd") all.alpha = kAlpha;
  if (options.attack == "fgsm") all.start_box = "on";
  all.attack_precision = options.attack_precision;
  all.precision = options.precision;
  all.recompute = options.recompute;
  all.attack_batch = options.attack_batch;
  all.lambda = options.lambda;
  all.optimizer = "sgd";
  all.weight_decay = options.attack == "fgsm" ? kDecayWithFgsm : 0;
  all.milestones = {};
  all.warmup_epochs = 0;
  all.epochs = 1 << 30;
  all.batch = options.batch;
  all.micro_batch = options.micro_batch;
  all.selector = "all";
  all.overlap = options.overlap;
  all.bucket = options.bucket;
  all.device = options.device;
  all.threads = options.threads;
  all.math = options.math;
  all.planning_seconds = options.planning_seconds;
  return all;
}

}  // namespace

TrainingStep::TrainingStep(Communicator& ranks, const StepOptions& options)
    : options_(checked(options)),
      trainer_(ranks, training_of(options_),
               {std::make_unique<DrawnImages>(std::int64_t{options.batch} * ranks.size(), options.size),
                std::make_unique<DrawnImages>(1, options.size), nullptr}),
      none_(attacks().at("none")({})) {
  Replica& replica = trainer_.replica();
  Buffers& images = replica.images();
  if (const int passes = trainer_.method().attack_passes; passes > 0)
    statistics_ = std::make_unique<BatchStatistics>(ranks, replica.model(), std::vector<int>{passes}, nullptr, true);
  attacker_ = std::make_unique<Attacker>(images, replica, trainer_.method().attacks, statistics_.get());
  zeros_ = backend().allocate_floats(images.capacity * images.layout.elements(), "images");
  const Dataset& set = *trainer_.splits().train;
  const std::size_t bytes = set.info().image_bytes();
  batch_.key.seed = 1;
  batch_.count = images.capacity;
  batch_.make_room(batch_.count, static_cast<std::int64_t>(bytes));
  for (std::size_t i = 0; i < batch_.ids.size(); ++i) {
    batch_.ids[i] = static_cast<std::int64_t>(i);
    set.read(batch_.ids[i], batch_.pixels.data() + i * bytes);
    batch_.labels[i] = set.label(batch_.ids[i]);
  }
  trainer_.start();
}

void TrainingStep::run() {
  static_cast<void>(trainer_.timer().take());  // waits
  const double begin = now_ms();
  const Backend::Ticket first = backend().stamp();
  static_cast<void>(trainer_.step(false));
  const Backend::Ticket last = backend().stamp();
  backend().wait();
  wall_ms = now_ms() - begin;
  if (on_gpu() && last - first < Backend::kStamps && backend().passed(last))
    gpu_ms = 1e3 * backend().seconds(first, last);
  const std::array<double, kPhases> seconds = trainer_.timer().take();
  const auto ms = [&](std::initializer_list<Phase> phases) {
    double sum = 0;
    for (const Phase phase : phases) sum += 1e3 * seconds[static_cast<std::size_t>(phase)];
    return sum;
  };
  attack_ms = ms({Phase::data, Phase::attack});
  train_ms = ms({Phase::forward, Phase::backward});
  reduce_ms = ms({Phase::encode, Phase::exposed, Phase::decode});
  update_ms = ms({Phase::select, Phase::update});
}

double TrainingStep::flow_ms(int steps) {
  backend().wait();
  const double begin = now_ms();
  for (int k = 0; k < steps; ++k) static_cast<void>(trainer_.step(false));
  backend().wait();
  return (now_ms() - begin) / steps;
}

void TrainingStep::attack_iteration() {
  trainer_.replica().attacked().gradient_step(static_cast<float>(kAlpha), static_cast<float>(kEps));
  backend().wait();
}

TrainingStep::Losses TrainingStep::check() {
  const double clean = mean_loss(look(*none_, nullptr));
  const double attacked = mean_loss(look(*trainer_.method().attacks.last().attack, nullptr));
  const double trained = trainer_.step(false).loss_adv;
  require(std::isfinite(clean) && (attacked > clean || options_.attack == "none"), ExitCode::numerical,
          "the training step is wrong: clean loss ", clean, ", attacked ", attacked, ", in training ", trained);
  return {clean, attacked, trained};
}

TrainingStep::Results TrainingStep::results() {
  require(options_.micro_batch == options_.batch, ExitCode::usage, "--check needs the whole batch at once");
  Replica& replica = trainer_.replica();
  const auto alone = Communicator::single();
  BatchStatistics statistics(*alone, replica.model(), {0}, nullptr, true);
  const Batch& batch = attacker_->load(batch_, 0);
  for (int pass = 0; pass < 3; ++pass) {
    replica.training(batch.n).forward(batch.clean);
    statistics.add(replica.training(batch.n), 0, {});
    statistics.update_model();
  }
  const Objective& objective = look(*none_, nullptr);
  Results results;
  results.logits.resize(static_cast<std::size_t>(batch.n * kClasses));
  backend().copy_to_host(results.logits.data(), objective.logits, results.logits.size() * sizeof(float));
  std::vector<float> dx(static_cast<std::size_t>(batch.n * batch.layout.elements()));
  backend().copy_to_host(dx.data(), objective.dx, dx.size() * sizeof(float));
  for (int n = 0; n < batch.n; ++n)
    for (int c = 0; c < kChannels; ++c)
      for (int y = 0; y < options_.size; ++y)
        for (int x = 0; x < options_.size; ++x)
          results.input_gradient.push_back(dx[static_cast<std::size_t>(batch.layout.offset(n, c, y, x))] /
                                           objective.scale);
  results.clean_loss = mean_loss(objective);
  results.attacked_loss = mean_loss(look(*trainer_.method().attacks.last().attack, zeros_));
  return results;
}

nlohmann::ordered_json TrainingStep::about() {
  std::size_t bytes = 0;
  for (const Backend::Allocation& allocation : backend().allocations()) bytes += allocation.bytes;
  return {{"network", options_.network},
          {"width", options_.width},
          {"size", options_.size},
          {"batch", options_.batch},
          {"micro_batch", options_.micro_batch},
          {"attack", options_.attack},
          {"attack_bn", statistics_ ? "train" : "eval"},
          {"steps", trainer_.method().attacks.most_gradients()},
          {"lambda", options_.lambda},
          {"device", backend().description()},
          {"math", !on_gpu() && options_.math == "tf32" ? "f32" : options_.math},
          {"attack_precision", options_.attack_precision},
          {"precision", options_.precision},
          {"threads", options_.threads},
          {"device_bytes", bytes},
          {"commit", commit()}};
}

const Objective& TrainingStep::look(const Attack& attack, const float* start) {
  attacker_->load(batch_, 0);
  Objective& objective = attacker_->begin();
  objective.start = start;
  attacker_->finish(attack);
  objective.gradient();
  return objective;
}

double TrainingStep::mean_loss(const Objective& objective) {
  std::vector<float> losses(static_cast<std::size_t>(objective.n));
  backend().copy_to_host(losses.data(), objective.losses, losses.size() * sizeof(float));
  return std::accumulate(losses.begin(), losses.end(), 0.0) / objective.n;
}

}  // namespace dat
