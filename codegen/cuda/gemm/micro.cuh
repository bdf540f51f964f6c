/*
 * Products of rows of experts with microscaled weights (ir/microscaled.ts), on Hopper: c[rows, columns] =
 * a[rows, k]·wᵀ of bf16, where w is codes of 4 bits with a power of two for every 32 of them. TMA keeps blocks of codes
 * and slabs of rows in flight; warps turn codes into bf16 in registers, exactly, with weights as the rows of tensor
 * cores and rows of the call as their columns. A product is one accumulator in order of k: it has the bits of the same
 * weights in bf16.
 *
 * A block takes tiles in turn: up to tile_m rows of one expert × tile_n columns. Few rows are multiplied by mma.sync,
 * each warp for itself, and only as many eights of them as there are; or by wgmma, four warps together (wide).
 *
 * Warps of a block, in order:
 *   consumers   one for each 16 or 32 columns: multiply, then end rows of their own columns
 *   producer    one lane: starts the copies of codes, powers and rows, also of the next tile while this one ends
 *
 * Shared memory, from a multiple of 1,024 bytes on (the swizzle of rows goes by address bits):
 *   stages × { for each 64 of k: a slab of tile_m rows of 128 bytes }
 *   stages × { for each 64 of k: blocks of 16 columns, their codes and then their powers }
 *   products of each team: end_rows × its columns, floats. Few rows: a team is the warps of a unit; many: four warps
 *   full, empty[stages]     barriers
 *
 * What waits for what: consumers wait for full[s], which the bytes of a stage complete; the producer waits for
 * empty[s], which each consumer warp arrives at when it has read the stage. Which expert's weights are read is known
 * when the kernel before has ended, or before that (are_known). The next kernel may begin when this one has waited for
 * the one before, and its first ring is on its way: weights of the next, where it knows them and there is room for its
 * blocks, follow this one's without a pause.
 */
#pragma once
#include "experts/tiles.cuh"
#include "gemm/fewRows.cuh"
#include "lib/launch.cuh"
#include "lib/mma.cuh"
#include "lib/packed.cuh"
#include "lib/wgmma.cuh"

namespace tw {

/* Columns and k of a block of memory, and bytes of one: codes, and powers behind them. */
constexpr int MICRO_N = 16, MICRO_K = 64, MICRO_CODES = 512, MICRO_BYTES = 544;

struct MicroConfig {
  /* Rows and columns of a tile, k of a stage, stages. */
  int tile_m, tile_n, tile_k, stages;
  /* k of the product. */
  int k;
  /* Columns of a warp: one block of memory, or with few rows two, which then share what is read of them. */
  int warp_n;
  /* Columns of a unit of the epilogue. */
  int unit_n;
  /* Of the launch: threads of a block and bytes of its shared memory. */
  int threads, shared_bytes;
  /* Whether warpgroups multiply, each 64 columns. */
  bool wide;
  /*
   * Whether the kernel before is one of these too, of the same rows of experts. It lets this one begin when it has
   * itself waited for where they begin: the first weights need not wait for its end.
   */
  bool are_known;

  TW_CONSTEXPR bool is_wide() const { return wide; }
  TW_CONSTEXPR int consumers() const { return tile_n / warp_n; }
  TW_CONSTEXPR int across() const { return warp_n / MICRO_N; }
  /* Blocks of k in a stage, and of the product. */
  TW_CONSTEXPR int depth() const { return tile_k / MICRO_K; }
  TW_CONSTEXPR int chunks() const { return k / MICRO_K; }
  TW_CONSTEXPR int fills() const { return ceil_div(chunks(), depth()); }

  TW_CONSTEXPR int slab_bytes() const { return tile_m * MICRO_K * 2; }
  TW_CONSTEXPR int a_bytes() const { return depth() * slab_bytes(); }
  TW_CONSTEXPR int weights_at() const { return stages * a_bytes(); }
  TW_CONSTEXPR int box_bytes() const { return tile_n / MICRO_N * MICRO_BYTES; }
  /* Boxes without a swizzle begin at multiples of 128. */
  TW_CONSTEXPR int chunk_bytes() const { return ceil_div(box_bytes(), 128) * 128; }
  TW_CONSTEXPR int w_bytes() const { return depth() * chunk_bytes(); }
  /* Warps that end rows together, their columns, rows that they end at a time, and floats from row to row. */
  TW_CONSTEXPR int team() const { return is_wide() ? 4 : ceil_div(unit_n, warp_n); }
  TW_CONSTEXPR int team_n() const { return team() * warp_n; }
  TW_CONSTEXPR int end_rows() const { return tile_m < 32 ? tile_m : 32; }
  TW_CONSTEXPR int pitch() const { return team_n() + 4; }
  TW_CONSTEXPR int products_at() const { return weights_at() + stages * w_bytes(); }
  TW_CONSTEXPR int team_bytes() const { return end_rows() * pitch() * 4; }
  TW_CONSTEXPR int barriers_at() const { return products_at() + consumers() / team() * team_bytes(); }
  TW_CONSTEXPR int end() const { return 1024 + barriers_at() + 2 * 8 * stages; }

