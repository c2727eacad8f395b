// The verb data inspect: what is in data files.

#include <filesystem>

#include "dat/error.hpp"
#include "options/ranges.hpp"
#include "verbs/data/data.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

void add_options(TableOf<InspectOptions>& table) {
  table.add("FILES", &InspectOptions::files, "data files");
  table.add("--page", &InspectOptions::page,
            "a .png file to draw: 64 images of the training (of the test, where there are no others), of all classes "
            "alike, with their labels; none: nothing is drawn",
            kPath);
}

int run_inspect(const InspectOptions& o, int, char**) {
  int code = print_result([&] {
    std::string text;
    for (const std::string& path : o.files) text += inspect_dataset(path);
    return text;
  });
  if (!o.page.empty())
    code = print_result([&] {
      const int drawn = draw_page(o.files.front(), o.page);
      return "drew " + std::to_string(drawn) + " of the images: " + o.page + "\n";
    });
  return code;
}

}  // namespace

std::optional<InspectOptions> parse_inspect(CommandLine& line) {
  auto read = read_options<InspectOptions>(
      line, "Describes data files: shapes, classes, source, hash; and draws some of their images.", add_options);
  if (!read) return {};
  InspectOptions& o = *read;
  require(o.page.empty() || o.files.size() == 1, ExitCode::usage,
          "--page draws images of one data file; give the files one by one");
  const std::string ending = std::filesystem::path(o.page).extension().string();
  require(o.page.empty() || ending == ".png" || ending == ".PNG", ExitCode::usage, "--page ", o.page,
          ": a page is a .png file");
  return o;
}

Verb data_inspect_verb() { return make_verb("data inspect", "describe data files", parse_inspect, run_inspect); }

}  // namespace dat
