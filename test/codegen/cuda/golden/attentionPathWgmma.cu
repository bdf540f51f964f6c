ructions of a warp that attention uses; all lanes call them together. Tests define them where TW_PTX is 0. */
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
/* Instructions of Hopper that attention uses. Tests define them where TW_PTX is 0. */
#if TW_PTX
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
/* Makes initialised barriers visible. */
__device__ __forceinline__ void tw_bar_show() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/* Arrives `count` times. */
__device__ __forceinline__ void tw_bar_arrive_for(unsigned bar, unsigned count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}
/* Arrives when all copies that this thread has started are there. */
__device__ __forceinline__ void tw_bar_arrive_copied(unsigned bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(bar) : "memory");
}
/* Makes what this thread has written to shared memory, or has waited for, visible to products. */
__device__ __forceinline__ void tw_show_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void tw_registers_of_producers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
}
__device__ __forceinline__ void tw_registers_of_consumers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
}
/* Products from here on read registers that were written before; and the end of them. */
__device__ __forceinline__ void tw_products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void tw_products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Waits until at most N groups of products are under way. */
template <int N> __device__ __forceinline__ void tw_products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}
/* Two bf16 numbers by two factors. */
__device__ __forceinline__ unsigned tw_scaled_pair(unsigned pair, unsigned factors) {
  unsigned y;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(pair), "r"(factors));
  return y;
}
/* Tells the compiler that a product has written an accumulator. */
__device__ __forceinline__ void tw_settled(float &x) { asm volatile("" : "+f"(x) :: "memory"); }
/* d[64 × 64] (+)= a[64 × 16]·b[64 × 16]ᵀ, operands in shared memory; `isAdded` 0 starts from zero. */
__device__ __forceinline__ void tw_wgmma(float (&d)[32], unsigned long long a, unsigned long long b,
    int isAdded) {
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
               "{ %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31 }, "
               "%32, %33, p, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
               : "l"(a), "l"(b), "r"(isAdded));
}
/* d[64 × 128] (+)= a[64 × 16]·b[16 × 128]: a in registers, b in shared memory. */
__device__ __forceinline__ void tw_wgmma_values(float (&d)[64], const unsigned (&a)[4],
    unsigned long long b, int isAdded) {
  asm volatile("{ .reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
               "{ %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63 }, "
               "{ %64, %65, %66, %67 }, %68, p, 1, 1, 1; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(isAdded));
}
#endif
/* Descriptor with a lower word. The upper one is the same of all operands, so what moves is computed in 32 bits. */
TW_FN unsigned long long tw_descriptor(unsigned lower) { return (unsigned long long)0x40000040 << 32 | lower; }
/* Lower word of a slab whose rows are multiplied by rows: 1024 bytes from 8 rows to the next. */
TW_FN unsigned tw_rows_at(unsigned at) { return 0x10000u | (at & 0x3ffff) >> 4; }
/* Of slabs whose columns are multiplied by rows: the same, and 8192 bytes from 64 columns to the next. */
TW_FN unsigned tw_columns_at(unsigned at) { return 0x2000000u | (at & 0x3ffff) >> 4; }
TW_FN int tw_most(int a, int b) { return a > b ? a : b; }


/*
 * 8 heads of 128 over 2 of keys: a tile has 32 queries of the 4 heads that share
 * one head of keys, so that a key is loaded once for all of them. Row r of a tile is head r % GROUP of query r / GROUP;
 * each of two warpgroups multiplies 64 rows. The warps of a third one load: one is a tile ahead, finds out what its
 * queries see, and copies them; one loads keys, one values, and one helps with keys. So a block never waits between
 * tiles.
 *
 * Query q sees the rows key[begin[q] + i] of keys and values for i from 0 to position[q]. Queries next to each other
 * with one `begin` are a run. A part is KEYS entries of a run's list, two parts are a chunk. Runs whose lists begin
 * alike, as questions after the same examples do, share their first chunks: those are loaded and multiplied once, for
 * the queries of all these runs.
 *
 * Lists are made of stretches of rows that follow each other: that of the examples, that of a question. A part of one
 * stretch is a box, which a tensor map copies. The rows of other parts are gathered one by one.
 *
 * A warpgroup issues the scores of a chunk's first part together with the products of values of the chunk before, and
 * computes the part's weights while those are multiplied. It issues the scores of the second part before it adds the
 * products to the total, and computes that part's weights while the other warpgroup multiplies.
 *
 * The bits of an answer are those of the kernels on mma.sync (attentionPathMma): keys are taken in order of position,
 * 16 a step of a product, STEP a step of the softmax, CHUNK a partial result. A chunk has four steps of the softmax.
 * Where a later one moves a row's maximum, the weights of those before are rescaled before they are multiplied: by
 * powers of two, so the sums are the same. A row that does not see a chunk adds exact zeros. If a result of a tile is
 * not finite, the tile is repeated query by query, with zeros in place of the keys that the query does not see.
 */
namespace attention {
constexpr int D = 128, GROUP = 4, QUERIES = 32, KV_HEADS = 2, ROWS = 128, STEP = 32,
    KEYS = 64, CHUNK = 128, CONSUMERS = 256, SLOTS = 4;
constexpr int PIECES = D / 8, SLABS = D / 64;
/* Slabs of 64 columns, rows of 128 bytes with the 128-byte swizzle: two tiles of queries, rings of keys and values. */
constexpr unsigned QUERY_SLAB = ROWS * 128, QUERY_BYTES = SLABS * QUERY_SLAB, KEY_SLAB = KEYS * 128,
    SIDE_BYTES = SLABS * KEY_SLAB, RING_AT = 2 * QUERY_BYTES, RING_BYTES = SLOTS * SIDE_BYTES,
    BARRIERS_AT = RING_AT + 2 * RING_BYTES;
/* The warps that load. A barrier of a part counts what each lane gathers, and once what the leader of its side does. */
enum { LEADS_KEYS, LEADS_VALUES, HELPS_KEYS, GOES_AHEAD };
constexpr int LANES = 32;
/* Parts of a tile that are known to be boxes or not. Any behind them are gathered. */
constexpr int BOXES = 512;
constexpr float SCALE = 0.127517431974411f;
/* The maximum of no scores: finite, so that it may be subtracted. */
constexpr float NOTHING = -3.40282347e38f;
/* How far a row's maximum may be above the one by which its totals are scaled. Totals stay far from overflow. */
constexpr float LEAD = 8.0f;
static_assert(CHUNK == 2 * KEYS && KEYS == 2 * STEP, "a chunk has two parts, a part two steps");
static_assert((SLOTS & (SLOTS - 1)) == 0, "places follow from numbers by masks");

/*
 * 2^x for a whole x below 128; 0 where that is no normal number, and for −inf and NaN. Beside 2^23 the last bits of
 * a number are its whole part.
 */
TW_FN float power2(float x) { return x >= -126.0f ? __uint_as_float(__float_as_uint(x + 8388735.0f) << 23) : 0.0f; }
/* A value that all lanes have, exchanged so that the compiler knows it. */
TW_FN int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }
/* Where 16 bytes of a row lie in a slab. */
TW_FN unsigned place_of_piece(int row, int piece, unsigned slab) {
  return (piece >> 3) * slab + row * 128 + ((piece ^ row) & 7) * 16;
}
/* A power of two twice, as bf16. */
TW_FN unsigned pair_of(float x) { return __float_as_uint(x) >> 16 | (__float_as_uint(x) & 0xffff0000u); }
/* 16 bytes of a row. */
struct alignas(16) Piece {
  unsigned word[4];
};
/*
 * Of four lanes and four pieces of a row: word i of lane l is word l of piece i, and afterwards word i of piece l, so
 * that each lane stores a piece.
 */
TW_FN void exchange(Piece &piece, int lane) {
  unsigned (&word)[4] = piece.word;
#pragma unroll
  for (int by = 1; by < 4; by *= 2) {
    const bool is_high = (lane & by) != 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if ((i & by) != 0) continue;
      const unsigned other = __shfl_xor_sync(0xffffffffu, is_high ? word[i] : word[i + by], by);
      if (is_high) word[i] = other;
      else word[i + by] = other;
    }
  }
}
/*
 * Weights of a part from its scores: two steps of the softmax of two rows, each by the maximum after it. Maxima and
 * sums are those before the part, and become those behind it. `late0`, `late1`: what the first step's weights must be
 * rescaled by.
 */
