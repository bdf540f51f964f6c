/*
 * States that go from token to token (ir/ops/recurrent.ts): S[d, e], f32, in registers.
 *
 * A block has some columns of a head, and the trees that begin in a window of rows; it takes the rows of a tree in
 * order, each behind the row before it on its path. Several lanes share some columns and have some rows of each. What
 * is added up over d is added for each of 16 classes of rows first, then over classes in pairs: in one order.
 *
 * Rows of queries, keys and values are in shared memory as floats (scanRows.cuh), the next ones on their way
 * meanwhile. What a row is told leaves the lanes one row later: sums over lanes of two rows then wait together.
 *
 * States of rows where paths part are kept in shared memory, the nearest to the root first. Where a path goes on from
 * another row, its state is computed again, from the nearest row above it whose state is kept: the same operations in
 * the same order, and so the same bits.
 *
 * Where states are kept between calls, a tree goes on from a row of them, and states behind some of its rows go to
 * others. A block has read its own before it writes. It needs that no more,
 * once rows part: the first that does is kept.
 */
#pragma once
#include "lib/copy.cuh"
#include "lib/shared.cuh"
#include "recurrent/scanRows.cuh"

namespace tw {

template <ScanConfig config, class T, class O, class S> struct Scan {
  static constexpr int LANES = config.lanes, COLUMNS = SCAN_COLUMNS, OWN = config.own();
  static constexpr int CLASSES = config.classes();

  const ScanBuffers<T, O, S> &buffers;
  float *shared;
  int rows, head, column0, lane, warp;
  float skip;

  /* Columns of a lane; or for each column of a lane one sum. */
  struct State { float at[COLUMNS][OWN]; };
  /* What a row is told, in sums of a lane, and its value in the lane's own column. */
  struct Told {
    float sum[COLUMNS];
    float value;
  };

  TW_DEVICE ScanChunk<config> chunk(int i) const { return { shared + i * config.chunk() }; }
  /*
   * Kept states: 16 bytes of a row, four columns, for each row of a lane's and each lane. Lanes of columns `group`
   * behind one another are turned, so that neither those of a row nor those of some columns meet in a bank.
   */
  TW_DEVICE float4 *saved(int which, int group, int part) const {
    constexpr int turns = LANES < 8 ? LANES : 8;
    return (float4 *)(shared + 2 * config.chunk()) + which * OWN * config.threads + group * LANES
        + (part ^ group % turns);
  }
  TW_DEVICE float4 *own_saved(int which) const {
    const int thread = thread_again();
    return saved(which, thread / LANES, thread % LANES);
  }

  /* Of 32 rows from `at` those that begin a tree, and those behind the last. The first of a call does, in any case. */
  TW_DEVICE unsigned starts(int at) const {
    const int row = at + lane;
    return __ballot_sync(ALL_LANES, row == 0 || row >= rows || buffers.before[min(row, rows - 1)] >= row);
  }

  /* The first of the lane's columns among those of the block. */
  TW_DEVICE int first_column() const { return warp * config.warp_columns() + lane / LANES * COLUMNS; }
  /* Which of its columns a lane has sums of, behind over_lanes; and which of the lanes has those of column `c`. */
  TW_DEVICE int own_column() const {
    int own = 0;
#pragma unroll
    for (int by = 1, half = COLUMNS / 2; half > 0; by *= 2, half /= 2) own += lane & by ? half : 0;
    return own;
  }
  TW_CONSTEXPR static int lane_of(int c) {
    int own = 0;
    for (int by = 1, half = COLUMNS / 2; half > 0; by *= 2, half /= 2) own |= c & half ? by : 0;
    return own;
  }

  /* Of each column the sum over its lanes, in pairs, then pairs of pairs. Lanes share columns out as they go. */
  TW_DEVICE float over_lanes(float (&x)[COLUMNS]) const {
#pragma unroll
    for (int by = 1, width = COLUMNS; by < LANES; by *= 2) {
      width = width > 1 ? width / 2 : 0;
      if (width == 0) {
        x[0] = add(x[0], __shfl_xor_sync(ALL_LANES, x[0], by));
      } else {
        const bool is_upper = (lane & by) != 0;
#pragma unroll
        for (int i = 0; i < width; i++) {
          const float kept = is_upper ? x[i + width] : x[i], sent = is_upper ? x[i] : x[i + width];
          x[i] = add(kept, __shfl_xor_sync(ALL_LANES, sent, by));
        }
      }
    }
    return x[0];
  }
  /* A lane's classes, in pairs. */
  TW_DEVICE static float over_classes(const float (&x)[CLASSES]) {
    if constexpr (CLASSES == 4) return add(add(x[0], x[1]), add(x[2], x[3]));
    else if constexpr (CLASSES == 2) return add(x[0], x[1]);
    else return x[0];
  }

  /* What a row is told, in the lanes of its columns, of which the first `COLUMNS` store it. */
  TW_DEVICE void tell(Told &told, O *to, bool is_stored) const {
    float sum = over_lanes(told.sum);
    if constexpr (config.has_skip) sum = fmaf(skip, told.value, sum);
    if (is_stored) store(to, sum);
  }

  /*
   * The state behind row r of a chunk, from that before it. `told`: what the row before was told, stored to `to` if
   * is_stored; then what this one is.
   */
  TW_DEVICE void step(State &state, const ScanChunk<config> &at, int r, Told &told, O *to, bool is_stored) const {
    const float4 *const keys = (const float4 *)at.key(r) + lane % LANES;
    const float4 *const queries = (const float4 *)at.query(r) + lane % LANES;
    const float *const values = at.value(r) + first_column();
    const float2 factors = *at.factors(r);
    const float decay = factors.x, beta = factors.y;
    float4 k[OWN / 4];
#pragma unroll
    for (int j = 0; j < OWN / 4; j++) k[j] = keys[LANES * j];
    float added[COLUMNS], own_value = 0.0f;
    if constexpr (config.is_delta || config.has_skip) own_value = values[own_column()];
    if constexpr (config.is_delta) {
      float seen[COLUMNS], sums[COLUMNS][CLASSES] = {};
#pragma unroll
      for (int i = 0; i < OWN; i++) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
          state.at[c][i] = mul(state.at[c][i], decay);
          sums[c][i % CLASSES] = fmaf(component(k[i / 4], i % 4), state.at[c][i], sums[c][i % CLASSES]);
        }
      }
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) seen[c] = over_classes(sums[c]);
      const float own = mul(beta, sub(own_value, over_lanes(seen)));
      tell(told, to, is_stored);
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) added[c] = __shfl_sync(ALL_LANES, own, lane_of(c), LANES);
    } else {
      tell(told, to, is_stored);
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) added[c] = mul(beta, values[c]);
    }
    float sums[COLUMNS][CLASSES] = {};
