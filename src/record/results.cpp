#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "dat/error.hpp"
#include "files/outside_json.hpp"
#include "hdf5/hdf5.hpp"
#include "record/fields.hpp"
#include "record/history.hpp"

namespace dat {
namespace {

using nlohmann::json;

// A line that is damaged leaves the history as it is.

[[nodiscard]] std::vector<float> layers_of(const json& values, std::size_t layers) {
  require(values.size() == layers, ExitCode::data, values.size(), " values for ", layers, " layers");
  std::vector<float> all;
  for (const json& value : values) all.push_back(static_cast<float>(number_or_nan(value)));
  return all;
}

void append_step(const json& record, History& history) {
  StepRecord step;
  for_each_step_field(step, fields_of(record));
  const std::string& active = record.at("active").get_ref<const std::string&>();
  require(active.size() == history.layers(), ExitCode::data, active.size(), " marks for ", history.layers(), " layers");
  const std::vector<float> p = layers_of(record.at("p"), history.layers()),
                           norms = layers_of(record.at("norm"), history.layers());
  GeneratorRecord generators;
  const bool has_generators = record.contains("t_generators");
  if (has_generators) for_each_generator_field(generators, fields_of(record));
  std::vector<double> distances;
  for (const json& value : record.value("distance", json::array())) distances.push_back(number_or_nan(value));
  history.steps.push_back(step);
  for (const char mark : active) history.active.push_back(mark == '1');
  history.p.insert(history.p.end(), p.begin(), p.end());
  history.norms.insert(history.norms.end(), norms.begin(), norms.end());
  history.generators.push_back(generators);
  history.had_generators = history.had_generators || has_generators;
  history.distances.push_back(distances);
}

void append_evaluation(const json& record, History& history) {
  EvaluationRecord evaluation;
  for_each_evaluation_field(evaluation, fields_of(record));
  history.evaluations.push_back(evaluation);
}

void append_ranks(const json& record, History& history) {
  RankRecord ranks{.step = count_in<std::int64_t>(record.at("step")), .seconds = {}, .bytes = {}};
  for (const json& value : record.at("bytes")) ranks.bytes.push_back(number_or_nan(value));
  for (std::size_t rank = 0; rank < ranks.bytes.size(); ++rank)
    for (const char* phase : kPhaseSeries) ranks.seconds.push_back(number_or_nan(record.at(phase).at(rank)));
  history.ranks.push_back(ranks);
}

void append_header(const json& record, History& history) {
  record.at("layer_name").get_to(history.layer_names);
  history.layer_sizes.clear();
  for (const json& elements : record.at("layer_elements"))
    history.layer_sizes.push_back(count_in<std::int64_t>(elements));
  record.at("layer_cost").get_to(history.layer_costs);
  record.at("warmup_epochs").get_to(history.warmup_epochs);
}

/// Kinds of lines that are no events.
const std::map<std::string_view, void (*)(const json&, History&)> kSeries = {
    {"run", append_header}, {"step", append_step}, {"evaluation", append_evaluation}, {"ranks", append_ranks}};

void append(const json& record, History& history) {
  const std::string& name = record.at("kind").get_ref<const std::string&>();
  history.ends_in_step = name == "step";
  if (const auto series = kSeries.find(name); series != kSeries.end()) return series->second(record, history);
  const EventKind* kind = kind_named(name, *history.kinds);
  require(kind != nullptr, ExitCode::data, "unknown kind '", name, "'");
  history.events.push_back(kind->read(record));
}

/// Appends a line that may be damaged. False: it is.
[[nodiscard]] bool append_whole(const std::string& line, History& history) {
  try {
    append(parsed_json(line), history);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// One try of read_recent.
[[nodiscard]] RecentHistory read_recent_once(const std::string& path, std::size_t steps,
                                             const std::vector<EventKind>& kinds) {
  RecentHistory recent;
  recent.history.kinds = &kinds;
  if (std::error_code error; !std::filesystem::is_regular_file(path, error)) return recent;  // a pipe would wait
  constexpr std::size_t kPiece = 1 << 20;
  std::vector<char> piece(kPiece);
  std::ifstream file;
  file.rdbuf()->pubsetbuf(piece.data(), kPiece);
  file.open(path);
  std::string line;
  std::vector<std::string> last(steps);  // a ring
  std::size_t number = 0;
  bool of_step = false;
  for (bool first = true; std::getline(file, line) && !file.eof(); first = false) {
    of_step = line.starts_with("{\"kind\":\"step\"");
    if (of_step) {
      std::swap(last[number++ % steps], line);
    } else if (!append_whole(line, recent.history)) {
      const json header = first ? json_or_discarded(line) : json();
      require(!header.is_object() || !header.contains("kind") || header["kind"] != "run", ExitCode::data, path,
              " is of another format, ", "and this program reads format ", kResultsFormat);
      ++recent.damaged;
    }
  }
  for (std::size_t k = number - std::min(number, steps); k < number; ++k)
    if (!append_whole(last[k % steps], recent.history)) ++recent.damaged;
  recent.history.ends_in_step = of_step;
  return recent;
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
    std::ranges::copy(distances[step], table.begin() + static_cast<std::ptrdiff_t>(step * ranks));
  file.write("history/step/distance", {static_cast<std::int64_t>(distances.size()), static_cast<std::int64_t>(ranks)},
             table);
}

/// All tables of events, where there is an event for any of them.
void write_events(Hdf5File& file, const History& history) {
  const std::vector<EventKind>& kinds = *history.kinds;
  if (std::ranges::none_of(
          kinds, [&](const EventKind& kind) { return kind.write_table != nullptr && kind.count(history) > 0; }))
    return;
  for (const EventKind& kind : kinds)
    if (kind.write_table != nullptr) kind.write_table(file, history);
}

}  // namespace

double History::seconds() const {
  double last = steps.empty() ? 0 : steps.back().wall_time;
  for (const EvaluationRecord& r : evaluations) last = std::max(last, r.wall_time);
  return last;
}

std::size_t History::ranks_with_distances() const {
  std::size_t most = 0;
  for (const std::vector<double>& all : distances) most = std::max(most, all.size());
  return most;
}

std::int64_t History::active_layers(std::size_t step) const {
  const auto begin = active.begin() + static_cast<std::ptrdiff_t>(step * layers());
  return std::accumulate(begin, begin + std::ssize(layer_names), std::int64_t{0});
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
    const auto found = std::ranges::find_if(all, [&](const EvaluationSeries& series) {
      const EvaluationRecord& other = *series.front();
      return other.split == record.split && other.weights == record.weights && other.attack == record.attack &&
             other.norm == record.norm && other.eps == record.eps && other.alpha == record.alpha &&
             other.restarts == record.restarts;
    });
    (found == all.end() ? all.emplace_back() : *found).push_back(&record);
  }
  return all;
}

History read_history(const std::string& folder, const std::vector<EventKind>& kinds) {
  const std::string path = folder + "/metrics.jsonl";
  std::ifstream file(path);
  require(file.is_open(), ExitCode::data, "no run in ", folder, ": cannot open metrics.jsonl");
  History history;
  history.kinds = &kinds;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line) && !file.eof(); ++number) {
    json format;
    try {
      const json record = parsed_json(line);
      format = record.value("format_version", json(number == 1 ? 0 : kResultsFormat));
      if (format == kResultsFormat) append(record, history);
    } catch (const std::exception& error) {
      fail(ExitCode::data, path, ", line ", number, " is damaged: ", error.what());
    }
    require(format == kResultsFormat, ExitCode::data, path, " is of another version of the program: it has format ",
            format.is_structured() ? "none" : format.dump(), ", this one reads ", kResultsFormat);
  }
  require(!file.bad(), ExitCode::io, "cannot read ", path);
  return history;
}

