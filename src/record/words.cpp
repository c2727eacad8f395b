// Figures and names as people read them.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "record/history.hpp"

namespace dat {

namespace {

std::string counted(std::int64_t number, const char* thing) {
  return fmt::format("{} {}{}", number, thing, number == 1 ? "" : "s");
}

}  // namespace

std::string radius_text(double value, BallNorm norm) {
  char digits[32];
  const std::string plain(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  const std::string levels = fmt::format("{:.6g}", 255 * value);
  const bool exact = std::fabs(std::strtod(levels.c_str(), nullptr) / 255 - value) <= 1e-12 * value;
  const std::string fraction = levels + "/255";
  return norm == BallNorm::linf && exact ? std::ranges::min({fraction, plain}, {}, &std::string::size) : plain;
}

std::string ball_text(BallNorm norm, double eps) {
  return (norm == BallNorm::linf ? "eps " : name_of(norm) + " eps ") + radius_text(eps, norm);
}

std::string attack_text(const EvaluationRecord& record) {
  if (record.eps == 0 || record.attack_steps == 0) return "";
  const auto [eps, alpha, restarts] = attack_parts(record);
  return eps + ", " + alpha + ", " + restarts;
}

std::array<std::string, 3> attack_parts(const EvaluationRecord& record) {
  const BallNorm norm = norm_from(record.norm);
  return {ball_text(norm, record.eps), "alpha " + radius_text(record.alpha, norm), counted(record.restarts, "restart")};
}

std::string images_text(const std::string& split) {
  return split == "test" ? "test images" : split == "holdout" ? "held-out training images" : "training images";
}

std::string weights_text(const std::string& weights) { return weights == "average" ? ", averaged weights" : ""; }

Validity verdict_of(bool finite, std::int64_t images, std::int64_t whole) {
  return !finite ? Validity::invalid : images < whole ? Validity::partial : Validity::valid;
}

const char* verdict_text(Validity verdict) {
  return verdict == Validity::valid ? "VALID" : verdict == Validity::partial ? "PARTIAL" : "INVALID";
}

std::string plan_text(std::int64_t total_steps, std::int64_t steps_per_epoch, std::int64_t epochs,
                      double warmup_epochs) {
  const std::int64_t all = steps_per_epoch * epochs;
  return (total_steps < all ? std::to_string(total_steps) + " of " : "") + counted(std::max(total_steps, all), "step") +
         ", " + counted(epochs, "epoch") + " of " + counted(steps_per_epoch, "step") +
         (warmup_epochs > 0 ? fmt::format(" ({:g} warm-up)", warmup_epochs) : "");
}

std::string percent_text(double part) { return fmt::format("{:.2f} %", 100 * part); }

std::string duration_text(double seconds) {
  // The first argument of min() is what it makes of NaN.
  const auto s = static_cast<std::int64_t>(std::max(0.0, std::min(1e11, seconds))), minutes = s / 60,
             hours = minutes / 60;
  if (minutes == 0) return fmt::format("{} s", s);
  if (hours == 0) return fmt::format("{} min {:02} s", minutes, s % 60);
  if (hours < 48) return fmt::format("{} h {:02} min", hours, minutes % 60);
  return fmt::format("{} d {:02} h", hours / 24, hours % 24);
}

}  // namespace dat
