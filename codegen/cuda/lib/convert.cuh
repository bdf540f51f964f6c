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

}  // namespace tw
