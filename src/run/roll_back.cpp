#include "communicate/together.hpp"
#include "dat/error.hpp"
#include "run/run.hpp"
#include "train/plan/parts.hpp"

namespace dat {

// A copy of the cause: the trainer that reports it does not live on.
void Run::roll_back(std::string cause, bool to_best) {
  const SkippedSteps before = trainer_->skipped_steps();
  const std::int64_t done = trainer_->steps_done(), first_bad = done - before.in_a_row;
  require(before.rollbacks < options_.max_rollbacks, ExitCode::numerical, cause, "; the run has gone back ",
          before.rollbacks, " times already (times of --on-bad-steps rollback)");
  std::optional<Checkpoint> state;
  CutRecord cut;
  std::int64_t due{}, part{};
  bool recorded{};
  checkpoints_.settle(*ranks_);
  together(*ranks_, [&] {
    if (!ranks_->root()) return;
    state = checkpoints_.to_go_back_to(first_bad - 1, trainer_->plan().steps_per_epoch, to_best);
    require(state.has_value(), ExitCode::numerical, cause, "; there is no checkpoint to go back to");
    cut.bytes = integer_of(*state, "metrics_bytes");
    due = state->integers["evaluation_due"];
    recorded = state->integers["evaluation_recorded"] != 0;
    part = part_at(options_, epoch_at(*state));
    best_.take_up(BestRecord::of(*state), state->integers["since_best"]);
  });
  ranks_->broadcast(&part, sizeof part);
  restart_in(static_cast<int>(part), state);
  state.reset();
  trainer_->set_back(before, options_.rollback_lr);
  checked_ = -1;
  owe(due, recorded);
  // Invariant: whenever the run is killed, its newest checkpoint finds the record that it needs, or has it: later
  // checkpoints go before the record is cut, and the text after the cut is in the checkpoint.
  const SetbackRecord rollback{done, "rollback", cause, trainer_->steps_done(), trainer_->skipped_steps().lr_factor};
  if (ranks_->root()) cut.behind = report_->behind_rollback(cut.bytes, rollback);
  save(Checkpoints::Kind::step, &cut);
  checkpoints_.settle(*ranks_);
  together(*ranks_, [&] {
    if (ranks_->root()) report_->roll_back(cut.bytes, cut.behind, rollback);
  });
  checkpoints_.find_best(*ranks_);
}

}  // namespace dat
