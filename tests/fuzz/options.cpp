#include <sstream>
#include <vector>

#include "fuzz/targets.hpp"
#include "verbs/verbs.hpp"

void dat::fuzz::options(Bytes bytes) {
  std::istringstream lines(std::string(bytes.begin(), bytes.end()));
  std::vector<std::string> words = {"dat_hpc"};
  for (std::string line; std::getline(lines, line);) {
    if (line.find('\0') != std::string::npos) return;  // no shell can pass it
    if (line.find("--config") != std::string::npos || line.find("--like") != std::string::npos) return;  // other files
    words.push_back(line);
  }
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  answered([&] { static_cast<void>(parse_command_line(static_cast<int>(arguments.size()), arguments.data())); });
}
