TW_FN float tw_block_sum(float x, int width) {
  const int first = (int)(threadIdx.x % 32) / width * width + 2 * (int)(threadIdx.x % 4);
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < width; j += 8) {
    sum += __shfl_sync(0xffffffffu, x, first + j);
    sum += __shfl_sync(0xffffffffu, x, first + j + 1);
  }
  return tw_quad_sum(sum);
}

/* Instructions of a warp that attention uses; all lanes call them together. Tests define them where TW_PTX is 0. */
#if TW_PTX
/* 2^x within 2 ulp; 0 for −inf. */
TW_FN float tw_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
TW_FN unsigned tw_shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
/* Starts a copy of 16 bytes to shared memory, of which the first `bytes` are read and the others zero. */
TW_FN void tw_cp_async16(unsigned to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
TW_FN void tw_cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until at most N groups of this thread's copies are under way. */
template <int N> TW_FN void tw_cp_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
/* Four 8 × 8 matrices of 16-bit elements; lane 8m + r gives the address of row r of matrix m. */
TW_FN void tw_ldmatrix_x4(unsigned (&r)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]),
      "=r"(r[3]) : "r"(at) : "memory");
}
TW_FN void tw_ldmatrix_x4_trans(unsigned (&r)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]),
      "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
/* d[16 × 8] += a[16 × 16]·b[16 × 8] */
TW_FN void tw_mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
                   "r"(b1));
}
TW_FN void tw_mma_f16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
                   "r"(b1));
}
#endif
/*
 * a[64, 64]·w[64, 64]ᵀ on tensor cores: 128 threads, a warp computes 32 × 32. A ring of
 * 3 stages of 32 of k is filled by asynchronous copies. In shared memory a row of a stage is 4
 * chunks of 16 bytes, rotated by the row so that the
 * eight rows an ldmatrix reads lie in different banks. Rows past the ends, and k past 64, are zeros.
 */
TW_FN int tw_chunk(int row, int chunk) { return (row * 4
    + (chunk ^ (row >> 1 & 3))) * 16; }

/*
 * A value the compiler knows nothing of: what an epilogue needs is worked out when it comes to that, not kept in
 * registers.
 */
TW_FN int tw_opaque(int x) {
#if TW_PTX
  asm volatile("" : "+r"(x) :: "memory");
#endif
  return x;
}

TW_FN void tw_copy_stage(const unsigned short *a, int rows, const unsigned short *w, int columns, int k0, unsigned to) {
#pragma unroll
  for (int i = threadIdx.x; i < 64 * 4; i += 128) {
    const int r = i / 4, c = i % 4, left = (64 - k0 - c * 8) * 2;
    const int bytes = r >= rows || left < 0 ? 0 : left < 16 ? left : 16;
    tw_cp_async16(to + tw_chunk(r, c), bytes == 0 ? a : a + (r * 64 + k0 + c * 8), bytes);
  }
#pragma unroll
  for (int i = threadIdx.x; i < 64 * 4; i += 128) {
    const int r = i / 4, c = i % 4, left = (64 - k0 - c * 8) * 2;
    const int bytes = r >= columns || left < 0 ? 0 : left < 16 ? left : 16;
    tw_cp_async16(to + 4096 + tw_chunk(r, c), bytes == 0 ? w : w + (r * 64 + k0 + c * 8), bytes);
  }
}

/* acc[i][j]: rows 16·i + lane / 4 and 8 below, columns 8·j + lane % 4 · 2 and its neighbour, of the warp's part. */
TW_FN void tw_tile(const unsigned short *a, int rows, const unsigned short *w, int columns, const void *shared,
    float (&acc)[2][4][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int i0 = warp % 2 * 32, j0 = warp / 2 * 32;
  const unsigned base = tw_shared_address(shared);
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) acc[i][j][e] = 0.0f;
    }
  }
  for (int s = 0; s < 3 - 1; s++) {
    if (s < 2) tw_copy_stage(a, rows, w, columns, s * 32, base + s * 8192);
    tw_cp_async_commit();
  }
  int from = 0, into = 3 - 1;
  for (int step = 0; step < 2; step++) {
    tw_cp_async_wait<3 - 2>();
    /* This step's copies are here, and nobody reads the stage that the next copies go to. */
    __syncthreads();
    if (step + 3 - 1 < 2) tw_copy_stage(a, rows, w, columns, (step + 3 - 1) * 32,
        base + into * 8192);
    tw_cp_async_commit();
    const unsigned as = base + from * 8192, ws = as + 4096;
    into = into + 1 < 3 ? into + 1 : 0;
    from = from + 1 < 3 ? from + 1 : 0;
#pragma unroll
    for (int k = 0; k < 32 / 16; k++) {
      unsigned x[2][4], y[4 / 2][4];
#pragma unroll
      for (int i = 0; i < 2; i++) tw_ldmatrix_x4(x[i], as + tw_chunk(i0 + 16 * i + lane % 16,
          2 * k + lane / 16));
#pragma unroll
      for (int j = 0; j < 4 / 2; j++) tw_ldmatrix_x4(y[j],
          ws + tw_chunk(j0 + 16 * j + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) tw_mma_bf16(acc[i][j], x[i], y[j / 2][j % 2 * 2],
            y[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
  tw_cp_async_wait<0>();
  __syncthreads();
}

/*
 * Log-sum-exp of 256 vocabulary columns of 64 rows, from blocks of 32 columns, so that no tile shows in it.
 * For each
 * row and block of 32: max, Σ exp(z − max), first column of the max; and a row's z at its target.
 */
struct tw_parts { float top[64][8], sum[64][8]; int at[64][8];
  float target[64]; };

/* Combines a row's blocks in order and writes them: one thread a row. */
TW_FN void tw_write_parts(const tw_parts &parts, int i, float *to) {
  float top = -tw_inf(), sum = 0.0f;
  int at = 0;
  for (int b = 8 - 1; b >= 0; b--) {
    const float m = parts.top[i][b];
    if (m >= top || m != m) { top = m; at = parts.at[i][b]; }
  }
  for (int b = 0; b < 8; b++) {
    if (parts.top[i][b] != -tw_inf()) sum = tw_add(sum, tw_mul(parts.sum[i][b], expf(parts.top[i][b] - top)));
  }
  to[0] = top;
  to[1] = sum;
  to[2] = (float)at;
  to[3] = parts.target[i];
}

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
