#include <cstdlib>

#include "backend/cpu/backend.hpp"
#include "backend/cuda/factory.hpp"
#include "dat/backend.hpp"
#include "dat/error.hpp"

namespace dat {

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  require(options.device == "auto" || options.device == "cpu" || options.device == "cuda", ExitCode::usage,
          "unknown device '", options.device, "'; known: auto, cpu, cuda");
  const std::string missing = options.device == "cuda" ? cuda_missing() : "";
  require(missing.empty(), ExitCode::device, "--device cuda: ", missing, "; see 'dat_hpc doctor', or use --device cpu");
  const bool gpu = takes_gpu(options.device);
  require(!gpu || !options.math.starts_with("bf16"), ExitCode::usage, "--math ", options.math,
          " is for CPUs; take --device cpu, or --math tf32");
  std::unique_ptr<Backend> backend =
      gpu ? make_cuda_backend(options)
          : std::make_unique<cpu::CpuBackend>(options.threads, options.deterministic, options.math);
  backend->host_threads = options.threads;
  return backend;
}

std::string plans_file() {
  if (trial_listener()) return "";
  // XDG Base Directory Specification: paths that are not absolute are as good as none.
  const auto folder = [](const char* name) {
    const char* path = std::getenv(name);
    return std::string(path != nullptr && path[0] == '/' ? path : "");
  };
  if (const std::string cache = folder("XDG_CACHE_HOME"); !cache.empty()) return cache + "/dat_hpc/plans";
  const std::string home = folder("HOME");
  return home.empty() ? "" : home + "/.cache/dat_hpc/plans";
}

std::function<void(const Trial&)>& trial_listener() {
  static std::function<void(const Trial&)> listener;
  return listener;
}

bool takes_gpu(const std::string& device) { return device == "cuda" || (device == "auto" && cuda_missing().empty()); }

std::string onednn_version() {
  const dnnl_version_t* v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

}  // namespace dat
