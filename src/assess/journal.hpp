#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "communicate/handshake.hpp"
#include "dat/dataset.hpp"
#include "dat/run_lock.hpp"
#include "replica/replica.hpp"

namespace dat {

/// Result of one run of an attack on one image. Ranks exchange it as it lies in memory.
struct ImageOutcome {
  static constexpr std::int32_t kNotFinite = 1;     ///< a logit is not finite
  static constexpr std::int32_t kOutside = 2;       ///< the image is outside of the ball, or of [0, 1]
  static constexpr std::int32_t kZeroGradient = 4;  ///< the loss's gradient is 0 in every pixel of the clean image

  std::int32_t prediction = 0;  ///< class of the attacked image, by a forward pass of its own
  float distance = 0;           ///< distance by the norm of the attacked image from the clean one
  std::int32_t flags = 0;

  friend bool operator==(const ImageOutcome&, const ImageOutcome&) = default;
};

/// Results of one run of an attack on a group of images: a line of the journal.
struct JournalEntry {
  int stage = 0;       ///< number of the run in the sequence, all runs of all attacks counted; 0: the clean images
  double seconds = 0;  ///< seconds that rank 0 took for the group
  std::vector<std::int64_t> images;  ///< numbers of the images in the set, increasing
  std::vector<ImageOutcome> outcomes;

  friend bool operator==(const JournalEntry&, const JournalEntry&) = default;
};

/// Results of an evaluation so far, on disk, so that a killed evaluation continues: a line of JSON that says what
/// decides about the results, and one more line for each group of images, each written in one write. Nothing but the
/// end of the file is ever changed.
class Journal {
 public:
  /// Begins a journal, or goes on in one. A last line that is not whole is cut off. Error(usage): the journal is that
  /// of another evaluation; the message names the first thing in which the two differ. Error(io).
  ///
  /// @param kind   What the journal is of: "attack sequence".
  /// @param facts  Everything that decides about the results, by name.
  Journal(std::string path, const std::string& kind, const Facts& facts);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// The lines after the first one, as they were found.
  [[nodiscard]] const std::string& found() const { return found_; }
  /// Adds a line, a JSON value without its line break, which is on disk when this returns. Error(usage), as
  /// require_alone(). Error(io).
  void append(const std::string& line);

 private:
  void write(const std::string& text);

  std::string path_, found_;
  int file_ = -1;
  std::int64_t bytes_ = 0;  ///< length of the file
};

/// All that decides about a network's results for these images, for a journal: facts of the build, an evaluation's
/// `own`, those of the network. training: a hash of the options of the network's training.
[[nodiscard]] Facts facts_with(const Facts& own, Replica& replica, const std::string& training, const Dataset& images);

/// Takes a folder for what an "evaluation" with a sequence, an "evaluation without a sequence" or a "certification"
/// (`what`) writes, and signs its lock. Error(usage): it is that of a training, or of another of these; else as
/// RunLock. instead: a folder to take.
[[nodiscard]] std::unique_ptr<RunLock> take_folder(const std::string& folder, const std::string& what,
                                                   const std::string& instead);

/// Calls `read` with each line of Journal::found(). Error(data): it has thrown; `name` is the file's.
void read_lines(const std::string& lines, const std::string& name, const std::function<void(const std::string&)>& read);

/// An entry as a line, and the entries in Journal::found(). Error(data): an entry is damaged; `name` is the file's.
[[nodiscard]] std::string line_of(const JournalEntry& entry);
[[nodiscard]] std::vector<JournalEntry> read_journal(const std::string& lines,
                                                     const std::string& name = "sequence.journal");

}  // namespace dat
