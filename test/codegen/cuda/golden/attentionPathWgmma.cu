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
/* Makes initialised barriers visible. */
__device__ __forceinline__ void tw_bar_show() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void tw_bar_arrive(unsigned bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}
__device__ __forceinline__ void tw_bar_wait(unsigned bar, unsigned parity) {
  asm volatile("{ .reg .pred p;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               "@p bra DONE;\nbra AGAIN;\nDONE: }" :: "r"(bar), "r"(parity) : "memory");
}
/* Arrives when all copies that this thread has started are there. */
__device__ __forceinline__ void tw_bar_arrive_copied(unsigned bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(bar) : "memory");
}
/* Barriers by number, of `count` threads: those that wait, and those that only arrive. */
__device__ __forceinline__ void tw_named_sync(int id, int count) {
  asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(count) : "memory");
}
__device__ __forceinline__ void tw_named_arrive(int id, int count) {
  asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(count) : "memory");
}
/* Makes what this thread has written to shared memory, or has waited for, visible to products. */
__device__ __forceinline__ void tw_show_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void tw_registers_of_producers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
}
__device__ __forceinline__ void tw_registers_of_consumers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
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
/* Descriptor of a slab whose rows are multiplied by rows: 1024 bytes from 8 rows to the next. */
TW_FN unsigned long long tw_rows_at(unsigned at) {
  return 0x4000004000010000ull | ((unsigned long long)(at & 0x3ffff) >> 4);
}
/* Of slabs whose columns are multiplied by rows: the same, and 8192 bytes from 64 columns to the next. */
TW_FN unsigned long long tw_columns_at(unsigned at) {
  return 0x4000004002000000ull | ((unsigned long long)(at & 0x3ffff) >> 4);
}
TW_FN int tw_most(int a, int b) { return a > b ? a : b; }


/*
 * 8 heads of 128 over 2 of keys: a block computes 32 queries of the 4 heads that
 * share one head of keys, so that a key is loaded once for all of them. Row r of the block's tile is head r % GROUP of
 * query r / GROUP; each of two warpgroups multiplies 64 rows. A third one gathers keys and values into rings.
 *
 * Query q sees the rows key[begin[q] + i] of keys and values for i from 0 to position[q]. Queries next to each other
 * with one `begin` are a run. A tile is KEYS entries of a run's list, two tiles are a chunk. Runs whose lists begin
 * alike, as questions after the same examples do, share their first chunks: those are loaded and multiplied once, for
 * the queries of all these runs.
 *
 * A warpgroup issues the scores of a chunk's first tile together with the products of values of the chunk before, and
 * computes the tile's weights while those are multiplied. It issues the scores of the second tile before it adds the
 * chunk before to the total.
 *
 * The bits of an answer are those of the kernels on mma.sync (attentionPathMma): keys are taken in order of position,
 * 16 a step of a product, STEP a step of the softmax, CHUNK a partial result. A chunk has four steps of the softmax.
 * Where a later one moves a row's maximum, the weights of those before are rescaled before they are multiplied: by
 * powers of two, so the sums are the same. A row that does not see a chunk adds exact zeros. If a result of the block
 * is not finite, the block is repeated query by query, with zeros in place of the keys that the query does not see.
 */
