/*
 * Attention of prompts by warpgroup products (attention/hopper.cuh): what a warpgroup that multiplies does with its
 * rows besides the softmax. It waits for parts and releases them, issues scores, hides keys, and writes results.
 */
#pragma once
#include "attention/hopperTile.cuh"
#include "attention/slopes.cuh"

namespace tw {

/* The maximum of no scores: finite, so that it may be subtracted. */
constexpr float NOTHING = -3.40282347e38f;
/* How far a row's maximum may be above the one by which its totals are scaled. Totals stay far from overflow. */
constexpr float LEAD = 8.0f;

/*
 * 2^x for a whole x below 128; 0 where that is no normal number, and for −∞ and NaN. Beside 2^23 the last bits of a
 * number are its whole part.
 */
TW_DEVICE float whole_power2(float x) {
  return x >= -126.0f ? __uint_as_float(__float_as_uint(x + 8388735.0f) << 23) : 0.0f;
}
/* A power of two twice, as bf16. */
TW_DEVICE unsigned pair_of_power(float x) { return __float_as_uint(x) >> 16 | (__float_as_uint(x) & 0xffff0000u); }

/* 16 bytes of a row. */
struct alignas(16) RowPiece { unsigned word[4]; };
/*
 * Of four lanes and four pieces of a row: word i of lane l is word l of piece i, and afterwards word i of piece l, so
 * that each lane stores a piece.
 */
TW_DEVICE void exchange(RowPiece &piece, int lane) {
  unsigned (&word)[4] = piece.word;
#pragma unroll
  for (int by = 1; by < 4; by *= 2) {
    const bool is_high = (lane & by) != 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if ((i & by) != 0) continue;
      const unsigned other = __shfl_xor_sync(ALL_LANES, is_high ? word[i] : word[i + by], by);
      if (is_high) word[i] = other;
      else word[i + by] = other;
    }
  }
}