  TW_CONSTEXPR bool is_legal() const {
    return (tile_m == 8 || tile_m == 16 || tile_m == 32 || tile_m == 64 || tile_m == 128) &&
        (tile_m < 64 || wide) && (warp_n == MICRO_N || (warp_n == 2 * MICRO_N && !wide)) && tile_n % team_n() == 0 &&
        unit_n % MICRO_N == 0 && team_n() % unit_n == 0 && tile_n <= 256 && tile_k % MICRO_K == 0 && k % MICRO_K == 0 &&
        stages >= 2 && threads == 32 * (consumers() + 1) && shared_bytes == end();
  }
};

/* Where the rings and barriers of a block lie, and how a stage is filled. */
template <MicroConfig config> struct MicroBlock {
  unsigned shared;

  TW_DEVICE Barriers full() const { return { shared + config.barriers_at() }; }
  TW_DEVICE Barriers empty() const { return { shared + config.barriers_at() + 8 * config.stages }; }

  /* Blocks of k of `fill` of a tile. */
  static TW_DEVICE int count_of(int fill) { return min(config.chunks() - fill * config.depth(), config.depth()); }
  /* Its weights, which count with the rows. A row of their map is a block; `blocks` of them have the same k. */
  TW_DEVICE void load_weights(unsigned stage, int fill, const TensorMap *w, int blocks, int expert, int first) const {
    const int count = count_of(fill), from = fill * config.depth();
    full()[stage].expect(count * (config.slab_bytes() + config.box_bytes()));
#pragma unroll
    for (int i = 0; i < config.depth(); i++) {
      if (i >= count) break;
      load_box(shared + config.weights_at() + stage * config.w_bytes() + i * config.chunk_bytes(), w, 0,
          (expert * config.chunks() + from + i) * blocks + first, full()[stage]);
    }
  }
  /* Its rows. */
  TW_DEVICE void load_rows(unsigned stage, int fill, const TensorMap *a, int row0) const {
    const int count = count_of(fill), from = fill * config.depth();
#pragma unroll
    for (int i = 0; i < config.depth(); i++) {
      if (i >= count) break;
      load_box(shared + stage * config.a_bytes() + i * config.slab_bytes(), a, (from + i) * MICRO_K, row0,
          full()[stage]);
    }
  }
};

/* Pair `pair` of a word's codes as bf16 numbers, 2^-126 times their values. */
template <int pair> TW_DEVICE unsigned micro_pair(unsigned word) {
  if constexpr (pair < 3) return (word << 3 * pair) & 0x81c081c0u;
  return (word << 1 & 0x80008000u) | (word >> 5 & 0x01000100u) | (word >> 4 & 0x00c000c0u);
}

/* Weights of a lane in 32 of k as operands of two steps of tensor cores: two words of codes and their powers. */
TW_DEVICE void micro_weights(unsigned upper, unsigned lower, unsigned upper_power, unsigned lower_power,
    unsigned (&x)[2][4]) {
  const unsigned none = 0x80008000u;
  x[0][0] = fma_packed<bf16>(micro_pair<0>(upper), upper_power, none);
  x[0][1] = fma_packed<bf16>(micro_pair<0>(lower), lower_power, none);
  x[0][2] = fma_packed<bf16>(micro_pair<1>(upper), upper_power, none);
  x[0][3] = fma_packed<bf16>(micro_pair<1>(lower), lower_power, none);
  x[1][0] = fma_packed<bf16>(micro_pair<2>(upper), upper_power, none);
  x[1][1] = fma_packed<bf16>(micro_pair<2>(lower), lower_power, none);
  x[1][2] = fma_packed<bf16>(micro_pair<3>(upper), upper_power, none);
  x[1][3] = fma_packed<bf16>(micro_pair<3>(lower), lower_power, none);
}
/* Byte `i` of a lane's powers, as two bf16 numbers: upper row, its second 32 of k, lower row, its second 32. */
TW_DEVICE unsigned micro_power(unsigned powers, int i) { return (powers >> 8 * i & 255u) * 0x00800080u; }

/* A warp's 16 columns of one block of memory, the words of this lane. */
struct MicroWords {
  uint4 codes;
  unsigned powers;
  /* `block`: in shared memory. */
  TW_DEVICE void load(const unsigned char *block, int lane) {
    codes = *(const uint4 *)(block + 16 * lane);
    powers = *(const unsigned *)(block + MICRO_CODES + lane / 4 * 4);
  }
  /* Their weights in the first or second 32 of k. */
  template <int j> TW_DEVICE void weights(unsigned (&x)[2][4]) const {
    micro_weights(j == 0 ? codes.x : codes.y, j == 0 ? codes.z : codes.w, micro_power(powers, j),
        micro_power(powers, 2 + j), x);
  }
};

/* Where a consumer is in the ring. */
template <MicroConfig config> struct MicroTurn {
  unsigned stage = 0, phase = 0;
  TW_DEVICE void next() {
    if (++stage == config.stages) { stage = 0; phase ^= 1; }
  }
};

/*
 * The products of a warp's columns with `eights` times eight rows, by mma.sync. Products of a step do not wait for each
 * other, and codes of a whole stage are read before them.
 */
template <MicroConfig config>
TW_DEVICE void micro_multiply_few(const MicroBlock<config> &at, const unsigned char *shared, int warp, int lane,
    int eights, MicroTurn<config> &turn, float (&acc)[config.across()][config.tile_m / 8][4]) {
  constexpr int tiles = config.tile_m / 8, depth = config.depth(), across = config.across();
  const unsigned slabs = at.shared + (lane & 7) * 128 + ((lane >> 3) ^ (lane & 7)) * 16;
  const unsigned char *const blocks = shared + config.weights_at() + warp * (across * MICRO_BYTES);
#pragma unroll 1
  for (int fill = 0; fill < config.fills(); fill++) {
    const int left = config.chunks() - fill * depth;
    at.full()[turn.stage].wait(turn.phase);
    const unsigned slab = slabs + turn.stage * config.a_bytes();
    const unsigned char *const block = blocks + turn.stage * config.w_bytes();
    /* Past the last of k these are of an older stage, and not used. Few rows are read with them: products follow. */
    constexpr bool reads_rows = tiles == 1;
    MicroWords words[depth][across];
    unsigned first[reads_rows ? depth : 1][2][4];
#pragma unroll
    for (int i = 0; i < depth; i++) {
#pragma unroll
      for (int m = 0; m < across; m++) words[i][m].load(block + i * config.chunk_bytes() + m * MICRO_BYTES, lane);
      if constexpr (reads_rows) {
#pragma unroll
        for (int j = 0; j < 2; j++) ldmatrix_x4(first[i][j], (slab ^ j * 64) + i * config.slab_bytes());
      }
    }
#pragma unroll
    for (int i = 0; i < depth; i++) {
      if (config.chunks() % depth != 0 && i >= left) break;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        unsigned x[across][2][4], y[tiles][4];
#pragma unroll
        for (int t = 0; t < tiles; t++) {
          if (t > 0 && t >= eights) break;
          if constexpr (reads_rows) {
#pragma unroll
            for (int e = 0; e < 4; e++) y[t][e] = first[i][j][e];
          } else {
            ldmatrix_x4(y[t], (slab ^ j * 64) + i * config.slab_bytes() + t * 1024);
          }
        }
#pragma unroll
        for (int m = 0; m < across; m++) {
          if (j == 0) words[i][m].template weights<0>(x[m]);
          else words[i][m].template weights<1>(x[m]);
        }
#pragma unroll
        for (int s = 0; s < 2; s++) {
#pragma unroll
          for (int t = 0; t < tiles; t++) {
            if (t > 0 && t >= eights) break;
#pragma unroll
            for (int m = 0; m < across; m++) mma<bf16>(acc[m][t], x[m][s], y[t][2 * s], y[t][2 * s + 1]);
          }
        }
      }
    }
    __syncwarp();
    if (lane == 0) at.empty()[turn.stage].arrive();
    turn.next();
  }
}

