#include "record/progress_line.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "record/history.hpp"

namespace dat {

void ProgressLine::add(const StepRecord& record, Clock::time_point now) {
  const auto images = static_cast<double>(record.images);
  if (first_step_ == -1) {
    first_step_ = record.step;
    started_ = last_ = now;
  } else {
    images_ += images;
    seconds_ += sum_of(record.seconds, kPhasesOfSteps);
  }
  step_ = record.step;
  epoch_ = record.epoch + 1;
  if (!std::isfinite(record.loss_adv)) return;  // a step that was skipped
  finite_ += images;
  loss_ += images * record.loss_adv;
  right_ += images * record.acc_adv;
}

double ProgressLine::waited(Clock::time_point now) const { return std::chrono::duration<double>(now - last_).count(); }

void ProgressLine::write(fmt::memory_buffer& line, const RunFacts& facts, Clock::time_point now, int columns) {
  fit(line, facts, now, columns, -1);
  last_ = now;
  images_ = seconds_ = finite_ = loss_ = right_ = 0;
}

void ProgressLine::write_evaluation(fmt::memory_buffer& line, const RunFacts& facts, Clock::time_point now, int columns,
                                    double part) {
  fit(line, facts, now, columns, part);
  last_ = now;
}

void ProgressLine::fit(fmt::memory_buffer& line, const RunFacts& facts, Clock::time_point now, int columns,
                       double part) const {
  const double left = std::chrono::duration<double>(now - started_).count() /
                      static_cast<double>(std::max<std::int64_t>(step_ - first_step_, 1)) *
                      static_cast<double>(facts.total_steps - step_);
  for (const Parts parts : {all, no_warmup, no_epoch, no_speed, no_loss, no_accuracy, no_step}) {
    line.clear();
    format(line, facts, left, parts, part);
    if (line.size() <= static_cast<std::size_t>(columns)) break;
  }
  line.resize(std::min(line.size(), static_cast<std::size_t>(columns)));
  line.push_back('\0');
}

void ProgressLine::format(fmt::memory_buffer& line, const RunFacts& facts, double left, Parts parts,
                          double part) const {
  const auto out = std::back_inserter(line);
  const bool has_eta = step_ > first_step_;
  if (parts < no_step || !has_eta) fmt::format_to(out, "step {}/{}  ", step_, facts.total_steps);
  if (parts < no_epoch) fmt::format_to(out, "epoch {} of {}", epoch_, std::max(facts.epochs, epoch_));
  if (parts < no_warmup && facts.warmup_epochs > 0) fmt::format_to(out, " ({:g} warm-up)", facts.warmup_epochs);
  if (parts < no_epoch) fmt::format_to(out, "  ");
  const double none = std::numeric_limits<double>::quiet_NaN(), n = finite_ > 0 ? finite_ : none;
  if (part >= 0) {
    if (parts < no_step) fmt::format_to(out, "evaluation {:.0f} %  ", 100 * part);
  } else {
    if (parts < no_loss) fmt::format_to(out, "loss {:.4f}  ", loss_ / n);
    if (parts < no_accuracy) fmt::format_to(out, "acc {:.2f} %  ", 100 * right_ / n);
    if (parts < no_speed && seconds_ > 0) fmt::format_to(out, "{:.4g} images/s  ", images_ / seconds_);
  }
  if (has_eta)
    fmt::format_to(out, "ETA {}", duration_text(left));
  else
    line.resize(line.size() - 2);
}

}  // namespace dat
