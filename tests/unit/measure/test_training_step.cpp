#include "catch.hpp"
#include "device.hpp"
#include "measure/training_step.hpp"
#include "single.hpp"

namespace dat {

namespace {

[[nodiscard]] StepOptions small_step(const std::string& attack) {
  return {.network = "small_cnn",
          .width = 16,
          .batch = 8,
          .size = 8,
          .attack = attack,
          .attack_steps = 2,
          .device = test::test_device(),
          .math = "f32"};
}

/// Cosine of the angle between the images and the gradient of the loss there.
[[nodiscard]] double cosine(TrainingStep& step) {
  const std::vector<float> gradient = step.results().input_gradient;
  const Dataset& set = *step.trainer().splits().train;
  const std::size_t bytes = set.info().image_bytes(), plane = bytes / 3;
  std::vector<std::uint8_t> pixels(bytes);
  double product = 0, images = 0, gradients = 0;
  for (std::size_t k = 0; k < gradient.size(); ++k) {
    const std::size_t i = k % bytes;
    if (i == 0) set.read(static_cast<std::int64_t>(k / bytes), pixels.data());
    const double x = pixels[i % plane * 3 + i / plane] / 255.0, dx = gradient[k];
    product += x * dx;
    images += x * x;
    gradients += dx * dx;
  }
  return product / std::sqrt(images * gradients);
}

}  // namespace

TEST_CASE("the input gradient on batch statistics is that of a network to which brighter images are the same",
          "[measure]") {
  // Batch norm after the first convolution divides by what all images are multiplied with: at their own direction the
  // loss is flat, but for the batch norm's epsilon. With running statistics it is not.
  StepOptions options = small_step("fgsm");
  TrainingStep on_batch(test::single(), options);
  CHECK(std::abs(cosine(on_batch)) < 2e-3);
  options.attack_bn = "eval";
  TrainingStep on_running(test::single(), options);
  CHECK(std::abs(cosine(on_running)) > 2e-2);
}

TEST_CASE("the step with FGSM is that of Wong, Rice, Kolter", "[measure][cpu]") {
  const StepOptions options = small_step("fgsm");
  TrainingStep step(test::single(), options), images(test::single(), options);
  CHECK(step.about()["attack_bn"] == "train");
  CHECK(step.about()["steps"] == 1);

  TrainOptions recipe;
  recipe.network = options.network;
  recipe.width = options.width;
  recipe.batch = recipe.micro_batch = recipe.attack_batch = options.batch;
  recipe.device = options.device;
  recipe.math = options.math;
  recipe.threads = options.threads;
  recipe.attack = "fgsm";
  recipe.attack_bn = "train";
  recipe.eps = 8.0 / 255;
  recipe.alpha = 10.0 / 255;
  recipe.start_box = "on";
  recipe.lambda = 0;
  recipe.optimizer = "sgd";
  recipe.lr = 0.01;
  recipe.momentum = 0.9;
  recipe.weight_decay = 5e-4;
  recipe.milestones = {};
  recipe.epochs = 1000;
  recipe.warmup_epochs = 0;
  recipe.selector = "all";
  recipe.augment = "none";
  Trainer plain(test::single(), recipe, images.trainer().release_splits());
  plain.start();
  for (int k = 0; k < 3; ++k) static_cast<void>(plain.step(false));
  static_cast<void>(step.check());
  step.run();
  static_cast<void>(step.flow_ms(1));
  CHECK(step.trainer().weights_hash() == plain.weights_hash());
}

TEST_CASE("a step's times", "[measure]") {
  for (const std::string attack : {"pgd", "fgsm"}) {
    TrainingStep step(test::single(), small_step(attack));
    const TrainingStep::Losses losses = step.check();
    CHECK(losses.attacked > losses.clean);
    step.run();
    const double parts = step.attack_ms + step.train_ms + step.reduce_ms + step.update_ms;
    CHECK(parts > 0);
    CHECK(step.wall_ms >= 0.99 * parts);
    CHECK(step.flow_ms(2) > 0);
    if (!step.on_gpu()) {
      CHECK(step.gpu_ms == 0);
      continue;
    }
    CHECK(step.gpu_ms >= 0.99 * parts);
    CHECK(step.gpu_ms <= 1.01 * step.wall_ms);
  }
}

}  // namespace dat
