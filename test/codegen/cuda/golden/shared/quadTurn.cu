/* Lane t of a quad has its words of column groups 0 to 3, and takes the four words of group t: 16 adjacent bytes. */
__device__ __forceinline__ tw_u4 tw_quad_turn(int quad, unsigned w0, unsigned w1, unsigned w2, unsigned w3) {
  const bool isUpper = quad & 2, isOdd = quad & 1;
  unsigned x = __shfl_xor_sync(0xffffffffu, isUpper ? w0 : w2, 2), y = __shfl_xor_sync(0xffffffffu, isUpper ? w1 : w3,
      2);
  if (isUpper) { w0 = x; w1 = y; } else { w2 = x; w3 = y; }
  x = __shfl_xor_sync(0xffffffffu, isOdd ? w0 : w1, 1);
  y = __shfl_xor_sync(0xffffffffu, isOdd ? w2 : w3, 1);
  if (isOdd) { w0 = x; w2 = y; } else { w1 = x; w3 = y; }
  return { w0, w1, w2, w3 };
}
/* The same of bytes, two groups a word: eight that lie together for two of each group, and back. */
__device__ __forceinline__ tw_u2 tw_quad_turn_bytes(int quad, unsigned w0, unsigned w1) {
  const tw_u4 w = tw_quad_turn(quad, w0, w0 >> 16, w1, w1 >> 16);
  return { tw_bytes(w.x, w.y, 0x5410u), tw_bytes(w.z, w.w, 0x5410u) };
}
