/* Elements in 32-bit words: pairs of adjacent columns, and the eight adjacent columns that a lane loads or stores. */
#pragma once
#include "lib/pairs.cuh"

namespace tw {

/* Pair `i` of elements in words: two elements each, or four of bytes, which are two pairs. */
template <class T> TW_DEVICE auto unpack(const unsigned *words, int i) {
  if constexpr (sizeof(T) == 4) {
    return float2{ __uint_as_float(words[2 * i]), __uint_as_float(words[2 * i + 1]) };
  } else if constexpr (sizeof(T) == 2) {
    const unsigned x = words[i];
    return float2{ to_float(T{ (unsigned short)x }), to_float(T{ (unsigned short)(x >> 16) }) };
  } else {
    const unsigned x = words[i / 2], left = 16 * (i % 2);
    const uint2 codes = { x >> left & 255u, x >> (left + 8) & 255u };
    return codes;
  }
}
template <> TW_DEVICE auto unpack<bf16>(const unsigned *words, int i) {
  return float2{ __uint_as_float(words[i] << 16), __uint_as_float(words[i] & 0xffff0000u) };
}
template <> TW_DEVICE auto unpack<e4m3>(const unsigned *words, int i) {
  const unsigned x = words[i / 2], left = 16 * (i % 2);
  return float2{ to_float(e4m3{ (unsigned char)(x >> left) }), to_float(e4m3{ (unsigned char)(x >> (left + 8)) }) };
}
template <> TW_DEVICE auto unpack<i8>(const unsigned *words, int i) {
  const unsigned x = words[i / 2], left = 16 * (i % 2);
  return float2{ (float)(i8)(x >> left), (float)(i8)(x >> (left + 8)) };
}
/* Keeps it in words. Those of bytes are 0 before. */
template <class T, class Pair> TW_DEVICE void repack(unsigned *words, int i, Pair x) {
  if constexpr (sizeof(T) == 4) {
    words[2 * i] = __float_as_uint(x.x);
    words[2 * i + 1] = __float_as_uint(x.y);
  } else if constexpr (sizeof(T) == 2) {
    words[i] = pack<T>(x.x, x.y);
  } else {
    words[i / 2] |= pack<T>(x.x, x.y) << 16 * (i % 2);
  }
}

/* Eight adjacent columns of a row. */
template <class T> struct Eight {
  static constexpr int count = 2 * sizeof(T);
  unsigned words[count];

  TW_DEVICE void load(const T *from) {
    if constexpr (count == 2) {
      const uint2 x = *(const uint2 *)from;
      words[0] = x.x, words[1] = x.y;
    } else {
#pragma unroll
      for (int i = 0; i < count / 4; i++) {
        const uint4 x = ((const uint4 *)from)[i];
        words[4 * i] = x.x, words[4 * i + 1] = x.y, words[4 * i + 2] = x.z, words[4 * i + 3] = x.w;
      }
    }
  }
  TW_DEVICE void store(T *to) const {
    if constexpr (count == 2) {
      *(uint2 *)to = { words[0], words[1] };
    } else {
#pragma unroll
      for (int i = 0; i < count / 4; i++)
        ((uint4 *)to)[i] = { words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3] };
    }
  }
  TW_DEVICE auto pair(int i) const { return unpack<T>(words, i); }
  template <class Pair> TW_DEVICE void keep(int i, Pair x) { repack<T>(words, i, x); }
};

/* Two of a lane's eight columns that are added up or compared. */
TW_DEVICE void set_pair(float (&columns)[8], int i, float2 x) {
  columns[2 * i] = x.x;
  columns[2 * i + 1] = x.y;
}

}  // namespace tw
