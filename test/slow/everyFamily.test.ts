/**
 * Every family in every use, by the commands that users have: what the table of docs/families.md says works has the
 * answers that it should have, and what it says is refused is refused in its words. One family:
 * `npx vitest run --project slow test/slow/everyFamily.test.ts -t qwen3.5`. Needs the data folder beside the
 * repository.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { beginLoading } from '../../commands/loadModel.js';
import { scoredRows, scoreInputs } from '../../commands/scorer.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import { Engine } from '../../engine/engine.js';
import { SCORE } from '../../ir/function.js';
import {
  type Answer,
  answersOf,
  environment,
  failure,
  isBuilt,
  ROOT,
  success,
  temporaryFolder,
  textOf,
  tilewright,
} from '../e2e/support.js';
import { FAMILY_CHECKPOINTS, RECURRENT_CHECKPOINTS } from '../support/familyCheckpoints.js';
import { type FamilyUse, usesOf } from '../support/familyTable.js';
import { ServeProcess } from '../support/serveProcess.js';
import { SILENT } from '../support/silent.js';

const SHARED = join(ROOT, '..', 'shared');
const FAMILIES = join(SHARED, 'checkpoints', 'families');
const QUESTIONS = 4;
const CACHE_TOKENS = 512;
const NEW_TOKENS = 8;
const PRECISE = ['--precision', 'f32'];
const COMPILED = ['--target', 'cpu', '--batch-tokens', '256'];
const PLACE = [...COMPILED, '--threads', '1'];
const CACHE = ['--cache-tokens', String(CACHE_TOKENS)];
/** Past windows and caps of these checkpoints, and past a page. The vocabularies have 1,536 pieces. */
const PROMPTS = [5, 40, 70].map((length, seed) =>
  Array.from({ length }, (_, i) => (i * 379 + 7 * i * i + seed) % 1500),
);

interface Text {
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
}

async function scored(model: string, ...flags: readonly string[]): Promise<readonly Answer[]> {
  const out = temporaryFolder();
  const data = ['--task', 'hellaswag', '--data', join(SHARED, 'data', 'hellaswag_val.jsonl.gz')];
  success(await tilewright(['run', model, ...data, '--limit', String(QUESTIONS), '--out', out, ...flags]));
  expect(textOf(out, 'samples')).not.toBe('');
  return answersOf(out);
}

async function texts(
  model: string,
  prompts: readonly (readonly number[])[],
  ...flags: readonly string[]
): Promise<readonly Text[]> {
  const file = join(temporaryFolder(), 'prompts.jsonl');
  writeFileSync(file, prompts.map((tokens) => `${JSON.stringify({ tokens })}\n`).join(''));
  const how = ['--json', '--ignore-eos', '--max-new-tokens', String(NEW_TOKENS), ...flags];
  const { stdout } = success(await tilewright(['generate', model, '--prompts', file, ...how]));
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => {
      const { tokens, logprobs } = JSON.parse(line) as Text;
      return { tokens, logprobs };
    });
}

/** The mean relative difference of log-likelihoods. */
function distance(answers: readonly Answer[], to: readonly Answer[]): number {
  const shares = answers.flatMap(({ ll }, i) => ll.map((x, choice) => Math.abs(x / to[i]!.ll[choice]! - 1)));
  return shares.reduce((sum, share) => sum + share, 0) / shares.length;
}

/** Computed once for all tests of a family. */
function once<T>(compute: () => Promise<T>): () => Promise<T> {
  let result: Promise<T> | undefined;
  return () => (result ??= compute());
}

/** What a narrow format changes at most, as a share of a log-likelihood: logits of random models are large. */
const NARROW_LOSS = 0.15;

const CHECKPOINTS = [...FAMILY_CHECKPOINTS, ...RECURRENT_CHECKPOINTS];

