/*
 * States that go from token to token (ir/ops/recurrent.ts): S[d, e], f32, in registers.
 *
 * A block has some columns of a head, and the trees that begin in a window of rows; it takes the rows of a tree in
 * order, each behind the row before it on its path. Four lanes share a column: lane l has rows 16j + 4l … 16j + 4l + 3
 * of the state. What is added up over d is added by each lane in four sums, then over lanes: in one order.
 *
 * Queries, keys and values of eight rows at a time are in shared memory as floats; those of the next eight are on their
 * way meanwhile. States of rows where paths part are kept there too, the nearest to the root first. Where a path
 * goes on from another row, its state is computed again, from the nearest row above it whose state is kept: the same
 * operations in the same order, and so the same bits.
 *
 * Where states are kept between calls, a tree goes on from a row of them, and states behind some of its rows go to
 * others. A block has read its own before it writes. It needs that no more,
 * once rows part: the first that does is kept.
 */
#pragma once
#include "lib/elements.cuh"
#include "lib/launch.cuh"
#include "lib/warp.cuh"

namespace tw {

/* Lanes of a column, columns of a warp, rows that are fetched together. */
constexpr int SCAN_LANES = 4, SCAN_COLUMNS = 8, SCAN_ROWS = 8;

struct ScanConfig {
  int key_heads, heads, key_dim, value_dim;
  bool is_delta, is_normed, has_skip;
  float scale, epsilon;
  int q_stride, k_stride, v_stride, decay_stride, beta_stride, skip_stride, out_stride;
  /* Rows of a window, states that are kept in shared memory. */
  int window, kept;
  /* Whether trees go on from rows of states, f32 [rows, heads * d * e], and write some. */
  bool keeps;
  int states_stride;
  /* Of the launch. */
  int threads;

