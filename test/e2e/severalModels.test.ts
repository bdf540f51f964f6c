/**
 * Several models in the process of a device: opened beside each other, unloaded, and opened again by another process
 * when theirs is killed. The processes are real ones, of the built package.
 */
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import type * as Loading from '../../commands/loadModel.js';
import type * as Host from '../../driver/devices/deviceHost.js';
import type { Replica } from '../../driver/executor.js';
import { Phases } from '../../driver/phases.js';
import type { LoadRequest, Ui } from '../../driver/requests.js';
import { STEP } from '../../ir/function.js';
import { canFakeGpu, FakeGpu } from '../support/fakeCuda/fakeGpu.js';
import { randomTokens } from '../support/numbers.js';
import { scoreSequence, scoreSequences } from '../support/scoring.js';
import { SILENT } from '../support/silent.js';
import { thorough } from '../support/thorough.js';
import { allGone, devicesOf } from './children.js';
import { safetensorsFile, tensorsOf, writeCheckpoint } from './smallModel.js';
import { environment, isBuilt, ROOT, temporaryFolder } from './support.js';

type Loaded = Loading.LoadedModel;

const built = (path: string): Promise<unknown> =>
  import(/* @vite-ignore */ pathToFileURL(join(ROOT, 'dist', path)).href);

/** Sequences of many lengths: of some, calls of both models are pending at any time. */
const SEQUENCES = [30, 3, 120, 64, 17, 90].map((length, i) => randomTokens(i + 1, length).map((token) => token % 320));

