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
/* d[64 × 96] (+)= a[64 × 16]·b[96 × 16]ᵀ, operands in shared memory; `isAdded` 0 starts from zero. */
__device__ __forceinline__ void tw_wgmma(float (&d)[48], unsigned long long a, unsigned long long b,
    int isAdded) {
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %50, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
               "{ %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47 }, "
               "%48, %49, p, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
               : "l"(a), "l"(b), "r"(isAdded));
}

/* shared/quadTurn2.cu */

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
  const int rowTiles = (rows + 255) / 256, group = tile / 72, inGroup = tile - group * 72;
  const int height = rowTiles - group * 8 < 8 ? rowTiles - group * 8 : 8,
      columnTile = inGroup / height;
  return { (group * 8 + inGroup - columnTile * height) * 256 + rank * 128,
      columnTile };
}

/* Computed again where needed: kept through the main loop they would cost registers that accumulators have. */
__device__ __forceinline__ int tw_tiles(int rows) {
  asm volatile("" : "+r"(rows));
  return (rows + 255) / 256 * 9;
}
__device__ __forceinline__ int tw_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

extern "C" __global__ void __launch_bounds__(384, 1) k_gemm_94f84b3b7809f195_4f77e8cb(int T, int R, void *p0, void *p1, void *p2, void *p3, void *p4, void *p5, void *p6, void *p7, void *p8, void *p9, const __grid_constant__ tw_map m0, const __grid_constant__ tw_map m1, const __grid_constant__ tw_map m2, const __grid_constant__ tw_map m3) {
  extern __shared__ unsigned char tw_raw[];
  /*
   * 1024-byte alignment: the 128-byte swizzle goes by address bits. Stages, products that are handed over, barriers,
   * row values.
   */
  const unsigned shared = (tw_shared(tw_raw) + 1023u) & ~1023u;
  const unsigned full = shared + 172032, empty = full + 48;
  const unsigned rowsFull = full + 96, rowsEmpty = rowsFull + 16;
  float *const rowValues = (float *)(tw_raw + (shared - tw_shared(tw_raw)) + 172160);
  const int thread = threadIdx.x, lane = thread & 31;
  unsigned rank = 0;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (thread == 0) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(&m0) : "memory");
    asm volatile("prefetch.tensormap [%0];" :: "l"(&m1) : "memory");
    asm volatile("prefetch.tensormap [%0];" :: "l"(&m2) : "memory");
    asm volatile("prefetch.tensormap [%0];" :: "l"(&m3) : "memory");
    for (int i = 0; i < 6; i++) {
      tw_bar_init(full + 8 * i, 1);
      tw_bar_init(empty + 8 * i, 8);
    }
    for (int i = 0; i < 2; i++) {
      tw_bar_init(rowsFull + 8 * i, 96);
      tw_bar_init(rowsEmpty + 8 * i, 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  tw_cluster_arrive();
  tw_cluster_wait();
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");

  const int first = blockIdx.x / 2;
  const int warpgroup = thread >> 7;
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (thread == 0) {
      unsigned stage = 0, phase = 0;
      bool isFirst = true;
      for (int tile = first; tile < tw_tiles(T); tile += tw_clusters()) {
        const tw_place place = tw_place_of(tile, T, (int)rank);
        const int row0 = place.row0, columnTile = place.columnTile;
        const tw_map *weight;
        int column0;
        if (columnTile < 3) { weight = &m1;
          column0 = (columnTile - 0) * 96; } else
        if (columnTile < 6) { weight = &m2;
          column0 = (columnTile - 3) * 96; } else
        { weight = &m3;
          column0 = (columnTile - 6) * 96; }
        int start = 0;
        if (isFirst) {
          /* Weights do not depend on the kernel before this one: they are on their way while it ends. */
          for (int i = 0; i < 4; i++) {
            tw_bar_expect(full + 8 * i, 28672);
            tw_load_box_all(shared + i * 28672 + 16384 + rank * 6144, weight, i * 64, column0 + (int)rank * 48, full + 8 * i, 3);
          }
          asm volatile("griddepcontrol.wait;" ::: "memory");
          for (int i = 0; i < 4; i++) { tw_load_box(shared + i * 28672, &m0, i * 64, row0, full + 8 * i); }
          start = 4;
          stage = 4;
          phase = 0;
          isFirst = false;
        }
        for (int block = start; block < 4; block++) {
          tw_bar_wait(empty + 8 * stage, phase ^ 1);
          tw_bar_expect(full + 8 * stage, 28672);
          tw_load_box(shared + stage * 28672, &m0, block * 64, row0, full + 8 * stage);
          tw_load_box_all(shared + stage * 28672 + 16384 + rank * 6144, weight, block * 64, column0 + (int)rank * 48, full + 8 * stage, 3);
          if (++stage == 6) { stage = 0; phase ^= 1; }
        }
      }
    }
    else if (thread >= 32) {
      /*
       * The producer's idle warps fold what depends on the row alone, a tile ahead of its epilogue. Where groups of row
       * tiles are as high as divides the number of clusters, a block stays on its rows, and a slot holds them already.
       */
      asm volatile("griddepcontrol.wait;" ::: "memory");
      int sequence = 0, before = -1, last = -1;
      for (int tile = first; tile < tw_tiles(T); tile += tw_clusters(), sequence++) {
        const int row0 = tw_place_of(tile, T, (int)rank).row0, slot = sequence & 1;
        tw_bar_wait(rowsEmpty + 8 * slot, ((sequence >> 1) & 1) ^ 1);
        float *const to = rowValues + slot * 128;
        /* `before` is the slot's, of two tiles ago. */
        for (int local = before == row0 ? 128 : (thread >> 5) - 1; local < 128; local += 6) {
          const int own0 = row0 + local, read0 = own0 < T ? own0 : T - 1;
          float fold0[1];
          {
            f32 * const y0 = ((f32 *)p2) + (long long)(read0) * 32;
            float const y1 = row_sum(y0, 16);
            float const y2 = y1 / 256.0f;
            float const y3 = add(y2, 9.999999974752427e-7f);
            float const y4 = 1.0f / sqrtf(y3);
            if (threadIdx.x % 32 == 0) {
              (fold0)[0] = y4;
            }
          }
          const int own1 = row0 + local + 3, read1 = own1 < T ? own1 : T - 1;
          float fold1[1];
          {
            f32 * const y0 = ((f32 *)p2) + (long long)(read1) * 32;
            float const y1 = row_sum(y0, 16);
            float const y2 = y1 / 256.0f;
            float const y3 = add(y2, 9.999999974752427e-7f);
            float const y4 = 1.0f / sqrtf(y3);
            if (threadIdx.x % 32 == 0) {
              (fold1)[0] = y4;
            }
          }
          if (lane == 0) {
            if (local < 128) to[(local) * 1 + 0] = fold0[0];
            if (local + 3 < 128) to[(local + 3) * 1 + 0] = fold1[0];
          }
        }
        before = last;
        last = row0;
        tw_bar_arrive(rowsFull + 8 * slot);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const unsigned long long base = 0x4000004000010000ull | ((unsigned long long)(shared & 0x3ffff) >> 4);
    float acc[2][48];
    asm volatile("griddepcontrol.wait;" ::: "memory");
    int sequence = warpgroup - 1;
    for (int tile = first + sequence * tw_clusters(); tile < tw_tiles(T);
         tile += 2 * tw_clusters(), sequence += 2) {
      unsigned stage = (unsigned)(sequence * 4) % 6,
          phase = ((unsigned)(sequence * 4) / 6) & 1, before = 0;
      /* Parity tells neighbouring phases apart only: wait until the other warpgroup has seen all of its stages. */
      if (sequence > 0) asm volatile("bar.sync %0, 256;" :: "r"(tw_thread() >> 7) : "memory");
      for (int block = 0; block < 4; block++) {
        tw_bar_wait(full + 8 * stage, phase);
        const unsigned long long a = base + stage * 1792, b = base + stage * 1792 + 1024;
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
        if (++stage == 6) { stage = 0; phase ^= 1; }
      }
      if (tile + tw_clusters() < tw_tiles(T))
        asm volatile("bar.arrive %0, 256;" :: "r"(3 - (tw_thread() >> 7)) : "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
      for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int i = 0; i < 48; i++) asm volatile("" : "+f"(acc[m][i]) :: "memory");
      }
      { if (lane < 2) tw_bar_arrive_at(empty + 8 * before, lane); }
      {
        /* Read again rather than kept through the main loop, which needs the registers. */
        const int self = tw_thread();
        int rows = T, at = 0;
        asm volatile("" : "+r"(rows));
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(at));
        const tw_place place = tw_place_of(tile, rows, at);
        const int columnTile = place.columnTile;
        const int local0 = (self >> 5 & 3) * 16 + (self >> 2 & 7);
        const float *const from = rowValues + (sequence & 1) * 128;
        tw_bar_wait(rowsFull + 8 * (sequence & 1), (sequence >> 1) & 1);
        if (columnTile < 3) {
#pragma unroll
          for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
              const int local = local0 + m * 64 + h * 8, own = place.row0 + local, row = own < rows ? own : rows - 1;
              const int isStored = own < rows;
              /* Opaque: addresses of a whole row of columns would else be kept from one row to the next. */
              int place_ = columnTile - 0, quad = self & 3;
              asm volatile("" : "+r"(place_), "+r"(quad));
              const int column0 = place_ * 96;
              {
                {
                  float const er0 = ((from + local * 1))[0];
                  f32 * const er1 = ((f32 *)p3) + (long long)(row) * 64;
                  f32 * const er2 = ((f32 *)p4) + (long long)(row) * 64;
                  bf16 * const er3 = ((bf16 *)p5) + (long long)(row) * 256;
#pragma unroll
                  for (int unit_ = 0; unit_ < 6; unit_++) {
                    const int group_ = unit_ / 1 * 2 + unit_ % 1;
                    const int lying_ = (column0) + 16 * (unit_ / 1);
                    const int column = lying_ - lying_ % 64 / 2 + unit_ % 1 * 8 + 2 * quad;
                    const int partner = column + 32;
                    if (lying_ < 256) {
                      const float ev0 = round_f20(acc[m][4 * (group_) + 2 * h + 0]);
                      const float ev1 = round_f20(acc[m][4 * (group_) + 2 * h + 1]);
                      const float ev2 = mul(ev0, er0);
                      const float ev3 = mul(ev1, er0);
                      const float2 ev4 = load2(er1 + ((column) & 63));
                      const float ev5 = mul(ev2, ev4.x);
                      const float ev6 = mul(ev3, ev4.y);
                      const float ev7 = round_f20(acc[m][4 * (group_ + 1) + 2 * h + 0]);
                      const float ev8 = round_f20(acc[m][4 * (group_ + 1) + 2 * h + 1]);
                      const float ev9 = mul(ev7, er0);
                      const float ev10 = mul(ev8, er0);
                      const float ev11 = -(ev9);
                      const float ev12 = -(ev10);
                      const float2 ev13 = load2(er2 + ((column) & 63));
                      const float ev14 = mul(ev11, ev13.x);
                      const float ev15 = mul(ev12, ev13.y);
                      const float ev16 = add(ev5, ev14);
                      const float ev17 = add(ev6, ev15);
                      const float2 ev18 = load2(er1 + ((partner) & 63));
                      const float ev19 = mul(ev9, ev18.x);
                      const float ev20 = mul(ev10, ev18.y);
                      const float2 ev21 = load2(er2 + ((partner) & 63));
                      const float ev22 = mul(ev2, ev21.x);
                      const float ev23 = mul(ev3, ev21.y);
                      const float ev24 = add(ev19, ev22);
                      const float ev25 = add(ev20, ev23);
                      if (isStored) {
                        store2(er3 + column, ev16, ev17);
                        store2(er3 + partner, ev24, ev25);
                      }
                    }
                  }
                }
              }
            }
          }
        } else
        if (columnTile < 6) {
#pragma unroll
          for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
              const int local = local0 + m * 64 + h * 8, own = place.row0 + local, row = own < rows ? own : rows - 1;
              const int isStored = own < rows;
              /* Opaque: addresses of a whole row of columns would else be kept from one row to the next. */
              int place_ = columnTile - 3, quad = self & 3;
              asm volatile("" : "+r"(place_), "+r"(quad));
              const int column0 = place_ * 96;
              {
                {
                  float const er0 = ((from + local * 1))[0];
                  f32 * const er1 = ((f32 *)p3) + (long long)(row) * 64;
                  f32 * const er2 = ((f32 *)p4) + (long long)(row) * 64;
                  bf16 * const er3 = ((bf16 *)p7) + (long long)(row) * 256;
#pragma unroll
                  for (int unit_ = 0; unit_ < 6; unit_++) {
                    const int group_ = unit_ / 1 * 2 + unit_ % 1;
                    const int lying_ = (column0) + 16 * (unit_ / 1);
                    const int column = lying_ - lying_ % 64 / 2 + unit_ % 1 * 8 + 2 * quad;
                    const int partner = column + 32;
                    if (lying_ < 256) {
                      const float ev0 = round_f20(acc[m][4 * (group_) + 2 * h + 0]);
                      const float ev1 = round_f20(acc[m][4 * (group_) + 2 * h + 1]);
                      const float ev2 = mul(ev0, er0);
                      const float ev3 = mul(ev1, er0);
                      const float2 ev4 = load2(er1 + ((column) & 63));
                      const float ev5 = mul(ev2, ev4.x);
                      const float ev6 = mul(ev3, ev4.y);
                      const float ev7 = round_f20(acc[m][4 * (group_ + 1) + 2 * h + 0]);
                      const float ev8 = round_f20(acc[m][4 * (group_ + 1) + 2 * h + 1]);
                      const float ev9 = mul(ev7, er0);
                      const float ev10 = mul(ev8, er0);
                      const float ev11 = -(ev9);
                      const float ev12 = -(ev10);
                      const float2 ev13 = load2(er2 + ((column) & 63));
                      const float ev14 = mul(ev11, ev13.x);
                      const float ev15 = mul(ev12, ev13.y);
                      const float ev16 = add(ev5, ev14);
                      const float ev17 = add(ev6, ev15);
                      const float2 ev18 = load2(er1 + ((partner) & 63));
                      const float ev19 = mul(ev9, ev18.x);
                      const float ev20 = mul(ev10, ev18.y);
                      const float2 ev21 = load2(er2 + ((partner) & 63));
                      const float ev22 = mul(ev2, ev21.x);
                      const float ev23 = mul(ev3, ev21.y);
                      const float ev24 = add(ev19, ev22);
                      const float ev25 = add(ev20, ev23);
                      if (isStored) {
                        store2(er3 + column, ev16, ev17);
                        store2(er3 + partner, ev24, ev25);
                      }
                    }
                  }
                }
              }
            }
          }
        } else
        {
#pragma unroll
          for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
              const int local = local0 + m * 64 + h * 8, own = place.row0 + local, row = own < rows ? own : rows - 1;
              const int isStored = own < rows;
              /* Opaque: addresses of a whole row of columns would else be kept from one row to the next. */
              int place_ = columnTile - 6, quad = self & 3;
              asm volatile("" : "+r"(place_), "+r"(quad));
              const int column0 = place_ * 96;
#pragma unroll
              for (int batch_ = 0; batch_ < 1; batch_++) {
                {
                  unsigned w0_[8] = {};
                  {
                    float const er0 = ((from + local * 1))[0];
#pragma unroll
                    for (int unit_ = 0; unit_ < 8; unit_++) {
                      const int group_ = unit_;
                      const int column = (column0 + 8 * (batch_ * 8)) + 8 * group_ + 2 * quad;
                      if (column < 256) {
                        const float ev0 = round_f20(acc[m][4 * (batch_ * 8 + group_) + 2 * h + 0]);
                        const float ev1 = round_f20(acc[m][4 * (batch_ * 8 + group_) + 2 * h + 1]);
                        const float ev2 = mul(ev0, er0);
                        const float ev3 = mul(ev1, er0);
                        w0_[unit_] = pack<bf16>(ev2, ev3);
                      }
                    }
                  }
#pragma unroll
                  for (int unit_ = 0; unit_ < 8; unit_ += 4) {
                    const uint4 words_ = tw_quad_turn(quad, w0_[unit_ + 0], w0_[unit_ + 1], w0_[unit_ + 2], w0_[unit_ + 3]);
                    const int column = column0 + 8 * (batch_ * 8) + 8 * (unit_ + quad);
                    if (isStored && column < 256) tw_store_words(((bf16 *)p9) + (long long)row * 256 + column, words_, 1);
                  }
                }
              }
              {
                unsigned w0_[4] = {};
                {
                  float const er0 = ((from + local * 1))[0];
#pragma unroll
                  for (int unit_ = 0; unit_ < 4; unit_++) {
                    const int group_ = unit_;
                    const int column = (column0 + 8 * (8)) + 8 * group_ + 2 * quad;
                    if (column < 256) {
                      const float ev0 = round_f20(acc[m][4 * (8 + group_) + 2 * h + 0]);
                      const float ev1 = round_f20(acc[m][4 * (8 + group_) + 2 * h + 1]);
                      const float ev2 = mul(ev0, er0);
                      const float ev3 = mul(ev1, er0);
                      w0_[unit_] = pack<bf16>(ev2, ev3);
                    }
                  }
                }
#pragma unroll
                for (int unit_ = 0; unit_ < 4; unit_ += 4) {
                  const uint4 words_ = tw_quad_turn(quad, w0_[unit_ + 0], w0_[unit_ + 1], w0_[unit_ + 2], w0_[unit_ + 3]);
                  const int column = column0 + 8 * (8) + 8 * (unit_ + quad);
                  if (isStored && column < 256) tw_store_words(((bf16 *)p9) + (long long)row * 256 + column, words_, 1);
                }
              }
            }
          }
        }
        __syncwarp();
        if ((self & 31) == 0) tw_bar_arrive(rowsEmpty + 8 * (sequence & 1));
      }
    }
  }
  __syncwarp();
  /* A block's shared memory must outlive the copies and arrivals its neighbour sends. */
  tw_cluster_arrive();
  tw_cluster_wait();
}

}  // namespace tw
