#include "train/message/stateful.hpp"

#include <algorithm>
#include <vector>

#include "dat/error.hpp"

namespace dat {

std::int64_t integer_of(const Checkpoint& checkpoint, const char* name) {
  const auto found = checkpoint.integers.find(name);
  require(found != checkpoint.integers.end(), ExitCode::checkpoint, "the checkpoint has no number '", name, "'");
  return found->second;
}

const std::vector<double>& doubles_of(const Checkpoint& checkpoint, const char* name) {
  const auto found = checkpoint.doubles.find(name);
  require(found != checkpoint.doubles.end(), ExitCode::checkpoint, "the checkpoint has no array '", name, "'");
  return found->second;
}

void share_floats(Communicator& ranks, Backend& backend, float* device, std::int64_t count) {
  std::vector<float> host(static_cast<std::size_t>(count));
  backend.copy_to_host(host.data(), device, host.size() * sizeof(float));
  constexpr std::size_t kPiece = 1 << 28;
  for (std::size_t at = 0; at < host.size(); at += kPiece)
    ranks.broadcast(host.data() + at, std::min(kPiece, host.size() - at) * sizeof(float));
  backend.copy_to_device(device, host.data(), host.size() * sizeof(float));
}

}  // namespace dat
