#include "record/progress_line.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

namespace dat {

namespace {

double seconds_between(ProgressLine::Clock::time_point from, ProgressLine::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void ProgressLine::add(const StepRecord& record, Clock::time_point now) {
  const auto images = static_cast<double>(std::max<std::int64_t>(record.images, 1));
  if (first_step_ < 0) {
    first_step_ = record.step;
    started_ = last_ = now;
  } else {
    images_ += images;
    seconds_ =
        std::accumulate(record.seconds.begin(), record.seconds.begin() + static_cast<int>(Phase::evaluate), seconds_);
  }
  step_ = record.step;
  epoch_ = record.epoch + 1;
  if (!std::isfinite(record.loss_adv)) return;  // a step that was skipped
  finite_ += images;
  loss_ += images * record.loss_adv;
  right_ += images * record.acc_adv;
}

double ProgressLine::waited(Clock::time_point now) const { return seconds_between(last_, now); }

void ProgressLine::write(fmt::memory_buffer& line, const RunFacts& facts, Clock::time_point now, int columns) {
  const double left = seconds_between(started_, now) /
                      static_cast<double>(std::max<std::int64_t>(step_ - first_step_, 1)) *
                      static_cast<double>(facts.total_steps - step_);
  for (const Parts parts : {all, no_warmup, no_epoch, no_speed}) {
    line.clear();
    format(line, facts, left, parts);
    if (columns == 0 || line.size() <= static_cast<std::size_t>(columns)) break;
  }
  if (columns > 0) line.resize(std::min(line.size(), static_cast<std::size_t>(columns)));
  line.push_back('\0');
  last_ = now;
  images_ = seconds_ = finite_ = loss_ = right_ = 0;
}

void ProgressLine::format(fmt::memory_buffer& line, const RunFacts& facts, double left, Parts parts) const {
  const auto out = std::back_inserter(line);
  fmt::format_to(out, "step {}/{}", step_, facts.total_steps);
  if (parts < no_epoch) fmt::format_to(out, "  epoch {} of {}", epoch_, std::max(facts.epochs, epoch_));
  if (parts < no_warmup && facts.warmup_epochs > 0) fmt::format_to(out, " ({:g} warm-up)", facts.warmup_epochs);
  const double none = std::numeric_limits<double>::quiet_NaN(), n = finite_ > 0 ? finite_ : none;
  fmt::format_to(out, "  loss {:.4f}  acc {:.2f} %", loss_ / n, 100 * right_ / n);
  if (parts < no_speed && seconds_ > 0) fmt::format_to(out, "  {:.4g} images/s", images_ / seconds_);
  if (step_ > first_step_) fmt::format_to(out, "  ETA {}", duration_text(left));
}

}  // namespace dat
