/**
 * A plan of two functions over one state and one weight, written by hand: `append` adds scaled rows to rows of the
 * state, `recall` reads rows of it back. Their extents are neither called T nor R, and each function has its own.
 */
import type { CudaKernelText } from '../../ir/cuda.js';
import type { FunctionInterface } from '../../ir/function.js';
import type { BufferDecl, LoopKernel } from '../../ir/kernel.js';
import type { FunctionPlan } from '../../ir/plan.js';
import { rowStride } from '../../ir/plan.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import type { RuntimePlan } from '../../runtime/runtimePlan.js';

export const STATE_ROWS = 9;
export const WIDTH = 5;
const STATE = 'kept';
/** Elements from row to row of every matrix here: columns are padded to 32. */
const STRIDE = 32;

const STATE_BUFFER: BufferDecl = { name: STATE, dtype: 'f32', rows: STATE_ROWS, columns: WIDTH, space: 'arena' };

/** A function of one kernel, over one extent, that is called like it. */
function functionOf(
  own: FunctionInterface,
  most: readonly number[],
  written: string,
  parameters: readonly string[],
): Omit<FunctionPlan, 'schedules'> {
  const [{ name: extent }] = own.extents as [{ readonly name: string }];
  const ported = [
    ...own.inputs.map((port) => ({ port, space: 'input' as const })),
    ...own.outputs.map((port) => ({ port, space: 'output' as const })),
  ];
  const buffers = ported.map(({ port: { buffer, dtype, shape }, space }): BufferDecl => ({
    name: buffer,
    dtype,
    rows: shape[0]!,
    columns: shape[1] ?? 1,
    space,
  }));
  const buckets = most.map((size) => ({ extents: { [extent]: size }, longest: 0 }));
  const capacity = buckets.at(-1)!;
  let arenaBytes = 0;
  const placements = buffers.map((buffer) => {
    const sizeBytes = Math.ceil(capacity.extents[extent]! / 32) * 32 * rowStride(buffer, capacity.extents, 4) * 4;
    const placement = { buffer: buffer.name, offset: arenaBytes, sizeBytes };
    arenaBytes += Math.ceil(sizeBytes / 4096) * 4096;
    return placement;
  });
  const kernel: LoopKernel = {
    anchor: 'loop',
    name: own.name,
    path: `memory.${own.name}`,
    rows: extent,
    ops: [],
    columns: WIDTH,
    outputs: [{ kind: 'store', buffer: written, value: { op: 'const', value: 0 } }],
  };
  return {
    interface: own,
    buffers: [...buffers, STATE_BUFFER],
    kernels: [kernel],
    launches: [{ kernel: own.name, signature: own.name, parameters }],
    capacity,
    buckets,
    arenaBytes,
    placements,
  };
}

export const statePlan = (): RuntimePlan => ({
  weights: [
    {
      name: 'scale',
      layout: 'rows',
      format: 'f32',
      sources: [{ tensor: 'scale', rows: 1 }],
      k: WIDTH,
      pairing: { kind: 'none' },
    },
  ],
  constants: [],
  states: [{ name: STATE, dtype: 'f32', rows: STATE_ROWS, columns: WIDTH }],
  functions: [
    functionOf(
      {
        name: 'append',
        extents: [{ name: 'Runs', counts: 'runs' }],
        inputs: [
          { name: 'rows', buffer: 'rows', dtype: 'f32', shape: ['Runs', WIDTH], role: { kind: 'values' } },
          { name: 'slot', buffer: 'slot', dtype: 'i32', shape: ['Runs'], role: { kind: 'slot', state: STATE } },
        ],
        outputs: [],
        takes: [STATE],
        gives: [STATE],
      },
      [4, 40],
      STATE,
      ['rows', 'slot', 'scale', STATE],
    ),
    functionOf(
      {
        name: 'recall',
        extents: [{ name: 'Entries', counts: 'entries' }],
        inputs: [
          { name: 'entry', buffer: 'entry', dtype: 'i32', shape: ['Entries'], role: { kind: 'entry', state: STATE } },
        ],
        outputs: [{ name: 'found', buffer: 'found', dtype: 'f32', shape: ['Entries', WIDTH] }],
        takes: [STATE],
        gives: [],
      },
      [16],
      'found',
      ['entry', STATE, 'scale', 'found'],
    ),
  ],
});

