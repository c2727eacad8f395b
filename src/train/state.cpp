// The trainer's state as a checkpoint, and back.

#include <set>

#include "train/trainer.hpp"

namespace dat {

namespace {

[[nodiscard]] std::vector<std::int64_t> shape_of(const Segment& segment) {
  return {segment.shape.begin(), segment.shape.end()};
}

}  // namespace

void load_network(const Checkpoint& checkpoint, Model& model) {
  std::set<std::string> known;
  for (const Segment& segment : model.parameters.segments) known.insert("param/" + segment.name);
  for (const Norm& norm : model.graph.norms)
    for (const char* name : {".running_mean", ".running_var"}) known.insert("bn/" + norm.name + name);
  for (const Checkpoint::Array& array : checkpoint.arrays)
    require(array.name.starts_with("optim/") || known.contains(array.name), ExitCode::checkpoint,
            "the checkpoint's array ", array.name, " is none of the network's; it belongs to another network");
  for (const Segment& segment : model.parameters.segments)
    model.upload(segment, checkpoint.array("param/" + segment.name, shape_of(segment)).values, model.parameters.values);
  for (const Norm& norm : model.graph.norms) {
    const auto load = [&](const std::string& name, float* to) {
      const auto& values = checkpoint.array("bn/" + norm.name + name, {norm.channels}).values;
      model.backend.copy_to_device(to + norm.begin, values.data(), values.size() * sizeof(float));
    };
    load(".running_mean", model.running_mean);
    load(".running_var", model.running_variance);
  }
}

std::int64_t Trainer::checkpoint_bytes() const {
  const auto arrays = static_cast<std::int64_t>(1 + optimizer_->state().size());
  return static_cast<std::int64_t>(sizeof(float)) * (arrays * model_->parameters.size + 2 * model_->graph.statistics) +
         warm_start_bytes();
}

std::vector<float> Trainer::running_statistics() const {
  const auto count = static_cast<std::size_t>(model_->graph.statistics);
  std::vector<float> values(2 * count);
  backend_->copy_to_host(values.data(), model_->running_mean, count * sizeof(float));
  backend_->copy_to_host(values.data() + count, model_->running_variance, count * sizeof(float));
  return values;
}

void Trainer::set_running_statistics(const std::vector<float>& values) {
  const auto count = static_cast<std::size_t>(model_->graph.statistics);
  backend_->copy_to_device(model_->running_mean, values.data(), count * sizeof(float));
  backend_->copy_to_device(model_->running_variance, values.data() + count, count * sizeof(float));
  ++model_->parameters.version;
}

Checkpoint Trainer::capture() {
  // Where every rank keeps its own running statistics, all of them belong to the state.
  std::vector<double> local;
  const std::vector<float> statistics = running_statistics();
  if (options_.bn_statistics == "local")
    local = world_.gather(std::vector<double>(statistics.begin(), statistics.end()));
  Checkpoint checkpoint;
  if (warm_start_) warm_start_->save(checkpoint);
  if (!world_.root()) return checkpoint;

  for (const Segment& segment : model_->parameters.segments) {
    checkpoint.arrays.push_back(
        {"param/" + segment.name, shape_of(segment), model_->download(segment, model_->parameters.values)});
    for (const Optimizer::State& state : optimizer_->state())
      checkpoint.arrays.push_back(
          {"optim/" + state.name + "/" + segment.name, shape_of(segment), model_->download(segment, state.data)});
  }
  for (const Norm& norm : model_->graph.norms) {
    const auto slice = [&](std::int64_t begin) {
      const auto first = statistics.begin() + begin + norm.begin;
      return std::vector<float>(first, first + norm.channels);
    };
    checkpoint.arrays.push_back({"bn/" + norm.name + ".running_mean", {norm.channels}, slice(0)});
    checkpoint.arrays.push_back({"bn/" + norm.name + ".running_var", {norm.channels}, slice(model_->graph.statistics)});
  }
  checkpoint.doubles["selector"] = selector_->state();
  if (const std::vector<double> numbers = optimizer_->numbers(); !numbers.empty())
    checkpoint.doubles["optimizer"] = numbers;
  checkpoint.doubles["p"] = p_;
  checkpoint.doubles["active_scale"] = {active_.scale.begin(), active_.scale.end()};
  if (!local.empty()) checkpoint.doubles["bn_local"] = local;
  checkpoint.doubles["seconds"] = {wall_time(), communication_seconds_};
  checkpoint.integers["step"] = step_;
  checkpoint.integers["steps_per_epoch"] = steps_per_epoch_;
  checkpoint.integers["ranks"] = world_.size();
  checkpoint.integers["threads"] = choose_threads(options_.threads, world_.node_size());
  checkpoint.integers["train_images"] = train_->size();
  checkpoint.integers["batches_tracked"] = model_->batches_tracked;
  checkpoint.integers["image_size"] = train_->info().size;
  std::string& classes = checkpoint.texts["class_names"];
  for (const std::string& name : train_->info().class_names) classes += name + "\n";
  return checkpoint;
}

void Trainer::restore(const Checkpoint& checkpoint) {
  const auto integer = [&](const std::string& name) {
    const auto found = checkpoint.integers.find(name);
    require(found != checkpoint.integers.end(), ExitCode::checkpoint, "the checkpoint has no number '", name, "'");
    return found->second;
  };
  const auto doubles = [&](const std::string& name) -> const std::vector<double>& {
    const auto found = checkpoint.doubles.find(name);
    require(found != checkpoint.doubles.end(), ExitCode::checkpoint, "the checkpoint has no array '", name, "'");
    return found->second;
  };
  require(integer("train_images") == train_->size(), ExitCode::usage, "the checkpoint was trained on ",
          integer("train_images"), " images, --data and --limit-train give ", train_->size());
  step_ = integer("step");
  // With another number of ranks an epoch has another number of steps: go on at the same place of the epoch.
  if (const std::int64_t then = integer("steps_per_epoch"); then != steps_per_epoch_)
    step_ = step_ / then * steps_per_epoch_ + (step_ % then) * steps_per_epoch_ / then;
  load_network(checkpoint, *model_);
  for (const Segment& segment : model_->parameters.segments)
    for (const Optimizer::State& state : optimizer_->state())
      model_->upload(segment, checkpoint.array("optim/" + state.name + "/" + segment.name, shape_of(segment)).values,
                     state.data);
  const auto numbers = checkpoint.doubles.find("optimizer");
  optimizer_->restore(numbers != checkpoint.doubles.end() ? numbers->second : std::vector<double>());
  selector_->restore(doubles("selector"));
  const auto layers = active_.scale.size();
  require(doubles("p").size() == layers && doubles("active_scale").size() == layers, ExitCode::checkpoint,
          "the checkpoint has other layers than --network and --granularity say");
  p_ = doubles("p");
  std::copy(doubles("active_scale").begin(), doubles("active_scale").end(), active_.scale.begin());
  require(doubles("seconds").size() == 2, ExitCode::checkpoint, "the checkpoint's times are damaged");
  earlier_seconds_ = doubles("seconds")[0];
  communication_seconds_ = doubles("seconds")[1];
  model_->batches_tracked = integer("batches_tracked");
  if (warm_start_) warm_start_->restore(checkpoint);
  if (const auto local = checkpoint.doubles.find("bn_local"); local != checkpoint.doubles.end())
    local_statistics_ = local->second;
}

void Trainer::share_state() {
  const auto share = [&](float* device, std::int64_t count) {
    std::vector<float> host(static_cast<std::size_t>(count));
    backend_->copy_to_host(host.data(), device, host.size() * sizeof(float));
    constexpr std::size_t kPiece = 1 << 28;
    for (std::size_t at = 0; at < host.size(); at += kPiece)
      world_.broadcast(host.data() + at, std::min(kPiece, host.size() - at) * sizeof(float));
    backend_->copy_to_device(device, host.data(), host.size() * sizeof(float));
  };
  share(model_->parameters.values, model_->parameters.size);
  for (const Optimizer::State& state : optimizer_->state()) share(state.data, model_->parameters.size);
  std::vector<double> optimizer_numbers = optimizer_->numbers();
  world_.broadcast(optimizer_numbers.data(), optimizer_numbers.size() * sizeof(double));
  optimizer_->restore(optimizer_numbers);
  share(model_->running_mean, model_->graph.statistics);
  share(model_->running_variance, model_->graph.statistics);
  world_.broadcast(active_.scale.data(), active_.scale.size() * sizeof(float));
  world_.broadcast(p_.data(), p_.size() * sizeof(double));
  std::int64_t numbers[] = {step_, model_->batches_tracked, static_cast<std::int64_t>(local_statistics_.size())};
  world_.broadcast(numbers, sizeof numbers);
  step_ = numbers[0];
  model_->batches_tracked = numbers[1];
  world_.broadcast(&earlier_seconds_, sizeof earlier_seconds_);
  local_statistics_.resize(static_cast<std::size_t>(numbers[2]));
  world_.broadcast(local_statistics_.data(), local_statistics_.size() * sizeof(double));
  const auto count = static_cast<std::size_t>(model_->graph.statistics);
  if (local_statistics_.size() == 2 * count * static_cast<std::size_t>(world_.size())) {
    const double* mine = local_statistics_.data() + 2 * count * static_cast<std::size_t>(world_.rank());
    set_running_statistics({mine, mine + 2 * count});
  }
  if (warm_start_) warm_start_->share();
  ++model_->parameters.version;
}

}  // namespace dat
