#include "backend/cpu/backend.hpp"

#include <omp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "backend/shared/calls.hpp"
#include "backend/shared/less_memory.hpp"

namespace dat {

bool has_amx() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2): ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_amx &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

namespace cpu {

FixedSums::FixedSums(const CpuBackend& backend) : threads_(omp_get_max_threads()) {
  if (backend.deterministic()) omp_set_num_threads(1);
}
FixedSums::~FixedSums() { omp_set_num_threads(threads_); }

CpuBackend::CpuBackend(int threads, bool deterministic, const std::string& math)
    : threads_(threads),
      deterministic_(deterministic),
      bf16_parts_(math == "bf16"     ? 1
                  : math == "bf16x3" ? 2
                                     : 0),
      block_(dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core ? 16 : 8),
      engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_),
      stamps_(kStamps) {
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
  // Products of f32 numbers are what --math says, whatever ONEDNN_DEFAULT_FPMATH_MODE does.
  dnnl::set_default_fpmath_mode(dnnl::fpmath_mode::strict);
  require(bf16_parts_ == 0 || has_amx(), ExitCode::device,
          "--math bf16 and bf16x3 are for processors with AMX (Intel Xeon of the 4th generation and above), and this "
          "one has none; take --math f32");
}

std::string CpuBackend::description() const {
  return arithmetic() + ", " + std::to_string(threads_) + (threads_ == 1 ? " thread" : " threads");
}

std::string CpuBackend::arithmetic() const {
  const std::string library = "cpu: oneDNN " + onednn_version();
  if (bf16_parts_ > 0) return library + ", AMX in " + (bf16_parts_ == 1 ? "bf16" : "bf16x3");
  const bool avx2 = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx2;
  return library + (block_ == 16 ? ", AVX-512" : avx2 ? ", AVX2" : ", no AVX2");
}

Layout CpuBackend::activation_layout(int c, int h, int w) const { return {c, h, w, c % block_ == 0 ? block_ : c}; }

std::string CpuBackend::refuses(DType storage) const {
  return storage == DType::f32 ? "" : "the CPU backend keeps activations in f32: 16 bits are no faster there";
}

CpuBackend::Memory CpuBackend::zeroed(std::size_t bytes, const std::string& purpose) {
  // Large blocks on huge pages: 3 to 8 % less time for the step.
  constexpr std::size_t kHugePage = 2U << 20U;
  const std::size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kLine;
  const std::size_t rounded = std::max(aligned(bytes, alignment), alignment);
  // The system promises more than it has, and would end the process later.
  static const auto capacity =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::size_t left = capacity;
  for (const Allocation& one : allocations_) left -= one.bytes;
  Memory memory(bytes <= left ? std::aligned_alloc(alignment, rounded) : nullptr);
  require(memory != nullptr, ExitCode::device, "out of memory: ", bytes >> 20U, " MiB for ", purpose,
          less_memory(allocations_, bytes, purpose, capacity));
  madvise(memory.get(), rounded, MADV_HUGEPAGE);  // smaller ones are refused
  std::memset(memory.get(), 0, rounded);
  return memory;
}

void* CpuBackend::allocate(std::size_t bytes, const std::string& purpose) {
  memory_.push_back(zeroed(bytes, purpose));
  allocations_.push_back({purpose, bytes});
  return memory_.back().get();
}

void CpuBackend::commit(SharedBlock& shared, Memory& memory, const std::string& purpose) {
  if (shared.suffices()) return;
  memory.reset();
  memory = zeroed(shared.wanted, purpose);
  shared.data = memory.get();
  shared.bytes = shared.wanted;
  std::erase_if(allocations_, [&](const Allocation& a) { return a.purpose == purpose; });
  allocations_.push_back({purpose, shared.bytes});
}

void CpuBackend::commit_workspace() {
  commit(workspace_, workspace_memory_, "activations");
  commit(scratch_, scratch_memory_, "library scratch");
  commit(weights_, weights_memory_, "packed weights");
  turn_ = nullptr;  // they may have moved
}

std::size_t CpuBackend::reserve_weights(std::size_t bytes) {
  const std::size_t offset = planned_weights_;
  planned_weights_ += aligned(bytes, kLine);
  weights_.request(planned_weights_);
  return offset;
}

void CpuBackend::copy_to_device(void* device, const void* host, std::size_t bytes) {
  // Not memcpy: the pointers may be null where there are no bytes.
  std::copy_n(static_cast<const std::byte*>(host), bytes, static_cast<std::byte*>(device));
}

Backend::Ticket CpuBackend::fetch(void* pinned, const void* device, std::size_t bytes) {
  copy_to_host(pinned, device, bytes);
  return mark();
}

Backend::Ticket CpuBackend::stamp() {
  stamps_[static_cast<std::size_t>(next_stamp_ % kStamps)] = std::chrono::steady_clock::now();
  return next_stamp_++;
}

double CpuBackend::seconds(Ticket from, Ticket to) {
  const auto at = [&](Ticket stamp) { return stamps_[static_cast<std::size_t>(stamp % kStamps)]; };
  return std::chrono::duration<double>(at(to) - at(from)).count();
}

std::unique_ptr<Backend::Recording> CpuBackend::record(std::function<void()> work) {
  return std::make_unique<Calls>(std::move(work));
}

std::unique_ptr<Backend::Recording> CpuBackend::loads(std::vector<Load> all) {
  return std::make_unique<Calls>([all = std::move(all)] {
    for (const auto& [conv, weights, scale, bias] : all) conv->load(weights, scale, bias);
  });
}

}  // namespace cpu

}  // namespace dat
