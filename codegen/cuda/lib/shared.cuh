/* Shared memory by its 32-bit address, which instructions of Hopper take. */
#pragma once
#include "lib/device.cuh"

namespace tw {

TW_DEVICE unsigned shared_address(const void *p) {
  unsigned at;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(at) : "l"(p));
  return at;
}

/* The same of an array of the kernel's: the compiler knows the number. */
TW_DEVICE unsigned array_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

/* Words, 16 bytes at a time. */
TW_DEVICE void put(unsigned at, unsigned x, unsigned y, unsigned z, unsigned w) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" :: "r"(at), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}
TW_DEVICE void take(unsigned at, unsigned *to) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]),
      "=r"(to[3]) : "r"(at) : "memory");
}
/* Two floats, and eight. */
TW_DEVICE void put2(unsigned at, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(at), "f"(x), "f"(y) : "memory");
}
TW_DEVICE void take8(unsigned at, float *to) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]),
      "=f"(to[3]) : "r"(at) : "memory");
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4 + 16];" : "=f"(to[4]), "=f"(to[5]), "=f"(to[6]),
      "=f"(to[7]) : "r"(at) : "memory");
}
/* An integer of a table. */
TW_DEVICE int peek(unsigned at) {
  int x;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
  return x;
}
TW_DEVICE void poke(unsigned at, int x) { asm volatile("st.shared.s32 [%0], %1;" :: "r"(at), "r"(x) : "memory"); }

}  // namespace tw
