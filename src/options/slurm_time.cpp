#include "options/slurm_time.hpp"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "options/values/hints.hpp"

namespace dat {

namespace {

/// Seconds of "h", "min", "days"; 0: no unit of time.
std::int64_t seconds_of(const std::string& unit) {
  for (const char* name : {"d", "day", "days"})
    if (unit == name) return 86400;
  for (const char* name : {"h", "hr", "hrs", "hour", "hours"})
    if (unit == name) return 3600;
  for (const char* name : {"m", "min", "mins", "minute", "minutes"})
    if (unit == name) return 60;
  for (const char* name : {"s", "sec", "secs", "second", "seconds"})
    if (unit == name) return 1;
  return 0;
}

}  // namespace

std::string slurm_time_of(const std::string& text) {
  const std::string low = lower_case(text);
  constexpr double kLongest = 1e9;
  double seconds = 0;
  bool days = false;
  const char *at = low.data(), *const end = low.data() + low.size();
  while (at != end) {
    double number = 0;
    const auto [behind, error] = std::from_chars(at, end, number);
    if (error != std::errc() || !(number >= 0 && number < kLongest)) return "";
    at = behind;
    while (at != end && *at == ' ') ++at;
    const char* const unit = at;
    while (at != end && std::isalpha(static_cast<unsigned char>(*at)) != 0) ++at;
    const std::int64_t factor = seconds_of({unit, at});
    if (factor == 0) return "";
    days = days || factor == 86400;
    seconds += number * static_cast<double>(factor);
    while (at != end && *at == ' ') ++at;
  }
  if (!(seconds >= 1 && seconds < kLongest)) return "";
  const auto left = static_cast<std::int64_t>(std::ceil(seconds));
  const std::int64_t hours = left / 3600, minutes = left / 60 % 60;
  if (days) return fmt::format("{}-{:02}:{:02}:{:02}", hours / 24, hours % 24, minutes, left % 60);
  return fmt::format("{:02}:{:02}:{:02}", hours, minutes, left % 60);
}

}  // namespace dat
