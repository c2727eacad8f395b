// The verb eval: how accurate the network of a checkpoint is, clean, under single attacks and under a sequence of them.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <sstream>

#include "assess/alarms.hpp"
#include "assess/evaluation.hpp"
#include "assess/sequence_files.hpp"
#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "dat/run_lock.hpp"
#include "replica/device_notices.hpp"
#include "replica/model_state.hpp"
#include "replica/replica.hpp"
#include "train/plan/splits.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

namespace dat {

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// The network's classes, as its head and its training data tell.
struct Classes {
  int count = 0;
  std::vector<std::string> names;  ///< empty: unknown
};

[[nodiscard]] Classes classes_of(const Checkpoint& checkpoint, const std::string& path) {
  // The only matrix is the last layer's.
  const auto head = std::find_if(checkpoint.arrays.begin(), checkpoint.arrays.end(), [](const Checkpoint::Array& a) {
    return a.name.starts_with("param/") && a.shape.size() == 2;
  });
  require(head != checkpoint.arrays.end(), ExitCode::checkpoint, path, " holds no network");
  Classes classes{static_cast<int>(head->shape[0]), {}};
  if (const auto names = checkpoint.texts.find("class_names"); names != checkpoint.texts.end()) {
    std::istringstream text(names->second);
    for (std::string name; std::getline(text, name);) classes.names.push_back(name);
  }
  return classes;
}

/// Accuracy on images of other classes would mean nothing.
void require_same_classes(const DatasetInfo& info, const Classes& classes, const std::string& path) {
  const auto numbered = [](const std::vector<std::string>& names) {
    return names == numbered_classes(static_cast<int>(names.size()));
  };
  if (classes.names.empty() || numbered(info.class_names) || numbered(classes.names)) {
    require(info.classes <= classes.count, ExitCode::data, "the data has ", info.classes, " classes, the network in ",
            path, " knows ", classes.count, "; take the data it was trained for");
    return;
  }
  require(info.class_names == classes.names, ExitCode::data, "the data's classes (", info.class_names.front(), " ... ",
          info.class_names.back(), ") are not those of the network in ", path, " (", classes.names.front(), " ... ",
          classes.names.back(), "); take the data it was trained for");
}

/// Everything that is needed on every rank, in the order in which it is made.
struct Setting {
  std::unique_ptr<Dataset> data;
  std::int64_t split_images = 0;  ///< without --limit
  Classes classes;
  std::unique_ptr<EvaluationAttacks> attacks;  ///< each on all images
  std::optional<AttackSequence> sequence;
  std::unique_ptr<SequenceAttacks> sequence_attacks;  ///< null without a sequence, as all that is for one
  std::unique_ptr<Replica> replica;
  std::unique_ptr<Evaluator> evaluator;
  std::unique_ptr<SequenceEvaluator> sequence_evaluator;
  std::vector<std::string> network_warnings;  ///< on rank 0, where a sequence has been run
  BallNorm norm = BallNorm::linf;
  double eps = 0;
  std::int64_t step = 0;
  std::string weights = "raw";  ///< as in records
  std::string training;         ///< a hash of its options, which say what the network computes with its weights
};

[[nodiscard]] Setting prepare(Communicator& world, const EvalOptions& options) {
  Setting s;
  const std::string& path = options.checkpoint;
  Checkpoint checkpoint = find_checkpoint(path, [&](const std::string& warning) {
    if (world.root()) std::cerr << "dat_hpc: warning: " + warning + "\n";
  });
  require(!options.data.empty() || !checkpoint.texts.contains("imported_from"), ExitCode::usage, path,
          " was imported and has no data of its own; give --data");
  const TrainOptions trained = parse_train_options(checkpoint.texts["config_toml"], path);
  TrainOptions wanted = trained;
  if (!options.data.empty()) {  // what the training kept aside, or left out, is not in there
    wanted.data = options.data;
    wanted.holdout = wanted.limit_train = 0;
    wanted.mix = "pool";
  }
  require(options.split != "holdout" || wanted.holdout > 0, ExitCode::usage, path,
          options.data.empty() ? " kept nothing aside in its training; take --split test"
                               : " kept images of its own data aside; leave --data off");
  wanted.limit_test = 0;
  auto whole = open_split(wanted, options.split);
  s.split_images = whole->size();
  s.data = first_of(std::move(whole), options.limit);
  const std::int64_t unlabelled = unlabelled_images(*s.data);
  require(unlabelled == 0, ExitCode::usage, unlabelled, " of the ", s.data->size(), " ", images_text(options.split),
          " have no label (-1), so that nobody knows whether they are classified right; take --split test, or --data "
          "with labels");
  s.classes = classes_of(checkpoint, path);
  const DatasetInfo& info = s.data->info();
  require_same_classes(info, s.classes, path);
  if (const auto size = checkpoint.integers.find("image_size"); size != checkpoint.integers.end())
    require(size->second == info.size, ExitCode::data, "the data's images have ", info.size, "x", info.size,
            " pixels, the network in ", path, " was trained on ", size->second, "x", size->second);
  if (const auto channels = checkpoint.integers.find("image_channels"); channels != checkpoint.integers.end())
    require(channels->second == info.channels, ExitCode::data, "the data's images have ", info.channels,
            " channels, the network in ", path, " was trained on ", channels->second);
  s.step = checkpoint.integers["step"];
  const std::string& toml = checkpoint.texts["config_toml"];
  s.training = sha256_hex(toml.data(), toml.size());
  const std::string norm = options.norm == "auto" ? trained.norm : options.norm;
  require(options.eps > 0 || norm == trained.norm, ExitCode::usage, "--norm ", norm, " is not that of the training, ",
          trained.norm, ", whose eps says nothing there; give --eps");
  s.norm = norm_from(norm);
  s.eps = options.eps > 0 ? options.eps : trained.eps;
  require_in_range("--eps", s.norm, s.eps);
  require_in_range("--alpha", s.norm, options.alpha);
  std::vector<std::string> single;
  for (const std::string& word : options.eval)
    if (names_sequence(word))
      s.sequence = read_attack_sequence(word, options.attack_steps, options.restarts);
    else
      single.push_back(word);
  s.attacks = std::make_unique<EvaluationAttacks>(EvaluationOptions{.attacks = single,
                                                                    .norm = s.norm,
                                                                    .eps = s.eps,
                                                                    .alpha = options.alpha,
                                                                    .steps = options.attack_steps,
                                                                    .restarts = options.restarts,
                                                                    .classes = s.classes.count});
  // With --deterministic any number of ranks computes the same batches.
  const auto share = options.deterministic ? s.data->size() : (s.data->size() + world.size() - 1) / world.size();
  std::int64_t batch = std::min<std::int64_t>(options.batch, share);
  int pass = 0, scratch_images = s.attacks->scratch_images();
  if (s.sequence) {
    const bool gpu = options.device == "cuda" || (options.device == "auto" && cuda_missing().empty());
    require_f32(*s.sequence, gpu, options.math);
    pass = sequence_micro_batch(gpu);
    batch = (batch + pass - 1) / pass * pass;
    s.sequence_attacks = std::make_unique<SequenceAttacks>(*s.sequence, s.norm, s.eps, options.alpha, s.classes.count);
    scratch_images = std::max(scratch_images, s.sequence_attacks->scratch_images());
  }
  DatasetInfo images = info;
  images.classes = s.classes.count;
  const BackendOptions backend{.device = options.device,
                               .threads = choose_threads(options.threads, world.node_size()),
                               .node_rank = world.node_rank(),
                               .math = options.math,
                               .deterministic = options.deterministic || s.sequence.has_value()};
  s.replica = std::make_unique<Replica>(ReplicaOptions{.backend = backend,
                                                       .network = trained.network,
                                                       .width = trained.width,
                                                       .activation = trained.activation,
                                                       .normalize = trained.normalize,
                                                       .images = images,
                                                       .micro_batch = static_cast<int>(batch),
                                                       .attack_batch = pass,
                                                       .scratch_images = scratch_images,
                                                       .training_batches = {}});
  load_network(checkpoint, s.replica->model());
  if (takes_average(checkpoint, options.weights, trained.average_bn == "rebuild", path)) {
    load_average(checkpoint, s.replica->model());
    s.weights = "average";
  }
  s.evaluator =
      std::make_unique<Evaluator>(world, *s.data, nullptr, s.replica->images(), s.replica->evaluated(),
                                  options.deterministic ? Evaluator::Dealing::batches : Evaluator::Dealing::samples);
  if (s.sequence)
    s.sequence_evaluator =
        std::make_unique<SequenceEvaluator>(world, *s.data, s.replica->images(), s.replica->evaluated());
  s.replica->commit();
  return s;
}

/// Progress lines on standard error.
class Progress {
 public:
  /// images: of rank 0.
  Progress(std::int64_t images, double interval) : images_(images), interval_(interval), begin_(Clock::now()) {}

