/*
 * What every kernel begins with: types of 16 lanes, how functions of a Config are declared, and single 16-bit floats.
 *
 * A kernel is an inline function whose first parameter is a Config: a struct of numbers that the unit writes down as a
 * constant. Inlined, its loops have constant bounds and its branches are decided, as with templates of C++. Functions
 * that it calls for the unit, register tiles and epilogues, are parameters too.
 */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include "native/abi.h"
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

typedef float tw_v __attribute__((vector_size(64)));
typedef float tw_v8 __attribute__((vector_size(32)));
typedef float tw_v4 __attribute__((vector_size(16)));
typedef float tw_vu __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t tw_i __attribute__((vector_size(64)));
typedef int32_t tw_iu __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t tw_h __attribute__((vector_size(32)));
typedef uint16_t tw_hu __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint8_t tw_b __attribute__((vector_size(16)));
typedef uint8_t tw_bu __attribute__((vector_size(16), aligned(1), may_alias));
#define TW_FN static inline __attribute__((always_inline, unused))
#define TW_LOOP static inline __attribute__((unused))
/* A function of its own: register tiles, whose registers nothing else needs. */
#define TW_TILE static __attribute__((noinline))
/* Loops over registers, of which none is left. */
#define TW_UNROLL _Pragma("GCC unroll 64")
/* A limit of a Config: code for another one does not build. Without optimization no condition is decided. */
#if defined(__OPTIMIZE__)
#define TW_LIMIT(condition) \
  do { \
    if (!(condition)) tw_beyond_limit(); \
  } while (0)
#else
#define TW_LIMIT(condition) (void)0
#endif
extern void tw_beyond_limit(void)
#if defined(__has_attribute)
#if __has_attribute(error)
    __attribute__((error("a Config is beyond a limit of its kernel")))
#endif
#endif
    ;

static const tw_i tw_lane = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

TW_FN tw_v tw_set1(float x) { return (tw_v){ x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x }; }
TW_FN tw_i tw_seti(int32_t x) { return (tw_i){ x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x }; }
TW_FN tw_i tw_bits(tw_v x) { return (tw_i)x; }
TW_FN tw_v tw_from_bits(tw_i x) { return (tw_v)x; }

/* Single 16-bit floats. bf16 rounds to nearest even and keeps NaN. */
TW_FN float tw_s_load_bf16(const uint16_t *p) { uint32_t u = (uint32_t)*p << 16; float f; memcpy(&f, &u, 4); return f; }
TW_FN float tw_s_load_f16(const uint16_t *p) {
#if defined(__F16C__)
  return _cvtsh_ss(*p);
#else
  const uint32_t h = *p, sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31, fraction = h & 1023;
  uint32_t u = sign | ((exponent + 112) << 23) | (fraction << 13);
  float f;
  if (exponent == 31) u = sign | 0x7f800000u | (fraction << 13);
  if (exponent == 0) { f = (float)(int32_t)fraction * 5.9604644775390625e-8f; return sign ? -f : f; }
  memcpy(&f, &u, 4);
  return f;
#endif
}
TW_FN uint16_t tw_s_to_f16(float x) {
#if defined(__F16C__)
  return (uint16_t)_cvtss_sh(x, 0);
#else
  uint32_t u;
  memcpy(&u, &x, 4);
  const uint32_t sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
  if (a < 0x38800000u) {
    float f;
    memcpy(&f, &a, 4);
    f += 0.5f; /* The last bit of the sum weighs 2^-24, the quantum of binary16 subnormals. */
    uint32_t s;
    memcpy(&s, &f, 4);
    return (uint16_t)(sign | (s - 0x3f000000u));
  }
  return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
#endif
}
