#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dat/error.hpp"
#include "data/arrays/pickle_objects.hpp"

namespace dat::pickle {

/// Runs the operations of a pickle, as far as arrays of NumPy need them, and executes nothing: a name in the file is
/// looked up in kKnown and stands for one kind of object, or the file is refused. Memory for objects is bounded by the
/// length of the file before any is taken.
class Machine {
 protected:
  explicit Machine(const ByteSource& source) : source_(source) {
    while (step()) {
    }
    memo_ = {};
  }

  /// Bytes for objects, over all: a file of arrays has few of them, and a label that is one stands beside an image.
  static constexpr std::int64_t kMemory = 1 << 20, kMemoryOfByte = 4;

  template <class... Parts>
  void check(bool condition, const Parts&... parts) const {
    require(condition, ExitCode::data, source_.name(), ": ", parts...);
  }
  /// Checks a condition of the present operation.
  template <class... Parts>
  void check_here(bool condition, const Parts&... parts) const {
    require(condition, ExitCode::data, source_.name(), ": byte ", begin_, ": ", parts...);
  }

  // The file, byte by byte.
  std::uint8_t byte() {
    if (at_ >= block_begin_ + std::ssize(block_)) {
      check(at_ < source_.size(), "ends at byte ", at_, " in the middle of the pickle: it is cut off");
      block_.resize(static_cast<std::size_t>(std::min(kBlock, source_.size() - at_)));
      source_.read(at_, block_.data(), std::ssize(block_));
      block_begin_ = at_;
    }
    return block_[static_cast<std::size_t>(at_++ - block_begin_)];
  }
  std::uint64_t number(int bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= std::uint64_t{byte()} << (8 * i);
    return value;
  }
  /// Steps over so many bytes of the file and returns where they begin.
  std::int64_t skip(std::uint64_t bytes) {
    check_here(bytes <= static_cast<std::uint64_t>(source_.size() - at_), "needs ", bytes, " more bytes, the file has ",
               source_.size() - at_, ": it is cut off or damaged");
    return std::exchange(at_, at_ + static_cast<std::int64_t>(bytes));
  }
  std::string line() {
    std::string text;
    for (char c = 0; (c = static_cast<char>(byte())) != '\n'; text += c)
      check_here(text.size() < kLongestWord, "has a name of more than ", kLongestWord, " bytes");
    return text;
  }

  /// Counts memory that is about to be taken: twice what a growing array holds, which it is moved into.
  void charge(std::size_t bytes) {
    memory_ += static_cast<std::int64_t>(bytes);
    check_here(memory_ <= kMemory + kMemoryOfByte * source_.size(), "has too many objects for its ", source_.size(),
               " bytes; images and labels as arrays of NumPy are few");
  }
  void charge_items(std::size_t count) { charge(2 * sizeof(NodeId) * count); }

