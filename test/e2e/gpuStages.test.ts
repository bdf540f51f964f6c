/** A model on several GPUs through the real command: driver and NVRTC are stand-ins, everything else is real. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { canFakeGpu, FakeGpu } from '../support/fakeCuda/fakeGpu.js';
import { CONFIG, questions, writeCheckpoint, writeData } from './smallModel.js';
import { GPU_CAPACITY, failure, isBuilt, success, temporaryFolder, textOf, tilewright } from './support.js';

if (!canFakeGpu) process.stderr.write('SKIPPED: several GPUs through the command: no cc or g++ on PATH\n');

describe.skipIf(!isBuilt || !canFakeGpu)('run --target cuda on several GPUs', () => {
  const gpu = canFakeGpu ? new FakeGpu(temporaryFolder()) : undefined;
  const data = writeData(questions(60));
  let config = '';
  let alone = '';
  const command = (...more: string[]): string[] => [
    'run',
    config,
    '--init',
    'random:5',
    '--task',
    'multiple_choice',
    '--data',
    data,
    '--target',
    'cuda',
    ...GPU_CAPACITY,
    ...more,
  ];
  const run = async (
    environment: Readonly<Record<string, string>>,
    ...more: string[]
  ): Promise<{ readonly samples: string; readonly stderr: string }> => {
    const out = temporaryFolder();
    const { stderr } = success(
      await tilewright(command('--out', out, ...more), { env: { ...gpu!.environment('devices=4'), ...environment } }),
    );
    return { samples: textOf(out, 'samples'), stderr };
  };

  beforeAll(async () => {
    config = join(writeCheckpoint({ weights: null }, 'large'), 'config.json');
    writeFileSync(
      config,
      JSON.stringify({
        ...CONFIG,
        hidden_size: 256,
        intermediate_size: 512,
        num_hidden_layers: 4,
        num_attention_heads: 8,
        num_key_value_heads: 8,
      }),
    );
    alone = (await run({})).samples;
  });

  test('says with --parallel pp=4 how the model is placed, and gives the answers of one device', async () => {
    const { samples, stderr } = await run({}, '--parallel', 'pp=4', '--verbose');
    expect(stderr).toContain('placement: pp=4 on 4 devices');
    for (const text of ['Fake H100, Fake H101, Fake H102, Fake H103', 'stages hand on device to device'])
      expect(stderr).toContain(text);
    expect(samples).toBe(alone);
  });

  test('copies through the host if devices cannot reach each other, and says so', async () => {
    const { samples, stderr } = await run(gpu!.environment('devices=4', 'peers=0'), '--parallel', 'pp=2');
    expect(stderr).toContain('through the host');
    expect(samples).toBe(alone);
  });

  test('chooses a pipeline if the model fits no device, though replicas were already started', async () => {
    const { samples, stderr } = await run({ TILEWRIGHT_DEVICE_MEMORY: '6MiB' }, '--devices', '4');
    expect(stderr).toContain('placement: dpxpp=2x2 on 4 devices');
    expect(stderr).not.toMatch(/left out|ended/);
    expect(samples).toBe(alone);
  });

  test('is refused if the model does not fit, whatever the processes that were started say', async () => {
    const { error, hint } = failure(
      await tilewright(command('--devices', '2'), {
        env: { ...gpu!.environment('devices=4'), TILEWRIGHT_DEVICE_MEMORY: '4MiB' },
      }),
    );
    expect(error).toMatch(/does not fit 2 devices as a pipeline with room for 4 MiB each/);
    expect(hint).toMatch(/--devices \d --parallel pp=\d/);
  });
});
