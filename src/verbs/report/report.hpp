#pragma once

#include <string>
#include <vector>

namespace dat {

/// Writes a page about runs and evaluations, those in folders among them. by: as of compare(); out: the file. Says what
/// could not be read, and returns the exit code: data where there is such a one, else done. Error(usage): `out` is
/// there, and is no page. Error(data): nothing can be read. Error(io).
[[nodiscard]] int write_report(const std::vector<std::string>& paths, const std::string& by, const std::string& out);

}  // namespace dat
