/** Several models in the process of a device, which is a stand-in without a device: what one does to the others. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { DeviceProcess } from '../../../driver/devices/deviceProcess.js';
import { ProcessEnded } from '../../../driver/devices/protocol.js';
import { RemoteExecutor, type RemoteOptions } from '../../../driver/devices/remoteExecutor.js';
import type { Ui } from '../../../driver/requests.js';
import { SILENT } from '../../support/silent.js';
import { allGone, isAlive } from '../../e2e/children.js';
import { thorough } from '../../support/thorough.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-models-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

let markers = 0;
/** A fault of the first process only. */
const once = (fault: string, at = 0): string => `${fault}:${at}:${join(folder, `marker${markers++}`)}`;

const opened: RemoteExecutor[] = [];
let warnings: string[] = [];
let listeners = 0;
/** A clock of the test, for ends within a stretch of time. */
let milliseconds = 0;

function newProcess(): DeviceProcess {
  const options = {
    module: new URL('./fakeDevice.mjs', import.meta.url),
    target: 'none',
    device: 0,
    timeoutSeconds: 30,
  };
  const ui: Ui = { ...SILENT, warn: (line) => warnings.push(line) };
  return new DeviceProcess(options, ui, () => milliseconds);
}

function begin(process: DeviceProcess, model: string, more: Partial<RemoteOptions> = {}): RemoteExecutor {
  const executor = RemoteExecutor.open(
    process,
    {
      model: Promise.resolve(new Uint8Array(1)),
      ...more,
      request: {
        model,
        init: { kind: 'checkpoint' },
        devices: [0],
        stages: 1,
        replica: { index: 0, count: 1 },
        threads: 1,
      },
    },
    SILENT,
  );
  opened.push(executor);
  return executor;
}

async function open(process: DeviceProcess, model: string, more?: Partial<RemoteOptions>): Promise<RemoteExecutor> {
  const executor = begin(process, model, more);
  await executor.opened();
  return executor;
}

const row = async (executor: RemoteExecutor, number: number, name = 'score', epoch?: number): Promise<unknown> => {
  const { outputs } = await executor.call(name, { row: Int32Array.of(number) }, epoch);
  return outputs['logProb']?.[0];
};

// Time passes where a test says so.
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  warnings = [];
  listeners = process.listenerCount('exit');
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((executor) => executor.close()));
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
  // Nobody waits for processes to end: there are none.
  expect(process.listenerCount('exit')).toBe(listeners);
});

const TAKES_OVER = (how: string): string => `the device process ended (${how}): another one takes over what is left`;

