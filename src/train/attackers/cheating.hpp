#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dat/cheat.hpp"
#include "dat/communicator.hpp"
#include "dat/reducer.hpp"
#include "train/attackers/attackers.hpp"
#include "train/message/step_message.hpp"

namespace dat {

/// The ranks of a group that cheat, and this rank's part in it: puts cheats where a rank's work leaves it. Where nobody
/// cheats, everything stays as it is. The memory of cheats is not part of the state of a run.
class Cheating {
 public:
  /// parameters: Parameters::size; classes: of the images.
  Cheating(const Communicator& ranks, const TrainOptions& options, int classes, std::int64_t parameters);

  /// Called at the start of step `step` (0-based).
  void begin(std::int64_t step) { step_ = step; }
  /// This rank's cheat if it cheats in the present step, or in step number `step`; else null.
  [[nodiscard]] Cheat* now() const { return at(step_); }
  [[nodiscard]] Cheat* at(std::int64_t step) const;
  /// This rank's cheat if it must observe gradients in this step, which may begin before it cheats; else null.
  [[nodiscard]] Cheat* looks() const;
  /// This rank's cheat, whatever the step; null: it is honest throughout.
  [[nodiscard]] const Cheat* own() const { return own_ != nullptr ? own_->cheat.get() : nullptr; }
  /// The attack of a rank of the group that makes less of it than the options say; empty: there is no such rank.
  [[nodiscard]] const std::string& weak() const { return weak_; }
  /// Returns whether any rank is to know, in this step, the gradients of all.
  [[nodiscard]] bool anyone_sees_all() const;
  /// [ranks] whether it never cheats.
  [[nodiscard]] const std::vector<char>& honest() const { return honest_; }

  /// The reducer, of gradients that this rank may have changed. Announcements of segments are held back until all of
  /// the gradient is there. gradients, options: as the reducer was made with them; all arguments outlive the result.
  [[nodiscard]] std::unique_ptr<Reducer> falsify(std::unique_ptr<Reducer> reducer, Backend&, Communicator& ranks,
                                                 const Parameters& parameters, float* gradients,
                                                 const ReducerOptions& options);
  /// The part, which may say something else of statistics than it has found out. It lives as long as this.
  [[nodiscard]] MessagePart& falsify(MessagePart& part);

  /// [ranks of the launch] how far what each has sent in the last step was from what the reducer has made of it; NaN:
  /// it has left; null: nobody cheats.
  [[nodiscard]] const std::vector<double>* distances() const { return distances_.empty() ? nullptr : &distances_; }

 private:
  struct OfRank {
    int rank = 0;  ///< rank in the group
    Cheater attacker;
    std::unique_ptr<Cheat> cheat;
  };
  std::vector<OfRank> all_;
  const OfRank* own_ = nullptr;
  std::string weak_;
  std::vector<char> honest_;
  std::vector<double> distances_;
  std::unique_ptr<MessagePart> false_numbers_;
  std::int64_t step_ = 0;
};

}  // namespace dat
