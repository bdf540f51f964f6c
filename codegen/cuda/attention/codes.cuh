/*
 * Keys and values as codes (E4M3 or int8) with a scale for each row and head. Every code is a number of binary16, in
 * which both products are taken; within a product of 16 columns the order is that in which a lane has four codes in a
 * word. Queries are moved by a power of two so that the largest of a head lies below 2^15. A score is multiplied by the
 * scale of its key. The scale of a value goes into the exponent of its weight, w = 2^(score + log2 scale − top), and
 * the sum of weights divides it out again: nothing that is rounded to 16 bits depends on how large values are.
 */
#pragma once
#include "lib/elements.cuh"

namespace tw {

/* Exponents of weights lie below this. */
constexpr float WEIGHT_BITS = 14.0f;

/* The type in which products with keys of type Key are taken. */
template <class Key> struct ProductOf { using Type = Key; };
template <> struct ProductOf<e4m3> { using Type = f16; };
template <> struct ProductOf<i8> { using Type = f16; };
template <class Key> using Product = typename ProductOf<Key>::Type;

/* Two codes of a word as two numbers, those of its low half and of its upper one. The first has the low bits. */
template <class Key> TW_DEVICE unsigned pair_of_codes(unsigned codes);
template <> TW_DEVICE unsigned pair_of_codes<e4m3>(unsigned codes) { return f16x2_of_e4m3x2(codes); }
template <> TW_DEVICE unsigned pair_of_codes<i8>(unsigned codes) { return f16x2_of_i8x2(codes); }
template <class Key> TW_DEVICE unsigned upper_pair_of_codes(unsigned codes);
template <> TW_DEVICE unsigned upper_pair_of_codes<e4m3>(unsigned codes) { return f16x2_of_upper_e4m3x2(codes); }
template <> TW_DEVICE unsigned upper_pair_of_codes<i8>(unsigned codes) { return f16x2_of_i8x2(codes >> 16); }

/* The power of two that moves numbers of at most `most`, given as bits, below 2^15, and its inverse. */
TW_DEVICE float2 query_power(unsigned most) {
  const int exponent = min(268 - (int)(most >> 23), 253);
  return { __int_as_float(exponent << 23), __int_as_float((254 - exponent) << 23) };
}
/* Two elements of 16 bits. */
template <class T> TW_DEVICE float2 floats_of(unsigned pair) {
  return { to_float(T{ (unsigned short)pair }), to_float(T{ (unsigned short)(pair >> 16) }) };
}
TW_DEVICE unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }
TW_DEVICE unsigned larger(unsigned a, unsigned b) { return a > b ? a : b; }

/* Of a key: its scale, the logarithm of its value's scale, and the inverse of that. */
struct KeyScales { float k, log_v, inverse_v; };
TW_DEVICE KeyScales key_scales(float2 scales) {
  return { scales.x, scales.y > 0.0f ? log2_fast(scales.y) : scales.y, scales.y == 0.0f ? 0.0f : 1.0f / scales.y };
}
/* A lane has a number of key `lane` of a tile; this is that of key `at`. All lanes call it together. */
TW_DEVICE float of_key(float own, int at) { return __shfl_sync(ALL_LANES, own, at); }

}  // namespace tw
