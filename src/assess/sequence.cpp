#include "assess/sequence.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>

#include "assess/evaluation.hpp"
#include "dat/error.hpp"

namespace dat {

namespace {

/// Distance from the ball at which rounding may leave an image. Rounding of x_adv's pixels, 2^-25 each time, may add up
/// in L2; rounding in L2's own arithmetic is a part of eps.
[[nodiscard]] double slack(BallNorm norm, double eps, std::size_t pixels) {
  constexpr double kSlack = 1e-6;
  return norm == BallNorm::linf ? kSlack
                                : kSlack * std::max(1.0, eps) + 0x1p-23 * std::sqrt(static_cast<double>(pixels));
}

using Clock = std::chrono::steady_clock;

/// State of each image: the number of stages that it has passed, and its outcome.
class Ledger {
 public:
  Ledger(const Dataset& dataset, const SequenceAttacks& attacks, int classes)
      : dataset_(dataset), attacks_(attacks), classes_(classes), stages_(static_cast<std::size_t>(dataset.size())) {
    result_.images.resize(stages_.size());
    for (const SequenceAttacks::Member& member : attacks.members()) result_.rows.push_back({member.name, member.runs});
  }

  /// Error(data): an entry that cannot be.
  void enter(const JournalEntry& entry) {
    require(entry.stage >= 0 && entry.stage < attacks_.stages(), ExitCode::data, "the journal has run ", entry.stage,
            ", which the sequence does not have; remove the journal to begin anew");
    std::size_t attack = attacks_.members().size() - 1;
    while (attacks_.members()[attack].first_stage > entry.stage) --attack;
    const int run = entry.stage - attacks_.members()[attack].first_stage;
    SequenceResult::Row& row = result_.rows[attack];
    row.seconds += entry.seconds;
    for (std::size_t i = 0; i < entry.images.size(); ++i) {
      const std::int64_t id = entry.images[i];
      const auto at = static_cast<std::size_t>(id);
      require(id >= 0 && id < dataset_.size() && result_.images[at].robust() && stages_[at] == entry.stage,
              ExitCode::data, "the journal has a result for image ", id,
              " that cannot be; remove the journal to begin anew");
      const ImageOutcome& outcome = entry.outcomes[i];
      require(outcome.prediction >= 0 && outcome.prediction < classes_, ExitCode::data, "the journal has image ", id,
              " in class ", outcome.prediction, ", which there is not; remove the journal to begin anew");
      ++stages_[at];
      const bool broken = outcome.prediction != dataset_.label(id);
      row.images += run == 0;
      row.broken += broken;
      row.zero_gradients += (attack != 0 || !broken) && (outcome.flags & ImageOutcome::kZeroGradient) != 0;
      SequenceResult::Image& image = result_.images[at];
      image.prediction = outcome.prediction;  // the label, where it is not broken
      if (!broken) continue;
      image.broken_by = static_cast<int>(attack);
      if (attack == 0) continue;
      image.run = run + 1;
      image.distance = double{outcome.distance};
    }
  }
  /// The images that this stage is to be run on, increasing.
  [[nodiscard]] std::vector<std::int64_t> open(int stage) const {
    std::vector<std::int64_t> all;
    for (std::size_t at = 0; at < stages_.size(); ++at)
      if (result_.images[at].robust() && stages_[at] == stage) all.push_back(static_cast<std::int64_t>(at));
    return all;
  }
  /// Number of images on which this stage has been run.
  [[nodiscard]] std::int64_t past(int stage) const {
    return std::ranges::count_if(stages_, [&](int behind) { return behind > stage; });
  }
  [[nodiscard]] std::int64_t right() const {
    return std::ranges::count_if(result_.images, [](const auto& image) { return image.robust(); });
  }
  [[nodiscard]] const SequenceResult& result() const { return result_; }
  /// The result, with accuracies.
  [[nodiscard]] SequenceResult finish() {
    std::int64_t left = dataset_.size();
    for (SequenceResult::Row& row : result_.rows) {
      left -= row.broken;
      row.accuracy = static_cast<double>(left) / static_cast<double>(dataset_.size());
    }
    return result_;
  }

