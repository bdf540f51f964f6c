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

}  // namespace tw
