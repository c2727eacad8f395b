#pragma once

#include <string>
#include <vector>

#include "options/shell/option_text.hpp"

namespace dat {

/// The manual page of the program, section 1, for man, groff or mandoc. An option that an earlier verb has with the
/// same text is named only. verbs: with their options. endings: text about exit codes. version, date: of the program;
/// "2026-11-28".
[[nodiscard]] std::string man_page(const std::vector<VerbText>& verbs, const std::string& endings,
                                   const std::string& version, const std::string& date);

}  // namespace dat
