#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "dat/dataset.hpp"

namespace dat {

/// Options of `train` and `validate`: one field per option, named like it (`_` for `-`). A value that an option calls
/// "auto" is the sentinel given here.
struct TrainOptions {
  std::vector<std::string> data;  ///< files of one pool; empty: the built-in synthetic set
  std::string mix = "pool";       ///< pool | balanced:SHARE, as read_mix takes it
  std::int64_t limit_train = 0;   ///< first N samples; 0: all
  std::int64_t limit_test = 0;
  std::int64_t holdout = 0;  ///< training images that are kept aside to choose the best checkpoint by
  bool augment = true;

  std::string network = "preact_resnet18";
  int width = 0;                          ///< channels of the first stage; never 0 in a parsed command
  std::string activation = "relu";        ///< relu | silu
  std::string normalize = "none";         ///< as normalization_from takes it
  std::string bn_statistics = "average";  ///< average: running statistics are averaged over ranks each step | local

  std::string attack = "pgd";
  int attack_steps = 10;
  std::string norm = "linf";             ///< linf | l2: of the ball of perturbations
  double eps = 8.0 / 255;                ///< radius, images in [0, 1]
  double alpha = 0;                      ///< step size; 0: the attack's own
  int attack_stop = -1;                  ///< tau of pgd's early stop; -1: off
  std::string attack_bn = "auto";        ///< auto (the attack's own) | eval | train
  std::string attack_precision = "f32";  ///< f32 | f16 | bf16: storage of the attacked network; evaluation is f32
  int attack_batch = 0;                  ///< images in a pass of the attack; never 0 in a parsed command
  int warm_start = 0;                    ///< epochs between random starts; 0: every start is random
  bool attack_reuse = false;             ///< the training pass is the last step of pgd, for the warm start
  int stale_attack = 0;  ///< iterations of pgd that the next step's first micro-batch has on the old weights
  std::string attack_start = "auto";  ///< auto (the loss's own) | uniform: in the ball | gaussian: beside the image
  std::string loss = "cross_entropy";
  double lambda = -1;          ///< weight of the clean loss; never -1 in a parsed command
  double beta = -1;            ///< trades, kl, mart: weight of the divergence; -1: the loss's own
  double label_smoothing = 0;  ///< of the cross-entropies
  double awp_gamma = 0;        ///< how far weights are perturbed, in parts of their norm; 0: not at all
  int awp_from = 0;            ///< the epoch that does it first
  std::string awp = "global";  ///< global: along the gradient of all ranks | local: each rank along its own

  std::vector<std::string> eval = {"pgd"};  ///< attacks, as read_attack_word takes them; parsed: with their steps
  std::string eval_norm = "auto";           ///< auto (norm) | linf | l2; never auto in a parsed command
  double eval_eps = 0;                      ///< 0: eps; never 0 in a parsed command
  double eval_alpha = 0;                    ///< step size; 0: the attack's own
  int eval_attack_steps = 10;               ///< of a pgd without number
  int eval_restarts = 1;

  std::string optimizer = "lamb";
  double lr = 0.01;
  double momentum = 0.9;
  bool nesterov = false;                              ///< sgd
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6;  ///< lamb
  bool bias_correction = false;                       ///< lamb
  double weight_decay = -1;                           ///< -1: the optimizer's own
  double trust_coefficient = 1e-3;                    ///< lars_sgd
  double clamp_low = 0, clamp_high = 10;
  double clip_norm = 0;               ///< largest norm of the gradient; 0: any
  std::string importance = "inside";  ///< inside | outside
  std::string average = "none";       ///< of the weights: none | one of average_rules()
  double average_decay = 0.995;       ///< ema
  int average_from = 0;               ///< epochs until averaging begins, those of the warm-up included
  std::string average_bn = "auto";    ///< its batch statistics: raw | rebuild | ema; never auto in a parsed command
  std::string schedule = "step";
  std::vector<int> milestones = {75, 90, 95};  ///< epochs after the warm-up, increasing
  double lr_decay = 0.1;
  int epochs = -1;         ///< after the warm-up; never -1 in a parsed command
  int warmup_epochs = -1;  ///< never -1 in a parsed command
  int batch = 0;           ///< images per rank and step; in a parsed command 0 with total_batch alone
  int total_batch = 0;     ///< images of all ranks and step, dealt as micro-batches; 0: batch times the ranks
  int micro_batch = 0;     ///< 0: batch; else it divides batch

