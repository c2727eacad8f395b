#pragma once

#include "dat/program.hpp"

namespace dat {

/// The places of the first `channels` channels of a model's batch norms.
[[nodiscard]] NormPlaces find_norms(const Model& model, std::int64_t channels);

}  // namespace dat
