// The verb data synthetic: a procedural, learnable set.

#include "options/ranges.hpp"
#include "verbs/data/data.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

void add_options(TableOf<SyntheticOrder>& table) {
  using O = SyntheticOrder;
  table.add("OUTPUT", &O::output, "the file to write, e.g. shapes.h5");
  table.add("--classes", &O::classes, "kinds of images", {.low = 2, .high = kMostClasses});
  table.add("--size", &O::size, "height and width of the images in pixels", {.low = 4, .high = 4096});
  table.add("--train", &O::train, "training images", kManyImages);
  table.add("--test", &O::test, "test images", kManyImages);
  table.add("--seed", &O::seed, "of every random number", kCount);
}

int run_synthetic(const SyntheticOrder& o, int, char**) {
  return print_result([&] {
    write_synthetic(o, o.output);
    return "wrote " + o.output + "\n";
  });
}

}  // namespace

std::optional<SyntheticOrder> parse_synthetic(CommandLine& line) {
  return read_options<SyntheticOrder>(line, "Writes a procedural, learnable set: coloured shapes on clutter.",
                                      add_options);
}

Verb data_synthetic_verb() {
  return make_verb("data synthetic", "write a synthetic data file", parse_synthetic, run_synthetic);
}

}  // namespace dat
