#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "hdf5/hdf5.hpp"
#include "record/history.hpp"

namespace dat {
namespace {

using nlohmann::json;

double number_or_nan(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

/// A text, in one line: what is said of a run has a line for each thing that happened.
void read_text(const json& record, const char* name, std::string& text) {
  text = in_one_line(record.at(name).get<std::string>());
}

/// A field reader for for_each_*_field.
auto fields_of(const json& record) {
  return [&record](const char* name, auto& value, const char*) {
    if constexpr (std::is_same_v<decltype(value), double&>)
      value = number_or_nan(record.at(name));
    else if constexpr (std::is_same_v<decltype(value), std::string&>)
      read_text(record, name, value);
    else
      record.at(name).get_to(value);
  };
}

void append_layers(const json& values, std::size_t layers, std::vector<float>& out) {
  require(values.size() == layers, ExitCode::data, values.size(), " values for ", layers, " layers");
  for (const json& value : values) out.push_back(static_cast<float>(number_or_nan(value)));
}

[[nodiscard]] int rank_or_all(const json& by) { return by.is_null() ? -1 : by.get<int>(); }

void append_attacks(const json& record, History& history) {
  if (record.at("first").get<bool>()) history.attacks.clear();  // another process, another clock
  for (const json& span : record.at("spans"))
    history.attacks.push_back({.rank = span.at(0).get<int>(),
                               .step = span.at(1).get<std::int64_t>(),
                               .unit = span.at(2).get<int>(),
                               .begin = span.at(3).get<double>(),
                               .end = span.at(4).get<double>()});
}

void append_step(const json& record, History& history) {
  StepRecord& step = history.steps.emplace_back();
  if (record.contains("eps")) {
    for_each_step_field(step, fields_of(record));
  } else {  // of an earlier version
    json complete = record;
    complete.emplace("eps", nullptr);
    for_each_step_field(step, fields_of(complete));
  }
  const std::string& active = record.at("active").get_ref<const std::string&>();
  require(active.size() == history.layers(), ExitCode::data, active.size(), " marks for ", history.layers(), " layers");
  for (const char mark : active) history.active.push_back(mark == '1');
  append_layers(record.at("p"), history.layers(), history.p);
  append_layers(record.at("norm"), history.layers(), history.norms);
  GeneratorRecord& generators = history.generators.emplace_back();
  if (record.contains("t_generators")) {
    for_each_generator_field(generators, fields_of(record));
    history.had_generators = true;
  }
  std::vector<double>& distances = history.distances.emplace_back();
  for (const json& value : record.value("distance", json::array())) distances.push_back(number_or_nan(value));
}

void append(const json& record, History& history) {
  const std::string& kind = record.at("kind").get_ref<const std::string&>();
  if (kind == "step") {
    append_step(record, history);
  } else if (kind == "attacks") {
    append_attacks(record, history);
  } else if (kind == "evaluation") {
    json complete = record;
    complete.emplace("weights", "raw");  // records of earlier versions do not say so
    complete.emplace("norm", "linf");
    for_each_evaluation_field(history.evaluations.emplace_back(), fields_of(complete));
  } else if (kind == "ranks") {
    RankRecord& ranks = history.ranks.emplace_back();
    record.at("step").get_to(ranks.step);
    for (const json& value : record.at("bytes")) ranks.bytes.push_back(number_or_nan(value));
    ranks.seconds.resize(ranks.bytes.size() * kPhases);
    for (std::size_t phase = 0; phase < kPhases; ++phase)
      for (std::size_t rank = 0; rank < ranks.bytes.size(); ++rank)
        ranks.seconds[rank * kPhases + phase] = number_or_nan(record.at(kPhaseSeries[phase]).at(rank));
  } else if (kind == "straggler") {
    StragglerRecord& straggler = history.stragglers.emplace_back();
    record.at("step").get_to(straggler.step);
    record.at("rank").get_to(straggler.rank);
    record.at("slow").get_to(straggler.slow);
    straggler.ratio = number_or_nan(record.at("ratio"));
  } else if (kind == "corruption") {
    CorruptionRecord& corruption = history.corruptions.emplace_back();
    record.at("step").get_to(corruption.step);
    record.at("rank").get_to(corruption.rank);
    read_text(record, "what", corruption.what);
    read_text(record, "done", corruption.done);
  } else if (kind == "setback") {
    SetbackRecord& setback = history.setbacks.emplace_back();
    record.at("step").get_to(setback.step);
    read_text(record, "event", setback.event);
    read_text(record, "cause", setback.cause);
    setback.to_step = record.value("to_step", std::int64_t{0});
    setback.lr_factor = record.value("lr_factor", 1.0);
  } else if (kind == "left") {
    LeftRecord& left = history.left.emplace_back();
    record.at("step").get_to(left.step);
    record.at("rank").get_to(left.rank);
    read_text(record, "why", left.why);
  } else if (kind == "accusation") {
    AccusationRecord& accusation = history.accusations.emplace_back();
    accusation.by = rank_or_all(record.at("by"));
    record.at("step").get_to(accusation.step);
    record.at("rank").get_to(accusation.rank);
    read_text(record, "rule", accusation.rule);
    record.at("upheld").get_to(accusation.upheld);
  } else if (kind == "ban") {
    BanRecord& ban = history.bans.emplace_back();
    ban.by = rank_or_all(record.at("by"));
    record.at("step").get_to(ban.step);
    record.at("rank").get_to(ban.rank);
    read_text(record, "rule", ban.rule);
  } else if (kind == "run") {
    require(record.at("format_version") == kResultsFormat, ExitCode::data, "format ",
            record.at("format_version").dump(), ", but this program reads format ", kResultsFormat);
    record.at("layer_name").get_to(history.layer_names);
    record.at("layer_elements").get_to(history.layer_sizes);
    history.layer_costs = record.value("layer_cost", std::vector<double>());
    history.warmup_epochs = record.value("warmup_epochs", 0.0);
  } else {
    fail(ExitCode::data, "unknown kind '", kind, "'");
  }
}

/// One 1-D dataset per field of `records`, in `group`.
template <class Record, class ForEach>
void write_series(Hdf5File& file, const std::string& group, const std::vector<Record>& records, ForEach for_each) {
  const Record first{};
  std::size_t column = 0;
  for_each(first, [&](const char* name, const auto& example, const char* unit) {
    using Field = std::decay_t<decltype(example)>;
    using Value = std::conditional_t<std::is_same_v<Field, std::string>, std::string,
                                     std::conditional_t<std::is_floating_point_v<Field>, double, std::int64_t>>;
    std::vector<Value> values;
    values.reserve(records.size());
    for (const Record& record : records) {
      std::size_t at = 0;
      for_each(record, [&](const char*, const auto& value, const char*) {
        if constexpr (std::is_same_v<Value, std::string> == std::is_same_v<std::decay_t<decltype(value)>, std::string>)
          if (at == column) values.push_back(static_cast<Value>(value));
        ++at;
      });
    }
    ++column;
    const std::string path = group + "/" + name;
    if constexpr (std::is_same_v<Value, std::string>)
      file.write_texts(path, values);
    else
      file.write(path, {static_cast<std::int64_t>(values.size())}, values);
    if (*unit != '\0') file.set_text(path, "units", unit);
  });
}

void write_ranks(Hdf5File& file, const std::vector<RankRecord>& records) {
  std::vector<std::int64_t> steps;
  std::size_t ranks = 0;
  for (const RankRecord& record : records) {
    steps.push_back(record.step);
    ranks = std::max(ranks, record.bytes.size());
  }
  file.write("ranks/step", {static_cast<std::int64_t>(steps.size())}, steps);
  const auto write = [&](const std::string& name, const char* unit, auto value) {
    std::vector<double> values(records.size() * ranks, std::numeric_limits<double>::quiet_NaN());
    for (std::size_t i = 0; i < records.size(); ++i)
      for (std::size_t rank = 0; rank < records[i].bytes.size(); ++rank)
        values[i * ranks + rank] = value(records[i], rank);
    file.write("ranks/" + name, {static_cast<std::int64_t>(records.size()), static_cast<std::int64_t>(ranks)}, values);
    file.set_text("ranks/" + name, "units", unit);
  };
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    write(kPhaseSeries[phase], "s",
          [phase](const RankRecord& record, std::size_t rank) { return record.seconds[rank * kPhases + phase]; });
  write("bytes", "byte", [](const RankRecord& record, std::size_t rank) { return record.bytes[rank]; });
}

/// Steps in which nobody has measured are NaN; nothing where nobody ever has.
void write_distances(Hdf5File& file, const History& history) {
  const std::vector<std::vector<double>>& distances = history.distances;
  const std::size_t ranks = history.ranks_with_distances();
  if (ranks == 0) return;
  std::vector<double> table(distances.size() * ranks, std::numeric_limits<double>::quiet_NaN());
  for (std::size_t step = 0; step < distances.size(); ++step)
    std::copy(distances[step].begin(), distances[step].end(),
              table.begin() + static_cast<std::ptrdiff_t>(step * ranks));
  file.write("history/step/distance", {static_cast<std::int64_t>(distances.size()), static_cast<std::int64_t>(ranks)},
             table);
}

/// Who has been accused of what, and who has been banned; by -1: all have seen it.
void write_accusations(Hdf5File& file, const History& history) {
  const auto of = [](const auto& record, auto&& field) {
    field("step", record.step, "");
    field("rank", static_cast<std::int64_t>(record.rank), "");
    field("by", static_cast<std::int64_t>(record.by), "");
    field("rule", record.rule, "");
  };
  write_series(file, "bans", history.bans, of);
  write_series(file, "accusations", history.accusations, [&](const AccusationRecord& record, auto&& field) {
    of(record, field);
    field("upheld", static_cast<std::int64_t>(record.upheld ? 1 : 0), "");
  });
}

}  // namespace

std::size_t History::ranks_with_distances() const {
  std::size_t most = 0;
  for (const std::vector<double>& all : distances) most = std::max(most, all.size());
  return most;
}

std::int64_t History::active_layers(std::size_t step) const {
  std::int64_t count = 0;
  for (std::size_t layer = 0; layer < layers(); ++layer) count += active[step * layers() + layer];
  return count;
}

std::vector<std::array<double, kPhases>> History::phase_seconds() const {
  std::vector<std::array<double, kPhases>> seconds;
  for (const RankRecord& record : ranks) {
    seconds.resize(std::max(seconds.size(), record.bytes.size()));
    for (std::size_t i = 0; i < record.seconds.size(); ++i)
      if (std::isfinite(record.seconds[i])) seconds[i / kPhases][i % kPhases] += record.seconds[i];
  }
  if (!seconds.empty()) return seconds;
  seconds.resize(1);
  for (const StepRecord& step : steps)
    for (std::size_t phase = 0; phase < kPhases; ++phase) seconds[0][phase] += step.seconds[phase];
  return seconds;
}

std::vector<EvaluationSeries> History::evaluation_series() const {
  std::vector<EvaluationSeries> all;
  for (const EvaluationRecord& record : evaluations) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const EvaluationSeries& series) {
      const EvaluationRecord& other = *series.front();
      return other.split == record.split && other.weights == record.weights && other.attack == record.attack &&
             other.norm == record.norm && other.eps == record.eps && other.alpha == record.alpha &&
             other.restarts == record.restarts;
    });
    (found == all.end() ? all.emplace_back() : *found).push_back(&record);
  }
  return all;
}