  std::string selector = "exp3";
  double budget = 0;                   ///< mean number of active layers; 0: 40/54 of the layers
  std::string budget_unit = "layers";  ///< layers | bytes | seconds
  double p_min = 0.1;
  std::string granularity = "tensor";     ///< tensor | module | block
  std::string resample = "step";          ///< step | epoch | a number of steps
  std::string mask = "shared";            ///< shared: all ranks train the same layers | per_worker: each draws its own
  std::string bandit_loss = "selfnorm";   ///< one of bandit_losses()
  double bandit_rate = 0;                 ///< 0: the loss's own
  double freeze_t0 = 0.8;                 ///< freezeout
  std::string freeze_schedule = "cubic";  ///< freezeout: linear | squared | cubic
  std::string freeze_lr = "scaled";       ///< freezeout: scaled | unscaled | constant
  double freeze_percentile = 50;          ///< autofreeze

  std::string codec = "float32";         ///< how gradients become messages
  std::string codec_transport = "auto";  ///< auto (the codec's own) | sum | gather | two_sided
  int codec_rank = 0;                    ///< columns of powersgd's factors, atoms of atomo; 0: the codec's own
  double codec_clip = 2.5;               ///< of terngrad, in standard deviations; 0: none
  std::string aggregator = "mean";       ///< how the gradients of all ranks become one
  std::string transport = "union";       ///< of masks per worker: dense | union | allgather
  bool overlap = false;                  ///< send gradients while the backward pass runs
  std::int64_t bucket = 0;               ///< elements of one message; 0: 2^19 with overlap, else 2^23

  std::string out;                      ///< empty: the run names its folder by time or job
  std::int64_t max_steps = 0;           ///< 0: no limit
  int eval_every = 10;                  ///< epochs; 0: only at the end
  std::int64_t patience = 0;            ///< evaluations without a better one on what is held out; 0: any number
  std::int64_t checkpoint_every = 0;    ///< steps; 0: every epoch
  bool checkpoint_async = false;        ///< write checkpoints beside the steps
  std::string on_full = "stop";         ///< stop | continue: where a checkpoint cannot be written
  std::int64_t max_bad_steps = 0;       ///< with numbers that are not finite, in a row, which are skipped
  std::string on_bad_steps = "stop";    ///< stop | rollback: where there are more
  std::string on_overfitting = "warn";  ///< warn | stop | rollback: the robust accuracy on what is held out collapses
  double overfitting_margin = 0.2;      ///< below the best so far, as an accuracy
  double rollback_lr = 0.5;             ///< factor of the learning rate after going back to a checkpoint
  std::int64_t max_rollbacks = 3;
  std::string resume = "auto";  ///< auto | never | path of a checkpoint or of a run
  std::string initialize;       ///< path of weights to begin with; empty: random ones
  std::uint64_t seed = 1;
  std::string device = "auto";          ///< auto | cpu | cuda
  int threads = 0;                      ///< per rank; 0: the cores of the node shared fairly
  std::string math = "tf32";            ///< f32 | tf32 (where the GPU has it): products of f32 numbers
  bool deterministic = false;           ///< algorithms by rule, sums in the order of micro-batches (sums_are_ordered)
  std::string resident = "auto";        ///< auto | on | off: the dataset in the device's memory
  std::string graphs = "on";            ///< on | off: CUDA graphs of attacks and training passes
  int check_every = 10;                 ///< steps between replica checks; 0: never
  std::string on_corruption = "abort";  ///< abort | repair
  int verify = 0;                       ///< steps between recomputed micro-batches; 0: none
  double comm_timeout = 120;            ///< seconds without progress after which the run hangs; 0: any
  double progress = 10;                 ///< seconds between progress lines
  bool quiet = false, verbose = false;

