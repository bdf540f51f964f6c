/* codegen/cuda/lib/mma.cuh over fibres. */
#pragma once
#include "lib/elements.cuh"
#include "lib/shared.cuh"

namespace tw {

inline void ldmatrix_x4(unsigned (&r)[4], unsigned at) { tw_ldmatrix_x4(r, at); }
inline void ldmatrix_x4_trans(unsigned (&r)[4], unsigned at) { tw_ldmatrix_x4_trans(r, at); }
template <class T> inline void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  tw_mma(d, a, b0, b1, [](uint16_t bits) { return to_float(T{ bits }); });
}

}  // namespace tw
