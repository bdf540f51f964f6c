/*
 * Attention on CUDA cores: any type, any head of up to 512 columns, and every mask. A block computes `queries` queries
 * of one head, a quarter of them a warp, against 32 keys at a time. In scores a lane is a key; in the sum of values it
 * holds every 32nd column.
 *
 * Masks:
 * - Trees: tokens lie depth first, trees one after another. Key k is visible to query q exactly when k <= q < end[k],
 *   and a tree is a root r with the tokens [r, end[r]). The block passes over the trees of its queries one by one and
 *   counts tiles of keys from the root: a query's answer has the same bits alone and in any company.
 * - Paths: query q sees the rows key[begin[q] + i] of keys and values for i from 0 to position[q]. Queries next to each
 *   other with one `begin` are a run. The block passes over its runs one by one and takes keys in order of position: an
 *   answer depends on the query and the keys of its path alone, to the bit.
 * - Bias: what is added to the score of each query and key; −∞ hides the key.
 *
 * Values may have another width than keys, e, and keys a tail behind the columns of their head, which d counts too.
 * Values may be the first columns of keys, and are then read from these.
 *
 * Shared memory, in floats: queries [queries][d], keys [32][d + 1], values [32][e], if they are others. Keys are a
 * column longer than a row: 32 keys at one column lie in different banks.
 *
 * Grid: heads, and one block for `queries` queries.
 */
#pragma once
#include "attention/path.cuh"

namespace tw {

enum class Mask { Tree, Path, Bias };

struct SimtAttentionConfig {
  int heads, kv_heads, head_dim, queries;
  Mask mask;
  /* Elements from a row of a buffer to the next. */
  int q_stride, k_stride, v_stride, out_stride, bias_stride = 0;
  /* Columns of a head of values and results; 0: head_dim. */
  int value_dim = 0;
  /* Columns that heads of queries and keys go on with, those of keys the same for all. */
  int tail = 0, q_tail_stride = 0, k_tail_stride = 0;
  /* Values are the first columns of keys. */
  bool keys_are_values = false;
  /* Keys and values are codes, with a scale for each row and head. */
  bool has_scales = false;
  ScaleLayout k_scales = {}, v_scales = {};
  /* Scores are multiplied by this; with a cap they become cap · tanh(score / cap), see bounded(). */
  float scale;
  float cap = 0.0f, cap_factor = 0.0f;
  /* A query sees the last keys before it only, so many positions, or those of its own piece of so many; 0: all. */
  int window = 0, chunk = 0;
  /* Each position that a key is further on adds the slope of the head to the score. */
  bool has_slopes = false;
  /* Above 0: slopes times positions of keys are added in bf16, times this. */
  float slope_factor = 0.0f;
  /* Each head has one more score, which has no value. */
  bool has_sinks = false;
  /* Which row of q a query is says a list. */
  bool has_query_row = false;
  /* Dynamic shared memory of a block. */
  int shared_bytes;

