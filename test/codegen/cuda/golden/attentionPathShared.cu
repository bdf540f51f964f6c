/*
 * 4 heads of 96 over 2 of keys: a block computes 32 queries of the 2 heads that
 * share one head of keys, so that a key is loaded once for all of them. Row r of the block's tile is head r % GROUP of
 * query r / GROUP; a warp has 16 rows.
 *
 * Query q sees the rows key[begin[q] + i] of keys and values for i from 0 to position[q]. Queries next to each other
 * with one `begin` are a run. A tile is KEYS entries of a run's list. Runs whose lists begin alike, as branches of a
 * tree do, share their first tiles: those are loaded and multiplied once, for the queries of all these runs. The tiles
 * of all runs are one sequence, and the copies of the next ones are always under way.
 *
 * The bits of an answer are those of the kernel that passes over runs one by one (attentionPathMma): keys are taken in
 * order of position, 16 a step of a product, KEYS a step of the softmax, CHUNK a partial result. A row that does not
 * see a tile adds exact zeros. If a result of the block is not finite, the block is repeated query by query, with zeros
 * in place of the keys that the query does not see.
 */
namespace attention {
constexpr int D = 96, GROUP = 2, QUERIES = 32, KV_HEADS = 2, WARPS = 4,
    THREADS = 32 * WARPS, ROWS = 16 * WARPS, KEYS = 32, CHUNK = 128;
/* 16 bytes more than a row: eight rows at one column lie in different banks. */
constexpr int PITCH = D + 8;
constexpr int PIECES = D / 8;
/* Tiles of keys and values in shared memory: one at work, the others on their way. */
constexpr int SLOTS = 2;
constexpr unsigned ROW_BYTES = PITCH * 2, K_AT = ROWS * ROW_BYTES, SLOT_BYTES = 2 * KEYS * ROW_BYTES;
constexpr float SCALE = 0.14724445343017578f;

/* 2^x for a whole x of at most 0; 0 where that is no normal number, and for −inf and NaN. */
TW_FN float power2(float x) { return x >= -126.0f ? __int_as_float(((int)x + 127) << 23) : 0.0f; }

/* What the chunks of a thread's two rows add up to. */
struct Total {
  tw_f2 o[D / 8][2];
  float top[2], sum[2];
};

/* shared/addTotal.cu */

/* Ends a row's chunk, which is not the first if `has_total`. `all` is its sum over the row's threads. */
template <int ROW>
TW_FN void end_chunk(Total &total, bool has_total, float (&o)[D / 8][4], float &top, float &sum, float all) {
  if (has_total) add_total<ROW>(total, o, top, all);
  total.top[ROW] = top;
  total.sum[ROW] = all;
  top = -tw_inf();
  sum = 0.0f;
#pragma unroll
  for (int i = 0; i < D / 8; i++) {
    total.o[i][ROW] = tw_f2{ o[i][2 * ROW], o[i][2 * ROW + 1] };
    o[i][2 * ROW] = o[i][2 * ROW + 1] = 0.0f;
  }
}

/* Few paths are longer than a chunk, so totals lie in local memory. */
TW_FN Total *in_memory(Total *total) {
#if TW_PTX
  asm volatile("" : "+l"(total));
#endif
  return total;
}

/* A tile of a run: the run's first query, its list, and how far the list goes. */
struct Tile {
  int run, begin, keys, index;
};
}  // namespace attention

