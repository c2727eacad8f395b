// The verb eval: how accurate the network of a checkpoint is, clean and attacked.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "assess/evaluation.hpp"
#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "replica/model_state.hpp"
#include "replica/replica.hpp"
#include "train/splits.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

namespace dat {

namespace {

using Json = nlohmann::ordered_json;

/// The network's classes, as its head and its training data tell.
struct Classes {
  int count = 0;
  std::vector<std::string> names;  ///< empty: unknown
};

[[nodiscard]] Classes classes_of(const Checkpoint& checkpoint, const std::string& path) {
  const auto head = std::find_if(checkpoint.arrays.begin(), checkpoint.arrays.end(),
                                 [](const Checkpoint::Array& a) { return a.name == "param/linear.weight"; });
  require(head != checkpoint.arrays.end() && !head->shape.empty(), ExitCode::checkpoint, path, " holds no network");
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
  Classes classes;
  std::unique_ptr<EvaluationAttacks> attacks;
  std::unique_ptr<Replica> replica;
  std::unique_ptr<Evaluator> evaluator;
  double eps = 0;
  std::int64_t step = 0;
};

[[nodiscard]] Setting prepare(Communicator& world, const EvalOptions& options) {
  Setting s;
  const std::string& path = options.checkpoint;
  Checkpoint checkpoint = find_checkpoint(path, [&](const std::string& warning) {
    if (world.root()) std::cerr << "dat_hpc: warning: " + warning + "\n";
  });
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
  s.data = first_of(open_split(wanted, options.split), options.limit);
  s.classes = classes_of(checkpoint, path);
  const DatasetInfo& info = s.data->info();
  require_same_classes(info, s.classes, path);
  if (const auto size = checkpoint.integers.find("image_size"); size != checkpoint.integers.end())
    require(size->second == info.size, ExitCode::data, "the data's images have ", info.size, "x", info.size,
            " pixels, the network in ", path, " was trained on ", size->second, "x", size->second);
  s.step = checkpoint.integers["step"];
  s.eps = options.eps > 0 ? options.eps : trained.eps;
  s.attacks = std::make_unique<EvaluationAttacks>(EvaluationOptions{.attacks = options.eval,
                                                                    .eps = s.eps,
                                                                    .alpha = options.alpha,
                                                                    .steps = options.attack_steps,
                                                                    .restarts = options.restarts});
  // With --deterministic any number of ranks computes the same batches.
  const auto share = options.deterministic ? s.data->size() : (s.data->size() + world.size() - 1) / world.size();
  DatasetInfo images = info;
  images.classes = s.classes.count;
  const BackendOptions backend{.device = options.device,
                               .threads = choose_threads(options.threads, world.node_size()),
                               .node_rank = world.node_rank(),
                               .math = options.math,
                               .deterministic = options.deterministic};
  s.replica = std::make_unique<Replica>(
      ReplicaOptions{.backend = backend,
                     .network = trained.network,
                     .width = trained.width,
                     .images = images,
                     .micro_batch = static_cast<int>(std::min<std::int64_t>(options.batch, share)),
                     .scratch_images = s.attacks->scratch_images(),
                     .training_batches = {}});
  load_network(checkpoint, s.replica->model());
  s.evaluator =
      std::make_unique<Evaluator>(world, *s.data, nullptr, s.replica->images(), s.replica->evaluated(),
                                  options.deterministic ? Evaluator::Dealing::batches : Evaluator::Dealing::samples);
  s.replica->commit();
  return s;
}

/// Progress lines on standard error, of rank 0's images.
class Progress {
 public:
  Progress(std::int64_t images, double interval) : images_(images), interval_(interval), begin_(Clock::now()) {}