  void operator()(std::int64_t done) {
    const double part = static_cast<double>(done) / static_cast<double>(images_);
    if (!due() || done >= images_) return;
    char text[64];
    std::snprintf(text, sizeof text, "%.0f %% of the images", 100 * part);
    print(text, last_ * (1 - part) / part);
  }
  /// Of an attack of a sequence, as if it broke no more images.
  void operator()(const SequenceEvaluator::Progress& now) {
    if (!due() || now.part >= 1) return;
    std::ostringstream text;
    text << now.attack;
    if (now.runs > 1) text << ", run " << now.run << " of " << now.runs;
    text << ": " << now.done << " of " << now.images << " images, " << now.right << " right";
    print(text.str(), now.seconds * (1 - now.part) / now.part);
  }

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] bool due() {
    const double now = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (now - last_ < interval_) return false;
    last_ = now;
    return true;
  }
  static void print(const std::string& what, double seconds) {
    const auto left = static_cast<long long>(seconds);
    char text[64];
    std::snprintf(text, sizeof text, "  ETA %lld:%02lld:%02lld\n", left / 3600, left / 60 % 60, left % 60);
    std::cerr << what + text << std::flush;
  }

  std::int64_t images_;
  double interval_, last_ = 0;
  Clock::time_point begin_;
};