  /// Whether a step may end without an update, so that what it has changed must be put back.
  [[nodiscard]] bool steps_may_be_left_out() const { return max_bad_steps > 0 || on_corruption == "repair"; }
  friend bool operator==(const TrainOptions&, const TrainOptions&) = default;
};

/// Whether all that ranks add up is added in an order of the micro-batches of all ranks, so that the result is the same
/// on any number of ranks: --deterministic, unless the ranks bring something of their own (ordering_refused), which a
/// parsed command does not have then.
[[nodiscard]] bool sums_are_ordered(const TrainOptions& options);
/// An option by which ranks differ in more than their micro-batches, such as "--codec int8"; empty: there is none.
[[nodiscard]] std::string ordering_refused(const TrainOptions& options);

/// Options of `eval`.
struct EvalOptions {
  std::string checkpoint;                   ///< a checkpoint file, or the folder of a run: its newest
  std::vector<std::string> data;            ///< empty: the data that the network was trained on
  std::string split = "test";               ///< test | train | holdout
  std::int64_t limit = 0;                   ///< first N samples; 0: all
  std::string weights = "auto";             ///< auto (the averaged ones, where there are any) | raw | average
  std::vector<std::string> eval = {"pgd"};  ///< attacks, and one sequence of attacks at most
  int attack_steps = 10;                    ///< of a pgd without number
  std::string norm = "auto";                ///< auto (that of the run) | linf | l2
  double eps = 0;                           ///< 0: that of the run
  double alpha = 0;                         ///< 0: the attack's own
  int restarts = 1;
  int batch = 128;                ///< images per rank and step
  std::string out;                ///< file or folder for the results as JSON; empty: none
  bool save_adversarial = false;  ///< the images that a sequence has attacked, in the folder `out`
  double progress = 10;           ///< seconds between progress lines
  double comm_timeout = 120;
  std::uint64_t seed = 1;
  std::string device = "auto";
  int threads = 0;
  std::string math = "tf32";
  bool deterministic = false;
  bool quiet = false;

  friend bool operator==(const EvalOptions&, const EvalOptions&) = default;
};

/// Options of `bench`.
struct BenchOptions {
  std::string network = "resnet18";
  int width = 0;   ///< never 0 in a parsed command
  int batch = 64;  ///< images per rank
  int attack_steps = 10;
  std::string attack_precision = "f32";
  std::string device = "auto";
  int threads = 0;
  std::string math = "tf32";
  double seconds = 60;  ///< to spend, roughly
  std::string out;      ///< empty: nothing is written

  friend bool operator==(const BenchOptions&, const BenchOptions&) = default;
};

/// Options of `forecast`.
struct ForecastOptions {
  std::string calibration{};  ///< file; empty: measured now, with the options up to `seconds`
  std::string network = "preact_resnet18";
  int width = 0;   ///< never 0 in a parsed command
  int batch = 64;  ///< images per rank
  std::string attack = "pgd";
  int attack_steps = 10;
  double lambda = -1;  ///< weight of the clean loss; -1: 1 with pgd, else 0
  std::string attack_precision = "f32";
  std::string device = "auto";
  int threads = 0;
  std::string math = "tf32";
  double seconds = 60;  ///< to spend, roughly

  std::vector<int> ranks = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  int ranks_per_node = 1;
  std::vector<std::string> bandwidth{};  ///< networks; empty: 1, 10, 25 and 100 Gbit/s, and what was measured
  std::vector<double> latency{};         ///< microseconds, one for all or one each; empty: as measured, or 30
  std::vector<std::string> codec{};      ///< empty: all of the calibration
  std::vector<double> budget{};          ///< empty: 40/54 of the layers
  std::string budget_unit = "layers";    ///< layers | bytes
  double p_min = 0.1;
  std::string algorithm = "ring";  ///< ring | tree
  bool overlap = false;
  std::int64_t bucket = 0;  ///< elements of one message; 0: as train; never 0 in a parsed command
  int stale_attack = 0;     ///< iterations
  double jitter = 0;        ///< standard deviation of computing times, as a part of them
  std::string out{};        ///< empty: nothing is written

  friend bool operator==(const ForecastOptions&, const ForecastOptions&) = default;
};

/// Options of `data synthetic`.
struct SyntheticCommand {
  SyntheticOptions set;
  std::string output;
};

/// Options of `plot`.
struct PlotOptions {
  std::vector<std::string> runs;  ///< folders of runs; files or folders of evaluations
  std::string format = "svg";     ///< svg | png
  std::string out;                ///< folder of the pictures that compare runs; never empty for several runs
};

/// Options of `export`.
struct ExportOptions {
  std::string checkpoint;        ///< a checkpoint file, or the folder of a run: its newest
  std::string format = "auto";   ///< safetensors | onnx | robustbench; never auto in a parsed command
  std::string weights = "auto";  ///< auto (the averaged ones, where there are any) | raw | average
  std::string evaluation;        ///< JSON of `eval --out`, for robustbench; empty: no figures
  std::string out;               ///< file; of robustbench a folder

