/*
 * 4 heads of 64 over 1 of keys: a block is one warp, which computes one query of the 4
 * heads that share one head of keys. The heads are the rows of one tile of a tensor core.
 *
 * Query q sees the rows key[begin[q] + i] of keys and values for i from 0 to position[q]. The warp takes KEYS of them
 * at a time. Keys and values of such tiles, in turn, are a ring of parts: a part that has been multiplied is filled
 * again at once, so copies are under way whatever the warp does, and it waits for no other warp.
 *
 * Additions have the order of the kernel for many queries of a path (attentionPathMma), so the bits are the same: 16
 * keys are one step of a product, KEYS one step of the softmax, CHUNK one partial result.
 */
#if TW_PTX
/* Asks for a line of memory to be brought to L2. */
TW_FN void tw_prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }
#endif

namespace attention {
constexpr int D = 64, GROUP = 4, KV_HEADS = 1, KEYS = 32, CHUNK = 128;
/* Halves of a tile of 16 rows that have heads. */
constexpr int HALVES = GROUP > 8 ? 2 : 1;
/* Parts of the ring. They are odd in number: where keys were, values come next. */
constexpr int PARTS = 5;
static_assert(PARTS % 2 == 1, "a part with keys of one tile has values of another next");
/* 16 bytes more than a row: eight rows at one column lie in different banks. */
constexpr int PIECES = D / 8;
constexpr unsigned ROW_BYTES = D * 2 + 16, SLOT_BYTES = KEYS * ROW_BYTES;
constexpr float SCALE = 0.1803368777036667f;

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
}  // namespace attention

extern "C" __global__ void __launch_bounds__(32, 8) k_attention_test(int T, int R, int C, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4, void *__restrict__ p5, void *__restrict__ p6) {
  using namespace attention;
  extern __shared__ __align__(128) unsigned char tw_shared[];
  const int lane = threadIdx.x, row0 = lane >> 2, row1 = row0 + 8, quad = lane & 3;
  const int kv = (int)blockIdx.x % KV_HEADS, first = (int)blockIdx.x / KV_HEADS;
  const bf16 *k = (const bf16 *)p1 + kv * D;
  const bf16 *v = (const bf16 *)p2 + kv * D;
  const int *list = (const int *)p5;
  /* The inputs of the call are there before its first kernel: they are read while the kernel before this one ends. */
  const int token = first;
  const int begin = token < 0 ? -1 : ((const int *)p3)[token];
  const int position = begin < 0 ? -1 : ((const int *)p4)[token];
  const int keys = begin < 0 ? 0 : tw_least(position + 1, C - begin);
  const unsigned slots = tw_shared_address(tw_shared);
  /* The tiles are [first_tile, tiles). */
  const int first_tile = 0, tiles = (keys + KEYS - 1) / KEYS;
  /* Where the key of this lane lies: key `lane` of a tile, −1 past the last key. */
  const auto place_of = [&](int tile) {
    const int i = tile * KEYS + lane;
    return i < keys ? list[begin + i] : -1;
  };
  /*
   * Two tiles are brought to L2: more of them keep others waiting. Rows that this call has yet to write are among them,
   * and nothing is read from there before the wait.
   */
  for (int tile = first_tile; tile < first_tile + 2; tile++) {
    const int place = place_of(tile);
    if (place < 0) break;
    for (int i = 0; i < D; i += 64) {
      tw_prefetch(k + place * 64ll + i);
      tw_prefetch(v + place * 64ll + i);
    }
  }
  /* The tile whose keys or values are copied next, where its rows lie, and those of the tile behind it. */
  int coming = first_tile, place = place_of(coming), next_place = place_of(coming + 1);
  tw_await_previous();
  if (keys <= 0) return;

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
    if (coming < tiles) start(slots + to * SLOT_BYTES, k_rows, 8, place);
    tw_cp_async_commit();
  };
  const auto start_values = [&](int to) {
    if (coming < tiles) start(slots + to * SLOT_BYTES, v_rows, 8, place);
    tw_cp_async_commit();
    coming++;
    place = next_place;
    next_place = place_of(coming + 1);
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

  /* The left operand of the scores, zero in rows without a head. */
  unsigned query[D / 16][4];
  const unsigned short *q = (const unsigned short *)p0 + token * 256ll + kv * GROUP * D + quad * 2;
#pragma unroll
  for (int i = 0; i < D / 16; i++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = row0 + 8 * half;
      query[i][half] = half < HALVES && row < GROUP ? *(const unsigned *)(q + row * D + i * 16) : 0u;
      query[i][half + 2] = half < HALVES && row < GROUP ? *(const unsigned *)(q + row * D + i * 16 + 8) : 0u;
    }
  }
  const unsigned k_lane = slots + ((lane >> 4) * 8 + (lane & 7)) * ROW_BYTES + ((lane >> 3) & 1) * 16;
  const unsigned v_lane = slots + (lane & 15) * ROW_BYTES + (lane >> 4) * 16;
  tw_cp_async_wait<PARTS - 1>();
  __syncwarp();  /* The first part is there. */

  Total total;
  float o[D / 8][4];
  float top0 = -tw_inf(), top1 = -tw_inf(), sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
  for (int i = 0; i < D / 8; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
  /* Rows without a head are computed along and thrown away. */
  const int warp_low = keys - 1, last0 = keys - 1, last1 = keys - 1;
  const int first_chunk = first_tile * KEYS / CHUNK;
  for (int tile = first_tile; tile < tiles; tile++) {
    const int key = tile * KEYS;
    if (key % CHUNK == 0 && tile > first_tile) {
      const bool has_total = key / CHUNK > first_chunk + 1;
      end_chunk<0>(total, has_total, o, top0, sum0, tw_quad_sum(sum0));
      if (HALVES > 1) end_chunk<1>(total, has_total, o, top1, sum1, tw_quad_sum(sum1));
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
    /* Rows 8 to 15 have no heads: what is constant costs nothing. */
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) s[n][2] = s[n][3] = -tw_inf();
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
    for (int n = 0; n < KEYS / 16; n++) weight[n][1] = weight[n][3] = 0u;
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
    fill(false);
  }
  sum0 = tw_quad_sum(sum0);
  if (HALVES > 1) sum1 = tw_quad_sum(sum1);
  if ((keys - 1) / CHUNK > first_chunk) {
    add_total<0>(total, o, top0, sum0);
    if (HALVES > 1) add_total<1>(total, o, top1, sum1);
  }
  {
    const int last0 = row0 < GROUP ? keys - 1 : -1, last1 = HALVES > 1 && row1 < GROUP ? keys - 1 : -1;
    const float inverse0 = 1.0f / sum0, inverse1 = 1.0f / sum1;
    float check0 = 0.0f, check1 = 0.0f;
    const auto place_of = [&](int row) {
      return (bf16 *)p6 + (long long)(first + row / GROUP) * 256 +
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
