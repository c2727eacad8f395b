#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dat/events.hpp"
#include "dat/norm.hpp"

namespace dat {

/// Phases under which the seconds of a run are booked: the lines of a training step, what stands between steps (other,
/// evaluate, checkpoint), and communication that ran beside other phases (hidden). Every second of a run is in one of
/// the first kPhasesInSum phases.
enum class Phase : std::uint8_t {
  data,
  attack,
  forward,
  backward,
  encode,
  exposed,
  decode,
  select,
  update,
  other,
  evaluate,
  checkpoint,
  hidden
};
constexpr int kPhases = 13, kPhasesInSum = 12;
constexpr std::array<const char*, kPhases> kPhaseNames = {"data",     "attack",     "forward", "backward", "encode",
                                                          "exposed",  "decode",     "select",  "update",   "other",
                                                          "evaluate", "checkpoint", "hidden"};

/// Work that generators have done for a step (--generators).
struct GeneratorRecord {
  double waited = 0;             ///< seconds that rank 0 has waited for attacked images
  double idle = 0;               ///< seconds without work that generators have reported, all together
  double age_mean = 0;           ///< steps that weights were behind, in the mean over iterations and micro-batches
  int age_max = 0;               ///< largest age
  std::int64_t dealt_again = 0;  ///< micro-batches that another generator was given once more
  const std::vector<AttackSpan>* spans = nullptr;  ///< spans since the step before, for rank 0; null: not noted
};

/// One training step, as rank 0 knows it. Losses and accuracies are over the whole batch of all ranks.
struct StepRecord {
  std::int64_t step = 0;             ///< counted from 1: the number of updates made
  std::int64_t epoch = 0;            ///< the epoch that the step belongs to, from 0, warm-up included
  std::int64_t steps_per_epoch = 1;  ///< step / steps_per_epoch: epochs done after this step, with their fraction
  double wall_time = 0;              ///< seconds of training so far, over restarts
  double lr = 0, loss_adv = 0, loss_clean = 0, acc_adv = 0, acc_clean = 0;  ///< *_clean: NaN where lambda = 0
  std::int64_t images = 0;                                                  ///< images of all ranks
  std::array<double, kPhases> seconds{};                                    ///< seconds of this step on rank 0
  std::int64_t bytes_sent = 0;   ///< gradient message of one rank; 0 with one rank
  std::int64_t bytes_other = 0;  ///< all other messages of the step: statistics, losses, draws; 0 with one rank
  std::int64_t active_elements = 0;
  double eps = 0;                              ///< radius of the training's attack in the step; 0: none
  std::int64_t attack_passes = 0;              ///< images of all ranks times gradients of the attack, padding included
  std::int64_t weight_gradients = 0;           ///< convolution weight-gradient primitives executed on rank 0
  const std::vector<float>* scale = nullptr;   ///< [layers] 1/p of active layers, 0 of inactive ones
  const std::vector<double>* p = nullptr;      ///< [layers] inclusion probabilities of this step's draw
  const std::vector<double>* norms = nullptr;  ///< [layers] gradient norms of active layers; null: not measured
  /// [ranks of the launch, or fewer] how far each rank's gradient was from the result; NaN: it has left, or has brought
  /// none; null: not measured.
  const std::vector<double>* distances = nullptr;
  const GeneratorRecord* generators = nullptr;  ///< null: there are none
};

/// A PNG file in memory.
struct Picture {
  int height = 0, width = 0;
  std::string png{};  ///< empty: there is none
};

/// Accuracy of one network on one set under one attack; an evaluation under several attacks is several records.
struct EvaluationRecord {
  std::int64_t step = 0;
  std::int64_t epoch = 0;  ///< epochs that are done, warm-up included
  double wall_time = 0;
  std::string split = "test";    ///< test | train | holdout (the part of the training set that is not trained on)
  std::string weights = "raw";   ///< raw | average: as the optimizer has them, or averaged
  std::string attack = "pgd10";  ///< the attack, named as in --eval
  int attack_steps = 0;          ///< gradients per image and restart
  int restarts = 1;
  std::string norm = "linf";  ///< norm of the ball, as norm_from takes it
  double eps = 0, alpha = 0;
  double clean_acc = 0, adv_acc = 0;    ///< parts of `images` that are classified right; adv_acc: after every restart
  double clean_loss = 0, adv_loss = 0;  ///< mean losses; adv_loss: of each image's worst restart
  std::int64_t images = 0;
  Picture picture{};  ///< some images clean, and below them attacked; with --tensorboard, on rank 0
};

/// Seconds and bytes of every rank since the last such record.
struct RankRecord {
  std::int64_t step = 0;
  std::vector<double> seconds;  ///< [ranks of the launch][kPhases]; NaN: the rank has left
  std::vector<double> bytes;    ///< [ranks of the launch] bytes that each rank has sent
};

/// Facts that do not change during a run.
struct RunFacts {
  std::string folder;       ///< --out
  std::string config_toml;  ///< resolved, reloadable
  std::string provenance_json;
  std::vector<std::string> layer_names;   ///< [layers]
  std::vector<std::int64_t> layer_sizes;  ///< [layers]
  std::vector<double> layer_costs;        ///< [layers] in the budget, in units of their mean
  int ranks = 1;                          ///< ranks that train when the run starts
  int generators = 0;                     ///< ranks that attack for them
  std::string attackers;                  ///< ranks that are made to cheat, and how; empty: none
  std::int64_t total_steps = 0;
  std::int64_t steps_per_epoch = 1;
  std::int64_t epochs = 0;       ///< planned epochs, warm-up included
  double warmup_epochs = 0;      //
  int attack_steps = 0;          ///< gradients per image and step, at most; 0: others in other epochs
  double progress_seconds = 10;  ///< interval of progress lines when the output is no terminal
  bool quiet = false;
  bool tensorboard = false;  ///< --tensorboard
};

/// A radius or step size as people write it: "8/255", "0.03"; in L2 always plain.
[[nodiscard]] std::string radius_text(double value, BallNorm norm = BallNorm::linf);
/// "eps 8/255", "l2 eps 0.5".
[[nodiscard]] std::string ball_text(BallNorm norm, double eps);
/// "eps 8/255, alpha 2/255, 1 restart": what the name of the record's attack does not say.
[[nodiscard]] std::string attack_text(const EvaluationRecord& record);
/// The images of a record's split: "test images", "held-out training images".
[[nodiscard]] std::string images_text(const std::string& split);
/// The weights of a record, after a comma: ", averaged weights"; empty for raw ones.
[[nodiscard]] std::string weights_text(const std::string& weights);

/// "63.10 %".
[[nodiscard]] std::string percent_text(double part);
/// Duration with its units: "4 s", "3 min 04 s", "2 h 03 min", "5 d 02 h".
[[nodiscard]] std::string duration_text(double seconds);

/// "512 steps, 16 epochs of 32 steps (1 warm-up)"; "40 of 512 steps, ..." where --max-steps ends the run before its
/// epochs are done. `epochs` includes the warm-up.
[[nodiscard]] std::string plan_text(std::int64_t total_steps, std::int64_t steps_per_epoch, std::int64_t epochs,
                                    double warmup_epochs);

/// Validity of figures: the last word of the line that begins with "Final:", and `verdict` of an evaluation's JSON.
enum class Validity : std::uint8_t {
  valid,    ///< every image of the split was evaluated
  partial,  ///< --limit or --limit-test have left some out
  invalid   ///< a loss was infinite or NaN
};
/// The verdict on figures of `images` images of a split that has `whole`; `finite`: all losses were finite.
[[nodiscard]] Validity verdict_of(bool finite, std::int64_t images, std::int64_t whole);
[[nodiscard]] const char* verdict_text(Validity);  ///< VALID, PARTIAL, INVALID

/// The last line of SUMMARY.txt.
struct FinalResult {
  std::vector<EvaluationRecord> evaluations;  ///< the last one on the test images: a record per weights and attack
  double time_s = 0, comm_s = 0;              ///< comm_s: exposed
  Validity verdict = Validity::valid;
  std::string weights_hash;
  std::vector<std::string> remarks;  ///< lines above the final one
};

class ProgressLine;
class TensorBoard;
struct EventKind;
/// Event kinds of events.def.
[[nodiscard]] const std::vector<EventKind>& event_kinds();

/// Record and messages of a run, on rank 0 only.
///
/// metrics.jsonl is the live record: one JSON object a line, each written with one write(), "kind" = run (the first
/// line: layers and format) | step | evaluation | ranks | that of an event (events.def). results.h5 is made from it by
/// write_results. Nothing is allocated by step().
class Report {
 public:
  /// Creates the folder with config.resolved.toml and provenance.json, or goes on in it: `resume_bytes` >= 0 is the
  /// length to which metrics.jsonl is cut first; < 0 starts an empty file. The caller holds the folder's RunLock.
  /// Removes a results.h5 and SUMMARY.txt that were there. Each line is added by one who is alone (require_alone, also
  /// its errors). Error(io); Error(checkpoint) where metrics.jsonl is shorter than `resume_bytes`. behind: lines that
  /// come after them at once. kinds: of all events that the record may have. TensorBoard's file (--tensorboard) is made
  /// from the record; a run that has one goes on with it.
  Report(RunFacts facts, std::int64_t resume_bytes, const std::string& behind = "",
         const std::vector<EventKind>& kinds = event_kinds());
  ~Report();

