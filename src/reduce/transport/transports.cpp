#include "reduce/transport/transport.hpp"

namespace dat {

TransportKind sum_transport();
TransportKind gather_transport();
TransportKind two_sided_transport();
TransportKind butterfly_transport();

namespace {

struct Member {
  const char* name;
  TransportKind (*kind)();
};
constexpr Member kMembers[] = {
    {"sum", sum_transport},
    {"gather", gather_transport},
    {"two_sided", two_sided_transport},
    {"butterfly", butterfly_transport},
};

}  // namespace

const Registry<TransportKind()>& transports() {
  static const Registry<TransportKind()> registry("transport", [] {
    std::vector<Registry<TransportKind()>::Row> all;
    for (const Member& member : kMembers) all.push_back({member.name, member.kind});
    return all;
  }());
  return registry;
}

std::vector<std::string> transport_names() {
  std::vector<std::string> names;
  for (const Member& member : kMembers) names.emplace_back(member.name);
  return names;
}

std::vector<std::string> transports_of(const Codec& codec) {
  std::vector<std::string> names = {codec.transport()};
  for (const Member& member : kMembers)
    if (names.front() != member.name && member.kind().takes(codec)) names.emplace_back(member.name);
  return names;
}

}  // namespace dat
