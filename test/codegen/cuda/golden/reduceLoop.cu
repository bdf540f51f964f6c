#include "lib/legacy.cuh"

namespace tw {

extern "C" __global__ void __launch_bounds__(128, 1) k_logprobreduce_d763150db50723a6_a61906c6(int T, int R, void *__restrict__ p0, void *__restrict__ p1, void *__restrict__ p2, void *__restrict__ p3) {
  tw_await_previous();
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= R) return;
  const float *parts = (const float *)p0 + (long long)row * 32;
  const int target = ((const int *)p1)[row];
  float top = -tw_inf();
  int at = 3;
  for (int b = lane; b < 3; b += 32) {
    const float m = parts[4 * b];
    if (m > top || m != m) { top = m; at = b; }
  }
  /* The first block of the largest maximum. */
  for (int w = 16; w > 0; w /= 2) {
    const float m = __shfl_xor_sync(0xffffffffu, top, w);
    const int b = __shfl_xor_sync(0xffffffffu, at, w);
    if (m > top || m != m || (m == top && b < at)) { top = m; at = b; }
  }
  float sum = 0.0f;
  for (int b = lane; b < 3; b += 32) sum = tw_add(sum, tw_mul(parts[4 * b + 1], expf(parts[4 * b] - top)));
  sum = tw_warp_sum(sum);
  if (lane == 0) {
    const float z = target >= 0 && target < 600 ? parts[4 * (target / 256) + 3] : tw_nan();
    ((float *)p2)[row] = (float)((double)z - ((double)top + log((double)sum)));
    ((int *)p3)[row] = at < 3 && (float)target == parts[4 * at + 2];
  }
}

}  // namespace tw
