// The project's kernels, for the double.

#include "kernels.hpp"
// After the above, which defines the launch macros.
#include "../../kernels/cuda.cu"