/* `count` blocks of k of a stage, by all rows of the tile and wgmma: the weights of all of them are decoded first. */
template <MicroConfig config, int count>
TW_DEVICE void micro_stage(unsigned slab, const unsigned char *block, int lane, float (&acc)[config.tile_m / 2]) {
  unsigned x[count][2][2][4];
#pragma unroll
  for (int i = 0; i < count; i++) {
    MicroWords words;
    words.load(block + i * config.chunk_bytes(), lane);
    words.template weights<0>(x[i][0]);
    words.template weights<1>(x[i][1]);
  }
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < count; i++) {
#pragma unroll
    for (int s = 0; s < 4; s++)
      wgmma_of_registers_by_rows<bf16, config.tile_m>(acc, x[i][s / 2][s % 2],
          rows_descriptor(slab + i * config.slab_bytes() + s * WGMMA_STEP_BYTES), 1);
  }
  wgmma_commit();
  wgmma_wait<0>();
}

/*
 * The products of a warpgroup's 64 columns with all rows of the tile. A warpgroup decodes while the others' products
 * are under way.
 */
template <MicroConfig config>
TW_DEVICE void micro_multiply_many(const MicroBlock<config> &at, const unsigned char *shared, int warp, int lane,
    MicroTurn<config> &turn, float (&acc)[config.tile_m / 2]) {
  constexpr int whole = config.chunks() / config.depth(), rest = config.chunks() % config.depth();
  const unsigned char *const blocks = shared + config.weights_at() + warp * MICRO_BYTES;
#pragma unroll 1
  for (int fill = 0; fill < whole; fill++) {
    at.full()[turn.stage].wait(turn.phase);
    micro_stage<config, config.depth()>(at.shared + turn.stage * config.a_bytes(),
        blocks + turn.stage * config.w_bytes(), lane, acc);
    if (lane == 0) at.empty()[turn.stage].arrive();
    turn.next();
  }
  if constexpr (rest > 0) {
    at.full()[turn.stage].wait(turn.phase);
    micro_stage<config, rest>(at.shared + turn.stage * config.a_bytes(), blocks + turn.stage * config.w_bytes(), lane,
        acc);
    if (lane == 0) at.empty()[turn.stage].arrive();
    turn.next();
  }
}

