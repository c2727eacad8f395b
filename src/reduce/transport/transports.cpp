#include "reduce/transport/transport.hpp"

namespace dat {

TransportKind sum_transport();
TransportKind gather_transport();
TransportKind two_sided_transport();
TransportKind butterfly_transport();

const Registry<TransportKind()>& transports() {
  static const Registry<TransportKind()> registry("transport", {{"sum", sum_transport},
                                                                {"gather", gather_transport},
                                                                {"two_sided", two_sided_transport},
                                                                {"butterfly", butterfly_transport}});
  return registry;
}

std::vector<std::string> transport_names() {
  return transports().where([](const std::string&) { return true; });
}

std::vector<std::string> transports_of(const Codec& codec) {
  const std::string own = codec.transport();
  std::vector<std::string> names =
      transports().where([&](const std::string& name) { return name != own && transports().at(name)().takes(codec); });
  names.insert(names.begin(), own);
  return names;
}

}  // namespace dat
