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
/* d[64 × 96] (+)= a[64 × 16]·b[96 × 16]ᵀ, operands in shared memory; `isAdded` 0 starts from zero. */
__device__ __forceinline__ void tw_wgmma(float (&d)[48], unsigned long long a, unsigned long long b,
    int isAdded) {
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %50, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
               "{ %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47 }, "
               "%48, %49, p, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
               : "l"(a), "l"(b), "r"(isAdded));
}

/* shared/quadTurn2.cu */

/* shared/highBits.cu */

/*
 * Row sums over blocks of columns, of which each lane of a quad has a part: lane q ends up with block q of each four,
 * so that a quad stores 16 bytes that lie together. Added as tw_quad_sum adds. `block` is constant once loops are
 * unrolled.
 */
struct tw_sums { float first, half, whole; };
__device__ __forceinline__ void tw_sums_take(tw_sums &s, int block, float x, int quad) {
  if (block % 2 == 0) { s.first = x; return; }
  const bool isOdd = quad & 1, isUpper = quad & 2;
  x = (isOdd ? x : s.first) + __shfl_xor_sync(0xffffffffu, isOdd ? s.first : x, 1);
  if (block % 4 == 1) { s.half = x; return; }
  s.whole = (isUpper ? x : s.half) + __shfl_xor_sync(0xffffffffu, isUpper ? s.half : x, 2);
}
/*
 * Sum of a block of 16 columns, of which a lane has the first eight and its neighbour the others: added as fragments
 * add it (tw_quad_sum).
 */
__device__ __forceinline__ void tw_store_block_sum(float *to, const float *x, int lane, bool isStored) {
  float part[4];
#pragma unroll
  for (int t = 0; t < 4; t++) {
    const float first = tw_add(tw_add(0.0f, x[2 * t]), x[2 * t + 1]);
    part[t] = tw_add(tw_add(__shfl_xor_sync(0xffffffffu, first, 1), x[2 * t]), x[2 * t + 1]);
  }
  if ((lane & 1) && isStored) *to = tw_add(tw_add(part[0], part[1]), tw_add(part[2], part[3]));
}
__device__ __forceinline__ int tw_clusters() {
  int blocks;
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
  return blocks / 2;
}
/*
 * Where tile number `tile` lies: groups of 8 row tiles (of 256 rows) are walked column by column,
 * so that what all blocks read at a time stays in L2.
 */
struct tw_place { int row0, columnTile; };
__device__ __forceinline__ tw_place tw_place_of(int tile, int rows, int rank) {
  const int rowTiles = (rows + 255) / 256, group = tile / 24, inGroup = tile - group * 24;
  const int height = rowTiles - group * 8 < 8 ? rowTiles - group * 8 : 8,
      columnTile = inGroup / height;
  return { (group * 8 + inGroup - columnTile * height) * 256 + rank * 128,
      columnTile };
}

/* Computed again where needed: kept through the main loop they would cost registers that accumulators have. */
__device__ __forceinline__ int tw_tiles(int rows) {
  asm volatile("" : "+r"(rows));
  return (rows + 255) / 256 * 3;
}
__device__ __forceinline__ int tw_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

