/* Elementary functions. exp and log: branch-free, error below 2 ulp. No libm inside loops over columns. */
#pragma once
#include "lib/vectors.h"

/* exp(x) = 2^n · p(r), r = x − n·ln 2. Below −87 the result is exactly 0: no denormal reaches a sum. */
TW_FN tw_v tw_exp(tw_v x) {
  const tw_v n = tw_round(x * tw_set1(1.44269504088896f));
  tw_v r = tw_fma(n, tw_set1(-0.693359375f), x);
  r = tw_fma(n, tw_set1(2.12194440e-4f), r);
  tw_v p = tw_set1(1.9875691500e-4f);
  p = tw_fma(p, r, tw_set1(1.3981999507e-3f));
  p = tw_fma(p, r, tw_set1(8.3334519073e-3f));
  p = tw_fma(p, r, tw_set1(4.1665795894e-2f));
  p = tw_fma(p, r, tw_set1(1.6666665459e-1f));
  p = tw_fma(p, r, tw_set1(5.0000001201e-1f));
  p = tw_scale(tw_fma(p, r * r, r + tw_set1(1.0f)), n);
  p = tw_select(tw_lt(tw_set1(88.722839f), x), tw_set1(__builtin_inff()), p);
  return tw_select(tw_lt(x, tw_set1(-87.0f)), tw_set1(0.0f), p);
}

/* log(x) = e·ln 2 + 2·atanh(f / (2 + f)), with x = 2^e · (1 + f) and 1 + f in [√½, √2). */
TW_FN tw_v tw_log(tw_v x) {
  const tw_m small = tw_lt(x, tw_set1(1.17549435e-38f));
  const tw_v y = tw_select(small, x * tw_set1(8388608.0f), x);
  const tw_i b = tw_bits(y) - tw_seti(0x3f3504f3);
  const tw_v e = tw_float(b >> 23) - tw_select(small, tw_set1(23.0f), tw_set1(0.0f));
  const tw_v f = tw_from_bits((b & tw_seti(0x7fffff)) + tw_seti(0x3f3504f3)) - tw_set1(1.0f);
  const tw_v s = f / (f + tw_set1(2.0f));
  const tw_v z = s * s;
  tw_v p = tw_set1(0.2222222222f);
  p = tw_fma(p, z, tw_set1(0.2857142857f));
  p = tw_fma(p, z, tw_set1(0.4f));
  p = tw_fma(p, z, tw_set1(0.6666666667f));
  /* 2·atanh(s) = f − s·(f − z·p): the leading term is exact. */
  tw_v r = f - s * (f - z * p);
  r = tw_fma(e, tw_set1(0.693359375f), tw_fma(e, tw_set1(-2.12194440e-4f), r));
  r = tw_select(tw_eq(x, tw_set1(__builtin_inff())), x, r);
  r = tw_select(tw_eq(x, tw_set1(0.0f)), tw_set1(-__builtin_inff()), r);
  return tw_select(tw_le(tw_set1(0.0f), x), r, tw_set1(__builtin_nanf("")));
}

/* tanh(x): a polynomial near 0, where 1 − 2 / (exp(2|x|) + 1) would cancel. Error below 4 ulp. */
TW_FN tw_v tw_tanh(tw_v x) {
  const tw_v a = tw_max(x, -x), z = x * x;
  tw_v p = tw_set1(1.506367278e-2f);
  p = tw_fma(p, z, tw_set1(-5.183185658e-2f));
  p = tw_fma(p, z, tw_set1(1.330477150e-1f));
  p = tw_fma(p, z, tw_set1(-3.333197362e-1f));
  p = tw_fma(p, z, tw_set1(9.999998955e-1f));
  const tw_v far = tw_set1(1.0f) - tw_set1(2.0f) / (tw_exp(a + a) + tw_set1(1.0f));
  return tw_select(tw_lt(a, tw_set1(0.625f)), p * x, tw_select(tw_lt(x, tw_set1(0.0f)), -far, far));
}

