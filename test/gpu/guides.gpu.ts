/**
 * Guided texts on a real device: what masking by hand gives of the device's own scores, and the same bits alone, in
 * company, with calls that overlap or not, in few filtered rows, and where pages are taken away.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { LoadedModel } from '../../commands/loadModel.js';
import type { DeviceModel } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import type { GenerateRequest } from '../../engine/request.js';
import { chosenByHand } from '../support/guidedByHand.js';
import { type MadeUpGuide, madeUpGuide } from '../support/guides.js';
import { tokensOf, treesOf } from '../support/draftedTexts.js';
import { randomNumbers } from '../support/pathModel.js';
import { deviceHere } from './device.js';
import { CACHE_TOKENS, demo, loadOnDevice, randomTokens, scoresOf, stepperFor } from './sequences.js';

const { skip } = await deviceHere();

const VOCAB = 4096;
/** Most have guides: some answer at once, others after a while. Few tokens are allowed, or half of them. */
const REQUESTS = Array.from({ length: 160 }, (_, i): GenerateRequest & { readonly guide?: MadeUpGuide } => ({
  prompt: randomTokens(300 + i, 3 + ((i * 11) % 40)),
  maxNewTokens: 24,
  sampling: [{}, { temperature: 0.9, seed: i }, { temperature: 1, topP: 0.9, seed: i }, { repetitionPenalty: 1.3 }][
    i % 4
  ]!,
  ...(i % 5 === 4
    ? {}
    : { guide: madeUpGuide({ vocab: VOCAB, seed: i % 9, oneIn: i % 8 < 4 ? 400 : 2, turns: () => (i % 3) * 2 }) }),
}));

describe('guided texts on a device', { skip }, () => {
  let model: LoadedModel;
  const stepper = (limits: Partial<DeviceModel['limits']> = {}, cacheTokens = CACHE_TOKENS): DeviceModel =>
    stepperFor(model, { feeds: true }, limits, cacheTokens);
  /** All end before one that fails is reported: engines share the table of the device, so one follows another. */
  const write = async (engine: Engine, requests: readonly GenerateRequest[] = REQUESTS) => {
    const texts = requests.map((request) => engine.generate(request));
    await Promise.allSettled(texts);
    return (await Promise.all(texts)).map(({ tokens }) => tokens);
  };
  before(async () => {
    model = await loadOnDevice(demo, { logits: true, feeds: true });
  });
  after(() => model.close());

  it('are the same in any company and order of calls, to the bit', async () => {
    const together = await write(Engine.of(stepper()));
    assert.deepEqual(await write(Engine.of(stepper({ keptRows: 0 }))), together, 'calls one after another');
    assert.deepEqual(
      await write(Engine.of(stepper({ filtered: 3, tokens: 37 }))),
      together,
      'few filtered rows a call',
    );
    const few = Engine.of(stepper({}, 16 * 96));
    assert.deepEqual(await write(few), together, 'few pages');
    assert.ok(few.countsOf().preemptions > 0);
    for (const i of [0, 1, 2, 3, 4, 61])
      assert.deepEqual((await write(Engine.of(stepper()), [REQUESTS[i]!]))[0], together[i], `request ${i}`);
    const paths = REQUESTS.map(({ prompt }, i) => [...prompt, ...together[i]!.map(({ token }) => token)]);
    assert.deepEqual(
      await scoresOf(Engine.of(stepper()), paths, (i) => REQUESTS[i]!.prompt.length),
      together.map((tokens) => tokens.map(({ logProb }) => logProb)),
      'log-probabilities are those of scoring',
    );
  });

  it('are the same with trees of drafts, of which only what may come is computed', async () => {
    const together = await write(Engine.of(stepper()));
    const random = randomNumbers(6);
    for (const [count, limits] of [
      [160, {}],
      [8, {}],
      [1, {}],
      [60, { filtered: 20 }],
    ] as const)
      for (const right of [0.9, 0.4]) {
        const drafted = REQUESTS.slice(0, count).map((request, i) => ({
          ...request,
          drafts: treesOf(tokensOf({ tokens: together[i]! }), { random, right, chained: 0.5, vocab: VOCAB }),
        }));
        const engine = Engine.of(stepper(limits));
        assert.deepEqual(await write(engine, drafted), together.slice(0, count), `${count}, right: ${right}`);
        console.log(`guided, ${count}, right ${right}: ${engine.countsOf().calls} calls`);
      }
  });

  it('are what masking by hand gives', async () => {
    const engine = Engine.of(stepper());
    const texts = await write(engine);
    let [places, others] = [0, 0];
    for (const [i, { guide, ...request }] of REQUESTS.entries()) {
      if (guide === undefined || i % 8 >= 4 || i % 4 > 1) continue;
      const tokens = texts[i]!.map(({ token }) => token);
      const chosen = await chosenByHand(engine, request, guide, tokens);
      places += tokens.length;
      others += tokens.filter((token, at) => token !== chosen[at]).length;
    }
    // Scores are in f32: a draw may fall to the other of two that differ by a rounding.
    assert.ok(places > 500 && others <= 1, `${others} of ${places} tokens are others`);
  });
});
