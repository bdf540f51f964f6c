TW_FN float tw_block_sum(float x, int width) {
  const int first = (int)(threadIdx.x % 32) / width * width + 2 * (int)(threadIdx.x % 4);
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < width; j += 8) {
    sum += __shfl_sync(0xffffffffu, x, first + j);
    sum += __shfl_sync(0xffffffffu, x, first + j + 1);
  }
  return tw_quad_sum(sum);
}
