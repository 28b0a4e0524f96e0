// parallel_for over a gw_pool for kernels: a lambda instead of a callback and a context.
//
//     gw::parallel_for(pool, n, grain, [&](int64_t begin, int64_t end, int thread) { ... });
//
// The body handles [begin, end); pieces hold at least `grain` items. It must not throw. A null pool runs
// inline as thread 0. `thread` is below pool->threads: use it to index per-thread scratch.
#pragma once
#include <stdint.h>

#include <type_traits>

#include "abi.h"

namespace gw GW_HIDDEN {

template <class Body>
inline void parallel_for(const gw_pool* pool, int64_t n, int64_t grain, Body&& body) {
  if (n <= 0) return;
  if (!pool || pool->threads < 2 || n <= grain) {
    body(static_cast<int64_t>(0), n, 0);
    return;
  }
  using Plain = std::remove_reference_t<Body>;
  pool->parallel(
      pool, n, grain,
      [](void* ctx, int64_t begin, int64_t end, int thread) {
        (*static_cast<Plain*>(ctx))(begin, end, thread);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

inline int thread_count(const gw_pool* pool) { return pool ? static_cast<int>(pool->threads) : 1; }

}  // namespace gw
