// Names the kernels that a program runs: CUDA_INJECTION64_PATH=kernel_names.so PROGRAM. The driver loads the file when
// the program starts to use it (CUPTI documentation, "Initialization of CUPTI using injection").
//
// When the program ends, stderr gets a line for each kernel of its last 200 ms of work, the longest together first:
// "kernel COUNT MILLISECONDS NAME", tab-separated. A benchmark's last steps are in them, its trials of algorithms are
// not.

#include <cupti.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

#if CUPTI_API_VERSION >= 130000
using Kernel = CUpti_ActivityKernel10;
#else
using Kernel = CUpti_ActivityKernel9;
#endif

constexpr std::uint64_t kWindow = 200'000'000;  // ns
constexpr std::size_t kBuffer = 4U << 20U, kAlignment = 8;

struct Launch {
  std::uint64_t begin, end;
  const std::string* name;
};
struct Records {
  std::map<std::string, int> names;  // keys stay where they are
  std::vector<Launch> launches;
};
Records& records() {  // CUPTI calls back from one thread at a time; never destroyed: it may do so at the very end
  static auto* const all = new Records;
  return *all;
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBuffer));
  *size = *buffer != nullptr ? kBuffer : 0;
  *most = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto& kernel = *reinterpret_cast<const Kernel*>(record);
    const auto& name = records().names.try_emplace(kernel.name != nullptr ? kernel.name : "?").first->first;
    records().launches.push_back({kernel.start, kernel.end, &name});
  }
  std::free(buffer);
}

void print() {
  static_cast<void>(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
  std::uint64_t last = 0;
  for (const Launch& launch : records().launches) last = std::max(last, launch.end);
  struct Sum {
    int count = 0;
    double milliseconds = 0;
    const std::string* name = nullptr;
  };
  std::map<const std::string*, Sum> sums;
  for (const Launch& launch : records().launches) {
    if (launch.begin + kWindow < last) continue;
    Sum& sum = sums[launch.name];
    ++sum.count;
    sum.milliseconds += 1e-6 * static_cast<double>(launch.end - launch.begin);
    sum.name = launch.name;
  }
  std::vector<Sum> rows;
  for (const auto& [name, sum] : sums) rows.push_back(sum);
  std::sort(rows.begin(), rows.end(), [](const Sum& a, const Sum& b) { return a.milliseconds > b.milliseconds; });
  for (const Sum& row : rows)
    std::fprintf(stderr, "kernel\t%d\t%.4f\t%s\n", row.count, row.milliseconds, row.name->c_str());
}

}  // namespace

/// Called by the driver; 1: go on.
extern "C" int InitializeInjection() {
  const CUptiResult status[] = {cuptiActivityRegisterCallbacks(give_buffer, take_buffer),
                                cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)};
  for (const CUptiResult each : status)
    if (each != CUPTI_SUCCESS)
      std::fprintf(stderr, "kernel_names: CUPTI refuses with code %d\n", static_cast<int>(each));
  std::atexit(print);
  return 1;
}
