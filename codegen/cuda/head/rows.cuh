/*
 * A head whose tiles are whole blocks of the vocabulary: a quad of lanes has a row's products of one block, and with
 * them its part of the log-sum-exp (head/parts.cuh). It ends the rows of other main loops as an epilogue
 * (gemm/segments.cuh), but changes the products on the way: products(g, e) is a reference.
 */
#pragma once
#include "head/parts.cuh"
#include "lib/warp.cuh"

namespace tw {

/* e^x within 2 ulp and half a unit of x. */
TW_DEVICE float exp_fast(float x) { return exp2_flushed(mul(x, 1.44269504f)); }

TW_DEVICE float quad_largest(float x) {
  x = max_nan(x, __shfl_xor_sync(ALL_LANES, x, 1));
  return max_nan(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

/* `keeps_logits`: stores those of the first rows as it goes. Others call keep_logits before. */
template <HeadConfig head, class Scale, bool keeps_logits = head.keeps_logits()> struct HeadEpilogue {
  static constexpr int columns = head.columns;
  Scale scale_of;
  HeadBuffers buffers;

  template <class Products>
  TW_DEVICE void row(int row, int is_stored, int column0, int quad, const float *values,
      const Products &products) const {
    static_assert(head.is_legal());
    constexpr bool is_whole = head.vocab % HEAD_BLOCK == 0;
    const float scale = scale_of(row, values);
    const int first = column0 + 2 * quad, wanted = buffers.target[row] - first;
    float top = -infinity(), hit = -infinity(), sum = 0.0f;
    int at = HEAD_BLOCK;
    /* Products become logits where they are. */
#pragma unroll
    for (int g = 0; g < HEAD_BLOCK / 8; g++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float &z = products(g, e);
        const int column = first + 8 * g + e;
        z = !is_whole && column >= head.vocab ? -infinity() : logit_of<head>(scale_of, scale, z, column);
        if (wanted == 8 * g + e) hit = z;
        top = max_nan(top, z);
        if constexpr (keeps_logits) {
          if (is_stored && row < buffers.logit_rows && column < head.vocab)
            (buffers.logits + (long long)row * head.logits_stride + first)[8 * g + e] = z;
        }
      }
    }
    top = quad_largest(top);
    hit = quad_largest(hit);
    const float base = top == -infinity() ? 0.0f : top;
#pragma unroll
    for (int g = HEAD_BLOCK / 8 - 1; g >= 0; g--) {
#pragma unroll
      for (int e = 1; e >= 0; e--) {
        const float z = products(g, e);
        if (z == top) at = 8 * g + e;
        sum = add(sum, exp_fast(z - base));
      }
    }
    sum = quad_sum(sum);
    at = at == HEAD_BLOCK ? head.vocab : first + at;
    at = min(at, __shfl_xor_sync(ALL_LANES, at, 1));
    at = min(at, __shfl_xor_sync(ALL_LANES, at, 2));
    f32 *const part = buffers.parts + (long long)row * head.parts_stride + column0 / HEAD_BLOCK * head.part_width();
    if (quad == 0 && is_stored) *(float4 *)part = { top, sum, (float)at, hit };
    if constexpr (head.draws) {
      const Draw draw = buffers.draw(row);
      Drawn drawn = { top, at, top };
      /* Without noise the most likely token is drawn. NaN is never drawn: then all tokens are looked at. */
      if (__any_sync(ALL_LANES, draw.heat != 0.0f || top != top)) {
        drawn = { -infinity(), head.vocab, -infinity() };
#pragma unroll
        for (int g = 0; g < HEAD_BLOCK / 8; g++) {
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const float z = products(g, e);
            drawn.take_better(draw.score(z, first + 8 * g + e), first + 8 * g + e, z);
          }
        }
        drawn.take_best_of(4);
      }
      if (quad == 0 && is_stored) *(float4 *)(part + 4) = { drawn.score, (float)drawn.at, drawn.z, 0.0f };
    }
  }
};

/*
 * Stores the logits of the first rows, from a tile's products in rows of `pitch` floats that are still as they were: a
 * row's columns go out side by side. By all warps of the block, before any of them changes products.
 */
template <HeadConfig head, int tile_m, int pitch, int warps, int row_values, class Scale>
TW_DEVICE void keep_logits(int row0, int column0, int self, const float *products, const float *values,
    const Scale &scale_of, const HeadBuffers &buffers) {
  if constexpr (head.keeps_logits()) {
    if (row0 < buffers.logit_rows) {
      for (int local = self >> 5; local < tile_m && row0 + local < buffers.logit_rows; local += warps) {
        const int row = row0 + local;
        const float scale = scale_of(row, values + local * row_values);
        float *const kept = buffers.logits + (long long)row * head.logits_stride + column0;
        for (int c = self & 31; c < HEAD_BLOCK && column0 + c < head.vocab; c += 32)
          kept[c] = logit_of<head>(scale_of, scale, products[local * pitch + c], column0 + c);
      }
      __syncthreads();
    }
  }
}

}  // namespace tw
