#include "assess/evaluation.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "data/images/png.hpp"

namespace dat {

std::string reach_warning(const std::string& name, const Attack& attack, BallNorm norm, double eps) {
  const double reach = attack.alpha() * attack.gradients_of_run();
  // The slack is for the rounding of the product. No step size: the attack goes as far as it has to.
  if (reach == 0 || reach >= eps * (1 - 1e-9)) return {};
  return "the evaluation's " + name + " moves by " + radius_text(reach, norm) + " at most, which is less than " +
         ball_text(norm, eps) + ": its accuracy flatters the network; raise its step size or the number of steps";
}

EvaluationAttacks::EvaluationAttacks(const EvaluationOptions& options) : PlannedAttacks(options.norm, options.eps) {
  for (const std::string& text : options.attacks) {
    const AttackWord word = read_attack_word(text);
    auto attack = attacks().at(word.name)(evaluation_options(word, norm_, eps_, options.alpha, options.classes));
    members_.push_back({word.text(), std::move(attack), word.restarts});
  }
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<EvaluationRecord> EvaluationResult::records(const EvaluationAttacks& attacks) const {
  std::vector<EvaluationRecord> all;
  for (std::size_t k = 0; k < attacked.size(); ++k) {
    const EvaluationAttacks::Member& member = attacks.members()[k];
    all.push_back({.attack = member.name,
                   .attack_steps = member.attack->gradient_evaluations(),
                   .restarts = member.restarts,
                   .norm = name_of(attacks.norm()),
                   .eps = attacks.eps(),
                   .alpha = member.attack->alpha(),
                   .clean_acc = mean(clean.correct),
                   .adv_acc = mean(attacked[k].correct),
                   .clean_loss = mean(clean.loss),
                   .adv_loss = mean(attacked[k].loss),
                   .images = std::ssize(clean.correct),
                   .picture = attacked[k].picture});
  }
  return all;
}

Evaluator::Evaluator(Communicator& world, const Dataset& dataset, const std::uint8_t* all, Buffers& images,
                     FrozenView& objective, Dealing dealing, int shown)
    : world_(world),
      dataset_(dataset),
      all_(all),
      images_(images),
      objective_(objective),
      dealing_(dealing),
      shown_(world.root() ? shown : 0),
      loss_(images.backend.allocate_floats(images.capacity, "losses")),
      correct_(images.backend.allocate_floats(images.capacity, "losses")),
      host_loss_(static_cast<std::size_t>(images.capacity)),
      host_correct_(host_loss_.size()),
      host_logits_(host_loss_.size() * static_cast<std::size_t>(images.classes)),
      breaking_(host_loss_.size()),
      kept_of_(host_loss_.size()) {
  batch_.make_room(images.capacity, images.layout.elements());
}

void Evaluator::measure(const float* x) {
  objective_.measure(x, loss_, correct_);
  const auto fetch = [&](std::vector<float>& host, const float* device, int each) {
    images_.backend.copy_to_host(
        host.data(), device,
        static_cast<std::size_t>(images_.batch().n) * static_cast<std::size_t>(each) * sizeof(float));
  };
  fetch(host_loss_, loss_, 1);
  fetch(host_correct_, correct_, 1);
  fetch(host_logits_, objective_.logits, images_.classes);
}

Picture Evaluator::picture() const {
  const Layout& layout = images_.layout;
  const int count = std::min(shown_, batch_.count), width = count * layout.w;
  std::vector<std::uint8_t> rgb;
  std::vector<float> pixels(static_cast<std::size_t>(count * layout.elements()));
  for (const float* row : {images_.clean, images_.x_adv}) {
    images_.backend.copy_to_host(pixels.data(), row, pixels.size() * sizeof(float));
    for (int y = 0; y < layout.h; ++y)
      for (int x = 0; x < width; ++x)
        for (int c = 0; c < 3; ++c) {
          const int channel = std::min(c, layout.c - 1);  // grey ones have one
          const float value = pixels[static_cast<std::size_t>(layout.offset(x / layout.w, channel, y, x % layout.w))];
          rgb.push_back(static_cast<std::uint8_t>(std::lround(255 * std::clamp(value, 0.0F, 1.0F))));
        }
  }
  return {2 * layout.h, width, png_of({2 * layout.h, width}, rgb)};
}

bool Evaluator::fold(std::size_t k, EvaluationResult::Outcome& worst, bool first) {
  const auto id = static_cast<std::size_t>(batch_.ids[k]);
  const double loss = host_loss_[k], correct = host_correct_[k];
  const auto logits = host_logits_.begin() + static_cast<std::ptrdiff_t>(k) * images_.classes;
  const bool breaks = correct == 0 && (first || worst.correct[id] > 0 || loss > breaking_[k]);
  if (first || breaks) {
    worst.prediction[id] = static_cast<double>(std::max_element(logits, logits + images_.classes) - logits);
    breaking_[k] = loss;
  }
  if (first || worst.loss[id] < loss || std::isnan(loss)) worst.loss[id] = loss;  // NaN stays
  worst.correct[id] = first ? correct : std::min(worst.correct[id], correct);
  return breaks;
}

void Evaluator::keep(std::size_t k, int number) {
  Kept& kept = kept_of_[k];
  if (kept_.empty() || (kept.attack != 0 && kept.attack != number)) return;
  const auto classes = static_cast<std::size_t>(images_.classes);
  kept = {number, confidence_of(std::span(host_logits_).subspan(k * classes, classes))};
  const auto elements = static_cast<std::size_t>(images_.layout.elements());
  images_.backend.copy_to_host(kept_.data() + k * elements, images_.x_adv + k * elements, elements * sizeof(float));
}

void Evaluator::hand_over(const BrokenImageSink& take) {
  std::vector<BrokenImage> broken;
  for (int k = 0; k < batch_.count; ++k)
    if (const Kept& kept = kept_of_[static_cast<std::size_t>(k)]; kept.attack > 0)
      broken.push_back({batch_.ids[static_cast<std::size_t>(k)], k, kept.confidence});
  hand_over_broken(world_, images_.layout, kept_, broken, images_.capacity, take);
}

void Evaluator::attack(const EvaluationAttacks::Member& member, int number, std::uint64_t seed,
                       EvaluationResult::Outcome& worst) {
  const Attack& attack = *member.attack;
  const auto right = [&](std::int64_t id) { return worst.correct[static_cast<std::size_t>(id)] > 0; };
  const bool several = attack.runs() > 1;
  bool first = true;
  for (int restart = 0; restart < member.restarts; ++restart)
    for (int run = 0; run < attack.runs(); ++run, first = false) {
      if (several && !first && std::none_of(batch_.ids.begin(), batch_.ids.begin() + batch_.count, right)) break;
      objective_.prepare(seed, Purpose::evaluation_start, static_cast<std::uint32_t>(restart));
      objective_.run = run;
      attack.perturb(objective_);
      measure(images_.x_adv);
      for (std::size_t k = 0; k < static_cast<std::size_t>(batch_.count); ++k)
        if ((first || !several || right(batch_.ids[k])) && fold(k, worst, first)) keep(k, number);
    }
}

EvaluationResult Evaluator::run(const EvaluationAttacks& attacks, std::uint64_t seed,
                                const std::function<void(std::int64_t)>& progress, const BrokenImageSink* broken) {
  const auto begin = std::chrono::steady_clock::now();
  const auto samples = static_cast<std::size_t>(dataset_.size());
  EvaluationResult result;
  result.clean = {std::vector<double>(samples), std::vector<double>(samples), std::vector<double>(samples)};
  result.attacked.assign(attacks.members().size(), result.clean);
  if (broken != nullptr) kept_.resize(host_loss_.size() * static_cast<std::size_t>(images_.layout.elements()));

  images_.cut(0);
  std::int64_t done = 0, batches = 0;
  const bool whole = dealing_ == Dealing::batches;
  const std::int64_t step = whole ? 1 : world_.size(), all = std::int64_t{images_.capacity} * world_.size();
  const std::int64_t skip = whole ? std::int64_t{world_.size() - 1} * images_.capacity : 0;
  for (std::int64_t next = whole ? std::int64_t{world_.rank()} * images_.capacity : world_.rank();
       next < dataset_.size(); next += skip) {
    batch_.count = 0;
    for (; batch_.count < images_.capacity && next < dataset_.size(); next += step) {
      const auto k = static_cast<std::size_t>(batch_.count++);
      batch_.labels[k] = dataset_.label(next);
      batch_.ids[k] = next;
    }
    if (all_ == nullptr) read_images(dataset_, batch_, images_.backend.host_threads);
    images_.load(batch_, 0, all_);
    objective_.prepare(seed);
    measure(images_.clean);
    for (std::size_t k = 0; k < static_cast<std::size_t>(batch_.count); ++k)
      kept_of_[k] = {.attack = fold(k, result.clean, true) ? -1 : 0};
    for (std::size_t a = 0; a < attacks.members().size(); ++a) {
      attack(attacks.members()[a], static_cast<int>(a) + 1, seed, result.attacked[a]);
      if (done == 0 && shown_ > 0) result.attacked[a].picture = picture();
    }
    if (broken != nullptr) hand_over(*broken);
    ++batches;
    done += batch_.count;
    if (progress) progress(done);
  }
  // Rank 0 has the most batches.
  for (; broken != nullptr && batches < (dataset_.size() + all - 1) / all; ++batches)
    hand_over_broken(world_, images_.layout, kept_, {}, images_.capacity, *broken);
  // Every image is some rank's: the others have zeros there.
  const auto share = [&](EvaluationResult::Outcome& one) {
    for (auto* values : {&one.loss, &one.correct, &one.prediction}) world_.sum(values->data(), dataset_.size());
  };
  share(result.clean);
  for (EvaluationResult::Outcome& one : result.attacked) share(one);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace dat
