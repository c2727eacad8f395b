#pragma once

#include "dat/report.hpp"
#include "train/trainer.hpp"

namespace dat {

/// Puts on record why step number `step` was skipped, where it was.
inline void tell_skipped(Report& report, const Trainer& trainer, std::int64_t step) {
  const std::string& why = trainer.skipped();
  if (why.empty()) return;
  if (const double scale = trainer.overflowed_to(); scale > 0)
    report.tell(OverflowRecord{step, scale, why});
  else
    report.tell(SetbackRecord{step, "skipped", why});
}

}  // namespace dat
