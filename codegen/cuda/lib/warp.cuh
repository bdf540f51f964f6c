/* Sums and maxima over lanes of a warp. The order of every sum is fixed: it decides bits. */
#pragma once
#include "lib/pairs.cuh"

namespace tw {

/* Sum over a warp, the same in every lane, always in the same order. */
TW_DEVICE float warp_sum(float x) {
  for (int w = 16; w > 0; w /= 2) x += __shfl_xor_sync(ALL_LANES, x, w);
  return x;
}
/* What a lane loads of n parts of a row at a time, from part `first` on; others are `none`. */
TW_DEVICE void row_load(const float *p, int n, int first, float none, float4 (&x)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++)
    x[i] = first + 128 * i < n ? *(const float4 *)(p + first + 128 * i) : float4{ none, none, none, none };
}
/* Adds it. */
TW_DEVICE void row_add(const float4 (&x)[4], int n, int first, float &sum) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int left = n % 4 == 0 ? 4 : n - first - 128 * i;
    sum += (x[i].x + (left > 1 ? x[i].y : 0.0f)) + ((left > 2 ? x[i].z : 0.0f) + (left > 3 ? x[i].w : 0.0f));
  }
}
/*
 * Sum of the n parts of a row by a whole warp, always in this order: lane l takes parts 4l … 4l + 3, adds them in
 * pairs, then goes on 128 parts further. Four loads of 16 bytes are in flight at a time; what lies past n is read, not
 * added. `x`: the first four loads, where they are there.
 */
TW_DEVICE float row_sum(const float *p, int n, const float4 (&x)[4]) {
  if (n == 1) return x[0].x;
  float sum = 0.0f;
  int first = 4 * (int)(threadIdx.x % 32);
  row_add(x, n, first, sum);
  for (first += 512; first < n; first += 512) {
    float4 more[4];
    row_load(p, n, first, 0.0f, more);
    row_add(more, n, first, sum);
  }
  return warp_sum(sum);
}
TW_DEVICE float row_sum(const float *p, int n) {
  float4 x[4];
  if (n == 1) return *p;
  row_load(p, n, 4 * (int)(threadIdx.x % 32), 0.0f, x);
  return row_sum(p, n, x);
}
/*
 * Sums of a block of columns have one order everywhere, that of a tensor core's accumulator: thread t of four adds its
 * columns 2t, 2t + 1, 8 + 2t, 8 + 2t + 1, …, then the four are added in pairs.
 */
TW_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(ALL_LANES, x, 1);
  return x + __shfl_xor_sync(ALL_LANES, x, 2);
}
TW_DEVICE float quad_max(float x) {
  x = max(x, __shfl_xor_sync(ALL_LANES, x, 1));
  return max(x, __shfl_xor_sync(ALL_LANES, x, 2));
}
/* The largest of each `width` lanes (16 or 32), in all of them. */
TW_DEVICE float block_max(float x, int width) {
  for (int by = 1; by < width; by *= 2) x = max(x, __shfl_xor_sync(ALL_LANES, x, by));
  return x;
}
/* The largest of a row's loads, and `most`. */
TW_DEVICE float row_largest(const float4 (&x)[4], int n, int first, float most) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int left = n % 4 == 0 ? 4 : n - first - 128 * i;
    most = max(most, max(max(x[i].x, left > 1 ? x[i].y : most), max(
      left > 2 ? x[i].z : most, left > 3 ? x[i].w : most)));
  }
  return most;
}
/* The largest of the n parts of a row, by a whole warp, with the loads of a sum. */
TW_DEVICE float row_max(const float *p, int n, const float4 (&x)[4]) {
  if (n == 1) return x[0].x;
  float most = __shfl_sync(ALL_LANES, x[0].x, 0);
  int first = 4 * (int)(threadIdx.x % 32);
  most = row_largest(x, n, first, most);
  for (first += 512; first < n; first += 512) {
    float4 more[4];
    row_load(p, n, first, most, more);
    most = row_largest(more, n, first, most);
  }
  return block_max(most, 32);
}
TW_DEVICE float row_max(const float *p, int n) {
  const float any = *p;
  float4 x[4];
  if (n == 1) return any;
  row_load(p, n, 4 * (int)(threadIdx.x % 32), any, x);
  return row_max(p, n, x);
}

/* The same sum where lane l of a warp holds column l: of each `width` columns (16 or 32), in all of their lanes. */
TW_DEVICE float block_sum(float x, int width) {
  const int first = (int)(threadIdx.x % 32) / width * width + 2 * (int)(threadIdx.x % 4);
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < width; j += 8) {
    sum += __shfl_sync(ALL_LANES, x, first + j);
    sum += __shfl_sync(ALL_LANES, x, first + j + 1);
  }
  return quad_sum(sum);
}

/* The same sum where a lane has the first eight of 16 columns and its neighbour the others, which stores it. */
TW_DEVICE void store_block_sum(float *to, const float (&x)[8], int lane, bool is_stored) {
  float part[4];
#pragma unroll
  for (int t = 0; t < 4; t++) {
    const float first = add(add(0.0f, x[2 * t]), x[2 * t + 1]);
    part[t] = add(add(__shfl_xor_sync(ALL_LANES, first, 1), x[2 * t]), x[2 * t + 1]);
  }
  if ((lane & 1) && is_stored) *to = add(add(part[0], part[1]), add(part[2], part[3]));
}
/* The largest of such 16 columns. */
TW_DEVICE void store_block_max(float *to, const float (&x)[8], int lane, bool is_stored) {
  float most = x[0];
#pragma unroll
  for (int i = 1; i < 8; i++) most = max(most, x[i]);
  most = max(most, __shfl_xor_sync(ALL_LANES, most, 1));
  if ((lane & 1) && is_stored) *to = most;
}
/* The largest of `most` and of a lane's eight columns, if they are there. */
TW_DEVICE float lane_max(float most, const float (&x)[8], bool is_stored) {
  float own = x[0];
#pragma unroll
  for (int i = 1; i < 8; i++) own = max(own, x[i]);
  return is_stored ? max(most, own) : most;
}

}  // namespace tw
