#include "assess/sequence_run.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "assess/progress_lines.hpp"
#include "communicate/together.hpp"
#include "printed.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

[[nodiscard]] std::string exact(double value) { return fmt::format("{:.17g}", value); }

}  // namespace

SequenceRun::SequenceRun(AttackSequence sequence, const Options& options, int classes)
    : sequence_(std::move(sequence)),
      options_(options),
      attacks_(sequence_, options.norm, options.eps, options.alpha, classes) {}

void SequenceRun::plan(Communicator& ranks, const Dataset& images, Replica& replica) {
  ranks_ = &ranks;
  images_ = &images;
  replica_ = &replica;
  evaluator_ = std::make_unique<SequenceEvaluator>(ranks, images, replica.images(), replica.evaluated());
}

Facts SequenceRun::facts(const std::string& training) const {
  std::string members;
  for (const SequenceAttacks::Member& member : attacks_.members())
    members += (members.empty() ? "" : ", ") + member.name + " x " + std::to_string(member.runs);
  return facts_with({{"sequence", sequence_.name},
                     {"its runs", members},
                     {"norm", name_of(options_.norm)},
                     {"eps", exact(options_.eps)},
                     {"alpha", exact(options_.alpha)},
                     {"seed", std::to_string(options_.seed)},
                     {"adversarial images kept", options_.save_adversarial ? "yes, with confidence" : "no"}},
                    *replica_, training, *images_);
}

void SequenceRun::open(const std::string& folder, const std::string& training) {
  const fs::path path = folder;
  folder_.reset(new Folder{path.string(), take_folder(folder, "evaluation", sequence_.name),
                           Journal((path / "sequence.journal").string(), "attack sequence", facts(training))});
  std::error_code ignored;
  if (folder_->journal.found().empty())  // files that an earlier evaluation has left are not this one's
    for (const char* stale : {"adversarial.h5", "adversarial.part", "results.h5", "eval.json"})
      fs::remove(path / stale, ignored);
  if (!options_.save_adversarial) return;
  folder_->adversarial.emplace(path.string(), *images_, !folder_->journal.found().empty());
}

void SequenceRun::tell(const std::vector<JournalEntry>& found) {
  std::vector<std::int32_t> labels;
  network_warnings_ = dat::network_warnings(evaluator_->logits_of_first(labels), labels);
  for (const std::string& warning : network_warnings_) say("warning: " + warning);
  for (const std::string& notice : attacks_.notices()) say(notice);
  if (!sequence_.remark.empty()) say(sequence_.name + ": " + sequence_.remark);
  if (!options_.quiet && !found.empty())
    say(fmt::format("goes on after {} groups of images in {}/sequence.journal", found.size(), folder_->path));
}

SequenceResult SequenceRun::run() {
  SequenceEvaluator::Options run{.seed = options_.seed, .images_wanted = options_.save_adversarial};
  std::string found = folder_ ? folder_->journal.found() : "";
  ranks_->broadcast(found);
  together(*ranks_,
           [&] { run.found = read_journal(found, (folder_ ? folder_->path + "/" : "") + "sequence.journal"); });
  if (ranks_->root()) {
    tell(run.found);
    if (!options_.quiet) run.progress = ProgressLines(options_.progress);
    if (folder_) {
      run.entry = [folder = folder_.get()](const JournalEntry& entry) {
        if (folder->adversarial) folder->adversarial->sync();
        folder->journal.append(line_of(entry));
      };
      run.broken = [folder = folder_.get()](std::int64_t image, const float* pixels, float confidence) {
        folder->adversarial->keep(image, pixels, confidence);
      };
    }
  }
  return evaluator_->run(attacks_, run);
}

void SequenceRun::write(const SequenceResult& result, const FileFacts& facts) {
  FileFacts all = {{"sequence", sequence_.name},
                   {"title", sequence_.title},
                   {"norm", name_of(options_.norm)},
                   {"eps", exact(options_.eps)},
                   {"seed", std::to_string(options_.seed)}};
  all.insert(all.end(), facts.begin(), facts.end());
  if (folder_->adversarial) folder_->adversarial->finish(result, all);
  write_sequence_results(folder_->path + "/results.h5", *images_, result, all);
}

}  // namespace dat
