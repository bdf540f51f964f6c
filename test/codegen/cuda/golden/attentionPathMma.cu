/*
 * 8 heads of 128 over 2 of keys: a block computes 16 queries of the 4 heads that
 * share one head of keys, so that a key is loaded once for all of them. Row r of the block's tile is head r % GROUP of
 * query r / GROUP; a warp has 16 rows.
 *
 * Query q sees the rows key[begin[q] + i] of keys and values for i from 0 to position[q]. Queries next to each other
 * with one `begin` are a run. The block passes over its runs one by one; rows of other runs are computed along and
 * thrown away.
 *
 * The bits of an answer depend on the query and on the keys of its path alone. Keys are taken in order of position: 16
 * are one step of a product, KEYS one step of the softmax, CHUNK one partial result, and partial results are merged in
 * order. The running maximum is a whole power of two, so rescaling is exact. Keys that a query does not see add exact
 * zeros. Zero times an infinite or undefined value is undefined, though: if a result of a run is not finite, the run is
 * repeated query by query, with zeros in place of the keys that the query does not see.
 */
namespace attention {
constexpr int D = 128, GROUP = 4, QUERIES = 16, KV_HEADS = 2, WARPS = 4,
    THREADS = 32 * WARPS, ROWS = 16 * WARPS, KEYS = 32, CHUNK = 128, CHUNK_TILES = CHUNK / KEYS;
/* 16 bytes more than a row: eight rows at one column lie in different banks. */
constexpr int PITCH = D + 8;
constexpr int PIECES = D / 8;
/* Tiles of keys and values in shared memory: one at work, the others on their way. */
constexpr int SLOTS = 3;
constexpr unsigned ROW_BYTES = PITCH * 2, K_AT = ROWS * ROW_BYTES, SLOT_BYTES = 2 * KEYS * ROW_BYTES,
    TOTAL_AT = K_AT + SLOTS * SLOT_BYTES;
constexpr float SCALE = 0.127517431974411f;

/* 2^x for a whole x of at most 0; 0 where that is no normal number, and for −inf and NaN. */
TW_FN float power2(float x) { return x >= -126.0f ? __int_as_float(((int)x + 127) << 23) : 0.0f; }
}  // namespace attention

