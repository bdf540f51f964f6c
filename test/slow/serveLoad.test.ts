/**
 * A server under load: a thousand streams beside thousands of idle connections, five hundred requests of which each has
 * the bits of `generate`, clients that go away or stop reading, devices that end, and memory over a long run.
 */
import { writeFileSync } from 'node:fs';
import { once } from 'node:events';
import net from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { IdleConnections } from '../../bench/load/beside.js';
import { randomOf } from '../fuzz/mutate.js';
import { CONFIG, CONTEXT, writeCheckpoint } from '../e2e/smallModel.js';
import { isBuilt, success, temporaryFolder, tilewright } from '../e2e/support.js';
import { type Answer, type Body, ServeProcess } from '../support/serveProcess.js';

const PLACE = [
  ...['--target', 'cpu', '--precision', 'f32', '--batch-tokens', '1024', '--cache-tokens', '180000', '--threads', '2'],
];
const SAMPLED = { temperature: 0.9, seed: 5, top_p: 0.95 };

const below = (random: () => number, count: number): number => Math.floor(random() * count);

const promptsOf = (seed: number, count: number): readonly (readonly number[])[] => {
  const random = randomOf(seed);
  return Array.from({ length: count }, () =>
    Array.from({ length: 2 + below(random, 30) }, () => 1 + below(random, CONFIG.vocab_size - 1)),
  );
};

const seen = ({ text, tokens, logProbs, outcome: { error } }: Answer) => ({ text, tokens, logProbs, error });

