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

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = f"{ROOT}/build/mutations"
TREE, BUILD, RESULTS = f"{WORK}/tree", f"{WORK}/build", f"{WORK}/results.jsonl"
LOST = 3

# The suite for a mutation that its own tests let pass, fastest first. step: configurations of tests/outside/step.py,
# unit: of dat_tests, mpi: ranks of dat_mpi_tests, planted: of dat_planted_tests, e2e: files of tests/e2e, slurm: classes
# of tests/cli/slurm.py. Of the CUDA backend, on the double of its libraries, where their headers are: double: of dat_tests_double, mpi_double: ranks
# of dat_mpi_tests_double.
SUITE = ["mpi:2", "mpi:3", "planted:2", "unit:~[.canary]", "step:*", "e2e:same_weights", "e2e:ranks", "e2e:handshake",
         "e2e:restart", "e2e:files", "e2e:corruption", "e2e:average", "slurm:Decisions", "slurm:Printed"]
CUDA_SUITE = ["double:[double]", "mpi_double:2"]
PATIENCE = 3  # a test that takes so many times what it takes without a mutation hangs

TRAINER, LEARNER, STATISTICS = "src/train/trainer.cpp", "src/train/learner/learner.cpp", "src/train/statistics/batch_statistics.cpp"
LAYERS, UPDATE, EVALUATION = "src/train/layers/sampling.cpp", "src/train/update/weight_update.cpp", "src/assess/evaluation.cpp"
CROSS_ENTROPY, LOSS, MOVE = "src/loss/cross_entropy.cpp", "kernels/loss.hpp", "kernels/move_weights.hpp"
SEQUENCE, JOURNAL, ALARMS = "src/assess/sequence.cpp", "src/assess/journal.cpp", "src/assess/alarms.cpp"
HANG, RECORDER, STRAGGLERS = "src/communicate/verdict.cpp", "src/communicate/flight_recorder.cpp", "src/train/watch/stragglers.hpp"
PROGRESS, LOCAL, TIMER = "src/communicate/progress.cpp", "src/train/examples/local_examples.cpp", "src/train/plan/phase_timer.cpp"
CHEATS, MESSAGE = "src/train/attackers/", "src/train/message/step_message.cpp"
NUMBERS, WARM = "src/train/watch/finite.cpp", "src/train/examples/warm_start.cpp"
SHARED, WORKERS = "src/train/layers/shared_mask.cpp", "src/train/layers/per_worker_masks.cpp"
SLURM, SLURM_VERB, PLANNED = "jobs/slurm/common.sh", "src/verbs/slurm.cpp", "src/verbs/planned.cpp"
SUMMATION, TREE_REDUCER = "src/reduce/tree/summation_tree", "src/reduce/tree/tree_reducer.cpp"
READER = "src/hdf5/hdf5_structure.cpp"
SAFETENSORS, STATE_DICT = "src/interop/safetensors.cpp", "src/interop/state_dict.cpp"
CHECK, VERIFICATION = "src/train/watch/replica_check.cpp", "src/train/watch/verification.cpp"
REDUCER, COMMUNICATOR = "src/reduce/gradient_reducer.cpp", "src/communicate/communicator.cpp"
BUCKETS, MASKS, MESSAGES = "src/reduce/buckets.cpp", "src/reduce/masks.cpp", "src/reduce/transport/message.cpp"
SUM, GATHER, TWO_SIDED = (f"src/reduce/transport/{name}.cpp" for name in ("sum", "gather", "two_sided"))
ROBUST, KRUM, CLIP, GEOMETRIC = (f"src/reduce/aggregator/{name}.cpp" for name in
                                  ("robust", "krum", "centered_clip", "geometric_median"))
UNITS, AGGREGATE = "src/reduce/tree/mean_of_units.cpp", "kernels/aggregate.hpp"
FORECAST = "src/forecast/forecast.cpp"
SPLIT = "src/forecast/split.cpp"
PERTURB, AUGMENT, OPTIMIZER = "kernels/perturb.hpp", "kernels/augment.hpp", "kernels/optimizer.hpp"
AVERAGED, AVERAGE, PASS = "src/optimizer/averaged.cpp", "src/train/update/weight_average.cpp", "src/train/update/statistics_pass.cpp"
REPORT = "src/record/report.cpp"
RUN, RUN_CHECKPOINTS, MEMBERS = "src/run/run.cpp", "src/run/checkpoints.cpp", "src/run/membership.cpp"
OLD = "src/train/examples/old_weights."
GENERATORS = "src/train/generators/"
WATCH, METHOD, BEGUN = "src/train/watch/watch.cpp", "src/train/plan/method.cpp", "src/train/examples/begun_attack.cpp"
CUDA = "src/backend/cuda/"
TRIALS, GRAPH, LEGACY = CUDA + "trials.cpp", CUDA + "graph_plans.cpp", CUDA + "legacy_plans.cpp"

NOISE, SMOOTHED = "kernels/noise.hpp", "src/replica/smoothed_objective.cpp"
CERTIFICATE, CERTIFIER = "src/assess/certification/certification.cpp", "src/assess/certification/certifier.cpp"
ATTACKED = "src/assess/certification/certificate_attack.cpp"
BOUNDS, GRID, NOISY = "src/smoothing/bounds.cpp", "src/smoothing/grid_noise.cpp", "kernels/noisy_image.hpp"

