/**
 * Two real models in a device process, and requests that come and go: of every kind, cancelled at random, on so few
 * pages that sequences give theirs back, while memory moves. Whatever a request got is, to the bit, what it gets alone
 * on an engine of its own. Nothing is left of any of them.
 */
import { getEventListeners } from 'node:events';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import type * as Adapters from '../../commands/engineModel.js';
import type * as Loading from '../../commands/loadModel.js';
import type * as Host from '../../driver/devices/deviceHost.js';
import { Phases } from '../../driver/phases.js';
import type * as Engines from '../../engine/engine.js';
import type { Replicas } from '../../engine/replicas.js';
import { randomOf } from '../fuzz/mutate.js';
import { aloneOn, churn, type ChurnCounts } from '../support/churn.js';
import { randomRequests } from '../support/churnRequests.js';
import { madeUpGuide } from '../support/guides.js';
import { SILENT } from '../support/silent.js';
import { isThorough, thorough } from '../support/thorough.js';
import { devicesOf } from './children.js';
import { CONFIG, CONTEXT, safetensorsFile, tensorsOf, writeCheckpoint } from './smallModel.js';
import { environment, isBuilt, ROOT } from './support.js';

const built = (path: string): Promise<unknown> =>
  import(/* @vite-ignore */ pathToFileURL(join(ROOT, 'dist', path)).href);

const NAMES = ['first', 'second'] as const;
const PAGES = 24;
const LEAST_PAGES = 12;

/** Bytes of the heap that are in use, without garbage. */
function heapBytes(): number {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  for (let i = 0; i < 3; i++) collect();
  return process.memoryUsage().heapUsed;
}

describe.skipIf(!isBuilt)('requests that come and go on two models', () => {
  const folders = [writeCheckpoint(), writeCheckpoint({ weights: safetensorsFile(tensorsOf(2)) }, 'other')];
  let engines: typeof Engines;
  let adapters: typeof Adapters;
  let shared: readonly Loading.LoadedModel[] = [];
  let apart: readonly Loading.LoadedModel[] = [];

  beforeAll(async () => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    const { beginLoading } = (await built('commands/loadModel.js')) as typeof Loading;
    const { DeviceHost } = (await built('driver/devices/deviceHost.js')) as typeof Host;
    engines = (await built('engine/engine.js')) as typeof Engines;
    adapters = (await built('commands/engineModel.js')) as typeof Adapters;
    const open = (model: string, host?: Host.DeviceHost): Promise<Loading.LoadedModel> => {
      const request = { model, init: { kind: 'checkpoint' }, precision: 'f32', threads: 2 } as const;
      const sizes = { cacheTokens: PAGES * 16, batchTokens: 64, logits: true } as const;
      return beginLoading({ ...request, ...sizes }, SILENT, new Phases(), { host }).finish();
    };
    const host = new DeviceHost({ isApart: true });
    shared = await Promise.all(folders.map((folder) => open(folder, host)));
    apart = await Promise.all(folders.map((folder) => open(folder)));
  });
  afterAll(async () => {
    await Promise.all([...shared, ...apart].map((model) => model.close()));
    vi.unstubAllEnvs();
  });

  /** Rounds of requests to one engine, each followed by `after`. */
  async function rounds(seed: number, count: number, most: number, after?: (round: number) => void): Promise<void> {
    const random = randomOf(seed);
    const engine = new engines.Engine();
    const loaded = NAMES.map((name, i): Replicas => engine.load(name, adapters.engineModelOf(shared[i]!)));
    const vocab = CONFIG.vocab_size;
    const kinds = { models: NAMES, count: isThorough ? 60 : 24, vocab, longest: CONTEXT, guides: [] };
    const asked = randomRequests(random, kinds);
    const alone = aloneOn((name) => {
      const single = new engines.Engine();
      const { replicas, vocabSize } = adapters.engineModelOf(apart[NAMES.indexOf(name as (typeof NAMES)[number])]!);
      single.load(name, { replicas, vocabSize: vocabSize! });
      return Promise.resolve(single);
    });
    const generators = loaded.map((replicas) => replicas['generators'][0]!);
    const move = (): void => {
      const pages = LEAST_PAGES + Math.floor(random() * (PAGES - LEAST_PAGES + 1));
      void generators[0]!.memory.resize(pages);
      void generators[1]!.memory.resize(PAGES + LEAST_PAGES - pages);
    };
    for (let round = 0; round < most; round++) {
      const between = (): void => void (random() < 0.05 && move());
      const counts: ChurnCounts = await churn(engine, {
        random,
        asked,
        count,
        atOnce: 16,
        alone,
        maxDeadline: 60,
        between,
      });
      expect(counts.whole).toBeGreaterThan(count / 5);
      expect(counts.early).toBeGreaterThan(count / 20);
      await Promise.all(loaded.map((replicas) => replicas.idle()));
      for (const { pressure, workTokens } of generators)
        expect({ ...pressure, workTokens }).toMatchObject({ held: 0, waiting: 0, workTokens: 0 });
      for (const signal of counts.signals) expect(getEventListeners(signal, 'abort')).toHaveLength(0);
      after?.(round);
    }
    expect(engine.countsOf('first').preemptions + engine.countsOf('second').preemptions).toBeGreaterThan(0);
    // The next engine with these models finds the memory that they were opened with.
    await Promise.all(generators.map((generator) => generator.memory.resize(PAGES)));
    for (const name of NAMES) await engine.unload(name);
  }

  test('get what they get alone', { timeout: 600_000 }, async () => {
    await rounds(1, isThorough ? 1500 : 150, 1);
  });

  test('get guided texts that are the same where their process is killed', { timeout: 300_000 }, async () => {
    const guides = [0, 1, 2].map((seed) => madeUpGuide({ vocab: CONFIG.vocab_size, seed, turns: () => seed }));
    const requests = [...guides, undefined].map((guide, i) => ({
      ...{ prompt: [7, 8 + i, 9], maxNewTokens: 40, sampling: { temperature: 1, seed: i } },
      ...(guide === undefined ? {} : { guide }),
    }));
    const write = async (model: Loading.LoadedModel, onToken: () => void = () => undefined) => {
      const engine = new engines.Engine();
      engine.load('first', adapters.engineModelOf(model));
      const texts = requests.map(async (request) => {
        const handle = engine.submit({ kind: 'generate', ...request });
        for await (const { kind } of handle) if (kind === 'token') onToken();
        const [text] = await handle.result();
        return [text!.reason, text!.tokens];
      });
      const all = await Promise.all(texts);
      await engine.unload('first');
      return all;
    };
    const wanted = await write(apart[0]!);
    let count = 0;
    const kill = (): void => {
      if (++count === 50) process.kill(devicesOf(process.pid)[0]!, 'SIGKILL');
    };
    expect(await write(shared[0]!, kill)).toEqual(wanted);
    expect(count).toBe(160);
    // A mask is asked for once for each token, whatever is computed again.
    for (const { counts } of guides) expect(counts).toEqual({ begun: 2, open: 0, asked: 80, looked: 0 });
  });

  thorough('leave no byte', { timeout: 600_000 }, async () => {
    const bytes: number[] = [];
    await rounds(2, 400, 20, () => void bytes.push(heapBytes()));
    const mean = (from: number): number => bytes.slice(from, from + 4).reduce((sum, each) => sum + each, 0) / 4;
    // The first rounds compile code, and find out what each request gets alone. A sequence has more than 3,000 bytes.
    expect((mean(16) - mean(6)) / (10 * 400)).toBeLessThan(250);
  });
});
