/* test: 128 × 128 × 64 by wgmma, deferred, 2 stages, clusters of 1 */
#include "gemm/hopper.cuh"

namespace tw {

constexpr HopperConfig config = {
  .mode = HopperMode::Deferred,
  .tile_m = 128,
  .tile_n = 128,
  .tile_k = 64,
  .stages = 2,
  .cluster = 1,
  .raster = 2,
  .remainder_n = 0,
  .epilogue_groups = 0,
  .element_bytes = 2,
  .k = 512,
  .segments = 1,
  .columns = { 512 },
  .experts = 0,
  .row_values = 0,
  .are_rows_of_threads = true,
  .column_values = 0,
  .has_final_tile = false,
  .has_finish = true,
  .shared_bytes = 106560,
};


/*
 * Rows are finished when all of their columns are stored. Warps count what they have stored of a block of 128
 * rows, and the one that completes it publishes the block. Warps then take pieces of published blocks, a row or a part
 * of its columns each, so that all multiprocessors share the last ones. No warp depends on one that has not begun:
 * whoever publishes a block stays until its pieces are taken. All numbers are 0 before and after a launch.
 */
struct tw_finishing {
  /* Published blocks; of those in order the first with pieces left, or one before it; warps that have ended. */
  unsigned published, first, ended;
  /* Of each block what is stored; of each published block the pieces taken, and its number plus one. */
  unsigned stored[4], taken[4], block[4];
};
__device__ tw_finishing tw_rows;

/* This warp has stored `share` of the 512 shares of a block of rows. */
TW_DEVICE void tw_rows_stored(unsigned block, unsigned share) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    fence_all();
    if (atomicAdd(&tw_rows.stored[block], share) + share == 512u) {
      fence_all();
      *(volatile unsigned *)&tw_rows.block[atomicAdd(&tw_rows.published, 1u)] = block + 1;
    }
  }
}

/* Blocks of rows that the grid stores. */
TW_DEVICE unsigned tw_row_blocks(int rows) { return (rows + 128 - 1) / 128 * 1; }

/*
 * Takes a piece for this warp: row · 1 + part. −1 if there is none yet, −2 if there will be none. `at`: the
 * published block from which the warp takes.
 */
TW_DEVICE int tw_take_piece(unsigned &at, int rows) {
  int piece = -1;
  if (threadIdx.x % 32 == 0) {
    const unsigned first = look(&tw_rows.first);
    if (at < first) at = first;
    while (piece < 0 && at < look(&tw_rows.published)) {
      const unsigned i = atomicAdd(&tw_rows.taken[at], 1u);
      if (i == 127) atomicMax(&tw_rows.first, at + 1);
      unsigned block = 0;
      while (i <= 127 && block == 0) block = look(&tw_rows.block[at]);
      piece = (int)((block - 1) * 128 + i);
      if (i > 127 || piece >= rows * 1) {
        piece = -1;
        at++;
      }
    }
    if (piece < 0 && at >= tw_row_blocks(rows)) piece = -2;
    fence_all();
  }
  return __shfl_sync(ALL_LANES, piece, 0);
}

/* One of `warps` warps will take no piece any more. The last one leaves the numbers as they were. */
TW_DEVICE void tw_rows_ended(unsigned warps, int rows) {
  int isLast = 0;
  if (threadIdx.x % 32 == 0) isLast = atomicAdd(&tw_rows.ended, 1u) + 1 == warps;
  if (__shfl_sync(ALL_LANES, isLast, 0) == 0) return;
  const unsigned blocks = tw_row_blocks(rows);
  for (unsigned i = threadIdx.x % 32; i < blocks; i += 32) tw_rows.stored[i] = tw_rows.taken[i] = tw_rows.block[i] = 0;
  if (threadIdx.x % 32 == 0) tw_rows.published = tw_rows.first = tw_rows.ended = 0;
}

/*
 * Sum of a block of 16 columns, of which a lane has the first eight and its neighbour the others: added as fragments
 * add it (quad_sum).
 */
TW_DEVICE void tw_store_block_sum(float *to, const float *x, int lane, bool isStored) {
  float part[4];
#pragma unroll
  for (int t = 0; t < 4; t++) {
    const float first = add(add(0.0f, x[2 * t]), x[2 * t + 1]);
    part[t] = add(add(__shfl_xor_sync(ALL_LANES, first, 1), x[2 * t]), x[2 * t + 1]);
  }
  if ((lane & 1) && isStored) *to = add(add(part[0], part[1]), add(part[2], part[3]));
}

struct Epilogue {
  f32 *y;
  f32 *parts;

