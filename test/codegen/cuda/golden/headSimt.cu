/* shared/blockSum.cu */

/* shared/simtTile.cu */

/*
 * Log-sum-exp of 256 vocabulary columns of 32 rows, from blocks of 32 columns, so that no tile shows in it.
 * For each
 * row and block of 32: max, Σ exp(z − max), first column of the max; and a row's z at its target.
 */
struct tw_parts { float top[32][8], sum[32][8]; int at[32][8];
  float target[32]; };

/* shared/writeParts.cu */

extern "C" __global__ void __launch_bounds__(256, 1) k_logprob_3dee4bc54a567a82_c8d5357d(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4) {
  extern __shared__ __align__(128) unsigned char tw_shared[];
  float *tile = (float *)tw_shared, *values = tile + 3136;
  tw_parts &parts = *(tw_parts *)(tile + 3168);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rows = R, m0 = (int)blockIdx.x * 32, c0 = (int)blockIdx.y * 256;
  tw_await_previous();
  for (int i = warp; i < 32; i += 8) {
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
    if (lane == 0) parts.target[i] = -tw_inf();
  }
  for (int sub = 0; sub < 256; sub += 64) {
    const int n0 = c0 + sub;
    tw_tile((const unsigned short *)p0 + (long long)m0 * 64, rows - m0, (const unsigned short *)p1
        + (long long)n0 * 64, 608 - n0, tile);
    for (int item = warp; item < 32 * 2; item += 8) {
      const int i = item / 2, row = m0 + i;
      if (row >= rows) break;
      const int first = n0 + item % 2 * 32;
      float const r0 = (values + i * 1)[0];
      const float z = first + lane < 600 ? tw_mul(r0, tile[i * 65 + first - n0 + lane]) :
    -tw_inf();
      if (first + lane == ((const int *)p3)[row]) parts.target[i] = z;
      float top = z;
      for (int w = 16; w > 0; w /= 2) top = tw_max(top, __shfl_xor_sync(0xffffffffu, top, w));
      int at = z == top ? lane : 32;
      for (int w = 16; w > 0; w /= 2) at = tw_least(at, __shfl_xor_sync(0xffffffffu, at, w));
      const float sum = tw_block_sum(z == -tw_inf() ? 0.0f : expf(z - top), 32);
      if (lane == 0) {
        const int b = (first - c0) / 32;
        parts.top[i][b] = top;
        parts.sum[i][b] = sum;
        parts.at[i][b] = first + at;
      }
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < 32 && m0 + i < rows; i += 256) {
    tw_write_parts(parts, i, (float *)p4 + (long long)(m0 + i) * 32 + (int)blockIdx.y * 4);
  }
}
