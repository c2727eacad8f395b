#include "assess/journal.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "dat/tick.hpp"
#include "files/outside_json.hpp"
#include "files/whole_number.hpp"
#include "printed.hpp"
#include "replica/model_state.hpp"

namespace dat {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kJournalFormat = 1;

[[nodiscard]] std::string header_of(const std::string& kind, const Facts& facts) {
  Json json = {{"kind", kind}, {"format_version", kJournalFormat}};
  for (const auto& [name, value] : facts) json["facts"][name] = value;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// "seed is 1 there and 2 here", or nothing where both say the same.
[[nodiscard]] std::string difference(const std::string& there, const std::string& here) {
  if (there == here) return {};
  const Json old = Json::parse(there, nullptr, false), now = Json::parse(here);
  if (!old.is_object() || old.value("kind", Json()) != now["kind"] ||
      old.value("format_version", Json()) != kJournalFormat || !old.contains("facts") || !old["facts"].is_object())
    return "it is no journal that this program reads";
  const Json& facts = old["facts"];
  const auto text = [](const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); };
  for (const auto& [name, value] : now["facts"].items())
    if (!facts.contains(name) || facts[name] != value)
      return name + " is " + (facts.contains(name) ? text(facts[name]) : "not named") + " there and " + text(value) +
             " here";
  return "it says more than this program knows";
}

/// Error(usage): a folder is that of a training, or of another kind of files than `what` writes. Journals may have been
/// removed at an end.
void refuse_other_folder(const std::string& folder, const std::string& what, const std::string& instead) {
  const std::filesystem::path path = folder;
  const auto there = [&](const char* name) { return std::filesystem::exists(path / name); };
  const bool certified = there("certify.journal") || there("certify.json");
  const bool sequence = there("sequence.journal") || (there("results.h5") && there("eval.json"));
  const bool single = !certified && !sequence && (there("eval.json") || there("adversarial.h5"));
  const std::vector<std::pair<bool, std::string>> signs = {{there("metrics.jsonl") || there("ckpt"), "training"},
                                                           {certified, "certification"},
                                                           {sequence && !certified, "evaluation"},
                                                           {single, "evaluation without a sequence"}};
  for (const auto& [found, whose] : signs)
    require(whose == what || !found, ExitCode::usage, "--out ", folder, " is the folder of ",
            whose.starts_with("e") ? "an " : "a ", whose, ", whose files this ", what,
            " would overwrite; take another one, such as ", (path / instead).string());
}

}  // namespace

Journal::Journal(std::string path, const std::string& kind, const Facts& facts) : path_(std::move(path)) {
  const std::string header = header_of(kind, facts);
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  require(file_ != -1, ExitCode::io, "cannot read and write ", path_, ": ", system_reason(errno));
  std::string text;
  char piece[1 << 16];
  for (ssize_t got; (got = TEMP_FAILURE_RETRY(::read(file_, piece, sizeof piece))) != 0;
       text.append(piece, static_cast<std::size_t>(got)))
    require(got != -1, ExitCode::io, "cannot read ", path_, ": ", system_reason(errno));
  // Text after the last line break is left by a killed writer; before it, a failing disk may have left anything.
  std::size_t end = text.rfind('\n') + 1;
  const std::size_t last = std::string_view(text).substr(0, end - 1).rfind('\n') + 1;
  if (!Json::accept(text.substr(last, end - last))) end = last;
  // A writer that was killed at once has left the beginning of its first line. Anything else is not ours to be emptied.
  require(end != 0 || header.starts_with(text), ExitCode::usage, path_,
          " is not the journal of this evaluation; choose another --out");
  text.resize(end);
  const std::size_t first = text.find('\n') + 1;
  if (first != 0) {
    const std::string found = difference(text.substr(0, first), header);
    require(found.empty(), ExitCode::usage, path_, " is the journal of another evaluation: ", found,
            "; choose another --out, or remove it to begin anew");
  }
  found_ = text.substr(first);
  require(::ftruncate(file_, static_cast<off_t>(end)) == 0, ExitCode::io, "cannot write ", path_, ": ",
          system_reason(errno));
  bytes_ = static_cast<std::int64_t>(end);
  if (first == 0) write(header);
}