  void step(const StepRecord&);  ///< also the progress line, when it is time for one
  /// An evaluation is under way, and this part of it is done: at a terminal, the progress line says so.
  void evaluating(double part);
  /// All records of one step. Prints a line per split and weights.
  void evaluation(const std::vector<EvaluationRecord>&);
  void ranks(const RankRecord&);
  /// An event of events.hpp: its line, and its sentence. The template is in record/event_kind.hpp; made for events.def.
  template <class Event>
  void tell(const Event& event);
  /// Lines that are to follow the first `metrics_bytes` bytes of metrics.jsonl once the run has gone back to the
  /// checkpoint that was written after them: events that last, and this rollback. Changes nothing: the text is to be in
  /// a checkpoint before the record is cut.
  [[nodiscard]] std::string behind_rollback(std::int64_t metrics_bytes, const SetbackRecord& rollback) const;
  /// Cuts metrics.jsonl back to so many bytes, and puts these lines after them; and warns. Error(io);
  /// Error(checkpoint): it is shorter than that. Error(usage), as require_alone().
  void roll_back(std::int64_t metrics_bytes, const std::string& behind, const SetbackRecord& rollback);
  /// Steps are counted anew from here on: those of the run, and of an epoch.
  void count_anew(std::int64_t total_steps, std::int64_t steps_per_epoch);
  void message(const std::string& line);  ///< writes a line to the terminal and run.log, without controls (error.hpp)
  void warning(const std::string& line);  ///< "dat_hpc: warning: ..." to standard error, and to run.log
  /// Error(usage): another process writes metrics.jsonl, too (require_alone).
  void require_alone() const;
  /// Bytes of metrics.jsonl so far, for the checkpoint. The bytes are on disk when this returns. Error(io).
  [[nodiscard]] std::int64_t metrics_bytes();
  /// Makes results.h5, writes SUMMARY.txt and prints it. Returns the final line.
  std::string finish(const FinalResult&);

