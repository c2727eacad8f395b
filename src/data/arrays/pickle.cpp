#include <algorithm>
#include <utility>

#include "dat/error.hpp"
#include "data/arrays/pickle_machine.hpp"

namespace dat {

namespace {

using pickle::Latin1Stream;
using pickle::Node;
using pickle::NodeId;

/// The integers of a list, as an array of int64.
class ListStream final : public ByteStream {
 public:
  explicit ListStream(std::shared_ptr<const std::vector<std::int64_t>> values) : values_(std::move(values)) {}
  void read(void* to, std::int64_t bytes) override {
    const auto* all = reinterpret_cast<const char*>(values_->data());
    std::copy_n(all + at_, bytes, static_cast<char*>(to));
    at_ += bytes;
  }

 private:
  std::shared_ptr<const std::vector<std::int64_t>> values_;
  std::int64_t at_ = 0;
};

class Pickle final : public ArrayFile, private pickle::Machine {
 public:
  explicit Pickle(const ByteSource& source) : Machine(source) {
    check(!stack_.empty() && nodes_[stack_.back()].kind == Node::Kind::dict, "holds no dictionary of arrays");
  }

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    const std::vector<NodeId>& items = nodes_[stack_.back()].items;
    for (std::size_t i = 0; i < items.size(); i += 2) names.push_back(word(items[i]));
    return names;
  }

  [[nodiscard]] StoredArray array(const std::string& name) const override { return array_of(name, value_of(name)); }

  [[nodiscard]] std::vector<std::string> words(const std::string& name) const override {
    const Node& list = value_of(name);
    check(list.kind == Node::Kind::list || list.kind == Node::Kind::tuple, name, " is no list");
    constexpr std::size_t kMostWords = 1024;
    check(list.items.size() <= kMostWords, name, " lists more than ", kMostWords, " names");
    std::vector<std::string> words;
    for (const NodeId id : list.items) {
      check(is_text(nodes_[id]), name, " is a list of other things than names");
      words.push_back(word(id));
    }
    return words;
  }

 private:
  /// Value of a key; the last one of equal keys counts.
  [[nodiscard]] const Node& value_of(const std::string& name) const {
    const std::vector<NodeId>& items = nodes_[stack_.back()].items;
    for (std::size_t i = items.size(); i > 0; i -= 2)
      if (word(items[i - 2]) == name) return nodes_[items[i - 1]];
    fail(ExitCode::data, source_.name(), ": has no array or list ", name);
  }
  [[nodiscard]] StoredArray array_of(const std::string& name, const Node& node) const {
    StoredArray array;
    array.name = name;
    if (node.kind == Node::Kind::list || node.kind == Node::Kind::tuple) {
      auto values = std::make_shared<std::vector<std::int64_t>>();
      for (const NodeId id : node.items) {
        check(nodes_[id].kind == Node::Kind::integer, name, " is a list of other things than integers");
        values->push_back(nodes_[id].value);
      }
      array.kind = 'i';
      array.item_bytes = sizeof(std::int64_t);
      (void)set_shape({std::ssize(*values)}, array);
      array.open = [values] { return std::make_unique<ListStream>(values); };
      return array;
    }
    check(node.kind == Node::Kind::array && node.items.size() == 3, name, " is no array and no list");
    check(type_of(nodes_[node.items[1]], array), name, " is an array of an unknown type");
    std::vector<std::int64_t> shape;
    for (const NodeId id : nodes_[node.items[0]].items) {
      check(nodes_[id].kind == Node::Kind::integer && shape.size() < 32, name, " has no known shape");
      shape.push_back(nodes_[id].value);
    }
    check(set_shape(std::move(shape), array), name, " claims an impossible size");
    array.column_major = node.value != 0;
    const Node& elements = nodes_[node.items[2]];
    const std::int64_t offset = elements.value, length = elements.length, bytes = array.bytes;
    const bool latin1 = elements.kind == Node::Kind::latin1;
    check(latin1 || elements.kind == Node::Kind::bytes, name, " has no bytes in the file");
    check(latin1 ? length / 2 <= bytes && bytes <= length : length == bytes, name, " has ", length, " bytes from byte ",
          offset, " on, but ", array.text(), " needs ", bytes);
    array.open = [&source = source_, offset, length, bytes, latin1]() -> std::unique_ptr<ByteStream> {
      if (latin1) return std::make_unique<Latin1Stream>(source, offset, length, bytes);
      return std::make_unique<PartStream>(source, offset, length);
    };
    return array;
  }
};

}  // namespace

std::unique_ptr<ArrayFile> open_pickle(const ByteSource& source) { return std::make_unique<Pickle>(source); }

}  // namespace dat
