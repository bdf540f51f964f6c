/*
 * Elements of buffers: their types, and loads and stores of one element or of two at an even column. All arithmetic is
 * in float; bytes beside bf16 (u8) stay bytes.
 */
#pragma once
#include "lib/arithmetic.cuh"
#include "lib/convert.cuh"

namespace tw {

/* 16-bit floats as bits: NVRTC has no built-in header that declares their types. */
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
/* A sign, 4 bits of exponent with bias 7, 3 of the fraction; no infinity. */
struct e4m3 { unsigned char bits; };
/* A truth value: 0 or 1. */
struct flag { unsigned char value; };
using f32 = float;
using i32 = int;
using i8 = signed char;
using u8 = unsigned char;

TW_DEVICE float to_float(bf16 h) { return __uint_as_float((unsigned)h.bits << 16); }
TW_DEVICE float to_float(f16 h) { return float_of_f16(h.bits); }
TW_DEVICE float to_float(e4m3 h) {
  const unsigned sign = (unsigned)(h.bits & 0x80u) << 24, a = h.bits & 0x7fu;
  if (a < 8u) return __uint_as_float(sign | __float_as_uint(mul((float)(int)a, 0.001953125f)));
  return __uint_as_float(sign | (a == 0x7fu ? 0x7fc00000u : (a << 20) + 0x3c000000u));
}
TW_DEVICE float round_bf16(float x) { return to_float(bf16{ bits_of_bf16(x) }); }

/* The 20 leading bits, and the middle of what shares them. */
TW_DEVICE float round_f20(float x) { return __uint_as_float((__float_as_uint(x) & 0xfffff000u) | 0x800u); }
/*
 * The 24 leading bits and the middle of what shares them; of these bits the eight that bf16 has no room for; and all of
 * them again.
 */
TW_DEVICE float round_f24(float x) { return __uint_as_float((__float_as_uint(x) & 0xffffff00u) | 0x80u); }
TW_DEVICE unsigned tail_f24(float x) { return __float_as_uint(x) >> 8 & 255u; }
TW_DEVICE float join_f24(float upper, unsigned tail) {
  return __uint_as_float(__float_as_uint(upper) + (unsigned)((int)(tail << 24) >> 16) + 0x80u);
}

/*
 * int8: rounded to the nearest, to even, ±127 what is larger. NaN has no code: it becomes 0, and the scale beside it is
 * NaN.
 */
TW_DEVICE unsigned bits_of_i8(float x) {
  const float held = x != x ? 0.0f : max(-127.0f, min(127.0f, x));
  /* The last bit of 1.5 · 2^23 weighs 1. */
  return (unsigned)(int)sub(add(held, 12582912.0f), 12582912.0f) & 255u;
}

/* Two neighbours as bits, the first in the low ones: 16 bits each, or 8. */
template <class T> TW_DEVICE unsigned pack(float x, float y);
template <> TW_DEVICE unsigned pack<bf16>(float x, float y) { return bits_of_bf16x2(x, y); }
template <> TW_DEVICE unsigned pack<f16>(float x, float y) { return bits_of_f16x2(x, y); }
template <> TW_DEVICE unsigned pack<e4m3>(float x, float y) { return bits_of_e4m3x2(x, y); }
template <> TW_DEVICE unsigned pack<i8>(float x, float y) { return bits_of_i8(x) | bits_of_i8(y) << 8; }
template <class T> TW_DEVICE unsigned pack(unsigned x, unsigned y);
template <> TW_DEVICE unsigned pack<u8>(unsigned x, unsigned y) { return x | y << 8; }

TW_DEVICE float load(const f32 *p) { return *p; }
TW_DEVICE float load(const bf16 *p) { return to_float(*p); }
TW_DEVICE float load(const f16 *p) { return to_float(*p); }
TW_DEVICE float load(const e4m3 *p) { return to_float(*p); }
TW_DEVICE float load(const i8 *p) { return (float)*p; }
TW_DEVICE float load(const i32 *p) { return (float)*p; }
TW_DEVICE float load(const flag *p) { return (float)p->value; }
TW_DEVICE unsigned load(const u8 *p) { return *p; }

TW_DEVICE float2 load2(const f32 *p) { return *(const float2 *)p; }
TW_DEVICE float2 load2(const bf16 *p) {
  const unsigned u = *(const unsigned *)p;
  return { __uint_as_float(u << 16), __uint_as_float(u & 0xffff0000u) };
}
TW_DEVICE float2 load2(const f16 *p) {
  const unsigned u = *(const unsigned *)p;
  return { float_of_f16((unsigned short)u), float_of_f16((unsigned short)(u >> 16)) };
}
TW_DEVICE float2 load2(const e4m3 *p) {
  const uchar2 v = *(const uchar2 *)p;
  return { to_float(e4m3{ v.x }), to_float(e4m3{ v.y }) };
}
TW_DEVICE float2 load2(const i8 *p) { return { (float)p[0], (float)p[1] }; }
TW_DEVICE float2 load2(const i32 *p) {
  const int2 v = *(const int2 *)p;
  return { (float)v.x, (float)v.y };
}
TW_DEVICE float2 load2(const flag *p) {
  const uchar2 v = *(const uchar2 *)p;
  return { (float)v.x, (float)v.y };
}
TW_DEVICE uchar2 load2(const u8 *p) { return *(const uchar2 *)p; }

TW_DEVICE void store(f32 *p, float x) { *p = x; }
TW_DEVICE void store(bf16 *p, float x) { p->bits = bits_of_bf16(x); }
TW_DEVICE void store(f16 *p, float x) { p->bits = bits_of_f16(x); }
TW_DEVICE void store(e4m3 *p, float x) { p->bits = (unsigned char)bits_of_e4m3x2(x, 0.0f); }
TW_DEVICE void store(i8 *p, float x) { *p = (i8)bits_of_i8(x); }
TW_DEVICE void store(i32 *p, float x) { *p = (int)x; }
TW_DEVICE void store(flag *p, float x) { p->value = x != 0.0f; }
TW_DEVICE void store(u8 *p, unsigned x) { *p = (u8)x; }

TW_DEVICE void store2(f32 *p, float x, float y) { *(float2 *)p = { x, y }; }
TW_DEVICE void store2(bf16 *p, float x, float y) { *(unsigned *)p = pack<bf16>(x, y); }
TW_DEVICE void store2(f16 *p, float x, float y) { *(unsigned *)p = pack<f16>(x, y); }
TW_DEVICE void store2(e4m3 *p, float x, float y) { *(unsigned short *)p = (unsigned short)pack<e4m3>(x, y); }
TW_DEVICE void store2(i8 *p, float x, float y) { *(unsigned short *)p = (unsigned short)pack<i8>(x, y); }
TW_DEVICE void store2(i32 *p, float x, float y) { *(int2 *)p = { (int)x, (int)y }; }
TW_DEVICE void store2(flag *p, float x, float y) {
  *(uchar2 *)p = { (unsigned char)(x != 0.0f), (unsigned char)(y != 0.0f) };
}
TW_DEVICE void store2(u8 *p, unsigned x, unsigned y) { *(uchar2 *)p = { (u8)x, (u8)y }; }

}  // namespace tw
