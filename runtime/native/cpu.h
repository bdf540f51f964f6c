// What the processor and the operating system allow.
#ifndef TILEWRIGHT_CPU_H
#define TILEWRIGHT_CPU_H
#include <cstddef>
#include <string>
#include <vector>

namespace tw {

struct CpuInfo {
  std::string vendor;
  std::string model;
  /** Processors this process may run on, in ascending order. */
  std::vector<int> cpus;
  /** Processors worth using: those, or fewer where a control group limits the time. */
  int cores = 1;
  bool hasAvx2 = false;    // AVX2, FMA and F16C
  bool hasAvx512 = false;  // AVX-512 F, BW, DQ, VL and the above
  bool hasAmx = false;     // AMX-TILE, AMX-BF16, AVX512_BF16, and the kernel's permission to use tiles
  size_t l1dBytes = 0;
  size_t l2Bytes = 0;
  size_t l3Bytes = 0;
};

/**
 * Asked once a process; the first call also requests the tile registers from the kernel, which must happen before
 * the threads that use them start.
 */
const CpuInfo &cpu();

/** One step of a spinning wait. */
inline void spinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace tw
#endif
