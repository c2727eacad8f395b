#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dat {

/// Program, commit, compiler and libraries, one per line. Starts neither MPI nor a device.
[[nodiscard]] std::string version_text();

/// Version of the program: "0.1.0".
[[nodiscard]] std::string version();
/// Day of the commit that was built, "2026-11-28"; empty: unknown.
[[nodiscard]] std::string commit_date();
/// The commit that was built, with "-dirty" where files differed from it.
[[nodiscard]] std::string commit();

/// Facts that ranks of one run must share before anything else: the build and its libraries.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> build_facts();

/// Origin of results as one JSON object: the build (version, commit, compiler, libraries) and the run (time, hosts by
/// rank, backend, command line, environment of OpenMP and the job system). images: content_hash() of the images, by
/// split.
[[nodiscard]] std::string provenance_json(const std::vector<std::string>& hosts, int argc, char** argv,
                                          const std::string& backend_description,
                                          const std::map<std::string, std::string>& images = {});

}  // namespace dat