namespace attention {
constexpr int D = 128, GROUP = 4, QUERIES = 32, KV_HEADS = 2, ROWS = 128, STEP = 32,
    KEYS = 64, CHUNK = 128, PRODUCERS = 128, CONSUMERS = 256,
    THREADS = PRODUCERS + CONSUMERS, SLOTS = 5;
constexpr int PIECES = D / 8, SLABS = D / 64;
/* Slabs of 64 columns, rows of 128 bytes with the 128-byte swizzle: queries, then rings of keys and of values. */
constexpr unsigned QUERY_SLAB = ROWS * 128, KEY_SLAB = KEYS * 128, SIDE_BYTES = SLABS * KEY_SLAB,
    RING_AT = SLABS * QUERY_SLAB, RING_BYTES = SLOTS * SIDE_BYTES, BARRIERS_AT = RING_AT + 2 * RING_BYTES;
/* Named barriers: of the consumers, and of what runs share. */
constexpr int CONSUMERS_MEET = 1, RUNS_ARE_KNOWN = 2;
constexpr float SCALE = 0.127517431974411f;
/* The maximum of no scores: finite, so that it may be subtracted. */
constexpr float NOTHING = -3.40282347e38f;
static_assert(CHUNK == 2 * KEYS && KEYS == 2 * STEP, "a chunk has two tiles, a tile two steps");

/*
 * 2^x for a whole x of at most 0; 0 where that is no normal number, and for −inf and NaN. Beside 2^23 the last bits of
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
/* Adds chunks of a thread's two rows, their maxima and their sums to the totals of the chunks before. */
TW_FN void add_chunks(float (&total)[D / 2], float &total_top0, float &total_top1, float &total_sum0,
    float &total_sum1, const float (&o)[D / 2], float top0, float top1, float sum0, float sum1) {
  const float most0 = fmaxf(total_top0, top0), most1 = fmaxf(total_top1, top1);
  const float old0 = power2(total_top0 - most0), old1 = power2(total_top1 - most1);
  const float now0 = power2(top0 - most0), now1 = power2(top1 - most1);
  if (__any_sync(0xffffffffu, most0 != total_top0 || most1 != total_top1)) {
#pragma unroll
    for (int i = 0; i < D / 2; i++) total[i] = tw_mul(total[i], (i & 2) == 0 ? old0 : old1);
  }
#pragma unroll
  for (int i = 0; i < D / 2; i++) total[i] = fmaf(o[i], (i & 2) == 0 ? now0 : now1, total[i]);
  total_sum0 = fmaf(sum0, now0, tw_mul(total_sum0, old0));
  total_sum1 = fmaf(sum1, now1, tw_mul(total_sum1, old1));
  total_top0 = most0;
  total_top1 = most1;
}
/*
 * Weights of a tile from its scores: two steps of the softmax of two rows, each by the maximum after it. Maxima and
 * sums are those before the tile, and become those behind it. `late0`, `late1`: what the first step's weights must be
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

/* A tile of a run: the run's first query, its list, and how far the list goes. */
struct Tile {
  int run, begin, keys, index;
};
}  // namespace attention