#pragma unroll
    for (int j = 0; j < OWN / 4; j++) {
      const float4 q = queries[LANES * j];
#pragma unroll
      for (int i = 4 * j; i < 4 * j + 4; i++) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
          const float old = config.is_delta ? state.at[c][i] : mul(state.at[c][i], decay);
          state.at[c][i] = fmaf(component(k[j], i % 4), added[c], old);
          sums[c][i % CLASSES] = fmaf(component(q, i % 4), state.at[c][i], sums[c][i % CLASSES]);
        }
      }
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) told.sum[c] = over_classes(sums[c]);
    told.value = own_value;
  }
  TW_DEVICE static float component(const float4 &x, int i) {
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
  }

  /* The same for one row, in a chunk that nobody reads. All threads of the block together. */
  TW_DEVICE void again(State &state, int row, const ScanChunk<config> &at) const {
    ScanFetch<config, T> one;
    one.load(buffers, head, column0, row, row + 1);
    __syncthreads();
    one.place(at);
    __syncthreads();
    Told untold = {};
    step(state, at, 0, untold, nullptr, false);
  }

  /* Row `i` of the lane's in the state, and this lane's columns of it in row `row` of the states. */
  TW_DEVICE int row_of(int i) const {
    return i / CLASSES * SCAN_CLASSES + lane % LANES * CLASSES + i % CLASSES;
  }
  TW_DEVICE f32 *states_of(int row) const {
    return buffers.states + (long long)row * config.states_stride + head * config.key_dim * config.value_dim + column0;
  }
  /* Whether row `i` of the lane's is one of the state, and column `c` of the block's. */
  TW_DEVICE bool has_row(int i) const { return config.padded() == config.key_dim || row_of(i) < config.key_dim; }
  TW_DEVICE bool has_column(int c) const {
    return config.value_dim % config.columns() == 0 || column0 + c < config.value_dim;
  }
  /* Whether lanes have all of their columns or none, at addresses of 16 bytes. */
  static constexpr bool IS_WHOLE = config.value_dim % 4 == 0 && config.states_stride % 4 == 0;

  /*
   * Asks for what a tree goes on from, row `from` of the states: whole lines of it, to the place of the last kept
   * state, past L1, which could not hold a block's. Nobody may be at that place.
   */
  TW_DEVICE void ask(int from) const {
    if constexpr (config.keeps && IS_WHOLE) {
      if (from < 0) return;
      const f32 *const at = states_of(from);
      constexpr int groups = config.threads / LANES;
      const int thread = thread_again(), group = thread % groups;
#pragma unroll
      for (int i = 0; i < OWN; i++) {
        const int row = thread / groups + i * LANES, own = row % SCAN_CLASSES;
        const bool is_there = row < config.key_dim && has_column(4 * group);
        const float4 *const to = saved(config.kept - 1, group, own / CLASSES)
            + (row / SCAN_CLASSES * CLASSES + own % CLASSES) * config.threads;
        copy16(shared_address(to), is_there ? at + row * config.value_dim + 4 * group : at, is_there ? 16 : 0);
      }
      copy_commit();
    }
  }

  /* Takes it. Copies of all threads have ended. */
  TW_DEVICE void take(State &state, int from) const {
    state = {};
    if constexpr (config.keeps) {
      if (from < 0) return;
      if constexpr (IS_WHOLE) {
        restore(state, config.kept - 1);
      } else {
        const f32 *const at = states_of(from) + first_column();
#pragma unroll
        for (int i = 0; i < OWN; i++)
#pragma unroll
          for (int c = 0; c < COLUMNS; c++)
            if (has_row(i) && has_column(first_column() + c)) state.at[c][i] = at[row_of(i) * config.value_dim + c];
      }
    }
  }

  /* Writes the state to row `row` of the states, unless that is none. */
  TW_DEVICE void keep(const State &state, int row) const {
    if (row < 0) return;
    f32 *const at = states_of(row) + first_column();
#pragma unroll
    for (int i = 0; i < OWN; i++) {
      f32 *const p = at + row_of(i) * config.value_dim;
      if (!has_row(i)) continue;
      if constexpr (IS_WHOLE) {
        if (has_column(first_column()))
          *(float4 *)p = { state.at[0][i], state.at[1][i], state.at[2][i], state.at[3][i] };
      } else {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
          if (has_column(first_column() + c)) p[c] = state.at[c][i];
      }
    }
  }

  /* Rows whose states are kept in shared memory. */
  struct Kept {
    int count, rows[config.kept > 0 ? config.kept : 1];
  };

  /* The rows [first, past) of a tree, which goes on from row `from` of the states; −1: from zeros. */
  TW_DEVICE void tree(int first, int past, int from) const {
    const int column = column0 + first_column() + own_column();
    const bool is_stored = lane % LANES < COLUMNS && column < config.value_dim;
    /* Others may still be at the last chunks of the tree before, and at its kept states. */
    __syncthreads();
    ask(from);
    State state = {};
    Kept kept = {};
    Told told = {};
    /* Of the row before. */
    O *to = buffers.out + (long long)(first - 1) * config.out_stride + head * config.value_dim + column;
    ScanFetch<config, T> next;
    next.load(buffers, head, column0, first, past);
    int turn = 0;
    for (int start = first; start < past; start += config.chunk_rows, turn ^= 1) {
      /* Nobody reads this chunk: all have met since the rows before the last were taken. */
      const ScanChunk<config> at = chunk(turn);
      next.place(at);
      const ScanMarks marks = next.marks(first, start, past);
      if constexpr (config.keeps) copy_wait<0>();
      __syncthreads();
      if constexpr (config.keeps)
        if (start == first) take(state, from);
      const int behind = start + config.chunk_rows;
      if (behind < past) next.load(buffers, head, column0, behind, past);
      if (!marks.any() && behind <= past) {
#pragma unroll
        for (int r = 0; r < config.chunk_rows; r++, to += config.out_stride)
          step(state, at, r, told, to, is_stored && (r > 0 || start > first));
        continue;
      }
#pragma unroll 1
      for (int r = 0; r < config.chunk_rows && start + r < past; r++, to += config.out_stride) {
        const int row = start + r;
        const unsigned bit = 1u << r;
        if (marks.jumps & bit) {
          const int parent = buffers.before[row];
          if (parent >= row || parent < first) state = {};
          else back_to(state, kept, first, from, parent, chunk(turn ^ 1));
        }
        step(state, at, r, told, to, is_stored && row > first);
        if constexpr (config.keeps)
          if (marks.keeps & bit) {
#pragma unroll 1
            for (int i = 0; i < 2; i++) keep(state, __shfl_sync(ALL_LANES, i == 0 ? marks.to : marks.also, r));
          }
        if ((marks.parts & bit) && kept.count < config.kept) save(state, kept, row);
      }
    }
    tell(told, to, is_stored);
  }

  TW_DEVICE void save(const State &state, Kept &kept, int row) const {
#pragma unroll
    for (int i = 0; i < config.kept; i++)
      if (i == kept.count) kept.rows[i] = row;
    float4 *const at = own_saved(kept.count);
#pragma unroll
    for (int i = 0; i < OWN; i++)
      at[i * config.threads] = { state.at[0][i], state.at[1][i], state.at[2][i], state.at[3][i] };
    kept.count++;
  }
  TW_DEVICE void restore(State &state, int which) const {
    const float4 *const at = own_saved(which);
#pragma unroll
    for (int i = 0; i < OWN; i++) {
      const float4 x = at[i * config.threads];
      state.at[0][i] = x.x, state.at[1][i] = x.y, state.at[2][i] = x.z, state.at[3][i] = x.w;
    }
  }

  /* The state behind `parent`, from those that are kept. */
  TW_DEVICE void back_to(
      State &state, Kept &kept, int first, int from, int parent, const ScanChunk<config> &free) const {
    int at = first, depth = 0;
#pragma unroll
    for (int i = 0; i < config.kept; i++)
      if (i < kept.count && kept.rows[i] <= parent) { depth = i + 1; at = kept.rows[i]; }
    kept.count = depth;
    if (depth > 0) {
      restore(state, depth - 1);
    } else {
      if constexpr (config.keeps) {
        __syncthreads();
        ask(from);
        copy_wait<0>();
        __syncthreads();
      }
      take(state, from);
    }
    /* Down the path to the parent: of the rows below `at`, the one that it lies below. */
    bool is_due = depth == 0;
    while (is_due || at < parent) {
      if (!is_due) {
        at++;
        for (int end = buffers.end[at]; end <= parent && end > at; end = buffers.end[at]) at = end;
      }
      is_due = false;
      again(state, at, free);
    }
    /* The chunk is free again. */
    __syncthreads();
  }
};

