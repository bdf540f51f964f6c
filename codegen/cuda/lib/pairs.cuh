/*
 * Functions of scalar programs, of one column (float) or of two adjacent ones at once (float2): each column gets what
 * the function says of one. A float beside a pair counts for both columns. Truth values are int, int2, bytes unsigned
 * and uint2.
 */
#pragma once
#include "lib/elements.cuh"

namespace tw {

template <class T> constexpr bool is_pair = false;
template <> constexpr bool is_pair<float2> = true;
template <> constexpr bool is_pair<int2> = true;
template <> constexpr bool is_pair<uint2> = true;

/* The value of the first and of the second column. */
template <class T> TW_DEVICE auto first_of(const T &a) {
  if constexpr (is_pair<T>) return a.x;
  else return a;
}
template <class T> TW_DEVICE auto second_of(const T &a) {
  if constexpr (is_pair<T>) return a.y;
  else return a;
}
template <class... T> concept SomePair = (is_pair<T> || ...);

/* One column: add, sub, mul, max, min, round_…, tail_f24, join_f24, div_sigmoid are in arithmetic.cuh, elements.cuh. */
TW_DEVICE float div(float a, float b) { return a / b; }
TW_DEVICE float neg(float x) { return -x; }
TW_DEVICE float exp(float x) { return expf(x); }
TW_DEVICE float log(float x) { return logf(x); }
TW_DEVICE float tanh(float x) { return tanhf(x); }
TW_DEVICE float erf(float x) { return erff(x); }
TW_DEVICE float floor(float x) { return floorf(x); }
TW_DEVICE float sqrt(float x) { return sqrtf(x); }
TW_DEVICE float inverse_sqrt(float x) { return 1.0f / sqrtf(x); }
TW_DEVICE double exp(double x) { return ::exp(x); }
TW_DEVICE double log(double x) { return ::log(x); }
TW_DEVICE double sqrt(double x) { return ::sqrt(x); }
TW_DEVICE int at_most(float a, float b) { return a <= b; }
TW_DEVICE int below(float a, float b) { return a < b; }
TW_DEVICE int equal(float a, float b) { return a == b; }
TW_DEVICE int both(int a, int b) { return a && b; }
TW_DEVICE int either(int a, int b) { return a || b; }
TW_DEVICE int is_false(int a) { return !a; }
TW_DEVICE int is_true(float x) { return x != 0.0f; }
TW_DEVICE float select(int condition, float a, float b) { return condition ? a : b; }
TW_DEVICE float to_float(int x) { return (float)x; }
TW_DEVICE float to_float(unsigned x) { return (float)x; }
TW_DEVICE unsigned to_byte(float x) { return (unsigned)x; }

/* Two columns. */
TW_DEVICE float2 neg(float2 x) { return { neg(x.x), neg(x.y) }; }
TW_DEVICE float2 exp(float2 x) { return { exp(x.x), exp(x.y) }; }
TW_DEVICE float2 log(float2 x) { return { log(x.x), log(x.y) }; }
TW_DEVICE float2 tanh(float2 x) { return { tanh(x.x), tanh(x.y) }; }
TW_DEVICE float2 erf(float2 x) { return { erf(x.x), erf(x.y) }; }
TW_DEVICE float2 floor(float2 x) { return { floor(x.x), floor(x.y) }; }
TW_DEVICE float2 sqrt(float2 x) { return { sqrt(x.x), sqrt(x.y) }; }
TW_DEVICE float2 inverse_sqrt(float2 x) { return { inverse_sqrt(x.x), inverse_sqrt(x.y) }; }
TW_DEVICE float2 round_bf16(float2 x) { return { round_bf16(x.x), round_bf16(x.y) }; }
TW_DEVICE float2 round_f20(float2 x) { return { round_f20(x.x), round_f20(x.y) }; }
TW_DEVICE float2 round_f24(float2 x) { return { round_f24(x.x), round_f24(x.y) }; }
TW_DEVICE uint2 tail_f24(float2 x) { return { tail_f24(x.x), tail_f24(x.y) }; }
TW_DEVICE int2 is_false(int2 x) { return { is_false(x.x), is_false(x.y) }; }
TW_DEVICE int2 is_true(float2 x) { return { is_true(x.x), is_true(x.y) }; }
TW_DEVICE float2 to_float(int2 x) { return { to_float(x.x), to_float(x.y) }; }
TW_DEVICE float2 to_float(uint2 x) { return { to_float(x.x), to_float(x.y) }; }
TW_DEVICE uint2 to_byte(float2 x) { return { to_byte(x.x), to_byte(x.y) }; }

#define TW_OF_PAIRS(Pair, name)                                                         \
  template <class A, class B> requires SomePair<A, B> TW_DEVICE Pair name(A a, B b) {   \
    return { name(first_of(a), first_of(b)), name(second_of(a), second_of(b)) };        \
  }
TW_OF_PAIRS(float2, add)
TW_OF_PAIRS(float2, sub)
TW_OF_PAIRS(float2, mul)
TW_OF_PAIRS(float2, div)
TW_OF_PAIRS(float2, div_sigmoid)
TW_OF_PAIRS(float2, max)
TW_OF_PAIRS(float2, min)
TW_OF_PAIRS(float2, join_f24)
TW_OF_PAIRS(int2, at_most)
TW_OF_PAIRS(int2, below)
TW_OF_PAIRS(int2, equal)
TW_OF_PAIRS(int2, both)
TW_OF_PAIRS(int2, either)
#undef TW_OF_PAIRS
template <class C, class A, class B> requires SomePair<C, A, B> TW_DEVICE float2 select(C condition, A a, B b) {
  return { select(first_of(condition), first_of(a), first_of(b)),
      select(second_of(condition), second_of(a), second_of(b)) };
}

/* A lane's two columns of a group of eight. `products(group, i)`: a product, as main loops leave them. */
template <class Products> TW_DEVICE float2 pair(const Products &products, int group) {
  return { products(group, 0), products(group, 1) };
}
TW_DEVICE void add_to(float &sum, float2 x) {
  sum = add(sum, x.x);
  sum = add(sum, x.y);
}

/* Two adjacent columns of memory, the first at an even one. */
TW_DEVICE uint2 bytes_of(uchar2 x) { return { x.x, x.y }; }
template <class T> TW_DEVICE void store2(T *p, float2 x) { store2(p, x.x, x.y); }
TW_DEVICE void store2(u8 *p, uint2 x) { store2(p, x.x, x.y); }

}  // namespace tw
