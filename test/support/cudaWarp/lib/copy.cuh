/* codegen/cuda/lib/copy.cuh over fibres: copies land as late as they may. */
#pragma once
#include "lib/barrier.cuh"

namespace tw {

using TensorMap = ::tw_map;

inline void prefetch_map(const TensorMap *) {}
inline void load_box(unsigned to, const TensorMap *map, int column, int row, Barrier bar) {
  tw_load_box(to, map, column, row, bar.at);
}
inline void load_box_multicast(unsigned to, const TensorMap *map, int column, int row, Barrier bar,
    unsigned short blocks) {
  tw_load_box_all(to, map, column, row, bar.at, blocks);
}
inline void fence_async_proxy() {}
inline void fence_async_memory() {}
inline void copy16(unsigned to, const void *from, int bytes) { tw_cp_async16(to, from, bytes); }
inline void copy16_near(unsigned to, const void *from, int bytes) { tw_cp_async16(to, from, bytes); }
inline void copy_commit() { tw_cp_async_commit(); }
template <int groups> inline void copy_wait() { tw_cp_async_wait<groups>(); }

}  // namespace tw
