/*
 * How the first factor of adapters is summed, wherever it is: a row's product with a column of A is the sum of eight,
 * each of a range of k, an eighth of it, in order. Long ranges have parts, whose sums are added in order too: no warp
 * then waits for memory again and again. A warp has a range, or a part of one, of eight columns of one slot, and of 8
 * or 16 rows. Operands go from memory to registers, 16 bytes a lane: of each 32 of k, a quad's lane has eight
 * neighbours, and an instruction takes four of them from every lane. That order is the same for both operands, and no
 * order of k that a product knows.
 */
#pragma once
#include "gemm/adapter.cuh"
#include "lib/mma.cuh"

namespace tw {

/* Ranges of k; and k of two instructions. */
constexpr int SHRINK_RANGES = 8, SHRINK_STEP = 32;

/* k of a range. */
TW_CONSTEXPR int shrink_range(int k) { return ceil_div(ceil_div(k, SHRINK_RANGES), SHRINK_STEP) * SHRINK_STEP; }

/* k of a range that is one part, at most; and of a part of others. Parts are whole batches of two steps. */
constexpr int SHRINK_DEEP = 1024, SHRINK_PART = 512, SHRINK_PART_STEP = 2 * SHRINK_STEP;

/* The parts of a product of so much k, by their numbers. Those past its end are empty. */
template <int depth> struct ShrinkParts {
  static constexpr int range = shrink_range(depth), of_range = range > SHRINK_DEEP ? ceil_div(range, SHRINK_PART) : 1;
  static constexpr bool is_deep = of_range > 1;
  static constexpr int count = SHRINK_RANGES * of_range;
  /* k of a part; the last of a range may have less. */
  static constexpr int k = is_deep ? ceil_div(ceil_div(range, of_range), SHRINK_PART_STEP) * SHRINK_PART_STEP : range;
  /* Whether all of them have as much of k. */
  static constexpr bool are_equal = depth == SHRINK_RANGES * range && range == of_range * k;

  static TW_DEVICE int first(int part) { return part / of_range * range + part % of_range * k; }
  static TW_DEVICE int end(int part) { return min(min(first(part) + k, (part / of_range + 1) * range), depth); }
};

/* Eight numbers of a row at `at`, of which those from `end` on are zeros, and those past the depth. */
template <int depth, class T> TW_DEVICE uint4 shrink_load(const T *row, int at, int end, bool is_there) {
  uint4 words = { 0u, 0u, 0u, 0u };
  if (is_there && at < end) {
    words = *(const uint4 *)(row + at);
    if constexpr (depth % 8 != 0) {
      unsigned *const all[4] = { &words.x, &words.y, &words.z, &words.w };
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int left = depth - at - 2 * i;
        *all[i] = left <= 0 ? 0u : left == 1 ? *all[i] & 0xffffu : *all[i];
      }
    }
  }
  return words;
}

/* Half of a step of 16 rows as an instruction takes it: `low` and `high` are what a lane has of its two rows. */
TW_DEVICE void shrink_fragment(unsigned (&to)[4], const uint4 &low, const uint4 &high, int half) {
  to[0] = half == 0 ? low.x : low.z;
  to[1] = half == 0 ? high.x : high.z;
  to[2] = half == 0 ? low.y : low.w;
  to[3] = half == 0 ? high.y : high.w;
}

/* Adds that half of a step: `y` is what a lane has of its column. */
template <class T> TW_DEVICE void shrink_add(float (&acc)[4], const unsigned (&x)[4], const uint4 &y, int half) {
  mma<T>(acc, x, half == 0 ? y.x : y.z, half == 0 ? y.y : y.w);
}

/*
 * Adds a batch of steps. Its operands are on the way together, where compilers would take them one after another: the
 * first sum has zero bits of all of them. `no_bits`: 0, which no compiler knows.
 */
template <class T, int batch>
TW_DEVICE void shrink_add_batch(const uint4 (&x)[batch], const uint4 (&y)[batch], unsigned no_bits, float (&acc)[4]) {
  unsigned all = 0;
#pragma unroll
  for (int s = 0; s < batch; s++) all |= x[s].x | y[s].x;
  acc[0] = __uint_as_float(__float_as_uint(acc[0]) | (all & no_bits));
#pragma unroll
  for (int s = 0; s < batch; s++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      unsigned own[4];
      shrink_fragment(own, x[s], { 0u, 0u, 0u, 0u }, half);
      shrink_add<T>(acc, own, y[s], half);
    }
  }
}

/* What follows the first range of it, of the same number. */
TW_DEVICE float2 shrink_sum(const float2 &sum, const float2 &more) {
  return { add(sum.x, more.x), add(sum.y, more.y) };
}

}  // namespace tw
