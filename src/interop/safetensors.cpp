#include "interop/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <set>
#include <utility>

#include "checkpoint/checkpoint_file.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/half.hpp"

namespace dat {

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::int64_t kLengthBytes = 8, kMostHeader = 16 << 20;
constexpr std::size_t kMostDimensions = 8, kMostName = 1 << 10;
const char* const kMetadata = "__metadata__";

/// The types that the format knows, and their bytes.
const std::map<std::string, std::int64_t> kElementBytes = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
    {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};

/// A tensor as the header describes it. Offsets count from the end of the header.
struct HeaderEntry {
  std::string name, type;
  std::vector<std::int64_t> shape, offsets;
};

/// Takes in the header as it is parsed: two levels of objects, and lists of whole numbers in the second. Nothing else
/// is built, so memory is bounded by the header's length. A function that returns false ends the parsing.
class HeaderParser final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string wrong;  ///< reason why the parsing ended

  bool start_object(std::size_t) override {
    if (level_ == Level::nothing) return enter(Level::root);
    if (level_ != Level::root) return unexpected();
    if (key_ == kMetadata) return enter(Level::metadata);
    entries.push_back({.name = key_, .type = {}, .shape = {}, .offsets = {}});
    return enter(Level::tensor);
  }
  bool end_object() override {
    if (level_ == Level::tensor && !(has_shape_ && entries.back().offsets.size() == 2 && !entries.back().type.empty()))
      return refuse("the tensor '" + entries.back().name + "' has not all of dtype, shape and data_offsets");
    level_ = level_ == Level::root ? Level::nothing : Level::root;
    has_shape_ = false;
    return true;
  }
  bool key(string_t& name) override {
    if (std::ranges::any_of(name, [](unsigned char c) { return c < ' ' || c == 0x7f; }))
      return refuse("a name holds control characters");
    if (name.size() > kMostName)
      return refuse("a name has " + std::to_string(name.size()) + " bytes, and may have " + std::to_string(kMostName));
    if (level_ == Level::root && !names_.insert(name).second) return refuse("the name '" + name + "' stands twice");
    if (level_ == Level::metadata && metadata.contains(name))
      return refuse("the metadata have the name '" + name + "' twice");
    key_ = std::move(name);
    return true;
  }
  bool string(string_t& text) override {
    if (level_ == Level::metadata) {
      metadata[key_] = std::move(text);
      return true;
    }
    if (level_ != Level::tensor || key_ != "dtype" || !entries.back().type.empty()) return unexpected();
    if (!kElementBytes.contains(text)) return refuse("the tensor '" + entries.back().name + "' has an unknown type");
    entries.back().type = std::move(text);
    return true;
  }
  bool start_array(std::size_t) override {
    if (level_ != Level::tensor) return unexpected();
    const bool shape = key_ == "shape" && !std::exchange(has_shape_, true);
    return shape || (key_ == "data_offsets" && entries.back().offsets.empty()) ? enter(Level::list) : unexpected();
  }
  bool end_array() override { return enter(Level::tensor); }
  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::list) return unexpected();
    HeaderEntry& entry = entries.back();
    std::vector<std::int64_t>& list = key_ == "shape" ? entry.shape : entry.offsets;
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
        list.size() == (key_ == "shape" ? kMostDimensions : 2))
      return refuse("the tensor '" + entry.name + "' has an impossible " + key_);
    list.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool null() override { return unexpected(); }
  bool boolean(bool) override { return unexpected(); }
  bool number_integer(number_integer_t) override { return unexpected(); }
  bool number_float(number_float_t, const string_t&) override { return unexpected(); }
  bool binary(binary_t&) override { return unexpected(); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) override {
    return refuse("its header is not JSON in UTF-8 (byte " + std::to_string(at) + " of it)");
  }

 private:
  enum class Level : std::uint8_t { nothing, root, metadata, tensor, list };
  bool enter(Level level) {
    level_ = level;
    return true;
  }
  bool refuse(std::string why) {
    wrong = std::move(why);
    return false;
  }
  bool unexpected() {
    return refuse(key_.empty() ? "its header is no list of tensors"
                               : "its header has something unknown at '" + key_ + "'");
  }

  Level level_ = Level::nothing;
  std::string key_;
  bool has_shape_ = false;
  std::set<std::string> names_;
};

/// Reads numbers of a stored type, some thousands at a time, as float32.
template <class Stored, class Convert>
void read_numbers(const ByteSource& source, std::int64_t offset, std::vector<float>& values, Convert convert) {
  constexpr std::size_t kPiece = 1 << 14;
  std::vector<Stored> block(std::min(kPiece, values.size()));
  for (std::size_t done = 0; done < values.size(); done += block.size()) {
    block.resize(std::min(block.size(), values.size() - done));
    const std::size_t bytes = block.size() * sizeof(Stored);
    source.read(offset + static_cast<std::int64_t>(done * sizeof(Stored)), block.data(),
                static_cast<std::int64_t>(bytes));
    std::ranges::transform(block, values.begin() + static_cast<std::ptrdiff_t>(done), convert);
  }
}

