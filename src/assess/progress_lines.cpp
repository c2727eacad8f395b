#include "assess/progress_lines.hpp"

#include <fmt/format.h>

#include "dat/report.hpp"
#include "printed.hpp"

namespace dat {

namespace {

void print(const std::string& what, double seconds) { print_error_line(what + "  ETA " + duration_text(seconds)); }

}  // namespace

void ProgressLines::operator()(std::int64_t done) {
  const double part = static_cast<double>(done) / static_cast<double>(images_);
  if (!due() || done >= images_) return;
  print(fmt::format("{:.0f} % of the images", 100 * part), last_ * (1 - part) / part);
}

void ProgressLines::operator()(const std::string& what, double part) {
  if (first_part_ < 0) first_part_ = part;
  if (due() && part < 1 && part > first_part_) print(what, last_ * (1 - part) / (part - first_part_));
}

void ProgressLines::operator()(const SequenceEvaluator::Progress& now) {
  if (!due() || now.part >= 1) return;
  print(fmt::format("{}{}: {} of {} images, {} right", now.attack,
                    now.runs > 1 ? fmt::format(", run {} of {}", now.run, now.runs) : "", now.done, now.images,
                    now.right),
        now.seconds * (1 - now.part) / now.part);
}

bool ProgressLines::due() {
  const double now = std::chrono::duration<double>(Clock::now() - begin_).count();
  if (now - last_ < interval_) return false;
  last_ = now;
  return true;
}

}  // namespace dat
