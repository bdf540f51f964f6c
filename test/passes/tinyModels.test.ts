/** Models of one layer, one column, one head or one row of weights, because sizes of 1 can be ambiguous. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import type { DType, FloatType } from '../../ir/types.js';
import { buildDecoder, type DecoderShape } from '../../models/decoder/graph.js';
import type { Projection } from '../../models/decoder/reader.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { isThorough } from '../support/thorough.js';
import { distance, environment, TREES } from './modelEnvironment.js';

const F32: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };
/** As for CPUs: weights stay as they are stored. */
const STORED: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'stored' } };
/** As for GPUs. */
const BF16: Numerics = {
  activations: 'bf16',
  attention: 'bf16',
  weights: { layout: 'kmajor', format: 'bf16', pairingWidth: 8 },
  products: 'f20',
  stream: 'f24',
};
const VOCABULARY = 20;
const INPUTS = {
  ...TREES,
  tokens: TREES.tokens.map((id) => id % VOCABULARY),
  target: TREES.target.map((id) => id % VOCABULARY),
};
const PROJECTIONS: readonly Projection[] = ['q', 'k', 'v', 'o', 'gate', 'up', 'down'];

/** Largest difference of log-probabilities between the model's graph and the kernels made of it. */
function error(shape: DecoderShape, dtype: DType, numerics: Numerics, round: boolean): number {
  const graph = buildDecoder(shape, {
    mask: 'tree',
    rotary: { inverseFrequencies: Float64Array.from({ length: shape.headDim / 2 }, (_, i) => 1 / (i + 1)), factor: 1 },
    dtypeOf: () => dtype,
  });
  const env = environment(graph, INPUTS);
  const [wanted] = interpretGraph(graph, env);
  const module = lower(optimize(graph, numerics), numerics);
  const given = new Map([...env.params].map(([name, values]) => [name.toLowerCase(), values]));
  const inputs = module.buffers.filter(({ space }) => space === 'input').map(({ name }) => name);
  const buffers = new Map(inputs.map((name) => [name, given.get(name.replaceAll('_', ''))!]));
  // A vector that is read as a table has one column, a folded norm weight one row.
  const tensors = new Map(env.tensors);
  for (const { layout, k, sources } of module.weights) {
    const { data } = env.tensors.get(sources[0]!.tensor) ?? {};
    if (layout === 'rows' && k === 1 && data !== undefined)
      tensors.set(sources[0]!.tensor, { rows: data.length, columns: 1, data });
  }
  const out = interpretModule(module, { sizes: env.sizes, buffers, tensors, round });
  const output = module.buffers.find(({ space, dtype: type }) => space === 'output' && type === 'f32')!;
  return distance(out.get(output.name)!, wanted!.data);
}

const shapes: fc.Arbitrary<DecoderShape> = fc
  .record({
    hiddenSize: fc.constantFrom(1, 2, 3, 16, 17),
    intermediateSize: fc.constantFrom(1, 2, 5, 16),
    layers: fc.constantFrom(1, 2),
    kvHeads: fc.constantFrom(1, 2),
    group: fc.constantFrom(1, 2),
    headDim: fc.constantFrom(2, 4, 6),
    tieWordEmbeddings: fc.boolean(),
    biased: fc.subarray([...PROJECTIONS]),
  })
  .map(({ group, ...shape }) => ({
    ...shape,
    heads: shape.kvHeads * group,
    vocabSize: VOCABULARY,
    rmsNormEps: 1e-5,
  }));

/** What families differ in. */
const differences: fc.Arbitrary<Partial<DecoderShape>> = fc
  .record({
    norm: fc.constantFrom(
      { kind: 'rms', offset: 0, hasBias: false },
      { kind: 'rms', offset: 1, hasBias: false },
      { kind: 'layer', offset: 0, hasBias: false },
      { kind: 'layer', offset: 0, hasBias: true },
    ),
    activation: fc.constantFrom('gelu', 'geluTanh', undefined),
    isGated: fc.boolean(),
    caps: fc.constantFrom(undefined, { scores: 0.7 }, { logits: 1.5 }, { scores: 2, logits: 0.3 }),
    qkNorm: fc.constantFrom(undefined, 'head', 'row'),
    parallel: fc.constantFrom('one norm', 'two norms', undefined),
    rotary: fc.constantFrom(
      undefined,
      { rotated: 2, interleaved: false },
      { rotated: 2, interleaved: true },
      { rotated: 4, interleaved: false },
      { rotated: 4, interleaved: true },
    ),
  } as const)
  .map(
    (drawn) =>
      Object.fromEntries(Object.entries(drawn).filter(([, value]) => value !== undefined)) as Partial<DecoderShape>,
  );