/*
 * A tile's rows, by the warps of a team: products come together in shared memory, a few rows at a time. `acc`: of 16
 * columns m and row group t, columns lane / 4 and lane / 4 + 8 at rows 2·(lane % 4) and the next.
 */
template <MicroConfig config, class Products, class... Segments>
TW_DEVICE void micro_end(const ExpertTile &tile, int across, int column0, float *team, int warp, int self,
    const Products &acc, const Segments &...segments) {
  constexpr int eights = config.end_rows() / 8, units = config.team_n() / config.unit_n * eights;
  const int lane = self & 31, own = warp % config.team();
  const auto meet = [&] {
    if constexpr (config.team() == 1) __syncwarp();
    else named_sync<32 * config.team()>(1 + warp / config.team());
  };
#pragma unroll
  for (int pass = 0; pass < config.tile_m / config.end_rows(); pass++) {
    const int row0 = tile.first + pass * config.end_rows();
    if (pass > 0 && row0 >= tile.end) break;
    if (pass > 0) meet();
    float *const to = team + 2 * (lane & 3) * config.pitch() + own * config.warp_n + (lane >> 2);
#pragma unroll
    for (int m = 0; m < config.across(); m++) {
#pragma unroll
      for (int t = 0; t < eights; t++) {
#pragma unroll
        for (int c = 0; c < 4; c++)
          to[(8 * t + (c & 1)) * config.pitch() + m * MICRO_N + c / 2 * 8] =
              acc(m, pass * eights + t, c);
      }
    }
    meet();
#pragma unroll 1
    for (int unit = own; unit < units; unit += config.team()) {
      const int i = unit % eights * 8 + (lane >> 2), j0 = unit / eights * config.unit_n,
          row = row0 + i < tile.end ? row0 + i : tile.end - 1;
      if (row0 + unit % eights * 8 >= tile.end) continue;
      visit_segment<config.tile_n>(across, [&](const auto &segment, int) {
        segment.row(row, row0 + i < tile.end, column0 + warp / config.team() * config.team_n() + j0, lane & 3, nullptr,
            RowProducts{ team + i * config.pitch(), j0, lane & 3 });
      }, segments...);
    }
  }
  /* The next tile's products overwrite these. */
  meet();
}

