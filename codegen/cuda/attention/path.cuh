/*
 * Attention over paths, on tensor cores by the warp (mma.sync): what its kernels have in common.
 *
 * Query q sees the rows key[begin[q] + i] of keys and values for i from 0 to position[q], or the last `window` of them.
 * The heads of a query that share one head of keys are rows of one tile: row r of a block is head r % group of query
 * r / group. A warp has 16 rows; lane l has rows l / 4 and l / 4 + 8 of them, and of every 8 keys or columns the pair
 * 2·(l % 4).
 *
 * The bits of an answer depend on the query and on the keys of its path alone, whichever kernel computes it. Keys are
 * taken in order of position: 16 are one step of a product, TILE_KEYS one step of the softmax, CHUNK one partial
 * result, and partial results are merged in order. Maxima are whole powers of two, so rescaling is exact. Keys that a
 * query does not see add exact zeros.
 */
#pragma once
#include "attention/codes.cuh"
#include "lib/cluster.cuh"
#include "lib/copy.cuh"
#include "lib/global.cuh"
#include "lib/launch.cuh"
#include "lib/mma.cuh"
#include "lib/warp.cuh"

namespace tw {

/* Keys of a tile, one for each lane, and of a partial result. They determine rounding. */
constexpr int TILE_KEYS = 32, CHUNK = 128;

/* Where scales of codes lie: [rows, heads], or heads of `block` rows one behind another in blocks. */
struct ScaleLayout {
  int stride = 0, block = 1;
  TW_CONSTEXPR long long at(int row) const {
    return (row & ~(block - 1)) * (long long)stride + (row & (block - 1));
  }
};

struct PathConfig {
  int heads, kv_heads, head_dim;
  /* Queries of a block, and its warps. */
  int queries = 1, warps = 1;
  /* Bytes of an element of keys and values: 2, or 1 of codes. */
  int key_bytes = 2;
  /* Elements from a row of a buffer to the next. */
  int q_stride, k_stride, v_stride, out_stride;
  ScaleLayout k_scales = {}, v_scales = {};
  /* Scores are multiplied by this on their way to powers of two: scale · log2 e. */
  float scale;
  /* With a cap, scores first become tanh(s / cap), and `scale` has the cap: see bounded(). */
  bool is_capped = false;
  float cap_factor = 0.0f;
  /* A query sees the last keys of its path only, so many, or those of its own piece of so many; 0: all. */
  int window = 0, chunk = 0;
  /* Heads have slopes if it is above 0: their unit (attention/slopes.cuh). Their products may be rounded to bf16. */
  float slope_unit = 0.0f;
  bool rounds_slopes = false;
  /* Each head has one more score, which has no value. */
  bool has_sinks = false;
  /* Which row of q a query is says a list. */
  bool has_query_row = false;
  /*
   * All lists are inputs of the call, which are there before its first kernel. They are read while the kernel before
   * this one ends, and the header waits for it; otherwise the unit has waited.
   */
  bool reads_ahead = false;
  /* Teams of warps of a block, and blocks of a cluster, that take chunks of one path side by side. */
  int teams = 1, cluster = 1;
  /* Tiles of keys and values in shared memory, or parts of a ring. */
  int slots = 1;
  /* Dynamic shared memory of a block. */
  int shared_bytes = 0;
  /* Keys and values lie in states: rows behind the last key are finite. */
  bool is_kept = false;
  /* Of a block of warpgroups: registers of a thread that loads or multiplies. */
  int loader_registers = 40, product_registers = 232;
  /* Columns that heads of queries and keys go on with, those of keys the same for all (attention/latent.cuh). */
  int tail = 0, q_tail_stride = 0, k_tail_stride = 0;

