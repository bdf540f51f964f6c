/** A hand-written plan of three kernels, small enough to compute in JavaScript: table lookup, head, reduction. */
import { interfaceOf } from '../support/interface.js';
import type { FunctionInterface } from '../../ir/function.js';
import { scoringBucket } from '../../ir/scoring.js';
import type { BufferDecl, Kernel } from '../../ir/kernel.js';
import { rowStride, type LinkedFunction } from '../../ir/plan.js';
import { ABI_TEXT } from './kernels.js';

export const VOCAB = 40;
export const WIDTH = 8;

const buffer = (
  name: string,
  dtype: BufferDecl['dtype'],
  rows: BufferDecl['rows'],
  columns: number,
  space: BufferDecl['space'],
): BufferDecl => ({ name, dtype, rows, columns, space });

const BUFFERS: readonly BufferDecl[] = [
  ...['tokens', 'position', 'subtree_end'].map((name) => buffer(name, 'i32', 'T', 1, 'input')),
  ...['row', 'target'].map((name) => buffer(name, 'i32', 'R', 1, 'input')),
  buffer('h', 'f32', 'T', WIDTH, 'arena'),
  buffer('parts', 'f32', 'R', 4, 'arena'),
  buffer('log_prob', 'f32', 'R', 1, 'output'),
  buffer('is_argmax', 'i32', 'R', 1, 'output'),
  buffer('table', 'bf16', VOCAB, WIDTH, 'weight'),
  buffer('frequency', 'f32', WIDTH, 1, 'weight'),
];

const KERNELS: readonly Kernel[] = [
  {
    anchor: 'loop',
    name: 'embed',
    path: 'embed',
    rows: 'T',
    ops: ['embed'],
    columns: WIDTH,
    outputs: [{ kind: 'store', buffer: 'h', value: { op: 'const', value: 0 } }],
  },
  {
    anchor: 'logprob',
    name: 'head',
    path: 'head.logprob',
    rows: 'R',
    ops: ['linear'],
    k: WIDTH,
    a: 'h',
    weight: 'head_w0',
    vocab: VOCAB,
    rowScale: { op: 'const', value: 1 },
    target: 'target',
    parts: 'parts',
  },
  {
    anchor: 'logprobReduce',
    name: 'head_reduce',
    path: 'head.reduce',
    rows: 'R',
    ops: [],
    vocab: VOCAB,
    parts: 'parts',
    target: 'target',
    logProb: 'log_prob',
    isArgmax: 'is_argmax',
  },
];

const CAPACITY = scoringBucket({ tokens: 64, rows: 16, longest: 64 });

function tinyInterface(): FunctionInterface {
  const found = interfaceOf(BUFFERS, { vocab: VOCAB });
  const names: Readonly<Record<string, string>> = {
    subtree_end: 'subtreeEnd',
    log_prob: 'logProb',
    is_argmax: 'isArgmax',
  };
  const named = <P extends { readonly name: string }>(port: P): P => ({ ...port, name: names[port.name] ?? port.name });
  return { ...found, inputs: found.inputs.map(named), outputs: found.outputs.map(named) };
}

/** h[t] = table[token]·frequency + position; part = h[row]·head[target]; logProb = −|part|, isArgmax = part > 0. */
export function tinyPlan(): LinkedFunction {
  let offset = 0;
  const placements = BUFFERS.filter(({ space }) => space !== 'weight').map((declared) => {
    const rows = Math.ceil((declared.rows === 'T' ? CAPACITY.extents['T']! : CAPACITY.extents['R']!) / 32) * 32;
    const sizeBytes = rows * rowStride(declared, CAPACITY.extents, 4) * 4;
    const placement = { buffer: declared.name, offset, sizeBytes };
    offset += Math.ceil(sizeBytes / 4096) * 4096;
    return placement;
  });
  const head = {
    layout: 'panels',
    format: 'f32',
    k: WIDTH,
    pairing: { kind: 'none' },
    sources: [{ tensor: 'embed_tokens', rows: VOCAB }],
    columnScale: 'norm',
  } as const;
  const launch = (kernel: string, parameters: readonly string[]) => ({ kernel, signature: kernel, parameters });
  return {
    interface: tinyInterface(),
    states: [],
    buffers: BUFFERS,
    kernels: KERNELS,
    arenaBytes: offset,
    placements,
    capacity: CAPACITY,
    weights: [
      {
        name: 'table',
        layout: 'rows',
        format: 'bf16',
        sources: [{ tensor: 'embed_tokens', rows: VOCAB }],
        k: WIDTH,
        pairing: { kind: 'none' },
      },
      { name: 'head_w0', ...head },
      { name: 'head_copy', ...head },
      {
        name: 'frequency',
        layout: 'rows',
        format: 'f32',
        sources: [{ tensor: 'constant.frequency', rows: WIDTH }],
        k: 1,
        pairing: { kind: 'none' },
      },
    ],
    constants: [{ name: 'constant.frequency', values: Array.from({ length: WIDTH }, (_, i) => 2 ** -i) }],
    launches: [
      launch('embed', ['tokens', 'position', 'table', 'frequency', 'h']),
      launch('head', ['h', 'row', 'target', 'head_copy', 'parts']),
      launch('head_reduce', ['parts', 'log_prob', 'is_argmax']),
    ],
    buckets: [scoringBucket({ tokens: 16, rows: 4, longest: 16 }), CAPACITY],
    schedules: [{}, {}],
  };
}

export const TINY_KERNELS = `${ABI_TEXT}
#include <math.h>
#include <string.h>
static float widen(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
void tw_embed(const tw_launch *l, int32_t worker, int32_t workers) {
  const int32_t *tokens = l->buffers[0], *position = l->buffers[1];
  const uint16_t *table = l->buffers[2];
  const float *frequency = l->buffers[3];
  float *h = l->buffers[4];
  for (int64_t t = worker; t < l->extents[0]; t += workers)
    for (int c = 0; c < ${WIDTH}; c++)
      h[t * 32 + c] = widen(table[tokens[t] * ${WIDTH} + c]) * frequency[c] + (float)position[t];
}
void tw_head(const tw_launch *l, int32_t worker, int32_t workers) {
  const float *h = l->buffers[0], *w = l->buffers[3];
  const int32_t *row = l->buffers[1], *target = l->buffers[2];
  float *parts = l->buffers[4];
  (void)worker; (void)workers;
  for (int64_t r; (r = __atomic_fetch_add(l->next, 1, __ATOMIC_RELAXED)) < l->extents[1];) {
    float sum = 0;
    const float *panel = w + (target[r] / 16) * ${WIDTH * 16} + target[r] % 16;
    for (int k = 0; k < ${WIDTH}; k++) sum += h[row[r] * 32 + k] * panel[k * 16];
    parts[r * 32] = sum;
    parts[r * 32 + 1] = parts[r * 32 + 2] = 0;
    parts[r * 32 + 3] = -INFINITY;
  }
}
void tw_reduce(const tw_launch *l, int32_t worker, int32_t workers) {
  const float *parts = l->buffers[0];
  float *logProb = l->buffers[1];
  int32_t *isArgmax = l->buffers[2];
  for (int64_t r = worker; r < l->extents[1]; r += workers) {
    logProb[r] = -fabsf(parts[r * 32]);
    isArgmax[r] = parts[r * 32] > 0;
  }
}
`;
