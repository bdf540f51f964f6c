/** Kernels of a CPU that are compiled as calls need them: order, bits, failures; and nothing outlives its owner. */
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { unitsOf } from '../../codegen/cpu/index.js';
import { compileModel } from '../../driver/compile/compile.js';
import { cpu } from '../../driver/targets/cpu.js';
import { cpuDevice, detectMachine } from '../../driver/targets/cpuDevice.js';
import { type CpuModel, emitCpuPlan, kernelsAtNeed } from '../../driver/targets/cpuKernels.js';
import { SCORE } from '../../ir/function.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import type { CompileHow, CompileLibrary } from '../../runtime/cpu/buckets.js';
import { compileShared } from '../../runtime/cpu/compiler.js';
import { openCpuExecutor } from '../../runtime/cpu/openExecutor.js';
import type { Executor } from '../../runtime/executor.js';
import { readSettings } from '../../settings.js';
import { isRunning } from '../../system/process.js';
import { quickCc } from '../support/runFolder.js';
import { settingsIn, temporaryFolder } from './kernels.js';
import { thorough } from '../support/thorough.js';

/** Programs that were started. */
let started: string[] = [];
vi.mock(import('node:child_process'), async (importOriginal) => {
  const real = await importOriginal();
  const noted = (file: string, ...rest: readonly unknown[]): unknown => {
    started.push(file);
    return (real.spawn as (...all: unknown[]) => unknown)(file, ...rest);
  };
  return { ...real, spawn: noted as typeof real.spawn };
});

const folder = temporaryFolder();
const cc = { cc: quickCc('-O1') };
const settings = settingsIn(join(folder, 'cache'), cc);
const VOCAB = 300;
const TOKENS = 96;

let model: CpuModel;
let checkpoint: Checkpoint;
beforeAll(() => {
  const path = join(folder, 'model');
  mkdirSync(path);
  writeFileSync(
    join(path, 'config.json'),
    JSON.stringify({
      architectures: ['LlamaForCausalLM'],
      model_type: 'llama',
      torch_dtype: 'float32',
      hidden_size: 64,
      intermediate_size: 96,
      num_hidden_layers: 1,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      vocab_size: VOCAB,
      max_position_embeddings: 256,
      rms_norm_eps: 1e-5,
      rope_theta: 10_000,
      tie_word_embeddings: true,
    }),
  );
  checkpoint = describeRandomCheckpoint(path, 3);
  model = compileModel(checkpoint, cpu, cpuDevice(detectMachine(), 'auto'), { batchTokens: TOKENS });
});

const inputs = (tokens: number) => ({
  tokens: Int32Array.from({ length: tokens }, (_, i) => (i * 37 + 11) % VOCAB),
  position: Int32Array.from({ length: tokens }, (_, i) => i),
  subtreeEnd: new Int32Array(tokens).fill(tokens),
  row: Int32Array.of(tokens - 2, tokens - 1),
  target: Int32Array.of(5, 7),
});
const bits = async (executor: Executor, tokens: number): Promise<string> => {
  const { outputs } = await executor.call(SCORE, inputs(tokens));
  return Buffer.from(outputs['logProb']!.buffer).toString('hex');
};

interface Request extends CompileHow {
  readonly name: string;
}

/** An executor whose libraries are compiled when `allowed` says so. */
async function open(
  allowed: (request: Request) => Promise<unknown> = () => Promise.resolve(),
): Promise<{ readonly executor: Executor; readonly requests: Request[] }> {
  const emitted = emitCpuPlan(model.plan);
  const units = new Map(unitsOf(emitted.kernels).map((unit) => [unit.name, unit]));
  const requests: Request[] = [];
  const compile: CompileLibrary = async (name, how) => {
    requests.push({ name, ...how });
    await allowed({ name, ...how });
    return (await compileShared([units.get(name)!], { isa: model.device.isa, settings, ...how })).path;
  };
  const { symbols } = await kernelsAtNeed(emitted, model.device.isa);
  const options = { plan: model.plan, symbols, compile, tensors: checkpoint.tensors, threads: 2 };
  return { executor: await openCpuExecutor(options), requests };
}

