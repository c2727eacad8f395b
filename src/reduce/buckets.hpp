#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dat/reducer.hpp"
#include "reduce/transport/transport.hpp"

namespace dat {

/// When the messages of a step go: the active layers are cut into parcels, last layer first, which is the order in
/// which the backward pass finishes them; a parcel is encoded when its last segment is announced, and given to MPI then
/// (--overlap) or behind all others, always in the same order. finish() waits for the device once for each parcel and
/// round.
class Buckets {
 public:
  /// transport: null where nothing is to be sent; then only the cutting and the counting are left.
  Buckets(Backend& backend, const Parameters& parameters, const ReducerOptions& options, Transport* transport);

  /// Cuts the parcels of a step. any: the layers of all messages; own: those that this rank will announce.
  void cut(const ActiveSet& any, const ActiveSet& own);
  [[nodiscard]] std::span<const Parcel> parcels() const { return parcels_; }
  [[nodiscard]] std::int64_t elements() const { return elements_; }  ///< of this rank's layers

  /// Encodes what nobody will announce anything of.
  void begin();
  void ready(int segment);
  /// All rounds of all parcels, until the transport has taken what the last one has brought.
  void finish();

 private:
  /// How far a parcel has come.
  struct Progress {
    int missing = 0;             ///< segments not announced yet
    Backend::Ticket ticket = 0;  ///< arrives when MPI may read the message
    bool sent = false;           ///< given to MPI
    Request request{};           ///< that moves it
  };
  [[nodiscard]] Progress& of(const Parcel& parcel) { return progress_[static_cast<std::size_t>(parcel.number)]; }

  void encode(const Parcel& parcel);
  void give(const Parcel& parcel);
  void give_all();
  void wait_for(const Parcel& parcel);
  bool move_on();

  Backend& backend_;
  const Parameters& parameters_;
  std::int64_t most_;  ///< gradients of a parcel
  bool overlap_;
  std::function<void(ReducerStage)> ended_;
  Transport* transport_;
  std::vector<int> parcel_of_;  ///< [segments]
  std::vector<Parcel> parcels_;
  std::vector<Progress> progress_;  ///< [parcels]
  std::int64_t elements_ = 0;
};

}  // namespace dat