TW_FN void weigh(const float (&s)[KEYS / 2], unsigned (&weight)[KEYS / 16][4], float &top0, float &top1, float &sum0,
    float &sum1, float &late0, float &late1) {
  constexpr int STEPS = KEYS / STEP, OWN = STEP / 2;
  float most0[STEPS], most1[STEPS];
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    const float *const own = s + step * OWN;
    float a0 = fmaxf(own[0], own[1]), a1 = fmaxf(own[2], own[3]);
    float b0 = fmaxf(own[4], own[5]), b1 = fmaxf(own[6], own[7]);
#pragma unroll
    for (int i = 8; i < OWN; i += 8) {
      a0 = fmaxf(a0, fmaxf(own[i], own[i + 1]));
      a1 = fmaxf(a1, fmaxf(own[i + 2], own[i + 3]));
      b0 = fmaxf(b0, fmaxf(own[i + 4], own[i + 5]));
      b1 = fmaxf(b1, fmaxf(own[i + 6], own[i + 7]));
    }
    most0[step] = fmaxf(a0, b0);
    most1[step] = fmaxf(a1, b1);
  }
#pragma unroll
  for (int by = 1; by < 4; by *= 2) {
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
      most0[step] = fmaxf(most0[step], __shfl_xor_sync(0xffffffffu, most0[step], by));
      most1[step] = fmaxf(most1[step], __shfl_xor_sync(0xffffffffu, most1[step], by));
    }
  }
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    most0[step] = fmaxf(step == 0 ? top0 : most0[0], ceilf(tw_mul(most0[step], SCALE)));
    most1[step] = fmaxf(step == 0 ? top1 : most1[0], ceilf(tw_mul(most1[step], SCALE)));
  }
  sum0 = tw_mul(sum0, power2(top0 - most0[0]));
  sum1 = tw_mul(sum1, power2(top1 - most1[0]));
  late0 = power2(most0[0] - most0[1]);
  late1 = power2(most1[0] - most1[1]);
  top0 = most0[1];
  top1 = most1[1];
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    if (step > 0) {
      sum0 = tw_mul(sum0, late0);
      sum1 = tw_mul(sum1, late1);
    }
