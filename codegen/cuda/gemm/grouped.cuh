/*
 * Products of few rows with weights of 4 bits in groups (ir/groups.ts), on Hopper: c[rows, columns] = a[rows, k]·wᵀ,
 * where w is codes, and for each of its rows and groups of columns a scale and a zero point. TMA keeps blocks of codes
 * and their scales in flight; warps turn codes into 16-bit integers in registers, with weights as the rows of mma.sync
 * and rows of the call as its columns. The sum of a group is exact up to the instruction's own rounding, in order of k;
 * totals are added in order of groups by fused multiply-adds within each range of k, a quarter of it, and ranges in
 * their order, whatever the tile and the number of warps that share it.
 *
 * Warps of a block, in order:
 *   consumers   `split` for each 16 columns, each with its own ranges of k: multiply
 *   weights     one lane of one warp: starts the copies of codes and scales
 *   rows        one lane of one warp: starts the copies of a. They come from L2, sooner than weights from memory
 *   values      compute what epilogues read of a row (none if there is nothing)
 * then all of them run the epilogue.
 *
 * Shared memory, from a multiple of 1,024 bytes on (the swizzle of a goes by address bits):
 *   a[row_stages]                 for each part of k: two slabs of tile_m rows of 128 bytes
 *   w[stages]                     for each part of k: blocks of 8 columns × 128 of k, their codes and then their scales
 *   full, empty[stages], rows_full, rows_empty[row_stages]   barriers
 *   values[tile_m][row_values]    floats
 *   slots                         of the tile's rows, where they have adapters
 * At the end products[regions][tile_m][pitch] take the place of the rings: ranges that are still apart. Where rows have
 * adapters, second factors come behind the first region (gemm/groupedAdapter.cuh).
 *
 * What waits for what: consumers wait for full[s] and rows_full[r], which the bytes of a stage complete; the two warps
 * that copy wait for empty[s] and rows_empty[r], which each consumer warp arrives at when it has read the stage.
 * Weights do not depend on the kernel before this one: the first stages of them are under way while it ends; rows and
 * row values wait for it. The next kernel may begin when the copies of the last ring start: its weights follow this
 * one's, when memory would be idle. Sooner they would delay them.
 */
#pragma once
#include "gemm/fewRows.cuh"
#include "gemm/groupedAdapter.cuh"
#include "lib/launch.cuh"
#include "lib/mma.cuh"
#include "lib/packed.cuh"

namespace tw {

/* Rows and columns of a block of codes (ir/groups.ts), columns of a warp, and ranges of k that are added apart. */
constexpr int GROUPED_BLOCK_N = 8, GROUPED_BLOCK_K = 128, GROUPED_WARP_N = 16, GROUPED_RANGES = 4;
/* k of a slab of a, and slabs of a block's k. */
constexpr int GROUPED_SLAB_K = 64, GROUPED_SLABS = 2;
/* Bits of a scale's word that hold the zero point. */
constexpr unsigned GROUPED_ZERO_BITS = 255;

struct GroupedConfig {
  /* Rows and columns of a tile, k of a stage, stages of weights. */
  int tile_m, tile_n, tile_k, stages;
  /* k of the product, and columns of a group. */
  int k, group;
  /* Columns of a unit of the epilogue; floats of a row that it reads. */
  int unit_n, row_values;
  /* Of the launch: threads of a block and bytes of its shared memory. */
  int threads, shared_bytes;
  AdapterConfig adapter = {};

  /* Groups of a block, warps that share columns, and the ranges of their products in shared memory. */
  TW_CONSTEXPR int groups() const { return GROUPED_BLOCK_K / group; }
  TW_CONSTEXPR int split() const { return tile_k / GROUPED_BLOCK_K; }
  /* The first warp of two adds its two ranges; the second must leave them apart. */
  TW_CONSTEXPR int regions() const { return split() == 1 ? 1 : split() == 2 ? 3 : GROUPED_RANGES; }

  TW_CONSTEXPR int consumer_warps() const { return tile_n / GROUPED_WARP_N * split(); }
  TW_CONSTEXPR int value_warps() const { return row_values == 0 ? 0 : ceil_div(tile_m, tile_n < 128 ? 16 : 64); }
  TW_CONSTEXPR int warps() const { return consumer_warps() + 2 + value_warps(); }

