#pragma once

#include <functional>
#include <string>
#include <vector>

#include "options/shell/option_text.hpp"

namespace dat {

/// What may stand in place of the last word of a command line, a line each: the word, a tab, and what it means, or
/// nothing. A word that ends with '=' goes on. The line ":files" says that paths of files fit, too; ":folders",
/// folders. words: what stands after the program's name, the last one as far as it is typed. verbs: names and
/// summaries, without options. options: those of a verb.
[[nodiscard]] std::string completions(const std::vector<std::string>& words, const std::vector<VerbText>& verbs,
                                      const std::function<VerbText(const std::string& verb)>& options);

/// A script that makes a shell ask `dat_hpc completion words ...` for completions: "bash" or "zsh".
[[nodiscard]] std::string completion_script(const std::string& shell);

/// The manual page of the program, section 1, for man, groff or mandoc. An option that an earlier verb has with the
/// same text is named only. verbs: with their options. endings: text about exit codes. version, date: of the program;
/// "2026-11-28".
[[nodiscard]] std::string man_page(const std::vector<VerbText>& verbs, const std::string& endings,
                                   const std::string& version, const std::string& date);

}  // namespace dat
