import { describe, expect, it } from 'vitest';
import { deriveLaunches } from '../../driver/plan.js';
import { interpretModule, type RawTensor } from '../../ir/kernelInterpreter.js';
import type { Launch, LinkedFunction, Stage } from '../../ir/plan.js';
import { scoringBucket } from '../../ir/scoring.js';
import type { MaskKind } from '../../models/model/model.js';
import { planMemory } from '../../passes/planMemory.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { boundaryOf, stageRanges, stageStates, stageWeights } from '../../runtime/runtimePlan.js';
import { llama } from '../passes/llamaGraph.js';
import { bufferName, F32 } from '../passes/lowered.js';
import { environment } from '../passes/support.js';
import { planOf as runtimePlan } from '../support/scoring.js';

/** Nothing here is printed. */
type OneFunction = Omit<LinkedFunction, 'schedules'>;

const CAPACITY = scoringBucket({ tokens: 64, rows: 16, longest: 64 });

function planOf(mask: MaskKind, isTied = false): OneFunction {
  const module = lower(optimize(llama({ tieWordEmbeddings: isTied }, mask), F32), F32);
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

/** What one stage executes, as a module of its own. */
function part(fn: OneFunction, { first, end }: Stage): OneFunction {
  const run = new Set(fn.launches.slice(first, end).map(({ kernel }) => kernel));
  const weights = stageWeights(runtimePlan(fn), { score: { first, end } });
  return { ...fn, kernels: fn.kernels.filter(({ name }) => run.has(name)), weights };
}

describe('the stages of a plan', () => {
  const plan = planOf('tree');
  const count = plan.launches.length;

  it('hold the weights that their launches name', () => {
    for (let end = 1; end < count; end++) {
      for (const range of [
        { first: 0, end },
        { first: end, end: count },
      ]) {
        const used = new Set(plan.launches.slice(range.first, range.end).flatMap(({ parameters }) => parameters));
        expect(names(stageWeights(runtimePlan(plan), { score: range }))).toEqual(
          names(plan.weights).filter((name) => used.has(name)),
        );
      }
    }
  });

  it('are a single stage with everything if nothing is cut', () => {
    expect(stageRanges(runtimePlan(plan))).toEqual([{ score: { first: 0, end: count } }]);
  });

  it('hold the embedding table in the first stage and the head in the last, even if they are tied', () => {
    for (const whole of [plan, planOf('tree', true)]) {
      const tensors = (range: Stage): string[] =>
        stageWeights(runtimePlan(whole), { score: range }).flatMap(({ sources }) =>
          sources.map(({ tensor }) => tensor),
        );
      const [embed, head] =
        whole === plan
          ? ['model.embed_tokens.weight', 'lm_head.weight']
          : ['model.embed_tokens.weight', 'model.embed_tokens.weight'];
      const launches = whole.launches.length;
      expect(tensors({ first: 0, end: 2 })).toContain(embed);
      expect(tensors({ first: 2, end: launches - 2 })).not.toContain(embed);
      expect(tensors({ first: launches - 2, end: launches })).toContain(head);
    }
  });

  it.each([
    [[[0, 0]]],
    [[[3, 2]]],
    [[[-1, 2]]],
    [[[0, 2]]],
    [
      [
        [0, 2],
        [3, count],
      ],
    ],
    [
      [
        [0, 2],
        [2, 2],
        [2, count],
      ],
    ],
    [[[0.5, count]]],
  ])('are refused where they are not all launches in order: %j', (ranges) => {
    const score = ranges.map(([first, end]) => ({ first: first!, end: end! }));
    expect(() => stageRanges(runtimePlan(plan), { score })).toThrow(RangeError);
  });

  it('keep a state where it is used, and refuse a state that two of them use, unless each is to have its own', () => {
    const [first, ...others] = plan.launches;
    const using = (launch: Launch, name = 'kept'): Launch => ({ ...launch, parameters: [...launch.parameters, name] });
    const states = ['kept', 'own'].map((name) => ({ name, dtype: 'f32', rows: 5, columns: 40 }) as const);
    const buffers = [...plan.buffers, ...states.map((state) => ({ ...state, space: 'arena' }) as const)];
    const stages = stageRanges(runtimePlan(plan), {
      score: [
        { first: 0, end: 1 },
        { first: 1, end: count },
      ],
    });
    const statesOf = (launches: readonly Launch[], stage: number) =>
      stageStates({ ...runtimePlan({ ...plan, buffers, launches, states }), perStage: ['own'] }, stages, stage);
    // 5 rows are allocated as 32, 40 columns as 64.
    expect(statesOf([using(first!), ...others], 0)).toEqual([
      { name: 'kept', bytes: 32 * 64 * 4, rowBytes: 64 * 4, isReserved: false },
    ]);
    expect(statesOf([using(first!), ...others], 1)).toEqual([]);
    const allUsing = (name: string) => plan.launches.map((launch) => using(launch, name));
    expect(() => statesOf(allUsing('kept'), 0)).toThrow('stages 0 and 1 of the pipeline would share the state kept');
    for (const stage of [0, 1]) expect(names(statesOf(allUsing('own'), stage))).toEqual(['own']);
  });
});

describe('what crosses a cut', () => {
  it.each(['tree', 'metaPair', 'slidingWindow'] as const)(
    'is what the later launches need, and no more (%s)',
    (mask) => {
      const graph = optimize(llama({}, mask), F32);
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
      const run = (part: OneFunction, buffers: ReadonlyMap<string, Float64Array>): Map<string, Float64Array> =>
        interpretModule({ ...part, buffers: plan.buffers }, { sizes: env.sizes, buffers, tensors, round: false });
      const outputs = names(plan.buffers.filter(({ space }) => space === 'output'));
      const whole = run(plan, inputs);
      for (let end = 1; end < plan.launches.length; end++) {
        const made = run(part(plan, { first: 0, end }), inputs);
        const crossing = names(boundaryOf(plan, end));
        const later = part(plan, { first: end, end: plan.launches.length });
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

  it('is nothing before the first launch, and the outputs after the last', () => {
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
