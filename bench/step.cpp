// Times training steps, of PGD or another attack: one line of JSON each. See bench/README.md.

#include <fstream>
#include <iostream>

#include "command_line.hpp"
#include "measure/process_memory.hpp"

namespace {

void print(nlohmann::ordered_json line, dat::TrainingStep& step) {
  line.update(step.about());
  std::cout << line << std::endl;
}

/// `flow`: after this step, so many without a wait between them; 0: none.
void report(dat::TrainingStep& step, int flow) {
  step.run();
  const int batch = step.options().batch, iterations = step.trainer().method().attacks.most_gradients();
  nlohmann::ordered_json line{{"ms_per_step", step.wall_ms}};
  if (step.on_gpu()) line["gpu_ms_per_step"] = step.gpu_ms;
  line["ms_per_image"] = step.wall_ms / batch;
  line["images_per_s"] = 1000 * batch / step.wall_ms;
  if (iterations > 0) line["ms_per_attack_iteration"] = step.attack_ms / iterations;
  line.update({{"attack_ms", step.attack_ms},
               {"train_ms", step.train_ms},
               {"reduce_ms", step.reduce_ms},
               {"update_ms", step.update_ms},
               {"peak_rss_mb", dat::peak_resident_mb()}});
  if (flow > 0) line["ms_per_step_flow"] = step.flow_ms(flow);
  print(line, step);
}

/// The results to `path`, as raw floats; losses and shapes to stdout.
void write_results(dat::TrainingStep& step, const std::string& path) {
  const auto results = step.results();
  std::ofstream file(path, std::ios::binary);
  for (const auto* values : {&results.logits, &results.input_gradient})
    file.write(reinterpret_cast<const char*>(values->data()),
               static_cast<std::streamsize>(values->size() * sizeof(float)));
  dat::require(file.flush().good(), dat::ExitCode::io, "cannot write '", path, "'");
  print({{"logits", results.logits.size()},
         {"input_gradient", results.input_gradient.size()},
         {"clean_loss", results.clean_loss},
         {"attacked_loss", results.attacked_loss}},
        step);
}

}  // namespace

int main(int argc, char** argv) {
  dat::StepOptions options;
  int repeat = 3, flow = 0;
  bool serve = false;
  std::string results;
  CLI::App app("Times training steps on random images of CIFAR's shape: one line of JSON each", "bench_step");
  dat::bench::add_options(app, options, repeat);
  app.add_option("--size", options.size, "height and width of the images");
  app.add_option("--attack", options.attack, "how training images are perturbed, as in dat_hpc train: pgd, fgsm, none");
  app.add_option("--attack-bn", options.attack_bn, "auto, eval or train: the attack's batch norms, as in dat_hpc train")
      ->check(CLI::IsMember({"auto", "eval", "train"}));
  app.add_option("--math", options.math, "f32 or tf32 (where the GPU has it): products of f32 numbers");
  app.add_option("--precision", options.precision, "f32, f16 or bf16: storage of the network that is trained");
  app.add_option("--attack-precision", options.attack_precision, "f32, f16 or bf16: storage of the attacked network");
  app.add_option("--recompute", options.recompute,
                 "none or norms: what training passes make again instead of keeping it")
      ->check(CLI::IsMember({"none", "norms"}));
  app.add_option("--planning-seconds", options.planning_seconds, "for trials of a GPU's algorithms");
  app.add_option("--micro-batch", options.micro_batch, "images at a time; 0: the batch");
  app.add_option("--attack-batch", options.attack_batch, "images per pass of the attack; 0: the micro-batch");
  app.add_option("--check", results,
                 "first a line with the losses before and after an attack; into this file float32: the logits, and the "
                 "input gradient in NCHW order");
  app.add_option("--flow", flow, "after each step, so many without a wait between them: ms_per_step_flow");
  app.add_flag("--serve", serve, "one step for each line of stdin, until it ends");
  return dat::bench::run_program(app, argc, argv, [&] {
    const auto alone = dat::Communicator::single();
    dat::TrainingStep step(*alone, options);
    if (!results.empty()) write_results(step, results);
    step.check();  // also warms up
    std::string line;
    for (int k = 0; serve ? static_cast<bool>(std::getline(std::cin, line)) : k < repeat; ++k) report(step, flow);
  });
}
