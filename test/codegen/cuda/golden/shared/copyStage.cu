TW_FN void tw_copy_stage(const unsigned short *a, int rows, const unsigned short *w, int columns, int k0, unsigned to) {
#pragma unroll
  for (int i = threadIdx.x; i < 64 * 4; i += 128) {
    const int r = i / 4, c = i % 4, left = (64 - k0 - c * 8) * 2;
    const int bytes = r >= rows || left < 0 ? 0 : left < 16 ? left : 16;
    tw_cp_async16(to + tw_chunk(r, c), bytes == 0 ? a : a + (r * 64 + k0 + c * 8), bytes);
  }
#pragma unroll
  for (int i = threadIdx.x; i < 64 * 4; i += 128) {
    const int r = i / 4, c = i % 4, left = (64 - k0 - c * 8) * 2;
    const int bytes = r >= columns || left < 0 ? 0 : left < 16 ? left : 16;
    tw_cp_async16(to + 4096 + tw_chunk(r, c), bytes == 0 ? w : w + (r * 64 + k0 + c * 8), bytes);
  }
}
