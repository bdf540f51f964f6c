/* Combines a row's blocks in order and writes them: one thread a row. */
TW_FN void tw_write_parts(const tw_parts &parts, int i, float *to) {
  float top = -tw_inf(), sum = 0.0f;
  int at = 0;
  for (int b = 8 - 1; b >= 0; b--) {
    const float m = parts.top[i][b];
    if (m >= top || m != m) { top = m; at = parts.at[i][b]; }
  }
  for (int b = 0; b < 8; b++) {
    if (parts.top[i][b] != -tw_inf()) sum = tw_add(sum, tw_mul(parts.sum[i][b], expf(parts.top[i][b] - top)));
  }
  to[0] = top;
  to[1] = sum;
  to[2] = (float)at;
  to[3] = parts.target[i];
}
