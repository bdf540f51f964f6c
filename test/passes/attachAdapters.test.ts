/** Adapters on kernels: rows compute what they compute with merged weights, and others what they do without. */
import { describe, expect, it } from 'vitest';
import type { Graph } from '../../ir/graph/graph.js';
import type { KernelModule, WeightDecl } from '../../ir/kernel.js';
import { interpretModule, type RawTensor } from '../../ir/kernelInterpreter.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import { buildStep, type DecoderShape } from '../../models/decoder/graph.js';
import { ADAPTER_INPUTS } from '../../ir/adapterRows.js';
import { attachAdapters } from '../../passes/attachAdapters.js';
import type { LoweredModule } from '../../passes/lowerKernels.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, lowerModule, optimize } from '../../passes/runPasses.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import { planWeights } from '../../runtime/weightPlan.js';
import { randomNumbers } from '../support/numbers.js';
import { llama, SHAPE } from './llamaGraph.js';
import { BF16, F32, HALF, printPart, TENSOR_CORES } from './lowered.js';
import { distance, environment, inputsOf, TREES } from './modelEnvironment.js';

const SLOTS = 3;
/** Of the adapters; slots have the next multiple of 16. */
const RANK = 20;

/** One adapter: s·B·A for every matrix of the layers. */
interface Factors {
  readonly a: Float64Array;
  readonly b: Float64Array;
  readonly s: number;
}
type Adapter = ReadonlyMap<string, Factors>;

function randomAdapter(tensors: ReadonlyMap<string, RawTensor>, seed: number): Adapter {
  const random = randomNumbers(seed);
  const numbers = (length: number): Float64Array => Float64Array.from({ length }, random);
  return new Map(
    [...tensors].flatMap(([name, { rows, columns }], i): [string, Factors][] =>
      /layers\.\d+\..*proj/.test(name)
        ? [[name, { a: numbers(RANK * columns), b: numbers(rows * RANK), s: 0.1 + (i % 4) / 8 }]]
        : [],
    ),
  );
}

function merged(name: string, { columns, data }: RawTensor, adapter: Adapter | undefined): Float64Array {
  const factors = adapter?.get(name);
  if (factors === undefined) return data;
  return data.map((w, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    let sum = 0;
    for (let r = 0; r < RANK; r++) sum += factors.b[row * RANK + r]! * factors.a[r * columns + column]!;
    return w + factors.s * sum;
  });
}

/** A weight with slots as its kernels read it: ranks padded by zeros, the norm in front of a matrix in A. */
function slotValues(
  { sources, k, slots, columnScale, columnOffset = 0 }: WeightDecl,
  adapters: readonly (Adapter | undefined)[],
  tensors: ReadonlyMap<string, RawTensor>,
): Float64Array {
  const norm = columnScale === undefined ? undefined : tensors.get(columnScale)!.data;
  const rows = sources.flatMap(({ tensor, rows: count }) =>
    Array.from({ length: count }, (_, row) => ({ tensor, row })),
  );
  return Float64Array.from(
    adapters.flatMap((adapter) =>
      rows.flatMap(({ tensor, row }) => {
        const factors = adapter?.get(tensor);
        return Array.from({ length: k }, (_, i) => {
          if (factors === undefined) return 0;
          if (slots!.holds === 'scale') return factors.s;
          if (slots!.holds === 'b') return i < RANK ? factors.b[row * RANK + i]! : 0;
          return row < RANK ? factors.a[row * k + i]! * (norm === undefined ? 1 : norm[i]! + columnOffset) : 0;
        });
      }),
    ),
  );
}

const ROTARY = { inverseFrequencies: Float64Array.from({ length: 4 }, (_, i) => 1 / (i + 1)), factor: 1 };
const step = (): Graph =>
  buildStep(SHAPE, { cache: { rows: 40, dtype: 'f32' }, rotary: ROTARY, dtypeOf: () => 'bf16' });
const lowered = (graph: Graph, numerics: Numerics): LoweredModule => lower(optimize(graph, numerics), numerics);
const withSlots = (numerics: Numerics): Numerics => ({ ...numerics, adapters: { slots: SLOTS, rank: RANK } });

/** Tokens 0 to 5 are a tree, 6 and 7 another; rows are 0, 2, 4, 5 and 7. */
const slotsOf = (first: number, second: number): Record<string, number[]> => ({
  [ADAPTER_INPUTS['T']!]: [...Array<number>(6).fill(first), second, second],
  [ADAPTER_INPUTS['R']!]: [first, first, first, first, second],
});

/** Matrices of layers stay in groups of 4 bits. */
const GROUPED: Numerics = {
  ...TENSOR_CORES,
  groups: 'kept',
  groupsOf: (tensor) => (/layers\.\d+\..*proj/.test(tensor) ? 32 : undefined),
};

/** Blocks of codes have 128 columns. */
const BLOCKS: Partial<DecoderShape> = { hiddenSize: 128, intermediateSize: 128, headDim: 32, layers: 1 };

