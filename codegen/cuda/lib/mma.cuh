/* Tensor cores by the warp, sm_80 and later: PTX ISA, "mma" and "ldmatrix". All lanes call these together. */
#pragma once
#include "lib/elements.cuh"
#include "lib/shared.cuh"

namespace tw {

/* Four 8 × 8 matrices of 16-bit elements; lane 8m + r gives the address of row r of matrix m. */
TW_DEVICE void ldmatrix_x4(unsigned (&r)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]),
      "=r"(r[3]) : "r"(at) : "memory");
}
/* The same, each matrix transposed. */
TW_DEVICE void ldmatrix_x4_trans(unsigned (&r)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]),
      "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

/*
 * d[16 × 8] += a[16 × 16]·b[16 × 8]. Lane l has of d rows l / 4 and l / 4 + 8 at columns 2·(l % 4) and the next.
 */
template <class T> TW_DEVICE void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
template <> TW_DEVICE void mma<bf16>(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
                   "r"(b1));
}
template <> TW_DEVICE void mma<f16>(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
                   "r"(b1));
}

}  // namespace tw