describe('models in one process', () => {
  it('are asked side by side, and closed one by one', async () => {
    const device = newProcess();
    const [a, b] = await Promise.all([open(device, 'never'), open(device, 'never')]);
    const { pid } = device;
    expect(await Promise.all([row(a, 1), row(b, 2), row(a, 3)])).toEqual([-2, -3, -4]);
    await a.close();
    expect(await row(b, 5)).toBe(-6);
    await expect(row(a, 1)).rejects.toThrow('closed');
    const c = await open(device, 'never');
    expect([device.pid, await row(c, 1)]).toEqual([pid, -2]);
    await Promise.all([b.close(), c.close()]);
    await allGone([pid!]);
    // Another process, for whoever comes later.
    const d = await open(device, 'never');
    expect(device.pid).not.toBe(pid);
    expect(await row(d, 1)).toBe(-2);
    expect(warnings).toEqual([]);
  });

  it('keep what was asked of one that is closed, until it is answered', async () => {
    const device = newProcess();
    const [a, b] = await Promise.all([open(device, 'late'), open(device, 'never')]);
    const asked = row(a, 1);
    // It is sent.
    await expect.poll(() => vi.getTimerCount()).toBe(1);
    const closing = a.close();
    await expect(row(a, 2)).rejects.toThrow('closed');
    await closing;
    expect(await asked).toBe(-2);
    expect(await row(b, 2)).toBe(-3);
  });

  it('all come back when their process ends; only what needed states is lost', async () => {
    const device = newProcess();
    const ends: string[] = [];
    const [a, b, c] = await Promise.all([
      open(device, once('die', 1)),
      open(device, 'never'),
      open(device, 'never', { onEnd: (how) => ends.push(how) }),
    ]);
    const first = device.pid;
    expect(await Promise.all([row(a, 0), row(b, 0), row(c, 0)])).toEqual([-1, -1, -1]);
    const { epoch } = b;
    const asked = await Promise.allSettled([row(a, 1), row(b, 2), row(b, 3, 'step', epoch), row(c, 4)]);
    expect(asked.map((each) => (each.status === 'fulfilled' ? each.value : each.reason))).toEqual([
      -2,
      -3,
      expect.any(ProcessEnded),
      expect.any(ProcessEnded),
    ]);
    expect([a, b, c].map((model) => model.epoch)).toEqual([1, 1, 1]);
    expect(ends).toEqual(['exit status 9']);
    await Promise.all([a, b, c].map((model) => model.opened()));
    await expect(row(b, 1, 'step', epoch)).rejects.toBeInstanceOf(ProcessEnded);
    expect(await Promise.all([row(a, 1), row(b, 1, 'step', b.epoch), row(c, 1)])).toEqual([-2, -2, -2]);
    expect(warnings).toEqual([TAKES_OVER('exit status 9')]);
    await allGone([first!]);
  });

  it('change their memory where they are, and not in a process that nobody knows of', async () => {
    const device = newProcess();
    const [a, b] = await Promise.all([open(device, 'never'), open(device, once('die'))]);
    const { epoch } = a;
    expect(a.pieces).toEqual({ tokens: 64, bytes: 1 << 21 });
    expect([await a.resize(64, epoch), await a.resize(128, epoch)]).toEqual([64, 100]);
    await expect(a.resize(64)).rejects.toThrow('a change of memory does not say which states it needs');
    const [row1] = await Promise.all([row(b, 1), expect(a.resize(32, epoch)).rejects.toBeInstanceOf(ProcessEnded)]);
    expect(row1).toBe(-2);
    await a.opened();
    await expect(a.resize(32, epoch)).rejects.toBeInstanceOf(ProcessEnded);
    expect(await a.resize(32, a.epoch)).toBe(32);
  });

  it('that cannot be opened fail alone', async () => {
    const device = newProcess();
    const a = await open(device, 'never');
    const { pid } = device;
    const failing = begin(device, 'unopened');
    const asked = row(failing, 1);
    await expect(failing.opened()).rejects.toMatchObject({ message: 'no such model', hint: 'look for it' });
    await expect(asked).rejects.toThrow('no such model');
    await expect(row(failing, 1)).rejects.toThrow('no such model');
    const uncompiled = begin(device, 'never', { model: Promise.reject(new Error('does not compile')) });
    await expect(uncompiled.opened()).rejects.toThrow('does not compile');
    expect([await row(a, 1), device.pid]).toEqual([-2, pid]);
    await Promise.all([failing.close(), uncompiled.close()]);
    expect([await row(a, 1), device.pid]).toEqual([-2, pid]);
    expect(warnings).toEqual([]);
  });

  it('that come when the process ends, because one before could not be opened, get the next', async () => {
    const device = newProcess();
    const failing = begin(device, 'unopened');
    const asked = row(failing, 1);
    const next = asked.catch(() => begin(device, 'never'));
    await expect(asked).rejects.toThrow('no such model');
    const second = (await next) as RemoteExecutor;
    await second.opened();
    expect(await row(second, 1)).toBe(-2);
    await expect(row(failing, 1)).rejects.toThrow('no such model');
    await failing.close();
    expect(await row(second, 2)).toBe(-3);
    expect(warnings).toEqual([]);
  });

  thorough('that end the process while they are opened are tried once more, and then fail alone', async () => {
    const device = newProcess();
    const [a, b] = await Promise.all([open(device, 'never'), open(device, 'never')]);
    const failing = begin(device, 'crash');
    await expect(failing.opened()).rejects.toThrow('ended while it loaded the model: exit status 7');
    expect(await Promise.all([row(a, 1), row(b, 1)])).toEqual([-2, -2]);
    expect(warnings).toEqual(Array.from({ length: warnings.length }, () => TAKES_OVER('exit status 7')));
    // One that a neighbour takes along is opened by the next process.
    const dying = await open(device, once('die'));
    const opening = begin(device, 'never');
    expect(await row(dying, 1)).toBe(-2);
    await opening.opened();
    expect(await row(opening, 1)).toBe(-2);
  });

  it('are all replaced if one does not answer', async () => {
    const device = newProcess();
    const [a, b] = await Promise.all([open(device, once('hang')), open(device, 'never')]);
    const asked = row(a, 1);
    await expect.poll(() => vi.getTimerCount()).toBe(1);
    expect(await row(b, 2)).toBe(-3);
    vi.advanceTimersByTime(30_000);
    expect(await asked).toBe(-2);
    await b.opened();
    expect(await row(b, 2)).toBe(-3);
    expect([a.epoch, b.epoch]).toEqual([1, 1]);
    expect(warnings).toEqual(['the device has not answered for 30 s: its process is replaced', TAKES_OVER('SIGKILL')]);
  });

  thorough('may be closed while others open, and before they are open themselves', async () => {
    const device = newProcess();
    const a = await open(device, 'never');
    const b = begin(device, 'never');
    const c = begin(device, 'never', { model: new Promise(() => undefined) });
    await a.close();
    await Promise.all([b.close(), c.close()]);
    await expect(c.opened()).rejects.toThrow(/closed|ended while it loaded/);
    expect(device.pid).toBeUndefined();
    // One joins while the last one leaves: its process begins when the other has ended.
    const d = await open(device, 'never');
    const { pid } = device;
    const closing = d.close();
    const e = await open(device, 'never');
    expect(isAlive(pid!)).toBe(false);
    await closing;
    expect(await row(e, 1)).toBe(-2);
    expect(warnings).toEqual([]);
  });

  thorough('are given up where their process ends again and again, and come back when that lies behind', async () => {
    const device = newProcess();
    const [a, b] = await Promise.all([open(device, 'never'), open(device, 'never')]);
    const kill = async (): Promise<void> => {
      const { pid } = device;
      process.kill(pid!, 'SIGKILL');
      await expect.poll(() => device.pid).not.toBe(pid);
    };
    for (let i = 0; i < 5; i++) {
      await kill();
      const asked = Promise.all([row(a, 1), row(b, 1)]);
      // Loading may take longer than all else, and does not count.
      milliseconds += 3_600_000;
      expect(await asked).toEqual([-2, -2]);
      milliseconds += 100_000;
    }
    await kill();
    await expect(row(a, 1)).rejects.toThrow('ended 6 times within ten minutes, last: SIGKILL');
    await expect(row(b, 1)).rejects.toThrow('ended 6 times');
    expect(warnings).toHaveLength(5);
    // Ten minutes after the first of them.
    milliseconds += 100_001;
    expect(await row(a, 1)).toBe(-2);
    expect(warnings).toHaveLength(6);
  });
});