  friend bool operator==(const ExportOptions&, const ExportOptions&) = default;
};

/// Options of `import`.
struct ImportOptions {
  std::string file;                 ///< safetensors, state_dict in HDF5, checkpoint, or the folder of a run
  std::string network = "auto";     ///< auto: as the file says
  int width = 0;                    ///< 0: as the file says, else the published one
  std::string activation = "auto";  ///< auto: as the file says, else that of TrainOptions; so is normalize
  std::string normalize = "auto";
  int size = 0;               ///< of the images; 0: as the file says, else 32
  std::string norm = "auto";  ///< of the ball that it was trained for; auto: as the file says, else linf
  double eps = 0;             ///< its radius; 0: as the file says, else that of TrainOptions
  int new_head = 0;           ///< classes of a last layer that begins anew; 0: the file's is taken
  std::uint64_t seed = 1;     ///< of the new last layer
  std::string out;            ///< the checkpoint to write

  friend bool operator==(const ImportOptions&, const ImportOptions&) = default;
};

/// Options of `slurm`, beside those of `train`.
struct SlurmOptions {
  int nodes = 1;
  int gpus_per_node = 0;   ///< 0: the ranks compute on CPUs
  int ranks_per_node = 0;  ///< 0: one for each GPU, or one
  int cpus_per_rank = 8;
  std::string time;         ///< as Slurm writes it; empty: from the seconds of a step
  double step_seconds = 0;  ///< 0: not known
  std::string like;         ///< folder of a run whose steps took as long; empty: none
  std::string job_name = "dat_hpc", partition, account, modules;
  std::vector<std::string> train{};  ///< the options of `train` that were given, as words of a command line

  friend bool operator==(const SlurmOptions&, const SlurmOptions&) = default;
};

/// What the command line asks for. Only the options of the verb are meaningful.
struct Command {
  enum class Verb : std::uint8_t {
    train,
    eval,
    validate,
    data_convert,
    data_synthetic,
    data_inspect,
    plot,
    bench,
    doctor,
    slurm,
    forecast,
    export_network,
    import_network,
    version,
    print
  };
  Verb verb = Verb::train;
  TrainOptions train{};  ///< train, validate, slurm
  EvalOptions eval{};
  ConvertOptions convert{};
  SyntheticCommand synthetic{};
  std::vector<std::string> inspect{};  ///< data files
  PlotOptions plot{};
  BenchOptions bench{};
  SlurmOptions slurm{};
  ForecastOptions forecast{};
  ExportOptions exported{};
  ImportOptions imported{};
  std::string resolved_toml{};    ///< train, validate, eval: every option, `key = value` a line, readable with --config
  std::string text{};             ///< print: help or configuration, to be printed instead of running
  std::set<std::string> given{};  ///< options that the command line, a file or a recipe has set, by name
  std::vector<std::string> warnings{};  ///< about the command line
};

/// Reads the command line, the file that --config names and the recipe that --recipe names; what comes first here wins.
/// Calls neither MPI nor a device.
/// Error(usage): unknown or misspelt option or key, wrong type, value out of range, options that do not fit together;
/// the message names the option, or the file and the line.
[[nodiscard]] Command parse_command_line(int argc, const char* const* argv);

/// "lr = 0.1 (default 0.01)": the options of a parsed command that differ from those of `train` without any.
[[nodiscard]] std::vector<std::string> differences_from_defaults(const TrainOptions& options);

/// Options that say more of other selectors than this one, which does not look at them.
[[nodiscard]] std::set<std::string> options_of_other_selectors(const std::string& selector);

/// Every option, `key = value` a line, readable with --config.
[[nodiscard]] std::string toml_of(const TrainOptions& options);

/// The options written in `toml` (as by `resolved_toml`), defaults for the rest. `where` names the text in messages.
[[nodiscard]] TrainOptions parse_train_options(const std::string& toml, const std::string& where);

}  // namespace dat
