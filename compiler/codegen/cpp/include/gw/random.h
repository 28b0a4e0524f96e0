// Random numbers: compiler/ir/ops/random.py says which. Philox4x32-10 keeps no state, so that every block of
// four words is made by whichever thread needs it.
#pragma once
#include <math.h>
#include <stdint.h>

#include <atomic>

#include "loops.h"

namespace gw GW_HIDDEN {

struct RandomKey {
  uint32_t low, high;
  uint32_t stream;
};

// The next stream of this library, for draws without a seed.
inline uint32_t next_stream() {
  static std::atomic<uint32_t> streams{0};
  return streams.fetch_add(1, std::memory_order_relaxed);
}

inline void philox(const RandomKey& key, uint64_t block, uint32_t words[4]) {
  uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32), c2 = key.stream, c3 = 0;
  uint32_t k0 = key.low, k1 = key.high;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = static_cast<uint64_t>(c0) * 0xD2511F53u, b = static_cast<uint64_t>(c2) * 0xCD9E8D57u;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(b);
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

// store(i, unit) for i below n with unit in [0, 1) of `kBits` bits.
template <int kBits, class Store>
inline void random_uniform(const gw_pool* pool, int64_t n, RandomKey key, Store store) {
  constexpr int64_t kEach = kBits > 32 ? 2 : 4;  // numbers of a block
  parallel_for(pool, (n + kEach - 1) / kEach, grain(64), [&](int64_t begin, int64_t end, int) {
    for (int64_t block = begin; block < end; ++block) {
      uint32_t words[4];
      philox(key, static_cast<uint64_t>(block), words);
      for (int64_t k = 0; k < kEach && block * kEach + k < n; ++k) {
        double unit;
        if (kBits > 32) {
          unit = ((words[2 * k % 4] >> 5) * 67108864.0 + (words[(2 * k + 1) % 4] >> 6)) * 0x1p-53;
        } else {
          unit = (words[k] >> (32 - (kBits > 32 ? 32 : kBits))) * (1.0 / static_cast<double>(UINT64_C(1) << kBits));
        }
        store(block * kEach + k, unit);
      }
    }
  });
}

// store(i, number) for i below n with normal numbers of mean 0 and deviation 1, in pairs: G. Box and M. Muller (1958).
template <class Store>
inline void random_normal(const gw_pool* pool, int64_t n, RandomKey key, Store store) {
  parallel_for(pool, (n + 3) / 4, grain(512), [&](int64_t begin, int64_t end, int) {
    for (int64_t block = begin; block < end; ++block) {
      uint32_t words[4];
      philox(key, static_cast<uint64_t>(block), words);
      for (int k = 0; k < 4; k += 2) {
        const int64_t i = block * 4 + k;
        const double radius = ::sqrt(-2 * ::log((words[k] + 1.0) * 0x1p-32));
        const double angle = 2 * 3.141592653589793 * (words[k + 1] * 0x1p-32);
        if (i < n) store(i, radius * ::cos(angle));
        if (i + 1 < n) store(i + 1, radius * ::sin(angle));
      }
    }
  });
}

}  // namespace gw
