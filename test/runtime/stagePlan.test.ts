import { scoringBucket } from '../../ir/scoring.js';
import { describe, expect, it } from 'vitest';
import { deriveLaunches } from '../../driver/checkPlan.js';
import { interpretModule, type RawTensor } from '../../ir/kernelInterpreter.js';
import { lower, optimise } from '../../passes/pipeline.js';
import { planMemory } from '../../passes/planMemory.js';
import type { MaskKind } from '../../models/mask.js';
import { boundaryOf, stagePlan } from '../../runtime/stagePlan.js';
import type { RuntimePlan } from '../../runtime/ports.js';
import { llama } from '../passes/llamaGraph.js';
import { bufferName, F32 } from '../passes/lowered.js';
import { environment } from '../passes/support.js';

const CAPACITY = scoringBucket({ tokens: 64, rows: 16, longest: 64 });

function planOf(mask: MaskKind, isTied = false): RuntimePlan {
  const module = lower(optimise(llama({ tieWordEmbeddings: isTied }, mask), F32), F32);
  const memory = planMemory(module, CAPACITY.extents);
  return {
    ...module,
    ...memory,
    states: [],
    launches: deriveLaunches(module, CAPACITY.extents),
    capacity: CAPACITY,
    buckets: [CAPACITY],
  };
}

const names = (list: readonly { readonly name: string }[]): string[] => list.map(({ name }) => name);

describe('the plan of a stage', () => {
  const plan = planOf('tree');
  const count = plan.launches.length;

  it('keeps its own launches, kernels and weights, and every buffer, place and bucket', () => {
    for (let end = 1; end < count; end++) {
      const parts = [stagePlan(plan, { first: 0, end }), stagePlan(plan, { first: end, end: count })];
      expect(parts.flatMap(({ launches }) => launches)).toEqual(plan.launches);
      expect(parts.flatMap(({ kernels }) => names(kernels))).toEqual(names(plan.kernels));
      for (const part of parts) {
        const used = new Set(part.launches.flatMap(({ parameters }) => parameters));
        expect(names(part.weights)).toEqual(names(plan.weights).filter((name) => used.has(name)));
        expect({ ...part, launches: 0, kernels: 0, weights: 0 }).toEqual({
          ...plan,
          launches: 0,
          kernels: 0,
          weights: 0,
        });
      }
    }
  });

  it('is the plan itself where one stage has all launches', () => {
    expect(stagePlan(plan, { first: 0, end: count })).toBe(plan);
  });

  it('holds the embedding table in the first stage and the head in the last, and of a tied model too', () => {
    for (const whole of [plan, planOf('tree', true)]) {
      const tensors = ({ weights }: RuntimePlan): string[] =>
        weights.flatMap(({ sources }) => sources.map(({ tensor }) => tensor));
      const [embed, head] =
        whole === plan
          ? ['model.embed_tokens.weight', 'lm_head.weight']
          : ['model.embed_tokens.weight', 'model.embed_tokens.weight'];
      expect(tensors(stagePlan(whole, { first: 0, end: 2 }))).toContain(embed);
      expect(tensors(stagePlan(whole, { first: 2, end: whole.launches.length - 2 }))).not.toContain(embed);
      expect(tensors(stagePlan(whole, { first: whole.launches.length - 2, end: whole.launches.length }))).toContain(
        head,
      );
    }
  });

  it.each([
    [0, 0],
    [3, 2],
    [-1, 2],
    [0, count + 1],
    [0.5, 2],
  ])('refuses launches %d to %d', (first, end) => {
    expect(() => stagePlan(plan, { first, end })).toThrow(RangeError);
  });
});

describe('what crosses a cut', () => {
  it.each(['tree', 'metaPair', 'slidingWindow'] as const)(
    'is what the later launches need, and no more (%s)',
    (mask) => {
      const graph = optimise(llama({}, mask), F32);
      const plan = planOf(mask);
      const env = environment(graph);
      const inputs = new Map(graph.params.map((p) => [bufferName(p), env.params.get(p.name)!]));
      const tensors = new Map<string, RawTensor>(
        graph.weights.map((w) => {
          const [first, second] = w.type.shape as readonly number[];
          return [
            w.name,
            { rows: second === undefined ? 1 : first!, columns: second ?? first!, data: env.weights.get(w.name)! },
          ];
        }),
      );
      const run = (part: RuntimePlan, buffers: ReadonlyMap<string, Float64Array>): Map<string, Float64Array> =>
        interpretModule({ ...part, buffers: plan.buffers }, { sizes: env.sizes, buffers, tensors, round: false });
      const outputs = names(plan.buffers.filter(({ space }) => space === 'output'));
      const whole = run(plan, inputs);
      for (let end = 1; end < plan.launches.length; end++) {
        const made = run(stagePlan(plan, { first: 0, end }), inputs);
        const crossing = names(boundaryOf(plan, end));
        const later = stagePlan(plan, { first: end, end: plan.launches.length });
        const from = (kept: readonly string[]): Map<string, Float64Array> =>
          run(later, new Map([...inputs, ...kept.map((name) => [name, made.get(name)!] as const)]));
        const got = from(crossing);
        for (const name of outputs) expect(got.get(name), `${name}, cut before ${end}`).toEqual(whole.get(name));
        for (const dropped of crossing)
          expect(
            () => from(crossing.filter((name) => name !== dropped)),
            `${dropped} is needed after ${end}`,
          ).toThrow();
      }
    },
  );

  it('is nothing before the first launch and the outputs after the last', () => {
    const plan = planOf('tree');
    expect(boundaryOf(plan, 0)).toEqual([]);
    expect(names(boundaryOf(plan, plan.launches.length))).toEqual(
      names(plan.buffers.filter(({ space }) => space === 'output')),
    );
  });

  it('is the residual stream and little else between layers', () => {
    const plan = planOf('tree');
    const sizes = plan.launches.map((_, i) => boundaryOf(plan, i).length);
    expect(Math.min(...sizes.slice(1))).toBeLessThanOrEqual(3);
  });
});