/* A warpgroup that multiplies: its rows, the chunk that it is at, the total of chunks, and what becomes of it. */
template <PathConfig config, class Operands> struct PromptWarpgroup {
  using Layout = PromptLayout<config>;
  static constexpr int d = Layout::d, keys = Layout::keys, group = Layout::group;

  const Operands &x;
  PromptShared<config> &shared;
  unsigned memory;
  const PromptBarriers<config> &bars;
  PromptTiles<config> tiles;
  /* This warpgroup's number, this lane's first row; the other one is eight behind. */
  int lane, own, row0;
  /*
   * Parts have numbers, in the order in which they come. A chunk's first part and its flags; and the same of the chunk
   * before, whose values are multiplied.
   */
  int chunk = -1, flags = 0, before = 0, before_flags = 0;
  /* Of all chunks so far: products of values, and sums of weights, of two rows. */
  float total[d / 2], total_sum[2];

  TW_DEVICE PromptWarpgroup(const Operands &x, PromptShared<config> &shared, unsigned memory,
      const PromptBarriers<config> &bars, const PromptTiles<config> &tiles, int own)
      : x(x), shared(shared), memory(memory), bars(bars), tiles(tiles), own(own) {
    lane = (int)threadIdx.x & 31;
    row0 = (((int)threadIdx.x >> 5) - 4) * 16 + (lane >> 2);
  }

  /* A chunk's second part, or its first one again if there is no second. */
  static TW_DEVICE int second_of(int chunk, int flags) { return chunk + (flags & HAS_TWO); }
  TW_DEVICE const PromptChunk &about(int chunk) const { return shared.chunk[chunk % (2 * Layout::slots)]; }
  TW_DEVICE void await(const Barriers &full, int part) const {
    full[slot_of<config>(part)].wait(parity_of<config>(part));
  }
  TW_DEVICE void release(Barrier bar) const {
    if (lane == 0) bar.arrive();
  }
  TW_DEVICE void release_both(const Barriers &empty, int chunk, int flags) const {
    release(empty[slot_of<config>(chunk)]);
    if ((flags & HAS_TWO) != 0) release(empty[slot_of<config>(chunk + 1)]);
  }

  /* Goes to the next chunk, whose first keys are there then. Whether a row sees it. */
  TW_DEVICE bool go_on() {
    chunk = second_of(chunk, flags) + 1;
    await(bars.keys_full, chunk);
    flags = uniform(about(chunk).flags);
    return (flags & IS_SEEN << own) != 0;
  }
  TW_DEVICE void skip() const {
    await(bars.keys_full, second_of(chunk, flags));
    await(bars.values_full, chunk);
    await(bars.values_full, second_of(chunk, flags));
    /* No lane still waits for what others release: barriers might go on by two phases. */
    __syncwarp();
    release_both(bars.keys_empty, chunk, flags);
    release_both(bars.values_empty, chunk, flags);
  }

  /* Waits for the queries of a tile. Whether it has a chunk, and whether a row sees the first. */
  TW_DEVICE bool begin_tile(bool &is_seen) {
    bars.queries_known[tiles.side()].wait(tiles.round());
    const bool is_open = shared.queries[tiles.side()].is_empty == 0;
    bars.queries_full[tiles.side()].wait(tiles.round());
    is_seen = is_open && go_on();
    return is_open;
  }

  /* Issues the scores of a part. */
  TW_DEVICE void multiply_part(float (&scores)[keys / 2], int part) {
    const unsigned rows = rows_at(memory) + uniform(tiles.side()) * (Layout::query_bytes / 16) +
        own * (WGMMA_ROWS * SLAB_BYTES / 16);
    const unsigned columns =
        rows_at(memory + Layout::keys_at) + uniform(slot_of<config>(part)) * (Layout::part_bytes / 16);
#pragma unroll
    for (int i = 0; i < d / 16; i++)
      wgmma<bf16, keys>(scores, descriptor(rows + (i >> 2) * (Layout::query_slab / 16) + (i & 3) * 2),
          descriptor(columns + (i >> 2) * (Layout::key_slab / 16) + (i & 3) * 2), i);
    wgmma_commit();
  }
  /* Products are there. */
  template <int count> TW_DEVICE void settle(float (&products)[count]) const {
#pragma unroll
    for (int i = 0; i < count; i++) forget(products[i]);
  }

  /* Scores of keys that a row does not see become −∞; `from`: the part's first key. */
  TW_DEVICE void hide(float (&scores)[keys / 2], const PromptChunk &of, int from) {
    const auto position_of = [&](int row) {
      const int i = Layout::query_of(row);
      return i >= of.run && i < of.to ? shared.queries[tiles.side()].position[i] : -1;
    };
    const int before = from + (lane & 3) * 2, position[2] = { position_of(row0), position_of(row0 + 8) };
    const int last0 = position[0] - before, last1 = position[1] - before;
#pragma unroll
    for (int i = 0; i < keys / 2; i++)
      if (i / 4 * 8 + (i & 1) > ((i & 2) == 0 ? last0 : last1)) scores[i] = -infinity();
    if constexpr (config.is_bounded()) {
      const int far0 = too_far<config>(position[0]) - before, far1 = too_far<config>(position[1]) - before;
#pragma unroll
      for (int i = 0; i < keys / 2; i++)
        if (i / 4 * 8 + (i & 1) <= ((i & 2) == 0 ? far0 : far1)) scores[i] = -infinity();
    }
  }
  /* Caps scores, and adds slopes of heads. */
  TW_DEVICE void finish(float (&scores)[keys / 2], int from) {
    if constexpr (config.is_capped) {
#pragma unroll
      for (int i = 0; i < keys / 2; i++) scores[i] = bounded(mul(scores[i], config.cap_factor));
    }
    if constexpr (config.has_slopes()) {
      const int first = from + (lane & 3) * 2;
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = row0 + 8 * half, query = max(Layout::query_of(row), 0);
        const float slope = slope_of<config>(x, tiles.kv() * group + Layout::head_of(row));
        const float distance = (float)(first - shared.queries[tiles.side()].position[query]);
#pragma unroll
        for (int i = 0; i < keys / 2; i++) {
          if ((i >> 1 & 1) != half) continue;
          const float further = (float)(i / 4 * 8 + (i & 1));
          scores[i] = lean<config>(scores[i], slope, distance + further, (float)first + further);
        }
      }
    }
  }

  /* Whether a row has a result: that of a query with keys. */
  TW_DEVICE bool has_result(int row) const {
    const int i = Layout::query_of(row);
    if (Layout::used_rows < Layout::own_rows && i < 0) return false;
    return shared.queries[tiles.side()].position[i] >= 0 && (tiles.query < 0 || i == tiles.query);
  }
  /* Writes a row, and adds up its results times zero: no zero if one is not finite. */
  template <int half> TW_DEVICE float write(bool is_own) const {
    constexpr bool is_wide = sizeof(*x.out) == 4;
    const int row = row0 + 8 * half;
    const float inverse = 1.0f / total_sum[half];
    float check = 0.0f;
    auto *const out = x.out + (long long)(tiles.first() + Layout::query_of(row)) * config.out_stride +
        (tiles.kv() * group + Layout::head_of(row)) * d;
#pragma unroll
    for (int i = 0; i < d / 8; i += 4) {
      RowPiece piece;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        /* Adding zero makes −0 of a part left out and +0 of one that added nothing the same. */
        const float a = total[2 * half + 4 * (i + j)] * inverse + 0.0f;
        const float b = total[2 * half + 4 * (i + j) + 1] * inverse + 0.0f;
        check = fmaf(a, 0.0f, fmaf(b, 0.0f, check));
        if constexpr (is_wide) {
          if (is_own) store2(out + (i + j) * 8 + (lane & 3) * 2, a, b);
        } else {
          piece.word[j] = pack<typename Operands::OutType>(a, b);
        }
      }
      if constexpr (!is_wide) {
        exchange(piece, lane);
        if (is_own) *(RowPiece *)(out + (i + (lane & 3)) * 8) = piece;
      }
    }
    return check;
  }

  /*
   * Tiles of the block one after another, of which `multiply` computes the total of one. `is_more`: whether there is
   * one.
   */
  template <class Multiply> TW_DEVICE void take_tiles(bool is_more, const Multiply &multiply) {
    for (; is_more; is_more = tiles.next()) {
      multiply();
      const bool is_own[2] = { has_result(row0), has_result(row0 + 8) };
      __syncwarp();
      release(bars.queries_empty[tiles.side()]);
      const float check0 = write<0>(is_own[0]), check1 = write<1>(is_own[1]);
      if (tiles.query < 0 && ((is_own[0] && check0 != 0.0f) || (is_own[1] && check1 != 0.0f))) {
        atomicMin(&shared.first_bad, tiles.number);
        atomicMax(&shared.last_bad, tiles.number);
      }
    }
  }
};

}  // namespace tw