  TW_CONSTEXPR int group() const { return heads / kv_heads; }
  TW_CONSTEXPR bool is_bounded() const { return window > 0 || chunk > 0; }
  TW_CONSTEXPR bool has_slopes() const { return slope_unit > 0.0f; }
  TW_CONSTEXPR bool is_coded() const { return key_bytes == 1; }
  TW_CONSTEXPR int threads() const { return 32 * warps; }
  TW_CONSTEXPR int rows() const { return 16 * warps; }
  /* Halves of a tile of 16 rows that have heads, where a block has one query. */
  TW_CONSTEXPR int halves() const { return group() > 8 ? 2 : 1; }
  /* Pieces of 16 bytes of a head of a key, and units of as much from a row of keys to the next. */
  TW_CONSTEXPR int pieces() const { return head_dim * key_bytes / 16; }
  TW_CONSTEXPR unsigned k_units() const { return (unsigned)(k_stride * key_bytes / 16); }
  TW_CONSTEXPR unsigned v_units() const { return (unsigned)(v_stride * key_bytes / 16); }
  /* Bytes of a head of a key in shared memory: of odd pieces, eight rows at one column lie in different banks. */
  TW_CONSTEXPR unsigned row_bytes() const { return (unsigned)(pieces() | 1) * 16; }
  TW_CONSTEXPR unsigned tile_bytes() const { return TILE_KEYS * row_bytes(); }
  /* The same of a query. */
  TW_CONSTEXPR unsigned query_bytes() const { return (unsigned)head_dim * 2 + 16; }
  /* Of longer heads, queries or totals lie in memory: the registers saved allow more warps. */
  TW_CONSTEXPR bool has_short_heads() const { return head_dim <= 64; }
  /* Columns of a lane that lie beside each other in a row of the answer, and elements of an operand that one has. */
  TW_CONSTEXPR int lane_columns() const { return is_coded() ? 4 : 2; }
  /* A query of 16 bits is multiplied by this on its way to binary16, beside the power that moves it. */
  TW_CONSTEXPR float query_scale() const { return is_capped ? cap_factor : scale; }
};

/* Buffers of a kernel. Rows of q are tokens, of k and v places of the cache, of `out` queries. */
template <class Element, class Key, class Out, class Sink = float> struct PathOperands {
  const Element *q;
  const Key *k, *v;
  const Element *q_tail;
  const Key *k_tail;
  const float *k_scales, *v_scales;
  /* Of a token: where its path begins in the list of keys, and its position there. */
  const int *begin, *position, *key;
  const int *query_row;
  /* Of heads: slopes, and natural logarithms of what they add to sums of weights. */
  const float *slopes;
  const Sink *sinks;
  Out *out;
  /* Rows of `out`, of q, and of the list of keys. */
  int rows, query_rows, key_rows;

  using ElementType = Element;
  using KeyType = Key;
  using OutType = Out;
};

/* 2^x for a whole x of at most 0; 0 where that is no normal number, and for −inf and NaN. */
TW_DEVICE float power2(float x) { return x >= -126.0f ? __int_as_float(((int)x + 127) << 23) : 0.0f; }

/*
 * What the sink of a head adds to the sum of a row's weights, all of whose keys are in it. Weights are scaled by
 * 2^−top: a whole power, so that the sink's part has the same bits whatever `top` is.
 */
template <PathConfig config, class Operands> TW_DEVICE float sink_weight(const Operands &x, int head, float top) {
  const float exponent = mul(load(x.sinks + head), 1.44269504f), whole = ceilf(exponent);
  const float power = (config.is_coded() ? whole + WEIGHT_BITS : whole) - top;
  return mul(exp2_flushed(exponent - whole), power2(fminf(power, 127.0f)));
}

/* The first key that a query at `position` sees. */
template <PathConfig config> TW_DEVICE int first_seen(int position) {
  if constexpr (config.chunk > 0) return position - position % config.chunk;
  return config.window == 0 || position < config.window ? 0 : position - config.window + 1;
}

/* Keys up to this position are too far back for a query at `position`. */
template <PathConfig config> TW_DEVICE int too_far(int position) {
  if constexpr (config.chunk > 0) return position - position % config.chunk - 1;
  return position - config.window;
}

/* The token of query `query` of the call, −1 if it has none. */
template <PathConfig config, class Operands> TW_DEVICE int token_of(const Operands &x, int query) {
  if constexpr (!config.has_query_row) return query;
  const int row = x.query_row[query];
  return (unsigned)row < (unsigned)x.query_rows ? row : -1;
}

/* The path of a query: the keys [low, keys) of its list. */
struct Path { int token, begin, low, keys; };
template <PathConfig config, class Operands> TW_DEVICE Path path_of(const Operands &x, int query) {
  const int token = token_of<config>(x, query);
  const int begin = token < 0 ? -1 : x.begin[token];
  const int position = begin < 0 ? -1 : x.position[token];
  return { token, begin, first_seen<config>(position), begin < 0 ? 0 : min(position + 1, x.key_rows - begin) };
}

/* Scales of the key and of the value in row `row`, of head `kv`; none of a key that is not there. */
template <PathConfig config, class Operands> TW_DEVICE float2 scales_of(const Operands &x, int kv, int row) {
  if (row < 0) return { 0.0f, 0.0f };
  return { x.k_scales[kv * config.k_scales.block + config.k_scales.at(row)],
           x.v_scales[kv * config.v_scales.block + config.v_scales.at(row)] };
}

/*
 * Copies rows of keys or values, one for each lane of a warp, to shared memory, 16 bytes a lane at a time. Row `place`
 * of this lane lies place * row_units units of 16 bytes behind `from`: 32 bits count 64 GiB of them. Rows that are
 * missing (−1) are zeros. `keeps_piece`: `from` has this lane's place within a row already (lane_piece).
 */
template <PathConfig config> constexpr bool has_whole_rows = 32 % config.pieces() == 0;
template <PathConfig config, bool keeps_piece>
TW_DEVICE void copy_rows(unsigned to, const unsigned char *from, unsigned row_units, int place) {
  constexpr int pieces = config.pieces();
  const int lane = threadIdx.x & 31;
  const unsigned own_unit = (unsigned)place * row_units;
  if (__all_sync(ALL_LANES, place >= 0)) {
#pragma unroll
    for (int j = 0; j < pieces; j++) {
      const int at = has_whole_rows<config> ? j * (32 / pieces) + lane / pieces : (j * 32 + lane) / pieces;
      const int piece = has_whole_rows<config> ? lane % pieces : (j * 32 + lane) % pieces;
      const unsigned unit = __shfl_sync(ALL_LANES, own_unit, at);
      copy16(to + at * config.row_bytes() + piece * 16, from + (keeps_piece ? 0 : piece * 16) + unit * 16ull, 16);
    }
  } else {
#pragma unroll 4
    for (int j = 0; j < pieces; j++) {
      const int at = (j * 32 + lane) / pieces, piece = (j * 32 + lane) % pieces;
      const unsigned unit = __shfl_sync(ALL_LANES, own_unit, at);
      const bool is_there = __shfl_sync(ALL_LANES, place, at) >= 0;
      copy16(to + at * config.row_bytes() + piece * 16,
          from + (is_there ? (keeps_piece ? 0 : piece * 16) + unit * 16ull : 0ull), is_there ? 16 : 0);
    }
  }
}

/* Where this lane reads its part of a tile of keys as an operand (ldmatrix), and of a tile of values. */
template <PathConfig config> TW_DEVICE unsigned keys_of_lane(unsigned tile) {
  const int lane = threadIdx.x & 31;
  if constexpr (config.is_coded()) return tile + lane * config.row_bytes();
  return tile + ((lane >> 4) * 8 + (lane & 7)) * config.row_bytes() + ((lane >> 3) & 1) * 16;
}
template <PathConfig config> TW_DEVICE unsigned values_of_lane(unsigned tile) {
  const int lane = threadIdx.x & 31;
  if constexpr (config.is_coded()) return tile + lane * config.row_bytes();
  return tile + (lane & 15) * config.row_bytes() + (lane >> 4) * 16;
}

/* Queries as the left operand of scores, in registers. */
template <PathConfig config> struct KeptQueries {
  unsigned x[config.head_dim / 16][4];
  TW_DEVICE void operand(unsigned (&a)[4], int i) const {
#pragma unroll
    for (int e = 0; e < 4; e++) a[e] = x[i][e];
  }
};

/*
 * The rows of this lane from memory: `from` are the first of its columns, and rows without a head are zeros. Queries of
 * codes become numbers of binary16; then `factor` is what scores of a row are multiplied by beside the scales of keys.
 */
template <PathConfig config, class Element>
TW_DEVICE void load_queries(KeptQueries<config> &query, float (&factor)[2], const Element *const (&from)[2],
    const bool (&is_row)[2]) {
  if constexpr (config.is_coded()) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      unsigned most = 0;
#pragma unroll
      for (int i = 0; i < config.head_dim / 16; i++) {
        const uint2 x = is_row[half] ? *(const uint2 *)(from[half] + i * 16) : uint2{ 0u, 0u };
        query.x[i][half] = x.x;
        query.x[i][half + 2] = x.y;
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float2 pair = floats_of<Element>(query.x[i][half + 2 * e]);
          most = larger(most, magnitude(pair.x));
          most = larger(most, magnitude(pair.y));
        }
      }
      most = larger(most, __shfl_xor_sync(ALL_LANES, most, 1));
      most = larger(most, __shfl_xor_sync(ALL_LANES, most, 2));
      const float2 power = query_power(most);
      factor[half] = mul(power.y, config.query_scale());
#pragma unroll
      for (int i = 0; i < config.head_dim / 16; i++) {
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          const float2 pair = floats_of<Element>(query.x[i][half + e]);
          query.x[i][half + e] = pack<f16>(mul(pair.x, power.x), mul(pair.y, power.x));
        }
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < config.head_dim / 16; i++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        query.x[i][half] = is_row[half] ? *(const unsigned *)(from[half] + i * 16) : 0u;
        query.x[i][half + 2] = is_row[half] ? *(const unsigned *)(from[half] + i * 16 + 8) : 0u;
      }
    }
  }
}