  TW_CONSTEXPR int group() const { return heads / kv_heads; }
  TW_CONSTEXPR bool is_bounded() const { return window > 0 || chunk > 0; }
  TW_CONSTEXPR int values() const { return value_dim > 0 ? value_dim : head_dim; }
};

/* Keys up to this position are too far back for a query at `position`. */
template <SimtAttentionConfig config> TW_DEVICE int too_far_back(int position) {
  if constexpr (config.chunk > 0) return position - position % config.chunk - 1;
  return position - config.window;
}

/* Buffers of a kernel: those of the mask that it has. Rows of q are tokens, of `out` queries. */
template <class Element, class Key, class Out, class Sink = float> struct SimtOperands {
  const Element *q;
  const Key *k, *v;
  const Element *q_tail;
  const Key *k_tail;
  const float *k_scales, *v_scales;
  /* Of a key: its subtree's end. Of a token: where its path begins, and its position. */
  const int *end, *begin, *position, *key;
  const float *bias;
  /* Of each head. */
  const float *slopes;
  const int *query_row;
  /* Of heads: scores without a value. */
  const Sink *sinks;
  Out *out;
  /* Rows of `out`, of q, and of keys or their list. */
  int rows, query_rows, key_rows;
};

template <SimtAttentionConfig config, class Operands> TW_DEVICE void simt_attention(const Operands &x) {
  constexpr int own = config.head_dim, d = own + config.tail, width = config.values();
  constexpr int queries = config.queries, warps = 4, threads = 32 * warps, tile = 32;
  constexpr int warp_queries = queries / warps, columns = (width + 31) / 32, pitch = d + 1;
  constexpr bool is_tree = config.mask == Mask::Tree, is_path = config.mask == Mask::Path;
  constexpr bool is_bounded = config.is_bounded(), has_slopes = config.has_slopes;
  static_assert(queries % warps == 0 && config.heads % config.kv_heads == 0 && width <= 512);
  constexpr bool is_shared = config.keys_are_values;
  constexpr int value_pitch = is_shared ? pitch : width, own_values = is_shared ? 0 : width;
  static_assert((queries * d + tile * (pitch + own_values)) * 4 <= config.shared_bytes, "memory as its schedule says");
  TW_DYNAMIC_SHARED(memory, 128);
  __shared__ int tokens[queries], roots[warps], begins[queries], positions[queries];
  float *const query = (float *)memory, *const keys = query + queries * d;
  float *const values = is_shared ? keys : keys + tile * pitch;
  const int lane = threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  const int head = blockIdx.x, first = blockIdx.y * queries, kv = head / config.group();
  const auto *const q = x.q + head * own;
  const auto *const k = x.k + kv * own, *const v = x.v + kv * width;
  float slope = 0.0f;
  if constexpr (has_slopes) slope = x.slopes[head];
  /* Element `column` of row `row`. */
  const auto key_at = [&](int row, int column) {
    if constexpr (config.tail > 0)
      if (column >= own) return load(x.k_tail + row * (long long)config.k_tail_stride + column - own);
    const float value = load(k + row * (long long)config.k_stride + column);
    if constexpr (config.has_scales)
      return value * x.k_scales[kv * config.k_scales.block + config.k_scales.at(row)];
    else return value;
  };
  const auto value_at = [&](int row, int column) {
    const float value = load(v + row * (long long)config.v_stride + column);
    if constexpr (config.has_scales)
      return value * x.v_scales[kv * config.v_scales.block + config.v_scales.at(row)];
    else return value;
  };

  /* Tokens of the queries; −1 past the last. */
  for (int i = threadIdx.x; i < queries; i += threads) {
    int token = -1;
    if (first + i < x.rows) {
      if constexpr (config.has_query_row) token = x.query_row[first + i];
      else token = first + i;
    }
    tokens[i] = (unsigned)token < (unsigned)x.query_rows ? token : -1;
    if constexpr (is_path) {
      begins[i] = tokens[i] < 0 ? -1 : x.begin[token];
      positions[i] = tokens[i] < 0 ? -1 : x.position[token];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < queries * d; i += threads) {
    const int token = tokens[i / d];
    if constexpr (config.tail > 0) {
      if (i % d >= own) {
        const auto *const tail = x.q_tail + token * (long long)config.q_tail_stride + head * config.tail;
        query[i] = token < 0 ? 0.0f : load(tail + i % d - own);
        continue;
      }
    }
    query[i] = token < 0 ? 0.0f : load(q + token * (long long)config.q_stride + i % d);
  }

  /* Of the tree that the block is at: [root, stop); its least query, and the least position of one. */
  int root = 0, stop = 0, low = 0, near = 0x7fffffff;
  /* The queries [run, run_end) have one path, which begins at `begin` of the list. */
  int run = 0, run_end = 0, begin = 0;

  /* Queries of the tree or run, against the keys [from, to) of the tree, of the path, or of all. */
  const auto attend = [&](int from, int to) {
    float o[warp_queries][columns], top[warp_queries], sum[warp_queries];
#pragma unroll
    for (int r = 0; r < warp_queries; r++) {
      top[r] = -infinity();
      sum[r] = 0.0f;
#pragma unroll
      for (int c = 0; c < columns; c++) o[r][c] = 0.0f;
    }
    for (int base = from; base < to; base += tile) {
      const int key = base + lane;
      int key_end = 0, key_position = 0;
      if constexpr (is_tree) {
        key_end = key < stop ? x.end[key] : 0;
        bool is_seen = key_end > low;
        if constexpr (is_bounded || has_slopes) key_position = key < stop ? x.position[key] : 0;
        if constexpr (is_bounded) is_seen = is_seen && key_position > too_far_back<config>(near);
        if (!__any_sync(ALL_LANES, is_seen)) continue;
      }
      for (int i = threadIdx.x; i < tile * d; i += threads) {
        const int at = base + i / d;
        int row = at;
        if constexpr (is_path) row = at < to ? x.key[begin + at] : 0;
        keys[i / d * pitch + i % d] = at < to ? key_at(row, i % d) : 0.0f;
        if constexpr (width == d && !is_shared) values[i] = at < to ? value_at(row, i % d) : 0.0f;
      }
      for (int i = width == d || is_shared ? tile * width : (int)threadIdx.x; i < tile * width; i += threads) {
        const int at = base + i / width;
        int row = at;
        if constexpr (is_path) row = at < to ? x.key[begin + at] : 0;
        values[i] = at < to ? value_at(row, i % width) : 0.0f;
      }
      __syncthreads();
      float score[warp_queries];
#pragma unroll
      for (int r = 0; r < warp_queries; r++) score[r] = 0.0f;
#pragma unroll 4
      for (int i = 0; i < d; i++) {
        const float y = keys[lane * pitch + i];
#pragma unroll
        for (int r = 0; r < warp_queries; r++) score[r] = fmaf(query[(warp * warp_queries + r) * d + i], y, score[r]);
      }
#pragma unroll
      for (int r = 0; r < warp_queries; r++) {
        const int row = warp * warp_queries + r;
        float s = score[r] * config.scale;
        if constexpr (config.cap > 0.0f) s = mul(config.cap, bounded(mul(config.cap_factor, s)));
        if constexpr (has_slopes) {
          const int token = tokens[row];
          const int further = is_tree ? key_position - (token < 0 ? 0 : x.position[token]) : key - positions[row];
          if constexpr (config.slope_factor > 0.0f) {
            const float place = round_bf16((float)(is_tree ? key_position : key));
            s = add(s, mul(round_bf16(mul(slope, place)), config.slope_factor));
          } else s = fmaf(slope, (float)further, s);
        }
        if constexpr (is_tree) {
          const int token = tokens[row];
          if (key > token || token >= key_end) s = -infinity();
          else if (is_bounded && key_position <= too_far_back<config>(x.position[token])) s = -infinity();
        } else if constexpr (is_path) {
          const int last = positions[row];
          if (key >= to || key > last || (is_bounded && key <= too_far_back<config>(last))) s = -infinity();
        } else {
          const int token = tokens[row];
          const float bias = key < x.key_rows && token >= 0 ?
              x.bias[token * (long long)config.bias_stride + key] : -infinity();
          s = bias == -infinity() ? bias : s + bias;
        }
        float most = fmaxf(top[r], s);
        for (int w = 16; w > 0; w /= 2) most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, w));
        /* Nothing may be visible so far. */
        const float shift = most == -infinity() ? 0.0f : most;
        const float keep = exp2_flushed((top[r] - shift) * 1.44269504f);
        const float weight = exp2_flushed((s - shift) * 1.44269504f);
        top[r] = most;
        sum[r] = sum[r] * keep + warp_sum(weight);
#pragma unroll
        for (int c = 0; c < columns; c++) o[r][c] *= keep;
        for (int j = 0; j < tile; j++) {
          const float w = __shfl_sync(ALL_LANES, weight, j);
          if (w == 0.0f) continue;
#pragma unroll
          for (int c = 0; c < columns; c++)
            if (width % 32 == 0 || c * 32 + lane < width)
              o[r][c] = fmaf(w, values[j * value_pitch + c * 32 + lane], o[r][c]);
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < warp_queries; r++) {
      const int row = warp * warp_queries + r, token = tokens[row];
      if constexpr (is_tree) {
        if (token < root || token >= stop) continue;
      } else if constexpr (is_path) {
        if (token < 0 || row < run || row >= run_end) continue;
      } else {
        if (token < 0) continue;
      }
      if constexpr (config.has_sinks) sum[r] += exp2_flushed((load(x.sinks + head) - top[r]) * 1.44269504f);
#pragma unroll
      for (int c = 0; c < columns; c++) {
        const int column = c * 32 + lane;
        /* Adding zero makes −0 of a tile left out and +0 of one that added nothing the same. */
        if (column < width)
          store(x.out + (long long)(first + row) * config.out_stride + head * width + column, o[r][c] / sum[r] + 0.0f);
      }
    }
  };

  if constexpr (is_tree) {
    int lowest = 0x7fffffff, highest = -1;
    for (int i = 0; i < queries; i++) {
      const int token = tokens[i];
      if (token >= 0 && token < lowest) lowest = token;
      if (token > highest) highest = token;
    }
    if (highest < 0) return;
    /* The root above the first query: the first key that it sees. */
    root = lowest;
    for (int i = threadIdx.x; i < root; i += threads) if (x.end[i] > lowest) root = i;
    for (int w = 16; w > 0; w /= 2) {
      const int other = __shfl_xor_sync(ALL_LANES, root, w);
      if (other < root) root = other;
    }
    if (lane == 0) roots[warp] = root;
    __syncthreads();
    for (int w = 0; w < warps; w++) if (roots[w] < root) root = roots[w];
    for (; root <= highest; root = stop) {
      stop = x.end[root];
      if (stop <= root) stop = root + 1;
      if (stop > x.key_rows) stop = x.key_rows;
      /* Least and greatest query of this tree. */
      int high = -1;
      low = near = 0x7fffffff;
      for (int i = 0; i < queries; i++) {
        const int token = tokens[i];
        if (token < root || token >= stop) continue;
        if (token < low) low = token;
        if (token > high) high = token;
        if (is_bounded && x.position[token] < near) near = x.position[token];
      }
      if (high >= 0) attend(root, high + 1);
    }
  } else if constexpr (is_path) {
    __syncthreads();
    for (; run < queries; run = run_end) {
      begin = begins[run];
      int highest = -1;
      for (run_end = run; run_end < queries && begins[run_end] == begin; run_end++)
        if (positions[run_end] > highest) highest = positions[run_end];
      if (begin < 0) continue;
      int from = 0;
      if constexpr (is_bounded) {
        int least = highest;
        for (int i = run; i < run_end; i++) if (positions[i] < least) least = positions[i];
        from = max(0, too_far_back<config>(least) + 1) / tile * tile;
      }
      attend(from, min(highest + 1, x.key_rows - begin));
    }
  } else {
    __syncthreads();
    attend(0, x.key_rows);
  }
}

}  // namespace tw
