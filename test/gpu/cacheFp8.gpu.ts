/**
 * Keys and values as codes (E4M3, int8) on a real device: kernels against float64 on the same codes, and with the same
 * bits under every schedule; steps with the bits of score in any batch and any pieces; answers near those of 16 bits.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { attentionSchedules } from '../../codegen/cuda/attention/schedules.js';
import type { LoadedModel } from '../../commands/loadModel.js';
import { searchBeams } from '../../engine/beams.js';
import { Engine } from '../../engine/engine.js';
import { label, reference, tolerance } from '../codegen/cuda/attentionCases.js';
import { attentionModule, type Shape } from '../codegen/cuda/attentionHarness.js';
import { PathWorld, type Piece, treeCall } from '../codegen/cuda/pathCases.js';
import { scoreSequences } from '../support/scoring.js';
import { Bench, skip } from './attentionBench.js';
import {
  demo,
  grouped,
  loadOnDevice,
  randomTokens,
  scoresOf,
  SEQUENCES as ALL,
  SHARED,
  stepperFor,
  write,
} from './sequences.js';

const CAPACITY = 4096;
const shape = (heads: number, kvHeads: number, headDim: number, dtype: 'bf16' | 'f16'): Shape => ({
  ...{ heads, kvHeads, headDim, dtype, out: 'f32', mask: 'path', scaled: 'e4m3' },
});
const SHAPES: readonly Shape[] = [
  shape(2, 2, 32, 'bf16'),
  shape(4, 2, 64, 'f16'),
  shape(8, 2, 128, 'bf16'),
  shape(7, 1, 80, 'bf16'),
  shape(12, 1, 256, 'bf16'),
  { ...shape(4, 1, 64, 'bf16'), cap: 3, window: 150 },
  { ...shape(8, 2, 128, 'bf16'), scaled: 'i8' },
  { ...shape(7, 1, 80, 'f16'), scaled: 'i8' },
];

describe('attention over codes on a device', { skip }, () => {
  let bench: Bench;
  before(() => {
    bench = new Bench();
  });
  after(() => {
    bench.release();
  });

  it('agrees with float64, with the same bits under every schedule', async () => {
    const pieces: Piece[] = [
      { sequence: 3, from: 10, to: 70 },
      { sequence: 4, from: 540, to: 600 },
      { sequence: 0, from: 0, to: 1 },
      { sequence: 2, from: 32, to: 33 },
    ];
    for (const s of SHAPES) {
      const { module, kernel } = attentionModule(s);
      const plans = attentionSchedules(kernel, module, bench.limits);
      await bench.prepare(
        plans.map((plan) => ({ s, plan })),
        CAPACITY,
      );
      const world = new PathWorld(s, [1, 5, 33, 70, 600], 3);
      for (const data of [world.call(pieces, { placement: 1 }), treeCall(s, 5)]) {
        let first: { readonly out: Float64Array; readonly want: Float64Array } | undefined;
        for (const plan of plans) {
          const { out, buffers } = await bench.run(s, plan, data, CAPACITY);
          first ??= { out, want: reference(s, data, buffers) };
          const { want } = first;
          const wrong = out.findIndex((x, i) => !(Math.abs(x - want[i]!) < 4 * tolerance(s, plan)));
          assert(wrong < 0, `${label(s, plan)}: element ${wrong} is ${out[wrong]!}, not ${want[wrong]!}`);
          if (plan.skeleton === 'mma') assert.deepEqual(out, first.out, `${JSON.stringify(plan)}: other bits`);
        }
      }
    }
  });
});

/** Those that fit a call of score. */
const SEQUENCES = ALL.filter(({ length }) => length <= 1024);
const REQUESTS = Array.from({ length: 96 }, (_, i) => ({
  prompt: [...(i % 5 === 0 ? SHARED.slice(0, 18) : []), ...randomTokens(100 + i, 3 + ((i * 11) % 23))],
  maxNewTokens: 8,
}));

/** Mean difference of a log-probability that codes may cause: those of random tokens vary widely. */
const MAX_ERROR = 0.3;

for (const [name, requestOf, kvCache] of [
  ['the demo checkpoint', () => demo, 'fp8'],
  ['a small model with random weights', grouped, 'fp8'],
  ['the demo checkpoint', () => demo, 'int8'],
  ['a small model with random weights', grouped, 'int8'],
] as const) {
  describe(`steps of ${name} over codes, ${kvCache}`, { skip }, () => {
    let model: LoadedModel;
    let wanted: readonly (readonly number[])[];
    before(async () => {
      model = await loadOnDevice(requestOf(), { feeds: true, logits: true, kvCache });
      wanted = await scoreSequences(model, SEQUENCES);
    });
    after(() => model.close());
    const generator = (limits = {}): Engine => Engine.of(stepperFor(model, { feeds: true }, limits));

    for (const tokens of [1, 16, 100, 1000])
      it(`give what score gives, to the bit, in calls of ${tokens} tokens`, async () => {
        assert.deepEqual(await scoresOf(generator({ tokens }), SEQUENCES), wanted);
      });

    it('write in batches of any size what they write together', async () => {
      const together = await write(generator(), REQUESTS);
      for (const batch of [1, 7, 64])
        assert.deepEqual(await write(generator(), REQUESTS.slice(0, batch)), together.slice(0, batch), `${batch}`);
      const paths = REQUESTS.map(({ prompt }, i) => [...prompt, ...together[i]!.tokens]);
      const found = await scoresOf(generator(), paths, (i) => REQUESTS[i]!.prompt.length);
      const right = together.map(({ logProbs }) => logProbs);
      assert.deepEqual(found, right, 'scored afterwards');
    });

    it('have beams with the bits of their own paths', async () => {
      const prompt = SEQUENCES[2]!;
      const beams = await searchBeams(generator(), { prompt, maxNewTokens: 12, beams: 4 });
      const paths = beams.map(({ tokens }) => [...prompt, ...tokens]);
      const right = beams.map(({ logProbs }) => logProbs);
      assert.deepEqual(await scoresOf(generator(), paths, () => prompt.length), right);
    });

    it('are near those of 16 bits', async () => {
      const plain = await loadOnDevice(requestOf(), { feeds: true });
      const other = (await scoreSequences(plain, SEQUENCES)).flat();
      await plain.close();
      const error = wanted.flat().reduce((sum, x, i) => sum + Math.abs(x - other[i]!), 0) / other.length;
      console.log(`${name}: mean difference to 16 bits ${error.toFixed(4)} (at most ${MAX_ERROR})`);
      assert(error > 0 && error < MAX_ERROR);
    });
  });
}
