/* codegen/cuda/lib/device.cuh over fibres. The headers in this folder stand for those of the same names. */
#pragma once
#include "warp.h"

#define TW_DEVICE inline
#define TW_CONSTEXPR constexpr
#define TW_DYNAMIC_SHARED(name, alignment) unsigned char *const name = ::tw_shared
#define __shared__ TW_SHARED_STATIC

namespace tw {

constexpr unsigned ALL_LANES = 0xffffffffu;

inline int opaque(int x) { return x; }
template <class T> inline T *opaque(T *p) { return p; }
inline int forgotten(int x) { return x; }
template <class T> inline void forget(T &) {}
inline void keep_order() {}
inline int thread_again() { return (int)threadIdx.x; }
inline int blocks_again() { return (int)gridDim.x; }
[[noreturn]] inline void trap() { tw_fail("a trap"); }

}  // namespace tw