 private:
  void write_text(std::string_view lines);  // of metrics.jsonl
  /// Lines after the first `from` bytes that stay true where the steps among them are taken back.
  [[nodiscard]] std::string lines_that_stay(std::int64_t from) const;
  void log(const char* text);
  void print(const char* text);  // prints the program's own words; others by message()
  void progress(const StepRecord&);
  void draw(const char* line);  // in place of the line that the terminal shows

  RunFacts facts_;
  const std::vector<EventKind>& kinds_;
  int metrics_ = -1;  // file descriptor
  std::FILE* log_ = nullptr;
  std::int64_t metrics_bytes_ = 0;
  std::string line_;
  std::string metrics_path_;
  std::unique_ptr<ProgressLine> logged_, shown_;  ///< shown_: on the terminal
  std::unique_ptr<TensorBoard> tensorboard_;      ///< null: nobody has asked for it
  bool terminal_ = false, progress_shown_ = false;
  bool attacks_told_ = false;  ///< true if any step in this clock had attacks, since the record's last cut
};

/// Form of pictures.
struct PictureFormat {
  PictureFormat(const char* of_kind) : kind(of_kind) {}
  PictureFormat(std::string of_kind, int dots) : kind(std::move(of_kind)), dpi(dots) {}
  std::string kind;  ///< svg | png | pdf
  int dpi = 100;     ///< dots per inch of a png, which is 10 inches wide or so
  /// The svg is for a page that enlarges images without a blur: grids of cells are images in it, which are small.
  bool sharp_images = false;
};

/// Draws a run's folder through gnuplot into folder/plots/, or `out` where it says something: accuracies, losses, the
/// learning rate, and p per layer, against epochs; seconds by phase and rank. Each picture has its .gp script and .csv
/// data beside it. Returns the pictures' paths. p is left out where it is 1 throughout. Error(data): no run there.
/// Error(usage): format. Error(device): gnuplot is missing or fails; the scripts are written all the same.
[[nodiscard]] std::vector<std::string> plot_run(const std::string& folder, const PictureFormat& format,
                                                const std::string& out = "");

/// Runs that are drawn as one: the mean, and Student's 95 % interval as a band.
struct RunGroup {
  std::string name;  ///< empty: that of the folder
  std::vector<std::string> folders;
};

/// Draws several groups beside each other into the folder `out`: accuracy on the test images against epochs and
/// seconds, seconds by phase, bytes sent. Result and errors as of plot_run.
[[nodiscard]] std::vector<std::string> compare_runs(const std::vector<RunGroup>& groups, const std::string& out,
                                                    const PictureFormat& format);

/// The evaluation that `plot` is given: a file itself, or eval.json in a folder that is no run's; empty: `path` is no
/// evaluation.
[[nodiscard]] std::string evaluation_in(const std::string& path);

struct EvaluationPictures {
  std::vector<std::string> paths;
  std::vector<std::string> remarks;  ///< pictures that could not be drawn, and why
};

/// Draws what `eval --out` has written: which classes are taken for which, accuracy by class with confidence intervals,
/// and what --save-adversarial has left. The pictures go into plots/ beside eval.json, or NAME-plots/ beside NAME.json;
/// all but images into `out`, where it says something. Error(data): no such file, or it is damaged; else as plot_run.
[[nodiscard]] EvaluationPictures plot_evaluation(const std::string& file, const PictureFormat& format,
                                                 const std::string& out = "");

/// The certification that `plot` is given: certify.json itself, or in a folder; empty: `path` is none.
[[nodiscard]] std::string certification_in(const std::string& path);
/// Draws certified accuracy against the radius of what `certify --out` has written, a curve each, as `curves` into
/// `folder`. Error(data): no such file, it is damaged, or holds predictions; else as plot_run.
[[nodiscard]] std::vector<std::string> plot_certifications(const std::vector<std::string>& files,
                                                           const std::string& folder, const PictureFormat& format);

/// Groups of bars, and a line across for what can be reached.
struct BarChart {
  std::string name, title, unit;
  std::vector<std::string> groups, bars;
  std::vector<double> values;  ///< [groups][bars], from 0
  double limit = 0;            ///< 0: no line
  std::string limit_name;
};

/// Draws folder/PICTURE.svg through gnuplot, with its .gp script and .csv data beside it. Returns its path. Error(io);
/// Error(device) as plot_run.
[[nodiscard]] std::string draw_bars(const std::string& folder, const std::string& picture, const BarChart& chart);

/// Lines over a logarithmic axis, each with its name at its end.
struct LineChart {
  std::string name, title, x_label, y_label;
  std::vector<std::string> lines{};
  std::vector<double> x{};       ///< powers of two are marked
  std::vector<double> values{};  ///< [x][lines], above 0; NaN: no point
  /// Start of the values' axis; 0: the axis is logarithmic where values differ ten times.
  double from = 0;
};

/// Draws the lines as draw_bars does the bars; files, result and errors as there.
[[nodiscard]] std::string draw_lines(const std::string& folder, const std::string& picture, const LineChart& chart);

}  // namespace dat
