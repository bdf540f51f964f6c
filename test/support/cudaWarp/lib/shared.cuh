/* codegen/cuda/lib/shared.cuh over fibres. */
#pragma once
#include "hopper.h"
#include "lib/device.cuh"

namespace tw {

inline unsigned shared_address(const void *p) { return (unsigned)((const unsigned char *)p - ::tw_shared); }
inline unsigned array_address(const void *p) { return shared_address(p); }
inline void put(unsigned at, unsigned x, unsigned y, unsigned z, unsigned w) { tw_put(at, x, y, z, w); }
inline void take(unsigned at, unsigned *to) { tw_take(at, to); }
inline void put2(unsigned at, float x, float y) { tw_put_pair(at, x, y); }
inline void take8(unsigned at, float *to) { tw_take_eight(at, to); }
inline int peek(unsigned at) { return tw_peek(at); }
inline void poke(unsigned at, int x) { tw_poke(at, x); }

}  // namespace tw
