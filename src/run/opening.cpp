#include "run/opening.hpp"

#include <sstream>

#include "dat/aggregator.hpp"
#include "run/advice.hpp"
#include "train/attackers/attackers.hpp"
#include "train/plan/parts.hpp"
#include "train/plan/replica_of.hpp"

namespace dat {

namespace {

void warn(Report& report, const Opening& opening, Trainer& trainer, Communicator& ranks) {
  const TrainOptions& options = opening.options;
  for (const auto& all :
       {opening.beginning.warnings, label_remarks(options, trainer.splits()), trainer.method().evaluation.notices()})
    for (const std::string& warning : all) report.warning(warning);
  if (options.overlap && !ranks.move_on_beside())
    report.warning(
        "this MPI does not let a second thread call it: with --overlap, gradients move on between layers only, not "
        "inside them");
  if (options.verify > 0 && ranks.size() == 1)
    report.warning("--verify has no other rank that could recompute anything; start several");
  if (const std::string warning = fault_warning(options.aggregator, options.faults, ranks.size()); !warning.empty())
    report.warning(warning);
  for (const std::string& line : advice(options, trainer.plan(), cores_of_rank(ranks_on_node(ranks, options)).count,
                                        trainer.plan().epoch_of(trainer.steps_done())))
    report.warning(line);
}

[[nodiscard]] std::string what_is_trained(const TrainOptions& options, Trainer& trainer, Communicator& ranks) {
  const int generators = ranks.launch().size() - ranks.size();
  std::ostringstream line;
  line << options.network << " width " << options.width << ", " << file_size(trainer.model().parameters.segments)
       << " parameters, " << ranks.size() << (ranks.size() == 1 ? " rank, " : " ranks, ")
       << (generators == 0 ? "" : std::to_string(generators) + (generators == 1 ? " generator, " : " generators, "))
       << trainer.replica().backend().description()
       << (trainer.replica().backend().device().kind == DeviceKind::cpu
               ? source_of_fewer_threads(options, cores_of_rank(ranks_on_node(ranks, options)).count)
               : "")
       << "; " << sizes_text(trainer.splits())
       << (options.data.empty() ? " (built-in synthetic set; --data trains on yours)" : "");
  return line.str();
}

}  // namespace

RunFacts run_facts(const Opening& opening, Trainer& trainer, Communicator& ranks) {
  const Plan& plan = trainer.plan();
  const Parameters& parameters = trainer.model().parameters;
  return {.folder = opening.folder,
          .config_toml = opening.config,
          .provenance_json = opening.provenance,
          .layer_names = parameters.layer_names,
          .layer_sizes = parameters.layer_sizes,
          .layer_costs = trainer.layers().costs(),
          .ranks = ranks.size(),
          .generators = ranks.launch().size() - ranks.size(),
          .attackers = text_of(attackers_of(opening.options)),
          .total_steps = plan.steps,
          .steps_per_epoch = plan.steps_per_epoch,
          .epochs = plan.epochs,
          .warmup_epochs = plan.warmup_epochs,
          .attack_steps = opening.options.epochs_of_change().size() > 1 ? 0 : trainer.method().attacks.most_gradients(),
          .progress_seconds = opening.options.progress,
          .quiet = opening.options.quiet,
          .tensorboard = opening.options.tensorboard};
}

void tell_opening(Report& report, const Opening& opening, Trainer& trainer, Communicator& ranks) {
  warn(report, opening, trainer, ranks);
  report.message(what_is_trained(opening.options, trainer, ranks));
  for (const std::string& notice : opening.notices)
    notice.starts_with("warning: ") ? report.warning(notice.substr(std::string("warning: ").size()))
                                    : report.message(notice);
  if (opening.options.verbose)
    for (const std::string& implementation : trainer.replica().implementations()) report.message("  " + implementation);
  if (const std::string who = text_of(attackers_of(opening.options)); !who.empty())
    report.message("a simulation with ranks that are made to cheat: " + who);
  const Plan& plan = trainer.plan();
  report.message("run folder " + opening.folder + ", " + text_of_parts(opening.options, plan.mix, plan.ranks) +
                 (plan.mix_text().empty() ? "" : "; " + plan.mix_text()) + opening.beginning.what);
}

}  // namespace dat
