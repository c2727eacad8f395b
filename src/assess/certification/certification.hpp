#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dat/communicator.hpp"
#include "dat/dataset.hpp"
#include "replica/replica.hpp"
#include "smoothing/grid_noise.hpp"

namespace dat {

/// Parameters of the certification of a network smoothed with normal noise (Cohen, Rosenfeld, Kolter, ICML 2019).
struct CertificationPlan {
  double sigma = 0;           ///< standard deviation of the noise, in units of the pixels' range
  bool grid = true;           ///< the noise is on the grid of pixels (GridNoise); else f32 numbers
  bool predicts = false;      ///< PREDICT instead of CERTIFY
  std::int64_t n0 = 100;      ///< CERTIFY: samples that choose the class
  std::int64_t n = 100'000;   ///< samples, the most where radii are given
  double alpha = 0.001;       ///< the chance that an answer is wrong
  std::vector<double> radii;  ///< sequential: increasing radii, each of which is to be decided; empty: all n are taken
  std::uint64_t seed = 1;

  /// Samples that are one piece of work: their votes are counted together, and the sequence is looked at after them.
  static constexpr std::int64_t kBlock = 256;
  [[nodiscard]] bool sequential() const { return !radii.empty(); }
  /// Blocks of an image that choose the class; in front of the others.
  [[nodiscard]] std::int64_t candidate_blocks() const { return predicts ? 0 : (n0 + kBlock - 1) / kBlock; }
  [[nodiscard]] std::int64_t blocks() const { return candidate_blocks() + (n + kBlock - 1) / kBlock; }
  /// The number of the block's first sample among those of its kind, and how many it has.
  [[nodiscard]] std::int64_t first_of(std::int64_t block) const;
  [[nodiscard]] std::int64_t samples_of(std::int64_t block) const;
};

/// The samples of a block that the network gave to each class [classes]; one whose noise is not known counts nowhere.
using Votes = std::vector<std::int64_t>;

/// Result of the certification of one image.
struct Certificate {
  static constexpr int kAbstains = -1;
  int prediction = kAbstains;
  double radius = 0;         ///< radius in L2, in units of the pixels' range; 0 where it abstains, and for PREDICT
  std::int64_t votes = 0;    ///< votes for the chosen class; PREDICT: for the class with most
  std::int64_t samples = 0;  ///< among which these votes are counted
  double lower = 0;          ///< bounds the probability of the class from below; PREDICT: the p-value
  std::vector<int> decided;  ///< [radii] of a sequence: 1 certified, -1 not certifiable, 0 not decided
  double seconds = 0;        ///< rank 0's, its part of the blocks that were done together
};

/// The blocks of one image in their order, whichever order they arrive in: so the answer does not depend on who did
/// them.
class ImageVotes {
 public:
  ImageVotes(const CertificationPlan& plan, int classes) : plan_(&plan), counts_(static_cast<std::size_t>(classes)) {}

  [[nodiscard]] bool knows(std::int64_t block) const { return block < next_ || early_.contains(block); }
  /// Takes up a block that is not known. Blocks after the end of a sequence do not count.
  void enter(std::int64_t block, Votes votes);
  /// Returns whether the answer is final.
  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] const Certificate& certificate() const { return certificate_; }
  /// Number of blocks of the image that were looked at.
  [[nodiscard]] std::int64_t done() const { return next_; }
  void add_seconds(double seconds) { certificate_.seconds += seconds; }

 private:
  void take(std::int64_t block, const Votes& votes);
  void look(bool last);
  void look_at_radii();
  void predict();

  const CertificationPlan* plan_;
  std::int64_t next_ = 0;
  std::map<std::int64_t, Votes> early_;
  Votes counts_;  ///< [classes] of the blocks that choose, then of the others
  int chosen_ = 0;
  bool finished_ = false;
  Certificate certificate_;
};

/// The results of all images, with what a table says of them.
struct CertificationResult {
  std::vector<std::int64_t> images;  ///< numbers in the data set
  std::vector<std::int32_t> labels;
  std::vector<Certificate> certificates;

  [[nodiscard]] bool correct(std::size_t i) const { return certificates[i].prediction == labels[i]; }
  /// Number of images that are classified right, and certified within this radius.
  [[nodiscard]] std::int64_t certified(double radius) const;
  [[nodiscard]] std::int64_t abstained() const;
  /// The mean over all images of the radius where the class is right, and of 0 elsewhere (Zhai et al., "MACER", ICLR
  /// 2020).
  [[nodiscard]] double average_radius() const;
  [[nodiscard]] std::int64_t samples() const;
};

/// Some blocks that were done together: a line of the journal.
struct CertificationEntry {
  double seconds = 0;  ///< rank 0's
  std::vector<std::int64_t> images, blocks;
  std::vector<Votes> votes;
};
[[nodiscard]] std::string line_of(const CertificationEntry& entry);
/// Error(data): an entry is damaged.
[[nodiscard]] std::vector<CertificationEntry> read_certification_journal(const std::string& lines,
                                                                         const std::string& name);

/// Images, and what is asked of the network about them.
struct CertificationWork {
  const Dataset* dataset = nullptr;
  std::vector<std::int64_t> images{};  ///< numbers in the data set, increasing
  CertificationPlan plan{};
};

/// Certifies images over any number of ranks. Work is a block of samples of an image; ranks add up the votes, which are
/// integers, of as many blocks as all of them take at a time. So the answers depend neither on the ranks nor on how
/// many blocks are taken at a time, nor on where a certification was killed and went on.
class Certifier {
 public:
  /// The noise is that of all work that comes. blocks: that each rank takes at a time. The replica's first program
  /// computes, and its images are overwritten. Before the replica is committed.
  Certifier(Communicator& ranks, Replica& replica, double sigma, bool grid, int blocks);

  struct Progress {
    std::size_t finished = 0, images = 0;
    std::int64_t samples = 0;  ///< samples that this call has taken so far, on all ranks
    double part = 0;           ///< part of the blocks that may be needed, which are done
  };
  struct Options {
    std::vector<CertificationEntry> found{};  ///< entries that were done before an interruption, equal on all ranks
    // On rank 0; null: nobody.
    std::function<void(const CertificationEntry&)> entry{};
    std::function<void(const Progress&)> progress{};
  };
  /// **Collective.** Error(numerical), on all ranks: logits are not finite. Error(data): options.found is not of this
  /// work.
  [[nodiscard]] CertificationResult run(const CertificationWork& work, const Options& options);

 private:
  struct Block {
    std::size_t image;  ///< place among the images
    std::int64_t number;
  };
  [[nodiscard]] std::vector<Block> next_blocks(const std::vector<ImageVotes>& all) const;
  void enter(const CertificationEntry& entry, std::vector<ImageVotes>& all) const;
  /// Counts the votes of a block [classes], and after them the samples whose logits are not finite.
  void count(const Block& block, std::int64_t* votes);
  void add_noise(std::int64_t image, std::int64_t block, std::int64_t first, std::int64_t samples);

  Communicator& ranks_;
  Replica& replica_;
  CertificationWork work_;  ///< work of this call of run()
  int blocks_;
  GridNoise grid_;
  std::uint64_t* entries_ = nullptr;
  std::int32_t* guide_ = nullptr;
  std::uint8_t* unknown_ = nullptr;
  HostBatch batch_;
  std::vector<float> logits_;
  std::vector<std::uint8_t> host_unknown_;
};

}  // namespace dat
