/** Names of adapters over HTTP: loading, unloading, a folder that is looked through, what requests then ask. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import {
  type AdapterFacts,
  AdapterNames,
  type AdapterOptions,
  type AdapterSource,
} from '../../../serve/adapters/names.js';
import { badRequest } from '../../../serve/apiError.js';
import type { LinkedClient } from '../../../serve/link/client.js';
import type { ServedModel, ServedRequest } from '../../../serve/models.js';
import { routesOf } from '../../../serve/http/routes.js';
import { type Served, servedModels } from '../../support/servedModels.js';
import { complete, post, refused } from '../completions/client.js';

const open: Served[] = [];
const folders: string[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((each) => each.close()));
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

/** Contents of folders by their path; a folder that is not here holds no adapter. */
class Contents implements AdapterSource {
  readonly hashes = new Map<string, string>();
  readonly opened: string[] = [];
  readonly released: string[] = [];

  async open(path: string): Promise<AdapterFacts> {
    this.opened.push(path);
    const hash = this.hashes.get(path);
    if (hash === undefined) throw badRequest(`${path}: no adapter_config.json`);
    return Promise.resolve({ hash, path, rank: 8 });
  }

  async release(hash: string): Promise<void> {
    this.released.push(hash);
    return Promise.resolve();
  }
}

async function start(options: Partial<AdapterOptions> = {}) {
  const contents = new Contents();
  contents.hashes.set('/a', 'aaaa').set('/b', 'bbbb');
  const asked: ServedRequest[] = [];
  const served = servedModels({
    adapters: { options: { given: [], allowsUpdates: true, ...options }, source: contents },
  });
  open.push(served);
  // The made-up device has no slots: what would be asked of it is looked at, and its adapter taken away.
  const watched = (client: LinkedClient) =>
    routesOf(
      Object.create(client, {
        submit: {
          value: (request: ServedRequest, listener: Parameters<LinkedClient['submit']>[1]) => {
            asked.push(request);
            return client.submit({ ...request, adapter: undefined }, listener);
          },
        },
      }) as LinkedClient,
    );
  const { url } = await served.listen({}, watched);
  const load = (body: object) => post(url, '/v1/load_lora_adapter', { ...body });
  const names = async (): Promise<readonly { id: string; parent?: string; root?: string }[]> =>
    ((await (await fetch(`${url}/v1/models`)).json()) as { data: { id: string }[] }).data;
  const adapters = (): readonly unknown[] => asked.map(({ adapter }) => adapter);
  return { url, contents, load, names, adapters };
}

const ask = (url: string, model?: string) => complete(url, { ...(model && { model }), prompt: 'a', max_tokens: 2 });

describe('an adapter that a client loads', () => {
  it('is a model of its name, and goes when it is unloaded', async () => {
    const { url, contents, load, names, adapters } = await start();
    const loaded = await load({ lora_name: 'poet', lora_path: '/a' });
    expect([loaded.status, await loaded.text()]).toEqual([200, "Success: LoRA adapter 'poet' added successfully."]);
    expect(await names()).toMatchObject([{ id: 'demo' }, { id: 'poet', parent: 'demo', root: '/a' }]);
    const answer = await ask(url, 'poet');
    expect(answer).toMatchObject({ model: 'poet', system_fingerprint: 'made-up-aaaa' });
    await ask(url);
    expect(adapters()).toEqual([{ hash: 'aaaa', path: '/a' }, undefined]);
    expect((await post(url, '/v1/unload_lora_adapter', { lora_name: 'poet' })).status).toBe(200);
    expect(contents.released).toEqual(['aaaa']);
    expect(await refused(url, { model: 'poet', prompt: 'a' })).toMatchObject({ status: 404, code: 'model_not_found' });
  });

  it('takes no name that another has, unless it is to replace it', async () => {
    const { url, contents, load, adapters } = await start();
    await load({ lora_name: 'poet', lora_path: '/a' });
    for (const lora_name of ['poet', 'demo'])
      expect((await load({ lora_name, lora_path: '/b' })).status, lora_name).toBe(400);
    expect((await load({ lora_name: 'poet', lora_path: '/b', load_inplace: true })).status).toBe(200);
    await ask(url, 'poet');
    expect(adapters()).toEqual([{ hash: 'bbbb', path: '/b' }]);
    expect(contents.released).toEqual(['aaaa']);
  });

  it('keeps a content that has another name', async () => {
    const { url, contents, load } = await start();
    for (const lora_name of ['one', 'two']) await load({ lora_name, lora_path: '/a' });
    await post(url, '/v1/unload_lora_adapter', { lora_name: 'one' });
    expect(contents.released).toEqual([]);
    await post(url, '/v1/unload_lora_adapter', { lora_name: 'two' });
    expect(contents.released).toEqual(['aaaa']);
  });

  it('keeps a content as long as somebody has read its name', async () => {
    const contents = new Contents();
    contents.hashes.set('/a', 'aaaa').set('/b', 'bbbb');
    const base = { key: 'm', names: ['demo'], fingerprint: 'f' } as unknown as ServedModel;
    const names = new AdapterNames(base, ['demo'], contents, { given: [], allowsUpdates: true });
    await names.load('poet', '/a', false);
    const leaves = [names.hold('poet'), names.hold('poet')];
    await names.load('poet', '/b', true);
    const leave = names.hold('poet');
    leaves[0]!();
    expect(contents.released).toEqual([]);
    leaves[1]!();
    expect(contents.released).toEqual(['aaaa']);
    // Still named.
    leave();
    names.hold('nobody')();
    expect(contents.released).toEqual(['aaaa']);
    const [again, last] = [names.hold('poet'), names.hold('poet')];
    again();
    await names.unload('poet');
    await names.load('other', '/b', false);
    last();
    expect(contents.released).toEqual(['aaaa']);
  });

  it('says what is wrong', async () => {
    const { url, load } = await start();
    expect((await load({ lora_name: 'x', lora_path: '/none' })).status).toBe(400);
    expect((await load({ lora_path: '/a' })).status).toBe(400);
    expect((await load({ lora_name: 'line\nbreak', lora_path: '/a' })).status).toBe(400);
    expect((await post(url, '/v1/unload_lora_adapter', { lora_name: 'nobody' })).status).toBe(404);
  });

  it('is refused where the owner has not allowed it', async () => {
    const { load } = await start({ allowsUpdates: false });
    expect((await load({ lora_name: 'poet', lora_path: '/a' })).status).toBe(403);
  });
});

describe('a folder of adapters', () => {
  it('is looked through for names that are not known, and never left', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'adapters-'));
    folders.push(folder);
    for (const name of ['poet', '..hidden']) {
      mkdirSync(join(folder, name));
      writeFileSync(join(folder, name, 'adapter_config.json'), '{}');
    }
    const { url, contents, adapters } = await start({ folder: join(folder), allowsUpdates: false });
    const path = join(folder, 'poet');
    contents.hashes.set(path, 'cccc');
    await Promise.all([ask(url, 'poet'), ask(url, 'poet')]);
    expect(adapters()).toEqual([
      { hash: 'cccc', path },
      { hash: 'cccc', path },
    ]);
    expect(contents.opened).toEqual([path]);
    for (const model of ['../poet', '..', 'poet/', '/etc', '..hidden', 'other'])
      expect((await refused(url, { model, prompt: 'a' })).status, model).toBe(404);
    expect(contents.opened).toEqual([path]);
  });
});
