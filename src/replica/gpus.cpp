#include "replica/gpus.hpp"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <sstream>

#include "dat/number.hpp"

namespace dat {

namespace {

constexpr int kNodes = 64;

/// Returns whether a list of cores as the kernel writes it, e.g. "0-15,32-47", has one of these.
[[nodiscard]] bool has_any(const std::string& list, const cpu_set_t& cores) {
  std::istringstream text(list);
  for (std::string part; std::getline(text, part, ',');) {
    int first{};
    const std::size_t dash = part.find('-');
    if (!read_number(trimmed(part.substr(0, dash)), first)) continue;
    int last = first;
    if (dash != std::string::npos && !read_number(trimmed(part.substr(dash + 1)), last)) continue;
    for (int core = first; core <= std::min(last, CPU_SETSIZE - 1); ++core)
      if (CPU_ISSET(core, &cores)) return true;
  }
  return false;
}

}  // namespace

NumaNodes numa_nodes_of(const cpu_set_t& cores, const std::string& root) {
  NumaNodes nodes = 0;
  for (int node = 0; node < kNodes; ++node) {
    std::ifstream file(root + "/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
    if (std::string list; std::getline(file, list) && has_any(list, cores)) nodes |= NumaNodes{1} << node;
  }
  return nodes;
}

bool is_near(NumaNodes cores, int numa_node_of_gpu) {
  return cores == 0 || numa_node_of_gpu < 0 || numa_node_of_gpu >= kNodes || (cores >> numa_node_of_gpu & 1U) != 0;
}

std::vector<int> deal_gpus(const std::vector<NumaNodes>& ranks, const std::vector<int>& gpus) {
  std::vector<int> dealt(ranks.size(), -1), used(gpus.size());
  const auto near = [&](std::size_t rank) {
    return std::ranges::count_if(gpus, [&](int node) { return is_near(ranks[rank], node); });
  };
  // Ranks with the least choice choose first.
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return near(a) < near(b); });
  const auto take = [&](int most, bool any) {
    for (const std::size_t rank : order)
      for (std::size_t gpu = 0; gpu < gpus.size() && dealt[rank] < 0; ++gpu)
        if (used[gpu] < most && (any || is_near(ranks[rank], gpus[gpu]))) {
          dealt[rank] = static_cast<int>(gpu);
          ++used[gpu];
        }
  };
  for (int most = 1; std::ranges::count(dealt, -1) > 0; ++most)
    for (const bool any : {false, true}) take(most, any);
  return dealt;
}

std::string far_from_gpu(const Communicator& ranks, const Backend& backend) {
  const auto self = static_cast<std::size_t>(ranks.launch_node_rank());
  const NumaNodes nodes = numa_nodes_of(ranks.launch_node_cores()[self]);
  if (is_near(nodes, backend.numa_node())) return "";
  return "its cores are not of NUMA node " + std::to_string(backend.numa_node()) + ", to which its GPU is attached";
}

int choose_gpu(const Communicator& ranks, const std::string& device) {
  if (!takes_gpu(device)) return 0;
  const std::vector<int> gpus = numa_nodes_of_gpus();
  if (gpus.empty()) return 0;
  std::vector<NumaNodes> nodes;
  for (const cpu_set_t& cores : ranks.launch_node_cores()) nodes.push_back(numa_nodes_of(cores));
  return deal_gpus(nodes, gpus)[static_cast<std::size_t>(ranks.launch_node_rank())];
}

}  // namespace dat
