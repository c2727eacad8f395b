#include "replica/device_notices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "replica/gpus.hpp"

namespace dat {

std::string gpus_of_hosts(const std::vector<std::string>& of_ranks) {
  std::map<std::string, std::vector<std::string>> of_host;
  std::map<std::vector<std::string>, std::vector<std::string>> hosts;
  for (const std::string& one : of_ranks)
    of_host[one.substr(0, one.find(' '))].push_back(one.substr(one.find(' ') + 1));
  for (const auto& [host, gpus] : of_host) hosts[gpus].push_back(host);
  std::string text;
  for (const auto& [gpus, of] : hosts)
    text += fmt::format("{}{} on {}", text.empty() ? "" : "; ", fmt::join(gpus, ", "), fmt::join(of, ", "));
  return std::ranges::any_of(of_host, [](const auto& one) { return one.second.size() > 1; }) ? text : "";
}

std::vector<std::string> device_notices(Communicator& ranks, const Backend& backend, const std::string& wanted,
                                        bool quiet) {
  std::vector<std::string> notices;
  if (wanted == "auto" && cuda_version() != "not built" && backend.device().kind == DeviceKind::cpu)
    notices.push_back("no GPU: " + cuda_missing() + "; using the CPU");
  if (const std::string remark = backend.remark(); !remark.empty()) notices.push_back("warning: " + remark);
  const std::vector<std::string> far = ranks.gather(far_from_gpu(ranks, backend));
  std::vector<int> away;
  for (std::size_t rank = 0; rank < far.size(); ++rank)
    if (!far[rank].empty()) away.push_back(ranks.launch_rank(static_cast<int>(rank)));
  if (!away.empty())
    notices.push_back(
        fmt::format("warning: cores of these ranks are far from their GPUs: {}; bind ranks to NUMA nodes (mpirun "
                    "--map-by numa --bind-to numa), see dat_hpc doctor",
                    fmt::join(away, ", ")));
  // A process that sees its own GPU alone has number 0, whichever that is.
  const bool several = backend.gpu_number() != -1 && numa_nodes_of_gpus().size() > 1;
  if (ranks.agree(several) && several)
    if (const std::string gpus = gpus_of_hosts(ranks.gather(host_name() + " " + std::to_string(backend.gpu_number())));
        !gpus.empty())
      notices.push_back("GPUs of the ranks, in their order: " + gpus);
  const std::vector<std::string> ids =
      ranks.gather(backend.device_id().empty() ? "" : host_name() + " " + backend.device_id());
  std::map<std::string, std::vector<int>> users;
  for (std::size_t rank = 0; rank < ids.size(); ++rank)
    if (!ids[rank].empty()) users[ids[rank]].push_back(ranks.launch_rank(static_cast<int>(rank)));
  for (const auto& [id, sharing] : users)
    if (sharing.size() > 1)
      notices.push_back(fmt::format("warning: ranks {} share one GPU of {}: start one rank per GPU",
                                    fmt::join(sharing, ", "), id.substr(0, id.find(' '))));
  std::erase_if(notices, [&](const auto& one) { return !ranks.root() || (quiet && !one.starts_with("warning: ")); });
  return notices;
}

}  // namespace dat
