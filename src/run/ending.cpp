// How a run ends, and what it leaves of that for whoever looks at its folder.

#include "communicate/together.hpp"
#include "run/run.hpp"

namespace dat {

int Run::go() {
  const auto ended = [this](ExitCode code) {
    end(code);
    if (report_) lock_->sign_off(static_cast<int>(code));
    return static_cast<int>(code);
  };
  try {
    return ended(train());
  } catch (const Agreed& agreed) {
    ended(agreed.code);
    throw;
  } catch (const std::exception&) {  // all ranks are aborted where not all have it, sleeping ones, too
    const ExitCode code = current_error().code();
    if (recording_) sign_off(folder_, static_cast<int>(code));  // the rank may be the only one that knows
    if (is_shared(code)) end(code);
    throw;
  }
}

void Run::end(ExitCode code) {
  if (trainer_) trainer_->examples().close();
  members_.wake(code);
}

}  // namespace dat
