/*
 * a[8, 512]·w[32, 512]ᵀ for few rows, limited by the memory that w is read from.
 * 288 threads; a warp computes 8 × 16 over all of k. Asynchronous copies fill a ring of 4
 * stages of 128 of k. In shared memory a row of a stage is 16 chunks of 16 bytes, rotated by the row so that
 * the eight rows an ldmatrix reads lie in different banks. k past 512 is zeros; rows past the ends hold anything, and
 * nothing is stored of them.
 */
TW_FN int tw_chunk(int row, int chunk) { return (row * 16 + (chunk ^ (row & 7))) * 16; }

/* Starts a copy of 16 bytes of weights; 256 bytes around them come to L2 at once, as other stages want them soon. */
TW_FN void tw_copy_weight16(unsigned to, const void *from, int bytes) {
#if TW_PTX
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
#else
  tw_cp_async16(to, from, bytes);
#endif
}

/* shared/opaque.cu */

TW_FN void tw_copy_weights(const unsigned short *w, int columns, int k0, unsigned stage) {
#pragma unroll
  for (int i = (int)(threadIdx.x - 64); i < 32 * 16; i += 224) {
    const int r = i / 16, c = i % 16, left = (512 - k0 - c * 8) * 2;
    const int bytes = left < 0 ? 0 : left < 16 ? left : 16;
    if (r < columns) tw_copy_weight16(stage + 2048 + tw_chunk(r, c),
        bytes == 0 ? w : w + (r * 512 + k0 + c * 8), bytes);
  }
}
TW_FN void tw_copy_rows(const unsigned short *a, int rows, int k0, unsigned stage) {
#pragma unroll
  for (int i = (int)(threadIdx.x - 64); i < 8 * 16; i += 224) {
    const int r = i / 16, c = i % 16, left = (512 - k0 - c * 8) * 2;
    const int bytes = left < 0 ? 0 : left < 16 ? left : 16;
    if (r < rows) tw_cp_async16(stage + tw_chunk(r, c), bytes == 0 ? a : a + (r * 512 + k0 + c * 8), bytes);
  }
}

/*
 * Adds a stage's products. acc[i][j]: rows 16·i + lane / 4 and 8 below, columns 8·j + lane % 4 · 2 and its neighbour.
 */