# name, file, old text, new text, the tests that are most likely to see it
MUTATIONS = [
    # Ranks that may be false: what they say of a step.
    ("the upper median of batch statistics", MESSAGE, "number = sorted_[(n - 1) / 2];",
     "number = sorted_[n / 2];", "step:two ranks, median"),
    ("losses are not trimmed", MESSAGE,
     "n == 0 ? 0 : std::min(static_cast<std::size_t>(tolerance_->faults), (n - 1) / 2)", "0", "step:median"),
    ("what a rank says is not divided by its share", MESSAGE,
     "tolerance_->shares[static_cast<std::size_t>(counted_[k])];", "1.0;", "step:median"),
    ("a number that is not finite counts", MESSAGE,
     "[](double number) { return std::isfinite(number); }", "[](double) { return true; }", "mpi:3"),
    ("parts by bucket", "src/reduce/transport/butterfly.cpp", "(rank * mine_ + place.begin - part)", "(rank * mine_ - part)",
     "mpi:3"),
    ("the selector of rank 0 alone goes on", SHARED,
     "  if (!ranks.root()) selector_->restore(state);\n", "", "step:CenteredClip"),
    # Noise in front of the network.
    # Certification.
    ("certify: samples that choose are counted", CERTIFICATE, "    std::fill(counts_.begin(), counts_.end(), 0);\n", "", "unit:[certification]"),
    ("certify: half of the votes is enough", CERTIFICATE, "if (c.lower <= 0.5) return;\n  c.prediction = chosen_;\n  c.radius = certified_radius(c.lower, plan_->sigma);\n}\n\nvoid ImageVotes::look_at", "if (c.lower <= 0.4) return;\n  c.prediction = chosen_;\n  c.radius = certified_radius(c.lower, plan_->sigma);\n}\n\nvoid ImageVotes::look_at", "unit:[certification]"),
    ("certify: the last radius decides", CERTIFICATE, "open = open || c.decided[r] == 0;", "open = c.decided[r] == 0;", "unit:[certification]"),
    ("certify: blocks count as they come", CERTIFICATE, "at->first == next_", "at->first >= next_", "unit:[certification]"),
    ("certify: a radius that is ruled out is certified", CERTIFICATE, "q < seen ? 1 : -1", "q < seen + 1 ? 1 : -1", "unit:[certification]"),
    ("certify: what is wrong has a radius in the mean", CERTIFICATE, "correct(i) ? certificates[i].radius : 0", "certificates[i].radius", "unit:[certification]"),
    ("certify: a prediction by more than half", CERTIFICATE, "if (c.lower <= plan_->alpha) c.prediction", "if (c.lower <= 1) c.prediction", "unit:[certification]"),
    ("certify: a block of every rank's", CERTIFIER, "k += static_cast<std::size_t>(ranks_.size()))", "++k)", "e2e:certify"),
    ("certify: all samples of an image are those of its first block", CERTIFIER, "work_.plan.first_of(block.number) + first, count)", "first, count)", "e2e:certify"),
    ("certify: the samples that choose are counted again", CERTIFIER, "? Purpose::candidate : Purpose::certification", "? Purpose::candidate : Purpose::candidate", "e2e:certify"),
    ("certify: a journal's block counts twice", CERTIFIER, "while (next.number < work_.plan.blocks() && all[next.image].knows(next.number)) ++next.number;", "", "e2e:certify"),
    ("certify: attacked images are rounded out of the ball", ATTACKED, "if (take(1)) return bytes;", "take(1);\n  return bytes;", "unit:[certification]"),
    ("certify: attacked images end where the last halving was", ATTACKED, "  take(within);\n", "", "unit:[certification]"),
    ("certify: all are attacked within the first one's radius", ATTACKED, "attack_within(radii[i], steps)->perturb", "attack_within(radii[0], steps)->perturb", "unit:[certification]"),
    ("certify: attacks go to the label", ATTACKED, "batch.labels[0] = classes[i];", "batch.labels[0] = (classes[i] + 1) % replica.classes();", "e2e:certify"),
    ("certify: what abstains is broken", ATTACKED, "predicted.certificates[i].prediction != Certificate::kAbstains && ", "", "unit:[certification]"),
    ("certify: attacked images are predicted by the certificate's samples", ATTACKED, "  ++certified.seed;\n", "", "e2e:certify"),
    ("certify: attacked images of ranks in the order of ranks", ATTACKED, "(i % size * count + i / size - first)", "i", "e2e:certify"),
    ("certify: another attack goes on", "src/assess/certification/certification_report.cpp", '{"attack", attack_text(subject)},', "", "e2e:certify"),
    ("certify: every image", "src/run/certification_setting.cpp", "image += options.every)", "++image)", "e2e:certify"),
    ("certify: another sigma goes on", "src/assess/certification/certification_report.cpp", '{"sigma", all_digits(plan.sigma)},', "", "e2e:certify"),
    ("bounds: two-sided", BOUNDS, "return binomial_tail(k, n, p) < alpha;", "return 2 * binomial_tail(k, n, p) < alpha;", "unit:[smoothing]"),
    ("bounds: one trial too few", BOUNDS, "lgamma(a) + std::lgamma(b) - std::lgamma(a + b)", "lgamma(a) + std::lgamma(b) - std::lgamma(a + b - 1)", "unit:[smoothing]"),
    ("bounds: evidence of twice the samples", BOUNDS, "return log_beta(hits + 1, misses + 1) - hits", "return log_beta(hits + 1, misses + 1) - 1.05 * hits", "unit:[smoothing]"),
    ("grid noise: half a step to the side", GRID, "ratio(2 * j + 1, sigma) / 510", "ratio(2 * j + 2, sigma) / 510", "unit:[smoothing]"),
    ("grid noise: the upper half as the lower one", GRID, "noise.entries.push_back(~entry)", "noise.entries.push_back(~entry + 1)", "unit:[smoothing]"),
    ("grid noise: 32 bits decide", NOISY, "samples.words(n, k, true).v[j]", "(samples.words(n, k, true).v[j] & 0U)", "unit:[smoothing]"),
    ("grid noise: an entry is below itself", NOISY, "entries[below] < draw) ++below;", "entries[below] <= draw) ++below;", "unit:[smoothing]"),
    ("grid noise: sums go on", NOISY, "clamp(sum, low, high)", "sum", "unit:[smoothing]"),
    ("noisy samples: the same for all images", NOISY, "number_of(n), id,", "number_of(n), 0,", "unit:[smoothing]"),
    ("normal noise: the same for all images", NOISY, "samples.number_of(n), samples.id,", "samples.number_of(n), 0,", "unit:[smoothing]"),
    ("noisy samples: each call begins anew", NOISY, "return first_sample + static_cast", "return static_cast", "unit:[smoothing]"),
    ("normal noise: rows begin a group late", NOISY, "static_cast<std::uint32_t>(group)", "static_cast<std::uint32_t>(group + 1)", "unit:[smoothing]"),
    ("normal row: the angle of the other pair", "kernels/normal.hpp", "words.v[pair + 1][i]", "words.v[3 - pair][i]", "unit:[smoothing]"),
    ("normal row: cosines keep their sign", "kernels/normal.hpp", "((q + 1) & 2) != 0 ? -cosine", "((q + 1) & 4) != 0 ? -cosine", "unit:[smoothing]"),
    ("normal row: a coefficient of the logarithm", "kernels/normal.hpp", "x - 0.129722387F", "x - 0.129822387F", "unit:[smoothing]"),
    ("noise: all copies have the same", NOISE, "copy % copies * fours + i % fours", "i % fours", "unit:[smoothed]"),
    ("noise: the same in all epochs", SMOOTHED, "purpose == Purpose::attack_start ? time :", "purpose == Purpose::attack_start ? 0 :",
     "step:smooth-pgd"),
    ("noise: an evaluation's restarts see others", SMOOTHED, "? time : NoisyCopies::kEvaluation", "? time : time", "unit:[smoothed]"),
    ("noise: attack and update have their own", LEARNER, "                         examples.epoch);", "                         examples.epoch + 1);",
     "step:noise"),
    ("noise: the loss is the sum over copies", LEARNER, "examples.averaged() * copies_)", "examples.averaged())", "step:noise"),
    ("noise: a clean pass counts for each copy", LEARNER, "kernels::SumOfCopies{repeated_gradient_, network.dlogits(), replica_.classes(), copies_}",
     "kernels::Scale{repeated_gradient_, network.dlogits(), 1.0F, false}", "step:stability, copies, two ranks"),
    ("noise: perturbed weights see that of other images", "src/train/learner/weight_perturbation.cpp", "    kept.ids = ids_ + kept.first;\n", "",
     "step:stability, copies, two ranks"),
    ("noise: averaged weights have statistics of images without", PASS, "noise == nullptr ? images.clean", "noise != nullptr || true ? images.clean",
     "step:noise, two ranks"),
    ("noise: a mean of logarithms", NOISE, "j == 0 ? -p.minus_log_of(c) : log_of_sum(means[c], -p.minus_log_of(c))",
     "j == 0 ? -p.minus_log_of(c) : means[c] - p.minus_log_of(c)", "unit:[smoothed]"),
    ("noise: copies have equal parts in a gradient", NOISE, "exp(-q.minus_log_of(c) - means[c]) / copies", "exp(0 * means[c]) / copies", "unit:[smoothed]"),
    ("noise: the likelihood has no floor", NOISE, "if (!(loss[n] > kMost)) return;", "return;", "unit:[smoothed]"),
    ("noise: a plain likelihood of several copies", "src/attack/smooth_pgd.cpp", "o.copies > 1 ?", "o.copies > 4096 ?",
     "unit:[smoothed]"),
    ("smooth-pgd: the ball before the box", NOISE, "clamp(x[at] + move[at] + alpha * u, T{0}, T{1}) - x[at]", "move[at] + alpha * u",
     "unit:[smoothed]"),
    ("smooth-pgd: one direction for all iterations without gradient", NOISE, "iteration * fours + i % fours", "i % fours", "unit:[smoothed]"),
    ("smooth-pgd: PGD's step", "src/attack/smooth_pgd.cpp", "2 * options.eps / options.steps", "2.5 * options.eps / options.steps", "unit:[smoothed]"),
    ("noise: a clean pass beside it by default", "src/options/train/attack.cpp", 'o.attack == "pgd" && o.noise == 0 ? 1 : 0;', 'o.attack == "pgd" ? 1 : 0;',
     "unit:[#test_config]"),
    ("noise: eval takes the network without", "src/run/evaluation_setting.cpp", "options.noise < 0 ? trained.noise : options.noise;", "std::max(0.0, options.noise);",
     "e2e:ranks"),
    # Channels that fill up a network.
    ("filling is drawn as the other channels", "src/network/parameters.cpp", "  std::fill_n(memory, segment.size, 0.0F);",
     "  std::fill_n(memory, segment.size, 0.5F);", "unit:[parameters]"),
    ("a shortcut is left out between widths that are filled up alike", "include/dat/network.hpp",
     "    return graph_.nodes[static_cast<std::size_t>(x)].c - filling_[static_cast<std::size_t>(x)];",
     "    return graph_.nodes[static_cast<std::size_t>(x)].c;", "step:wrn16_4, width 12"),
    ("the fan-in of initial weights counts filling", "src/network/model.cpp",
     "    const std::int64_t fan_in = weights->file_size() / weights->file_shape()[0];",
     "    const std::int64_t fan_in = weights->size / weights->shape[0];", "step:a width of 20"),
    ("running variances of filling begin with one", "src/network/model.cpp", "norm.begin, norm.file_channels(), 1.0F);",
     "norm.begin, norm.channels, 1.0F);", "unit:[trainer]"),
    ("nothing is activated before the pool", "src/network/preact_resnet18.cpp", "x = net.activation(net.batch_norm(\"bn\", x));", "x = net.batch_norm(\"bn\", x);",
     "step:preact_resnet18_bn, normalized"),
    # Numbers that are not finite.
    ("images are not looked at", NUMBERS, "    if (!std::isfinite(host_[k * kSums])) return bad(Where::images);",
     "    if (host_[k * kSums] < 0) return bad(Where::images);", "planted:2"),
    ("each rank has its own verdict", NUMBERS, "if (!vote_.bad_agreed()) return nullptr;",
     "if (mine_.where == BadNumbers::Where::nowhere) return nullptr;", "planted:2"),
    ("the bad ones of micro-batches but the first pass", NUMBERS, "sums_ + images_++ * kSums", "sums_ + images_ * kSums",
     "planted:2"),
    ("a skipped step keeps the codec's error", TRAINER, "  codec_state_.put_back();\n", "", "planted:2"),
    ("a skipped step keeps perturbations", TRAINER, "  examples_->take_back();\n", "", "planted:2"),
    ("perturbations on their way are kept", WARM, "  if (under_way_) backend_.wait_for(ticket_);\n  under_way_ = false;\n",
     "", "planted:2"),
    ("good steps do not end a row of bad ones", WATCH, "  setbacks_.in_a_row = 0;\n  return true;", "  return true;", "planted:2"),
    ("the rate is that of before a rollback", TRAINER, "before.lr_factor * lr_factor", "before.lr_factor", "planted:2"),
    # Ranks that are made to cheat, and what the step's message makes of what ranks say.
    ("cheats: what false ranks send is in the mean of the honest", CHEATS + "false_gradients.cpp", "if (honest[rank] != 0)\n", "", "mpi:3"),
    ("cheats: the deviation of all, not of a sample", CHEATS + "false_gradients.cpp", "values.size() - 1)", "values.size())",
     "mpi:4"),
    ("cheats: from the first step on", CHEATS + "cheating.cpp", "own_->attacker.cheats_after(step) ? own_", "true ? own_", "mpi:3"),
    ("cheats: a late gradient of another step", CHEATS + "delayed.cpp", "if (then.step != now.step - delay_) return;", "", "unit:[cheats]"),
    ("cheats: unknown labels are flipped", CHEATS + "label_flip.cpp", "if (label >= 0) label", "label", "unit:[cheats]"),
    ("cheats: a simulation's time is the run's", TIMER, "      left_out_ += lap;", "      left_out_ += 0;", "unit:[phases]"),
    ("message: a false rank's numbers count", MESSAGE, "      counted_.push_back(rank);\n", "      counted_.push_back(rank);\n    else\n      counted_.push_back(rank);\n", "mpi:3"),
    ("message: more than f say nothing, and it counts", MESSAGE, "asked - static_cast<int>(n) <= tolerance_->faults", "true", "mpi:3"),
    ("message: any rank's wish ends the run", MESSAGE, "wishes > said.faults", "wishes > 0", "unit:[message]"),
    ("message: any rank's bad number skips the step", MESSAGE, "bad_ones > said.faults", "bad_ones > 0", "unit:[message]"),
    # Ranks that leave.
    ("the batch shrinks with the ranks", MEMBERS, "options.total_batch = plan.total_batch;",
     "options.total_batch = plan.total_batch / ranks * (ranks - gone);", "unit:[membership]"),
    ("a checkpoint does not say who has left", RUN, "  members_.save(state);\n", "", "e2e:leaving"),
    ("whoever has left is back behind a rollback", REPORT, 'if (kind == "left" || ', "if (", "e2e:leaving"),
    ("bans are forgotten behind a rollback", REPORT, ' || kind == "ban"', "", "unit:[report]"),
    ("spans of two clocks in one picture", REPORT, "  attacks_told_ = false;\n", "", "unit:[report]"),
    ("steps that are counted anew find files of another count", RUN, "if (beginning_.counted_anew || (", "if ((", "e2e:restart"),
    ("a number of steps of other epochs", "src/run/beginning.cpp", "if (steps == steps_then || now.max_steps", "if (true || now.max_steps", "e2e:restart"),
    ("an evaluation that the record has is written again", RUN, "if (std::exchange(recorded_, done) != done && ranks_->root())", "if (ranks_->root())", "e2e:average"),
    ("behind a rollback figures of what was lost", RUN, "  evaluated_.clear();\n", "", "e2e:average"),
    ("back to a checkpoint by its number of another count", RUN_CHECKPOINTS, "while (state && place(*state) > last_good)", "while (false)", "e2e:restart"),
    ("a check of another run is gone on with", "src/train/trainer.cpp", "if (other_options) part->forget_step_under_way();", "", "e2e:byzantine"),
    ("a check of fewer ranks is gone on with", "src/train/protocol/guard.cpp", "  if (state.pending.ranks < ranks_.size()) state.pending.checks.clear();\n", "", "e2e:byzantine"),
    ("a begun attack on labels that are right", "src/train/examples/local_examples.cpp", "if (Cheat* cheat = cheating_.at(step)) falsify_labels", "if (Cheat* cheat = nullptr) falsify_labels", "e2e:cheating"),
    ("a lost best network counts toward the end", "src/run/best.cpp", "if (accuracy() < 0 || !folder", "if (accuracy() >= 0 && !folder", "e2e:files"),
    ("an alarm before its evaluation", RUN, "    record_evaluation();\n    if (overfits()) overfitting();\n  }", "    if (overfits()) overfitting();\n    record_evaluation();\n  }", "e2e:setbacks"),
    ("an early end without its alarm", RUN, "    if (!told && overfits()) overfitting();\n", "", "e2e:setbacks"),
    ("a best network that is not there is compared with", RUN, "  checkpoints_.settle(*ranks_);  // whether the best", "  // whether the best", "e2e:files"),
    ("a signal to a generator is lost", "src/train/generators/generator.cpp", "  tell_stop();\n", "", "e2e:generators"),
    ("a calibration's passes are believed", "src/run/split.cpp", "calibration.backward *= 1.0 * passes / calibration.backward_passes", "calibration.backward *= 1.0", "e2e:generators"),
    ("an evaluation begun anew has the images of another", "src/assess/sequence_run.cpp", '"adversarial.h5", "adversarial.part", ', "", "e2e:autoattack"),
    ("whoever has left may be any", MEMBERS, "2 * (faults * each + std::min(faults, one_more))", "2 * (faults * each + 0 * one_more)", "unit:[membership]"),
    ("those who sleep end as if all were well", RUN, "  members_.wake(code);", "  members_.wake(ExitCode::done);", "e2e:leaving"),
    ("back to a checkpoint that is no good", RUN, "to_go_back_to(first_bad - 1,", "to_go_back_to(first_bad,", "e2e:setbacks"),
    ("the rate's factor is forgotten by checkpoints", NUMBERS, "  lr_factor = values[2];\n}\n\nvoid Setbacks::share",
     "}\n\nvoid Setbacks::share", "unit:[numbers]"),
    # Ranks that only attack.
    ("generators: the version of the iteration before", GENERATORS + "generator.cpp", "version = version_of(task, task.done)",
     "version = version_of(task, std::max(task.done - 1, 0))", "mpi:2"),
    ("generators: an attack goes on from a random start", GENERATORS + "generator.cpp", "  if (task.done > 0) objective.start = task.eta;\n", "",
     "e2e:generators"),
    ("generators: another task's perturbation", GENERATORS + "generator.cpp", "if (loaded_ != &task) {", "if (loaded_ == nullptr) {", "e2e:generators"),
    ("generators: clean images as newer weights see them", GENERATORS + "generator.cpp", "  if (attack_of(task).goal.reference && rule_) versions_.use(version_of(task, 0));\n",
     "", "e2e:generators"),
    ("generators: the batch of a step before", GENERATORS + "generator.cpp", "  if (batch_steps_[at] != task.step) reader_", "  if (batch_steps_[at] < 0) reader_", "mpi:2"),
    ("generators: a version's hash counts for nothing", GENERATORS + "received_versions.cpp", "  require_sound(packet.whole(VersionPacket::bytes(numbers_.bytes())), from_, \"its hash\");\n", "", "mpi:2"),
    ("generators: any version will do", GENERATORS + "received_versions.cpp", "version == newest_ + 1, from_", "version >= 0, from_", "mpi:2"),
    ("attacks that never come are not named", "src/run/advice.cpp", "options.epochs_of_change().back();", "0 * options.epochs_of_change().back();",
     "unit:[advice]"),
    ("generators: an answer's hash counts for nothing", GENERATORS + "orders.cpp", "  require_sound(packet.whole(arrival.bytes), arrival.from, \"its hash\");\n", "", "mpi:2"),
    ("generators: ages are not looked at", GENERATORS + "orders.cpp", "by_rule_ ? age == ", "by_rule_ ? true || age == ", "mpi:2"),
    ("generators: versions are forgotten behind a restart", GENERATORS + "remote_examples.cpp", "if (kept_) kept_->restore(checkpoint);", "if (kept_) static_cast<void>(checkpoint);", "e2e:generators"),
    ("generators: versions from before are not sent", GENERATORS + "remote_examples.cpp", "  for (int age = there; age > 0; --age) versions_.send(step - age, &kept_->before(step, age));\n", "", "e2e:generators"),
    ("generators: one step fewer is under way", GENERATORS + "remote_examples.cpp", "std::min(step + staleness_.versions, plan_.steps - 1)", "std::min(step + std::max(staleness_.versions - 1, 0), plan_.steps - 1)", "mpi:2"),
    ("generators: the slow have as much as the fast", GENERATORS + "dealing.cpp", "one.free_at) + seconds(one);", "one.free_at) + 1;", "unit:[generators]"),
    ("generators: a micro-batch under way counts as a whole one", GENERATORS + "dealing.cpp",
     "std::max(now, one.free_at) + seconds(one);", "0 * now + (one.outstanding + 1) * seconds(one);", "unit:[generators]"),
    ("generators: late at once", GENERATORS + "dealing.hpp", "kLate = 4", "kLate = 0", "unit:[generators]"),
    ("generators: whoever is busy gets what is late", GENERATORS + "dealing.cpp", "if (other == generator || of(other).outstanding > 0) continue;", "if (other == generator) continue;", "unit:[generators]"),
    ("generators: what is late is not dealt again", GENERATORS + "orders.cpp", "      deal_again(dealt, seconds_now() - since);\n", "", "e2e:generators"),
    ("generators: what is not attacked on the newest weights", GENERATORS + "generator.cpp", ": versions_.newest();", ": versions_.first();", "e2e:generators"),
    ("generators: a rank that waits for work is of another mind", HANG, "member && !idle ?", "member || (idle && member) ?", "unit:[hang]"),
    ("a wait inside another one ends it", RECORDER, "waiting_.store(around_,", "waiting_.store(0,", "unit:[hang]"),
    # The hang watch.
    ("a silent rank has twice the time", HANG, "ranks[k].silent > timeout_seconds", "ranks[k].silent > 2 * timeout_seconds",
     "unit:[hang]"),
    ("a slow rank is a hang", HANG, "if (!hangs || !all) return {};", "if (!hangs) return {};", "unit:[hang]"),
    ("the most are guilty", HANG, "sizes[classes[rank]] < most)", "sizes[classes[rank]] == most)", "unit:[hang]"),
    ("the last collective is in question", HANG, "at.number >= verdict.number)", "at.number <= verdict.number)", "unit:[hang]"),
    ("half of a record", RECORDER, "    if (slot.version.load(std::memory_order_relaxed) != version) continue;\n", "", "unit:[hang]"),
    ("the purpose of the call before", RECORDER, "for (const char* part : CallLabel::current_)",
     "for (const char* part : {CallLabel::current_[0]})", "unit:[hang]"),
    ("any thread ticks", "include/dat/tick.hpp", "if (ticking) ticks", "ticks", "unit:[hang]"),
    ("slow in one window", STRAGGLERS, "kWindows = 3", "kWindows = 1", "unit:[hang]"),
    ("a rank that has left gets on", HANG, "ended(k) || left(k) || stands(k)", "ended(k) || stands(k)", "unit:[hang]"),
    ("a rank that has left stands still", HANG, "return !waits(k) && !left(k); })", "return !waits(k); })", "unit:[hang]"),
    ("a rank that has left is as silent as a dead one", HANG, "ranks[k].main != Main::ended && !left(k) && unheard(k)",
     "ranks[k].main != Main::ended && unheard(k)", "unit:[hang]"),
    ("whoever has left is believed to get on", HANG, "return excused && said != Main::ended", "return excused && said == Main::waiting", "unit:[hang]"),
    ("the first rank to end does not wait for the others' records", "src/communicate/watchdog.cpp",
     "if (all_have_written() ||", "if (true ||", "e2e:hang"),
    ("slow for ever", "src/train/watch/stragglers.cpp", "rank.slow ? *most >= kEach", "rank.slow ? *most >= 0", "unit:[hang]"),
    # Attack.
    ("pgd: no box clamp", PERTURB, "sign(dx), 0.0F, 1.0F);", "sign(dx), -1.0F, 2.0F);", "step:adversarial only"),
    ("pgd: no ball clamp", PERTURB, "u.eta[i] = clamp(z - u.x[i], -u.eps, u.eps);", "u.eta[i] = z - u.x[i];",
     "step:adversarial only"),
    ("pgd: sign(0) = -1", PERTURB, "static_cast<T>((x > T{0}) - (x < T{0}))",
     "static_cast<T>((x > T{0}) - (x <= T{0}))", "unit:[attack]"),
    ("pgd: descends", PERTURB, "u.x[i] + u.eta[i] + u.alpha * sign(dx)", "u.x[i] + u.eta[i] - u.alpha * sign(dx)",
     "step:defaults"),
    ("pgd: one step less", "src/attack/pgd.cpp", "for (int k = 0; k < steps; ++k) o.gradient_step",
     "for (int k = 1; k < steps; ++k) o.gradient_step", "step:defaults"),
    ("a begun attack makes all its steps again", BEGUN, "attack.gradient_evaluations() - iterations_);",
     "attack.gradient_evaluations());", "step:stale attack"),
    ("parts of an attack make one iteration more", "src/attack/pgd.cpp", "iterate(o, keeps ? count - 1 : count);", "iterate(o, keeps ? count - 1 : count + 1);",
     "unit:[attack]"),
    ("old weights: those of now throughout", OLD + "hpp", "step - versions + newer", "step + 0 * newer", "step:old weights"),
    ("old weights: the oldest throughout", OLD + "hpp", "refresh ? std::int64_t{iteration} * versions / iterations : 0",
     "std::int64_t{0} * iteration", "step:old weights"),
    ("old weights: an attack that cannot be parted is", OLD + "cpp", "if (!staleness_.refresh) {", "if (false) {",
     "step:old weights, fgsm"),
    ("old weights stay in the network", OLD + "cpp", "    done += count;\n  }\n  use(step_);", "    done += count;\n  }",
     "step:old weights"),
    ("old weights: clean images as the weights of now see them", LOCAL, "  if (old_weights_) old_weights_->take_up();\n", "",
     "step:old weights, trades"),
    ("old weights: an attack in parts begins anew", OLD + "cpp", "    if (done > 0) objective.start = objective.eta;\n", "",
     "step:old weights"),
    ("old weights are forgotten behind a restart", LOCAL, "  if (old_weights_) old_weights_->restore(checkpoint);\n", "",
     "e2e:ranks"),
    ("old weights stay on rank 0", LOCAL, "if (old_weights_) old_weights_->share(ranks);", "if (old_weights_) static_cast<void>(ranks);", "e2e:ranks"),
    ("old weights: statistics of now", "src/train/message/held_weights.hpp",
     "    act(model_.running_mean, mean_, statistics());\n", "", "step:old weights"),
    ("a begun attack begins anew", BEGUN, "  objective.start = perturbation_;\n", "", "step:stale attack"),
    ("a begun attack is not in the checkpoint", LOCAL, "  begun_.save(checkpoint);\n", "", "mpi:2"),
    ("a begun attack of rank 0 for all", BEGUN, "ranks_.send(restored_.data() + count * static_cast<std::size_t>(rank),",
     "ranks_.send(restored_.data() + 0 * count * static_cast<std::size_t>(rank),", "mpi:2"),
    ("begun in the images of evaluations", BEGUN, "kernels::Add<float>{objective.eta, nullptr, perturbation_, floats});\n",
     "kernels::Add<float>{objective.eta, nullptr, perturbation_, 0 * floats});\n", "step:stale attack"),
    ("begun passes count for the step before", LOCAL, "  passes_before_ += begun_.begin(", "  passes_before_ += 0 * begun_.begin(", "mpi:2"),
    ("the last step begins another one", TRAINER, "if (step_ + 1 < plan_.steps) examples_->", "examples_->", "mpi:2"),
    ("the next attack begins behind the update", TRAINER, "  if (step_ + 1 < plan_.steps) examples_->look_ahead(step_ + 1);\n  reducer_->finish();",
     "  reducer_->finish();\n  update_.apply(layers_->updated(), step_, 1);\n  if (step_ + 1 < plan_.steps) examples_->look_ahead(step_ + 1);",
     "step:stale attack"),
    ("another number of ranks takes a begun attack", BEGUN, "if (found->shape != shape || iterations != iterations_ ||",
     "if (found->shape.size() != shape.size() || iterations != iterations_ ||", "mpi:2"),
    ("random start with time 0", PERTURB, "random_words(seed, purpose, time, static_cast",
     "random_words(seed, purpose, 0, static_cast", "step:defaults"),
    ("random start in half the ball", PERTURB, "(2.0F * uniform(words.v[j]) - 1.0F) * eps;",
     "(1.0F * uniform(words.v[j]) - 0.5F) * eps;", "step:defaults"),
    ("pgi: half the slope", "kernels/consistency.hpp", "static_cast<float>(2 * part * apart)", "static_cast<float>(part * apart)", "unit:[loss]"),
    ("pgi: the sum over the classes", "kernels/consistency.hpp", "const double part = 1.0 / classes;", "const double part = 1.0;", "unit:[loss]"),
    ("pgi: detached from nothing", "src/loss/pgi.cpp", "detached_ ? attacked.reference : logits.front().values", "attacked.values", "unit:[loss]"),
    ("pgi: the attack keeps clean images", "src/attack/attacks.cpp", "kernels::Add<float>{o.x_adv, nullptr, o.first_images, n}",
     "kernels::Add<float>{o.clean, nullptr, o.first_images, n}", "unit:[attack]"),
    ("pgi: logits behind the step", "src/attack/pgd.cpp", "      keep_first_logits(o);\n      iteration(o);\n",
     "      iteration(o);\n      o.gradient();\n      keep_first_logits(o);\n", "unit:[attack]"),
    ("pgi: where the attack began enters twice", METHOD, "if (attack_passes == 0 ||", "if (attack_passes >= 0 ||", "unit:[#test_trainer]"),
    ("gat: the softmax is not differentiated", "kernels/consistency.hpp", "(q.of(k) - p.of(k) - mean)", "(q.of(k) - p.of(k))", "unit:[loss]"),
    ("gat: clean images have cross-entropy alone", "src/loss/agreement.hpp", "if (!detached_) add_gradient_of_clean", "if (false) add_gradient_of_clean", "unit:[loss]"),
    ("gat: a constant is differentiated", "src/loss/agreement.hpp", "if (!detached_) add_gradient_of_clean", "add_gradient_of_clean", "unit:[loss]"),
    ("gat: the clean images enter once", "src/loss/agreement.hpp", "return {1, 0, 1};", "return {1, 0};", "step:gat"),
    ("nuat: the Frobenius norm", "kernels/consistency.hpp", "vectors[j * n + k] / std::sqrt(square);", "vectors[j * n + k] / std::sqrt(trace);", "unit:[loss]"),
    ("nuat: small singular values count", "kernels/consistency.hpp", "if (square > kTiny * kTiny * largest)", "if (square >= -1)", "unit:[loss]"),
    ("detach-reference: does not reach the loss", METHOD, ".detach = options.detach_reference})", ".detach = false})", "step:pgi, detached"),
    ("n-fgsm: a ball cuts the step", "src/attack/attacks.cpp", "options.project ? static_cast<float>", "true ? static_cast<float>",
     "unit:[attack]"),
    ("n-fgsm: the start of the ball", "src/attack/fgsm.cpp", "start_radius_(options.start_radius * options.eps)", "start_radius_(options.eps)", "unit:[attack]"),
    ("n-fgsm: the start is not cut", "src/attack/fgsm.cpp", "start(o, norm_, start_radius_, start_in_box_);", "start(o, norm_, start_radius_);", "unit:[attack]"),
    ("a start cut to the ball of eps", PERTURB, "if (in_box) eta[at] = clamp(x[at] + eta[at], 0.0F, 1.0F) - x[at];",
     "if (in_box) eta[at] = clamp(eta[at], -eps / 2, eps / 2);", "unit:[attack]"),
    ("a bucket is written down that --byzantine refuses", "src/options/train/reduction.cpp",
     "all of a gradient leaves at once; leave one of them off\")\n      .falls_back();", "all of a gradient leaves at once; leave one of them off\");",
     "e2e:byzantine"),
    ("statistics of all ranks where these may be false", "src/options/train/optimizer.cpp", ' || ranks_may_be_false(o) ? "raw"', ' ? "raw"', "unit:[#test_config]"),
    ("pgi: attacked by as many generators as a forecast says", "src/options/train/attack.cpp", "std::pair(o.generators != 0,",
     "std::pair(o.generators > 0,", "unit:[#test_config]"),
    ("start-box auto: never", "src/options/train/attack.cpp", 'o.start_box = published && o.attack_start == "uniform" ? "on" : "off";',
     'o.start_box = published && o.attack_start == "gaussian" ? "on" : "off";', "unit:[#test_config]"),
    ("project off: does not reach the attack", METHOD, '.project = options.project == "on",', '.project = true,', "step:n-fgsm"),
    ("start-radius: does not reach the attack", METHOD, ".start_radius = options.start_radius,", ".start_radius = 1,", "step:n-fgsm"),
    ("fgsm: step 1 eps", "src/attack/fgsm.cpp", ": 1.25 * options.eps)", ": 1.0 * options.eps)", "step:fgsm"),
    ("fgsm on the frozen network", "src/attack/fgsm.cpp", "prefers_batch_statistics() const override { return true; }",
     "prefers_batch_statistics() const override { return false; }", "step:fgsm"),
    ("fgsm: gradient through the clamp", PERTURB, "inside < 0.0F || inside > 1.0F ? 0.0F : dx[i];", "dx[i];",
     "step:fgsm*"),
    ("early stop: one more step", "src/replica/attack_stop.cpp", "std::fill_n(host_steps_left_, n, tau);",
     "std::fill_n(host_steps_left_, n, tau + 1);", "step:early stop"),
    ("early stop: leaves after the step", PERTURB, "to >= 0 && steps_left[to / slots.elements] >= 0)",
     "to >= 0 && steps_left[to / slots.elements] >= -1)", "step:early stop"),
    ("apgd: the best start loss is forgotten", "kernels/apgd.hpp", "state.best_loss[n] = state.checked_loss[n] = losses[n];",
     "state.best_loss[n] = state.checked_loss[n] = -1000;", "unit:[attack]"),
    ("apgd: no wrap-around", "kernels/apgd.hpp", "state.last_loss[n] = state.rises[n] = state.reset[n] = 0;",
     "state.rises[n] = state.reset[n] = 0, state.last_loss[n] = losses[n];", "unit:[attack]"),
    ("apgd: halves only where the loss falls", "kernels/apgd.hpp", "(state.halved[n] == 0 && state.checked_loss[n] >= state.best_loss[n])",
     "false", "unit:[attack]"),
    ("apgd: the step before is reset, too", "kernels/apgd.hpp", "const T low = x[e] - eps, high = x[e] + eps, here = from[e], moved = here - previous[e];",
     "const T low = x[e] - eps, high = x[e] + eps, here = from[e], moved = origin.state.reset[strip.image] != 0 ? T{0} : here - previous[e];", "unit:[attack]"),
    ("apgd: the old gradient after a reset", "kernels/apgd.hpp", "state.reset[n] != 0 ? best_gradient : dx;", "dx;", "unit:[attack]"),
    ("apgd: the last misclassified image", "kernels/apgd.hpp", "correct[n] == 0 && done[n] == 0 ? T{1}", "correct[n] == 0 ? T{1}", "unit:[attack]"),
    ("apgd: inertia from the first step", "src/attack/apgd_loop.hpp", "static_cast<T>(k == 0 ? 1 : 0.75)", "static_cast<T>(0.75)", "unit:[attack]"),
    ("apgd: all runs are one", "src/attack/attacks.hpp", "static_cast<std::uint32_t>(o.run));", "0);", "unit:[attack]"),
    ("targeted dlr: third logit only", "src/attack/attacks.cpp", ": kernels::Divisor::third_and_fourth);", ": kernels::Divisor::third);", "unit:[attack]"),
    ("dlr: no gradient through the divisor", "kernels/margin.hpp", "of_divisor = -slope * ratio;", "of_divisor = 0 * slope * ratio;", "unit:[attack]"),
    ("fab: no faces", "kernels/fab.hpp", "return w * side < 0 ? 1 - q : q;", "return 0 * w * side < 0 ? 1 - q : 1 + q;", "unit:[attack]"),
    ("fab: one pass", "src/attack/fab_loop.hpp", "kFabPasses = 24;", "kFabPasses = 1;", "unit:[attack]"),
    ("fab: x is not projected", "kernels/fab.hpp", "static_cast<T>(state.df[n] + offset)", "state.df[n]", "unit:[attack]"),
    ("fab: no way back", "kernels/fab.hpp", "state.back[n] = correct[n] == 0 ? T{1} : T{0};", "state.back[n] = 0;", "unit:[attack]"),
    ("fab: outside of the ball, too", "kernels/fab.hpp", "if (distance <= eps) done[n] = 1;", "done[n] = 1;", "unit:[attack]"),
    ("fab: the first class", "kernels/fab.hpp", "first || far < state.nearest[n]", "first", "unit:[attack]"),
    ("square: windows to the edge", "kernels/square.hpp", "below(words.v[0], layout.h - side)", "below(words.v[0], layout.h - side + 1)", "unit:[attack]"),
    ("square: one sign for all channels", "kernels/square.hpp", "(signs >> (channel % 32) & 1U) != 0 ? 1 : -1", "(signs & 1U) != 0 ? 1 : -1", "unit:[attack]"),
    ("square: accepts what is no better", "kernels/square.hpp", "(proposed < margin[n] || proposed <= 0)", "(proposed <= margin[n] + 0.01 || proposed <= 0)", "unit:[attack]"),
    ("square: the schedule of the class", "src/attack/square_loop.hpp", "if (iteration > behind) share /= 2;", "if (2 * iteration > behind) share /= 2;", "unit:[attack]"),
    ("l2: norms are not joined", "kernels/norms.hpp", "k < strips.per_image(); ++k) sum.add(partial[n", "k < 1; ++k) sum.add(partial[n", "unit:[attack]"),
    ("l2: no step back into the ball", "kernels/norms.hpp", "return (norm < eps ? norm : eps) / (norm + T(1e-12));", "return norm / (norm + T(1e-12));", "unit:[attack]"),
    ("l2: on the sphere always", "kernels/norms.hpp", "return (norm < eps ? norm : eps) / (norm + T(1e-12));", "return eps / (norm + T(1e-12));", "unit:[attack]"),
    ("l2: no box", "kernels/norms.hpp", "move[e] = clamp(x[e] + move[e] * factor, T{0}, T{1}) - x[e];", "move[e] = move[e] * factor;", "unit:[attack]"),
    ("l2: the plain gradient", "kernels/norms.hpp", "alpha * (dx[e] / length)", "alpha * (dx[e] / (length - length + 1))", "unit:[attack]"),
    ("l2: 1e-12 of the scaled gradient", "src/attack/l2.hpp", "static_cast<T>(1e-12) * o.scale});", "static_cast<T>(1e-12)});", "unit:[attack]"),
    ("l2: a uniform start", "kernels/apgd.hpp", "norm == BallNorm::l2 ? normal_number<T>(words, j) : 2", "norm == BallNorm::l2 ? 2 * T{uniform(words.v[j])} - 1 : 2", "unit:[attack]"),
    ("l2: apgd mixes before the projection", "kernels/apgd.hpp", "const T s = clamp(x[e] + move[e] * factor, T{0}, T{1});", "const T s = clamp(x[e] + move[e] + 0 * factor, T{0}, T{1});", "unit:[attack]"),
    ("l2: apgd with the old gradient's norm", "kernels/apgd.hpp", "const T* gradient = origin.gradient(strip.image);", "const T* gradient = origin.dx;", "unit:[attack]"),
    ("l2: fab moves all pixels alike", "kernels/fab.hpp", "return size < T(1e-8) ? T{0} : size;", "return size < T(1e-8) ? T{0} : T{1};", "unit:[attack]"),
    ("l2: fab weighs by the largest move", "src/attack/fab_loop.hpp", "if (state.norm == BallNorm::linf) return state.radius;", "if (state.norm != BallNorm::linf || partial != nullptr) return state.radius;", "unit:[attack]"),
    ("l2: fab takes the dual norm of linf", "kernels/norms.hpp", "total += norm == BallNorm::l2 ? value * value : value < 0 ? -value : value;", "total += value < 0 ? -value : value;", "unit:[attack]"),
    ("l2: square leaves the second window", "kernels/square.hpp", ": proposal.in_second(pair, row, column) ? T{0}", ": proposal.in_second(pair, row, column) && eps < 0 ? T{0}", "unit:[attack]"),
    ("l2: square asks for no more than it has", "kernels/square.hpp", "std::sqrt((left > 0 ? left : 0) / layout.c + windows * windows)", "std::sqrt(0 * left + windows * windows)", "unit:[attack]"),
    ("l2: square never turns its pattern", "kernels/square.hpp", "(first.v[3] & 1U) != 0};", "(first.v[3] & 0U) != 0};", "unit:[attack]"),
    ("l2: square's even sides", "src/attack/square_loop.hpp", "square_side(iteration, height, width), 3) | 1, std::min", "square_side(iteration, height, width), 3), std::min", "unit:[attack]"),
    ("l2: the largest pixel is the distance", SEQUENCE, "norm == BallNorm::l2 ? std::sqrt(squares) : largest;", "largest;", "unit:[sequence]"),
    ("l2: evaluations in the training's norm", METHOD, 'options.eval_norm == "auto" ? options.norm : options.eval_norm', "options.norm", "step:l2, fgsm"),
    ("l2: trained in linf", METHOD, "({.norm = norm_from(options.norm),", "({.norm = BallNorm::linf,", "step:l2"),
    ("images that an attack has left out keep their logits", SEQUENCE,
     "  objective_.prepare(0, Purpose::evaluation_start, 0);  // the attack may have left images out\n", "", "mpi:1"),
    ("gradients of packed images stay in their slots", "src/replica/frozen_objective.cpp", "each(device, size * pixels, kernels::Scatter{images, packed_.dx, images_.dx});", "", "unit:[attack]"),
    ("packed images keep the labels before", "src/replica/frozen_objective.cpp", "each(device, size, kernels::Gather<std::int32_t>{single, labels, packed_.labels});", "", "unit:[attack]"),
    ("one run of many", EVALUATION, "run < attack.runs(); ++run", "run < 1; ++run", "unit:[attack]"),
    ("reuse: one step too many", METHOD, "options.attack_steps - (options.attack_reuse ? 1 : 0)",
     "options.attack_steps", "step:reuse"),
    ("warm start: no box", AUGMENT, "eta[at] = clamp(from_byte(from[c], eps), -x[at], 1.0F - x[at]);",
     "eta[at] = from_byte(from[c], eps);", "unit:[kernels]"),
    ("warm start: forgets a step late", "src/train/examples/warm_start.cpp", "step % options_.reset_steps == 0)",
     "step % options_.reset_steps == 1)", "step:warm start"),
    ("warm start: keeps the mirrored place", AUGMENT, "std::uint8_t* to = kept + p.from(places[p.n], layout.c);",
     "std::uint8_t* to = kept + ((places[p.n] * layout.h + p.from_y) * layout.w + layout.w - 1 - p.from_x) * layout.c;",
     "step:warm start"),
    # Losses.
    ("KL the other way round", LOSS, "sum += p.of(k) * (q.minus_log_of(k) - p.minus_log_of(k));",
     "sum += q.of(k) * (p.minus_log_of(k) - q.minus_log_of(k));", "unit:[loss]"),
    ("KL: gradient of the attacked alone", "src/loss/trades.cpp", "  add_kl_of_clean(clean, attacked, static_cast<float>(beta_) * share, Samples::all);\n", "",
     "unit:[loss]"),
    ("KL: p's gradient without its mean", LOSS, "(q.minus_log_of(k) - p.minus_log_of(k)) - mean));",
     "(q.minus_log_of(k) - p.minus_log_of(k))));", "unit:[loss]"),
    ("divergences in f32", LOSS, "DAT_HD inline double logarithm_of_one_and(double x) { return log1p(x); }",
     "DAT_HD inline double logarithm_of_one_and(double x) { return log1pf(static_cast<float>(x)); }", "unit:[loss]"),
    ("the label's probability minus 1", LOSS, "return k == best ? rest / total : 1 - of(k);", "return 1 - of(k);", "unit:[kernels]"),
    ("a loss of nothing where the label has nearly all", LOSS, "return log1pf(x);", "return logf(1 + x);", "unit:[kernels]"),
    ("TRADES without beta", "src/loss/trades.cpp", "static_cast<float>(beta_) * share, Samples::all);\n    smoothed",
     "share, Samples::all);\n    smoothed", "unit:[loss]"),
    ("TRADES: statistics enter as in DAT", "src/loss/trades.cpp", "return {1, 0, 1};", "return {0, 1};", "step:trades*"),
    ("MART: the likeliest class, right or wrong", LOSS, "if (k != y && q.z[k] > q.z[wrong]) wrong = k;",
     "if (q.z[k] > q.z[wrong]) wrong = k;", "unit:[loss]"),
    ("MART: the weight is no variable", LOSS, " -\n                                                 divergence * m.p.of(label) * ((k == label ? 1.0 : 0.0) - p));", ");",
     "unit:[loss]"),
    ("MART: weighs the adversarial pass twice", LOSS, "weight = beta * m.p_others;", "weight = 2 * beta * m.p_others;", "unit:[loss]"),
    ("smoothing takes from the label alone", LOSS, "q.of(k)) - of_each);", "q.of(k)));", "unit:[loss]"),
    ("smoothed labels in the attack", "src/loss/cross_entropy.cpp", "smoothed_cross_entropy(logits, scale, 0.0F); }",
     "smoothed_cross_entropy(logits, scale, 0.2F); }", "step:smoothed labels"),
    ("unlabelled images have the label 0", LOSS, "    if (label < 0) {", "    if (label < -1) {", "unit:[loss]"),
    ("labelled images have the divergence as well", "src/loss/cross_entropy.cpp", "kl_of_attacked(logits[0], logits[1], share, Samples::unlabelled);",
     "kl_of_attacked(logits[0], logits[1], share, Samples::all);", "unit:[loss]"),
    ("accuracy over images without labels", LEARNER, "unlabelled_ ? from[2 * passes] : images;", "images;", "step:no labels*"),
    ("the attack climbs cross-entropy whatever the loss", "src/train/plan/goal.cpp", "  AttackGoal goal = loss.goal();",
     "  AttackGoal goal = loss.goal();\n  goal.loss = cross_entropy;",
     "step:trades*"),
    ("the attack's reference is the attacked image", "src/replica/frozen_objective.cpp", "show(clean + first * layout.elements(), first);\n    copy",
     "show(x_adv + first * layout.elements(), first);\n    copy", "step:trades*"),
    ("a pass leaves out a sample too many", "src/network/frozen_program.cpp", "step.operation->want(wanted);", "step.operation->want(wanted > 1 ? wanted - 1 : 1);",
     "unit:[network]"),
    ("what is wanted is told once", "src/network/frozen_program.cpp", "  if (wanted != wanted_)\n", "  if (wanted < wanted_)\n", "unit:[network]"),
    ("a norm on the way: bits of the first row of a tile are left out", "src/backend/cpu/winograd_simd.hpp", "k >= -Scheme::kInFirst &&", "k > -Scheme::kInFirst &&",
     "unit:[backend]"),
    ("a norm on the way: no shift", "src/backend/cpu/winograd_simd.hpp", " * scale + shift;", " * scale;", "unit:[backend]"),
    ("a norm on the way: others read it, too", "src/network/frozen_lowering.cpp", "readers(value) != std::vector{next} || ", "", "unit:[network]"),
    ("a norm on the way: another operation is the next", "src/network/frozen_lowering.cpp", "const int next = first_not_taken();", "const int next = value + 1;",
     "unit:[network]"),
    ("a norm on the way: its input is overwritten", "src/network/nodes/convolution.cpp", "lowering.read_later(residual_) || residual == x_)",
     "lowering.read_later(residual_) || residual_ == input())", "unit:[network]"),
    ("no room for the attack's last pass", "src/replica/replica.cpp", "images_(*backend_, options.images, room_for_passes(options),",
     "images_(*backend_, options.images, options.micro_batch,", "unit:[trainer]"),
    ("an average begins with what was in it", OPTIMIZER, "keep > 0 ? keep * double(average[i]) : 0;", "keep * double(average[i]);", "unit:[optimizer]"),
    ("figures of another attack choose the best checkpoint", "src/run/beginning.cpp", "Restart::evaluation && held_out)",
     "Restart::evaluation && held_out && false)", "e2e:starts"),
    ("frozen weights are not transformed", "src/backend/cpu/winograd_simd.hpp", "    if (!transformed()) return;\n", "    return;\n", "unit:[backend]"),
    ("convolutions leave out one tile too many", "src/backend/cpu/winograd_simd.hpp", "const int tiles = x.samples * tiles_high_ * tiles_wide_;",
     "const int tiles = x.samples * tiles_high_ * tiles_wide_ - 1;", "unit:[network]"),
    # Those of AMX are seen on a CPU that has it.
    ("amx: the lower part of x is left out", "src/backend/cpu/amx_tiles.hpp", "      left(a + a_low, a_next);\n      multiply();\n",
     "      left(a + a_low, a_next);\n", "unit:[backend]"),
    ("amx: the input gradient of stride 2 has other taps", "src/backend/cpu/amx_convolution.cpp", "ky % 2 != row && kx % 2 != column",
     "ky % 2 != column && kx % 2 != row", "unit:[backend]"),
    ("amx: a pair has the next entry but fourteen", "src/backend/cpu/amx_convolution.cpp", "- 16 * kVector, kSeconds", "- 15 * kVector, kSeconds",
     "unit:[backend]"),
    ("amx: samples that are not there take part", "src/backend/cpu/amx_convolution.cpp", "n >= samples || column >= s.w_out", "column >= s.w_out",
     "unit:[backend]"),
    ("amx: a mask is not looked at", "src/backend/cpu/amx_convolution.cpp", "x.open == nullptr ? value : _mm512_maskz_mov_ps(x.open[place], value)",
     "value", "unit:[backend]"),
    ("AutoAttack in bf16", "src/assess/attack_sequence.cpp", ': !math.starts_with("bf16")', ": true", "unit:[sequence]"),
    ("the goal of the training is that of evaluations", "src/replica/frozen_objective.cpp", "  objective.spread = goal.spread;", "  objective.spread = objective.spread > 0 ? objective.spread : goal.spread;",
     "unit:[trainer]"),
    ("beside the image: ten times as far", "include/dat/loss.hpp", "kNearStart = 0.001F", "kNearStart = 0.01F", "step:trades, beside the image"),
    ("beside the image: sine first", "kernels/normal.hpp", "j % 2 == 0 ? std::cos(angle)", "j % 2 == 1 ? std::cos(angle)",
     "step:trades, beside the image"),
    ("AWP along the other direction", MOVE, "theta[i] += factor[segment] * gradient[i];", "theta[i] -= factor[segment] * gradient[i];",
     "step:perturbed weights*"),
    ("AWP moves batch norm", "src/train/learner/weight_perturbation.cpp", "segment.shape.size() > 1 ? 1 : 0", "1", "step:perturbed weights*"),
    ("AWP: absolute steps", MOVE, "gamma * theta / g", "gamma / g", "step:perturbed weights*"),
    ("AWP stays where it went", "src/train/learner/weight_perturbation.cpp", "  move_to(weights_);\n  return nullptr;", "  return nullptr;",
     "unit:[trainer]"),
    ("AWP: weight decay of the weights before", "src/train/learner/weight_perturbation.cpp", "  if (at_perturbed()) move_to(gradients_);", "",
     "step:perturbed weights*"),
    ("AWP from the beginning", "src/train/learner/weight_perturbation.cpp", "plan_.epoch_of(step) >= from_;", "plan_.epoch_of(step) >= 0;",
     "step:perturbed weights*"),
    ("AWP: each rank its own", TRAINER, "options_.awp == \"global\" ? make_reducer", "options_.awp == \"none\" ? make_reducer",
     "step:perturbed weights*"),
    # Trainer.
    ("lambda on the adversarial pass", CROSS_ENTROPY, "(k == 0 ? 1.0F : lambda_) /", "lambda_ /",
     "step:half a clean loss"),
    ("lambda always 1", CROSS_ENTROPY, "(k == 0 ? 1.0F : lambda_) /", "1.0F /", "step:half a clean loss"),
    ("clean pass before the adversarial one", LEARNER, "first_pass_ + static_cast<int>(k),",
     "first_pass_ + static_cast<int>(passes_.size() - 1 - k),", "step:defaults"),
    ("loss gradient times two", CROSS_ENTROPY, "(k == 0 ? 1.0F : lambda_) /", "2 * (k == 0 ? 1.0F : lambda_) /", "step:defaults"),
    ("loss gradient of the micro-batch", LEARNER, "loss_.differentiate(k, logits_, examples.averaged() * copies_);",
     "loss_.differentiate(k, logits_, examples.count * copies_);", "step:micro-batches"),
    ("batch-norm momentum 0.01", "include/dat/network.hpp", "kMomentum = 0.1F", "kMomentum = 0.01F", "step:defaults"),
    ("biased variance", "src/network/training_program.cpp", "Multiply{variance_, factors_, unbiased_variance_}",
     "Scale{variance_, unbiased_variance_, 1.0F, false}", "step:defaults"),
    ("statistics of the last micro-batch", STATISTICS, "place.share, !place.first}", "1.0F, false}", "step:micro-batches"),
    ("statistics summed over ranks", STATISTICS, "static_cast<float>(from[i] / means_);",
     "static_cast<float>(from[i]);", "step:two ranks"),
    ("attack's statistics do not count", "src/train/examples/batch_objective.cpp", "statistics_.add(program, pass_++, place_);",
     "statistics_.add(program, pass_++, {place_.unit, place_.first, 0});", "step:fgsm"),
    ("bandit fed squared norms", LAYERS, "for (double& norm : norms_) norm = std::sqrt(norm);", "",
     "step:defaults"),
    ("norms before the reduction", TRAINER, "  reducer_->finish();\n  timer_.end_sum(reducer_->seconds_under_way());\n  if (guard_ && !guard_->passed()) {\n    leave_out();\n"
     "    return record_;\n  }\n  watch_.look_at_sum(layers_->summed());\n",
     "  watch_.look_at_sum(layers_->summed());\n  reducer_->finish();\n", "step:two ranks"),
    ("hidden is what was under way", TIMER, "next->under_way - (exposed_ - exposed_before_)", "next->under_way", "unit:[phases]"),
    ("what a step before has exposed is not hidden", TIMER, "    if (next->phase == Phase::other) exposed_before_ = exposed_;\n", "",
     "unit:[phases]"),
    ("evaluations are no phase", TRAINER, "  timer_.lap(Phase::evaluate);\n", "", "mpi:2"),
    ("the clock of the phases begins with the first step", TIMER, "  last_ = backend_.stamp();\n", "", "unit:[phases]"),
    ("draws are not counted", TRAINER, "examples_->bytes_sent() + drawn_bytes +", "examples_->bytes_sent() +", "mpi:2"),
    ("bandit learns a step early", LAYERS, "return draw_due(step_ + 1) &&", "return draw_due(step_) &&",
     "step:a draw an epoch"),
    ("bandit learns in the warm-up", LAYERS, "draw_due(step_ + 1) && step_ >= warmup_steps_;",
     "draw_due(step_ + 1);", "step:defaults"),
    ("micro-batches overwrite each other", LEARNER, ".accumulate = !(examples.begins_unit() && k == 0),",
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
     "if (lowering.read_later(residual_) || residual == x_)", "if (residual == x_)", "unit:[network]"),
    ("affine: the other gradient is overwritten", "src/network/nodes/batch_norm.cpp",
     "at<std::uint16_t>(bits_),\n                                          at<T>(dx_), layout_, count, accumulates_});",
     "at<std::uint16_t>(bits_),\n                                          at<T>(dx_), layout_, count, false});",
     "unit:[network]"),
    ("SiLU: the other gradient is overwritten", "src/network/nodes/batch_norm.cpp",
     "at<T>(slope_),\n                                                   at<T>(dx_), layout_, count, accumulates_});",
     "at<T>(slope_),\n                                                   at<T>(dx_), layout_, count, false});",
     "unit:[network]"),
    ("SiLU: the slope's memory is given away", "src/network/nodes/batch_norm.cpp", "    lowering.touch(slope_);\n", "",
     "unit:[network]"),
    ("SiLU: the slope is that of its square", "kernels/pointwise.hpp", "s.value * (1.0F + z * s.complement)",
     "s.value * (1.0F + 2.0F * z * s.complement)", "unit:[kernels]"),
    ("SiLU: a term of the series is missing", "kernels/pointwise.hpp", "  series = series * rest + 1.0F / 720;\n", "",
     "unit:[kernels]"),
    ("SiLU: exp(-x) is not limited", "kernels/pointwise.hpp", "  t = t < 87.0F ? t : 87.0F;\n", "", "unit:[kernels]"),
    ("training: the gradient of SiLU lies where it is needed again", "src/network/nodes/silu.cpp",
     "dx_ = dy.owned ? dy_ : lowering.fresh(elements_);", "dx_ = dy_;", "unit:[network]"),
    ("normalized: the gradient is not divided", "src/network/nodes/normalize.cpp",
     "    if (update.x == nullptr) images_.backward(image_gradient);\n", "", "unit:[network]"),
    ("normalized: nor in training", "src/network/nodes/normalize.cpp",
     "    if (wanted.dx) images_.backward(wanted.image_gradient);\n", "", "unit:[network]"),
    ("normalized: weights learn from the images", "src/network/nodes/convolution.cpp",
     "conv_->backward_weights(x_ >= 0 ? at(x_) : wanted.image,", "conv_->backward_weights(wanted.image,", "unit:[network]"),
    ("normalized: deviations before means", "src/network/normalization.cpp",
     "return {{numbers.begin(), middle}, {middle, numbers.end()}};", "return {{middle, numbers.end()}, {numbers.begin(), middle}};",
     "unit:[network]"),
    ("an evaluation forgets the normalization", "src/run/evaluation_setting.cpp", "                                                  .normalize = trained.normalize,\n",
     "", "e2e:data"),
    ("a run forgets the activation", "src/train/plan/replica_of.cpp", "          .activation = options.activation,\n", "", "step:SiLU"),
    ("the shortcut reads what is not activated", "src/network/blocks.cpp", "shortcut, activated, channels", "shortcut, x, channels",
     "step:wrn28_10"),
    ("the last activation of a WRN is missing", "src/network/wide_resnet.cpp",
     "x = net.activation(net.batch_norm(\"bn1\", x));", "x = net.batch_norm(\"bn1\", x);", "step:wrn28_10"),
    ("gradients go where they always went", "src/network/training_program.cpp", "request.gradients + s.begin",
     "model_.parameters.gradients + s.begin", "unit:[network]"),
    # Sampler and loader.
    ("warm-up permutation not shared", "src/data/loader.cpp",
     "epoch < options_.warmup_epochs ? 0 : epoch - options_.warmup_epochs;", "epoch;", "step:defaults"),
    ("wrong wrap-around entry", "src/data/sampler.cpp", "deck_[static_cast<std::size_t>((entry * labelled + k) % mix_.labelled)]",
     "deck_[static_cast<std::size_t>(std::min(entry * labelled + k, mix_.labelled - 1))]", "step:two ranks"),
    ("mix: extra images from the beginning of their order", "src/data/sampler.cpp",
     "extra_first_ = number % epochs * extra_entries_;", "extra_first_ = 0;", "step:balanced"),
    ("mix: one order of extra images for ever", "src/data/sampler.cpp", "extra_number_ = number / epochs;\n  draw(",
     "extra_number_ = 0;\n  draw(", "unit:[#test_data]"),
    ("mix: a new order of extra images each epoch", "src/data/sampler.cpp",
     "std::max<std::int64_t>(1, mix_.extra / extra_entries_);", "1;", "step:balanced"),
    ("mix: ranks share extra images", "src/data/sampler.cpp", "(extra_first_ + entry * extra + k) % mix_.extra",
     "(extra_first_ + entry / ranks_ * extra + k) % mix_.extra", "step:balanced, two ranks"),
    ("mix: epoch of the extra set", "src/data/sampler.cpp", "(mix.labelled + mix.labelled_of_group - 1) /",
     "(mix.extra + mix.labelled_of_group - 1) /", "step:balanced"),
    ("mix: the share of the extra set", "src/data/sampler.cpp", "labelled_of_group = whole / common;",
     "labelled_of_group = (micro_batch - whole) / common;", "step:balanced, two ranks"),
    ("mix: kept aside from all", "src/train/plan/splits.cpp", "read_mix(options.mix) < 1 ? whole->first_file() : whole->size();",
     "whole->size();", "step:balanced, two ranks"),
    ("mix: limit of all", "src/train/plan/splits.cpp", "open_dataset(options.data, of, balanced ? 0 : limit);",
     "open_dataset(options.data, of, limit);", "step:balanced"),
    ("loader reads into other places", "src/data/loader.cpp", "dataset_.read(indices_[k], batch.pixels.data() + k * bytes);",
     "dataset_.read(indices_[k], batch.pixels.data() + (at - order_.begin()) * bytes);", "step:defaults"),
    # Foreign files.
    ("pickle: a name too many", "src/data/arrays/pickle_machine.hpp", "if (known.module == module && known.name == name)",
     "if (known.name == name)", "unit:[arrays]"),
    ("pickle: the byte order of a type is forgotten", "src/data/arrays/pickle_machine.hpp",
     "if (type.items.size() > 1 && word(type.items[1]) == \">\") array.big_endian = true;", "", "e2e:data"),
    ("pickle: sizes are believed", "src/data/arrays/pickle_machine.hpp", "check_here(bytes <= static_cast<std::uint64_t>(source_.size() - at_),",
     "check_here(true,", "unit:[arrays]"),
    ("pickle: any number of objects", "src/data/arrays/pickle_machine.hpp", "check_here(++pushed_ <= kMost,", "check_here(true,",
     "unit:[arrays]"),
    ("pickle: text for bytes unchecked", "src/data/arrays/pickle_objects.hpp", "(first & 0xfe) == 0xc2 && (second & 0xc0) == 0x80", "true",
     "unit:[arrays]"),
    # Networks in other programs' formats.
    ("safetensors: tensors overlap", SAFETENSORS, "check(entry.offsets[0] == end &&", "check(entry.offsets[0] >= 0 &&",
     "unit:[exchange]"),
    ("safetensors: bytes behind the last tensor", SAFETENSORS, "check(end == source.size() - data,",
     "check(end <= source.size() - data,", "unit:[exchange]"),
    ("safetensors: a name stands twice", SAFETENSORS, "level_ == Level::root && !names_.insert(name).second",
     "level_ == Level::root && !names_.insert(name).second && false", "unit:[exchange]"),
    ("safetensors: products of shapes overflow", SAFETENSORS, "if (__builtin_mul_overflow(elements, extent, &elements)) return -1;",
     "elements = static_cast<std::int64_t>(static_cast<std::uint64_t>(elements) * static_cast<std::uint64_t>(extent));",
     "unit:[exchange]"),
    ("safetensors: the length of the header is believed", SAFETENSORS, "check(length <= static_cast<std::uint64_t>(kMostHeader),",
     "check(true,", "unit:[exchange]"),
    ("safetensors: elements are not aligned", SAFETENSORS, "(text.size() + 7) / 8 * 8", "text.size()", "unit:[exchange]"),
    ("safetensors: a length may be a pickle's first byte", "src/interop/source.cpp", "const bool header = magic[8] == '{';",
     "const bool header = false;", "e2e:export"),
    ("safetensors: counters are whole numbers", SAFETENSORS, '  if (type == "F32") return count_of(number(float{}));\n', "",
     "unit:[exchange]"),
    ("safetensors: names of any length", SAFETENSORS, "if (name.size() > kMostName)", "if (false)", "unit:[exchange]"),
    ("import: values that are not finite", "src/interop/source.cpp", "[](float value) { return std::isfinite(value); }",
     "[](float) { return true; }", "e2e:export"),
    ("import: the other ball's attack stays", "src/verbs/import.cpp", "    static_cast<AttackSettings&>(trained) = other;\n",
     "    trained.norm = other.norm;\n", "e2e:export"),
    ("noise: images that an attack goes on with lose it", "src/replica/frozen_objective.cpp", "if (several && noise == nullptr) {",
     "if (several) {", "unit:[smoothed]"),
    ("export: figures under noise for a network without", "src/interop/robustbench.cpp", 'check(!all.contains("noise"),', 'check(true ||', "e2e:export"),
    ("rollback: the evaluation that is due is forgotten", RUN, "  owe(due, recorded);\n", "  owe(0, recorded);\n", "e2e:setbacks"),
    ("import: evaluations stay in the other ball", "src/verbs/import.cpp", "  trained.eval_eps = plain.eval_eps;\n", "", "e2e:export"),
    ("import: metadata may have any image size", "src/verbs/import.cpp", "source.size >= 8 && source.size <= 4096",
     "source.size > 0", "e2e:export"),
    ("state_dict: the WideResNets' names", STATE_DICT, '  replace(".convShortcut.", ".shortcut.0.");\n', "", "unit:[exchange]"),
    ("state_dict: shapes are not compared", STATE_DICT, "    if (tensor.shape == want.shape)\n", "    if (true)\n", "unit:[exchange]"),
    ("state_dict: second names are not compared", STATE_DICT, "leaf(want.name) == leaf(tensor.name) && same_tensor(tensor, want)",
     "leaf(want.name) == leaf(tensor.name)", "unit:[exchange]"),
    ("state_dict: a missing tensor", STATE_DICT, "    else if (!found[k])\n", "    else if (false)\n", "unit:[exchange]"),
    ("state_dict: torchvision's names", STATE_DICT, '  replace(".downsample.", ".shortcut.");\n', "", "unit:[exchange]"),
    ("state_dict: the new head is the old one", STATE_DICT, "if (how.new_head && wanted.head[place->second]) continue;", "",
     "unit:[exchange]"),
    ("onnx: mean and variance", "src/interop/onnx.cpp", '{norm + ".running_mean", norm + ".running_var"}',
     '{norm + ".running_var", norm + ".running_mean"}', "e2e:export"),
    ("onnx: the stride", "src/interop/onnx.cpp", "std::vector{stride, stride}", "std::vector{stride, std::int64_t{1}}", "e2e:export"),
    ("robustbench: the stride", "src/interop/robustbench.cpp", '{"stride", node.stride}', '{"stride", 1}', "e2e:export"),
    ("robustbench: figures at another radius", "src/interop/robustbench.cpp",
     "std::abs(eps - entry.eps) <= kSameRadius * entry.eps", "true", "e2e:export"),
    ("robustbench: AutoAttack on some images", "src/interop/robustbench.cpp", 'name == "aa-standard" && !figures.limited',
     'name == "aa-standard"', "e2e:export"),
    ("robustbench: figures of other weights", "src/interop/robustbench.cpp",
     'check(all.at("weights_hash").get<std::string>() == weights,', "check(true,", "e2e:export"),
    ("import: evaluated on images that it has not seen", "src/run/trained.cpp", '!checkpoint.texts.contains("imported_from")', "true",
     "e2e:export"),
    ("npz: no checksum", "src/data/arrays/npz.cpp", "left_ > 0 || crc_ == crc_wanted_", "true", "unit:[arrays]"),
    ("npz: growth is believed", "src/data/arrays/npz.cpp", "size <= kMostGrowth * stored)", "true)", "unit:[arrays]"),
    ("gzip: what follows is not looked at", "src/data/arrays/inflate.cpp", "if (left_ > 0) return;", "if (left_ >= 0) return;",
     "unit:[published]"),
    ("idx: growth is believed", "src/data/idx.cpp", "check(!packed || array.bytes / kMostGrowth <= size,", "check(true,",
     "unit:[published]"),
    ("idx: a packed file sooner than a plain one", "src/data/idx.cpp", 'for (const char* packed : {"", ".gz"})',
     'for (const char* packed : {".gz", ""})', "unit:[published]"),
    ("CIFAR: coarse labels", "src/data/cifar_pickles.cpp", '"meta", "fine_labels"', '"meta", "coarse_labels"',
     "unit:[published]"),
    ("CIFAR: columns are taken for rows", "src/data/cifar_pickles.cpp", "at_ % width_ * rows_ + at_ / width_", "at_",
     "unit:[published]"),
    ("validation images are trained on", "src/data/named_arrays.cpp", 'val && options.val == "train"', "val",
     "unit:[published]"),
    ("a test image may lack its label", "src/data/named_arrays.cpp", 'split.split == "test" ? 0 : -1', "-1",
     "unit:[published]"),
    ("SVHN: ten is no digit", "src/data/svhn.cpp", "std::replace(label, label + bytes,", "std::replace(label, label,",
     "e2e:published"),
    ("SVHN: columns are taken for rows", "src/data/svhn.cpp", "arrays.turned = true;", "arrays.turned = false;",
     "e2e:published"),
    ("channels first are not turned", "src/data/image_arrays.cpp", "if (arrays.channels_first) {", "if (false) {",
     "unit:[arrays]"),
    ("labels: sign is lost", "src/data/image_arrays.cpp", "label >= lowest && label < classes", "label < classes", "e2e:data"),
    ("crop range off by one", "src/data/loader.cpp", "- batch.size + 1;", "- batch.size;", "step:defaults"),
    ("mirrored before it is cut", AUGMENT, "from_x = (crop.flip != 0 ? w - 1 - x : x) + crop.left;",
     "from_x = crop.flip != 0 ? w - 1 - (x + crop.left) : x + crop.left;", "step:defaults"),
    ("crops of the warm-up repeat", "src/data/loader.cpp", "Purpose::augmentation, static_cast<std::uint32_t>(epoch),",
     "Purpose::augmentation, static_cast<std::uint32_t>(shuffle),", "step:defaults"),
    ("batch is cut, not dealt", "src/data/sampler.cpp", "(first + std::int64_t{i} * plan_.micro_batches + m) * ranks_",
     "(first + std::int64_t{m} * size + i) * ranks_", "step:micro-batches"),
    ("no crop at all", AUGMENT, "from_y = y + crop.top;", "from_y = y;", "step:defaults"),
    # Images that grow.
    ("sizes: an epoch late", "src/data/loader.cpp", "options_.sizes.at(static_cast<int>(epoch));",
     "options_.sizes.at(std::max(static_cast<int>(epoch) - 1, 0));", "step:growing images"),
    ("sizes: places of whole images", "src/data/loader.cpp", "whole + 2 * kPadding - batch.size + 1;", "2 * kPadding + 1;",
     "step:growing images"),
    ("sizes: the corner, not the middle", "src/data/loader.cpp", "(whole - batch.size) / 2", "0", "step:growing images, average"),
    ("sizes: mirrored in the whole image", AUGMENT, "from_x = (crop.flip != 0 ? w - 1 - x : x) + crop.left;",
     "from_x = (crop.flip != 0 ? size - 1 - x : x) + crop.left;", "step:growing images"),
    ("sizes: perturbations in rows of the cut", WARM, "objective.x_adv, layout, options_.layout.h,",
     "objective.x_adv, layout, layout.h,", "step:growing images, two ranks"),
    ("sizes: rebuilt statistics of smaller images", PASS, "  all.sizes = {};\n", "", "step:growing images, average"),
    ("sizes: unbiased variance of whole images", "src/network/training_program.cpp",
     "for (const Node& node : graph_.nodes)\n    if (node.op", "for (const Node& node : model_.graph.nodes)\n    if (node.op",
     "step:growing images"),
    ("sizes: attacks in training mode step on whole images", "src/train/examples/batch_objective.cpp",
     "  attach(*this, replica_.images());  // of the size at hand\n", "", "step:growing images, two ranks"),
    ("sizes: the attack of whole images throughout", LOCAL,
     "  objective_ = batch_objective_ ? static_cast<Objective*>(batch_objective_.get()) : &replica_.attacked();\n"
     "}\n\nObjective&", "}\n\nObjective&", "step:growing images"),
    ("sizes: evaluations read images of the size at hand", EVALUATION, "  images_.cut(0);\n", "", "unit:[sizes]"),
    ("sizes: a generator attacks with the last size", GENERATORS + "generator.cpp",
     "  replica_.images().cut(plan_.size_of(task.step));\n", "", "e2e:generators"),
    ("sizes: answers of whole images", GENERATORS + "orders.cpp", "cut > 0 ? cut : layout_.h;",
     "cut > 0 ? layout_.h : cut + layout_.h;", "e2e:generators"),
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
    ("oracle: squares for norms", "src/selector/oracle.cpp", "0.5 * std::log(std::max(", "std::log(std::max(", "step:oracle"),
    ("oracle: unknown layers count nothing", "src/selector/oracle.cpp",
     "squares_[d] == kUnknown ? largest : squares_[d];", "squares_[d] == kUnknown ? 0 : squares_[d];", "step:oracle"),
    ("oracle: restored without its probabilities", "src/selector/oracle.cpp", "p_.assign(p_.size(), equal_probability(options_));\n    choose();",
     "", "step:oracle"),
    ("oracle: what was learned before stays", "src/selector/oracle.cpp", "    p_.assign(p_.size(), equal_probability(options_));\n    choose();",
     "    choose();", "unit:[selector]"),
    ("budget: floor costs nothing", "src/selector/clip_to_budget.cpp", "left -= cost(d) * p_min;", "left -= 0;",
     "unit:[selector]"),
    ("budget: one layer is as dear as another", "src/selector/clip_to_budget.cpp", "sum += cost(d) * std::exp",
     "sum += std::exp", "unit:[budgets]"),
    ("projection: scaled, whatever the costs", "src/selector/project_kl.cpp", "if (equal) return", "if (equal || true) return",
     "unit:[budgets]"),
    ("projection: one Newton step", "src/selector/project_kl.cpp", "closer = next < delta;",
     "closer = next < delta && slope < 0;", "unit:[budgets]"),
    ("projection: floor costs nothing", "src/selector/project_kl.cpp", "at_floor(d) ? costs[d] * p_min : 0;",
     "at_floor(d) ? 0 : 0;", "unit:[budgets]"),
    ("costs are not divided by their mean", "src/selector/costs.cpp", "cost /= mean;", "cost /= 1;", "unit:[budgets]"),
    ("bandit does not know the costs", "src/selector/exp3.cpp", "project_kl(log_w_, options_.costs,",
     "project_kl(log_w_, {},", "step:bandit in bytes"),
    ("oracle: cost for its root", "src/selector/oracle.cpp", "0.5 * std::log(options.costs[d])",
     "std::log(options.costs[d])", "step:oracle in bytes"),
    ("freezeout: t of the next layer", "src/selector/freezeout.cpp", "(1 - options.freeze_t0) * i /",
     "(1 - options.freeze_t0) * (i + 1) /", "step:freezeout*"),
    ("freezeout: squared for cubic", "src/selector/freezeout.cpp", '"cubic" ? 3', '"cubic" ? 2', "step:freezeout"),
    ("freezeout: rates of unscaled", "src/selector/freezeout.cpp", "(scaled_ ? phi_[i] : 1)", "1.0", "step:freezeout"),
    ("freezeout: annealed over the whole run", "src/selector/freezeout.cpp", "std::min(j / end_[i], 1.0)",
     "std::min(j / end_.back(), 1.0)", "step:freezeout"),
    ("freezeout: rates do not reach the optimizer", "src/train/layers/shared_mask.hpp",
     "return selector_->rates() != nullptr ? updated_ : active_;", "return active_;", "step:freezeout"),
    ("autofreeze: an interval is a ninth", "src/selector/autofreeze.cpp", "kIntervals = 10;", "kIntervals = 9;",
     "step:autofreeze"),
    ("autofreeze: sums of intervals run on", "src/selector/autofreeze.cpp",
     "    std::fill(sums_.begin(), sums_.end(), 0.0);\n", "", "unit:[budgets]"),
    ("autofreeze: change of the new norm", "src/selector/autofreeze.cpp", "std::fabs(before_[l] - now) / before_[l]",
     "std::fabs(before_[l] - now) / now", "unit:[budgets]"),
    ("autofreeze: forgets what rests", "src/selector/autofreeze.cpp",
     "freeze_below(static_cast<std::size_t>(state[2 * layers + 2]));", "", "unit:[budgets]"),
    ("selectors are not told the step", LAYERS, "  selector_->begin(step);\n", "", "step:freezeout"),
    ("costs are not in checkpoints", LAYERS, 'checkpoint.doubles["layer_costs"] = costs_;', 'checkpoint.doubles["other_costs"] = costs_;', "unit:[trainer]"),
    ("costs of a checkpoint are not taken", LAYERS, "    costs_ = costs->second;\n    make_selector();\n", "",
     "unit:[trainer]"),
    ("costs of rank 0 stay there", LAYERS, "  ranks_.broadcast(costs_.data(), costs_.size() * sizeof(double));\n", "",
     "step:masks in seconds"),
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
    ("sgd: no weight decay", OPTIMIZER, "scaled(gradient[i], scale, segment) + decay[segment] * theta[i];\n    momentum",
     "scaled(gradient[i], scale, segment);\n    momentum", "step:sgd outside"),
    ("norms decay, though told not to", "src/optimizer/segment_factors.hpp", "options.decay_norms || segment.shape.size() > 1",
     "options.decay_norms || !segment.shape.empty()", "step:norms do not decay"),
    ("biases alone decay", "src/optimizer/segment_factors.hpp", "options.decay_norms || segment.shape.size() > 1",
     "options.decay_norms || segment.shape.size() == 1", "step:norms do not decay"),
    ("lamb: the second pass decays the first segment's way", OPTIMIZER, "theta[i], epsilon, decay[segment]);\n  }", "theta[i], epsilon, decay[0]);\n  }",
     "step:norms do not decay, lamb"),
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
     "const double g = gradient[i] + 0 * scaled(gradient[i], scale, segment);", "step:lars_sgd"),
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
    ("warm-up one step behind", "src/optimizer/schedules.hpp", "return lr_ * std::min(k + 1, warmup_)", "return lr_ * std::min(k, warmup_)",
     "step:defaults"),
    ("warm-up beyond the rate", "src/optimizer/schedules.hpp", "return lr_ * std::min(k + 1, warmup_)", "return lr_ * (k + 1)",
     "step:a warm-up of half an epoch"),
    ("warm-up of whole epochs", "src/optimizer/schedules.cpp", "rise(steps_of(options.warmup_epochs,",
     "rise(steps_of(std::floor(options.warmup_epochs),", "step:a warm-up of half an epoch"),
    ("layers are drawn before the warm-up is over", "src/train/plan/plan.cpp", "std::ceil(steps_of(", "std::floor(steps_of(",
     "step:a warm-up of half an epoch"),
    ("cyclic: as the linear warm-up", "src/optimizer/cyclic.cpp", "return k / course_.rise;", "return (k + 1) / course_.rise;",
     "unit:[optimizer]"),
    ("cyclic: warm-up epochs share an order", "src/train/plan/goal.cpp", "own_warmup(options) ? 0 :", "own_warmup(options) && options.schedule.empty() ? 0 :",
     "step:cyclic, momentum against the rate"),
    ("one cycle: the peak at the warm-up's end", "src/optimizer/one_cycle.cpp", "return course_.rise - 1;", "return course_.rise;",
     "unit:[optimizer]"),
    ("one cycle: ends a step late", "src/optimizer/one_cycle.cpp", "(course_.steps - 1 - peak())", "(course_.steps - peak())",
     "unit:[optimizer]"),
    ("momentum with the rate", "src/train/update/weight_update.hpp", "momentum_ + (peak_momentum_ - momentum_) *",
     "peak_momentum_ + (momentum_ - peak_momentum_) *", "step:cyclic, momentum against the rate"),
    ("momentum of the step before", "src/train/update/weight_update.cpp", "set_momentum(momentum(step));",
     "set_momentum(momentum(step - 1));", "step:cyclic, momentum against the rate"),
    ("lars_sgd: no momentum but the options'", "src/optimizer/lars_sgd.cpp", "options_.momentum = momentum;", "(void)momentum;",
     "step:one cycle, momentum against the rate"),
    ("averages keep the momentum to themselves", "include/dat/optimizer.hpp", "{ optimizer_->set_momentum(momentum); }",
     "{ (void)momentum; }", "step:a warm-up of half an epoch"),
    # Options by epoch.
    ("a change an epoch late", "include/dat/by_epoch.hpp", "return part.from > epoch; }", "return part.from >= epoch; }",
     "step:steps by epoch, two ranks"),
    ("growth an epoch ahead", "include/dat/by_epoch.hpp", "* T(epoch - part.from)", "* T(epoch + 1 - part.from)",
     "step:a growing ball"),
    ("an attack of the epoch before", METHOD, "return one.from > epoch; }", "return one.from >= epoch; }",
     "step:attacks by epoch"),
    ("warm start: kept in parts of the first radius", WARM, "objective.x_adv, layout, options_.layout.h,\n                         static_cast<float>(eps)}",
     "objective.x_adv, layout, options_.layout.h,\n                         static_cast<float>(eps + 0.01)}", "step:a growing ball, warm start"),
    ("the next step's attack has this epoch's radius", LOCAL, "begun_.begin(*now().attack, objective, step)",
     "begun_.begin(*method_.in_epoch(plan_.epoch_of(step - 1)).attack, objective, step)", "step:a wider ball, stale attack"),
    ("eps 0: steps leave the ball of radius 0", METHOD, '    if (now.eps == 0) now.project = "on";\n', "", "unit:[#test_trainer]"),
    ("an own step size does not follow the radius", "src/options/train/attack.cpp", "if (epochs.size() == 1) o.alpha = attack->alpha();",
     "o.alpha = attack->alpha();", "step:a growing ball"),
    ("generators: the last epoch's ball throughout", GENERATORS + "generator.hpp", "return method_.in_epoch(plan_.epoch_of(task.step));",
     "return (void)task, method_.last();", "e2e:generators"),
    ("the record has the last radius", TRAINER, "record_.eps = method_.in_epoch(record_.epoch).eps;",
     "record_.eps = method_.last().eps;", "step:a growing ball"),
    ("milestone an epoch late", "src/optimizer/step.cpp", "return milestone <= epoch;", "return milestone < epoch;",
     "step:defaults"),
    ("cosine to half", "src/optimizer/cosine.cpp", "std::cos(std::numbers::pi * progress", "std::cos(0.5 * std::numbers::pi * progress",
     "step:cosine"),
    # Reducer.
    ("sum, not mean", SUM, "mean = 1.0F / static_cast<float>(options_.ranks.size());", "mean = 1.0F;", "mpi:2"),
    ("a bucket's last segment is left out", MESSAGES, "table_.between(first, end)", "table_.between(first, end - 1)",
     "mpi:2"),
    ("a bucket is sent before it is full", BUCKETS, "if (of(one).missing > 0 || !backend_.arrived(of(one).ticket)) break;",
     "if (!backend_.arrived(of(one).ticket)) break;", "step:overlap"),
    ("one rank skips a codec that is not exact", REDUCER.replace(".cpp", ".hpp"), "ranks == 1 && codec_->exact() &&", "ranks == 1 &&",
     "unit:[reducer]"),
    ("one rank skips an aggregator that changes it", REDUCER.replace(".cpp", ".hpp"), "codec_->exact() && aggregator_->keeps_one();",
     "codec_->exact();", "unit:[reducer]"),
    ("messages are added up for any aggregator", SUM, "return aggregator.is_mean();", "return true;", "mpi:2"),
    ("two-sided: the sum of a share", TWO_SIDED, "rank + 1 == ranks ? 1.0F / static_cast<float>(ranks) : 1.0F;", "1.0F;", "mpi:2"),
    ("two-sided: shares of any elements", TWO_SIDED, "constexpr std::int64_t kGroup = 4;\n  const std::int64_t groups",
     "constexpr std::int64_t kGroup = 1;\n  const std::int64_t groups", "step:int8, two-sided"),
    ("two-sided: the mean with the numbers of the first message", "kernels/codec.hpp", "2 * rank + round", "2 * rank",
     "step:int8, two-sided"),
    ("a round's messages where the first round's were", MESSAGES, "device_begin_ + static_cast<std::size_t>(row) * tensors_;",
     "device_begin_;", "unit:[codec]"),
    ("bytes of the first round only", SUM, "total += std::accumulate(bytes, bytes + rounds_, std::int64_t{0});",
     "total += bytes[0];", "step:powersgd, two ranks"),
    # Aggregators.
    ("median: the upper one", "src/reduce/aggregator/robust.hpp", "order((n() - 1) / 2, (n() - 1) / 2);", "order(n() / 2, n() / 2);", "unit:[reducer]"),
    ("CenteredClip: nothing is clipped", CLIP, "distance > options().tau ? options().tau / distance : 1;", "distance > 0 ? 1 : 1;", "unit:[reducer]"),
    ("CenteredClip: clipped by the sum of the ranks' differences", CLIP, "options().tau / distance : 1;",
     "options().tau / distance / n() : 1;", "unit:[reducer]"),
    ("CenteredClip: weights are left out", CLIP, "weight(i) / total * clip", "1.0 / n() * clip", "unit:[reducer]"),
    ("CenteredClip: one iteration", CLIP, "unfinished_ = v_.step_length() > kClipAtRest;", "unfinished_ = false;", "unit:[reducer]"),
    ("geometric median: no way away from a gradient", GEOMETRIC, "v_.move(1 - here / pull);", "v_.move(here > 0 ? 0 : 1);",
     "unit:[reducer]"),
    ("geometric median: a gradient is left by a whole step", GEOMETRIC, "v_.move(1 - here / pull);", "v_.move(1);", "unit:[reducer]"),
    ("Krum: a neighbour more", KRUM, "std::max(1, n() - faults() - 2)", "std::max(1, n() - faults() - 1)", "unit:[reducer]"),
    ("Multi-Krum: a plain mean", KRUM, "= weight(i) / total;", "= 1.0 / static_cast<double>(order_.size());", "unit:[reducer]"),
    ("a rank that is not finite counts", ROBUST, "    if (host_[rank] != 0) {", "    if (host_[rank] < 0) {", "unit:[reducer]"),
    ("any number of ranks may be not finite", ROBUST, "return bad <= options_.faults && counted_.count > 0;",
     "return counted_.count > 0;", "unit:[reducer]"),
    ("ranks without weight count", ROBUST, "    if (weight == 0) continue;\n", "", "unit:[reducer]"),
    ("f of ranks that are not there", ROBUST, "std::min(options_.faults, (counted_.count - 1) / 2);", "options_.faults;",
     "unit:[reducer]"),
    ("mixing: one less", ROBUST, "k < n() - faults_; ++k) near |=", "k < n() - faults_ - (faults_ > 0); ++k) near |=",
     "unit:[reducer]"),
    ("a share is left out of the sums over pairs", AGGREGATE, "share < Shares::kShares; ++share)",
     "share < Shares::kShares - 1; ++share)", "unit:[reducer]"),
    ("pairs: what is left of a run is lost", AGGREGATE, "      for (; e < run.end; ++e) add<1>(x, y, e, lanes);\n", "", "unit:[reducer]"),
    ("aggregators do not learn the weights", GATHER, ".weights = options_.weights});", ".weights = {}});", "mpi:2"),
    ("uneven ranks weigh alike", TRAINER, "reduction.weights.push_back(order_->leaves_of(rank));",
     "reduction.weights.push_back(1);", "planted:2"),
    ("a rank brings a sum of micro-batches", UNITS, "  if (factor_ != 1) each(", "  if (factor_ < 1) each(", "planted:2"),
    ("a rank's last micro-batch is lost", UNITS, "  complete();\n  if (factor_", "  if (factor_", "planted:2"),
    # Codecs.
    ("int8: half a level too much", "kernels/codec.hpp", "static_cast<float>(code >> 1U) / QuantiseLevels",
     "static_cast<float>(code) / 2 / QuantiseLevels", "unit:[codec]"),
    ("int8: rounded to the nearest", "kernels/codec.hpp", "(random < exact", "(0.5F < exact", "unit:[codec]"),
    ("int8: one number for four elements", "kernels/codec.hpp", "norm, uniform(random.v[k]))", "norm, uniform(random.v[0]))",
     "step:int8"),
    ("int8: the same numbers in every step", "kernels/codec.hpp", "return {seed, static_cast<std::uint32_t>(step),",
     "return {seed, static_cast<std::uint32_t>(0 * step),", "unit:[codec]"),
    ("int8: the same numbers on all ranks", "kernels/codec.hpp", "static_cast<std::uint32_t>(2 * rank + round)",
     "static_cast<std::uint32_t>(0 * rank + round)", "step:int8, two ranks"),
    ("bf16: cut off", "src/reduce/codec/rounded.hpp", "kernels::PackAs<T>{gradients", "kernels::PackAs<Half>{gradients",
     "unit:[codec]"),
    ("terngrad: always clipped", "kernels/codec.hpp", "limit > 0 && limit < largest ? limit : largest", "limit",
     "unit:[codec]"),
    ("terngrad: too seldom", "kernels/codec.hpp", "< std::fabs(g) / scale;", "< 0.9F * std::fabs(g) / scale;", "unit:[codec]"),
    ("atomo: atoms as they are", "kernels/spectral.hpp", "finite ? 1 / lambda[i] :", "finite ? 1 :", "unit:[codec]"),
    ("atomo: all atoms alike", "kernels/spectral.hpp", "lambda[i] = largest == 0 ? 1 :", "lambda[i] = largest >= 0 ? 1 :",
     "unit:[codec]"),
    ("powersgd: no error feedback", "kernels/low_rank.hpp", "if (factors[tensor].rank > 0) error[i] += gradients[i];",
     "if (factors[tensor].rank > 0) error[i] = gradients[i];", "unit:[codec]"),
    ("powersgd: P as it comes", "kernels/low_rank.hpp", "    for (std::int32_t k = 0; k < f.rank; ++k) {\n      float* const x",
     "    for (std::int32_t k = f.rank; k < f.rank; ++k) {\n      float* const x", "unit:[codec]"),
    ("powersgd: a zero column stays", "kernels/low_rank.hpp", "if (!(dot(x, x, f.rows) > 1e-12 * before)) {",
     "if (before < 0) {", "unit:[codec]"),
    ("powersgd: every step from the first Q", "src/reduce/codec/powersgd.cpp", "first ? left_ : right_,", "left_,", "step:powersgd"),
    ("codec: every rank goes on with rank 0's error", "src/train/message/codec_state.cpp", "all[static_cast<std::size_t>(rank) * mine.size() + i]",
     "all[i]", "mpi:2"),
    ("codec: the state is not saved", TRAINER, "layers_.get(),     &codec_state_,", "layers_.get(),",
     "mpi:2"),
    ("every message is rank 0's", GATHER, "      next += bucket.bytes;\n", "", "mpi:2"),
    ("the codec does not learn the step", GATHER, "    step_ = step.step;\n", "", "mpi:2"),
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
    ("worker: the optimizer gets its own layers", "src/train/layers/per_worker_masks.hpp", "updated() const override { return updated_; }",
     "updated() const override { return active_; }", "step:masks per worker"),
    ("worker: layers of the first rank alone move", WORKERS, "std::any_of(masks_.begin(), masks_.end(),",
     "std::any_of(masks_.begin(), masks_.begin() + 1,", "step:masks per worker"),
    ("worker: the first 64 layers for all", WORKERS, "all_[rank * words_ + d / 64]", "all_[rank * words_ + 0 * d]", "mpi:2"),
    ("worker: all go on with rank 0's draw", WORKERS, "  take();\n", "", "step:masks, blocks in two steps"),
    ("worker: masks are not restored", WORKERS, "  take_masks();\n  saved_ = {};", "  saved_ = {};", "step:masks, blocks in two steps"),
    ("worker: the check does not see the masks", WORKERS,
     "  state.host(\"active layers\", all.data(), all.size() * sizeof(float));\n", "", "mpi:2"),
    # Silent corruption.
    ("corruption: the hash does not know places", "kernels/fingerprint.hpp", "static_cast<std::uint64_t>(i) << 32U | word", "word + 0 * i",
     "unit:[corruption]"),
    ("corruption: the hash loses its upper bits", "kernels/fingerprint.hpp", "bits(part >> 43U)", "bits(0)", "unit:[corruption]"),
    ("corruption: two of four are a majority", CHECK, "majority |= 2 * like(rank) > ranks;", "majority |= 2 * like(rank) >= ranks;",
     "unit:[corruption]"),
    ("corruption: rank 0 is always right", CHECK, "ranks_.rank() == found.source ? 0 : ranks_.rank() + 1", "ranks_.rank() + 1", "mpi:3"),
    ("corruption: optimizer state is not compared", UPDATE, "    state.device(\"optimizer state \" + array.name, array.data, p.size);\n",
     "    (void)array;\n", "mpi:2"),
    ("corruption: the learning rate is blamed first", WATCH, "  if (options_.check_every > 0) check_replicas(step);\n", "", "mpi:3"),
    ("verify: another epoch's random start", "src/train/watch/recompute.cpp", "Purpose::attack_start, epoch, goal)", "Purpose::attack_start, epoch + 1, goal)",
     "mpi:2"),
    ("verify: the mean of the rank's own images", "src/train/watch/recompute.cpp", "plan_.ordered ? batch_.elsewhere : 0", "0", "mpi:2"),
    ("verify: the verifier is always right", VERIFICATION, "like[0] > 0 ? verifier : of.rank", "of.rank", "mpi:3"),
    ("verify: a wrong gradient moves the weights", WATCH, "  return finding->usable;", "  return true;", "mpi:2"),
    # The order of micro-batches.
    ("tree: what comes is added to what there is", SUMMATION + ".hpp",
     "if (right.level != left.level || left.index % 2 != 0 || right.index != left.index + 1) return;", "", "unit:[tree]"),
    ("tree: neighbours that are no halves", SUMMATION + ".hpp", "right.level != left.level || left.index % 2 != 0 ||", "right.level != left.level ||",
     "unit:[tree]"),
    ("tree: a node without a right half waits", SUMMATION + ".hpp", "node.index > 0 && node.index % 2 == 0 &&", "false &&", "unit:[tree]"),
    ("tree: each rank counts its own micro-batches", TREE_REDUCER, "tree_.first(ranks_.rank()) + unit_}", "unit_}", "mpi:3"),
    ("tree: ranks are added in their order", SUMMATION + ".cpp", "adds_.emplace_back(stack[left], stack[left + 1]);",
     "adds_.emplace_back(stack.front(), stack[left + 1]);", "mpi:3"),
    ("tree: the mean of each rank's own images", LOCAL, "plan_.ordered ? batch_->elsewhere : 0;", "0;", "e2e:ranks"),
    ("tree: micro-batches of a rank are one unit", LOCAL, "plan_.ordered ? examples_.first / examples_.count : 0;", "0;", "e2e:ranks"),
    ("tree: losses as MPI adds them", "src/train/message/step_message.cpp", "  if (order_ == nullptr) {\n    write(numbers_.data(), 0);",
     "  if (true) {\n    write(numbers_.data(), 0);", "e2e:ranks"),
    ("tree: ranks without micro-batches do not help", LOCAL, "warm_start_ && first < rounds() * examples_.count;", "false;", "e2e:ranks"),
    ("tree: evaluations sample by sample", TRAINER, "plan_.ordered ? Evaluator::Dealing::batches : Evaluator::Dealing::samples",
     "Evaluator::Dealing::samples", "e2e:ranks"),
    ("tree: sums of batch norm shared out to threads", "src/backend/cpu/batch_norm.cpp", "    const FixedSums fixed(backend_);\n    forward_.bind",
     "    forward_.bind", "e2e:ranks"),
    ("dealt: the last micro-batch of all is left out", "include/dat/dealing.hpp", "std::int64_t{all} * rank / ranks",
     "std::int64_t{all} * rank / ranks - (rank == ranks ? 1 : 0)", "unit:[tree]"),
    ("worker: zeros are not set", REDUCER, "  masks_.set_zeros(gradients_, transport_->of_ranks());\n", "", "mpi:2"),
    ("worker: buckets without own layers are not encoded", BUCKETS, "if (of(parcel).missing == 0) encode(parcel);",
     "if (of(parcel).missing < 0) encode(parcel);", "mpi:3"),
    ("union is dense", MASKS, "bool any = how_ == \"dense\";", "bool any = per_worker();", "mpi:2"),
    ("all-gather: every rank's layout is this one's", GATHER, "options_.separate ? static_cast<std::size_t>(rank) : 0);",
     "options_.separate ? own_ : 0);", "mpi:2"),
    ("all-gather: blocks from the beginning", GATHER, "place.at[rank] = static_cast<int>(place.all);",
     "place.at[rank] = 0;", "mpi:2"),
    ("zeros through any aggregator", REDUCER, "require(masks.empty() || aggregator.is_mean(),", "require(true,",
     "unit:[reducer]"),
    # Communicator.
    ("nobody moves on what is under way", PROGRESS, "    move_on();\n    lock.unlock();", "    lock.unlock();", "mpi:2"),
    ("the thread does not wake up", PROGRESS, "if (under_way_++ == 0) wake_.notify_one();", "++under_way_;", "mpi:2"),
    ("two sums count twice", PROGRESS, "--collectives_ == 0)\n    seconds_ +=", "--collectives_ >= 0)\n    seconds_ +=", "mpi:2"),
    ("a rank in a group of a group is known by its number there", "src/communicate/absence.cpp", "rank = launch_rank(rank);", "rank = rank + 0;", "mpi:3"),
    ("a rank takes another device when others leave", COMMUNICATOR, "  part->launch_node_rank_ = launch_node_rank_;\n", "", "mpi:2"),
    ("whoever is away looks all the time", "src/communicate/absence.cpp", "sleep_for(kNap)", "sleep_for(0 * kNap)", "mpi:2"),
    ("bytes of a sum are not counted", COMMUNICATOR, "void Communicator::sum(float* data, std::int64_t count) {\n  if (alone()) return;\n  give(count * std::int64_t{sizeof *data});",
     "void Communicator::sum(float* data, std::int64_t count) {\n  if (alone()) return;", "mpi:2"),
    ("a synchronous send does not wait", COMMUNICATOR, "MPI_Ssend(data,", "MPI_Send(data,", "mpi:2"),
    ("a group in the order of the ranks", COMMUNICATOR, "MPI_UNDEFINED : color, key, &group", "MPI_UNDEFINED : color, 0 * key, &group",
     "mpi:3"),
    ("a message of any length", "src/communicate/request.cpp", "if (expected_ >= 0) check_length", "if (expected_ > 1000) check_length", "mpi:2"),
    ("a probe of one rank sees all", "src/communicate/waits.cpp", "from == kAny ? MPI_ANY", "from == kAny || tag == kAny ? MPI_ANY", "mpi:3"),
    ("groups are never given back", COMMUNICATOR, "  MPI_Comm_free(&group_);\n", "", "mpi:2"),
    # Handshake.
    ("handshake: the first 100 letters of a value", "src/communicate/handshake.cpp", "mine += one_line(name) + kBetween + one_line(value)",
     "mine += one_line(name) + kBetween + one_line(value).substr(0, 100)", "mpi:2"),
    ("handshake: the last rank is not asked", "src/communicate/handshake.cpp", "for (std::size_t rank = 0; rank < all.size(); ++rank) {",
     "for (std::size_t rank = 0; rank + 1 < all.size(); ++rank) {", "mpi:2"),
    ("handshake: without the options", "src/verbs/ranks.cpp", "facts.emplace_back(\"--\" + name", "if (facts.empty()) facts.emplace_back(\"--\" + name",
     "e2e:handshake"),
    ("handshake: without the test images", RUN, ",\n             {\"hash of the test images\", hash_to_compare(world_, *splits.test)}};",
     "};", "e2e:handshake"),
    ("content hash of the first images", "src/data/content_hash.cpp", "i < size; i += stride", "i < size / 2; i += stride", "e2e:handshake"),
    # Checkpoint.
    ("p of the draw is not restored", LAYERS, "  p_ = mine(saved_.p);\n", "", "step:a draw an epoch"),
    ("active layers are not restored", LAYERS, "  std::copy(scale.begin(), scale.end(), active_.scale.begin());\n",
     "", "step:a draw an epoch"),
    ("step counts are not restored", UPDATE,
     "numbers.pop_back();\n  optimizer_->restore(numbers);\n", "numbers.pop_back();\n",
     "step:bias correction"),
    ("step counts of rank 0 alone", UPDATE,
     "  ranks.broadcast(numbers.data(), numbers.size() * sizeof(double));\n", "",
     "step:bias correction, two ranks"),
    ("optimizer state of rank 0 alone", UPDATE, "  for (const Optimizer::State& state : optimizer_->state()) floats(state.data, model_.parameters.size);\n",
     "", "step:two ranks"),
    ("largest norm is not restored", "src/selector/exp3.cpp", "largest_norm_ = state.back();", "", "unit:[selector]"),
    ("every rank gets rank 0's local statistics", STATISTICS, "static_cast<std::size_t>(ranks.rank());\n    set_running",
     "0;\n    set_running", "step:local statistics"),
    ("running mean and variance exchanged", "src/replica/model_state.cpp", "load(\".running_mean\", 0);",
     "load(\".running_var\", 0);", "step:old weights"),
    # Files.
    ("structure has no budget", "src/hdf5/hdf5_structure.hpp", 'check(budget_ >= 0, "its parts', 'check(true, "its parts', "unit:[#test_hdf5_reader]"),
    ("a shape may be larger than its data", READER, "found.stored / object.data.type.size", "found.stored",
     "unit:[#test_hdf5_reader]"),
    ("an object may have two names", READER, "if (!seen_.emplace(address, path).second) not_plain", "if (false) not_plain",
     "unit:[#test_hdf5_reader]"),
    ("rows of a heap's blocks are off by one", "src/hdf5/hdf5_links.cpp", "size = row == 0 ? heap.start : heap.start << (row - 1);",
     "size = row == 0 ? heap.start : heap.start << row;", "unit:[#test_hdf5_reader]"),
    ("the seal is written before the file is whole", "src/files/file.cpp", "    write(temporary);\n    seal(temporary);",
     "    write(temporary);", "unit:[#test_checkpoint]"),
    ("the temporary file has the checkpoint's name", "src/files/file.cpp", '(fs::path(folder) / ("." + target', '(fs::path(folder) / ("" + target',
     "unit:[#test_checkpoint]"),
    ("the oldest goes before the newest is there", "src/checkpoint/checkpoint.cpp", "constexpr std::size_t kKept = 3;",
     "constexpr std::size_t kKept = 0;", "unit:[#test_checkpoint]"),
    ("a checkpoint under another name is taken", "src/checkpoint/checkpoint.cpp", "of->second == step, ExitCode", "true, ExitCode",
     "unit:[#test_checkpoint]"),
    ("nobody waits for the checkpoint under way", RUN_CHECKPOINTS, "if (writing_.valid()) miss", "if (false) miss",
     "e2e:files"),
    ("a missing last checkpoint is forgotten", RUN_CHECKPOINTS, "if (unsaved_) throw", "if (false) throw", "e2e:files"),
    ("a full disk ends the run in any case", RUN_CHECKPOINTS, 'options_.on_full != "continue") throw;', "true) throw;",
     "e2e:files"),
    ("a signal at the start is only noted", "src/run/signals.cpp", "if (under_way == 0) {", "if (false) {", "e2e:files"),
    ("a record that did not fit is lost", REPORT, "unwritten_.append(line_.data() + done, length - done);", "",
     "e2e:files"),
    # Evaluation.
    ("evaluation with each rank's own statistics", STATISTICS, "  ranks.broadcast(root.data(), root.size() * sizeof(float));\n",
     "", "step:local statistics"),
    ("training goes on with rank 0's statistics", STATISTICS, "  if (!own_.empty()) set_running_statistics(model_, own_);\n", "",
     "step:local, evaluated on the way"),
    ("evaluation starts where training does", EVALUATION, "objective_.prepare(seed, Purpose::evaluation_start, static_cast<std::uint32_t>(restart));",
     "objective_.prepare(seed, Purpose::attack_start, static_cast<std::uint32_t>(restart));", "step:defaults"),
    ("every restart is the same", EVALUATION, "Purpose::evaluation_start, static_cast<std::uint32_t>(restart));",
     "Purpose::evaluation_start, 0);", "step:wide ball"),
    ("the last restart counts", EVALUATION, "right(batch_.ids[k])) fold(k, worst, first);",
     "right(batch_.ids[k])) fold(k, worst, true);", "step:wide ball"),
    ("runs count behind the one that breaks an image", EVALUATION, "if (first || !several || right(batch_.ids[k])) fold",
     "fold", "mpi:1"),
    ("the prediction of the last restart counts", EVALUATION, "|| loss > breaking[k]", "|| true", "mpi:1"),
    ("evaluation with the label before", EVALUATION, "batch_.labels[k] = dataset_.label(next);",
     "batch_.labels[k] = dataset_.label(next > 0 ? next - 1 : 0);", "step:defaults"),
    ("evaluation with the training's radius", METHOD, ".eps = options.eval_eps > 0 ? options.eval_eps : options.eps.last(),", ".eps = options.eps,", "step:two ranks"),
    # Sequences of attacks.
    ("broken images are attacked again", SEQUENCE, "if (result_.images[at].robust() && stages_[at] == stage)",
     "if (stages_[at] == stage)", "mpi:2"),
    ("every broken image is a clean error", SEQUENCE, "image.broken_by = static_cast<int>(attack);", "image.broken_by = 0;",
     "mpi:2"),
    ("the second run is the first once more", SEQUENCE, "static_cast<std::uint32_t>(run / own)", "0", "mpi:2"),
    ("every run counts its images", SEQUENCE, "row.images += run == 0;", "row.images += 1;", "mpi:2"),
    ("each rank attacks the same images", SEQUENCE, "load(open.data() + from, static_cast<int>(mine));",
     "load(open.data(), static_cast<int>(mine));", "mpi:2"),
    ("what was found is done again", SEQUENCE, "for (const JournalEntry& entry : options.found) ledger.enter(entry);", "",
     "mpi:2"),
    ("an image may be done twice", SEQUENCE, " && stages_[at] == entry.stage,\n", ",\n", "mpi:2"),
    ("logits that are not finite count", SEQUENCE, "outcome.flags |= ImageOutcome::kNotFinite;", "outcome.flags |= 0;", "mpi:2"),
    ("the ball has more slack", SEQUENCE, "kSlack = 1e-6", "kSlack = 1e-4", "unit:[sequence]"),
    ("the box does not count", SEQUENCE, " && attacked[i] >= 0 && attacked[i] <= 1;", ";", "unit:[sequence]"),
    ("the last of equal logits", SEQUENCE, "std::max_element(logits.begin(), logits.end()) - logits.begin());\n  if",
     "logits.rend() - std::max_element(logits.rbegin(), logits.rend()) - 1);\n  if", "unit:[sequence]"),
    ("random networks pass", SEQUENCE, "std::sqrt(square) > kDifference", "square > kDifference", "unit:[sequence]"),
    ("a cut line stays", JOURNAL, "  text.resize(end);\n", "", "unit:[sequence]"),
    ("a journal of other settings goes on", JOURNAL, "if (!facts.contains(name) || facts[name] != value)",
     "if (!facts.contains(name))", "unit:[sequence]"),
    ("a journal is begun anew", JOURNAL, "::ftruncate(file_, static_cast<off_t>(end))", "::ftruncate(file_, 0)", "unit:[sequence]"),
    ("Square may beat APGD by 2 %", ALARMS, "kSquareGain = 0.002", "kSquareGain = 0.02", "unit:[sequence]"),
    ("the first APGD counts", ALARMS, "apgd = std::min(apgd.value_or(1), figure.accuracy);",
     "apgd = apgd.value_or(figure.accuracy);", "unit:[sequence]"),
    ("AutoAttack in TF32", "src/assess/attack_sequence.cpp", 'gpu ? math == "f32" :', "gpu ? true :", "unit:[sequence]"),
    ("saved images are clean", "src/assess/sequence_files.cpp", "].run > 0) {", "].run < 0) {", "unit:[sequence]"),
    ("a batch is one pass", "src/run/evaluation_setting.cpp", ".attack_batch = pass,", ".attack_batch = 0,", "e2e:autoattack"),
    ("another eps goes on", "src/assess/sequence_run.cpp", '{"eps", exact(options_.eps)},\n                     {"alpha"', '{"alpha"', "e2e:autoattack"),
    # CUDA: trials.
    ("a result of any error is right", TRIALS, "return one.error <= allowed;", "return one.error <= 1e30F * allowed;",
     "double:A wrong algorithm*"),
    ("the error of all terms at once", TRIALS, "7 * 1.415F * 0x1p-11F * most.norm", "0x1p-9F * most.size",
     "double:Half of a weight gradient*"),
    ("adding is not tried", TRIALS, "if (why.empty()) why = refuses(plan, true, \", where it adds\");", "",
     "double:A gradient that does not add*"),
    ("deterministic: the last right plan", TRIALS, "if (backend_.deterministic()) break;", "if (backend_.deterministic()) least = kNever;",
     "double:Deterministic: the first*"),
    ("deterministic: plans that vary", TRIALS, "(!backend_.deterministic() || plan->deterministic())", "true",
     "double:Deterministic: the first*"),
    ("the slowest plan", TRIALS, "if (milliseconds >= least) continue;", "if (milliseconds <= least && best != nullptr) continue;",
     "double:A wrong algorithm*"),
    ("the host is timed", TRIALS, "best = std::min(best, milliseconds);",
     "best = std::min(best, static_cast<float>(replays) * milliseconds);", "double:Trials time the device*"),
    ("what cannot be recorded is offered", TRIALS, "      return kNever;\n", "      return 0;\n", "double:What cannot be recorded is refused*"),
    ("trial memory is kept", TRIALS, "for (void* p : all_) (void)cudaFree(p);", "", "double:What trials need*"),
    ("a wish for any scratch memory", TRIALS, "plan->scratch_bytes() <= backend_.scratch_limit()", "true", "double:What trials need*"),
    ("a plan through the ReLU at any price", TRIALS, "const auto best = tryout.best(bench, without);",
     "const auto best = tryout.best(bench, without + Tryout::kNever);", "double:Without an engine*"),
    # CUDA: plans.
    ("y for z where it counts nothing", LEGACY, ": zeros_                  ? o.zeros\n", ": zeros_                  ? o.result\n",
     "double:An algorithm that reads z*"),
    ("NCHW: a gradient overwrites", LEGACY, "to_shape.c, to_shape.pixels, adds(o)});", "to_shape.c, to_shape.pixels, false});",
     "double:Plans in NCHW*"),
    ("NCHW: no bias", LEGACY, "to_shape.pixels, adds(o)});\n    finish(o);", "to_shape.pixels, adds(o)});", "double:Plans in NCHW*"),
    ("a kept residual is forgotten", LEGACY, "if (!spec_.conv.keeps_residual || spec_.pass != Pass::forward) return;", "return;",
     "double:Every legacy plan adds*"),
    ("tensor cores on a GPU without", LEGACY, "strict || !backend_.gpu().tensor_cores ?", "strict ?",
     "double:A GPU without tensor cores*"),
    ("mask bits are not stored", CUDA + "pass_plan.cpp", "if (o.bits == nullptr) return;", "return;", "double:A wrong algorithm*"),
    ("graph: the residual is not added", GRAPH, "if (s.accumulate) {", "if (s.accumulate && s.c_in < 0) {", "double:Every plan of the graph*"),
    ("graph: the other gradient is not added", GRAPH, "if (s.other_gradient) {", "if (s.other_gradient && s.c_in < 0) {",
     "double:Every plan of the graph*"),
    ("graph: a result over its operand", GRAPH, "if (!s.accumulate || s.keeps_residual) add(", "add(", "double:Deterministic runs and f32*"),
    ("graph: the first addresses for ever", GRAPH, "return p.addresses == addresses;", "return !p.addresses.empty();",
     "double:A step of an attack with the graph*"),
    ("graph: with --deterministic, too", GRAPH, " || backend.deterministic()) return all;", ") return all;", "double:Deterministic runs*"),
    ("graph: one handle for all threads", GRAPH, "built[t] = build(backend, spec, rotated, fallback, handles[t], t,",
     "built[t] = build(backend, spec, rotated, fallback, handles[0], t,", "double:Plans are built*"),
    ("image gradient: the first part's step for all", CUDA + "convolution.cpp", "{step.x + at, step.eta + at, step.x_adv + at,",
     "{step.x, step.eta, step.x_adv,", "double:The gradient of more images*"),
    # CUDA: recordings and copies.
    ("a recording keeps old addresses", CUDA + "backend.cpp", "if (moves_ != backend_.moves_) {", "if (moves_ < 0) {",
     "double:A recording follows*"),
    ("a recording counts when it is made", CUDA + "backend.cpp", "    backend_.counters = before;\n    moves_", "    moves_",
     "double:A recording counts*"),
    ("a fetch does not wait for the work before it", CUDA + "backend.cpp", "check(cudaStreamWaitEvent(copies_, queued_, 0));", "",
     "double:A fetch brings*"),
    ("a full half is written again at once", CUDA + "backend.cpp", "check(cudaEventSynchronize(half->done));", "",
     "double:What is copied to the device*"),
    ("an overlapped message is not staged", MESSAGES, "(options.overlap || options.watch != nullptr || !options.ranks.takes_device_memory())",
     "!options.ranks.takes_device_memory()",
     "mpi_double:2"),
    ("a recorded pass below its lowest layer", "src/network/training_program.cpp", "piece.recording != nullptr && piece.lowest >= lowest;",
     "piece.recording != nullptr;", "double:A training pass that is replayed*"),
    # Slurm.
    ("a time limit is decided when the ranks have ended", SLURM, "    limit) dat_requeue 'the time limit is reached' ;;\n"
     "    preempted) dat_requeue 'preempted' ;;\n    back)", "    back)", "slurm:Decisions"),
    ("a cancelled job comes back", SLURM, "    echo ended\n", "    echo limit\n", "slurm:Decisions"),
    ("a preempted job just ends", SLURM, "\\ PreemptTime=[0-9]", "\\ PreemptTime=[a-z]", "slurm:Decisions"),
    ("earlier restarts are taken for new ones", SLURM, "-gt \"${SLURM_RESTART_COUNT:-0}\" ]", "-gt 0 ]", "slurm:Decisions"),
    ("a job comes back for ever", SLURM, "-ge \"${DAT_RESTARTS:-100}\" ]", "-ge 1000 ]", "slurm:Decisions"),
    ("a job told to stop comes back", SLURM, "      dat_stays=1\n", "", "slurm:Decisions"),
    ("a time limit overrules a stop for good", SLURM, "  [ \"$dat_stays\" -eq 0 ] || return\n", "", "slurm:Decisions"),
    ("USR1 before the program could take it ends the job", SLURM, "|| [ \"$dat_told\" -eq 1 ]", "|| false", "slurm:Decisions"),
    ("the whole array is requeued", SLURM, "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}", "$SLURM_ARRAY_JOB_ID}",
     "slurm:Decisions"),
    ("slurm: words as they are", SLURM_VERB, "if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return",
     "if (!plain.empty()) return", "slurm:Printed"),
    ("slurm: memory of one rank", SLURM_VERB, "memory.bytes * job.ranks_per_node", "memory.bytes", "slurm:Printed"),
    ("slurm: steps of one rank", SLURM_VERB, "mix_of(options, *splits.train), trainers);", "mix_of(options, *splits.train), 1);", "slurm:Printed"),
    ("slurm: one rank has the faults of several", PLANNED, "  one.faults = TrainOptions{}.faults;", "  // one.faults = TrainOptions{}.faults;", "slurm:Printed"),
    ("slurm: what several ranks are refused is not looked at", SLURM_VERB, "  require_ranks(options, plan, ranks);\n", "", "slurm:Printed"),
    ("slurm: messages of one rank", PLANNED, "reducer.memory(ranks) - reducer.memory(1)", "reducer.memory(1) - reducer.memory(1)", "slurm:Printed"),
    ("slurm: needs the CPU of the job", SLURM_VERB, '  options.math = "f32";\n', "", "slurm:Printed"),
    ("validate: the order of one rank's batch", PLANNED, "options.batch * ranks", "options.batch", "e2e:ranks"),
    ("slurm: a mix is a pool", SLURM_VERB, "mix_of(options, *splits.train)", "splits.train->size()", "slurm:Printed"),
    # Averages.
    ("ema: no warm-up", AVERAGED, "std::min(options.decay, (1.0 +", "std::max(options.decay, 0 * (1.0 +",
     "unit:[optimizer]"),
    ("ema: a step late", AVERAGED, "delta = done - options_.from;", "delta = step - options_.from;", "unit:[optimizer]"),
    ("swa: the newest counts as much as all others", AVERAGED, "/ static_cast<double>(taken + 1);", "/ 2;", "unit:[optimizer]"),
    ("swa: the epoch that averaging begins behind", AVERAGED, "delta > 0 && done %", "delta >= 0 && done %", "unit:[optimizer]"),
    ("an average that has begun follows the weights", AVERAGED, "taken_ > 0 ? 1 : 0;", "0;", "unit:[optimizer]"),
    ("averaging takes the place of the optimizer's step", AVERAGED,
     "double lr) { optimizer_->step(active, lr); }", "double) { (void)active; }", "unit:[optimizer]"),
    ("the average of perturbed weights", "src/train/update/weight_update.cpp",
     "  if (perturbation_ != nullptr) perturbation_->leave();\n  statistics_.update_model();\n  if (average_) average_->follow(step);\n",
     "  statistics_.update_model();\n  if (average_) average_->follow(step);\n  if (perturbation_ != nullptr) perturbation_->leave();\n",
     "step:perturbed weights, averaged"),
    ("the number of averaged weights is not state", AVERAGED, "static_cast<std::int64_t>(numbers.back()) : 0;", "0 : 0;",
     "unit:[optimizer]"),
    ("the average begins at zero", AVERAGE, "  if (!has_begun()) optimizer_.reset();\n", "", "step:*average"),
    ("averaged statistics begin at zero", AVERAGE, "  if (!has_begun()) average_statistics();\n", "", "step:exponential average"),
    ("averaged statistics are not restored", AVERAGE, "rebuilds_ || !has_begun()) return;", "true) return;", "unit:[trainer]"),
    ("averaged statistics differ from rank to rank", AVERAGE, "state.device(\"averaged running statistics\"",
     "if (false) state.device(\"averaged running statistics\"", "mpi:2"),
    ("the average keeps the statistics of the weights", AVERAGE, "    swap(model_.running_mean, statistics_, count);\n", "",
     "unit:[trainer]"),
    ("programs do not see the average", AVERAGE, "  ++model_.parameters.version;\n}\n\nvoid WeightAverage::save", "}\n\nvoid WeightAverage::save",
     "unit:[trainer]"),
    ("rebuilt statistics are kept for ever", AVERAGE, "if (optimizer_.changed()) rebuilt_ = false;", "", "unit:[trainer]"),
    ("rebuilt statistics are those of the last batch", PASS, "static_cast<float>(here / seen)", "1.0F",
     "step:stochastic average"),
    ("every batch counts the same in rebuilt statistics", PASS, "const double here = batch_.count + batch_.elsewhere;",
     "const double here = 1;", "step:stochastic average"),
    ("rebuilding counts batches", STATISTICS, "  ++model_.parameters.version;\n}\n\nvoid BatchStatistics::save",
     "  ++model_.batches_tracked, ++model_.parameters.version;\n}\n\nvoid BatchStatistics::save", "step:stochastic average"),
    ("figures of the average are the raw ones'", TRAINER, "      average->exchange();\n      averaged =", "      averaged =",
     "unit:[trainer]"),
    ("training goes on from the average", TRAINER, "      averaged = assessment_.run(options_.seed);\n      average->exchange();\n",
     "      averaged = assessment_.run(options_.seed);\n", "unit:[trainer]"),
    ("best.h5 of a part that was lost is taken", "src/checkpoint/checkpoint.cpp", "if (best_record_in(path.string()) == best) return true;",
     "if (best_record_in(path.string())) return true;", "e2e:best"),
    ("the best network before is not kept", "src/checkpoint/checkpoint.cpp", "if (before && before->step >= 0 && is_named(*before)) {",
     "if (false) {", "e2e:best"),
    ("an older best network is kept for ever", "src/checkpoint/checkpoint.cpp", "if (!best || !is_named(*best)) fs::remove(old, ignored);",
     "if (!best) fs::remove(old, ignored);", "e2e:best"),
    ("a best network that could not be written is a missing checkpoint", RUN_CHECKPOINTS, "  if (kind == Kind::step) {\n    unsaved_ = error;",
     "  unsaved_ = error;\n  if (kind == Kind::step) {", "e2e:files"),
    ("autofreeze: restored without thawing", "src/selector/autofreeze.cpp",
     "for (std::size_t l = 0; l < p_.size(); ++l) p_[l] = l < first ? 0.0 : 1.0;", "std::fill_n(p_.begin(), first, 0.0);",
     "unit:[selector]"),
    ("best.h5 is chosen by the raw weights", RUN, "options_.average == \"none\" ? \"raw\" : \"average\"", "\"raw\"", "e2e:average"),
    ("patience has one evaluation more", RUN, "best_.evaluations_since() >= options_.patience",
     "best_.evaluations_since() > options_.patience",
     "e2e:average"),
    ("patience begins anew with each part of a run", RUN, "beginning_.best, beginning_.since_best);", "beginning_.best, 0);", "e2e:average"),
    ("an average by another rule goes on", UPDATE, "rule->second != rule_ && ", "false && ", "unit:[trainer]"),
    ("statistics are made before there is an average", "src/train/update/weight_average.hpp", "rebuilds_ && has_begun() && !rebuilt_",
     "rebuilds_ && !rebuilt_", "unit:[trainer]"),
    ("an end by less patience has no figures", RUN, "if (stops_early() && evaluated_now()) break;", "if (stops_early()) break;", "e2e:average"),
    ("an end by less patience counts twice", RUN, "if (stops_early() && std::exchange(evaluation_due_, 1) == 0) best_.forget_evaluation();", "if (stops_early()) evaluation_due_ = 1;", "e2e:average"),
    ("a network begins with another's activation", "src/run/beginning.cpp", "require(was == after.text(row),",
     "require(true,", "e2e:export"),
    ("--initialize changes what was given", "src/run/beginning.cpp", "said.said.contains(key) && !given(key)",
     "said.said.contains(key)", "e2e:export"),
    ("a run that goes on asks the file again", "src/run/beginning.cpp", "if (!goes_on) config = config_of_source",
     "config = config_of_source", "e2e:export"),
    ("a recipe wins over the file", "src/options/bound.cpp", "if (this->origin(row->name) > origin) continue;",
     "if (this->origin(row->name) == Origin::command_line) continue;", "unit:[#test_config]"),
    ("a selector beside another's options", "src/options/table.cpp", "own < options.origin(choice.option)",
     "own < Origin::command_line", "unit:[#test_config]"),
    ("a former name is forgotten in files", "src/options/table.cpp", "row.name == name || std::find", "row.name == name && std::find",
     "unit:[options]"),
    ("a run goes on with another option", "src/run/beginning.cpp", "row.restart == Restart::fixed || (", "row.function || (", "e2e:restart"),
    ("two options that exclude each other", "src/options/table.cpp", "require(!options.holds(one) || !options.holds(other),",
     "require(true || !options.holds(other),", "unit:[#test_config]"),
    ("an evaluation that attacks nothing", "src/options/attack_words.cpp", "lower_case(word) != \"none\"", "true",
     "unit:[#test_config]"),
    ("clean logits that no attack asks for", "src/train/plan/goal.cpp", "  if (!climbs_goal(options.attack)) goal = {.spread = goal.spread};\n",
     "", "unit:[trainer]"),
    ("AWP keeps images side by side", "src/train/learner/weight_perturbation.cpp", "at += whole_groups(floats);", "at += floats;",
     "unit:[trainer]"),
    ("an early end is no end", "src/run/beginning.cpp", " || checkpoint->integers[\"stopped_early\"] != 0)", ")", "e2e:average"),
    ("eval takes the raw weights", "src/replica/model_state.cpp", "return wanted != \"raw\" &&", "return wanted == \"average\" &&",
     "e2e:average"),
    ("eval takes statistics of other weights", "src/replica/model_state.cpp", "complete = !rebuilt ||", "complete = !rebuilt || true ||",
     "e2e:average"),
    # The model of a step.
    ("split: trainers attack, too", SPLIT, "    of_trainer.attack = 0;\n", "", "unit:[forecast]"),
    ("split: all generators have weights from one message", SPLIT, "version = versions * link.seconds(weights)", "version = std::min(versions, 1.0) * link.seconds(weights)",
     "unit:[forecast]"),
    ("split: images of 32 pixels", SPLIT, "4.0 * 3 * calibration.image_size * calibration.image_size", "4.0 * 3 * 32 * 32", "unit:[forecast]"),
    ("split: nobody waits for whole micro-batches", SPLIT, "images_of(ceil_of(parts, generators)) * an_image", "result.attacking", "unit:[forecast]"),
    ("split: more generators than there is work for", SPLIT, "generators <= under_way(generators)", "generators <= 1000 * under_way(generators)",
     "unit:[forecast]"),
    ("split: ranks of a node have a link each", SPLIT, ".bandwidth = cluster.between.bandwidth / cluster.ranks_per_node", ".bandwidth = cluster.between.bandwidth", "unit:[forecast]"),
    ("auto: the others are not told the number", "src/run/split.cpp", "  world.broadcast(&generators, sizeof generators);\n", "", "e2e:generators"),
    ("auto: all layers where no budget is named", "src/run/split.cpp", "if (o.budget == 0) return default_budget(layers);", "if (o.budget == 0) return {};", "e2e:generators"),
    ("auto: attacks are as long as in the calibration", "src/run/split.cpp", "calibration.attack *=", "calibration.attack += 0 *", "e2e:generators"),
    ("generators: rounded weights are cut off", "src/train/generators/version_numbers.hpp", "Stored<BFloat16>::from);", "[](float x) { return BFloat16{static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16U)}; });", "unit:[generators]"),
    ("generators: of an answer, nobody notes when it was begun", GENERATORS + "orders.cpp", "now - answer.since, now}", "now - answer.since - 1e6, now}", "e2e:generators"),
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
    ("forecast: gathered messages are decoded once", GATHER, ".decoded = ranks}", ".decoded = 1}", "unit:[forecast]"),
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
    ("calibration: parts may exceed the whole", "src/forecast/calibration.cpp",
     "backward * c.backward_passes <= c.backward *", "backward <= c.backward *", "unit:[forecast]"),
    ("calibration: names are printed as they are", "src/forecast/calibration.cpp", "return c > 0x20 && c < 0x7f;",
     "return c < 0x7f;", "unit:[forecast]"),
    ("byzantine: salts are not looked at", "src/byzantine/digest.cpp",
     "{bytes_of(salt), bytes_of(root)}",
     "{bytes_of(root)}", "unit:[byzantine]"),
    ("byzantine: a root does not count its elements", "src/byzantine/digest.cpp",
     "  hash.add(&elements, sizeof elements);\n",
     "", "unit:[byzantine]"),
    ("byzantine: the last leaf as long as the others", "kernels/sha256.hpp",
     "const int count = left < kLeaf ? static_cast<int>(left) : kLeaf;",
     "const int count = kLeaf;", "unit:[byzantine]"),
    ("byzantine: one secret for all steps", "src/byzantine/secret.cpp",
     "bytes_of(key_), bytes_of(step), ",
     "bytes_of(key_), ", "unit:[byzantine]"),
    ("byzantine: a validator may be its own target", "src/byzantine/draw.cpp",
     "return rank != *validator;",
     "return rank >= 0;", "unit:[byzantine]"),
    ("byzantine: validators are targets, too", "src/byzantine/draw.cpp",
     "if (contributed[static_cast<std::size_t>(rank)] != 0) targets",
     "targets", "unit:[byzantine]"),
    ("byzantine: a target for two", "src/byzantine/draw.cpp",
     "      std::erase(targets, target);\n",
     "", "unit:[byzantine]"),
    ("byzantine: what is sent is believed", "src/byzantine/commitments.cpp",
     "      complaints |= Disputes::bit(rank);\n",
     "      complaints |= 0;\n", "unit:[byzantine]"),
    ("byzantine: what is shown is believed", "src/byzantine/commitments.cpp",
     "accuse(by, rank, Rule::commitment, true);",
     "return data;", "unit:[byzantine]"),
    ("byzantine: one dispute is enough", "src/byzantine/commitments.cpp",
     "if (disputes.count(name(one)) > options_.faults)",
     "if (disputes.count(name(one)) > 0)", "unit:[byzantine]"),
    ("byzantine: who complains about all stays", "src/byzantine/commitments.cpp",
     "of != 0 && disputes.count(name(by), of) > options_.faults",
     "false", "unit:[byzantine]"),
    ("byzantine: what was shown is not used", "src/byzantine/commitments.cpp",
     "      if (by == me_) work_.replace(rank, shown);\n",
     "", "unit:[byzantine]"),
    ("byzantine: shares of the randomness are not looked at", "src/byzantine/randomness.cpp",
     "commitment(opening.salt_of_share, opening.share) != committed[ranks + 1]",
     "false", "unit:[byzantine]"),
    ("byzantine: numbers are not looked at", "src/byzantine/randomness.cpp",
     "commitment(opening.salt_of_numbers, root_of_numbers({numbers, count_})) != committed[ranks]",
     "false", "unit:[byzantine]"),
    ("byzantine: claims are believed", "src/byzantine/claims.cpp",
     "      accused |= Disputes::bit(static_cast<int>(rank));\n",
     "      accused |= 0;\n", "unit:[byzantine]"),
    ("byzantine: who accuses is believed", "src/byzantine/claims.cpp",
     "const bool lied = !same(said, right);",
     "const bool lied = true;", "unit:[byzantine]"),
    ("byzantine: the sum of claims is not looked at", "src/byzantine/claims.cpp",
     "return !(std::abs(total) / weight <= 8 / std::sqrt(3.0) * bound);",
     "return false;", "unit:[byzantine]"),
    ("byzantine: who aggregates is believed", "src/byzantine/claims.cpp",
     "if (!work_.aggregated(part, shown_, unfinished)) return accuse(-1, part, Rule::aggregate, true);",
     "(void)work_.aggregated(part, shown_, unfinished);", "unit:[byzantine]"),
    ("byzantine: what is cut off is not looked at", "src/byzantine/claims.cpp",
     "if (unfinished_[j] != 0) return true;",
     "", "unit:[byzantine]"),
    ("byzantine: findings are not looked at", "src/byzantine/validation.cpp",
     "if (fits(found, found[parts])) return;",
     "return;", "unit:[byzantine]"),
    ("byzantine: who finds is believed", "src/byzantine/validation.cpp",
     "const bool lied = !fits(",
     "const bool lied = true || !fits(", "unit:[byzantine]"),
    ("byzantine: numbers are not done once more", "src/byzantine/validation.cpp",
     "return findings == root_of_findings(check.numbers, check.claims);",
     "return (void)findings, (void)check, true;", "e2e:byzantine"),
    ("byzantine: validators count in the gradient", "src/byzantine/protocol.cpp",
     "    weights_[static_cast<std::size_t>(rank_of(check.validator))] = 0;\n",
     "    (void)check;\n", "unit:[byzantine]"),
    ("byzantine: done once more with the weights of now", "src/train/protocol/guard.cpp",
     "  kept_.exchange();\n  const int units",
     "  const int units", "e2e:byzantine"),
    ("byzantine: of a target, the first micro-batch alone", "src/train/protocol/guard.cpp",
     "for (int unit = 0; unit < units; ++unit) {",
     "for (int unit = 0; unit < 1; ++unit) {", "e2e:byzantine"),
    ("byzantine: the state is not saved", "src/train/trainer.cpp",
     "  if (guard_) all.push_back(guard_.get());\n",
     "", "e2e:byzantine"),
]

