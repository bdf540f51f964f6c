/*
 * Attention of prompts by warpgroup products: sm_90a, queries, keys and values in bf16, heads of 64 or 128.
 *
 * A tile has 128 rows: `queries` queries of the heads that share one head of keys, so that a key is loaded once for all
 * of them. Each of two warpgroups multiplies 64 rows, half of the queries: row r of it is head r % group of its query
 * r / group, and rows past its last query are idle. The warps of a third one load (attention/hopperLoads.cuh): one is a
 * tile ahead, finds out what its queries see, and copies them; one loads keys, one values, and one helps with keys. So
 * a block never waits between tiles.
 *
 * Query q sees the rows key[begin[q] + i] of keys and values for i from 0 to position[q], or the last `window` of them,
 * or those of its own piece of so many positions: what no query of a run sees is left out, by chunks. Queries next to
 * each other with one `begin` are a run. A part is 64 entries of a run's list, two parts are a chunk. Runs whose lists
 * begin alike, as questions after the same examples do, share their first chunks: those are loaded and multiplied once,
 * for the queries of all these runs.
 *
 * A warpgroup issues the scores of a chunk's first part together with the products of values of the chunk before, and
 * computes the part's weights while those are multiplied. It issues the scores of the second part before it adds the
 * products to the total, and computes that part's weights while the other warpgroup multiplies. Where a later step of
 * the softmax moves a row's maximum, the weights of the steps before are rescaled before they are multiplied: by powers
 * of two, so the sums are the same.
 *
 * The bits of an answer are those of the kernels on mma.sync (attention/path.cuh): keys are taken in order of position,
 * 16 a step of a product, TILE_KEYS a step of the softmax, CHUNK a partial result. A row that does not see a chunk adds
 * exact zeros. If a result of a tile is not finite, the tile is repeated query by query, with zeros in place of the
 * keys that the query does not see.
 *
 * Grid: a block for each multiprocessor, which takes every so many tiles of the queries of each head of keys. Memory
 * and barriers of a block: attention/hopperTile.cuh.
 */
#pragma once
#include "attention/hopperLoads.cuh"
#include "attention/hopperRows.cuh"