extern "C" __global__ void __launch_bounds__(128, 2) k_attention_test(int T, int R, int C, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4, void *__restrict__ p5, void *__restrict__ p6, void *__restrict__ p7) {
  using namespace attention;
  extern __shared__ __align__(128) unsigned char tw_shared[];
  /* Of each query: where its path begins, and its position; −1 past the last query. */
  __shared__ int s_begin[QUERIES], s_position[QUERIES];
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  const int kv = (int)blockIdx.x % KV_HEADS, first = (int)blockIdx.x / KV_HEADS * QUERIES, rows = R;
  const int count = tw_least(QUERIES, rows - first);
  const unsigned short *q = (const unsigned short *)p0 + kv * GROUP * D;
  const bf16 *k = (const bf16 *)p1 + kv * D;
  const bf16 *v = (const bf16 *)p2 + kv * D;
  const int *list = (const int *)p5;
  const unsigned shared = tw_shared_address(tw_shared), slots = shared + K_AT;
  /* What the chunks so far add up to, as a thread has it: [D / 8][thread], then maxima and sums. */
  tw_f4 *const total = (tw_f4 *)(tw_shared + TOTAL_AT) + thread;
  tw_await_previous();

  const auto token_of = [&](int i) {
    if (i >= count) return -1;
    const int token = ((const int *)p6)[first + i];
    return (unsigned)token < (unsigned)T ? token : -1;
  };
  for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) {
    const int row = i / PIECES, piece = i % PIECES, token = token_of(row / GROUP);
    tw_cp_async16(shared + row * ROW_BYTES + piece * 16,
        q + (token < 0 ? 0 : token * 1024ll + row % GROUP * D + piece * 8), token < 0 ? 0 : 16);
  }
  tw_cp_async_commit();
  for (int i = threadIdx.x; i < QUERIES; i += THREADS) {
    const int token = token_of(i);
    s_begin[i] = token < 0 ? -1 : ((const int *)p3)[token];
    s_position[i] = token < 0 ? -1 : ((const int *)p4)[token];
  }
  tw_cp_async_wait<0>();
  __syncthreads();  /* The queries are there. */

  const unsigned q_lane = shared + (warp * 16 + (lane & 15)) * ROW_BYTES + (lane >> 4) * 16;
  const unsigned k_lane = slots + ((lane >> 4) * 8 + (lane & 7)) * ROW_BYTES + ((lane >> 3) & 1) * 16;
  const unsigned v_lane = slots + KEYS * ROW_BYTES + (lane & 15) * ROW_BYTES + (lane >> 4) * 16;
  const int row0 = warp * 16 + (lane >> 2), row1 = row0 + 8;

  /* Queries before `alone` are taken one by one. */
  for (int from = 0, alone = 0; from < count;) {
    const int begin = s_begin[from];
    int to = from + 1;
    if (from >= alone) {
      to = count;
      for (int i = from + 1 + lane; i < to; i += 32) if (s_begin[i] != begin) to = i;
      to = __reduce_min_sync(0xffffffffu, to);
    }
    /* Positions of queries in [from, to), and −1 of others. */
    const auto position_of = [&](int row) {
      const int i = row / GROUP;
      return i >= from && i < to ? s_position[i] : -1;
    };
    int highest = -1;
    for (int i = from + lane; i < to; i += 32) if (s_position[i] > highest) highest = s_position[i];
    highest = __reduce_max_sync(0xffffffffu, highest);
    const int keys = tw_least(highest + 1, C - begin), tiles = (keys + KEYS - 1) / KEYS;
    if (begin < 0 || keys <= 0) {
      from = to;
      continue;
    }
    const int mine = tw_least(position_of(warp * 16 + (lane & 15)), keys - 1);
    const int warp_low = __reduce_min_sync(0xffffffffu, mine), warp_high = __reduce_max_sync(0xffffffffu, mine);
    const int last0 = tw_least(position_of(row0), keys - 1), last1 = tw_least(position_of(row1), keys - 1);

    /* Lane l has the row of key l of a tile, −1 past the last key. */
    const auto ids_of = [&](int tile) {
      const int i = tile * KEYS + lane;
      return i < keys ? list[begin + i] : -1;
    };
    const auto start = [&](int slot, int ids) {
      constexpr int COUNT = KEYS * PIECES;
#pragma unroll 2
      for (int j = 0; j < (COUNT + THREADS - 1) / THREADS; j++) {
        const int i = j * THREADS + thread;
        if (COUNT % THREADS != 0 && i >= COUNT) break;
        const int at = i / PIECES, piece = i % PIECES, row = __shfl_sync(0xffffffffu, ids, at);
        const unsigned place = slots + slot * SLOT_BYTES + at * ROW_BYTES + piece * 16;
        const int lying = row < 0 ? 0 : row, bytes = row < 0 ? 0 : 16;
        tw_cp_async16(place, k + piece * 8 + lying * 256ll, bytes);
        tw_cp_async16(place + KEYS * ROW_BYTES, v + piece * 8 + lying * 256ll, bytes);
      }
    };
#pragma unroll
    for (int tile = 0; tile < SLOTS - 1; tile++) {
      if (tile < tiles) start(tile, ids_of(tile));
      tw_cp_async_commit();
    }
    int ids = ids_of(SLOTS - 1);

    bool is_finite = true;
    int slot = 0;
    for (int chunk = 0; chunk * CHUNK_TILES < tiles; chunk++) {
      float o[D / 8][4];
      float top0 = -tw_inf(), top1 = -tw_inf(), sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
      for (int i = 0; i < D / 8; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
      for (int tile = chunk * CHUNK_TILES; tile < (chunk + 1) * CHUNK_TILES && tile < tiles; tile++) {
        const int key = tile * KEYS, coming = tile + SLOTS - 1, free = slot == 0 ? SLOTS - 1 : slot - 1;
        tw_cp_async_wait<SLOTS - 2>();
        __syncthreads();  /* The tile is there, the one before has been read. */
        if (coming < tiles) start(free, ids);
        tw_cp_async_commit();
        ids = ids_of(coming + 1);
        const int at_slot = slot;
        slot = slot == SLOTS - 1 ? 0 : slot + 1;
        if (key > warp_high) continue;
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
      /* Chunks are added in order. The last one that the warp sees has the result. */
      if (chunk * CHUNK > warp_high) continue;
      sum0 = tw_quad_sum(sum0);
      sum1 = tw_quad_sum(sum1);
      if (chunk > 0) {
        const tw_f4 before = total[D / 8 * THREADS];
        const float most0 = fmaxf(before.x, top0), most1 = fmaxf(before.y, top1);
        const float old0 = power2(before.x - most0), old1 = power2(before.y - most1);
        const float new0 = power2(top0 - most0), new1 = power2(top1 - most1);
        sum0 = fmaf(sum0, new0, tw_mul(before.z, old0));
        sum1 = fmaf(sum1, new1, tw_mul(before.w, old1));
        top0 = most0;
        top1 = most1;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
          const tw_f4 x = total[i * THREADS];
          o[i][0] = fmaf(o[i][0], new0, tw_mul(x.x, old0));
          o[i][1] = fmaf(o[i][1], new0, tw_mul(x.y, old0));
          o[i][2] = fmaf(o[i][2], new1, tw_mul(x.z, old1));
          o[i][3] = fmaf(o[i][3], new1, tw_mul(x.w, old1));
        }
      }
      if ((chunk + 1) * CHUNK <= warp_high) {
        total[D / 8 * THREADS] = tw_f4{ top0, top1, sum0, sum1 };
#pragma unroll
        for (int i = 0; i < D / 8; i++)
          total[i * THREADS] = tw_f4{ o[i][0], o[i][1], o[i][2], o[i][3] };
        continue;
      }
      const float inverse0 = 1.0f / sum0, inverse1 = 1.0f / sum1;
      float check0 = 0.0f, check1 = 0.0f;
      const auto place_of = [&](int row) {
        return (bf16 *)p7 + (long long)(first + row / GROUP) * 1024 +
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
      is_finite = (last0 < 0 || check0 == 0.0f) && (last1 < 0 || check1 == 0.0f);
    }
    /* Everybody has read the last tile: keys of the next run may come. */
    if (__syncthreads_or(!is_finite) && to - from > 1) alone = to; else from = to;
  }
}
