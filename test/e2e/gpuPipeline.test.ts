/**
 * Pipelines of GPUs and the faults that they survive, through the real command: drivers are stand-ins; placement,
 * processes, queues and copies are real. Kernels leave meaningless numbers, the same each time: the answers of faulty
 * runs are compared with those of a sound run.
 */
import { join } from 'node:path';
import { readFileSync, writeFileSync } from 'node:fs';
import { execFile } from 'node:child_process';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import type { Amount } from '../../driver/requests.js';
import { readSettings } from '../../settings.js';
import { canFakeGpu, FakeGpu } from '../support/fakeCuda/fakeGpu.js';
import { casesHere, thorough } from '../support/thorough.js';
import { questions, writeCheckpoint, writeData } from './smallModel.js';
import { GPU_CAPACITY, isBuilt, ROOT, success, temporaryFolder, textOf, tilewright, type Outcome } from './support.js';

if (!canFakeGpu) process.stderr.write('SKIPPED: pipelines of GPUs through the command: no cc or g++ on PATH\n');

/** Four GPUs, each with more memory than placement keeps free. */
const ROOMY = ['devices=4', `totalBytes=${2 ** 31}`];

describe.skipIf(!isBuilt || !canFakeGpu)('run --target cuda on pipelines of GPUs', () => {
  const gpu = canFakeGpu ? new FakeGpu(temporaryFolder()) : undefined;
  const model = writeCheckpoint();
  const data = writeData(questions(60));
  const run = (faults: readonly string[], ...more: string[]): Promise<Outcome> =>
    tilewright(
      ['run', model, '--target', 'cuda', '--task', 'multiple_choice', '--data', data, ...GPU_CAPACITY, ...more],
      { env: gpu!.environment(...ROOMY, ...faults) },
    );
  const samplesOf = (out: string): string => textOf(out, 'samples');

  let sound: Promise<string> | undefined;
  const soundSamples = (): Promise<string> =>
    (sound ??= (async () => {
      const out = temporaryFolder();
      success(await run([], '--parallel', 'pp=3', '--out', out));
      return samplesOf(out);
    })());

  const WAYS = [
    ['pp=4', 4, 4],
    ['dpxpp=2x2', 4, 2],
  ] as const;
  test.each(casesHere<(typeof WAYS)[number]>(WAYS, 1))(
    'scores everything with %s, and shows what every device did',
    async (parallel, devices, stages) => {
      const out = temporaryFolder();
      const trace = join(out, 'trace.json');
      const { stderr, stdout } = success(await run([], '--parallel', parallel, '--out', out, '--trace', trace));
      expect(stderr).toContain(`placement: ${parallel} on ${devices} devices`);
      expect(samplesOf(out).trimEnd().split('\n')).toHaveLength(60);
      const { throughput } = JSON.parse(textOf(out, 'results')) as {
        readonly throughput: {
          readonly devices: readonly { readonly device: number; readonly computeSeconds: number }[];
        };
      };
      expect(throughput.devices.map(({ device }) => device)).toEqual(Array.from({ length: devices }, (_, i) => i));
      // With so little to do, one replica may finish before another has loaded.
      const worked = throughput.devices.filter(({ computeSeconds }) => computeSeconds > 0).length;
      expect(worked).toBeGreaterThanOrEqual(stages);
      expect(worked % stages).toBe(0);
      expect(stdout).toMatch(/busy: device 0 \d/);
      const events = JSON.parse(readFileSync(trace, 'utf8')) as {
        readonly traceEvents: readonly { readonly pid: number; readonly cat?: string }[];
      };
      const pids = (kind: string): number =>
        new Set(events.traceEvents.filter(({ cat }) => cat === kind).map(({ pid }) => pid)).size;
      expect(pids('compute')).toBe(worked);
      expect(pids('copy')).toBe((worked / stages) * (stages - 1));
    },
  );

  thorough('counts the kernels that processes compile, and the bytes they load', async () => {
    // A cache of its own: everything is compiled.
    const cold = new FakeGpu(temporaryFolder());
    const program = `
      import { run } from ${JSON.stringify(pathToFileURL(join(ROOT, 'dist', 'index.js')).href)};
      const [model, data] = process.argv.slice(2);
      const onProgress = (event) => event.amount && console.log(JSON.stringify(event));
      const options = { target: 'cuda', task: 'multiple_choice', batchTokens: 256, parallel: PARALLEL };
      await run({ model, data, onProgress, ...options });`;
    const amounts = async (parallel: string): Promise<readonly Amount[]> => {
      // A file: processes of devices are started with the flags of this one.
      const script = join(temporaryFolder(), 'counts.mjs');
      writeFileSync(script, program.replace('PARALLEL', parallel));
      const { stdout } = await promisify(execFile)(process.execPath, ['--no-opt', script, model, data], {
        env: { PATH: readSettings().path, ...cold.environment(...ROOMY) },
      });
      const lines = stdout.trimEnd().split('\n');
      return lines.map((line) => (JSON.parse(line) as { readonly amount: Amount }).amount);
    };
    for (const parallel of ['{ replicas: 1, stages: 2 }', "'auto'"]) {
      const all = await amounts(parallel);
      const kernels = all.filter(({ unit }) => unit === 'kernels');
      expect(kernels.length).toBeGreaterThan(3);
      // The first process to finish goes on to the weights.
      if (parallel !== "'auto'") expect(kernels.at(-1)?.done).toBe(kernels[0]?.total);
      const loaded = all.filter(({ unit }) => unit === 'bytes').at(-1);
      expect(loaded?.total).toBeGreaterThan(1000);
      expect(loaded?.done).toBe(loaded?.total);
    }
  });

  thorough('copies nothing from GPU to GPU where it is told not to', async () => {
    const wanted = await soundSamples();
    const out = temporaryFolder();
    const { stderr } = success(
      await tilewright(
        [
          'run',
          model,
          '--target',
          'cuda',
          '--task',
          'multiple_choice',
          '--data',
          data,
          ...GPU_CAPACITY,
          '--parallel',
          'pp=3',
          '--out',
          out,
        ],
        {
          env: {
            ...gpu!.environment(...ROOMY, 'fail:cuMemcpyPeerAsync:1', 'fail:cuCtxEnablePeerAccess:1'),
            TILEWRIGHT_PEERS: 'none',
          },
        },
      ),
    );
    expect(stderr).toContain('through the host');
    expect(samplesOf(out)).toBe(wanted);
  });

  thorough.each([1, 2])('gives the same answers however the streams overtake each other (%i)', async (order) => {
    const wanted = await soundSamples();
    const out = temporaryFolder();
    success(await run([`order=${order}`], '--parallel', 'pp=3', '--out', out));
    expect(samplesOf(out)).toBe(wanted);
  });

  const LOSSES = [
    ['is lost', 700, 'CUDA_ERROR_ILLEGAL_ADDRESS', {}],
    ['hangs', -1, 'has not answered for 3 s', { TILEWRIGHT_DEVICE_TIMEOUT: '3' }],
  ] as const;
  thorough.each(LOSSES)('continues in another process if the middle one %s', async (_what, code, said, more) => {
    const wanted = await soundSamples();
    const out = temporaryFolder();
    const faults = [
      ...ROOMY,
      'failDevice=1',
      `fail:cuMemcpyPeerAsync:${code}:5`,
      `once=${join(temporaryFolder(), 'failed')}`,
    ];
    const outcome = await tilewright(
      [
        'run',
        model,
        '--target',
        'cuda',
        '--task',
        'multiple_choice',
        '--data',
        data,
        ...GPU_CAPACITY,
        '--parallel',
        'pp=3',
        '--out',
        out,
      ],
      { env: { ...gpu!.environment(...faults), ...more } },
    );
    const { stderr } = success(outcome);
    expect(stderr).toContain(said);
    expect(samplesOf(out)).toBe(wanted);
  });

  thorough('continues with halves if one runs out of memory', async () => {
    const wanted = await soundSamples();
    const out = temporaryFolder();
    const { stderr } = success(
      await run(
        ['failDevice=2', 'fail:cuLaunchKernelEx:2:30:1'],
        '--parallel',
        'pp=3',
        '--sharing',
        'context',
        '--out',
        out,
      ),
    );
    expect(stderr).toMatch(/ran out of memory in a micro-batch of \d+ tokens: continuing with halves/);
    expect(samplesOf(out)).toBe(wanted);
  });
});
