/**
 * The function step on a real device: sequences in pieces get the same bits however they are cut, whatever is computed
 * beside them, and whether their keys are computed, found, or computed again. Their log-probabilities are those of
 * `score`, and close to those of a CPU in f32. Each model is loaded once.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { drafterOf } from '../../draft/drafter.js';
import type { LoadedModel } from '../../commands/loadModel.js';
import { searchBeams } from '../../engine/beams.js';
import { Engine } from '../../engine/engine.js';
import type { GenerateRequest } from '../../engine/request.js';
import type { DeviceModel } from '../../engine/device.js';
import { scoreSequences } from '../support/scoring.js';
import { treesOf } from '../support/draftedTexts.js';
import { randomNumbers } from '../support/pathModel.js';
import { deviceHere } from './device.js';
import {
  demo,
  grouped,
  load,
  loadOnDevice,
  randomTokens,
  scoresOf,
  SEQUENCES,
  SHARED,
  stepperFor,
  write,
  type Written,
} from './sequences.js';

const { skip } = await deviceHere();

/** Prompts that decode together: every third is drawn, some begin alike. */
const MAX_BATCH = 256;
const NEW_TOKENS = 8;
const REQUESTS: readonly GenerateRequest[] = Array.from({ length: MAX_BATCH }, (_, i) => ({
  prompt: [...(i % 5 === 0 ? SHARED.slice(0, 18) : []), ...randomTokens(100 + i, 3 + ((i * 11) % 23))],
  maxNewTokens: NEW_TOKENS,
  ...(i % 3 === 0 ? { sampling: { temperature: 0.5 + (i % 7) / 4, seed: 77 + (i % 4) } } : {}),
}));

function meanDistance(a: readonly (readonly number[])[], b: readonly (readonly number[])[]): number {
  const differences = a.flatMap((values, i) => values.map((value, j) => Math.abs(value - b[i]![j]!)));
  return differences.reduce((sum, x) => sum + x, 0) / differences.length;
}

/** Gives every token itself: no call begins before the one before it has been read. */
const unfed = (model: DeviceModel): DeviceModel => ({ ...model, limits: { ...model.limits, keptRows: 0 } });

/** Mean error of a log-probability that 16-bit operands may cause. */
const MAX_ERROR = 0.1;
/** Sequences that fit the function score, whose calls here have 1,024 tokens. */
const fits = (tokens: readonly number[]): boolean => tokens.length <= 1024;

