#pragma once

// Handling of an event by the record, made from the event's struct (dat/events.hpp).

#include <nlohmann/json.hpp>
#include <string>

#include "dat/report.hpp"
#include "record/fields.hpp"
#include "record/history.hpp"

namespace dat {

template <class Json>
void to_json(Json& json, const RankOrAll& rank) {
  if (rank.number >= 0) json = rank.number;  // else null
}
inline void from_json(const nlohmann::json& json, RankOrAll& rank) { rank = json.is_null() ? -1 : count_in<int>(json); }

template <class Json>
void to_json(Json& json, const AttackSpan& span) {
  json = {span.rank, span.step, span.unit, span.begin, span.end};
}
inline void from_json(const nlohmann::json& json, AttackSpan& span) {
  span.rank = count_in<int>(json.at(0));
  span.step = count_in<std::int64_t>(json.at(1));
  span.unit = count_in<int>(json.at(2));
  json.at(3).get_to(span.begin);
  json.at(4).get_to(span.end);
}

/// The event's line of the record. Texts may be a stranger's: what is no UTF-8 is replaced, and controls are escaped,
/// so that whoever looks at the file as it grows sees words.
template <class Event>
[[nodiscard]] std::string line_of(const Event& event) {
  nlohmann::ordered_json row;
  row["kind"] = Event::kKind;
  Event::fields(event, [&](const char* name, const auto& value) { row[name] = value; });
  return row.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

template <class Event>
[[nodiscard]] Event event_of(const nlohmann::json& line) {
  Event event;
  Event::fields(event, fields_of(line));
  return event;
}

template <class Event>
[[nodiscard]] EventKind kind_of() {
  EventKind kind{.name = Event::kKind,
                 .read = [](const nlohmann::json& line) -> std::any { return event_of<Event>(line); },
                 .lasts = [](const nlohmann::json&) { return false; },
                 .summary = [](const History&) { return std::string(); },
                 .count = [](const History& history) { return history.all<Event>().size(); },
                 .write_table = nullptr};
  if constexpr (requires(const Event& event) { event.lasts(); })
    kind.lasts = [](const nlohmann::json& line) { return event_of<Event>(line).lasts(); };
  if constexpr (requires { Event::summary({}); })
    kind.summary = [](const History& history) { return Event::summary(history.all<Event>()); };
  if constexpr (requires { Event::kTable; })
    kind.write_table = [](Hdf5File& file, const History& history) {
      write_series(file, Event::kTable, history.all<Event>(),
                   [](const Event& event, const auto& field) { Event::fields(event, field); });
    };
  return kind;
}

template <class Event>
void Report::tell(const Event& event) {
  write_text(line_of(event));
  if constexpr (requires { event.sentence(); }) {
    const std::string sentence = event.sentence();
    if constexpr (requires { Event::kWarns; })
      warning(sentence);
    else
      message(sentence);
  }
}

}  // namespace dat