 private:
  const Dataset& dataset_;
  const SequenceAttacks& attacks_;
  const int classes_;        ///< of the network
  std::vector<int> stages_;  ///< stages that each image has passed
  SequenceResult result_;
};

}  // namespace

int sequence_micro_batch(bool gpu, const Graph& network) {
  // All results of convolutions in f32, of which a frozen program holds a tenth to a quarter at a time.
  constexpr double kOnCpu = 4.0 * (1 << 30), kOnGpu = 12.0 * (1 << 30);
  double bytes = 0;
  for (const Node& node : network.nodes)
    if (node.op == Op::convolution) bytes += sizeof(float) * double(node.c) * node.h * node.w;
  int images = gpu ? 256 : 64;
  while (images > 1 && images * bytes > (gpu ? kOnGpu : kOnCpu)) images /= 2;
  return images;
}

SequenceAttacks::SequenceAttacks(const AttackSequence& sequence, BallNorm norm, double eps, double alpha, int classes)
    : PlannedAttacks(norm, eps) {
  const auto add = [&](const AttackWord& word, int restarts, const std::string& name) {
    AttackOptions options = evaluation_options(word, norm, eps, alpha, classes);
    const auto& make = attacks().at(word.name);
    const int once = make(options)->runs();
    options.restarts = restarts;
    auto attack = make(options);
    // An attack that knows nothing of restarts is repeated.
    const int runs = attack->runs() * (attack->runs() == once ? restarts : 1);
    members_.push_back({name, std::move(attack), runs, members_.empty() ? 0 : stages()});
  };
  add({"none"}, 1, "clean");
  for (const AttackSequence::Member& member : sequence.members)
    add(read_attack_word(member.attack), member.restarts, member.attack);
}

std::vector<std::string> network_warnings(const std::vector<std::vector<float>>& passes,
                                          const std::vector<std::int32_t>& labels) {
  const std::size_t images = labels.size(), classes = passes.front().size() / images;
  const auto row = [&](std::size_t pass, std::size_t image) {
    const auto begin = passes[pass].begin() + static_cast<std::ptrdiff_t>(image * classes);
    return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(classes));
  };
  constexpr double kDifference = 1e-4, kProbability = 1e-5;
  bool random = false, probabilities = true;
  std::set<std::int64_t> right;
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    std::int64_t count = 0;
    for (std::size_t image = 0; image < images; ++image) {
      const std::vector<double> logits = row(pass, image);
      count += std::ranges::max_element(logits) - logits.begin() == labels[image];
      const auto unit = [](const std::vector<double>& values) {
        const double norm = std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
        std::vector<double> scaled;
        for (const double value : values) scaled.push_back(value / (norm + 1e-10));
        return scaled;
      };
      const std::vector<double> mine = unit(logits);
      for (std::size_t other = 0; other < pass; ++other) {
        const std::vector<double> theirs = unit(row(other, image));
        double square = 0;
        for (std::size_t c = 0; c < classes; ++c) square += (mine[c] - theirs[c]) * (mine[c] - theirs[c]);
        random = random || std::sqrt(square) > kDifference;
      }
      if (pass != 0) continue;
      const auto [low, high] = std::ranges::minmax_element(logits);
      const double sum = std::accumulate(logits.begin(), logits.end(), 0.0);
      probabilities =
          probabilities && *low > -kProbability && *high < 1 + kProbability && std::abs(sum - 1) < kProbability;
    }
    right.insert(count);
  }
  std::vector<std::string> all;
  if (random || right.size() > 1)
    all.push_back(
        "forward passes over the same images differ: the network is random, and its robust accuracy is not what this "
        "evaluation says");
  if (probabilities)
    all.push_back(
        "the network puts out probabilities instead of logits: gradients vanish, and its robust accuracy is less than "
        "this evaluation says");
  return all;
}

