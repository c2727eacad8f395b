#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "assess/certification/certificate_attack.hpp"
#include "assess/certification/certification.hpp"
#include "assess/columns.hpp"
#include "assess/journal.hpp"
#include "dat/run_lock.hpp"

namespace dat {

/// Subject of a certification.
struct CertificationSubject {
  CertificationPlan plan;
  std::string checkpoint;  ///< name of the checkpoint, as given
  std::int64_t step = 0;   ///< step of the checkpoint
  std::string weights = "raw", weights_hash{};
  std::string precision = "f32";  ///< precision of the network's activations and weights
  std::vector<std::string> data{};
  std::string split{};
  std::string list{};  ///< the file that names the images; empty: none
  std::int64_t split_images = 0, every = 1;
  int attack_steps = 0,
      noise_samples = 100;  ///< steps of the attack on the certified images, and its noisy copies of each; 0: none
};

/// The folder of a certification: its lock and its journals. On rank 0.
struct CertificationFolder {
  std::string path;
  std::unique_ptr<RunLock> lock;
  Journal journal;
  std::unique_ptr<Journal> attacked{};  ///< journal of the predictions of attacked images; null: nothing is attacked
};
/// Opens the folder, or goes on in it. facts: everything that decides about the votes; attacks: whether what is
/// certified is attacked. Error(usage): it is a training's
/// folder, or its journal is another certification's. Error(io).
[[nodiscard]] std::unique_ptr<CertificationFolder> open_certification(const std::string& folder, const Facts& facts,
                                                                      bool attacks);

/// Everything that decides about the votes of a certification but the build (build_facts).
[[nodiscard]] Facts facts_of(const CertificationSubject& subject, const std::vector<std::int64_t>& images);

/// Results of a certification, for its files and for people.
class CertificationReport {
 public:
  /// attacked: null without an attack. All must outlive the report.
  CertificationReport(const CertificationSubject& subject, const CertificationResult& result,
                      const AttackedCertificates* attacked)
      : subject_(subject), result_(result), attacked_(attacked) {}

  /// Writes certify.json, certify.tsv and results.h5 into a folder. provenance: a JSON object. Error(io).
  void write(const std::string& folder, const std::string& provenance) const;
  /// Lines for a person.
  [[nodiscard]] std::string text() const;
  /// "Final: acr=... VALID".
  [[nodiscard]] std::string final_line() const;

 private:
  /// A part of all images, with the 95 % interval of Clopper and Pearson.
  struct Share {
    std::int64_t count;
    double part, low, high;
  };
  [[nodiscard]] Share share(std::int64_t count) const;
  /// The radii that the tables have: those of a sequence; else usual ones that these samples can certify.
  [[nodiscard]] std::vector<double> radii() const;
  [[nodiscard]] std::int64_t right() const { return result_.certified(0); }
  [[nodiscard]] std::string json(const std::string& provenance) const;
  [[nodiscard]] std::string tsv() const;
  void write_hdf5(const std::string& path, const std::string& provenance) const;

  const CertificationSubject& subject_;
  const CertificationResult& result_;
  const AttackedCertificates* attacked_;
};

}  // namespace dat
