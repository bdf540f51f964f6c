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

/* shared/quadTurn2.cu */

__device__ __forceinline__ int tw_clusters() {
  int blocks;
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
  return blocks / 1;
}
/*
 * Where tile number `tile` lies: groups of 16 row tiles (of 128 rows) are walked column by column,
 * so that what all blocks read at a time stays in L2.
 */
struct tw_place { int row0, columnTile; };
__device__ __forceinline__ tw_place tw_place_of(int tile, int rows, int rank) {
  const int rowTiles = (rows + 127) / 128, group = tile / 48, inGroup = tile - group * 48;
  const int height = rowTiles - group * 16 < 16 ? rowTiles - group * 16 : 16,
      columnTile = inGroup / height;
  return { (group * 16 + inGroup - columnTile * height) * 128 + rank * 128,
      columnTile };
}

/* shared/tiles.cu */

extern "C" __global__ void __launch_bounds__(384, 1) k_logprob_3ebfa1286008978c_fe71730a(int T, int R, void *p0, void *p1, void *p2, void *p3, void *p4, const __grid_constant__ tw_map m0, const __grid_constant__ tw_map m1) {
  extern __shared__ unsigned char tw_raw[];
  /*
   * 1024-byte alignment: the 128-byte swizzle goes by address bits. Stages, products that are handed over, barriers,
   * row values.
   */
  const unsigned shared = (tw_shared(tw_raw) + 1023u) & ~1023u;
  const unsigned full = shared + 147456, empty = full + 24;
  const unsigned rowsFull = full + 48, rowsEmpty = rowsFull + 16;
  float *const rowValues = (float *)(tw_raw + (shared - tw_shared(tw_raw)) + 147536);
  const int thread = threadIdx.x, lane = thread & 31;
  unsigned rank = 0;
  if (thread == 0) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(&m0) : "memory");
    asm volatile("prefetch.tensormap [%0];" :: "l"(&m1) : "memory");
    for (int i = 0; i < 3; i++) {
      tw_bar_init(full + 8 * i, 1);
      tw_bar_init(empty + 8 * i, 8);
    }
    for (int i = 0; i < 2; i++) {
      tw_bar_init(rowsFull + 8 * i, 96);
      tw_bar_init(rowsEmpty + 8 * i, 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");

  const int first = blockIdx.x / 1;
  /* Uniform for the compiler too, which then computes the places of wgmma's operands in uniform registers. */
  const int warpgroup = __shfl_sync(0xffffffffu, thread >> 7, 0);
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (thread == 0) {
      unsigned stage = 0, phase = 0;
      bool isFirst = true;
      for (int tile = first; tile < tw_tiles(R); tile += tw_clusters()) {
        const tw_place place = tw_place_of(tile, R, (int)rank);
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
            tw_load_box(shared + i * 49152 + 16384, weight, i * 64, column0, full + 8 * i);
          }
          asm volatile("griddepcontrol.wait;" ::: "memory");
          for (int i = 0; i < 3; i++) { tw_load_box(shared + i * 49152, &m0, i * 64, row0, full + 8 * i); }
          start = 3;
          stage = 0;
          phase = 1;
          isFirst = false;
        }
        for (int block = start; block < 4; block++) {
          tw_bar_wait(empty + 8 * stage, phase ^ 1);
          tw_bar_expect(full + 8 * stage, 49152);
          tw_load_box(shared + stage * 49152, &m0, block * 64, row0, full + 8 * stage);
          tw_load_box(shared + stage * 49152 + 16384, weight, block * 64, column0, full + 8 * stage);
          if (++stage == 3) { stage = 0; phase ^= 1; }
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
      for (int tile = first; tile < tw_tiles(R); tile += tw_clusters(), sequence++) {
        const int row0 = tw_place_of(tile, R, (int)rank).row0, slot = sequence & 1;
        tw_bar_wait(rowsEmpty + 8 * slot, ((sequence >> 1) & 1) ^ 1);
        float *const to = rowValues + slot * 128;
        /* `before` is the slot's, of two tiles ago. */
        for (int local = before == row0 ? 128 : (thread >> 5) - 1; local < 128; local += 6) {
          const int own0 = row0 + local, read0 = own0 < R ? own0 : R - 1;
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
          const int own1 = row0 + local + 3, read1 = own1 < R ? own1 : R - 1;
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

    const int consumer = warpgroup - 1;
    const unsigned long long base = 0x4000004000010000ull | ((unsigned long long)(shared & 0x3ffff) >> 4);
    float acc[1][128];
    asm volatile("griddepcontrol.wait;" ::: "memory");
    int sequence = 0;
    for (int tile = first; tile < tw_tiles(R); tile += tw_clusters(), sequence++) {
      unsigned stage = (unsigned)(sequence * 4) % 3,
          phase = ((unsigned)(sequence * 4) / 3) & 1, before = 0;
      for (int block = 0; block < 4; block++) {
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
        if (block > 0) { if (lane == 0) tw_bar_arrive(empty + 8 * before); }
        before = stage;
        if (++stage == 3) { stage = 0; phase ^= 1; }
      }
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
      for (int m = 0; m < 1; m++) {
#pragma unroll
        for (int i = 0; i < 128; i++) asm volatile("" : "+f"(acc[m][i]) :: "memory");
      }
      { if (lane == 0) tw_bar_arrive(empty + 8 * before); }
      {
        /* Read again rather than kept through the main loop, which needs the registers. */
        const int self = tw_thread();
        int rows = R, at = 0;
        asm volatile("" : "+r"(rows));
        const tw_place place = tw_place_of(tile, rows, at);
        const int columnTile = place.columnTile;
        const int local0 = ((self >> 7) - 1) * 64
            + (self >> 5 & 3) * 16 + (self >> 2 & 7);
        const float *const from = rowValues + (sequence & 1) * 128;
        tw_bar_wait(rowsFull + 8 * (sequence & 1), (sequence >> 1) & 1);
        {
#pragma unroll
          for (int m = 0; m < 1; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
              const int local = local0 + m * 64 + h * 8, own = place.row0 + local, row = own < rows ? own : rows - 1;
              const int isStored = own < rows;
              /* Opaque: addresses of a whole row of columns would else be kept from one row to the next. */
              int place_ = columnTile - 0, quad = self & 3;
              asm volatile("" : "+r"(place_), "+r"(quad));
              const int column0 = place_ * 256;
              {
                float const r0 = ((from + local * 1))[0];
                const float scale = r0;
                const int first = column0 + 2 * quad, wanted = ((const int *)p3)[row] - first;
                float top = -tw_inf(), hit = -tw_inf(), sum = 0.0f;
                int at = 256;
                /* Accumulators become logits where they are. */
#pragma unroll
                for (int g = 0; g < 256 / 8; g++) {
#pragma unroll
                  for (int e = 0; e < 2; e++) {
                    float &z = acc[m][4 * g + 2 * h + e];
                    z = first + 8 * g + e >= 600 ? -tw_inf() : tw_mul(scale, z);
                    if (wanted == 8 * g + e) hit = z;
                    top = tw_largest(top, z);
                  }
                }
                top = tw_quad_largest(top);
                hit = tw_quad_largest(hit);
                const float base = top == -tw_inf() ? 0.0f : top;
#pragma unroll
                for (int g = 256 / 8 - 1; g >= 0; g--) {
#pragma unroll
                  for (int e = 1; e >= 0; e--) {
                    const float z = acc[m][4 * g + 2 * h + e];
                    if (z == top) at = 8 * g + e;
                    sum = tw_add(sum, tw_power(z - base));
                  }
                }
                sum = tw_quad_sum(sum);
                at = at == 256 ? 600 : first + at;
                at = tw_least(at, __shfl_xor_sync(0xffffffffu, at, 1));
                at = tw_least(at, __shfl_xor_sync(0xffffffffu, at, 2));
                if (quad == 0 && isStored) {
                  *(tw_f4 *)((float *)p4 + (long long)row * 32 + column0 / 256 * 4) =
                      { top, sum, (float)at, hit };
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
}

}  // namespace tw
