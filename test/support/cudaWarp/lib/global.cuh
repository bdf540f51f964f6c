/* codegen/cuda/lib/global.cuh over fibres: blocks run one by one. */
#pragma once
#include "hopper.h"
#include "lib/device.cuh"

namespace tw {

template <class Words> inline void store_words(void *to, const Words &x, int isStored) {
  tw_store_words(to, x, isStored);
}
inline void prefetch(const void *) {}
inline void fence_all() {}
inline unsigned look(const unsigned *at) { return *(const volatile unsigned *)at; }
inline uint4 look(const uint4 *at) { return *at; }
inline void publish(uint4 *to, const uint4 &x) { *to = x; }
inline void publish(uint2 *to, const uint2 &x) { *to = x; }
inline void rest() {}
/* Whoever rests only for a while waits for others. */
inline void rest_shortly() { tw_yield(); }

}  // namespace tw
