/*
 * What a scan (scan.cuh) reads of a call's rows: queries, keys, values and factors of a few rows at a time, in shared
 * memory as floats, and which of these rows are more than steps of one path.
 *
 * Rows of a state are shared out over `lanes` lanes: all of one class modulo 16 to one lane, so that what is added up
 * over them has one order, whatever `lanes` is. Keys and queries lie as lanes read them, 16 bytes at a time.
 */
#pragma once
#include "lib/elements.cuh"
#include "lib/launch.cuh"
#include "lib/warp.cuh"

namespace tw {

/* Rows of a state whose products are added up one behind another: every 16th. Columns of a lane. */
constexpr int SCAN_CLASSES = 16, SCAN_COLUMNS = 4;

struct ScanConfig {
  int key_heads, heads, key_dim, value_dim;
  /* Whether heads take those of keys in turn; else neighbours share one. */
  bool takes_turns;
  bool is_delta, is_normed, has_skip;
  float scale, epsilon;
  int q_stride, k_stride, v_stride, decay_stride, beta_stride, skip_stride, out_stride;
  /* States of rows where paths part that are kept in shared memory. */
  int kept;
  /* Whether trees go on from rows of states, f32 [rows, heads * d * e], and write some. */
  bool keeps;
  int states_stride;
  /* Lanes that share columns, rows that are fetched together. */
  int lanes, chunk_rows;
  /* Of the launch. */
  int threads;

  TW_CONSTEXPR int key_head(int head) const {
    return takes_turns ? head % key_heads : head * key_heads / heads;
  }
  TW_CONSTEXPR int warps() const { return threads / 32; }
  TW_CONSTEXPR int warp_columns() const { return 32 / lanes * SCAN_COLUMNS; }
  TW_CONSTEXPR int columns() const { return warps() * warp_columns(); }
  TW_CONSTEXPR int blocks() const { return (value_dim + columns() - 1) / columns(); }
  /* Rows of a state with those of zeros, those of a lane, and classes of a lane. */
  TW_CONSTEXPR int padded() const { return (key_dim + 4 * lanes - 1) / (4 * lanes) * (4 * lanes); }
  TW_CONSTEXPR int own() const { return padded() / lanes; }
  TW_CONSTEXPR int classes() const { return SCAN_CLASSES / lanes; }
  /* Vectors of a chunk (each row's k and q), those of a warp, elements of a vector in a lane; values in a thread. */
  TW_CONSTEXPR int vectors() const { return (2 * chunk_rows + warps() - 1) / warps(); }
  TW_CONSTEXPR int elements() const { return (key_dim + 31) / 32; }
  TW_CONSTEXPR int values() const { return (chunk_rows * columns() + threads - 1) / threads; }
  /* Floats of a chunk: k and q of each row, v, decay and beta. */
  TW_CONSTEXPR int chunk() const { return chunk_rows * (2 * padded() + columns() + 2); }
  TW_CONSTEXPR int shared_bytes() const { return 4 * (2 * chunk() + kept * own() * SCAN_COLUMNS * threads); }
  TW_CONSTEXPR bool is_legal() const {
    return threads % 32 == 0 && threads >= 32 && kept >= (keeps ? 1 : 0) && heads % key_heads == 0
        && (lanes == 4 || lanes == 8 || lanes == 16) && chunk_rows % 2 == 0 && chunk_rows <= 16
        && 2 * chunk_rows <= threads;
  }
};

template <class T, class O, class S> struct ScanBuffers {
  const T *q, *k, *v;
  const f32 *decay, *beta;
  const i32 *before, *end;
  const S *skip;
  O *out;
  f32 *states;
  const i32 *from, *to, *also;
};

/* A chunk in shared memory. */
template <ScanConfig config> struct ScanChunk {
  float *at;
  TW_DEVICE float *key(int r) const { return at + r * 2 * config.padded(); }
  TW_DEVICE float *query(int r) const { return key(r) + config.padded(); }
  TW_DEVICE float *value(int r) const { return at + config.chunk_rows * 2 * config.padded() + r * config.columns(); }
  /* decay and beta */
  TW_DEVICE float2 *factors(int r) const { return (float2 *)value(config.chunk_rows) + r; }

  /* Where element `i` of a vector lies: lane l of a column reads 16 bytes at l, l + lanes, … */
  TW_DEVICE static int place(int i) {
    const int turn = i / SCAN_CLASSES, own = i % SCAN_CLASSES;
    constexpr int turns = 4 / config.classes();
    return (turn / turns * config.lanes + own / config.classes()) * 4 + turn % turns * config.classes()
        + own % config.classes();
  }
};

/*
 * Of the rows of a chunk, a bit each: those that do not follow the row before them, those from which more than the
 * next row goes on, and those whose states are kept between calls.
 */
struct ScanMarks {
  unsigned jumps, parts, keeps;
  /* Rows of states that lane l's row goes to. */
  int to, also;
  TW_DEVICE bool any() const { return (jumps | parts | keeps) != 0; }
};

/*
 * What a thread has of rows on their way, as memory has it: whoever converts it waits for it. A lane has elements
 * lane, lane + 32, … of a vector.
 */
template <ScanConfig config, class T> struct ScanFetch {
  T x[config.vectors()][config.elements()];
  T v[config.values()];
  float factor;
  /* Of lane l's row in the chunk, and of one more. */
  int before, end, to, also;

  /* Rows [first, first + chunk_rows) of a tree's up to `past`; what would lie behind them is its last row. */
  template <class O, class S>
  TW_DEVICE void load(const ScanBuffers<T, O, S> &from, int head, int column0, int first, int past) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, key_head = config.key_head(head);
#pragma unroll
    for (int i = 0; i < config.vectors(); i++) {
      const int vector = warp + i * config.warps(), row = min(first + vector / 2, past - 1);
      const T *const p = vector % 2 == 0 ? from.k + (long long)row * config.k_stride + key_head * config.key_dim
                                         : from.q + (long long)row * config.q_stride + key_head * config.key_dim;
#pragma unroll
      for (int j = 0; j < config.elements(); j++)
        x[i][j] = 32 * j + lane < config.key_dim ? p[32 * j + lane] : T{};
    }
#pragma unroll
    for (int i = 0; i < config.values(); i++) {
      const int at = threadIdx.x + i * config.threads, column = column0 + at % config.columns();
      const int row = min(first + at / config.columns(), past - 1);
      v[i] = column < config.value_dim ? from.v[(long long)row * config.v_stride + head * config.value_dim + column]
                                       : T{};
    }
    if (threadIdx.x < 2 * config.chunk_rows) {
      const int row = min(first + (int)threadIdx.x / 2, past - 1);
      factor = threadIdx.x % 2 == 0 ? from.decay[(long long)row * config.decay_stride + head]
                                    : from.beta[(long long)row * config.beta_stride + head];
    }
    const int row = min(first + min(lane, config.chunk_rows), past - 1);
    before = from.before[row];
    end = from.end[row];
    if constexpr (config.keeps) {
      to = from.to[row];
      also = from.also[row];
    }
  }