describe.skipIf(!isBuilt)('a server under much load', { timeout: 900_000 }, () => {
  const model = writeCheckpoint();
  let server: ServeProcess;
  beforeAll(async () => {
    server = await ServeProcess.open(model, [...PLACE, '--served-model-name', 'served'], ['--trace-gc']);
  }, 600_000);
  afterAll(async () => {
    expect(await server.stop()).toBe(0);
    expect(server.stderr).toMatch(/^stopping: .*\n$/);
  });

  /** What `generate` gives for each prompt. */
  async function generated(prompts: readonly (readonly number[])[], most: number, flags: readonly string[]) {
    const file = join(temporaryFolder(), 'prompts.jsonl');
    writeFileSync(file, prompts.map((tokens) => `${JSON.stringify({ tokens })}\n`).join(''));
    const given = ['--prompts', file, '--json', '--max-new-tokens', String(most), ...flags, ...PLACE];
    const { stdout } = success(await tilewright(['generate', model, ...given]));
    return stdout
      .trimEnd()
      .split('\n')
      .map((line) => {
        const { text, tokens, logprobs } = JSON.parse(line) as Readonly<Record<string, unknown>>;
        return { text, tokens, logProbs: logprobs, error: undefined };
      });
  }

  it('gives each of 500 requests at once the bits of generate', async () => {
    const prompts = promptsOf(1, 250);
    const greedy = await generated(prompts, 40, ['--temperature', '0', '--top-logprobs', '1']);
    const sampled = await generated(prompts, 40, ['--temperature', '0.9', '--seed', '5', '--top-p', '0.95']);
    const ask = (options: Body) =>
      prompts.map((prompt, i) => server.complete({ prompt, max_tokens: 40, stream: i % 2 === 0, ...options }));
    const found = await Promise.all([...ask({ temperature: 0 }), ...ask(SAMPLED)]);
    expect(found.map(seen)).toEqual([...greedy, ...sampled]);
  });

  it('streams to 1,000 clients beside 5,000 connections that say nothing', async () => {
    const before = server.files();
    const prompts = promptsOf(2, 1000);
    const some = prompts.slice(0, 20);
    const bodyOf = (prompt: readonly number[]) => ({
      prompt,
      max_tokens: 100,
      ignore_eos: true,
      temperature: 0,
      stream: true,
    });
    const alone: Answer[] = [];
    for (const prompt of some) alone.push(await server.complete(bodyOf(prompt)));
    const idle = new IdleConnections();
    await idle.open({ baseUrl: server.baseUrl }, 5000);
    // The device waits until all have come.
    const devices = server.devices();
    for (const pid of devices) process.kill(pid, 'SIGSTOP');
    const answering = Promise.all(prompts.map((prompt) => server.complete(bodyOf(prompt))));
    const inWork = async (): Promise<number> => (await server.held()).slice(0, 2).reduce((sum, each) => sum + each, 0);
    await expect.poll(inWork).toBe(1000);
    for (const pid of devices) process.kill(pid, 'SIGCONT');
    const answers = await answering;
    expect(answers.filter(({ tokens, outcome: { error } }) => error !== undefined || tokens.length !== 100)).toEqual(
      [],
    );
    expect(answers.slice(0, some.length).map(seen)).toEqual(alone.map(seen));
    expect(idle.closed).toBe(0);
    expect(server.files()).toBeGreaterThan(5000);
    idle.close();
    server.client.close();
    await expect.poll(() => server.held()).toEqual([0, 0, 0]);
    await expect.poll(() => server.files()).toBeLessThanOrEqual(before + 8);
  });

  it('pauses a reader that stops, and nobody else', async () => {
    const before = await server.metric('vllm:generation_tokens_total');
    // 64 texts with their 20 most likely tokens each are more than sockets hold.
    const body = {
      ...{ model: 'served', prompt: [5, 6, 7], n: 64, max_tokens: CONTEXT - 8, logprobs: 20, ignore_eos: true },
      ...{ stream: true, ...SAMPLED, echo: false },
    };
    const { port } = new URL(server.baseUrl);
    const socket = net.connect({ port: Number(port), host: '127.0.0.1' });
    const json = JSON.stringify({ ...body, stream_options: { continuous_usage_stats: true } });
    socket.write(
      `POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\n` +
        `content-length: ${Buffer.byteLength(json)}\r\n\r\n${json}`,
    );
    // Paused before anything was read.
    socket.pause();
    await expect.poll(() => server.metric('tilewright:num_requests_paused')).toBeGreaterThan(0);
    const others = await Promise.all(
      promptsOf(3, 64).map((prompt) => server.complete({ prompt, max_tokens: 100, ignore_eos: true, stream: true })),
    );
    expect(others.every(({ tokens, outcome: { error } }) => error === undefined && tokens.length === 100)).toBe(true);
    // It is held back, whatever time it has.
    const drawn = (await server.metric('vllm:generation_tokens_total')) - before;
    expect(drawn).toBeLessThan(64 * 100 + 64 * (CONTEXT - 8));
    expect(await server.held()).not.toEqual([0, 0, 0]);
    const pieces: Buffer[] = [];
    socket.on('data', (piece: Buffer) => pieces.push(piece));
    socket.resume();
    await once(socket, 'end');
    const events =
      Buffer.concat(pieces)
        .toString()
        .match(/^data: \{.*$/gm) ?? [];
    const texts = Array.from({ length: 64 }, () => '');
    for (const event of events) {
      const { choices } = JSON.parse(event.slice(6)) as {
        readonly choices: readonly { index: number; text: string }[];
      };
      for (const { index, text } of choices) texts[index] += text;
    }
    const whole = await fetch(`${server.baseUrl}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ ...body, stream: false }),
    });
    const { choices } = (await whole.json()) as { readonly choices: readonly { readonly text: string }[] };
    expect(texts).toEqual(choices.map(({ text }) => text));
    await expect.poll(() => server.held()).toEqual([0, 0, 0]);
  });

  it('keeps nothing of 2,500 clients that go away', async () => {
    const before = server.files();
    const random = randomOf(9);
    const prompts = promptsOf(4, 50);
    for (let round = 0; round < 25; round++)
      await Promise.all(
        Array.from({ length: 100 }, (_, i) =>
          server.complete(
            { prompt: prompts[i % 50], max_tokens: 120, ignore_eos: true, stream: i % 4 > 0, n: 1 + (i % 3) },
            { abortAfter: i % 4 === 0 ? 0 : below(random, 60) },
          ),
        ),
      );
    await expect.poll(() => server.held()).toEqual([0, 0, 0]);
    await expect.poll(() => server.files()).toBeLessThanOrEqual(before + 8);
  });

  it('goes on with the same texts where devices end, again and again', async () => {
    const bodies = promptsOf(5, 100).map((prompt, i) => ({
      ...{ prompt, stream: true, ignore_eos: true, max_tokens: 100 },
      ...(i % 2 === 0 ? { temperature: 0 } : SAMPLED),
    }));
    const wanted = await Promise.all(bodies.map((body) => server.complete(body)));
    let events = 0;
    const killAt = new Set([500, 4000]);
    const kill = (): void => {
      if (killAt.has(++events)) for (const pid of server.devices()) process.kill(pid, 'SIGKILL');
    };
    const found = await Promise.all(bodies.map((body) => server.complete(body, { onData: kill })));
    expect(found.map(seen)).toEqual(wanted.map(seen));
    server.stderr = '';
  });

  it('keeps its memory over a long run', async () => {
    const prompts = promptsOf(6, 200);
    const sizes: number[] = [];
    const linesBefore = server.lines.length;
    for (let round = 0; round < 24; round++) {
      await Promise.all(
        prompts.map((prompt, i) =>
          server.complete({
            prompt: [...prompt, round],
            max_tokens: 100,
            ignore_eos: true,
            stream: i % 5 > 0,
            ...SAMPLED,
          }),
        ),
      );
      sizes.push(server.residentBytes());
    }
    const mebibytes = sizes.map((bytes) => (bytes / 2 ** 20).toFixed(0)).join(' ');
    process.stderr.write(`resident MiB: ${mebibytes}\n`);
    expect(Math.min(...sizes.slice(12)), mebibytes).toBeLessThan(1.25 * Math.max(...sizes.slice(4, 8)));
    // What each thread's heap holds after each whole collection, in MB.
    const heaps = new Map<string, number[]>();
    for (const line of server.lines.slice(linesBefore)) {
      const [, thread = '', left] = /:(0x[0-9a-f]+)\].*Mark-Compact.* -> ([\d.]+) \(/.exec(line) ?? [];
      if (left !== undefined) heaps.set(thread, [...(heaps.get(thread) ?? []), Number(left)]);
    }
    // A thread that makes little garbage is collected as a whole seldom.
    const busy = [...heaps.values()].filter(({ length }) => length >= 4);
    expect(busy.length).toBeGreaterThan(0);
    for (const held of busy) {
      const half = held.length >> 1;
      const [early, late] = [Math.max(...held.slice(0, half)), Math.min(...held.slice(half))];
      expect(late, held.join(' ')).toBeLessThan(1.15 * early);
    }
  });
});
