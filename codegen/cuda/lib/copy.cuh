/* Copies to shared memory that a thread starts and does not wait for: boxes by tensor maps, and 16 bytes at a time. */
#pragma once
#include "lib/barrier.cuh"

namespace tw {

/* A descriptor of a matrix in global memory, made by the driver (cuTensorMapEncodeTiled); a kernel's parameter. */
struct alignas(64) TensorMap { unsigned long long opaque[16]; };

TW_DEVICE void prefetch_map(const TensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

/* Copies the box at (row, column) to `to`; its bytes count at `bar`. PTX ISA, "cp.async.bulk.tensor". */
TW_DEVICE void load_box(unsigned to, const TensorMap *map, int column, int row, Barrier bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               :: "r"(to), "l"(map), "r"(column), "r"(row), "r"(bar.at) : "memory");
}
/* One copy from L2 lands in several blocks of the cluster, a bit of `blocks` each, and counts at their barriers. */
TW_DEVICE void load_box_multicast(unsigned to, const TensorMap *map, int column, int row, Barrier bar,
    unsigned short blocks) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%2, %3}], [%4], %5;"
               :: "r"(to), "l"(map), "r"(column), "r"(row), "r"(bar.at), "h"(blocks) : "memory");
}

/* Makes what this thread has written to shared memory, or has waited for, visible to wgmma and bulk copies. */
TW_DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/* What this thread has seen of memory is seen by copies that it starts from here on. */
TW_DEVICE void fence_async_memory() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

/*
 * Starts a copy of 16 bytes, of which the first `bytes` are read and the others zero. PTX ISA, "cp.async". `near`: L2
 * reads the 256 bytes around it, which others of the block want.
 */
TW_DEVICE void copy16(unsigned to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
TW_DEVICE void copy16_near(unsigned to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
/* Ends a group of this thread's copies; and waits until at most `groups` groups are under way. */
TW_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups> TW_DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;" :: "n"(groups) : "memory");
}

}  // namespace tw
