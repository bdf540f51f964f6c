/** The function copy: what it is made of, and that its kernels copy the bits of every state, on every target. */
import { describe, expect, it } from 'vitest';
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { kernelSignature } from '../../codegen/signature.js';
import type { Graph } from '../../ir/graph/graph.js';
import { interpretFunction } from '../../ir/graph/interpreter.js';
import { parseGraph } from '../../ir/graph/parser.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { printKernel } from '../../ir/kernelPrinter.js';
import { roundToDType } from '../../ir/round.js';
import { COPY_BUCKET } from '../../ir/stepping.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import { buildStep } from '../../models/decoder/graph.js';
import { copyRows } from '../../passes/copyRows.js';
import type { LoweredModule } from '../../passes/lowerKernels.js';
import type { Numerics } from '../../passes/numerics.js';
import { followCuts, halvesOf } from '../../passes/placeStages.js';
import { lower, lowerModule, optimize } from '../../passes/runPasses.js';
import { FACTS } from '../autotune/cuda/fixture.js';
import { emulateModule } from '../codegen/cuda/emulate.js';
import { runGenerated, RUNNABLE } from '../codegen/harness.js';
import { compileByNvcc, hasNvcc } from '../support/nvcc.js';
import { SHAPE } from './llamaGraph.js';
import { F32, HALF, TENSOR_CORES } from './lowered.js';

const ROWS = 48;
const ROTARY = { inverseFrequencies: Float64Array.from({ length: 8 }, (_, i) => 1 / (i + 1)), factor: 1 };
const ISAS = RUNNABLE.filter((isa) => isa !== 'amx');

const stepOf = ({ cache, ...numerics }: Numerics, feeds = false): Graph =>
  optimize(
    buildStep(
      { ...SHAPE, hiddenSize: 64, headDim: 16 },
      { cache: { rows: ROWS, dtype: numerics.attention ?? 'f32' }, rotary: ROTARY, dtypeOf: () => 'bf16', feeds },
    ),
    { ...numerics, ...(cache === undefined ? {} : { cache }) },
  );

/** Step and copy as kernels, as a plan has them. */
function modulesOf(numerics: Numerics, feeds = false): { readonly copy: Graph; readonly module: LoweredModule } {
  const step = stepOf(numerics, feeds);
  const { cache: _, ...kept } = numerics;
  const copy = optimize(copyRows([step]), kept);
  return { copy, module: lowerModule({ name: 'model', functions: [step, copy] }, numerics).functions[1]! };
}

const CACHES: readonly (readonly [string, Numerics])[] = [
  ['f32', F32],
  ['bf16 on a GPU', TENSOR_CORES],
  ['f16 on a GPU', HALF],
  ['i8', { ...F32, cache: 'i8' }],
  ['i8 on a GPU', { ...TENSOR_CORES, cache: 'i8' }],
  ['e4m3 on a GPU', { ...TENSOR_CORES, cache: 'e4m3' }],
];

const FROM = [3, 3, 0, 17, 40];
const TO = [5, 41, 7, -1, 47];

/** States of numbers that their types hold, and what a copy makes of them. */
function statesOf({ states }: LoweredModule): {
  readonly before: ReadonlyMap<string, Float64Array>;
  readonly after: ReadonlyMap<string, Float64Array>;
} {
  const before = new Map(
    states.map(({ name, dtype, rows, columns }, s) => [
      name,
      Float64Array.from({ length: rows * columns }, (_, i) =>
        roundToDType(i % 7 === 0 ? -0 : ((i * 37 + s) % 101) - 50.25, dtype),
      ),
    ]),
  );
  const after = new Map(
    states.map(({ name, columns }) => {
      const rows = before.get(name)!;
      const copied = rows.slice();
      FROM.forEach((from, i) => {
        if (TO[i]! >= 0) copied.set(rows.subarray(from * columns, (from + 1) * columns), TO[i]! * columns);
      });
      return [name, copied];
    }),
  );
  return { before, after };
}

const inputsOf = (before: ReadonlyMap<string, Float64Array>): ReadonlyMap<string, Float64Array> =>
  new Map([['from', Float64Array.from(FROM)], ['to', Float64Array.from(TO)], ...before]);

const SIZES = { N: FROM.length };

