/*
 * The handoff of rounded products from consumers to the warps that run deferred epilogues: 20 bits per product, in
 * shared memory, in the order of the accumulators. Neither side transposes anything, and every access is 16 bytes per
 * lane, adjacent to its neighbour's.
 *
 * Each consumer warp has its own area: for each chunk of four column groups 512 bytes for each row half (of 8 rows):
 * per lane, one word for each group with the upper 16 bits of two products. Then, for every four chunks, as many bytes
 * with one word for each chunk: bits 12 to 15 of its eight products.
 */
#pragma once
#include "lib/arithmetic.cuh"
#include "lib/shared.cuh"

namespace tw {

constexpr int CHUNK_GROUPS = 4, CHUNK_BYTES = 1024, HALF_BYTES = CHUNK_BYTES / 2, CHUNKS_OF_PART = 4;

TW_CONSTEXPR int handoff_chunks(int columns) { return (columns / 8 + CHUNK_GROUPS - 1) / CHUNK_GROUPS; }
TW_CONSTEXPR int handoff_parts(int columns) { return (handoff_chunks(columns) + CHUNKS_OF_PART - 1) / CHUNKS_OF_PART; }
/* Bytes of a warp's 16 rows. */
TW_CONSTEXPR int handoff_bytes(int columns) {
  return (handoff_chunks(columns) + handoff_parts(columns)) * CHUNK_BYTES;
}

/*
 * The upper 16 bits of two products; bits 12 to 15 of eight, those of 2i and 2i + 1 in byte i; and one product of them
 * again.
 */
TW_DEVICE unsigned high_bits(float x, float y) { return bytes(__float_as_uint(x), __float_as_uint(y), 0x7632u); }
TW_DEVICE unsigned low_bits(const float (&x)[8]) {
  const unsigned even = bytes(bytes(__float_as_uint(x[0]), __float_as_uint(x[2]), 0x51u),
      bytes(__float_as_uint(x[4]), __float_as_uint(x[6]), 0x51u), 0x5410u);
  const unsigned odd = bytes(bytes(__float_as_uint(x[1]), __float_as_uint(x[3]), 0x51u),
      bytes(__float_as_uint(x[5]), __float_as_uint(x[7]), 0x51u), 0x5410u);
  return (even & 0xf0f0f0f0u) | (odd >> 4 & 0x0f0f0f0fu);
}
TW_DEVICE float product_of(unsigned high, unsigned low, int group, int lane) {
  const int left = 8 - 8 * group + 4 * lane;
  const unsigned bits = (left < 0 ? low >> -left : low << left) & 0xf000u;
  return __uint_as_float((lane == 0 ? high << 16 : high & 0xffff0000u) | bits);
}

/* A row of a tile of so many columns, taken from the handoff at `at`, which includes the lane and the row half. */
template <int columns> struct HandedRow {
  static constexpr int chunks = handoff_chunks(columns), parts = handoff_parts(columns);
  unsigned at;
  const float *across;
  /* Whether the warp goes on to another row half of the tile, and the thread's row of it. */
  bool has_next;
  int next_row;
  unsigned high[CHUNK_GROUPS * chunks], low[CHUNK_GROUPS * parts];

  TW_DEVICE void take_chunk(int i) { take(at + i * CHUNK_BYTES, high + CHUNK_GROUPS * i); }
  TW_DEVICE void take_part(int i) { take(at + (chunks + i) * CHUNK_BYTES, low + CHUNK_GROUPS * i); }
  TW_DEVICE void take_all() {
#pragma unroll
    for (int i = 0; i < chunks; i++) take_chunk(i);
#pragma unroll
    for (int i = 0; i < parts; i++) take_part(i);
  }
  TW_DEVICE float operator()(int group, int lane) const {
    return product_of(high[group], low[group / CHUNK_GROUPS], group % CHUNK_GROUPS, lane);
  }
  /*
   * Lets the compiler forget what it has made of the words: products that are read twice would otherwise stay unpacked
   * from the first time to the second, in more registers than there are.
   */
  TW_DEVICE void forget() {
#pragma unroll
    for (int i = 0; i < CHUNK_GROUPS * chunks; i++) tw::forget(high[i]);
#pragma unroll
    for (int i = 0; i < CHUNK_GROUPS * parts; i++) tw::forget(low[i]);
  }
};

/*
 * Hands over the accumulators of a tile of so many columns, of instructions of 64 rows side by side. `to`: the warp's
 * area, from the lane's 16 bytes on.
 */
template <int columns, int blocks, int accumulators>
TW_DEVICE void hand_over(unsigned to, const float (&acc)[blocks][accumulators]) {
  using Row = HandedRow<columns>;
  constexpr int groups = columns / 8, groups_of_block = accumulators / 4;
#pragma unroll
  for (int part = 0; part < Row::parts; part++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      unsigned low[CHUNKS_OF_PART];
#pragma unroll
      for (int j = 0; j < CHUNKS_OF_PART; j++) {
        const int chunk = CHUNKS_OF_PART * part + j;
        low[j] = 0;
        if (chunk >= Row::chunks) continue;
        float x[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
          const int group = CHUNK_GROUPS * chunk + i / 2;
          x[i] = group < groups ? acc[group / groups_of_block][4 * (group % groups_of_block) + 2 * h + i % 2] : 0.0f;
        }
        put(to + chunk * CHUNK_BYTES + h * HALF_BYTES, high_bits(x[0], x[1]), high_bits(x[2], x[3]),
            high_bits(x[4], x[5]), high_bits(x[6], x[7]));
        low[j] = low_bits(x);
      }
      put(to + (Row::chunks + part) * CHUNK_BYTES + h * HALF_BYTES, low[0], low[1], low[2], low[3]);
    }
  }
}

}  // namespace tw
