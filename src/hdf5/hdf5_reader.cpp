#include "hdf5/hdf5_reader.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "dat/half.hpp"
#include "hdf5/hdf5_structure.hpp"

namespace dat {

void require_kind(Hdf5Info::Kind kind, Hdf5Type type, ExitCode code, const std::string& path, const std::string& name) {
  using Kind = Hdf5Info::Kind;
  const bool real = type == Hdf5Type::f32 || type == Hdf5Type::f64, integers = type == Hdf5Type::i64;
  require(real ? kind == Kind::real : kind == Kind::u8 || (integers && kind == Kind::integer), code, path, ": dataset ",
          name, " must hold ",
          real       ? "real numbers"
          : integers ? "integers"
                     : "unsigned bytes");
}

Hdf5Reader::Hdf5Reader(std::unique_ptr<ByteSource> source, ExitCode code)
    : file_(std::make_unique<File>(std::move(source), code)) {}
Hdf5Reader::Hdf5Reader(Hdf5Reader&&) noexcept = default;
Hdf5Reader::~Hdf5Reader() = default;

Hdf5Reader Hdf5Reader::open(const std::string& path, ExitCode code) { return {open_bytes(path, code), code}; }

const std::string& Hdf5Reader::path() const { return file_->name(); }

bool Hdf5Reader::has(const std::string& name) const { return file_->find(name) != nullptr; }
bool Hdf5Reader::is_group(const std::string& name) const { return file_->get(name).group; }

std::vector<std::string> Hdf5Reader::list(const std::string& group) const {
  const File::Object& found = file_->get(group);
  require(found.group, file_->code(), path(), ": ", group, " is no group");
  return found.members;
}

Hdf5Info Hdf5Reader::info(const std::string& name) const {
  const File::Data& data = file_->dataset(name);
  Hdf5Info info;
  info.shape = data.shape;
  info.offset = static_cast<std::int64_t>(data.offset);
  info.element = static_cast<std::int64_t>(data.type.size);
  using Kind = File::Type::Kind;
  switch (data.type.kind) {
    case Kind::unsigned_integer:
    case Kind::signed_integer:
      info.is_unsigned = data.type.kind == Kind::unsigned_integer;
      info.kind = info.is_unsigned && data.type.size == 1 ? Hdf5Info::Kind::u8 : Hdf5Info::Kind::integer;
      break;
    case Kind::real:
      info.kind = Hdf5Info::Kind::real;
      break;
    case Kind::text:
    case Kind::text_in_heap:
      info.kind = Hdf5Info::Kind::text;
      break;
    case Kind::other:
      break;
  }
  return info;
}

std::size_t Hdf5Reader::elements(const std::string& name) const {
  return static_cast<std::size_t>(file_->dataset(name).elements);
}

namespace {

// A stored number, its bytes in the machine's order.
template <class T>
T number_of(const std::uint8_t* raw, std::uint64_t size, bool is_signed, bool real) {
  std::uint64_t bits{};
  std::memcpy(&bits, raw, static_cast<std::size_t>(size));
  if (real) {
    if (size == 2) return static_cast<T>(to_float(Half{static_cast<std::uint16_t>(bits)}));
    if (size == 4) return static_cast<T>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    return static_cast<T>(std::bit_cast<double>(bits));
  }
  const auto unused = static_cast<int>(64 - 8 * size);
  if (is_signed) return static_cast<T>(static_cast<std::int64_t>(bits << unused) >> unused);
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<T>(std::min(bits, kMost));
}

}  // namespace

template <class T>
void Hdf5Reader::read_blocks(const std::string& name, const UseBlock<T>& use, std::uint64_t most) const {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::uint64_t kBlock = 1 << 16;  // elements that are converted at a time
  const File::Data& data = file_->dataset(name);
  constexpr bool kReal = std::is_floating_point_v<T>;
  require_kind(info(name).kind, kHdf5Type<T>, file_->code(), path(), name);
  const std::uint64_t size = data.type.size;
  const bool is_signed = data.type.kind == File::Type::Kind::signed_integer;
  std::vector<std::uint8_t> raw;
  std::vector<T> values;
  for (std::uint64_t done = 0, end = std::min<std::uint64_t>(data.elements, most); done < end;) {
    const std::uint64_t count = std::min(kBlock, end - done);
    raw.resize(static_cast<std::size_t>(count * size));
    values.resize(static_cast<std::size_t>(count));
    file_->read(data.offset + done * size, raw.data(), raw.size());
    const bool bytes = size == 1 && !is_signed;  // images, labels: many
    if (bytes) std::ranges::copy(raw, values.begin());
    std::uint8_t* element = raw.data();
    for (auto value = values.begin(); !bytes && value != values.end(); ++value, element += size) {
      if (data.type.big_endian) std::reverse(element, element + size);
      *value = number_of<T>(element, size, is_signed, kReal);
    }
    use(values);
    done += count;
  }
}
template void Hdf5Reader::read_blocks(const std::string&, const UseBlock<std::uint8_t>&, std::uint64_t) const;
template void Hdf5Reader::read_blocks(const std::string&, const UseBlock<std::int64_t>&, std::uint64_t) const;
template void Hdf5Reader::read_blocks(const std::string&, const UseBlock<float>&, std::uint64_t) const;
template void Hdf5Reader::read_blocks(const std::string&, const UseBlock<double>&, std::uint64_t) const;

std::optional<std::vector<std::string>> Hdf5Reader::texts(const std::string& object, const std::string& key) const {
  const File::Data* data = file_->attribute(object, key);
  using Kind = File::Type::Kind;
  if (data == nullptr || (data->type.kind != Kind::text && data->type.kind != Kind::text_in_heap)) return std::nullopt;
  return file_->texts(*data);
}

std::optional<std::string> Hdf5Reader::text(const std::string& object, const std::string& key) const {
  auto values = texts(object, key);
  if (!values || values->size() != 1) return std::nullopt;
  return std::move(values->front());
}

std::optional<std::int64_t> Hdf5Reader::integer(const std::string& object, const std::string& key) const {
  const File::Data* data = file_->attribute(object, key);
  if (data == nullptr || data->elements != 1) return std::nullopt;
  const bool is_signed = data->type.kind == File::Type::Kind::signed_integer;
  if (!is_signed && data->type.kind != File::Type::Kind::unsigned_integer) return std::nullopt;
  std::uint8_t raw[8];
  file_->read(data->offset, raw, data->type.size);
  if (data->type.big_endian) std::reverse(raw, raw + data->type.size);
  return number_of<std::int64_t>(raw, data->type.size, is_signed, false);
}

std::vector<std::string> Hdf5Reader::attribute_names(const std::string& object) const {
  std::vector<std::string> names;
  if (const File::Object* found = file_->find(object))
    for (const auto& [name, data] : found->attributes) names.push_back(name);
  return names;
}

}  // namespace dat