extern "C" __global__ void __launch_bounds__(384, 1) k_gemm_d783c17777fa2aa4_e0586304(int T, int R, void *p0, void *p1, void *p2, void *p3, void *p4, void *p5, const __grid_constant__ tw_map m0, const __grid_constant__ tw_map m1) {
  extern __shared__ __align__(1024) unsigned char tw_raw[];
  /*
   * 1024-byte alignment: the 128-byte swizzle goes by address bits. Stages, products that are handed over, barriers,
   * row values.
   */
  const unsigned shared = (tw_shared(tw_raw) + 1023u) & ~1023u;
  if (shared != tw_shared(tw_raw)) asm volatile("trap;");
  const unsigned full = shared + 118784, empty = full + 24;
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
          column0 = (columnTile - 0) * 96; }
        int start = 0;
        if (isFirst) {
          /* Weights do not depend on the kernel before this one: they are on their way while it ends. */
          for (int i = 0; i < 3; i++) {
            tw_bar_expect(full + 8 * i, 28672);
            tw_load_box_all(shared + i * 28672 + 16384 + rank * 6144, weight, i * 64, column0 + (int)rank * 48, full + 8 * i, 3);
          }
          asm volatile("griddepcontrol.wait;" ::: "memory");
          for (int i = 0; i < 3; i++) { tw_load_box(shared + i * 28672, &m0, i * 64, row0, full + 8 * i); }
          start = 3;
          stage = 0;
          phase = 1;
          isFirst = false;
        }
        for (int block = start; block < 9; block++) {
          tw_bar_wait(empty + 8 * stage, phase ^ 1);
          tw_bar_expect(full + 8 * stage, 28672);
          tw_load_box(shared + stage * 28672, &m0, block * 64, row0, full + 8 * stage);
          tw_load_box_all(shared + stage * 28672 + 16384 + rank * 6144, weight, block * 64, column0 + (int)rank * 48, full + 8 * stage, 3);
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
            const unsigned handoff = shared + 86016 + (unit >> 1) * 4096 + (unit & 1)
                * 512 + (self & 31) * 16;
            unsigned high_[12], low_[4];
            tw_take(handoff + 0, high_ + 0);
            tw_take(handoff + 1024, high_ + 4);
            tw_take(handoff + 2048, high_ + 8);
            tw_take(handoff + 3072, low_ + 0);
            const int own = place.row0 + local, row = own < T ? own : T - 1;
            const int isStored = own < T;
            /* Opaque: addresses of a whole row of columns would else be kept from one row to the next. */
            int place_ = columnTile - 0, quad = self & 3;
            asm volatile("" : "+r"(place_), "+r"(quad));
            const int column0 = place_ * 96;
              tw_sums s0_;
#pragma unroll
              for (int batch_ = 0; batch_ < 1; batch_++) {
                {
                  float2 l0_[8];
#pragma unroll
                  for (int group_ = 0; group_ < 8; group_++) {
                    const int column_ = column0 + 8 * (batch_ * 8) + 8 * group_ + 2 * quad;
                    l0_[group_] = column_ >= 256 ? float2{} : load2(((f32 *)p2) + (long long)row * 256 + column_);
                  }
                  unsigned w0_[8] = {};
                  {
                    f32 * const er0 = ((f32 *)p3) + (long long)(row) * 256;
#pragma unroll
                    for (int block_ = 0; block_ < 4; block_++) {
                      float es0 = 0.0f;
#pragma unroll
                      for (int unit_ = 2 * block_; unit_ < 2 * block_ + 2; unit_++) {
                        const int group_ = unit_;
                        const int column = (column0 + 8 * (batch_ * 8)) + 8 * group_ + 2 * quad;
                        if (column < 256) {
                          const float ev0 = round_f20(tw_product_of(high_[batch_ * 8 + group_], low_[(batch_ * 8 + group_) / 4], (batch_ * 8 + group_) % 4, 0));
                          const float ev1 = round_f20(tw_product_of(high_[batch_ * 8 + group_], low_[(batch_ * 8 + group_) / 4], (batch_ * 8 + group_) % 4, 1));
                          const float ev2 = add(l0_[group_].x, ev0);
                          const float ev3 = add(l0_[group_].y, ev1);
                          const float ev4 = mul(ev2, ev2);
                          const float ev5 = mul(ev3, ev3);
                          es0 = add(es0, ev4);
                          es0 = add(es0, ev5);
                          w0_[unit_] = pack<f16>(ev2, ev3);
                          if (isStored) {
                            store2(er0 + column, ev2, ev3);
                          }
                        }
                      }
                      tw_sums_take(s0_, (batch_ * 8) / 2 + block_, es0, quad);
                      if (((batch_ * 8) / 2 + block_) % 4 == 3 && isStored && (column0 / 16 + ((batch_ * 8) / 2 + block_) - 3 + quad) * 16 < 256) (((f32 *)p5))[(long long)row * 32 + column0 / 16 + ((batch_ * 8) / 2 + block_) - 3 + quad] = s0_.whole;
                    }
                  }
#pragma unroll
                  for (int unit_ = 0; unit_ < 8; unit_ += 4) {
                    const uint4 words_ = tw_quad_turn(quad, w0_[unit_ + 0], w0_[unit_ + 1], w0_[unit_ + 2], w0_[unit_ + 3]);
                    const int column = column0 + 8 * (batch_ * 8) + 8 * (unit_ + quad);
                    tw_store_words(((f16 *)p4) + (long long)row * 256 + column, words_, isStored && column < 256);
                  }
                }
              }
              {
                float2 l0_[4];
#pragma unroll
                for (int group_ = 0; group_ < 4; group_++) {
                  const int column_ = column0 + 8 * (8) + 8 * group_ + 2 * quad;
                  l0_[group_] = column_ >= 256 ? float2{} : load2(((f32 *)p2) + (long long)row * 256 + column_);
                }
                unsigned w0_[4] = {};
                {
                  f32 * const er0 = ((f32 *)p3) + (long long)(row) * 256;
#pragma unroll
                  for (int block_ = 0; block_ < 2; block_++) {
                    float es0 = 0.0f;
#pragma unroll
                    for (int unit_ = 2 * block_; unit_ < 2 * block_ + 2; unit_++) {
                      const int group_ = unit_;
                      const int column = (column0 + 8 * (8)) + 8 * group_ + 2 * quad;
                      if (column < 256) {
                        const float ev0 = round_f20(tw_product_of(high_[8 + group_], low_[(8 + group_) / 4], (8 + group_) % 4, 0));
                        const float ev1 = round_f20(tw_product_of(high_[8 + group_], low_[(8 + group_) / 4], (8 + group_) % 4, 1));
                        const float ev2 = add(l0_[group_].x, ev0);
                        const float ev3 = add(l0_[group_].y, ev1);
                        const float ev4 = mul(ev2, ev2);
                        const float ev5 = mul(ev3, ev3);
                        es0 = add(es0, ev4);
                        es0 = add(es0, ev5);
                        w0_[unit_] = pack<f16>(ev2, ev3);
                        if (isStored) {
                          store2(er0 + column, ev2, ev3);
                        }
                      }
                    }
                    tw_sums_take(s0_, (8) / 2 + block_, es0, quad);
                    if (((8) / 2 + block_) % 4 == 3 && isStored && (column0 / 16 + ((8) / 2 + block_) - 3 + quad) * 16 < 256) (((f32 *)p5))[(long long)row * 32 + column0 / 16 + ((8) / 2 + block_) - 3 + quad] = s0_.whole;
                  }
                }
#pragma unroll
                for (int unit_ = 0; unit_ < 4; unit_ += 4) {
                  const uint4 words_ = tw_quad_turn(quad, w0_[unit_ + 0], w0_[unit_ + 1], w0_[unit_ + 2], w0_[unit_ + 3]);
                  const int column = column0 + 8 * (8) + 8 * (unit_ + quad);
                  tw_store_words(((f16 *)p4) + (long long)row * 256 + column, words_, isStored && column < 256);
                }
              }
              tw_sums_take(s0_, 2, 0.0f, quad);
              tw_sums_take(s0_, 3, 0.0f, quad);
              if (quad < 2 && isStored && (column0 / 16 + 4 + quad) * 16 < 256) (((f32 *)p5))[(long long)row * 32 + column0 / 16 + 4 + quad] = s0_.whole;
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
    float acc[1][48];
    asm volatile("griddepcontrol.wait;" ::: "memory");
    int sequence = 0;
    for (int tile = first; tile < tw_tiles(T); tile += tw_clusters(), sequence++) {
      unsigned stage = (unsigned)(sequence * 9) % 3,
          phase = ((unsigned)(sequence * 9) / 3) & 1, before = 0;
      for (int block = 0; block < 9; block++) {
        tw_bar_wait(full + 8 * stage, phase);
        const unsigned long long a = base + stage * 1792 + consumer
            * 512, b = base + stage * 1792 + 1024;
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
        for (int i = 0; i < 48; i++) asm volatile("" : "+f"(acc[m][i]) :: "memory");
      }
      { if (lane < 2) tw_bar_arrive_at(empty + 8 * before, lane); }
      /* The block's last: its products stay where they are. */
      if (tile + tw_clusters() >= tw_tiles(T)) break;
      tw_bar_wait(handoffEmpty, (sequence & 1) ^ 1);
      {
        const unsigned handoff = shared + 86016 + ((tw_thread() >> 5) - 4) * 4096
            + (tw_thread() & 31) * 16;
        tw_put(handoff + 0, tw_high(acc[0][0], acc[0][1]), tw_high(acc[0][4], acc[0][5]), tw_high(acc[0][8], acc[0][9]), tw_high(acc[0][12], acc[0][13]));
        tw_put(handoff + 1024, tw_high(acc[0][16], acc[0][17]), tw_high(acc[0][20], acc[0][21]), tw_high(acc[0][24], acc[0][25]), tw_high(acc[0][28], acc[0][29]));
        tw_put(handoff + 2048, tw_high(acc[0][32], acc[0][33]), tw_high(acc[0][36], acc[0][37]), tw_high(acc[0][40], acc[0][41]), tw_high(acc[0][44], acc[0][45]));
        tw_put(handoff + 3072, tw_low(acc[0][0], acc[0][1], acc[0][4], acc[0][5], acc[0][8], acc[0][9], acc[0][12], acc[0][13]), tw_low(acc[0][16], acc[0][17], acc[0][20], acc[0][21], acc[0][24], acc[0][25], acc[0][28], acc[0][29]), tw_low(acc[0][32], acc[0][33], acc[0][36], acc[0][37], acc[0][40], acc[0][41], acc[0][44], acc[0][45]), 0u);
        tw_put(handoff + 512, tw_high(acc[0][2], acc[0][3]), tw_high(acc[0][6], acc[0][7]), tw_high(acc[0][10], acc[0][11]), tw_high(acc[0][14], acc[0][15]));
        tw_put(handoff + 1536, tw_high(acc[0][18], acc[0][19]), tw_high(acc[0][22], acc[0][23]), tw_high(acc[0][26], acc[0][27]), tw_high(acc[0][30], acc[0][31]));
        tw_put(handoff + 2560, tw_high(acc[0][34], acc[0][35]), tw_high(acc[0][38], acc[0][39]), tw_high(acc[0][42], acc[0][43]), tw_high(acc[0][46], acc[0][47]));
        tw_put(handoff + 3584, tw_low(acc[0][2], acc[0][3], acc[0][6], acc[0][7], acc[0][10], acc[0][11], acc[0][14], acc[0][15]), tw_low(acc[0][18], acc[0][19], acc[0][22], acc[0][23], acc[0][26], acc[0][27], acc[0][30], acc[0][31]), tw_low(acc[0][34], acc[0][35], acc[0][38], acc[0][39], acc[0][42], acc[0][43], acc[0][46], acc[0][47]), 0u);
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
            + (inGroup >> 2 & 7)) * 104 + 2 * (inGroup & 3)) * 4;
#pragma unroll
        for (int m = 0; m < 1; m++) {
#pragma unroll
          for (int i = 0; i < 48; i += 2) tw_put_pair(to + ((m * 64 + i / 2 % 2 * 8) * 104 + 8
              * (i / 4)) * 4, acc[m][i], acc[m][i + 1]);
        }
      }
      const int lane = tw_thread() & 31, warp = (tw_thread() >> 5) - 4;
      int at = 0, rows = T;
      asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(at));
      const int own = blockIdx.x / 2, clusters = tw_clusters(),
          sequence = (tw_tiles(T) - 1 - own) / clusters;
      const tw_place place = tw_place_of(own + sequence * clusters, rows, at);
      const int first = place.columnTile * 96 + 8 * lane;
      const bool isMine = lane < 12 && first < 256;
