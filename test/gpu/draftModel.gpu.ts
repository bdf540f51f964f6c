/**
 * Texts with a draft model on a real device: to the bit those without, whatever it proposes; and a model that drafts
 * for itself is always right.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { LoadedModel } from '../../commands/loadModel.js';
import { Engine } from '../../engine/engine.js';
import type { GenerateRequest } from '../../engine/request.js';
import type { KvCache } from '../../driver/precision.js';
import { deviceHere } from './device.js';
import {
  demo,
  grouped,
  loadOnDevice,
  type ModelRequest,
  randomTokens,
  SHARED,
  stepperFor,
  write,
} from './sequences.js';

const { skip } = await deviceHere();

const NEW_TOKENS = 24;
const REQUESTS: readonly GenerateRequest[] = Array.from({ length: 64 }, (_, i) => ({
  prompt: [...(i % 5 === 0 ? SHARED.slice(0, 18) : []), ...randomTokens(100 + i, 3 + ((i * 11) % 23))],
  maxNewTokens: NEW_TOKENS,
  ...(i % 3 === 0 ? { sampling: { temperature: 0.5 + (i % 7) / 4, seed: 77 + (i % 4) } } : {}),
}));

/** The same model with other made-up weights. */
const other = ({ model }: ModelRequest): ModelRequest => ({ model, init: { kind: 'random', seed: 4 }, threads: 2 });

const CASES: readonly (readonly [string, () => ModelRequest, KvCache])[] = [
  ['the demo checkpoint, which drafts for itself', () => demo, '16bit'],
  ['a model with random weights, which drafts for itself', () => other(grouped()), '16bit'],
  ['the same with a cache of fp8', () => other(grouped()), 'fp8'],
];

for (const [name, requestOf, kvCache] of CASES)
  describe(`drafts of ${name}`, { skip }, () => {
    let model: LoadedModel;
    /** The texts, and drafts by depth with those that were accepted. */
    const written = async (count: number, tokens: number) => {
      const engine = new Engine();
      const replicas = [stepperFor(model, { feeds: true })];
      const { vocabSize } = model.checkpoint.config;
      engine.load('model', { replicas, vocabSize, drafts: { tokens: Math.max(1, tokens) } });
      const requests = REQUESTS.slice(0, count);
      const texts = await write(engine, tokens > 0 ? requests : requests.map((each) => ({ ...each, drafts: false })));
      const { steps, drafts } = engine.statsOf();
      await engine.close();
      return { texts, steps, drafts };
    };

    before(async () => {
      const request = requestOf();
      model = await loadOnDevice(request, { feeds: true, draftModel: request.model, kvCache });
    });
    after(() => model.close());

    for (const count of [1, 8, 64])
      it(`leave ${count} texts as they are, and are all right`, async () => {
        const plain = await written(count, 0);
        assert.equal(plain.drafts.length, 0);
        for (const tokens of [1, 4, 7]) {
          const { texts, steps, drafts } = await written(count, tokens);
          assert.deepEqual(texts, plain.texts, `${tokens} drafts`);
          const [{ drafter, drafted, accepted } = { drafter: '', drafted: [], accepted: [] }] = drafts;
          assert.equal(drafter, 'model');
          assert(drafted.length === tokens && drafted[0]! > 0);
          assert.deepEqual(accepted, drafted);
          console.log(`${name}: ${count} texts, ${tokens} drafts: ${steps} steps, ${plain.steps} without`);
        }
      });
  });
