#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "dat/error.hpp"

namespace dat {

/// The whole number that a value of a JSON file is, which may be a stranger's; none: it is another one, or not in
/// [least, most].
template <class Json>
[[nodiscard]] std::optional<std::int64_t> whole_number(const Json& value, std::int64_t least,
                                                       std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  if (!value.is_number_integer()) return {};
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value.is_number_unsigned() && value.template get<std::uint64_t>() > kMost) return {};
  const auto number = value.template get<std::int64_t>();
  return number >= least && number <= most ? std::optional(number) : std::nullopt;
}

/// A count of a record: from `least` on, no larger than doubles have exactly, and than T holds. Error(data).
template <class T, class Json>
[[nodiscard]] T count_in(const Json& value, std::int64_t least = 0) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53;
  constexpr std::int64_t kMost = std::min<std::int64_t>(kExact, std::numeric_limits<T>::max());
  const std::optional<std::int64_t> number = whole_number(value, least, kMost);
  if (!number) fail(ExitCode::data, value.dump().substr(0, 40), " is no whole number from ", least, " to ", kMost);
  return static_cast<T>(*number);
}

/// A list of such counts. Error(data).
template <class T, class Json>
[[nodiscard]] std::vector<T> counts_in(const Json& array, std::int64_t least = 0) {
  std::vector<T> counts;
  for (const Json& value : array) counts.push_back(count_in<T>(value, least));
  return counts;
}

}  // namespace dat