describe.skipIf(!existsSync(FAMILIES) || !isBuilt).each(CHECKPOINTS)('%s', { timeout: 900_000 }, (family) => {
  const model = join(FAMILIES, family);
  const said = usesOf(family);
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });

  /** A test of a use; where the table says that it is refused, that all of `refused` fail so. */
  function use(name: FamilyUse, refused: readonly (readonly string[])[], work: () => Promise<void>): void {
    const words = said[name];
    it(`${name}: ${words}`, async () => {
      if (words === 'yes') return work();
      for (const command of refused) expect(failure(await tilewright(command)).error).toContain(words);
      expect(refused).not.toHaveLength(0);
      return undefined;
    });
  }

  const answers = once(() => scored(model, ...PLACE, ...PRECISE));
  const written = once(() => texts(model, PROMPTS, ...PLACE, ...PRECISE, ...CACHE));

  use('score', [], async () => {
    const golden = readFileSync(join(SHARED, 'golden', 'families', `${family}.jsonl`), 'utf8').split('\n');
    const found = await answers();
    expect(found).toHaveLength(QUESTIONS);
    for (const { docId, ll } of found) {
      const { ll: wanted } = JSON.parse(golden[docId]!) as { ll: readonly number[] };
      ll.forEach((x, i) => expect(Math.abs(x - wanted[i]!)).toBeLessThan(0.01 + 1e-4 * Math.abs(wanted[i]!)));
    }
  });

  // Alone, three at a time, in pieces of a few tokens: what scoring says is most likely, with its bits.
  use('generate', [], async () => {
    const together = await written();
    for (const [i, prompt] of PROMPTS.entries())
      expect(await texts(model, [prompt], ...PLACE, ...PRECISE, ...CACHE)).toEqual([together[i]]);
    const request = {
      ...{ model, init: { kind: 'checkpoint' as const }, precision: 'f32' as const, threads: 1 },
      ...{ cacheTokens: CACHE_TOKENS, batchTokens: 256, feeds: true },
    };
    const loaded = await beginLoading(request, SILENT, new Phases()).finish();
    const device = deviceModelOf(loaded, CACHE_TOKENS, { feeds: true });
    for (const tokens of [13, 3]) {
      const limits = { ...device.limits, tokens, rows: Math.min(tokens, device.limits.rows ?? tokens) };
      const engine = Engine.of({ ...device, limits });
      const generated = await Promise.all(
        PROMPTS.map((prompt) => engine.generate({ prompt, maxNewTokens: NEW_TOKENS })),
      );
      const plain = generated.map(({ tokens: given }) => ({
        tokens: given.map(({ token }) => token),
        logprobs: given.map(({ logProb }) => logProb),
      }));
      expect(plain, `${tokens} tokens a call`).toEqual(together);
    }
    for (const [i, prompt] of PROMPTS.entries()) {
      const { tokens: given, logprobs } = together[i]!;
      const all = [...prompt, ...given];
      const places = Int32Array.from(all, (_, at) => at);
      const inputs = scoreInputs(
        {
          tokens: Int32Array.from(all),
          position: places,
          subtreeEnd: places.map(() => all.length),
          row: places.slice(prompt.length - 1, -1),
          target: Int32Array.from(given),
        },
        loaded.executor,
      );
      const { logProb, isArgmax } = scoredRows(await loaded.executor.call(SCORE, inputs));
      expect([...isArgmax]).toEqual(given.map(() => 1));
      expect([...logProb]).toEqual(logprobs);
    }
    await loaded.close();
  });

  use('serve', [], async () => {
    const together = await written();
    const server = await ServeProcess.open(model, [...PLACE, ...PRECISE, ...CACHE, '--served-model-name', 'served']);
    const served = await Promise.all(
      PROMPTS.map((prompt, i) =>
        server.complete({ prompt, max_tokens: NEW_TOKENS, ignore_eos: true, temperature: 0, stream: i > 0 }),
      ),
    );
    expect(await server.stop()).toBe(0);
    expect(served.map(({ tokens, logProbs: logprobs }) => ({ tokens, logprobs }))).toEqual(together);
  });

  use('dp, pp', [['generate', model, 'a', ...PLACE, ...PRECISE, '--parallel', 'pp=2']], async () => {
    for (const parallel of ['dp=2', 'pp=2']) {
      const flags = [...PLACE, ...PRECISE, '--parallel', parallel];
      expect(await scored(model, ...flags), parallel).toEqual(await answers());
      expect(await texts(model, PROMPTS, ...flags, ...CACHE), parallel).toEqual(await written());
    }
  });

  use('artifact', [], async () => {
    const artifact = join(temporaryFolder(), 'compiled.tw');
    success(await tilewright(['compile', model, ...COMPILED, ...PRECISE, ...CACHE, '-o', artifact]));
    expect(await scored(artifact, '--threads', '1')).toEqual(await answers());
    expect(await texts(artifact, PROMPTS, '--threads', '1')).toEqual(await written());
  });

  const narrow = ['int8', 'fp8'].map((format) => [...PLACE, ...PRECISE, '--kv-cache', format]);
  use(
    '8-bit caches',
    narrow.map((flags) => ['generate', model, 'a', ...flags]),
    async () => {
      const losses: number[] = [];
      for (const flags of narrow) {
        losses.push(distance(await scored(model, ...flags), await answers()));
        const together = await texts(model, PROMPTS, ...flags, ...CACHE);
        for (const [i, prompt] of PROMPTS.entries())
          expect(await texts(model, [prompt], ...flags, ...CACHE)).toEqual([together[i]]);
      }
      for (const loss of losses) expect(loss).toBeLessThan(NARROW_LOSS);
      expect(Math.min(...losses)).toBeGreaterThan(0);
    },
  );

  const rounded = [...PLACE, '--quantize', 'int8'];
  use('int8', [['run', model, '--task', 'hellaswag', '--data', 'none.jsonl', ...rounded]], async () => {
    const loss = distance(await scored(model, ...rounded), await answers());
    expect(loss).toBeLessThan(NARROW_LOSS);
    expect(loss).toBeGreaterThan(0);
    const together = await texts(model, PROMPTS, ...rounded, ...CACHE);
    for (const [i, prompt] of PROMPTS.entries())
      expect(await texts(model, [prompt], ...rounded, ...CACHE)).toEqual([together[i]]);
  });

  // What `quantize` writes is read as GPTQ.
  const copy = join(temporaryFolder(), 'copy');
  const quantize = ['quantize', model, '-o', copy, '--method', 'round', '--bits', '8', '--group', '-1'];
  use('GPTQ', [quantize], async () => {
    success(await tilewright(quantize));
    const loss = distance(await scored(copy, ...PLACE, ...PRECISE), await answers());
    expect(loss).toBeLessThan(NARROW_LOSS);
    expect(loss).toBeGreaterThan(0);
  });

  const hopper = ['inspect', model, '--target', 'cuda:sm_90a', '--quantize', 'fp8', ...CACHE];
  use('FP8 (Hopper)', [hopper], async () => {
    expect(success(await tilewright(hopper)).stdout).toMatch(/^8 bits +\d+ matrices/m);
  });
});
