/*
 * 32 heads of 128 over 8 of keys: a cluster computes one query of the 4 heads that
 * share one head of keys. Of scores, the heads are the rows of a tile of a tensor core; of results they are its
 * columns, eight in each half, so that few heads leave less of it idle.
 *
 * Query q sees the rows key[begin[q] + i] of keys and values for i from 0 to position[q]. A team of
 * 4 warps takes CHUNK keys at a time. Each warp computes the scores and weights of KEYS of them, and then some
 * columns of the result from the weights of all. All teams of the cluster take chunks side by side and leave their
 * partial results in shared memory. After each round every thread adds up its own elements of the answer, in ascending
 * order of chunks.
 *
 * Additions have the order of the kernel for many queries of a path (attentionPathMma), so the bits are the same: 16
 * keys are one step of a product, KEYS one step of the softmax, CHUNK one partial result.
 */
#if TW_PTX
/* A barrier of all threads of a cluster in two halves: what a thread wrote before it arrived is there after a wait. */
TW_FN void tw_cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
TW_FN void tw_cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
/* Two floats from shared memory of block `rank` of the cluster. */
TW_FN tw_f2 tw_load2_of_block(unsigned at, int rank) {
  tw_f2 x;
  asm volatile("{\n.reg .u32 %%at;\nmapa.shared::cluster.u32 %%at, %2, %3;\n"
               "ld.shared::cluster.v2.f32 {%0, %1}, [%%at];\n}"
               : "=f"(x.x), "=f"(x.y) : "r"(at), "r"(rank) : "memory");
  return x;
}
#endif

#if TW_PTX
/* Waits for the other threads of a team. */
TW_FN void tw_team_sync(int team, int threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(team + 1), "r"(threads) : "memory");
}
#endif

#if TW_PTX
/* Asks for a line of memory to be brought to L2. */
TW_FN void tw_prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }
#endif

namespace attention {
constexpr int D = 128, GROUP = 4, KV_HEADS = 8, CLUSTER = 4, TEAMS = 2,
    KEYS = 32, CHUNK = 128, WARPS = CHUNK / KEYS, TEAM_THREADS = 32 * WARPS,
    THREADS = TEAMS * TEAM_THREADS, WORKERS = CLUSTER * TEAMS;
/* Halves of 16 heads that a tile has. */
constexpr int HALVES = GROUP > 8 ? 2 : 1;
/* Pieces of 16 bytes of a row, and most blocks of 16 columns of the result that a warp computes. */
constexpr int PIECES = D / 8, UNITS = (D / 16 + WARPS - 1) / WARPS;
/* Pairs of columns of the answer that a block and a thread add up. */
constexpr int PAIRS = GROUP * D / 2, PAIRS_OF_BLOCK = (PAIRS + CLUSTER - 1) / CLUSTER,
    PAIRS_OF_THREAD = (PAIRS_OF_BLOCK + THREADS - 1) / THREADS;
/* 16 bytes more than a row: eight rows at one column lie in different banks. */
constexpr unsigned ROW_BYTES = D * 2 + 16;
/*
 * Shared memory of a team: the keys and values of a chunk; weights as operands of a product, sums of weights and maxima
 * of each warp's keys; the partial result with its maximum and sum.
 */
constexpr unsigned VALUES_AT = CHUNK * ROW_BYTES, WEIGHTS_AT = 2 * VALUES_AT,
    SUMS_AT = WEIGHTS_AT + WARPS * HALVES * 512, TOPS_AT = SUMS_AT + WARPS * HALVES * 512,
    SCALES_AT = TOPS_AT + 16 * WARPS * 4, PART_AT = SCALES_AT, PART_PITCH = D + 8,
    ENDS_AT = PART_AT + GROUP * PART_PITCH * 4, TEAM_BYTES = 76192;
static_assert(WARPS == 4 && ENDS_AT + GROUP * 8 <= TEAM_BYTES, "a team's memory is what its schedule says");
constexpr float SCALE = 0.127517431974411f;

/* 2^x for a whole x of at most 0; 0 where that is no normal number, and for −inf and NaN. */
TW_FN float power2(float x) { return x >= -126.0f ? __int_as_float(((int)x + 127) << 23) : 0.0f; }
}  // namespace attention

