#pragma once

#include <cstdint>
#include <span>

#include "byzantine/assembly.hpp"
#include "byzantine/work.hpp"

namespace dat {

/// The messages of the protocol, by what they are for.
enum class Topic : std::uint8_t { commit, salts, complaints, show, reveal, claims, accusations };

/// Lies of a rank: it sees each of its messages before it leaves.
class Mischief {
 public:
  virtual ~Mischief() = default;
  /// Changes a message, or the length that it says it has. validates: the rank does another one's work in this step.
  virtual void message(Topic /*phase*/, Letter& /*letter*/, bool /*validates*/) {}
  /// Changes what leaves as its gradient after the commitments to it.
  virtual void parts(std::span<float> /*message*/) {}
  /// Changes the part of the result that it has made.
  virtual void aggregate(std::span<float> /*part*/) {}
  /// Result that it claims for its target's work, without having recomputed it; null: it recomputes.
  [[nodiscard]] virtual const Contribution* story(const PendingCheck& /*check*/) { return nullptr; }
};

}  // namespace dat
