// Runs one golden case (without its expected values) through the program and writes what comes out, for full_size.py.

#include <cstdio>

#include "golden_case.hpp"

using namespace dat;
using namespace dat::test;

namespace {

/// Writes each point at which an attack asks for a gradient, and the gradient.
class Recorder final : public CaseObjective<FrozenProgram> {
 public:
  Recorder(GoldenCase& c, FrozenProgram& program, Hdf5File& file) : CaseObjective(c, program), case_(c), file_(file) {}
  void gradient() override {
    CaseObjective::gradient();
    const Shape images{case_.n, 3, case_.size, case_.size};
    file_.write("pgd/x_" + std::to_string(point_), images, case_.to_nchw(case_.x_adv));
    file_.write("pgd/dx_" + std::to_string(point_), images, case_.to_nchw(case_.dx));
    ++point_;
  }

 private:
  GoldenCase& case_;
  Hdf5File& file_;
  int point_ = 0;
};

void probe(const std::string& in, const std::string& out, const std::string& device) {
  const auto backend = make_backend({.device = device, .threads = 2, .math = "f32"});
  GoldenCase c(*backend, in);
  FrozenProgram frozen(c.model, c.n);
  TrainingProgram training(c.model, c.n);
  backend->commit_workspace();
  frozen.refresh();
  training.refresh();
  Hdf5File file = Hdf5File::create(out, 0);
  const Shape logits{c.n, c.classes}, images{c.n, 3, c.size, c.size};

  frozen.forward(c.x);
  file.write("logits_eval", logits, c.to_host(frozen.logits(), std::int64_t{c.n} * c.classes));
  cross_entropy(c, frozen, 1.0F);
  frozen.backward(c.dx);
  file.write("input_gradient_eval", images, c.to_nchw(c.dx));

  const ActiveSet all = ActiveSet::all(c.model.parameters.layers());
  training.forward(c.x);
  file.write("logits_train", logits, c.to_host(training.logits(), std::int64_t{c.n} * c.classes));
  cross_entropy(c, training, 1.0F / static_cast<float>(c.n));
  training.backward(c.x, {.weights = &all, .gradients = c.model.parameters.gradients});
  backend->wait();
  for (const Segment& segment : c.model.parameters.segments)
    file.write("grad/" + segment.name, Shape(segment.shape.begin(), segment.shape.end()),
               c.model.download(segment, c.model.parameters.gradients));

  Recorder objective(c, frozen, file);
  attacks().at("pgd")({.eps = c.eps, .alpha = c.alpha, .steps = c.steps})->perturb(objective);
  file.write("x_adv", images, c.to_nchw(c.x_adv));
  file.close();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: dat_probe IN.h5 OUT.h5 [cpu | cuda]\n");
    return static_cast<int>(ExitCode::usage);
  }
  try {
    probe(argv[1], argv[2], argc == 4 ? argv[3] : "cpu");
  } catch (const Error& error) {
    std::fprintf(stderr, "dat_probe: %s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
