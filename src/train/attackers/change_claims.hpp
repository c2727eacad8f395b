#pragma once

#include <cstring>

#include "byzantine/mischief.hpp"

namespace dat {

/// Changes every claim of a message of claims, which follow a number of 8 bytes.
template <class Change>
void change_claims(Letter& letter, const Change& change) {
  const std::span<std::byte> claims = letter.bytes().subspan(sizeof(std::uint64_t));
  for (std::size_t at = 0; at + sizeof(Claim) <= claims.size(); at += sizeof(Claim)) {
    Claim claim;
    std::memcpy(&claim, claims.data() + at, sizeof claim);
    change(claim);
    std::memcpy(claims.data() + at, &claim, sizeof claim);
  }
}

}  // namespace dat
