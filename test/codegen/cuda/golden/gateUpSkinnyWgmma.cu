/*
 * a[8, 512]·w[32, 512]ᵀ for few rows, limited by the memory that w is read from.
 * 192 threads: 4 warps multiply, 32 columns for each four of them; one warp starts the
 * copies and the others compute what depends on a row alone. TMA fills a ring of 4 stages of 128 of k.
 * An instruction multiplies 64 rows. Rows past 8 are whatever lies behind the rows in shared memory, and nothing
 * is stored of them.
 */
TW_FN int tw_opaque(int x) {
  asm volatile("" : "+r"(x) :: "memory");
  return x;
}

extern "C" __global__ void __launch_bounds__(192, 2) k_gemm_a1357cd9e5056661_68c4dbaa(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, const __grid_constant__ tw_map m0, const __grid_constant__ tw_map m1) {
  extern __shared__ unsigned char tw_raw[];
  /* 1024-byte alignment: the 128-byte swizzle goes by address bits. Stages, barriers, row values. */
  const unsigned shared = (tw_shared(tw_raw) + 1023u) & ~1023u;
  const unsigned full = shared + 40960, empty = full + 32;
  float *const products = (float *)(tw_raw + (shared - tw_shared(tw_raw)));
  float *const values = products + 10256;
  /*
   * Exchanged, the warp's number is uniform for the compiler too. It then computes the places of wgmma's operands in
   * uniform registers, where wgmma takes them from. With moves to there a step takes 80 cycles instead of 25.
   */
  const int thread = threadIdx.x, warp = __shfl_sync(0xffffffffu, thread >> 5, 0), lane = thread & 31;
  const int rows = T, row0 = (int)blockIdx.x / 32 * 8, across = (int)blockIdx.x % 32;
  int column0;
  const tw_map *weight;
  {
    column0 = (across - 0) * 32;
    weight = &m1;
  }
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (warp == 4 && lane == 0) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(weight) : "memory");
    for (int i = 0; i < 4; i++) {
      tw_bar_init(full + 8 * i, 1);
      tw_bar_init(empty + 8 * i, 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    /*
     * The memory is idle until these copies begin. Weights do not depend on the kernel before this one: they are on
     * their way while it ends.
     */
    for (int i = 0; i < 4; i++) {
      tw_bar_expect(full + 8 * i, 10240);
      tw_load_box(shared + i * 10240 + 2048, weight, i * 128, column0, full + 8 * i); tw_load_box(shared + i * 10240 + 6144, weight, i * 128 + 64, column0, full + 8 * i);
    }
    asm volatile("prefetch.tensormap [%0];" :: "l"(&m0) : "memory");
  }
  __syncthreads();

  if (warp == 4) {
    if (lane == 0) {
      asm volatile("griddepcontrol.wait;" ::: "memory");
      for (int i = 0; i < 4; i++) { tw_load_box(shared + i * 10240, &m0, i * 128, row0, full + 8 * i); tw_load_box(shared + i * 10240 + 1024, &m0, i * 128 + 64, row0, full + 8 * i); }
      unsigned stage = 0, phase = 1;
      for (int block = 4; block < 4; block++) {
        tw_bar_wait(empty + 8 * stage, phase ^ 1);
        tw_bar_expect(full + 8 * stage, 10240);
        tw_load_box(shared + stage * 10240, &m0, block * 128, row0, full + 8 * stage); tw_load_box(shared + stage * 10240 + 1024, &m0, block * 128 + 64, row0, full + 8 * stage);
        tw_load_box(shared + stage * 10240 + 2048, weight, block * 128, column0, full + 8 * stage); tw_load_box(shared + stage * 10240 + 6144, weight, block * 128 + 64, column0, full + 8 * stage);
        if (++stage == 4) { stage = 0; phase ^= 1; }
      }
    }
    __syncwarp();
  } else if (warp > 4) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (int local = warp - 5; local < 8 && row0 + local < rows; local += 8) {
        const int read0 = row0 + local < rows ? row0 + local : rows - 1;
        float fold0[1];
        {
          f32 *const parts_row = ((f32 *)p2) + (long long)read0 * 32;
          const float parts_sum = row_sum(parts_row, 32);
          const float rms_scale = inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f));
          if (threadIdx.x % 32 == 0) {
            (fold0)[0] = rms_scale;
          }
        }
        const int read1 = row0 + local + 1 < rows ? row0 + local + 1 : rows - 1;
        float fold1[1];
        {
          f32 *const parts_row = ((f32 *)p2) + (long long)read1 * 32;
          const float parts_sum = row_sum(parts_row, 32);
          const float rms_scale = inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f));
          if (threadIdx.x % 32 == 0) {
            (fold1)[0] = rms_scale;
          }
        }
        const int read2 = row0 + local + 2 < rows ? row0 + local + 2 : rows - 1;
        float fold2[1];
        {
          f32 *const parts_row = ((f32 *)p2) + (long long)read2 * 32;
          const float parts_sum = row_sum(parts_row, 32);
          const float rms_scale = inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f));
          if (threadIdx.x % 32 == 0) {
            (fold2)[0] = rms_scale;
          }
        }
        const int read3 = row0 + local + 3 < rows ? row0 + local + 3 : rows - 1;
        float fold3[1];
        {
          f32 *const parts_row = ((f32 *)p2) + (long long)read3 * 32;
          const float parts_sum = row_sum(parts_row, 32);
          const float rms_scale = inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f));
          if (threadIdx.x % 32 == 0) {
            (fold3)[0] = rms_scale;
          }
        }
        const int read4 = row0 + local + 4 < rows ? row0 + local + 4 : rows - 1;
        float fold4[1];
        {
          f32 *const parts_row = ((f32 *)p2) + (long long)read4 * 32;
          const float parts_sum = row_sum(parts_row, 32);
          const float rms_scale = inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f));
          if (threadIdx.x % 32 == 0) {
            (fold4)[0] = rms_scale;
          }
        }
        const int read5 = row0 + local + 5 < rows ? row0 + local + 5 : rows - 1;
        float fold5[1];
        {
          f32 *const parts_row = ((f32 *)p2) + (long long)read5 * 32;
          const float parts_sum = row_sum(parts_row, 32);
          const float rms_scale = inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f));
          if (threadIdx.x % 32 == 0) {
            (fold5)[0] = rms_scale;
          }
        }
        const int read6 = row0 + local + 6 < rows ? row0 + local + 6 : rows - 1;
        float fold6[1];
        {
          f32 *const parts_row = ((f32 *)p2) + (long long)read6 * 32;
          const float parts_sum = row_sum(parts_row, 32);
          const float rms_scale = inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f));
          if (threadIdx.x % 32 == 0) {
            (fold6)[0] = rms_scale;
          }
        }
        const int read7 = row0 + local + 7 < rows ? row0 + local + 7 : rows - 1;
        float fold7[1];
        {
          f32 *const parts_row = ((f32 *)p2) + (long long)read7 * 32;
          const float parts_sum = row_sum(parts_row, 32);
          const float rms_scale = inverse_sqrt(add(div(parts_sum, 512.0f), 9.999999974752427e-7f));
          if (threadIdx.x % 32 == 0) {
            (fold7)[0] = rms_scale;
          }
        }
        if (threadIdx.x % 32 == 0) {
          if (local < 8) values[(local) * 1 + 0] = fold0[0];
          if (local + 1 < 8) values[(local + 1) * 1 + 0] = fold1[0];
          if (local + 2 < 8) values[(local + 2) * 1 + 0] = fold2[0];
          if (local + 3 < 8) values[(local + 3) * 1 + 0] = fold3[0];
          if (local + 4 < 8) values[(local + 4) * 1 + 0] = fold4[0];
          if (local + 5 < 8) values[(local + 5) * 1 + 0] = fold5[0];
          if (local + 6 < 8) values[(local + 6) * 1 + 0] = fold6[0];
          if (local + 7 < 8) values[(local + 7) * 1 + 0] = fold7[0];
        }
    }
  } else {
    const int group = 0;
    const unsigned long long base = 0x4000004000010000ull | ((unsigned long long)(shared & 0x3ffff) >> 4);
    float acc[1][16];
    unsigned stage = 0, phase = 0, before = 0;
    asm volatile("griddepcontrol.wait;" ::: "memory");
      for (int block = 0; block < 4; block++) {
        tw_bar_wait(full + 8 * stage, phase);
        const unsigned long long a = base + stage * 640, b = base + stage * 640 + 128 + group * 256;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < 8; k++) {
#pragma unroll
          for (int m = 0; m < 1; m++) tw_wgmma(acc[m], a + (k >> 2) * 64 + (k & 3) * 2, b + (k >> 2) * 256 + (k & 3) * 2,
              block | k);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (block > 0) { if (lane == 0) tw_bar_arrive(empty + 8 * before); }
        before = stage;
        if (++stage == 4) { stage = 0; phase ^= 1; }
      }
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
      for (int m = 0; m < 1; m++) {
#pragma unroll
        for (int i = 0; i < 16; i++) asm volatile("" : "+f"(acc[m][i]) :: "memory");
      }
    /* The products take the place of the ring, which all of these warps have read. */
    asm volatile("bar.sync %0, 128;" :: "r"(1) : "memory");
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int local = (warp & 3) * 16 + h * 8 + (lane >> 2);
      if (local < 8) {
#pragma unroll
        for (int g = 0; g < 4; g++)
          *(tw_f2 *)(products + local * 40 + group * 32 + 8 * g + 2 * (lane & 3)) =
              { acc[0][4 * g + 2 * h], acc[0][4 * g + 2 * h + 1] };
      }
    }
  }
  __syncthreads();
  const int self = tw_opaque(threadIdx.x), quad = self & 3;
  for (int unit = self >> 5; unit < 2; unit += 6) {
    const int i = unit % 1 * 8 + (self >> 2 & 7), j0 = unit / 1 * 16,
        row = row0 + i < rows ? row0 + i : rows - 1;
    {
      {
        bf16 *const gated_row = ((bf16 *)p3) + (long long)row * 512;
        const float rms_scale = ((values + i * 1))[0];
#pragma unroll
        for (int unit_ = 0; unit_ < 1; unit_++) {
          const int group_ = unit_ / 1 * 2 + unit_ % 1;
          const int column = ((column0 + j0)) / 2 + 8 * unit_ + 2 * quad;
          const float2 gate = mul(round_f20(float2{ products[i * 40 + j0 + 8 * (group_) + 2 * quad + 0], products[i * 40 + j0 + 8 * (group_) + 2 * quad + 1] }), rms_scale);
          const float2 silu = div_sigmoid(gate, add(1.0f, exp(neg(gate))));
          const float2 up = mul(round_f20(float2{ products[i * 40 + j0 + 8 * (group_ + 1) + 2 * quad + 0], products[i * 40 + j0 + 8 * (group_ + 1) + 2 * quad + 1] }), rms_scale);
          const float2 activated = mul(silu, up);
          if (row0 + i < rows) {
            store2(gated_row + column, activated);
          }
        }
      }
    }
  }
}

}  // namespace tw