/* Scores of a warp's rows and a tile of keys: a lane has those of its rows with four pairs of keys. */
using Scores = float[TILE_KEYS / 8][4];
/* Products of queries and the keys at `keys`, a result of keys_of_lane. */
template <PathConfig config, class Key, class Queries>
TW_DEVICE void multiply_keys(Scores &s, const Queries &queries, unsigned keys) {
#pragma unroll
  for (int n = 0; n < TILE_KEYS / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
  for (int i = 0; i < config.head_dim / 16; i++) {
    unsigned a[4], b[4];
    queries.operand(a, i);
    if constexpr (config.is_coded()) {
      ldmatrix_x4(b, keys + i * 16);
#pragma unroll
      for (int n = 0; n < TILE_KEYS / 8; n++)
        mma<Product<Key>>(s[n], a, pair_of_codes<Key>(b[n]), upper_pair_of_codes<Key>(b[n]));
    } else {
#pragma unroll
      for (int n = 0; n < TILE_KEYS / 16; n++) {
        ldmatrix_x4(b, keys + n * 16 * config.row_bytes() + i * 32);
        mma<Product<Key>>(s[2 * n], a, b[0], b[1]);
        mma<Product<Key>>(s[2 * n + 1], a, b[2], b[3]);
      }
    }
  }
}

/* Scales and caps scores. Of codes they are exponents already: scaled, with the logarithm of the value's scale. */
template <PathConfig config>
TW_DEVICE void scale_scores(Scores &s, const float (&factor)[2], const KeyScales &own) {
  if constexpr (config.is_coded()) {
#pragma unroll
    for (int n = 0; n < TILE_KEYS / 8; n++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int key = n * 8 + (threadIdx.x & 3) * 2 + e;
        const float k_scale = of_key(own.k, key), log_v = of_key(own.log_v, key);
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const float x = mul(s[n][2 * half + e], k_scale);
          s[n][2 * half + e] = config.is_capped ? fmaf(bounded(mul(x, factor[half])), config.scale, log_v)
                                                : fmaf(x, factor[half], log_v);
        }
      }
    }
  } else if constexpr (config.is_capped) {
#pragma unroll
    for (int n = 0; n < TILE_KEYS / 8; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++) s[n][e] = bounded(mul(s[n][e], config.cap_factor));
    }
  }
}

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
      if (at > last[e / 2] || (config.is_bounded() && at <= too_far<config>(last[e / 2]))) s[n][e] = -infinity();
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

