#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dat {

/// Everything that a run needs to go on bit for bit, independent of the number of ranks. A checkpoint is one HDF5 file
/// with /param/NAME, /optim/ARRAY/NAME, /bn/NAME (PyTorch's names, shapes and order), /codec/ARRAY in memory's order,
/// /state/* for the rest.
struct Checkpoint {
  struct Array {
    std::string name;  ///< path in the file, e.g. "param/layer1.0.conv1.weight"
    std::vector<std::int64_t> shape;
    std::vector<float> values;
  };
  std::vector<Array> arrays;
  struct Bytes {
    std::vector<std::int64_t> shape;
    std::vector<std::uint8_t> values;
  };
  std::map<std::string, Bytes> bytes;                  ///< "state/NAME": uint8 dataset
  std::map<std::string, std::vector<double>> doubles;  ///< "state/NAME": 1-D float64 dataset
  std::map<std::string, std::int64_t> integers;        ///< "state/NAME": scalar int64 attribute of /state
  std::map<std::string, std::string> texts;            ///< root attributes: config_toml, dat_hpc_version, git_sha1, ...

  /// Error(checkpoint) where there is no such array or its shape differs.
  [[nodiscard]] const Array& array(const std::string& name, const std::vector<std::int64_t>& shape) const;
};

/// The evaluation with the best robust accuracy so far on the images held out, after which best.h5 was written. Every
/// checkpoint of a run has such a record, best.h5 its own: comparing the two shows whether best.h5 is the file that the
/// checkpoint means, or belongs to a part of the run that was lost.
struct BestRecord {
  double accuracy = -1;  ///< robust, the worst of the attacks; -1: there has been none
  /// Step of the evaluation, as counted in that part of the run; -1: there has been none.
  std::int64_t step = -1;
  std::int64_t bytes = -1;  ///< length of metrics.jsonl when best.h5 was written; -1: as for step

  /// The record that a checkpoint holds.
  [[nodiscard]] static BestRecord of(const Checkpoint&);
  void save(Checkpoint&) const;
  friend bool operator==(const BestRecord&, const BestRecord&) = default;
};

/// Writes a sealed file (file.hpp). Error(io).
void write_checkpoint(const std::string& path, const Checkpoint&);
/// Checks the seal, then reads. Error(checkpoint): the message has the file's name and what is wrong with it.
[[nodiscard]] Checkpoint read_checkpoint(const std::string& path);
/// Weights and running statistics (arrays "param/NAME", "bn/NAME") of a checkpoint, or of a PyTorch state_dict that was
/// saved as an HDF5 file of float32 datasets (docs/manual/export_import.md): a leading "module." of the names is left
/// out, and the highest num_batches_tracked is the integer batches_tracked. Error(checkpoint).
[[nodiscard]] Checkpoint read_weights(const std::string& path);

/// The folder `ckpt` of a run: step-NNNNNNNNN.h5, of which the last three are kept, `latest`, which names the newest,
/// and best.h5. A best.h5 that is no longer the best one is kept as best-NNNNNNNNN.h5, by its step or, where another
/// one has that, the next free number, as long as one of the last three checkpoints names it: whichever of them the run
/// goes on from finds its own.
class CheckpointFolder {
 public:
  /// Creates the folder if need be and removes temporary files that a killed writer left. `goes_on`: the run was
  /// restored from a checkpoint in this folder; otherwise the folder must hold no checkpoint. Error(usage): it holds
  /// some. Error(io).
  CheckpointFolder(std::string folder, bool goes_on);
  /// Writes step-NNNNNNNNN.h5, then removes all checkpoints of steps but this one and the two before it, also later
  /// ones, which are damaged: the run would have been restored from them otherwise. Free space is checked first.
  /// Error(io).
  void save(std::int64_t step, const Checkpoint&) const;
  /// Removes the checkpoints of later steps than that from which the run was restored. To be called before
  /// metrics.jsonl is cut: they would want more of it than it has then. They are damaged, or another process has
  /// written them meanwhile. Error(io).
  void remove_behind(std::int64_t step) const;
  /// Writes best.h5. Error(io).
  void save_best(const Checkpoint&) const;
  /// Makes best.h5 the file that the run had at a checkpoint with this record; another best.h5 that stands there
  /// belongs to a part of the run that was lost. False: the file of this record is gone. Error(io).
  [[nodiscard]] bool restore_best(const BestRecord& best) const;
  /// Returns whether there is any checkpoint of a step.
  [[nodiscard]] static bool any_in(const std::string& folder);
  /// The newest whole checkpoint, of step `last` at most. A damaged one is named to `warn` and the previous one is
  /// taken. Empty: there is no checkpoint at all. Error(checkpoint): there are some, and all are damaged.
  [[nodiscard]] static std::optional<Checkpoint> newest_in(
      const std::string& folder, const std::function<void(const std::string&)>& warn,
      std::int64_t last = std::numeric_limits<std::int64_t>::max());
  [[nodiscard]] std::optional<Checkpoint> newest(const std::function<void(const std::string&)>& warn) const {
    return newest_in(folder_, warn);
  }
  /// The checkpoint that save_best() has written. Error(checkpoint).
  [[nodiscard]] Checkpoint best() const;

 private:
  void write(const std::string& name, const Checkpoint&) const;
  void name_newest(std::int64_t step) const;
  /// Returns whether one of the last three checkpoints names the best.h5 of this record.
  [[nodiscard]] bool is_named(const BestRecord& best) const;

  std::string folder_;
};

/// The checkpoint at `path`, which is a file, or a run's folder or its `ckpt`, of which the newest whole checkpoint is
/// taken; damaged ones are named to `warn`. Error(checkpoint): there is none.
[[nodiscard]] Checkpoint find_checkpoint(const std::string& path, const std::function<void(const std::string&)>& warn);

/// The file, or the folder of the files, in which find_checkpoint() looks.
[[nodiscard]] std::string place_of_checkpoint(const std::string& path);

}  // namespace dat
