// Runs the threads of a kernel. Those that work together are fibers, which change places at barriers and shuffles.

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <vector>

#include "kernels.hpp"

namespace dat_double {

constinit thread_local uint3 thread_index{}, block_index{};
thread_local dim3 block_dim, grid_dim;

namespace {

constexpr std::size_t kStack = 256 << 10;
constexpr int kWarp = 32;

enum class Waits { no, for_block, for_warp, done };

/// Where to go on; to be left by __builtin_longjmp, which unlike swapcontext calls no kernel.
using Place = void* [5];

struct Fiber {
  bool started = false;
  Place place;
  Waits waits;
  unsigned exchanges;
  alignas(16) char slot[2][16];  // used in turn, so that nobody overwrites what another has not read yet
};

// One block runs at a time: the runtime's mutex is held.
std::vector<Fiber> fibers;
Place scheduler;
const std::function<void()>* body;
Fiber* running = nullptr;
int live = 0;  // threads of this block

char* stacks() {
  static char* const memory = static_cast<char*>(
      mmap(nullptr, kStack * 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return memory;
}

// noipa: the compiler does not see what happens between leaving a function and coming back to it. To leave and to be
// come back to need two functions.
[[gnu::noipa]] void jump(Place& to) { __builtin_longjmp(to, 1); }
[[gnu::noipa]] void wait(Waits what) {
  running->waits = what;
  if (__builtin_setjmp(running->place) == 0) jump(scheduler);
}

/// A fiber stays for the blocks to come.
void fiber_main() {
  for (;;) {
    (*body)();
    wait(Waits::done);
  }
}

[[gnu::noipa]] void start(int i) {
  ucontext_t context;
  getcontext(&context);
  context.uc_stack = {stacks() + kStack * i, 0, kStack};
  makecontext(&context, fiber_main, 0);
  fibers[i].started = true;
  setcontext(&context);
}
/// Runs the thread until it waits.
[[gnu::noipa]] void go_on(int i) {
  if (__builtin_setjmp(scheduler) != 0) return;
  if (fibers[i].started)
    jump(fibers[i].place);
  else
    start(i);
}

/// Lets the fibers [first, last) go on if all of them wait for `what`.
bool release(int first, int last, Waits what) {
  for (int i = first; i < last; ++i)
    if (fibers[i].waits != what) return false;
  for (int i = first; i < last; ++i) fibers[i].waits = Waits::no;
  return true;
}

/// Runs the threads from first to last, or the other way round: a missing barrier goes wrong in one of the two orders.
void run_block(bool backwards) {
  for (int i = 0; i < live; ++i) {
    fibers[i].waits = Waits::no;
    fibers[i].exchanges = 0;
  }
  for (bool finished = false; !finished;) {
    finished = true;
    for (int k = 0; k < live; ++k) {
      const int i = backwards ? live - 1 - k : k;
      if (fibers[i].waits != Waits::no) continue;
      running = &fibers[i];
      thread_index.x = static_cast<unsigned>(i);
      go_on(i);
      running = nullptr;
    }
    for (int i = 0; i < live; ++i) finished = finished && fibers[i].waits == Waits::done;
    if (finished) break;
    bool progress = release(0, live, Waits::for_block);
    for (int first = 0; first < live; first += kWarp)
      if (release(first, std::min(first + kWarp, live), Waits::for_warp)) progress = true;
    if (!progress) fail("a kernel's __syncthreads() or shuffle is not reached by all threads");
  }
}

}  // namespace

bool check_grid(std::int64_t blocks, std::int64_t threads) {
  if (blocks == 0 || threads == 0) {
    set_error(cudaErrorInvalidConfiguration);
    return false;
  }
  if (blocks < 0 || blocks > 0x7fffffff || threads < 0 || threads > 1024)
    fail("a kernel was launched with " + std::to_string(blocks) + " blocks of " + std::to_string(threads) + " threads");
  return true;
}

void run_threads(unsigned blocks, unsigned threads, const std::function<void()>& thread) {
#pragma omp parallel for schedule(static) if (blocks > 16)  // else waking threads takes longer
  for (unsigned b = 0; b < blocks; ++b) {
    block_index.x = b;
    block_dim = dim3(threads);
    grid_dim = dim3(blocks);
    for (unsigned t = 0; t < threads; ++t) {
      thread_index.x = t;
      thread();
    }
  }
}

void run_blocks(unsigned blocks, unsigned threads, const std::function<void()>& thread) {
  if (fibers.size() < threads) fibers.resize(threads);
  body = &thread;
  live = static_cast<int>(threads);
  block_dim = dim3(threads);
  grid_dim = dim3(blocks);
  for (unsigned b = 0; b < blocks; ++b) {
    block_index.x = b;
    run_block(b % 2 == 1);
  }
}

void sync_threads() {
  if (running == nullptr) fail("__syncthreads() in a kernel that was not launched by DAT_LAUNCH_BLOCKS");
  wait(Waits::for_block);
}

void exchange(unsigned mask, void* value, std::size_t bytes, int lanes) {
  if (running == nullptr) fail("a shuffle in a kernel that was not launched by DAT_LAUNCH_BLOCKS");
  if (mask != 0xffffffffU || bytes > sizeof Fiber::slot[0]) fail("a shuffle of some lanes, or of more than 16 bytes");
  Fiber& mine = *running;
  const unsigned turn = mine.exchanges++ % 2;
  const int other = static_cast<int>(thread_index.x) ^ lanes;
  std::memcpy(mine.slot[turn], value, bytes);
  wait(Waits::for_warp);
  if (other < live)
    std::memcpy(value, fibers[other].slot[turn], bytes);
  else
    std::memset(value, 0xFF, bytes);
}

}  // namespace dat_double
