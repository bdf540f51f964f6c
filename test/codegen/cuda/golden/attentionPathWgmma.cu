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
__device__ __forceinline__ void tw_products_end() {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
}
/* Tells the compiler that a product has written an accumulator. */
__device__ __forceinline__ void tw_settled(float &x) { asm volatile("" : "+f"(x) :: "memory"); }
/*
 * All that makes up x, a sum that is not negative, is computed before what follows: the assembler, which does not know
 * that, moves no computations across the branch.
 */
__device__ __forceinline__ void tw_computed(float x) {
  if (__any_sync(0xffffffffu, x < 0.0f)) asm volatile("trap;");
}
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
 * query r / GROUP; each of two warpgroups multiplies 64 rows. A third one gathers keys and values into a ring.
 *
 * Query q sees the rows key[begin[q] + i] of keys and values for i from 0 to position[q]. Queries next to each other
 * with one `begin` are a run. A tile is KEYS entries of a run's list. Runs whose lists begin alike, as questions after
 * the same examples do, share their first tiles: those are loaded and multiplied once, for the queries of all these
 * runs.
 *
 * The bits of an answer are those of the kernels on mma.sync (attentionPathMma): keys are taken in order of position,
 * 16 a step of a product, STEP a step of the softmax, CHUNK a partial result. A tile has two steps of the softmax.
 * Where the second one moves a row's maximum, the first one's weights are rescaled before they are multiplied: by
 * powers of two, so the sums are the same. A row that does not see a tile adds exact zeros. If a result of the block is
 * not finite, the block is repeated query by query, with zeros in place of the keys that the query does not see.
 */
