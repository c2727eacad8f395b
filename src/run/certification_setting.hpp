#pragma once

#include <memory>
#include <vector>

#include "assess/certification/certification_report.hpp"
#include "communicate/handshake.hpp"
#include "dat/options/certify.hpp"
#include "replica/replica.hpp"

namespace dat {

/// Everything that is needed on every rank, in the order in which it is made.
struct CertificationSetting {
  CertificationSubject subject;
  std::unique_ptr<Dataset> data;
  std::vector<std::int64_t> images;
  std::unique_ptr<Replica> replica;
  std::unique_ptr<Certifier> certifier;
  Facts facts;  ///< everything that decides about the votes
};

/// Reads the network and its images, and plans everything. Error(usage), Error(checkpoint), Error(data), Error(device).
[[nodiscard]] CertificationSetting prepare_certification(Communicator& world, const CertifyOptions& options);

}  // namespace dat
