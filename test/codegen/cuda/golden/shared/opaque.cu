/*
 * A value the compiler knows nothing of: what an epilogue needs is worked out when it comes to that, not kept in
 * registers.
 */
TW_FN int tw_opaque(int x) {
#if TW_PTX
  asm volatile("" : "+r"(x) :: "memory");
#endif
  return x;
}
