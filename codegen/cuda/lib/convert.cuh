/* Conversions between float and the narrow types, as instructions: to nearest even, NaN stays NaN. PTX ISA, "cvt". */
#pragma once
#include "lib/device.cuh"

namespace tw {

TW_DEVICE unsigned short bits_of_bf16(float x) {
  unsigned short h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
TW_DEVICE unsigned short bits_of_f16(float x) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
TW_DEVICE float float_of_f16(unsigned short h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
/* Two neighbours in one word, the first in the low half. */
TW_DEVICE unsigned bits_of_bf16x2(float x, float y) {
  unsigned u;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(y), "f"(x));
  return u;
}
TW_DEVICE unsigned bits_of_f16x2(float x, float y) {
  unsigned u;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(y), "f"(x));
  return u;
}

/* E4M3 in software, for architectures without the conversion; ±448 is what is larger. */
TW_DEVICE unsigned e4m3_in_software(float x) {
  const unsigned u = __float_as_uint(x), sign = (u >> 24) & 0x80u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return 0x7fu;
  if (a >= 0x43e00000u) return sign | 0x7eu;
  /* The last bit of 2^14 + |x| weighs 2^-9, the quantum of subnormals. */
  if (a < 0x3c800000u) return sign | (__float_as_uint(__fadd_rn(__uint_as_float(a), 16384.0f)) - 0x46800000u);
  return sign | ((a - 0x3c000000u + 0x7ffffu + ((a >> 20) & 1u)) >> 20);
}
/* Two neighbours in the low half of a word, the first in its low byte. */
TW_DEVICE unsigned bits_of_e4m3x2(float x, float y) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned short h;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(h) : "f"(y), "f"(x));
  return h;
#else
  return e4m3_in_software(x) | e4m3_in_software(y) << 8;
#endif
}

/* Two bytes of E4M3, in the low half of a word, as numbers of binary16, the first in the low half. */
TW_DEVICE unsigned f16x2_of_e4m3x2(unsigned codes) {
  unsigned x;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(x) : "h"((unsigned short)codes));
#else
  /* The bits of a code, put into binary16, are 2^-8 of its value. A NaN becomes 480. */
  const unsigned at = (codes & 255u) << 8 | (codes & 0xff00u) << 16;
  x = (at & 0x80008000u) | (at >> 1 & 0x3f803f80u);
  asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(x) : "r"(0x5c005c00u));
#endif
  return x;
}
/* The same of the upper half. */
TW_DEVICE unsigned f16x2_of_upper_e4m3x2(unsigned codes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  /* Said this way, the conversion selects the half by itself. */
  unsigned x;
  asm("{\n.reg .b16 %%low, %%high;\nmov.b32 {%%low, %%high}, %1;\ncvt.rn.f16x2.e4m3x2 %0, %%high;\n}" : "=r"(x)
      : "r"(codes));
  return x;
#else
  return f16x2_of_e4m3x2(codes >> 16);
#endif
}
/* Two signed bytes, in the low half of a word, as numbers of binary16, the first in the low half. */
TW_DEVICE unsigned f16x2_of_i8x2(unsigned codes) {
  /* 1024 + 128 + a code, less 1152: the last bit of a number of binary16 from 1024 on weighs 1. */
  unsigned x = __byte_perm(codes ^ 0x8080u, 0x64646464u, 0x4140u);
  asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(x) : "r"(0x64806480u));
  return x;
}

}  // namespace tw