export const scaleTensor = (factor: number): ReadonlyMap<string, TensorSource> =>
  new Map([['scale', { kind: 'constant', format: 'f32', shape: [WIDTH], value: factor }]]);

/** Bodies of both kernels: `count` rows, pointers by the names of the parameters. `recall` divides by the scale. */
const APPEND = `for (long r = 0; r < count; r++)
    for (int c = 0; slot[r] >= 0 && c < ${WIDTH}; c++) kept[slot[r] * ${STRIDE} + c] += rows[r * ${STRIDE} + c] * scale[c];`;
const RECALL = `for (long r = 0; r < count; r++)
    for (int c = 0; c < ${WIDTH}; c++) found[r * ${STRIDE} + c] = kept[entry[r] * ${STRIDE} + c] / scale[c];`;

/** For a CPU; \`abi\`: the text of abi.h. One worker does everything. */
export const stateC = (abi: string): string => `${abi}
void k_append(const tw_launch *l, int32_t worker, int32_t workers) {
  const float *rows = l->buffers[0], *scale = l->buffers[2];
  const int32_t *slot = l->buffers[1];
  float *kept = l->buffers[3];
  const int64_t count = worker == 0 ? l->extents[0] : 0;
  (void)workers;
  ${APPEND}
}
void k_recall(const tw_launch *l, int32_t worker, int32_t workers) {
  const int32_t *entry = l->buffers[0];
  const float *kept = l->buffers[1], *scale = l->buffers[2];
  float *found = l->buffers[3];
  const int64_t count = worker == 0 ? l->extents[0] : 0;
  (void)workers;
  ${RECALL}
}
`;

const one = { kind: 'constant', count: 1 } as const;

/** For a GPU: one thread does everything, on as many blocks as there are tiles of rows. */
const cudaText = (symbol: string, parameters: string, body: string): Pick<CudaKernelText, 'symbol' | 'source'> => ({
  symbol,
  source: `extern "C" __global__ void ${symbol}(int count, ${parameters}) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  ${body}
}
`,
});

const CUDA_TEXTS: Readonly<Record<string, Pick<CudaKernelText, 'symbol' | 'source'>>> = {
  append: cudaText('k_append', 'const float *rows, const int *slot, const float *scale, float *kept', APPEND),
  recall: cudaText('k_recall', 'const int *entry, const float *kept, const float *scale, float *found', RECALL),
};

/** [bucket][launch] of each function. */
export const stateKernels = (plan: RuntimePlan): Readonly<Record<string, readonly (readonly CudaKernelText[])[]>> =>
  Object.fromEntries(
    plan.functions.map(({ interface: { name, extents }, launches, buckets }) => [
      name,
      buckets.map(() => [
        {
          ...CUDA_TEXTS[name]!,
          parameters: launches[0]!.parameters,
          tensorMaps: [],
          waitsForPredecessor: false,
          launch: {
            threads: 32,
            sharedBytes: 0,
            cluster: 1,
            gridX: { kind: 'tiles', extent: extents[0]!.name, per: 8, times: 1 },
            gridY: one,
          },
        },
      ]),
    ]),
  );

/** Both kernels for the fake driver, computed on the host. */
export const STATE_HOST = `
void host_k_append(const int *sizes, const unsigned *grid, void **p) {
  const int count = sizes[0];
  const float *rows = p[0], *scale = p[2];
  const int *slot = p[1];
  float *kept = p[3];
  (void)grid;
  ${APPEND}
}
void host_k_recall(const int *sizes, const unsigned *grid, void **p) {
  const int count = sizes[0];
  const int *entry = p[0];
  const float *kept = p[1], *scale = p[2];
  float *found = p[3];
  (void)grid;
  ${RECALL}
}
`;