  /* Blocks of k, those of a range, and those of a warp's ranges: how often a stage is filled. */
  TW_CONSTEXPR int all_blocks() const { return k / GROUPED_BLOCK_K; }
  TW_CONSTEXPR int range_blocks() const { return ceil_div(all_blocks(), GROUPED_RANGES); }
  TW_CONSTEXPR int span() const { return GROUPED_RANGES / split() * range_blocks(); }
  TW_CONSTEXPR int k_blocks() const { return span() < all_blocks() ? span() : all_blocks(); }

  /* Stages that are under way while the kernel before this one ends; the fill after which one ring of them is left. */
  TW_CONSTEXPR int ahead() const { return stages < k_blocks() ? stages : k_blocks(); }
  TW_CONSTEXPR int late_block() const { return ahead() > k_blocks() - stages ? ahead() : k_blocks() - stages; }

  /* Fewer stages of rows would not cover the way from L2, and more would take the room of weights. */
  TW_CONSTEXPR int row_stages() const {
    const int most = split() == 1 ? 8 : 4;
    return stages < most ? stages : most;
  }
  TW_CONSTEXPR int slab_bytes() const { return tile_m * GROUPED_SLAB_K * 2; }
  TW_CONSTEXPR int a_bytes() const { return tile_m * tile_k * 2; }
  TW_CONSTEXPR int weights_at() const { return row_stages() * a_bytes(); }
  TW_CONSTEXPR int block_words() const { return 128 + GROUPED_BLOCK_N * groups(); }
  TW_CONSTEXPR int block_bytes() const { return block_words() * 4; }
  /* Boxes without a swizzle begin at multiples of 128. */
  TW_CONSTEXPR int chunk_bytes() const { return ceil_div(tile_n / GROUPED_BLOCK_N * block_bytes(), 128) * 128; }
  TW_CONSTEXPR int stage_bytes() const { return split() * chunk_bytes(); }
  /* What the copies of a stage bring. */
  TW_CONSTEXPR int box_bytes() const { return split() * tile_n / GROUPED_BLOCK_N * block_bytes(); }

