/* codegen/cuda/lib/launch.cuh over fibres: a kernel runs alone. */
#pragma once
#include "hopper.h"
#include "lib/device.cuh"

namespace tw {

inline void launch_dependents() {}
inline void wait_for_previous() {}
inline void begin_next() {}
inline void wait_for_previous_if_any() {}
inline void await_previous() {}
template <int registers> inline void give_registers() {}
template <int registers> inline void take_registers() {}
template <int threads> inline void named_sync(int number) { tw_named_sync((unsigned)number, threads); }
template <int threads> inline void named_arrive(int number) { tw_named_arrive((unsigned)number, threads); }
inline void named_sync(int number, int threads) { tw_named_sync((unsigned)number, (unsigned)threads); }

}  // namespace tw
