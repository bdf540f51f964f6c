/*
 * 2 heads of 40 over 1 of keys, on CUDA cores: a block computes 16 queries of one head,
 * 4 a warp, against 32 keys at a time. In scores a lane is a key; in the sum of values it holds every
 * 32nd column.
 *
 * Query q sees the rows key[begin[q] + i] of keys and values for i from 0 to position[q]. Queries next to each other
 * with one `begin` are a run. The block passes over its runs one by one and takes keys in order of position: an answer
 * depends on the query and the keys of its path alone, to the bit.
 */
namespace attention {
constexpr int D = 40, QUERIES = 16, WARPS = 4, THREADS = 32 * WARPS, WARP_QUERIES = QUERIES / WARPS,
    COLUMNS = (D + 31) / 32;
/* One more than a row: 32 keys at one column lie in different banks. */
constexpr int PITCH = D + 1;
}  // namespace attention

extern "C" __global__ void __launch_bounds__(128, 1) k_attention_test(int T, int R, int C, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4, void *__restrict__ p5, void *__restrict__ p6) {
  using namespace attention;
  extern __shared__ __align__(128) unsigned char tw_shared[];
  __shared__ int s_token[QUERIES], s_begin[QUERIES],
      s_position[QUERIES];
  float *const s_q = (float *)tw_shared, *const s_k = s_q + QUERIES * D, *const s_v = s_k + 32 * PITCH;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int head = blockIdx.x, first = blockIdx.y * QUERIES, rows = T;
  const f32 *q = (const f32 *)p0 + head * D;
  const f32 *k = (const f32 *)p1 + head / 2 * D;
  const f32 *v = (const f32 *)p2 + head / 2 * D;
  tw_await_previous();

  /* Tokens of the queries; −1 past the last. */
  for (int i = threadIdx.x; i < QUERIES; i += THREADS) {
    int token = -1;
    if (first + i < rows)
      token = first + i;
    s_token[i] = (unsigned)token < (unsigned)T ? token : -1;
    s_begin[i] = s_token[i] < 0 ? -1 : ((const int *)p3)[token];
    s_position[i] = s_token[i] < 0 ? -1 : ((const int *)p4)[token];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < QUERIES * D; i += THREADS) {
    const int token = s_token[i / D];
    s_q[i] = token < 0 ? 0.0f : tw_load_f32(q + token * 96ll + i % D);
  }
  __syncthreads();
  const int *list = (const int *)p5;
  for (int run = 0, run_end; run < QUERIES; run = run_end) {
    const int begin = s_begin[run];
    int highest = -1;
    for (run_end = run; run_end < QUERIES && s_begin[run_end] == begin; run_end++)
      if (s_position[run_end] > highest) highest = s_position[run_end];
    if (begin < 0) continue;
    const int from = 0, to = tw_least(highest + 1, C - begin);
    float o[WARP_QUERIES][COLUMNS], top[WARP_QUERIES], sum[WARP_QUERIES];
#pragma unroll
    for (int r = 0; r < WARP_QUERIES; r++) {
      top[r] = -tw_inf();
      sum[r] = 0.0f;
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) o[r][c] = 0.0f;
    }
    for (int base = from; base < to; base += 32) {
      const int key = base + lane;
      for (int i = threadIdx.x; i < 32 * D; i += THREADS) {
        const int at = base + i / D, row = at < to ? list[begin + at] : 0;
        s_k[i / D * PITCH + i % D] = at < to ? tw_load_f32(k + row * 64ll + i % D) : 0.0f;
        s_v[i] = at < to ? tw_load_f32(v + row * 64ll + i % D) : 0.0f;
      }
      __syncthreads();
      float score[WARP_QUERIES];
#pragma unroll
      for (int r = 0; r < WARP_QUERIES; r++) score[r] = 0.0f;
#pragma unroll 4
      for (int i = 0; i < D; i++) {
        const float x = s_k[lane * PITCH + i];
#pragma unroll
        for (int r = 0; r < WARP_QUERIES; r++) score[r] = fmaf(s_q[(warp * WARP_QUERIES + r) * D + i], x, score[r]);
      }
#pragma unroll
      for (int r = 0; r < WARP_QUERIES; r++) {
        const int last = s_position[warp * WARP_QUERIES + r];
        float x = score[r] * 0.15811388194561005f;
        if (key >= to || key > last) x = -tw_inf();
        float most = fmaxf(top[r], x);
        for (int w = 16; w > 0; w /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, w));
        /* Nothing may be visible so far. */
        const float shift = most == -tw_inf() ? 0.0f : most;
        const float keep = tw_exp2((top[r] - shift) * 1.44269504f), weight = tw_exp2((x - shift) * 1.44269504f);
        top[r] = most;
        sum[r] = sum[r] * keep + tw_warp_sum(weight);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) o[r][c] *= keep;
        for (int j = 0; j < 32; j++) {
          const float w = __shfl_sync(0xffffffffu, weight, j);
          if (w == 0.0f) continue;
#pragma unroll
          for (int c = 0; c < COLUMNS; c++) {
            if (D % 32 == 0 || c * 32 + lane < D) o[r][c] = fmaf(w, s_v[j * D + c * 32 + lane], o[r][c]);
          }
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < WARP_QUERIES; r++) {
      const int row = warp * WARP_QUERIES + r, token = s_token[row];
      if (token < 0 || row < run ||
          row >= run_end) continue;
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) {
        const int column = c * 32 + lane;
        /* Adding zero makes −0 of a tile left out and +0 of one that added nothing the same. */
        if (column < D) tw_store_f32((f32 *)p6 + (long long)(first + row) * 96
            + head * D + column, o[r][c] / sum[r] + 0.0f);
      }
    }
  }
}
