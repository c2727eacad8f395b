// Linked instead of backend/cuda/ where the build has no CUDA.

#include "backend/cuda/factory.hpp"
#include "dat/error.hpp"

namespace dat {

std::string cuda_missing() { return "this dat_hpc was built without CUDA (README: the cuda preset)"; }
std::vector<int> numa_nodes_of_gpus(const std::string&) { return {}; }
std::string cuda_report() { return "CUDA      not built\n"; }
std::string cuda_version() { return "not built"; }

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions&) { fail(ExitCode::device, cuda_missing()); }

}  // namespace dat
