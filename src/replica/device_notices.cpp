#include "replica/device_notices.hpp"

#include <map>

namespace dat {

std::vector<std::string> device_notices(Communicator& ranks, const Backend& backend, const std::string& wanted) {
  std::vector<std::string> notices;
  const bool built = cuda_version() != "not built";
  if (wanted == "auto" && built && backend.device().kind == DeviceKind::cpu)
    notices.push_back("no GPU: " + cuda_missing() + "; using the CPU");
  if (const std::string remark = backend.remark(); !remark.empty()) notices.push_back("warning: " + remark);
  const std::vector<std::string> ids =
      ranks.gather(backend.device_id().empty() ? "" : host_name() + " " + backend.device_id());
  std::map<std::string, std::string> users;
  for (std::size_t rank = 0; rank < ids.size(); ++rank)
    if (!ids[rank].empty()) {
      std::string& sharing = users[ids[rank]];
      sharing += (sharing.empty() ? "" : ", ") + std::to_string(rank);
    }
  for (const auto& [id, sharing] : users)
    if (sharing.find(',') != std::string::npos)
      notices.push_back("warning: ranks " + sharing + " share one GPU of " + id.substr(0, id.find(' ')) +
                        ": start one rank per GPU");
  return notices;
}

}  // namespace dat