extern "C" __global__ void __launch_bounds__(256, 1) k_attention_test(int T, int R, int C, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4, void *__restrict__ p5, void *__restrict__ p6, void *__restrict__ p7) {
  using namespace attention;
  extern __shared__ __align__(128) unsigned char tw_shared[];
  const int team = (int)threadIdx.x / TEAM_THREADS, lane = threadIdx.x & 31, warp = (int)threadIdx.x / 32 % WARPS;
  const int rank = (int)blockIdx.x % CLUSTER, kv = (int)blockIdx.x / CLUSTER % KV_HEADS,
      first = (int)blockIdx.x / (CLUSTER * KV_HEADS);
  const int row0 = lane >> 2, quad = lane & 3;
  const bf16 *k = (const bf16 *)p1 + kv * D;
  const bf16 *v = (const bf16 *)p2 + kv * D;
  const int *list = (const int *)p5;
  /* The inputs of the call are there before its first kernel: they are read while the kernel before this one ends. */
  const int row = ((const int *)p6)[first], token = (unsigned)row < (unsigned)T ? row : -1;
  const int begin = token < 0 ? -1 : ((const int *)p3)[token];
  const int position = begin < 0 ? -1 : ((const int *)p4)[token];
  const int keys = begin < 0 ? 0 : tw_least(position + 1, C - begin);
  unsigned char *const own = tw_shared + team * TEAM_BYTES;
  const unsigned shared = tw_shared_address(tw_shared), slots = shared + team * TEAM_BYTES;
  const int chunks = (keys + CHUNK - 1) / CHUNK;
  /* Waits for the other warps of the team. */
  const auto meet = [&] { tw_team_sync(team, TEAM_THREADS); };
  /* The team's chunk of each round. */
  const auto chunk_of = [&](int round) { return round * WORKERS + team * CLUSTER + rank; };
  /* Where the key of this lane lies: key `lane` of the warp's part of a chunk, −1 past the last key. */
  const auto place_of = [&](int chunk) {
    const int i = (chunk) * CHUNK + warp * KEYS + lane;
    return i < keys ? list[begin + i] : -1;
  };
  int place = place_of(chunk_of(0));
  /* Rows that this call has yet to write are brought to L2 as well. Nothing is read from there before the wait. */
  if (place >= 0) {
    for (int i = 0; i < D; i += 64) {
      tw_prefetch(k + place * 1024ll + i);
      tw_prefetch(v + place * 1024ll + i);
    }
  }
  tw_await_previous();
  if (keys <= 0) return;

  /* The warp copies its own part of a chunk. */
  const unsigned own_slots = slots + warp * KEYS * ROW_BYTES;
  /* This lane's piece of row 0. Compilers that know its parts add them up for every row. */
  const unsigned char *k_rows = (const unsigned char *)k + lane % PIECES * 16;
  const unsigned char *v_rows = (const unsigned char *)v + lane % PIECES * 16;
#if TW_PTX
  asm("" : "+l"(k_rows), "+l"(v_rows));
#endif
  /* Row `place` of this lane lies place * row_units units of 16 bytes behind `from`; 32 bits count 64 GiB of them. */
  const auto start = [&](unsigned to, const unsigned char *from, unsigned row_units, int place) {
    const unsigned own_unit = (unsigned)place * row_units;
    if (__all_sync(0xffffffffu, place >= 0)) {
#pragma unroll
      for (int j = 0; j < PIECES; j++) {
        const int at = j * (32 / PIECES) + lane / PIECES, piece = lane % PIECES;
        const unsigned unit = __shfl_sync(0xffffffffu, own_unit, at);
        tw_cp_async16(to + at * ROW_BYTES + piece * 16, from + unit * 16ull, 16);
      }
    } else {
      /* Rows that are missing are zeros. */
#pragma unroll 4
      for (int j = 0; j < PIECES; j++) {
        const int at = (j * 32 + lane) / PIECES, piece = (j * 32 + lane) % PIECES;
        const unsigned unit = __shfl_sync(0xffffffffu, own_unit, at);
        const bool is_there = __shfl_sync(0xffffffffu, place, at) >= 0;
        tw_cp_async16(to + at * ROW_BYTES + piece * 16,
            from + (is_there ? unit * 16ull : 0ull), is_there ? 16 : 0);
      }
    }
  };
  if (chunk_of(0) < chunks) start(own_slots, k_rows, 128, place);
  tw_cp_async_commit();
  if (chunk_of(0) < chunks) start(own_slots + VALUES_AT, v_rows, 128, place);
  tw_cp_async_commit();
  int next_place = place_of(chunk_of(1));

  /* The left operand of the scores, zero in rows without a head. */
  unsigned query[D / 16][4];
  const unsigned short *q = (const unsigned short *)p0 + token * 4128ll + kv * GROUP * D + quad * 2;
#pragma unroll
  for (int i = 0; i < D / 16; i++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = row0 + 8 * half;
      query[i][half] = half < HALVES && row < GROUP ? *(const unsigned *)(q + row * D + i * 16) : 0u;
      query[i][half + 2] = half < HALVES && row < GROUP ? *(const unsigned *)(q + row * D + i * 16 + 8) : 0u;
    }
  }
  const unsigned k_lane = slots + (warp * KEYS + (lane >> 4) * 8 + (lane & 7)) * ROW_BYTES + ((lane >> 3) & 1) * 16;
  const unsigned v_lane = slots + VALUES_AT + (lane & 15) * ROW_BYTES + (lane >> 4) * 16;
  float *const tops = (float *)(own + TOPS_AT), *const part = (float *)(own + PART_AT);
  tw_u4 *const weights = (tw_u4 *)(own + WEIGHTS_AT) + lane;
  tw_f4 *const sums = (tw_f4 *)(own + SUMS_AT) + lane;
  /* The i-th pair of columns that this thread adds up; −1 if it has none. */
  const auto pair_of_thread = [&](int i) {
    const int own = i * THREADS + (int)threadIdx.x, pair = rank * PAIRS_OF_BLOCK + own;
    return own < PAIRS_OF_BLOCK && pair < PAIRS ? pair : -1;
  };
  /* Results of heads 8 half + 2 quad + e, and of heads 8 half + row0 the maxima and sums, which the last warp has. */
  const auto leave_part = [&](const float (&x)[UNITS][HALVES][4], const tw_f2 (&ends)[HALVES]) {
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int row = 8 * half + 2 * quad + e;
        if (row >= GROUP) break;
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
          const int unit = u * WARPS + warp;
          if (D / 16 % WARPS != 0 && unit >= D / 16) break;
          float *const to = part + row * PART_PITCH + unit * 16;
          to[row0] = x[u][half][e];
          to[row0 + 8] = x[u][half][2 + e];
        }
      }
      if (warp == WARPS - 1 && quad == 0 && row0 + 8 * half < GROUP)
        *(tw_f2 *)(own + ENDS_AT + (row0 + 8 * half) * 8) = ends[half];
    }
  };
  /* Two floats of worker w's memory. Workers take chunks in order: the first team of each block, then the second. */
  const auto two_of = [&](int w, unsigned at) {
    return tw_load2_of_block(shared + w / CLUSTER * TEAM_BYTES + at, w % CLUSTER);
  };
  /* The answer so far: maximum, sum, and two columns of a head. */
  float all_top[PAIRS_OF_THREAD], all_sum[PAIRS_OF_THREAD];
  tw_f2 all[PAIRS_OF_THREAD];
