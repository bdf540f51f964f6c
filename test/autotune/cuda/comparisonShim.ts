/** The comparison of candidates and a kernel that writes numbers, compiled for the host: what a simulated GPU runs. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadKoffi } from '../../../runtime/cuda/loadKoffi.js';
import { COMPARE_SOURCE } from '../../../autotune/cuda/compare.js';
import type { LaunchShape } from '../../../ir/cuda.js';
import { type FakeKernel } from '../../runtime/cuda/fakeCudaAddon.js';

const koffi = loadKoffi();

const SHIM = `#include <cmath>
#include <cstring>
#define __global__
#define __device__
#define __forceinline__ inline
struct dim { unsigned x, y; };
static dim blockIdx, threadIdx, blockDim, gridDim;
static inline float __uint_as_float(unsigned u) { float f; std::memcpy(&f, &u, 4); return f; }
static inline void atomicMin(unsigned long long *at, unsigned long long v) { if (v < *at) *at = v; }
static inline void atomicAdd(unsigned long long *at, unsigned long long v) { *at += v; }
${COMPARE_SOURCE}
extern "C" void compare(unsigned threads, unsigned gx, unsigned gy, void *job, void *e, void *a, void *f,
                        void *eu, void *au) {
  blockDim = {threads, 1}; gridDim = {gx, gy};
  for (blockIdx.y = 0; blockIdx.y < gy; blockIdx.y++) for (blockIdx.x = 0; blockIdx.x < gx; blockIdx.x++)
    for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) tw_compare(job, e, a, f, eu, au);
}
/* Numbers near one, whether read as f16 or f32, from byte \`from\` on; one of them is \`odd\`. */
extern "C" void put(unsigned short *p, unsigned long long bytes, unsigned long long from, int odd) {
  for (unsigned long long i = from / 2; i < bytes / 2; i++) p[i] = (unsigned short)(0x3f80 + i % 7);
  if (odd) p[5] = 0x4180;
}
`;

/** Builds the comparison and a kernel that writes numbers, as host code, in `folder`. Needs g++. */
export function buildComparison(folder: string): {
  compare: FakeKernel;
  put: (pointer: bigint, bytes: number, from: number, odd: number) => void;
} {
  const source = join(folder, 'shim.cc'),
    library = join(folder, 'shim.so');
  writeFileSync(source, SHIM);
  const { status, stderr } = spawnSync(
    'g++',
    ['-std=c++17', '-O1', '-Wall', '-Wextra', '-Werror', '-shared', '-fPIC', source, '-o', library],
    { encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(stderr);
  const loaded = koffi.load(library);
  const compare = loaded.func(
    'void compare(uint32_t, uint32_t, uint32_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t)',
  );
  const put = loaded.func('void put(uintptr_t, uint64_t, uint64_t, int)');
  const count = (extent: LaunchShape['gridX']): number => (extent.kind === 'constant' ? extent.count : NaN);
  return {
    compare: (launch, _sizes, pointers) => {
      compare(launch.threads, count(launch.gridX), count(launch.gridY), ...pointers);
    },
    put: (pointer, bytes, from, odd) => {
      put(pointer, bytes, from, odd);
    },
  };
}
