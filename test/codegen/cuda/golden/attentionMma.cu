/*
 * 4 heads of 64 over 2 of keys: a block computes 64 queries of one head, 16 a warp,
 * against 32 keys at a time.
 *
 * Tokens lie depth first, trees one after another: key k is visible to query q exactly when k <= q < end[k], and a tree
 * is a root r with the tokens [r, end[r]). The block passes over the trees of its queries one by one, and counts tiles
 * of keys from the root. So a query meets the same keys in the same tiles wherever its tree lies in the batch; keys
 * that it
 * does not see add exact zeros, and a tile left out because nobody of the warp or block sees it would have changed
 * nothing: its answer has the same bits alone and in any company. Rows of other trees are computed along and thrown
 * away.
 *
 * Keys and values are copied two tiles ahead.
 */
namespace attention {
constexpr int D = 64, QUERIES = 64, KEYS = 32, WARPS = QUERIES / 16, THREADS = 32 * WARPS;
/* 16 bytes more than a row: eight rows at one column lie in different banks. */
constexpr int PITCH = D + 8;
constexpr int PIECES = D / 8;
constexpr int TILES = 32;
/* Tiles of keys and values in shared memory: one at work, the others on their way. */
constexpr int SLOTS = 3;
constexpr unsigned ROW_BYTES = PITCH * 2, K_AT = QUERIES * ROW_BYTES, V_AT = K_AT + KEYS * ROW_BYTES,
    SLOT_BYTES = 2 * KEYS * ROW_BYTES;
constexpr float SCALE = 0.1803368777036667f;

/* shared/fetch.cu */

extern "C" __global__ void __launch_bounds__(128, 4) k_attention_test(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4) {
  using namespace attention;
  extern __shared__ __align__(128) unsigned char tw_shared[];
  __shared__ int s_end[SLOTS][KEYS], s_top[TILES], s_least[TILES],
      s_root[WARPS], s_stop[WARPS];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int head = blockIdx.x, first = blockIdx.y * QUERIES, rows = T;
  const unsigned short *q = (const unsigned short *)p0 + head * D;
  const unsigned short *k = (const unsigned short *)p1 + head / 2 * D;
  const unsigned short *v = (const unsigned short *)p2 + head / 2 * D;
  const int *end = (const int *)p3;
  const unsigned shared = tw_shared_address(tw_shared);
  tw_await_previous();

  const auto token_of = [&](int i) { return first + i < rows ? first + i : -1; };
  for (int i = threadIdx.x; i < QUERIES * PIECES; i += THREADS) {
    const int token = token_of(i / PIECES), piece = i % PIECES;
    tw_cp_async16(shared + (i / PIECES) * ROW_BYTES + piece * 16,
        q + (token < 0 ? 0 : token * 256ll + piece * 8), token < 0 ? 0 : 16);
  }
  tw_cp_async_commit();
  const int lowest = first, highest = tw_least(first + QUERIES, rows) - 1;

/* shared/rootOfFirstQuery.cu */

  const unsigned q_lane = shared + (warp * 16 + (lane & 15)) * ROW_BYTES + (lane >> 4) * 16;
  const unsigned k_lane = shared + K_AT + ((lane >> 4) * 8 + (lane & 7)) * ROW_BYTES + ((lane >> 3) & 1) * 16;
  const unsigned v_lane = shared + V_AT + (lane & 15) * ROW_BYTES + (lane >> 4) * 16;
  unsigned query[D / 16][4];
  bool is_read = false;
  /* A row past the last is one that no key's end admits, or whose result nobody stores. */
  const int token0 = first + warp * 16 + (lane >> 2), token1 = token0 + 8;

  for (; root <= highest; root = stop, stop = root <= highest ? end[root] : 0) {
    if (stop <= root) stop = root + 1;
    if (stop > T) stop = T;
    /* Least and greatest query of this tree in the block and in the warp, whose greatest is less where it has none. */
    const int low = root < first ? first : root, high = tw_least(stop - 1, highest);
    const int own = first + warp * 16, warp_low = root < own ? own : root, last = tw_least(high, own + 15),
        warp_high = last < warp_low ? -1 : last;

    const int tiles = (high - root) / KEYS + 1;
    const auto start = [&](int tile, int slot) {
      const int key = root + tile * KEYS;
      fetch(shared + K_AT + slot * SLOT_BYTES, k, 128ll, key, stop);
      fetch(shared + V_AT + slot * SLOT_BYTES, v, 128ll, key, stop);
    };
    const auto end_of = [&](int tile) {
      const int key = root + tile * KEYS + lane;
      return key < stop ? end[key] : 0;
    };
    /* Every query of the tree sees its root. */
    start(0, 0);
    tw_cp_async_commit();
    if (warp == 0) s_end[0][lane] = end_of(0);
    /* Greatest and least end of the keys of each tile. */
    for (int t = warp; t < tiles; t += WARPS) {
      const int e = end_of(t);
      const int top = __reduce_max_sync(0xffffffffu, e), least = __reduce_min_sync(0xffffffffu, e);
      if (lane == 0) {
        s_top[t] = top;
        s_least[t] = least;
      }
    }

    float o[D / 8][4];
    float top0 = -tw_inf(), top1 = -tw_inf(), sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 8; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;

    tw_cp_async_wait<1>();
    __syncthreads();  /* The queries are there, and the ends of tiles. */
    if (!is_read) {
#pragma unroll
      for (int i = 0; i < D / 16; i++) tw_ldmatrix_x4(query[i], q_lane + i * 32);
      is_read = true;
    }
    /* The next tile that a query of the block sees. */
    const auto after = [&](int tile) {
      do tile++; while (tile < tiles && s_top[tile] <= low);
      return tile;
    };
    int begun = 0;
    if (SLOTS > 2) {
      begun = after(0);
      if (begun < tiles) {
        start(begun, 1);
        if (warp == 0) s_end[1][lane] = end_of(begun);
      }
      tw_cp_async_commit();
    }

    for (int tile = 0, slot = 0;;) {
      const int key = root + tile * KEYS;
      tw_cp_async_wait<SLOTS - 2>();
      __syncthreads();  /* The tile is there, the one before has been read. */
      const int coming = after(begun), next = SLOTS > 2 ? begun : coming, free = slot == 0 ? SLOTS - 1 : slot - 1;
      begun = coming;
      if (coming < tiles) start(coming, free);
      tw_cp_async_commit();
      const int coming_end = warp == 0 && coming < tiles ? end_of(coming) : 0;
      const bool sees = key <= warp_high && s_top[tile] > warp_low;
      if (sees) {
        float s[KEYS / 8][4];
        unsigned weight[KEYS / 16][4];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
          const unsigned (&a)[4] = query[i];
#pragma unroll
          for (int n = 0; n < KEYS / 16; n++) {
            unsigned b[4];
            tw_ldmatrix_x4(b, k_lane + slot * SLOT_BYTES + n * 16 * ROW_BYTES + i * 32);
            tw_mma_bf16(s[2 * n], a, b[0], b[1]);
            tw_mma_bf16(s[2 * n + 1], a, b[2], b[3]);
          }
        }
        if (key + KEYS - 1 > warp_low || s_least[tile] <= warp_high) {
#pragma unroll
          for (int n = 0; n < KEYS / 8; n++) {
            const int column = n * 8 + (lane & 3) * 2;
            const int end0 = s_end[slot][column], end1 = s_end[slot][column + 1];
            if (key + column > token0 || token0 >= end0) s[n][0] = -tw_inf();
            if (key + column + 1 > token0 || token0 >= end1) s[n][1] = -tw_inf();
            if (key + column > token1 || token1 >= end0) s[n][2] = -tw_inf();
            if (key + column + 1 > token1 || token1 >= end1) s[n][3] = -tw_inf();
          }
        }
        float new0 = top0, new1 = top1;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
          new0 = fmaxf(new0, fmaxf(s[n][0], s[n][1]));
          new1 = fmaxf(new1, fmaxf(s[n][2], s[n][3]));
        }
        new0 = fmaxf(new0, __shfl_xor_sync(0xffffffffu, new0, 1));
        new1 = fmaxf(new1, __shfl_xor_sync(0xffffffffu, new1, 1));
        new0 = fmaxf(new0, __shfl_xor_sync(0xffffffffu, new0, 2));
        new1 = fmaxf(new1, __shfl_xor_sync(0xffffffffu, new1, 2));
        /* A row of another tree may have seen nothing yet. */
        const float base0 = new0 == -tw_inf() ? 0.0f : new0, base1 = new1 == -tw_inf() ? 0.0f : new1;
        const float keep0 = tw_exp2((top0 - base0) * SCALE), keep1 = tw_exp2((top1 - base1) * SCALE);
        const float shift0 = -base0 * SCALE, shift1 = -base1 * SCALE;
        top0 = new0;
        top1 = new1;
        sum0 *= keep0;
        sum1 *= keep1;
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
        for (int i = 0; i < D / 8; i++) {
          o[i][0] *= keep0;
          o[i][1] *= keep0;
          o[i][2] *= keep1;
          o[i][3] *= keep1;
        }
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
#pragma unroll
          for (int i = 0; i < D / 16; i++) {
            unsigned b[4];
            tw_ldmatrix_x4_trans(b, v_lane + slot * SLOT_BYTES + n * 16 * ROW_BYTES + i * 32);
            tw_mma_bf16(o[2 * i], weight[n], b[0], b[1]);
            tw_mma_bf16(o[2 * i + 1], weight[n], b[2], b[3]);
          }
        }
      }
      if (next >= tiles) break;
      if (warp == 0) s_end[free][lane] = coming_end;
      tile = next;
      slot = slot == SLOTS - 1 ? 0 : slot + 1;
    }
    sum0 += __shfl_xor_sync(0xffffffffu, sum0, 1);
    sum1 += __shfl_xor_sync(0xffffffffu, sum1, 1);
    sum0 += __shfl_xor_sync(0xffffffffu, sum0, 2);
    sum1 += __shfl_xor_sync(0xffffffffu, sum1, 2);
    const float inverse0 = 1.0f / sum0, inverse1 = 1.0f / sum1;
    /* The results of each warp take the place of its queries, to be written by rows. */
    const unsigned stage = warp * 16 * ROW_BYTES;
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
      /* Adding zero makes −0 of a tile left out and +0 of one that added nothing the same. */
      unsigned char *at = tw_shared + stage + (lane >> 2) * ROW_BYTES + i * 16 + (lane & 3) * 4;
      *(unsigned *)at = tw_pack_bf16(o[i][0] * inverse0 + 0.0f, o[i][1] * inverse0 + 0.0f);
      *(unsigned *)(at + 8 * ROW_BYTES) = tw_pack_bf16(o[i][2] * inverse1 + 0.0f, o[i][3] * inverse1 + 0.0f);
    }
    __syncwarp();
    for (int i = lane; i < 16 * PIECES; i += 32) {
      const int row = i / PIECES, piece = i % PIECES, token = token_of(warp * 16 + row);
      if (token < root || token >= stop) continue;
      *(tw_u4 *)((unsigned short *)p4 + (long long)(first + warp * 16 + row) * 256 + head * D
          + piece * 8) =
        *(const tw_u4 *)(tw_shared + stage + row * ROW_BYTES + piece * 16);
    }
    if (stop <= highest) __syncthreads();  /* Keys of the next tree may come. */
  }
}
