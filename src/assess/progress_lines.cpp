#include "assess/progress_lines.hpp"

#include <cstdio>
#include <iostream>
#include <sstream>

namespace dat {

namespace {

void print(const std::string& what, double seconds) {
  const auto left = static_cast<long long>(seconds);
  char text[64];
  std::snprintf(text, sizeof text, "  ETA %lld:%02lld:%02lld\n", left / 3600, left / 60 % 60, left % 60);
  std::cerr << what + text << std::flush;
}

}  // namespace

void ProgressLines::operator()(std::int64_t done) {
  const double part = static_cast<double>(done) / static_cast<double>(images_);
  if (!due() || done >= images_) return;
  char text[64];
  std::snprintf(text, sizeof text, "%.0f %% of the images", 100 * part);
  print(text, last_ * (1 - part) / part);
}

void ProgressLines::operator()(const SequenceEvaluator::Progress& now) {
  if (!due() || now.part >= 1) return;
  std::ostringstream text;
  text << now.attack;
  if (now.runs > 1) text << ", run " << now.run << " of " << now.runs;
  text << ": " << now.done << " of " << now.images << " images, " << now.right << " right";
  print(text.str(), now.seconds * (1 - now.part) / now.part);
}

bool ProgressLines::due() {
  const double now = std::chrono::duration<double>(Clock::now() - begin_).count();
  if (now - last_ < interval_) return false;
  last_ = now;
  return true;
}

}  // namespace dat