extern "C" __global__ void __launch_bounds__(128, 4) k_attention_test(int T, int R, int C, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4, void *__restrict__ p5, void *__restrict__ p6) {
  using namespace attention;
  extern __shared__ __align__(128) unsigned char tw_shared[];
  /* Of each query: where its path begins, and its position; −1 past the last query. */
  __shared__ int s_begin[QUERIES], s_position[QUERIES];
  /* Of the first query of each run: the run behind, its keys, and the tiles that the run before has. */
  __shared__ int s_next[QUERIES], s_keys[QUERIES], s_shared[QUERIES];
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int kv = (int)blockIdx.x % KV_HEADS, first = (int)blockIdx.x / KV_HEADS * QUERIES, rows = T;
  const int count = tw_least(QUERIES, rows - first);
  const unsigned short *q = (const unsigned short *)p0 + kv * GROUP * D;
  const bf16 *k = (const bf16 *)p1 + kv * D;
  const bf16 *v = (const bf16 *)p2 + kv * D;
  const int *list = (const int *)p5;
  const unsigned shared = tw_shared_address(tw_shared), slots = shared + K_AT;
  Total own_total;
  Total &total = *in_memory(&own_total);
  tw_await_previous();

  const auto token_of = [&](int i) {
    if (i >= count) return -1;
    return first + i;
  };
  for (int i = thread; i < QUERIES; i += THREADS) {
    const int token = token_of(i), begin = token < 0 ? -1 : ((const int *)p3)[token];
    s_begin[i] = begin;
    s_position[i] = begin < 0 ? -1 : tw_least(((const int *)p4)[token], C - begin - 1);
  }
  for (int i = thread; i < ROWS * PIECES; i += THREADS) {
    const int row = i / PIECES, piece = i % PIECES, token = token_of(row / GROUP);
    tw_cp_async16(shared + row * ROW_BYTES + piece * 16,
        q + (token < 0 ? 0 : token * 384ll + row % GROUP * D + piece * 8), token < 0 ? 0 : 16);
  }
  tw_cp_async_commit();
  __syncthreads();  /* Begins and positions are there. */
  /* Bit l of word w: a run begins with query 32·w + l. */
  constexpr int WORDS = (QUERIES + 31) / 32;
  unsigned starts[WORDS];
#pragma unroll
  for (int w = 0; w < WORDS; w++) {
    const int i = w * 32 + lane;
    starts[w] = __ballot_sync(0xffffffffu, i < count && (i == 0 || s_begin[i] != s_begin[i - 1]));
  }
  const auto run_after = [&](int i) {
    int next = count;
#pragma unroll
    for (int w = WORDS - 1; w >= 0; w--) {
      const int from = i + 1 - 32 * w;
      const unsigned later = from >= 32 ? 0u : starts[w] & 0xffffffffu << (from > 0 ? from : 0);
      if (later != 0) next = 32 * w + __ffs((int)later) - 1;
    }
    return next;
  };
  /* Keys that the queries [run, next) see, by a whole warp. */
  const auto keys_of = [&](int run, int next) {
    int highest = -1;
    for (int i = run + lane; i < next; i += 32) if (s_position[i] > highest) highest = s_position[i];
    return __reduce_max_sync(0xffffffffu, highest) + 1;
  };
  /* Tiles of lists that are read together. */
  constexpr int TOGETHER = 4;
  for (int run = 0, next = 0, before = -1, number = 0; run < count; before = run, run = next, number++) {
    next = run_after(run);
    if (number % WARPS != warp) continue;
    const int keys = keys_of(run, next);
    int tiles = 0;
    if (before >= 0) {
      /* Tiles that both lists have whole, up to the first that differs. */
      const int most = tw_least(keys_of(before, run), keys) / KEYS;
      const int *ours = list + s_begin[run] + lane, *theirs = list + s_begin[before] + lane;
      tiles = most;
#pragma unroll 1
      for (int from = 0; from < tiles; from += TOGETHER) {
        int differs[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
          const int at = tw_least(from + i, most - 1) * KEYS;
          differs[i] = ours[at] ^ theirs[at];
        }
#pragma unroll
        for (int i = TOGETHER - 1; i >= 0; i--)
          if (__any_sync(0xffffffffu, differs[i] != 0)) tiles = tw_least(tiles, from + i);
      }
    }
    if (lane == 0) {
      s_next[run] = next;
      s_keys[run] = keys;
      s_shared[run] = tiles;
    }
  }
  __syncthreads();  /* The runs are there, and what they share. */

  const unsigned q_lane = shared + (warp * 16 + (lane & 15)) * ROW_BYTES + (lane >> 4) * 16;
  const unsigned k_lane = slots + ((lane >> 4) * 8 + (lane & 7)) * ROW_BYTES + ((lane >> 3) & 1) * 16;
  const unsigned v_lane = slots + KEYS * ROW_BYTES + (lane & 15) * ROW_BYTES + (lane >> 4) * 16;
  const int row0 = warp * 16 + (lane >> 2), row1 = row0 + 8;

  /* First all queries; then, if a result is not finite, one by one. */
  for (int pass = -1; pass < count; pass++) {
    const int end = pass < 0 ? count : pass + 1;
    /* The first tile of its own of run `run` or, where it has none, of a later run. */
    const auto enter = [&](int run) {
      for (; run < end; run = s_next[run])
        if (s_shared[run] * KEYS < s_keys[run])
          return Tile{ run, s_begin[run], s_keys[run], s_shared[run] };
      return Tile{ end, 0, 0, 0 };
    };
    const auto after = [&](Tile tile) {
      if ((tile.index + 1) * KEYS >= tile.keys) return enter(s_next[tile.run]);
      tile.index++;
      return tile;
    };
    /* Lane l has the row of key l of a tile, −1 past the last key. */
    const auto ids_of = [&](const Tile &tile) {
      const int i = tile.index * KEYS + lane;
      return i < tile.keys ? list[tile.begin + i] : -1;
    };
    const auto start = [&](int slot, int ids) {
      constexpr unsigned COUNT = KEYS * PIECES;
#pragma unroll 2
      for (unsigned j = 0; j < (COUNT + THREADS - 1) / THREADS; j++) {
        const unsigned i = j * THREADS + thread;
        if (COUNT % THREADS != 0 && i >= COUNT) break;
        /* A thread has the same piece of every row if the threads have whole rows. */
        const unsigned at = i / PIECES, piece = (THREADS % PIECES == 0 ? thread : i) % PIECES;
        const int row = __shfl_sync(0xffffffffu, ids, at);
        const unsigned from = row < 0 ? 0 : row;
        const unsigned place = slots + slot * SLOT_BYTES + at * ROW_BYTES + piece * 16;
        tw_cp_async16(place, k + piece * 8 + from * 192ull, row < 0 ? 0 : 16);
        tw_cp_async16(place + KEYS * ROW_BYTES, v + piece * 8 + from * 192ull, row < 0 ? 0 : 16);
      }
    };
    if (pass >= 0) {
      if (thread == 0) {
        s_next[pass] = pass + 1;
        s_keys[pass] = s_position[pass] + 1;
        s_shared[pass] = 0;
      }
      __syncthreads();
    }
    Tile tile = enter(pass < 0 ? 0 : pass), coming = tile;
#pragma unroll
    for (int i = 0; i < SLOTS - 1; i++) {
      if (coming.run < end) {
        start(i, ids_of(coming));
        coming = after(coming);
      }
      tw_cp_async_commit();
    }
    int ids = ids_of(coming);

    float o[D / 8][4];
    float top0 = -tw_inf(), top1 = -tw_inf(), sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 8; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
    for (int slot = 0; tile.run < end; tile = after(tile)) {
      tw_cp_async_wait<SLOTS - 2>();
      __syncthreads();  /* The tile is there, the one before has been read. */
      if (coming.run < end) {
        start(slot == 0 ? SLOTS - 1 : slot - 1, ids);
        coming = after(coming);
      }
      tw_cp_async_commit();
      ids = ids_of(coming);
      const int at_slot = slot, key = tile.index * KEYS;
      slot = slot == SLOTS - 1 ? 0 : slot + 1;
      /* The queries [tile.run, to) share the tile. */
      int to = pass < 0 ? s_next[tile.run] : end;
      while (to < end && s_shared[to] > tile.index) to = s_next[to];
      /* Their positions, and −1 of others. */
      const auto position_of = [&](int row) {
        const int i = row / GROUP;
        return i >= tile.run && i < to ? s_position[i] : -1;
      };
      const int mine = position_of(warp * 16 + (lane & 15));
      const int warp_low = __reduce_min_sync(0xffffffffu, mine), warp_high = __reduce_max_sync(0xffffffffu, mine);
      if (key > warp_high) continue;
      const int last0 = position_of(row0), last1 = position_of(row1);
      if (key > 0 && key % CHUNK == 0) {
        const float all0 = tw_quad_sum(sum0), all1 = tw_quad_sum(sum1);
        if (last0 >= key) end_chunk<0>(total, key > CHUNK, o, top0, sum0, all0);
        if (last1 >= key) end_chunk<1>(total, key > CHUNK, o, top1, sum1, all1);
        __syncwarp();
      }
      float s[KEYS / 8][4];
      unsigned weight[KEYS / 16][4];
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
        unsigned a[4];
        tw_ldmatrix_x4(a, q_lane + i * 32);
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
          unsigned b[4];
          tw_ldmatrix_x4(b, k_lane + at_slot * SLOT_BYTES + n * 16 * ROW_BYTES + i * 32);
          tw_mma_bf16(s[2 * n], a, b[0], b[1]);
          tw_mma_bf16(s[2 * n + 1], a, b[2], b[3]);
        }
      }
      if (key + KEYS - 1 > warp_low) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
          const int at = key + n * 8 + (lane & 3) * 2;
          if (at > last0) s[n][0] = -tw_inf();
          if (at + 1 > last0) s[n][1] = -tw_inf();
          if (at > last1) s[n][2] = -tw_inf();
          if (at + 1 > last1) s[n][3] = -tw_inf();
        }
      }
      float most0 = s[0][0], most1 = s[0][2];
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++) {
        most0 = fmaxf(most0, fmaxf(s[n][0], s[n][1]));
        most1 = fmaxf(most1, fmaxf(s[n][2], s[n][3]));
      }
      most0 = fmaxf(most0, __shfl_xor_sync(0xffffffffu, most0, 1));
      most1 = fmaxf(most1, __shfl_xor_sync(0xffffffffu, most1, 1));
      most0 = fmaxf(most0, __shfl_xor_sync(0xffffffffu, most0, 2));
      most1 = fmaxf(most1, __shfl_xor_sync(0xffffffffu, most1, 2));
      most0 = fmaxf(top0, ceilf(tw_mul(most0, SCALE)));
      most1 = fmaxf(top1, ceilf(tw_mul(most1, SCALE)));
      if (__any_sync(0xffffffffu, most0 != top0 || most1 != top1)) {
        const float keep0 = power2(top0 - most0), keep1 = power2(top1 - most1);
        sum0 = tw_mul(sum0, keep0);
        sum1 = tw_mul(sum1, keep1);
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
          o[i][0] = tw_mul(o[i][0], keep0);
          o[i][1] = tw_mul(o[i][1], keep0);
          o[i][2] = tw_mul(o[i][2], keep1);
          o[i][3] = tw_mul(o[i][3], keep1);
        }
        top0 = most0;
        top1 = most1;
      }
      /* A row may have seen nothing yet. */
      const float shift0 = top0 == -tw_inf() ? 0.0f : -top0, shift1 = top1 == -tw_inf() ? 0.0f : -top1;
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++) {
        const float x0 = tw_exp2(fmaf(s[n][0], SCALE, shift0)), x1 = tw_exp2(fmaf(s[n][1], SCALE, shift0));
        const float x2 = tw_exp2(fmaf(s[n][2], SCALE, shift1)), x3 = tw_exp2(fmaf(s[n][3], SCALE, shift1));
        sum0 += x0 + x1;
        sum1 += x2 + x3;
        weight[n / 2][n % 2 * 2] = tw_pack_bf16(x0, x1);
        weight[n / 2][n % 2 * 2 + 1] = tw_pack_bf16(x2, x3);
      }
