"""A run of mutations: each puts one fault into a copy of the program, in build/mutations, builds it, and runs tests until
one is red. A mutation that all of them let pass has survived.

What is done stands in build/mutations/results.jsonl: the same command goes on there. Other sources of the program begin
anew; with other tests, those that survived are tried again. --check only looks whether each mutation still fits its
file, once and no more than once. Exit code 0: fewer than LOST mutations survived that are not explained; 1: more; 2:
something is wrong with the run itself.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORK = f"{ROOT}/build/mutations"
TREE, BUILD, RESULTS = f"{WORK}/tree", f"{WORK}/build", f"{WORK}/results.jsonl"
LOST = 3

# The suite for a mutation that its own tests let pass, fastest first. step: configurations of tests/outside/step.py,
# unit: of dat_tests, mpi: ranks of dat_mpi_tests, e2e: files of tests/e2e.
SUITE = ["mpi:2", "mpi:3", "unit:~[.canary]", "step:*", "e2e:same_weights", "e2e:restart"]
PATIENCE = 3  # a test that takes so many times what it takes without a mutation hangs

TRAINER, LEARNER, STATISTICS = "src/train/trainer.cpp", "src/train/learner.cpp", "src/train/batch_statistics.cpp"
LAYERS, UPDATE, EVALUATION = "src/train/layer_sampling.cpp", "src/train/weight_update.cpp", "src/assess/evaluation.cpp"
CROSS_ENTROPY = "src/loss/cross_entropy.cpp"
SHARED, WORKERS = "src/train/shared_mask.cpp", "src/train/per_worker_masks.cpp"
REDUCER, COMMUNICATOR = "src/reduce/reducer.cpp", "src/communicate/communicator.cpp"
FORECAST = "src/measure/forecast.cpp"
PERTURB, AUGMENT, OPTIMIZER = "kernels/perturb.hpp", "kernels/augment.hpp", "kernels/optimizer.hpp"

# name, file, old text, new text, the tests that are most likely to see it
MUTATIONS = [
    # Attack.
    ("pgd: no box clamp", PERTURB, "sign(dx), 0.0F, 1.0F);", "sign(dx), -1.0F, 2.0F);", "step:adversarial only"),
    ("pgd: no ball clamp", PERTURB, "u.eta[i] = clamp(z - u.x[i], -u.eps, u.eps);", "u.eta[i] = z - u.x[i];",
     "step:adversarial only"),
    ("pgd: sign(0) = -1", PERTURB, "static_cast<float>((x > 0.0F) - (x < 0.0F))",
     "static_cast<float>((x > 0.0F) - (x <= 0.0F))", "unit:[attack]"),
    ("pgd: descends", PERTURB, "u.x[i] + u.eta[i] + u.alpha * sign(dx)", "u.x[i] + u.eta[i] - u.alpha * sign(dx)",
     "step:defaults"),
    ("pgd: one step less", "src/attack/pgd.cpp", "for (int k = 0; k < steps_; ++k) o.gradient_step",
     "for (int k = 1; k < steps_; ++k) o.gradient_step", "step:defaults"),
    ("random start with time 0", PERTURB, "random_words(seed, purpose, time, static_cast",
     "random_words(seed, purpose, 0, static_cast", "step:defaults"),
    ("random start in half the ball", PERTURB, "(2.0F * uniform(words.v[j]) - 1.0F) * eps;",
     "(1.0F * uniform(words.v[j]) - 0.5F) * eps;", "step:defaults"),
    ("fgsm: step 1 eps", "src/attack/fgsm.cpp", ": 1.25 * options.eps)", ": 1.0 * options.eps)", "step:fgsm"),
    ("fgsm on the frozen network", "src/attack/fgsm.cpp", "prefers_batch_statistics() const override { return true; }",
     "prefers_batch_statistics() const override { return false; }", "step:fgsm"),
    ("fgsm: gradient through the clamp", PERTURB, "inside < 0.0F || inside > 1.0F ? 0.0F : dx[i];", "dx[i];",
     "step:fgsm*"),
    ("early stop: one more step", "src/replica/early_stop.cpp", "std::fill_n(host_steps_left_, n, tau);",
     "std::fill_n(host_steps_left_, n, tau + 1);", "step:early stop"),
    ("early stop: leaves after the step", PERTURB, "to >= 0 && steps_left[to / slots.elements] >= 0)",
     "to >= 0 && steps_left[to / slots.elements] >= -1)", "step:early stop"),
    ("reuse: one step too many", TRAINER, "options.attack_steps - (options.attack_reuse ? 1 : 0)",
     "options.attack_steps", "step:reuse"),
    ("warm start: no box", AUGMENT, "eta[at] = clamp(from_byte(from[c], eps), -x[at], 1.0F - x[at]);",
     "eta[at] = from_byte(from[c], eps);", "unit:[kernels]"),
    ("warm start: forgets a step late", "src/train/warm_start.cpp", "step % options_.reset_steps == 0)",
     "step % options_.reset_steps == 1)", "step:warm start"),
    ("warm start: keeps the mirrored place", AUGMENT, "std::uint8_t* to = kept + p.from(places[p.n], layout);",
     "std::uint8_t* to = kept + ((places[p.n] * layout.h + p.from_y) * layout.w + layout.w - 1 - p.from_x) * layout.c;",
     "step:warm start"),
    # Trainer.
    ("lambda on the adversarial pass", CROSS_ENTROPY, "(k == 0 ? 1.0F : lambda_) /", "lambda_ /",
     "step:half a clean loss"),
    ("lambda always 1", CROSS_ENTROPY, "(k == 0 ? 1.0F : lambda_) /", "1.0F /", "step:half a clean loss"),
    ("clean pass before the adversarial one", LEARNER, "first_pass_ + static_cast<int>(k),",
     "first_pass_ + static_cast<int>(passes_.size() - 1 - k),", "step:defaults"),
    ("loss gradient times two", CROSS_ENTROPY, "(k == 0 ? 1.0F : lambda_) /", "2 * (k == 0 ? 1.0F : lambda_) /", "step:defaults"),
    ("loss gradient of the micro-batch", LEARNER, "loss_.differentiate(k, logits_, examples.batch);",
     "loss_.differentiate(k, logits_, examples.count);", "step:micro-batches"),
    ("batch-norm momentum 0.01", "include/dat/network.hpp", "kMomentum = 0.1F", "kMomentum = 0.01F", "step:defaults"),
    ("biased variance", "src/network/training_program.cpp", "Multiply{variance_, factors_, unbiased_variance_}",
     "Scale{variance_, unbiased_variance_, 1.0F, false}", "step:defaults"),
    ("statistics of the last micro-batch", STATISTICS, "kernels::Scale{program.statistics(), device_ + count * pass, share, !first}",
     "kernels::Scale{program.statistics(), device_ + count * pass, 1.0F, false}", "step:micro-batches"),
    ("statistics summed over ranks", STATISTICS, "static_cast<float>(from[i] / ranks_.size());",
     "static_cast<float>(from[i]);", "step:two ranks"),
    ("attack's statistics do not count", "src/train/batch_objective.cpp", "statistics_.add(program, pass_++, share_,",
     "statistics_.add(program, pass_++, 0 * share_,", "step:fgsm"),
    ("bandit fed squared norms", LAYERS, "for (double& norm : norms_) norm = std::sqrt(norm);", "",
     "step:defaults"),
    ("norms before the reduction", TRAINER, "  reducer_.finish();\n  message_.sum();\n",
     "  message_.sum();\n  reducer_.finish();\n", "step:two ranks"),
    ("bandit learns a step early", LAYERS, "return draw_due(step_ + 1) &&", "return draw_due(step_) &&",
     "step:a draw an epoch"),
    ("bandit learns in the warm-up", LAYERS, "draw_due(step_ + 1) && step_ >= warmup_steps_;",
     "draw_due(step_ + 1);", "step:defaults"),
    ("micro-batches overwrite each other", LEARNER, ".accumulate = !(examples.begins_step() && k == 0),",
     ".accumulate = k != 0,", "step:micro-batches"),
    ("trainer forgets importance", UPDATE, ".importance = options.importance,", ".importance = \"inside\",",
     "step:lamb outside"),
    ("trainer forgets nesterov", UPDATE, ".nesterov = options.nesterov,", "", "step:nesterov"),
    ("trainer forgets beta1", UPDATE, ".beta1 = options.beta1,", "", "step:lamb's averages"),
    ("trainer forgets beta2", UPDATE, ".beta2 = options.beta2,", "", "step:lamb's averages"),
    ("trainer forgets epsilon", UPDATE, ".epsilon = options.epsilon,", "", "step:lamb's averages"),
    ("trainer forgets bias correction", UPDATE, ".bias_correction = options.bias_correction,", "",
     "step:bias correction"),
    ("trainer forgets the trust coefficient", UPDATE, ".trust_coefficient = options.trust_coefficient,", "",
     "step:lars_sgd"),
    ("trainer forgets to clip", UPDATE, ".clip_norm = options.clip_norm", ".clip_norm = 0", "step:clipped"),
    ("trainer forgets the upper clamp", UPDATE, ".clamp_high = options.clamp_high,", ".clamp_high = 10,",
     "step:lamb inside"),
    ("trainer forgets the lower clamp", UPDATE, ".clamp_low = options.clamp_low,", ".clamp_low = 0,",
     "step:lamb outside,lars outside"),
    ("trainer forgets weight decay", UPDATE, ".weight_decay = options.weight_decay,", ".weight_decay = -1,",
     "step:lars outside"),
    ("trainer forgets momentum", UPDATE, "{.momentum = options.momentum,", "{.momentum = 0.9,",
     "step:pgd, batch statistics"),
    ("trainer forgets the bandit loss", LAYERS, ".bandit_loss = options.bandit_loss,", "",
     "step:paper's bandit"),
    ("trainer forgets the bandit rate", LAYERS, ".bandit_rate = options.bandit_rate", ".bandit_rate = 0",
     "step:self-normalised"),
    ("trainer forgets p_min", LAYERS, ".p_min = options.p_min,", "", "step:self-normalised"),
    # Network.
    ("a third gradient is lost", "src/network/frozen_lowering.cpp",
     "upkeep_.after.push_back({g.main, part, elements(value), type(value)});", "", "unit:[network]"),
    ("the residual is overwritten too early", "src/network/nodes/convolution.cpp",
     "if (lowering.read_later(residual_) || residual_ == input())", "if (residual_ == input())", "unit:[network]"),
    ("affine: the other gradient is overwritten", "src/network/nodes/batch_norm.cpp", "elements_, accumulates_});",
     "elements_, false});", "unit:[network]"),
    ("gradients go where they always went", "src/network/training_program.cpp", "request.gradients + s.begin",
     "model_.parameters.gradients + s.begin", "unit:[network]"),
    # Sampler and loader.
    ("warm-up permutation not shared", "src/io/loader.cpp",
     "epoch < options_.warmup_epochs ? 0 : epoch - options_.warmup_epochs;", "epoch;", "step:defaults"),
    ("wrong wrap-around entry", "src/io/sampler.cpp", "static_cast<std::size_t>(entry % samples_)",
     "static_cast<std::size_t>(entry < samples_ ? entry : samples_ - 1)", "step:two ranks"),
    ("crop range off by one", "src/io/loader.cpp", "word % (2 * kPadding + 1)", "word % (2 * kPadding)",
     "step:defaults"),
    ("mirrored before it is cut", AUGMENT, "from_x = (crop.flip != 0 ? w - 1 - x : x) + crop.left;",
     "from_x = crop.flip != 0 ? w - 1 - (x + crop.left) : x + crop.left;", "step:defaults"),
    ("crops of the warm-up repeat", "src/io/loader.cpp", "Purpose::augmentation, static_cast<std::uint32_t>(epoch),",
     "Purpose::augmentation, static_cast<std::uint32_t>(shuffle),", "step:defaults"),
    ("batch is cut, not dealt", "src/io/sampler.cpp", "(first + std::int64_t{i} * plan_.micro_batches + m) * ranks_",
     "(first + std::int64_t{m} * size + i) * ranks_", "step:micro-batches"),
    ("no crop at all", AUGMENT, "from_y = y + crop.top;", "from_y = y;", "step:defaults"),
    # Selector.
    ("1/p not corrected for empty draws", "src/selector/draw.cpp", "static_cast<float>(any_layer / p[d])",
     "static_cast<float>(1 / p[d])", "step:rarely any layer"),
    ("bandit: p, not pi", "src/selector/exp3.cpp", "{ return p_[d] / any_layer; };", "{ return p_[d]; };",
     "step:rarely, min-shift"),
    ("bandit: the wrong way", "src/selector/exp3.cpp", "log_w_[d] += rate_ *", "log_w_[d] -= rate_ *", "step:defaults"),
    ("bandit: L of this step only", "src/selector/exp3.cpp", "largest_norm_ = std::max(largest_norm_, norms[d]);",
     "largest_norm_ = norms[d];", "step:paper's bandit"),
    ("bandit: lars as the variance", "src/selector/exp3.cpp", "std::pow(of.p_min / pi, 1.5)",
     "std::pow(of.p_min / pi, 2)", "step:bandit of lars"),
    ("bandit: the normalised loss is not", "src/selector/exp3.cpp",
     "square(g / pi) / square(of.largest_norm / of.p_min) / pi", "square(g / pi) / pi", "step:normalised shift-free"),
    ("oracle: the newest norm alone", "src/selector/oracle.cpp", "(1 - kNewest) * squares_[d] + kNewest * square",
     "square", "step:oracle"),
    ("oracle: squares for norms", "src/selector/oracle.cpp", "0.5 * std::log(", "std::log(", "step:oracle"),
    ("oracle: unknown layers count nothing", "src/selector/oracle.cpp",
     "squares_[d] == kUnknown ? largest : squares_[d];", "squares_[d] == kUnknown ? 0 : squares_[d];", "step:oracle"),
    ("oracle: restored without its probabilities", "src/selector/oracle.cpp", "squares_ = state;\n    choose();",
     "squares_ = state;", "step:oracle"),
    ("projection: floor costs nothing", "src/selector/project_kl.cpp", "left -= p_min;", "left -= 0;",
     "unit:[selector]"),
    ("draw does not depend on the step", "src/selector/draw.cpp", "static_cast<std::uint32_t>(draw_number)", "0",
     "step:defaults"),
    # Optimizer.
    ("lamb: no weight decay", OPTIMIZER, "(std::sqrt(v) + epsilon) + weight_decay * theta;",
     "(std::sqrt(v) + epsilon);", "step:lamb outside"),
    ("lamb: v of the raw gradient", OPTIMIZER, "v[i] = beta2 * v[i] + one_minus_beta2 * g * g;",
     "v[i] = beta2 * v[i] + one_minus_beta2 * gradient[i] * gradient[i];", "step:defaults"),
    ("trust ratio without lower bound", OPTIMIZER, "theta < low ? low : theta > high ? high : theta;",
     "theta > high ? high : theta;", "step:lamb outside"),
    ("lars: a sum for the norm", OPTIMIZER, "return {{double(theta[i]) * double(theta[i]), double(u) * double(u), 0}};\n  }\n};\n\n/// Second pass of LARS",
     "return {{double(theta[i]) * double(theta[i]), double(u), 0}};\n  }\n};\n\n/// Second pass of LARS", "step:lars outside"),
    ("sgd: no weight decay", OPTIMIZER, "scaled(gradient[i], scale, segment) + weight_decay * theta[i];\n    momentum",
     "scaled(gradient[i], scale, segment);\n    momentum", "step:sgd outside"),
    ("outside is inside", "src/optimizer/segment_factors.hpp", "inside_(options.importance == \"inside\")",
     "inside_(true)", "step:sgd outside"),
    ("sgd: nesterov does not look ahead", OPTIMIZER, "(nesterov ? g + mu * momentum[i] : momentum[i])",
     "momentum[i]", "step:nesterov"),
    ("lars_sgd: decay of one-dimensional tensors", OPTIMIZER, "adapted[segment] != 0 ? weight_decay : 0.0F;",
     "weight_decay;", "step:lars_sgd"),
    ("lars_sgd: local rate of one-dimensional tensors", OPTIMIZER, "adapted[k] != 0 && theta != 0 && below != 0",
     "theta != 0 && below != 0", "step:lars_sgd"),
    ("lars_sgd: local rate without decay", OPTIMIZER, "below = g + weight_decay * theta;", "below = g;",
     "step:lars_sgd"),
    ("lars_sgd: norm of the raw gradient", OPTIMIZER, "const double g = scaled(gradient[i], scale, segment);",
     "const double g = gradient[i];", "step:lars_sgd"),
    ("lars_sgd: outside forgotten", OPTIMIZER, "theta[i] -= scaled(momentum[i], step_scale, segment);",
     "theta[i] -= momentum[i];", "step:lars_sgd outside, two ranks"),
    ("lamb: counts every step", "src/optimizer/lamb.cpp",
     "if (active.active(static_cast<int>(d))) steps_[d] += 1;", "steps_[d] += 1;", "step:bias correction"),
    ("lamb: both corrections by beta1", "src/optimizer/lamb.cpp", "std::pow(options_.beta2, t)",
     "std::pow(options_.beta1, t)", "step:bias correction"),
    ("lamb: corrects as a step later", "src/optimizer/lamb.cpp",
     "const double t = steps_[static_cast<std::size_t>(layer)];",
     "const double t = steps_[static_cast<std::size_t>(layer)] + 1;", "step:bias correction"),
    ("clip: norm of the raw gradient", OPTIMIZER, "square += f * f * sums[j * kSums];", "square += sums[j * kSums];",
     "step:clipped"),
    ("clip: lengthens, too", OPTIMIZER, "(part < 1 ? part : 1.0)", "part", "step:clipped"),
    ("clip: each segment by itself", OPTIMIZER, "      square += f * f * sums[j * kSums];",
     "      square += j == k ? f * f * sums[j * kSums] : 0;", "step:clipped"),
    ("warm-up one step behind", "src/optimizer/schedules.hpp", "static_cast<double>(step + 1)", "static_cast<double>(step)",
     "step:defaults"),
    ("milestone an epoch late", "src/optimizer/step.cpp", "return milestone <= epoch;", "return milestone < epoch;",
     "step:defaults"),
    ("cosine to half", "src/optimizer/cosine.cpp", "std::cos(std::numbers::pi * progress", "std::cos(0.5 * std::numbers::pi * progress",
     "step:cosine"),
    # Reducer.
    ("sum, not mean", REDUCER, "1.0F / static_cast<float>(ranks_.size()), gradients_);", "1.0F, gradients_);", "mpi:2"),
    ("a bucket's last segment is left out", REDUCER, "of.table.between(part.first, part.end)",
     "of.table.between(part.first, part.end - 1)", "mpi:2"),
    ("a bucket is sent before it is full", REDUCER, "if (one.missing > 0 || !backend_.arrived(one.ticket)) break;",
     "if (!backend_.arrived(one.ticket)) break;", "step:overlap"),
    ("one rank skips a codec that is not exact", REDUCER, "ranks.size() == 1 && codec_->exact() &&", "ranks.size() == 1 &&",
     "unit:[reducer]"),
    ("one rank skips an aggregator that changes it", REDUCER, "codec_->exact() && aggregator_->keeps_one())",
     "codec_->exact())", "unit:[reducer]"),
    ("messages are added up for any aggregator", REDUCER, "codec_->summable() && aggregator_->is_mean() && !separate_)",
     "codec_->summable() && !separate_)", "mpi:2"),
    ("every message is rank 0's", REDUCER, "    next += of.bytes;\n", "", "mpi:2"),
    ("the codec does not learn the step", REDUCER, "  step_ = step;\n", "", "mpi:2"),
    ("mean of gathered messages: sum", "kernels/gradients.hpp", "result[i] = factor * total;", "result[i] = total;",
     "unit:[kernels]"),
    ("sums of a bucket from the first chunk of all", "kernels/cpu.cpp",
     "k = chunks.first[segment] - chunks.origin; k < chunks.first[segment + 1] - chunks.origin;",
     "k = chunks.first[segment]; k < chunks.first[segment + 1];", "unit:[parameters]"),
    # Masks per worker.
    ("every rank draws rank 0's layers", WORKERS, "p_, active_, ranks_.rank());", "p_, active_);", "step:masks per worker"),
    ("the rank is not in the counter", "src/selector/draw.cpp", "static_cast<std::uint64_t>(rank) << 32 | d", "d + 0 * rank",
     "unit:[selector]"),
    ("worker: norms of the weighed gradient", "kernels/gradients.hpp", "return {{double(g) * double(g), 0, 0}};\n  }\n};\n\n/// The sum of squares",
     "return {{double(gradients[i]) * double(gradients[i]), 0, 0}};\n  }\n};\n\n/// The sum of squares", "step:masks per worker"),
    ("worker: no 1/p", WORKERS, "factors_[k] = active_.scale[static_cast<std::size_t>(model_.parameters.segments[k].layer)];",
     "factors_[k] = 1;", "step:masks, dense"),
    ("worker: only rank 0 learns", WORKERS, "if (learns()) fetch_norms(ticket);", "if (learns() && ranks_.root()) fetch_norms(ticket);",
     "step:masks per worker"),
    ("worker: the optimizer gets its own layers", "src/train/per_worker_masks.hpp", "updated() const override { return updated_; }",
     "updated() const override { return active_; }", "step:masks per worker"),
    ("worker: layers of the first rank alone move", WORKERS, "std::any_of(masks_.begin(), masks_.end(),",
     "std::any_of(masks_.begin(), masks_.begin() + 1,", "step:masks per worker"),
    ("worker: the first 64 layers for all", WORKERS, "all_[rank * words_ + d / 64]", "all_[rank * words_ + 0 * d]", "mpi:2"),
    ("worker: all go on with rank 0's draw", WORKERS, "  take();\n", "", "step:masks, blocks in two steps"),
    ("worker: masks are not restored", WORKERS, "  take_masks();\n  saved_ = {};", "  saved_ = {};", "step:masks, blocks in two steps"),
    ("worker: the check does not see the masks", WORKERS,
     "  for (const ActiveSet& mask : masks_) digest.add(mask.scale.data(), mask.scale.size() * sizeof(float));\n",
     "  (void)digest;\n", "mpi:2"),
    ("worker: zeros are not set", REDUCER, "  set_zeros(layers);\n", "", "mpi:2"),
    ("worker: buckets without own layers are not encoded", REDUCER, "if (part.missing == 0) encode(part);",
     "if (part.missing < 0) encode(part);", "mpi:3"),
    ("union is dense", REDUCER, "bool any = options_.transport == \"dense\";", "bool any = !options_.transport.empty();", "mpi:2"),
    ("all-gather: every rank's layout is this one's", REDUCER, "separate_ ? static_cast<std::size_t>(rank) : 0);",
     "separate_ ? own_ : 0);", "mpi:2"),
    ("all-gather: blocks from the beginning", REDUCER, "blocks_[k].at[rank] = at;", "blocks_[k].at[rank] = 0 * at;", "mpi:2"),
    ("zeros through any aggregator", REDUCER, "require(transport.empty() || aggregator_->is_mean(),", "require(true,",
     "unit:[reducer]"),
    # Communicator.
    ("a synchronous send does not wait", COMMUNICATOR, "MPI_Ssend(data,", "MPI_Send(data,", "mpi:2"),
    ("a group in the order of the ranks", COMMUNICATOR, "MPI_UNDEFINED : color, key, &group", "MPI_UNDEFINED : color, 0 * key, &group",
     "mpi:3"),
    ("a message of any length", COMMUNICATOR, "if (expected_ >= 0) check_length", "if (expected_ > 1000) check_length", "mpi:2"),
    ("a probe of one rank sees all", COMMUNICATOR, "from == kAny ? MPI_ANY", "from == kAny || tag == kAny ? MPI_ANY", "mpi:3"),
    ("groups are never given back", COMMUNICATOR, "if (!alone()) MPI_Comm_free(&group_);", "", "mpi:2"),
    # Checkpoint.
    ("p of the draw is not restored", LAYERS, "  p_ = mine(saved_.p);\n", "", "step:a draw an epoch"),
    ("active layers are not restored", LAYERS, "  std::copy(scale.begin(), scale.end(), active_.scale.begin());\n",
     "", "step:a draw an epoch"),
    ("step counts are not restored", UPDATE,
     "  optimizer_->restore(numbers != checkpoint.doubles.end() ? numbers->second : std::vector<double>());\n", "",
     "step:bias correction"),
    ("step counts of rank 0 alone", UPDATE,
     "  ranks.broadcast(numbers.data(), numbers.size() * sizeof(double));\n", "",
     "step:bias correction, two ranks"),
    ("optimizer state of rank 0 alone", UPDATE, "  for (const Optimizer::State& state : optimizer_->state()) floats(state.data, model_.parameters.size);\n",
     "", "step:two ranks"),
    ("largest norm is not restored", "src/selector/exp3.cpp", "largest_norm_ = state.back();", "", "unit:[selector]"),
    ("every rank gets rank 0's local statistics", STATISTICS, "static_cast<std::size_t>(ranks.rank());\n    set_running",
     "0;\n    set_running", "step:local statistics"),
    ("running mean and variance exchanged", "src/replica/model_state.cpp", "load(\".running_mean\", model.running_mean);",
     "load(\".running_mean\", model.running_variance);", "step:defaults"),
    # Evaluation.
    ("evaluation with each rank's own statistics", STATISTICS, "  ranks.broadcast(root.data(), root.size() * sizeof(float));\n",
     "", "step:local statistics"),
    ("training goes on with rank 0's statistics", STATISTICS, "  if (!own_.empty()) set_running_statistics(model_, own_);\n", "",
     "step:local, evaluated on the way"),
    ("evaluation starts where training does", EVALUATION, "objective_.prepare(seed, Purpose::evaluation_start, static_cast<std::uint32_t>(restart));",
     "objective_.prepare(seed, Purpose::attack_start, static_cast<std::uint32_t>(restart));", "step:defaults"),
    ("every restart is the same", EVALUATION, "Purpose::evaluation_start, static_cast<std::uint32_t>(restart));",
     "Purpose::evaluation_start, 0);", "step:wide ball"),
    ("the last restart counts", EVALUATION, "measure(images_.x_adv, result.attacked[k], restart == 0);",
     "measure(images_.x_adv, result.attacked[k], true);", "step:wide ball"),
    ("evaluation with the label before", EVALUATION, "batch_.labels[k] = dataset_.label(next);",
     "batch_.labels[k] = dataset_.label(next > 0 ? next - 1 : 0);", "step:defaults"),
    ("evaluation with the training's radius", TRAINER, ".eps = options.eval_eps > 0 ? options.eval_eps : options.eps,", ".eps = options.eps,", "step:two ranks"),
    # The model of a step.
    ("forecast: a ring goes around once", FORECAST, "(2 * to_neighbour(c, part) + part / c.reduction)",
     "(to_neighbour(c, part) + part / c.reduction)", "unit:[forecast]"),
    ("forecast: a sum without adding", FORECAST, "(2 * to_neighbour(c, part) + part / c.reduction)",
     "(2 * to_neighbour(c, part))", "unit:[forecast]"),
    ("forecast: a tree sends all of it each time", FORECAST, "distance *= 2, part /= 2)", "distance *= 2)",
     "unit:[forecast]"),
    ("forecast: ranks beyond a power of two are free", FORECAST, "inner < c.ranks ? 2 * to_neighbour",
     "inner > c.ranks ? 2 * to_neighbour", "unit:[forecast]"),
    ("forecast: ranks of a node have a link each", FORECAST, "c.between.seconds(c.ranks_per_node * bytes)",
     "c.between.seconds(bytes)", "unit:[forecast]"),
    ("forecast: messages leave beside each other", FORECAST, "wire = std::max(wire, now) + message;",
     "wire = std::max(wire, now + message);", "unit:[forecast]"),
    ("forecast: messages leave before their layers", FORECAST, "wire = std::max(wire, now) + message;",
     "wire += message;", "unit:[forecast]"),
    ("forecast: encoding delays nothing", FORECAST, "    now += encode;\n", "", "unit:[forecast]"),
    ("forecast: buckets without bound", FORECAST, "d > 0 && in_bucket + elements >", "d > layers && in_bucket + elements >",
     "unit:[forecast]"),
    ("forecast: one pass of many is shorter", FORECAST, "calibration.backward_passes * (pass - saved)",
     "calibration.backward_passes * pass - saved", "unit:[forecast]"),
    ("forecast: layers that are not drawn save nothing", FORECAST, "saved += (1 - p(d)) *", "saved += 0 *",
     "unit:[forecast]"),
    ("forecast: gathered messages are decoded once", FORECAST, "Transport::gather ? ranks :",
     "Transport::gather ? 1 :", "unit:[forecast]"),
    ("forecast: a stale attack covers everything", FORECAST, "std::min(step.exposed, iterations *",
     "std::max(step.exposed, iterations *", "unit:[forecast]"),
    ("forecast: the second message is free", FORECAST, "step.exposed += seconds_of_sum(cluster,",
     "step.exposed += 0 * seconds_of_sum(cluster,", "unit:[forecast]"),
    ("forecast: the slowest rank is like the others", FORECAST, "expected_maximum(cluster.ranks);",
     "expected_maximum(1);", "unit:[forecast]"),
    ("forecast: a budget in bytes by size", FORECAST, "std::clamp(c / std::sqrt(of_layer), p_min, 1.0)",
     "std::clamp(c / of_layer, p_min, 1.0)", "unit:[forecast]"),
    ("forecast: large messages count more in the fit", FORECAST, "const double weight = 1 / (y[k] * y[k]);",
     "const double weight = 1;", "unit:[forecast]"),
    ("calibration: parts may exceed the whole", "src/measure/calibration.cpp",
     "backward * c.backward_passes <= c.backward *", "backward <= c.backward *", "unit:[forecast]"),
    ("calibration: names are printed as they are", "src/measure/calibration.cpp", "return c > 0x20 && c < 0x7f;",
     "return c < 0x7f;", "unit:[forecast]"),
]

# Why a survivor is no gap in the tests.
EXPLAINED = {}


def say(text):
    print(text, flush=True)


def give_up(text):
    say(f"tests/mutations.sh: error: {text}")
    sys.exit(2)


def files():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], check=True, text=True,
                            stdout=subprocess.PIPE).stdout.splitlines()
    return [name for name in listed if os.path.isfile(f"{ROOT}/{name}")]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write_if_other(path, content):
    """Leaves the time of a file alone that has this content already."""
    if not os.path.exists(path) or read(path) != content:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


def mutated(mutation, text):
    name, path, old, new, _ = mutation
    found = text.count(old.encode())
    if found != 1:
        give_up(f"'{name}' fits {path} {found} times, not once; adapt it in tests/mutations.py")
    return text.replace(old.encode(), new.encode())


def copy_tree():
    """The working tree without mutations. Returns hashes of the program's sources and of the tests."""
    program, tests, kept = hashlib.sha256(), hashlib.sha256(), set()
    for name in sorted(files()):
        content = read(f"{ROOT}/{name}")
        write_if_other(f"{TREE}/{name}", content)
        shutil.copymode(f"{ROOT}/{name}", f"{TREE}/{name}")
        kept.add(name)
        folder = name.split("/")[0]
        if folder in ("src", "include", "kernels", "CMakeLists.txt"):
            program.update(name.encode() + b"\0" + content)
        elif folder == "tests" and "mutations" not in name:
            tests.update(name.encode() + b"\0" + content)
    for folder, _, names in os.walk(TREE):
        for name in names:
            if os.path.relpath(f"{folder}/{name}", TREE) not in kept:
                os.remove(f"{folder}/{name}")
    return program.hexdigest()[:16], tests.hexdigest()[:16]