for (const [name, requestOf] of [
  ['the demo checkpoint', () => demo],
  ['a small model with random weights', grouped],
] as const) {
  describe(`steps of ${name}`, { skip }, () => {
    const request = requestOf();
    let model: LoadedModel;
    let sequences: readonly (readonly number[])[];
    let wanted: readonly (readonly number[])[];
    let together: readonly Written[];
    const stepper = (limits: Partial<DeviceModel['limits']> = {}, cacheTokens?: number): DeviceModel =>
      stepperFor(model, { feeds: true }, limits, cacheTokens);

    before(async () => {
      const begin = performance.now();
      model = await loadOnDevice(request, { feeds: true });
      console.log(`${name}: loaded in ${((performance.now() - begin) / 1000).toFixed(1)} s`);
      sequences = SEQUENCES.filter(({ length }) => length <= model.checkpoint.config.maxPositions);
      wanted = await scoresOf(Engine.of(stepper()), sequences);
      together = await write(Engine.of(stepper()), REQUESTS);
    });
    after(() => model.close());

    it('give what score gives, to the bit, and what f32 gives, closely', async () => {
      assert(wanted.flat().every(Number.isFinite));
      const short = sequences.filter(fits);
      const same = wanted.filter((_, i) => fits(sequences[i]!));
      assert.deepEqual(same, await scoreSequences(model, short), 'the function score');
      const cpu = await load({ ...request, precision: 'f32', target: 'cpu', batchTokens: 1024 });
      const error = meanDistance(same, await scoreSequences(cpu, short));
      await cpu.close();
      console.log(`${name}: mean error to f32 on a CPU ${error.toFixed(4)} (at most ${MAX_ERROR})`);
      assert(error < MAX_ERROR);
    });

    for (const tokens of [1, 16, 100, 1000])
      it(`give the same bits in calls of ${tokens} tokens`, async () => {
        assert.deepEqual(await scoresOf(Engine.of(stepper({ tokens })), sequences), wanted);
      });

    it('give the same bits one sequence at a time, beginning from pages', async () => {
      const generator = Engine.of(stepper());
      for (const [i, sequence] of sequences.entries()) {
        assert.deepEqual(await scoresOf(generator, [sequence]), [wanted[i]], `sequence ${i}`);
        // A prompt whose last token alone is scored takes the pages of the others as they are.
        const [last] = await scoresOf(generator, [sequence], () => Math.max(1, sequence.length - 1));
        assert.deepEqual(last, wanted[i]!.slice(-1), `sequence ${i}, from pages`);
      }
      assert(generator.countsOf().foundTokens > 0);
    });

    it('give the same bits where pages are taken away', async () => {
      const longest = Math.max(...sequences.map(({ length }) => length));
      const small = Engine.of(stepper({ tokens: 64 }, 16 * (Math.ceil(longest / 16) + 3)));
      assert.deepEqual(await scoresOf(small, sequences), wanted);
      assert(small.countsOf().evictions > 0);
    });

    for (const batch of [1, 2, 7, 64])
      it(`write in batches of ${batch} what they write in one of ${MAX_BATCH}`, async () => {
        // A few batches of few sequences stand for all of them.
        for (let from = 0; from < Math.min(MAX_BATCH, 4 * batch); from += batch)
          assert.deepEqual(
            await write(Engine.of(stepper()), REQUESTS.slice(from, from + batch)),
            together.slice(from, from + batch),
            `from ${from} on`,
          );
      });

    it('write the same where sequences give way and are computed again', async () => {
      const small = Engine.of(stepper({}, 16 * 60));
      assert.deepEqual(await write(small, REQUESTS.slice(0, 64)), together.slice(0, 64));
      const { preemptions, evictions } = small.countsOf();
      console.log(`${name}: ${preemptions} gave way, ${evictions} pages taken away`);
      assert(preemptions > 0 && evictions > 0);
    });

    it('write the same in small calls, and where each call waits for the tokens of the one before', async () => {
      const some = REQUESTS.slice(0, 32);
      assert.deepEqual(await write(Engine.of(stepper({ tokens: 5 })), some), together.slice(0, 32));
      assert.deepEqual(await write(Engine.of(unfed(stepper())), some), together.slice(0, 32));
    });

    it('write the same behind pages that were copied, and compute a prompt once for all its samples', async () => {
      const prompt = [...SHARED, ...randomTokens(3, 39)];
      const samples = Array.from({ length: 40 }, (_, sample) => ({
        prompt: [...prompt.slice(0, 89 - (sample % 13)), ...(sample % 4 === 0 ? [] : [sample])],
        maxNewTokens: 12,
        sampling: { temperature: 1, seed: 5 },
        sample,
      }));
      const alone: Written[] = [];
      for (const request of samples) alone.push(...(await write(Engine.of(stepper()), [request])));
      const all = Engine.of(stepper());
      assert.deepEqual(await write(all, samples), alone);
      const small = Engine.of(stepper({ tokens: 30 }, 16 * 40));
      assert.deepEqual(await write(small, samples), alone, 'with few pages');
      const repeated = Engine.of(stepper());
      await write(
        repeated,
        Array.from({ length: 20 }, (_, sample) => ({ ...samples[1]!, prompt, sample })),
      );
      assert.equal(repeated.countsOf().computedTokens, prompt.length + 19 + 20 * 11);
    });

    it('give rows by position and target the same bits, computed or from beside pages', async () => {
      const generator = Engine.of(stepper());
      for (const turn of [0, 1])
        for (const [i, tokens] of sequences.entries()) {
          const rows = tokens.slice(1).map((_, position) => ({ position }));
          const found = await generator.submit({ kind: 'score', tokens, rows }).result();
          assert.deepEqual(
            found.map(({ logProb }) => logProb),
            wanted[i],
            `sequence ${i}, turn ${turn}`,
          );
        }
      const [tokens] = sequences.slice(4);
      const rows = [{ position: 300 }, { position: 33, target: 5 }, { position: 33 }];
      const [late, , next] = await generator.submit({ kind: 'score', tokens: tokens!, rows }).result();
      assert.deepEqual([late!.logProb, next!.logProb], [wanted[4]![300], wanted[4]![33]]);
    });

    it('write the same with drafts, right, wrong and in between, also where pages are taken away', async () => {
      const right = REQUESTS.slice(0, 48).map(({ prompt }, i) => ({
        from: prompt.length,
        tokens: together[i]!.tokens,
      }));
      for (const [wrong, cacheTokens] of [
        [0, undefined],
        [1, 16 * 60],
        [3, undefined],
      ] as const) {
        const drafted = REQUESTS.slice(0, 48).map((each, i) => ({
          ...each,
          drafts: drafterOf((tokens) =>
            right[i]!.tokens.slice(tokens.length - right[i]!.from).map((token, at) =>
              wrong > 0 && (tokens.length + at) % (wrong + 1) === 0 ? 7 : token,
            ),
          ),
        }));
        const generator = Engine.of(stepper({}, cacheTokens));
        assert.deepEqual(await write(generator, drafted), together.slice(0, 48), `wrong: ${wrong}`);
        const alone = await write(Engine.of(stepper()), drafted.slice(0, 1));
        assert.deepEqual(alone, together.slice(0, 1), `alone, wrong: ${wrong}`);
      }
    });

    it('write the same with trees of drafts, alone and in batches, also where pages are taken away', async () => {
      const random = randomNumbers(12);
      const vocab = 200;
      for (const [count, cacheTokens] of [
        [1, undefined],
        [8, undefined],
        [64, undefined],
        [48, 16 * 70],
      ] as const)
        for (const right of [0.9, 0.5, 0]) {
          const generator = Engine.of(stepper({}, cacheTokens));
          const drafted = REQUESTS.slice(0, count).map((each, i) => ({
            ...each,
            drafts: treesOf(together[i]!.tokens, { random, right, chained: 0.3, vocab }),
          }));
          assert.deepEqual(await write(generator, drafted), together.slice(0, count), `${count}, right: ${right}`);
          if (right > 0.8) console.log(`${name}: ${count} with trees: ${generator.countsOf().calls} calls`);
        }
    });

    it('score what was written as it was written', async () => {
      const paths = REQUESTS.map(({ prompt }, i) => [...prompt, ...together[i]!.tokens]);
      const lengths = REQUESTS.map(({ prompt }) => prompt.length);
      const found = await scoresOf(Engine.of(stepper()), paths, (i) => lengths[i]!);
      const right = together.map(({ logProbs }) => logProbs);
      assert.deepEqual(found, right, 'by step');
      const few = paths.slice(0, 16);
      const byScore = (await scoreSequences(model, few)).map((values, i) => values.slice(lengths[i]! - 1));
      assert.deepEqual(byScore, right.slice(0, 16), 'by the function score');
    });
  });
}

describe('beams of the demo checkpoint', { skip }, () => {
  it('have the bits of their own paths, scored afterwards', async () => {
    const model = await loadOnDevice(demo, { logits: true });
    const generator = (): Engine => Engine.of(stepperFor(model, {}));
    for (const prompt of [SEQUENCES[2]!, SHARED]) {
      const beams = await searchBeams(generator(), { prompt, maxNewTokens: 20, beams: 4 });
      assert.equal(beams.length, 4);
      const paths = beams.map(({ tokens }) => [...prompt, ...tokens]);
      const right = beams.map(({ logProbs }) => logProbs);
      assert.deepEqual(await scoresOf(generator(), paths, () => prompt.length), right, 'by step');
      const byScore = (await scoreSequences(model, paths)).map((values) => values.slice(prompt.length - 1));
      assert.deepEqual(byScore, right, 'by the function score');
    }
    await model.close();
  });
});
