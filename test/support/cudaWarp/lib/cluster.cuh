/* codegen/cuda/lib/cluster.cuh over fibres. */
#pragma once
#include "lib/device.cuh"

namespace tw {

inline unsigned cluster_rank() { return tw_rank; }
inline int cluster_rank_again() { return (int)tw_rank; }
inline void cluster_arrive_aligned() { tw_cluster_arrive(); }
inline void cluster_wait_aligned() { tw_cluster_wait(); }
inline void cluster_arrive() { tw_cluster_arrive(); }
inline void cluster_wait() { tw_cluster_wait(); }
inline float2 load2_of_block(unsigned at, int rank) { return tw_load2_of_block<float2>(at, rank); }

}  // namespace tw