  TW_CONSTEXPR int warps() const { return threads / 32; }
  TW_CONSTEXPR int columns() const { return warps() * SCAN_COLUMNS; }
  TW_CONSTEXPR int blocks() const { return (value_dim + columns() - 1) / columns(); }
  /* Rows of a state with those of zeros, and those of a lane. */
  TW_CONSTEXPR int padded() const { return (key_dim + 15) / 16 * 16; }
  TW_CONSTEXPR int own() const { return padded() / SCAN_LANES; }
  /* Vectors of a chunk (each row's k and q), those of a warp, elements of a vector in a lane; values in a thread. */
  TW_CONSTEXPR int vectors() const { return (2 * SCAN_ROWS + warps() - 1) / warps(); }
  TW_CONSTEXPR int elements() const { return (padded() + 31) / 32; }
  TW_CONSTEXPR int values() const { return (SCAN_ROWS * columns() + threads - 1) / threads; }
  /*
   * Floats of a chunk: k and q of each row, v, decay and beta; as ints before and end of the rows and one more, and
   * rows of states that they go to.
   */
  TW_CONSTEXPR int chunk() const {
    return SCAN_ROWS * (2 * padded() + columns() + 2) + 2 * (SCAN_ROWS + 4) + (keeps ? 2 * SCAN_ROWS : 0);
  }
  TW_CONSTEXPR int shared_bytes() const { return 4 * (3 * chunk() + kept * own() * threads); }
  TW_CONSTEXPR bool is_legal() const {
    return threads % 32 == 0 && threads >= 32 && window > 0 && window <= 32 && kept >= 0 && heads % key_heads == 0;
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
  TW_DEVICE float *value(int r) const { return at + SCAN_ROWS * 2 * config.padded() + r * config.columns(); }
  TW_DEVICE float *decay() const { return value(SCAN_ROWS); }
  TW_DEVICE float *beta() const { return decay() + SCAN_ROWS; }
  TW_DEVICE int *before() const { return (int *)(beta() + SCAN_ROWS); }
  TW_DEVICE int *end() const { return before() + SCAN_ROWS + 4; }
  TW_DEVICE int *kept_in(int which) const { return end() + SCAN_ROWS + 4 + which * SCAN_ROWS; }
};

/* What a thread has of rows on their way. */
template <ScanConfig config> struct ScanFetch {
  float x[config.vectors()][config.elements()];
  float v[config.values()];
  float factor;
  int link, kept_in;
};

template <ScanConfig config, class T, class O, class S> struct Scan {
  const ScanBuffers<T, O, S> &buffers;
  float *shared;
  int rows, head, key_head, column0, lane, warp;

  TW_DEVICE ScanChunk<config> chunk(int i) const { return { shared + i * config.chunk() }; }
  TW_DEVICE float *saved(int i) const {
    return shared + 3 * config.chunk() + i * config.own() * config.threads + threadIdx.x;
  }

  /* Rows [first, first + count) of those before `past`. */
  TW_DEVICE void fetch(ScanFetch<config> &to, int first, int count, int past) const {
    const int last = first + count < past ? first + count : past;
#pragma unroll
    for (int i = 0; i < config.vectors(); i++) {
      const int vector = warp + i * config.warps(), row = first + vector / 2;
      const bool is_there = vector < 2 * SCAN_ROWS && row < last;
      const T *const from = vector % 2 == 0
          ? buffers.k + (long long)row * config.k_stride + key_head * config.key_dim
          : buffers.q + (long long)row * config.q_stride + key_head * config.key_dim;
#pragma unroll
      for (int j = 0; j < config.elements(); j++)
        to.x[i][j] = is_there && 32 * j + lane < config.key_dim ? load(from + 32 * j + lane) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < config.values(); i++) {
      const int at = threadIdx.x + i * config.threads, row = first + at / config.columns();
      const int column = column0 + at % config.columns();
      const bool is_there = at < SCAN_ROWS * config.columns() && row < last && column < config.value_dim;
      to.v[i] = is_there
          ? load(buffers.v + (long long)row * config.v_stride + head * config.value_dim + column) : 0.0f;
    }
    const int r = threadIdx.x % SCAN_ROWS, row = first + r;
    to.factor = 0.0f;
    if (threadIdx.x < 2 * SCAN_ROWS && row < last)
      to.factor = threadIdx.x < SCAN_ROWS ? buffers.decay[(long long)row * config.decay_stride + head]
                                          : buffers.beta[(long long)row * config.beta_stride + head];
    /* One row more than those of the chunk. */
    const int l = threadIdx.x % 16;
    to.link = 0;
    if (threadIdx.x < 32 && l <= SCAN_ROWS && first + l < rows)
      to.link = threadIdx.x < 16 ? buffers.before[first + l] : buffers.end[first + l];
    if constexpr (config.keeps) {
      to.kept_in = -1;
      if (threadIdx.x < 32 && l < SCAN_ROWS && first + l < last)
        to.kept_in = threadIdx.x < 16 ? buffers.to[first + l] : buffers.also[first + l];
    }
  }

  TW_DEVICE void place(const ScanFetch<config> &from, const ScanChunk<config> &to) const {
#pragma unroll
    for (int i = 0; i < config.vectors(); i++) {
      const int vector = warp + i * config.warps();
      float factor = vector % 2 == 0 ? 1.0f : config.scale;
      if constexpr (config.is_normed) {
        float squares = 0.0f;
#pragma unroll
        for (int j = 0; j < config.elements(); j++) squares = fmaf(from.x[i][j], from.x[i][j], squares);
        factor = factor / sqrtf(add(warp_sum(squares), config.epsilon));
      }
      if (vector < 2 * SCAN_ROWS) {
        float *const at = vector % 2 == 0 ? to.key(vector / 2) : to.query(vector / 2);
#pragma unroll
        for (int j = 0; j < config.elements(); j++)
          if (32 * j + lane < config.padded()) at[32 * j + lane] = mul(from.x[i][j], factor);
      }
    }
#pragma unroll
    for (int i = 0; i < config.values(); i++) {
      const int at = threadIdx.x + i * config.threads;
      if (at < SCAN_ROWS * config.columns()) to.value(0)[at] = from.v[i];
    }
    if (threadIdx.x < 2 * SCAN_ROWS) to.decay()[threadIdx.x] = from.factor;
    const int l = threadIdx.x % 16;
    if (threadIdx.x < 32 && l <= SCAN_ROWS) (threadIdx.x < 16 ? to.before() : to.end())[l] = from.link;
    if constexpr (config.keeps)
      if (threadIdx.x < 32 && l < SCAN_ROWS) to.kept_in(threadIdx.x / 16)[l] = from.kept_in;
  }

  /* The state behind row r of a chunk, from that before it; what is read of it, the same in the lanes of a column. */
  TW_DEVICE float step(float (&state)[config.own()], const ScanChunk<config> &at, int r) const {
    const int part = lane % SCAN_LANES, column = warp * SCAN_COLUMNS + lane / SCAN_LANES;
    const float4 *const k = (const float4 *)at.key(r) + part, *const q = (const float4 *)at.query(r) + part;
    const float decay = at.decay()[r], beta = at.beta()[r], value = at.value(r)[column];
    float added = mul(beta, value);
    if constexpr (config.is_delta) {
      float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
#pragma unroll
      for (int j = 0; j < config.own() / 4; j++) {
        const float4 x = k[SCAN_LANES * j];
        state[4 * j] = mul(state[4 * j], decay);
        state[4 * j + 1] = mul(state[4 * j + 1], decay);
        state[4 * j + 2] = mul(state[4 * j + 2], decay);
        state[4 * j + 3] = mul(state[4 * j + 3], decay);
        s0 = fmaf(x.x, state[4 * j], s0);
        s1 = fmaf(x.y, state[4 * j + 1], s1);
        s2 = fmaf(x.z, state[4 * j + 2], s2);
        s3 = fmaf(x.w, state[4 * j + 3], s3);
      }
      added = mul(beta, sub(value, quad_sum(add(add(s0, s1), add(s2, s3)))));
    }
    const float factor = config.is_delta ? 1.0f : decay;
    float o0 = 0.0f, o1 = 0.0f, o2 = 0.0f, o3 = 0.0f;
#pragma unroll
    for (int j = 0; j < config.own() / 4; j++) {
      const float4 x = k[SCAN_LANES * j], y = q[SCAN_LANES * j];
      state[4 * j] = fmaf(x.x, added, mul(state[4 * j], factor));
      state[4 * j + 1] = fmaf(x.y, added, mul(state[4 * j + 1], factor));
      state[4 * j + 2] = fmaf(x.z, added, mul(state[4 * j + 2], factor));
      state[4 * j + 3] = fmaf(x.w, added, mul(state[4 * j + 3], factor));
      o0 = fmaf(y.x, state[4 * j], o0);
      o1 = fmaf(y.y, state[4 * j + 1], o1);
      o2 = fmaf(y.z, state[4 * j + 2], o2);
      o3 = fmaf(y.w, state[4 * j + 3], o3);
    }
    float sum = quad_sum(add(add(o0, o1), add(o2, o3)));
    if constexpr (config.has_skip) sum = fmaf(load(buffers.skip + head * config.skip_stride), value, sum);
    return sum;
  }

  /* The same for one row that is in no chunk, without what is read of it. All threads of the block together. */
  TW_DEVICE void again(float (&state)[config.own()], int row) const {
    ScanFetch<config> one;
    fetch(one, row, 1, row + 1);
    __syncthreads();
    place(one, chunk(2));
    __syncthreads();
    step(state, chunk(2), 0);
  }

  TW_DEVICE static void zero(float (&state)[config.own()]) {
#pragma unroll
    for (int i = 0; i < config.own(); i++) state[i] = 0.0f;
  }

  /* This lane's rows of its column in row `row` of the states. */
  TW_DEVICE f32 *states_of(int row) const {
    const int column = column0 + warp * SCAN_COLUMNS + lane / SCAN_LANES;
    return buffers.states + (long long)row * config.states_stride
        + (head * config.key_dim + 4 * (lane % SCAN_LANES)) * config.value_dim + column;
  }
  /* Whether its row `i` is one of the state, and the column too. */
  TW_DEVICE bool is_of_state(int i) const {
    const int column = column0 + warp * SCAN_COLUMNS + lane / SCAN_LANES;
    return 16 * (i / 4) + 4 * (lane % SCAN_LANES) + i % 4 < config.key_dim && column < config.value_dim;
  }

  /* What a tree that begins with row `first` goes on from. */
  TW_DEVICE void begin(float (&state)[config.own()], int first) const {
    zero(state);
    if constexpr (config.keeps) {
      const int row = buffers.from[first];
      if (row < 0) return;
      const f32 *const at = states_of(row);
#pragma unroll
      for (int i = 0; i < config.own(); i++)
        if (is_of_state(i)) state[i] = at[(16 * (i / 4) + i % 4) * config.value_dim];
    }
  }

  /* Writes the state to row `row` of the states, unless that is none. */
  TW_DEVICE void keep(const float (&state)[config.own()], int row) const {
    if (row < 0) return;
    f32 *const at = states_of(row);
#pragma unroll
    for (int i = 0; i < config.own(); i++)
      if (is_of_state(i)) at[(16 * (i / 4) + i % 4) * config.value_dim] = state[i];
  }

  /* The rows [first, past) of a tree. */
  TW_DEVICE void tree(int first, int past) const {
    const int column = column0 + warp * SCAN_COLUMNS + lane / SCAN_LANES;
    const bool is_stored = lane % SCAN_LANES == 0 && column < config.value_dim;
    float state[config.own()];
    begin(state, first);
    int kept = 0, kept_rows[config.kept > 0 ? config.kept : 1];
    ScanFetch<config> next;
    fetch(next, first, SCAN_ROWS, past);
    int turn = 0;
    for (int start = first; start < past; start += SCAN_ROWS, turn ^= 1) {
      /* Nobody reads this chunk: all have met since the rows before the last were taken. */
      place(next, chunk(turn));
      __syncthreads();
      if (start + SCAN_ROWS < past) fetch(next, start + SCAN_ROWS, SCAN_ROWS, past);
      const ScanChunk<config> at = chunk(turn);
      for (int r = 0; r < SCAN_ROWS && start + r < past; r++) {
        const int row = start + r, parent = row == first ? row : at.before()[r];
        if (row != first && (parent >= row || parent < first)) zero(state);
        else if (row != first && parent != row - 1) back_to(state, kept, kept_rows, first, parent);
        const float told = step(state, at, r);
        if (is_stored)
          store(buffers.out + (long long)row * config.out_stride + head * config.value_dim + column, told);
        if constexpr (config.keeps) {
          keep(state, at.kept_in(0)[r]);
          keep(state, at.kept_in(1)[r]);
        }
        /* More than the next row goes on from here. */
        const bool parts = row + 1 < past && at.before()[r + 1] == row && at.end()[r + 1] < at.end()[r];
        if (parts && kept < config.kept) {
#pragma unroll
          for (int i = 0; i < config.kept; i++)
            if (i == kept) kept_rows[i] = row;
#pragma unroll
          for (int i = 0; i < config.own(); i++) saved(kept)[i * config.threads] = state[i];
          kept++;
        }
      }
    }
    __syncthreads();
  }

  /* The state behind `parent`, from those that are kept. */
  TW_DEVICE void back_to(float (&state)[config.own()], int &kept, const int *kept_rows, int first, int parent) const {
    int at = first;
    int depth = 0;
#pragma unroll
    for (int i = 0; i < config.kept; i++)
      if (i < kept && kept_rows[i] <= parent) { depth = i + 1; at = kept_rows[i]; }
    kept = depth;
    if (depth > 0) {
#pragma unroll
      for (int i = 0; i < config.own(); i++) state[i] = saved(depth - 1)[i * config.threads];
    } else {
      begin(state, first);
      again(state, at);
    }
    /* Down the path to the parent: of the rows below `at`, the one that it lies below. */
    while (at < parent) {
      at++;
      for (int end = buffers.end[at]; end <= parent && end > at; end = buffers.end[at]) at = end;
      again(state, at);
    }
  }
};

/* The kernel, once the one before has ended (await_previous). */
template <ScanConfig config, class T, class O, class S>
TW_DEVICE void scan(int rows, const ScanBuffers<T, O, S> &buffers) {
  static_assert(config.is_legal());
  TW_DYNAMIC_SHARED(shared_memory, 128);
  const int head = blockIdx.y / config.blocks();
  const Scan<config, T, O, S> own = {
    buffers, (float *)shared_memory, rows, head, head * config.key_heads / config.heads,
    (int)(blockIdx.y % config.blocks()) * config.columns(), (int)threadIdx.x % 32, (int)threadIdx.x / 32,
  };
  /* Rows of the window that begin a tree. */
  const int row = blockIdx.x * config.window + own.lane;
  unsigned roots = __ballot_sync(ALL_LANES,
      own.lane < config.window && row < rows && buffers.before[row < rows ? row : 0] >= row);
  /* The first tree of a call begins with its first row, whatever is said of it. */
  if (blockIdx.x == 0) roots |= 1u;
  while (roots != 0) {
    const int first = blockIdx.x * config.window + __ffs((int)roots) - 1;
    roots &= roots - 1;
    int past = first + 1;
    for (;;) {
      const int at = past + own.lane;
      const unsigned begins = __ballot_sync(ALL_LANES, at >= rows || buffers.before[at < rows ? at : 0] >= at);
      if (begins != 0) { past += __ffs((int)begins) - 1; break; }
      past += 32;
    }
    own.tree(first, past);
  }
}

}  // namespace tw
