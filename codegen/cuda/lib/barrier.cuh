/* Barriers in shared memory that count arrivals and bytes: PTX ISA, "mbarrier". */
#pragma once
#include "lib/device.cuh"

namespace tw {

/* One barrier, 8 bytes at an address of shared memory. */
struct Barrier {
  unsigned at;

  /* A phase is complete after `count` arrivals. By one thread; show_barriers then makes it visible. */
  TW_DEVICE void init(unsigned count) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at), "r"(count) : "memory");
  }
  /* Arrives, and lets the phase wait for so many bytes of copies too. */
  TW_DEVICE void expect(unsigned bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at), "r"(bytes) : "memory");
  }
  TW_DEVICE void arrive() const { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at) : "memory"); }
  /* Arrives `count` times. */
  TW_DEVICE void arrive(unsigned count) const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" :: "r"(at), "r"(count) : "memory");
  }
  /* Arrives at the barrier of the same place in block `rank` of the cluster. */
  TW_DEVICE void arrive_at(unsigned rank) const {
    asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [a]; }" ::
        "r"(at), "r"(rank) : "memory");
  }
  /* Arrives when all copies (cp.async) that this thread has started are there. */
  TW_DEVICE void arrive_copied() const {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(at) : "memory");
  }
  /* Waits until the phase of this parity is complete. Parity tells only neighbouring phases apart. */
  TW_DEVICE void wait(unsigned parity) const {
    asm volatile("{ .reg .pred p;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra DONE;\nbra AGAIN;\nDONE: }" :: "r"(at), "r"(parity) : "memory");
  }
};

/* Barriers one behind another. */
struct Barriers {
  unsigned at;
  TW_DEVICE Barrier operator[](unsigned i) const { return { at + 8 * i }; }
};

/* Makes initialised barriers visible to the copies and blocks that use them. */
TW_DEVICE void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

}  // namespace tw
