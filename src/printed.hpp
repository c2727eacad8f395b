#pragma once

namespace dat {

/// Has everything that is written to std::cout and std::cerr from now on pass through without_controls(). What a
/// library of C prints (printf) does not pass there: Report and `bench` clean what they print themselves.
void clean_streams();

}  // namespace dat
