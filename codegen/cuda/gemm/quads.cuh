/*
 * What the four lanes of a quad exchange, which share a row of a tensor core's fragment: each has two columns of every
 * eight, but eight columns are adjacent in memory.
 */
#pragma once
#include "lib/global.cuh"
#include "lib/warp.cuh"

namespace tw {

/* Lane t of a quad has its words of column groups 0 to 3, and takes the four words of group t: 16 adjacent bytes. */
TW_DEVICE uint4 quad_turn(int quad, unsigned w0, unsigned w1, unsigned w2, unsigned w3) {
  const bool is_upper = quad & 2, is_odd = quad & 1;
  unsigned x = __shfl_xor_sync(ALL_LANES, is_upper ? w0 : w2, 2), y = __shfl_xor_sync(ALL_LANES, is_upper ? w1 : w3, 2);
  if (is_upper) { w0 = x; w1 = y; } else { w2 = x; w3 = y; }
  x = __shfl_xor_sync(ALL_LANES, is_odd ? w0 : w1, 1);
  y = __shfl_xor_sync(ALL_LANES, is_odd ? w2 : w3, 1);
  if (is_odd) { w0 = x; w2 = y; } else { w1 = x; w3 = y; }
  return { w0, w1, w2, w3 };
}
/* The same of bytes, two groups a word: eight that lie together for two of each group, and back. */
TW_DEVICE uint2 quad_turn_bytes(int quad, unsigned w0, unsigned w1) {
  const uint4 w = quad_turn(quad, w0, w0 >> 16, w1, w1 >> 16);
  return { bytes(w.x, w.y, 0x5410u), bytes(w.z, w.w, 0x5410u) };
}

/*
 * Row sums over blocks of columns, of which each lane of a quad has a part: lane q ends up with block q of each four,
 * so that a quad stores 16 bytes that lie together. Added as quad_sum adds. `block` is constant once loops are
 * unrolled.
 */
struct BlockSums {
  float first, half, whole;

  TW_DEVICE void take(int block, float x, int quad) {
    if (block % 2 == 0) { first = x; return; }
    const bool is_odd = quad & 1, is_upper = quad & 2;
    x = (is_odd ? x : first) + __shfl_xor_sync(ALL_LANES, is_odd ? first : x, 1);
    if (block % 4 == 1) { half = x; return; }
    whole = (is_upper ? x : half) + __shfl_xor_sync(ALL_LANES, is_upper ? half : x, 2);
  }
};

}  // namespace tw