describe('copyRows', () => {
  it('gathers and writes what a step keeps of each layer, and nothing else', () => {
    const { copy, module } = modulesOf(F32, true);
    expect(copy.states.map(({ name }) => name)).toEqual(['k_0', 'v_0', 'k_1', 'v_1']);
    expect(module.kernels.slice(0, 2).map(printKernel).join('\n')).toMatchInlineSnapshot(`
      "layers_0_attention_write: loop over N × 32
        k_0_rows = k_0[from[row], column]
        v_0_rows = v_0[from[row], column]
      layers_0_attention_write_1: loop over N × 32
        k_0[to[row]] = k_0_rows[row, column]
        v_0[to[row]] = v_0_rows[row, column]"
    `);
    expect(module.interface).toMatchObject({ name: 'copy', outputs: [], gives: ['k_0', 'v_0', 'k_1', 'v_1'] });
  });

  it.each(CACHES)('copies rows of a cache of %s: the graph, its kernels, and as CUDA', (_name, numerics) => {
    const { copy, module } = modulesOf(numerics);
    verifyIndices(module);
    const { before, after } = statesOf(module);
    const params = new Map(Object.entries({ from: FROM, to: TO }).map(([k, v]) => [k, Float64Array.from(v)]));
    const { states } = interpretFunction(copy, { sizes: SIZES, params, states: before, weights: new Map() });
    const kernels = interpretModule(module, { sizes: SIZES, buffers: inputsOf(before), round: true });
    const schedules = module.kernels.map(() => ({ kind: 'loop', threads: 64 }) as const);
    const cuda = emulateModule(module, { sizes: SIZES, inputs: inputsOf(before), schedules }).values;
    expect(module.states.length).toBe(numerics.cache === undefined ? 4 : 8);
    for (const [name, wanted] of after)
      for (const found of [states, kernels, cuda]) expect(found.get(name), name).toEqual(wanted);
  });

  it.each(ISAS.flatMap((isa) => [[isa, F32] as const, [isa, { ...F32, cache: 'i8' }] as const]))(
    'copies rows as C for %s',
    (isa, numerics) => {
      const { module } = modulesOf(numerics);
      const { before, after } = statesOf(module);
      const schedules = module.kernels.map(() => ({ kind: 'loop', isa, rows: 3 }) as const);
      const inputs = inputsOf(before);
      const result = runGenerated(module, { sizes: SIZES, inputs, schedules, workers: 2, isQuick: true });
      expect([result.overruns, result.dirtyPads]).toEqual([[], []]);
      for (const [name, wanted] of after) expect(result.values.get(name), name).toEqual(wanted);
    },
  );

  it.each(CACHES)('has equal kernels in all layers of a cache of %s, which lie in their own stages', (_n, numerics) => {
    const { module } = modulesOf(numerics);
    const signatures = module.kernels.map((kernel) => kernelSignature(kernel, module, COPY_BUCKET.extents));
    expect(new Set(signatures).size).toBe(module.kernels.length / 2);
    expect(new Set(module.kernels.map(({ path }) => path.split('.').slice(0, 3).join('.')))).toEqual(
      new Set(['layers.0.attention', 'layers.1.attention']),
    );
  });

  it.skipIf(!hasNvcc)('compiles by nvcc', () => {
    const kernels = CACHES.slice(1).flatMap(([, numerics]) => {
      const { module } = modulesOf(numerics);
      return module.kernels
        .slice(0, module.kernels.length / 2)
        .map((kernel) =>
          emitCudaKernel(
            kernel,
            module,
            cudaScheduling.default(kernel, module, FACTS, COPY_BUCKET),
            COPY_BUCKET.extents,
          ),
        );
    });
    expect(compileByNvcc(kernels, 'sm_90a').map(({ stackBytes }) => stackBytes)).toEqual(kernels.map(() => 0));
  });

  it('goes with the stages of other functions, some of which copy nothing', () => {
    const { module } = modulesOf(F32);
    const step = lower(stepOf(F32), F32);
    const launchesOf = ({ interface: own, kernels }: LoweredModule) => ({
      interface: own,
      kernels,
      launches: kernels.map(({ name }) => ({ kernel: name, signature: name, parameters: [] })),
    });
    const [placed, copy] = [launchesOf(step), launchesOf(module)];
    const halves = halvesOf(placed);
    const starts = [0, halves.indexOf('layers.0.ffn'), halves.indexOf('layers.1.attention'), halves.indexOf('head')];
    const stages = starts.map((first, i) => ({ first, end: starts[i + 1] ?? halves.length }));
    expect(followCuts([placed, copy], placed, stages)['copy']).toEqual([
      { first: 0, end: 2 },
      { first: 2, end: 2 },
      { first: 2, end: 4 },
      { first: 4, end: 4 },
    ]);
  });

  it('copies a state once that several layers read', () => {
    const step = parseGraph(`state @kept : f32[9, 4]
func @step(%x: f32[T, 4], %slot: i32[T] is slot(@kept), %key: i32[C] is entry(@kept); %kept: state @kept)
    -> (f32[C, 4], f32[C, 4]; %kept1) {
  %kept1 = write_rows(%kept, %x, %slot) : f32[9, 4] at "layers.0.attention"
  %a = gather_rows(%kept1, %key) : f32[C, 4] at "layers.0.attention"
  %b = gather_rows(%kept1, %key) : f32[C, 4] at "layers.1.attention"
  return %a, %b
}`);
    expect(copyRows([step]).states.map(({ name }) => name)).toEqual(['kept']);
    expect(lower(copyRows([step]), F32).kernels.length).toBe(2);
  });

  it('refuses a function that keeps nothing', () => {
    const graph = parseGraph(`func @step(%x: f32[T, 4]) -> (f32[T, 4]) {
  %a = add(%x, %x) : f32[T, 4]
  return %a
}`);
    expect(() => copyRows([graph])).toThrow('@step: it keeps no rows that could be copied');
  });
});
