// Linked instead of cuda.cu where the build has no CUDA.

#include "all.hpp"
#include "dat/error.hpp"

namespace dat {

namespace {
[[noreturn]] void absent() { fail(ExitCode::device, "this dat_hpc was built without CUDA"); }
}  // namespace

template <class F>
void cuda_each(const Device&, std::int64_t, const F&) {
  absent();
}
template <class F>
void cuda_each_chunk(const Device&, const Chunks&, const F&) {
  absent();
}
template <class F>
void cuda_sum(const Device&, const Chunks&, const F&, double*, double*) {
  absent();
}

#define DAT_EACH(F) template void cuda_each<kernels::F>(const Device&, std::int64_t, const kernels::F&);
#define DAT_EACH_CHUNK(F) template void cuda_each_chunk<kernels::F>(const Device&, const Chunks&, const kernels::F&);
#define DAT_SUM(F) \
  template void cuda_sum<kernels::F>(const Device&, const Chunks&, const kernels::F&, double*, double*);
#define DAT_CHANNEL_SUMS(F)
#include "kernels.def"

}  // namespace dat
