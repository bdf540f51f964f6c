/**
 * Adapters of a server that is a process, under load: each answer is the one that `generate` gives with the content
 * that its name stood for, whatever is loaded, replaced and taken away meanwhile.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder, tilewright } from '../e2e/support.js';
import { ADAPTERS, baseOf } from '../support/adapters.js';
import { ServeProcess } from '../support/serveProcess.js';
import { adapterAt, generated, openBase, post, PROMPT, write, type Written } from '../support/servedAdapters.js';

const NAMES = ['mistral-qv', 'mistral-all-rs', 'mistral-layers', 'mistral-regex-layers'] as const;
const TOKENS = 10;

const servers: ServeProcess[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) expect(await server.stop()).toBe(0);
});

async function open(...flags: readonly string[]): Promise<ServeProcess> {
  const server = await openBase(...flags);
  servers.push(server);
  return server;
}

const load = (server: ServeProcess, name: string, path: string, inPlace = false) =>
  post(server.baseUrl, '/v1/load_lora_adapter', { lora_name: name, lora_path: path, load_inplace: inPlace });
const unload = (server: ServeProcess, name: string) =>
  post(server.baseUrl, '/v1/unload_lora_adapter', { lora_name: name });

interface Asked {
  readonly begun: number;
  readonly ended: number;
  readonly answer: Written | string;
}

/** Clients that ask for a name, one request after another, half of them for streams. */
class Askers {
  readonly asked: Asked[] = [];
  private isOver = false;
  private readonly clients: readonly Promise<void>[];

  constructor(server: ServeProcess, name: string, clients: number) {
    this.clients = Array.from({ length: clients }, async (_, i) => {
      while (!this.isOver) {
        const begun = performance.now();
        const answer = await write(server, name, TOKENS, { stream: i % 2 === 1 }).catch(
          (error: Error) => error.message,
        );
        this.asked.push({ begun, ended: performance.now(), answer });
      }
    });
  }

  async more(count: number): Promise<void> {
    const wanted = this.asked.length + count;
    await expect.poll(() => this.asked.length, { timeout: 100_000 }).toBeGreaterThan(wanted);
  }

  async stop(): Promise<void> {
    this.isOver = true;
    await Promise.all(this.clients);
  }
}

