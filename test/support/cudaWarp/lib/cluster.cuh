/* codegen/cuda/lib/cluster.cuh over fibres. */
#pragma once
#include "hopper.h"
#include "lib/device.cuh"

namespace tw {

inline unsigned cluster_rank() { return tw_rank; }
inline int cluster_rank_again() { return (int)tw_rank; }
inline void cluster_arrive_aligned() { tw_cluster_arrive(); }
inline void cluster_wait_aligned() { tw_cluster_wait(); }
inline void cluster_arrive_relaxed() { tw_cluster_arrive(); }
inline void cluster_arrive() { tw_cluster_arrive(); }
inline void cluster_wait() { tw_cluster_wait(); }
inline void send(unsigned at, int rank, unsigned bar, float x) { tw_send(at, (unsigned)rank, bar, x); }
inline void send2(unsigned at, int rank, unsigned bar, float x, float y) {
  tw_send(at, (unsigned)rank, bar, float2{ x, y });
}
inline float2 fetch2(unsigned at, int rank) { return tw_fetch<float2>(at, (unsigned)rank); }

}  // namespace tw
