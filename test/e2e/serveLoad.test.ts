/**
 * The server under load, in short (test/slow/serveLoad.test.ts has more): the bits of `generate` in any company,
 * clients that go away, and a device that ends in the middle of streams.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { randomOf } from '../fuzz/mutate.js';
import { type Answer, type Body, ServeProcess } from '../support/serveProcess.js';
import { allGone } from './children.js';
import { CONFIG, CONTEXT, writeCheckpoint } from './smallModel.js';
import { CAPACITY, isBuilt, success, temporaryFolder, tilewright } from './support.js';
import { isThorough } from '../support/thorough.js';

const PLACE = ['--target', 'cpu', '--precision', 'f32', ...CAPACITY, '--cache-tokens', '512', '--threads', '2'];
/** A whole number below `count`. */
const below = (random: () => number, count: number): number => Math.floor(random() * count);

const NEW = 24;
const PROMPTS = isThorough ? 16 : 6;

/** What `generate` prints for a prompt. */
interface Line {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
  readonly reason: string;
}

const SAMPLED = { temperature: 0.8, seed: 11, top_p: 0.9, top_k: 40 };
/** Log-probabilities beside the tokens are asked for so that both have the same functions. */
const WAYS = [
  ['greedy', { temperature: 0 }, ['--temperature', '0', '--top-logprobs', '1']],
  ['sampled', SAMPLED, ['--temperature', '0.8', '--seed', '11', '--top-p', '0.9', '--top-k', '40']],
] as const;

describe.skipIf(!isBuilt)('a server under load', () => {
  const model = writeCheckpoint();
  const random = randomOf(3);
  const prompts = Array.from({ length: PROMPTS }, () =>
    Array.from({ length: 2 + below(random, 20) }, () => 1 + below(random, CONFIG.vocab_size - 1)),
  );
  let server: ServeProcess;
  beforeAll(async () => {
    server = await ServeProcess.open(model, [...PLACE, '--served-model-name', 'served'], ['--no-opt']);
  });
  afterAll(async () => {
    expect(await server.stop()).toBe(0);
  });

  const seen = ({ text, tokens, logProbs, outcome: { error } }: Answer) => ({ text, tokens, logProbs, error });

  it('answers with the bits of generate: greedy or sampled, streamed or whole, alone or among others', async () => {
    const file = join(temporaryFolder(), 'prompts.jsonl');
    writeFileSync(file, prompts.map((tokens) => `${JSON.stringify({ tokens })}\n`).join(''));
    const bodies: { readonly body: Body; readonly wanted: object }[] = [];
    for (const [, options, flags] of WAYS) {
      const given = ['--prompts', file, '--json', '--max-new-tokens', String(NEW), ...flags, ...PLACE];
      const { stdout } = success(await tilewright(['generate', model, ...given]));
      const lines = stdout.trimEnd().split('\n');
      for (const [i, line] of lines.entries()) {
        const { text, tokens, logprobs: logProbs } = JSON.parse(line) as Line;
        const wanted = { text, tokens, logProbs, error: undefined };
        for (const stream of [true, false])
          bodies.push({ body: { prompt: prompts[i], max_tokens: NEW, ...options, stream }, wanted });
      }
    }
    expect(bodies).toHaveLength(4 * PROMPTS);
    for (const { body, wanted } of bodies.slice(0, 4)) expect(seen(await server.complete(body))).toEqual(wanted);
    const among = await Promise.all(bodies.map(({ body }) => server.complete(body)));
    expect(among.map(seen)).toEqual(bodies.map(({ wanted }) => wanted));
    // The prompt is found in pages now.
    expect(seen(await server.complete(bodies[1]!.body))).toEqual(bodies[1]!.wanted);
  });

  it('forgets clients that go away', async () => {
    const before = server.files();
    const outcomes = await Promise.all(
      Array.from({ length: isThorough ? 120 : 40 }, (_, i) =>
        server.complete(
          { prompt: prompts[i % PROMPTS], max_tokens: 100, ignore_eos: true, stream: i % 3 > 0 },
          { abortAfter: i % 3 === 0 ? 0 : below(random, 20) },
        ),
      ),
    );
    expect(outcomes.every(({ outcome }) => outcome.isAborted)).toBe(true);
    await expect.poll(() => server.held()).toEqual([0, 0, 0]);
    await expect.poll(() => server.files()).toBeLessThanOrEqual(before + 8);
  });

  it('goes on with the same text where a device ends in the middle of streams', async () => {
    const bodies = prompts.slice(0, 6).map((prompt, i) => ({
      ...{ prompt, stream: true, ignore_eos: true, max_tokens: CONTEXT - 40 },
      ...(i % 2 === 0 ? { temperature: 0 } : SAMPLED),
    }));
    const wanted = await Promise.all(bodies.map((body) => server.complete(body)));
    const devices = server.devices();
    expect(devices).toHaveLength(1);
    let events = 0;
    const kill = (): void => {
      if (++events === 60) process.kill(devices[0]!, 'SIGKILL');
    };
    const found = await Promise.all(bodies.map((body) => server.complete(body, { onData: kill })));
    expect(found.map(seen)).toEqual(wanted.map(seen));
    await allGone(devices);
    expect(server.devices()).not.toEqual(devices);
  });
});
