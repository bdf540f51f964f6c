import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { scoreInputs } from '../../../commands/scorer.js';
import { ProcessEnded } from '../../../driver/devices/protocol.js';
import { RemoteExecutor, type RemoteOptions } from '../../../driver/devices/remoteExecutor.js';
import type { ProcessOptions } from '../../../driver/devices/deviceProcess.js';
import { startSpare } from '../../../driver/devices/startProcess.js';
import type { Ui } from '../../../driver/requests.js';
import { UserError } from '../../../errors.js';
import type { MicroBatch } from '../../../evaluate/scorer.js';
import { scoreWith } from '../../support/scoring.js';
import { thorough } from '../../support/thorough.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-remote-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

let markers = 0;
/** A fault of the first process only. */
const once = (fault: string, at = 0): string => `${fault}:${at}:${join(folder, `marker${markers++}`)}`;

const batch = (rows: readonly number[]): MicroBatch => ({
  tokens: Int32Array.from([1, 2, 3]),
  position: Int32Array.from([0, 1, 2]),
  subtreeEnd: Int32Array.from([3, 3, 3]),
  row: Int32Array.from(rows),
  target: Int32Array.from(rows),
});

function recorder(): { ui: Ui; warnings: string[]; phases: string[] } {
  const [warnings, phases]: [string[], string[]] = [[], []];
  const none = (): void => undefined;
  return {
    warnings,
    phases,
    ui: {
      phase: (name) => phases.push(name),
      step: none,
      run: none,
      table: none,
      note: none,
      detail: none,
      warn: (line) => warnings.push(line),
    },
  };
}

const begin = (
  model: string,
  ui: Ui,
  timeoutSeconds = 30,
  more: Partial<Pick<RemoteOptions, 'model' | 'onEnd'> & Pick<ProcessOptions, 'loadingSeconds'>> = {},
): RemoteExecutor =>
  RemoteExecutor.begin(
    {
      model: Promise.resolve(new Uint8Array(1)),
      ...more,
      module: new URL('./fakeDevice.mjs', import.meta.url),
      timeoutSeconds,
      request: {
        model,
        init: { kind: 'checkpoint' },
        devices: [0],
        stages: 1,
        replica: { index: 0, count: 1 },
        threads: 1,
      },
    },
    ui,
  );

async function start(model: string, ui: Ui, timeoutSeconds?: number): Promise<RemoteExecutor> {
  const executor = begin(model, ui, timeoutSeconds);
  await executor.opened();
  return executor;
}

// Time passes where a test says so: processes take as long as they take. What is waited for is a message or an end.
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});

