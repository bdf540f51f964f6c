/*
 * A head on the tensor cores of every GPU from sm_80 on: parts of the log-sum-exp (head/parts.cuh) of tile_m rows and
 * one block of the vocabulary, by the main loop of gemm/mma.cuh, tile_n columns after the other.
 *
 *   struct Scale { float operator()(int row, const float *values) const; };  // of a unit: what products are scaled by
 *
 * Shared memory: the stages and the prologue's values as gemm/mma.cuh has them, then Parts.
 */
#pragma once
#include "gemm/mma.cuh"
#include "head/parts.cuh"

namespace tw {

/* A row of a warp's part, 32 columns at a time: a quad of lanes has eight of a piece each. */
template <MmaConfig config, HeadConfig head, class Scale, class BlockParts>
TW_DEVICE void mma_head_row(const MmaRow<config> &products, int row, int i, int is_stored, int n0, int j0, int sub,
    int quad, const Scale &scale_of, float scale, const HeadBuffers &buffers, BlockParts &parts) {
  const int wanted = buffers.target[row];
  Draw draw;
  if constexpr (head.draws) draw = buffers.draw(row);
#pragma unroll
  for (int b = 0; b < config.warp_n / PIECE_COLUMNS; b++) {
    const int first = n0 + j0 + 32 * b + 2 * quad, piece = (sub + j0) / PIECE_COLUMNS + b;
    float z[8], top = -infinity(), sum = 0.0f;
    int at = head.vocab;
#pragma unroll
    for (int e = 0; e < 8; e++) {
      const int column = first + e / 2 * 8 + e % 2;
      z[e] = column < head.vocab ? logit_of<head>(scale_of, scale, products(4 * b + e / 2, e % 2), column)
                                 : -infinity();
      if (column == wanted) parts.target[i] = z[e];
      top = max(top, z[e]);
    }
    if constexpr (head.keeps_logits()) {
      if (is_stored && row < buffers.logit_rows) {
        float *const to = buffers.logits + (long long)row * head.logits_stride + first;
#pragma unroll
        for (int e = 0; e < 8; e++) {
          if (first + e / 2 * 8 + e % 2 < head.vocab) to[e / 2 * 8 + e % 2] = z[e];
        }
      }
    }
    top = quad_max(top);
#pragma unroll
    for (int e = 7; e >= 0; e--) {
      if (z[e] == top) at = first + e / 2 * 8 + e % 2;
    }
#pragma unroll
    for (int e = 0; e < 8; e++) sum = add(sum, z[e] == -infinity() ? 0.0f : expf(z[e] - top));
    at = min(at, __shfl_xor_sync(ALL_LANES, at, 1));
    at = min(at, __shfl_xor_sync(ALL_LANES, at, 2));
    sum = quad_sum(sum);
    if (quad == 0) {
      parts.top[i][piece] = top;
      parts.sum[i][piece] = sum;
      parts.at[i][piece] = at;
    }
    if constexpr (head.draws) {
      Drawn drawn = { -infinity(), head.vocab, z[0] };
#pragma unroll
      for (int e = 0; e < 8; e++) {
        const int column = first + e / 2 * 8 + e % 2;
        drawn.take_better(draw.score(z[e], column), column, z[e]);
      }
      drawn.take_best_of(4);
      if (quad == 0) parts.drawn[i][piece] = drawn;
    }
  }
}

/* The kernel, once the one before has ended (await_previous). */
template <MmaConfig config, HeadConfig head, class T, class Prologue, class Scale>
TW_DEVICE void mma_head(int rows, const T *a, const T *weight, const Prologue &prologue, const Scale &scale_of,
    const HeadBuffers &buffers) {
  static_assert(head.is_legal() && HEAD_BLOCK % config.tile_n == 0);
  using BlockParts = Parts<config.tile_m, head.draws>;
  constexpr int parts_at = config.values_end(Prologue::row_values);
  static_assert(parts_at + (int)sizeof(BlockParts) == config.shared_bytes);
  TW_DYNAMIC_SHARED(shared_memory, 128);
  float *const values = (float *)(shared_memory + config.values_at());
  BlockParts &parts = *(BlockParts *)(shared_memory + parts_at);
  const auto [m0, block] = mma_place<config>(rows, head.blocks());
  mma_prologue<config>(m0, rows, prologue, values);
  for (int i = threadIdx.x; i < config.tile_m; i += config.threads) parts.target[i] = -infinity();
  MmaProducts<config> products;
  for (int sub = 0; sub < HEAD_BLOCK; sub += config.tile_n) {
    const int n0 = block * HEAD_BLOCK + sub;
    mma_tile<config>(a + (long long)m0 * config.a_stride, rows - m0, weight + (long long)n0 * config.w_stride,
        head.columns - n0, shared_memory, products, RowsAreThere{});
    const int self = forgotten(threadIdx.x), quad = self % 4,
        i0 = self / 32 % config.warps_down() * config.warp_m + self % 32 / 4,
        j0 = self / 32 / config.warps_down() * config.warp_n;
#pragma unroll
    for (int half = 0; half < config.warp_m / 8; half++) {
      const int i = forgotten(i0 + 8 * half), row = m0 + i < rows ? m0 + i : rows - 1;
      const float scale = scale_of(row, values + i * Prologue::row_values);
      mma_head_row<config, head>({ products, half }, row, i, m0 + i < rows, n0, j0, sub, quad, scale_of, scale,
          buffers, parts);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < config.tile_m && m0 + i < rows; i += config.threads)
    write_part(parts, i, buffers.parts + (long long)(m0 + i) * head.parts_stride + block * head.part_width());
}

}  // namespace tw
