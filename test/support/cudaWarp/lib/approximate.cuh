/* codegen/cuda/lib/approximate.cuh over fibres. Compiled without contraction to fused multiply-adds. */
#pragma once
#include "lib/device.cuh"

namespace tw {

inline float add(float a, float b) { return a + b; }
inline float sub(float a, float b) { return a - b; }
inline float mul(float a, float b) { return a * b; }
inline float max_nan(float a, float b) { return a > b || a != a ? a : b; }
inline float div_sigmoid(float a, float b) { return a / b; }
inline float exp2_flushed(float x) { return exp2f(x); }
inline unsigned mul_bf16x2(unsigned a, unsigned b) {
  const auto half = [=](int by) {
    return (unsigned)tw_emulated_to_bf16(tw_emulated_from_bf16((uint16_t)(a >> by)) *
                                         tw_emulated_from_bf16((uint16_t)(b >> by)));
  };
  return half(0) | half(16) << 16;
}
inline float log2_fast(float x) { return log2f(x); }

}  // namespace tw
