/*
 * 8 heads of 128 over 2 of keys: a block is one warp, which computes 4 queries of the
 * 4 heads that share one head of keys. Row r of its tile is head r % GROUP of query r / GROUP.
 *
 * Query q sees the rows key[begin[q] + i] of keys and values for i from 0 to position[q]. The warp takes KEYS of them
 * at a time. Lists next to each other that begin alike, as those of siblings do, share their first tiles: these are
 * loaded and multiplied once for all their rows. The warp goes through the list of its first query, then through what
 * the second has of its own, and so on. What lists share it finds out on the way: where it fetches the entries of a
 * tile, it fetches those of the lists that were alike so far as well, and compares them.
 *
 * Keys and values of tiles, in turn, are a ring of parts: a part that has been multiplied is filled again at once, so
 * copies are under way whatever the warp does, and it waits for no other warp.
 *
 * The bits of an answer are those of the kernel that passes over runs one by one (attentionPathMma): keys are taken in
 * order of position, 16 a step of a product, KEYS a step of the softmax, CHUNK a partial result. A row that does not
 * see a tile keeps what it has.
 */
#if TW_PTX
/* Asks for a line of memory to be brought to L2. */
TW_FN void tw_prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }
#endif

namespace attention {
constexpr int D = 128, GROUP = 4, QUERIES = 4, KV_HEADS = 2, KEYS = 32,
    CHUNK = 128;
static_assert(QUERIES > 1 && QUERIES * GROUP <= 16 && KEYS == 32, "a tile has 16 rows, and a lane for each key");
/* Parts of the ring. They are odd in number: where keys were, values come next. */
constexpr int PARTS = 3;
static_assert(PARTS % 2 == 1, "a part with keys of one tile has values of another next");
/* 16 bytes more than a row: eight rows at one column lie in different banks. */
constexpr int PIECES = D / 8;
constexpr unsigned ROW_BYTES = D * 2 + 16, SLOT_BYTES = KEYS * ROW_BYTES;
constexpr float SCALE = 0.127517431974411f;

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

/* Tile `index` of the list of query `run`; `run` is QUERIES behind the last tile. */
struct Tile {
  int run, index;
};
}  // namespace attention