  /* Keys and queries divided by their norms and scaled, and the others, to a chunk. */
  TW_DEVICE void place(const ScanChunk<config> &chunk) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float factors[config.vectors()];
#pragma unroll
    for (int i = 0; i < config.vectors(); i++)
      factors[i] = (warp + i * config.warps()) % 2 == 0 ? 1.0f : config.scale;
    if constexpr (config.is_normed) {
      /* One division for all vectors: lane i's is that of vector i. Of the others it must not be a division of 0. */
      float squares = 1.0f, own = 1.0f;
#pragma unroll
      for (int i = 0; i < config.vectors(); i++) {
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < config.elements(); j++) {
          const float y = tw::load(&x[i][j]);
          sum = fmaf(y, y, sum);
        }
        sum = warp_sum(sum);
        squares = lane == i ? sum : squares;
        own = lane == i ? factors[i] : own;
      }
      own = own / sqrtf(add(squares, config.epsilon));
#pragma unroll
      for (int i = 0; i < config.vectors(); i++) factors[i] = __shfl_sync(ALL_LANES, own, i);
    }
#pragma unroll
    for (int i = 0; i < config.vectors(); i++) {
      const int vector = warp + i * config.warps();
      if (config.vectors() * config.warps() > 2 * config.chunk_rows && vector >= 2 * config.chunk_rows) break;
      float *const at = vector % 2 == 0 ? chunk.key(vector / 2) : chunk.query(vector / 2);
#pragma unroll
      for (int j = 0; j < (config.padded() + 31) / 32; j++)
        if (32 * j + lane < config.padded())
          at[chunk.place(32 * j + lane)] = j < config.elements() ? mul(tw::load(&x[i][j]), factors[i]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < config.values(); i++) {
      const int at = threadIdx.x + i * config.threads;
      if (at < config.chunk_rows * config.columns()) chunk.value(0)[at] = tw::load(&v[i]);
    }
    if (threadIdx.x < 2 * config.chunk_rows) ((float *)chunk.factors(0))[threadIdx.x] = factor;
  }

  /* Of the rows from `start` of the tree [first, past), whose they are. By a whole warp. */
  TW_DEVICE ScanMarks marks(int first, int start, int past) const {
    const int lane = threadIdx.x % 32, row = start + lane;
    const bool is_row = lane < config.chunk_rows && row < past;
    const int next_before = __shfl_sync(ALL_LANES, before, (lane + 1) % 32);
    const int next_end = __shfl_sync(ALL_LANES, end, (lane + 1) % 32);
    ScanMarks own;
    own.jumps = __ballot_sync(ALL_LANES, is_row && row != first && before != row - 1);
    own.parts = __ballot_sync(ALL_LANES, is_row && row + 1 < past && next_before == row && next_end < end);
    own.keeps = 0;
    if constexpr (config.keeps) {
      own.to = to;
      own.also = also;
      own.keeps = __ballot_sync(ALL_LANES, is_row && (to >= 0 || also >= 0));
    }
    return own;
  }
};

}  // namespace tw
