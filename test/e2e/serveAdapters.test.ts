/** A server with an adapter as a process: answers by name, and why folders are refused. */
import { existsSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ADAPTERS } from '../support/adapters.js';
import type { ServeProcess } from '../support/serveProcess.js';
import { adapterAt, openBase, post, write } from '../support/servedAdapters.js';
import { isBuilt } from './support.js';

describe.skipIf(!existsSync(ADAPTERS) || !isBuilt)('a server with an adapter', () => {
  let server: ServeProcess;
  beforeAll(async () => {
    server = await openBase('--adapter', `qv=${adapterAt('mistral-qv')}`, '--adapter-updates');
  });
  afterAll(async () => {
    expect(await server.stop()).toBe(0);
  });

  test('answers with it by its name, and as before without', async () => {
    const [qv, base] = await Promise.all([write(server, 'qv', 4), write(server, 'served', 4, { stream: true })]);
    // What `generate` writes; test/slow/serveAdapters.test.ts asks it, and compares to the bit.
    expect(qv.text).toBe(' hard bowl un fre');
    expect(base.text).toMatch(/^ sho. p p$/u);
  });

  test('says why a folder cannot be chosen by request', async () => {
    const answer = await post(server.baseUrl, '/v1/load_lora_adapter', {
      ...{ lora_name: 'save', lora_path: adapterAt('mistral-save') },
    });
    expect(answer.status).toBe(400);
    expect(answer.text).toContain('it changes 2 tensors in ways that cannot be chosen by request: ');
    expect(answer.text).toContain('tilewright merge-adapter');
    expect((await post(server.baseUrl, '/v1/completions', { model: 'save', prompt: 'a' })).status).toBe(404);
    expect(await server.metric('vllm:num_gpu_loaded_lora_adapters')).toBe(1);
  });
});
