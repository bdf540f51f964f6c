#ifndef TW_HOPPER_ATTENTION_H
#define TW_HOPPER_ATTENTION_H
#include "hopper.h"
/*
 * What attention by warpgroup products uses besides warp.h and hopper.h. Comes after them, in place of the kernel's own
 * definitions (templates/attentionWgmma).
 */
static void tw_bar_show() {}
static void tw_show_products() {}
static void tw_registers_of_producers() {}
static void tw_registers_of_consumers() {}
static void tw_products_begin() {}
static void tw_products_commit() { tw_product_commit(); }
template <int N> static void tw_products_wait() { tw_product_wait(N); }
static unsigned tw_scaled_pair(unsigned pair, unsigned factors) {
  const auto half = [=](int by) {
    return (unsigned)tw_emulated_to_bf16(tw_emulated_from_bf16((uint16_t)(pair >> by)) *
                                         tw_emulated_from_bf16((uint16_t)(factors >> by)));
  };
  return half(0) | half(16) << 16;
}
static void tw_settled(float &) {}
template <int N> static void tw_wgmma(float (&d)[N], unsigned long long a, unsigned long long b, int isAdded) {
  tw_product<64>(d, a, b, isAdded, tw_emulated_from_bf16);
}
template <int N> static void tw_wgmma_values(float (&d)[N], const unsigned (&a)[4], unsigned long long b,
                                             int isAdded) {
  tw_product_of_registers(d, a, b, isAdded, tw_emulated_from_bf16);
}
#endif