#pragma unroll
  for (int i = 0; i < PAIRS_OF_THREAD; i++) {
    all_top[i] = -tw_inf();
    all_sum[i] = all[i].x = all[i].y = 0.0f;
  }

  for (int round = 0; round * WORKERS < chunks; round++) {
    const int chunk = chunk_of(round), key = (chunk) * CHUNK + warp * KEYS;
    const bool works = chunk < chunks, goes_on = chunk_of(round + 1) < chunks;
    /* Two columns of heads 8 half + 2 quad and 8 half + 2 quad + 1, the first column of both, and their maxima. */
    float o[UNITS][HALVES][4], o_top[HALVES][2][WARPS];
    tw_f2 end[HALVES];
    if (works) {
      /* Parts of the chunk that have keys. */
      const int parts = tw_least((keys - chunk * CHUNK + KEYS - 1) / KEYS, WARPS);
      tw_cp_async_wait<1>();
      __syncwarp();  /* The warp's keys are there. */
      float s[KEYS / 8][4];
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
          unsigned b[4];
          tw_ldmatrix_x4(b, k_lane + n * 16 * ROW_BYTES + i * 32);
          tw_mma_bf16(s[2 * n], query[i], b[0], b[1]);
          tw_mma_bf16(s[2 * n + 1], query[i], b[2], b[3]);
        }
      }
      __syncwarp();  /* The warp's keys have been read. */
      if (goes_on) start(own_slots, k_rows, 128, next_place);
      tw_cp_async_commit();
      if (key + KEYS > keys) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
          for (int e = 0; e < 4; e++)
            if (key + n * 8 + quad * 2 + e % 2 >= keys) s[n][e] = -tw_inf();
        }
      }
