/* A team of four warps that takes a chunk of a path: its shared memory, and the steps from scores to results. */
#pragma once
#include "attention/chunks.cuh"
#include "attention/decodeRun.cuh"
#include "attention/slopes.cuh"
#include "lib/barrier.cuh"
#include "lib/cluster.cuh"

namespace tw {

template <PathConfig config> struct DecodeLayout {
  static constexpr int warps = CHUNK / TILE_KEYS, team_threads = 32 * warps, threads = config.teams * team_threads;
  static constexpr int workers = config.cluster * config.teams;
  static constexpr int group = config.group(), d = config.head_dim;
  /* Rows of scores: the heads of all queries. Tiles of them, and halves of tiles that have some. */
  static constexpr int rows = config.queries * group, tiles = (rows + 15) / 16, halves = (rows + 7) / 8;
  /* Most blocks of 16 columns of the result that a warp computes, and whether all warps have as many. */
  static constexpr int units = (d / 16 + warps - 1) / warps;
  static constexpr bool has_all_units = d / 16 % warps == 0;
  /* Pairs of columns of a query's answer, and those that a block and a thread add up. */
  static constexpr int blocks_of_query = config.cluster / config.queries, pairs = group * d / 2,
                       pairs_of_block = (pairs + blocks_of_query - 1) / blocks_of_query,
                       pairs_of_thread = (pairs_of_block + threads - 1) / threads;

  /*
   * Shared memory of a team: the keys and values of a chunk; weights as operands of a product, sums of weights and
   * maxima of each warp's keys, and of codes their scales; of a team that is alone, its answer with maxima and sums.
   */
  static constexpr unsigned values_at = CHUNK * config.row_bytes(), weights_at = 2 * values_at,
                            sums_at = weights_at + warps * halves * 512, tops_at = sums_at + warps * halves * 512,
                            scales_at = tops_at + 16 * tiles * warps * 4,
                            part_at = scales_at + (config.is_coded() ? 3 * CHUNK * 4 : 0), part_pitch = d + 8,
                            ends_in_part = group * part_pitch * 4,
                            part_bytes = (ends_in_part + group * 8 + 15) / 16 * 16,
                            team_bytes = part_at + (workers > 1 ? 0 : part_bytes);
  /*
   * Behind the teams lie, where several share a path, the chunks of a round as the block adds them up, twice: of each
   * worker its pairs of the block, and maxima and sums of all rows. Then barriers of both, and queries of two tiles, as
   * lanes have them.
   */
  static constexpr unsigned ends_in_chunk = pairs_of_block * 8, chunk_bytes = ends_in_chunk + rows * 8,
                            round_bytes = workers * chunk_bytes, rounds_at = config.teams * team_bytes,
                            barriers_at = rounds_at + 2 * round_bytes, queries_at = barriers_at + 16,
                            block_bytes = tiles > 1 ? queries_at + tiles * (d / 16) * 512
                                        : workers > 1 ? queries_at : rounds_at;

  static_assert(warps == 4, "maxima of a chunk are read four at a time");
  static_assert(rows <= 32 && d % 16 == 0, "rows are of two tiles at most, and heads whole steps of a product");
  static_assert(config.queries > 1 || group <= 16, "heads of one query are rows of one tile");
  static_assert(config.queries == 1 || (config.cluster % config.queries == 0 && pairs % blocks_of_query == 0),
      "each query brings as many blocks, and each block adds up as much");
  static_assert(config.warps == config.teams * warps);
  static_assert(block_bytes <= config.shared_bytes, "a block's memory is what its schedule says");
};

/* The queries of a tile in shared memory: registers hold those of one tile only. */
template <PathConfig config> struct LeftQueries {
  uint4 *of_lane;
  TW_DEVICE LeftQueries(unsigned char *memory, int tile)
      : of_lane((uint4 *)(memory + DecodeLayout<config>::queries_at) + tile * (config.head_dim / 16) * 32 +
            (threadIdx.x & 31)) {}
  TW_DEVICE void leave(const KeptQueries<config> &query) const {
#pragma unroll
    for (int i = 0; i < config.head_dim / 16; i++)
      of_lane[i * 32] = uint4{ query.x[i][0], query.x[i][1], query.x[i][2], query.x[i][3] };
  }
  TW_DEVICE void operand(unsigned (&a)[4], int i) const {
    const uint4 x = of_lane[i * 32];
    a[0] = x.x;
    a[1] = x.y;
    a[2] = x.z;
    a[3] = x.w;
  }
};

/*
 * A chunk's result as a warp has it. Columns lane / 4 and that + 8 of its units (of codes 2·(lane / 4) and the next)
 * of rows 8·half + 2·quad + e, as [e] and [2 + e]; maxima of these rows over the parts up to each.
 */
template <PathConfig config> struct ChunkAnswer {
  using Layout = DecodeLayout<config>;
  float o[Layout::units][Layout::halves][4];
  float top[Layout::halves][2][Layout::warps];
  /* Maxima and sums of rows 8·half + lane / 4, which the last warp has. */
  float2 end[Layout::halves];
};

/* The maxima of four parts, each that of the parts before it, too. */
TW_DEVICE void running_maxima(float (&top)[4], const float *parts) {
  const float4 x = *(const float4 *)parts;
  top[0] = fmaxf(-infinity(), x.x);
  top[1] = fmaxf(top[0], x.y);
  top[2] = fmaxf(top[1], x.z);
  top[3] = fmaxf(top[2], x.w);
}

/* What one team of the block computes with, by thread. */
template <PathConfig config, class Operands> struct DecodeTeam {
  using Key = typename Operands::KeyType;
  using Layout = DecodeLayout<config>;
  static constexpr int warps = Layout::warps, halves = Layout::halves, units = Layout::units;
  static_assert(sizeof(Key) == config.key_bytes);

  /* Rows of the run. */
  int rows;
  int team, warp, lane, row0, quad;
  /* The team's memory, and where this lane reads operands. */
  unsigned char *own;
  unsigned keys_at, values_at;
  float *tops, *part, *of_keys;
  uint4 *weights;
  float4 *sums;

  TW_DEVICE DecodeTeam(unsigned char *memory, int rows_of_run) : rows(rows_of_run) {
    team = (int)threadIdx.x / Layout::team_threads;
    lane = threadIdx.x & 31;
    warp = (int)threadIdx.x / 32 % warps;
    row0 = lane >> 2;
    quad = lane & 3;
    own = memory + team * Layout::team_bytes;
    const unsigned at = array_address(memory) + team * Layout::team_bytes;
    keys_at = keys_of_lane<config>(at + warp * config.tile_bytes());
    values_at = values_of_lane<config>(at + Layout::values_at);
    tops = (float *)(own + Layout::tops_at);
    part = (float *)(own + Layout::part_at);
    weights = (uint4 *)(own + Layout::weights_at) + lane;
    sums = (float4 *)(own + Layout::sums_at) + lane;
    /* Of the warp's keys: their scales, then the logarithms and the inverses of their values' scales. */
    of_keys = (float *)(own + Layout::scales_at) + warp * 3 * TILE_KEYS;
  }

  /* Waits for the other warps of the team. */
  TW_DEVICE void meet() const {
    if constexpr (config.teams > 1) named_sync(team + 1, Layout::team_threads);
    else __syncthreads();
  }

  /* Whether rows 8·half to 8·half + 7 have heads of the run. */
  TW_DEVICE bool has(int half) const { return config.queries == 1 || 8 * half < rows; }
  /* Halves of tile `tile` that the Config has. */
  TW_DEVICE static constexpr int halves_of(int tile) { return halves - 2 * tile < 2 ? halves - 2 * tile : 2; }

  /* Leaves the scales of codes for the warp. `scales`: of the key of this lane. */
  TW_DEVICE void leave_scales(float2 scales) const {
    const KeyScales own_scales = key_scales(scales);
    of_keys[lane] = own_scales.k;
    of_keys[TILE_KEYS + lane] = own_scales.log_v;
    of_keys[2 * TILE_KEYS + lane] = own_scales.inverse_v;
    __syncwarp();
  }
  /* As scale_scores, of codes with the scales that were left. */
  TW_DEVICE void scale(Scores &s, int tile, const float (&factor)[2]) const {
    if constexpr (!config.is_coded()) {
      scale_scores<config>(s, factor, {});
    } else {
#pragma unroll
      for (int n = 0; n < TILE_KEYS / 8; n++) {
        const float2 k_scales = *(const float2 *)(of_keys + n * 8 + quad * 2);
        const float2 logs = *(const float2 *)(of_keys + TILE_KEYS + n * 8 + quad * 2);
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float k_scale = e == 0 ? k_scales.x : k_scales.y, log_v = e == 0 ? logs.x : logs.y;
#pragma unroll
          for (int half = 0; half < halves_of(tile); half++) {
            const float x = mul(s[n][2 * half + e], k_scale);
            s[n][2 * half + e] = config.is_capped ? fmaf(bounded(mul(x, factor[half])), config.scale, log_v)
                                                  : fmaf(x, factor[half], log_v);
          }
        }
      }
    }
  }

