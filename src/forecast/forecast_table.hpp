#pragma once

#include <string>

#include "dat/options/forecast.hpp"
#include "forecast/calibration.hpp"

namespace dat {

/// Error(usage): a bandwidth or a codec that nobody knows; a wrong word must not cost the minute of a calibration.
void require_known_words(const ForecastOptions& options);
/// The calibration, into the folder of --out. Error(io).
void write_calibration(const ForecastOptions& options, const Calibration& calibration);

/// Forecast of a step with other ranks, networks, codecs and budgets, as a table for people: a model, made from a
/// calibration. Writes forecast.json and pictures into the folder of --out, where it is given; a message on standard
/// error says where there is no gnuplot. Error(usage): the calibration has not measured what is asked for. Error(io).
[[nodiscard]] std::string forecast_table(const ForecastOptions& options, const Calibration& calibration);

}  // namespace dat
