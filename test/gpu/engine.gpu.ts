/**
 * An engine of two models in the process of a real device, with requests that come and go at random: texts with several
 * samples, rows of given tokens, readers that are slow or leave. What each gets has the bits that it has alone, and is
 * the beginning of it where it was cut short.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { engineModelOf } from '../../commands/engineModel.js';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { DeviceHost } from '../../driver/devices/deviceHost.js';
import { Phases } from '../../driver/phases.js';
import { Engine } from '../../engine/engine.js';
import type { ContinuationRequest, Generated, ScoreRequest } from '../../engine/request.js';
import { SILENT } from '../support/silent.js';
import { deviceHere } from './device.js';
import { demo, grouped, randomTokens, SHARED } from './sequences.js';

const { skip } = await deviceHere();

const NAMES = ['demo', 'grouped'] as const;
const REQUESTS = 300;

/** Random numbers below a bound. */
function numbers(seed: number): (bound: number) => number {
  let state = seed;
  return (bound) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * bound);
  };
}

/** Prompts of 1 to 200 tokens, some of which begin alike. Every third text is drawn, in several samples. */
const textOf = (i: number): ContinuationRequest => ({
  kind: 'generate',
  model: NAMES[i % 2]!,
  prompt: [...(i % 5 === 0 ? SHARED.slice(0, 41) : []), ...randomTokens(500 + i, 1 + ((i * 37) % 160))],
  maxNewTokens: 4 + ((i * 7) % 40),
  ...(i % 3 === 0 ? { n: 1 + (i % 4), sampling: { temperature: 0.9, seed: i } } : {}),
});

const rowsOf = (i: number): ScoreRequest => {
  const tokens = [...SHARED.slice(0, i % 50), ...randomTokens(900 + i, 20 + ((i * 13) % 300))];
  return {
    kind: 'score',
    model: NAMES[i % 2]!,
    tokens,
    rows: [3, 17, tokens.length - 2].map((position) => ({ position })),
  };
};

const idsOf = ({ tokens }: Generated): readonly (readonly number[])[] =>
  tokens.map(({ token, logProb }) => [token, logProb]);

describe('an engine on one device', { skip }, () => {
  const engine = new Engine();
  const loaded: LoadedModel[] = [];
  before(async () => {
    const host = new DeviceHost();
    for (const [i, request] of [demo, grouped()].entries()) {
      const asked = { ...request, target: 'cuda', precision: 'bf16', batchTokens: 1024, feeds: true } as const;
      // So little memory that sequences give way to others.
      const model = await beginLoading({ ...asked, cacheTokens: 2048 }, SILENT, new Phases(), { host }).finish();
      loaded.push(model);
      engine.load(NAMES[i]!, { ...engineModelOf(model), close: () => model.close() });
    }
  });
  after(() => engine.close());

  it('gives requests that come and go at random what each gets alone', async () => {
    const alone: (readonly (readonly (readonly number[])[])[])[] = [];
    const rowsAlone: unknown[] = [];
    for (let i = 0; i < REQUESTS; i++) {
      if (i % 4 === 3) rowsAlone[i] = await engine.submit(rowsOf(i)).result();
      else alone[i] = (await engine.submit(textOf(i)).result()).map(idsOf);
    }
    for (let round = 0; round < 3; round++) {
      const random = numbers(round);
      let cut = 0;
      const one = async (i: number): Promise<void> => {
        for (let turns = random(400); turns > 0; turns--) await nextTurn();
        if (i % 4 === 3) return assert.deepEqual(await engine.submit(rowsOf(i)).result(), rowsAlone[i]);
        const handle = engine.submit({ ...textOf(i), maxHeld: 1 + random(8), priority: random(3) });
        /** After so many events its reader loses interest; most never do. */
        let left = random(3) === 0 ? random(30) : Infinity;
        for await (const event of handle) {
          if (event.kind === 'failed') throw event.error;
          if (left-- <= 0) handle.cancel();
          if (random(10) === 0) await nextTurn();
          if (event.kind !== 'end') continue;
          const found = idsOf(event.result);
          const whole = alone[i]![event.sample]!;
          assert.deepEqual(found, whole.slice(0, found.length));
          if (event.result.reason === 'aborted') cut++;
          else assert.equal(found.length, whole.length);
        }
      };
      await Promise.all(Array.from({ length: REQUESTS }, (_, i) => one(i)));
      const preemptions = NAMES.map((name) => engine.countsOf(name).preemptions);
      console.log(`round ${round}: ${cut} texts cut short; preemptions so far: ${preemptions.join(' and ')}`);
      assert(cut > 10);
    }
    assert(engine.countsOf('demo').preemptions > 0);
  });

  it('unloads a model while the other computes', async () => {
    const handle = engine.submit({ ...textOf(0), maxNewTokens: 200 });
    await assert.rejects(engine.unload('demo'), /has 1 request in work/);
    await engine.unload('grouped');
    const [text] = await handle.result();
    assert.equal(text!.reason, 'length');
  });
});