#pragma unroll
      for (int half = 0; half < HALVES; half++) {
        float most = s[0][2 * half];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        if (quad == 0) tops[(row0 + 8 * half) * WARPS + warp] = ceilf(tw_mul(most, SCALE));
      }
      meet();  /* The maxima of all warps are there. */
      /* The maximum of a part is that of the parts before it, too. */
      float top[HALVES][WARPS];
#pragma unroll
      for (int half = 0; half < HALVES; half++) {
        const tw_f4 x = *(const tw_f4 *)(tops + (row0 + 8 * half) * WARPS);
        top[half][0] = fmaxf(-tw_inf(), x.x);
        top[half][1] = fmaxf(top[half][0], x.y);
        top[half][2] = fmaxf(top[half][1], x.z);
        top[half][3] = fmaxf(top[half][2], x.w);
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const tw_f4 y = *(const tw_f4 *)(tops + (2 * quad + e + 8 * half) * WARPS);
          o_top[half][e][0] = fmaxf(-tw_inf(), y.x);
          o_top[half][e][1] = fmaxf(o_top[half][e][0], y.y);
          o_top[half][e][2] = fmaxf(o_top[half][e][1], y.z);
          o_top[half][e][3] = fmaxf(o_top[half][e][2], y.w);
        }
      }
      if (warp < parts) {
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
          float most = top[half][0];
#pragma unroll
          for (int t = 1; t < WARPS; t++) if (t == warp) most = top[half][t];
          const float shift = most == -tw_inf() ? 0.0f : -most;
          float sum[KEYS / 8];
          unsigned weight[KEYS / 8];
#pragma unroll
          for (int n = 0; n < KEYS / 8; n++) {
            const float x0 = tw_exp2(fmaf(s[n][2 * half], SCALE, shift));
            const float x1 = tw_exp2(fmaf(s[n][2 * half + 1], SCALE, shift));
            sum[n] = x0 + x1;
            weight[n] = tw_pack_bf16(x0, x1);
          }
          sums[(warp * HALVES + half) * 32] = tw_f4{ sum[0], sum[1], sum[2], sum[3] };
          weights[(warp * HALVES + half) * 32] = tw_u4{ weight[0], weight[1], weight[2], weight[3] };
        }
      }
      tw_cp_async_wait<1>();
      meet();  /* The weights and the values of all warps are there. */
#pragma unroll
      for (int u = 0; u < UNITS; u++) {
#pragma unroll
        for (int half = 0; half < HALVES; half++) o[u][half][0] = o[u][half][1] = o[u][half][2] = o[u][half][3] = 0.0f;
      }