#pragma unroll
    for (int i = step * OWN; i < (step + 1) * OWN; i += 4) {
      const float x0 = tw_exp2(fmaf(s[i], SCALE, -most0[step])), x1 = tw_exp2(fmaf(s[i + 1], SCALE, -most0[step]));
      const float x2 = tw_exp2(fmaf(s[i + 2], SCALE, -most1[step])), x3 = tw_exp2(fmaf(s[i + 3], SCALE, -most1[step]));
      sum0 += x0 + x1;
      sum1 += x2 + x3;
      weight[i / 8][i / 4 % 2 * 2] = tw_pack_bf16(x0, x1);
      weight[i / 8][i / 4 % 2 * 2 + 1] = tw_pack_bf16(x2, x3);
    }
  }
}

/*
 * A tile's queries: their positions, −1 past the last query, where their paths begin, and their tokens, if these do not
 * follow from the tile. Of the first query of each run: the run behind, its keys, the parts that it has in common with
 * the run before, and the place among the tile's parts that its first part has, or would have if it were not shared.
 */
struct Queries {
  int token[QUERIES];
  int begin[QUERIES], position[QUERIES], next[QUERIES], keys[QUERIES], shared[QUERIES], place[QUERIES];
  /* Whether no query sees a key. */
  int isEmpty;
};
/* A part of a run's list: the run's first query, its list, and how far the list goes. */
struct Part {
  int run, begin, keys, index;
};
/* What warpgroups must know of a chunk: flags, its first key, and the queries [run, to) that share it. */
struct Chunk {
  int flags, from, run, to;
};
/* It has two parts; it is the tile's last; of each warpgroup: a row sees it, and a row does not see all of a part. */
constexpr int HAS_TWO = 1, IS_LAST = 2, IS_SEEN = 4, IS_CUT0 = 16, IS_CUT1 = 64;
/* The first part of its own of run `run` or, where it has none, of a later run before query `end`. */
TW_FN Part enter(const Queries &queries, int run, int end) {
  for (; run < end; run = uniform(queries.next[run])) {
    const int keys = uniform(queries.keys[run]), index = uniform(queries.shared[run]);
    if (index * KEYS < keys) return Part{ run, uniform(queries.begin[run]), keys, index };
  }
  return Part{ end, 0, 0, 0 };
}
TW_FN Part after(const Queries &queries, Part part, int end) {
  if ((part.index + 1) * KEYS >= part.keys) return enter(queries, uniform(queries.next[part.run]), end);
  part.index++;
  return part;
}
/* The first row of a part that is a box, −1 of another. `boxes`: of a tile. */
TW_FN int row_of_box(const int (&boxes)[BOXES], const Queries &queries, const Part &part) {
  const int place = uniform(queries.place[part.run]) + part.index;
  return place < BOXES ? uniform(boxes[place]) : -1;
}
}  // namespace attention

