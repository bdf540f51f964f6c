/* codegen/cuda/lib/barrier.cuh over fibres. */
#pragma once
#include "hopper.h"
#include "lib/device.cuh"

namespace tw {

struct Barrier {
  unsigned at;

  void init(unsigned count) const { tw_bar_init(at, count); }
  void expect(unsigned bytes) const { tw_bar_expect(at, bytes); }
  void arrive() const { tw_bar_arrive(at); }
  void arrive(unsigned count) const { tw_bar_arrive_for(at, count); }
  void arrive_at(unsigned rank) const { tw_bar_arrive_at(at, rank); }
  void arrive_copied() const { tw_bar_arrive_copied(at); }
  void wait(unsigned parity) const { tw_bar_wait(at, parity); }
};
struct Barriers {
  unsigned at;
  Barrier operator[](unsigned i) const { return { at + 8 * i }; }
};
inline void show_barriers() {}

}  // namespace tw