def build(targets, what):
    ended = subprocess.run(["cmake", "--build", BUILD, "--parallel", str(os.cpu_count()), "--target", *targets],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ended.returncode != 0:
        give_up(f"{what} does not build:\n" + "\n".join(ended.stdout.splitlines()[-30:]))


TARGET = {"step": "dat_hpc", "e2e": "dat_hpc", "unit": "dat_tests", "mpi": "dat_mpi_tests"}


def command(test):
    kind, which = test.split(":", 1)
    python = [sys.executable, "-B"]
    return kind, {
        "step": lambda: [*python, f"{TREE}/tests/outside/step.py", f"{BUILD}/dat_hpc", "--stop-at-first", "--only",
                         *which.replace(", ", "\0").replace(",", "\n").replace("\0", ", ").split("\n")],
        "unit": lambda: [f"{BUILD}/tests/dat_tests", which],
        "mpi": lambda: ["mpirun", "-np", which, f"{BUILD}/tests/dat_mpi_tests"],
        "e2e": lambda: [*python, f"{TREE}/tests/e2e/{which}.py", f"{BUILD}/dat_hpc", "--failfast"],
    }[kind]()


def red(test, limit_s):
    """What a test says where it fails, or is not done after limit_s; None where it passes."""
    kind, words = command(test)
    environment = os.environ | {"OMP_NUM_THREADS": "2" if kind == "unit" else "1", "OMP_WAIT_POLICY": "passive"}
    running = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", env=environment, start_new_session=True, cwd=WORK)
    try:
        text, _ = running.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, 9)
        running.communicate()
        return f"still running after {limit_s:.0f} s"
    if running.returncode == 0:
        return None
    lines = [line.strip() for line in text.splitlines() if any(
        word in line for word in (", step ", ", evaluation ", "Wrong", "FAILED", "AssertionError", "error:"))]
    return (lines or text.splitlines() or [f"exit code {running.returncode}"])[0][:160]


