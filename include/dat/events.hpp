#pragma once

// Events of a run beside its steps and evaluations. An event is a struct with
// - `kKind`: "kind" of its lines in metrics.jsonl;
// - static `fields(self, field)`, which calls field(name, value) for each value of a line, in their order. A value that
//   depends on others stands after them;
// and, where there is something to say,
// - `sentence()`: the sentence for people when it happens; with `kWarns`, as a warning;
// - `lasts()`: whether it stays true when the run goes back to a checkpoint from before; without: no;
// - static `summary(events)`: lines of SUMMARY.txt about all of them;
// - `kTable`: a group of results.h5 with a dataset of each field.
// Writer, reader, tables and summary follow from the struct and from its line of events.def.

#include "dat/events/accusation.hpp"
#include "dat/events/attacks.hpp"
#include "dat/events/ban.hpp"
#include "dat/events/corruption.hpp"
#include "dat/events/left.hpp"
#include "dat/events/overflow.hpp"
#include "dat/events/setback.hpp"
#include "dat/events/straggler.hpp"