/* The kernel of a layer. `a`: boxes are one slab; the map of a segment has a row for each block of all experts. */
template <MicroConfig config, int experts, class... Segments>
TW_DEVICE void micro_gemm(const ExpertRows<experts> &rows, const TensorMap *a, const NoPrologue &,
    const Segments &...segments) {
  static_assert(config.is_legal());
  constexpr int across = column_tiles<config.tile_n, Segments...>;
  TW_DYNAMIC_SHARED(raw, 16);
  const MicroBlock<config> at{ (shared_address(raw) + 1023u) & ~1023u };
  unsigned char *const shared = (unsigned char *)raw + (at.shared - shared_address(raw));
  const int warp = __shfl_sync(ALL_LANES, (int)threadIdx.x >> 5, 0), lane = threadIdx.x & 31;
  if (warp == config.consumers() && lane == 0) {
    prefetch_map(a);
    for (int i = 0; i < config.stages; i++) {
      at.full()[i].init(1);
      at.empty()[i].init(config.consumers());
    }
    show_barriers();
  }
  __syncthreads();
  if constexpr (!config.are_known) wait_for_previous();
  MicroTurn<config> turn;
  ExpertTile tile;
  if (warp == config.consumers()) {
    /* Fills whose weights are on the way while the kernel before ends. */
    constexpr int first_ring = config.stages < config.fills() ? config.stages : config.fills();
    constexpr int ahead = config.are_known ? first_ring : 0;
    int early = ahead;
    for (int t = blockIdx.x; find_expert_tile<config.tile_m>(rows, t / across, tile); t += gridDim.x) {
      visit_segment<config.tile_n>(t % across, [&](const auto &segment, int number) {
        const int blocks = segment.columns / MICRO_N, first = number * (config.tile_n / MICRO_N);
        if (early > 0 && lane == 0) {
          for (int fill = 0; fill < early; fill++)
            at.load_weights(fill, fill, segment.map, blocks, tile.expert, first);
          wait_for_previous();
        }
        for (int fill = 0; fill < config.fills(); fill++) {
          if (lane == 0) {
            if (fill >= early) {
              at.empty()[turn.stage].wait(turn.phase ^ 1);
              at.load_weights(turn.stage, fill, segment.map, blocks, tile.expert, first);
            }
            at.load_rows(turn.stage, fill, a, tile.first);
            if (fill == first_ring - 1) launch_dependents();
          }
          turn.next();
        }
        early = 0;
      }, segments...);
      __syncwarp();
    }
    /* Those without a tile wait as well, so that the grid ends behind the one before. */
    if constexpr (config.are_known) wait_for_previous();
    launch_dependents();
    return;
  }
  float *const team = (float *)(shared + config.products_at() + warp / config.team() * config.team_bytes());
  for (int t = blockIdx.x; find_expert_tile<config.tile_m>(rows, t / across, tile); t += gridDim.x) {
    int column0;
    visit_segment<config.tile_n>(t % across, [&](const auto &, int number) { column0 = number * config.tile_n; },
        segments...);
    if constexpr (config.is_wide()) {
      float acc[config.tile_m / 2];
#pragma unroll
      for (int i = 0; i < config.tile_m / 2; i++) acc[i] = 0.0f;
      micro_multiply_many<config>(at, shared, warp, lane, turn, acc);
      micro_end<config>(tile, t % across, column0, team, warp, forgotten(threadIdx.x),
          [&](int, int group, int c) { return acc[4 * group + c]; }, segments...);
    } else {
      float acc[config.across()][config.tile_m / 8][4];
#pragma unroll
      for (int m = 0; m < config.across(); m++) {
#pragma unroll
        for (int t = 0; t < config.tile_m / 8; t++) {
#pragma unroll
          for (int c = 0; c < 4; c++) acc[m][t][c] = 0.0f;
        }
      }
      micro_multiply_few<config>(at, shared, warp, lane, (tile.end - tile.first + 7) / 8, turn, acc);
      micro_end<config>(tile, t % across, column0, team, warp, forgotten(threadIdx.x),
          [&](int m, int group, int c) { return acc[m][group][c]; }, segments...);
    }
  }
}

}  // namespace tw
