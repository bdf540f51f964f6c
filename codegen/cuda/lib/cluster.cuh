/* Blocks of a cluster: their number, their barrier, and each other's shared memory. PTX ISA, "barrier.cluster". */
#pragma once
#include "lib/device.cuh"

namespace tw {

/* This block's number in its cluster. */
TW_DEVICE unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/* The same, read again rather than kept in a register. */
TW_DEVICE int cluster_rank_again() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/*
 * A barrier of all threads of a cluster in two halves: what a thread wrote before it arrived is there after a wait.
 * `aligned`: all lanes of a warp are here together. `relaxed`: of what a thread wrote only barriers are there (after
 * show_barriers). It does not wait for copies that are under way, which the others do.
 */
TW_DEVICE void cluster_arrive_aligned() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
TW_DEVICE void cluster_wait_aligned() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
TW_DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
TW_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
TW_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

/*
 * Sends floats to shared memory of block `rank` of the cluster; their bytes count at barrier `bar` of that block, and
 * are there for whoever waits for it. PTX ISA, "st.async".
 */
TW_DEVICE void send(unsigned at, int rank, unsigned bar, float x) {
  asm volatile("{\n.reg .u32 %%at, %%bar;\nmapa.shared::cluster.u32 %%at, %0, %2;\n"
               "mapa.shared::cluster.u32 %%bar, %1, %2;\n"
               "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%%at], %3, [%%bar];\n}"
               :: "r"(at), "r"(bar), "r"(rank), "f"(x) : "memory");
}
TW_DEVICE void send2(unsigned at, int rank, unsigned bar, float x, float y) {
  asm volatile("{\n.reg .u32 %%at, %%bar;\nmapa.shared::cluster.u32 %%at, %0, %2;\n"
               "mapa.shared::cluster.u32 %%bar, %1, %2;\n"
               "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%%at], {%3, %4}, [%%bar];\n}"
               :: "r"(at), "r"(bar), "r"(rank), "f"(x), "f"(y) : "memory");
}

/* Two floats of shared memory of block `rank` of the cluster. */
TW_DEVICE float2 fetch2(unsigned at, int rank) {
  float2 x;
  asm volatile("{\n.reg .u32 %%at;\nmapa.shared::cluster.u32 %%at, %2, %3;\n"
               "ld.shared::cluster.v2.f32 {%0, %1}, [%%at];\n}" : "=f"(x.x), "=f"(x.y) : "r"(at), "r"(rank) : "memory");
  return x;
}

}  // namespace tw