namespace tw {

/* Of the two rows of a lane: the maximum, and this lane's part of the sum of weights. */
struct RowState { float top[2], sum[2]; };

/*
 * Weights of a part from its scores: two steps of the softmax of two rows, each by the maximum after it. The state is
 * that before the part, and becomes that behind it. `late`: what the first step's weights must be rescaled by.
 */
template <PathConfig config>
TW_DEVICE void weigh_part(const float (&s)[32], unsigned (&weight)[4][4], RowState &state, float (&late)[2]) {
  constexpr int keys = PromptLayout<config>::keys, steps = keys / TILE_KEYS, own = TILE_KEYS / 2;
  float most[steps][2];
#pragma unroll
  for (int step = 0; step < steps; step++) {
    const float *const x = s + step * own;
    float a[2] = { fmaxf(x[0], x[1]), fmaxf(x[2], x[3]) }, b[2] = { fmaxf(x[4], x[5]), fmaxf(x[6], x[7]) };
#pragma unroll
    for (int i = 8; i < own; i += 8) {
      a[0] = fmaxf(a[0], fmaxf(x[i], x[i + 1]));
      a[1] = fmaxf(a[1], fmaxf(x[i + 2], x[i + 3]));
      b[0] = fmaxf(b[0], fmaxf(x[i + 4], x[i + 5]));
      b[1] = fmaxf(b[1], fmaxf(x[i + 6], x[i + 7]));
    }
    most[step][0] = fmaxf(a[0], b[0]);
    most[step][1] = fmaxf(a[1], b[1]);
  }
#pragma unroll
  for (int by = 1; by < 4; by *= 2) {
#pragma unroll
    for (int step = 0; step < steps; step++) {
      most[step][0] = fmaxf(most[step][0], __shfl_xor_sync(ALL_LANES, most[step][0], by));
      most[step][1] = fmaxf(most[step][1], __shfl_xor_sync(ALL_LANES, most[step][1], by));
    }
  }
#pragma unroll
  for (int step = 0; step < steps; step++) {
    most[step][0] = fmaxf(step == 0 ? state.top[0] : most[0][0], ceilf(mul(most[step][0], config.scale)));
    most[step][1] = fmaxf(step == 0 ? state.top[1] : most[0][1], ceilf(mul(most[step][1], config.scale)));
  }
#pragma unroll
  for (int row = 0; row < 2; row++) {
    state.sum[row] = mul(state.sum[row], whole_power2(state.top[row] - most[0][row]));
    late[row] = whole_power2(most[0][row] - most[1][row]);
    state.top[row] = most[1][row];
  }
#pragma unroll
  for (int step = 0; step < steps; step++) {
    if (step > 0) {
      state.sum[0] = mul(state.sum[0], late[0]);
      state.sum[1] = mul(state.sum[1], late[1]);
    }
#pragma unroll
    for (int i = step * own; i < (step + 1) * own; i += 4) {
      const float x0 = exp2_flushed(fmaf(s[i], config.scale, -most[step][0]));
      const float x1 = exp2_flushed(fmaf(s[i + 1], config.scale, -most[step][0]));
      const float x2 = exp2_flushed(fmaf(s[i + 2], config.scale, -most[step][1]));
      const float x3 = exp2_flushed(fmaf(s[i + 3], config.scale, -most[step][1]));
      state.sum[0] += x0 + x1;
      state.sum[1] += x2 + x3;
      weight[i / 8][i / 4 % 2 * 2] = pack<bf16>(x0, x1);
      weight[i / 8][i / 4 % 2 * 2 + 1] = pack<bf16>(x2, x3);
    }
  }
}

template <PathConfig config, class Operands> struct PromptProducts : PromptWarpgroup<config, Operands> {
  using Base = PromptWarpgroup<config, Operands>;
  using Layout = PromptLayout<config>;
  using Base::about, Base::await, Base::bars, Base::before, Base::before_flags, Base::chunk, Base::finish, Base::flags,
      Base::go_on, Base::hide, Base::multiply_part, Base::own, Base::release, Base::release_both, Base::second_of,
      Base::settle, Base::skip, Base::tiles, Base::total, Base::total_sum;
  static constexpr int d = Layout::d, keys = Layout::keys;

  /* Of a chunk: scores of a part, weights of its first part and of all, products of values. */
  float scores[keys / 2], o[d / 2];
  unsigned early[keys / 16][4], weight[CHUNK / 16][4];
  RowState state;
  /* The maxima by which the total is scaled; what the first step's weights are rescaled by, and a chunk's products. */
  float total_top[2], first_late[2], now[2];

  using Base::Base;
  /* Goes on where another left off. */
  TW_DEVICE explicit PromptProducts(const Base &other) : Base(other) {}

  TW_DEVICE void multiply_values() {
    const unsigned values = columns_at(this->memory + Layout::values_at, Layout::key_slab);
    const unsigned early = values + uniform(slot_of<config>(before)) * (Layout::part_bytes / 16);
    const unsigned late =
        values + uniform(slot_of<config>(second_of(before, before_flags))) * (Layout::part_bytes / 16);
#pragma unroll
    for (int n = 0; n < CHUNK / 16; n++)
      wgmma_of_registers<bf16, d>(o, weight[n],
          descriptor((n < keys / 16 ? early : late) + n % (keys / 16) * (16 * SLAB_BYTES / 16)), n);
    wgmma_commit();
  }
  /* Scores of a part are there; its keys are used no more if `is_over`. */
  TW_DEVICE void settle_scores(int part, bool is_over) {
    settle(scores);
    if (is_over) release(bars.keys_empty[slot_of<config>(part)]);
  }
  /* Products of values are there. */
  TW_DEVICE void settle_values() {
    settle(o);
    release_both(bars.values_empty, before, before_flags);
  }

  /* The chunk's first part: its weights are rescaled when the second one's maxima are known. */
  TW_DEVICE void weigh_first() {
    if constexpr (config.is_capped || config.has_slopes()) finish(scores, about(chunk).from);
    if ((flags & IS_CUT0 << own) != 0) hide(scores, about(chunk), about(chunk).from);
    state.top[0] = state.top[1] = NOTHING;
    state.sum[0] = state.sum[1] = 0.0f;
    weigh_part<config>(scores, early, state, first_late);
  }
  /* The second part, and the whole chunk's weights. */
  TW_DEVICE void weigh_second() {
    if constexpr (config.is_capped || config.has_slopes()) finish(scores, about(before).from + keys);
    if ((before_flags & IS_CUT1 << own) != 0) hide(scores, about(before), about(before).from + keys);
    const float top[2] = { state.top[0], state.top[1] };
    unsigned late[keys / 16][4];
    float last_step[2];
    weigh_part<config>(scores, late, state, last_step);
    const float keep[2] = { whole_power2(top[0] - state.top[0]), whole_power2(top[1] - state.top[1]) };
    const unsigned factors[3][2] = {
      { pair_of_power(mul(first_late[0], keep[0])), pair_of_power(mul(first_late[1], keep[1])) },
      { pair_of_power(keep[0]), pair_of_power(keep[1]) },
      { pair_of_power(last_step[0]), pair_of_power(last_step[1]) },
    };
#pragma unroll
    for (int n = 0; n < keys / 16; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        weight[n][i] = mul_bf16x2(early[n][i], factors[n / (TILE_KEYS / 16)][i & 1]);
        weight[keys / 16 + n][i] = n < TILE_KEYS / 16 ? mul_bf16x2(late[n][i], factors[2][i & 1]) : late[n][i];
      }
    }
  }

