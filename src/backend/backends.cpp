#include <omp.h>

#include "backend/cpu/backend.hpp"
#include "dat/backend.hpp"

namespace dat {

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  require(options.device != "cuda", ExitCode::device,
          "--device cuda: this dat_hpc has no CUDA backend; use --device cpu");
  require(options.device == "auto" || options.device == "cpu", ExitCode::usage, "unknown device '", options.device,
          "'; known: auto, cpu, cuda");
  return std::make_unique<cpu::CpuBackend>(options.threads);
}

std::string onednn_version() {
  const dnnl_version_t* v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

}  // namespace dat
