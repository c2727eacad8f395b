#include "dat/attack.hpp"

#include <functional>

#include "dat/loss.hpp"
#include "options/machine.hpp"
#include "options/train/groups.hpp"
#include "options/values/hints.hpp"

namespace dat {

namespace {

/// Returns whether the network runs with batch statistics in an attack unless the user says otherwise.
bool on_batch_statistics(const std::string& attack) {
  return attacks().at(attack)({.norm = BallNorm::l2})->prefers_batch_statistics();
}

/// Returns whether the attack of a loss starts beside the image.
bool starts_nearby(const std::string& loss) { return losses().at(loss)({})->goal().spread > 0; }

/// "; did you mean '--loss trades --awp-gamma 0.005'?" for trades-awp and the like.
std::string loss_advice(const std::string& word) {
  std::string loss = lower_case(word);
  const std::size_t awp = loss.find("awp");
  if (awp == std::string::npos) return "";
  loss.erase(awp);
  loss.erase(loss.find_last_not_of("-_+ ") + 1);
  const std::string of = loss.empty() ? "trades" : nearest(loss, losses().names());
  return of.empty() ? "" : "; did you mean '--loss " + of + " --awp-gamma 0.005'?";
}

/// Refuses options that a loss excludes which compares with the images where the attack begins, or with its logits
/// there.
void refuse_kept_starts(const TrainOptions& o) {
  const StartKept kept = losses().at(o.loss)({.detach = o.detach_reference})->goal().kept;
  if (kept == StartKept::nothing) return;
  require(!o.attack.any(std::not_fn(climbs_goal)) && !o.eps.any([](double eps) { return eps == 0; }), ExitCode::usage,
          "--loss ", o.loss, " compares attacked images with those where the attack began, which --attack ",
          listing(attacks().readers("attack-start")), " with an --eps above 0 have; choose these for all epochs");
  const bool logits = kept == StartKept::logits;
  for (const auto& [given, option] :
       {std::pair(o.generators != 0, "--generators, whose attacks begin on other ranks"),
        std::pair(o.stale_attack > 0, "--stale-attack, whose attacks begin a step before"),
        std::pair(o.awp_gamma > 0, "--awp-gamma, which keeps the attacked and the clean images of a step alone"),
        std::pair(logits && o.attack_stop >= 0, "--attack-stop, with detach; take one of these alone"),
        std::pair(logits && o.staleness > 0, "--staleness, with detach: its logits are those of old weights")})
    require(!given, ExitCode::usage, "--loss ", o.loss, " does not go with ", option, "; leave one of them off");
}

void refuse_staleness(const TrainOptions& o) {
  for (const auto& part : o.attack_steps.parts())
    require(o.stale_attack <= part.value, ExitCode::usage, "--stale-attack ", o.stale_attack, " is more than the ",
            part.value, " iterations of --attack-steps");
}

/// Refuses changes by epoch, where more than the attack of the moment depends on the value.
void refuse_changes(const TrainOptions& o) {
  require(!o.attack.changes() || o.attack.last() != "none", ExitCode::usage,
          "--attack may begin with none, but not end with it: evaluations take the last attack; leave that off");
  for (const auto& part : o.eps.parts())
    for (const double eps : {part.value, part.end}) require_in_range("--eps", norm_from(o.norm), eps);
  const auto is_none = [](const std::string& attack) { return attack == "none"; };
  const auto is_zero = [](double eps) { return eps == 0; };
  const bool rests = (o.attack.changes() && o.attack.any(is_none)) || o.eps.any(is_zero);
  require(!rests || (o.warm_start == 0 && o.stale_attack == 0 && o.staleness == 0 && o.generators == 0),
          ExitCode::usage,
          "an epoch without an attack, or with --eps 0, does not go with --warm-start, which keeps perturbations in "
          "parts of eps, nor with --stale-attack, --staleness and --generators, which take attacks in parts; begin "
          "with a small --eps");
  require((!o.attack.changes() && !o.attack_steps.changes()) || (o.staleness == 0 && o.generators == 0),
          ExitCode::usage,
          "--staleness and --generators deal the iterations of an attack, of which there are as many in all epochs: "
          "--eps and --alpha may change by epoch there, but not --attack and --attack-steps");
}

void add_ball(TrainTable& table) {
  using O = TrainOptions;
  table.add("--attack", &O::attack, "how training images are perturbed", one_attack());
  table.add("--attack-steps", &O::attack_steps, "gradient steps of " + listing(attacks().readers("attack-steps")),
            kSteps);
  table.add("--norm", &O::norm,
            "size of a perturbation: its largest entry (linf), or the root of its sum of squares (l2)",
            one_of(norm_names()));
  table.add("--eps", &O::eps, "radius; pixels are in [0, 1]; l2: e.g. 0.5", kRadius);
  table.rule(refuse_changes);
  table.not_together({"norm", {"l2"}}, {"eps", {"8/255"}},
                     "--norm l2 with --eps 8/255, the default of linf, would hardly perturb an image; give its radius, "
                     "such as --eps 0.5");
  table.add("--alpha", &O::alpha,
            "step size; auto: " + own_values(attacks(), "alpha") +
                ". It, --attack, --attack-steps and --eps may change by epoch: 1,2@12 (2 from epoch 12 on), "
                "4/255..8/255@0-10 (growing)",
            kAutoRadius);
}

void add_shape(TrainTable& table) {
  using O = TrainOptions;
  table
      .add("--attack-stop", &O::attack_stop,
           "early stop: an image takes at most N steps while it is misclassified, then leaves the attack",
           {.low = 0, .automatic = -1, .word = "off"})
      .counts_with("attack", attacks())
      .works_with("norm", {"linf"})
      .cites("Zhang et al., \"Attacks Which Do Not Kill Training Make Adversarial Learning Stronger\", ICML 2020");
  table.not_together({"attack-stop"}, {"attack-bn", {"train"}},
                     "--attack-stop does not work with --attack-bn train: where batch statistics tie the images "
                     "together, none can leave; take --attack-bn eval");
  table.add("--attack-bn", &O::attack_bn,
            "batch norm during the attack: running (eval) or batch (train) statistics; auto: " +
                listing(attacks().where(on_batch_statistics)) + " train, the others eval",
            one_of({"auto", "eval", "train"}));
  add_attack_precision(table);
  table
      .add_switch("DAT_ATTACK_BATCH", "attack-batch", &O::attack_batch,
                  "images in a pass of the attack; auto: the micro-batch", kAutoCount)
      .asked([](const O& o) { return o.attack_batch != 0 && o.attack_batch != o.micro_batch; });
}

void add_savings(TrainTable& table) {
  using O = TrainOptions;
  table
      .add("--warm-start", &O::warm_start,
           "start from the perturbation of the epoch before (ATTA), at random every N epochs; 0: always at random",
           kCount)
      .cites("Zheng et al., \"Efficient Adversarial Training with Transferable Adversarial Examples\", CVPR 2020");
  table.not_together(
      {"warm-start"}, {"attack", {"none"}},
      "--warm-start {warm-start} has no perturbation to start from with --attack none; choose an attack");
  table.not_together({"warm-start"}, {"norm", {"l2"}},
                     "--warm-start keeps a byte per pixel in units of eps/127, which is too coarse for the small "
                     "pixels of --norm l2; leave it off");
  const std::string stale =
      "--stale-attack works with --attack " + alternatives(attacks().readers("stale-attack")) +
      " and --attack-bn eval, without --attack-stop and without --warm-start; leave it off, or those";
  table
      .add("--stale-attack", &O::stale_attack,
           "first iterations of the next step's attack on the weights before the update, while gradients are summed",
           kCount)
      .counts_with("attack", attacks(), stale)
      .bound_to_ranks();
  for (const Choice& other : {Choice{"attack-bn", {"train"}}, {"attack-stop"}, {"warm-start"}})
    table.not_together({"stale-attack"}, other, stale);
  table.rule(refuse_staleness);
  table.add("--staleness", &O::staleness,
            "attacks run on weights of up to N steps before, by a rule that is the same on any ranks; 0: on those of "
            "now; newer ones from iteration to iteration with --attack " +
                alternatives(attacks().readers("staleness")),
            {.low = 0, .high = kMostVersions});
  table.not_with(
      "staleness",
      {{{"attack-bn", {"train"}}, "--attack-bn train: an attack's passes would count as those of now"},
       {{"warm-start"}, "--warm-start: its perturbations are those of now"},
       {{"stale-attack"}, "--stale-attack, which begins attacks on other weights"},
       {{"bn-statistics", {"local"}}, "--bn-statistics local: statistics of steps before are kept once for all ranks"},
       {{"verify"}, "--verify: the weights of the attack are gone"},
       {{"byzantine"}, "--byzantine: the weights of the attack are gone when the work is done once more"},
       {{"attackers"}, "--attackers: their attack would have to be weakened on weights of steps before"}});
  table.not_together({"staleness"}, {"attack", {"none"}},
                     "--staleness is about attacks, and --attack none makes none; leave it off");
}

void add_start(TrainTable& table) {
  using O = TrainOptions;
  table.add("--attack-start", &O::attack_start,
            "where " + listing(attacks().readers("attack-start")) +
                " start: in the ball (uniform), or beside the image (gaussian, standard deviation 0.001); auto: "
                "gaussian with " +
                listing(losses().where(starts_nearby)),
            one_of({"auto", "uniform", "gaussian"}));
  const std::vector<std::string> norms = {"linf"}, uniform = {"uniform"};
  const std::string only = "settings of --attack-start uniform work with --attack " +
                           alternatives(attacks().readers("attack-start")) + " and --norm linf; leave them off";
  table
      .setting("attack-start", "radius", uniform, &O::start_radius,
               "K: U(-K eps, K eps) in each pixel; 2, with --project off: N-FGSM", kCount)
      .works_with("attack", attacks().readers("attack-start"), only)
      .works_with("norm", norms, only);
  table
      .setting("attack-start", "box", uniform, &O::start_box,
               "cut to the box of images before the gradient is taken; auto: on with another radius or --project off",
               one_of({"auto", "on", "off"}))
      .asked([](const O& o) { return o.start_box == "on"; })
      .works_with("attack", attacks().readers("attack-start"), only)
      .works_with("norm", norms, only);
  table
      .add("--project", &O::project, "steps end in the ball (on), or in the box of images alone (off)",
           one_of({"on", "off"}))
      .counts_with("attack", attacks())
      .works_with("norm", norms);
  table.not_with("warm-start",
                 {{{"attack-start:radius"},
                   "a radius of --attack-start: what it keeps is in the ball, and its first starts with it"},
                  {{"attack-start:box"}, "a box of --attack-start: what it keeps of an attack is in the box as it is"},
                  {{"project", {"off"}}, "--project off: what it keeps is in the ball"}});
}

void add_loss(TrainTable& table) {
  using O = TrainOptions;
  table.add("--loss", &O::loss, "what is minimised", {.choices = losses().names(), .advice = loss_advice});
  table
      .add("--lambda", &O::lambda,
           "weight of the loss on clean images; auto: " + own_values(attacks(), "lambda") +
               " (DAT), else, or with --noise, 0",
           kAutoWeight)
      .asked([](const O& o) { return o.lambda > 0; })
      .counts_with("loss", losses(),
                   "--lambda works with --loss " + alternatives(losses().readers("lambda")) +
                       ", not with {loss}, which has --beta; leave it off");
  table
      .add("--beta", &O::beta, "weight of the term of two predictions; auto: " + own_values(losses(), "beta"),
           kAutoWeight)
      .asked([](const O& o) { return o.beta > 0; })
      .counts_with("loss", losses());
  table.setting("loss", "detach", losses(), &O::detach_reference,
                "what attacked predictions are compared with is a constant, and costs no pass");
  table.rule(refuse_kept_starts);
  table
      .add("--label-smoothing", &O::label_smoothing, "part of the labels that all classes share in cross-entropies",
           kDecay)
      .counts_with("loss", losses());
}

/// Refuses a perturbation of weights that ends: code that asks for it looks at the end of the run.
void refuse_ending_perturbation(const TrainOptions& o) {
  require(o.awp_gamma > 0 || !o.awp_gamma.changes(), ExitCode::usage,
          "--awp-gamma may begin with 0, but not end with it; leave the end off");
}

void add_weight_perturbation(TrainTable& table) {
  using O = TrainOptions;
  table
      .add("--awp-gamma", &O::awp_gamma,
           "adversarial weight perturbation: train where weights have moved by this part of their norm; 0: not; "
           "0,0.005@9: from epoch 9 on, counted from 0, the warm-up included",
           kCount)
      .cites("Wu, Xia, Wang, \"Adversarial Weight Perturbation Helps Robust Generalization\", NeurIPS 2020");
  for (const Choice& other : {Choice{"stale-attack"}, {"mask", {"per_worker"}}})
    table.not_together({"awp-gamma"}, other,
                       "--awp-gamma trains at other weights than those attacked, the same layers on all ranks; it does "
                       "not work with --stale-attack or --mask per_worker; leave one of them off");
  table.rule(refuse_ending_perturbation);
  table
      .add("--awp", &O::awp, "weights move along the gradient of all ranks, or those of each rank along its own",
           one_of({"global", "local"}))
      .works_with("awp-gamma", {}, "--awp says more of --awp-gamma; add that")
      .bound_to_ranks();
}

}  // namespace

void add_attack(TrainTable& table) {
  table.group("Attack");
  add_ball(table);
  add_shape(table);
  add_savings(table);
  add_start(table);
  table.group("Loss");
  add_loss(table);
  add_weight_perturbation(table);
  add_noise(table);
}

void settle_attack(TrainOptions& o) {
  // Values that follow from other options are written down: the resolved configuration has no 'auto' that hides a
  // number.
  const BallNorm norm = norm_from(o.norm);
  const std::vector<int> epochs = o.epochs_of_change();
  bool batch_statistics = true;
  for (const int epoch : epochs) {
    const AttackSettings now = o.in_epoch(epoch);
    const auto attack_of = [&](double alpha) {
      return attacks().at(now.attack)({.norm = norm, .eps = now.eps, .alpha = alpha, .steps = now.attack_steps});
    };
    // A step of the attack's own may be longer than the images are wide.
    if (now.alpha != attack_of(0)->alpha()) require_in_range("--alpha", norm, now.alpha);
    const auto attack = attack_of(now.alpha);
    batch_statistics = batch_statistics && attack->prefers_batch_statistics();
    // A step size of the attack's own follows every change.
    if (epochs.size() == 1) o.alpha = attack->alpha();
  }
  const auto loss = losses().at(o.loss)({.beta = o.beta});
  const bool divergence = loss->goal().reference;
  if (o.attack_bn == "auto") o.attack_bn = batch_statistics && !divergence && o.noise == 0 ? "train" : "eval";
  require(o.generators == 0 || o.attack_bn == "eval", ExitCode::usage, "--generators does not go with --attack ",
          o.attack.last(), ", which runs on batch statistics unless --attack-bn eval says otherwise; add that");
  require(!divergence || (o.attack_bn == "eval" && o.attack_stop < 0), ExitCode::usage, "the attack of --loss ", o.loss,
          " climbs the divergence from the clean predictions, which works with --attack-bn eval and without ",
          "--attack-stop; leave these off");
  if (o.attack_start == "auto") o.attack_start = loss->goal().spread > 0 ? "gaussian" : "uniform";
  const bool published = o.start_radius != 1 || o.project == "off";
  if (o.start_box == "auto") o.start_box = published && o.attack_start == "uniform" ? "on" : "off";
  o.beta = loss->beta();
  if (o.lambda < 0) o.lambda = losses().reads(o.loss, "lambda") && o.noise == 0 ? clean_weight_of(o.attack) : 0;
  if (o.attack_batch == 0) o.attack_batch = o.micro_batch;
  require(o.micro_batch == 0 || o.attack_batch <= o.micro_batch, ExitCode::usage, "DAT_ATTACK_BATCH=", o.attack_batch,
          " is more than the micro-batch of ", o.micro_batch, " images; choose at most that");
}

}  // namespace dat
