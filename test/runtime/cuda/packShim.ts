/** The runtime's device code as C++ for this machine: grids become loops, one thread after another. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { GridExtent, LaunchShape } from '../../../ir/cuda.js';
import { PACK_ENTRIES, PACK_SOURCE, PACK_THREADS } from '../../../runtime/cuda/packKernels.js';
import { entryText } from './ptxEntry.js';
import { loadKoffi } from '../../../runtime/cuda/loadKoffi.js';

const PROLOGUE = `#include <cstring>
#include <cstddef>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
struct dim { unsigned x, y; };
static thread_local dim blockIdx, threadIdx, blockDim, gridDim;
static inline unsigned __float_as_uint(float f) { unsigned u; std::memcpy(&u, &f, 4); return u; }
static inline float __uint_as_float(unsigned u) { float f; std::memcpy(&f, &u, 4); return f; }
static inline void atomicMin(unsigned long long *at, unsigned long long v) { if (v < *at) *at = v; }
`;

/** `ints` and `pointers`: how many of each the kernel takes. */
const launcher = (symbol: string, ints: number, pointers: number): string => {
  const sizes = Array.from({ length: ints }, (_, i) => `s${i}`);
  const names = Array.from({ length: pointers }, (_, i) => `p${i}`);
  const declared = [
    ...sizes.map((size) => `int ${size}`),
    'unsigned gx',
    'unsigned gy',
    ...names.map((p) => `void *${p}`),
  ];
  const given = [...sizes.map((_, i) => `s[${i}]`), 'grid[0]', 'grid[1]', ...names.map((_, i) => `p[${i}]`)];
  return `
extern "C" void run_${symbol}(${declared.join(', ')}) {
  gridDim = {gx, gy};
  blockDim = {${PACK_THREADS}, 1};
  for (blockIdx.y = 0; blockIdx.y < gy; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < gx; blockIdx.x++)
      for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) ${symbol}(${[...sizes, ...names].join(', ')});
}
extern "C" void host_${symbol}(const int *s, const unsigned *grid, void **p) {
  (void)s;
  run_${symbol}(${given.join(', ')});
}
`;
};

/** Ints of each kernel. */
const INTS: Readonly<Record<keyof typeof PACK_ENTRIES, number>> = {
  rows: 0,
  find: 2,
  groups: 0,
  microscaled: 0,
  codes: 0,
};

/** Pointers of each kernel, after them. */
const POINTERS: Readonly<Record<keyof typeof PACK_ENTRIES, number>> = {
  rows: 4,
  find: 3,
  groups: 4,
  microscaled: 4,
  codes: 5,
};

/** Both kernels in the form that the fake driver reads. */
export const PACK_PTX = (Object.keys(POINTERS) as (keyof typeof PACK_ENTRIES)[])
  .map((kernel) => entryText(PACK_ENTRIES[kernel], POINTERS[kernel], 0, ['rows', 'columns'].slice(0, INTS[kernel])))
  .join('');

export interface PackShim {
  /** Runs a kernel of packKernels.ts by name, as a device would. Pointers are addresses of this process. */
  run(symbol: string, launch: LaunchShape, sizes: readonly number[], pointers: readonly bigint[]): void;
  /** sizeof of both structs. */
  readonly jobBytes: readonly number[];
  /** The library, which also has the kernels for the fake driver. */
  readonly library: string;
}

export const hasCxx = (): boolean => spawnSync('g++', ['--version'], { stdio: 'ignore' }).status === 0;

function constant(extent: GridExtent): number {
  if (extent.kind !== 'constant') throw new Error("The runtime's own kernels have grids of constant size.");
  return extent.count;
}

/** Compiles the shim in `folder`. */
export function buildPackShim(folder: string): PackShim {
  const kernels = Object.keys(POINTERS) as (keyof typeof PACK_ENTRIES)[];
  const source = join(folder, 'packShim.cc');
  const library = join(folder, 'packShim.so');
  const sizes =
    'extern "C" int job_bytes(int which) { return which == 0 ? sizeof(tw_pack_job) : sizeof(tw_find_job); }\n';
  writeFileSync(
    source,
    PROLOGUE +
      PACK_SOURCE +
      kernels.map((kernel) => launcher(PACK_ENTRIES[kernel], INTS[kernel], POINTERS[kernel])).join('') +
      sizes,
  );
  const { status, stderr } = spawnSync(
    'g++',
    [
      '-std=c++17',
      '-O2',
      '-Wall',
      '-Wextra',
      '-Werror',
      '-ffp-contract=off',
      '-shared',
      '-fPIC',
      source,
      '-o',
      library,
    ],
    { encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(`g++ failed on the device code:\n${stderr}`);
  const loaded = loadKoffi().load(library);
  const functions = new Map<string, (...values: unknown[]) => unknown>(
    kernels.map((kernel) => {
      const pointers = Array.from({ length: POINTERS[kernel] }, () => 'uintptr_t');
      return [
        PACK_ENTRIES[kernel],
        loaded.func(`run_${PACK_ENTRIES[kernel]}`, 'void', [
          ...Array.from({ length: INTS[kernel] }, () => 'int'),
          'uint32_t',
          'uint32_t',
          ...pointers,
        ]),
      ];
    }),
  );
  const jobBytes = loaded.func('job_bytes', 'int', ['int']);
  return {
    run: (symbol, { threads, gridX, gridY }, sizes, pointers) => {
      const run = functions.get(symbol);
      if (
        run === undefined ||
        threads !== PACK_THREADS ||
        pointers.length !== POINTERS[kernels.find((kernel) => PACK_ENTRIES[kernel] === symbol)!]
      )
        throw new Error(`Bad launch of ${symbol}.`);
      run(...sizes, constant(gridX), constant(gridY), ...pointers);
    },
    library,
    jobBytes: [0, 1].map((which) => Number(jobBytes(which))),
  };
}