ImageOutcome outcome_of(std::span<const float> logits, std::span<const float> clean, std::span<const float> attacked,
                        BallNorm norm, double eps) {
  ImageOutcome outcome;
  outcome.prediction = static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  if (!std::ranges::all_of(logits, [](float value) { return std::isfinite(value); }))
    outcome.flags |= ImageOutcome::kNotFinite;
  bool inside = true;
  double largest = 0, squares = 0;
  for (std::size_t i = 0; i < clean.size(); ++i) {
    const double distance = std::abs(double{attacked[i]} - double{clean[i]});
    inside = inside && attacked[i] >= 0 && attacked[i] <= 1;  // false for NaN
    largest = std::max(largest, distance);
    squares += distance * distance;
  }
  const double distance = norm == BallNorm::l2 ? std::sqrt(squares) : largest;
  outcome.distance = static_cast<float>(distance);
  if (!inside || distance > eps + slack(norm, eps, clean.size())) outcome.flags |= ImageOutcome::kOutside;
  return outcome;
}

SequenceEvaluator::SequenceEvaluator(Communicator& world, const Dataset& dataset, Buffers& images,
                                     FrozenView& objective)
    : world_(world), dataset_(dataset), images_(images), objective_(objective) {
  batch_.make_room(images.capacity, images.layout.elements());
  outcomes_.resize(static_cast<std::size_t>(images.capacity));
  confidences_.resize(outcomes_.size());
}

SequenceResult SequenceEvaluator::run(const SequenceAttacks& attacks, const Options& options) {
  const CallLabel label("flags of a sequence of attacks");
  Ledger ledger(dataset_, attacks, images_.classes);
  for (const JournalEntry& entry : options.found) ledger.enter(entry);
  for (std::size_t m = 0; m < attacks.members().size(); ++m) {
    const Member& member = attacks.members()[m];
    for (int run = 0; run < member.runs; ++run) {
      const int stage = member.first_stage + run;
      const std::vector<std::int64_t> open = ledger.open(stage);
      const std::int64_t before = ledger.past(stage), all = before + std::ssize(open);  // before: in an earlier start
      for (std::size_t first = 0; first < open.size();) {
        const JournalEntry entry =
            attack_group(member, run, attacks.norm(), attacks.eps(), options, std::span(open).subspan(first));
        ledger.enter(entry);
        first += entry.images.size();
        if (world_.root() && options.entry) options.entry(entry);
        if (world_.root() && options.progress)
          options.progress(
              {member.name, run + 1, member.runs, before + static_cast<std::int64_t>(first), all, ledger.right(),
               ledger.result().rows[m].seconds,
               (run + static_cast<double>(before + static_cast<std::int64_t>(first)) / static_cast<double>(all)) /
                   member.runs});
      }
    }
  }
  return ledger.finish();
}

JournalEntry SequenceEvaluator::attack_group(const Member& member, int run, BallNorm norm, double eps,
                                             const Options& options, std::span<const std::int64_t> open) {
  const auto begin = Clock::now();
  const std::int64_t all = std::ssize(open), ranks = world_.size();
  const std::int64_t share = std::min<std::int64_t>(images_.capacity, (all + ranks - 1) / ranks);
  const std::int64_t count = std::min(all, share * ranks);
  const std::int64_t from = std::min(count, share * world_.rank()), mine = std::min(share, count - from);
  if (mine > 0) {
    load(open.data() + from, static_cast<int>(mine));
    const int own = member.attack->runs();
    objective_.prepare(options.seed, Purpose::evaluation_start, static_cast<std::uint32_t>(run / own));
    objective_.run = run % own;
    member.attack->perturb(objective_);
    SampleLoss* const climbed = objective_.loss;
    confirm(norm, eps);
    // Gradients of the cross-entropy are looked at once, before all attacks.
    const bool other_loss = run == 0 && member.name.starts_with("apgd") && climbed != cross_entropy;
    if (member.first_stage == 0 || other_loss) flag_zero_gradients(climbed);
  }
  JournalEntry entry{.stage = member.first_stage + run,
                     .images = {open.begin(), open.begin() + count},
                     .outcomes = std::vector<ImageOutcome>(static_cast<std::size_t>(share * ranks))};
  world_.all_gather(outcomes_.data(), entry.outcomes.data(), static_cast<std::size_t>(share) * sizeof(ImageOutcome));
  entry.outcomes.resize(static_cast<std::size_t>(count));
  entry.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  for (std::size_t i = 0; i < entry.images.size(); ++i) {
    const ImageOutcome& outcome = entry.outcomes[i];
    require((outcome.flags & ImageOutcome::kNotFinite) == 0, ExitCode::numerical, "the logits of image ",
            entry.images[i], " (", member.name, ") are not finite: an evaluation of this network means nothing");
    require((outcome.flags & ImageOutcome::kOutside) == 0, ExitCode::integrity, member.name, " has left image ",
            entry.images[i], " at a distance of ", outcome.distance, ", outside of the ball of ", name_of(norm), " ",
            eps, " or of [0, 1]: this is an error of the program; report it");
  }
  if (options.images_wanted && member.first_stage > 0) {
    std::vector<BrokenImage> broken;
    for (std::size_t k = 0; k < static_cast<std::size_t>(mine); ++k)
      if (outcomes_[k].prediction != batch_.labels[k])
        broken.push_back({batch_.ids[k], static_cast<int>(k), confidences_[k]});
    hand_over_broken(world_, images_.layout, x_adv_, broken, static_cast<int>(share), options.broken);
  }
  return entry;
}

