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
__device__ __forceinline__ void tw_put(unsigned at, unsigned x, unsigned y, unsigned z, unsigned w) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" :: "r"(at), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}
__device__ __forceinline__ void tw_take(unsigned at, unsigned *to) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]),
      "=r"(to[3]) : "r"(at) : "memory");
}
/* d[64 × 256] (+)= a[64 × 16]·b[256 × 16]ᵀ, operands in shared memory; `isAdded` 0 starts from zero. */
__device__ __forceinline__ void tw_wgmma(float (&d)[128], unsigned long long a, unsigned long long b,
    int isAdded) {
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
               "{ %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127 }, "
               "%128, %129, p, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
               : "l"(a), "l"(b), "r"(isAdded));
}

/* shared/quadTurn.cu */

/* shared/highBits.cu */

/* shared/sumsTake.cu */

/* shared/tiles2.cu */

extern "C" __global__ void __launch_bounds__(384, 1) k_gemm_ec4ae1d519d6ff36_60bdd2df(int T, int R, void *p0, void *p1, void *p2, void *p3, void *p4, void *p5, void *p6, const __grid_constant__ tw_map m0, const __grid_constant__ tw_map m1) {
  extern __shared__ __align__(1024) unsigned char tw_raw[];
  /*
   * 1024-byte alignment: the 128-byte swizzle goes by address bits. Stages, products that are handed over, barriers,
   * row values.
   */
  const unsigned shared = (tw_shared(tw_raw) + 1023u) & ~1023u;
  if (shared != tw_shared(tw_raw)) asm volatile("trap;");
  const unsigned full = shared + 229376, empty = full + 24;
  const unsigned handoffFull = full + 48, handoffEmpty = handoffFull + 8;
  const int thread = threadIdx.x, lane = thread & 31;
  unsigned rank = 0;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (thread == 0) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(&m0) : "memory");
    asm volatile("prefetch.tensormap [%0];" :: "l"(&m1) : "memory");
    for (int i = 0; i < 3; i++) {
      tw_bar_init(full + 8 * i, 1);
      tw_bar_init(empty + 8 * i, 16);
    }
    tw_bar_init(handoffFull, 8);
    tw_bar_init(handoffEmpty, 3);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  tw_cluster_arrive();
  tw_cluster_wait();
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");

  const int first = blockIdx.x / 2;
  /* Uniform for the compiler too, which then computes the places of wgmma's operands in uniform registers. */
  const int warpgroup = __shfl_sync(0xffffffffu, thread >> 7, 0);
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 120;");
    if (thread == 0) {
      unsigned stage = 0, phase = 0;
      bool isFirst = true;
      for (int tile = first; tile < tw_tiles(T); tile += tw_clusters()) {
        const tw_place place = tw_place_of(tile, T, (int)rank);
        const int row0 = place.row0, columnTile = place.columnTile;
        const tw_map *weight;
        int column0;
        { weight = &m1;
          column0 = (columnTile - 0) * 256; }
        int start = 0;
        if (isFirst) {
          /* Weights do not depend on the kernel before this one: they are on their way while it ends. */
          for (int i = 0; i < 3; i++) {
            tw_bar_expect(full + 8 * i, 49152);
            tw_load_box_all(shared + i * 49152 + 16384 + rank * 16384, weight, i * 64, column0 + (int)rank * 128, full + 8 * i, 3);
          }
          asm volatile("griddepcontrol.wait;" ::: "memory");
          for (int i = 0; i < 3; i++) { tw_load_box(shared + i * 49152, &m0, i * 64, row0, full + 8 * i); }
          start = 3;
          stage = 0;
          phase = 1;
          isFirst = false;
        }
        for (int block = start; block < 8; block++) {
          tw_bar_wait(empty + 8 * stage, phase ^ 1);
          tw_bar_expect(full + 8 * stage, 49152);
          tw_load_box(shared + stage * 49152, &m0, block * 64, row0, full + 8 * stage);
          tw_load_box_all(shared + stage * 49152 + 16384 + rank * 16384, weight, block * 64, column0 + (int)rank * 128, full + 8 * stage, 3);
          if (++stage == 3) { stage = 0; phase ^= 1; }
        }
      }
    }
    else if (thread >= 32) {
      /*
       * The producer's idle warps run the epilogue of a tile while consumers multiply the next. A warp takes row halves
       * (8 rows of a consumer warp's 16), every third.
       */
      asm volatile("griddepcontrol.wait;" ::: "memory");
      int sequence = 0;
      for (int tile = first; tile < tw_tiles(T); tile += tw_clusters(), sequence++) {
        const tw_place place = tw_place_of(tile, T, (int)rank);
        const bool isLast = tile + tw_clusters() >= tw_tiles(T);
        /* The last tile is its consumers' own. */
        if (isLast) break;
        const int unit0 = (thread >> 5) - 1, unitStep = 3, units = 16;
        tw_bar_wait(handoffFull, sequence & 1);
        const int columnTile = place.columnTile;
        {
#pragma unroll 1
          for (int unit = unit0; unit < units; unit += unitStep) {
            const int self = tw_thread(), local = unit * 8 + (self >> 2 & 7);
            const unsigned handoff = shared + 147456 + (unit >> 1) * 10240 + (unit & 1)
                * 512 + (self & 31) * 16;
            unsigned high_[32], low_[8];
            tw_take(handoff + 0, high_ + 0);
            tw_take(handoff + 1024, high_ + 4);
            tw_take(handoff + 2048, high_ + 8);
            tw_take(handoff + 3072, high_ + 12);
            tw_take(handoff + 4096, high_ + 16);
            tw_take(handoff + 5120, high_ + 20);
            tw_take(handoff + 6144, high_ + 24);
            tw_take(handoff + 7168, high_ + 28);
            tw_take(handoff + 8192, low_ + 0);
            tw_take(handoff + 9216, low_ + 4);
            const int own = place.row0 + local, row = own < T ? own : T - 1;
            const int isStored = own < T;
            /* Opaque: addresses of a whole row of columns would else be kept from one row to the next. */
            int place_ = columnTile - 0, quad = self & 3;
            asm volatile("" : "+r"(place_), "+r"(quad));
            const int column0 = place_ * 256;
              tw_sums s0_;
#pragma unroll
              for (int batch_ = 0; batch_ < 2; batch_++) {
                {
                  unsigned l0_[16];
#pragma unroll
                  for (int unit_ = 0; unit_ < 16; unit_ += 4) {
                    const int column_ = column0 + 8 * (batch_ * 16) + 8 * (unit_ + quad);
                    const uint4 words_ = *(const uint4 *)(((bf16 *)p2) + (long long)row * 512 + column_);
                    l0_[unit_ + 0] = words_.x;
                    l0_[unit_ + 1] = words_.y;
                    l0_[unit_ + 2] = words_.z;
                    l0_[unit_ + 3] = words_.w;
                  }
                  unsigned l1_[8];
#pragma unroll
                  for (int unit_ = 0; unit_ < 16; unit_ += 4) {
                    const int column_ = column0 + 8 * (batch_ * 16) + 8 * (unit_ + quad);
                    const uint2 words_ = *(const uint2 *)(((u8 *)p3) + (long long)row * 512 + column_);
                    l1_[unit_ / 2 + 0] = words_.x;
                    l1_[unit_ / 2 + 1] = words_.y;
                  }
#pragma unroll
                  for (int unit_ = 0; unit_ < 16; unit_ += 4) {
                    const uint4 words_ = tw_quad_turn(quad, l0_[unit_ + 0], l0_[unit_ + 1], l0_[unit_ + 2], l0_[unit_ + 3]);
                    l0_[unit_ + 0] = words_.x;
                    l0_[unit_ + 1] = words_.y;
                    l0_[unit_ + 2] = words_.z;
                    l0_[unit_ + 3] = words_.w;
                  }
#pragma unroll
                  for (int unit_ = 0; unit_ < 16; unit_ += 4) {
                    const uint2 words_ = tw_quad_turn_bytes(quad, l1_[unit_ / 2 + 0], l1_[unit_ / 2 + 1]);
                    l1_[unit_ / 2 + 0] = words_.x;
                    l1_[unit_ / 2 + 1] = words_.y;
                  }
                  unsigned w0_[8] = {};
                  unsigned w1_[16] = {};
                  {
#pragma unroll
                    for (int block_ = 0; block_ < 8; block_++) {
                      float es0 = 0.0f;
#pragma unroll
                      for (int unit_ = 2 * block_; unit_ < 2 * block_ + 2; unit_++) {
                        const int group_ = unit_;
                        const float ev0 = join_f24(__uint_as_float(l0_[group_] << 16), (l1_[(group_) / 2] >> (16 * ((group_) % 2) + 0) & 255u));
                        const float ev1 = join_f24(__uint_as_float(l0_[group_] & 0xffff0000u), (l1_[(group_) / 2] >> (16 * ((group_) % 2) + 8) & 255u));
                        const float ev2 = round_f20(tw_product_of(high_[batch_ * 16 + group_], low_[(batch_ * 16 + group_) / 4], (batch_ * 16 + group_) % 4, 0));
                        const float ev3 = round_f20(tw_product_of(high_[batch_ * 16 + group_], low_[(batch_ * 16 + group_) / 4], (batch_ * 16 + group_) % 4, 1));
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
                      tw_sums_take(s0_, (batch_ * 16) / 2 + block_, es0, quad);
                      if (((batch_ * 16) / 2 + block_) % 4 == 3 && isStored) (((f32 *)p6))[(long long)row * 32 + column0 / 16 + ((batch_ * 16) / 2 + block_) - 3 + quad] = s0_.whole;
                    }
                  }
#pragma unroll
                  for (int unit_ = 0; unit_ < 16; unit_ += 4) {
                    const uint2 words_ = tw_quad_turn_bytes(quad, w0_[unit_ / 2 + 0], w0_[unit_ / 2 + 1]);
                    const int column = column0 + 8 * (batch_ * 16) + 8 * (unit_ + quad);
                    tw_store_words(((u8 *)p4) + (long long)row * 512 + column, words_, isStored);
                  }
#pragma unroll
                  for (int unit_ = 0; unit_ < 16; unit_ += 4) {
                    const uint4 words_ = tw_quad_turn(quad, w1_[unit_ + 0], w1_[unit_ + 1], w1_[unit_ + 2], w1_[unit_ + 3]);
                    const int column = column0 + 8 * (batch_ * 16) + 8 * (unit_ + quad);
                    tw_store_words(((bf16 *)p5) + (long long)row * 512 + column, words_, isStored);
                  }
                }
              }
          }
        }
        __syncwarp();
        if (lane == 0) tw_bar_arrive(handoffEmpty);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 192;");

    const int consumer = warpgroup - 1;
    const unsigned long long base = 0x4000004000010000ull | ((unsigned long long)(shared & 0x3ffff) >> 4);
    float acc[1][128];
    asm volatile("griddepcontrol.wait;" ::: "memory");
    int sequence = 0;
    for (int tile = first; tile < tw_tiles(T); tile += tw_clusters(), sequence++) {
      unsigned stage = (unsigned)(sequence * 8) % 3,
          phase = ((unsigned)(sequence * 8) / 3) & 1, before = 0;
      for (int block = 0; block < 8; block++) {
        tw_bar_wait(full + 8 * stage, phase);
        const unsigned long long a = base + stage * 3072 + consumer
            * 512, b = base + stage * 3072 + 1024;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < 4; k++) {
#pragma unroll
          for (int m = 0; m < 1; m++) tw_wgmma(acc[m], a + 2 * k, b + 2 * k,
              block | k);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (block > 0) { if (lane < 2) tw_bar_arrive_at(empty + 8 * before, lane); }
        before = stage;
        if (++stage == 3) { stage = 0; phase ^= 1; }
      }
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
      for (int m = 0; m < 1; m++) {
#pragma unroll
        for (int i = 0; i < 128; i++) asm volatile("" : "+f"(acc[m][i]) :: "memory");
      }
      { if (lane < 2) tw_bar_arrive_at(empty + 8 * before, lane); }
      /* The block's last: its products stay where they are. */
      if (tile + tw_clusters() >= tw_tiles(T)) break;
      tw_bar_wait(handoffEmpty, (sequence & 1) ^ 1);
      {
        const unsigned handoff = shared + 147456 + ((tw_thread() >> 5) - 4) * 10240
            + (tw_thread() & 31) * 16;
        tw_put(handoff + 0, tw_high(acc[0][0], acc[0][1]), tw_high(acc[0][4], acc[0][5]), tw_high(acc[0][8], acc[0][9]), tw_high(acc[0][12], acc[0][13]));
        tw_put(handoff + 1024, tw_high(acc[0][16], acc[0][17]), tw_high(acc[0][20], acc[0][21]), tw_high(acc[0][24], acc[0][25]), tw_high(acc[0][28], acc[0][29]));
        tw_put(handoff + 2048, tw_high(acc[0][32], acc[0][33]), tw_high(acc[0][36], acc[0][37]), tw_high(acc[0][40], acc[0][41]), tw_high(acc[0][44], acc[0][45]));
        tw_put(handoff + 3072, tw_high(acc[0][48], acc[0][49]), tw_high(acc[0][52], acc[0][53]), tw_high(acc[0][56], acc[0][57]), tw_high(acc[0][60], acc[0][61]));
        tw_put(handoff + 8192, tw_low(acc[0][0], acc[0][1], acc[0][4], acc[0][5], acc[0][8], acc[0][9], acc[0][12], acc[0][13]), tw_low(acc[0][16], acc[0][17], acc[0][20], acc[0][21], acc[0][24], acc[0][25], acc[0][28], acc[0][29]), tw_low(acc[0][32], acc[0][33], acc[0][36], acc[0][37], acc[0][40], acc[0][41], acc[0][44], acc[0][45]), tw_low(acc[0][48], acc[0][49], acc[0][52], acc[0][53], acc[0][56], acc[0][57], acc[0][60], acc[0][61]));
        tw_put(handoff + 512, tw_high(acc[0][2], acc[0][3]), tw_high(acc[0][6], acc[0][7]), tw_high(acc[0][10], acc[0][11]), tw_high(acc[0][14], acc[0][15]));
        tw_put(handoff + 1536, tw_high(acc[0][18], acc[0][19]), tw_high(acc[0][22], acc[0][23]), tw_high(acc[0][26], acc[0][27]), tw_high(acc[0][30], acc[0][31]));
        tw_put(handoff + 2560, tw_high(acc[0][34], acc[0][35]), tw_high(acc[0][38], acc[0][39]), tw_high(acc[0][42], acc[0][43]), tw_high(acc[0][46], acc[0][47]));
        tw_put(handoff + 3584, tw_high(acc[0][50], acc[0][51]), tw_high(acc[0][54], acc[0][55]), tw_high(acc[0][58], acc[0][59]), tw_high(acc[0][62], acc[0][63]));
        tw_put(handoff + 8704, tw_low(acc[0][2], acc[0][3], acc[0][6], acc[0][7], acc[0][10], acc[0][11], acc[0][14], acc[0][15]), tw_low(acc[0][18], acc[0][19], acc[0][22], acc[0][23], acc[0][26], acc[0][27], acc[0][30], acc[0][31]), tw_low(acc[0][34], acc[0][35], acc[0][38], acc[0][39], acc[0][42], acc[0][43], acc[0][46], acc[0][47]), tw_low(acc[0][50], acc[0][51], acc[0][54], acc[0][55], acc[0][58], acc[0][59], acc[0][62], acc[0][63]));
        tw_put(handoff + 4096, tw_high(acc[0][64], acc[0][65]), tw_high(acc[0][68], acc[0][69]), tw_high(acc[0][72], acc[0][73]), tw_high(acc[0][76], acc[0][77]));
        tw_put(handoff + 5120, tw_high(acc[0][80], acc[0][81]), tw_high(acc[0][84], acc[0][85]), tw_high(acc[0][88], acc[0][89]), tw_high(acc[0][92], acc[0][93]));
        tw_put(handoff + 6144, tw_high(acc[0][96], acc[0][97]), tw_high(acc[0][100], acc[0][101]), tw_high(acc[0][104], acc[0][105]), tw_high(acc[0][108], acc[0][109]));
        tw_put(handoff + 7168, tw_high(acc[0][112], acc[0][113]), tw_high(acc[0][116], acc[0][117]), tw_high(acc[0][120], acc[0][121]), tw_high(acc[0][124], acc[0][125]));
        tw_put(handoff + 9216, tw_low(acc[0][64], acc[0][65], acc[0][68], acc[0][69], acc[0][72], acc[0][73], acc[0][76], acc[0][77]), tw_low(acc[0][80], acc[0][81], acc[0][84], acc[0][85], acc[0][88], acc[0][89], acc[0][92], acc[0][93]), tw_low(acc[0][96], acc[0][97], acc[0][100], acc[0][101], acc[0][104], acc[0][105], acc[0][108], acc[0][109]), tw_low(acc[0][112], acc[0][113], acc[0][116], acc[0][117], acc[0][120], acc[0][121], acc[0][124], acc[0][125]));
        tw_put(handoff + 4608, tw_high(acc[0][66], acc[0][67]), tw_high(acc[0][70], acc[0][71]), tw_high(acc[0][74], acc[0][75]), tw_high(acc[0][78], acc[0][79]));
        tw_put(handoff + 5632, tw_high(acc[0][82], acc[0][83]), tw_high(acc[0][86], acc[0][87]), tw_high(acc[0][90], acc[0][91]), tw_high(acc[0][94], acc[0][95]));
        tw_put(handoff + 6656, tw_high(acc[0][98], acc[0][99]), tw_high(acc[0][102], acc[0][103]), tw_high(acc[0][106], acc[0][107]), tw_high(acc[0][110], acc[0][111]));
        tw_put(handoff + 7680, tw_high(acc[0][114], acc[0][115]), tw_high(acc[0][118], acc[0][119]), tw_high(acc[0][122], acc[0][123]), tw_high(acc[0][126], acc[0][127]));
        tw_put(handoff + 9728, tw_low(acc[0][66], acc[0][67], acc[0][70], acc[0][71], acc[0][74], acc[0][75], acc[0][78], acc[0][79]), tw_low(acc[0][82], acc[0][83], acc[0][86], acc[0][87], acc[0][90], acc[0][91], acc[0][94], acc[0][95]), tw_low(acc[0][98], acc[0][99], acc[0][102], acc[0][103], acc[0][106], acc[0][107], acc[0][110], acc[0][111]), tw_low(acc[0][114], acc[0][115], acc[0][118], acc[0][119], acc[0][122], acc[0][123], acc[0][126], acc[0][127]));
      }
      __syncwarp();
      if ((tw_thread() & 31) == 0) tw_bar_arrive(handoffFull);
    }
    /*
     * Nothing is left to multiply, and nobody fills the ring any more: once both warpgroups are done with it, the last
     * products go there, and all consumer warps take rows of them.
     */
    if ((int)blockIdx.x / 2 < tw_tiles(T)) {
      __syncwarp();
      asm volatile("bar.sync %0, 256;" :: "r"(3) : "memory");
      const int group = (tw_thread() >> 7) - 1, inGroup = tw_thread() & 127;
      {
        const unsigned to = shared + ((group * 64 + (inGroup >> 5) * 16
            + (inGroup >> 2 & 7)) * 264 + 2 * (inGroup & 3)) * 4;
#pragma unroll
        for (int m = 0; m < 1; m++) {
#pragma unroll
          for (int i = 0; i < 128; i += 2) tw_put_pair(to + ((m * 64 + i / 2 % 2 * 8) * 264 + 8
              * (i / 4)) * 4, acc[m][i], acc[m][i + 1]);
        }
      }
      const int lane = tw_thread() & 31, warp = (tw_thread() >> 5) - 4;
      int at = 0, rows = T;
      asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(at));
      const int own = blockIdx.x / 2, clusters = tw_clusters(),
          sequence = (tw_tiles(T) - 1 - own) / clusters;
      const tw_place place = tw_place_of(own + sequence * clusters, rows, at);
      const int first = place.columnTile * 256 + 8 * lane;
      const bool isMine = lane < 32 && first < 512;
#pragma unroll 1
      for (int turn = 0; turn < 2; turn++) {
        const int local0 = turn * 64 + warp;
        unsigned l0_[8][4];
        unsigned l1_[8][2];
#pragma unroll
        for (int i = 0; i < 8; i++) {
          const int row = tw_least(place.row0 + local0 + 8 * i, rows - 1);
          if (isMine) {
            { const tw_u4 x = ((const tw_u4 *)(((bf16 *)p2) + (long long)row * 512 + first))[0]; l0_[i][0] = x.x; l0_[i][1] = x.y; l0_[i][2] = x.z; l0_[i][3] = x.w; }
            { const tw_u2 x = ((const tw_u2 *)(((u8 *)p3) + (long long)row * 512 + first))[0]; l1_[i][0] = x.x; l1_[i][1] = x.y; }
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
          tw_take_eight(shared + (local * 264 + 8 * lane) * 4, x_);
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
            ((tw_u2 *)(((u8 *)p4) + (long long)row * 512 + first))[0] = { w0_[0], w0_[1] };
            ((tw_u4 *)(((bf16 *)p5) + (long long)row * 512 + first))[0] = { w1_[0], w1_[1], w1_[2], w1_[3] };
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
