#include "train/learner/learner.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "pointwise.hpp"

namespace dat {

Learner::Learner(Replica& replica, const Loss& loss, int batch, BatchStatistics& statistics, int first_pass,
                 PhaseTimer& timer, std::function<void(int)> ready, bool unlabelled)
    : replica_(replica),
      loss_(loss),
      passes_(loss_.passes()),
      batch_(batch),
      statistics_(statistics),
      first_pass_(first_pass),
      timer_(timer),
      ready_(std::move(ready)),
      unlabelled_(unlabelled),
      logits_(passes_.size()),
      kept_(passes_.size()),
      ends_(static_cast<std::size_t>(batch)) {
  Backend& backend = replica.backend();
  const std::int64_t count = std::ssize(passes_) * batch_;
  losses_ = backend.allocate_floats(2 * count, "losses");
  corrects_ = losses_ + count;
  host_ = static_cast<float*>(backend.allocate_pinned(2 * static_cast<std::size_t>(count) * sizeof(float), "results"));
  if (loss_.needs() != Loss::Others::none)
    for (float*& logits : kept_)
      logits = backend.allocate_floats(std::int64_t{replica.images().capacity} * replica.classes(), "logits");
  if (const std::int64_t numbers = loss_.scratch(replica.classes()); numbers > 0)
    scratch_ = static_cast<double*>(backend.allocate(static_cast<std::size_t>(numbers) * sizeof(double), "losses"));
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (Result& result : results_) result = {kNone, kNone};
}

const float* Learner::input(const Examples& examples, std::size_t pass) const {
  switch (passes_[pass]) {
    case Loss::Images::attacked:
      return examples.attacked;
    case Loss::Images::clean:
      return examples.clean;
    case Loss::Images::start:
      return examples.first_images;
  }
  return nullptr;
}

void Learner::train(const Examples& examples, const ActiveSet& active, float* gradients) {
  TrainingProgram& network = replica_.training(examples.count);
  const Device device = replica_.backend().device();
  here_ = ends_[static_cast<std::size_t>(examples.unit)] = examples.first + examples.count;
  for (std::size_t k = 0; k < passes_.size(); ++k) {
    const std::int64_t at = static_cast<std::int64_t>(k) * batch_ + examples.first;
    logits_[k] = {.device = device,
                  .values = kept_[k] != nullptr ? kept_[k] : network.logits(),
                  .labels = examples.labels,
                  .n = examples.count,
                  .classes = replica_.classes(),
                  .loss = losses_ + at,
                  .correct = corrects_ + at,
                  .gradient = network.dlogits(),
                  .reference = examples.first_logits,
                  .scratch = scratch_};
  }
  const auto forward = [&](std::size_t k) {
    network.forward(input(examples, k));
    if (kept_[k] != nullptr)
      each(device, std::int64_t{examples.count} * replica_.classes(),
           kernels::Scale{network.logits(), kept_[k], 1.0F, false});
  };
  // What the first pass must know of the others: a forward call more for each of them.
  for (std::size_t k = 1; k < passes_.size() && loss_.needs() == Loss::Others::all; ++k) forward(k);

  for (std::size_t k = 0; k < passes_.size(); ++k) {
    forward(k);
    loss_.differentiate(k, logits_, examples.averaged());
    statistics_.add(network, first_pass_ + static_cast<int>(k),
                    {.unit = examples.unit, .first = examples.begins_unit(), .share = examples.share()});
    timer_.lap(Phase::forward);
    const bool last = examples.ends_step() && k + 1 == passes_.size();
    network.backward(input(examples, k),
                     {.weights = &active,
                      .gradients = gradients,
                      .accumulate = !(examples.begins_unit() && k == 0),
                      .input = passes_[k] == Loss::Images::attacked ? examples.image_gradient : nullptr,
                      .ready = last ? &ready_ : nullptr});
    timer_.lap(Phase::backward);
  }
}

void Learner::fetch(Backend::Ticket& ticket) {
  const auto bytes = 2 * passes_.size() * static_cast<std::size_t>(batch_) * sizeof(float);
  ticket = replica_.backend().fetch(host_, losses_, bytes);
}

void Learner::write(double* to, int unit) {
  const int begin = unit > 0 ? ends_[static_cast<std::size_t>(unit) - 1] : 0,
            end = ends_[static_cast<std::size_t>(unit)];
  const auto part = [&](std::int64_t number) {
    return std::span<const float>(host_ + number * batch_ + begin, host_ + number * batch_ + end);
  };
  const std::int64_t passes = std::ssize(passes_);
  *to++ = end - begin;
  for (std::int64_t k = 0; k < passes; ++k) *to++ = std::accumulate(part(k).begin(), part(k).end(), 0.0);
  for (std::int64_t k = passes; k < 2 * passes; ++k) *to++ = static_cast<double>(std::ranges::count(part(k), 1.0F));
  if (unlabelled_) *to = static_cast<double>(end - begin - std::ranges::count(part(passes), -1.0F));
}

void Learner::read(const double* from) {
  const double images = *from++;
  images_ = static_cast<std::int64_t>(images);
  const std::size_t passes = passes_.size();
  const double labelled = unlabelled_ ? from[2 * passes] : images;
  for (std::size_t k = 0; k < passes; ++k)
    results_[static_cast<std::size_t>(passes_[k])] = {from[k] / images, from[passes + k] / labelled};
}

double Learner::loss_of(int first, int count) const {
  double total = 0;
  for (std::size_t k = 0; k < passes_.size(); ++k) {
    const float* const begin = host_ + static_cast<std::int64_t>(k) * batch_ + first;
    total = std::accumulate(begin, begin + count, total);
  }
  return total;
}

bool Learner::own_finite() const {
  for (std::int64_t k = 0; k < std::ssize(passes_); ++k)
    if (!std::all_of(host_ + k * batch_, host_ + k * batch_ + here_, [](float loss) { return std::isfinite(loss); }))
      return false;
  return true;
}

}  // namespace dat
