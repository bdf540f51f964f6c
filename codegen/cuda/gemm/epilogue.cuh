/*
 * What epilogues of products are made of, around the programs that a unit prints: operands, results in wide accesses,
 * sums of a row in parts, and tables.
 *
 * Four lanes, a quad, share a row of a tensor core's fragment: of every eight columns each has two, a pair, but
 * the eight are adjacent in memory. So the quad exchanges the words of four groups: each lane loads or stores a whole
 * group, 16 bytes of 16-bit elements or 8 of bytes, and works on its own pairs (GroupWords). Stores of 4 bytes per lane
 * would fill half a sector each. Where a lane has eight adjacent columns to itself, nothing is exchanged (Eight).
 */
#pragma once
#include "lib/eights.cuh"
#include "lib/global.cuh"
#include "lib/pairs.cuh"
#include "lib/warp.cuh"

namespace tw {

/* Lane t of a quad has its words of column groups 0 to 3, and takes the four words of group t: 16 adjacent bytes. */
TW_DEVICE uint4 quad_turn(int quad, unsigned w0, unsigned w1, unsigned w2, unsigned w3) {
  const bool is_upper = quad & 2, is_odd = quad & 1;
  unsigned x = __shfl_xor_sync(ALL_LANES, is_upper ? w0 : w2, 2), y = __shfl_xor_sync(ALL_LANES, is_upper ? w1 : w3, 2);
  if (is_upper) { w0 = x; w1 = y; } else { w2 = x; w3 = y; }
  x = __shfl_xor_sync(ALL_LANES, is_odd ? w0 : w1, 1);
  y = __shfl_xor_sync(ALL_LANES, is_odd ? w2 : w3, 1);
  if (is_odd) { w0 = x; w2 = y; } else { w1 = x; w3 = y; }
  return { w0, w1, w2, w3 };
}
/* The same of bytes, two groups a word: eight that lie together for two of each group, and back. */
TW_DEVICE uint2 quad_turn_bytes(int quad, unsigned w0, unsigned w1) {
  const uint4 w = quad_turn(quad, w0, w0 >> 16, w1, w1 >> 16);
  return { bytes(w.x, w.y, 0x5410u), bytes(w.z, w.w, 0x5410u) };
}

/* Column of the first element of the pair of columns at physical column `lying` of rotated heads: see ir/packing. */
template <int head, bool holds_whole_heads> TW_DEVICE int first_half(int lying) {
  /* In tiles of whole heads a mask tells the compiler the value before the tile is known. */
  if constexpr (holds_whole_heads && (head & (head - 1)) == 0) return lying - (lying & (head - 1)) / 2;
  else return lying - lying % head / 2;
}

/* Whole groups of eight columns, as many as vectors hold. */
template <class T, int bytes = sizeof(T)> struct GroupOf { using Words = uint4; };
template <class T> struct GroupOf<T, 1> { using Words = uint2; };

/* A lane's pairs of `groups` groups of a row. */
template <class T, int groups> struct GroupWords {
  using Words = typename GroupOf<T>::Words;
  static constexpr int count = (groups + 3) / 4 * 4 / (sizeof(T) == 1 ? 2 : 1);
  unsigned words[count];

  TW_DEVICE void set(int group, const uint4 &x) {
    words[group] = x.x, words[group + 1] = x.y, words[group + 2] = x.z, words[group + 3] = x.w;
  }
  TW_DEVICE void set(int group, const uint2 &x) { words[group / 2] = x.x, words[group / 2 + 1] = x.y; }
  /* The words of four groups after the quad's exchange: from whole groups to the lane's pairs, and back. */
  TW_DEVICE Words turned(int group, int quad) const {
    if constexpr (sizeof(T) == 1) return quad_turn_bytes(quad, words[group / 2], words[group / 2 + 1]);
    else return quad_turn(quad, words[group], words[group + 1], words[group + 2], words[group + 3]);
  }

  /* Starts the loads of the groups from `column` on, of which there are `columns` in all; none are limited by 0. */
  template <int columns> TW_DEVICE void load(const T *row, int column, int quad) {
#pragma unroll
    for (int group = 0; group < groups; group += 4) {
      const int own = column + 8 * (group + quad);
      const Words x = (columns > 0 && own >= columns) || (groups % 4 != 0 && group + quad >= groups)
          ? Words{} : *(const Words *)(row + own);
      set(group, x);
    }
  }
  TW_DEVICE void turn(int quad) {
#pragma unroll
    for (int group = 0; group < groups; group += 4) { const Words x = turned(group, quad); set(group, x); }
  }
  /* The first of other words that were loaded. */
  template <class Other> TW_DEVICE void take(const Other &other, int quad) {
#pragma unroll
    for (int group = 0; group < groups; group += 4) set(group, other.turned(group, quad));
  }
  /*
   * Loads that are used in a later batch, or in a later row: groups `first` and on of those of a tile that begins at
   * column0, as far as it has them. Lanes behind the last of `columns` load the last ones again.
   */
  template <int columns, int groups_of_tile> TW_DEVICE void load_ahead(const T *row, int column0, int first, int quad) {
#pragma unroll
    for (int group = 0; group < groups; group += 4) {
      if (groups_of_tile % groups == 0 || first + group < groups_of_tile) {
        const int own = column0 + 8 * (first + group + quad);
        set(group, *(const Words *)(row + (columns > 0 ? min(own, columns - 8) : own)));
      }
    }
  }
  TW_DEVICE auto pair(int group) const { return unpack<T>(words, group); }

  template <class Pair> TW_DEVICE void keep(int group, Pair x) { repack<T>(words, group, x); }
  /*
   * Stores the groups from `column` on. `is_branched`: a branch guards every store. Where registers are short, later
   * loads may not be moved before it.
   */
  template <int columns, bool is_branched> TW_DEVICE void store(T *row, int column, int quad, int is_stored) const {
    store_at<columns, is_branched>(row, quad, is_stored, [&](int group) { return column + 8 * group; },
        [&](int group) { return column + 8 * group; });
  }
  /* The same of one half of rotated heads, whose pairs lie side by side from physical column `lying` on. */
  template <int columns, bool is_branched, int head, bool holds_whole_heads>
  TW_DEVICE void store_half(T *row, int lying, int quad, int is_stored) const {
    store_at<columns, is_branched>(row, quad, is_stored, [&](int group) { return lying + 16 * group; },
        [&](int group) { return first_half<head, holds_whole_heads>(lying + 16 * group); });
  }

 private:
  template <int columns, bool is_branched, class Lying, class Column>
  TW_DEVICE void store_at(T *row, int quad, int is_stored, const Lying &lying, const Column &column) const {
#pragma unroll
    for (int group = 0; group < groups; group += 4) {
      const Words x = turned(group, quad);
      const int own = group + quad;
      if constexpr (is_branched) {
        if (is_stored && (groups % 4 == 0 || own < groups) && (columns == 0 || lying(own) < columns))
          store_words(row + column(own), x, 1);
      } else {
        store_words(row + column(own), x,
            is_stored && (groups % 4 == 0 || own < groups) && (columns == 0 || lying(own) < columns));
      }
    }
  }
};

/* Two adjacent elements as programs take them: float2, or uint2 of bytes. */
template <class T> TW_DEVICE float2 load_pair(const T *p) { return load2(p); }
TW_DEVICE uint2 load_pair(const u8 *p) { return bytes_of(load2(p)); }

/* Pairs of `groups` groups of elements that are no whole words, each loaded by itself. */
template <class T, int groups> struct GroupPairs {
  using Pair = decltype(load_pair((const T *)nullptr));
  Pair pairs[groups];

  template <int columns> TW_DEVICE void load(const T *row, int column, int quad) {
#pragma unroll
    for (int group = 0; group < groups; group++) {
      const int own = column + 8 * group + 2 * quad;
      pairs[group] = columns > 0 && own >= columns ? Pair{} : load_pair(row + own);
    }
  }
  TW_DEVICE void turn(int) {}
  TW_DEVICE Pair pair(int group) const { return pairs[group]; }
};

/*
 * A table that rotated pairs read, such as cosines of a row's position: all heads of a row read the same entries, and a
 * thread loads its own once for a row of the tile. Groups are of physical columns, and pairs eight wide.
 */
template <int entries> struct RowTable {
  float2 pairs[entries];

  template <class T> TW_DEVICE void load(const T *row, int quad) {
#pragma unroll
    for (int entry = 0; entry < entries; entry++) pairs[entry] = load2(row + 8 * entry + 2 * quad);
  }
  TW_DEVICE float2 pair(int group) const { return pairs[group / 2 % entries]; }
};

/*
 * Row sums over blocks of columns, of which each lane of a quad has a part: lane q ends up with block q of each four,
 * so that a quad stores 16 bytes that lie together. Added as quad_sum adds. `block` is constant once loops are
 * unrolled.
 */
struct BlockSums {
  float first, half, whole;

