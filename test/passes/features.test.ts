/** What a draft head reads of the model is kept beside its own work: no kernel of the model computes anything else. */
import { describe, expect, it } from 'vitest';
import type { Graph } from '../../ir/graph/graph.js';
import { printKernel } from '../../ir/kernelPrinter.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import { buildStep, type DecoderShape } from '../../models/decoder/graph.js';
import type { DraftFeatures } from '../../models/model/model.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { SHAPE } from './llamaGraph.js';
import { F32, TENSOR_CORES } from './lowered.js';

const ROTARY = { inverseFrequencies: Float64Array.from({ length: 8 }, (_, i) => 1 / (i + 1)), factor: 1 };

const fused = (of: readonly number[]): DraftFeatures => ({
  width: 64,
  of,
  build: (b, streams, dtypeOf) =>
    streams
      .map((x, i) => b.add('linear', { x, w: b.weight(`draft.fc.${i}.weight`, dtypeOf(''), [64, 64]) }))
      .reduce((sum, part) => b.add('add', { a: sum, b: part })),
});
const NORMED: DraftFeatures = { width: 64, of: 'normed', build: (_, [x]) => x! };

const stepOf = (features: DraftFeatures | undefined, dtype: 'f32' | 'bf16', change: Partial<DecoderShape>): Graph =>
  buildStep(
    { ...SHAPE, layers: 4, hiddenSize: 64, headDim: 16, ...change },
    { cache: { rows: 32, dtype }, rotary: ROTARY, dtypeOf: () => 'bf16', filters: true, feeds: true, features },
  );

/**
 * The text of a kernel without the numbers of names that are taken, and without what it stores for features: rounded
 * streams.
 */
const modelsOwn = (text: string): string =>
  text
    .split('\n')
    .filter((line) => !/^\s*\w+_wide\w* =/.test(line))
    .join('\n')
    .replace(/(_\d+)?(?=_w\d+: |: (?:gemm|attention|loop|logprob) over)/g, '');

const CODES: Numerics = { ...TENSOR_CORES, narrow: { format: 'e4m3', from: 'values', keep: [], wide: 'first' } };

describe.each<readonly [string, Numerics, 'f32' | 'bf16']>([
  ['a CPU', F32, 'f32'],
  ['a GPU', TENSOR_CORES, 'bf16'],
  ['a GPU with matrices of 8 bits', CODES, 'bf16'],
])('features of %s', (_title, numerics, dtype) => {
  it.each<readonly [string, DraftFeatures, Partial<DecoderShape>]>([
    ['streams of inner layers', fused([2, 2, 1]), {}],
    ['the last stream', fused([1, 4]), {}],
    ['the stream behind the norm', NORMED, {}],
    ['streams between LayerNorms', fused([1, 3]), { norm: { kind: 'layer', offset: 0, hasBias: true } }],
    ['streams of which parts are added side by side', fused([1, 3]), { parallel: 'one norm' }],
  ])('leave the kernels of the model as they are: %s', (_name, features, change) => {
    const kernelsOf = (own: DraftFeatures | undefined): readonly string[] => {
      const module = lower(optimize(stepOf(own, dtype, change), numerics), numerics);
      verifyIndices(module);
      return module.kernels.map((kernel) => modelsOwn(printKernel(kernel)));
    };
    const [plain, kept] = [kernelsOf(undefined), kernelsOf(features)];
    expect(plain.filter((text) => !kept.includes(text))).toEqual([]);
    expect(kept.length).toBeGreaterThan(plain.length);
  });
});
