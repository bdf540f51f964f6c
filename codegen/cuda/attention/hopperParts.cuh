/*
 * Attention of prompts by warpgroup products (attention/hopper.cuh), part by part: a part's products of values go out
 * as soon as its weights are there, and its registers are free for the next one.
 *
 * The weights of a chunk are relative to one power of two for each row, its base, which is known when the first part's
 * maxima are: the base of the total, or the maximum where that leads by more than LEAD. Rounding is the same whichever
 * power it is. While a part's weights are computed, the products of values of the part before are under way, and with
 * `scores_ahead` the scores of the next one too.
 *
 * Weights of a second part that lead its base by more than a float holds make a tile's result infinite or undefined.
 * Tiles that are repeated, query by query, are multiplied chunk by chunk.
 */
#pragma once
#include "attention/hopperRows.cuh"

namespace tw {


/* Of the two rows of a lane: the maximum of the chunk so far, its base, and this lane's part of the sum of weights. */
struct ChunkState { float top[2], base[2], sum[2]; };

/* The largest scores of two steps of the softmax of two rows, in all four lanes of a row. */
TW_DEVICE void most_of(const float (&s)[32], float (&most)[2][2]) {
#pragma unroll
  for (int step = 0; step < 2; step++) {
    const float *const x = s + step * 16;
    float a[2] = { fmaxf(x[0], x[1]), fmaxf(x[2], x[3]) }, b[2] = { fmaxf(x[4], x[5]), fmaxf(x[6], x[7]) };
#pragma unroll
    for (int i = 8; i < 16; i += 8) {
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
    for (int step = 0; step < 2; step++) {
      most[step][0] = fmaxf(most[step][0], __shfl_xor_sync(ALL_LANES, most[step][0], by));
      most[step][1] = fmaxf(most[step][1], __shfl_xor_sync(ALL_LANES, most[step][1], by));
    }
  }
}

/* Weights of a part, each step's by the maximum after it, times what leads from there to the base. */
template <PathConfig config>
TW_DEVICE void weigh_to_base(const float (&s)[32], unsigned (&weight)[4][4], const float (&most)[2][2],
    ChunkState &state) {
#pragma unroll
  for (int step = 0; step < 2; step++) {
    float factor[2];
    unsigned pair[2];
#pragma unroll
    for (int row = 0; row < 2; row++) {
      /* What leads by more is infinite: such a tile is repeated. */
      factor[row] = whole_power2(fminf(most[step][row] - state.base[row], 128.0f));
      pair[row] = pair_of_power(factor[row]);
    }
#pragma unroll
    for (int i = step * 16; i < (step + 1) * 16; i += 4) {
      const float x0 = exp2_flushed(fmaf(s[i], config.scale, -most[step][0]));
      const float x1 = exp2_flushed(fmaf(s[i + 1], config.scale, -most[step][0]));
      const float x2 = exp2_flushed(fmaf(s[i + 2], config.scale, -most[step][1]));
      const float x3 = exp2_flushed(fmaf(s[i + 3], config.scale, -most[step][1]));
      state.sum[0] = fmaf(x0 + x1, factor[0], state.sum[0]);
      state.sum[1] = fmaf(x2 + x3, factor[1], state.sum[1]);
      weight[i / 8][i / 4 % 2 * 2] = mul_bf16x2(pack<bf16>(x0, x1), pair[0]);
      weight[i / 8][i / 4 % 2 * 2 + 1] = mul_bf16x2(pack<bf16>(x2, x3), pair[1]);
    }
  }
}

template <PathConfig config, class Operands> struct PromptParts : PromptWarpgroup<config, Operands> {
  using Base = PromptWarpgroup<config, Operands>;
  using Layout = PromptLayout<config>;
  using Base::about, Base::await, Base::bars, Base::before, Base::before_flags, Base::chunk, Base::flags, Base::go_on,
      Base::hide, Base::multiply_part, Base::own, Base::release, Base::second_of, Base::settle, Base::skip, Base::tiles,
      Base::total, Base::total_sum;
  static constexpr int d = Layout::d, keys = Layout::keys;
  /* Scores of the part that is weighed, and of the next. */
  static constexpr bool is_ahead = config.scores_ahead;

  float scores[is_ahead ? 2 : 1][keys / 2], o[d / 2];
  unsigned weight[2][keys / 16][4];
  ChunkState state;
  /* What the total is multiplied by when the chunk before is part of it: its base moves. */
  float move[2];
  bool is_moved;

  using Base::Base;

  TW_DEVICE float (&first())[keys / 2] { return scores[0]; }
  TW_DEVICE float (&second())[keys / 2] { return scores[is_ahead]; }

  /* o (+)= values of part `part` by their weights. */
  TW_DEVICE void multiply_values(const unsigned (&weight)[keys / 16][4], int part, bool is_added) {
    const unsigned values = columns_at(this->memory + Layout::values_at, Layout::key_slab) +
        uniform(slot_of<config>(part)) * (Layout::part_bytes / 16);
#pragma unroll
    for (int n = 0; n < keys / 16; n++)
      wgmma_of_registers<bf16, d>(o, weight[n], descriptor(values + n * (16 * SLAB_BYTES / 16)), is_added || n > 0);
    wgmma_commit();
  }
  TW_DEVICE void issue_first() {
    wgmma_fence();
    multiply_part(first(), chunk);
  }
  TW_DEVICE void issue_second() {
    wgmma_fence();
    multiply_part(second(), second_of(chunk, flags));
  }

  /* The chunk's first part: decides on its base. */
  TW_DEVICE void weigh_first() {
    if constexpr (config.is_capped) this->bound(first());
    if ((flags & IS_CUT0 << own) != 0) hide(first(), about(chunk), about(chunk).from);
    float most[2][2];
    most_of(first(), most);
    is_moved = false;
#pragma unroll
    for (int row = 0; row < 2; row++) {
      most[0][row] = fmaxf(NOTHING, ceilf(mul(most[0][row], config.scale)));
      most[1][row] = fmaxf(most[0][row], ceilf(mul(most[1][row], config.scale)));
      const float base = most[1][row] > state.base[row] + LEAD ? most[1][row] : state.base[row];
      move[row] = whole_power2(state.base[row] - base);
      is_moved = is_moved || base != state.base[row];
      state.base[row] = base;
      state.top[row] = most[1][row];
      state.sum[row] = 0.0f;
    }
    weigh_to_base<config>(first(), weight[0], most, state);
  }
  /* The second part, whose maximum may lead by so far that all is moved to it. And the chunk's sums. */
  TW_DEVICE void weigh_second() {
    if constexpr (config.is_capped) this->bound(second());
    if ((before_flags & IS_CUT1 << own) != 0) hide(second(), about(before), about(before).from + keys);
    float most[2][2];
    most_of(second(), most);
#pragma unroll
    for (int row = 0; row < 2; row++) {
      most[0][row] = fmaxf(state.top[row], ceilf(mul(most[0][row], config.scale)));
      most[1][row] = fmaxf(most[0][row], ceilf(mul(most[1][row], config.scale)));
    }
    weigh_to_base<config>(second(), weight[1], most, state);
    total_sum[0] += quad_sum(state.sum[0]);
    total_sum[1] += quad_sum(state.sum[1]);
  }
  TW_DEVICE void move_total() {
    if (!__any_sync(ALL_LANES, is_moved)) return;
    total_sum[0] = mul(total_sum[0], move[0]);
    total_sum[1] = mul(total_sum[1], move[1]);
#pragma unroll
    for (int i = 0; i < d / 2; i++) total[i] = mul(total[i], move[i >> 1 & 1]);
  }
  TW_DEVICE void add_values() {
    settle(o);
#pragma unroll
    for (int i = 0; i < d / 2; i++) total[i] = add(total[i], o[i]);
  }
  TW_DEVICE void release_part(const Barriers &empty, int part) { release(empty[slot_of<config>(part)]); }

  TW_DEVICE void look_ahead(bool &is_open, bool &is_seen) {
    before = chunk;
    before_flags = flags;
    is_open = (flags & IS_LAST) == 0;
    is_seen = is_open && go_on();
  }
  /* The first part's products of values go out; then the second part's scores are there, and what comes next known. */
  TW_DEVICE void end_first(bool &is_open, bool &is_seen) {
    await(bars.values_full, chunk);
    fence_async_proxy();
    wgmma_fence();
    multiply_values(weight[0], chunk, false);
    wgmma_wait<1>();
    settle(second());
    release_part(bars.keys_empty, second_of(chunk, flags));
    look_ahead(is_open, is_seen);
    await(bars.values_full, second_of(before, before_flags));
    fence_async_proxy();
  }

  TW_DEVICE void multiply() {
#pragma unroll
    for (int i = 0; i < d / 2; i++) total[i] = 0.0f;
    total_sum[0] = total_sum[1] = 0.0f;
    state.base[0] = state.base[1] = NOTHING;
    bool is_seen, is_open = this->begin_tile(is_seen);
    while (is_open) {
      if (!is_seen) {
        skip();
        is_open = (flags & IS_LAST) == 0;
        is_seen = is_open && go_on();
        continue;
      }
      fence_async_proxy();
      issue_first();
      wgmma_wait<0>();
      settle(first());
      if ((flags & HAS_TWO) != 0) release_part(bars.keys_empty, chunk);
      await(bars.keys_full, second_of(chunk, flags));
      fence_async_proxy();
      if constexpr (is_ahead) issue_second();
      weigh_first();
      move_total();
      if constexpr (!is_ahead) issue_second();
      end_first(is_open, is_seen);
      while (is_seen) {
        if constexpr (is_ahead) issue_first();
        weigh_second();
        if constexpr (!is_ahead) issue_first();
        else wgmma_fence();
        multiply_values(weight[1], second_of(before, before_flags), true);
        wgmma_wait<1>();
        settle(first());
        if ((flags & HAS_TWO) != 0) release_part(bars.keys_empty, chunk);
        if ((before_flags & HAS_TWO) != 0) release_part(bars.values_empty, before);
        await(bars.keys_full, second_of(chunk, flags));
        fence_async_proxy();
        if constexpr (is_ahead) issue_second();
        weigh_first();
        if constexpr (!is_ahead) issue_second();
        wgmma_wait<1>();
        add_values();
        release_part(bars.values_empty, second_of(before, before_flags));
        move_total();
        end_first(is_open, is_seen);
      }
      weigh_second();
      wgmma_fence();
      multiply_values(weight[1], second_of(before, before_flags), true);
      wgmma_wait<0>();
      add_values();
      this->release_both(bars.values_empty, before, before_flags);
    }
  }
};

}  // namespace tw
