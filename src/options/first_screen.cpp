#include "options/first_screen.hpp"

namespace dat {

std::string first_screen() {
  return "dat_hpc trains image classifiers that withstand adversarial attacks.\n"
         "\n"
         "Verbs (dat_hpc VERB --help describes one):\n"
         "  train             train a network; the verb when there are options alone\n"
         "  eval              clean and robust accuracy of a run or checkpoint\n"
         "  validate          check options and data, print sizes and memory; no training\n"
         "  data convert      CIFAR, MNIST, arrays of NumPy, HDF5 -> a data file\n"
         "  data synthetic    write a synthetic data file\n"
         "  data inspect      describe data files\n"
         "  plot              draw the results of runs\n"
         "  bench             how fast this machine is: ceilings, layers, step, all-reduce\n"
         "  doctor            what this machine offers: GPUs, driver, libraries, MPI\n"
         "  slurm             print a batch script that trains with these options\n"
         "  forecast          step time against ranks, network, codec, budget: what pays\n"
         "  export            a network for others: safetensors, ONNX, RobustBench\n"
         "  import            a network of others as a checkpoint, to go on with\n"
         "\n"
         "Examples:\n"
         "  dat_hpc data convert cifar-10-batches-bin cifar10.h5\n"
         "  mpirun -np 2 dat_hpc train --recipe cifar10_small --data cifar10.h5 --out a\n"
         "  dat_hpc eval a --eval pgd20,aa-quick\n"
         "\n"
         "Options of train to begin with:\n"
         "  --recipe NAME     a published training, by name; --recipe list names them\n"
         "  --data FILE...    what 'data convert' has made; none: a small built-in set\n"
         "  --out DIR         where results go; the same command again goes on there\n"
         "  --network NAME    architecture; --width N makes it narrower\n"
         "  --attack NAME     pgd, fgsm, none, ...; --eps 8/255 is its radius\n"
         "  --attack-steps N  of pgd\n"
         "  --epochs N        length of the training\n"
         "  --batch N         images per rank and step\n"
         "  --selector all    train all layers in each step (default: 40/54, JointSpar)\n"
         "  --eval ATTACK,... attacks that it is measured with, such as pgd20\n"
         "\n"
         "More:\n"
         "  dat_hpc train --help      the options most used; --help all: every option\n"
         "  dat_hpc --help WORD       the options in which WORD occurs, such as layers\n"
         "  mpirun -np 2 dat_hpc      without any option, trains on the built-in set\n"
         "\n"
         "Exit codes: 0 done, 2 options, 3 data, 4 checkpoint, 5 device, 6 MPI,\n"
         "7 not finite, 8 ranks disagree, 9 disk, 75 stopped early: run it again.\n";
}

std::string data_screen() {
  return "Makes and describes data files.\n"
         "Usage: dat_hpc data convert SOURCE OUTPUT\n"
         "       dat_hpc data synthetic OUTPUT\n"
         "       dat_hpc data inspect FILES...\n"
         "\n"
         "  convert      CIFAR, MNIST, SVHN, arrays of NumPy, HDF5 -> a data file\n"
         "  synthetic    write a procedural, learnable set\n"
         "  inspect      describe data files: shapes, classes, source, hash\n"
         "\n"
         "dat_hpc data convert --help and so on shows their options.\n";
}

const std::vector<std::string>& verbs() {
  static const std::vector<std::string> all = {"train",  "eval",  "validate", "data",   "plot",  "bench",
                                               "doctor", "slurm", "forecast", "export", "import"};
  return all;
}

const std::vector<std::string>& main_options() {
  static const std::vector<std::string> all = {
      "help",     "recipe", "config", "data",   "holdout", "network",  "width",    "attack",    "attack-steps",
      "norm",     "eps",    "loss",   "eval",   "lr",      "schedule", "epochs",   "optimizer", "batch",
      "selector", "budget", "out",    "resume", "seed",    "device",   "max-steps"};
  return all;
}

std::vector<std::string> main_options_of_slurm() {
  return {"help",         "nodes",  "gpus-per-node", "ranks-per-node", "cpus-per-rank", "time",
          "step-seconds", "like",   "job-name",      "partition",      "account",       "modules",
          "recipe",       "config", "data",          "network",        "epochs",        "batch",
          "out"};
}

std::string about_training() {
  return "Distributed adversarial training of image classifiers. What a bare\n"
         "  dat_hpc train --data FILE\n"
         "does is LAMB with JointSpar: PGD-10, and the exp3 bandit draws 40/54 of the\n"
         "layers in the mean, which a step trains. Plain PGD training, as published, is\n"
         "  dat_hpc train --recipe madry --data FILE\n"
         "and --selector all trains all layers in each step.";
}

}  // namespace dat
