/** A server as a process: how it begins, what it says, and how it stops. */
import { writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openTokenizer } from '../../models/tokenizer/tokenizer.js';
import { allGone, devicesOf } from './children.js';
import { startServer } from './serverProcess.js';
import { writeCheckpoint } from './smallModel.js';
import { CAPACITY, isBuilt, start, temporaryFolder, tilewright } from './support.js';
import { thorough } from '../support/thorough.js';

const PLACE = ['--target', 'cpu', '--precision', 'f32', ...CAPACITY, '--threads', '2'];

/** A port that nobody listens at. */
async function freePort(): Promise<string> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return String(port);
}

const complete = (url: string, body: object, headers: Record<string, string> = {}): Promise<Response> =>
  fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
/** Goes on for longer than any test waits. */
const LONG = { prompt: [1, 2, 3], max_tokens: 150, n: 128, ignore_eos: true, stream: true };

/** Reads a stream until something of it has come, and on to its end. */
async function opened(response: Response): Promise<{ readonly rest: Promise<string> }> {
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  const first = await reader.read();
  let text = decoder.decode(first.value, { stream: true });
  const rest = async (): Promise<string> => {
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read())
      text += decoder.decode(chunk.value, { stream: true });
    return text;
  };
  return { rest: rest() };
}

describe.skipIf(!isBuilt)('a server process', () => {
  const model = writeCheckpoint();

  it('listens while it loads, says where once it is ready, and ends streams before it stops', async () => {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const running = start(['serve', model, '--port', port, ...PLACE]);
    const statusOf = async (path: string): Promise<number> =>
      fetch(url + path).then(
        ({ status }) => status,
        () => 0,
      );
    const seen = new Set<number>();
    await expect
      .poll(
        async () => {
          const status = await statusOf('/health');
          seen.add(status);
          return status;
        },
        { interval: 20 },
      )
      .toBe(200);
    expect([...seen].filter((status) => status !== 0)).toEqual([503, 200]);
    await expect.poll(() => running.stdout()).toBe(`listening on ${url}\n`);
    const devices = devicesOf(running.process.pid!);
    expect(devices).toHaveLength(1);

    const taken = await tilewright(['serve', model, '--port', port, ...PLACE]);
    expect(taken).toMatchObject({ status: 1, stdout: '' });
    expect(taken.stderr).toContain(`error: --port ${port}: another program listens there already\n`);

    const { rest } = await opened(await complete(url, { ...LONG, n: 2 }));
    running.process.kill('SIGTERM');
    const text = await rest;
    expect(text.match(/"finish_reason":"length"/g)).toHaveLength(2);
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
    const outcome = await running.ended;
    expect(outcome).toMatchObject({ status: 0, signal: null, stdout: `listening on ${url}\n` });
    expect(outcome.stderr).toContain('stopping: requests that run have 30 s to end');
    await allGone(devices);
  });

  thorough('lets in who has a key, takes long texts, and breaks off what does not end in time', async () => {
    const keys = join(temporaryFolder(), 'keys.txt');
    writeFileSync(keys, 'from-a-file\n\n');
    const flags = ['--api-key', 'from-a-flag', '--api-key-file', keys, '--shutdown-timeout', '1s', ...PLACE];
    const { url, running } = await startServer(model, '--served-model-name', 'a', '--served-model-name', 'b', ...flags);
    const withKey = (key: string) => ({ authorization: `Bearer ${key}` });
    for (const [key, status] of [
      ['from-a-file', 200],
      ['from-a-flag', 200],
      ['other', 401],
    ] as const)
      expect((await fetch(`${url}/v1/models`, { headers: withKey(key) })).status).toBe(status);
    const listed = (await (await fetch(`${url}/v1/models`, { headers: withKey('from-a-file') })).json()) as {
      readonly data: readonly { readonly id: string }[];
    };
    expect(listed.data.map(({ id }) => id)).toEqual(['a', 'b']);

    const prompt = 'A text of some length.\n'.repeat(800);
    const tokenized = await fetch(`${url}/tokenize`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...withKey('from-a-file') },
      body: JSON.stringify({ prompt, add_special_tokens: true }),
    });
    const { tokens } = (await tokenized.json()) as { readonly tokens: readonly number[] };
    expect(tokens).toEqual(await openTokenizer(model).encode(prompt));

    const { rest } = await opened(await complete(url, LONG, withKey('from-a-flag')));
    running.process.kill('SIGTERM');
    expect(await rest).toMatch(/data: \{"error":\{[^\n]*"code":"shutting_down"\}\}\n\ndata: \[DONE\]\n\n$/);
    expect(await running.ended).toMatchObject({ status: 0, signal: null });
  });

  thorough('ends at once at a second signal', async () => {
    const { url, running } = await startServer(model, ...PLACE);
    const devices = devicesOf(running.process.pid!);
    const { rest } = await opened(await complete(url, LONG));
    rest.catch(() => undefined);
    running.process.kill('SIGTERM');
    await expect.poll(() => running.stderr()).toContain('stopping:');
    running.process.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ signal: 'SIGTERM' });
    await allGone(devices);
  });
});
