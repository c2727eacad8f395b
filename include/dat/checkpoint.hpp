#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dat {

/// Everything that a run needs to go on bit for bit, independent of the number of ranks. One HDF5 file:
/// /param/NAME, /optim/ARRAY/NAME, /bn/NAME (PyTorch's names, shapes and order), /codec/ARRAY in memory's order,
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

/// The evaluation with the best robust accuracy on what is held out, so far, after which best.h5 was written. Every
/// checkpoint of a run has one, best.h5 its own: so it shows whether that file is of the same run, or of a part of it
/// that was lost.
struct BestRecord {
  double accuracy = -1;     ///< robust, the worst of the attacks; -1: there has been none
  std::int64_t step = -1;   ///< as counted in that part of the run; -1: a run of an earlier version does not say
  std::int64_t bytes = -1;  ///< of metrics.jsonl, when best.h5 was written; -1 likewise

  /// What a checkpoint says.
  [[nodiscard]] static BestRecord of(const Checkpoint&);
  void save(Checkpoint&) const;
  friend bool operator==(const BestRecord&, const BestRecord&) = default;
};

/// Writes a sealed file (file.hpp). Error(io).
void write_checkpoint(const std::string& path, const Checkpoint&);
/// Checks the seal, then reads. Error(checkpoint) with the file's name and what is wrong with it.
[[nodiscard]] Checkpoint read_checkpoint(const std::string& path);
/// Weights and running statistics (arrays "param/NAME", "bn/NAME") of a checkpoint, or of a PyTorch state_dict that was
/// saved as an HDF5 file of float32 datasets (docs/manual/export_import.md): a leading "module." of the names is left
/// out, and the highest num_batches_tracked is the integer batches_tracked. Error(checkpoint).
[[nodiscard]] Checkpoint read_weights(const std::string& path);

/// The folder `ckpt` of a run: step-NNNNNNNNN.h5, the last three kept, `latest` naming the newest; best.h5. A best.h5
/// that is no longer the best one is best-NNNNNNNNN.h5 as long as one of the three names it: whichever of them the run
/// goes on from finds its own.
class CheckpointFolder {
 public:
  /// Creates the folder if need be and removes temporary files that a killed writer left. `goes_on`: the run was
  /// restored from a checkpoint in this folder; otherwise there must be none. Error(usage): there are some. Error(io).
  CheckpointFolder(std::string folder, bool goes_on);
  /// Writes step-NNNNNNNNN.h5, then removes all but it and the two before it; later ones, which this run has not been
  /// restored from because they are damaged, too. Free space is checked first. Error(io).
  void save(std::int64_t step, const Checkpoint&) const;
  /// Writes best.h5. Error(io).
  void save_best(const Checkpoint&) const;
  /// Makes best.h5 the file that a run had at a checkpoint with this record; another one that stands there is of a part
  /// of the run that was lost. False: there is none any more. Error(io).
  [[nodiscard]] bool restore_best(const BestRecord& best) const;
  /// Whether there is any checkpoint of a step.
  [[nodiscard]] static bool any_in(const std::string& folder);
  /// The newest whole checkpoint, of step `last` at most. A damaged one is named to `warn` and the previous one is
  /// taken. Empty: there is none at all. Error(checkpoint): there are some, and all are damaged.
  [[nodiscard]] static std::optional<Checkpoint> newest_in(
      const std::string& folder, const std::function<void(const std::string&)>& warn,
      std::int64_t last = std::numeric_limits<std::int64_t>::max());
  [[nodiscard]] std::optional<Checkpoint> newest(const std::function<void(const std::string&)>& warn) const {
    return newest_in(folder_, warn);
  }
  /// What save_best() has written. Error(checkpoint).
  [[nodiscard]] Checkpoint best() const;

 private:
  void write(const std::string& name, const Checkpoint&) const;
  /// Whether one of the last three names this best.h5.
  [[nodiscard]] bool is_named(const BestRecord& best) const;

  std::string folder_;
};

/// The checkpoint at `path`: a file, or, of a run's folder or its `ckpt`, the newest whole one; damaged ones are named
/// to `warn`. Error(checkpoint).
[[nodiscard]] Checkpoint find_checkpoint(const std::string& path, const std::function<void(const std::string&)>& warn);

}  // namespace dat