# Why a survivor is no gap in the tests.
EXPLAINED = {
    "images that an attack has left out keep their logits": "those of the iterate that broke them, which is the one that is "
                                                            "confirmed",
    "warm start: room for samples that come once": "memory behind an array: an assertion and AddressSanitizer see it",
}


def say(text):
    print(text, flush=True)


def give_up(text):
    say(f"tests/campaign/mutations.sh: error: {text}")
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
        give_up(f"'{name}' fits {path} {found} times, not once; adapt it in tests/campaign/mutations.py")
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
        if folder in ("src", "include", "jobs", "kernels", "CMakeLists.txt"):
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


TARGET = {"step": "dat_hpc", "e2e": "dat_hpc", "slurm": "dat_hpc", "unit": "dat_tests", "mpi": "dat_mpi_tests",
          "planted": "dat_planted_tests"}
CUDA_TARGET = {"double": "dat_tests_double", "mpi_double": "dat_mpi_tests_double"}


def on_double(mutation):
    return mutation[4].split(":")[0] in CUDA_TARGET


def there_is_a_double():
    """Whether the build found the headers of CUDA and cuDNN."""
    return b"dat_tests_double" in read(f"{BUILD}/build.ninja")


def command(test):
    kind, which = test.split(":", 1)
    python = [sys.executable, "-B"]
    return kind, {
        "step": lambda: [*python, f"{TREE}/tests/outside/step.py", f"{BUILD}/dat_hpc", "--stop-at-first", "--only",
                         *which.replace(", ", "\0").replace(",", "\n").replace("\0", ", ").split("\n")],
        "unit": lambda: [f"{BUILD}/tests/dat_tests", "--filenames-as-tags", which],
        "mpi": lambda: ["mpirun", "-np", which, f"{BUILD}/tests/dat_mpi_tests"],
        "planted": lambda: ["mpirun", "-np", which, f"{BUILD}/tests/dat_planted_tests"],
        "double": lambda: [f"{BUILD}/tests/dat_tests_double", which],
        "mpi_double": lambda: ["mpirun", "-np", which, f"{BUILD}/tests/dat_mpi_tests_double"],
        "e2e": lambda: [*python, f"{TREE}/tests/e2e/{which}.py", f"{BUILD}/dat_hpc", "--failfast"],
        "slurm": lambda: [*python, f"{TREE}/tests/cli/slurm.py", f"{BUILD}/dat_hpc", TREE, which, "--failfast"],
    }[kind]()


