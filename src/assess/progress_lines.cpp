#include "assess/progress_lines.hpp"

#include <fmt/format.h>

#include "dat/report.hpp"
#include "printed.hpp"

namespace dat {

namespace {

/// Prints what was done in so many seconds, in which the part that is done has grown from `before`.
void print(const std::string& what, double seconds, double part, double before = 0) {
  print_error_line(what + "  ETA " + duration_text(seconds * (1 - part) / (part - before)));
}

}  // namespace

void ProgressLines::operator()(std::int64_t done) {
  const double part = static_cast<double>(done) / static_cast<double>(images_);
  if (!due() || done >= images_) return;
  print(fmt::format("{:.0f} % of the images", 100 * part), last_, part);
}

void ProgressLines::operator()(const std::string& what, double part) {
  if (first_part_ < 0) first_part_ = part;
  if (due() && part < 1 && part > first_part_) print(what, last_, part, first_part_);
}

void ProgressLines::operator()(const SequenceEvaluator::Progress& now) {
  if (!due() || now.part >= 1) return;
  print(fmt::format("{}{}: {} of {} images, {} right", now.attack,
                    now.runs > 1 ? fmt::format(", run {} of {}", now.run, now.runs) : "", now.done, now.images,
                    now.right),
        now.seconds, now.part);
}

bool ProgressLines::due() {
  const double now = std::chrono::duration<double>(Clock::now() - begin_).count();
  if (now - last_ < interval_) return false;
  last_ = now;
  return true;
}

}  // namespace dat
