/* Arithmetic whose rounding does not depend on the text around it, and the functions that scalar programs call. */
#pragma once
#include "lib/device.cuh"
#include "lib/approximate.cuh"

namespace tw {

TW_DEVICE float infinity() { return __int_as_float(0x7f800000); }
TW_DEVICE float nan() { return __int_as_float(0x7fc00000); }

/* A NaN is kept, whichever operand it is. */
TW_DEVICE float max(float a, float b) { return a > b || a != a ? a : b; }
TW_DEVICE float min(float a, float b) { return a < b || a != a ? a : b; }
TW_DEVICE int min(int a, int b) { return a < b ? a : b; }
TW_DEVICE int max(int a, int b) { return a > b ? a : b; }

/* tanh(x / (2·log2 e)) = 1 − 2 / (2^x + 1), for caps cap·tanh(s / cap): within 2^-22, which a cap multiplies. */
TW_DEVICE float bounded(float x) { return sub(1.0f, div_sigmoid(2.0f, add(1.0f, exp2_flushed(x)))); }

/* Four of the eight bytes of x (0 to 3) and y (4 to 7), as the digits of `which` say, the last digit first. */
TW_DEVICE unsigned bytes(unsigned x, unsigned y, unsigned which) { return __byte_perm(x, y, which); }

/*
 * Angles in double: x = q·π/2 + r with π/2 in two parts, the first short enough that q times it is exact (|x| < 2^30).
 */
TW_DEVICE double sin_quarter(double x, int quarter) {
  const double q = (x * 0.63661977236758134308 + 6755399441055744.0) - 6755399441055744.0;
  const double r = (x - q * 1.57079632673412561417) - q * 6.07710050650619224932e-11;
  const double z = r * r;
  const double s = r + r * z * (-1.0 / 6 + z * (1.0 / 120 +
      z * (-1.0 / 5040 + z * (1.0 / 362880 - z * (1.0 / 39916800)))));
  const double c = 1.0 + z * (-0.5 + z * (1.0 / 24 +
      z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 + z * (1.0 / 479001600))))));
  const int k = (int)q + quarter;
  const double v = (k & 1) ? c : s;
  return (k & 2) ? -v : v;
}
TW_DEVICE double sine(double x) { return sin_quarter(x, 0); }
TW_DEVICE double cosine(double x) { return sin_quarter(x, 1); }

}  // namespace tw
