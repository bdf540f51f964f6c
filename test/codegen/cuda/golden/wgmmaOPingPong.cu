/* Hopper contraction: a producer warp fills a ring of shared-memory stages by TMA, two consumer warpgroups multiply. */
__device__ __forceinline__ unsigned tw_shared(const void *p) {
  unsigned a;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
  return a;
}
__device__ __forceinline__ void tw_bar_init(unsigned bar, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}
/* Arrives, and lets the barrier wait for so many bytes of boxes. */
__device__ __forceinline__ void tw_bar_expect(unsigned bar, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void tw_bar_arrive(unsigned bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}
__device__ __forceinline__ void tw_bar_wait(unsigned bar, unsigned parity) {
  asm volatile("{ .reg .pred p;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               "@p bra DONE;\nbra AGAIN;\nDONE: }" :: "r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void tw_load_box(unsigned to, const tw_map *map, int column, int row, unsigned bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               :: "r"(to), "l"(map), "r"(column), "r"(row), "r"(bar) : "memory");
}
/* Arrives at the barrier of the same place in block `rank` of the cluster. */
__device__ __forceinline__ void tw_bar_arrive_at(unsigned bar, unsigned rank) {
  asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [a]; }" ::
      "r"(bar), "r"(rank) : "memory");
}
/* A barrier of all threads of a cluster in two halves: what a thread wrote before it arrived is there after a wait. */
__device__ __forceinline__ void tw_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void tw_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/* One copy from L2 lands in several blocks of the cluster, and counts at their barriers. */
__device__ __forceinline__ void tw_load_box_all(unsigned to, const tw_map *map, int column, int row, unsigned bar,
    unsigned short blocks) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%2, %3}], [%4], %5;"
               :: "r"(to), "l"(map), "r"(column), "r"(row), "r"(bar), "h"(blocks) : "memory");
}
/* As one instruction: compilers split some of them into words. */
__device__ __forceinline__ void tw_store_words(void *to, const tw_u4 &x, int isStored) {
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p st.global.v4.b32 [%0], {%1, %2, %3, %4}; }" :: "l"(to),
      "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(isStored) : "memory");
}
__device__ __forceinline__ void tw_store_words(void *to, const tw_u2 &x, int isStored) {
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %3, 0;\n@p st.global.v2.b32 [%0], {%1, %2}; }" :: "l"(to), "r"(x.x),
      "r"(x.y), "r"(isStored) : "memory");
}
__device__ __forceinline__ void tw_put_pair(unsigned at, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(at), "f"(x), "f"(y) : "memory");
}
__device__ __forceinline__ void tw_take_eight(unsigned at, float *to) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]),
      "=f"(to[3]) : "r"(at) : "memory");
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4 + 16];" : "=f"(to[4]), "=f"(to[5]), "=f"(to[6]),
      "=f"(to[7]) : "r"(at) : "memory");
}
/* d[64 × 208] (+)= a[64 × 16]·b[208 × 16]ᵀ, operands in shared memory; `isAdded` 0 starts from zero. */
__device__ __forceinline__ void tw_wgmma(float (&d)[104], unsigned long long a, unsigned long long b,
    int isAdded) {
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %106, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n208k16.f32.bf16.bf16 "
               "{ %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103 }, "
               "%104, %105, p, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
               : "l"(a), "l"(b), "r"(isAdded));
}

/* shared/quadTurn.cu */

/* shared/sumsTake.cu */

/* shared/tiles2.cu */

