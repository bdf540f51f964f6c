/**
 * The hand-written plan of test/runtime/tinyPlan.ts for a GPU: 16-bit weights in K-major order, kernels as C functions,
 * checkpoints, micro-batches and the correct answers.
 */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CudaKernelText } from '../../../ir/cuda.js';
import type { LinkedFunction } from '../../../ir/plan.js';
import type { TensorSource } from '../../../runtime/tensorSource.js';
import { roundTo, toBf16 } from '../packReference.js';
import { tinyPlan, VOCAB, WIDTH } from '../tinyPlan.js';
import type { FakeKernel } from './fakeCudaAddon.js';
import { type Batch } from '../../support/scoring.js';
import { loadKoffi } from '../../../runtime/cuda/loadKoffi.js';

export function tinyCudaPlan(): LinkedFunction {
  const plan = tinyPlan();
  return {
    ...plan,
    weights: plan.weights.map((weight) =>
      weight.layout === 'panels' ? { ...weight, layout: 'kmajor', format: 'bf16' } : weight,
    ),
  };
}

const launch = {
  threads: 128,
  sharedBytes: 0,
  cluster: 1,
  gridX: { kind: 'tiles', extent: 'T', per: 64, times: 1 },
  gridY: { kind: 'constant', count: 1 },
} as const;

/** Kernel texts of one bucket. `kind`: each kernel is there twice, under two names. */
export const tinyKernels = (plan: LinkedFunction, kind: '' | '_small' = ''): readonly CudaKernelText[] =>
  plan.launches.map(({ kernel, parameters }): CudaKernelText => ({
    symbol: `k_${kernel}${kind}`,
    // Only the statement counts, not the text: every kernel's prelude contains the word.
    source: '/* griddepcontrol.wait */',
    headers: [],
    waitsForPredecessor: kernel === 'head',
    parameters,
    launch,
    tensorMaps:
      kernel === 'head'
        ? [
            {
              parameter: 0,
              dtype: 'f32',
              rows: 'T',
              columns: WIDTH,
              stride: 32,
              boxRows: 64,
              boxColumns: WIDTH,
              swizzle: 0,
            },
            {
              parameter: 3,
              dtype: 'bf16',
              rows: 64,
              columns: WIDTH,
              stride: WIDTH,
              boxRows: 64,
              boxColumns: WIDTH,
              swizzle: 0,
            },
          ]
        : [],
  }));

const TEXT = `#include <math.h>
#include <stdint.h>
#include <string.h>
static float widen(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
void k_embed(int T, int R, const int32_t *tokens, const int32_t *position, const uint16_t *table,
             const float *frequency, float *h) {
  for (int t = 0; t < T; t++)
    for (int c = 0; c < ${WIDTH}; c++)
      h[t * 32 + c] = widen(table[tokens[t] * ${WIDTH} + c]) * frequency[c] + (float)position[t];
}
void k_head(int T, int R, const float *h, const int32_t *row, const int32_t *target, const uint16_t *w, float *parts) {
  for (int r = 0; r < R; r++) {
    float sum = 0;
    for (int k = 0; k < ${WIDTH}; k++) sum += h[row[r] * 32 + k] * widen(w[target[r] * ${WIDTH} + k]);
    parts[r * 32] = sum;
    parts[r * 32 + 1] = parts[r * 32 + 2] = 0;
    parts[r * 32 + 3] = -INFINITY;
  }
}
void k_head_reduce(int T, int R, const float *parts, float *logProb, int32_t *isArgmax) {
  for (int r = 0; r < R; r++) { logProb[r] = -fabsf(parts[r * 32]); isArgmax[r] = parts[r * 32] > 0; }
}
`;

/** Symbols and how many pointers each takes. */
export const TINY_KERNELS = { k_embed: 5, k_head: 5, k_head_reduce: 3 } as const;

const hostKernel = (symbol: string, pointers: number, kind: '' | '_small'): string =>
  `void host_${symbol}${kind}(const int *sizes, const unsigned *grid, void **p) { (void)grid; ` +
  `${symbol}(sizes[0], sizes[1], ` +
  `${Array.from({ length: pointers }, (_, i) => `p[${i}]`).join(', ')}); }\n`;