describe.skipIf(!isBuilt)('models beside each other', () => {
  const small = writeCheckpoint();
  const other = writeCheckpoint({ weights: safetensorsFile(tensorsOf(2)) }, 'other');
  let beginLoading: typeof Loading.beginLoading;
  let DeviceHost: typeof Host.DeviceHost;
  let alone: readonly number[][];
  let otherAlone: readonly number[][];

  const opened = new Set<Loaded>();
  const warnings: string[] = [];
  const ui: Ui = { ...SILENT, warn: (line) => warnings.push(line) };
  const beginOpening = (
    model: string,
    host?: Host.DeviceHost,
    more: Partial<LoadRequest> = {},
  ): Loading.ModelLoading => {
    const request = { model, init: { kind: 'checkpoint' as const }, precision: 'auto' as const, threads: 2, ...more };
    return beginLoading(request, ui, new Phases(), { host });
  };
  const open = (model: string, host?: Host.DeviceHost, more: Partial<LoadRequest> = {}): Promise<Loaded> => {
    const loading = beginOpening(model, host, more).finish();
    void loading.then(
      (model) => opened.add(model),
      () => undefined,
    );
    return loading;
  };
  const apart = (): Host.DeviceHost => new DeviceHost({ isApart: true });
  const children = (): readonly number[] => devicesOf(process.pid);
  const replicaOf = ({ executor }: Loaded): Replica => executor as Replica;

  beforeAll(async () => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    ({ beginLoading } = (await built('commands/loadModel.js')) as typeof Loading);
    ({ DeviceHost } = (await built('driver/devices/deviceHost.js')) as typeof Host);
    const [first, second] = [await open(small), await open(other)];
    [alone, otherAlone] = [await scoreSequences(first, SEQUENCES), await scoreSequences(second, SEQUENCES)];
    expect(alone).not.toEqual(otherAlone);
    await Promise.all([first.close(), second.close()]);
  });
  afterEach(async () => {
    warnings.length = 0;
    await Promise.all([...opened].map((model) => model.close()));
    opened.clear();
    // No process and no listener is left.
    expect(children()).toEqual([]);
    expect(process.listenerCount('exit')).toBe(listeners);
  });
  const listeners = process.listenerCount('exit');
  afterAll(() => vi.unstubAllEnvs());

  test('share one process and compute what each computes alone', async () => {
    const host = apart();
    const [first, second] = await Promise.all([open(small, host), open(other, host)]);
    expect(children()).toHaveLength(1);
    const [a, b] = await Promise.all([scoreSequences(first, SEQUENCES), scoreSequences(second, SEQUENCES)]);
    expect([a, b]).toEqual([alone, otherAlone]);
    // Sixteen threads wait for calls and files.
    expect(readdirSync(`/proc/${children()[0]}/task`).length).toBeGreaterThan(16);
    // One is closed while the other computes; the process goes on, and ends with the last.
    const computing = scoreSequences(second, SEQUENCES);
    await first.close();
    expect(await computing).toEqual(otherAlone);
    await expect(scoreSequence(first, SEQUENCES[0]!)).rejects.toThrow('closed');
    // The same once more, and twice.
    const [again, twice] = await Promise.all([open(small, host), open(small, host)]);
    expect(children()).toHaveLength(1);
    expect(await Promise.all([again, twice].map((model) => scoreSequences(model, SEQUENCES)))).toEqual([alone, alone]);
    const [pid] = children();
    await Promise.all([again, twice, second].map((model) => model.close()));
    await allGone([pid!]);
    expect(warnings).toEqual([]);
  });

  thorough('are opened again, all of them, when their process is killed', async () => {
    const host = apart();
    const [first, second] = await Promise.all([open(small, host, { cacheTokens: 256 }), open(other, host)]);
    const [pid] = children();
    const before = [first, second].map((model) => replicaOf(model).epoch);
    const asked = Promise.allSettled([
      ...SEQUENCES.map((tokens) => scoreSequence(first, tokens)),
      ...SEQUENCES.map((tokens) => scoreSequence(second, tokens)),
    ]);
    const step = replicaOf(first).call(STEP, {}, replicaOf(first).epoch);
    process.kill(pid!, 'SIGKILL');
    await expect(step).rejects.toMatchObject({ name: 'ProcessEnded', how: 'SIGKILL' });
    const answers = (await asked).map((each) => (each.status === 'fulfilled' ? each.value : each.reason));
    expect(answers).toEqual([...alone, ...otherAlone]);
    await Promise.all([first, second].map((model) => replicaOf(model).opened()));
    expect([first, second].map((model) => replicaOf(model).epoch)).toEqual(before.map((epoch) => epoch + 1));
    expect(warnings).toEqual(['the device process ended (SIGKILL): another one takes over what is left']);
    expect(children()).toHaveLength(1);
    await Promise.all([first.close(), second.close()]);
  });

  test('fail alone', async () => {
    const host = apart();
    const first = await open(small, host);
    const [pid] = children();
    const computing = scoreSequences(first, SEQUENCES);
    // The process finds a tensor missing that was there when its parent looked.
    const failing = writeCheckpoint();
    const loading = beginOpening(failing, host);
    writeFileSync(join(failing, 'model.safetensors'), safetensorsFile(tensorsOf(3).slice(0, -1)));
    await expect(loading.finish()).rejects.toMatchObject({
      name: 'UserError',
      message: expect.stringContaining('model.norm.weight: missing') as string,
    });
    expect(await computing).toEqual(alone);
    // Closed before it is open, while another opens and the first computes.
    const opening = open(other, host);
    const third = await open(small, host);
    const [again] = await Promise.all([scoreSequences(first, SEQUENCES), third.close(), opening]);
    expect(again).toEqual(alone);
    expect(children()).toEqual([pid]);
  });

  thorough('on several devices share the process of each', async () => {
    const host = apart();
    const [first, second] = await Promise.all([
      open(small, host, { devices: 2, parallel: { replicas: 2, stages: 1 } }),
      open(other, host, { devices: 2, parallel: { replicas: 2, stages: 1 } }),
    ]);
    await Promise.all([first, second].flatMap(({ executor }) => executor.members!.map((member) => member.opened())));
    expect(children()).toHaveLength(2);
    const computing = Promise.all([scoreSequences(first, SEQUENCES), scoreSequences(second, SEQUENCES)]);
    process.kill(children()[0]!, 'SIGKILL');
    expect(await computing).toEqual([alone, otherAlone]);
    // The other device may have computed everything before the end of this one was noticed.
    const epochs = () => [first, second].map(({ executor }) => executor.members!.map(({ epoch }) => epoch));
    await expect.poll(epochs).toEqual([
      [1, 0],
      [1, 0],
    ]);
    await Promise.all([first, second].flatMap(({ executor }) => executor.members!.map((member) => member.opened())));
    expect(children()).toHaveLength(2);
    await Promise.all([first.close(), second.close()]);
  });

  test('in this process take turns', async () => {
    const host = new DeviceHost();
    const [first, second] = await Promise.all([open(small, host), open(other, host)]);
    expect(children()).toEqual([]);
    const [a, b] = await Promise.all([scoreSequences(first, SEQUENCES), scoreSequences(second, SEQUENCES)]);
    expect([a, b]).toEqual([alone, otherAlone]);
    await Promise.all([first.close(), second.close()]);
  });

  describe.skipIf(!canFakeGpu)('on a GPU', () => {
    const gpu = canFakeGpu ? new FakeGpu(temporaryFolder()) : undefined;
    const onGpu = { target: 'cuda' } as const;
    /** The stand-in's kernels compute nothing: what is compared is which calls have answers. */
    const isAnswered = async (model: Loaded): Promise<boolean> =>
      (await scoreSequences(model, SEQUENCES)).every((scores, i) => scores.length === SEQUENCES[i]!.length - 1);

    thorough('share a context, and one that does not fit beside another says who holds the memory', async () => {
      for (const [name, value] of Object.entries(gpu!.environment('totalBytes=300000000'))) vi.stubEnv(name, value);
      const host = apart();
      const first = await open(small, host, { ...onGpu, cacheTokens: 200_000 });
      const second = await open(other, host, onGpu);
      expect(children()).toHaveLength(1);
      expect(await Promise.all([isAnswered(first), isAnswered(second)])).toEqual([true, true]);
      for (const [cacheTokens, hint] of [
        [400_000, /^[\d.]+ MiB are missing: unload (small|other), or open them with fewer --cache-tokens$/],
        [1 << 20, /^other does not fit by itself either/],
      ] as const)
        await expect(open(other, host, { ...onGpu, cacheTokens })).rejects.toMatchObject({
          name: 'UserError',
          message: expect.stringMatching(
            /^other needs \d+ MiB of memory of Fake H100, of which \d+ MiB are free: small holds [^,:]+, other holds/,
          ) as string,
          hint: expect.stringMatching(hint) as string,
        });
      expect(await Promise.all([isAnswered(first), isAnswered(second)])).toEqual([true, true]);
      await first.close();
      expect(await isAnswered(second)).toBe(true);
      expect(warnings).toEqual([]);
    });
  });
});