  /*
   * A chunk becomes part of the total: first its maxima and sums, and what its values will be multiplied by. The scale
   * of the total is a power of two, so rounding is the same whichever it is. It follows a maximum that leads by far; or
   * each one, where a query is computed alone because a result was not finite.
   */
  TW_DEVICE void join_total() {
    const float lead = tiles.query < 0 ? LEAD : 0.0f;
    float most[2], old[2];
#pragma unroll
    for (int row = 0; row < 2; row++) {
      most[row] = state.top[row] > total_top[row] + lead ? state.top[row] : total_top[row];
      old[row] = whole_power2(total_top[row] - most[row]);
      now[row] = whole_power2(state.top[row] - most[row]);
    }
    if (__any_sync(ALL_LANES, most[0] != total_top[0] || most[1] != total_top[1])) {
#pragma unroll
      for (int i = 0; i < d / 2; i++) total[i] = mul(total[i], old[i >> 1 & 1]);
    }
#pragma unroll
    for (int row = 0; row < 2; row++) {
      total_sum[row] = fmaf(quad_sum(state.sum[row]), now[row], mul(total_sum[row], old[row]));
      total_top[row] = most[row];
    }
  }
  TW_DEVICE void add_values() {
#pragma unroll
    for (int i = 0; i < d / 2; i++) total[i] = fmaf(o[i], now[i >> 1 & 1], total[i]);
  }

  /* What there is to know while a chunk's second part is multiplied: whether there is a chunk behind it. */
  TW_DEVICE void look_ahead(bool &is_open, bool &is_seen) {
    before = chunk;
    before_flags = flags;
    await(bars.values_full, before);
    await(bars.values_full, second_of(before, before_flags));
    is_open = (flags & IS_LAST) == 0;
    is_seen = is_open && go_on();
    fence_async_proxy();
  }

  /* All chunks of a tile. */
  TW_DEVICE void multiply() {
#pragma unroll
    for (int i = 0; i < d / 2; i++) total[i] = 0.0f;
    total_top[0] = total_top[1] = NOTHING;
    total_sum[0] = total_sum[1] = 0.0f;
    bool is_seen, is_open = this->begin_tile(is_seen);
    while (is_open) {
      if (!is_seen) {
        skip();
        is_open = (flags & IS_LAST) == 0;
        is_seen = is_open && go_on();
        continue;
      }
      fence_async_proxy();
      wgmma_fence();
      multiply_part(scores, chunk);
      wgmma_wait<0>();
      settle_scores(chunk, (flags & HAS_TWO) != 0);
      weigh_first();
      await(bars.keys_full, second_of(chunk, flags));
      fence_async_proxy();
      wgmma_fence();
      multiply_part(scores, second_of(chunk, flags));
      look_ahead(is_open, is_seen);
      wgmma_wait<0>();
      settle_scores(second_of(before, before_flags), true);
      weigh_second();
      while (is_seen) {
        wgmma_fence();
        multiply_part(scores, chunk);
        multiply_values();
        join_total();
        wgmma_wait<1>();
        settle_scores(chunk, (flags & HAS_TWO) != 0);
        weigh_first();
        await(bars.keys_full, second_of(chunk, flags));
        fence_async_proxy();
        wgmma_fence();
        multiply_part(scores, second_of(chunk, flags));
        wgmma_wait<1>();
        settle_values();
        add_values();
        look_ahead(is_open, is_seen);
        wgmma_wait<0>();
        settle_scores(second_of(before, before_flags), true);
        weigh_second();
      }
      wgmma_fence();
      multiply_values();
      join_total();
      wgmma_wait<0>();
      settle_values();
      add_values();
    }
    if constexpr (config.has_sinks) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = this->row0 + 8 * half;
        const int head = tiles.kv() * config.group() + Layout::head_of(row);
        total_sum[half] += sink_weight<config>(this->x, head, total_top[half]);
      }
    }
  }
};

template <PathConfig config, class Operands>
TW_DEVICE void hopper_attention(const Operands &x, const TensorMap *keys_map, const TensorMap *values_map) {
  TW_DYNAMIC_SHARED(dynamic, 128);
  __shared__ PromptShared<config> shared;
  const int warpgroup = uniform((int)threadIdx.x >> 7);
  const unsigned memory = (array_address(dynamic) + 1023u) & ~1023u;
  const PromptBarriers<config> bars(memory);
  if (threadIdx.x == 0) {
    bars.init();
    shared.first_bad = 0x7fffffff;
    shared.last_bad = -1;
  }
  await_previous();
  __syncthreads();
  const PromptTiles<config> tiles(shared, x.rows);
  if (warpgroup == 0) {
    give_registers<config.loader_registers>();
    PromptLoads<config, Operands>(x, keys_map, values_map, shared, memory, bars, tiles).run();
    return;
  }
  take_registers<config.product_registers>();
  PromptProducts<config, Operands> products(x, shared, memory, bars, tiles, warpgroup - 1);
  products.take_tiles(tiles.has_tile(), [&] { products.multiply(); });
}

}  // namespace tw