extern "C" __global__ void __launch_bounds__(384, 1) k_attention_test(int T, int R, int C, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4, void *__restrict__ p5, void *__restrict__ p6, void *__restrict__ p7, const __grid_constant__ tw_map m0, const __grid_constant__ tw_map m1) {
  using namespace attention;
  extern __shared__ unsigned char tw_shared[];
  __shared__ Queries s_queries[2];
  __shared__ int s_boxes[2][BOXES];
  /* Of the chunk whose first part has this number, modulo two rounds: its keys are released before it is done with. */
  __shared__ Chunk s_chunk[2 * SLOTS];
  /* Rows of a part that is gathered, of the warp that gathers keys and of the one that gathers values. */
  __shared__ int s_rows[2][KEYS];
  /* The first and the last of the block's tiles with a result that is not finite. */
  __shared__ int s_first_bad, s_last_bad;
  const int thread = threadIdx.x, lane = thread & 31;
  const int group = uniform(thread >> 7), rows = R;
  const int tiles = (rows + QUERIES - 1) / QUERIES * KV_HEADS;
  const unsigned shared = (tw_shared_address(tw_shared) + 1023u) & ~1023u, ring = shared + RING_AT,
      keys_full = shared + BARRIERS_AT, values_full = keys_full + 8 * SLOTS, keys_empty = values_full + 8 * SLOTS,
      values_empty = keys_empty + 8 * SLOTS, keys_wanted = values_empty + 8 * SLOTS,
      queries_known = keys_wanted + 8 * SLOTS, queries_full = queries_known + 16, queries_empty = queries_full + 16;
  if (thread == 0) {
    for (int i = 0; i < 2 * SLOTS; i++) {
      tw_bar_init(keys_full + 8 * i, LANES + 1);
      tw_bar_init(keys_empty + 8 * i, CONSUMERS / LANES);
    }
    for (int i = 0; i < SLOTS; i++) tw_bar_init(keys_wanted + 8 * i, 1);
    for (int i = 0; i < 2; i++) {
      tw_bar_init(queries_known + 8 * i, 1);
      tw_bar_init(queries_full + 8 * i, LANES);
      /* All warps but the one that goes ahead read what is known of a tile. */
      tw_bar_init(queries_empty + 8 * i, CONSUMERS / LANES + 3);
    }
    tw_bar_show();
    s_first_bad = 0x7fffffff;
    s_last_bad = -1;
  }
  tw_await_previous();
  __syncthreads();

  /* The tile that is under way, of those of this block; queries lie in both places in turn. */
  int number = 0, turn = 0;
  /* −1 for all queries of the tile, or the one that is computed alone. */
  int query = -1;
  /* The place of a turn's queries, and of a part in a ring; and the parity of the barrier's phase that it ends. */
  const auto side_of = [](int turn) { return turn & 1; };
  const auto slot_of = [](int part) { return part & (SLOTS - 1); };
  const auto parity_of = [](int part) { return (unsigned)part / SLOTS & 1; };
  const auto tile_of = [&] { return (int)blockIdx.x + number * (int)gridDim.x; };
  const auto first_of = [&] { return tile_of() / KV_HEADS * QUERIES; };
  const auto count_of = [&] { return tw_least(QUERIES, rows - first_of()); };
  /* All threads: the next tile, or the next query of those that are computed again. Whether there is one. */
  const auto next = [&] {
    turn++;
    if (query >= 0) {
      if (++query < count_of()) return true;
      query = 0;
      return ++number <= s_last_bad;
    }
    number++;
    if (tile_of() < tiles) return true;
    __syncthreads();  /* All results were looked at. */
    query = 0;
    number = s_first_bad;
    return number <= s_last_bad;
  };

  if (group == 0) {
    tw_registers_of_producers();
    /* A lane gathers 16 bytes of each of OWN_ROWS rows of a part. */
    constexpr int OWN_ROWS = KEYS * PIECES / LANES;
    static_assert(OWN_ROWS % 8 == 0, "rows of a lane begin with one whose pieces lie in order");
    const int warp = uniform(thread >> 5), own_row = lane / PIECES * OWN_ROWS, piece = lane % PIECES;
    const int *list = (const int *)p5;
    /* Parts that were loaded, which are numbered in this order. */
    int loaded = 0;
    /* The parities of the phases of keys_wanted that come next. */
    unsigned parities = 0;
    for (bool is_more = tile_of() < tiles; is_more; is_more = next()) {
      const int side = side_of(turn), first = first_of(), count = count_of(), kv = tile_of() % KV_HEADS;
      const int end = query < 0 ? count : query + 1;
      const unsigned round = turn >> 1 & 1;
      Queries &queries = s_queries[side];
      if (warp == GOES_AHEAD) {
        const auto token_of = [&](int i) {
          if (i >= count) return -1;
          const int token = ((const int *)p6)[first + i];
          return (unsigned)token < (unsigned)T ? token : -1;
        };
        tw_bar_wait(queries_empty + 8 * side, round ^ 1);
        __syncwarp();
        for (int i = lane; i < QUERIES; i += LANES) {
          const int token = token_of(i), begin = token < 0 ? -1 : ((const int *)p3)[token];
          queries.token[i] = token;
          queries.begin[i] = begin;
          queries.position[i] = begin < 0 ? -1 : tw_least(((const int *)p4)[token], C - begin - 1);
        }
        __syncwarp();  /* Tokens and positions are there. */
        if (query >= 0 && lane == 0) {
          queries.next[query] = query + 1;
          /*
           * Whole chunks, with zeros past the query's keys: in place of a second part the first one would be multiplied by
           * zeros, and infinities that the query sees would become NaN. All rows are gathered.
           */
          queries.keys[query] = (queries.position[query] + CHUNK) / CHUNK * CHUNK;
          queries.shared[query] = 0;
          queries.place[query] = BOXES;
        }
        /* Parts whose keys are read together: a read takes as long as a part is multiplied. */
        constexpr int TOGETHER = 4;
        /* The list of the run before, and the place of the next part among the tile's. */
        int their_begin = 0, their_keys = 0, place = 0;
        for (int run = query < 0 ? 0 : count, behind = 0; run < count; run = behind) {
          const int begin = uniform(queries.begin[run]);
          int highest = -1;
          behind = count;
          for (int i = run + 1 + lane; i < behind; i += LANES) if (queries.begin[i] != begin) behind = i;
          behind = __reduce_min_sync(0xffffffffu, behind);
          for (int i = run + lane; i < behind; i += LANES) highest = tw_most(highest, queries.position[i]);
          const int keys = __reduce_max_sync(0xffffffffu, highest) + 1;
          const int *ours = list + begin, *theirs = list + their_begin;
          /* Parts that both lists have whole, up to the first that differs. */
          const int most = tw_least(their_keys, keys) / KEYS;
          int common = most;
#pragma unroll 1
          for (int part = 0; part < most; part += TOGETHER) {
            int differs[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
              const int low = tw_least(part + i, most - 1) * KEYS + lane, high = low + LANES;
              differs[i] = (ours[low] ^ theirs[low]) | (ours[high] ^ theirs[high]);
            }
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) if (differs[i] != 0) common = tw_least(common, part + i);
          }
          common = __reduce_min_sync(0xffffffffu, common);
          /* Whole chunks, so that every run begins with one. */
          const int from = common - common % (CHUNK / KEYS);
          if (lane == 0) {
            queries.next[run] = behind;
            queries.keys[run] = keys;
            queries.shared[run] = from;
            queries.place[run] = place - from;
          }
          const int parts = (keys + KEYS - 1) / KEYS;
#pragma unroll 1
          for (int part = from; part < parts; part += TOGETHER) {
            int low[TOGETHER], high[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
              const int key = (part + i) * KEYS + lane;
              low[i] = ours[tw_least(key, keys - 1)];
              high[i] = ours[tw_least(key + LANES, keys - 1)];
            }
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
              const int left = keys - (part + i) * KEYS - lane, first = uniform(low[i]);
              /* What lies behind the last key is multiplied by zero. Rows of states are finite, or a tile is repeated. */
              const bool is_other =
                  (left > 0 && low[i] != first + lane) || (left > LANES && high[i] != first + LANES + lane);
              const bool is_box = !__any_sync(0xffffffffu, is_other);
              const int at = place + part + i - from;
              if (lane == 0 && part + i < parts && at < BOXES) s_boxes[side][at] = is_box ? first : -1;
            }
          }
          place += parts - from;
          their_begin = begin;
          their_keys = keys;
        }
        __syncwarp();
        const Part part = enter(queries, query < 0 ? 0 : query, end);
        if (lane == 0) {
          queries.isEmpty = part.run >= end;
          tw_bar_arrive(queries_known + 8 * side);
        }
        __syncwarp();
        const unsigned short *q = (const unsigned short *)p0 + kv * GROUP * D + piece * 8;
        /* Rows that the warp copies at once, and those for which it looks for a token: of one query, or of several. */
        constexpr int AT_ONCE = LANES / PIECES, STEP = AT_ONCE < GROUP ? GROUP : AT_ONCE;
#pragma unroll 1
        for (int start = 0; start < ROWS; start += STEP) {
          const int own = start + lane / PIECES, i = (GROUP < AT_ONCE ? own : start) / GROUP;
          const int token = queries.token[i];
          const unsigned short *const from = q + (token < 0 ? 0 : token * 1024ll);
#pragma unroll
          for (int row = own; row < own + STEP; row += AT_ONCE)
            tw_cp_async16(shared + side * QUERY_BYTES + place_of_piece(row, piece, QUERY_SLAB), from + row % GROUP * D,
                token < 0 ? 0 : 16);
        }
        tw_bar_arrive_copied(queries_full + 8 * side);
        continue;
      }
      tw_bar_wait(queries_known + 8 * side, round);
      __syncwarp();
      Part part = enter(queries, query < 0 ? 0 : query, end);
      /* The row of key `at` + lane of a part, −1 past the last key. */
      const auto id_of = [&](const Part &part, int at) {
        const int i = part.index * KEYS + at + lane;
        return i < part.keys && (query < 0 || i <= queries.position[query]) ? list[part.begin + i] : -1;
      };
      /* Lanes know the rows `low` and `high` of their keys; each needs those of its own pieces. `stride`: bytes of a row. */
      const auto gather = [&](int (&rows)[KEYS], int low, int high, const unsigned char *from, long long stride, unsigned to,
                              unsigned full) {
        rows[lane] = low;
        rows[LANES + lane] = high;
        __syncwarp();
        from += (kv * PIECES + piece) * 16;
        to += place_of_piece(own_row, piece, KEY_SLAB);
#pragma unroll 1
        for (int i = 0; i < OWN_ROWS; i += 8) {
          /* Read together: a copy waits for what was read of shared memory before. */
          int at[8];
#pragma unroll
          for (int j = 0; j < 8; j++) at[j] = rows[own_row + i + j];
#pragma unroll
          for (int j = 0; j < 8; j++)
            tw_cp_async16((to ^ j * 16) + (i + j) * 128, from + (at[j] < 0 ? 0 : at[j] * stride), at[j] < 0 ? 0 : 16);
        }
        tw_bar_arrive_copied(full);
        __syncwarp();  /* The rows have been read. */
      };
      if (warp == HELPS_KEYS) {
        while (part.run < end) {
          const int slot = slot_of(loaded++);
          if (row_of_box(s_boxes[side], queries, part) < 0) {
            const int low = id_of(part, 0), high = id_of(part, LANES);
            tw_bar_wait(keys_wanted + 8 * slot, parities >> slot & 1);
            parities ^= 1u << slot;
            gather(s_rows[0], low, high, (const unsigned char *)p1, 256ll * 2, ring + slot * SIDE_BYTES,
                keys_full + 8 * slot);
          }
          part = after(queries, part, end);
        }
      } else {
        const bool has_keys = warp != LEADS_VALUES;
        const unsigned full = has_keys ? keys_full : values_full, empty = has_keys ? keys_empty : values_empty;
        const unsigned own_ring = ring + (has_keys ? 0 : RING_BYTES);
        /* The queries [run, to) share the run's parts up to `until`; the last keys that they see, of each warpgroup. */
        int run = -1, to = 0, until = 0, highest[2] = { -1, -1 }, lowest[2] = { -1, -1 };
        const auto describe = [&](const Part &part, bool is_last) {
          if (part.run != run || part.index >= until) {
            run = part.run;
            until = 0x7fffffff;
            for (to = uniform(queries.next[run]); to < end; to = uniform(queries.next[to])) {
              const int parts = uniform(queries.shared[to]);
              if (parts <= part.index) break;
              until = tw_least(until, parts);
            }
#pragma unroll
            for (int own = 0; own < 2; own++) {
              highest[own] = -1;
              lowest[own] = 0x7fffffff;
              for (int i = own * (QUERIES / 2) + lane; i < (own + 1) * (QUERIES / 2); i += LANES) {
                const int position = i >= run && i < to ? queries.position[i] : -1;
                highest[own] = tw_most(highest[own], position);
                lowest[own] = tw_least(lowest[own], position);
              }
              highest[own] = __reduce_max_sync(0xffffffffu, highest[own]);
              lowest[own] = __reduce_min_sync(0xffffffffu, lowest[own]);
            }
          }
          const int from = part.index * KEYS;
          int flags = ((part.index + 1) * KEYS < part.keys ? HAS_TWO : 0) | (is_last ? IS_LAST : 0);
#pragma unroll
          for (int own = 0; own < 2; own++)
            flags |= (from <= highest[own] ? IS_SEEN << own : 0) | (from + KEYS - 1 > lowest[own] ? IS_CUT0 << own : 0) |
                (from + CHUNK - 1 > lowest[own] ? IS_CUT1 << own : 0);
          if (lane == 0) s_chunk[loaded % (2 * SLOTS)] = Chunk{ flags, from, run, to };
        };
        while (part.run < end) {
          const Part behind = after(queries, part, end);
          const int slot = slot_of(loaded);
          const int row = row_of_box(s_boxes[side], queries, part);
          tw_bar_wait(empty + 8 * slot, parity_of(loaded) ^ 1);
          /* Chunks begin with even parts. */
          if (has_keys && part.index % 2 == 0) {
            const bool has_two = (part.index + 1) * KEYS < part.keys;
            describe(part, has_two ? after(queries, behind, end).run >= end : behind.run >= end);
          }
          __syncwarp();
          if (lane == 0 && row >= 0) {
            tw_bar_arrive_for(full + 8 * slot, LANES);
            tw_bar_expect(full + 8 * slot, SIDE_BYTES);
#pragma unroll
            for (int slab = 0; slab < SLABS; slab++)
              tw_load_box(own_ring + slot * SIDE_BYTES + slab * KEY_SLAB, has_keys ? &m0 : &m1, kv * D + slab * 64, row,
                  full + 8 * slot);
          }
          if (lane == 0 && row < 0) {
            tw_bar_arrive(full + 8 * slot);
            if (has_keys) tw_bar_arrive(keys_wanted + 8 * slot);
          }
          __syncwarp();
          if (!has_keys && row < 0)
            gather(s_rows[1], id_of(part, 0), id_of(part, LANES), (const unsigned char *)p2, 256ll * 2,
                own_ring + slot * SIDE_BYTES, full + 8 * slot);
          part = behind;
          loaded++;
        }
      }
      __syncwarp();
      if (lane == 0) tw_bar_arrive(queries_empty + 8 * side);
    }
    return;
  }

  tw_registers_of_consumers();
  const int own = group - 1, row0 = ((thread >> 5) - 4) * 16 + (lane >> 2);
  /*
   * Parts have numbers, in the order in which they come. A chunk's first part and its flags; and the same of the chunk
   * before, whose values are multiplied.
   */
  int chunk = -1, flags = 0, before = 0, before_flags = 0;
  /* A chunk's second part, or its first one again if there is no second. */
  const auto second_of = [](int chunk, int flags) { return chunk + (flags & HAS_TWO); };
  const auto about = [&](int chunk) -> const Chunk & { return s_chunk[chunk % (2 * SLOTS)]; };
  const auto await = [&](unsigned full, int part) { tw_bar_wait(full + 8 * slot_of(part), parity_of(part)); };
  const auto release = [&](unsigned bar) { if (lane == 0) tw_bar_arrive(bar); };
  const auto release_both = [&](unsigned empty, int chunk, int flags) {
    release(empty + 8 * slot_of(chunk));
    if ((flags & HAS_TWO) != 0) release(empty + 8 * slot_of(chunk + 1));
  };
  for (bool is_more = tile_of() < tiles; is_more; is_more = next()) {
    const int side = side_of(turn);
    const unsigned round = turn >> 1 & 1;
    float o[D / 2], total[D / 2], scores[KEYS / 2];
    unsigned early[KEYS / 16][4], weight[CHUNK / 16][4];
    float top0, top1, sum0, sum1, first0, first1;
    float total_top0 = NOTHING, total_top1 = NOTHING, total_sum0 = 0.0f, total_sum1 = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 2; i++) total[i] = 0.0f;
    const unsigned query_rows =
        tw_rows_at(shared) + uniform(side) * (QUERY_BYTES / 16) + own * (64 * 128 / 16);
    tw_bar_wait(queries_known + 8 * side, round);
    /* Whether there is a chunk. */
    bool is_open = s_queries[side].isEmpty == 0;
    /* Goes to the next chunk, whose first keys are there then. Whether a row sees it. */
    const auto go_on = [&] {
      chunk = second_of(chunk, flags) + 1;
      await(keys_full, chunk);
      flags = uniform(about(chunk).flags);
      return (flags & IS_SEEN << own) != 0;
    };
    const auto skip = [&] {
      await(keys_full, second_of(chunk, flags));
      await(values_full, chunk);
      await(values_full, second_of(chunk, flags));
      /* No lane still waits for what others release: barriers might go on by two phases. */
      __syncwarp();
      release_both(keys_empty, chunk, flags);
      release_both(values_empty, chunk, flags);
    };
    const auto multiply_keys = [&](int part) {
      const unsigned keys = tw_rows_at(ring) + uniform(slot_of(part)) * (SIDE_BYTES / 16);
#pragma unroll
      for (int i = 0; i < D / 16; i++)
        tw_wgmma(scores, tw_descriptor(query_rows + (i >> 2) * (QUERY_SLAB / 16) + (i & 3) * 2),
            tw_descriptor(keys + (i >> 2) * (KEY_SLAB / 16) + (i & 3) * 2), i);
      tw_products_commit();
    };
    const auto multiply_values = [&] {
      const unsigned values = tw_columns_at(ring + RING_BYTES);
      const unsigned early = values + uniform(slot_of(before)) * (SIDE_BYTES / 16);
      const unsigned late = values + uniform(slot_of(second_of(before, before_flags))) * (SIDE_BYTES / 16);
#pragma unroll
      for (int n = 0; n < CHUNK / 16; n++)
        tw_wgmma_values(o, weight[n],
            tw_descriptor((n < KEYS / 16 ? early : late) + n % (KEYS / 16) * (16 * 128 / 16)), n);
      tw_products_commit();
    };
    /* Scores of a part are there; its keys are used no more if `is_over`. */
    const auto settle_scores = [&](int part, bool is_over) {
#pragma unroll
      for (int i = 0; i < KEYS / 2; i++) tw_settled(scores[i]);
      if (is_over) release(keys_empty + 8 * slot_of(part));
    };
    /* Products of values are there. */
    const auto settle_values = [&] {
#pragma unroll
      for (int i = 0; i < D / 2; i++) tw_settled(o[i]);
      release_both(values_empty, before, before_flags);
    };
    /* Scores of keys that a row does not see become −inf; `from`: the part's first key. */
    const auto hide = [&](const Chunk &of, int from) {
      const auto last_of = [&](int row) {
        const int i = row / GROUP;
        return (i >= of.run && i < of.to ? s_queries[side].position[i] : -1) - from - (lane & 3) * 2;
      };
      const int last0 = last_of(row0), last1 = last_of(row0 + 8);
#pragma unroll
      for (int i = 0; i < KEYS / 2; i++)
        if (i / 4 * 8 + (i & 1) > ((i & 2) == 0 ? last0 : last1)) scores[i] = -tw_inf();
    };
    /* The chunk's first part: its weights are rescaled when the second one's maxima are known. */
    const auto weigh_first = [&] {
      if ((flags & IS_CUT0 << own) != 0) hide(about(chunk), about(chunk).from);
      top0 = top1 = NOTHING;
      sum0 = sum1 = 0.0f;
      weigh(scores, early, top0, top1, sum0, sum1, first0, first1);
    };
    /* The second part, and the whole chunk's weights. */
    const auto weigh_second = [&] {
      if ((before_flags & IS_CUT1 << own) != 0) hide(about(before), about(before).from + KEYS);
      const float before0 = top0, before1 = top1;
      unsigned late[KEYS / 16][4];
      float last_step0, last_step1;
      weigh(scores, late, top0, top1, sum0, sum1, last_step0, last_step1);
      const float keep0 = power2(before0 - top0), keep1 = power2(before1 - top1);
      const unsigned factors[3][2] = { { pair_of(tw_mul(first0, keep0)), pair_of(tw_mul(first1, keep1)) },
          { pair_of(keep0), pair_of(keep1) }, { pair_of(last_step0), pair_of(last_step1) } };
#pragma unroll
      for (int n = 0; n < KEYS / 16; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          weight[n][i] = tw_scaled_pair(early[n][i], factors[n / (STEP / 16)][i & 1]);
          weight[KEYS / 16 + n][i] = n < STEP / 16 ? tw_scaled_pair(late[n][i], factors[2][i & 1]) : late[n][i];
        }
      }
    };
    /*
     * A chunk becomes part of the total: first its maxima and sums, and what its values will be multiplied by. The scale
     * of the total is a power of two, so rounding is the same whichever it is. It follows a maximum that leads by far; or
     * each one, where a query is computed alone because a result was not finite.
     */
    float now0, now1;
    const float lead = query < 0 ? LEAD : 0.0f;
    const auto join_total = [&] {
      const float most0 = top0 > total_top0 + lead ? top0 : total_top0;
      const float most1 = top1 > total_top1 + lead ? top1 : total_top1;
      const float old0 = power2(total_top0 - most0), old1 = power2(total_top1 - most1);
      now0 = power2(top0 - most0);
      now1 = power2(top1 - most1);
      if (__any_sync(0xffffffffu, most0 != total_top0 || most1 != total_top1)) {
#pragma unroll
        for (int i = 0; i < D / 2; i++) total[i] = tw_mul(total[i], (i & 2) == 0 ? old0 : old1);
      }
      total_sum0 = fmaf(tw_quad_sum(sum0), now0, tw_mul(total_sum0, old0));
      total_sum1 = fmaf(tw_quad_sum(sum1), now1, tw_mul(total_sum1, old1));
      total_top0 = most0;
      total_top1 = most1;
    };
    const auto add_values = [&] {
#pragma unroll
      for (int i = 0; i < D / 2; i++) total[i] = fmaf(o[i], (i & 2) == 0 ? now0 : now1, total[i]);
    };
    tw_bar_wait(queries_full + 8 * side, round);
    bool is_seen = is_open && go_on();
    while (is_open) {
      if (!is_seen) {
        skip();
        is_open = (flags & IS_LAST) == 0;
        is_seen = is_open && go_on();
        continue;
      }
      tw_show_products();
      tw_products_begin();
      multiply_keys(chunk);
      tw_products_wait<0>();
      settle_scores(chunk, (flags & HAS_TWO) != 0);
      weigh_first();
      await(keys_full, second_of(chunk, flags));
      tw_show_products();
      tw_products_begin();
      multiply_keys(second_of(chunk, flags));
      /* What there is to know while its second part is multiplied: whether there is a chunk behind it. */
      const auto look_ahead = [&] {
        before = chunk;
        before_flags = flags;
        await(values_full, before);
        await(values_full, second_of(before, before_flags));
        is_open = (flags & IS_LAST) == 0;
        is_seen = is_open && go_on();
        tw_show_products();
      };
      look_ahead();
      tw_products_wait<0>();
      settle_scores(second_of(before, before_flags), true);
      weigh_second();
      while (is_seen) {
        tw_products_begin();
        multiply_keys(chunk);
        multiply_values();
        join_total();
        tw_products_wait<1>();
        settle_scores(chunk, (flags & HAS_TWO) != 0);
        weigh_first();
        await(keys_full, second_of(chunk, flags));
        tw_show_products();
        tw_products_begin();
        multiply_keys(second_of(chunk, flags));
        tw_products_wait<1>();
        settle_values();
        add_values();
        look_ahead();
        tw_products_wait<0>();
        settle_scores(second_of(before, before_flags), true);
        weigh_second();
      }
      tw_products_begin();
      multiply_values();
      join_total();
      tw_products_wait<0>();
      settle_values();
      add_values();
    }
  
    /* Whether a row has a result: that of a query with keys. */
    const auto is_written = [&](int row) {
      const int i = row / GROUP;
      return s_queries[side].position[i] >= 0 && (query < 0 || i == query);
    };
    const bool is_own0 = is_written(row0), is_own1 = is_written(row0 + 8);
    __syncwarp();
    release(queries_empty + 8 * side);
    /* Writes a row, and adds up its results times zero: no zero if one is not finite. */
    const auto write = [&](int row, const float *values, float sum, bool is_own) {
      const float inverse = 1.0f / sum;
      float check = 0.0f;
      bf16 *const out = (bf16 *)p7 + (long long)(first_of() + row / GROUP) * 1024 +
          (tile_of() % KV_HEADS * GROUP + row % GROUP) * D;
#pragma unroll
      for (int i = 0; i < D / 8; i += 4) {
        Piece piece;
#pragma unroll
        for (int j = 0; j < 4; j++) {
          /* Adding zero makes −0 of a part left out and +0 of one that added nothing the same. */
          const float x = values[4 * (i + j)] * inverse + 0.0f, y = values[4 * (i + j) + 1] * inverse + 0.0f;
          check = fmaf(x, 0.0f, fmaf(y, 0.0f, check));
          piece.word[j] = tw_pack_bf16(x, y);
        }
        exchange(piece, lane);
        if (is_own) *(Piece *)(out + (i + (lane & 3)) * 8) = piece;
      }
      return check;
    };
    const float check0 = write(row0, total, total_sum0, is_own0);
    const float check1 = write(row0 + 8, total + 2, total_sum1, is_own1);
    if (query < 0 && ((is_own0 && check0 != 0.0f) || (is_own1 && check1 != 0.0f))) {
      atomicMin(&s_first_bad, number);
      atomicMax(&s_last_bad, number);
    }
  }
}