def red(test, limit_s):
    """What a test says where it fails, or is not done after limit_s; None where it passes."""
    kind, words = command(test)
    environment = os.environ | {"OMP_NUM_THREADS": "2" if kind in ("unit", "double") else "1", "OMP_WAIT_POLICY": "passive"}
    if kind in CUDA_TARGET:
        environment["DAT_TEST_DEVICE"] = "cuda"
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


def measure(suite):
    """The suite without a mutation. Returns, by kind of test, after how many seconds one hangs."""
    limits = {}
    for test in suite:
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
        suite = (CUDA_SUITE if on_double(mutation) else []) + SUITE
        for test in [likely, *[test for test in suite if test != likely]]:
            build([(TARGET | CUDA_TARGET)[test.split(":")[0]]], f"'{name}'")
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
    double = there_is_a_double()
    if not double:
        left_out = [m for m in chosen if on_double(m)]
        say(f"no headers of CUDA and cuDNN: {len(left_out)} mutations of the CUDA backend are left out")
        chosen = [m for m in chosen if not on_double(m)]
    found = done(program, tests)
    if "none" not in found:
        say("without a mutation:")
        build(sorted({*TARGET.values(), "dat_probe", *(CUDA_TARGET.values() if double else [])}), "the program without a mutation")
        found["none"] = keep({"program": program, "tests": tests, "key": "none", "caught": None,
                              "limits": measure(SUITE + (CUDA_SUITE if double else []))})
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
