/** Attention over paths has the same bits under every legal schedule, run over fibres. */
import { describe, expect, it } from 'vitest';
import { rowsOf } from '../codegen/cuda/attentionCases.js';
import { emulate, prepare } from '../codegen/cuda/attentionHarness.js';
import { PathWorld } from '../codegen/cuda/pathCases.js';
import { BITS, LONG, schedulesOf } from '../codegen/cuda/pathSchedules.js';
import { expectSame } from '../support/numbers.js';

const CAPACITY = 2048;
const OPTIONS = { tokensCapacity: CAPACITY };

prepare([...BITS, LONG].flatMap((s) => schedulesOf(s).map((plan) => ({ s, plan, capacity: CAPACITY }))));

describe.each(BITS)('an answer over a path of $dtype, $heads/$kvHeads heads of $headDim', (s) => {
  const world = new PathWorld(s, [45, 1, 70, 18], 7);
  const plans = schedulesOf(s);
  const data = world.call(world.whole);
  const whole = emulate(s, plans[0]!, data, OPTIONS).out;

  it('has the same bits under every legal schedule', () => {
    expect(plans.length).toBeGreaterThan(3);
    for (const plan of plans) expectSame(emulate(s, plan, data, OPTIONS).out, whole, JSON.stringify(plan));
  });

  it('is not affected by a NaN that it does not see, under the last schedule', () => {
    const spoilt = world.call(world.whole);
    const columns = s.kvHeads * s.headDim;
    const place = spoilt.inputs.get('key')![40]!;
    for (const name of ['k', 'v']) spoilt.inputs.get(name)!.fill(NaN, place * columns, (place + 1) * columns);
    const { out } = emulate(s, plans.at(-1)!, spoilt, OPTIONS);
    const width = s.heads * s.headDim;
    expectSame(rowsOf(out, width, 0, 40), rowsOf(whole, width, 0, 40), 'before');
    expectSame(rowsOf(out, width, 45, data.T), rowsOf(whole, width, 45, data.T), 'other sequences');
  });
});

it('has the same bits over several chunks of keys under every schedule', () => {
  const world = new PathWorld(LONG, [1100, 40], 3);
  const data = world.call([{ sequence: 0, from: 1000, to: 1100 }]);
  const [first, ...others] = schedulesOf(LONG);
  const right = emulate(LONG, first!, data, OPTIONS).out;
  for (const plan of others) expectSame(emulate(LONG, plan, data, OPTIONS).out, right, JSON.stringify(plan));
});
