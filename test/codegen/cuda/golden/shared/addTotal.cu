/* Adds the total of the chunks before to a row's current chunk. */
template <int ROW> TW_FN void add_total(const Total &total, float (&o)[D / 8][4], float &top, float &sum) {
  const float most = fmaxf(total.top[ROW], top), old = power2(total.top[ROW] - most), now = power2(top - most);
  sum = fmaf(sum, now, tw_mul(total.sum[ROW], old));
  top = most;
#pragma unroll
  for (int i = 0; i < D / 8; i++) {
    o[i][2 * ROW] = fmaf(o[i][2 * ROW], now, tw_mul(total.o[i][ROW].x, old));
    o[i][2 * ROW + 1] = fmaf(o[i][2 * ROW + 1], now, tw_mul(total.o[i][ROW].y, old));
  }
}