  TW_CONSTEXPR int pitch() const { return tile_n + 8; }
  /* Where pieces of second factors lie, behind products whose ranges are added, and how many have room. */
  TW_CONSTEXPR int pieces_at() const { return ceil_div(tile_m * pitch() * 4, 128) * 128; }
  TW_CONSTEXPR int pieces() const { return (barriers_at() - pieces_at()) / adapter.piece_room(tile_n); }
  TW_CONSTEXPR int barriers_at() const {
    const int rings = weights_at() + stages * stage_bytes(), products = regions() * tile_m * pitch() * 4;
    const int second = adapter.is_there() ? pieces_at() + adapter.piece_room(tile_n) : 0;
    const int ring = rings > products ? rings : products;
    return ceil_div(ring > second ? ring : second, 128) * 128;
  }
  TW_CONSTEXPR int values_at() const { return barriers_at() + ceil_div(2 * 8 * (stages + row_stages()), 16) * 16; }
  TW_CONSTEXPR int slots_at() const { return ceil_div(values_at() + tile_m * row_values * 4, 16) * 16; }
  TW_CONSTEXPR int end() const {
    return 1024 + (adapter.is_there() ? slots_at() + TILE_SLOTS_BYTES : values_at() + tile_m * row_values * 4);
  }
};

/*
 * How codes become numbers. Bits 0 to 3 of each half of a word, under `magic`, are a float whose last bit weighs 1 /
 * `unit`; bits 4 to 7 are one less `offset` after a multiplication by `upper_factor`.
 */
template <class T> struct GroupedCodes;
/*
 * Codes c count as quarters: 32 + c/4 and c/4·2^-127, less 32 + zero/4 and zero/4. Bits 4 to 7 alone are 16 codes of
 * the smallest subnormal, and 2^127 makes quarters of them. The products are multiplied by 4 at last.
 */
template <> struct GroupedCodes<bf16> {
  static constexpr unsigned magic = 0x42004200, offset = 0x42004200, upper_factor = 0x7f007f00;
  static constexpr float unit = 4.0f;
  static TW_DEVICE unsigned upper(unsigned codes, unsigned) { return codes & 0x00f000f0u; }
};
/* Codes c are 1024 + c and 1024 + 16·c, less 1024 + zero and, after division by 16, 64 + zero. */
template <> struct GroupedCodes<f16> {
  static constexpr unsigned magic = 0x64006400, offset = 0x63806380, upper_factor = 0x2c002c00;
  static constexpr float unit = 1.0f;
  static TW_DEVICE unsigned upper(unsigned codes, unsigned magic_bits) {
    return masked(codes, 0x00f000f0u, magic_bits);
  }
};

/* A value that compilers compute once; they would compute a cheap one anew in every turn of a loop. */
TW_DEVICE unsigned grouped_kept(unsigned x, int lane) { return __shfl_sync(ALL_LANES, x, lane); }

/* Where the rings and barriers of a block lie. */
template <GroupedConfig config> struct GroupedBlock {
  unsigned shared;

  TW_DEVICE Barriers full() const { return { shared + config.barriers_at() }; }
  TW_DEVICE Barriers empty() const { return { shared + config.barriers_at() + 8 * config.stages }; }
  TW_DEVICE Barriers rows_full() const { return { shared + config.barriers_at() + 16 * config.stages }; }
  TW_DEVICE Barriers rows_empty() const {
    return { shared + config.barriers_at() + 16 * config.stages + 8 * config.row_stages() };
  }

  TW_DEVICE void load_rows(unsigned stage, int block, const TensorMap *a, int row0) const {
#pragma unroll
    for (int slab = 0; slab < config.split() * GROUPED_SLABS; slab++)
      load_box(shared + stage * config.a_bytes() + slab * config.slab_bytes(), a,
          block * GROUPED_BLOCK_K + (slab / GROUPED_SLABS * config.span() * GROUPED_SLABS + slab % GROUPED_SLABS) *
              GROUPED_SLAB_K,
          row0, rows_full()[stage]);
  }
  /* A row of the map is a block; `blocks` of them have the same k. */
  TW_DEVICE void load_weights(unsigned stage, int block, const TensorMap *w, int blocks, int first) const {
#pragma unroll
    for (int part = 0; part < config.split(); part++)
      load_box(shared + stage * config.stage_bytes() + (config.weights_at() + part * config.chunk_bytes()), w, 0,
          (block + part * config.span()) * blocks + first, full()[stage]);
  }
};

/* A consumer: multiplies the weights of its 16 columns in its ranges of k by all rows. */
template <GroupedConfig config, class T>
TW_DEVICE void grouped_multiply(const GroupedBlock<config> &at_block, int warp, int lane, float *products) {
  using Codes = GroupedCodes<T>;
  constexpr int split = config.split(), groups = config.groups(), tiles = config.tile_m / 8, own = config.tile_m / 2;
  constexpr int words_of_group = 4 / groups, k_blocks = config.k_blocks(), range_blocks = config.range_blocks();
  constexpr bool is_one_range = split == GROUPED_RANGES, is_partial = config.all_blocks() != split * config.span();
  const int slice = warp / split, part = warp % split, row8 = lane >> 2;
  const unsigned char *const ring = (const unsigned char *)products;
  const Barriers full = at_block.full(), empty = at_block.empty();
  const Barriers rows_full = at_block.rows_full(), rows_empty = at_block.rows_empty();
  /* Of the range of groups under way, and of those before it. */
  float total[own], sum[own];
#pragma unroll
  for (int i = 0; i < own; i++) total[i] = sum[i] = 0.0f;
  /* In a stage: the lane's row of ldmatrix, and its codes and scales of the warp's 16 columns. */
  const unsigned slabs_at = grouped_kept(at_block.shared + part * (GROUPED_SLABS * config.slab_bytes()) +
      (lane & 7) * 128 + ((lane >> 3) ^ (lane & 7)) * 16, lane);
  const int weights_at = config.weights_at() + part * config.chunk_bytes() +
      slice * (GROUPED_WARP_N / GROUPED_BLOCK_N * config.block_bytes());
  const unsigned char *const codes_at = ring + grouped_kept(weights_at + lane * 16, lane);
  const unsigned char *const scales_at = ring + grouped_kept(weights_at + 512 + row8 * groups * 4, lane);
  const unsigned magic = grouped_kept(Codes::magic, lane);
  unsigned stage = 0, phase = 0, at = 0, row_stage = 0, row_phase = 0;
  wait_for_previous();
  int block = 0;
  for (int end = range_blocks;; end += range_blocks) {
    end = is_one_range ? k_blocks : min(end, k_blocks);
    for (; block < end; block++) {
      full[stage].wait(phase);
      rows_full[row_stage].wait(row_phase);
      const unsigned slab = slabs_at + row_stage * config.a_bytes();
      const unsigned char *const codes = codes_at + at, *const scales = scales_at + at;
      const uint4 up = *(const uint4 *)codes, low = *(const uint4 *)(codes + config.block_bytes());
      const unsigned words[2][4] = { { up.x, up.y, up.z, up.w }, { low.x, low.y, low.z, low.w } };
      if (!is_partial || part * config.span() + block < config.all_blocks()) {
#pragma unroll
        for (int g = 0; g < groups; g++) {
          float acc[tiles][4];
#pragma unroll
          for (int t = 0; t < tiles; t++) {
#pragma unroll
            for (int c = 0; c < 4; c++) acc[t][c] = 0.0f;
          }
          unsigned zero[2], other[2];
          float by[2];
#pragma unroll
          for (int h = 0; h < 2; h++) {
            const unsigned scale = *(const unsigned *)(scales + h * config.block_bytes() + g * 4);
            zero[h] = bytes(scale, magic, 0x5050u);
            other[h] = sub_packed<T>(Codes::offset, zero[h]);
            by[h] = __uint_as_float(scale & ~GROUPED_ZERO_BITS);
          }
#pragma unroll
          for (int i = g * words_of_group; i < (g + 1) * words_of_group; i++) {
            unsigned x[2][4];
#pragma unroll
            for (int s = 0; s < 2; s++) {
#pragma unroll
              for (int h = 0; h < 2; h++) {
                const unsigned four = words[h][i] >> (8 * s);
                x[s][h] = sub_packed<T>(masked(four, 0x000f000fu, magic), zero[h]);
                x[s][2 + h] = fma_packed<T>(Codes::upper(four, magic), Codes::upper_factor, other[h]);
              }
            }
#pragma unroll
            for (int t = 0; t < tiles; t++) {
              unsigned y[4];
              ldmatrix_x4(y, (slab ^ (i & 1) * 64) + i / 2 * config.slab_bytes() + t * 1024);
              mma<T>(acc[t], x[0], y[0], y[1]);
              mma<T>(acc[t], x[1], y[2], y[3]);
            }
          }
#pragma unroll
          for (int t = 0; t < tiles; t++) {
#pragma unroll
            for (int c = 0; c < 4; c++) total[4 * t + c] = fmaf(by[c / 2], acc[t][c], total[4 * t + c]);
          }
        }
      }
      __syncwarp();
      if (lane == 0) {
        empty[stage].arrive();
        rows_empty[row_stage].arrive();
      }
      if (++row_stage == config.row_stages()) { row_stage = 0; row_phase ^= 1; }
      at += config.stage_bytes();
      if (++stage == config.stages) { stage = 0; phase ^= 1; at = 0; }
    }
    if (block == k_blocks) break;
    if constexpr (!is_one_range) {
#pragma unroll
      for (int i = 0; i < own; i++) { sum[i] += total[i]; total[i] = 0.0f; }
    }
  }
  /* The products take the place of the rings, which all of these warps have read. */
  constexpr int pitch = config.pitch(), region = config.tile_m * pitch, multipliers = 32 * config.consumer_warps();
  named_sync<multipliers>(1);
#pragma unroll
  for (int i = 0; i < own; i++) {
    const int place = (i / 4 * 8 + 2 * (lane & 3) + (i & 1)) * pitch + slice * 16 + i % 4 / 2 * 8 + row8;
    if (split != 2) {
      products[place + part * region] = (sum[i] + total[i]) * Codes::unit;
    } else if (part == 0) {
      products[place] = (sum[i] + total[i]) * Codes::unit;
    } else {
      products[place + region] = sum[i] * Codes::unit;
      products[place + 2 * region] = total[i] * Codes::unit;
    }
  }
  if constexpr (split > 1) {
    /* Ranges of groups are added in their order. */
    named_sync<multipliers>(1);
    constexpr int quarter_tile = config.tile_m * config.tile_n / 4, quarter_row = config.tile_n / 4;
    for (int i = 32 * warp + lane; i < quarter_tile; i += multipliers) {
      float4 *const to = (float4 *)(products + i / quarter_row * pitch + i % quarter_row * 4);
      float4 all = *to;
#pragma unroll
      for (int r = 1; r < config.regions(); r++) {
        const float4 more = to[r * region / 4];
        all = { all.x + more.x, all.y + more.y, all.z + more.z, all.w + more.w };
      }
      *to = all;
    }
  }
}

/*
 * The kernel of a layer. Returns the first row of the block's tile. `a`: boxes are one slab; the map of a segment has a
 * row for each block of codes, those of the same k side by side, and boxes are those of the tile's columns.
 */
template <GroupedConfig config, class T, class Prologue, class... Segments>
TW_DEVICE int grouped_gemm(int rows, const TensorMap *a, const Prologue &prologue, const Segments &...segments) {
  static_assert(config.tile_m == 8 || config.tile_m == 16 || config.tile_m == 32 || config.tile_m == 64);
  static_assert(config.split() == 1 || config.split() == 2 || config.split() == 4);
  static_assert(config.tile_n % GROUPED_WARP_N == 0 && config.tile_n % config.unit_n == 0 && config.tile_n <= 288);
  static_assert(config.stages >= 2 && config.stages <= 24 && config.k % GROUPED_BLOCK_K == 0);
  static_assert(config.group == 32 || config.group == 64 || config.group == 128);
  static_assert(config.threads == 32 * config.warps() && config.warps() <= 24);
  static_assert(Prologue::row_values == config.row_values && config.shared_bytes == config.end());
  constexpr int tile_m = config.tile_m, stages = config.stages, row_stages = config.row_stages();
  constexpr int k_blocks = config.k_blocks(), consumers = config.consumer_warps();
  constexpr int all_columns = column_tiles<config.tile_n, Segments...>;

  TW_DYNAMIC_SHARED(raw, 16);
  const GroupedBlock<config> at{ (shared_address(raw) + 1023u) & ~1023u };
  float *const products = (float *)(raw + (at.shared - shared_address(raw)));
  float *const values = products + config.values_at() / 4;
  /* Exchanged, the warp's number is uniform for the compiler too. */
  const int thread = threadIdx.x, warp = __shfl_sync(ALL_LANES, thread >> 5, 0), lane = thread & 31;
  const int row0 = (int)blockIdx.x / all_columns * tile_m, across = (int)blockIdx.x % all_columns;
  int column0, blocks;
  const TensorMap *weight;
  visit_segment<config.tile_n>(across, [&](const auto &segment, int tile) {
    column0 = tile * config.tile_n;
    blocks = segment.columns / GROUPED_BLOCK_N;
    weight = segment.map;
  }, segments...);
  const int first_block = column0 / GROUPED_BLOCK_N;
  constexpr int ahead = config.ahead();
  if constexpr (config.late_block() >= k_blocks) launch_dependents();
  if (warp == consumers && lane == 0) {
    prefetch_map(weight);
    for (int i = 0; i < stages; i++) {
      at.full()[i].init(1);
      at.empty()[i].init(consumers);
    }
    for (int i = 0; i < row_stages; i++) {
      at.rows_full()[i].init(1);
      at.rows_empty()[i].init(consumers);
    }
    show_barriers();
    /* The memory is idle until these copies begin. */
    for (int i = 0; i < ahead; i++) {
      at.full()[i].expect(config.box_bytes());
      at.load_weights(i, i, weight, blocks, first_block);
    }
    prefetch_map(a);
  }
  __syncthreads();

  if (warp == consumers) {
    if constexpr (config.adapter.is_there())
      grouped_find_second<config, T>(across, row0, rows, (unsigned char *)products, segments...);
    if (lane == 0) {
      unsigned stage = ahead % stages, phase = ahead / stages % 2;
      for (int block = ahead; block < k_blocks; block++) {
        if (config.late_block() < k_blocks && block == config.late_block()) launch_dependents();
        at.empty()[stage].wait(phase ^ 1);
        at.full()[stage].expect(config.box_bytes());
        at.load_weights(stage, block, weight, blocks, first_block);
        if (++stage == stages) { stage = 0; phase ^= 1; }
      }
    }
    __syncwarp();
  } else if (warp == consumers + 1) {
    if (lane == 0) {
      wait_for_previous();
      unsigned stage = 0, phase = 1;
      for (int block = 0; block < k_blocks; block++) {
        if (block >= row_stages) at.rows_empty()[stage].wait(phase);
        at.rows_full()[stage].expect(config.a_bytes());
        at.load_rows(stage, block, a, row0);
        if (++stage == row_stages) { stage = 0; phase ^= 1; }
      }
    }
    __syncwarp();
  } else if (warp > consumers) {
    wait_for_previous();
    if constexpr (config.row_values > 0) {
      constexpr int warps = config.value_warps(), of_warp = ceil_div(tile_m, warps);
      row_values<config, warps, of_warp < 16 ? of_warp : 16>(prologue, warp - (consumers + 2), row0, rows, values);
    }
  } else {
    grouped_multiply<config, T>(at, warp, lane, products);
  }
  __syncthreads();
  if constexpr (config.adapter.is_there())
    grouped_add_second<config, T>(forgotten(across), row0, forgotten(threadIdx.x), products, segments...);
  end_tile<config, config.unit_n, config.warps()>({ products, values, row0, rows, column0, across },
      forgotten(threadIdx.x), segments...);
  return row0;
}

}  // namespace tw
