/**
 * A model spread over several devices of a CPU: whole replicas, stages of a pipeline, replicas of pipelines. Processes,
 * placement and order of copies are the same as on GPUs. The answers are those of one device, to the bit.
 */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { midst } from './children.js';
import { CONFIG, questions, writeCheckpoint, writeData } from './smallModel.js';
import { failure, isBuilt, runArguments, success, temporaryFolder, textOf, tilewright, warmCache } from './support.js';
import { casesHere, thorough } from '../support/thorough.js';

describe.skipIf(!isBuilt)('a model on several devices', () => {
  const model = writeCheckpoint();
  const data = writeData(questions(120));
  const run = async (...more: string[]): Promise<{ readonly samples: string; readonly stderr: string }> => {
    const out = temporaryFolder();
    const { stderr } = success(await tilewright(runArguments(model, data, '--out', out, ...more)));
    return { samples: textOf(out, 'samples'), stderr };
  };
  let alone = '';

  beforeAll(async () => {
    await warmCache(model);
    alone = (await run()).samples;
  });

  const WAYS: readonly (readonly [string, number, RegExp])[] = [
    ['pp=4', 4, /placement: pp=4 on 4 devices, predicted balance \d\d\.\d %: \d\.\d\d× one device/],
    ['auto', 2, /placement: dp=2 on 2 devices/],
  ];
  test.each(casesHere(WAYS, 0))(
    'gives the answers of one device with --parallel %s, and says how it is placed',
    async (parallel, devices, says) => {
      const { samples, stderr } = await run('--target', 'cpu', '--devices', String(devices), '--parallel', parallel);
      expect(stderr).toMatch(says);
      expect(samples).toBe(alone);
    },
  );

  test('says nothing of a placement if there is one device', async () => {
    expect((await run('--devices', '1')).stderr).not.toContain('placement');
  });

  thorough('takes over what another number of devices has finished', async () => {
    const out = temporaryFolder();
    success(
      await tilewright(
        runArguments(model, data, '--out', out, '--docs', '0:120', '--devices', '3', '--parallel', 'pp=3'),
      ),
    );
    const { stderr } = success(
      await tilewright(
        runArguments(model, data, '--out', out, '--docs', '0:120', '--resume', '--devices', '2', '--parallel', 'dp=2'),
      ),
    );
    expect(stderr).toContain('120 questions taken over');
  });

  thorough('gives the answers of one device though a process of its pipeline is killed', async () => {
    const out = temporaryFolder();
    const many = writeData(questions(400, 3));
    const command = (folder: string, ...more: string[]): string[] =>
      runArguments(model, many, '--out', folder, ...more);
    const whole = temporaryFolder();
    success(await tilewright(command(whole)));
    const { stderr } = success(
      await tilewright(command(out, '--parallel', 'pp=2'), {
        onProgress: midst(1, ([child]) => process.kill(child!, 'SIGKILL')),
      }),
    );
    expect(stderr).toMatch(
      new RegExp(
        'placement: pp=2 on 2 devices.*\n' +
          '.*stage 0: prepare to layers.* % of the work.*of weights.*of activations\n' +
          '.*stage 1: layers.* to head\\.reduce',
      ),
    );
    expect(stderr).toContain('SIGKILL');
    expect(textOf(out, 'samples')).toBe(textOf(whole, 'samples'));
  });

  test('refuses more stages than the plan has launches', async () => {
    const { error } = failure(await tilewright(runArguments(model, data, '--parallel', 'pp=15')));
    expect(error).toMatch(/15 stages of a plan that can be cut into 14 at most/);
  });
});

describe.skipIf(!isBuilt)('a model that is too large for a device', () => {
  const data = writeData(questions(60, 11));
  /** In f32 whatever the machine: the sizes below are those of its weights. */
  const made = ['--init', 'random:5', '--precision', 'f32'];
  let config = '';
  let alone = '';
  const arguments_ = (...more: string[]): string[] => runArguments(config, data, ...made, ...more);
  /** What weights and activations may take of each device. */
  const within = (deviceMemory: string): { env: Record<string, string> } => ({
    env: { TILEWRIGHT_DEVICE_MEMORY: deviceMemory },
  });

  beforeAll(async () => {
    const dir = writeCheckpoint({ weights: null }, 'large');
    config = join(dir, 'config.json');
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
    expect(dirname(config)).toBe(dir);
    await warmCache(config, ...made);
    const out = temporaryFolder();
    success(await tilewright(arguments_('--out', out)));
    alone = textOf(out, 'samples');
  });

  const PLACEMENTS: readonly (readonly [number, string])[] = [
    [2, 'pp=2'],
    [4, 'dpxpp=2x2'],
    [3, 'pp=3'],
  ];
  test.each(casesHere(PLACEMENTS, 1))(
    'is spread over %i devices as %s by default, with the same answers',
    async (devices, placement) => {
      const out = temporaryFolder();
      const { stderr } = success(
        await tilewright(arguments_('--devices', String(devices), '--out', out), within('9MiB')),
      );
      expect(stderr).toContain(`placement: ${placement} on ${devices} devices`);
      expect(textOf(out, 'samples')).toBe(alone);
    },
  );

  test('is refused as whole replicas, and the error says what would fit', async () => {
    const { error, hint } = failure(
      await tilewright(arguments_('--devices', '4', '--parallel', 'dp=4'), within('9MiB')),
    );
    expect(error).toMatch(/does not fit a device with room for 9 MiB/);
    expect(hint).toMatch(/a pipeline of 2 \(--parallel pp=2\)/);
  });

  thorough('is refused if there are too few devices, with the number that would hold it', async () => {
    const { error, hint } = failure(await tilewright(arguments_('--devices', '2'), within('6MiB')));
    expect(error).toMatch(
      new RegExp(
        'does not fit 2 devices as a pipeline with room for 6 MiB each: its largest stage takes ' +
          '.* of weights and .* of activations of two micro-batches of 96 tokens',
      ),
    );
    const [, pp = ''] = /--devices (\d) --parallel pp=\1/.exec(hint) ?? [];
    const { stderr } = success(await tilewright(arguments_('--devices', pp), within('6MiB')));
    expect(stderr).toContain(`placement: pp=${pp} on ${pp} devices`);
  });

  test('is refused if the size is invalid', async () => {
    expect(failure(await tilewright(arguments_('--devices', '2'), within('lots'))).error).toMatch(
      /TILEWRIGHT_DEVICE_MEMORY is "lots", which is no size/,
    );
  });
});