/*
 * Stores the answer of rows row[0] and row[1] of a block whose first query is `first`, those that `is_stored`. Sums up
 * zeros in `check`, which are not zero if a result is not finite.
 */
template <PathConfig config, class Operands>
TW_DEVICE void store_answer(const Answer<config> &answer, const Operands &x, int first, int kv, const int (&row)[2],
    const bool (&is_stored)[2], float (&check)[2]) {
  constexpr int group = config.group(), d = config.head_dim;
  auto *const out = x.out;
  float sum[2] = { answer.sum[0], answer.sum[1] };
  if constexpr (config.has_sinks) {
#pragma unroll
    for (int half = 0; half < 2; half++)
      sum[half] += sink_weight<config>(x, kv * group + row[half] % group, answer.top[half]);
  }
  const float inverse[2] = { 1.0f / sum[0], 1.0f / sum[1] };
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
    float y[2][2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      /* Adding zero makes −0 of a tile left out and +0 of one that added nothing the same. */
      y[half][0] = answer.o[from][2 * half + e] * inverse[half] + 0.0f;
      y[half][1] = answer.o[other][2 * half + second] * inverse[half] + 0.0f;
    }
#pragma unroll
    for (int half = 0; half < 2; half++)
      if (is_stored[half]) store2(place_of(row[half]) + column, y[half][0], y[half][1]);
#pragma unroll
    for (int half = 0; half < 2; half++) check[half] = fmaf(y[half][0], 0.0f, fmaf(y[half][1], 0.0f, check[half]));
  }
}

}  // namespace tw
