#include "verbs/ranks.hpp"

#include <iostream>
#include <map>
#include <new>
#include <optional>

#include "dat/error.hpp"
#include "dat/provenance.hpp"

namespace dat {

namespace {

/// An error that all ranks know of, and that one of them has printed.
struct Agreed {
  ExitCode code;
};

void complain(const std::string& message) { std::cerr << "dat_hpc: error: " + message + "\n" << std::flush; }

/// The exception being handled, in the program's own terms.
[[nodiscard]] Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ExitCode::device, "not enough memory; choose a smaller --batch, --micro-batch or --width"};
  } catch (const std::exception& error) {
    return {ExitCode::device, std::string("a library failed: ") + error.what()};
  }
}

}  // namespace

std::string current_message() { return current_error().what(); }

void require_printed() {
  require(static_cast<bool>(std::cout), ExitCode::io, "cannot write to standard output; is the disk full?");
}

int print_once(const std::function<std::string()>& text) {
  if (rank_from_environment() != 0) return static_cast<int>(ExitCode::done);
  std::cout << text() << std::flush;
  require_printed();
  return static_cast<int>(ExitCode::done);
}

void together(Communicator& world, const std::function<void()>& part) {
  const CallLabel label("agreement on errors");
  std::optional<Error> error;
  try {
    part();
  } catch (const std::exception&) {
    error = current_error();
  }
  const std::int64_t first = world.minimum(error ? world.rank() : world.size());
  if (first == world.size()) return;
  if (first == world.rank()) complain(error->what());
  // Codes are positive: the smallest of those that failed, whoever has none offers a larger one.
  throw Agreed{static_cast<ExitCode>(world.minimum(error ? static_cast<int>(error->code()) : 255))};
}

Facts facts_of(const std::vector<std::pair<std::string, std::string>>& settings, int argc, char** argv) {
  Facts facts = build_facts();
  facts.emplace_back("verb", argc > 1 ? argv[1] : "");
  for (const auto& [name, value] : settings) facts.emplace_back("--" + name, value);
  return facts;
}

std::string hash_to_compare(const Communicator& world, const Dataset& images) {
  return world.size() > 1 ? content_hash(images) : "";
}

void shake_hands(Communicator& world, const Facts& facts) {
  const CallLabel label("handshake");
  const std::string found = differences(world, facts, host_name());
  together(world, [&] {
    require(found.empty(), ExitCode::usage, "the ranks do not fit together: ", found,
            "; start the same program with the same options, data and kind of device on all of them");
  });
}

std::vector<std::string> device_notices(Communicator& world, const Backend& backend, const std::string& wanted) {
  std::vector<std::string> notices;
  const bool built = cuda_version() != "not built";
  if (wanted == "auto" && built && backend.device().kind == DeviceKind::cpu)
    notices.push_back("no GPU: " + cuda_missing() + "; using the CPU");
  const std::vector<std::string> ids =
      world.gather(backend.device_id().empty() ? "" : host_name() + " " + backend.device_id());
  std::map<std::string, std::string> users;
  for (std::size_t rank = 0; rank < ids.size(); ++rank)
    if (!ids[rank].empty()) {
      std::string& ranks = users[ids[rank]];
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
  for (const auto& [id, ranks] : users)
    if (ranks.find(',') != std::string::npos)
      notices.push_back("warning: ranks " + ranks + " share one GPU of " + id.substr(0, id.find(' ')) +
                        ": start one rank per GPU");
  return notices;
}

int with_ranks(const std::function<int(Communicator&)>& verb) {
  const auto world = Communicator::world();
  const auto leave = [&](const std::string& message, ExitCode code) -> int {
    if (code == ExitCode::communication && world->watched()) world->end(message);
    complain(world->size() == 1 ? message
                                : "rank " + std::to_string(world->rank()) + " on " + host_name() + ": " + message);
    if (world->size() == 1) return static_cast<int>(code);
    world->abort(static_cast<int>(code));
  };
  try {
    return verb(*world);
  } catch (const Agreed& agreed) {
    return static_cast<int>(agreed.code);
  } catch (const Error& error) {
    // Found in numbers that all ranks share: all are here, one speaks.
    if (error.code() == ExitCode::numerical || error.code() == ExitCode::integrity) {
      if (world->root()) complain(error.what());
      return static_cast<int>(error.code());
    }
    return leave(error.what(), error.code());
  } catch (const std::exception&) {
    const Error error = current_error();
    return leave(error.what(), error.code());
  }
}

}  // namespace dat
