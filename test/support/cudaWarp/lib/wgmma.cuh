/*
 * codegen/cuda/lib/wgmma.cuh over fibres: products are computed where they are issued. Rows of an operand that a kernel
 * does not use may be written meanwhile.
 */
#pragma once
#include "lib/elements.cuh"
#include "lib/shared.cuh"

namespace tw {

constexpr int WGMMA_ROWS = 64, WGMMA_STEP_BYTES = 32, SLAB_BYTES = 128;
constexpr unsigned DESCRIPTOR_UPPER = 1u << 30 | 1024u / 16u;
inline unsigned long long descriptor(unsigned lower) { return (unsigned long long)DESCRIPTOR_UPPER << 32 | lower; }
inline unsigned rows_at(unsigned at) { return 1u << 16 | (at & 0x3ffffu) >> 4; }
inline unsigned columns_at(unsigned at, unsigned slab_bytes) { return slab_bytes / 16u << 16 | (at & 0x3ffffu) >> 4; }
inline unsigned long long rows_descriptor(unsigned at) { return descriptor(rows_at(at)); }
inline void wgmma_fence() {}
inline void wgmma_commit() { tw_product_commit(); }
template <int groups> inline void wgmma_wait() { tw_product_wait(groups); }

template <class T, int columns, int used_rows = WGMMA_ROWS>
inline void wgmma(float (&d)[columns / 2], unsigned long long a, unsigned long long b, int is_added) {
  using Bits = decltype(T::bits);
  tw_product<used_rows, columns / 2, Bits>(d, a, b, is_added, [](Bits bits) { return to_float(T{ bits }); });
}
template <class T, int columns>
inline void wgmma_of_registers(float (&d)[columns / 2], const unsigned (&a)[4], unsigned long long b, int is_added) {
  tw_product_of_registers(d, a, b, is_added, [](uint16_t bits) { return to_float(T{ bits }); });
}
template <class T, int columns>
inline void wgmma_of_registers_by_rows(float (&d)[columns / 2], const unsigned (&a)[4], unsigned long long b,
    int is_added) {
  tw_product_of_registers_by_rows(d, a, b, is_added, [](uint16_t bits) { return to_float(T{ bits }); });
}

}  // namespace tw
