#include "lib/legacy.cuh"

namespace tw {

/* Instructions of a warp that attention uses; all lanes call them together. Tests define them where TW_PTX is 0. */
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

/*
 * 2 heads of 32 over 1 of keys, on CUDA cores: a block computes 16 queries of one head,
 * 4 a warp, against 32 keys at a time. In scores a lane is a key; in the sum of values it holds every
 * 32nd column.
 *
 * Tokens lie depth first, trees one after another: key k is visible to query q exactly when k <= q < end[k], and a tree
 * is a root r with the tokens [r, end[r]). The block passes over the trees of its queries one by one and counts tiles
 * of keys from the root: a query's answer has the same bits alone and in any company.
 */
namespace attention {
constexpr int D = 32, QUERIES = 16, WARPS = 4, THREADS = 32 * WARPS, WARP_QUERIES = QUERIES / WARPS,
    COLUMNS = (D + 31) / 32;
/* One more than a row: 32 keys at one column lie in different banks. */
constexpr int PITCH = D + 1;
}  // namespace attention

extern "C" __global__ void __launch_bounds__(128, 1) k_attention_dba93b7434bf6a99_c28f3440(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3, void *__restrict__ p4, void *__restrict__ p5) {
  using namespace attention;
  extern __shared__ __align__(128) unsigned char tw_shared[];
  __shared__ int s_token[QUERIES], s_root[WARPS];
  float *const s_q = (float *)tw_shared, *const s_k = s_q + QUERIES * D, *const s_v = s_k + 32 * PITCH;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int head = blockIdx.x, first = blockIdx.y * QUERIES, rows = R;
  const bf16 *q = (const bf16 *)p0 + head * D;
  const bf16 *k = (const bf16 *)p1 + head / 2 * D;
  const bf16 *v = (const bf16 *)p2 + head / 2 * D;
  tw_await_previous();

  /* Tokens of the queries; −1 past the last. */
  for (int i = threadIdx.x; i < QUERIES; i += THREADS) {
    int token = -1;
    if (first + i < rows)
      token = ((const int *)p4)[first + i];
    s_token[i] = (unsigned)token < (unsigned)T ? token : -1;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < QUERIES * D; i += THREADS) {
    const int token = s_token[i / D];
    s_q[i] = token < 0 ? 0.0f : tw_load_bf16(q + token * 64ll + i % D);
  }
  const int *end = (const int *)p3;
  int lowest = 0x7fffffff, highest = -1;
  for (int i = 0; i < QUERIES; i++) {
    const int token = s_token[i];
    if (token >= 0 && token < lowest) lowest = token;
    if (token > highest) highest = token;
  }
  if (highest < 0) return;
  /* The root above the first query: the first key that it sees. */
  int root = lowest;
  for (int i = threadIdx.x; i < root; i += THREADS) if (end[i] > lowest) root = i;
  for (int w = 16; w > 0; w /= 2) {
    const int other = __shfl_xor_sync(0xffffffffu, root, w);
    if (other < root) root = other;
  }
  if (lane == 0) s_root[warp] = root;
  __syncthreads();
  for (int w = 0; w < WARPS; w++) if (s_root[w] < root) root = s_root[w];

  for (int stop; root <= highest; root = stop) {
    stop = end[root];
    if (stop <= root) stop = root + 1;
    if (stop > T) stop = T;
    /* Least and greatest query of this tree. */
    int low = 0x7fffffff, high = -1;
    for (int i = 0; i < QUERIES; i++) {
      const int token = s_token[i];
      if (token < root || token >= stop) continue;
      if (token < low) low = token;
      if (token > high) high = token;
    }
    if (high < 0) continue;
    const int from = root, to = high + 1;
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
      const int key_end = key < stop ? end[key] : 0;
      if (!__any_sync(0xffffffffu, key_end > low)) continue;
      for (int i = threadIdx.x; i < 32 * D; i += THREADS) {
        const int row = base + i / D;
        s_k[i / D * PITCH + i % D] = row < to ? tw_load_bf16(k + row * 32ll + i % D) : 0.0f;
        s_v[i] = row < to ? tw_load_bf16(v + row * 32ll + i % D) : 0.0f;
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
        const int token = s_token[warp * WARP_QUERIES + r];
        float x = score[r] * 0.1767766922712326f;
        if (key > token || token >= key_end) x = -tw_inf();
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
      if (token < root || token >= stop) continue;
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) {
        const int column = c * 32 + lane;
        /* Adding zero makes −0 of a tile left out and +0 of one that added nothing the same. */
        if (column < D) tw_store_bf16((bf16 *)p5 + (long long)(first + row) * 64
            + head * D + column, o[r][c] / sum[r] + 0.0f);
      }
    }
  }
}

}  // namespace tw