describe('an executor in a process of its own', () => {
  it('starts at once, waits for the compiled model, and ends where there is none', async () => {
    const { ui, phases } = recorder();
    let compiled: (model: Uint8Array) => void = () => undefined;
    const model = new Promise<Uint8Array>((resolve) => {
      compiled = resolve;
    });
    const executor = begin('echo', ui, 30, { model });
    await setImmediate();
    // Nobody has asked it for anything: its silence means nothing.
    expect(vi.getTimerCount()).toBe(0);
    compiled(Uint8Array.of(1, 2, 3));
    await executor.opened();
    expect(phases).toEqual(['model of 3 bytes']);
    await executor.close();
    const without = begin('never', ui, 30, { model: Promise.reject(new UserError('does not compile', 'mend it')) });
    await expect(without.opened()).rejects.toThrow('does not compile');
    await without.close();
  });

  it('takes over a process that was started early, once', async () => {
    const module = new URL('./fakeDevice.mjs', import.meta.url);
    startSpare(module, 0);
    startSpare(module, 0);
    const { ui, phases } = recorder();
    const [first, second] = [begin('early', ui), begin('early', ui)];
    await Promise.all([first.opened(), second.opened()]);
    expect(phases.toSorted()).toEqual(['prepared 0', 'prepared nothing']);
    await Promise.all([first.close(), second.close()]);
  });

  it('opens the model, scores, profiles and closes', async () => {
    const { ui, phases, warnings } = recorder();
    const executor = await start('never', ui);
    expect([executor.capacity, phases]).toEqual([{ score: { T: 128, R: 64 } }, ['load weights']]);
    const [first, second] = await Promise.all([scoreWith(executor, batch([0, 2])), scoreWith(executor, batch([1]))]);
    expect([[...first.logProb], [...second.logProb], [...first.isArgmax]]).toEqual([[-1, -3], [-2], [1, 1]]);
    expect((await executor.profile('score', scoreInputs(batch([0]), executor))).launches).toEqual([
      { path: 'head', nanoseconds: 5 },
    ]);
    await executor.close();
    await executor.close();
    await expect(scoreWith(executor, batch([0]))).rejects.toThrow('closed');
    expect(warnings).toEqual([]);
  });

  it.each([
    ['dies', 'die', /ended \(exit status 9\)/],
    ['loses its device', 'lose', /ended \(CUDA_ERROR_ILLEGAL_ADDRESS\)/],
  ])('is replaced if it %s, and nothing is lost', async (_what, fault, said) => {
    const { ui, warnings } = recorder();
    const executor = await start(once(fault, 1), ui);
    const answers = await Promise.all([0, 1, 2, 0].map((row) => scoreWith(executor, batch([row]))));
    expect(answers.map(({ logProb }) => logProb[0])).toEqual([-1, -2, -3, -1]);
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toMatch(said);
    await executor.close();
  });

  it('is killed and replaced if it does not answer', async () => {
    const { ui, warnings } = recorder();
    const executor = await start(once('hang'), ui, 3);
    const answer = scoreWith(executor, batch([2]));
    await expect.poll(() => vi.getTimerCount()).toBe(1);
    vi.advanceTimersByTime(2999);
    expect(warnings).toEqual([]);
    vi.advanceTimersByTime(1);
    expect((await answer).logProb[0]).toBe(-3);
    expect(warnings).toEqual([
      expect.stringContaining('has not answered for 3 s'),
      expect.stringContaining('ended (SIGKILL)'),
    ]);
    await executor.close();
  });

  it('hands on how much of a step is done', async () => {
    const steps: unknown[] = [];
    const { ui } = recorder();
    const executor = await start('never', { ...ui, step: (...how) => steps.push(how) });
    expect(steps).toEqual([[0.25, { done: 1, total: 4, unit: 'bytes' }]]);
    await executor.close();
  });

  it('that says nothing while it loads the model is ended; one that is slow and says so is not', async () => {
    const { ui, warnings } = recorder();
    const deaf = begin('deaf', ui, 30, { loadingSeconds: 0.5 });
    await expect.poll(() => vi.getTimerCount()).toBe(1);
    vi.advanceTimersByTime(500);
    await expect(deaf.opened()).rejects.toThrow('ended while it loaded the model: SIGKILL');
    expect(warnings).toEqual([expect.stringContaining('has said nothing for 0.5 s while it loads the model')]);
    await deaf.close();

    let steps = 0;
    const step = (): void => {
      steps++;
      vi.advanceTimersByTime(4000);
    };
    const slow = begin('slow:6', { ...ui, step }, 30, { loadingSeconds: 5 });
    await slow.opened();
    expect(steps).toBe(6);
    expect((await scoreWith(slow, batch([1]))).logProb[0]).toBe(-2);
    expect(warnings).toHaveLength(1);
    await slow.close();
  });

  thorough('hands back what it was asked if another can compute it, and starts again by itself', async () => {
    const { ui, warnings } = recorder();
    const ends: string[] = [];
    const executor = begin(once('die', 1), ui, 30, { onEnd: (how) => ends.push(how) });
    await executor.opened();
    const settled = await Promise.allSettled([0, 1, 2].map((row) => scoreWith(executor, batch([row]))));
    expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected']);
    for (const each of settled) if (each.status === 'rejected') expect(each.reason).toBeInstanceOf(ProcessEnded);
    expect(ends).toEqual(['exit status 9']);
    await executor.opened();
    expect((await scoreWith(executor, batch([2]))).logProb[0]).toBe(-3);
    expect(warnings).toEqual([expect.stringContaining('another one takes over')]);
    await executor.close();
  });

  thorough('reports through opened() that it cannot load the model again', async () => {
    const { ui } = recorder();
    let next: Promise<void> | undefined;
    const executor = begin(once('reopen'), ui, 30, {
      onEnd: () => {
        next = executor.opened();
      },
    });
    await executor.opened();
    await expect(scoreWith(executor, batch([0]))).rejects.toBeInstanceOf(ProcessEnded);
    await expect(next).rejects.toThrow('no such model');
    await executor.close();
  });

  thorough('whose process ends between two calls asks the next one for nothing that it kept', async () => {
    const { ui, warnings } = recorder();
    const executor = await start(once('rest'), ui);
    const inputs = { row: Int32Array.of(4) };
    const { epoch } = executor;
    const step = async (of: number | undefined): Promise<unknown> =>
      (await executor.call('step', inputs, of)).outputs['logProb'];
    expect(await step(epoch)).toEqual(Float32Array.of(-5));
    await expect.poll(() => executor.epoch).not.toBe(epoch);
    // Twice: what comes later does not get to the next process either.
    for (let i = 0; i < 2; i++)
      await expect(step(epoch)).rejects.toMatchObject({ name: 'ProcessEnded', how: 'exit status 9', wasAsked: false });
    await executor.opened();
    await expect(step(epoch)).rejects.toBeInstanceOf(ProcessEnded);
    await expect(step(undefined)).rejects.toThrow('a call of step does not say which states it needs');
    expect(await step(executor.epoch)).toEqual(Float32Array.of(-5));
    expect(warnings).toEqual([expect.stringContaining('another one takes over')]);
    await executor.close();
  });

  thorough('gives up on a micro-batch that ends it again and again', async () => {
    const { ui } = recorder();
    const executor = await start('always', ui);
    const failure = scoreWith(executor, batch([0]));
    await expect(failure).rejects.toThrow(UserError);
    await expect(failure).rejects.toThrow(
      'a call of score with 3 tokens ended the device process 2 times: exit status 9',
    );
    // There is a journal only where a run writes one.
    await expect(failure).rejects.toMatchObject({ hint: expect.not.stringContaining('journal') as string });
    await executor.close();
  });

  thorough('starts again for a micro-batch that comes after its end, or says why it cannot', async () => {
    const { ui } = recorder();
    const executor = await start(once('reopen'), ui);
    await expect(scoreWith(executor, batch([0]))).rejects.toThrow('no such model');
    await expect(scoreWith(executor, batch([0]))).rejects.toThrow(/no such model|ended/);
    await executor.close();
  });

  it('loads the model while its parent does something else, and is ended at once if the parent fails', async () => {
    const { ui, phases } = recorder();
    const model = once('never');
    const executor = begin(model, ui);
    await setImmediate();
    // A parent that does something else listens to nobody. The child does not wait, and leaves a file as its mark.
    const mark = model.split(':')[2]!;
    while (!existsSync(mark)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
    expect(phases).toEqual([]);
    await executor.opened();
    expect(phases).toEqual(['load weights']);
    await executor.close();

    const unready = begin('deaf', ui);
    const opened = unready.opened().catch((error: unknown) => error);
    // No time passes: it does not wait for the process to notice.
    await unready.close();
    expect(await opened).toBeInstanceOf(UserError);
    await expect(scoreWith(unready, batch([0]))).rejects.toThrow('closed');
  });

  it('passes on what was wrong with a micro-batch or a model', async () => {
    const { ui } = recorder();
    const executor = await start('nan', ui);
    await expect(scoreWith(executor, batch([0]))).rejects.toMatchObject({
      name: 'NonFiniteError',
      where: 'layers.3.ffn.down',
      rows: [1],
    });
    expect((await scoreWith(executor, batch([0]))).logProb[0]).toBe(-1);
    await executor.close();
    const unopened = begin('unopened', ui);
    await expect(unopened.opened()).rejects.toMatchObject({
      name: 'UserError',
      message: 'no such model',
      hint: 'look for it',
    });
    await unopened.close();
  });
});