TW_FN void tw_multiply(unsigned stage, int i0, int j0, float (&acc)[1][2][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < 128 / 16; k += 2) {
    unsigned x[2][1][4], y[2][2 / 2][4];
#pragma unroll
    for (int s = 0; s < 2; s++) {
#pragma unroll
      for (int j = 0; j < 2 / 2; j++) tw_ldmatrix_x4(y[s][j],
          stage + 2048 + tw_chunk(j0 + 16 * j + lane % 8 + lane / 16 * 8, 2 * (k + s) + lane / 8 % 2));
    }
    /* Eight rows of two steps; there are no rows below. */
    unsigned both[4];
    tw_ldmatrix_x4(both, stage + tw_chunk(lane % 8, 2 * k + lane / 8));
    x[0][0][0] = both[0]; x[0][0][2] = both[1]; x[1][0][0] = both[2]; x[1][0][2] = both[3];
    x[0][0][1] = x[0][0][3] = x[1][0][1] = x[1][0][3] = 0u;
#pragma unroll
    for (int s = 0; s < 2; s++) {
#pragma unroll
      for (int i = 0; i < 1; i++) {
#pragma unroll
        for (int j = 0; j < 2; j++) tw_mma_bf16(acc[i][j], x[s][i], y[s][j / 2][j % 2 * 2],
            y[s][j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(288, 2) k_gemm_a1357cd9e5056661_e25fc8bc(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3) {
  extern __shared__ __align__(128) unsigned char tw_shared[];
  float *values = (float *)(tw_shared + 40960);
  const unsigned ring = tw_shared_address(tw_shared);
  const int rows = T, m0 = (int)blockIdx.x / 32 * 8, across = (int)blockIdx.x % 32;
  const unsigned short *w;
  int n0, columns;
  {
    n0 = (across - 0) * 32; columns = 1024 - n0; w = (const unsigned short *)p1; }
  w += (long long)n0 * 512;
  /* Weights do not depend on the kernel before this one: they are under way while it ends. */
  const bool copies = threadIdx.x >= 64;
  for (int s = 0; s < 3 && copies; s++) tw_copy_weights(w, columns, s * 128, ring + s * 10240);
  tw_await_previous();
  const unsigned short *a = (const unsigned short *)p0 + (long long)m0 * 512;
  for (int s = 0; s < 4 - 1; s++) {
    if (s < 4 && copies) tw_copy_rows(a, rows - m0, s * 128, ring + s * 10240);
    tw_cp_async_commit();
  }
  float acc[1][2][4];
#pragma unroll
  for (int i = 0; i < 1; i++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) acc[i][j][e] = 0.0f;
    }
  }
  int from = 0, into = 4 - 1;
  for (int step = 0; step < 4; step++) {
    tw_cp_async_wait<4 - 2>();
    /* This step's copies are here, and nobody reads the stage that the next copies go to. */
    __syncthreads();
    const int next = step + 4 - 1;
    if (next < 4 && copies) {
      tw_copy_weights(w, columns, next * 128, ring + into * 10240);
      tw_copy_rows(a, rows - m0, next * 128, ring + into * 10240);
    }
    tw_cp_async_commit();
    /* Once the ring is under way again: its copies hide the wait for memory. */
    if (step == 3 && copies) {
      for (int local = (int)(threadIdx.x - 64) / 32; local < 8 && m0 + local < rows; local += 14) {
        const int read0 = m0 + local < rows ? m0 + local : rows - 1;
        float fold0[1];
        {
          f32 *const parts_row = ((f32 *)p2) + (long long)read0 * 32;
          const float parts_sum = row_sum(parts_row, 32);
          const float rms_scale = inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f));
          if (threadIdx.x % 32 == 0) {
            (fold0)[0] = rms_scale;
          }
        }
        const int read1 = m0 + local + 7 < rows ? m0 + local + 7 : rows - 1;
        float fold1[1];
        {
          f32 *const parts_row = ((f32 *)p2) + (long long)read1 * 32;
          const float parts_sum = row_sum(parts_row, 32);
          const float rms_scale = inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f));
          if (threadIdx.x % 32 == 0) {
            (fold1)[0] = rms_scale;
          }
        }
        if (threadIdx.x % 32 == 0) {
          if (local < 8) values[(local) * 1 + 0] = fold0[0];
          if (local + 7 < 8) values[(local + 7) * 1 + 0] = fold1[0];
        }
      }
    }
    if (!copies)
    tw_multiply(ring + from * 10240, (int)threadIdx.x / 32 % 1 * 8,
        (int)threadIdx.x / 32 / 1 * 16, acc);
    into = into + 1 < 4 ? into + 1 : 0;
    from = from + 1 < 4 ? from + 1 : 0;
  }
  tw_cp_async_wait<0>();
  __syncthreads();
  if (copies) return;
  const int self = tw_opaque(threadIdx.x), quad = self % 4, i0 = self / 32 % 1 * 8 + self % 32 / 4,
      j0 = self / 32 / 1 * 16;

  {
#pragma unroll
    for (int half = 0; half < 1; half++) {
      const int i = tw_opaque(i0 + 8 * half), row = m0 + i < rows ? m0 + i : rows - 1;
      {
        bf16 *const gated_row = ((bf16 *)p3) + (long long)row * 512;
        const float rms_scale = ((values + i * 1))[0];
#pragma unroll
        for (int unit_ = 0; unit_ < 1; unit_++) {
          const int group_ = unit_ / 1 * 2 + unit_ % 1;
          const int column = ((n0 + j0)) / 2 + 8 * unit_ + 2 * quad;
          const float2 gate = mul(round_f20(float2{ acc[half / 2][group_][half % 2 * 2 + 0], acc[half / 2][group_][half % 2 * 2 + 1] }), rms_scale);
          const float2 silu = div_sigmoid(gate, add(1.0f, exp(neg(gate))));
          const float2 up = mul(round_f20(float2{ acc[half / 2][group_ + 1][half % 2 * 2 + 0], acc[half / 2][group_ + 1][half % 2 * 2 + 1] }), rms_scale);
          const float2 activated = mul(silu, up);
          if (m0 + i < rows) {
            store2(gated_row + column, activated);
          }
        }
      }
    }
  }
}

}  // namespace tw
