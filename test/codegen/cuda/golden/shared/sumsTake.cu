/*
 * Row sums over blocks of columns, of which each lane of a quad has a part: lane q ends up with block q of each four,
 * so that a quad stores 16 bytes that lie together. Added as tw_quad_sum adds. `block` is constant once loops are
 * unrolled.
 */
struct tw_sums { float first, half, whole; };
__device__ __forceinline__ void tw_sums_take(tw_sums &s, int block, float x, int quad) {
  if (block % 2 == 0) { s.first = x; return; }
  const bool isOdd = quad & 1, isUpper = quad & 2;
  x = (isOdd ? x : s.first) + __shfl_xor_sync(0xffffffffu, isOdd ? s.first : x, 1);
  if (block % 4 == 1) { s.half = x; return; }
  s.whole = (isUpper ? x : s.half) + __shfl_xor_sync(0xffffffffu, isUpper ? s.half : x, 2);
}
/*
 * Sum of a block of 16 columns, of which a lane has the first eight and its neighbour the others: added as fragments
 * add it (tw_quad_sum).
 */
__device__ __forceinline__ void tw_store_block_sum(float *to, const float *x, int lane, bool isStored) {
  float part[4];
#pragma unroll
  for (int t = 0; t < 4; t++) {
    const float first = tw_add(tw_add(0.0f, x[2 * t]), x[2 * t + 1]);
    part[t] = tw_add(tw_add(__shfl_xor_sync(0xffffffffu, first, 1), x[2 * t]), x[2 * t + 1]);
  }
  if ((lane & 1) && isStored) *to = tw_add(tw_add(part[0], part[1]), tw_add(part[2], part[3]));
}
__device__ __forceinline__ int tw_clusters() {
  int blocks;
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
  return blocks / 2;
}
/*
 * Where tile number `tile` lies: groups of 8 row tiles (of 256 rows) are walked column by column,
 * so that what all blocks read at a time stays in L2.
 */
struct tw_place { int row0, columnTile; };
__device__ __forceinline__ tw_place tw_place_of(int tile, int rows, int rank) {
  const int rowTiles = (rows + 255) / 256, group = tile / 16, inGroup = tile - group * 16;
  const int height = rowTiles - group * 8 < 8 ? rowTiles - group * 8 : 8,
      columnTile = inGroup / height;
  return { (group * 8 + inGroup - columnTile * height) * 256 + rank * 128,
      columnTile };
}
