/*
 * The softmax of a warp that has 16 rows of a block to itself: its tiles of scores, the answer that they add up to, and
 * the total of chunks. Kernels of lone warps and of several queries a block take their steps from here.
 */
#pragma once
#include "attention/path.cuh"

namespace tw {

/* The weights of a tile, as the left operand of the product with its values. */
using Weights = unsigned[TILE_KEYS / 16][4];

/* Scores of keys that a row does not see become −∞. Keys begin at `key`; `last` is the last that each row sees. */
template <PathConfig config> TW_DEVICE void mask(Scores &s, int key, const int (&last)[2]) {
#pragma unroll
  for (int n = 0; n < TILE_KEYS / 8; n++) {
    const int first = key + n * 8 + (threadIdx.x & 3) * 2;
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int at = first + e % 2;
      if (at > last[e / 2] || (config.window > 0 && at <= last[e / 2] - config.window)) s[n][e] = -infinity();
    }
  }
}

/* What a lane has of the answer of its two rows: columns, maximum, and its part of the sum of weights. */
template <PathConfig config> struct Answer {
  float o[config.head_dim / 8][4], top[2], sum[2];

  TW_DEVICE void clear() {
    top[0] = top[1] = -infinity();
    sum[0] = sum[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < config.head_dim / 8; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
  }
};

/* A step of the softmax: the weights of a tile from its scores. What a row has is rescaled if its maximum grows. */
template <PathConfig config, class Key>
TW_DEVICE void weigh(Answer<config> &answer, Weights &weight, const Scores &s, const KeyScales &own) {
  float most[2], shift[2];
#pragma unroll
  for (int half = 0; half < 2; half++) most[half] = s[0][2 * half];
#pragma unroll
  for (int n = 0; n < TILE_KEYS / 8; n++) {
#pragma unroll
    for (int half = 0; half < 2; half++) most[half] = fmaxf(most[half], fmaxf(s[n][2 * half], s[n][2 * half + 1]));
  }
#pragma unroll
  for (int by = 1; by <= 2; by++) {
#pragma unroll
    for (int half = 0; half < 2; half++) most[half] = fmaxf(most[half], __shfl_xor_sync(ALL_LANES, most[half], by));
  }
#pragma unroll
  for (int half = 0; half < 2; half++)
    most[half] = fmaxf(answer.top[half], ceilf(config.is_coded() ? most[half] : mul(most[half], config.scale)));
  if (__any_sync(ALL_LANES, most[0] != answer.top[0] || most[1] != answer.top[1])) {
    const float keep[2] = { power2(answer.top[0] - most[0]), power2(answer.top[1] - most[1]) };
    answer.sum[0] = mul(answer.sum[0], keep[0]);
    answer.sum[1] = mul(answer.sum[1], keep[1]);
#pragma unroll
    for (int i = 0; i < config.head_dim / 8; i++) {
#pragma unroll
      for (int e = 0; e < 4; e++) answer.o[i][e] = mul(answer.o[i][e], keep[e / 2]);
    }
    answer.top[0] = most[0];
    answer.top[1] = most[1];
  }
  /* A row may have seen nothing yet. */
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (config.is_coded()) shift[half] = answer.top[half] == -infinity() ? 0.0f : WEIGHT_BITS - answer.top[half];
    else shift[half] = answer.top[half] == -infinity() ? 0.0f : -answer.top[half];
  }
#pragma unroll
  for (int n = 0; n < TILE_KEYS / 8; n++) {
    float x[4];
#pragma unroll
    for (int e = 0; e < 4; e++)
      x[e] = exp2_flushed(config.is_coded() ? s[n][e] + shift[e / 2] : fmaf(s[n][e], config.scale, shift[e / 2]));
    if constexpr (config.is_coded()) {
      const int key = n * 8 + (threadIdx.x & 3) * 2;
      const float inverse0 = of_key(own.inverse_v, key), inverse1 = of_key(own.inverse_v, key + 1);
      answer.sum[0] += fmaf(x[1], inverse1, mul(x[0], inverse0));
      answer.sum[1] += fmaf(x[3], inverse1, mul(x[2], inverse0));
    } else {
      answer.sum[0] += x[0] + x[1];
      answer.sum[1] += x[2] + x[3];
    }
    weight[n / 2][n % 2 * 2] = pack<Product<Key>>(x[0], x[1]);
    weight[n / 2][n % 2 * 2 + 1] = pack<Product<Key>>(x[2], x[3]);
  }
}

/*
 * x0 and x1 += values of 16 keys by their weights, 8 columns each; of codes, every other of 16. `b`: the values as they
 * lie, of codes those of 16 keys in two words.
 */
template <class Key>
TW_DEVICE void multiply_codes(float (&x0)[4], float (&x1)[4], const unsigned (&weight)[4], unsigned b0, unsigned b1) {
  /* Two columns of two keys: the first column of both, then the second. */
  const unsigned low = bytes(b0, 0u, 0x3120u), high = bytes(b1, 0u, 0x3120u);
  mma<f16>(x0, weight, pair_of_codes<Key>(low), pair_of_codes<Key>(high));
  mma<f16>(x1, weight, upper_pair_of_codes<Key>(low), upper_pair_of_codes<Key>(high));
}

