/* Dot products of bytes in portable C: 16 columns at a time. Inlined, they would take compilers minutes. */
#pragma once
#include "lib/codes.h"

typedef struct { uint8_t b[64]; } tw_q;
TW_FN tw_q tw_q_load(const uint8_t *p) { tw_q q; memcpy(&q, p, 64); return q; }
static __attribute__((noinline, unused)) tw_q tw_q_take(tw_q v, int n, int mask) {
  for (int i = 0; i < 64; i++) v.b[i] = (uint8_t)((n >= 0 ? v.b[i] >> n : v.b[i] << -n) & mask);
  return v;
}
static __attribute__((noinline, unused)) tw_q tw_q_or(tw_q x, tw_q y) {
  for (int i = 0; i < 64; i++) x.b[i] |= y.b[i];
  return x;
}
TW_FN tw_v tw_q_halves(const uint8_t *p) {
  uint16_t h[16];
  memcpy(h, p, 32);
  return tw_load_f16(h);
}
TW_FN tw_v tw_q_bytes(const uint8_t *p) { tw_v r; for (int l = 0; l < 16; l++) r[l] = (float)p[l]; return r; }
TW_FN tw_v tw_q_signed(const uint8_t *p) { tw_v r; for (int l = 0; l < 16; l++) r[l] = (float)(int8_t)p[l]; return r; }
TW_FN tw_v tw_q_multiply(tw_v x, tw_v y) { return x * y; }
TW_FN tw_i tw_q_subtract(tw_i x, tw_i y) { return x - y; }
TW_FN void tw_q_add(int32_t *p, tw_i x) {
  for (int l = 0; l < 16; l++) p[l] = (int32_t)((uint32_t)p[l] + (uint32_t)x[l]);
}
static __attribute__((noinline, unused)) void tw_q_dot(tw_i *sum, const tw_q *w, const int8_t *a) {
  for (int l = 0; l < 16; l++)
    (*sum)[l] += w->b[4 * l] * a[0] + w->b[4 * l + 1] * a[1] + w->b[4 * l + 2] * a[2] + w->b[4 * l + 3] * a[3];
}
