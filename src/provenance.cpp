#include "dat/provenance.hpp"

#include <omp.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "dat/backend.hpp"
#include "dat/communicator.hpp"
#include "hdf5/hdf5.hpp"

namespace dat {
namespace {

std::vector<std::pair<std::string, std::string>> library_versions() {
  return {{"oneDNN", onednn_version()},
          {"HDF5", hdf5_version()},
          {"MPI", Communicator::library_version()},
          {"CUDA", cuda_version()}};
}

}  // namespace

std::string version_text() {
  std::ostringstream text;
  text << "dat_hpc " << DAT_VERSION << "\ncommit    " << DAT_GIT_SHA1 << (DAT_GIT_DIRTY ? " (with local changes)" : "")
       << "\nbuild     " << DAT_BUILD_TYPE << "\ncompiler  " << DAT_COMPILER;
  for (const auto& [name, version] : library_versions())
    text << '\n' << name << std::string(10 - name.size(), ' ') << version;
  text << "\nOpenMP    " << omp_get_max_threads() << " threads\n";
  return text.str();
}

std::string version() { return DAT_VERSION; }  // DAT_...: given by CMakeLists.txt

std::string commit_date() { return DAT_GIT_DATE; }

std::string commit() { return std::string(DAT_GIT_SHA1) + (DAT_GIT_DIRTY ? "-dirty" : ""); }

std::vector<std::pair<std::string, std::string>> build_facts() {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"program", std::string(DAT_VERSION) + ", commit " + commit() + ", " + DAT_BUILD_TYPE + ", " + DAT_COMPILER}};
  for (const auto& library : library_versions()) facts.push_back(library);
  return facts;
}

std::string provenance_json(const std::vector<std::string>& hosts, int argc, char** argv,
                            const std::string& backend_description, const std::map<std::string, std::string>& images) {
  using nlohmann::ordered_json;
  ordered_json libraries, environment = ordered_json::object();
  for (const auto& [name, version] : library_versions()) libraries[name] = version;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    for (const std::string_view prefix : {"OMP_", "GOMP_", "KMP_", "DNNL_", "ONEDNN_", "SLURM_", "NCCL_", "CUDA_"}) {
      const std::size_t equals = line.find('=');
      if (line.starts_with(prefix) && equals != std::string_view::npos)
        environment[std::string(line.substr(0, equals))] = std::string(line.substr(equals + 1));
    }
  }
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char started[32] = "";
  std::tm utc{};
  if (gmtime_r(&now, &utc) != nullptr) std::strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", &utc);
  ordered_json all = {{"program", "dat_hpc"},
                      {"version", DAT_VERSION},
                      {"git_sha1", DAT_GIT_SHA1},
                      {"git_dirty", DAT_GIT_DIRTY != 0},
                      {"build_type", DAT_BUILD_TYPE},
                      {"compiler", DAT_COMPILER},
                      {"libraries", libraries},
                      {"started", started},
                      {"backend", backend_description},
                      {"openmp_threads", omp_get_max_threads()},
                      {"ranks", hosts.size()},
                      {"hosts", hosts},
                      {"command_line", std::vector<std::string>(argv, argv + argc)},
                      {"environment", environment}};
  if (!images.empty()) all["hashes_of_images"] = images;
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace dat
