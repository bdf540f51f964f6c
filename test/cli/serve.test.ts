/** Flags of `tilewright serve`: what they ask for, and which are refused. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import type { ServeListener, ServeRequest } from '../../commands/serve.js';
import type { WithTargetChoice } from '../../driver/precision.js';
import { fakeIo, type Outcome, runCli } from './fakeIo.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-serve-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const keys = join(folder, 'keys.txt');
writeFileSync(keys, 'one\n  two  \n\n');
writeFileSync(join(folder, 'none.txt'), '\n\n');

type Asked = WithTargetChoice<ServeRequest>;

/** What the command asks for, and what it prints while it serves. */
async function served(
  argv: readonly string[],
  serve: (listener: ServeListener) => Promise<void> = () => Promise.resolve(),
): Promise<Outcome & { readonly asked: Asked | undefined }> {
  let asked: Asked | undefined;
  const outcome = await runCli(['serve', 'models/demo', ...argv], {
    serve: (request, _ui, listener) => {
      asked = request;
      return serve(listener);
    },
  });
  return { ...outcome, asked };
}

describe('tilewright serve', () => {
  it('has defaults', async () => {
    const { asked, status } = await served([]);
    expect(status).toBe(0);
    expect(asked).toMatchObject({
      model: 'models/demo',
      names: [],
      http: { host: '127.0.0.1', port: 8000, apiKeys: [], origins: [], maxBodyBytes: 32 << 20, hangMs: 300_000 },
      queue: { requests: 4096, tokens: 8_388_608 },
      shutdownMs: 30_000,
    });
  });

  it('takes names, keys of three places, origins and limits', async () => {
    vi.stubEnv('TILEWRIGHT_API_KEY', 'three');
    const names = ['--served-model-name', 'a', '--served-model-name', 'b', '--verifier', 'v', '--verifier-name', 'c'];
    const kind = ['--verifier-kind', 'rlhflow'];
    const limits = ['--queue-requests', '5', '--queue-tokens', '6', '--max-body', '7', '--max-connections', '8'];
    const times = ['--shutdown-timeout', '1m', '--hang-timeout', '20s'];
    const open = ['--api-key', 'zero', '--api-key-file', keys, '--allowed-origin', 'https://a.example'];
    const { asked, stderr } = await served([
      ...names,
      ...kind,
      ...limits,
      ...times,
      ...open,
      '--port',
      '0',
      '--host',
      '::',
    ]);
    vi.unstubAllEnvs();
    expect(asked, stderr).toMatchObject({
      names: ['a', 'b'],
      verifier: { model: 'v', name: 'c', language: 'rlhflow' },
      http: {
        ...{ host: '::', port: 0, apiKeys: ['zero', 'one', 'two', 'three'], origins: ['https://a.example'] },
        ...{ maxBodyBytes: 7 << 20, maxConnections: 8, hangMs: 20_000 },
      },
      queue: { requests: 5, tokens: 6 },
      shutdownMs: 60_000,
    });
    expect(stderr).toBe('');
  });

  it('says where it listens, that it stops, and what failed', async () => {
    const { stdout, stderr } = await served([], async ({ onReady, onDrain, onError }) => {
      onReady('http://127.0.0.1:8000');
      onError('TypeError: x\n    at \u001b[31my');
      onDrain();
      return Promise.resolve();
    });
    expect(stdout).toBe('listening on http://127.0.0.1:8000\n');
    expect(stderr).toContain('error: TypeError: x');
    expect(stderr).not.toContain('\u001b');
    expect(stderr).toContain('stopping: requests that run have 30 s to end; a second signal ends them at once\n');
  });

  it('notes that everybody is let in', async () => {
    expect((await served(['--host', '0.0.0.0'])).stderr).toContain('note: everybody who reaches 0.0.0.0 is let in');
    expect((await served(['--host', '0.0.0.0', '--api-key', 'k'])).stderr).toBe('');
    expect((await served(['--host', 'localhost'])).stderr).toBe('');
  });

  it.each([
    [['--port', '65536'], '--port 65536: expected a whole number from 0 to 65535'],
    [['--max-body', '0'], '--max-body 0: expected a whole number from 1 to 1024'],
    [['--shutdown-timeout', '30'], '--shutdown-timeout 30: expected a time with a unit'],
    [['--api-key', ' '], '--api-key: the key is empty'],
    [['--api-key-file', join(folder, 'none.txt')], 'there is no key in it'],
    [['--allowed-origin', 'example.org'], '--allowed-origin example.org: expected the origin of a page'],
    [['--verifier-name', 'x'], '--verifier-name: there is no second model'],
    [['--verifier-kind', 'rlhflow'], '--verifier-kind: there is no second model'],
    [['--verifier', 'v', '--verifier-kind', 'x'], "argument 'x' is invalid"],
    [['--served-model-name', 'a\nb'], '--served-model-name: expected 1 to 200 letters'],
  ])('refuses %j', async (argv, message) => {
    const { status, stderr, asked } = await served(argv);
    expect(stderr).toContain(message);
    expect([status, asked]).toEqual([2, undefined]);
  });

  it('shows no key again', async () => {
    const io = fakeIo();
    const work = runCli(
      ['serve', 'models/demo', '--api-key', 'a-secret'],
      {
        serve: () => {
          io.send('SIGTERM');
          return new Promise(() => undefined);
        },
      },
      io,
    );
    expect((await work).status).toBe(143);
    expect(io.stderr.text).toContain('stopped: nothing was served');
    expect(io.stderr.text).not.toContain('a-secret');
  });
});