  void operator()(std::int64_t done) {
    const double now = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (now - last_ < interval_ || done >= images_) return;
    last_ = now;
    const auto left = static_cast<long long>(now / static_cast<double>(done) * static_cast<double>(images_ - done));
    char text[128];
    std::snprintf(text, sizeof text, "%.0f %% of the images  ETA %lld:%02lld:%02lld\n",
                  100 * static_cast<double>(done) / static_cast<double>(images_), left / 3600, left / 60 % 60,
                  left % 60);
    std::cerr << text << std::flush;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t images_;
  double interval_, last_ = 0;
  Clock::time_point begin_;
};

/// Results by class and image. An accuracy of a class without images is null.
[[nodiscard]] Json json_of(const Setting& s, const EvaluationResult& result, const EvalOptions& options) {
  const std::vector<EvaluationRecord> records = result.records(*s.attacks);
  const Dataset& data = *s.data;
  Json all = {{"filetype", "evaluation"},
              {"format_version", 1},
              {"checkpoint", options.checkpoint},
              {"step", s.step},
              {"data", options.data},
              {"split", options.split},
              {"images", data.size()},
              {"seed", options.seed},
              {"seconds", result.seconds},
              {"clean", {{"accuracy", records.front().clean_acc}, {"loss", records.front().clean_loss}}}};
  for (const EvaluationRecord& r : records)
    all["attacks"].push_back({{"name", r.attack},
                              {"steps", r.attack_steps},
                              {"restarts", r.restarts},
                              {"eps", r.eps},
                              {"alpha", r.alpha},
                              {"accuracy", r.adv_acc},
                              {"loss", r.adv_loss}});
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
    all["classes"].push_back(row);
  }
  const auto flags = [](const std::vector<double>& values) { return std::vector<int>(values.begin(), values.end()); };
  Json& each = all["per_image"];
  each["label"] = labels;
  each["clean_correct"] = flags(result.clean.correct);
  each["clean_loss"] = result.clean.loss;
  for (std::size_t a = 0; a < records.size(); ++a) {
    each[records[a].attack + "_correct"] = flags(result.attacked[a].correct);
    each[records[a].attack + "_loss"] = result.attacked[a].loss;
  }
  return all;
}

/// The file that --out names: itself, or eval.json in a folder. Error(io).
[[nodiscard]] std::string prepare_output(const std::string& out) {
  namespace fs = std::filesystem;
  const fs::path path = fs::path(out).extension() == ".json" ? fs::path(out) : fs::path(out) / "eval.json";
  if (path.has_parent_path()) {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    require(!error, ExitCode::io, "cannot create the folder ", path.parent_path().string(), ": ", error.message());
  }
  return path.string();
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
  together(world, [&] {
    if (!options.out.empty() && world.root()) output = prepare_output(options.out);
  });
  if (world.root())
    for (const std::string& warning : s.attacks->warnings()) std::cerr << "dat_hpc: warning: " + warning + "\n";
  for (const std::string& notice : device_notices(world, s.replica->backend(), options.device))
    if (world.root() && (!options.quiet || notice.starts_with("warning: "))) std::cerr << "dat_hpc: " + notice + "\n";
  std::function<void(std::int64_t)> progress;
  if (world.root() && !options.quiet)
    progress = Progress((s.data->size() + world.size() - 1) / world.size(), options.progress);
  const EvaluationResult result = s.evaluator->run(*s.attacks, options.seed, progress);
  const std::vector<std::string> hosts = world.gather(host_name());
  together(world, [&] {
    if (output.empty()) return;
    Json all = json_of(s, result, options);
    all["provenance"] = Json::parse(provenance_json(hosts, argc, argv, s.replica->backend().description()));
    write_atomically(output, [&](const std::string& temporary) {
      std::ofstream file(temporary, std::ios::binary);
      file << all.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
      file.close();
      require(file.good(), ExitCode::io, "cannot write ", temporary, ": ", system_reason(errno));
    });
  });
  if (!world.root()) return static_cast<int>(ExitCode::done);

  const std::vector<EvaluationRecord> records = result.records(*s.attacks);
  bool valid = true;
  char line[256];
  std::ostringstream text, last;
  text << options.checkpoint << ": step " << s.step << ", " << s.data->size() << " " << images_text(options.split)
       << "\n";
  std::snprintf(line, sizeof line, "  %-8s accuracy %.4f  loss %.4f\n", "clean", records.front().clean_acc,
                records.front().clean_loss);
  text << line;
  last << "Final: clean_acc=" << std::fixed << std::setprecision(4) << records.front().clean_acc;
  for (const EvaluationRecord& r : records) {
    std::snprintf(line, sizeof line, "  %-8s accuracy %.4f  loss %.4f", r.attack.c_str(), r.adv_acc, r.adv_loss);
    text << line;
    if (r.attack_steps > 0)
      text << "  (eps " << radius_text(r.eps) << (options.eps > 0 ? "" : " as in the training") << ", alpha "
           << radius_text(r.alpha) << ", " << r.restarts << (r.restarts == 1 ? " restart)" : " restarts)");
    text << "\n";
    last << " " << r.attack << "_acc=" << r.adv_acc;
    valid = valid && std::isfinite(r.adv_loss) && std::isfinite(r.clean_loss);
  }
  if (!output.empty()) text << "wrote " << output << "\n";
  last << std::setprecision(1) << " time_s=" << result.seconds << (valid ? " VALID" : " INVALID");
  std::cout << text.str() << last.str() << "\n" << std::flush;
  require_printed();
  return static_cast<int>(ExitCode::done);
}

}  // namespace

int run_evaluation(const Command& command, int argc, char** argv) {
  return with_ranks([&](Communicator& world) { return evaluate(world, command, argc, argv); });
}

}  // namespace dat
