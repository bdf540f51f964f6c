/** What crosses the bus: each tensor once, whatever is made of it. */
import { describe, expect, it } from 'vitest';
import type { WeightDecl } from '../../../ir/kernel.js';
import { planLoading } from '../../../runtime/cuda/loadPlan.js';
import { PACK_ENTRIES } from '../../../runtime/cuda/packKernels.js';
import { partWeights } from '../../../runtime/cuda/shareWeights.js';
import { copiedBytesOf } from '../../../runtime/cuda/weights.js';
import type { TensorSource } from '../../../runtime/tensorSource.js';
import { planWeights } from '../../../runtime/weightPlan.js';

const K = 64;

const bf16 = (rows: number, k: number, offset: number): TensorSource => ({
  kind: 'file',
  format: 'bf16',
  shape: [rows, k],
  file: '/model',
  offset,
  byteLength: 2 * rows * k,
});

const TENSORS = new Map<string, TensorSource>([
  ['norm', { ...bf16(1, K, 0), shape: [K] } as TensorSource],
  ...['gate', 'up', 'table', 'q'].map((name, i): [string, TensorSource] => [name, bf16(48, K, 1024 * 16 * (i + 1))]),
]);

const codes = (name: string, tensors: readonly string[], more: Partial<WeightDecl> = {}): WeightDecl => ({
  ...{ name, layout: 'kmajor', format: 'e4m3', k: K, pairing: { kind: 'none' } },
  sources: tensors.map((tensor) => ({ tensor, rows: 48 })),
  ...more,
});

const scalesOf = (name: string, tensor: string, more: Partial<WeightDecl> = {}): WeightDecl => ({
  ...{ name, layout: 'rows', format: 'f32', k: 1, pairing: { kind: 'none' }, scalesOf: { format: 'e4m3', k: K } },
  sources: [{ tensor, rows: 48 }],
  ...more,
});

const NORM = { columnScale: 'norm' } as const;
const plan = (weights: readonly WeightDecl[]) => planWeights(weights, [], TENSORS, { isMapping: false });
const layings = (weights: readonly WeightDecl[], staging?: number) =>
  planLoading(plan(weights), staging).steps.flatMap((step) => step.layings);

describe('planLoading', () => {
  const pair = [
    scalesOf('gate_scales', 'gate', NORM),
    scalesOf('up_scales', 'up', NORM),
    codes('w', ['gate', 'up'], { ...NORM, pairing: { kind: 'interleave', width: 8 } }),
  ];

  it.each([128, 700, undefined])('reads a matrix once for its codes and scales, in buffers of %s', (staging) => {
    const weightPlan = plan(pair);
    const loadPlan = planLoading(weightPlan, staging);
    expect(copiedBytesOf(loadPlan)).toBe(2 * K + 2 * 48 * K * 2);
    const rounded = loadPlan.steps
      .flatMap((step) => step.layings)
      .filter(({ job }) => job.symbol === PACK_ENTRIES.codes);
    const places = weightPlan.weights.map(({ bytes, ...rest }) => ({
      offset: 'offset' in rest ? rest.offset : -1,
      bytes,
    }));
    expect(new Set(rounded.map(({ target }) => target.offset))).toEqual(new Set([places[2]!.offset]));
    expect(new Set(rounded.map(({ rowScales }) => rowScales?.offset))).toEqual(
      new Set([places[0]!.offset, places[1]!.offset]),
    );
    expect(loadPlan.steps.reduce((sum, { weightBytes }) => sum + weightBytes, 0)).toBe(2 * 48 * K + 2 * 48 * 4);
  });

  it('finds scales apart from codes that are others', () => {
    const symbols = (weights: readonly WeightDecl[]): number =>
      layings(weights).filter(({ job }) => job.symbol === PACK_ENTRIES.codes).length;
    expect(symbols([scalesOf('s', 'q'), codes('w', ['q'])])).toBe(1);
    expect(symbols([scalesOf('s', 'q', NORM), codes('w', ['q'])])).toBe(2);
    expect(symbols([scalesOf('s', 'q', { ...NORM, columnOffset: 1 }), codes('w', ['q'], NORM)])).toBe(2);
    expect(symbols([scalesOf('s', 'q')])).toBe(1);
    const order = { headDim: 16, rotated: 16, interleaved: true } as const;
    const turned = scalesOf('s', 'q', { sources: [{ tensor: 'q', rows: 48, order }] });
    expect(symbols([turned, codes('w', ['q'])])).toBe(2);
    expect(symbols([turned, codes('w', ['q'], { sources: turned.sources })])).toBe(1);
  });

  it('reads a table once that is a matrix too', () => {
    const table: WeightDecl = codes('table', ['table'], { layout: 'rows', format: 'bf16' });
    const weights = [table, codes('q', ['q']), codes('head', ['table'], { ...NORM, format: 'bf16' })];
    expect(copiedBytesOf(planLoading(plan(weights)))).toBe(2 * K + 2 * 48 * K * 2);
    const [first, second] = planLoading(plan(weights)).steps.at(-1)!.layings;
    expect(second!.staged).toEqual(first!.staged);
    expect(second!.target).not.toEqual(first!.target);
  });

  it('keeps codes and scales in one part of replicas', () => {
    const weights = ['gate', 'up', 'q', 'table'].flatMap((name) => [scalesOf(`${name}_s`, name), codes(name, [name])]);
    const whole = plan(weights);
    for (const count of [2, 3, 4, 7]) {
      const parts = partWeights(whole, count);
      expect(parts.flatMap((part) => part.plan.weights)).toEqual(whole.weights);
      expect(parts.reduce((sum, part) => sum + copiedBytesOf(planLoading(part.plan)), 0)).toBe(4 * 48 * K * 2);
    }
  });
});
