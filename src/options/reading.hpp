#pragma once

#include "options/ranges.hpp"
#include "options/table.hpp"

namespace dat {

/// Adds the options of reading images that trainings and measurements share. threads: how many there are by themselves.
template <class Options>
void add_reading(TableOf<Options>& table, const std::string& threads) {
  table.add("--size", &Options::size,
            "height = width of what the network sees: of other images the shorter side becomes 256/224 of it, and the "
            "centre is cut out; auto: the images', where they are alike",
            {.low = 4, .high = 4096, .automatic = 0});
  table.add("--augment", &Options::augment,
            "training images: cut out at random after padding by 4, and mirrored; or random windows of .08 to 1 of the "
            "image, resized, and mirrored; or as they are evaluated",
            one_of({"crop", "resized", "none"}));
  table.add("--decode", &Options::decode,
            "training images in JPEG as its standard says; or made smaller as they are decoded, which is faster",
            one_of({"exact", "fast"}));
  table.add("--data-threads", &Options::data_threads, "threads that read images; auto: " + threads, kAutoThreads)
      .may_change();
  table
      .add_switch("DAT_PREFETCH", "prefetch", &Options::prefetch, "batches that are read ahead",
                  {.low = 1, .high = 1000})
      .may_change();
}

}  // namespace dat