/// The only element of what may count batches, or of another counter, such as that of averaged networks; empty: its
/// type is no counter's.
[[nodiscard]] std::optional<std::int64_t> read_counter(const ByteSource& source, const HeaderEntry& entry,
                                                       std::int64_t offset) {
  const std::string& type = entry.type;
  const auto number = [&]<class Stored>(Stored value) {
    source.read(offset, &value, sizeof value);
    return value;
  };
  if (type == "I64") return number(std::int64_t{});
  if (type == "I32") return number(std::int32_t{});
  if (!entry.name.ends_with(kBatchCounter)) return {};
  if (type == "F64") return count_of(number(double{}));
  if (type == "F32") return count_of(number(float{}));
  if (type == "F16") return count_of(to_float(number(Half{})));
  if (type == "BF16") return count_of(to_float(number(BFloat16{})));
  return {};
}

/// The number of elements; -1: more than any file has.
[[nodiscard]] std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape)
    if (__builtin_mul_overflow(elements, extent, &elements)) return -1;
  return elements;
}

}  // namespace

StateDict read_safetensors(const ByteSource& source) {
  const auto check = [&](bool condition, const auto&... parts) {
    require(condition, ExitCode::checkpoint, source.name(), ": is no safetensors file, or damaged: ", parts...);
  };
  check(source.size() >= kLengthBytes, "it has ", source.size(), " bytes");
  std::uint64_t length{};
  source.read(0, &length, kLengthBytes);
  check(length <= static_cast<std::uint64_t>(kMostHeader), "its header would have ", length, " bytes");
  const std::int64_t data = kLengthBytes + static_cast<std::int64_t>(length);
  check(data <= source.size(), "its header ends at byte ", data, ", the file at byte ", source.size());
  std::string header(static_cast<std::size_t>(length), ' ');
  source.read(kLengthBytes, header.data(), static_cast<std::int64_t>(length));
  check(header.starts_with('{'), "its header is no list of tensors");
  HeaderParser parsed;
  const bool whole = nlohmann::json::sax_parse(header, &parsed);
  check(whole, parsed.wrong);

  // Elements may lie in another order than names; but they lie there without a gap, and no two in one place.
  std::vector<HeaderEntry>& entries = parsed.entries;
  std::ranges::stable_sort(entries, [](const auto& a, const auto& b) { return a.offsets < b.offsets; });
  std::int64_t end = 0;
  for (const HeaderEntry& entry : entries) {
    const std::int64_t bytes = kElementBytes.at(entry.type), elements = elements_of(entry.shape);
    check(entry.offsets[0] == end && entry.offsets[1] >= end, "the elements of '", entry.name, "' lie from byte ",
          entry.offsets[0], " to ", entry.offsets[1], ", those before them end at byte ", end);
    check(elements >= 0 && elements <= source.size() && entry.offsets[1] - end == elements * bytes, "the tensor '",
          entry.name, "' has ", entry.offsets[1] - end, " bytes, but its type and shape ask for other ones");
    end = entry.offsets[1];
  }
  check(end == source.size() - data, "its tensors end at byte ", data + end, ", the file at byte ", source.size());

  StateDict state{.tensors = {}, .counters = {}, .metadata = std::move(parsed.metadata)};
  for (HeaderEntry& entry : entries) {
    const std::int64_t offset = data + entry.offsets[0], elements = elements_of(entry.shape);
    if (elements == 1)
      if (const auto count = read_counter(source, entry, offset)) {
        state.counters[entry.name] = *count;
        continue;
      }
    Checkpoint::Array tensor{entry.name, std::move(entry.shape), {}};
    tensor.values.resize(static_cast<std::size_t>(elements));
    if (entry.type == "F32")
      source.read(offset, tensor.values.data(), elements * static_cast<std::int64_t>(sizeof(float)));
    else if (entry.type == "F16")
      read_numbers<Half>(source, offset, tensor.values, [](Half x) { return to_float(x); });
    else if (entry.type == "BF16")
      read_numbers<BFloat16>(source, offset, tensor.values, [](BFloat16 x) { return to_float(x); });
    else if (entry.type == "F64")
      read_numbers<double>(source, offset, tensor.values, [](double x) { return static_cast<float>(x); });
    else
      fail(ExitCode::checkpoint, source.name(), ": the tensor '", entry.name, "' is of type ", entry.type,
           ", but weights are real numbers (F32, F16, BF16, F64)");
    state.tensors.push_back(std::move(tensor));
  }
  return state;
}

void write_safetensors(const std::string& path, const StateDict& state) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!state.metadata.empty()) header[kMetadata] = state.metadata;
  std::int64_t end = 0;
  const auto describe = [&](const std::string& name, const char* type, const std::vector<std::int64_t>& shape,
                            std::size_t bytes) {
    const std::int64_t begin = std::exchange(end, end + static_cast<std::int64_t>(bytes));
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {begin, end}}};
  };
  for (const auto& [name, count] : state.counters) describe(name, "I64", {}, sizeof count);
  for (const Checkpoint::Array& tensor : state.tensors)
    describe(tensor.name, "F32", tensor.shape, tensor.values.size() * sizeof(float));
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();

  write_stream_atomically(path, [&](std::ostream& file) {
    const auto write = [&](const void* from, std::size_t bytes) {
      file.write(static_cast<const char*>(from), static_cast<std::streamsize>(bytes));
    };
    write(&length, sizeof length);
    write(text.data(), text.size());
    for (const auto& [name, count] : state.counters) write(&count, sizeof count);
    for (const Checkpoint::Array& tensor : state.tensors)
      write(tensor.values.data(), tensor.values.size() * sizeof(float));
  });
}

}  // namespace dat
