/**
 * Published heads and verifiers against goldens of transformers in float64: from text and from tokens, whole and in
 * chunks, cached and not, alone and beside generation. Needs the data folder beside the repository.
 */
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
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
import { roundToDType } from '../../ir/round.js';
import { isThorough } from '../support/thorough.js';
import { SILENT } from '../support/silent.js';
import { environment, isBuilt, ROOT, temporaryFolder } from './support.js';

const SHARED = join(ROOT, '..', 'shared');
const CHECKPOINTS = join(SHARED, 'checkpoints', 'verifiers');
const CACHE_TOKENS = 4096;
const OFF = 1e-4;

interface Golden {
  readonly id: number;
  readonly question: string;
  readonly steps: readonly string[];
  readonly tokens: readonly number[];
  readonly rows: readonly number[];
  readonly scores: readonly number[];
}

const hasGoldens = (() => {
  try {
    return readdirSync(CHECKPOINTS).length > 0;
  } catch {
    process.stderr.write('SKIPPED: verifiers against goldens: the folder ../shared is not beside the repository\n');
    return false;
  }
})();

/** All solutions of a file, or some in a fast run. */
const some = (goldens: readonly Golden[]): readonly Golden[] => (isThorough ? goldens : goldens.slice(0, 6));
const NAMES = hasGoldens ? readdirSync(CHECKPOINTS).sort() : [];
const FAST = ['gemma2-seqcls', 'qwen-prm', 'rlhflow-prm'];
const isHere = (name: string): boolean => isThorough || FAST.includes(name);

const goldensOf = (name: string): readonly Golden[] =>
  readFileSync(join(SHARED, 'golden', 'verifiers', `${name}.jsonl`), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Golden);

/**
 * The checkpoint as the goldens were computed: their rotary frequencies had been rounded to bf16 with the weights,
 * which moves scores by up to 0.03. A copy of config.json states these frequencies, as factors of the exact ones.
 */
function asComputed(name: string): string {
  const from = join(CHECKPOINTS, name);
  const folder = join(temporaryFolder(), name);
  mkdirSync(folder);
  for (const file of readdirSync(from)) if (file !== 'config.json') symlinkSync(join(from, file), join(folder, file));
  const config = JSON.parse(readFileSync(join(from, 'config.json'), 'utf8')) as {
    head_dim?: number;
    hidden_size: number;
    num_attention_heads: number;
    max_position_embeddings: number;
    rope_parameters: { rope_theta: number };
  };
  const headDim = config.head_dim ?? config.hidden_size / config.num_attention_heads;
  const { rope_theta } = config.rope_parameters;
  const factors = Array.from({ length: headDim / 2 }, (_, pair) => {
    const exact = rope_theta ** ((-2 * pair) / headDim);
    return exact / roundToDType(exact, 'bf16');
  });
  const rope_parameters = {
    rope_type: 'longrope',
    rope_theta,
    short_factor: factors,
    long_factor: factors,
    original_max_position_embeddings: config.max_position_embeddings,
    factor: 1,
  };
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, rope_parameters }));
  return folder;
}

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

const linesOf = (goldens: readonly Golden[], fields: readonly (keyof Golden)[]): string => {
  const path = join(temporaryFolder(), 'solutions.jsonl');
  const lines = goldens.map((golden) => JSON.stringify(Object.fromEntries(fields.map((name) => [name, golden[name]]))));
  writeFileSync(path, lines.join('\n'));
  return path;
};

describe.skipIf(!hasGoldens || !isBuilt)('verifiers against goldens', () => {
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });

  describe.each(NAMES.filter(isHere))('%s', (name) => {
    const goldens = some(goldensOf(name));
    let folder: string;
    beforeAll(() => {
      folder = asComputed(name);
    });

    it('from text and from tokens', async () => {
      const ask = { ...REQUEST, model: folder };
      const text = linesOf(goldens, ['id', 'question', 'steps']);
      const { results } = await reward({ ...ask, input: text }, SILENT);
      expectGolden(results, goldens);
      const tokens = linesOf(goldens, ['id', 'tokens', 'rows']);
      const again = await reward({ ...ask, input: tokens }, SILENT);
      expect(again.results.map((each) => 'scores' in each && each.scores)).toEqual(
        results.map((each) => 'scores' in each && each.scores),
      );
    });
  });

  describe.each(['qwen-prm', 'math-shepherd-prm'].filter(isHere))('%s, whatever the company', (name) => {
    const goldens = some(goldensOf(name));
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
      model = await load(asComputed(name));
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
      const write = (): Promise<unknown> =>
        Promise.all(
          prompts.map((prompt) =>
            engine.submit({ kind: 'generate', model: 'writer', prompt, maxNewTokens: 40 }).result(),
          ),
        );
      const texts = write();
      expect(await scoresOf(engine, goldens, 'verifier')).toEqual(wanted);
      expect(await write()).toEqual(await texts);
      await writer.close();
    });
  });
});
