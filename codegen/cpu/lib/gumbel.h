/* Gumbel's noise of 16 tokens under a key, as ir/gumbel.ts defines it. */
#pragma once
#include "lib/elementary.h"

typedef uint32_t tw_w __attribute__((vector_size(64)));
TW_FN tw_w tw_setw(uint32_t x) { return (tw_w)tw_seti((int32_t)x); }
TW_FN tw_w tw_hash(tw_w a, uint32_t b) {
  tw_w x = a ^ tw_setw(b * 0x9e3779b9u + 0x7f4a7c15u);
  x = (x ^ (x >> 16)) * tw_setw(0x7feb352du);
  x = (x ^ (x >> 15)) * tw_setw(0x846ca68bu);
  return x ^ (x >> 16);
}
TW_FN tw_v tw_gumbel(tw_i token, int32_t low, int32_t high) {
  const tw_w bits = tw_hash(tw_hash((tw_w)token, (uint32_t)low), (uint32_t)high);
  const tw_v u = (tw_float((tw_i)(bits >> 1)) + tw_set1(0.5f)) * tw_set1(4.656612873077393e-10f);
  const tw_v small = u * (tw_set1(1.0f) + u * (tw_set1(0.5f) + u * tw_set1(0.33333334f)));
  return -tw_log(tw_select(tw_lt(u, tw_set1(0.015625f)), small, -tw_log(tw_set1(1.0f) - u)));
}
