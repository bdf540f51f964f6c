/**
 * What goes wrong with one of several GPUs, through the real command: the driver is a stand-in, everything else is
 * real. Its kernels compute nothing, so equal answers here mean that no question was lost or scored twice;
 * devices.test.ts compares bits.
 */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { canFakeGpu, FakeGpu } from '../support/fakeCuda/fakeGpu.js';
import { together } from '../e2e/children.js';
import { questions, writeCheckpoint, writeData } from '../e2e/smallModel.js';
import {
  GPU_CAPACITY,
  failure,
  filesOf,
  isBuilt,
  success,
  temporaryFolder,
  textOf,
  tilewright,
  type Here,
  type Outcome,
} from '../e2e/support.js';

if (!canFakeGpu) process.stderr.write('SKIPPED: faults of one of several GPUs: no cc or g++ on PATH\n');

describe.skipIf(!isBuilt || !canFakeGpu)('run --target cuda on several devices', () => {
  const gpu = canFakeGpu ? new FakeGpu(temporaryFolder()) : undefined;
  const model = writeCheckpoint();
  const data = writeData(questions(150));
  const runWith = (
    onProgress: Here['onProgress'],
    faults: readonly string[],
    out: string,
    ...more: string[]
  ): Promise<Outcome> =>
    tilewright(
      [
        'run',
        model,
        '--task',
        'multiple_choice',
        '--data',
        data,
        '--target',
        'cuda',
        '--sharing',
        'none',
        ...GPU_CAPACITY,
        '--out',
        out,
        ...more,
      ],
      {
        env: {
          ...gpu!.environment('devices=4', `totalBytes=${8 * 2 ** 30}`, ...faults),
          ...(faults.some((fault) => fault.includes(':-1:')) ? { TILEWRIGHT_DEVICE_TIMEOUT: '3' } : {}),
        },
        ...(onProgress === undefined ? {} : { onProgress }),
      },
    );
  const run = (faults: readonly string[], out: string, ...more: string[]): Promise<Outcome> =>
    runWith(undefined, faults, out, ...more);
  /** Ensures that the faulty device is asked something, however late it is. */
  const runTogether = (faults: readonly string[], out: string, ...more: string[]): Promise<Outcome> =>
    runWith(together(), faults, out, ...more);

  /** What a run on one device leaves: a run that survives a fault must leave the same. */
  let sound: Promise<string> | undefined;
  const onOne = (): Promise<string> =>
    (sound ??= (async () => {
      const out = temporaryFolder();
      success(await run([], out));
      return textOf(out, 'samples');
    })());

  test('gives the answers of one with --devices all', async () => {
    const wanted = await onOne();
    const out = temporaryFolder();
    const { stderr } = success(await run([], out, '--devices', 'all'));
    expect(stderr).not.toContain('warning');
    expect(textOf(out, 'samples')).toBe(wanted);
  });

  test('asks for no more devices than there are', async () => {
    const { error, hint } = failure(await run([], temporaryFolder(), '--devices', '5'));
    expect(error).toBe('5 GPUs for cuda:sm_90a are asked for, and this machine has 4');
    expect(hint).toBe('use --devices 4');
  });

  test('leaves out a device that has no memory for the model, and says so', async () => {
    const wanted = await onOne();
    const out = temporaryFolder();
    const { stderr } = success(await run(['fail:cuMemAlloc_v2:2:1', 'failDevice=2'], out, '--devices', '4'));
    expect(stderr).toMatch(
      /warning: device 2 is left out, the run goes on with 3 of 4: This plan needs [\d.]+ [KMG]iB of device memory/,
    );
    expect(textOf(out, 'samples')).toBe(wanted);
  });

  test('says what is missing if none has the memory', async () => {
    const { error, hint } = failure(await run(['fail:cuMemAlloc_v2:2:1'], temporaryFolder(), '--devices', '2'));
    expect(error).toMatch(/This plan needs [\d.]+ [KMG]iB of device memory/);
    expect(hint).not.toBe('');
  });

  test.each([
    ['an illegal access', 700, 'CUDA_ERROR_ILLEGAL_ADDRESS'],
    ['a kernel that hangs', -1, 'has not answered for 3 s'],
  ] as const)('continues in another process after %s on one device', async (_what, code, said) => {
    const wanted = await onOne();
    const out = temporaryFolder();
    const { stderr } = success(
      await runTogether(
        [`fail:cuLaunchKernelEx:${code}:70`, 'failDevice=1', `once=${join(temporaryFolder(), 'failed')}`],
        out,
        '--devices',
        '3',
      ),
    );
    expect(stderr).toContain(said);
    expect(stderr).toMatch(/device 1: the device process ended/);
    expect(textOf(out, 'samples')).toBe(wanted);
  });

  test('continues without a device that is lost again and again', async () => {
    const wanted = await onOne();
    const out = temporaryFolder();
    // Its process is replaced each time, and each time a micro-batch ends it. The others have time to finish
    // everything.
    const { stderr } = success(
      await runTogether(['fail:cuLaunchKernelEx:700:50', 'failDevice=1'], out, '--devices', '3'),
    );
    expect(stderr).toMatch(/device 1: the device process ended \(.*CUDA_ERROR_ILLEGAL_ADDRESS/);
    expect(textOf(out, 'samples')).toBe(wanted);
  });

  test('ends if all are lost, with its journal whole, and can be resumed with another number of devices', async () => {
    const wanted = await onOne();
    const out = temporaryFolder();
    const { hint } = failure(await run(['fail:cuLaunchKernelEx:700:60'], out, '--devices', '2'));
    expect(hint).toContain('what is finished is kept');
    expect(filesOf(out, 'journal')).toHaveLength(1);
    success(await run([], out, '--devices', '3', '--resume'));
    expect(textOf(out, 'samples')).toBe(wanted);
  });

  test('continues with halves if one runs out of memory in a micro-batch', async () => {
    const wanted = await onOne();
    const out = temporaryFolder();
    const { stderr } = success(
      await runTogether(['fail:cuLaunchKernelEx:2:40:1', 'failDevice=1'], out, '--devices', '2'),
    );
    expect(stderr).toMatch(/ran out of memory in a micro-batch of \d+ tokens: continuing with halves/);
    expect(textOf(out, 'samples')).toBe(wanted);
  });
});
