#include "reduce/sums/sums.hpp"

#include <set>

#include "dat/error.hpp"
#include "printed.hpp"

namespace dat {

SumKind window_sums();
SumKind mpi_sums();
SumKind nccl_sums();

const Registry<SumKind()>& sums() {
  static const Registry<SumKind()> registry("node sums",
                                            {{"window", window_sums}, {"mpi", mpi_sums}, {"nccl", nccl_sums}});
  return registry;
}

std::vector<std::string> node_sums_names() {
  return sums().where([](const std::string&) { return true; });
}

std::unique_ptr<NodeSums> make_sums(const std::string& name, const SumOptions& options) {
  static std::set<std::string> said;
  for (const std::string& one : name == "auto" ? node_sums_names() : std::vector{name}) {
    std::string why;
    if (std::unique_ptr<NodeSums> chosen = sums().at(one)().make(options, why)) return chosen;
    if (why.empty()) continue;
    require(name == "auto", ExitCode::communication, "--node-sums ", name, " cannot be had: ", why,
            "; choose mpi, or leave it off");
    if (options.ranks.root() && said.insert(one + why).second)
      say("note: --node-sums " + one + " cannot be had: " + why);
  }
  std::string none;
  return sums().at("mpi")().make(options, none);
}

}  // namespace dat
