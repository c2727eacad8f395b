#pragma once

#include "dat/error.hpp"
#include "dat/network.hpp"
#include "options/ranges.hpp"
#include "options/table.hpp"

namespace dat {

// Options that several verbs have. Options is the struct of the verb.

inline const char* const kAboutWidth = "channels of the first stage; auto: 64, 16 W";

/// A network by its name; `automatic`: or auto. Too many to stand in the help: the message about a wrong one has them.
[[nodiscard]] inline Range one_network(bool automatic = false) {
  std::vector<std::string> names = networks().names();
  if (automatic) names.insert(names.begin(), "auto");
  return {.label = (automatic ? "auto|NAME|" : "NAME|") + joined(Networks::forms(), "|"),
          .choices = names,
          .also = is_formed_network,
          .others = about_networks};
}

template <class Options>
void add_attack_precision(TableOf<Options>& table) {
  table.add("--attack-precision", &Options::attack_precision,
            "how the attacked network keeps activations and weights; 16 bits need a GPU",
            one_of({"f32", "f16", "bf16"}));
}

/// Adds --precision. what: its help.
template <class Options>
void add_precision(TableOf<Options>& table,
                   const std::string& what =
                       "how training passes, and attacks on batch statistics, keep activations and weights, which are "
                       "updated in f32; 16 bits need a GPU") {
  table.add("--precision", &Options::precision, what + "; tf32: f32 multiplied in TF32, on a GPU (--math tf32)",
            one_of({"f32", "tf32", "f16", "bf16"}));
}

/// Puts --precision tf32 into other words, which all else knows: f32, multiplied in TF32, on a GPU. Error(usage).
template <class Options>
void settle_precision(Options& o) {
  if (o.precision != "tf32") return;
  require(o.math == "tf32", ExitCode::usage, "--precision tf32 multiplies in TF32, and not as --math ", o.math,
          " says; leave one of them off");
  require(o.device != "cpu", ExitCode::usage,
          "--precision tf32 is for GPUs: a CPU has no TF32; take --precision f32, or --device cuda");
  o.precision = "f32";
  o.device = "cuda";
}

/// A trained network, and the images that a verb shows it.
template <class Options>
void add_trained(TableOf<Options>& table) {
  table.add("RUN,--checkpoint", &Options::checkpoint, "the folder of a run: its newest checkpoint; or a checkpoint",
            kPath);
  table.add("--data", &Options::data, "files made by 'dat_hpc data'; none: those of the training", kPaths);
  table.add("--split", &Options::split, "which images; holdout: what the training held out",
            one_of({"test", "train", "holdout"}));
  table.add("--images", &Options::images,
            "a text file with the names of the images to take, one a line: paths in an index, or their ends, and "
            "numbers from 0 in other data files; none: all",
            kPath);
}

/// Adds the choice among the weights of a checkpoint.
template <class Options>
void add_weights(TableOf<Options>& table) {
  table.add("--weights", &Options::weights, "of a checkpoint with averaged ones; auto: those, where it has any",
            one_of({"auto", "raw", "average"}));
}

/// Adds the device on which a verb computes.
template <class Options>
void add_device(TableOf<Options>& table) {
  table
      .add("--device", &Options::device, "where to compute; auto: a GPU where there is one; gpu means cuda",
           {.choices = {"auto", "cpu", "cuda"}, .aliases = {{"gpu", "cuda"}}})
      .may_change();
  table
      .add("--threads", &Options::threads, "CPU threads per rank; auto: this rank's share of the node's cores",
           kAutoThreads)
      .may_change();
  table.add("--math", &Options::math,
            "products of f32 numbers: f32; tf32 on a GPU that has it, else f32; bf16, or bf16x3, on a CPU that has AMX",
            one_of({"f32", "tf32", "bf16", "bf16x3"}));
}

/// Adds the time for planning, for verbs that choose a GPU's algorithms by time.
template <class Options>
void add_planning(TableOf<Options>& table) {
  table
      .add_switch("DAT_PLANNING_SECONDS", "planning-seconds", &Options::planning_seconds,
                  "seconds of a start, for trials of a GPU's algorithms; what was chosen is kept for the next start",
                  kSeconds)
      .may_change();
}

/// Adds the options that train and eval share.
template <class Options>
void add_machine(TableOf<Options>& table) {
  add_device(table);
  table.add("--deterministic", &Options::deterministic,
            "the same bits in every run, at any number of ranks and threads; slower on a GPU");
  table.add("--seed", &Options::seed, "of every random number", kCount);
  table
      .add("--comm-timeout", &Options::comm_timeout,
           "seconds in which no rank gets on, or one is not heard, after which all end with code 6; 0: wait for ever",
           kSeconds)
      .may_change();
  table.add("-q,--quiet", &Options::quiet, "no progress lines").may_change();
}

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
