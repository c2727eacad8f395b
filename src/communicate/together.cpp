#include "communicate/together.hpp"

#include <limits>
#include <new>
#include <optional>

#include "printed.hpp"

namespace dat {

void complain(const std::string& message) { say("error: " + message); }

Error current_error() {
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

void together(Communicator& ranks, const std::function<void()>& part) {
  const CallLabel label("agreement on errors");
  std::optional<Error> error;
  try {
    part();
  } catch (const std::exception&) {
    error = current_error();
  }
  const std::int64_t first = ranks.minimum(error ? ranks.rank() : ranks.size());
  if (first == ranks.size()) return;
  if (first == ranks.rank()) complain(error->what());
  // Codes are positive: the smallest of those that failed, whoever has none offers a larger one.
  constexpr int kNone = std::numeric_limits<int>::max();
  throw Agreed{static_cast<ExitCode>(ranks.minimum(error ? static_cast<int>(error->code()) : kNone))};
}

}  // namespace dat
