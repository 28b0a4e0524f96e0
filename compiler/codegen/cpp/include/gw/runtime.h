// Thread pool and launch replay: the definitions behind abi.h. Include it in exactly ONE translation
// unit of a shared object (it defines the exported C functions).
//
// How the pool works. A call opens a job (epoch, open bit and the number of joined workers share one
// 64-bit word), the caller works on it too, closes it and waits only for workers that joined: one that
// is asleep or descheduled never delays a call. Items are split in one contiguous share a thread, so
// that consecutive kernels find "their" rows in the same private cache; each share is handed out in
// steps (one step when n <= threads * grain) and a thread whose share is empty takes steps of others.
// Idle workers spin for about 50 us, then sleep on a condition variable.
//
// Guarantees: any thread may call; while one call runs, a second concurrent caller and nested calls run
// inline on their own thread. After fork() the child has no workers: the pool notices and runs inline.
// Which thread runs a step is not fixed, so kernels must not let results depend on the split.
#pragma once
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>

#include "abi.h"

namespace gw GW_HIDDEN {
namespace pool_detail {

constexpr int kMaxThreads = 256;
constexpr int64_t kSpinMicroseconds = 50;
constexpr uint64_t kActiveMask = 0x7fff;
constexpr uint64_t kOpen = 0x8000;
constexpr uint64_t kEpochStep = 0x10000;

inline std::atomic<uint32_t> fork_generation{0};
inline thread_local int current_thread = -1;  // >= 0 while this thread runs inside a parallel call

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

struct alignas(64) Share {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

struct Pool;
struct Worker {
  Pool* pool = nullptr;
  int index = 0;
  pthread_t handle{};
};

struct Pool {
  gw_pool base;  // first member: a gw_pool* is a Pool*
  uint32_t generation = 0;
  int workers = 0;
  alignas(64) std::atomic<uint64_t> state{0};
  alignas(64) std::atomic<bool> busy{false};
  std::atomic<bool> stop{false};
  std::atomic<int> sleepers{0};
  gw_task fn = nullptr;
  void* ctx = nullptr;
  int64_t step = 1;
  int shares = 0;
  std::mutex mutex;
  std::condition_variable wake;
  Worker worker[kMaxThreads];
  Share share[kMaxThreads];
};

inline void drain(Pool* p, int thread) {
  const int shares = p->shares;
  for (int i = 0; i < shares; ++i) {
    int which = thread + i;
    if (which >= shares) which %= shares;
    Share& s = p->share[which];
    while (true) {
      const int64_t begin = s.next.fetch_add(p->step, std::memory_order_relaxed);
      if (begin >= s.end) break;
      const int64_t end = begin + p->step < s.end ? begin + p->step : s.end;
      p->fn(p->ctx, begin, end, thread);
    }
  }
}

// Joins the open job if its epoch differs from `seen`; returns the epoch it has dealt with.
inline uint64_t join(Pool* p, uint64_t seen, int thread) {
  uint64_t state = p->state.load(std::memory_order_acquire);
  while (state / kEpochStep != seen && (state & kOpen)) {
    if (p->state.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) {
      current_thread = thread;
      drain(p, thread);
      current_thread = -1;
      p->state.fetch_sub(1, std::memory_order_release);
      return state / kEpochStep;
    }
  }
  return seen;
}

inline bool has_job(Pool* p, uint64_t seen) {
  const uint64_t state = p->state.load(std::memory_order_seq_cst);
  return (state & kOpen) && state / kEpochStep != seen;
}

inline void* work(void* argument) {
  Worker* self = static_cast<Worker*>(argument);
  Pool* p = self->pool;
  using clock = std::chrono::steady_clock;
  uint64_t seen = 0;
  while (true) {
    const auto limit = clock::now() + std::chrono::microseconds(kSpinMicroseconds);
    bool found = false;
    do {
      for (int i = 0; i < 64 && !found; ++i) {
        found = has_job(p, seen);
        if (!found) relax();
      }
      if (p->stop.load(std::memory_order_relaxed)) return nullptr;
    } while (!found && clock::now() < limit);
    if (!found) {
      std::unique_lock<std::mutex> lock(p->mutex);
      p->sleepers.fetch_add(1, std::memory_order_seq_cst);
      p->wake.wait(lock, [&] { return has_job(p, seen) || p->stop.load(); });
      p->sleepers.fetch_sub(1, std::memory_order_seq_cst);
      if (p->stop.load()) return nullptr;
    }
    seen = join(p, seen, self->index);
  }
}

inline void parallel(const gw_pool* pool, int64_t n, int64_t grain, gw_task fn, void* ctx) {
  Pool* p = reinterpret_cast<Pool*>(const_cast<gw_pool*>(pool));
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  const int threads = static_cast<int>(p->base.threads);
  const bool nested = current_thread >= 0;
  bool expected = false;
  if (threads < 2 || n <= grain || nested ||
      p->generation != fork_generation.load(std::memory_order_relaxed) ||
      !p->busy.compare_exchange_strong(expected, true, std::memory_order_acquire)) {
    fn(ctx, 0, n, nested ? current_thread : 0);
    return;
  }
  const int64_t pieces = (n + grain - 1) / grain;
  const int shares = pieces < threads ? static_cast<int>(pieces) : threads;
  int64_t largest = 0;
  for (int i = 0; i < shares; ++i) {
    const int64_t begin = n * i / shares, end = n * (i + 1) / shares;
    p->share[i].next.store(begin, std::memory_order_relaxed);
    p->share[i].end = end;
    if (end - begin > largest) largest = end - begin;
  }
  // Few items: one step a share. Many: up to 8 steps, so that a slow thread sheds work.
  const int64_t eighth = (largest + 7) / 8;
  p->step = n <= grain * threads ? largest : (eighth > grain ? eighth : grain);
  p->shares = shares;
  p->fn = fn;
  p->ctx = ctx;
  const uint64_t epoch = p->state.load(std::memory_order_relaxed) / kEpochStep + 1;
  p->state.store(epoch * kEpochStep + kOpen, std::memory_order_seq_cst);
  if (p->sleepers.load(std::memory_order_seq_cst) > 0) {
    { std::lock_guard<std::mutex> lock(p->mutex); }
    p->wake.notify_all();
  }
  current_thread = 0;
  drain(p, 0);
  current_thread = -1;
  p->state.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int64_t spin = 0; p->state.load(std::memory_order_acquire) & kActiveMask; ++spin) {
    // Past about 100 us the worker has most likely lost its core: give it ours.
    if (spin < 4096) relax();
    else sched_yield();
  }
  p->busy.store(false, std::memory_order_release);
}

inline void after_fork_in_child() { fork_generation.fetch_add(1, std::memory_order_relaxed); }

inline void serial(const gw_pool*, int64_t n, int64_t, gw_task fn, void* ctx) {
  if (n > 0) fn(ctx, 0, n, 0);
}

}  // namespace pool_detail
}  // namespace gw

