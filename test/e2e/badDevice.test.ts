/** What goes wrong with a GPU, through the real command: driver and NVRTC are stand-ins, everything else is real. */
import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { readManifest } from '../../driver/artifact/manifest.js';
import { compileModel } from '../../driver/compile/compile.js';
import { openModel } from '../../driver/functions.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice } from '../../driver/targets/cudaDevice.js';
import { emitCudaPlan } from '../../driver/targets/cudaKernels.js';
import { SCORE } from '../../ir/function.js';
import { scoreOf } from '../../ir/plan.js';
import { canFakeGpu, FakeGpu } from '../support/fakeCuda/fakeGpu.js';
import { casesHere, thorough } from '../support/thorough.js';
import { allGone, devicesOf } from './children.js';
import { questions, writeCheckpoint, writeData } from './smallModel.js';
import {
  CAPACITY,
  failure,
  filesOf,
  GPU_CAPACITY,
  isBuilt,
  MAIN,
  type Outcome,
  start,
  success,
  temporaryFolder,
  textOf,
  tilewright,
  tilewrightProcess,
} from './support.js';

if (!canFakeGpu) process.stderr.write('SKIPPED: faults of GPUs through the command: no cc or g++ on PATH\n');

describe.skipIf(!isBuilt || !canFakeGpu)('run --target cuda', () => {
  const QUESTIONS = 60;
  const gpu = canFakeGpu ? new FakeGpu(temporaryFolder()) : undefined;
  const model = writeCheckpoint();
  const data = writeData(questions(QUESTIONS));
  const env = (...faults: string[]): Readonly<Record<string, string>> => gpu!.environment(...faults);
  const command = (what: string, ...more: string[]): string[] => [
    'run',
    what,
    '--task',
    'multiple_choice',
    '--data',
    data,
    ...more,
  ];
  const run = (environment: Readonly<Record<string, string>>, ...more: string[]): Promise<Outcome> =>
    tilewright(command(model, '--target', 'cuda', ...GPU_CAPACITY, ...more), { env: environment });
  /**
   * Runs with another driver, or one that describes other devices, in a process of their own: a process loads a driver
   * once.
   */
  const runAlone = (environment: Readonly<Record<string, string>>, ...more: string[]): Promise<Outcome> =>
    tilewrightProcess(command(model, '--target', 'cuda', ...GPU_CAPACITY, ...more), { env: environment });
  const samples = (out: string): string => textOf(out, 'samples');
  /** Runs the command of a hint in a shell, as a user would. */
  const pasted = (hint: string): void => {
    const again = spawnSync('sh', ['-c', hint.replace(/^tilewright/, `'${process.execPath}' '${MAIN}'`)], {
      encoding: 'utf8',
      env: { PATH: '/usr/bin:/bin', ...env() },
    });
    expect(again.status, again.stderr).toBe(0);
  };

  /** What a run without faults leaves. A run that survives a fault must leave the same. */
  let sound: Promise<string> | undefined;
  const soundSamples = (): Promise<string> =>
    (sound ??= (async () => {
      const out = temporaryFolder();
      const { stderr } = success(await run(env(), '--out', out, '--verbose'));
      expect(stderr).toMatch(/weights loaded in \d/);
      expect(samples(out).trimEnd().split('\n')).toHaveLength(QUESTIONS);
      return samples(out);
    })());

  test('works if nothing is wrong', async () => {
    expect(await soundSamples()).not.toBe('');
  });

  test('says that there is no driver, and how to compile without one', async () => {
    const { error, hint } = failure(await runAlone({ ...env(), TILEWRIGHT_CUDA_DRIVER: '/nowhere/libcuda.so.1' }));
    expect(error).toMatch(/--target cuda: .*\/nowhere\/libcuda\.so\.1/);
    expect(hint).toContain('--target cuda:sm_90a');
  });

  thorough('says what the driver says if there is no device', async () => {
    expect(failure(await runAlone(env('devices=0'))).error).toContain('CUDA_ERROR_NO_DEVICE');
  });

  thorough('says what was looked for and what to install if there is no compiler', async () => {
    const { error, hint } = failure(
      await run({ ...env(), TILEWRIGHT_NVRTC: temporaryFolder(), TILEWRIGHT_CACHE: temporaryFolder() }),
    );
    expect(error).toContain('TILEWRIGHT_NVRTC');
    expect(hint).toMatch(/pip install nvidia-cuda-nvrtc|TILEWRIGHT_NVRTC=/);
  });

  const WRONG_NVRTC = [
    ['too old for the architecture', [11, 2], 13_000, /11\.2/],
    ['too new for the driver', [14, 1], 13_000, /14\.1 .*13\.0/],
  ] as const;
  thorough.each(WRONG_NVRTC)('says which NVRTC is %s', async (_what, version, driver, said) => {
    const { error, hint } = failure(
      await runAlone({
        ...env(`driverVersion=${driver}`),
        TILEWRIGHT_NVRTC: gpu!.nvrtcOf(version),
        TILEWRIGHT_CACHE: temporaryFolder(),
      }),
    );
    expect(error).toMatch(said);
    expect(hint).not.toBe('');
  });

  thorough('gives the command that rebuilds an artifact for another architecture, and the command works', async () => {
    const artifact = join(temporaryFolder(), 'old gpu.tw');
    success(
      await tilewright(['compile', model, '--target', 'cuda:sm_80', ...GPU_CAPACITY, '-o', artifact], { env: env() }),
    );
    const { error, hint } = failure(await tilewright(command(artifact), { env: env() }));
    expect(error).toBe('compiled for cuda:sm_80; Fake H100 has compute capability 9.0');
    expect(hint).toMatch(/^tilewright compile .* --target cuda:sm_90a .*-o '.*old gpu\.tw'$/);
    pasted(hint);
    success(await tilewright(command(artifact), { env: env() }));
  });

  thorough('of a damaged artifact for the CPU gives the command that rebuilds it for the CPU', async () => {
    const artifact = join(temporaryFolder(), 'host.tw');
    success(await tilewright(['compile', model, '--target', 'cpu', ...CAPACITY, '-o', artifact], { env: env() }));
    writeFileSync(join(artifact, 'plan.json'), '{}');
    const { hint } = failure(await tilewright(command(artifact), { env: env() }));
    expect(hint).toMatch(/^tilewright compile .* --target cpu .*-o .*host\.tw$/);
    pasted(hint);
    expect(readManifest(artifact).target.kind).toBe('cpu');
    success(await tilewright(command(artifact), { env: env() }));
  });

  thorough('says how to compile for the CPU if an artifact needs a GPU and there is none', async () => {
    const artifact = join(temporaryFolder(), 'm.tw');
    success(
      await tilewright(['compile', model, '--target', 'cuda:sm_90a', ...GPU_CAPACITY, '-o', artifact], { env: env() }),
    );
    const { error, hint } = failure(
      await tilewrightProcess(command(artifact), {
        env: { ...env(), TILEWRIGHT_CUDA_DRIVER: '/nowhere/libcuda.so.1' },
      }),
    );
    expect(error).toMatch(/^compiled for cuda:sm_90a, but .*\/nowhere/);
    expect(hint).toMatch(/compile for this CPU: tilewright compile .* -o .*m\.tw$/);
    expect(hint).not.toContain('cuda');
  });

  thorough('names a micro-batch that fits if the activations of a model do not', async () => {
    const large = env(`totalBytes=${136 << 20}`);
    const { error, hint } = failure(
      await tilewrightProcess(command(model, '--target', 'cuda', '--batch-tokens', '16384'), { env: large }),
    );
    expect(error).toMatch(/needs [\d.]+ [KMG]iB of device memory/);
    const tokens = /--batch-tokens (\d+)/.exec(hint)?.[1];
    expect(Number(tokens), hint).toBeGreaterThanOrEqual(128);
    expect(Number(tokens)).toBeLessThan(16_384);
    success(await tilewright(command(model, '--target', 'cuda', '--batch-tokens', tokens!), { env: large }));
  });

  thorough('says how many GPUs would hold a model whose weights do not fit', async () => {
    const big = writeCheckpoint({
      config: {
        hidden_size: 4096,
        intermediate_size: 11_008,
        num_hidden_layers: 8,
        num_attention_heads: 32,
        num_key_value_heads: 32,
        head_dim: 128,
      },
      weights: null,
    });
    const { error, hint } = failure(
      await tilewrightProcess(command(big, '--init', 'random:1', '--target', 'cuda', ...GPU_CAPACITY), {
        env: env(`totalBytes=${1 << 30}`),
      }),
    );
    expect(error).toMatch(/weights +[\d.]+ [KMG]iB/);
    expect(hint).toMatch(/spread over \d+ or more such GPUs/);
  });

  thorough('continues with halves if it runs out of memory, says so, and gives the same answers', async () => {
    const wanted = await soundSamples();
    const out = temporaryFolder();
    // Loading takes fewer launches than this, a micro-batch more than the rest.
    const { stderr } = success(await run(env('fail:cuLaunchKernelEx:2:40:1'), '--sharing', 'context', '--out', out));
    expect(stderr).toMatch(/ran out of memory in a micro-batch of \d+ tokens: continuing with halves/);
    expect(samples(out)).toBe(wanted);
  });

  const LOSSES = [
    ['an illegal access', 700, 'CUDA_ERROR_ILLEGAL_ADDRESS', {}],
    ['a kernel that hangs', -1, 'has not answered for 3 s', { TILEWRIGHT_DEVICE_TIMEOUT: '3' }],
  ] as const;
  test.each(casesHere<(typeof LOSSES)[number]>(LOSSES, 0))(
    'continues in another process after %s, and keeps what is finished',
    async (_what, code, said, more) => {
      const wanted = await soundSamples();
      const out = temporaryFolder();
      const faults = [`fail:cuLaunchKernelEx:${code}:70`, `once=${join(temporaryFolder(), 'failed')}`];
      const { stderr } = success(await run({ ...env(...faults), ...more }, '--out', out));
      expect(stderr).toContain(said);
      expect(stderr).toContain('another one takes over what is left');
      expect(samples(out)).toBe(wanted);
    },
  );

  thorough('ends if the device is lost again and again, with its journal whole, and can be resumed', async () => {
    const wanted = await soundSamples();
    const out = temporaryFolder();
    const outcome = await run(env('fail:cuLaunchKernelEx:700:50'), '--out', out);
    expect(failure(outcome).hint).toContain('what is finished is kept');
    expect(filesOf(out, 'journal')).toHaveLength(1);
    success(await run(env(), '--out', out, '--resume'));
    expect(samples(out)).toBe(wanted);
  });

  thorough('says what would help if it runs out of memory with a single tree', async () => {
    const { error, hint } = failure(await run(env('fail:cuLaunchKernelEx:2:40')));
    expect(error).toMatch(/^the device ran out of memory in a micro-batch of \d+ tokens, which is a single tree/);
    expect(hint).toMatch(/--batch-tokens \d+/);
  });

  thorough('names the question and the layer if it computes NaN', async () => {
    const checkpoint = openModel(model, { kind: 'checkpoint' });
    const device = cudaDevice(
      { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 6 },
      'auto',
      checkpoint.config.dtype,
    );
    const compiled = compileModel(checkpoint, cuda, device, { batchTokens: Number(GPU_CAPACITY[1]) });
    const plan = scoreOf(compiled.plan);
    const emitted = emitCudaPlan(compiled.plan);
    const kernel = plan.kernels.find(({ path }) => path === 'layers.0.ffn.down');
    if (kernel?.anchor !== 'gemm') throw new Error('no such product');
    const spoil = (name: string, buffer: string): string[] => {
      const launch = plan.launches.findIndex((each) => each.kernel === name);
      return [
        ...new Set(
          emitted.kernels[SCORE]!.map(
            (texts) => `nan:${texts[launch]!.symbol}:${texts[launch]!.parameters.indexOf(buffer)}`,
          ),
        ),
      ];
    };
    const stored = kernel.segments[0]!.outputs.find(({ kind }) => kind === 'store')!.buffer;
    const last = plan.kernels.find(({ anchor }) => anchor === 'logprobReduce')!;
    const out = temporaryFolder();
    const { error } = failure(
      await run(
        env(...spoil(kernel.name, stored), ...spoil(last.name, plan.interface.outputs[0]!.buffer)),
        '--out',
        out,
      ),
    );
    expect(error).toMatch(/question \d+/);
    expect(error).toContain('first in layers.0.ffn.down');
  });

  const MOMENTS = [
    ['in a micro-batch', 70],
    ['while the weights are loaded', 3],
  ] as const;
  test.each(casesHere<(typeof MOMENTS)[number]>(MOMENTS))(
    'leaves no process behind if it is killed while its device hangs, %s',
    async (_when, launches) => {
      const marker = join(temporaryFolder(), 'hung');
      const running = start(command(model, '--target', 'cuda', ...GPU_CAPACITY), {
        env: env(`fail:cuLaunchKernelEx:-1:${launches}`, `once=${marker}`),
      });
      while (!existsSync(marker) && running.process.exitCode === null) await sleep(20);
      const [child] = devicesOf(running.process.pid!);
      expect(child).toBeGreaterThan(0);
      running.process.kill('SIGKILL');
      expect((await running.ended).signal).toBe('SIGKILL');
      await allGone([child!]);
    },
  );
});
