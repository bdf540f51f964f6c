/*
 * A head on CUDA cores: parts of the log-sum-exp (head/parts.cuh) of tile_m rows and one block of the vocabulary, by
 * the main loop of gemm/simt.cuh, tile_n columns after the other. A warp takes a piece of a row, a column a lane.
 *
 * Shared memory: the tile and the prologue's values as gemm/simt.cuh has them, then Parts. Scale: see head/mma.cuh.
 */
#pragma once
#include "gemm/simt.cuh"
#include "head/parts.cuh"

namespace tw {

/* The piece of row i of the tile, whose columns begin at `first`; `product`: the lane's. */
template <HeadConfig head, class Scale, class BlockParts>
TW_DEVICE void simt_head_piece(int row, int i, int first, int piece, int lane, const Scale &scale_of, float scale,
    float product, const HeadBuffers &buffers, BlockParts &parts) {
  const float z = first + lane < head.vocab ? logit_of<head>(scale_of, scale, product, first + lane) : -infinity();
  if constexpr (head.keeps_logits()) {
    if (row < buffers.logit_rows && first + lane < head.vocab)
      buffers.logits[(long long)row * head.logits_stride + first + lane] = z;
  }
  if (first + lane == buffers.target[row]) parts.target[i] = z;
  float top = z;
  for (int w = 16; w > 0; w /= 2) top = max(top, __shfl_xor_sync(ALL_LANES, top, w));
  int at = z == top ? lane : 32;
  for (int w = 16; w > 0; w /= 2) at = min(at, __shfl_xor_sync(ALL_LANES, at, w));
  const float sum = block_sum(z == -infinity() ? 0.0f : expf(z - top), 32);
  if (lane == 0) {
    parts.top[i][piece] = top;
    parts.sum[i][piece] = sum;
    parts.at[i][piece] = first + at;
  }
  if constexpr (head.draws) {
    const Draw draw = buffers.draw(row);
    Drawn drawn = { draw.score(z, first + lane), first + lane, z };
    drawn.take_best_of(32);
    if (lane == 0) parts.drawn[i][piece] = drawn;
  }
}

/* The kernel, once the one before has ended (await_previous). Row tiles lie along x, blocks of columns along y. */
template <SimtConfig config, HeadConfig head, class A, class W, class Prologue, class Scale>
TW_DEVICE void simt_head(int rows, const A *a, const W *weight, const Prologue &prologue, const Scale &scale_of,
    const HeadBuffers &buffers) {
  static_assert(head.is_legal() && HEAD_BLOCK % config.tile_n == 0);
  using BlockParts = Parts<config.tile_m, head.draws>;
  constexpr int parts_at = config.values_end(Prologue::row_values), pieces = config.tile_n / PIECE_COLUMNS;
  static_assert(parts_at + (int)sizeof(BlockParts) == config.shared_bytes);
  TW_DYNAMIC_SHARED(shared_memory, 128);
  float *const tile = (float *)shared_memory, *const values = (float *)(shared_memory + config.values_at());
  BlockParts &parts = *(BlockParts *)(shared_memory + parts_at);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int m0 = (int)blockIdx.x * config.tile_m, c0 = (int)blockIdx.y * HEAD_BLOCK;
  simt_prologue<config>(m0, rows, prologue, values);
  for (int i = threadIdx.x; i < config.tile_m; i += SIMT_THREADS) parts.target[i] = -infinity();
  for (int sub = 0; sub < HEAD_BLOCK; sub += config.tile_n) {
    const int n0 = c0 + sub;
    simt_tile<config>(a + (long long)m0 * config.a_stride, rows - m0, weight + (long long)n0 * config.w_stride,
        head.columns - n0, head.columns, tile);
    for (int item = warp; item < config.tile_m * pieces; item += SIMT_WARPS) {
      const int i = item / pieces, row = m0 + i, piece = item % pieces;
      if (row >= rows) break;
      simt_head_piece<head>(row, i, n0 + piece * PIECE_COLUMNS, sub / PIECE_COLUMNS + piece, lane, scale_of,
          scale_of(row, values + i * Prologue::row_values),
          tile[i * config.pitch() + piece * PIECE_COLUMNS + lane], buffers, parts);
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < config.tile_m && m0 + i < rows; i += SIMT_THREADS) {
    write_part(parts, i,
        buffers.parts + (long long)(m0 + i) * head.parts_stride + (int)blockIdx.y * head.part_width());
  }
}

}  // namespace tw