  template <class Products> TW_DEVICE void row(
    int row, int isStored, int column0, int quad, const float *values, Products &&products) const {
    BlockSums s0_;
#pragma unroll
    for (int batch_ = 0; batch_ < 2; batch_++) {
      {
        {
          f32 *const y_row = y + (long long)row * 512;
#pragma unroll
          for (int block_ = 0; block_ < 4; block_++) {
            float es0 = 0.0f;
#pragma unroll
            for (int unit_ = 2 * block_; unit_ < 2 * block_ + 2; unit_++) {
              const int group_ = unit_;
              const int column = (column0 + 8 * (batch_ * 8)) + 8 * group_ + 2 * quad;
              const float2 v = round_f20(float2{ products(batch_ * 8 + group_, 0), products(batch_ * 8 + group_, 1) });
              const float2 v_2 = mul(v, v);
              es0 = add(es0, v_2.x);
              es0 = add(es0, v_2.y);
              if (isStored) {
                store2(y_row + column, v);
              }
            }
            s0_.take((batch_ * 8) / 2 + block_, es0, quad);
            if (((batch_ * 8) / 2 + block_) % 4 == 3 && isStored) (parts)[(long long)row * 32 + column0 / 16 + ((batch_ * 8) / 2 + block_) - 3 + quad] = s0_.whole;
          }
        }
      }
    }
  }
};

struct Finish {
  int T;
  bf16 *x;
  f32 *y;
  f32 *parts;
  f32 *h;
  bf16 *norm;
  bf16 *next;
  u8 *next_tail;
  f32 *next_parts;

  TW_DEVICE void stored(int block, int share) const {
    tw_rows_stored(block, share);
  }