extern "C" __global__ void __launch_bounds__(384, 1) k_attention_test(int T, int R, int C, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4, void *__restrict__ p5, void *__restrict__ p6, void *__restrict__ p7) {
  using namespace attention;
  extern __shared__ unsigned char tw_shared[];
  /* Of each query: where its path begins, and its position; −1 past the last query. */
  __shared__ int s_begin[QUERIES], s_position[QUERIES];
  /* Of the first query of each run: the run before, the run behind, its keys, and the tiles that the run before has. */
  __shared__ int s_before[QUERIES], s_next[QUERIES], s_keys[QUERIES], s_shared[QUERIES];
  const int thread = threadIdx.x, lane = thread & 31;
  const int group = uniform(thread >> 7);
  const int kv = (int)blockIdx.x % KV_HEADS, first = (int)blockIdx.x / KV_HEADS * QUERIES, rows = R;
  const int count = tw_least(QUERIES, rows - first);
  const int *list = (const int *)p5;
  const unsigned shared = (tw_shared_address(tw_shared) + 1023u) & ~1023u, ring = shared + RING_AT,
      keys_full = shared + BARRIERS_AT, values_full = keys_full + 8 * SLOTS, keys_empty = values_full + 8 * SLOTS,
      values_empty = keys_empty + 8 * SLOTS;
  if (thread == 0) {
    for (int i = 0; i < 2 * SLOTS; i++) {
      tw_bar_init(keys_full + 8 * i, PRODUCERS);
      tw_bar_init(keys_empty + 8 * i, CONSUMERS / 32);
    }
    tw_bar_show();
  }
  tw_await_previous();

  const auto token_of = [&](int i) {
    if (i >= count) return -1;
    const int token = ((const int *)p6)[first + i];
    return (unsigned)token < (unsigned)T ? token : -1;
  };
  for (int i = thread; i < QUERIES; i += THREADS) {
    const int token = token_of(i), begin = token < 0 ? -1 : ((const int *)p3)[token];
    s_begin[i] = begin;
    s_position[i] = begin < 0 ? -1 : tw_least(((const int *)p4)[token], C - begin - 1);
  }
  if (group > 0) {
    const unsigned short *q = (const unsigned short *)p0 + kv * GROUP * D;
    for (int i = thread - PRODUCERS; i < ROWS * PIECES; i += CONSUMERS) {
      const int row = i / PIECES, piece = i % PIECES, token = token_of(row / GROUP);
      tw_cp_async16(shared + place_of_piece(row, piece, QUERY_SLAB),
          q + (token < 0 ? 0 : token * 1024ll + row % GROUP * D + piece * 8), token < 0 ? 0 : 16);
    }
    tw_cp_async_commit();
  }
  __syncthreads();  /* Begins and positions are there. */
  for (int run = thread >> 5; run < count; run += THREADS / 32) {
    const int begin = s_begin[run];
    if (run > 0 && s_begin[run - 1] == begin) continue;
    int next = count, highest = -1;
    for (int i = run + 1 + lane; i < next; i += 32) if (s_begin[i] != begin) next = i;
    next = __reduce_min_sync(0xffffffffu, next);
    for (int i = run + lane; i < next; i += 32) if (s_position[i] > highest) highest = s_position[i];
    highest = __reduce_max_sync(0xffffffffu, highest);
    if (lane == 0) {
      s_next[run] = next;
      s_keys[run] = highest + 1;
      s_shared[run] = run == 0 ? 0 : 0x7fffffff;
      if (next < count) s_before[next] = run;
    }
  }
  __syncthreads();  /* The runs are there. */

  int slot = 0;
  unsigned phase = 0;
  /* Of the pass that is under way: first all queries; then, if a result is not finite, one by one. */
  int pass = -1, end = count;
  /* The first tile of its own of run `run` or, where it has none, of a later run. */
  const auto enter = [&](int run) {
    for (; run < end; run = uniform(s_next[run])) {
      const int keys = uniform(s_keys[run]), index = uniform(s_shared[run]);
      if (index * KEYS < keys) return Tile{ run, uniform(s_begin[run]), keys, index };
    }
    return Tile{ end, 0, 0, 0 };
  };
  const auto after = [&](Tile tile) {
    if ((tile.index + 1) * KEYS >= tile.keys) return enter(uniform(s_next[tile.run]));
    tile.index++;
    return tile;
  };
  /* All threads: the next pass, if one is needed. */
  const auto again = [&](bool is_finite) {
    const bool is_over = !__syncthreads_or(!is_finite) && pass < 0;
    if (is_over || ++pass >= count) return false;
    end = pass + 1;
    if (thread == 0) {
      s_next[pass] = pass + 1;
      s_keys[pass] = s_position[pass] + 1;
      s_shared[pass] = 0;
    }
    __syncthreads();
    return true;
  };

  if (group == 0) {
    tw_registers_of_producers();
    /* A thread copies 16 bytes of each of ROWS_APART-th rows of a tile. */
    constexpr int ROWS_APART = PRODUCERS / PIECES;
    const int own_row = thread / PIECES, piece = thread % PIECES;
    const unsigned place = ring + place_of_piece(own_row, piece, KEY_SLAB);
    const unsigned short *k = (const unsigned short *)p1 + kv * D + piece * 8;
    const unsigned short *v = (const unsigned short *)p2 + kv * D + piece * 8;
    /* Lane l has the rows of keys l and 32 + l of a tile, −1 past the last key. */
    const auto id_of = [&](const Tile &tile, int at) {
      const int i = tile.index * KEYS + at + lane;
      return i < tile.keys ? list[tile.begin + i] : -1;
    };
    const auto gather = [&](const unsigned short *from, long long stride, unsigned to, int low, int high, unsigned bar) {
#pragma unroll
      for (int j = 0; j < KEYS; j += ROWS_APART) {
        const int row = __shfl_sync(0xffffffffu, j < 32 ? low : high, (own_row + j) & 31);
        tw_cp_async16(to + j * 128, from + (row < 0 ? 0 : row * stride), row < 0 ? 0 : 16);
      }
      tw_bar_arrive_copied(bar);
    };
    /* The first run has no tiles of another: consumers compare the others' lists while its tiles are on their way. */
    bool is_known = false;
    const auto know = [&] {
      if (!is_known) tw_named_sync(RUNS_ARE_KNOWN, THREADS);
      is_known = true;
    };
    do {
      if (s_keys[0] == 0) know();
      Tile tile = enter(pass < 0 ? 0 : pass);
      int low = id_of(tile, 0), high = id_of(tile, 32);
      while (tile.run < end) {
        tw_bar_wait(keys_empty + 8 * slot, phase ^ 1);
        gather(k, 256, place + slot * SIDE_BYTES, low, high, keys_full + 8 * slot);
        if ((tile.index + 1) * KEYS >= tile.keys) know();
        tile = after(tile);
        const int next_low = id_of(tile, 0), next_high = id_of(tile, 32);
        tw_bar_wait(values_empty + 8 * slot, phase ^ 1);
        gather(v, 256, place + RING_BYTES + slot * SIDE_BYTES, low, high, values_full + 8 * slot);
        low = next_low;
        high = next_high;
        if (++slot == SLOTS) { slot = 0; phase ^= 1; }
      }
    } while (again(true));
    return;
  }

  tw_registers_of_consumers();
  const int warp = (thread >> 5) - 4, row0 = warp * 16 + (lane >> 2), row1 = row0 + 8;
  const unsigned long long queries = tw_rows_at(shared) + (group - 1) * (64 * 128 / 16);
  for (int run = uniform(s_next[0]); run < count; run = uniform(s_next[run])) {
    const int before = uniform(s_before[run]), most = tw_least(s_keys[before], s_keys[run]) / KEYS;
    const int *ours = list + s_begin[run] + lane, *theirs = list + s_begin[before] + lane;
    int tiles = most;
    /* Four tiles at once, so that their loads overlap. */
    for (int tile = warp; tile < tiles; tile += 4 * CONSUMERS / 32) {
      int least = most;
#pragma unroll
      for (int i = 3; i >= 0; i--) {
        const int at = tile + i * (CONSUMERS / 32);
        if (at < most && ((ours[at * KEYS] ^ theirs[at * KEYS]) | (ours[at * KEYS + 32] ^ theirs[at * KEYS + 32])) != 0)
          least = at;
      }
      tiles = tw_least(tiles, __reduce_min_sync(0xffffffffu, least));
    }
    /* Whole chunks, so that every run begins with one. */
    if (lane == 0) atomicMin(&s_shared[run], tiles - tiles % (CHUNK / KEYS));
  }
  tw_cp_async_wait<0>();
  tw_show_products();
  tw_named_arrive(RUNS_ARE_KNOWN, THREADS);
  tw_named_sync(CONSUMERS_MEET, CONSUMERS);  /* The queries and what runs share are there. */
  
  bool is_finite;
  do {
    float o[D / 2], total[D / 2], s[KEYS / 2];
    unsigned early[KEYS / 16][4], weight[CHUNK / 16][4];
    float top0 = NOTHING, top1 = NOTHING, sum0 = 0.0f, sum1 = 0.0f, first0 = 1.0f, first1 = 1.0f;
    float total_top0 = NOTHING, total_top1 = NOTHING, total_sum0 = 0.0f, total_sum1 = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 2; i++) total[i] = 0.0f;
    int run = -1, until = 0, highest = -1, lowest = -1, last0 = -1, last1 = -1;
    /* How far the rows see into the second tile of a chunk, and whether one of them does not see all of it. */
    int left0 = 0, left1 = 0;
    bool is_cut = false;
    /* A chunk's first tile; where its tiles lie, which are the same one if it has no second. */
    Tile tile = enter(pass < 0 ? 0 : pass);
    int a = 0, b = 0, one = 0, other = 0;
    const auto turn = [&] { if (++slot == SLOTS) { slot = 0; phase ^= 1; } };
    const auto place = [&] {
      a = b = slot;
      turn();
      if ((tile.index + 1) * KEYS >= tile.keys) return;
      b = slot;
      turn();
    };
    /* Waits for the newest tile at `at`, where the ring has gone on by fewer than SLOTS tiles. */
    const auto await = [&](unsigned full, int at) { tw_bar_wait(full + 8 * at, phase ^ (unsigned)(at >= slot)); };
    const auto step = [&] {
      if (a != b) tile.index++;
      tile = after(tile);
    };
    /* Whether there is a chunk, and a row of the warpgroup sees it. */
    const auto is_seen = [&] {
      if (tile.run >= end) return false;
      if (tile.run != run || tile.index >= until) {
        /* The queries [run, to) share the run's tiles up to `until`. */
        run = tile.run;
        until = 0x7fffffff;
        int to = pass < 0 ? uniform(s_next[run]) : end;
        while (to < end) {
          const int tiles = uniform(s_shared[to]);
          if (tiles <= tile.index) break;
          until = tw_least(until, tiles);
          to = uniform(s_next[to]);
        }
        /* Their positions, and −1 of others. */
        const auto position_of = [&](int row) {
          const int i = row / GROUP;
          return i >= run && i < to ? s_position[i] : -1;
        };
        const int one = position_of((group - 1) * 64 + lane), other = position_of((group - 1) * 64 + 32 + lane);
        highest = __reduce_max_sync(0xffffffffu, tw_most(one, other));
        lowest = __reduce_min_sync(0xffffffffu, tw_least(one, other));
        last0 = position_of(row0);
        last1 = position_of(row1);
      }
      return tile.index * KEYS <= highest;
    };
    const auto release = [&](unsigned bar) { if (lane == 0) tw_bar_arrive(bar); };
    const auto multiply_keys = [&](int at) {
      const unsigned long long keys = tw_rows_at(ring) + uniform(at) * (SIDE_BYTES / 16);
#pragma unroll
      for (int i = 0; i < D / 16; i++)
        tw_wgmma(s, queries + (i >> 2) * (QUERY_SLAB / 16) + (i & 3) * 2,
            keys + (i >> 2) * (KEY_SLAB / 16) + (i & 3) * 2, i);
      tw_products_commit();
    };
    const auto multiply_values = [&](int one, int other) {
      const unsigned long long early_values = tw_columns_at(ring + RING_BYTES) + uniform(one) * (SIDE_BYTES / 16);
      const unsigned long long late_values = tw_columns_at(ring + RING_BYTES) + uniform(other) * (SIDE_BYTES / 16);
#pragma unroll
      for (int n = 0; n < CHUNK / 16; n++)
        tw_wgmma_values(o, weight[n],
            (n < KEYS / 16 ? early_values : late_values) + n % (KEYS / 16) * (16 * 128 / 16), n);
      tw_products_commit();
    };
    /* Products of values are there. */
    const auto settle_values = [&](int one, int other) {
#pragma unroll
      for (int i = 0; i < D / 2; i++) tw_settled(o[i]);
      release(values_empty + 8 * one);
      if (one != other) release(values_empty + 8 * other);
    };
    const auto wait_for_keys = [&] {
      await(keys_full, a);
      await(keys_full, b);
    };
    const auto skip = [&](int at) {
      await(keys_full, at);
      release(keys_empty + 8 * at);
      await(values_full, at);
      release(values_empty + 8 * at);
    };
    /* Scores are there; the tile of keys at `at` is used no more if `is_over`. */
    const auto settle = [&](int at, bool is_over) {
#pragma unroll
      for (int i = 0; i < KEYS / 2; i++) tw_settled(s[i]);
      if (is_over) release(keys_empty + 8 * at);
    };
    /* Scores of keys that a row does not see become −inf; `left0`, `left1`: the last key of the tile that each row sees. */
    const auto hide = [&](int left0, int left1) {
      left0 -= (lane & 3) * 2;
      left1 -= (lane & 3) * 2;
#pragma unroll
      for (int i = 0; i < KEYS / 2; i++) if (i / 4 * 8 + (i & 1) > ((i & 2) == 0 ? left0 : left1)) s[i] = -tw_inf();
    };
    /* The chunk's first tile: its weights are rescaled when the second one's maxima are known. */
    const auto weigh_first = [&] {
      if (tile.index * KEYS + KEYS - 1 > lowest) hide(last0 - tile.index * KEYS, last1 - tile.index * KEYS);
      top0 = top1 = NOTHING;
      sum0 = sum1 = 0.0f;
      weigh(s, early, top0, top1, sum0, sum1, first0, first1);
    };
    /* The second tile, and the whole chunk's weights. */
    const auto weigh_second = [&] {
      if (is_cut) hide(left0, left1);
      const float before0 = top0, before1 = top1;
      float last_step0, last_step1;
      unsigned late[KEYS / 16][4];
      weigh(s, late, top0, top1, sum0, sum1, last_step0, last_step1);
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
    for (;;) {
      for (; tile.run < end && !is_seen(); step()) {
        place();
        skip(a);
        if (a != b) skip(b);
      }
      if (tile.run >= end) break;
      place();
      wait_for_keys();
      tw_show_products();
      tw_products_begin();
      multiply_keys(a);
      tw_products_wait<0>();
      settle(a, a != b);
      weigh_first();
      float ended_top0 = NOTHING, ended_top1 = NOTHING, ended_sum0 = 0.0f, ended_sum1 = 0.0f;
#pragma unroll
      for (int i = 0; i < D / 2; i++) o[i] = 0.0f;
      for (;;) {
        tw_products_begin();
        multiply_keys(b);
        /* While those are multiplied: the chunk before, and what there is to know of the next one. */
        add_chunks(total, total_top0, total_top1, total_sum0, total_sum1, o, ended_top0, ended_top1,
            tw_quad_sum(ended_sum0), tw_quad_sum(ended_sum1));
        left0 = last0 - (tile.index + 1) * KEYS;
        left1 = last1 - (tile.index + 1) * KEYS;
        is_cut = (tile.index + 2) * KEYS - 1 > lowest;
        one = a;
        other = b;
        await(values_full, one);
        await(values_full, other);
        step();
        const bool is_more = is_seen();
        if (is_more) {
          place();
          wait_for_keys();
        }
        tw_show_products();
        tw_products_wait<0>();
        settle(other, true);
        weigh_second();
        if (!is_more) break;
        ended_top0 = top0;
        ended_top1 = top1;
        ended_sum0 = sum0;
        ended_sum1 = sum1;
        tw_products_begin();
        multiply_keys(a);
        multiply_values(one, other);
        tw_products_wait<1>();
        settle(a, a != b);
        weigh_first();
        tw_products_wait<0>();
        settle_values(one, other);
      }
      tw_products_begin();
      multiply_values(one, other);
      tw_products_wait<0>();
      settle_values(one, other);
      add_chunks(total, total_top0, total_top1, total_sum0, total_sum1, o, top0, top1, tw_quad_sum(sum0),
          tw_quad_sum(sum1));
    }
  
    const auto last_of = [&](int row) {
      const int i = row / GROUP;
      return i < count && (pass < 0 || i == pass) ? s_position[i] : -1;
    };
    last0 = last_of(row0);
    last1 = last_of(row1);
    const float inverse0 = 1.0f / total_sum0, inverse1 = 1.0f / total_sum1;
    float check0 = 0.0f, check1 = 0.0f;
    /* Exchanged, so that places of results take no registers before. */
    const int from = uniform(first);
    const auto place_of = [&](int row) {
      return (unsigned short *)p7 + (long long)(from + row / GROUP) * 1024 +
          (kv * GROUP + row % GROUP) * D + (lane & 3) * 2;
    };
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
      /* Adding zero makes −0 of a tile left out and +0 of one that added nothing the same. */
      const float x0 = total[4 * i] * inverse0 + 0.0f, x1 = total[4 * i + 1] * inverse0 + 0.0f;
      const float x2 = total[4 * i + 2] * inverse1 + 0.0f, x3 = total[4 * i + 3] * inverse1 + 0.0f;
      if (last0 >= 0) tw_store2_bf16(place_of(row0) + i * 8, x0, x1);
      if (last1 >= 0) tw_store2_bf16(place_of(row1) + i * 8, x2, x3);
      check0 = fmaf(x0, 0.0f, fmaf(x1, 0.0f, check0));
      check1 = fmaf(x2, 0.0f, fmaf(x3, 0.0f, check1));
    }
    is_finite = (last0 < 0 || check0 == 0.0f) && (last1 < 0 || check1 == 0.0f);
  } while (again(is_finite));
}
