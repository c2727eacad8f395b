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
template <class F>
void cuda_channel_sums(const Device&, const F&, const ChannelRoom&) {
  absent();
}

#define DAT_EACH(F) template void cuda_each<kernels::F>(const Device&, std::int64_t, const kernels::F&);
#define DAT_EACH_CHUNK(F) template void cuda_each_chunk<kernels::F>(const Device&, const Chunks&, const kernels::F&);
#define DAT_SUM(F) \
  template void cuda_sum<kernels::F>(const Device&, const Chunks&, const kernels::F&, double*, double*);
#define DAT_CHANNEL_SUMS(F) \
  template void cuda_channel_sums<kernels::F>(const Device&, const kernels::F&, const ChannelRoom&);
#include "kernels.def"

}  // namespace dat
