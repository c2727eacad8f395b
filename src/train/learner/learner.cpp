#include "train/learner/learner.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "copy_bits.hpp"
#include "noise.hpp"
#include "pointwise.hpp"

namespace dat {

Learner::Learner(Replica& replica, const Loss& loss, int batch, BatchStatistics& statistics, int first_pass,
                 PhaseTimer& timer, std::function<void(int)> ready, bool unlabelled, bool alike)
    : replica_(replica),
      loss_(loss),
      passes_(loss_.passes()),
      copies_(replica.copies()),
      batch_(std::int64_t{batch} * copies_),
      statistics_(statistics),
      first_pass_(first_pass),
      timer_(timer),
      ready_(std::move(ready)),
      unlabelled_(unlabelled),
      records_(alike && replica.backend().replays()),
      logits_(passes_.size()),
      kept_(passes_.size()),
      own_{std::vector<int>(static_cast<std::size_t>(batch))},
      fetched_(own_),
      recorded_(replica.backend()) {
  Backend& backend = replica.backend();
  const std::int64_t count = std::ssize(passes_) * batch_, most = std::int64_t{replica.images().capacity} * copies_;
  const bool repeated = copies_ > 1 && passes_.size() > 1;
  losses_ = backend.allocate_floats(2 * count, "losses");
  corrects_ = losses_ + count;
  host_ = backend.allocate_pinned_array<float>(2 * count, "results");
  if (loss_.looks_at() != Loss::Others::none || repeated)
    for (float*& logits : kept_) logits = backend.allocate_floats(most * replica.classes(), "logits");
  if (copies_ > 1) labels_ = backend.allocate_array<std::int32_t>(most, "labels");
  if (repeated) repeated_gradient_ = backend.allocate_floats(most * replica.classes(), "logits");
  if (const std::int64_t numbers = loss_.scratch(replica.classes()); numbers > 0)
    scratch_ = backend.allocate_array<double>(numbers, "losses");
}

const float* Learner::input(const Batch& batch, std::size_t pass) {
  const Loss::Images images = passes_[pass];
  if (images == Loss::Images::attacked) return replica_.images().shown(batch.x_adv, batch);
  return images == Loss::Images::clean ? batch.clean : batch.first_images;
}

void Learner::forward(const Batch& batch, std::size_t pass, const float* x, bool whole) {
  TrainingProgram& network = program(batch, pass);
  network.forward(x, whole);
  const Device device = replica_.backend().device();
  const std::int64_t logits = std::int64_t{batch.n} * copies_ * replica_.classes();
  if (repeats(pass))
    each(device, logits, kernels::Repeat<float>{network.logits(), kept_[pass], replica_.classes(), copies_});
  else if (kept_[pass] != nullptr)
    copy_bits(device, network.logits(), kept_[pass], logits);
}

void Learner::forward_and_loss(const Batch& batch, std::size_t pass, const float* x, bool whole) {
  TrainingProgram& network = program(batch, pass);
  forward(batch, pass, x, whole);
  loss_.differentiate(pass, logits_, batch.averaged() * copies_);
  if (repeats(pass))
    each(replica_.backend().device(), std::int64_t{batch.n} * replica_.classes(),
         kernels::SumOfCopies{repeated_gradient_, network.dlogits(), replica_.classes(), copies_});
  statistics_.add(network, first_pass_ + static_cast<int>(pass), batch.place());
}

void Learner::place_results(const Batch& batch) {
  Samples samples = batch;
  samples.n *= copies_;
  if (copies_ > 1) {
    each(batch.device, samples.n, kernels::Repeat<std::int32_t>{batch.labels, labels_, 1, copies_});
    samples.labels = labels_;
  }
  for (std::size_t k = 0; k < passes_.size(); ++k) {
    TrainingProgram& network = program(batch, k);
    const std::int64_t at = static_cast<std::int64_t>(k) * batch_ + std::int64_t{batch.begins_at} * copies_;
    logits_[k] = {samples,        kept_[k] != nullptr ? kept_[k] : network.logits(),   losses_ + at,
                  corrects_ + at, repeats(k) ? repeated_gradient_ : network.dlogits(), batch.first_logits,
                  scratch_};
  }
}

void Learner::train(const Batch& batch, const ActiveSet& active, float* gradients) {
  own_.images = own_.ends[static_cast<std::size_t>(batch.key.unit)] = batch.begins_at + batch.n;
  place_results(batch);
  const bool whole = records_ && batch.begins_at == 0 && batch.ends_step();
  const auto play = [&](Part::Way way, std::size_t pass, const float* x, const auto& work) {
    if (!whole) return work();
    TrainingProgram& network = program(batch, pass);
    network.refresh();  // not inside what is recorded
    recorded_.play({way, &network, pass, batch.n, batch.averaged(), replica_.model().frozen, x, gradients,
                    batch.first_logits, batch.labels},
                   work);
  };
  // Forward passes of the others that the first pass needs: one more for each of them.
  for (std::size_t k = 1; k < passes_.size() && loss_.looks_at() == Loss::Others::all; ++k) {
    const float* const x = input(batch, k);
    play(Part::Way::ahead, k, x, [this, batch, k, x, whole] { forward(batch, k, x, whole); });
  }

  for (std::size_t k = 0; k < passes_.size(); ++k) {
    TrainingProgram& network = program(batch, k);
    const float* const x = input(batch, k);
    const bool last = batch.ends_step() && k + 1 == passes_.size();
    const GradientRequest wanted{.weights = &active,
                                 .gradients = gradients,
                                 .accumulate = !(batch.begins_unit() && k == 0),
                                 .ready = last && !whole ? &ready_ : nullptr,
                                 .whole = whole};
    play(Part::Way::both, k, x, [this, &network, batch, k, x, whole, wanted] {
      forward_and_loss(batch, k, x, whole);
      if (!whole) timer_.lap(Phase::forward);
      network.backward(x, wanted);
    });
    if (whole && last) network.announce(active, ready_);
    timer_.lap(Phase::backward);
  }
}

void Learner::fetch(Backend::Ticket& ticket) {
  const auto bytes = 2 * passes_.size() * static_cast<std::size_t>(batch_) * sizeof(float);
  ticket = replica_.backend().fetch(host_, losses_, bytes);
  fetched_ = own_;
}

Learner::Losses Learner::losses() const {
  return {losses_, std::ssize(passes_), batch_, std::int64_t{own_.images} * copies_};
}

void Learner::write(double* to, int unit) {
  const std::int64_t begin = unit > 0 ? fetched_.ends.at(static_cast<std::size_t>(unit) - 1) : 0,
                     end = fetched_.ends[static_cast<std::size_t>(unit)];
  const auto part = [&](std::int64_t number) {
    return std::span<const float>(host_ + number * batch_ + begin * copies_, host_ + number * batch_ + end * copies_);
  };
  const std::int64_t passes = std::ssize(passes_);
  const auto count = [&](std::int64_t number, float value) {
    return static_cast<double>(std::ranges::count(part(number), value)) / copies_;
  };
  *to++ = static_cast<double>(end - begin);
  for (std::int64_t k = 0; k < passes; ++k) *to++ = std::accumulate(part(k).begin(), part(k).end(), 0.0) / copies_;
  for (std::int64_t k = passes; k < 2 * passes; ++k) *to++ = count(k, 1.0F);
  if (unlabelled_) *to = static_cast<double>(end - begin) - count(passes, -1.0F);
}

void Learner::read(const double* from) {
  const double images = *from++;
  images_ = std::llround(images);  // an estimate, where ranks may be false
  const std::size_t passes = passes_.size();
  const double labelled = unlabelled_ ? from[2 * passes] : images;
  for (std::size_t k = 0; k < passes; ++k)
    results_[static_cast<std::size_t>(passes_[k])] = {from[k] / images, from[passes + k] / labelled};
}

double Learner::loss_of(int count, int first) const {
  double total = 0;
  for (std::size_t k = 0; k < passes_.size(); ++k) {
    const float* const begin = host_ + static_cast<std::int64_t>(k) * batch_ + std::int64_t{first} * copies_;
    total = std::accumulate(begin, begin + std::int64_t{count} * copies_, total);
  }
  return total / copies_;
}

}  // namespace dat