describe('an executor whose kernels are compiled as they are needed', () => {
  thorough('opens with the bucket that holds every call, and gives the same bits in each that is ready', async () => {
    let isHeld = true;
    const { executor, requests } = await open(async ({ isBackground }) => {
      while (isBackground && isHeld) await sleep(5);
    });
    try {
      expect(model.plan.functions[0]!.buckets.length).toBeGreaterThan(1);
      const sizes = [9, 40, 96];
      const inLargest = await Promise.all(sizes.map((tokens) => bits(executor, tokens)));
      const wanted = requests.filter(({ isBackground }) => !isBackground).map(({ name }) => name);
      expect(new Set(wanted).size).toBe(wanted.length);
      isHeld = false;
      await executor.prepare();
      const inBest = await Promise.all(sizes.map((tokens) => bits(executor, tokens)));
      expect(inBest).toEqual(inLargest);
      // Each library once, whoever asked for it.
      expect(new Set(requests.map(({ name }) => name)).size).toBe(requests.length);
      expect(requests.length).toBeGreaterThan(wanted.length);
      const { bucket } = await executor.profile(SCORE, inputs(9));
      expect(bucket).toEqual(model.plan.functions[0]!.buckets[0]);
    } finally {
      await executor.close();
    }
  });

  it('ends what is compiled in the background when it is closed', async () => {
    const signals: AbortSignal[] = [];
    const { executor } = await open(async ({ isBackground, signal }) => {
      if (!isBackground) return;
      signals.push(signal);
      while (!signal.aborted) await sleep(5);
    });
    const waiting = expect(executor.prepare()).rejects.toThrow('closed');
    await expect.poll(() => signals.length).toBeGreaterThan(0);
    await executor.close();
    await waiting;
    expect(signals.every(({ aborted }) => aborted)).toBe(true);
  });

  it('rejects calls with what the background failed of', async () => {
    const { executor } = await open(({ isBackground }) =>
      isBackground ? Promise.reject(new Error('no such instruction')) : Promise.resolve(),
    );
    try {
      await expect.poll(() => bits(executor, 9).then(String, String)).toContain('no such instruction');
    } finally {
      await executor.close();
    }
  });

  it('does not open where its first kernels do not compile', async () => {
    await expect(open(() => Promise.reject(new Error('no such instruction')))).rejects.toThrow('no such instruction');
  });

  it('another one goes on with a library that the first gave up', async () => {
    const emitted = emitCpuPlan(model.plan);
    const [unit] = unitsOf(emitted.kernels);
    const own = settingsIn(join(folder, 'shared'), cc);
    const stop = new AbortController();
    const first = compileShared([unit!], { isa: model.device.isa, settings: own, signal: stop.signal });
    const gaveUp = expect(first).rejects.toThrow();
    const second = compileShared([unit!], { isa: model.device.isa, settings: own });
    stop.abort();
    await gaveUp;
    expect(existsSync((await second).path)).toBe(true);
  });
});

describe('a library that is in the cache', () => {
  it('starts no process, not even the compiler for its version', async () => {
    const own = settingsIn(join(folder, 'hit'));
    const source = [{ name: 'a.c', text: 'int tw_a(void) { return 1; }\n' }];
    const { path } = await compileShared(source, { isa: 'portable', settings: own });
    vi.resetModules();
    started = [];
    const again = await import('../../runtime/cpu/compiler.js');
    expect(again.compileShared).not.toBe(compileShared);
    expect(await again.compileShared(source, { isa: 'portable', settings: own })).toMatchObject({ path, cached: true });
    expect(started).toEqual([]);
    await again.compileShared([{ name: 'a.c', text: 'int tw_b;\n' }], { isa: 'portable', settings: own });
    expect(started.length).toBeGreaterThan(0);
  });

  it('asks a compiler for its version that is a script, and starts others behind it', async () => {
    const cc = join(folder, 'gcc');
    const real = readSettings().cc ?? 'cc';
    writeFileSync(cc, `#!/bin/sh\nexec ${real} "$@"\n`);
    chmodSync(cc, 0o755);
    const own = { ...settingsIn(join(folder, 'script')), cc };
    const source = [{ name: 'a.c', text: 'int tw_a;\n' }];
    await compileShared(source, { isa: 'portable', settings: own });
    vi.resetModules();
    started = [];
    const again = await import('../../runtime/cpu/compiler.js');
    expect(await again.compileShared(source, { isa: 'portable', settings: own })).toMatchObject({ cached: true });
    expect(started).toContain(cc);
  });
});

/** The compiled program: processes of their own run it. */
const BUILT = new URL('../../dist/runtime/cpu/processes.js', import.meta.url);

describe('a compiler', () => {
  it.skipIf(!existsSync(BUILT)).each(['SIGKILL', 'exit'] as const)(
    'ends with the process that started it (%s), and so do its children',
    async (how) => {
      const file = join(folder, `pids-${how}`);
      const script =
        `const { runProcess } = await import(${JSON.stringify(BUILT.href)});` +
        `const { signal } = new AbortController();` +
        `void runProcess('sh', ['-c', 'sleep 900 & echo $$ $! > ${file}; wait'], undefined, signal);` +
        (how === 'exit' ? "process.stdin.once('data', () => process.exit(0));" : 'setInterval(() => undefined, 1000);');
      const owner = spawn(process.execPath, ['--input-type=module', '-e', script], {
        stdio: ['pipe', 'ignore', 'ignore'],
      });
      const ended = new Promise((resolve) => owner.on('close', resolve));
      const pids = (): number[] =>
        existsSync(file) ? readFileSync(file, 'utf8').trim().split(' ').filter(Boolean).map(Number) : [];
      await expect.poll(() => pids().length, { timeout: 10_000 }).toBe(2);
      const own = pids();
      expect(own.every(isRunning)).toBe(true);
      if (how === 'exit') owner.stdin.write('now\n');
      else owner.kill('SIGKILL');
      await ended;
      await expect.poll(() => own.some((pid) => isRunning(pid) && !isZombie(pid)), { timeout: 10_000 }).toBe(false);
    },
  );
});

/** Ended, and not yet waited for by the process that adopted it. */
function isZombie(pid: number): boolean {
  try {
    return / Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return true;
  }
}