extern "C" __global__ void __launch_bounds__(384, 1) k_gemm_a4db638507e4decd_9e283424(int T, int R, void *p0, void *p1, void *p2, void *p3, void *p4, void *p5, void *p6, const __grid_constant__ tw_map m0, const __grid_constant__ tw_map m1) {
  extern __shared__ unsigned char tw_raw[];
  /*
   * 1024-byte alignment: the 128-byte swizzle goes by address bits. Stages, products that are handed over, barriers,
   * row values.
   */
  const unsigned shared = (tw_shared(tw_raw) + 1023u) & ~1023u;
  const unsigned full = shared + 215040, empty = full + 40;
  const int thread = threadIdx.x, lane = thread & 31;
  unsigned rank = 0;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (thread == 0) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(&m0) : "memory");
    asm volatile("prefetch.tensormap [%0];" :: "l"(&m1) : "memory");
    for (int i = 0; i < 5; i++) {
      tw_bar_init(full + 8 * i, 1);
      tw_bar_init(empty + 8 * i, 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  tw_cluster_arrive();
  tw_cluster_wait();
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");

  const int first = blockIdx.x / 2;
  const int warpgroup = thread >> 7;
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (thread == 0) {
      unsigned stage = 0, phase = 0;
      bool isFirst = true;
      for (int tile = first; tile < tw_tiles(T); tile += tw_clusters()) {
        const tw_place place = tw_place_of(tile, T, (int)rank);
        const int row0 = place.row0, columnTile = place.columnTile;
        const tw_map *weight;
        int column0;
        { weight = &m1;
          column0 = (columnTile - 0) * 208; }
        int start = 0;
        if (isFirst) {
          /* Weights do not depend on the kernel before this one: they are on their way while it ends. */
          for (int i = 0; i < 5; i++) {
            tw_bar_expect(full + 8 * i, 43008);
            tw_load_box_all(shared + i * 43008 + 16384 + rank * 13312, weight, i * 64, column0 + (int)rank * 104, full + 8 * i, 3);
          }
          asm volatile("griddepcontrol.wait;" ::: "memory");
          for (int i = 0; i < 5; i++) { tw_load_box(shared + i * 43008, &m0, i * 64, row0, full + 8 * i); }
          start = 5;
          stage = 0;
          phase = 1;
          isFirst = false;
        }
        for (int block = start; block < 7; block++) {
          tw_bar_wait(empty + 8 * stage, phase ^ 1);
          tw_bar_expect(full + 8 * stage, 43008);
          tw_load_box(shared + stage * 43008, &m0, block * 64, row0, full + 8 * stage);
          tw_load_box_all(shared + stage * 43008 + 16384 + rank * 13312, weight, block * 64, column0 + (int)rank * 104, full + 8 * stage, 3);
          if (++stage == 5) { stage = 0; phase ^= 1; }
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const unsigned long long base = 0x4000004000010000ull | ((unsigned long long)(shared & 0x3ffff) >> 4);
    float acc[2][104];
    asm volatile("griddepcontrol.wait;" ::: "memory");
    int sequence = warpgroup - 1;
    for (int tile = first + sequence * tw_clusters(); tile < tw_tiles(T);
         tile += 2 * tw_clusters(), sequence += 2) {
      unsigned stage = (unsigned)(sequence * 7) % 5,
          phase = ((unsigned)(sequence * 7) / 5) & 1, before = 0;
      /* Parity tells neighbouring phases apart only: wait until the other warpgroup has seen all of its stages. */
      if (sequence > 0) asm volatile("bar.sync %0, 256;" :: "r"(tw_thread() >> 7) : "memory");
      for (int block = 0; block < 7; block++) {
        tw_bar_wait(full + 8 * stage, phase);
        const unsigned long long a = base + stage * 2688, b = base + stage * 2688 + 1024;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < 4; k++) {
#pragma unroll
          for (int m = 0; m < 2; m++) tw_wgmma(acc[m], a + 2 * k + m * 512, b + 2 * k,
              block | k);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (block > 0) { if (lane < 2) tw_bar_arrive_at(empty + 8 * before, lane); }
        before = stage;
        if (++stage == 5) { stage = 0; phase ^= 1; }
      }
      if (tile + tw_clusters() < tw_tiles(T))
        asm volatile("bar.arrive %0, 256;" :: "r"(3 - (tw_thread() >> 7)) : "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
      for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int i = 0; i < 104; i++) asm volatile("" : "+f"(acc[m][i]) :: "memory");
      }
      { if (lane < 2) tw_bar_arrive_at(empty + 8 * before, lane); }
      /* The block's last: its products stay where they are. */
      if (tile + tw_clusters() >= tw_tiles(T)) break;
      {
        /* Read again rather than kept through the main loop, which needs the registers. */
        const int self = tw_thread();
        int rows = T, at = 0;
        asm volatile("" : "+r"(rows));
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(at));
        const tw_place place = tw_place_of(tile, rows, at);
        const int columnTile = place.columnTile;
        const int local0 = (self >> 5 & 3) * 16 + (self >> 2 & 7);
        {
#pragma unroll
          for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
              const int local = local0 + m * 64 + h * 8, own = place.row0 + local, row = own < rows ? own : rows - 1;
              const int isStored = own < rows;
              /* Opaque: addresses of a whole row of columns would else be kept from one row to the next. */
              int place_ = columnTile - 0, quad = self & 3;
              asm volatile("" : "+r"(place_), "+r"(quad));
              const int column0 = place_ * 208;
#pragma unroll
              for (int batch_ = 0; batch_ < 6; batch_++) {
                {
                  unsigned l0_[4];
#pragma unroll
                  for (int unit_ = 0; unit_ < 4; unit_ += 4) {
                    const int column_ = column0 + 8 * (batch_ * 4) + 8 * (unit_ + quad);
                    const uint4 words_ = *(const uint4 *)(((bf16 *)p2) + (long long)row * 416 + column_);
                    l0_[unit_ + 0] = words_.x;
                    l0_[unit_ + 1] = words_.y;
                    l0_[unit_ + 2] = words_.z;
                    l0_[unit_ + 3] = words_.w;
                  }
                  unsigned l1_[2];
#pragma unroll
                  for (int unit_ = 0; unit_ < 4; unit_ += 4) {
                    const int column_ = column0 + 8 * (batch_ * 4) + 8 * (unit_ + quad);
                    const uint2 words_ = *(const uint2 *)(((u8 *)p3) + (long long)row * 416 + column_);
                    l1_[unit_ / 2 + 0] = words_.x;
                    l1_[unit_ / 2 + 1] = words_.y;
                  }
#pragma unroll
                  for (int unit_ = 0; unit_ < 4; unit_ += 4) {
                    const uint4 words_ = tw_quad_turn(quad, l0_[unit_ + 0], l0_[unit_ + 1], l0_[unit_ + 2], l0_[unit_ + 3]);
                    l0_[unit_ + 0] = words_.x;
                    l0_[unit_ + 1] = words_.y;
                    l0_[unit_ + 2] = words_.z;
                    l0_[unit_ + 3] = words_.w;
                  }
#pragma unroll
                  for (int unit_ = 0; unit_ < 4; unit_ += 4) {
                    const uint2 words_ = tw_quad_turn_bytes(quad, l1_[unit_ / 2 + 0], l1_[unit_ / 2 + 1]);
                    l1_[unit_ / 2 + 0] = words_.x;
                    l1_[unit_ / 2 + 1] = words_.y;
                  }
                  unsigned w0_[2] = {};
                  unsigned w1_[4] = {};
                  {
                    f32 * const er0 = ((f32 *)p6) + (long long)(row) * 32;
#pragma unroll
                    for (int block_ = 0; block_ < 2; block_++) {
                      float es0 = 0.0f;
#pragma unroll
                      for (int unit_ = 2 * block_; unit_ < 2 * block_ + 2; unit_++) {
                        const int group_ = unit_;
                        const float ev0 = join_f24(__uint_as_float(l0_[group_] << 16), (l1_[(group_) / 2] >> (16 * ((group_) % 2) + 0) & 255u));
                        const float ev1 = join_f24(__uint_as_float(l0_[group_] & 0xffff0000u), (l1_[(group_) / 2] >> (16 * ((group_) % 2) + 8) & 255u));
                        const float ev2 = round_f20(acc[m][4 * (batch_ * 4 + group_) + 2 * h + 0]);
                        const float ev3 = round_f20(acc[m][4 * (batch_ * 4 + group_) + 2 * h + 1]);
                        const float ev4 = add(ev0, ev2);
                        const float ev5 = add(ev1, ev3);
                        const unsigned ev6 = tail_f24(ev4);
                        const unsigned ev7 = tail_f24(ev5);
                        const float ev8 = round_f24(ev4);
                        const float ev9 = round_f24(ev5);
                        const float ev10 = mul(ev4, ev4);
                        const float ev11 = mul(ev5, ev5);
                        es0 = add(es0, ev10);
                        es0 = add(es0, ev11);
                        w0_[(unit_) / 2] |= (ev6 | ev7 << 8) << 16 * ((unit_) % 2);
                        w1_[unit_] = pack<bf16>(ev8, ev9);
                      }
                      es0 = quad_sum(es0);
                      if (quad == 0 && isStored) {
                        er0[((column0 + 8 * (batch_ * 4)) + 16 * block_) / 16] = es0;
                      }
                    }
                  }
#pragma unroll
                  for (int unit_ = 0; unit_ < 4; unit_ += 4) {
                    const uint2 words_ = tw_quad_turn_bytes(quad, w0_[unit_ / 2 + 0], w0_[unit_ / 2 + 1]);
                    const int column = column0 + 8 * (batch_ * 4) + 8 * (unit_ + quad);
                    if (isStored) tw_store_words(((u8 *)p4) + (long long)row * 416 + column, words_, 1);
                  }
#pragma unroll
                  for (int unit_ = 0; unit_ < 4; unit_ += 4) {
                    const uint4 words_ = tw_quad_turn(quad, w1_[unit_ + 0], w1_[unit_ + 1], w1_[unit_ + 2], w1_[unit_ + 3]);
                    const int column = column0 + 8 * (batch_ * 4) + 8 * (unit_ + quad);
                    if (isStored) tw_store_words(((bf16 *)p5) + (long long)row * 416 + column, words_, 1);
                  }
                }
              }
              {
                unsigned l0_[4];
#pragma unroll
                for (int unit_ = 0; unit_ < 2; unit_ += 4) {
                  const int column_ = column0 + 8 * (24) + 8 * (unit_ + quad);
                  const uint4 words_ = unit_ + quad >= 2 ? uint4{} : *(const uint4 *)(((bf16 *)p2) + (long long)row * 416 + column_);
                  l0_[unit_ + 0] = words_.x;
                  l0_[unit_ + 1] = words_.y;
                  l0_[unit_ + 2] = words_.z;
                  l0_[unit_ + 3] = words_.w;
                }
                unsigned l1_[2];
#pragma unroll
                for (int unit_ = 0; unit_ < 2; unit_ += 4) {
                  const int column_ = column0 + 8 * (24) + 8 * (unit_ + quad);
                  const uint2 words_ = unit_ + quad >= 2 ? uint2{} : *(const uint2 *)(((u8 *)p3) + (long long)row * 416 + column_);
                  l1_[unit_ / 2 + 0] = words_.x;
                  l1_[unit_ / 2 + 1] = words_.y;
                }
#pragma unroll
                for (int unit_ = 0; unit_ < 2; unit_ += 4) {
                  const uint4 words_ = tw_quad_turn(quad, l0_[unit_ + 0], l0_[unit_ + 1], l0_[unit_ + 2], l0_[unit_ + 3]);
                  l0_[unit_ + 0] = words_.x;
                  l0_[unit_ + 1] = words_.y;
                  l0_[unit_ + 2] = words_.z;
                  l0_[unit_ + 3] = words_.w;
                }
#pragma unroll
                for (int unit_ = 0; unit_ < 2; unit_ += 4) {
                  const uint2 words_ = tw_quad_turn_bytes(quad, l1_[unit_ / 2 + 0], l1_[unit_ / 2 + 1]);
                  l1_[unit_ / 2 + 0] = words_.x;
                  l1_[unit_ / 2 + 1] = words_.y;
                }
                unsigned w0_[2] = {};
                unsigned w1_[4] = {};
                {
                  f32 * const er0 = ((f32 *)p6) + (long long)(row) * 32;
#pragma unroll
                  for (int block_ = 0; block_ < 1; block_++) {
                    float es0 = 0.0f;
#pragma unroll
                    for (int unit_ = 2 * block_; unit_ < 2 * block_ + 2; unit_++) {
                      const int group_ = unit_;
                      const float ev0 = join_f24(__uint_as_float(l0_[group_] << 16), (l1_[(group_) / 2] >> (16 * ((group_) % 2) + 0) & 255u));
                      const float ev1 = join_f24(__uint_as_float(l0_[group_] & 0xffff0000u), (l1_[(group_) / 2] >> (16 * ((group_) % 2) + 8) & 255u));
                      const float ev2 = round_f20(acc[m][4 * (24 + group_) + 2 * h + 0]);
                      const float ev3 = round_f20(acc[m][4 * (24 + group_) + 2 * h + 1]);
                      const float ev4 = add(ev0, ev2);
                      const float ev5 = add(ev1, ev3);
                      const unsigned ev6 = tail_f24(ev4);
                      const unsigned ev7 = tail_f24(ev5);
                      const float ev8 = round_f24(ev4);
                      const float ev9 = round_f24(ev5);
                      const float ev10 = mul(ev4, ev4);
                      const float ev11 = mul(ev5, ev5);
                      es0 = add(es0, ev10);
                      es0 = add(es0, ev11);
                      w0_[(unit_) / 2] |= (ev6 | ev7 << 8) << 16 * ((unit_) % 2);
                      w1_[unit_] = pack<bf16>(ev8, ev9);
                    }
                    es0 = quad_sum(es0);
                    if (quad == 0 && isStored) {
                      er0[((column0 + 8 * (24)) + 16 * block_) / 16] = es0;
                    }
                  }
                }
#pragma unroll
                for (int unit_ = 0; unit_ < 2; unit_ += 4) {
                  const uint2 words_ = tw_quad_turn_bytes(quad, w0_[unit_ / 2 + 0], w0_[unit_ / 2 + 1]);
                  const int column = column0 + 8 * (24) + 8 * (unit_ + quad);
                  if (isStored && unit_ + quad < 2) tw_store_words(((u8 *)p4) + (long long)row * 416 + column, words_, 1);
                }
#pragma unroll
                for (int unit_ = 0; unit_ < 2; unit_ += 4) {
                  const uint4 words_ = tw_quad_turn(quad, w1_[unit_ + 0], w1_[unit_ + 1], w1_[unit_ + 2], w1_[unit_ + 3]);
                  const int column = column0 + 8 * (24) + 8 * (unit_ + quad);
                  if (isStored && unit_ + quad < 2) tw_store_words(((bf16 *)p5) + (long long)row * 416 + column, words_, 1);
                }
              }
            }
          }
        }
      }
    }
    /*
     * Nothing is left to multiply, and nobody fills the ring any more: once both warpgroups are done with it, the last
     * products go there, and all consumer warps take rows of them.
     */
    if ((int)blockIdx.x / 2 < tw_tiles(T)) {
      __syncwarp();
      asm volatile("bar.sync %0, 256;" :: "r"(3) : "memory");
      const int group = (tw_thread() >> 7) - 1, inGroup = tw_thread() & 127;
      /* The warpgroup that multiplied last. */
      if (((tw_tiles(T) - 1 - (int)blockIdx.x / 2) / tw_clusters() & 1) == group)
      {
        const unsigned to = shared + (((inGroup >> 5) * 16
            + (inGroup >> 2 & 7)) * 216 + 2 * (inGroup & 3)) * 4;
#pragma unroll
        for (int m = 0; m < 2; m++) {
#pragma unroll
          for (int i = 0; i < 104; i += 2) tw_put_pair(to + ((m * 64 + i / 2 % 2 * 8) * 216 + 8
              * (i / 4)) * 4, acc[m][i], acc[m][i + 1]);
        }
      }
      const int lane = tw_thread() & 31, warp = (tw_thread() >> 5) - 4;
      int at = 0, rows = T;
      asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(at));
      const int own = blockIdx.x / 2, clusters = tw_clusters(),
          sequence = (tw_tiles(T) - 1 - own) / clusters;
      const tw_place place = tw_place_of(own + sequence * clusters, rows, at);
      const int first = place.columnTile * 208 + 8 * lane;
      const bool isMine = lane < 26 && first < 416;
#pragma unroll 1
      for (int turn = 0; turn < 2; turn++) {
        const int local0 = turn * 64 + warp;
        unsigned l0_[8][4];
        unsigned l1_[8][2];
#pragma unroll
        for (int i = 0; i < 8; i++) {
          const int row = tw_least(place.row0 + local0 + 8 * i, rows - 1);
          if (isMine) {
            { const tw_u4 x = ((const tw_u4 *)(((bf16 *)p2) + (long long)row * 416 + first))[0]; l0_[i][0] = x.x; l0_[i][1] = x.y; l0_[i][2] = x.z; l0_[i][3] = x.w; }
            { const tw_u2 x = ((const tw_u2 *)(((u8 *)p3) + (long long)row * 416 + first))[0]; l1_[i][0] = x.x; l1_[i][1] = x.y; }
          }
        }
        if (turn == 0) {
          __syncwarp();
          asm volatile("bar.sync %0, 256;" :: "r"(3) : "memory");
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
          const int local = local0 + 8 * i, row = place.row0 + local;
          const bool isStored = isMine && row < rows;
          float x_[8];
          tw_take_eight(shared + (local * 216 + 8 * lane) * 4, x_);
          unsigned w0_[2] = {};
          unsigned w1_[4] = {};
          float a0_[8];
#pragma unroll
          for (int pair_ = 0; pair_ < 4; pair_++) {
            const float v0 = join_f24(__uint_as_float(l0_[i][pair_] << 16), (l1_[i][(pair_) / 2] >> (16 * ((pair_) % 2) + 0) & 255u));
            const float v1 = join_f24(__uint_as_float(l0_[i][pair_] & 0xffff0000u), (l1_[i][(pair_) / 2] >> (16 * ((pair_) % 2) + 8) & 255u));
            const float v2 = round_f20(x_[2 * pair_ + 0]);
            const float v3 = round_f20(x_[2 * pair_ + 1]);
            const float v4 = add(v0, v2);
            const float v5 = add(v1, v3);
            const unsigned v6 = tail_f24(v4);
            const unsigned v7 = tail_f24(v5);
            const float v8 = round_f24(v4);
            const float v9 = round_f24(v5);
            const float v10 = mul(v4, v4);
            const float v11 = mul(v5, v5);
            w0_[(pair_) / 2] |= (v6 | v7 << 8) << 16 * ((pair_) % 2);
            w1_[pair_] = pack<bf16>(v8, v9);
            a0_[2 * pair_] = v10;
            a0_[2 * pair_ + 1] = v11;
          }
          tw_store_block_sum(((f32 *)p6) + (long long)row * 32 + first / 16, a0_, lane, isStored);
          if (isStored) {
            ((tw_u2 *)(((u8 *)p4) + (long long)row * 416 + first))[0] = { w0_[0], w0_[1] };
            ((tw_u4 *)(((bf16 *)p5) + (long long)row * 416 + first))[0] = { w1_[0], w1_[1], w1_[2], w1_[3] };
          }
        }
      }
    }
  }
  __syncwarp();
  /* A block's shared memory must outlive the copies and arrivals its neighbour sends. */
  tw_cluster_arrive();
  tw_cluster_wait();
}

}  // namespace tw
