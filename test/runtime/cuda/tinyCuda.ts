/** The hand-written plan of test/runtime/tinyPlan.ts for a GPU: 16-bit weights in K-major order, kernels as C functions. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import koffi from 'koffi';
import type { CudaKernelText } from '../../../ir/cuda.js';
import type { Plan } from '../../../ir/plan.js';
import { tinyPlan, VOCAB, WIDTH } from '../tinyPlan.js';
import type { FakeKernel } from './fakeCudaAddon.js';

export function tinyCudaPlan(): Plan {
  const plan = tinyPlan();
  return { ...plan, weights: plan.weights.map((weight) => (weight.layout === 'panels' ? { ...weight, layout: 'kmajor', dtype: 'bf16' } : weight)) };
}

const launch = { threads: 128, sharedBytes: 0, cluster: 1, gridX: { kind: 'tiles', extent: 'T', per: 64, times: 1 }, gridY: { kind: 'constant', count: 1 } } as const;

/** Kernel texts of one bucket. */
export const tinyKernels = (plan: Plan): readonly CudaKernelText[] => plan.launches.map(({ kernel, parameters }): CudaKernelText => ({
  symbol: `k_${kernel}`, source: kernel === 'head' ? 'griddepcontrol.wait' : '', parameters, launch,
  tensorMaps: kernel === 'head' ? [
    { parameter: 0, dtype: 'f32', rows: 'T', columns: WIDTH, stride: 32, boxRows: 64, boxColumns: WIDTH, swizzle: 0 },
    { parameter: 3, dtype: 'bf16', rows: 64, columns: WIDTH, stride: WIDTH, boxRows: 64, boxColumns: WIDTH, swizzle: 0 },
  ] : [],
}));

const TEXT = `#include <math.h>
#include <stdint.h>
#include <string.h>
static float widen(uint16_t half) { uint32_t bits = (uint32_t)half << 16; float value; memcpy(&value, &bits, 4); return value; }
void k_embed(int T, int R, const int32_t *tokens, const int32_t *position, const uint16_t *table, const float *frequency, float *h) {
  for (int t = 0; t < T; t++)
    for (int c = 0; c < ${WIDTH}; c++) h[t * 32 + c] = widen(table[tokens[t] * ${WIDTH} + c]) * frequency[c] + (float)position[t];
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
const KERNELS = { k_embed: 5, k_head: 5, k_head_reduce: 3 } as const;

/** Compiles the kernels for this machine. */
export function buildTinyKernels(folder: string): Readonly<Record<string, FakeKernel>> {
  const source = join(folder, 'tiny.c');
  const library = join(folder, 'tinyCuda.so');
  writeFileSync(source, TEXT);
  const { status, stderr } = spawnSync('gcc', ['-O1', '-ffp-contract=off', '-shared', '-fPIC', source, '-o', library], { encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
  const loaded = koffi.load(library);
  return Object.fromEntries(Object.entries(KERNELS).map(([symbol, pointers]): [string, FakeKernel] => {
    const run = loaded.func(symbol, 'void', ['int', 'int', ...Array.from({ length: pointers }, () => 'uintptr_t')]);
    return [symbol, (_, tokens, rows, addresses) => { run(tokens, rows, ...addresses); }];
  }));
}

export { VOCAB, WIDTH };
