/* Instructions of arithmetic: never contracted to a fused multiply-add, or fast and approximate. */
#pragma once
#include "lib/device.cuh"

namespace tw {

TW_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
TW_DEVICE float sub(float a, float b) { return __fsub_rn(a, b); }
TW_DEVICE float mul(float a, float b) { return __fmul_rn(a, b); }

/* The larger one; NaN if either is. PTX ISA, "max". */
TW_DEVICE float max_nan(float a, float b) {
  float x;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}

/* a / b for a b of at least 1 (1 + exp x): within 2 ulp, and 0 where b overflows its fast range. */
TW_DEVICE float div_sigmoid(float a, float b) { return __fdividef(a, b); }

/* 2^x within 2 ulp; subnormal results are 0, and so is 2^−∞. PTX ISA, "ex2". */
TW_DEVICE float exp2_flushed(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/* Two numbers of bf16 by two. PTX ISA, "mul". */
TW_DEVICE unsigned mul_bf16x2(unsigned a, unsigned b) {
  unsigned y;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
/* log2 x. PTX ISA, "lg2". */
TW_DEVICE float log2_fast(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tw
