// The verbs data convert, data synthetic and data inspect: files of images.

#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

namespace dat {

int run_data(const Command& command, int, char**) {
  return print_once([&]() -> std::string {
    switch (command.verb) {
      case Command::Verb::data_convert:
        if (const std::string held = convert_dataset(command.convert); !held.empty())
          return "wrote " + command.convert.output + ": " + held + "\n";
        return "wrote " + command.convert.output + "\n";
      case Command::Verb::data_synthetic:
        write_synthetic(command.synthetic.set, command.synthetic.output);
        return "wrote " + command.synthetic.output + "\n";
      default:
        break;
    }
    std::string text;
    for (const std::string& path : command.inspect) text += inspect_dataset(path);
    return text;
  });
}

}  // namespace dat