#pragma unroll
      for (int n = 0; n < KEYS / 16; n++) {
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
          unsigned b[4];
          tw_ldmatrix_x4_trans(b, v_lane + at_slot * SLOT_BYTES + n * 16 * ROW_BYTES + i * 32);
          tw_mma_bf16(o[2 * i], weight[n], b[0], b[1]);
          tw_mma_bf16(o[2 * i + 1], weight[n], b[2], b[3]);
        }
      }
    }

    sum0 = tw_quad_sum(sum0);
    sum1 = tw_quad_sum(sum1);
    const auto last_of = [&](int row) {
      const int i = row / GROUP;
      return i < count && (pass < 0 || i == pass) ? s_position[i] : -1;
    };
    const int last0 = last_of(row0), last1 = last_of(row1);
    if (last0 >= CHUNK) add_total<0>(total, o, top0, sum0);
    if (last1 >= CHUNK) add_total<1>(total, o, top1, sum1);
    const float inverse0 = 1.0f / sum0, inverse1 = 1.0f / sum1;
    float check0 = 0.0f, check1 = 0.0f;
    const auto place_of = [&](int row) {
      return (bf16 *)p6 + (long long)(first + row / GROUP) * 384 +
          (kv * GROUP + row % GROUP) * D + (lane & 3) * 2;
    };
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
      /* Adding zero makes −0 of a tile left out and +0 of one that added nothing the same. */
      const float x0 = o[i][0] * inverse0 + 0.0f, x1 = o[i][1] * inverse0 + 0.0f;
      const float x2 = o[i][2] * inverse1 + 0.0f, x3 = o[i][3] * inverse1 + 0.0f;
      if (last0 >= 0) tw_store2_bf16(place_of(row0) + i * 8, x0, x1);
      if (last1 >= 0) tw_store2_bf16(place_of(row1) + i * 8, x2, x3);
      check0 = fmaf(x0, 0.0f, fmaf(x1, 0.0f, check0));
      check1 = fmaf(x2, 0.0f, fmaf(x3, 0.0f, check1));
    }
    const bool is_finite = (last0 < 0 || check0 == 0.0f) && (last1 < 0 || check1 == 0.0f);
    /* Everybody has read the last tile: keys of the next pass may come. */
    if (!__syncthreads_or(!is_finite) && pass < 0) break;
  }
}