[[nodiscard]] double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

[[nodiscard]] Validity verdict_on(const Setting& s, const EvaluationResult& result) {
  bool finite = std::isfinite(mean(result.clean.loss));
  for (const EvaluationResult::Outcome& one : result.attacked) finite = finite && std::isfinite(mean(one.loss));
  return verdict_of(finite, s.data->size(), s.split_images);
}

/// What a sequence has found out, by attack; what it has found out about each image is in `per_image`.
[[nodiscard]] Json json_of(const Setting& s, const SequenceResult& result, Json& per_image) {
  Json all = {{"name", s.sequence->name},      {"title", s.sequence->title},
              {"norm", name_of(s.norm)},       {"eps", s.eps},
              {"accuracy", result.accuracy()}, {"notices", s.sequence_attacks->notices()}};
  if (!s.sequence->remark.empty()) all["notices"].push_back(s.sequence->remark);
  for (const std::string& warning : s.network_warnings) all["notices"].push_back(warning);
  for (std::size_t k = 0; k < result.rows.size(); ++k) {
    const SequenceResult::Row& row = result.rows[k];
    all["attacks"].push_back({{"name", row.attack},
                              {"runs", row.runs},
                              {"alpha", s.sequence_attacks->members()[k].attack->alpha()},
                              {"images", row.images},
                              {"broken", row.broken},
                              {"zero_gradients", row.zero_gradients},
                              {"accuracy", row.accuracy},
                              {"seconds", row.seconds}});
  }
  const std::string& name = s.sequence->name;
  for (const SequenceResult::Image& image : result.images) {
    per_image[name + "_correct"].push_back(image.robust() ? 1 : 0);
    per_image["broken_by"].push_back(
        image.robust() ? Json(nullptr) : Json(result.rows[static_cast<std::size_t>(image.broken_by)].attack));
    per_image["run"].push_back(image.run);
    per_image["prediction"].push_back(image.prediction);
    per_image["distance"].push_back(image.distance);
  }
  return all;
}

