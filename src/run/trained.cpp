#include "run/trained.hpp"

#include <utility>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/report.hpp"
#include "printed.hpp"
#include "replica/model_state.hpp"
#include "train/message/stateful.hpp"
#include "train/plan/splits.hpp"

namespace dat {

namespace {

void warn_on_root(const Communicator& world, const std::string& warning) {
  if (world.root() && !warning.empty()) say("warning: " + warning);
}

}  // namespace

Trained read_trained(const Communicator& world, const std::string& path, const std::vector<std::string>& data) {
  Trained trained{path, find_checkpoint(path, [&](const std::string& warning) { warn_on_root(world, warning); })};
  Checkpoint& checkpoint = trained.checkpoint;
  std::erase_if(checkpoint.arrays, [](const Checkpoint::Array& array) {  // the training's alone
    const bool averaged = array.name.starts_with(std::string(kAverageGroup) + "/");
    return !averaged && !array.name.starts_with("param/") && !array.name.starts_with("bn/");
  });
  require(!data.empty() || !checkpoint.texts.contains("imported_from"), ExitCode::usage, path,
          " was imported and has no data of its own; give --data");
  const std::string& toml = checkpoint.texts["config_toml"];
  trained.options = parse_train_options(toml, path);
  trained.classes = classes_of(checkpoint, path);
  trained.options_hash = sha256_hex(toml.data(), toml.size());
  return trained;
}

ChosenSplit open_chosen(const Trained& trained, const std::vector<std::string>& data, const std::string& split,
                        std::int64_t limit, const std::string& list) {
  TrainOptions wanted = trained.options;
  if (!data.empty()) {  // images that the training held out, or left out, are not in there
    wanted.data = data;
    wanted.holdout = wanted.limit_train = 0;
    wanted.mix = "pool";
  }
  require(split != "holdout" || wanted.holdout != 0, ExitCode::usage, trained.path,
          data.empty() ? " held nothing out in its training; take --split test"
                       : " held out images of its own data; leave --data off");
  wanted.limit_test = 0;
  wanted.decode = "exact";  // figures are made of it
  ChosenSplit chosen{.images = nullptr, .files = wanted.data};
  auto whole = open_split(wanted, split, static_cast<int>(value_of(trained.checkpoint.integers, "image_size")));
  chosen.size = whole->size();
  if (!list.empty()) {
    whole = named_in(std::move(whole), list);
    chosen.files.push_back(list);
  }
  chosen.images = first_of(std::move(whole), limit);
  const std::int64_t unlabelled = unlabelled_images(*chosen.images);
  require(unlabelled == 0, ExitCode::usage, unlabelled, " of the ", chosen.images->size(), " ", images_text(split),
          " have no label (-1), so that nobody knows whether they are classified right; take --split test, or --data "
          "with labels");
  require_fitting_images(chosen.images->info(), trained.checkpoint, trained.classes, trained.path);
  return chosen;
}

void require_apart_from(const Trained& trained, const ChosenSplit& chosen, const std::vector<std::string>& outputs) {
  std::vector<std::string> inputs = chosen.files;
  inputs.push_back(place_of_checkpoint(trained.path));
  require_apart(outputs, inputs);
}

std::string load_weights(const Communicator& world, const Trained& trained, const std::string& wanted, Model& model) {
  load_network(trained.checkpoint, model);
  const bool rebuilt = trained.options.average_bn == "rebuild";
  warn_on_root(world, weights_notice(trained.checkpoint, wanted, rebuilt, trained.path));
  if (!takes_average(trained.checkpoint, wanted, rebuilt, trained.path)) return "raw";
  load_average(trained.checkpoint, model);
  return "average";
}

}  // namespace dat