  TW_DEVICE void take_some(unsigned &finishing, int T) const {
        for (int count = 0, waits = 0; count < 13;) {
          const int piece = tw_take_piece(finishing, T), lane = threadIdx.x & 31;
          if (piece == -2) break;
          if (piece < 0) {
            if (waits++ == 0) break;
            rest();
            continue;
          }
          count++;
          const int row = piece, begin = 0, end = 512;
#pragma unroll 1
          for (int turn = begin; turn < end; turn += 512) {
            unsigned l0_[2][8];
            unsigned l1_[2][8];
            unsigned l2_[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) {
              const int first = turn + 256 * i + 8 * lane;
              if (first < end) {
                { const uint4 x = ((const uint4 *)(h + (long long)row * 512 + first))[0]; l0_[i][0] = x.x; l0_[i][1] = x.y; l0_[i][2] = x.z; l0_[i][3] = x.w; }
                { const uint4 x = ((const uint4 *)(h + (long long)row * 512 + first))[1]; l0_[i][4] = x.x; l0_[i][5] = x.y; l0_[i][6] = x.z; l0_[i][7] = x.w; }
                { const uint4 x = ((const uint4 *)(y + (long long)row * 512 + first))[0]; l1_[i][0] = x.x; l1_[i][1] = x.y; l1_[i][2] = x.z; l1_[i][3] = x.w; }
                { const uint4 x = ((const uint4 *)(y + (long long)row * 512 + first))[1]; l1_[i][4] = x.x; l1_[i][5] = x.y; l1_[i][6] = x.z; l1_[i][7] = x.w; }
                { const uint4 x = ((const uint4 *)(norm + first))[0]; l2_[i][0] = x.x; l2_[i][1] = x.y; l2_[i][2] = x.z; l2_[i][3] = x.w; }
              }
            }
            f32 *const parts_row = parts + (long long)row * 32;
            const float parts_sum = row_sum(parts_row, 32);
#pragma unroll
            for (int i = 0; i < 2; i++) {
              const int first = turn + 256 * i + 8 * lane;
              const bool isStored = first < end;
              unsigned w0_[4] = {};
              unsigned w1_[2] = {};
              float a0_[8];
#pragma unroll
              for (int pair_ = 0; pair_ < 4; pair_++) {
                const float2 v = add(float2{ __uint_as_float(l0_[i][2 * pair_ + 0]), __uint_as_float(l0_[i][2 * pair_ + 1]) }, mul(mul(float2{ __uint_as_float(l1_[i][2 * pair_ + 0]), __uint_as_float(l1_[i][2 * pair_ + 1]) }, inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f))), add(float2{ __uint_as_float(l2_[i][pair_] << 16), __uint_as_float(l2_[i][pair_] & 0xffff0000u) }, 1.0f)));
                const float2 v_2 = round_f24(v);
                const uint2 v_3 = tail_f24(v);
                const float2 v_4 = mul(v, v);
                w0_[pair_] = pack<bf16>(v_2.x, v_2.y);
                w1_[(pair_) / 2] |= (v_3.x | v_3.y << 8) << 16 * ((pair_) % 2);
                a0_[2 * pair_] = v_4.x;
                a0_[2 * pair_ + 1] = v_4.y;
              }
              tw_store_block_sum(next_parts + (long long)row * 32 + first / 16, a0_, lane, isStored);
              if (isStored) {
                ((uint4 *)(next + (long long)row * 512 + first))[0] = { w0_[0], w0_[1], w0_[2], w0_[3] };
                ((uint2 *)(next_tail + (long long)row * 512 + first))[0] = { w1_[0], w1_[1] };
              }
            }
          }
        }
  }

  TW_DEVICE void take_rest(unsigned &finishing, int T) const {
        for (int count = 0, waits = 0; count < 0x7fffffff;) {
          const int piece = tw_take_piece(finishing, T), lane = threadIdx.x & 31;
          if (piece == -2) break;
          if (piece < 0) {
            if (waits++ == 12) break;
            rest();
            continue;
          }
          count++;
          const int row = piece, begin = 0, end = 512;
#pragma unroll 1
          for (int turn = begin; turn < end; turn += 512) {
            unsigned l0_[2][8];
            unsigned l1_[2][8];
            unsigned l2_[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) {
              const int first = turn + 256 * i + 8 * lane;
              if (first < end) {
                { const uint4 x = ((const uint4 *)(h + (long long)row * 512 + first))[0]; l0_[i][0] = x.x; l0_[i][1] = x.y; l0_[i][2] = x.z; l0_[i][3] = x.w; }
                { const uint4 x = ((const uint4 *)(h + (long long)row * 512 + first))[1]; l0_[i][4] = x.x; l0_[i][5] = x.y; l0_[i][6] = x.z; l0_[i][7] = x.w; }
                { const uint4 x = ((const uint4 *)(y + (long long)row * 512 + first))[0]; l1_[i][0] = x.x; l1_[i][1] = x.y; l1_[i][2] = x.z; l1_[i][3] = x.w; }
                { const uint4 x = ((const uint4 *)(y + (long long)row * 512 + first))[1]; l1_[i][4] = x.x; l1_[i][5] = x.y; l1_[i][6] = x.z; l1_[i][7] = x.w; }
                { const uint4 x = ((const uint4 *)(norm + first))[0]; l2_[i][0] = x.x; l2_[i][1] = x.y; l2_[i][2] = x.z; l2_[i][3] = x.w; }
              }
            }
            f32 *const parts_row = parts + (long long)row * 32;
            const float parts_sum = row_sum(parts_row, 32);
#pragma unroll
            for (int i = 0; i < 2; i++) {
              const int first = turn + 256 * i + 8 * lane;
              const bool isStored = first < end;
              unsigned w0_[4] = {};
              unsigned w1_[2] = {};
              float a0_[8];
#pragma unroll
              for (int pair_ = 0; pair_ < 4; pair_++) {
                const float2 v = add(float2{ __uint_as_float(l0_[i][2 * pair_ + 0]), __uint_as_float(l0_[i][2 * pair_ + 1]) }, mul(mul(float2{ __uint_as_float(l1_[i][2 * pair_ + 0]), __uint_as_float(l1_[i][2 * pair_ + 1]) }, inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f))), add(float2{ __uint_as_float(l2_[i][pair_] << 16), __uint_as_float(l2_[i][pair_] & 0xffff0000u) }, 1.0f)));
                const float2 v_2 = round_f24(v);
                const uint2 v_3 = tail_f24(v);
                const float2 v_4 = mul(v, v);
                w0_[pair_] = pack<bf16>(v_2.x, v_2.y);
                w1_[(pair_) / 2] |= (v_3.x | v_3.y << 8) << 16 * ((pair_) % 2);
                a0_[2 * pair_] = v_4.x;
                a0_[2 * pair_ + 1] = v_4.y;
              }
              tw_store_block_sum(next_parts + (long long)row * 32 + first / 16, a0_, lane, isStored);
              if (isStored) {
                ((uint4 *)(next + (long long)row * 512 + first))[0] = { w0_[0], w0_[1], w0_[2], w0_[3] };
                ((uint2 *)(next_tail + (long long)row * 512 + first))[0] = { w1_[0], w1_[1] };
              }
            }
          }
        }
        tw_rows_ended(gridDim.x * 11u, T);
  }
};

extern "C" __global__ void __launch_bounds__(384, 1)
k_gemm_4de7b49b518107ca_179cf89f(
    int T,
    int R,
    bf16 *x,
    bf16 *w,
    f32 *y,
    f32 *parts,
    f32 *h,
    bf16 *norm,
    bf16 *next,
    u8 *next_tail,
    f32 *next_parts,
    const __grid_constant__ TensorMap x_map,
    const __grid_constant__ TensorMap w_map) {
  TW_DYNAMIC_SHARED(memory, 1024);
  hopper_gemm<config, bf16>(
      T,
      memory,
      HopperMaps{ &x_map, { &w_map }, nullptr },
      nullptr,
      NoPrologue{},
      Finish{ T, x, y, parts, h, norm, next, next_tail, next_parts },
      Epilogue{ y, parts });
}

}  // namespace tw