[[nodiscard]] Json json_of(const std::vector<Alarm>& alarms) {
  Json all = Json::array();
  for (const Alarm& alarm : alarms)
    all.push_back({{"name", alarm.name},
                   {"tested", alarm.state != Alarm::State::not_tested},
                   {"raised", alarm.state == Alarm::State::raised},
                   {"text", alarm.text}});
  return all;
}

/// Results by class and image. An accuracy of a class without images is null. sequence: null without one.
[[nodiscard]] Json json_of(const Setting& s, const EvaluationResult& result, const SequenceResult* sequence,
                           const std::vector<Alarm>& alarms, const EvalOptions& options) {
  const std::vector<EvaluationRecord> records = result.records(*s.attacks);
  const Dataset& data = *s.data;
  Json all = {{"filetype", "evaluation"},
              {"format_version", 1},
              {"checkpoint", options.checkpoint},
              {"step", s.step},
              {"weights_hash", weights_hash(s.replica->model())},
              {"data", options.data},
              {"split", options.split},
              {"weights", s.weights},
              {"images", data.size()},
              {"split_images", s.split_images},
              {"verdict", verdict_text(verdict_on(s, result))},
              {"seed", options.seed},
              {"seconds", result.seconds},
              {"clean", {{"accuracy", mean(result.clean.correct)}, {"loss", mean(result.clean.loss)}}},
              {"attacks", Json::array()}};
  for (const EvaluationRecord& r : records)
    all["attacks"].push_back({{"name", r.attack},
                              {"steps", r.attack_steps},
                              {"restarts", r.restarts},
                              {"norm", r.norm},
                              {"eps", r.eps},
                              {"alpha", r.alpha},
                              {"accuracy", r.adv_acc},
                              {"loss", r.adv_loss}});
  Json per_sequence;
  if (sequence != nullptr) all["sequence"] = json_of(s, *sequence, per_sequence);
  all["alarms"] = json_of(alarms);
  std::vector<int> labels;
  for (std::int64_t i = 0; i < data.size(); ++i) labels.push_back(data.label(i));
  const auto by_class = [&](const std::vector<double>& correct, int label) -> Json {
    double right = 0, images = 0;
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (labels[i] == label) {
        ++images;
        right += correct[i];
      }
    return images > 0 ? Json(right / images) : Json(nullptr);
  };
  for (int label = 0; label < s.classes.count; ++label) {
    const auto k = static_cast<std::size_t>(label);
    Json row = {{"name", k < s.classes.names.size() ? s.classes.names[k] : "class " + std::to_string(label)},
                {"images", std::count(labels.begin(), labels.end(), label)},
                {"clean_accuracy", by_class(result.clean.correct, label)}};
    for (std::size_t a = 0; a < records.size(); ++a)
      row[records[a].attack + "_accuracy"] = by_class(result.attacked[a].correct, label);
    if (sequence != nullptr) {
      std::vector<double> right;
      for (const SequenceResult::Image& image : sequence->images) right.push_back(image.robust() ? 1 : 0);
      row[s.sequence->name + "_accuracy"] = by_class(right, label);
    }
    all["classes"].push_back(row);
  }
  Json& each = all["per_image"];
  each["label"] = labels;
  const auto add = [&](const std::string& name, const EvaluationResult::Outcome& one) {
    each[name + "_correct"] = std::vector<int>(one.correct.begin(), one.correct.end());
    each[name + "_loss"] = one.loss;
    each[name + "_prediction"] = std::vector<int>(one.prediction.begin(), one.prediction.end());
  };
  add("clean", result.clean);
  for (std::size_t a = 0; a < records.size(); ++a) add(records[a].attack, result.attacked[a]);
  if (sequence != nullptr) each.update(per_sequence);
  return all;
}