describe('tiny models', () => {
  it('of every family compute what their graph says, in f32 and compiled for 16 bits', () => {
    fc.assert(
      fc.property(
        shapes,
        differences,
        fc.constantFrom<DType>('f32', 'bf16'),
        fc.constantFrom(F32, STORED),
        (plain, changes, dtype, numerics) => {
          const shape = { ...plain, headDim: 6, ...changes };
          expect(error(shape, dtype, numerics, false)).toBeLessThan(1e-9);
          expect(error(shape, dtype, BF16, false)).toBeLessThan(1);
        },
      ),
      { numRuns: isThorough ? 200 : 12, seed: 17 },
    );
  });

  it('compute what their graph says, in every element type', () => {
    fc.assert(
      fc.property(
        shapes,
        fc.constantFrom<DType>('f32', 'f16', 'bf16'),
        fc.constantFrom(F32, STORED),
        (shape, dtype, numerics) => {
          expect(error(shape, dtype, numerics, false)).toBeLessThan(1e-9);
        },
      ),
      { numRuns: isThorough ? 150 : 12, seed: 15 },
    );
  });

  it('can be compiled for 16 bits too', () => {
    fc.assert(
      fc.property(shapes, fc.constantFrom<DType>('f32', 'f16', 'bf16'), (shape, dtype) => {
        // Nothing is rounded here, so any difference means another computation.
        expect(error(shape, dtype, BF16, false)).toBeLessThan(1);
      }),
      { numRuns: isThorough ? 100 : 12, seed: 16 },
    );
  });

  it('keep weights in the format in which they are stored, and f32 where one kernel would read two', () => {
    const formats = (dtypeOf: (tensor: string) => FloatType): string[] => {
      const graph = buildDecoder(
        {
          hiddenSize: 8,
          intermediateSize: 6,
          layers: 1,
          heads: 2,
          kvHeads: 1,
          headDim: 4,
          biased: [],
          vocabSize: VOCABULARY,
          rmsNormEps: 1e-5,
          tieWordEmbeddings: false,
        },
        { mask: 'tree', rotary: { inverseFrequencies: Float64Array.of(1, 0.5), factor: 1 }, dtypeOf },
      );
      return lower(optimize(graph, STORED), STORED)
        .weights.filter(({ layout }) => layout === 'panels')
        .map(
          ({ sources, format, columnScale }) =>
            `${sources[0]!.tensor.split('.').at(-2)!} ${format} ${columnScale ?? ''}`,
        );
    };
    for (const dtype of ['f32', 'f16', 'bf16'] as const)
      expect(formats(() => dtype).every((text) => text.endsWith(` ${dtype} `))).toBe(true);
    expect(formats((tensor) => (tensor.includes('k_proj') ? 'f16' : 'bf16')).map((text) => text.trim())).toEqual([
      'q_proj f32',
      'k_proj f32',
      'v_proj f32',
      'o_proj bf16',
      'gate_proj bf16',
      'down_proj bf16',
      'lm_head bf16',
    ]);
  });

  it.each(['f32', 'f16', 'bf16'] as const)('of one layer work with a table in %s', (dtype) => {
    const shape = { hiddenSize: 8, intermediateSize: 6, layers: 1, heads: 1, kvHeads: 1, headDim: 4, biased: [] };
    for (const tieWordEmbeddings of [false, true]) {
      const whole = { ...shape, vocabSize: VOCABULARY, rmsNormEps: 1e-5, tieWordEmbeddings };
      expect(error(whole, dtype, F32, false)).toBeLessThan(1e-9);
      expect(error({ ...whole, hiddenSize: 1 }, dtype, F32, false)).toBeLessThan(1e-9);
    }
  });
});
