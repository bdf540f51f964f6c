/* Starts to copy head columns of rows [from, from + KEYS) of a buffer; rows from `stop` on arrive as zeros. */
TW_FN void fetch(unsigned to, const unsigned short *base, long long stride, int from, int stop) {
  constexpr int COUNT = KEYS * PIECES;
#pragma unroll 2
  for (int j = 0; j < (COUNT + THREADS - 1) / THREADS; j++) {
    const int i = j * THREADS + (int)threadIdx.x;
    if (COUNT % THREADS != 0 && i >= COUNT) break;
    const int row = from + i / PIECES, piece = i % PIECES;
    const bool lies = row < stop;
    tw_cp_async16(to + (i / PIECES) * ROW_BYTES + piece * 16, base + (lies ? row * stride + piece * 8 : 0),
        lies ? 16 : 0);
  }
}
}  // namespace attention
