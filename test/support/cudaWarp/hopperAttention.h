/*
 * What attention by warpgroup products uses besides warp.h and hopper.h. Comes after them, in place of the kernel's own
 * definitions (templates/attentionWgmma).
 */
static void tw_bar_show() {}
static void tw_show_products() {}
static void tw_registers_of_producers() {}
static void tw_bar_arrive_for(unsigned bar, unsigned count) {
  tw_barrier &b = tw_barrier_at(bar);
  tw_bar_use(bar);
  tw_race_release(&b);
  b.pending -= (int)count;
  tw_bar_settle(b);
}
static void tw_registers_of_consumers() {}
/* Copies that are late land when somebody waits for the barrier. */
static void tw_bar_arrive_copied(unsigned bar) {
  if (!tw_late_copies) { tw_bar_arrive(bar); return; }
  std::vector<tw_copy> copies;
  for (auto &group : tw_fibres[tw_current].copies) {
    copies.insert(copies.end(), group.begin(), group.end());
    group.clear();
  }
  tw_barrier &b = tw_barrier_at(bar);
  tw_bar_use(bar);
  tw_race_release(&b);
  b.copies.push_back(copies);
  tw_progress++;
}
static void tw_products_begin() {}
static void tw_products_commit() { tw_product_commit(); }
template <int N> static void tw_products_wait() { tw_product_wait(N); }
static unsigned tw_scaled_pair(unsigned pair, unsigned factors) {
  const auto half = [=](int by) {
    return (unsigned)tw_to_bf16(tw_from_bf16((uint16_t)(pair >> by)) * tw_from_bf16((uint16_t)(factors >> by)));
  };
  return half(0) | half(16) << 16;
}
static void tw_settled(float &) {}
template <int N> static void tw_wgmma(float (&d)[N], unsigned long long a, unsigned long long b, int isAdded) {
  tw_product<64>(d, a, b, isAdded, tw_from_bf16);
}
/* Operand b lies in slabs of 64 columns, 8 rows in 1024 bytes; the descriptor's leading offset leads to the next. */
template <int N> static void tw_wgmma_values(float (&d)[N], const unsigned (&a)[4], unsigned long long b,
                                              int isAdded) {
  if ((b >> 32 & 0x3fff) != 64 || (b >> 62) != 1) tw_fail("a descriptor without 128-byte swizzle");
  const unsigned at = (unsigned)(b & 0x3fff) << 4, slab = (unsigned)(b >> 16 & 0x3fff) << 4, lane = tw_current % 32;
  const auto place = [at, slab](unsigned row, unsigned column) {
    return at + column / 64 * slab + row / 8 * 1024 + row % 8 * 128 + column % 64 * 2;
  };
  if (lane == 0)
    for (unsigned row = 0; row < 16; row++)
      for (unsigned column = 0; column < 2 * N; column += 8)
        tw_race_operand(::tw_shared + tw_swizzled(place(row, column)), 16);
  for (unsigned j = 0; j < N / 4; j++) {
    const unsigned column = 8 * j + lane / 4;
    unsigned pair[2];
    for (unsigned i = 0; i < 2; i++) {
      const unsigned row = lane % 4 * 2 + 8 * i;
      pair[i] = tw_half_at(place(row, column)) | (unsigned)tw_half_at(place(row + 1, column)) << 16;
    }
    float own[4];
    for (unsigned i = 0; i < 4; i++) own[i] = isAdded ? d[4 * j + i] : 0.0f;
    tw_mma(own, a, pair[0], pair[1], tw_from_bf16);
    for (unsigned i = 0; i < 4; i++) d[4 * j + i] = own[i];
  }
}
