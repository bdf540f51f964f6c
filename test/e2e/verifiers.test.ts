/**
 * Published heads and verifiers against goldens of transformers in float64: from text and from tokens, whole and in
 * chunks, cached and not, alone and beside generation. Needs the data folder beside the repository.
 */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { engineModelOf, engineOf } from '../../commands/engineModel.js';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { reward, type RewardResult, scoreSolutions } from '../../commands/reward.js';
import { chooseVerifier, openVerifier, type Verifier } from '../../commands/verifier.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import { Engine } from '../../engine/engine.js';
import { createTokenizer } from '../../models/tokenizer/tokenizer.js';
import { isThorough } from '../support/thorough.js';
import { SILENT } from '../support/silent.js';
import { asComputed, type Golden, goldensOf, linesOf, type VerifierName, VERIFIERS } from '../support/verifiers.js';
import { environment, isBuilt, ROOT, temporaryFolder } from './support.js';

const SHARED = join(ROOT, '..', 'shared');
const CHECKPOINTS = join(SHARED, 'checkpoints', 'verifiers');
const CACHE_TOKENS = 4096;
const OFF = 1e-4;

const hasGoldens = existsSync(CHECKPOINTS);
if (!hasGoldens)
  process.stderr.write('SKIPPED: verifiers against goldens: the folder ../shared is not beside the repository\n');

/** All solutions of a file, or some in a fast run. */
const some = (goldens: readonly Golden[]): readonly Golden[] => (isThorough ? goldens : goldens.slice(0, 6));
const FAST: readonly VerifierName[] = ['gemma2-seqcls', 'qwen-prm', 'rlhflow-prm'];
const isHere = (name: VerifierName): boolean => isThorough || FAST.includes(name);

const REQUEST = { init: { kind: 'checkpoint' as const }, precision: 'f32' as const, threads: 2 };

async function load(model: string): Promise<LoadedModel> {
  return beginLoading({ ...REQUEST, model, cacheTokens: CACHE_TOKENS }, SILENT, new Phases()).finish();
}

function expectGolden(results: readonly RewardResult[], goldens: readonly Golden[]): void {
  expect(results.map(({ id }) => id)).toEqual(goldens.map(({ id }) => id));
  results.forEach((result, i) => {
    const { tokens, rows, scores } = goldens[i]!;
    expect(result.tokens).toEqual(tokens);
    expect(result.rows).toEqual(rows);
    expect('scores' in result && result.scores).toHaveLength(scores.length);
    const found = 'scores' in result ? result.scores : [];
    const off = scores.map((score, row) => Math.abs(score - (found[row] as number)));
    expect(Math.max(...off)).toBeLessThan(OFF);
  });
}

const fileOf = (goldens: readonly Golden[], fields: readonly (keyof Golden)[]): string => {
  const path = join(temporaryFolder(), 'solutions.jsonl');
  writeFileSync(path, linesOf(goldens, fields));
  return path;
};

describe.skipIf(!hasGoldens || !isBuilt)('verifiers against goldens', () => {
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });

  describe.each(VERIFIERS.filter(isHere))('%s', (name) => {
    const goldens = some(goldensOf(SHARED, name));
    let folder: string;
    beforeAll(() => {
      folder = asComputed(SHARED, name, temporaryFolder());
    });

    it('from text and from tokens', async () => {
      const ask = { ...REQUEST, model: folder };
      const text = fileOf(goldens, ['id', 'question', 'steps']);
      const { results } = await reward({ ...ask, input: text }, SILENT);
      expectGolden(results, goldens);
      const tokens = fileOf(goldens, ['id', 'tokens', 'rows']);
      const again = await reward({ ...ask, input: tokens }, SILENT);
      expect(again.results.map((each) => 'scores' in each && each.scores)).toEqual(
        results.map((each) => 'scores' in each && each.scores),
      );
    });
  });

  describe.each((['qwen-prm', 'math-shepherd-prm'] as const).filter(isHere))('%s, whatever the company', (name) => {
    const goldens = some(goldensOf(SHARED, name));
    let model: LoadedModel;
    let verifier: Verifier;
    let wanted: readonly unknown[];
    const scoresOf = async (engine: Engine, of = goldens, own?: string): Promise<readonly unknown[]> => {
      const solutions = of.map(({ id, tokens, rows }) => ({ where: `${id}`, id, tokens, rows }));
      const results = await scoreSolutions(engine, verifier, solutions, { model: own }, () => undefined);
      expectGolden(results, of);
      return results.map((each) => 'scores' in each && each.scores);
    };
    beforeAll(async () => {
      model = await load(asComputed(SHARED, name, temporaryFolder()));
      const tokenizer = createTokenizer(model.tokenizer.spec);
      verifier = await openVerifier(model.checkpoint, chooseVerifier(model.checkpoint).language, tokenizer);
      wanted = await scoresOf(engineOf(model));
    });
    afterAll(() => model.close());

    it('has the same bits in chunks', async () => {
      for (const tokens of [7, 64]) {
        const engine = new Engine();
        const whole = deviceModelOf(model, CACHE_TOKENS);
        const limits = { ...whole.limits, tokens, rows: Math.min(tokens, 3) };
        engine.load('small', { replicas: [{ ...whole, limits }] });
        expect(await scoresOf(engine, goldens)).toEqual(wanted);
      }
    });

    it('has the same bits one by one, and from pages', async () => {
      const engine = engineOf(model);
      for (const [i, golden] of goldens.entries()) expect(await scoresOf(engine, [golden])).toEqual([wanted[i]]);
      const before = engine.countsOf().foundTokens;
      for (const [i, golden] of goldens.entries()) expect(await scoresOf(engine, [golden])).toEqual([wanted[i]]);
      expect(engine.countsOf().foundTokens).toBeGreaterThan(before);
    });

    it('has the same bits beside texts that another model generates', async () => {
      const writer = await load(join(ROOT, 'models', 'demo'));
      const engine = new Engine();
      engine.load('writer', engineModelOf(writer));
      engine.load('verifier', engineModelOf(model));
      const prompts = Array.from({ length: 6 }, (_, i) => [1, 17 + i, 300 + i]);
      const write = async (): Promise<unknown> =>
        Promise.all(
          prompts.map(async (prompt) => {
            const asked = { kind: 'generate', model: 'writer', prompt, maxNewTokens: 40 } as const;
            return (await engine.submit(asked).result()).map(({ tokens }) => tokens);
          }),
        );
      const texts = write();
      expect(await scoresOf(engine, goldens, 'verifier')).toEqual(wanted);
      expect(await write()).toEqual(await texts);
      await writer.close();
    });
  });
});
