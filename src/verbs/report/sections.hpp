#pragma once

#include <string>

#include "verbs/report/page.hpp"
#include "verbs/results/comparison.hpp"

namespace dat {

// Sections of a report, each in a file of its own.

/// Accuracies of each row, clean and under its strongest attack, beside what its recipe's publication has.
void add_headline(Page& page, const Comparison& comparison);
/// Pictures of all runs beside each other, where there are several, and of each one. What gnuplot would draw is
/// replaced by a sentence where there is none.
void add_curves(Page& page, const Comparison& comparison);
/// What happened in a run, in the order of its steps, and what it has said beside its progress.
void add_events(Page& page, const Subject& run);
/// Classes, confusion and some images of an evaluation.
void add_evaluation_pictures(Page& page, const Subject& evaluation);
/// Program, machines, command and data of all runs and evaluations, and the options of each run.
void add_provenance(Page& page, const std::vector<const Subject*>& subjects);

/// Some images of an evaluation before and after its attack, where it has left them.
void add_image_grid(Page& page, const std::string& evaluation_file);

}  // namespace dat
