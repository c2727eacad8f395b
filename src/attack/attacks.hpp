#pragma once

#include <type_traits>

#include "dat/attack.hpp"

namespace dat {

[[nodiscard]] std::unique_ptr<Attack> make_none(const AttackOptions&);
[[nodiscard]] std::unique_ptr<Attack> make_fgsm(const AttackOptions&);
[[nodiscard]] std::unique_ptr<Attack> make_pgd(const AttackOptions&);
[[nodiscard]] std::unique_ptr<Attack> make_smooth_pgd(const AttackOptions&);
[[nodiscard]] std::unique_ptr<Attack> make_apgd_ce(const AttackOptions&);
[[nodiscard]] std::unique_ptr<Attack> make_apgd_dlr(const AttackOptions&);
[[nodiscard]] std::unique_ptr<Attack> make_apgd_t(const AttackOptions&);
[[nodiscard]] std::unique_ptr<Attack> make_fab(const AttackOptions&);
[[nodiscard]] std::unique_ptr<Attack> make_fab_t(const AttackOptions&);
[[nodiscard]] std::unique_ptr<Attack> make_square(const AttackOptions&);

/// Starts an attack: eta = objective.start, or where that is null a random eta, in the ball or beside the image
/// (Objective::spread); x_adv = x + eta. A start in the ball is U(-eps, eps) in each pixel, cut to the box of images
/// where `in_box`; or start_in_l2.
void start(Objective& objective, BallNorm norm, double eps, bool in_box = false);
/// Leaves objective.first_images, before the first gradient, and after it objective.first_logits, where they are
/// wanted.
void keep_first_images(const Objective& objective);
void keep_first_logits(const Objective& objective);
/// The radius to which the steps of an attack are cut back: eps, or none.
[[nodiscard]] float step_radius(const AttackOptions& options);
/// Makes an iteration of PGD in the L-infinity ball with the gradient that is in objective.dx.
void pgd_step(Objective& objective, float alpha, float eps);

/// The number of classes that a targeted attack goes through: nine, those with the largest logits beside the first, or
/// with fewer than ten classes all others. Error(usage): there is one class.
[[nodiscard]] int targets_of(const AttackOptions& options);
/// Attack::notice() of a targeted attack with fewer than nine targets.
[[nodiscard]] std::string targets_notice(int classes);

/// Attacks that look for a misclassified image, and draw random numbers of their own.
enum class Searching : std::uint8_t { apgd_ce = 1, apgd_dlr, apgd_t, fab, fab_t, square };

// The loops of these attacks are templates of the objective P: Objective, or in tests one in double precision, with the
// same members, and an `each` for its device.

template <class P>
using RealOf = std::remove_pointer_t<decltype(P::x_adv)>;

/// The key of all draws of this run of the attack, beside objective.purpose, a sample's number and an iteration's.
template <class P>
[[nodiscard]] std::uint64_t run_key(const P& o, Searching attack) {
  const Philox4 words = random_words(o.seed, Purpose::attack_run, o.time, static_cast<std::uint64_t>(attack),
                                     static_cast<std::uint32_t>(o.run));
  return std::uint64_t{words.v[0]} << 32 | words.v[1];
}

/// Hands out the objective's scratch memory: arrays the size of the images, and then one more of these for all that is
/// smaller, in pieces of `each` numbers per image.
template <class P>
class Scratch {
 public:
  explicit Scratch(const P& o, int images = 0) : o_(o), small_(o.scratch + images * o.scratch_stride) {}
  [[nodiscard]] RealOf<P>* images() { return o_.scratch + next_++ * o_.scratch_stride; }
  [[nodiscard]] RealOf<P>* small(std::int64_t each = 1) {
    RealOf<P>* const here = small_;
    small_ += each * o_.n;
    return here;
  }
  /// All that is left: the last piece.
  [[nodiscard]] RealOf<P>* rest() const { return small_; }

 private:
  const P& o_;
  RealOf<P>* small_;
  int next_ = 0;
};

}  // namespace dat
