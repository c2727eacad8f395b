// The CUDA runtime: memory, lazy streams, events, capture. See double.hpp.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "double.hpp"

using namespace dat_double;

namespace {

struct Capture;
using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

/// One recording of an event. `clock` holds, within a capture, how much work of each stream comes before it.
struct Record {
  std::shared_ptr<CUstream_st> stream;
  std::shared_ptr<Capture> capture;
  std::map<CUstream_st*, long> clock;
  bool done = false;
  int queries = 0;
  Time time{};
};

/// Work; or a record; or a wait for a record.
struct Op {
  std::function<void()> work;
  std::shared_ptr<Record> record;
  bool wait = false;
  Time queued{};
  std::string_view name{};
};

struct Capture {
  CUstream_st* origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool invalid = false;
  std::set<CUstream_st*> streams;
  std::vector<std::pair<CUstream_st*, Op>> ops;
};

}  // namespace

struct CUstream_st {
  std::deque<Op> queue;
  Time now{};  // when the work so far would have ended on a device that begins as soon as it can
  std::shared_ptr<Capture> capture;
  std::map<CUstream_st*, long> clock;
  bool follows = false, busy = false;  ///< follows: see followers_are_late(); busy: in step()
};
struct CUevent_st {
  unsigned flags;
  std::shared_ptr<Record> record;
};
struct CUgraph_st {
  CUstream_st* origin;
  std::vector<std::pair<CUstream_st*, Op>> ops;
};
struct CUgraphExec_st {
  CUgraph_st graph;
};

namespace {

constexpr std::size_t kArena = std::size_t{16} << 30, kAlign = 512, kRedZone = 256, kHugePage = 2 << 20;
constexpr int kRedByte = 0xA5;

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }
std::size_t piece(std::size_t bytes) { return round_up(bytes + kRedZone, kAlign); }

/// GPUs of the machine, unless a test says otherwise: DAT_DOUBLE_DEVICES.
int announced() {
  const char* text = std::getenv("DAT_DOUBLE_DEVICES");
  return text != nullptr ? std::atoi(text) : 1;
}

struct State {
  std::recursive_mutex mutex;
  Counts counts;
  int devices = announced();
  char* arena;
  std::size_t used = 0;  // everything allocated so far lies below
  int open = 0;
  std::map<char*, std::size_t> device, pinned;
  std::map<cudaStream_t, std::shared_ptr<CUstream_st>> streams;
  std::vector<std::shared_ptr<CUstream_st>> closing;  // destroyed by the host, with work left
  std::set<cudaEvent_t> events;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> graph_execs;
  std::vector<std::shared_ptr<Capture>> captures;