Journal::~Journal() { ::close(file_); }

void Journal::append(const std::string& line) { write(line + "\n"); }

std::string line_of(const JournalEntry& entry) {
  std::vector<std::int32_t> predictions, flags;
  std::vector<double> distances;
  for (const ImageOutcome& outcome : entry.outcomes) {
    predictions.push_back(outcome.prediction);
    distances.push_back(double{outcome.distance});
    flags.push_back(outcome.flags);
  }
  const Json json = {{"stage", entry.stage},      {"seconds", entry.seconds}, {"images", entry.images},
                     {"prediction", predictions}, {"distance", distances},    {"flags", flags}};
  return json.dump();
}

void Journal::write(const std::string& text) {
  require_alone(file_, bytes_, path_);
  write_bytes(file_, text, path_);
  bytes_ += std::ssize(text);
  require(::fdatasync(file_) == 0, ExitCode::io, path_, ": cannot bring it to disk: ", system_reason(errno));
  tick();
}

Facts facts_with(const Facts& own, Replica& replica, const std::string& training, const Dataset& images) {
  const std::vector<float> statistics = running_statistics(replica.model());
  const Facts network = {
      {"precision", replica.backend().arithmetic()},
      {"images in a pass", std::to_string(replica.frozen().n())},
      {"hash of the training's options", training},
      {"hash of the weights", weights_hash(replica.model())},
      {"hash of the running statistics", sha256_hex(statistics.data(), std::span(statistics).size_bytes())},
      {"number of images", std::to_string(images.size())},
      {"hash of the images", content_hash(images)}};
  Facts all = build_facts();
  for (const Facts& more : {own, network}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::unique_ptr<RunLock> take_folder(const std::string& folder, const std::string& what, const std::string& instead) {
  refuse_other_folder(folder, what, instead);  // before it waits for anybody
  auto lock = std::make_unique<RunLock>(folder, say);
  refuse_other_folder(folder, what, instead);  // who was there has written meanwhile
  if (!lock->warning().empty()) say("warning: " + lock->warning());
  lock->sign(host_name(), false);  // else the folder looks like that of a training that begins
  return lock;
}

void read_lines(const std::string& lines, const std::string& name,
                const std::function<void(const std::string&)>& read) {
  std::istringstream text(lines);
  int number = 1;  // the first one stands before them
  for (std::string line; std::getline(text, line);) {
    ++number;
    try {
      read(line);
    } catch (const std::exception& error) {
      fail(ExitCode::data, name, ": line ", number, " is damaged: ", error.what(), "; remove it and all after it");
    }
  }
}

std::vector<JournalEntry> read_journal(const std::string& lines, const std::string& name) {
  std::vector<JournalEntry> all;
  read_lines(lines, name, [&](const std::string& line) {
    const auto json = parsed_json<Json>(line);
    JournalEntry& entry = all.emplace_back();
    entry.stage = count_in<int>(json.at("stage"));
    json.at("seconds").get_to(entry.seconds);
    entry.images = counts_in<std::int64_t>(json.at("images"));
    const auto predictions = counts_in<std::int32_t>(json.at("prediction"));
    const auto distances = json.at("distance").get<std::vector<double>>();
    const auto flags = counts_in<std::int32_t>(json.at("flags"));
    const std::size_t n = entry.images.size();
    require(predictions.size() == n && distances.size() == n && flags.size() == n, ExitCode::data,
            "its lists are not of one length");
    for (std::size_t i = 0; i < n; ++i)
      entry.outcomes.push_back({predictions[i], static_cast<float>(distances[i]), flags[i]});
  });
  return all;
}

}  // namespace dat
