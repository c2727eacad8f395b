#pragma once

#include <functional>
#include <string>
#include <vector>

#include "options/train/parse.hpp"

namespace dat {

/// A training of a sweep.
struct SweepPoint {
  std::string name;                ///< "lr=0.05,seed=1": what it has of its own, and its folder below --out
  std::vector<std::string> words;  ///< the options of its own, as words of a command line: "--lr=0.05", "--out=DIR"
};

/// All combinations of the values in "NAME=VALUE,VALUE NAME=VALUE,VALUE", those of the last name change first. Values
/// that have commas are separated by semicolons: "batch=512,128@12;256". `out`: the folder of the sweep. Error(usage):
/// the text is none, --out is in it, two points would share a folder, or there are more than kMostPoints.
[[nodiscard]] std::vector<SweepPoint> sweep_points(const std::string& sweep, const std::string& out);
inline constexpr std::size_t kMostPoints = 1000;  // of an array of Slurm's, where nobody has set MaxArraySize

/// A training of a sweep, with all of its options.
struct SweptTraining : TrainOrder {
  std::string name;                ///< SweepPoint::name
  std::vector<std::string> own;    ///< SweepPoint::words
  std::vector<std::string> words;  ///< all options, its own at the end, as words of a command line
};

/// The trainings of a sweep. `common`: the words of the options that all of them have, without --out. Error(usage): an
/// option of the sweep is among them, two trainings have equal options, or one is refused.
[[nodiscard]] std::vector<SweptTraining> sweep_trainings(const std::string& sweep, const std::string& out,
                                                         const std::vector<std::string>& common);

/// Does a point's work; the message of an Error gets the name of the point before it.
void at_point(const SweptTraining& point, const std::function<void()>& work);

}  // namespace dat