  State() {
    void* p = mmap(nullptr, kArena + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail("no address space for the device memory");
    arena = reinterpret_cast<char*>(round_up(reinterpret_cast<std::uintptr_t>(p), kHugePage));
    madvise(arena, kArena, MADV_HUGEPAGE);  // opening and closing it takes a hundredth of the time
  }
};
State& state() {
  static State& s = *new State;  // outlives every static object of the host
  return s;
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

/// Device memory is accessible while one of these lives. The mutex is held.
struct Open {
  Open() {
    if (state().open++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  ~Open() {
    State& s = state();
    if (s.open > 1) {
      --s.open;
      return;
    }
    static const std::string red(kRedZone + kAlign, static_cast<char>(kRedByte));
    for (const auto& [base, bytes] : s.device)
      if (std::memcmp(base + bytes, red.data(), piece(bytes) - bytes) != 0)
        fail("device code wrote past an allocation of " + std::to_string(bytes) + " bytes");
    --s.open;
    protect(PROT_NONE);
  }
  static void protect(int access) {
    State& s = state();
    const std::size_t bytes = round_up(s.used, kHugePage);
    if (bytes != 0 && mprotect(s.arena, bytes, access) != 0) fail("mprotect does not work");
  }
};

void finish(Record& record);
void run_others();

Clock::duration rested{};

/// Time that work takes: of the processor, since others may have it meanwhile, and what kernels are said to take.
Clock::duration worked() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec) + rested;
}

void step(CUstream_st& stream) {
  stream.busy = true;
  const Op op = std::move(stream.queue.front());
  stream.queue.pop_front();
  stream.now = std::max(stream.now, op.queued);
  if (op.work) {
    if (stream.follows && followers_are_late()) run_others();
    const Clock::duration begin = worked();
    op.work();
    stream.now += worked() - begin;
  } else if (op.wait) {
    finish(*op.record);
    stream.now = std::max(stream.now, op.record->time);
  } else {
    op.record->done = true;
    op.record->time = stream.now;
  }
  stream.busy = false;
}
/// What streams that are not busy can do without waiting.
void run_others() {
  for (const auto& [handle, stream] : state().streams)
    while (!stream->busy && !stream->follows && !stream->queue.empty()) {
      const Op& next = stream->queue.front();
      if (next.wait && !next.record->done) break;
      step(*stream);
    }
}
void finish(Record& record) {
  const Open open;
  while (!record.done) step(*record.stream);
}
void drain(CUstream_st& stream) {
  const Open open;
  while (!stream.queue.empty()) step(stream);
}
void drain_all() {
  for (const auto& [handle, stream] : state().streams) drain(*stream);
  for (const auto& stream : state().closing) drain(*stream);
  state().closing.clear();
}

cudaError_t push(CUstream_st& stream, Op op) {
  op.queued = Clock::now();
  if (!stream.capture) {
    stream.queue.push_back(std::move(op));
  } else {
    if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (op.work) ++stream.clock[&stream];
    stream.capture->ops.emplace_back(&stream, std::move(op));
  }
  return cudaSuccess;
}

/// True, and the capture is lost, if this thread, or a call on this stream, could disturb a capture.
bool prohibited(const CUstream_st* stream = nullptr) {
  bool any = false;
  for (const auto& c : state().captures)
    if (c->mode == cudaStreamCaptureModeGlobal || (stream != nullptr && stream->capture == c) ||
        (c->mode == cudaStreamCaptureModeThreadLocal && c->thread == std::this_thread::get_id()))
      any = c->invalid = true;
  return any;
}
cudaError_t invalidate(Capture& capture, cudaError_t error) {
  capture.invalid = true;
  return error;
}

/// f(), alone. Its error becomes the thread's last one.
template <class F>
cudaError_t alone(const F& f) {
  const std::lock_guard guard(state().mutex);
  return set_error(f());
}
template <class F>
cudaError_t on(cudaStream_t handle, const F& f) {
  return alone([&] {
    const auto it = state().streams.find(handle);
    return it == state().streams.end() ? cudaErrorInvalidResourceHandle : f(it->second);
  });
}
using StreamPointer = std::shared_ptr<CUstream_st>;  // stays alive when the host destroys the stream

enum class Place { device, pinned, pageable, nowhere };

bool inside(const std::map<char*, std::size_t>& blocks, const void* data, std::size_t bytes) {
  const auto* p = static_cast<const char*>(data);
  auto it = blocks.upper_bound(const_cast<char*>(p));
  if (it == blocks.begin()) return false;
  --it;
  return p + bytes <= it->first + it->second;
}
/// Of which other processes have DAT_DOUBLE_TAKEN bytes.
std::size_t unused() {
  const char* text = std::getenv("DAT_DOUBLE_TAKEN");
  std::size_t free = kArena - (text != nullptr ? std::strtoull(text, nullptr, 10) : 0);
  for (const auto& [base, bytes] : state().device) free -= piece(bytes);
  return free;
}
bool in_arena(const void* data) {
  const auto* p = static_cast<const char*>(data);
  return p >= state().arena && p < state().arena + kArena;
}
Place place(const void* data, std::size_t bytes) {
  if (data == nullptr) return Place::nowhere;
  if (in_arena(data)) return inside(state().device, data, bytes) ? Place::device : Place::nowhere;
  if (inside(state().pinned, data, bytes)) return Place::pinned;
  return inside(state().pinned, data, 1) ? Place::nowhere : Place::pageable;
}

cudaError_t check_device(int device) {
  if (state().devices == 0) return cudaErrorNoDevice;
  return device < 0 || device >= state().devices ? cudaErrorInvalidDevice : cudaSuccess;
}

/// A block of memory of either kind, if one may be made now.
template <class F>
cudaError_t allocate(void** data, std::size_t bytes, const F& make) {
  return alone([&] {
    *data = nullptr;
    if (state().devices == 0) return cudaErrorNoDevice;
    if (prohibited()) return cudaErrorStreamCaptureUnsupported;
    if (bytes == 0) return cudaSuccess;
    *data = make();
    if (*data == nullptr) return cudaErrorMemoryAllocation;
    ++state().counts.allocations;
    return cudaSuccess;
  });
}
cudaError_t release(std::map<char*, std::size_t>& blocks, void* data) {
  if (prohibited()) return cudaErrorStreamCaptureUnsupported;
  if (data == nullptr) return cudaSuccess;
  if (!blocks.contains(static_cast<char*>(data))) return cudaErrorInvalidValue;
  drain_all();
  blocks.erase(static_cast<char*>(data));
  return cudaSuccess;
}

template <class Handle>
cudaError_t destroy(std::set<Handle>& handles, Handle handle) {
  return alone([&] {
    if (handles.erase(handle) == 0) return cudaErrorInvalidResourceHandle;
    delete handle;
    return cudaSuccess;
  });
}

}  // namespace

namespace dat_double {

void rest(std::chrono::nanoseconds time) { rested += time; }

Counts& counts() { return state().counts; }

bool& followers_are_late() {
  static bool late = false;
  return late;
}

void fail(const std::string& what) {
  std::fprintf(stderr, "CUDA double: %s\n", what.c_str());
  std::abort();
}

cudaError_t set_error(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

void set_device_count(int count) { state().devices = count; }

int capability() {
  const char* text = std::getenv("DAT_DOUBLE_CAPABILITY");
  int major = 9, minor = 0;
  if (text != nullptr && std::sscanf(text, "%d.%d", &major, &minor) != 2)
    fail("DAT_DOUBLE_CAPABILITY is not of the form 9.0");
  return 10 * major + minor;
}

bool in_device_memory(const void* data, std::size_t bytes) {
  const std::lock_guard guard(state().mutex);
  return bytes == 0 || place(data, bytes) == Place::device;
}

cudaError_t enqueue(cudaStream_t handle, std::function<void()> work, std::string_view kernel, std::string_view call) {
  return on(handle, [&](const StreamPointer& stream) {
    const std::string_view name = kernel.empty() ? call : kernel;
    ++counts().kernels;
    if (!stream->capture) {
      ++(kernel.empty() ? counts().library_calls : counts().launches);
      ++counts().work[name];
    }
    return push(*stream, {std::move(work), nullptr, false, {}, name});
  });
}

void check_arguments(const void* arguments, std::size_t bytes) {
  const std::lock_guard guard(state().mutex);
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t i = 0; i + sizeof(void*) <= bytes; i += sizeof(void*)) {
    std::uintptr_t word = 0;
    std::memcpy(&word, static_cast<const char*>(arguments) + i, sizeof word);
    char* const p = reinterpret_cast<char*>(word);
    if (in_arena(p)) {
      if (!inside(state().device, p, 0)) fail("a kernel's argument points into freed device memory");
      continue;
    }
    unsigned char resident = 0;
    if (word >> 32 == 0 || inside(state().pinned, p, 0)) continue;  // small: a number
    if (mincore(reinterpret_cast<void*>(word / page * page), 1, &resident) == 0)
      fail("a kernel's argument holds an address of the host, at byte " + std::to_string(i));
  }
}

}  // namespace dat_double

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = state().devices;
  int driver{};
  (void)cudaDriverGetVersion(&driver);
  if (driver < CUDART_VERSION / 1000 * 1000) return set_error(cudaErrorInsufficientDriver);
  return set_error(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaSetDevice(int device) {
  if (check_device(device) == cudaSuccess) current_device = device;
  return set_error(check_device(device));
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return set_error(check_device(*device));
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  const char* name = std::getenv("DAT_DOUBLE_NAME");
  std::snprintf(properties->name, sizeof properties->name, "%s", name != nullptr ? name : "CUDA double");
  properties->uuid.bytes[0] = static_cast<char>(device);
  properties->uuid.bytes[15] = static_cast<char>(0xA5);
  // A GPU of its own for each rank, as if it saw that one alone.
  if (const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
      rank != nullptr && std::getenv("DAT_DOUBLE_OWN_GPU"))
    properties->uuid.bytes[1] = static_cast<char>(1 + std::atoi(rank));
  const char* memory = std::getenv("DAT_DOUBLE_MEMORY");  // of which parts are computed; there is as much as ever
  properties->totalGlobalMem = memory != nullptr ? std::strtoull(memory, nullptr, 10) : kArena;
  properties->major = capability() / 10;
  properties->minor = capability() % 10;
  properties->multiProcessorCount = 4;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  return set_error(check_device(device));
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02X:00.0", 0xA0 + device);
  return set_error(check_device(device));
}
cudaError_t cudaDriverGetVersion(int* version) {
  const char* text = std::getenv("DAT_DOUBLE_DRIVER");
  *version = text != nullptr ? std::atoi(text) : state().devices == 0 ? 0 : CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return alone([&] {
    *total = kArena;
    *free = unused();
    return check_device(current_device);
  });
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return allocate(data, bytes, [&]() -> char* {
    State& s = state();
    char* base = s.arena;
    for (const auto& [other, size] : s.device) {
      if (bytes <= kArena && base + piece(bytes) <= other) break;
      base = other + piece(size);
    }
    const auto begin = static_cast<std::size_t>(base - s.arena);
    if (bytes > kArena || begin + piece(bytes) > kArena || piece(bytes) > unused()) return nullptr;
    s.used = std::max(s.used, begin + piece(bytes));
    const Open open;
    std::memset(base, 0xFF, bytes);
    std::memset(base + bytes, kRedByte, piece(bytes) - bytes);
    s.device[base] = bytes;
    return base;
  });
}
cudaError_t cudaFree(void* data) {
  return alone([&] { return release(state().device, data); });
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return allocate(data, bytes, [&] {
    void* p = std::aligned_alloc(4096, round_up(bytes, 4096));
    if (p == nullptr) return p;
    state().pinned[static_cast<char*>(p)] = bytes;
    return std::memset(p, 0xFF, bytes);
  });
}
cudaError_t cudaFreeHost(void* data) {
  return alone([&] {
    const cudaError_t error = release(state().pinned, data);
    if (error == cudaSuccess) std::free(data);
    return error;
  });
}

cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned) {
  return alone([&] {
    if (data == nullptr || bytes == 0 || inside(state().pinned, data, 1)) return cudaErrorInvalidValue;
    state().pinned[static_cast<char*>(data)] = bytes;
    return cudaSuccess;
  });
}
cudaError_t cudaHostUnregister(void* data) {
  return alone(
      [&] { return state().pinned.erase(static_cast<char*>(data)) == 1 ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t handle) {
  return on(handle, [&](const StreamPointer& stream) {
    if (bytes == 0) return cudaSuccess;
    const Place where = place(data, bytes);
    if (where == Place::nowhere || where == Place::pageable) return cudaErrorInvalidValue;
    return push(*stream, {[=] { std::memset(data, value, bytes); }, nullptr});
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
  return on(handle, [&](const StreamPointer& stream) {
    if (bytes == 0) return cudaSuccess;
    const Place target = place(to, bytes), source = place(from, bytes);
    const bool from_device = source == Place::device, to_device = target == Place::device;
    const cudaMemcpyKind is = from_device ? (to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost)
                                          : (to_device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost);
    if (target == Place::nowhere || source == Place::nowhere || (kind != cudaMemcpyDefault && kind != is))
      return cudaErrorInvalidValue;
    if (to_device && !from_device) state().counts.uploaded += bytes;
    if (!stream->capture) ++state().counts.copies;
    if (source != Place::pageable && target != Place::pageable)
      return push(*stream, {[=] { std::memcpy(to, from, bytes); }, nullptr});

    if (prohibited(stream.get())) return cudaErrorStreamCaptureUnsupported;
    Counts& c = state().counts;
    ++c.pageable_copies;
    if (!to_device || bytes > 65536) ++c.synchronizations;
    if (to_device) {
      const auto* p = static_cast<const char*>(from);
      const std::vector<char> copy(p, p + bytes);
      return push(*stream, {[=] { std::memcpy(to, copy.data(), bytes); }, nullptr});
    }
    drain(*stream);
    const Open open;
    std::memcpy(to, from, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned) {
  return alone([&] {
    const auto stream = std::make_shared<CUstream_st>();
    *handle = stream.get();
    state().streams[*handle] = stream;
    return check_device(current_device);
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return on(handle, [&](StreamPointer stream) {
    if (stream->capture) return invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported);
    if (!stream->queue.empty()) state().closing.push_back(stream);
    state().streams.erase(handle);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return on(handle, [&](const StreamPointer& stream) {
    if (prohibited(stream.get())) return cudaErrorStreamCaptureUnsupported;
    ++state().counts.synchronizations;
    drain(*stream);
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceSynchronize() {
  return alone([&] {
    for (const auto& capture : state().captures) capture->invalid = true;
    if (!state().captures.empty()) return cudaErrorStreamCaptureUnsupported;
    ++state().counts.synchronizations;
    drain_all();
    return check_device(current_device);
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  if (flags != cudaEventWaitDefault) return set_error(cudaErrorInvalidValue);
  return on(handle, [&](const StreamPointer& stream) {
    if (!state().events.contains(event)) return cudaErrorInvalidResourceHandle;
    const auto record = event->record;
    if (!record) return cudaSuccess;
    if (record->capture) {
      if (std::ranges::count(state().captures, record->capture) == 0) return cudaErrorCapturedEvent;
      if (stream->capture && stream->capture != record->capture) {
        record->capture->invalid = true;
        return invalidate(*stream->capture, cudaErrorStreamCaptureMerge);
      }
      stream->capture = record->capture;
      stream->capture->streams.insert(handle);
      for (const auto& [other, work] : record->clock) stream->clock[other] = std::max(stream->clock[other], work);
    } else if (stream->capture) {
      return invalidate(*stream->capture, cudaErrorStreamCaptureIsolation);
    }
    if (record->stream != stream && !record->stream->follows) stream->follows = true;
    return push(*stream, {nullptr, record, true});
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return on(handle, [&](const StreamPointer& stream) {
    if (stream->capture) return cudaErrorIllegalState;
    stream->capture = std::make_shared<Capture>(Capture{handle, mode, std::this_thread::get_id(), false, {handle}, {}});
    state().captures.push_back(stream->capture);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  return on(handle, [&](const StreamPointer& stream) {
    const auto capture = stream->capture;
    if (!capture) return cudaErrorIllegalState;
    if (capture->origin != handle) return invalidate(*capture, cudaErrorStreamCaptureUnmatched);
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
      return invalidate(*capture, cudaErrorStreamCaptureWrongThread);
    bool joined = true;
    for (CUstream_st* other : capture->streams) joined = joined && stream->clock[other] == other->clock[other];
    for (CUstream_st* other : capture->streams) {
      other->clock.clear();
      other->capture = nullptr;
    }
    std::erase(state().captures, capture);
    const auto ops = std::move(capture->ops);  // their records hold the capture
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (!joined) return cudaErrorStreamCaptureUnjoined;
    *graph = *state().graphs.insert(new CUgraph_st{handle, ops}).first;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return alone([&] {
    if (!state().graphs.contains(graph) || flags != 0) return cudaErrorInvalidValue;
    *exec = *state().graph_execs.insert(new CUgraphExec_st{*graph}).first;
    ++state().counts.graph_instantiations;
    return cudaSuccess;
  });
}
/// The streams of the capture become streams of this launch, the first of them the one that it is launched on.
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return on(handle, [&](const StreamPointer& stream) {
    if (!state().graph_execs.contains(exec)) return cudaErrorInvalidValue;
    if (stream->capture) return invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported);
    ++state().counts.graph_launches;
    const Time now = Clock::now();
    std::map<CUstream_st*, StreamPointer> streams{{exec->graph.origin, stream}};
    std::map<Record*, std::shared_ptr<Record>> records;
    for (const auto& [captured, op] : exec->graph.ops) {
      auto& target = streams[captured];
      if (!target) target = std::make_shared<CUstream_st>();
      ++state().counts.replayed;
      if (!op.name.empty()) ++state().counts.work[op.name];
      target->queue.push_back(op);
      target->queue.back().queued = now;
      if (!op.record) continue;
      auto& record = records[op.record.get()];
      if (!record) {
        record = std::make_shared<Record>();
        record->stream = target;  // an event is recorded before it is waited for
      }
      target->queue.back().record = record;
    }
    return cudaSuccess;
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return destroy(state().graphs, graph); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return destroy(state().graph_execs, exec); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return alone([&] {
    *event = *state().events.insert(new CUevent_st{flags, nullptr}).first;
    return check_device(current_device);
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return destroy(state().events, event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return on(handle, [&](const StreamPointer& stream) {
    if (!state().events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (!stream->capture) ++state().counts.records;
    event->record = std::make_shared<Record>(Record{stream, stream->capture, stream->clock});
    return push(*stream, {nullptr, event->record});
  });
}
/// Every second query of a record makes progress.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return alone([&] {
    if (!state().events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (prohibited()) return cudaErrorStreamCaptureUnsupported;
    if (!event->record) return cudaSuccess;
    Record& record = *event->record;
    if (record.capture) return cudaErrorCapturedEvent;
    if (!record.done && ++record.queries % 2 == 0) finish(record);
    return record.done ? cudaSuccess : cudaErrorNotReady;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return alone([&] {
    if (!state().events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (prohibited()) return cudaErrorStreamCaptureUnsupported;
    ++state().counts.synchronizations;
    if (!event->record) return cudaSuccess;
    if (event->record->capture) return cudaErrorCapturedEvent;
    finish(*event->record);
    return cudaSuccess;
  });
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return alone([&] {
    for (const cudaEvent_t event : {start, end}) {
      if (!state().events.contains(event) || (event->flags & cudaEventDisableTiming) != 0 || !event->record)
        return cudaErrorInvalidResourceHandle;
      if (!event->record->done) return cudaErrorNotReady;
    }
    *ms = std::chrono::duration<float, std::milli>(end->record->time - start->record->time).count();
    return cudaSuccess;
  });
}

const char* cudaGetErrorString(cudaError_t error) {
  return status_name(
      error,
      {DAT_NAMED(cudaSuccess), DAT_NAMED(cudaErrorInvalidValue), DAT_NAMED(cudaErrorMemoryAllocation),
       DAT_NAMED(cudaErrorInvalidConfiguration), DAT_NAMED(cudaErrorNoDevice), DAT_NAMED(cudaErrorInvalidDevice),
       DAT_NAMED(cudaErrorInvalidResourceHandle), DAT_NAMED(cudaErrorIllegalState), DAT_NAMED(cudaErrorNotReady),
       DAT_NAMED(cudaErrorCapturedEvent), DAT_NAMED(cudaErrorStreamCaptureUnsupported),
       DAT_NAMED(cudaErrorStreamCaptureInvalidated), DAT_NAMED(cudaErrorStreamCaptureMerge),
       DAT_NAMED(cudaErrorStreamCaptureUnmatched), DAT_NAMED(cudaErrorStreamCaptureUnjoined),
       DAT_NAMED(cudaErrorStreamCaptureIsolation), DAT_NAMED(cudaErrorStreamCaptureWrongThread)},
      "unrecognized error code");
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
}
