#include "run/begin/left.hpp"

#include <sstream>

#include "dat/error.hpp"
#include "train/message/stateful.hpp"

namespace dat {

namespace {

const char* const kLeft = "left";

/// "RANK STEP WHY", a line each.
[[nodiscard]] std::string text_of(const std::vector<LeftRecord>& records) {
  std::string text;
  for (const LeftRecord& one : records)
    text += std::to_string(one.rank) + " " + std::to_string(one.step) + " " + one.why + "\n";
  return text;
}

[[nodiscard]] std::vector<LeftRecord> records_of(const std::string& text) {
  std::vector<LeftRecord> records;
  std::istringstream lines(text);
  for (LeftRecord one; lines >> one.rank >> one.step && std::getline(lines >> std::ws, one.why);)
    records.push_back(one);
  return records;
}

}  // namespace

void save_left(const std::vector<LeftRecord>& records, Checkpoint& checkpoint) {
  if (!records.empty()) checkpoint.texts[kLeft] = text_of(records);
}

std::vector<LeftRecord> left_at(const Checkpoint& checkpoint, const std::string& where) {
  const auto found = checkpoint.texts.find(kLeft);
  if (found == checkpoint.texts.end()) return {};
  std::vector<LeftRecord> records = records_of(found->second);
  const std::int64_t ranks = integer_of(checkpoint, "ranks") + std::ssize(records);
  for (const LeftRecord& one : records)
    require(one.rank > 0 && one.rank < ranks, ExitCode::checkpoint, where, ": the checkpoint of step ",
            integer_of(checkpoint, "step"), " says that rank ", one.rank, " of ", ranks,
            " has left: it is damaged; remove it, or go on from another one");
  return records;
}

void share(std::vector<LeftRecord>& records, Communicator& ranks) {
  std::string text = text_of(records);
  ranks.broadcast(text);
  records = records_of(text);
}

}  // namespace dat
