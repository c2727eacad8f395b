// The verb data index: images in files of their own, or in tars, as a data set of any size.

#include <cmath>
#include <filesystem>
#include <sstream>

#include "assess/progress_lines.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "files/confined.hpp"
#include "options/ranges.hpp"
#include "printed.hpp"
#include "replica/cores.hpp"
#include "verbs/data/data.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

void add_options(TableOf<IndexOrder>& table) {
  using O = IndexOrder;
  table.add("SOURCE", &O::source,
            "images: a folder (train/CLASS/..., test/CLASS/... or val/CLASS/..., or CLASS/... alone), WebDataset's "
            "tars in a folder, a tar of folders, or a tar of one tar for each class (ImageNet)");
  table.add("OUTPUT", &O::output, "the file to write, e.g. imagenet.h5; with --pack a folder");
  table.add("--threads", &O::threads, "threads that decode; auto: one for each core", kAutoThreads);
  table.add("--on-damage", &O::on_damage,
            "images that are damaged are listed, then SOURCE is refused, or they are left out",
            one_of({"refuse", "skip"}));
  table.add("--pack", &O::pack,
            "writes the images, shuffled, into tars in WebDataset's layout; a call that was stopped goes on");
  table.add("--shard-size", &O::shard_megabytes, "megabytes of such a tar", {.low = 1, .high = 1e6})
      .works_with({{"pack"}}, "--shard-size is for --pack; leave it off");
  table.add("--size", &O::size,
            "writes the images' centres, so many pixels high and wide, as a plain data file; auto: an index",
            {.low = 4, .high = 4096, .automatic = 0});
  table.not_together({"pack"}, {"size"},
                     "--pack keeps images as they are, and --size makes a plain data file; leave one of them off");
}

[[nodiscard]] std::string number_of(std::int64_t count, const std::string& one, const std::string& several) {
  return std::to_string(count) + " " + (count == 1 ? one : several);
}

/// The line that says what has been made.
[[nodiscard]] std::string text_of(const IndexOrder& o, const Indexed& made) {
  std::ostringstream text;
  text << "wrote " << o.output << ": " << made.train << " train and "
       << number_of(made.test, "test image", "test images") << " of " << made.classes << " classes";
  if (made.containers > 0) text << " in " << number_of(made.containers, "tar", "tars");
  if (made.kept > 0) text << ", " << made.kept << " of which " << (made.kept == 1 ? "was" : "were") << " there";
  if (o.size > 0) text << ", " << o.size << " x " << o.size << " pixels";
  if (made.others > 0) text << "; " << number_of(made.others, "file is", "files are") << " no image";
  if (made.damaged > 0)
    text << "; " << number_of(made.damaged, "damaged image is", "damaged images are") << " left out, listed in "
         << damage_list(o.output, o.pack);
  return text.str() + "\n";
}

void make(const IndexOrder& o) {
  IndexOptions options = o;
  options.threads = choose_threads(o.threads);
  options.skip_damage = o.on_damage == "skip";
  options.shard_bytes = std::int64_t{o.shard_megabytes} * 1'000'000;
  constexpr double kSeconds = 10;  // between lines
  options.progress = [lines = ProgressLines(kSeconds)](double part) mutable {
    lines(std::to_string(std::lround(100 * part)) + " % of the images", part);
  };
  static_cast<void>(print_result([&] {
    const Indexed made = o.pack ? write_pack(options) : o.size > 0 ? write_sized(options) : write_index(options);
    for (const std::string& remark : made.remarks) say("warning: " + remark);
    return text_of(o, made);
  }));
}

int run_index(const IndexOrder& o, int, char**) {
  require(!o.output.empty(), ExitCode::usage, "OUTPUT has no name; give one after SOURCE");
  std::error_code error;
  const auto kind = fs::status(o.source, error).type();
  require(kind == fs::file_type::directory || kind == fs::file_type::regular, ExitCode::data, o.source,
          ": there is no such folder or file");
  // The index of an earlier call may lie in the folder.
  if (o.pack || kind != fs::file_type::directory || !has_seal(o.output)) require_apart({o.output}, {o.source});
  constexpr std::int64_t kOfAll = std::int64_t{4} << 30, kOfThread = 256 << 20;
  const Limits limits{.cpu_seconds = kIndexSeconds, .memory = kOfAll + kOfThread * choose_threads(o.threads)};
  if (!o.pack) remove_temporaries_of(o.output);  // in its folder write_pack does that
  try {
    confined(o.source, limits, [&] { make(o); });
  } catch (...) {
    if (!o.pack) remove_temporaries_of(o.output);
    throw;
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace

std::optional<IndexOrder> parse_index(CommandLine& line) {
  return read_options<IndexOrder>(
      line, "Makes a data set of images of any size: an index of where they lie, tars, or a plain data file.",
      add_options);
}

Verb data_index_verb() {
  return make_verb("data index", "folders or tars of images -> an index, tars or a data file", parse_index, run_index);
}

}  // namespace dat
