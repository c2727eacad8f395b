// The verb data convert: a data file from what others have.

#include "options/ranges.hpp"
#include "printed.hpp"
#include "verbs/data/data.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

void add_options(TableOf<ConvertOptions>& table) {
  using O = ConvertOptions;
  table.add("SOURCE", &O::source,
            "a folder of CIFAR-10, CIFAR-100 (binary or Python version), MNIST, EMNIST, QMNIST, SVHN or STL-10, or "
            "such a set as it was downloaded (.tar.gz, .tar, .zip, ...); a .pickle, .npz or .npy file of images; an "
            "HDF5 file in chunks, compressed or in another layout");
  table.add("OUTPUT", &O::output, "the file to write, e.g. cifar10.h5");
  table.add("--labels", &O::labels, "the labels of a .npy file of images: a .npy file too; none: SOURCE has them",
            kPath);
  table.add("--val", &O::val, "validation images (MedMNIST): left out, with the training images, or as test images",
            one_of({"leave", "train", "test"}));
  table.add("--size", &O::size, "height and width of records' images in pixels; auto: 32",
            {.low = 4, .high = 4096, .automatic = 0});
  table.add("--label-bytes", &O::label_bytes,
            "bytes before the pixels of records, the last of which is the label; auto: 2 of CIFAR-100, else 1",
            {.low = 1, .high = 16, .automatic = 0});
  table.add("--classes", &O::classes,
            "auto: as many as the source names; else of records 10, of arrays as the labels say",
            {.low = 2, .high = kMostClasses, .automatic = 0});
}

int run_convert(const ConvertOptions& o, int, char**) {
  return print_result([&] {
    const Converted held = convert_dataset(o);
    for (const std::string& remark : held.remarks) say("warning: " + remark);
    return "wrote " + o.output + (held.contents.empty() ? "" : ": ") + held.contents + "\n";
  });
}

}  // namespace

std::optional<ConvertOptions> parse_convert(CommandLine& line) {
  return read_options<ConvertOptions>(line, "Makes a data file from published sets, arrays of NumPy, or HDF5 files.",
                                      add_options);
}

Verb data_convert_verb() {
  return make_verb("data convert", "CIFAR, MNIST, arrays of NumPy, HDF5 -> a data file", parse_convert, run_convert);
}

}  // namespace dat
