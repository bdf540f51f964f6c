/* Elements of memory by a constant of a Config: vectors of 16 and single ones, as floats. */
#pragma once
#include "lib/vectors.h"

typedef enum { TW_F32, TW_BF16, TW_F16, TW_E4M3, TW_I8 } ElementType;

TW_FN int tw_bytes_of(ElementType type) { return type == TW_F32 ? 4 : type == TW_BF16 || type == TW_F16 ? 2 : 1; }

/* Elements [i, i + 16). */
TW_FN tw_v tw_load_as(ElementType type, const void *p, int64_t i) {
  if (type == TW_BF16) return tw_load_bf16((const uint16_t *)p + i);
  if (type == TW_F16) return tw_load_f16((const uint16_t *)p + i);
  if (type == TW_E4M3) return tw_load_e4m3((const uint8_t *)p + i);
  if (type == TW_I8) return tw_load_i8((const int8_t *)p + i);
  return tw_load((const float *)p + i);
}
TW_FN void tw_store_as(ElementType type, void *p, int64_t i, tw_v x) {
  if (type == TW_BF16) tw_store_bf16((uint16_t *)p + i, x);
  else if (type == TW_F16) tw_store_f16((uint16_t *)p + i, x);
  else if (type == TW_E4M3) tw_store_e4m3((uint8_t *)p + i, x);
  else if (type == TW_I8) tw_store_i8((int8_t *)p + i, x);
  else tw_store((float *)p + i, x);
}
/* Element i. */
TW_FN float tw_s_load_as(ElementType type, const void *p, int64_t i) {
  if (type == TW_BF16) return tw_s_load_bf16((const uint16_t *)p + i);
  if (type == TW_F16) return tw_s_load_f16((const uint16_t *)p + i);
  if (type == TW_E4M3) return tw_s_load_e4m3((const uint8_t *)p + i);
  if (type == TW_I8) return tw_s_load_i8((const int8_t *)p + i);
  return ((const float *)p)[i];
}
TW_FN void tw_s_store_as(ElementType type, void *p, int64_t i, float x) {
  if (type == TW_BF16) tw_s_store_bf16((uint16_t *)p + i, x);
  else if (type == TW_F16) tw_s_store_f16((uint16_t *)p + i, x);
  else if (type == TW_E4M3) tw_s_store_e4m3((uint8_t *)p + i, x);
  else if (type == TW_I8) tw_s_store_i8((int8_t *)p + i, x);
  else ((float *)p)[i] = x;
}
