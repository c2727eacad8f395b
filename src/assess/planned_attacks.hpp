#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "dat/attack.hpp"

namespace dat {

/// A sentence where the steps of an evaluation's attack do not reach the border of its ball, so that it flatters the
/// network; else empty.
[[nodiscard]] std::string reach_warning(const std::string& name, const Attack& attack, BallNorm norm, double eps);

/// Attacks in one ball, planned. Member: has the `name` of an attack, and the `attack`.
template <class Member>
class PlannedAttacks {
 public:
  PlannedAttacks(BallNorm norm, double eps) : norm_(norm), eps_(eps) {}

  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  [[nodiscard]] BallNorm norm() const { return norm_; }
  [[nodiscard]] double eps() const { return eps_; }
  /// Needs of all of the attacks.
  [[nodiscard]] Needs needs() const {
    Needs all;
    for (const Member& member : members_) all = all | member.attack->needs();
    return all;
  }
  /// Sentences for the user: what attacks have put in place of what the number of classes does not allow, and which
  /// attacks cannot reach the border of the ball; each sentence once.
  [[nodiscard]] std::vector<std::string> notices() const {
    std::vector<std::string> all;
    for (const Member& one : members_)
      for (const std::string& notice : {one.attack->notice(), reach_warning(one.name, *one.attack, norm_, eps_)})
        if (!notice.empty() && std::ranges::find(all, notice) == all.end()) all.push_back(notice);
    return all;
  }

 protected:
  BallNorm norm_;
  double eps_;
  std::vector<Member> members_;
};

}  // namespace dat
