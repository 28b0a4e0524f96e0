// The binary contract between a compiled artifact and the runtime (plain C, version GW_ABI_VERSION).
//
// Every generated kernel has one signature:
//     extern "C" void NAME(void* const* p, const int64_t* s, const gw_pool* pool);
//   p     pointers of its buffers: inputs, weights, outputs, workspace, in the order the kernel declares
//   s     its int64 scalars: dims, strides, offsets, evaluated when the symbolic dims are bound
//   pool  the thread pool of the process; may be null, which means "run on the calling thread"
//
// Nothing here may change layout without a new GW_ABI_VERSION.
#pragma once
#include <stdint.h>

#define GW_ABI_VERSION 1u

#if defined(_WIN32)
#define GW_EXPORT __declspec(dllexport)
#else
#define GW_EXPORT __attribute__((visibility("default")))
#endif

// Attribute of namespace gw in every header: its templates and inline variables stay inside their shared
// object. Otherwise the dynamic linker would merge the AVX2 and AVX-512 instances of two artifacts loaded
// in one process.
#define GW_HIDDEN __attribute__((visibility("hidden")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_pool gw_pool;

// Work callback: handles items [begin, end) on `thread`, 0 <= thread < pool->threads. Two calls that
// run at the same time for the same gw_pool::parallel call never see the same thread number.
typedef void (*gw_task)(void* ctx, int64_t begin, int64_t end, int thread);

struct gw_pool {
  uint32_t abi;      // GW_ABI_VERSION of the code that made the pool
  uint32_t threads;  // threads that take part in a call, the caller included; at least 1
  // Runs fn over [0, n) and returns when all of it is done. Pieces are contiguous and hold at least
  // `grain` items but for the last one of a thread's share.
  void (*parallel)(const gw_pool* pool, int64_t n, int64_t grain, gw_task fn, void* ctx);
};

typedef void (*gw_kernel)(void* const* p, const int64_t* s, const gw_pool* pool);

// What a call back launch calls: the runtime, with the launch's number; not 0 ends the replay.
typedef int32_t (*gw_call_back)(int64_t launch);

enum {
  GW_LAUNCH_KERNEL = 0,
  GW_LAUNCH_BRANCH = 1,
  GW_LAUNCH_JUMP = 2,
  GW_LAUNCH_LOOP = 3,
  GW_LAUNCH_NEXT = 4,
  GW_LAUNCH_CALL_BACK = 5
};

// One step of a replayed program.
//   GW_LAUNCH_KERNEL  call fn(p, s, pool)
//   GW_LAUNCH_BRANCH  when the bool at p[0] is false, skip the next `jump` launches
//   GW_LAUNCH_JUMP    skip the next `jump` launches; a negative jump goes back (to itself is -1)
//   GW_LAUNCH_LOOP    skip the next `jump` launches unless int64 p[0] < int64 p[1] and the bool at p[2]
//   GW_LAUNCH_NEXT    add 1 to the int64 at p[0], then as a jump
//   GW_LAUNCH_CALL_BACK  call (gw_call_back)fn with the number of this launch; it may change p and s
typedef struct gw_launch {
  int32_t kind;
  int32_t jump;
  gw_kernel fn;
  void* const* p;
  const int64_t* s;
} gw_launch;

// Exported by every artifact's shared object (defined by gw/runtime.h).
GW_EXPORT uint32_t gw_abi_version(void);
// A pool of `threads` threads, the caller included; 0 when threads < 1 or when none can be started.
GW_EXPORT gw_pool* gw_pool_create(int32_t threads);
// Joins the workers. No call on the pool may be running.
GW_EXPORT void gw_pool_destroy(gw_pool* pool);
// Runs launches[0..n) in order. Returns 0, 1 when a record has an unknown kind or a jump leaves
// [0, n], 2 when a call back did not return 0; launches before that one have run.
GW_EXPORT int32_t gw_replay(const gw_launch* launches, int64_t n, const gw_pool* pool);

#ifdef __cplusplus
}
#endif
