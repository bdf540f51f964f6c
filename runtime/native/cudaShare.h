// Device memory of another process on this host: how one names it, and copying from it.
#ifndef TILEWRIGHT_CUDA_SHARE_H
#define TILEWRIGHT_CUDA_SHARE_H
#include "cudaMemory.h"

namespace tw {

/** What another process needs to reach a memory. Plain bytes. */
struct CudaSharedHandle {
  CuIpcHandle handle;
  /** Of the memory in the allocation that the handle stands for. */
  size_t offset = 0;
};

/** Seconds. */
struct CudaShareTimes {
  double opening = 0;
  double copying = 0;
};

/**
 * The memory must stay until nobody copies from it any more: the driver does not wait for other processes when it is
 * freed. Allocations of less than 2 MiB may share a block with others and cannot be told apart in a handle.
 */
CudaSharedHandle shareMemory(const CudaMemory &memory);

/**
 * Copies bytes of another process's memory, on any device that this one reaches, and waits for them. On a stream of
 * its own, not ordered against the device's. Throws the driver's error where that memory cannot be reached.
 */
CudaShareTimes copyFromProcess(const CudaMemory &target, size_t offset, const CudaSharedHandle &source,
                               size_t sourceOffset, size_t bytes);

}  // namespace tw
#endif
