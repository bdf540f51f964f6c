/*
 * The upper 16 bits of two products; bits 12 to 15 of eight, those of 2i and 2i + 1 in byte i; and one product of them
 * again.
 */
__device__ __forceinline__ unsigned tw_high(float x, float y) { return tw_bytes(__float_as_uint(x), __float_as_uint(y),
    0x7632u); }
__device__ __forceinline__ unsigned tw_low(float a, float b, float c, float d, float e, float f, float g, float h) {
  const unsigned even = tw_bytes(tw_bytes(__float_as_uint(a), __float_as_uint(c), 0x51u),
      tw_bytes(__float_as_uint(e), __float_as_uint(g), 0x51u), 0x5410u);
  const unsigned odd = tw_bytes(tw_bytes(__float_as_uint(b), __float_as_uint(d), 0x51u),
      tw_bytes(__float_as_uint(f), __float_as_uint(h), 0x51u), 0x5410u);
  return (even & 0xf0f0f0f0u) | (odd >> 4 & 0x0f0f0f0fu);
}
__device__ __forceinline__ float tw_product_of(unsigned high, unsigned low, int group, int lane) {
  const int left = 8 - 8 * group + 4 * lane;
  const unsigned bits = (left < 0 ? low >> -left : low << left) & 0xf000u;
  return __uint_as_float((lane == 0 ? high << 16 : high & 0xffff0000u) | bits);
}