namespace attention {
constexpr int D = 128, GROUP = 4, QUERIES = 32, KV_HEADS = 2, ROWS = 128, STEP = 32,
    KEYS = 64, CHUNK = 128, PRODUCERS = 128, CONSUMERS = 256,
    THREADS = PRODUCERS + CONSUMERS, SLOTS = 3;
constexpr int PIECES = D / 8, SLABS = D / 64;
/* Slabs of 64 columns, rows of 128 bytes with the 128-byte swizzle: queries, then a ring of keys and values. */
constexpr unsigned QUERY_SLAB = ROWS * 128, KEY_SLAB = KEYS * 128, SIDE_BYTES = SLABS * KEY_SLAB,
    SLOT_BYTES = 2 * SIDE_BYTES, RING_AT = SLABS * QUERY_SLAB, TOTALS_AT = RING_AT + SLOTS * SLOT_BYTES,
    BARRIERS_AT = TOTALS_AT + CONSUMERS * (D / 8 + 1) * 16;
constexpr float SCALE = 0.127517431974411f;

/* 2^x for a whole x of at most 0; 0 where that is no normal number, and for −inf and NaN. */
TW_FN float power2(float x) { return x >= -126.0f ? __int_as_float(((int)x + 127) << 23) : 0.0f; }
/* Where 16 bytes of a row lie in a slab. */
TW_FN unsigned place_of_piece(int row, int piece, unsigned slab) {
  return (piece >> 3) * slab + row * 128 + ((piece ^ row) & 7) * 16;
}

/*
 * What the chunks of a thread's two rows add up to, in shared memory, since registers are full of products: pairs of
 * values of the first row and of the second, then maximum and sum of each.
 */
TW_FN tw_f4 &total_of(tw_f4 *total, int i) { return total[i * CONSUMERS]; }
template <int ROW> TW_FN tw_f2 &half_of(tw_f4 &x) { return ((tw_f2 *)&x)[ROW]; }
/* Adds the total of the chunks before to a row's current chunk. */
template <int ROW> TW_FN void add_total(tw_f4 *total, float (&o)[D / 2], float &top, float &sum) {
  const tw_f2 before = half_of<ROW>(total_of(total, D / 8));
  const float most = fmaxf(before.x, top), old = power2(before.x - most), now = power2(top - most);
  sum = fmaf(sum, now, tw_mul(before.y, old));
  top = most;
#pragma unroll
  for (int i = 0; i < D / 8; i++) {
    const tw_f2 x = half_of<ROW>(total_of(total, i));
    o[4 * i + 2 * ROW] = fmaf(o[4 * i + 2 * ROW], now, tw_mul(x.x, old));
    o[4 * i + 2 * ROW + 1] = fmaf(o[4 * i + 2 * ROW + 1], now, tw_mul(x.y, old));
  }
}
/* Ends a row's chunk, which is not the first if `has_total`. `all` is its sum over the row's threads. */
template <int ROW>
TW_FN void end_chunk(tw_f4 *total, bool has_total, float (&o)[D / 2], float &top, float &sum, float all) {
  if (has_total) add_total<ROW>(total, o, top, all);
  half_of<ROW>(total_of(total, D / 8)) = tw_f2{ top, all };
  top = -tw_inf();
  sum = 0.0f;
#pragma unroll
  for (int i = 0; i < D / 8; i++) {
    half_of<ROW>(total_of(total, i)) = tw_f2{ o[4 * i + 2 * ROW], o[4 * i + 2 * ROW + 1] };
    o[4 * i + 2 * ROW] = o[4 * i + 2 * ROW + 1] = 0.0f;
  }
}
/* Puts the chunk of both rows into the total. The next chunk's first product replaces `o`. */
TW_FN void end_chunks(tw_f4 *total, bool has_total, const float (&o)[D / 2], float top0, float top1, float all0,
    float all1) {
  float now0 = 1.0f, now1 = 1.0f, old0 = 0.0f, old1 = 0.0f;
  if (has_total) {
    const tw_f4 before = total_of(total, D / 8);
    const float most0 = fmaxf(before.x, top0), most1 = fmaxf(before.z, top1);
    now0 = power2(top0 - most0);
    now1 = power2(top1 - most1);
    old0 = power2(before.x - most0);
    old1 = power2(before.z - most1);
    all0 = fmaf(all0, now0, tw_mul(before.y, old0));
    all1 = fmaf(all1, now1, tw_mul(before.w, old1));
    top0 = most0;
    top1 = most1;
  }
  total_of(total, D / 8) = tw_f4{ top0, all0, top1, all1 };
#pragma unroll
  for (int i = 0; i < D / 8; i++) {
    tw_f4 x = { 0.0f, 0.0f, 0.0f, 0.0f };
    if (has_total) x = total_of(total, i);
    total_of(total, i) = tw_f4{ fmaf(o[4 * i], now0, tw_mul(x.x, old0)), fmaf(o[4 * i + 1], now0, tw_mul(x.y, old0)),
        fmaf(o[4 * i + 2], now1, tw_mul(x.z, old1)), fmaf(o[4 * i + 3], now1, tw_mul(x.w, old1)) };
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
  /* Exchanged, so that the compiler knows it to be uniform. */
  const int group = __shfl_sync(0xffffffffu, thread >> 7, 0);
  const int kv = (int)blockIdx.x % KV_HEADS, first = (int)blockIdx.x / KV_HEADS * QUERIES, rows = R;
  const int count = tw_least(QUERIES, rows - first);
  const unsigned short *q = (const unsigned short *)p0 + kv * GROUP * D;
  const unsigned short *k = (const unsigned short *)p1 + kv * D;
  const unsigned short *v = (const unsigned short *)p2 + kv * D;
  const int *list = (const int *)p5;
  const unsigned shared = (tw_shared_address(tw_shared) + 1023u) & ~1023u, ring = shared + RING_AT,
      full = shared + BARRIERS_AT, empty = full + 8 * SLOTS;
  if (thread == 0) {
    for (int i = 0; i < SLOTS; i++) {
      tw_bar_init(full + 8 * i, PRODUCERS);
      tw_bar_init(empty + 8 * i, CONSUMERS / 32);
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
  for (int i = thread; i < ROWS * PIECES; i += THREADS) {
    const int row = i / PIECES, piece = i % PIECES, token = token_of(row / GROUP);
    tw_cp_async16(shared + place_of_piece(row, piece, QUERY_SLAB),
        q + (token < 0 ? 0 : token * 1024ll + row % GROUP * D + piece * 8), token < 0 ? 0 : 16);
  }
  tw_cp_async_commit();
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
      s_shared[run] = 0;
      if (next < count) s_before[next] = run;
    }
  }
  __syncthreads();  /* The runs are there. */
  for (int run = thread >> 5; run < count; run += THREADS / 32) {
    const int begin = s_begin[run];
    if (run == 0 || s_begin[run - 1] == begin) continue;
    const int before = s_before[run], most = tw_least(s_keys[before], s_keys[run]) / KEYS;
    const int *ours = list + begin + lane, *theirs = list + s_begin[before] + lane;
    int tiles = 0;
    while (tiles < most && !__any_sync(0xffffffffu, ours[tiles * KEYS] != theirs[tiles * KEYS] ||
        ours[tiles * KEYS + 32] != theirs[tiles * KEYS + 32])) tiles++;
    if (lane == 0) s_shared[run] = tiles;
  }
  tw_cp_async_wait<0>();
  tw_show_products();
  __syncthreads();  /* The queries and what runs share are there. */

  int slot = 0;
  unsigned phase = 0;
  /* Of the pass that is under way: first all queries; then, if a result is not finite, one by one. */
  int pass = -1, end = count;
  /* The first tile of its own of run `run` or, where it has none, of a later run. */
  const auto enter = [&](int run) {
    for (; run < end; run = s_next[run])
      if (s_shared[run] * KEYS < s_keys[run]) return Tile{ run, s_begin[run], s_keys[run], s_shared[run] };
    return Tile{ end, 0, 0, 0 };
  };
  const auto after = [&](Tile tile) {
    if ((tile.index + 1) * KEYS >= tile.keys) return enter(s_next[tile.run]);
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
    /* Lane l has the rows of keys l and 32 + l of a tile, −1 past the last key. */
    const auto id_of = [&](const Tile &tile, int at) {
      const int i = tile.index * KEYS + at + lane;
      return i < tile.keys ? list[tile.begin + i] : -1;
    };
    do {
      int before = -1;
      for (Tile tile = enter(pass < 0 ? 0 : pass); tile.run < end; tile = after(tile)) {
        const int low = id_of(tile, 0), high = id_of(tile, 32);
        tw_bar_wait(empty + 8 * slot, phase ^ 1);
#pragma unroll 4
        for (int i = thread; i < KEYS * PIECES; i += PRODUCERS) {
          const int at = i / PIECES, piece = i % PIECES;
          const int row = __shfl_sync(0xffffffffu, at < 32 ? low : high, at & 31);
          const unsigned place = ring + slot * SLOT_BYTES + place_of_piece(at, piece, KEY_SLAB);
          tw_cp_async16(place, k + (row < 0 ? 0 : row * 256ll + piece * 8), row < 0 ? 0 : 16);
          tw_cp_async16(place + SIDE_BYTES, v + (row < 0 ? 0 : row * 256ll + piece * 8), row < 0 ? 0 : 16);
        }
        tw_cp_async_commit();
        if (before >= 0) {
          tw_cp_async_wait<1>();
          tw_show_products();
          tw_bar_arrive(full + 8 * before);
        }
        before = slot;
        if (++slot == SLOTS) { slot = 0; phase ^= 1; }
      }
      if (before >= 0) {
        tw_cp_async_wait<0>();
        tw_show_products();
        tw_bar_arrive(full + 8 * before);
      }
    } while (again(true));
    return;
  }

  tw_registers_of_consumers();
  const int warp = (thread >> 5) - 4, row0 = warp * 16 + (lane >> 2), row1 = row0 + 8;
  const unsigned long long queries = tw_rows_at(shared) + (group - 1) * (64 * 128 / 16);
  tw_f4 *const total = (tw_f4 *)(tw_shared + (shared - tw_shared_address(tw_shared)) + TOTALS_AT) + thread - PRODUCERS;
  bool is_finite;
  do {
    float o[D / 2];
    float top0 = -tw_inf(), top1 = -tw_inf(), sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0.0f;
    int run = -1, until = 0, highest = -1, lowest = -1, last0 = -1, last1 = -1;
    for (Tile tile = enter(pass < 0 ? 0 : pass); tile.run < end; tile = after(tile)) {
      const int key = tile.index * KEYS;
      if (tile.run != run || tile.index >= until) {
        /* The queries [run, to) share the run's tiles up to `until`. */
        run = tile.run;
        until = 0x7fffffff;
        int to = pass < 0 ? s_next[run] : end;
        for (; to < end && s_shared[to] > tile.index; to = s_next[to]) until = tw_least(until, s_shared[to]);
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
      tw_bar_wait(full + 8 * slot, phase);
      if (key <= highest) {
        /* Whether all rows of the warpgroup begin a chunk. */
        const bool is_fresh = key % CHUNK == 0 && lowest >= key;
        if (key > 0 && key % CHUNK == 0) {
          const float all0 = tw_quad_sum(sum0), all1 = tw_quad_sum(sum1);
          if (is_fresh) {
            end_chunks(total, key > CHUNK, o, top0, top1, all0, all1);
            top0 = top1 = -tw_inf();
            sum0 = sum1 = 0.0f;
          } else {
            if (last0 >= key) end_chunk<0>(total, key > CHUNK, o, top0, sum0, all0);
            if (last1 >= key) end_chunk<1>(total, key > CHUNK, o, top1, sum1, all1);
          }
          __syncwarp();
        }
        const unsigned long long keys = tw_rows_at(ring + slot * SLOT_BYTES);
        const unsigned long long values = tw_columns_at(ring + slot * SLOT_BYTES + SIDE_BYTES);
        float s[KEYS / 2];
        unsigned weight[KEYS / 16][4];
        tw_products_begin();
#pragma unroll
        for (int i = 0; i < D / 16; i++)
          tw_wgmma(s, queries + (i >> 2) * (QUERY_SLAB / 16) + (i & 3) * 2,
              keys + (i >> 2) * (KEY_SLAB / 16) + (i & 3) * 2, i);
        tw_products_end();
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) tw_settled(s[i]);
        if (key + KEYS - 1 > lowest) {
#pragma unroll
          for (int i = 0; i < KEYS / 2; i++)
            if (key + i / 4 * 8 + (lane & 3) * 2 + (i & 1) > ((i & 2) == 0 ? last0 : last1)) s[i] = -tw_inf();
        }
        /* The maxima after each step of the softmax. */
        float most0[KEYS / STEP], most1[KEYS / STEP];
#pragma unroll
        for (int step = 0; step < KEYS / STEP; step++) {
          constexpr int OWN = STEP / 2;
          float own0 = s[step * OWN], own1 = s[step * OWN + 2];
#pragma unroll
          for (int i = 0; i < OWN; i += 4) {
            own0 = fmaxf(own0, fmaxf(s[step * OWN + i], s[step * OWN + i + 1]));
            own1 = fmaxf(own1, fmaxf(s[step * OWN + i + 2], s[step * OWN + i + 3]));
          }
          own0 = fmaxf(own0, __shfl_xor_sync(0xffffffffu, own0, 1));
          own1 = fmaxf(own1, __shfl_xor_sync(0xffffffffu, own1, 1));
          own0 = fmaxf(own0, __shfl_xor_sync(0xffffffffu, own0, 2));
          own1 = fmaxf(own1, __shfl_xor_sync(0xffffffffu, own1, 2));
          most0[step] = fmaxf(step == 0 ? top0 : most0[0], ceilf(tw_mul(own0, SCALE)));
          most1[step] = fmaxf(step == 0 ? top1 : most1[0], ceilf(tw_mul(own1, SCALE)));
        }
        /* What was added before the first step, and by it, is kept by these factors. */
        const float early0 = power2(top0 - most0[0]), early1 = power2(top1 - most1[0]);
        const float late0 = power2(most0[0] - most0[1]), late1 = power2(most1[0] - most1[1]);
        if (__any_sync(0xffffffffu, most0[1] != top0 || most1[1] != top1) && !is_fresh) {
          const float keep0 = tw_mul(early0, late0), keep1 = tw_mul(early1, late1);
#pragma unroll
          for (int i = 0; i < D / 2; i++) o[i] = tw_mul(o[i], (i & 2) == 0 ? keep0 : keep1);
        }
        top0 = most0[1];
        top1 = most1[1];
        sum0 = tw_mul(sum0, early0);
        sum1 = tw_mul(sum1, early1);
#pragma unroll
        for (int step = 0; step < KEYS / STEP; step++) {
          /* A row may have seen nothing yet. */
          const float shift0 = most0[step] == -tw_inf() ? 0.0f : -most0[step];
          const float shift1 = most1[step] == -tw_inf() ? 0.0f : -most1[step];
          if (step > 0) {
            sum0 = tw_mul(sum0, late0);
            sum1 = tw_mul(sum1, late1);
          }
#pragma unroll
          for (int n = step * STEP / 8; n < (step + 1) * STEP / 8; n++) {
            float x0 = tw_exp2(fmaf(s[4 * n], SCALE, shift0)), x1 = tw_exp2(fmaf(s[4 * n + 1], SCALE, shift0));
            float x2 = tw_exp2(fmaf(s[4 * n + 2], SCALE, shift1)), x3 = tw_exp2(fmaf(s[4 * n + 3], SCALE, shift1));
            sum0 += x0 + x1;
            sum1 += x2 + x3;
            if (step == 0) {
              x0 = tw_mul(x0, late0);
              x1 = tw_mul(x1, late0);
              x2 = tw_mul(x2, late1);
              x3 = tw_mul(x3, late1);
            }
            weight[n / 2][n % 2 * 2] = tw_pack_bf16(x0, x1);
            weight[n / 2][n % 2 * 2 + 1] = tw_pack_bf16(x2, x3);
          }
        }
        tw_products_begin();
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++)
          tw_wgmma_values(o, weight[n], values + n * (16 * 128 / 16), n > 0 || !is_fresh);
        tw_products_end();
#pragma unroll
        for (int i = 0; i < D / 2; i++) tw_settled(o[i]);
      }
      if (lane == 0) tw_bar_arrive(empty + 8 * slot);
      if (++slot == SLOTS) { slot = 0; phase ^= 1; }
    }

    sum0 = tw_quad_sum(sum0);
    sum1 = tw_quad_sum(sum1);
    const auto last_of = [&](int row) {
      const int i = row / GROUP;
      return i < count && (pass < 0 || i == pass) ? s_position[i] : -1;
    };
    last0 = last_of(row0);
    last1 = last_of(row1);
    if (last0 >= CHUNK) add_total<0>(total, o, top0, sum0);
    if (last1 >= CHUNK) add_total<1>(total, o, top1, sum1);
    const float inverse0 = 1.0f / sum0, inverse1 = 1.0f / sum1;
    float check0 = 0.0f, check1 = 0.0f;
    const auto place_of = [&](int row) {
      return (unsigned short *)p7 + (long long)(first + row / GROUP) * 1024 +
          (kv * GROUP + row % GROUP) * D + (lane & 3) * 2;
    };
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
      /* Adding zero makes −0 of a tile left out and +0 of one that added nothing the same. */
      const float x0 = o[4 * i] * inverse0 + 0.0f, x1 = o[4 * i + 1] * inverse0 + 0.0f;
      const float x2 = o[4 * i + 2] * inverse1 + 0.0f, x3 = o[4 * i + 3] * inverse1 + 0.0f;
      if (last0 >= 0) tw_store2_bf16(place_of(row0) + i * 8, x0, x1);
      if (last1 >= 0) tw_store2_bf16(place_of(row1) + i * 8, x2, x3);
      check0 = fmaf(x0, 0.0f, fmaf(x1, 0.0f, check0));
      check1 = fmaf(x2, 0.0f, fmaf(x3, 0.0f, check1));
    }
    is_finite = (last0 < 0 || check0 == 0.0f) && (last1 < 0 || check1 == 0.0f);
  } while (again(is_finite));
}
