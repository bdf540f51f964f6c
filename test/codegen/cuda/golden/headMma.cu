/* shared/blockSum.cu */

/* shared/warpInstructions.cu */

/* shared/opaque.cu */

/* shared/copyStage.cu */

/* shared/mmaTile.cu */

/*
 * Log-sum-exp of 256 vocabulary columns of 64 rows, from blocks of 32 columns, so that no tile shows in it.
 * For each
 * row and block of 32: max, Σ exp(z − max), first column of the max; and a row's z at its target.
 */
struct tw_parts { float top[64][8], sum[64][8]; int at[64][8];
  float target[64]; };

/* shared/writeParts.cu */

extern "C" __global__ void __launch_bounds__(128, 2) k_logprob_3dee4bc54a567a82_afb0616e(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4) {
  extern __shared__ __align__(128) unsigned char tw_shared[];
  float *values = (float *)(tw_shared + 24576);
  const int rows = R, down = (rows + 64 - 1) / 64;
  /* Blocks walk 4 row tiles before the next column tile: what they read together stays in L2. */
  const int group = (int)blockIdx.x / (4 * 3), height = down - group * 4 < 4
      ? down - group * 4 : 4;
  const int place = (int)blockIdx.x - group * 4 * 3;
  const int m0 = (group * 4 + place % height) * 64, across = place / height;
  tw_await_previous();
  tw_parts &parts = *(tw_parts *)(tw_shared + 24832);
  const int c0 = across * 256;
  for (int i = threadIdx.x / 32; i < 64; i += 4) {
    const int row = m0 + i < rows ? m0 + i : rows - 1;
    {
      float * const y0 = ((float *)p2) + (long long)(row) * 32;
      float const y1 = tw_row_sum(y0, 4);
      float const y2 = y1 / 64.0f;
      float const y3 = tw_add(0.000009999999747378752f, y2);
      float const y4 = 1.0f / sqrtf(y3);
      if (threadIdx.x % 32 == 0) {
        (values + i * 1)[0] = y4;
      }
    }
    if (threadIdx.x % 32 == 0) parts.target[i] = -tw_inf();
  }
  float acc[2][4][4];
  for (int sub = 0; sub < 256; sub += 64) {
    const int n0 = c0 + sub;
    tw_tile((const unsigned short *)p0 + (long long)m0 * 64, rows - m0, (const unsigned short *)p1
        + (long long)n0 * 64, 608 - n0, tw_shared, acc);
    const int self = tw_opaque(threadIdx.x), quad = self % 4, i0 = self / 32 % 2 * 32 + self % 32 / 4,
        j0 = self / 32 / 2 * 32;
#pragma unroll
    for (int half = 0; half < 4; half++) {
      const int i = tw_opaque(i0 + 8 * half), row = m0 + i < rows ? m0 + i : rows - 1;
      float const r0 = (values + i * 1)[0];
      const int wanted = ((const int *)p3)[row];
      const float scale = r0;
#pragma unroll
      for (int b = 0; b < 32 / 32; b++) {
        const int first = n0 + j0 + 32 * b + 2 * quad;
        float z[8], top = -tw_inf(), sum = 0.0f;
        int at = 600;
#pragma unroll
        for (int e = 0; e < 8; e++) {
          const int column = first + e / 2 * 8 + e % 2;
          z[e] = column < 600 ? tw_mul(scale, acc[half / 2][4 * b + e / 2][half % 2 * 2 + e % 2]) : -tw_inf();
          if (column == wanted) parts.target[i] = z[e];
          top = tw_max(top, z[e]);
        }
        top = tw_quad_max(top);
#pragma unroll
        for (int e = 7; e >= 0; e--) {
          if (z[e] == top) at = first + e / 2 * 8 + e % 2;
        }
#pragma unroll
        for (int e = 0; e < 8; e++) sum = tw_add(sum, z[e] == -tw_inf() ? 0.0f : expf(z[e] - top));
        at = tw_least(at, __shfl_xor_sync(0xffffffffu, at, 1));
        at = tw_least(at, __shfl_xor_sync(0xffffffffu, at, 2));
        sum = tw_quad_sum(sum);
        if (quad == 0) {
          const int piece = (sub + j0) / 32 + b;
          parts.top[i][piece] = top;
          parts.sum[i][piece] = sum;
          parts.at[i][piece] = at;
        }
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 64 && m0 + i < rows; i += 128) {
    tw_write_parts(parts, i, (float *)p4 + (long long)(m0 + i) * 32 + across * 4);
  }
}
