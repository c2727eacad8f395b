#pragma once

// Values of records by the lists of their fields: out of lines of metrics.jsonl, and into tables of results.h5.

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "dat/error.hpp"
#include "files/whole_number.hpp"
#include "hdf5/hdf5.hpp"

namespace dat {

[[nodiscard]] inline double number_or_nan(const nlohmann::json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

/// A field of a list that reads its value from a line. A text is put in one line: what is said of a run has a line for
/// each thing that happened. Error(data): a count is none; ranks may be -1, nobody.
[[nodiscard]] inline auto fields_of(const nlohmann::json& record) {
  return [&record](const char* name, auto& value, const char* = "") {
    if constexpr (std::is_same_v<decltype(value), double&>)
      value = number_or_nan(record.at(name));
    else if constexpr (std::is_same_v<decltype(value), std::string&>)
      value = in_one_line(record.at(name).get<std::string>());
    else if constexpr (std::is_same_v<decltype(value), std::int64_t&>)
      value = count_in<std::int64_t>(record.at(name), std::string_view(name) == "steps_per_epoch" ? 1 : 0);
    else if constexpr (std::is_same_v<decltype(value), int&>)
      value = count_in<int>(record.at(name), -1);
    else
      record.at(name).get_to(value);
  };
}

/// One 1-D dataset per field of `records`, in `group`. for_each(record, field) calls field(name, value, unit) for each;
/// the unit may be left out.
template <class Record, class ForEach>
void write_series(Hdf5File& file, const std::string& group, const std::vector<Record>& records, ForEach for_each) {
  const Record first{};
  std::size_t column = 0;
  for_each(first, [&](const char* name, const auto& example, const char* unit = "") {
    using Plain = std::decay_t<decltype(example)>;
    using Stored = std::conditional_t<std::is_same_v<Plain, std::string>, std::string,
                                      std::conditional_t<std::is_floating_point_v<Plain>, double, std::int64_t>>;
    std::vector<Stored> values;
    values.reserve(records.size());
    for (const Record& record : records) {
      std::size_t at = 0;
      for_each(record, [&](const char*, const auto& value, const char* = "") {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Plain>)
          if (at == column) values.push_back(static_cast<Stored>(value));
        ++at;
      });
    }
    ++column;
    const std::string path = group + "/" + name;
    if constexpr (std::is_same_v<Stored, std::string>)
      file.write_texts(path, values);
    else
      file.write(path, {static_cast<std::int64_t>(values.size())}, values);
    if (*unit != '\0') file.set_text(path, "units", unit);
  });
}

}  // namespace dat