extern "C" {

GW_EXPORT uint32_t gw_abi_version(void) { return GW_ABI_VERSION; }

GW_EXPORT void gw_pool_destroy(gw_pool* pool) {
  using namespace gw::pool_detail;
  if (!pool) return;
  Pool* p = reinterpret_cast<Pool*>(pool);
  if (p->generation != fork_generation.load()) return;  // a child of fork: nothing to join, leak it
  {
    std::lock_guard<std::mutex> lock(p->mutex);
    p->stop.store(true);
  }
  p->wake.notify_all();
  for (int i = 0; i < p->workers; ++i) pthread_join(p->worker[i].handle, nullptr);
  delete p;
}

GW_EXPORT gw_pool* gw_pool_create(int32_t threads) {
  using namespace gw::pool_detail;
  if (threads < 1) return nullptr;
  if (threads > kMaxThreads) threads = kMaxThreads;
  static const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);
  if (registered != 0) return nullptr;
  Pool* p = new (std::nothrow) Pool;
  if (!p) return nullptr;
  p->generation = fork_generation.load();
  p->base.abi = GW_ABI_VERSION;
  p->base.threads = static_cast<uint32_t>(threads);
  p->base.parallel = threads > 1 ? parallel : serial;
  for (int i = 0; i + 1 < threads; ++i) {
    p->worker[i].pool = p;
    p->worker[i].index = i + 1;
    if (pthread_create(&p->worker[i].handle, nullptr, work, &p->worker[i]) != 0) {
      gw_pool_destroy(&p->base);
      return nullptr;
    }
    p->workers = i + 1;
  }
  return &p->base;
}

GW_EXPORT int32_t gw_replay(const gw_launch* launches, int64_t n, const gw_pool* pool) {
  int64_t i = 0;
  while (i < n) {
    const gw_launch& l = launches[i];
    switch (l.kind) {
      case GW_LAUNCH_KERNEL:
        l.fn(l.p, l.s, pool);
        ++i;
        break;
      case GW_LAUNCH_BRANCH:
        i += 1 + (*static_cast<const bool*>(l.p[0]) ? 0 : l.jump);
        break;
      case GW_LAUNCH_JUMP:
        i += 1 + l.jump;
        break;
      case GW_LAUNCH_LOOP: {
        const bool again = *static_cast<const int64_t*>(l.p[0]) < *static_cast<const int64_t*>(l.p[1]) &&
                           *static_cast<const bool*>(l.p[2]);
        i += 1 + (again ? 0 : l.jump);
        break;
      }
      case GW_LAUNCH_NEXT:
        ++*static_cast<int64_t*>(l.p[0]);
        i += 1 + l.jump;
        break;
      case GW_LAUNCH_CALL_BACK:
        if (reinterpret_cast<gw_call_back>(reinterpret_cast<void*>(l.fn))(i) != 0) return 2;
        ++i;
        break;
      default:
        return 1;
    }
    if (i < 0 || i > n) return 1;
  }
  return 0;
}
}