/// The file that --out names: itself, or eval.json in a folder. Error(io).
[[nodiscard]] std::string prepare_output(const std::string& out) {
  const fs::path path = fs::path(out).extension() == ".json" ? fs::path(out) : fs::path(out) / "eval.json";
  if (path.has_parent_path()) {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    require(!error, ExitCode::io, "cannot create the folder ", path.parent_path().string(), ": ", error.message());
  }
  return path.string();
}

/// The folder of a sequence's evaluation, on rank 0: where it goes on, and where its results go.
struct SequenceFolder {
  std::string path;
  RunLock lock;
  Journal journal;
  std::optional<AdversarialImages> adversarial{};
};

[[nodiscard]] std::string exact(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

/// All that decides about the flags of a sequence.
[[nodiscard]] Facts sequence_facts(const Setting& s, const EvalOptions& options) {
  const std::vector<float> statistics = running_statistics(s.replica->model());
  std::string members;
  for (const SequenceAttacks::Member& member : s.sequence_attacks->members())
    members += (members.empty() ? "" : ", ") + member.name + " x " + std::to_string(member.runs);
  Facts facts = build_facts();
  for (const auto& fact :
       Facts{{"sequence", s.sequence->name},
             {"its runs", members},
             {"norm", name_of(s.norm)},
             {"eps", exact(s.eps)},
             {"alpha", exact(options.alpha)},
             {"seed", std::to_string(options.seed)},
             {"precision", s.replica->backend().arithmetic()},
             {"images in a pass", std::to_string(s.replica->frozen().n())},
             {"hash of the training's options", s.training},
             {"hash of the weights", weights_hash(s.replica->model())},
             {"hash of the running statistics", sha256_hex(statistics.data(), statistics.size() * sizeof(float))},
             {"number of images", std::to_string(s.data->size())},
             {"hash of the images", content_hash(*s.data)},
             {"adversarial images kept", options.save_adversarial ? "yes" : "no"}})
    facts.push_back(fact);
  return facts;
}

/// Error(usage): the folder is a training's. Else as RunLock, Journal and AdversarialImages.
[[nodiscard]] std::unique_ptr<SequenceFolder> open_folder(const Setting& s, const EvalOptions& options) {
  const fs::path path = options.out;
  for (const char* sign : {"metrics.jsonl", "ckpt"})
    require(!fs::exists(path / sign), ExitCode::usage, "--out ", options.out, " is the folder of a training, whose ",
            "results.h5 this evaluation would overwrite; take another one, such as ",
            (path / s.sequence->name).string());
  std::unique_ptr<SequenceFolder> folder(new SequenceFolder{
      path.string(), RunLock(path.string(), [](const std::string& line) { std::cerr << "dat_hpc: " + line + "\n"; }),
      Journal((path / "sequence.journal").string(), sequence_facts(s, options))});
  if (options.save_adversarial) {
    bool begun = false;
    for (const JournalEntry& entry : read_journal(folder->journal.found()))
      for (std::size_t i = 0; i < entry.images.size(); ++i)
        begun = begun || (entry.stage > 0 && entry.outcomes[i].prediction != s.data->label(entry.images[i]));
    folder->adversarial.emplace(path.string(), *s.data, begun);
  }
  return folder;
}

/// Runs the sequence, from where the folder's journal ends. folder: on rank 0; null where nothing is kept. Prints what
/// the user should know before. **Collective.**
[[nodiscard]] SequenceResult run_sequence(Communicator& world, Setting& s, const EvalOptions& options,
                                          SequenceFolder* folder) {
  SequenceEvaluator::Options run;
  run.seed = options.seed;
  run.images_wanted = options.save_adversarial;
  std::string found = folder != nullptr ? folder->journal.found() : "";
  world.broadcast(found);
  together(world, [&] { run.found = read_journal(found); });
  if (world.root()) {
    std::vector<std::int32_t> labels;
    s.network_warnings = network_warnings(s.sequence_evaluator->logits_of_first(5, labels), labels);
    for (const std::string& warning : s.network_warnings) std::cerr << "dat_hpc: warning: " + warning + "\n";
    for (const std::string& notice : s.sequence_attacks->notices()) std::cerr << "dat_hpc: " + notice + "\n";
    if (!s.sequence->remark.empty()) std::cerr << "dat_hpc: " + s.sequence->name + ": " + s.sequence->remark + "\n";
    if (!options.quiet && !run.found.empty())
      std::cerr << "dat_hpc: goes on behind " + std::to_string(run.found.size()) + " groups of images in " +
                       folder->path + "/sequence.journal\n";
    if (!options.quiet) run.progress = Progress(s.data->size(), options.progress);
    if (folder != nullptr)
      run.entry = [folder](const JournalEntry& entry) {
        if (folder->adversarial) folder->adversarial->sync();
        folder->journal.append(entry);
      };
    if (folder != nullptr && folder->adversarial)
      run.broken = [folder](std::int64_t image, const float* pixels) { folder->adversarial->keep(image, pixels); };
  }
  return s.sequence_evaluator->run(*s.sequence_attacks, run);
}

/// What a person should know of the sequence's result, in lines.
[[nodiscard]] std::string text_of(const Setting& s, const SequenceResult& result) {
  char line[256];
  std::snprintf(line, sizeof line, "  %-8s accuracy %.4f", s.sequence->name.c_str(), result.accuracy());
  std::string text = line;
  if (!s.sequence->title.empty()) text += "  " + s.sequence->title;
  text += "  (" + ball_text(s.norm, s.eps) + ")\n";
  std::snprintf(line, sizeof line, "    %-10s %5s %8s %8s %9s %10s\n", "attack", "runs", "images", "broken", "accuracy",
                "seconds");
  text += line;
  for (const SequenceResult::Row& row : result.rows) {
    std::snprintf(line, sizeof line, "    %-10s %5d %8lld %8lld %9.4f %10.1f\n", row.attack.c_str(), row.runs,
                  static_cast<long long>(row.images), static_cast<long long>(row.broken), row.accuracy, row.seconds);
    text += line;
  }
  return text;
}

int evaluate(Communicator& world, const Command& command, int argc, char** argv) {
  const EvalOptions& options = command.eval;
  shake_hands(world, facts_of(command, argc, argv));
  if (options.comm_timeout > 0) world.watch(options.comm_timeout);
  Setting s;
  Facts facts;
  together(world, [&] {
    s = prepare(world, options);
    facts = {{"device", s.replica->backend().arithmetic()},
             {"hash of the weights", weights_hash(s.replica->model())},
             {"hash of the images", hash_to_compare(world, *s.data)}};
  });
  shake_hands(world, facts);
  std::string output;
  std::unique_ptr<SequenceFolder> folder;
  together(world, [&] {
    if (options.out.empty() || !world.root()) return;
    if (s.sequence && fs::path(options.out).extension() != ".json") folder = open_folder(s, options);
    output = prepare_output(options.out);
  });
  if (world.root())
    for (const std::string& warning : s.attacks->warnings()) std::cerr << "dat_hpc: warning: " + warning + "\n";
  for (const std::string& notice : device_notices(world, s.replica->backend(), options.device))
    if (world.root() && (!options.quiet || notice.starts_with("warning: "))) std::cerr << "dat_hpc: " + notice + "\n";
  std::function<void(std::int64_t)> progress;
  if (world.root() && !options.quiet)
    progress = Progress((s.data->size() + world.size() - 1) / world.size(), options.progress);
  const EvaluationResult result = s.evaluator->run(*s.attacks, options.seed, progress);
  std::optional<SequenceResult> sequence;
  if (s.sequence) sequence = run_sequence(world, s, options, folder.get());

  const std::vector<EvaluationRecord> records = result.records(*s.attacks);
  std::vector<AttackFigure> figures;
  for (const EvaluationRecord& r : records) figures.push_back({r.attack, r.adv_acc});
  const std::vector<Alarm> alarms = masking_alarms(figures, sequence ? &*sequence : nullptr);
  const std::vector<std::string> hosts = world.gather(host_name());
  together(world, [&] {
    if (output.empty()) return;
    const std::string provenance = provenance_json(hosts, argc, argv, s.replica->backend().description());
    if (folder != nullptr) {
      const FileFacts about = {
          {"sequence", s.sequence->name}, {"title", s.sequence->title},           {"norm", name_of(s.norm)},
          {"eps", exact(s.eps)},          {"seed", std::to_string(options.seed)}, {"checkpoint", options.checkpoint},
          {"split", options.split},       {"alarms", alarms_text(alarms)},        {"provenance", provenance}};
      if (folder->adversarial) folder->adversarial->finish(*sequence, about);
      write_sequence_results(folder->path + "/results.h5", *s.data, *sequence, about);
    }
    Json all = json_of(s, result, sequence ? &*sequence : nullptr, alarms, options);
    all["provenance"] = Json::parse(provenance);
    write_atomically(output, [&](const std::string& temporary) {
      std::ofstream file(temporary, std::ios::binary);
      file << all.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
      file.close();
      require(file.good(), ExitCode::io, "cannot write ", temporary, ": ", system_reason(errno));
    });
  });
  if (!world.root()) return static_cast<int>(ExitCode::done);

  const double clean_acc = mean(result.clean.correct), clean_loss = mean(result.clean.loss);
  double seconds = result.seconds;
  char line[256];
  std::ostringstream text, last;
  text << options.checkpoint << ": step " << s.step << ", " << s.data->size() << " " << images_text(options.split)
       << weights_text(s.weights) << "\n";
  std::snprintf(line, sizeof line, "  %-8s accuracy %.4f  loss %.4f\n", "clean", clean_acc, clean_loss);
  text << line;
  last << "Final: clean_acc=" << std::fixed << std::setprecision(4) << clean_acc;
  for (const EvaluationRecord& r : records) {
    std::snprintf(line, sizeof line, "  %-8s accuracy %.4f  loss %.4f", r.attack.c_str(), r.adv_acc, r.adv_loss);
    text << line;
    if (r.attack != "none")
      text << "  (" << ball_text(s.norm, r.eps) << (options.eps > 0 ? "" : " as in the training")
           << (r.alpha > 0 ? ", alpha " + radius_text(r.alpha, s.norm) : "") << ", " << r.restarts
           << (r.restarts == 1 ? " restart)" : " restarts)");
    text << "\n";
    last << " " << r.attack << "_acc=" << r.adv_acc;
  }
  if (sequence) {
    text << text_of(s, *sequence);
    last << " " << s.sequence->name << "_acc=" << sequence->accuracy();
    for (const SequenceResult::Row& row : sequence->rows) seconds += row.seconds;
  }
  text << "  " << alarms_text(alarms) << "\n";
  for (const Alarm& alarm : alarms)
    if (alarm.state == Alarm::State::raised) std::cerr << "dat_hpc: warning: " + alarm.name + ": " + alarm.text + "\n";
  if (!output.empty()) text << "wrote " << output << (folder != nullptr ? " and results.h5 beside it" : "") << "\n";
  last << std::setprecision(1) << " time_s=" << seconds << " " << verdict_text(verdict_on(s, result));
  std::cout << text.str() << last.str() << "\n" << std::flush;
  require_printed();
  return static_cast<int>(ExitCode::done);
}

}  // namespace

int run_evaluation(const Command& command, int argc, char** argv) {
  return with_ranks([&](Communicator& world) { return evaluate(world, command, argc, argv); });
}

}  // namespace dat