/* erf(x): x·p(x²) up to 1, and beyond it 1 − exp(q(|x|)), where q is log(erfc). Error below 4 ulp. */
TW_FN tw_v tw_erf(tw_v x) {
  const tw_v a = tw_max(x, -x), z = x * x;
  tw_v p = tw_set1(7.882497077e-5f);
  p = tw_fma(p, z, tw_set1(-8.018854981e-4f));
  p = tw_fma(p, z, tw_set1(5.189311941e-3f));
  p = tw_fma(p, z, tw_set1(-2.685432880e-2f));
  p = tw_fma(p, z, tw_set1(1.128359746e-1f));
  p = tw_fma(p, z, tw_set1(-3.761262690e-1f));
  p = tw_fma(p, z, tw_set1(1.128379166f));
  const tw_v y = tw_min(a, tw_set1(4.0f));
  tw_v q = tw_set1(-1.330939035e-5f);
  q = tw_fma(q, y, tw_set1(3.175720340e-4f));
  q = tw_fma(q, y, tw_set1(-3.436867594e-3f));
  q = tw_fma(q, y, tw_set1(2.262198591e-2f));
  q = tw_fma(q, y, tw_set1(-1.033189800e-1f));
  q = tw_fma(q, y, tw_set1(-6.390933195e-1f));
  q = tw_fma(q, y, tw_set1(-1.125925949f));
  q = tw_fma(q, y, tw_set1(-7.569686310e-4f));
  const tw_v far = tw_set1(1.0f) - tw_exp(q);
  return tw_select(tw_lt(a, tw_set1(1.0f)), p * x, tw_select(tw_lt(x, tw_set1(0.0f)), -far, far));
}
/* floor(x): x rounded to a whole number, less 1 where that is more. */
TW_FN tw_v tw_floor(tw_v x) {
  const tw_v a = tw_max(x, -x), whole = tw_set1(8388608.0f), near = (a + whole) - whole;
  const tw_v r = tw_select(tw_lt(x, tw_set1(0.0f)), -near, near);
  return tw_select(tw_lt(a, whole), tw_select(tw_lt(x, r), r - tw_set1(1.0f), r), x);
}
TW_FN float tw_s_floor(float x) { return tw_floor(tw_set1(x))[0]; }
TW_FN float tw_s_exp(float x) { return tw_exp(tw_set1(x))[0]; }
TW_FN float tw_s_log(float x) { return tw_log(tw_set1(x))[0]; }
TW_FN float tw_s_tanh(float x) { return tw_tanh(tw_set1(x))[0]; }
TW_FN float tw_s_erf(float x) { return tw_erf(tw_set1(x))[0]; }
TW_FN float tw_s_max(float a, float b) { return a > b || a != a ? a : b; }
TW_FN float tw_s_min(float a, float b) { return a < b || a != a ? a : b; }

/*
 * Angles in double: x = q·π/2 + r with π/2 in two parts, the first short enough that q times it is exact (|x| < 2^30).
 */
TW_FN double tw_sin_quarter(double x, int32_t quarter) {
  const double q = (x * 0.63661977236758134308 + 6755399441055744.0) - 6755399441055744.0;
  const double r = (x - q * 1.57079632673412561417) - q * 6.07710050650619224932e-11;
  const double z = r * r;
  const double s = r + r * z * (-1.0 / 6 + z * (1.0 / 120 +
      z * (-1.0 / 5040 + z * (1.0 / 362880 - z * (1.0 / 39916800)))));
  const double c = 1.0 + z * (-0.5 + z * (1.0 / 24 +
      z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 + z * (1.0 / 479001600))))));
  const int32_t k = (int32_t)q + quarter;
  const double v = (k & 1) ? c : s;
  return (k & 2) ? -v : v;
}
#define tw_sin(x) tw_sin_quarter((x), 0)
#define tw_cos(x) tw_sin_quarter((x), 1)
