/* codegen/cuda/lib/packed.cuh over fibres. */
#pragma once
#include "lib/elements.cuh"

namespace tw {

inline unsigned masked(unsigned codes, unsigned mask, unsigned magic) { return (codes & mask) | magic; }

template <class T> inline float half_of(unsigned x, int i) { return to_float(T{ (unsigned short)(x >> 16 * i) }); }
template <class T> inline unsigned sub_packed(unsigned x, unsigned y) {
  return pack<T>(half_of<T>(x, 0) - half_of<T>(y, 0), half_of<T>(x, 1) - half_of<T>(y, 1));
}
/* Exact before the rounding wherever kernels use it. */
template <class T> inline unsigned fma_packed(unsigned x, unsigned y, unsigned z) {
  float r[2];
  for (int i = 0; i < 2; i++) r[i] = half_of<T>(x, i) * half_of<T>(y, i) + half_of<T>(z, i);
  return pack<T>(r[0], r[1]);
}

}  // namespace tw
