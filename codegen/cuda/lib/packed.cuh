/* Arithmetic of two 16-bit floats in a word, and their bits. PTX ISA, "sub", "fma" of .bf16x2 and .f16x2, "lop3". */
#pragma once
#include "lib/elements.cuh"

namespace tw {

/* (codes & mask) | magic as one instruction: compilers make two of constants. */
TW_DEVICE unsigned masked(unsigned codes, unsigned mask, unsigned magic) {
  unsigned d;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(codes), "r"(mask), "r"(magic));
  return d;
}

/* x − y, and x·y + z rounded once. bf16: sm_90 and later. */
template <class T> TW_DEVICE unsigned sub_packed(unsigned x, unsigned y);
template <class T> TW_DEVICE unsigned fma_packed(unsigned x, unsigned y, unsigned z);
template <> TW_DEVICE unsigned sub_packed<bf16>(unsigned x, unsigned y) {
  unsigned d;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
  return d;
}
template <> TW_DEVICE unsigned sub_packed<f16>(unsigned x, unsigned y) {
  unsigned d;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
  return d;
}
template <> TW_DEVICE unsigned fma_packed<bf16>(unsigned x, unsigned y, unsigned z) {
  unsigned d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(z));
  return d;
}
template <> TW_DEVICE unsigned fma_packed<f16>(unsigned x, unsigned y, unsigned z) {
  unsigned d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(z));
  return d;
}

}  // namespace tw
