/** The runtime's device code as C++ for this machine: grids become loops, one thread after another. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import koffi from 'koffi';
import type { KernelArguments } from '../../../runtime/cuda/packJob.js';
import { PACK_SOURCE, PACK_SYMBOLS, PACK_THREADS } from '../../../runtime/cuda/packKernels.js';

const PROLOGUE = `#include <cstring>
#include <cstddef>
#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
struct dim { unsigned x, y; };
static thread_local dim blockIdx, threadIdx, blockDim, gridDim;
static inline unsigned __float_as_uint(float f) { unsigned u; std::memcpy(&u, &f, 4); return u; }
static inline float __uint_as_float(unsigned u) { float f; std::memcpy(&f, &u, 4); return f; }
static inline void atomicMin(unsigned long long *at, unsigned long long v) { if (v < *at) *at = v; }
`;

const launcher = (symbol: string, struct: string): string => `
extern "C" void run_${symbol}(const ${struct} *job, unsigned gx, unsigned gy) {
  gridDim = {gx, gy};
  blockDim = {${PACK_THREADS}, 1};
  for (blockIdx.y = 0; blockIdx.y < gy; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < gx; blockIdx.x++)
      for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) ${symbol}(*job);
}
extern "C" size_t size_${symbol}() { return sizeof(${struct}); }
`;

export type PackKernel = keyof typeof PACK_SYMBOLS;
const STRUCTS: Readonly<Record<PackKernel, string>> = { pack: 'tw_pack_job', zero: 'tw_zero_job', find: 'tw_find_job' };

export interface PackShim {
  /** Runs a kernel as a device would; addresses in its argument are of this process. */
  run(kernel: PackKernel, launch: KernelArguments): void;
  /** sizeof the kernel's struct. */
  sizeOf(kernel: PackKernel): number;
}

export const hasCxx = (): boolean => spawnSync('g++', ['--version'], { stdio: 'ignore' }).status === 0;

/** Compiles the shim in `folder`. */
export function buildPackShim(folder: string): PackShim {
  const kernels = Object.keys(STRUCTS) as PackKernel[];
  const source = join(folder, 'packShim.cc');
  const library = join(folder, 'packShim.so');
  writeFileSync(source, PROLOGUE + PACK_SOURCE + kernels.map((kernel) => launcher(PACK_SYMBOLS[kernel], STRUCTS[kernel])).join(''));
  const { status, stderr } = spawnSync('g++', ['-std=c++17', '-O2', '-Wall', '-Wextra', '-Werror', '-ffp-contract=off', '-shared', '-fPIC', source, '-o', library], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`g++ failed on the device code:\n${stderr}`);
  const loaded = koffi.load(library);
  const functions = new Map(kernels.map((kernel) => [kernel, {
    run: loaded.func(`run_${PACK_SYMBOLS[kernel]}`, 'void', ['const void *', 'uint32_t', 'uint32_t']),
    size: loaded.func(`size_${PACK_SYMBOLS[kernel]}`, 'size_t', []),
  }]));
  return {
    run: (kernel, { bytes, gridX, gridY }) => { functions.get(kernel)!.run(bytes, gridX, gridY); },
    sizeOf: (kernel) => Number(functions.get(kernel)!.size()),
  };
}