describe.each<[what: string, numerics: Numerics, shape?: Partial<DecoderShape>]>([
  ['f32', F32],
  ['bf16', BF16],
  ['tensor cores', TENSOR_CORES],
  ['half', HALF],
  ['groups of 4 bits', GROUPED, BLOCKS],
])('adapters in %s', (_, numerics, shape) => {
  it('give rows what merged weights give them', () => {
    const graph = llama(shape);
    const drawn = environment(graph, TREES);
    const reference = lowered(graph, numerics);
    // Norm weights that rows are multiplied by are columns.
    const columns = reference.weights.flatMap(({ layout, k, sources }) =>
      layout === 'rows' && k === 1 ? sources : [],
    );
    const tensors = columns.map(
      ({ tensor, rows }) => [tensor, { ...drawn.tensors.get(tensor)!, rows, columns: 1 }] as const,
    );
    const plain = { ...drawn, tensors: new Map([...drawn.tensors, ...tensors]) };
    const adapters = [1, 2].map((seed) => randomAdapter(plain.tensors, seed));
    const inSlots = [adapters[0], undefined, adapters[1]];
    const module = lowered(graph, withSlots(numerics));
    verifyIndices(module);
    const wanted = (adapter: Adapter | undefined): Float64Array => {
      const tensors = new Map(
        [...plain.tensors].map(([name, tensor]) => [name, { ...tensor, data: merged(name, tensor, adapter) }]),
      );
      const { sizes } = plain;
      return interpretModule(reference, { sizes, tensors, buffers: inputsOf(reference, plain) }).get('log_prob')!;
    };
    const [base, first, second] = [undefined, ...adapters].map(wanted) as [Float64Array, Float64Array, Float64Array];
    expect(distance(base, first)).toBeGreaterThan(0.01);
    expect(distance(first, second)).toBeGreaterThan(0.01);
    const weights = new Map(
      module.weights.flatMap((weight) =>
        weight.slots === undefined ? [] : [[weight.name, slotValues(weight, inSlots, plain.tensors)]],
      ),
    );
    const run = (of: KernelModule, slots: Record<string, readonly number[]>): Float64Array => {
      const given = {
        params: new Map([
          ...plain.params,
          ...Object.entries(slots).map(([n, v]) => [n, Float64Array.from(v)] as const),
        ]),
      };
      const { sizes, tensors } = plain;
      return interpretModule(of, { sizes, tensors, weights, buffers: inputsOf(of, given) }).get('log_prob')!;
    };
    const bare = run(reference, {});
    const mixed = (a: Float64Array, b: Float64Array): Float64Array => Float64Array.from([...a.slice(0, 4), b[4]!]);
    expect(run(module, slotsOf(-1, -1))).toEqual(bare);
    for (const [slots, want] of [
      [slotsOf(0, 0), first],
      [slotsOf(2, 0), mixed(second, first)],
      [slotsOf(-1, 2), mixed(base, second)],
      [slotsOf(0, -1), mixed(first, base)],
      [slotsOf(1, 1), base],
    ] as const)
      expect(distance(run(module, slots), want)).toBeLessThan(1e-9);
    const beside = run(module, slotsOf(0, -1));
    expect(beside[4]).toBe(bare[4]);
  });
});