RecentHistory read_recent(const std::string& folder, std::size_t steps, const std::vector<EventKind>& kinds) {
  RecentHistory recent;
  for (int tries = 0; tries < 3; ++tries) {
    recent = read_recent_once(folder + "/metrics.jsonl", steps, kinds);
    if (recent.damaged == 0) break;
  }
  return recent;
}

void write_results(const RunFacts& facts, const History& history, const FinalResult* result) {
  write_sealed_hdf5(facts.folder + "/results.h5", [&](Hdf5File& file) {
    file.set_text("/", "filetype", "results");
    file.set_integer("/", "format_version", kResultsFormat);
    file.set_text("/", "config_toml", facts.config_toml);
    file.set_text("/", "provenance", facts.provenance_json);
    if (result != nullptr) {
      file.set_text("/", "weights_hash", result->weights_hash);
      file.set_text("/", "verdict", verdict_text(result->verdict));
      json figures = json::array();
      for (const EvaluationRecord& one : result->evaluations)
        for_each_evaluation_field(one, [row = &figures.emplace_back()](const char* name, const auto& value,
                                                                       const char*) { (*row)[name] = value; });
      file.set_text("/", "figures", figures.dump());
    }

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
    file.write("jointspar/layer_cost", {layers}, history.layer_costs);
    file.write("jointspar/step", {rows}, steps);
    file.write("jointspar/p", {rows, layers}, history.p);
    file.write("jointspar/active", {rows, layers}, history.active);
    file.write("jointspar/norm", {rows, layers}, history.norms);

    write_ranks(file, history.ranks);
    write_distances(file, history);
    if (history.had_generators)
      write_series(file, "history/step", history.generators,
                   [](const GeneratorRecord& r, auto&& field) { for_each_generator_field(r, field); });
    write_events(file, history);
  });
}

}  // namespace dat
