/* Computed again where needed: kept through the main loop they would cost registers that accumulators have. */
__device__ __forceinline__ int tw_tiles(int rows) {
  asm volatile("" : "+r"(rows));
  return (rows + 127) / 128 * 3;
}
__device__ __forceinline__ int tw_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