  TW_DEVICE void take(int block, float x, int quad) {
    if (block % 2 == 0) { first = x; return; }
    const bool is_odd = quad & 1, is_upper = quad & 2;
    x = (is_odd ? x : first) + __shfl_xor_sync(ALL_LANES, is_odd ? first : x, 1);
    if (block % 4 == 1) { half = x; return; }
    whole = (is_upper ? x : half) + __shfl_xor_sync(ALL_LANES, is_upper ? half : x, 2);
  }
  /*
   * The same, and stores four blocks when they are complete. `parts`: of the row; `first`: the number of the block 0 in
   * it; `columns`: of the row in all, or 0 if the tile lies inside.
   */
  template <int columns> TW_DEVICE void take(int block, float x, int quad, float *parts, int first, int is_stored) {
    take(block, x, quad);
    const int own = first + block - 3 + quad;
    if (block % 4 == 3 && is_stored && (columns == 0 || own * 16 < columns)) parts[own] = whole;
  }
  /* Stores the last blocks of `taken`, where they are fewer than four. */
  template <int taken, int columns> TW_DEVICE void end(int quad, float *parts, int first, int is_stored) {
    constexpr int over = taken % 4;
    if constexpr (over > 0) {
#pragma unroll
      for (int j = over; j < 4; j++) take(j, 0.0f, quad);
      const int own = first + taken - over + quad;
      if (quad < over && is_stored && (columns == 0 || own * 16 < columns)) parts[own] = whole;
    }
  }
};

}  // namespace tw