/* The kernel, once the one before has ended (await_previous). */
template <ScanConfig config, class T, class O, class S>
TW_DEVICE void scan(int rows, const ScanBuffers<T, O, S> &buffers) {
  static_assert(config.is_legal());
  TW_DYNAMIC_SHARED(shared_memory, 128);
  /*
   * Blocks begin in order of `number`: all columns of a window, then those of the next. So those of the only window in
   * which a tree begins are on all multiprocessors, and few rows of states are read at a time.
   */
  const int number = (int)(blockIdx.y * gridDim.x + blockIdx.x), line = number % (int)gridDim.y;
  const int head = line / config.blocks();
  Scan<config, T, O, S> own = {
    buffers, (float *)shared_memory, rows, head, line % config.blocks() * config.columns(),
    (int)threadIdx.x % 32, (int)threadIdx.x / 32, 0.0f,
  };
  if constexpr (config.has_skip) own.skip = load(buffers.skip + head * config.skip_stride);
  /* Rows of the window, 32 at a time, of which some begin a tree. */
  const int window = (rows + (int)gridDim.x - 1) / (int)gridDim.x;
  const int begin = number / (int)gridDim.y * window, end = min(begin + window, rows);
  for (int at = begin; at < end; at += 32) {
    int from = -1;
    if constexpr (config.keeps) from = buffers.from[min(at + own.lane, rows - 1)];
    const unsigned starts = own.starts(at);
    unsigned roots = end - at < 32 ? starts & ((1u << (end - at)) - 1) : starts;
    while (roots != 0) {
      const int which = __ffs((int)roots) - 1, first = at + which;
      roots &= roots - 1;
      /* The next row that begins a tree. */
      const unsigned later = which < 31 ? starts >> (which + 1) : 0;
      int past = first + __ffs((int)later);
      if (later == 0) {
        past = at + 32;
        unsigned next = own.starts(past);
        for (; next == 0; next = own.starts(past)) past += 32;
        past += __ffs((int)next) - 1;
      }
      own.tree(first, past, __shfl_sync(ALL_LANES, from, which));
    }
  }
}

}  // namespace tw