std::vector<std::vector<float>> SequenceEvaluator::logits_of_first(std::vector<std::int32_t>& labels) {
  constexpr int kPasses = 5;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min<std::int64_t>(images_.capacity, dataset_.size())));
  std::iota(ids.begin(), ids.end(), 0);
  load(ids.data(), static_cast<int>(ids.size()));
  labels.assign(batch_.labels.begin(), batch_.labels.begin() + images_.batch().n);
  objective_.prepare();
  attacks().at("none")({})->perturb(objective_);
  std::vector<std::vector<float>> all;
  for (int pass = 0; pass < kPasses; ++pass) {
    objective_.forward();
    all.push_back(fetch(objective_.logits, std::int64_t{images_.batch().n} * images_.classes));
  }
  return all;
}

void SequenceEvaluator::load(const std::int64_t* ids, int count) {
  batch_.count = count;
  for (std::size_t k = 0; k < static_cast<std::size_t>(count); ++k) {
    batch_.labels[k] = dataset_.label(ids[k]);
    batch_.ids[k] = ids[k];
  }
  read_images(dataset_, batch_, images_.backend.host_threads);
  images_.load(batch_, 0, nullptr);
}

void SequenceEvaluator::confirm(BallNorm norm, double eps) {
  const std::int64_t pixels = images_.layout.elements(), count = images_.batch().n;
  objective_.prepare();  // the attack may have left images out
  objective_.forward();
  const std::vector<float> logits = fetch(objective_.logits, count * images_.classes);
  const std::vector<float> x = fetch(images_.clean, count * pixels);
  x_adv_.resize(static_cast<std::size_t>(count * pixels));  // no second one for a moment
  images_.backend.copy_to_host(x_adv_.data(), images_.x_adv, x_adv_.size() * sizeof(float));
  const auto part = [](const std::vector<float>& all, std::size_t k, std::size_t size) {
    return std::span(all).subspan(k * size, size);
  };
  for (std::size_t k = 0; k < static_cast<std::size_t>(count); ++k) {
    const std::span<const float> of_image = part(logits, k, static_cast<std::size_t>(images_.classes));
    outcomes_[k] = outcome_of(of_image, part(x, k, static_cast<std::size_t>(pixels)),
                              part(x_adv_, k, static_cast<std::size_t>(pixels)), norm, eps);
    confidences_[k] = confidence_of(of_image);
  }
}

void SequenceEvaluator::flag_zero_gradients(SampleLoss* loss) {
  attacks().at("none")({})->perturb(objective_);
  objective_.loss = loss;
  objective_.gradient();
  const std::vector<float> dx = fetch(images_.dx, images_.batch().n * images_.layout.elements());
  for (int k = 0; k < images_.batch().n; ++k) {
    const auto begin = dx.begin() + k * images_.layout.elements(), end = begin + images_.layout.elements();
    if (std::all_of(begin, end, [](float value) { return value == 0; }))
      outcomes_[static_cast<std::size_t>(k)].flags |= ImageOutcome::kZeroGradient;
  }
}

std::vector<float> SequenceEvaluator::fetch(const float* device, std::int64_t count) const {
  std::vector<float> host(static_cast<std::size_t>(count));
  images_.backend.copy_to_host(host.data(), device, host.size() * sizeof(float));
  return host;
}

}  // namespace dat
