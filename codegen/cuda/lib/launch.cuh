/* A kernel among others: programmatic dependent launch, and registers and barriers of the parts of a block. */
#pragma once
#include "lib/device.cuh"

namespace tw {

/* Lets the next kernel of the stream start: its blocks take the room that is left. PTX ISA, "griddepcontrol". */
TW_DEVICE void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/* Waits until the results of the kernel before this one are there. */
TW_DEVICE void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/* Each of them on architectures that have it, for kernels of all. */
TW_DEVICE void begin_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  launch_dependents();
#endif
}
TW_DEVICE void wait_for_previous_if_any() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  wait_for_previous();
#endif
}
/*
 * Both, on architectures that have them. A kernel has ended only after it has waited, so what a wait promises holds for
 * all kernels before.
 */
TW_DEVICE void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory");
#endif
}

/* Registers of each thread of the calling warpgroup from here on. PTX ISA, "setmaxnreg". */
template <int registers> TW_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(registers));
}
template <int registers> TW_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(registers));
}

/* Barrier `number` (1 to 15) of `threads` threads of the block: waits for it, or only arrives. PTX ISA, "bar". */
template <int threads> TW_DEVICE void named_sync(int number) {
  asm volatile("bar.sync %0, %1;" :: "r"(number), "n"(threads) : "memory");
}
template <int threads> TW_DEVICE void named_arrive(int number) {
  asm volatile("bar.arrive %0, %1;" :: "r"(number), "n"(threads) : "memory");
}
/* The same of a number of threads that is known when the kernel runs. */
TW_DEVICE void named_sync(int number, int threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(number), "r"(threads) : "memory");
}

}  // namespace tw