describe('attachAdapters', () => {
  const module = lowered(llama(), withSlots(F32));

  it('gives matrices of layers slots, and nothing else', () => {
    expect(printPart(module, 'layers.0')).toMatchInlineSnapshot(`
      "
      layers_0_attention_qkv_shrink: shrink over T, layers_0_attention_qkv_shrunk = h[T,
          48]·layers_0_attention_qkv_lora_a·layers_0_attention_qkv_lora_s, 3 parts, adapters of rank 32 in 3 slots, by
          adapter
      layers_0_attention_qkv: gemm over T, h[T, 48]
        and adapters of rank 32 in 3 slots, by adapter, from layers_0_attention_qkv_shrunk
        layers_0_attention_qkv_w0: 32 columns, rotate 8 by 4
          and layers_0_attention_qkv_w0_lora_b from part 0
          rotated = add(mul(mul(acc0, rsqrt(add(mul(rowSum(mean_square_parts), 0.020833333333333332), 0.00001))),
              cos[row, column mod 8]), mul(rotateHalf(mul(acc0, rsqrt(add(mul(rowSum(mean_square_parts),
              0.020833333333333332), 0.00001)))), sin[row, column mod 8]))
        layers_0_attention_qkv_w1: 16 columns, rotate 8 by 4
          and layers_0_attention_qkv_w1_lora_b from part 1
          rotated1 = add(mul(mul(acc0, rsqrt(add(mul(rowSum(mean_square_parts), 0.020833333333333332), 0.00001))),
              cos[row, column mod 8]), mul(rotateHalf(mul(acc0, rsqrt(add(mul(rowSum(mean_square_parts),
              0.020833333333333332), 0.00001)))), sin[row, column mod 8]))
        layers_0_attention_qkv_w2: 16 columns
          and layers_0_attention_qkv_w2_lora_b from part 2
          v = mul(acc0, rsqrt(add(mul(rowSum(mean_square_parts), 0.020833333333333332), 0.00001)))
      layers_0_attention_mix: attention over T, attended_r1 = softmax(0.35355339059327373·rotated·rotated1 + column
          subtree_end)·v, 4/2 heads of 8
      layers_0_attention_o_shrink: shrink over T, layers_0_attention_o_shrunk = attended_r1[T,
          32]·layers_0_attention_o_lora_a·layers_0_attention_o_lora_s, 1 parts, adapters of rank 32 in 3 slots, by
          adapter
      layers_0_attention_o: gemm over T, attended_r1[T, 32]
        and adapters of rank 32 in 3 slots, by adapter, from layers_0_attention_o_shrunk
        layers_0_attention_o_w0: 48 columns
          and layers_0_attention_o_w0_lora_b from part 0
          h1 = add(h[row, column], acc0)
          mean_square1_parts Σ= mul(add(h[row, column], acc0), add(h[row, column], acc0))
      layers_0_ffn_gate_up_shrink: shrink over T, layers_0_ffn_gate_up_shrunk = h1[T,
          48]·layers_0_ffn_gate_up_lora_a·layers_0_ffn_gate_up_lora_s, 2 parts, adapters of rank 32 in 3 slots, by
          adapter
      layers_0_ffn_gate_up: gemm over T, h1[T, 48]
        and adapters of rank 32 in 3 slots, by adapter, from layers_0_ffn_gate_up_shrunk
        layers_0_ffn_gate_up_w0: 40 columns, interleave by 16
          and layers_0_ffn_gate_up_w0_lora_b from part 0
          activated = mul(div(mul(acc0, rsqrt(add(mul(rowSum(mean_square1_parts), 0.020833333333333332), 0.00001))),
              add(1, exp(neg(mul(acc0, rsqrt(add(mul(rowSum(mean_square1_parts), 0.020833333333333332),
              0.00001))))))), mul(acc1, rsqrt(add(mul(rowSum(mean_square1_parts), 0.020833333333333332), 0.00001))))
      layers_0_ffn_down_shrink: shrink over T, layers_0_ffn_down_shrunk = activated[T,
          40]·layers_0_ffn_down_lora_a·layers_0_ffn_down_lora_s, 1 parts, adapters of rank 32 in 3 slots, by adapter
      layers_0_ffn_down: gemm over T, activated[T, 40]
        and adapters of rank 32 in 3 slots, by adapter, from layers_0_ffn_down_shrunk
        layers_0_ffn_down_w0: 48 columns
          and layers_0_ffn_down_w0_lora_b from part 0
          h2 = add(h1[row, column], acc0)
          mean_square2_parts Σ= mul(add(h1[row, column], acc0), add(h1[row, column], acc0))
      "
    `);
    const adapted = new Set(
      module.weights.flatMap(({ slots, sources }) => (slots?.holds === 'b' ? sources.map(({ tensor }) => tensor) : [])),
    );
    expect([...adapted].sort()).toEqual(
      llama()
        .weights.flatMap(({ name }) => (/layers\.\d+\..*proj/.test(name) ? [name] : []))
        .sort(),
    );
  });

  it('leaves modules alone where none is asked for', () => {
    expect(lowered(llama(), F32).weights.some(({ slots }) => slots !== undefined)).toBe(false);
  });

  it.each([{ columnScale: 'another.norm.weight' }, { columnOffset: 1 }])(
    'refuses kernels whose matrices have different norms in front: %o',
    (changed) => {
      const plain = lowered(llama(), F32);
      const name = 'layers_0_attention_qkv_w2';
      expect(plain.weights.find((weight) => weight.name === name)?.columnScale).toBeDefined();
      const weights = plain.weights.map((weight) => (weight.name === name ? { ...weight, ...changed } : weight));
      const attach = (module: LoweredModule): LoweredModule =>
        attachAdapters(module, { slots: SLOTS, rank: RANK }, { layout: 'panels', format: 'f32' });
      expect(attach(plain).weights.length).toBeGreaterThan(weights.length);
      expect(() => attach({ ...plain, weights })).toThrow(
        'layers.0.attention.qkv: adapters are not supported where matrices have different folded norms',
      );
    },
  );

  it('shares slots between functions', () => {
    const numerics = withSlots(F32);
    const functions = [llama(), step()].map((graph) => optimize(graph, numerics));
    const { weights, constants } = lowerModule({ name: 'model', functions }, numerics);
    const known = environment(llama(), TREES).tensors;
    const tensors = new Map(
      [...known].map(([name, { rows, columns }]): [string, TensorSource] => [
        name,
        { kind: 'constant', format: 'bf16', shape: rows === 1 ? [columns] : [rows, columns], value: 1 },
      ]),
    );
    const plan = planWeights(weights, constants, tensors);
    const slots = plan.weights.filter(({ kind }) => kind === 'slots');
    const once = planWeights(module.weights, module.constants ?? [], tensors);
    expect(slots).toHaveLength(once.weights.filter(({ kind }) => kind === 'slots').length);
    // Behind all others, so that replicas which copy each other's weights copy none.
    expect(plan.weights.slice(-slots.length)).toEqual(slots);
  });
});