  // The stack.
  void push(NodeId id) {
    charge_items(1);
    stack_.push_back(id);
  }
  void push(Node node) {
    constexpr std::size_t kHeap = 32;  // bytes of the heap beside a node
    charge(sizeof(Node) + kHeap);
    charge_items(node.items.size());
    nodes_.push_back(std::move(node));
    push(static_cast<NodeId>(nodes_.size() - 1));
  }
  void push_bytes(Node::Kind kind, int width) {
    const std::uint64_t length = number(width);
    push({.kind = kind, .value = skip(length), .length = static_cast<std::int64_t>(length)});
  }
  NodeId top() const {
    check_here(stack_.size() > (marks_.empty() ? 0 : marks_.back()), "takes an object where none is");
    return stack_.back();
  }
  NodeId pop() {
    const NodeId id = top();
    stack_.pop_back();
    return id;
  }
  std::vector<NodeId> pop_to_mark() {
    check_here(!marks_.empty(), "ends a group that has not begun");
    std::vector<NodeId> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  std::vector<NodeId> pop_some(int count) {
    std::vector<NodeId> items(static_cast<std::size_t>(count));
    for (int i = count; i-- > 0;) items[static_cast<std::size_t>(i)] = pop();
    return items;
  }
  /// Adds objects to the one on top.
  void extend(Node::Kind kind, const std::vector<NodeId>& items) {
    Node& node = nodes_[top()];
    check_here(node.kind == kind, "adds to an object that cannot hold others");
    charge_items(items.size());
    node.items.insert(node.items.end(), items.begin(), items.end());
  }
  void remember(std::uint64_t key) {
    constexpr std::size_t kEntry = 64;  // bytes of an entry of the map
    charge(kEntry);
    memo_[static_cast<std::uint32_t>(key)] = top();
  }
  void recall(std::uint64_t key) {
    const auto found = memo_.find(static_cast<std::uint32_t>(key));
    check_here(found != memo_.end(), "refers to object ", key, ", which has not come yet");
    push(found->second);
  }

  [[nodiscard]] static bool is_text(const Node& node) {
    return node.kind == Node::Kind::text || node.kind == Node::Kind::bytes || node.kind == Node::Kind::latin1;
  }
  /// A short string. Bytes below 128 are themselves where Python 3 wrote by protocol 2 (latin1).
  [[nodiscard]] std::string word(NodeId id) const {
    const Node& node = nodes_[id];
    if (!is_text(node) || node.length > static_cast<std::int64_t>(kLongestWord)) return "?";
    std::string text(static_cast<std::size_t>(node.length), ' ');
    source_.read(node.value, text.data(), node.length);
    return text;
  }

  void push_known(const std::string& module, const std::string& name) {
    for (const KnownName& known : kKnown)
      if (known.module == module && known.name == name)
        return push({.kind = Node::Kind::known, .value = static_cast<std::int64_t>(known.what)});
    check_here(
        false, "wants ", printable(module + "." + name),
        ", which is no part of an array; nothing in the file was executed. Save dictionaries of NumPy arrays only");
  }

  /// One operation. False: it was the last one. The codes: CPython's Lib/pickletools.py.
  bool step() {
    begin_ = at_;
    const std::uint8_t code = byte();
    check_here(begin_ != 0 || code == 0x80, "no pickle of protocol 2 or newer");
    if (code == '.') return false;  // STOP
    arrange(code);
    return true;
  }
  /// Operations on the file and on the stack; of the others those below.
  void arrange(std::uint8_t code) {
    switch (code) {
      case 0x80: {  // PROTO
        const int protocol = byte();
        return check_here(protocol >= 2 && protocol <= 5, "is of protocol ", protocol, ", known are 2 to 5");
      }
      case 0x95:  // FRAME
        return static_cast<void>(at_ = skip(number(8)));
      case '(':  // MARK
        charge(2 * sizeof(std::size_t));
        return marks_.push_back(stack_.size());
      case '0':  // POP
        return static_cast<void>(pop());
      case '1':  // POP_MARK
        return static_cast<void>(pop_to_mark());
      case '2':  // DUP
        return push(top());
      default:
        return push_value(code);
    }
  }
  /// Numbers, bytes and texts.
  void push_value(std::uint8_t code) {
    using Kind = Node::Kind;
    switch (code) {
      case 'N':  // NONE
        return push(Node{});
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
        return push({.kind = Kind::integer, .value = code == 0x88 ? 1 : 0});
      case 'K':  // BININT1
        return push({.kind = Kind::integer, .value = byte()});
      case 'M':  // BININT2
        return push({.kind = Kind::integer, .value = static_cast<std::int64_t>(number(2))});
      case 'J':  // BININT
        return push({.kind = Kind::integer, .value = static_cast<std::int32_t>(number(4))});
      case 0x8a: {  // LONG1: two's complement, as many bytes as it takes
        const int bytes = byte();
        check_here(bytes <= 8, "holds an integer of ", bytes, " bytes");
        std::uint64_t value = number(bytes);
        if (bytes != 0 && bytes < 8 && (value >> (8 * bytes - 1)) != 0) value |= ~std::uint64_t{0} << (8 * bytes);
        return push({.kind = Kind::integer, .value = static_cast<std::int64_t>(value)});
      }
      case 'G':  // BINFLOAT
        skip(8);
        return push(Node{});
      case 'T':  // BINSTRING: bytes of Python 2
      case 'B':  // BINBYTES
        return push_bytes(Kind::bytes, 4);
      case 'U':  // SHORT_BINSTRING
      case 'C':  // SHORT_BINBYTES
        return push_bytes(Kind::bytes, 1);
      case 0x8e:  // BINBYTES8
      case 0x96:  // BYTEARRAY8
        return push_bytes(Kind::bytes, 8);
      case 0x8c:  // SHORT_BINUNICODE
        return push_bytes(Kind::text, 1);
      case 'X':  // BINUNICODE
        return push_bytes(Kind::text, 4);
      case 0x8d:  // BINUNICODE8
        return push_bytes(Kind::text, 8);
      default:
        return fill(code);
    }
  }
  /// Lists, dictionaries and tuples.
  void fill(std::uint8_t code) {
    using Kind = Node::Kind;
    switch (code) {
      case ']':  // EMPTY_LIST
        return push({.kind = Kind::list});
      case '}':  // EMPTY_DICT
        return push({.kind = Kind::dict});
      case ')':  // EMPTY_TUPLE
        return push({.kind = Kind::tuple});
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        return push({.kind = Kind::tuple, .items = pop_some(code - 0x84)});
      case 't':  // TUPLE
        return push({.kind = Kind::tuple, .items = pop_to_mark()});
      case 'a':  // APPEND
        return extend(Kind::list, pop_some(1));
      case 'e':  // APPENDS
        return extend(Kind::list, pop_to_mark());
      case 's':  // SETITEM
        return extend(Kind::dict, pop_some(2));
      case 'u': {  // SETITEMS
        const std::vector<NodeId> items = pop_to_mark();
        check_here(items.size() % 2 == 0, "has a key without a value");
        return extend(Kind::dict, items);
      }
      default:
        return make(code);
    }
  }
  /// Objects that are remembered, called, or given a state.
  void make(std::uint8_t code) {
    switch (code) {
      case 'q':  // BINPUT
        return remember(byte());
      case 'r':  // LONG_BINPUT
        return remember(number(4));
      case 0x94:  // MEMOIZE
        return remember(memo_.size());
      case 'h':  // BINGET
        return recall(byte());
      case 'j':  // LONG_BINGET
        return recall(number(4));
      case 'c': {  // GLOBAL
        const std::string module = line();
        return push_known(module, line());
      }
      case 0x93: {  // STACK_GLOBAL
        const std::vector<NodeId> names = pop_some(2);
        return push_known(word(names[0]), word(names[1]));
      }
      case 'R':  // REDUCE
        return reduce();
      case 'b':  // BUILD
        return build();
      case 0x97:  // NEXT_BUFFER
        return check_here(false,
                          "refers to bytes outside of the file (out-of-band buffers); save it without buffer_callback");
      default:
        check_here(false, "has the operation 0x", fmt::format("{:02x}", code),
                   ", which arrays do not need: refused, or the file is damaged");
    }
  }

  /// Makes the object that Python would make by a call. Each of the few known functions stands for one kind of object.
  void reduce() {
    using Kind = Node::Kind;
    const NodeId arguments = pop(), function = pop();
    check_here(nodes_[function].kind == Kind::known && nodes_[arguments].kind == Kind::tuple,
               "calls what is no function of NumPy's");
    const std::vector<NodeId>& given = nodes_[arguments].items;
    const auto is = [&](std::size_t i, Kind kind) { return i < given.size() && nodes_[given[i]].kind == kind; };
    const auto what = static_cast<Known>(nodes_[function].value);
    if (what == Known::reconstruct && is(0, Kind::known) &&
        nodes_[given[0]].value == static_cast<int>(Known::ndarray)) {
      push({.kind = Kind::array});
    } else if (what == Known::dtype && (is(0, Kind::text) || is(0, Kind::bytes))) {
      push({.kind = Kind::dtype, .items = {given[0]}});
    } else if (what == Known::encode && is(0, Kind::text) && given.size() == 2 && word(given[1]) == "latin1") {
      const Node& text = nodes_[given[0]];
      push({.kind = Kind::latin1, .value = text.value, .length = text.length});
    } else if (what == Known::bytes && given.empty()) {  // b"" by protocol 2
      push({.kind = Kind::bytes});
    } else if (what == Known::frombuffer && given.size() == 4 && is(1, Kind::dtype) && is(2, Kind::tuple)) {
      const bool column_major = word(given[3]) == "F";
      push({.kind = Kind::array, .value = column_major ? 1 : 0, .items = {given[2], given[1], given[0]}});
    } else if (what == Known::scalar && given.size() == 2 && is(0, Kind::dtype)) {
      push(scalar(nodes_[given[0]], nodes_[given[1]]));
    } else {
      check_here(false, "makes an array in an unknown way: damaged, or of an unknown version of NumPy");
    }
  }

  /// numpy.core.multiarray.scalar(dtype, bytes): an integer, or of no interest.
  [[nodiscard]] Node scalar(const Node& type, const Node& bytes) const {
    StoredArray one;
    if (!type_of(type, one) || (one.kind != 'i' && one.kind != 'u') || one.item_bytes > 8) return {};
    std::uint8_t digits[8] = {};
    if (bytes.kind == Node::Kind::bytes && bytes.length == one.item_bytes)
      source_.read(bytes.value, digits, one.item_bytes);
    else if (bytes.kind == Node::Kind::latin1)
      Latin1Stream(source_, bytes.value, bytes.length, one.item_bytes).read(digits, one.item_bytes);
    else
      return {};
    return {.kind = Node::Kind::integer, .value = integer_of(digits, one)};
  }

  /// Takes the arguments that Python would hand to __setstate__: for an array (version, shape, dtype, in Fortran's
  /// order, elements), for a dtype (version, byte order, ...).
  void build() {
    const NodeId state = pop();
    Node& object = nodes_[top()];
    check_here(nodes_[state].kind == Node::Kind::tuple, "gives an object no state that is known");
    const std::vector<NodeId>& parts = nodes_[state].items;
    if (object.kind == Node::Kind::dtype && parts.size() >= 2) {
      object.items = {object.items[0], parts[1]};
    } else if (object.kind == Node::Kind::array && parts.size() == 5) {
      object.value = nodes_[parts[3]].value;
      object.items = {parts[1], parts[2], parts[4]};
    } else {
      check_here(false, "gives an object no state that is known");
    }
  }

  [[nodiscard]] bool type_of(const Node& type, StoredArray& array) const {
    if (type.kind != Node::Kind::dtype || !read_type(word(type.items[0]), array)) return false;
    if (word(type.items.back()) == ">") array.big_endian = true;
    return true;
  }

  static constexpr std::size_t kLongestWord = 256;

  const ByteSource& source_;
  std::int64_t at_ = 0, begin_ = 0;  ///< the next byte; where the operation at hand begins
  std::int64_t block_begin_ = 0, memory_ = 0;
  std::vector<std::uint8_t> block_;
  std::deque<Node> nodes_;
  std::vector<NodeId> stack_;
  std::vector<std::size_t> marks_;  ///< heights of the stack
  std::unordered_map<std::uint32_t, NodeId> memo_;
};

}  // namespace dat::pickle