/* The answer of a warp, plus the values at `values`, a result of values_of_lane, by their weights. */
template <PathConfig config, class Key>
TW_DEVICE void add_values(Answer<config> &answer, const Weights &weight, unsigned values) {
  if constexpr (config.is_coded()) {
#pragma unroll
    for (int i = 0; i < config.head_dim / 16; i++) {
      unsigned b[4];
      ldmatrix_x4_trans(b, values + i * 16);
#pragma unroll
      for (int n = 0; n < TILE_KEYS / 16; n++)
        multiply_codes<Key>(answer.o[2 * i], answer.o[2 * i + 1], weight[n], b[2 * n], b[2 * n + 1]);
    }
  } else {
#pragma unroll
    for (int n = 0; n < TILE_KEYS / 16; n++) {
#pragma unroll
      for (int i = 0; i < config.head_dim / 16; i++) {
        unsigned b[4];
        ldmatrix_x4_trans(b, values + n * 16 * config.row_bytes() + i * 32);
        mma<Key>(answer.o[2 * i], weight[n], b[0], b[1]);
        mma<Key>(answer.o[2 * i + 1], weight[n], b[2], b[3]);
      }
    }
  }
}

/* What the chunks of a lane's rows add up to. Chunks are merged in order. */
template <PathConfig config> struct Total {
  float2 o[config.head_dim / 8][2];
  float top[2], sum[2];
};

/* Adds the total of the chunks before to the current chunk of a row, whose sum over its lanes is `sum`. */
template <int row, PathConfig config>
TW_DEVICE void add_total(const Total<config> &total, Answer<config> &answer, float &sum) {
  const float most = fmaxf(total.top[row], answer.top[row]);
  const float old = power2(total.top[row] - most), now = power2(answer.top[row] - most);
  sum = fmaf(sum, now, mul(total.sum[row], old));
  answer.top[row] = most;
#pragma unroll
  for (int i = 0; i < config.head_dim / 8; i++) {
    answer.o[i][2 * row] = fmaf(answer.o[i][2 * row], now, mul(total.o[i][row].x, old));
    answer.o[i][2 * row + 1] = fmaf(answer.o[i][2 * row + 1], now, mul(total.o[i][row].y, old));
  }
}

/* Ends a row's chunk, which is not the first if `has_total`. `sum` is its sum over the row's lanes. */
template <int row, PathConfig config>
TW_DEVICE void end_chunk(Total<config> &total, bool has_total, Answer<config> &answer, float sum) {
  if (has_total) add_total<row>(total, answer, sum);
  total.top[row] = answer.top[row];
  total.sum[row] = sum;
  answer.top[row] = -infinity();
  answer.sum[row] = 0.0f;
#pragma unroll
  for (int i = 0; i < config.head_dim / 8; i++) {
    total.o[i][row] = float2{ answer.o[i][2 * row], answer.o[i][2 * row + 1] };
    answer.o[i][2 * row] = answer.o[i][2 * row + 1] = 0.0f;
  }
}

/*
 * Stores the answer of rows row[0] and row[1] of a block whose first query is `first`, those that `is_stored`. Sums up
 * zeros in `check`, which are not zero if a result is not finite.
 */
template <PathConfig config, class Out>
TW_DEVICE void store_answer(const Answer<config> &answer, Out *out, int first, int kv, const int (&row)[2],
    const bool (&is_stored)[2], float (&check)[2]) {
  constexpr int group = config.group(), d = config.head_dim;
  const float inverse[2] = { 1.0f / answer.sum[0], 1.0f / answer.sum[1] };
  check[0] = check[1] = 0.0f;
  const auto place_of = [&](int r) {
    return out + (long long)(first + r / group) * config.out_stride + (kv * group + r % group) * d +
        (threadIdx.x & 3) * config.lane_columns();
  };
#pragma unroll
  for (int i = 0; i < d / 8; i++) {
    /* Of codes every other column is in the next accumulator: four columns of a row lie beside each other. */
    const int from = config.is_coded() ? i & ~1 : i, e = config.is_coded() ? i & 1 : 0;
    const int other = config.is_coded() ? from + 1 : i, second = config.is_coded() ? e : 1;
    const int column = config.is_coded() ? i / 2 * 16 + e * 2 : i * 8;
    float x[2][2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      /* Adding zero makes −0 of a tile left out and +0 of one that added nothing the same. */
      x[half][0] = answer.o[from][2 * half + e] * inverse[half] + 0.0f;
      x[half][1] = answer.o[other][2 * half + second] * inverse[half] + 0.0f;
    }
#pragma unroll
    for (int half = 0; half < 2; half++)
      if (is_stored[half]) store2(place_of(row[half]) + column, x[half][0], x[half][1]);
#pragma unroll
    for (int half = 0; half < 2; half++) check[half] = fmaf(x[half][0], 0.0f, fmaf(x[half][1], 0.0f, check[half]));
  }
}

}  // namespace tw