#pragma unroll
      for (int t = 0; t < WARPS; t++) {
        if (t >= parts) break;
        if (t > 0) {
#pragma unroll
          for (int half = 0; half < HALVES; half++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
              const float keep = power2(o_top[half][e][t - 1] - o_top[half][e][t]);
#pragma unroll
              for (int u = 0; u < UNITS; u++) {
                o[u][half][e] = tw_mul(o[u][half][e], keep);
                o[u][half][2 + e] = tw_mul(o[u][half][2 + e], keep);
              }
            }
          }
        }
        tw_u4 weight[HALVES];
#pragma unroll
        for (int half = 0; half < HALVES; half++) weight[half] = weights[(t * HALVES + half) * 32];
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
          const int unit = u * WARPS + warp;
          if (D / 16 % WARPS != 0 && unit >= D / 16) break;
#pragma unroll
          for (int n = 0; n < KEYS / 16; n++) {
            /* Columns are rows of this product: 16 of them by 16 keys. */
            unsigned b[4];
            tw_ldmatrix_x4_trans(b, v_lane + (t * KEYS + n * 16) * ROW_BYTES + unit * 32);
            const unsigned columns[4] = { b[0], b[2], b[1], b[3] };
#pragma unroll
            for (int half = 0; half < HALVES; half++)
              tw_mma_bf16(o[u][half], columns, n == 0 ? weight[half].x : weight[half].z,
                  n == 0 ? weight[half].y : weight[half].w);
          }
        }
      }
      if (goes_on) {
        meet();  /* The values have been read. */
        start(own_slots + VALUES_AT, v_rows, 128, next_place);
      }
      tw_cp_async_commit();
      next_place = place_of(chunk_of(round + 2));
      if (warp == WARPS - 1) {
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
          float sum = 0.0f;
#pragma unroll
          for (int t = 0; t < WARPS; t++) {
            if (t >= parts) break;
            if (t > 0) sum = tw_mul(sum, power2(top[half][t - 1] - top[half][t]));
            const tw_f4 x = sums[(t * HALVES + half) * 32];
            sum += x.x;
            sum += x.y;
            sum += x.z;
            sum += x.w;
          }
          end[half] = { top[half][WARPS - 1], tw_quad_sum(sum) };
        }
      }
    }
    /* Partial results are overwritten when everybody has read them. */
    if (round > 0) tw_cluster_wait();
    if (works) leave_part(o, end);
    tw_cluster_arrive();
    tw_cluster_wait();
#pragma unroll
    for (int i = 0; i < PAIRS_OF_THREAD; i++) {
      const int pair = pair_of_thread(i);
      if (pair < 0) break;
      const int row = pair / (D / 2), column = pair % (D / 2) * 2;
      tw_f2 ends[WORKERS], x[WORKERS];
#pragma unroll
      for (int w = 0; w < WORKERS; w++) {
        if (round * WORKERS + w >= chunks) break;
        ends[w] = two_of(w, ENDS_AT + row * 8);
        x[w] = two_of(w, PART_AT + (row * PART_PITCH + column) * 4);
      }
#pragma unroll
      for (int w = 0; w < WORKERS; w++) {
        if (round * WORKERS + w >= chunks) break;
        const float most = fmaxf(all_top[i], ends[w].x);
        const float before = power2(all_top[i] - most), now = power2(ends[w].x - most);
        all_top[i] = most;
        all_sum[i] = fmaf(ends[w].y, now, tw_mul(all_sum[i], before));
        all[i].x = fmaf(x[w].x, now, tw_mul(all[i].x, before));
        all[i].y = fmaf(x[w].y, now, tw_mul(all[i].y, before));
      }
    }
    tw_cluster_arrive();
  }
  tw_cluster_wait();  /* The other blocks have read this one's memory. */
  bf16 *const out = (bf16 *)p7 + first * 4128ll + kv * GROUP * D;
#pragma unroll
  for (int i = 0; i < PAIRS_OF_THREAD; i++) {
    const int pair = pair_of_thread(i);
    if (pair < 0) break;
    const tw_f2 x = all[i];
    const float inverse = 1.0f / all_sum[i];
    /* Adding zero makes −0 of a part left out and +0 of one that added nothing the same. */
    tw_store2_bf16(out + pair * 2, x.x * inverse + 0.0f, x.y * inverse + 0.0f);
  }
}