describe.skipIf(!existsSync(ADAPTERS))('adapters of a server', () => {
  const wanted = new Map<string, Written>();
  beforeAll(async () => {
    wanted.set('served', await generated(undefined, TOKENS));
    for (const name of NAMES) wanted.set(name, await generated(name, TOKENS));
    expect(new Set([...wanted.values()].map(({ text }) => text)).size).toBe(NAMES.length + 1);
  }, 300_000);

  it('are found in a folder, more of them than there are slots', { timeout: 300_000 }, async () => {
    const server = await open('--adapter-folder', ADAPTERS, '--adapter-slots', '2');
    const asked = Array.from({ length: 6 }, () => ['served', ...NAMES]).flat();
    const answers = await Promise.all(asked.map((name, i) => write(server, name, TOKENS, { stream: i % 2 === 0 })));
    expect(answers).toEqual(asked.map((name) => wanted.get(name)));
    expect(await server.metric('vllm:max_gpu_lora_adapters')).toBe(2);
    expect(await server.metric('vllm:num_gpu_loaded_lora_adapters')).toBe(2);
    for (const model of ['mistral-save', 'phi3-fused', 'gpt-neox-bias'])
      expect((await post(server.baseUrl, '/v1/completions', { model, prompt: PROMPT })).status, model).toBe(400);
    for (const model of ['nobody', '../adapters/mistral-qv', '.', '..'])
      expect((await post(server.baseUrl, '/v1/completions', { model, prompt: PROMPT })).status, model).toBe(404);
    expect((await load(server, 'x', adapterAt('mistral-qv'))).status).toBe(403);
  });

  it('of an artifact are read beside the checkpoint that it names', { timeout: 300_000 }, async () => {
    const artifact = join(temporaryFolder(), 'model.tw');
    const asked = ['--target', 'cpu', '--cache-tokens', '4096', '--adapter-slots', '2', '-o', artifact];
    const compiled = await tilewright(['compile', baseOf(NAMES[0]), ...asked]);
    expect(compiled.status, compiled.stderr).toBe(0);
    const adapters = [NAMES[0], NAMES[1]].flatMap((name) => ['--adapter', adapterAt(name)]);
    const server = await ServeProcess.open(artifact, ['--threads', '1', '--served-model-name', 'served', ...adapters]);
    servers.push(server);
    for (const name of ['served', NAMES[0], NAMES[1]])
      expect(await write(server, name, TOKENS), name).toEqual(wanted.get(name));
  });

  it('are replaced in place: the old one before, the new one behind', { timeout: 300_000 }, async () => {
    const server = await open('--adapter-updates', '--adapter-slots', '2');
    const folder = join(temporaryFolder(), 'live');
    cpSync(adapterAt(NAMES[0]), folder, { recursive: true });
    expect((await load(server, 'live', folder)).status).toBe(200);
    const askers = new Askers(server, 'live', 6);
    const swaps: { readonly begun: number; readonly ended: number; readonly to: number }[] = [];
    for (const to of [1, 0, 1]) {
      await askers.more(12);
      // The content is another in the same place.
      cpSync(adapterAt(NAMES[to]!), folder, { recursive: true });
      const begun = performance.now();
      expect(await load(server, 'live', folder, true)).toMatchObject({ status: 200 });
      swaps.push({ begun, ended: performance.now(), to });
    }
    await askers.more(12);
    await askers.stop();
    for (const { begun, ended, answer } of askers.asked) {
      const before = swaps.findLast((swap) => swap.ended < begun)?.to ?? 0;
      const during = swaps.filter((swap) => swap.begun < ended && swap.ended >= begun).map(({ to }) => to);
      expect([before, ...during].map((each) => wanted.get(NAMES[each]!))).toContainEqual(answer);
    }
    expect(await server.metric('vllm:num_gpu_loaded_lora_adapters')).toBeGreaterThanOrEqual(1);
  });

  it('end what they began when they are unloaded', { timeout: 300_000 }, async () => {
    const server = await open('--adapter-updates', '--adapter-slots', '1');
    expect((await load(server, 'live', adapterAt(NAMES[0]))).status).toBe(200);
    const askers = new Askers(server, 'live', 6);
    const others = new Askers(server, 'served', 2);
    await askers.more(12);
    const begun = performance.now();
    expect((await unload(server, 'live')).status).toBe(200);
    const ended = performance.now();
    await askers.more(12);
    await Promise.all([askers.stop(), others.stop()]);
    for (const each of askers.asked) {
      const isRefused = typeof each.answer === 'string';
      if (isRefused) expect(each.answer).toContain('there is no model');
      else expect(each.answer).toEqual(wanted.get(NAMES[0]));
      expect(isRefused ? each.ended > begun : each.begun < ended).toBe(true);
    }
    expect(others.asked.map(({ answer }) => answer)).toEqual(others.asked.map(() => wanted.get('served')));
    // The slot is for another one.
    expect((await load(server, 'live', adapterAt(NAMES[1]))).status).toBe(200);
    expect(await write(server, 'live', TOKENS)).toEqual(wanted.get(NAMES[1]));
  });

  it('are refused where the folder is none, and nothing is held up', { timeout: 300_000 }, async () => {
    const server = await open('--adapter-updates');
    const folder = temporaryFolder();
    const bad = (name: string, change: (path: string) => void): string => {
      const path = join(folder, name);
      cpSync(adapterAt(NAMES[0]), path, { recursive: true });
      change(path);
      return path;
    };
    const config = (path: string): string => join(path, 'adapter_config.json');
    const weights = (path: string): string => join(path, 'adapter_model.safetensors');
    const changed = (path: string, more: object): void =>
      writeFileSync(
        config(path),
        JSON.stringify({ ...(JSON.parse(readFileSync(config(path), 'utf8')) as object), ...more }),
      );
    mkdirSync(join(folder, 'empty'));
    mkdirSync(join(folder, 'fifo'));
    expect(spawnSync('mkfifo', [config(join(folder, 'fifo'))]).status).toBe(0);
    symlinkSync('loop', join(folder, 'loop'));
    const paths = [
      ...['empty', 'fifo', 'loop', 'none'].map((name) => join(folder, name)),
      ...['/dev/zero', '/proc/self', '', '\0', weights(adapterAt(NAMES[0]))],
      bad('text', (path) => writeFileSync(config(path), '{"r": ')),
      bad('short', (path) => truncateSync(weights(path), 1000)),
      bad('header', (path) => writeFileSync(weights(path), Buffer.alloc(64, 0xff))),
      bad('rank', (path) => changed(path, { r: 1e9 })),
      bad('negative', (path) => changed(path, { r: -1 })),
      bad('scale', (path) => changed(path, { lora_alpha: 1e300 })),
      bad('modules', (path) => changed(path, { target_modules: '(a*)*b' })),
      bad('kind', (path) => changed(path, { peft_type: 'LOHA' })),
    ];
    const askers = new Askers(server, 'served', 2);
    for (const path of paths)
      expect({ path, ...(await load(server, 'bad', path)) }).toMatchObject({ path, status: 400 });
    await askers.stop();
    expect(askers.asked.map(({ answer }) => answer)).toEqual(askers.asked.map(() => wanted.get('served')));
    expect((await load(server, 'good', adapterAt(NAMES[0]))).status).toBe(200);
    expect(await write(server, 'good', TOKENS)).toEqual(wanted.get(NAMES[0]));
    expect((await unload(server, 'bad')).status).toBe(404);
  });
});
