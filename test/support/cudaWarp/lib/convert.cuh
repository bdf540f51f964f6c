/* codegen/cuda/lib/convert.cuh over fibres. */
#pragma once
#include "lib/device.cuh"

namespace tw {

inline unsigned short bits_of_bf16(float x) { return tw_emulated_to_bf16(x); }
inline unsigned short bits_of_f16(float x) { return tw_emulated_to_f16(x); }
inline float float_of_f16(unsigned short h) { return tw_emulated_from_f16(h); }
inline unsigned bits_of_bf16x2(float x, float y) { return bits_of_bf16(x) | (unsigned)bits_of_bf16(y) << 16; }
inline unsigned bits_of_f16x2(float x, float y) { return bits_of_f16(x) | (unsigned)bits_of_f16(y) << 16; }
inline unsigned bits_of_e4m3x2(float x, float y) { return tw_emulated_to_e4m3(x) | tw_emulated_to_e4m3(y) << 8; }

inline float float_of_e4m3(unsigned code) {
  const unsigned size = code & 0x7fu, exponent = size >> 3, fraction = size & 7u;
  const float x = size == 0x7fu   ? NAN
                  : exponent == 0 ? ldexpf((float)fraction, -9)
                                  : ldexpf((float)(8u + fraction), (int)exponent - 10);
  return (code & 0x80u) != 0 ? -x : x;
}
inline unsigned f16x2_of_e4m3x2(unsigned codes) {
  return bits_of_f16x2(float_of_e4m3(codes & 255u), float_of_e4m3(codes >> 8 & 255u));
}
inline unsigned f16x2_of_upper_e4m3x2(unsigned codes) { return f16x2_of_e4m3x2(codes >> 16); }
inline unsigned f16x2_of_i8x2(unsigned codes) {
  return bits_of_f16x2((float)(signed char)codes, (float)(signed char)(codes >> 8));
}

}  // namespace tw