  /* As lean_scores, of rows 8·half + row0, which see keys up to `keys`. */
  TW_DEVICE void lean_rows(
      Scores &s, int tile, const float (&slope)[halves], int key, const int (&keys)[halves]) const {
    const int first = 2 * tile, second = first + halves_of(tile) - 1;
    lean_scores<config>(s, { slope[first], slope[second] }, key, { keys[first] - 1, keys[second] - 1 });
  }
  /*
   * Scores of keys that a row does not see become −∞. The warp's first key is `key`; `low` and `keys`: rows
   * 8·half + row0 see keys [low, keys).
   */
  TW_DEVICE void mask_ends(Scores &s, int tile, int key, const int (&low)[halves], const int (&keys)[halves]) const {
#pragma unroll
    for (int n = 0; n < TILE_KEYS / 8; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int at = key + n * 8 + quad * 2 + e % 2, half = 2 * tile + min(e / 2, halves_of(tile) - 1);
        if ((config.is_bounded() && at < low[half]) || at >= keys[half]) s[n][e] = -infinity();
      }
    }
  }

  /* Leaves the maxima of the warp's scores for the team. */
  TW_DEVICE void leave_maxima(const Scores &s, int tile) const {
#pragma unroll
    for (int half = 0; half < halves_of(tile); half++) {
      float most = s[0][2 * half];
#pragma unroll
      for (int n = 0; n < TILE_KEYS / 8; n++) most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 1));
      most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, 2));
      if (quad == 0)
        tops[(row0 + 8 * (2 * tile + half)) * warps + warp] = ceilf(config.is_coded() ? most : mul(most, config.scale));
    }
  }

  /* The maximum over the parts up to the warp's. */
  TW_DEVICE float own_maximum(const float (&top)[warps]) const {
    return warp < 2 ? (warp == 0 ? top[0] : top[1]) : warp == 2 ? top[2] : top[3];
  }
  /* Leaves the weights of the warp's keys, and their sums. `top`: own_maximum of rows 8·half + row0. */
  TW_DEVICE void leave_weights(const Scores &s, int tile, const float (&top)[halves]) const {
#pragma unroll
    for (int half = 0; half < halves_of(tile); half++) {
      const int place = warp * halves + 2 * tile + half;
      const float most = top[2 * tile + half];
      const float shift = most == -infinity() ? 0.0f : config.is_coded() ? WEIGHT_BITS - most : -most;
      float sum[TILE_KEYS / 8];
      unsigned weight[TILE_KEYS / 8];
#pragma unroll
      for (int n = 0; n < TILE_KEYS / 8; n++) {
        float x0, x1;
        if constexpr (config.is_coded()) {
          x0 = exp2_flushed(s[n][2 * half] + shift);
          x1 = exp2_flushed(s[n][2 * half + 1] + shift);
          const float2 inverse = *(const float2 *)(of_keys + 2 * TILE_KEYS + n * 8 + quad * 2);
          sum[n] = fmaf(x1, inverse.y, mul(x0, inverse.x));
        } else {
          x0 = exp2_flushed(fmaf(s[n][2 * half], config.scale, shift));
          x1 = exp2_flushed(fmaf(s[n][2 * half + 1], config.scale, shift));
          sum[n] = x0 + x1;
        }
        weight[n] = pack<Product<Key>>(x0, x1);
      }
      sums[place * 32] = float4{ sum[0], sum[1], sum[2], sum[3] };
      weights[place * 32] = uint4{ weight[0], weight[1], weight[2], weight[3] };
    }
  }

  /* The maxima of row 8·half + 2·quad + e. Of two tiles they are read where they are used, and hold no registers. */
  TW_DEVICE void find_tops(ChunkAnswer<config> &answer, int half, int e) const {
    running_maxima(answer.top[half][e], tops + (2 * quad + e + 8 * half) * warps);
  }
  /* The warp's columns of the chunk's result, from the weights and values of `parts` parts. */
  TW_DEVICE void multiply_values(ChunkAnswer<config> &answer, int parts) const {
#pragma unroll
    for (int u = 0; u < units; u++) {
#pragma unroll
      for (int half = 0; half < halves; half++) {
        float (&o)[4] = answer.o[u][half];
        o[0] = o[1] = o[2] = o[3] = 0.0f;
      }
    }
#pragma unroll
    for (int t = 0; t < warps; t++) {
      if (t >= parts) break;
      if (t > 0) {
#pragma unroll
        for (int half = 0; half < halves; half++) {
          if (!has(half)) break;
#pragma unroll
          for (int e = 0; e < 2; e++) {
            if constexpr (Layout::tiles > 1) find_tops(answer, half, e);
            const float keep = power2(answer.top[half][e][t - 1] - answer.top[half][e][t]);
#pragma unroll
            for (int u = 0; u < units; u++) {
              answer.o[u][half][e] = mul(answer.o[u][half][e], keep);
              answer.o[u][half][2 + e] = mul(answer.o[u][half][2 + e], keep);
            }
          }
        }
      }
      uint4 weight[halves];
#pragma unroll
      for (int half = 0; half < halves; half++)
        if (has(half)) weight[half] = weights[(t * halves + half) * 32];
#pragma unroll
      for (int u = 0; u < units; u++) {
        const int unit = u * warps + warp;
        if (!Layout::has_all_units && unit >= config.head_dim / 16) break;
        unsigned b[4];
        if constexpr (config.is_coded())
          ldmatrix_x4_trans(b, values_at + t * config.tile_bytes() + unit * 16);
#pragma unroll
        for (int n = 0; n < TILE_KEYS / 16; n++) {
          /* Columns are rows of this product: 16 of them by 16 keys. */
          unsigned columns[4];
          if constexpr (config.is_coded()) {
            /* Two columns of two keys become the first column of both, then the second. */
            const unsigned low = bytes(b[2 * n], 0u, 0x3120u), high = bytes(b[2 * n + 1], 0u, 0x3120u);
            columns[0] = pair_of_codes<Key>(low);
            columns[1] = upper_pair_of_codes<Key>(low);
            columns[2] = pair_of_codes<Key>(high);
            columns[3] = upper_pair_of_codes<Key>(high);
          } else {
            ldmatrix_x4_trans(b, values_at + (t * TILE_KEYS + n * 16) * config.row_bytes() + unit * 32);
            columns[0] = b[0];
            columns[1] = b[2];
            columns[2] = b[1];
            columns[3] = b[3];
          }
#pragma unroll
          for (int half = 0; half < halves; half++) {
            if (!has(half)) break;
            mma<Product<Key>>(answer.o[u][half], columns, n == 0 ? weight[half].x : weight[half].z,
                n == 0 ? weight[half].y : weight[half].w);
          }
        }
      }
    }
  }

  /* The maximum and the sum of the chunk of a row 8·half + row0, by one warp. */
  TW_DEVICE float2 end_of(const float (&top)[warps], int half, int parts) const {
    float sum = 0.0f;
#pragma unroll
    for (int t = 0; t < warps; t++) {
      if (t >= parts) break;
      if (t > 0) sum = mul(sum, power2(top[t - 1] - top[t]));
      const float4 x = sums[(t * halves + half) * 32];
      sum += x.x;
      sum += x.y;
      sum += x.z;
      sum += x.w;
    }
    return { top[warps - 1], quad_sum(sum) };
  }

  /*
   * Gives the columns of a result to `give(row, column, x, y)`: of numbers x to `column` and y to `column` + 8, of
   * codes both beside each other; and the maximum and sum of a row to `give_end`, in all lanes of a quad.
   */
  template <class Give, class GiveEnd>
  TW_DEVICE void each_column(const float (&o)[units][halves][4], const float2 (&end)[halves], const Give &give,
      const GiveEnd &give_end) const {
#pragma unroll
    for (int half = 0; half < halves; half++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int row = 8 * half + 2 * quad + e;
        if (row >= rows) break;
#pragma unroll
        for (int u = 0; u < units; u++) {
          const int unit = u * warps + warp;
          if (!Layout::has_all_units && unit >= config.head_dim / 16) break;
          give(row, unit * 16 + (config.is_coded() ? 2 * row0 : row0), o[u][half][e], o[u][half][2 + e]);
        }
      }
      if (warp == warps - 1 && row0 + 8 * half < rows) give_end(row0 + 8 * half, end[half]);
    }
  }

  /* Leaves the answer of a team that is alone in shared memory. */
  TW_DEVICE void leave_answer(const float (&o)[units][halves][4], const float2 (&end)[halves]) const {
    const auto give = [&](int row, int column, float x, float y) {
      float *const to = part + row * Layout::part_pitch + column;
      if constexpr (config.is_coded()) {
        *(float2 *)to = { x, y };
      } else {
        to[0] = x;
        to[8] = y;
      }
    };
    each_column(o, end, give, [&](int row, float2 x) {
      if (quad == 0) *(float2 *)(part + Layout::ends_in_part / 4 + row * 2) = x;
    });
  }

  /*
   * Gives a chunk's result to the blocks that add it up, which wait for its bytes at barrier `round` % 2: the run's
   * blocks, of which the first is `first_rank` of the cluster.
   */
  TW_DEVICE void send_chunk(unsigned char *memory, int round, int worker, int first_rank, int blocks,
      const float (&o)[units][halves][4], const float2 (&end)[halves]) const {
    const unsigned chunk_at = Layout::rounds_at + round % 2 * Layout::round_bytes + worker * Layout::chunk_bytes;
    const unsigned base = array_address(memory), bar = base + Layout::barriers_at + round % 2 * 8;
    constexpr int columns_of_block = 2 * Layout::pairs_of_block;
    const auto give1 = [&](int row, int column, float x) {
      const int at = row * config.head_dim + column, rank = first_rank + at / columns_of_block;
      const unsigned to = chunk_at + at % columns_of_block * 4;
      if constexpr (config.cluster > 1) send(base + to, rank, bar, x);
      else *(float *)(memory + to) = x;
    };
    const auto give = [&](int row, int column, float x, float y) {
      if constexpr (config.is_coded()) {
        const int at = row * config.head_dim + column, rank = first_rank + at / columns_of_block;
        const unsigned to = chunk_at + at % columns_of_block * 4;
        if constexpr (config.cluster > 1) send2(base + to, rank, bar, x, y);
        else *(float2 *)(memory + to) = { x, y };
      } else {
        give1(row, column, x);
        give1(row, column + 8, y);
      }
    };
    each_column(o, end, give, [&](int row, float2 x) {
      const unsigned to = chunk_at + Layout::ends_in_chunk + row * 8;
      if constexpr (config.cluster > 1) {
#pragma unroll
        for (int rank = quad; rank < blocks; rank += 4) send2(base + to, first_rank + rank, bar, x.x, x.y);
      } else {
        if (quad == 0) *(float2 *)(memory + to) = x;
      }
    });
  }
};

}  // namespace tw