/** Compiles the kernels for this machine: a library that also has them in the form that the fake driver reads. */
export function buildTinyLibrary(folder: string): string {
  const source = join(folder, 'tiny.c');
  const library = join(folder, 'tinyCuda.so');
  const hosts = Object.entries(TINY_KERNELS).flatMap(([symbol, pointers]) =>
    (['', '_small'] as const).map((kind) => hostKernel(symbol, pointers, kind)),
  );
  writeFileSync(source, TEXT + hosts.join(''));
  const { status, stderr } = spawnSync('gcc', ['-O1', '-ffp-contract=off', '-shared', '-fPIC', source, '-o', library], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(stderr);
  return library;
}

/** The kernels for the fake addon. */
export function buildTinyKernels(folder: string): Readonly<Record<string, FakeKernel>> {
  const loaded = loadKoffi().load(buildTinyLibrary(folder));
  return Object.fromEntries(
    Object.entries(TINY_KERNELS).map(([symbol, pointers]): [string, FakeKernel] => {
      const run = loaded.func(symbol, 'void', ['int', 'int', ...Array.from({ length: pointers }, () => 'uintptr_t')]);
      return [
        symbol,
        (_, sizes, addresses) => {
          run(...sizes, ...addresses);
        },
      ];
    }),
  );
}

export const tableValue = (row: number, column: number): number => roundTo('bf16', Math.sin(row * 7 + column));
export const normValue = (column: number): number => 1 + column / 8;

export interface TensorChange {
  readonly table?: (row: number, column: number) => number;
  readonly norm?: (column: number) => number;
}
let files = 0;
/** Bytes before the first tensor of a file. */
const PAD = 6;

/** A checkpoint file: some padding, the table in bf16, then the norm in f32. */
export function writeTensors(
  folder: string,
  { table = tableValue, norm = normValue }: TensorChange = {},
): Map<string, TensorSource> {
  const file = join(folder, `weights${files++}.bin`);
  const halves = Uint16Array.from({ length: VOCAB * WIDTH }, (_, i) => toBf16(table(Math.floor(i / WIDTH), i % WIDTH)));
  const scales = Float32Array.from({ length: WIDTH }, (_, i) => norm(i));
  writeFileSync(file, Buffer.concat([Buffer.alloc(PAD), Buffer.from(halves.buffer), Buffer.from(scales.buffer)]));
  return new Map<string, TensorSource>([
    [
      'embed_tokens',
      { kind: 'file', format: 'bf16', shape: [VOCAB, WIDTH], file, offset: PAD, byteLength: halves.byteLength },
    ],
    [
      'norm',
      {
        kind: 'file',
        format: 'f32',
        shape: [WIDTH],
        file,
        offset: PAD + halves.byteLength,
        byteLength: scales.byteLength,
      },
    ],
  ]);
}

/** A chain of `tokens` tokens whose last `rows` are scored. */
export function batchOf(tokens: number, rows: number, seed = 1): Batch {
  return {
    tokens: Int32Array.from({ length: tokens }, (_, i) => (i * 13 + seed) % VOCAB),
    position: Int32Array.from({ length: tokens }, (_, i) => i),
    subtreeEnd: new Int32Array(tokens).fill(tokens),
    row: Int32Array.from({ length: rows }, (_, i) => tokens - rows + i),
    target: Int32Array.from({ length: rows }, (_, i) => (i * 17 + seed * 3) % VOCAB),
  };
}

/** f32 at every step but the weights, in the order of the kernels. */
export function expectedScores(
  batch: Batch,
  { table = tableValue, norm = normValue }: TensorChange = {},
): { logProb: number[]; isArgmax: number[] } {
  const parts = [...batch.row].map((row, r) => {
    let sum = 0;
    for (let k = 0; k < WIDTH; k++) {
      const h = Math.fround(Math.fround(table(batch.tokens[row]!, k) * 2 ** -k) + batch.position[row]!);
      const w = roundTo('bf16', Math.fround(table(batch.target[r]!, k) * norm(k)));
      sum = Math.fround(sum + Math.fround(h * w));
    }
    return sum;
  });
  return { logProb: parts.map((part) => -Math.abs(part)), isArgmax: parts.map((part) => (part > 0 ? 1 : 0)) };
}

export { VOCAB, WIDTH };
