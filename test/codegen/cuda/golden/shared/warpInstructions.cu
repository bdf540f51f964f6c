/* Instructions of a warp that attention uses; all lanes call them together. Tests define them where TW_PTX is 0. */
#if TW_PTX
/* 2^x within 2 ulp; 0 for −inf. */
TW_FN float tw_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
TW_FN unsigned tw_shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
/* Starts a copy of 16 bytes to shared memory, of which the first `bytes` are read and the others zero. */
TW_FN void tw_cp_async16(unsigned to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
TW_FN void tw_cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until at most N groups of this thread's copies are under way. */
template <int N> TW_FN void tw_cp_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
/* Four 8 × 8 matrices of 16-bit elements; lane 8m + r gives the address of row r of matrix m. */
TW_FN void tw_ldmatrix_x4(unsigned (&r)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]),
      "=r"(r[3]) : "r"(at) : "memory");
}
TW_FN void tw_ldmatrix_x4_trans(unsigned (&r)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]),
      "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
/* d[16 × 8] += a[16 × 16]·b[16 × 8] */
TW_FN void tw_mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
                   "r"(b1));
}
TW_FN void tw_mma_f16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
                   "r"(b1));
}
#endif
/*
 * a[64, 64]·w[64, 64]ᵀ on tensor cores: 128 threads, a warp computes 32 × 32. A ring of
 * 3 stages of 32 of k is filled by asynchronous copies. In shared memory a row of a stage is 4
 * chunks of 16 bytes, rotated by the row so that the
 * eight rows an ldmatrix reads lie in different banks. Rows past the ends, and k past 64, are zeros.
 */
TW_FN int tw_chunk(int row, int chunk) { return (row * 4
    + (chunk ^ (row >> 1 & 3))) * 16; }
