/**
 * Two contractions in a row with slots for adapters, compiled from a graph: y = (x·W₀ᵀ)·W₁ᵀ, each row by its own
 * adapter. All elements of a matrix are the same, so that sums are known.
 */
import type { Scheduling } from '../../codegen/scheduling.js';
import { SlotImage } from '../../driver/adapters/slotImage.js';
import { type Graph, GraphBuilder } from '../../ir/graph/graph.js';
import type { WeightDecl } from '../../ir/kernel.js';
import { physicalToLogical } from '../../ir/packing.js';
import type { Plan } from '../../ir/plan.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import type { SlotWrite } from '../../runtime/weightPlan.js';
import type { Numerics } from '../../passes/numerics.js';
import { planOf } from './plans.js';

export const SLOTS = 3;
const RANK = 16;
/** Columns of x, between the contractions, and of y. */
export const [WIDTH, MIDDLE, LAST] = [32, 64, 16];

function graph(): Graph {
  const b = new GraphBuilder('mix', [{ name: 'T', counts: 'tokens' }]);
  const x = b.param('x', 'f32', ['T', WIDTH]);
  const first = b.scope('first', () => b.add('linear', { x, w: b.weight('w0', 'f32', [MIDDLE, WIDTH]) }, {}, 'middle'));
  return b.scope('second', () =>
    b.finish([b.add('linear', { x: first, w: b.weight('w1', 'f32', [LAST, MIDDLE]) }, {}, 'y')], ['y']),
  );
}

/** Four launches: each contraction behind the kernel that shrinks its rows. */
export const adaptedPlan = <S, F>(
  scheduling: Pick<Scheduling<S, F>, 'default'>,
  facts: F,
  numerics: Numerics,
): Plan<S> =>
  planOf([graph()], { mix: [4, 40].map((T) => ({ extents: { T }, longest: 0 })) }, scheduling, facts, {
    ...numerics,
    adapters: { slots: SLOTS, rank: RANK },
  });

/** W₀ is 1/8 and W₁ 1/4: all numbers on the way have few bits. */
export const adaptedTensors = (): Map<string, TensorSource> =>
  new Map([
    ['w0', { kind: 'constant', format: 'f32', shape: [MIDDLE, WIDTH], value: 1 / 8 }],
    ['w1', { kind: 'constant', format: 'f32', shape: [LAST, MIDDLE], value: 1 / 4 }],
  ]);

/** An adapter of rank 1, whose factors are `value` and `value`/4, and whose scale is 2, in every matrix. */
export const writesOf = (weights: readonly WeightDecl[], slot: number, value: number): readonly SlotWrite[] =>
  weights.flatMap((weight): SlotWrite[] => {
    if (weight.slots === undefined) return [];
    const { holds } = weight.slots;
    const columns = physicalToLogical(weight);
    const image = new SlotImage(weight, columns.length);
    const row = new Float32Array(weight.k).fill(value);
    columns.forEach((logical, column) => {
      if (logical < 0 || (holds === 'a' && logical > 0)) return;
      if (holds === 'scale') image.set(column, Float32Array.of(2), 0, 1);
      else
        image.set(
          column,
          row.map((v, i) => (holds === 'a' ? v : i === 0 ? v / 4 : 0)),
          0,
          weight.k,
        );
    });
    return [{ weight: weight.name, slot, data: image.bytes }];
  });

/** y of rows whose elements of x are all 1, with an adapter of writesOf. */
export function resultOf(value: number): number {
  const middle = WIDTH / 8 + 2 * (value / 4) * value * WIDTH;
  return middle * (MIDDLE / 4 + 2 * (value / 4) * value * MIDDLE);
}