extern "C" __global__ void __launch_bounds__(32, 5) k_attention_test(int T, int R, int C, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4, void *__restrict__ p5, void *__restrict__ p6, void *__restrict__ p7) {
  using namespace attention;
  extern __shared__ __align__(128) unsigned char tw_shared[];
  const int lane = threadIdx.x, row0 = lane >> 2, row1 = row0 + 8, quad = lane & 3;
  const int kv = (int)blockIdx.x % KV_HEADS, first = (int)blockIdx.x / KV_HEADS * QUERIES, rows = R;
  const bf16 *k = (const bf16 *)p1 + kv * D;
  const bf16 *v = (const bf16 *)p2 + kv * D;
  const int *list = (const int *)p5;
  const unsigned slots = tw_shared_address(tw_shared);
  /* The inputs of the call are there before its first kernel: they are read while the kernel before this one ends. */
  /* Lane q has what is known of query q of the block. A lane without a query has none of its keys. */
  const bool is_query = lane < QUERIES && first + lane < rows;
  const int row = is_query ? ((const int *)p6)[first + lane] : -1;
  const int token = (unsigned)row < (unsigned)T ? row : -1;
  const int begin = token < 0 ? -1 : ((const int *)p3)[token];
  const int position = begin < 0 ? -1 : ((const int *)p4)[token];
  const int seen = begin < 0 ? 0 : tw_least(position + 1, C - begin), keys = seen < 0 ? 0 : seen;
  const int tiles = (keys + KEYS - 1) / KEYS;
  /*
   * Most tiles that the list of query `lane` has in common with the one before it: those that both have whole. Where
   * the lists turn out to part, it is the tile in which they do.
   */
  const int whole_before = __shfl_up_sync(0xffffffffu, keys / KEYS, 1);
  int common = lane == 0 ? 0 : tw_least(keys / KEYS, whole_before);

  /* The first tile that query `run`, or else a later one, has of its own. Those before must have been compared. */
  const auto enter = [&](int run) {
    const unsigned own = __ballot_sync(0xffffffffu, lane >= run && common < tiles);
    const int next = own == 0 ? QUERIES : __ffs((int)own) - 1;
    return Tile{ next, __shfl_sync(0xffffffffu, common, next) };
  };
  const auto after = [&](Tile tile) {
    if (tile.index + 1 >= __shfl_sync(0xffffffffu, tiles, tile.run)) return enter(tile.run + 1);
    tile.index++;
    return tile;
  };
  /* The queries from tile.run up to this one see the tile, unless one is found to part from the others in it. */
  const auto end_of = [&](Tile tile) {
    const unsigned parted = ~__ballot_sync(0xffffffffu, common > tile.index);
    return tile.run + __ffs((int)(parted >> tile.run >> 1));
  };

  /* Where the row of key `lane` lies of the tile whose keys or values are copied next: −1 past the last key. */
  int place = -1;
  bool is_coming = false;
  /* The same of the tile behind it, and what the lists of other queries that may see it have in this place. */
  Tile next = enter(0);
  int next_place = -1, others[QUERIES];
  const auto fetch = [&] {
    const int i = next.index * KEYS + lane, end = end_of(next);
    const int run_begin = __shfl_sync(0xffffffffu, begin, next.run);
    const int run_keys = __shfl_sync(0xffffffffu, keys, next.run);
    next_place = i < run_keys ? list[run_begin + i] : -1;
#pragma unroll
    for (int q = 1; q < QUERIES; q++) {
      const int other_begin = __shfl_sync(0xffffffffu, begin, q);
      others[q] = q > next.run && q < end ? list[other_begin + i] : 0;
    }
  };
  const auto advance = [&] {
    const int end = end_of(next);
    unsigned parted = 0;
#pragma unroll
    for (int q = 1; q < QUERIES; q++)
      if (q > next.run && q < end && others[q] != next_place) parted |= 1u << q;
    parted = __reduce_or_sync(0xffffffffu, parted);
    /* Behind the first list that parts from the run's nothing is known: others may go on with it. */
    if (lane == __ffs((int)parted) - 1) common = next.index;
    is_coming = next.run < QUERIES;
    place = next_place;
    next = after(next);
    fetch();
  };
  const Tile first_tile = next;
  fetch();
  advance();
  tw_await_previous();
  if (first_tile.run >= QUERIES) return;

  const unsigned char *const k_rows = (const unsigned char *)k, *const v_rows = (const unsigned char *)v;
  /* Row `place` of this lane lies place * row_units units of 16 bytes behind `from`; 32 bits count 64 GiB of them. */
  const auto start = [&](unsigned to, const unsigned char *from, unsigned row_units, int place) {
    const unsigned own_unit = (unsigned)place * row_units;
    if (__all_sync(0xffffffffu, place >= 0)) {
#pragma unroll
      for (int j = 0; j < PIECES; j++) {
        const int at = j * (32 / PIECES) + lane / PIECES, piece = lane % PIECES;
        const unsigned unit = __shfl_sync(0xffffffffu, own_unit, at);
        tw_cp_async16(to + at * ROW_BYTES + piece * 16, from + piece * 16 + unit * 16ull, 16);
      }
    } else {
      /* Rows that are missing are zeros. */
#pragma unroll 4
      for (int j = 0; j < PIECES; j++) {
        const int at = (j * 32 + lane) / PIECES, piece = (j * 32 + lane) % PIECES;
        const unsigned unit = __shfl_sync(0xffffffffu, own_unit, at);
        const bool is_there = __shfl_sync(0xffffffffu, place, at) >= 0;
        tw_cp_async16(to + at * ROW_BYTES + piece * 16,
            from + (is_there ? piece * 16 + unit * 16ull : 0ull), is_there ? 16 : 0);
      }
    }
  };
  const auto start_keys = [&](int to) {
    if (is_coming) start(slots + to * SLOT_BYTES, k_rows, 32, place);
    tw_cp_async_commit();
  };
  const auto start_values = [&](int to) {
    if (is_coming) start(slots + to * SLOT_BYTES, v_rows, 32, place);
    tw_cp_async_commit();
    advance();
  };
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
    if (part % 2 == 1) {
      start_values(part);
      continue;
    }
    start_keys(part);
  }
  /* Fills a part that has been multiplied, which had keys or values, and waits for the next one. */
  int slot = 0;
  const auto fill = [&](bool had_keys) {
    __syncwarp();  /* The part has been read. */
    if (had_keys) {
      start_values(slot);
    } else {
      start_keys(slot);
    }
    slot = slot == PARTS - 1 ? 0 : slot + 1;
    tw_cp_async_wait<PARTS - 1>();
    __syncwarp();  /* The next part is there. */
  };

  /* The last key that the query of each of this lane's rows sees: −1 of rows without a query. */
  const int query0 = row0 / GROUP, query1 = row1 / GROUP;
  const int end0 = __shfl_sync(0xffffffffu, keys, query0) - 1, end1 = __shfl_sync(0xffffffffu, keys, query1) - 1;
  /* Of this lane's rows the tokens of their queries, −1 where there is none, and where their heads begin. */
  const int tokens[2] = { __shfl_sync(0xffffffffu, token, query0), __shfl_sync(0xffffffffu, token, query1) };
  const unsigned short *const queries = (const unsigned short *)p0 + kv * GROUP * D + quad * 2;
  const unsigned short *const q_rows[2] = { queries + tokens[0] * 1024ll + row0 % GROUP * D,
    queries + tokens[1] * 1024ll + row1 % GROUP * D };
  /* The left operand of the scores, zero in rows without a head. */
  unsigned query[D / 16][4];
