// Datasets of an HDF5 file as arrays, read by the library in blocks of rows: for `data convert` alone.

#include <algorithm>

#include "dat/error.hpp"
#include "data/arrays/arrays.hpp"
#include "hdf5/hdf5.hpp"

namespace dat {

namespace {

/// The elements of a dataset of integers, in their order, each in the bytes that it has in the file. Read by whole
/// rows.
template <class T>
class RowsStream final : public ByteStream {
 public:
  RowsStream(const Hdf5File& file, const StoredArray& array)
      : file_(file), name_(array.name), item_bytes_(array.item_bytes), row_bytes_(array.bytes / array.shape.front()) {}
  void read(void* to, std::int64_t bytes) override {
    const std::int64_t rows = bytes / row_bytes_;
    auto* out = static_cast<char*>(to);
    for (const T& element : file_.read_rows<T>(name_, next_, rows))
      out = std::copy_n(reinterpret_cast<const char*>(&element), item_bytes_, out);  // little-endian
    next_ += rows;
  }

 private:
  const Hdf5File& file_;
  std::string name_;
  std::int64_t item_bytes_, row_bytes_, next_ = 0;
};

class Hdf5Arrays final : public ArrayFile {
 public:
  explicit Hdf5Arrays(const Hdf5File& file) : file_(file) { find("/"); }
  [[nodiscard]] std::vector<std::string> names() const override { return names_; }
  [[nodiscard]] StoredArray array(const std::string& name) const override {
    const Hdf5Info info = file_.info(name);
    StoredArray array;
    array.name = name;
    array.item_bytes = info.element;
    array.kind = info.is_unsigned                       ? 'u'
                 : info.kind == Hdf5Info::Kind::integer ? 'i'
                 : info.kind == Hdf5Info::Kind::real    ? 'f'
                 : info.kind == Hdf5Info::Kind::text    ? 'S'
                                                        : 'V';
    require(set_shape(info.shape, array), ExitCode::data, file_.path(), ": ", name, " claims an impossible size");
    array.open = [&file = file_, array, kind = info.kind]() -> std::unique_ptr<ByteStream> {
      if (kind == Hdf5Info::Kind::u8) return std::make_unique<RowsStream<std::uint8_t>>(file, array);
      return std::make_unique<RowsStream<std::int64_t>>(file, array);
    };
    return array;
  }
  [[nodiscard]] std::vector<std::string> words(const std::string& name) const override {
    return file_.read_texts(name);
  }

 private:
  void find(const std::string& group) {
    constexpr int kMostDepth = 16;
    constexpr std::size_t kMostNames = 1 << 16;
    require(std::ranges::count(group, '/') < kMostDepth, ExitCode::data, file_.path(),
            ": has groups in groups without end");
    for (const std::string& member : file_.list(group)) {
      require(names_.size() < kMostNames, ExitCode::data, file_.path(), ": has more than ", kMostNames, " datasets");
      const std::string name = group == "/" ? member : group + "/" + member;
      file_.is_group(name) ? find(name) : names_.push_back(name);
    }
  }

  const Hdf5File& file_;
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<ArrayFile> open_hdf5_arrays(const Hdf5File& file) { return std::make_unique<Hdf5Arrays>(file); }

}  // namespace dat