History read_history(const std::string& folder) {
  const std::string path = folder + "/metrics.jsonl";
  std::ifstream file(path);
  require(file.is_open(), ExitCode::data, "no run in ", folder, ": cannot open metrics.jsonl");
  History history;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line) && !file.eof(); ++number) {
    try {
      append(json::parse(line), history);
    } catch (const std::exception& error) {
      fail(ExitCode::data, path, ", line ", number, " is damaged: ", error.what());
    }
  }
  require(!file.bad(), ExitCode::io, "cannot read ", path);
  return history;
}

void write_results(const RunFacts& facts, const History& history) {
  write_sealed(facts.folder + "/results.h5", [&](const std::string& temporary) {
    Hdf5File file = Hdf5File::create(temporary);
    file.set_text("/", "filetype", "results");
    file.set_integer("/", "format_version", kResultsFormat);
    file.set_text("/", "config_toml", facts.config_toml);
    file.set_text("/", "provenance", facts.provenance_json);

    const auto rows = static_cast<std::int64_t>(history.steps.size());
    const auto layers = static_cast<std::int64_t>(history.layers());
    write_series(file, "history/step", history.steps,
                 [](const StepRecord& record, auto&& field) { for_each_step_field(record, field); });
    std::vector<std::int64_t> n_active, steps;
    for (std::size_t i = 0; i < history.steps.size(); ++i) {
      n_active.push_back(history.active_layers(i));
      steps.push_back(history.steps[i].step);
    }
    file.write("history/step/n_active", {rows}, n_active);
    write_series(file, "history/evaluation", history.evaluations,
                 [](const EvaluationRecord& record, auto&& field) { for_each_evaluation_field(record, field); });

    file.write_texts("jointspar/layer_name", history.layer_names);
    file.write("jointspar/layer_elements", {layers}, history.layer_sizes);
    if (!history.layer_costs.empty()) file.write("jointspar/layer_cost", {layers}, history.layer_costs);
    file.write("jointspar/step", {rows}, steps);
    file.write("jointspar/p", {rows, layers}, history.p);
    file.write("jointspar/active", {rows, layers}, history.active);
    file.write("jointspar/norm", {rows, layers}, history.norms);

    write_ranks(file, history.ranks);
    write_distances(file, history);
    if (history.had_generators)
      write_series(file, "history/step", history.generators,
                   [](const GeneratorRecord& r, auto&& field) { for_each_generator_field(r, field); });
    if (!history.accusations.empty()) write_accusations(file, history);
    file.close();
  });
}

void write_results(const RunFacts& facts) { write_results(facts, read_history(facts.folder)); }

}  // namespace dat