def done(program, tests):
    found = {}
    if os.path.exists(RESULTS):
        with open(RESULTS) as file:
            for entry in [json.loads(line) for line in file if line.endswith("\n")]:
                if entry["program"] == program and (entry["caught"] or entry["tests"] == tests):
                    found[entry["key"]] = entry
    return found


def keep(entry):
    with open(RESULTS, "a") as file:
        file.write(json.dumps(entry) + "\n")
    return entry


def key(mutation):
    return hashlib.sha256(repr(mutation[:4]).encode()).hexdigest()[:16]


def measure():
    """The suite without a mutation. Returns, by kind of test, after how many seconds one hangs."""
    limits = {}
    for test in SUITE:
        begin = time.monotonic()
        said = red(test, 3600)
        seconds, kind = time.monotonic() - begin, test.split(":")[0]
        say(f"  {test:<20} {'green' if said is None else 'RED: ' + said} ({seconds:.0f} s)")
        if said is not None:
            give_up(f"{test} is red without a mutation")
        limits[kind] = max(limits.get(kind, 60), round(PATIENCE * seconds))
    return limits


def judge(mutation, program, tests, limits):
    name, path, _, _, likely = mutation
    begin = time.monotonic()
    whole = read(f"{TREE}/{path}")
    write_if_other(f"{TREE}/{path}", mutated(mutation, whole))
    try:
        for test in [likely, *[test for test in SUITE if test != likely]]:
            build([TARGET[test.split(":")[0]]], f"'{name}'")
            said = red(test, limits[test.split(":")[0]])
            if said is not None:
                break
        else:
            test = None
    finally:
        write_if_other(f"{TREE}/{path}", whole)
    return keep({"program": program, "tests": tests, "key": key(mutation), "name": name, "file": path, "caught": test, "said": said,
                 "seconds": round(time.monotonic() - begin)})


