#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dat/backend.hpp"
#include "dat/communicator.hpp"

namespace dat {

/// NUMA nodes of a machine, a bit each; those from 64 on do not count.
using NumaNodes = std::uint64_t;

/// The NUMA nodes to which some of these cores belong (Linux, sysfs-devices-node). root: the folder in which
/// sys/devices/system/node is looked for, "" but in tests. 0: the machine does not say.
[[nodiscard]] NumaNodes numa_nodes_of(const cpu_set_t& cores, const std::string& root = "");

/// Returns whether work on these NUMA nodes is as near to the GPU as it can be; true where either is not known.
[[nodiscard]] bool is_near(NumaNodes cores, int numa_node_of_gpu);

/// Deals the GPUs of a node to its ranks: no GPU gets a further rank while another has fewer, and with that, ranks get
/// GPUs near their cores, in the order of their numbers. Where all are near to all, rank k gets GPU k modulo their
/// number.
///
/// @param ranks  [ranks of the node] the NUMA nodes of each rank's cores; 0: not known
/// @param gpus   the NUMA node of each GPU that the ranks see, at least one; -1: not known
/// @return  [ranks of the node] the number of its GPU
[[nodiscard]] std::vector<int> deal_gpus(const std::vector<NumaNodes>& ranks, const std::vector<int>& gpus);

/// The number of this rank's GPU among those that this process sees, dealt among all ranks of the launch on this node,
/// as if they saw the same GPUs: each of several ranks that see a single GPU of their own gets that. 0 where the device
/// is no GPU.
[[nodiscard]] int choose_gpu(const Communicator& ranks, const std::string& device);

/// Reason why this rank's cores are far from its GPU; empty: they are not, or nobody knows.
[[nodiscard]] std::string far_from_gpu(const Communicator& ranks, const Backend& backend);

}  // namespace dat
