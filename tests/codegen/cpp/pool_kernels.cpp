// Kernels that test_pool.py replays.
#include "gw/pool.h"
#include "gw/runtime.h"

// p: int32 counts[n]; s: n, grain. Adds one to each item.
extern "C" GW_EXPORT void count_each(void* const* p, const int64_t* s, const gw_pool* pool) {
  int32_t* counts = static_cast<int32_t*>(p[0]);
  gw::parallel_for(pool, s[0], s[1], [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) counts[i] += 1;
  });
}

// p: int32 bad[1]; s: n. Nested calls must run inline, on the thread number of the outer call.
extern "C" GW_EXPORT void nested(void* const* p, const int64_t* s, const gw_pool* pool) {
  int32_t* bad = static_cast<int32_t*>(p[0]);
  gw::parallel_for(pool, s[0], 1, [&](int64_t begin, int64_t end, int outer) {
    for (int64_t i = begin; i < end; ++i) {
      gw::parallel_for(pool, 8, 1, [&](int64_t b, int64_t e, int inner) {
        if (inner != outer || b != 0 || e != 8) __atomic_fetch_add(bad, 1, __ATOMIC_RELAXED);
      });
    }
  });
}

// p: bool flag, bool out; writes !flag.
extern "C" GW_EXPORT void invert(void* const* p, const int64_t*, const gw_pool*) {
  *static_cast<bool*>(p[0]) = !*static_cast<bool*>(p[0]);
}