def table(chosen, found):
    lines = [f"{'mutation':<44} {'file':<34} {'seen by':<36} {'s':>4}"]
    survivors = []
    for mutation in chosen:
        entry = found[key(mutation)]
        if entry["caught"] is None:
            survivors.append(entry["name"])
        seen = entry["caught"] or "SURVIVED" + (": " + EXPLAINED[entry["name"]] if entry["name"] in EXPLAINED else "")
        lines.append(f"{entry['name']:<44} {entry['file']:<34} {seen:<36} {entry['seconds']:>4}")
    seconds = sum(found[key(mutation)]["seconds"] for mutation in chosen)
    lines.append(f"{len(chosen) - len(survivors)} of {len(chosen)} caught, in {seconds / 60:.0f} minutes")
    return "\n".join(lines) + "\n", survivors


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="only see whether the mutations fit the sources")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    arguments = parser.parse_args()
    chosen = [m for m in MUTATIONS if not arguments.only or m[0] in arguments.only]
    if len({key(m) for m in MUTATIONS}) != len(MUTATIONS) or not chosen:
        give_up("no such mutation, or two are the same")
    for mutation in MUTATIONS:
        mutated(mutation, read(f"{ROOT}/{mutation[1]}"))
    say(f"{len(MUTATIONS)} mutations fit")
    if arguments.check:
        return 0
    os.makedirs(WORK, exist_ok=True)
    program, tests = copy_tree()
    if not os.path.exists(f"{BUILD}/CMakeCache.txt"):
        configured = subprocess.run(["cmake", "-G", "Ninja", "-S", TREE, "-B", BUILD, "-DCMAKE_BUILD_TYPE=Release",
                                     "-DDAT_BENCH=OFF"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if configured.returncode != 0:
            give_up("cmake failed:\n" + configured.stdout)
    found = done(program, tests)
    if "none" not in found:
        say("without a mutation:")
        build(sorted(set(TARGET.values())), "the program without a mutation")
        found["none"] = keep({"program": program, "tests": tests, "key": "none", "caught": None,
                              "limits": measure()})
    for number, mutation in enumerate(chosen, 1):
        if key(mutation) not in found:
            entry = found[key(mutation)] = judge(mutation, program, tests, found["none"]["limits"])
            say(f"{number:>3}/{len(chosen)} {entry['name']:<44} {entry['caught'] or 'SURVIVED':<36} "
                f"{entry['seconds']:>4} s  {entry['said'] or ''}")
    text, survivors = table(chosen, found)
    with open(f"{WORK}/table.txt", "w") as file:
        file.write(text)
    say("\n" + text + f"written to {WORK}/table.txt")
    return 0 if len([name for name in survivors if name not in EXPLAINED]) < LOST else 1


if __name__ == "__main__":
    sys.exit(main())
