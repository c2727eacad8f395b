#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "assess/sequence.hpp"
#include "assess/sequence_files.hpp"
#include "dat/run_lock.hpp"
#include "replica/replica.hpp"

namespace dat {

/// An evaluation's sequence of attacks: what it attacks with, the folder where it goes on after an interruption and
/// leaves its results, and its messages for people meanwhile.
class SequenceRun {
 public:
  struct Options {
    BallNorm norm = BallNorm::linf;
    double eps = 0;
    double alpha = 0;  ///< 0: each attack's own
    std::uint64_t seed = 1;
    bool save_adversarial = false;  ///< keep the images that attacks have broken, where there is a folder
    bool quiet = false;
    double progress = 10;  ///< seconds between progress lines
  };
  /// classes: of the network. Plans the attacks.
  SequenceRun(AttackSequence sequence, const Options& options, int classes);

  [[nodiscard]] const AttackSequence& sequence() const { return sequence_; }
  [[nodiscard]] const SequenceAttacks& attacks() const { return attacks_; }
  /// Warnings about the network that some forward passes have given; on rank 0, after run().
  [[nodiscard]] const std::vector<std::string>& network_warnings() const { return network_warnings_; }
  [[nodiscard]] const Options& options() const { return options_; }

  /// Plans the evaluation of this replica on these images; both outlive it.
  void plan(Communicator& ranks, const Dataset& images, Replica& replica);
  /// Opens the folder, on rank 0, after plan(): where the evaluation goes on if there is one. training: a hash of the
  /// options of the network's training, which say what it computes with its weights. Error(usage): the folder is a
  /// training's; else as RunLock, Journal and AdversarialImages.
  void open(const std::string& folder, const std::string& training);
  [[nodiscard]] bool has_folder() const { return folder_ != nullptr; }

  /// Runs the sequence, from where the folder's journal ends. Prints what the user should know before. **Collective.**
  [[nodiscard]] SequenceResult run();
  /// Writes results.h5, and the attacked images, into the folder. facts: of the whole evaluation. Error(io).
  void write(const SequenceResult& result, const FileFacts& facts);

 private:
  /// Files of rank 0.
  struct Folder {
    std::string path;
    std::unique_ptr<RunLock> lock;
    Journal journal;
    std::optional<AdversarialImages> adversarial{};
  };
  /// All that decides about the flags of the sequence.
  [[nodiscard]] Facts facts(const std::string& training) const;
  void tell(const std::vector<JournalEntry>& found);

  AttackSequence sequence_;
  Options options_;
  SequenceAttacks attacks_;
  Communicator* ranks_ = nullptr;
  const Dataset* images_ = nullptr;
  Replica* replica_ = nullptr;
  std::unique_ptr<SequenceEvaluator> evaluator_;
  std::unique_ptr<Folder> folder_;  ///< null: nothing is kept
  std::vector<std::string> network_warnings_;
};

}  // namespace dat
