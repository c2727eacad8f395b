// HDF5 files in chunks, compressed or with links become plain ones.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "data/arrays/arrays.hpp"
#include "data/convert/forms.hpp"
#include "hdf5/hdf5.hpp"

namespace dat {
namespace {

/// All datasets, each in one piece: numbers, as require_weight() has made sure.
void copy_plainly(const Hdf5File& from, const std::vector<std::string>& names, Hdf5File& to) {
  const auto copy = [&]<class T>(const std::string& name, const Shape& shape, T) {
    Shape whole;
    if (shape.empty()) return to.write(name, shape, from.read<T>(name, whole));
    to.declare<T>(name, shape);
    const std::int64_t row =
        std::accumulate(std::next(shape.begin()), shape.end(), std::int64_t{sizeof(T)}, std::multiplies<>());
    if (row == 0) return;
    constexpr std::int64_t kBlocks = 8;  // as images
    const std::int64_t rows = shape.front(), block = kBlocks * rows_at_once(row);
    for (std::int64_t first = 0; first < rows; first += block)
      to.write_rows(name, first, from.read_rows<T>(name, first, std::min(block, rows - first)));
  };
  for (const std::string& name : names) {
    const Hdf5Info info = from.info(name);
    if (info.kind == Hdf5Info::Kind::u8)
      copy(name, info.shape, std::uint8_t{});
    else if (info.kind == Hdf5Info::Kind::integer)
      copy(name, info.shape, std::int64_t{});
    else if (info.element <= std::int64_t{sizeof(float)})
      copy(name, info.shape, float{});
    else
      copy(name, info.shape, double{});
  }
}

/// The names of the classes, as stored_class_names() has them; empty: none are named.
std::vector<std::string> class_names_in(const Hdf5File& from) {
  constexpr const char* kName = "class_names";
  using Kind = Hdf5Info::Kind;
  const Kind kind = from.has(kName) && !from.is_group(kName) ? from.info(kName).kind : Kind::other;
  if (kind == Kind::text) return clean_class_names(from.read_texts(kName));
  if (kind != Kind::u8) return from.texts("/", kName).value_or(std::vector<std::string>{});
  Shape shape;
  const std::vector<std::uint8_t> lines = from.read<std::uint8_t>(kName, shape);
  return class_names_of(std::string(lines.begin(), lines.end()));
}

/// Error(data): a dataset is no tensor of a network, so that no verb could read what it would become.
void require_weight(const std::string& path, const StoredArray& array) {
  const bool one = array.bytes == array.item_bytes && (array.kind == 'i' || array.kind == 'u');
  require(array.kind == 'f' || one, ExitCode::data, path,
          ": holds neither images under the names in use nor weights: ", printable(array.name), " is ", array.text(),
          "; images are called train/images and test/images, or images, with labels beside them (data/README.md)");
}

}  // namespace

void convert_hdf5(const ConvertOptions& options) {
  const Hdf5File from = Hdf5File::open(options.source, ExitCode::data);
  const std::unique_ptr<ArrayFile> arrays = open_hdf5_arrays(from);
  if (has_named(*arrays))
    return convert_named(options, *arrays, class_names_in(from), from.text("/", "source").value_or(""));
  require(options.size == 0 && options.classes == 0 && options.val == "leave", ExitCode::usage, options.source,
          ": holds weights; leave --size, --classes and --val off");
  const std::vector<std::string> names = arrays->names();
  for (const std::string& name : names) require_weight(options.source, arrays->array(name));
  write_sealed_hdf5(options.output, [&](Hdf5File& to) {
    for (const std::string& name : from.attribute_names("/")) {
      if (const auto number = from.integer("/", name)) to.set_integer("/", name, *number);
      const std::vector<std::string> texts = from.texts("/", name).value_or(std::vector<std::string>{});
      if (texts.size() == 1) to.set_text("/", name, texts.front());
      if (texts.size() > 1) to.set_texts("/", name, texts);
    }
    copy_plainly(from, names, to);
  });
}

}  // namespace dat