#pragma unroll 1
      for (int turn = 0; turn < 2; turn++) {
        const int local0 = turn * 64 + warp;
        unsigned l0_[8][8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
          const int row = tw_least(place.row0 + local0 + 8 * i, rows - 1);
          if (isMine) {
            { const tw_u4 x = ((const tw_u4 *)(((f32 *)p2) + (long long)row * 256 + first))[0]; l0_[i][0] = x.x; l0_[i][1] = x.y; l0_[i][2] = x.z; l0_[i][3] = x.w; }
            { const tw_u4 x = ((const tw_u4 *)(((f32 *)p2) + (long long)row * 256 + first))[1]; l0_[i][4] = x.x; l0_[i][5] = x.y; l0_[i][6] = x.z; l0_[i][7] = x.w; }
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
          tw_take_eight(shared + (local * 104 + 8 * lane) * 4, x_);
          unsigned w0_[8] = {};
          unsigned w1_[4] = {};
          float a0_[8];
#pragma unroll
          for (int pair_ = 0; pair_ < 4; pair_++) {
            const float v0 = round_f20(x_[2 * pair_ + 0]);
            const float v1 = round_f20(x_[2 * pair_ + 1]);
            const float v2 = add(__uint_as_float(l0_[i][2 * pair_ + 0]), v0);
            const float v3 = add(__uint_as_float(l0_[i][2 * pair_ + 1]), v1);
            const float v4 = mul(v2, v2);
            const float v5 = mul(v3, v3);
            w0_[2 * pair_ + 0] = __float_as_uint(v2);
            w0_[2 * pair_ + 1] = __float_as_uint(v3);
            w1_[pair_] = pack<f16>(v2, v3);
            a0_[2 * pair_] = v4;
            a0_[2 * pair_ + 1] = v5;
          }
          tw_store_block_sum(((f32 *)p5) + (long long)row * 32 + first / 16, a0_, lane, isStored);
          if (isStored) {
            ((tw_u4 *)(((f32 *)p3) + (long long)row * 256 + first))[0] = { w0_[0], w0_[1], w0_[2], w0_[3] };
            ((tw_u4 *)(((f32 *)p3) + (long long)row * 256 + first))[1] = { w0_[4], w0_[5], w0_[6], w0_[7] };
            ((tw_u4 *)(((f16 *)p4) + (long long)row * 256 + first))[0] = { w1_[0], w1_[1], w1_[2], w1_[3] };
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
