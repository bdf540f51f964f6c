/* Global memory: stores of whole words, prefetches, and numbers that blocks share while they run. */
#pragma once
#include "lib/device.cuh"

namespace tw {

/* Stores `x` if isStored, as one instruction: compilers split some of them into words. */
TW_DEVICE void store_words(void *to, const uint4 &x, int isStored) {
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p st.global.v4.b32 [%0], {%1, %2, %3, %4}; }" :: "l"(to),
      "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(isStored) : "memory");
}
TW_DEVICE void store_words(void *to, const uint2 &x, int isStored) {
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %3, 0;\n@p st.global.v2.b32 [%0], {%1, %2}; }" :: "l"(to), "r"(x.x),
      "r"(x.y), "r"(isStored) : "memory");
}

/* Asks for a line of memory to be brought to L2. */
TW_DEVICE void prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }

/* What this thread has written before is seen by whoever sees what it writes after. */
TW_DEVICE void fence_all() { __threadfence(); }
/* A number that another block may have changed. */
TW_DEVICE unsigned look(const unsigned *at) { return *(const volatile unsigned *)at; }
/* The same of two pairs of words: each pair is what one thread has published together. */
TW_DEVICE uint4 look(const uint4 *at) {
  uint4 x;
  asm volatile("ld.volatile.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
      : "l"(at) : "memory");
  return x;
}
TW_DEVICE void publish(uint4 *to, const uint4 &x) {
  asm volatile("st.volatile.global.v4.b32 [%0], {%1, %2, %3, %4};" :: "l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
      : "memory");
}
TW_DEVICE void publish(uint2 *to, const uint2 &x) {
  asm volatile("st.volatile.global.v2.b32 [%0], {%1, %2};" :: "l"(to), "r"(x.x), "r"(x.y) : "memory");
}
/* Lets others run for about half a microsecond, and for as long as a look takes at least. */
TW_DEVICE void rest() { __nanosleep(512); }
TW_DEVICE void rest_shortly() { __nanosleep(64); }

}  // namespace tw