#pragma unroll
  for (int i = 0; i < D / 16; i++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      query[i][half] = tokens[half] >= 0 ? *(const unsigned *)(q_rows[half] + i * 16) : 0u;
      query[i][half + 2] = tokens[half] >= 0 ? *(const unsigned *)(q_rows[half] + i * 16 + 8) : 0u;
    }
  }
  const unsigned k_lane = slots + ((lane >> 4) * 8 + (lane & 7)) * ROW_BYTES + ((lane >> 3) & 1) * 16;
  const unsigned v_lane = slots + (lane & 15) * ROW_BYTES + (lane >> 4) * 16;
  tw_cp_async_wait<PARTS - 1>();
  __syncwarp();  /* The first part is there. */

  /* Registers are for the queries and the answer: the total of a lane's rows lies behind the ring. */
  static_assert(
    PARTS * SLOT_BYTES + 32 * sizeof(Total) <= 45568, "a block's memory is what its schedule says");
  Total &total = ((Total *)(tw_shared + PARTS * SLOT_BYTES))[lane];
  float o[D / 8][4];
  float top0 = -tw_inf(), top1 = -tw_inf(), sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
  for (int i = 0; i < D / 8; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
  for (Tile tile = first_tile; tile.run < QUERIES; tile = after(tile)) {
    const int key = tile.index * KEYS, to = end_of(tile);
    /* Queries that share a tile see the whole of it. */
    const int last0 = query0 >= tile.run && query0 < to ? end0 : -1;
    const int last1 = query1 >= tile.run && query1 < to ? end1 : -1;
    const int warp_low = tile.run == 0 && to == QUERIES ? key + KEYS - 1 : -1;
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
      const unsigned (&a)[4] = query[i];
#pragma unroll
      for (int n = 0; n < KEYS / 16; n++) {
        unsigned b[4];
        tw_ldmatrix_x4(b, k_lane + slot * SLOT_BYTES + n * 16 * ROW_BYTES + i * 32);
        tw_mma_bf16(s[2 * n], a, b[0], b[1]);
        tw_mma_bf16(s[2 * n + 1], a, b[2], b[3]);
      }
    }
    fill(true);
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
    for (int i = 0; i < D / 16; i++) {
      float x[2][4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        x[0][e] = o[2 * i][e];
        x[1][e] = o[2 * i + 1][e];
      }
#pragma unroll
      for (int n = 0; n < KEYS / 16; n++) {
        unsigned b[4];
        tw_ldmatrix_x4_trans(b, v_lane + slot * SLOT_BYTES + n * 16 * ROW_BYTES + i * 32);
        tw_mma_bf16(x[0], weight[n], b[0], b[1]);
        tw_mma_bf16(x[1], weight[n], b[2], b[3]);
      }
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const bool sees = (e < 2 ? last0 : last1) >= 0;
        o[2 * i][e] = sees ? x[0][e] : o[2 * i][e];
        o[2 * i + 1][e] = sees ? x[1][e] : o[2 * i + 1][e];
      }
    }
    fill(false);
  }
  sum0 = tw_quad_sum(sum0);
  sum1 = tw_quad_sum(sum1);
  if (end0 >= CHUNK) add_total<0>(total, o, top0, sum0);
  if (end1 >= CHUNK) add_total<1>(total, o, top1, sum1);
  {
    const int last0 = end0, last1 = end1;
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
  }
}
