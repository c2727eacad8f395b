#include "dat/aggregator.hpp"
#include "dat/codec.hpp"
#include "dat/node_sums.hpp"
#include "dat/transport_names.hpp"
#include "options/ranges.hpp"
#include "options/train/groups.hpp"

namespace dat {

namespace {

void add_aggregator(TrainTable& table) {
  using O = TrainOptions;
  table.add("--aggregator", &O::aggregator,
            "how the gradients of all ranks become one; all but the mean withstand ranks with false gradients",
            one_of(aggregators().names()));
  table
      .add("--faults", &O::faults, "ranks that may be false; auto: " + own_values(aggregators(), "faults"),
           {.low = 0, .high = kMostRanks, .automatic = -1})
      .counts_with("aggregator", aggregators());
  table.setting("aggregator", "tau", aggregators(), &O::aggregator_tau,
                "the longest that a rank's difference from the result counts with; auto: what half of them are within",
                kAutoRadius);
  table.setting("aggregator", "iterations", aggregators(), &O::aggregator_iterations, "most iterations", kPositive);
  table.setting("aggregator", "mixing", aggregators(), &O::aggregator_mixing,
                "first replace each gradient by the mean of the ranks - faults nearest ones");
  const auto refuse = [&](const Choice& other, const std::string& option, const std::string& why) {
    table.not_together({"aggregator", aggregators().readers("faults")}, other,
                       "an --aggregator that withstands false ranks does not go with " + option + ": " + why +
                           "; leave one of them off");
  };
  refuse({"warm-start"}, "--warm-start", "ranks keep perturbations for each other");
  refuse({"precision", {"f16"}}, "--precision f16",
         "an honest rank's overflow looks like a false gradient (bf16 has none)");
  refuse({"average:bn", {"rebuild"}}, "--average with bn=rebuild", "its statistics are the mean over all ranks");
  refuse({"budget-unit", {"seconds"}}, "--budget-unit seconds", "any rank's measurement counts");
  refuse({"verify"}, "--verify", "a single rank's finding ends the run or leaves a step out");
}

/// The weights of all ranks would be perturbed along a mean of what they say.
void refuse_common_perturbation(const TrainOptions& o) {
  require(o.awp_gamma == 0 || o.awp != "global" || !ranks_may_be_false(o), ExitCode::usage,
          "an --aggregator that withstands false ranks does not go with --awp global, whose perturbation is made of "
          "the mean of all ranks' gradients; choose --awp local");
}

void refuse_protocol(const TrainOptions& o) {
  if (!o.byzantine) return;
  require(o.deterministic, ExitCode::usage,
          "--byzantine wants --deterministic, with which any rank can do another one's work by bits; add it");
  require(o.codec_transport == "auto" || o.codec_transport == "butterfly", ExitCode::usage,
          "--byzantine has gradients go by --codec-transport butterfly, and ", o.codec_transport,
          " is asked for; leave it off");
}

}  // namespace

void add_reduction(TrainTable& table) {
  using O = TrainOptions;
  table.group("Reduction");
  table.add("--codec", &O::codec, "how gradients become messages between ranks", one_of(codecs().names()))
      .bound_to_ranks();
  table
      .add("--codec-transport", &O::codec_transport,
           "how messages meet; auto: " + own_values(codecs(), "codec-transport"), auto_or(transport_names()))
      // Aggregators that look at each rank see the ranks in one order, however messages meet.
      .bound_to_ranks_with({"aggregator", aggregators().others("faults")});
  table
      .add(
          "--node-sums", &O::node_sums,
          "how messages are added up: window, in memory that the ranks of a node share, and by MPI between nodes; mpi, "
          "with equal bits on one node; auto: window where ranks share a node; nccl: on GPUs, in an order of its own",
          auto_or(node_sums_names()))
      .may_change();
  table.not_together(
      {"node-sums", {"nccl"}}, {"deterministic"},
      "--node-sums nccl does not go with --deterministic: NCCL adds up in an order of its own; leave one of them off");
  table.setting("codec", "rank", codecs(), &O::codec_rank,
                "columns of powersgd's factors, atoms of an atomo message; auto: " + own_values(codecs(), "codec:rank"),
                {.low = 1, .high = 65536, .automatic = 0});
  table.setting("codec", "clip", codecs(), &O::codec_clip,
                "largest gradient, in standard deviations of its tensor; 0: any, which is unbiased", kCount);
  add_aggregator(table);
  table
      .add("--byzantine", &O::byzantine,
           "find out ranks with false gradients, or that break the protocol, and go on without them (BTARD)")
      .counts_with("aggregator", aggregators())
      .cites("Gorbunov, Borzunov, Diskin, Ryabinin, \"Secure Distributed Training at Scale\", ICML 2022");
  table
      .add("--validators", &O::validators, "ranks that do another one's work of a step once more in the next one",
           {.low = 0, .high = kMostRanks})
      .works_with("byzantine", {});
  table.rule(refuse_protocol);
  const auto refuse = [&](const Choice& other, const std::string& option, const std::string& why) {
    table.not_together({"byzantine"}, other,
                       "--byzantine does not go with " + option + ": " + why + "; leave one of them off");
  };
  refuse({"aggregator:mixing"}, "mixing of an --aggregator", "ranks see parts of gradients");
  refuse({"awp-gamma"}, "--awp-gamma", "a rank's gradient is one at weights of its own");
  refuse({"holdout"}, "--holdout", "a rank can lie about its share of an evaluation");
  table.rule(refuse_common_perturbation);
  table.add("--overlap", &O::overlap, "send gradients while the backward pass still runs").bound_to_ranks();
  table
      .add_switch("DAT_BUCKET", "bucket", &O::bucket,
                  "most gradients in one message; auto: 2^19 with --overlap, else 2^20", kAutoBucket)
      .works_with("byzantine", {"false"},
                  "--byzantine does not go with DAT_BUCKET: all of a gradient leaves at once; leave one of them off");
}

}  // namespace dat
