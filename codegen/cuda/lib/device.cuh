/*
 * What every header begins with: how functions of a kernel are declared, values that the compiler must not look
 * through, and where a thread is.
 */
#pragma once

/* A function of kernels. All are inlined: accumulators and barriers live in registers across calls. */
#define TW_DEVICE __device__ __forceinline__
/* A function that the compiler evaluates, for the numbers of a Config: also where no kernel runs. */
#define TW_CONSTEXPR __host__ __device__ constexpr

/* The block's dynamic shared memory, 1,024 bytes aligned where the driver lets it begin so. */
#define TW_DYNAMIC_SHARED(name, alignment) extern __shared__ __align__(alignment) unsigned char name[]

namespace tw {

constexpr unsigned ALL_LANES = 0xffffffffu;

/*
 * The same value, of which the compiler knows nothing: what is computed from it is computed where it is used, and not
 * kept in registers until then.
 */
TW_DEVICE int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
/* The same of a pointer. */
template <class T> TW_DEVICE T *opaque(T *p) {
  asm volatile("" : "+l"(p));
  return p;
}
/* The same, and nothing that memory holds is known any more. */
TW_DEVICE int forgotten(int x) {
  asm volatile("" : "+r"(x) :: "memory");
  return x;
}
TW_DEVICE void forget(unsigned &x) { asm volatile("" : "+r"(x) :: "memory"); }
TW_DEVICE void forget(float &x) { asm volatile("" : "+f"(x) :: "memory"); }

/* Memory is read and written before this in what is before it, and after it in what is behind. */
TW_DEVICE void keep_order() { asm volatile("" ::: "memory"); }

/* threadIdx.x, read again rather than kept in a register. */
TW_DEVICE int thread_again() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
/* gridDim.x, read again rather than kept in a register. */
TW_DEVICE int blocks_again() {
  int blocks;
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
  return blocks;
}

/* Ends the kernel with an error. */
TW_DEVICE void trap() { asm volatile("trap;"); }

}  // namespace tw
