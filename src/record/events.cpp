#include <algorithm>

#include "record/event_kind.hpp"

namespace dat {

#define EVENT(Type) template void Report::tell(const Type&);
#include "dat/events.def"
#undef EVENT

const std::vector<EventKind>& event_kinds() {
  static const std::vector<EventKind> all = {
#define EVENT(Type) kind_of<Type>(),
#include "dat/events.def"
#undef EVENT
  };
  return all;
}

const EventKind* kind_named(std::string_view name, const std::vector<EventKind>& kinds) {
  const auto found = std::ranges::find_if(kinds, [&](const EventKind& kind) { return kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}

}  // namespace dat
