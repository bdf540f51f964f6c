/** Runs on several devices through the real command, each a process with threads of its own: the same answers, whatever fails. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, test } from 'vitest';
import { VOLATILE_FIELDS } from '../../eval/results.js';
import {
  failure, filesOf, isBuilt, questions, safetensorsFile, start, success, temporaryFolder, tensorsOf, textOf, tilewright, writeCheckpoint, writeData, type Running,
} from './support.js';

/** Ids of the processes that own devices of a run. */
const devicesOf = ({ process: { pid } }: Running): number[] => spawnSync('ps', ['-o', 'pid=,args=', '--ppid', String(pid)], { encoding: 'utf8' }).stdout
  .split('\n').flatMap((line) => (line.includes('devices/child.js') ? [Number(line.trim().split(/\s+/)[0])] : []));

/** A zombie whom nobody has buried yet is not. */
const isAlive = (pid: number): boolean => !/^(Z|$)/.test(spawnSync('ps', ['-o', 'stat=', '-p', String(pid)], { encoding: 'utf8' }).stdout.trim());

async function allGone(pids: readonly number[]): Promise<boolean> {
  const latest = performance.now() + 15_000;
  while (pids.some(isAlive) && performance.now() < latest) await sleep(20);
  return !pids.some(isAlive);
}

describe.skipIf(!isBuilt)('several devices', () => {
  const model = writeCheckpoint();
  const QUESTIONS = 2000;
  const data = writeData(questions(QUESTIONS));
  // One thread a device and small micro-batches: a run long enough for something to happen in its midst.
  const command = (checkpoint: string, out: string, ...more: string[]): string[] =>
    ['run', checkpoint, '--task', 'multiple_choice', '--data', data, '--threads', '1', '--max-tokens', '96', '--out', out, ...more];
  const run = (out: string, ...more: string[]): string[] => command(model, out, ...more);
  let samples = '';
  let steady: unknown;

  /** results_*.json without what differs between equal runs, and the counts that do not. */
  const steadyResults = (out: string): unknown => {
    const results = JSON.parse(textOf(out, 'results')) as Record<string, Record<string, unknown>>;
    const { questions: scored, tokensComputed, tokensWithoutSharing, modelFlops } = results['throughput'] ?? {};
    for (const field of VOLATILE_FIELDS) delete results[field];
    return { results, counts: { scored, tokensComputed, tokensWithoutSharing, modelFlops: Number(modelFlops).toPrecision(10) } };
  };
  const isAsOnOne = (out: string): void => {
    expect(textOf(out, 'samples')).toBe(samples);
    expect(steadyResults(out)).toEqual(steady);
  };
  /** Waits until so many bytes of finished questions are in the journal and so many devices are there, or the run has ended. */
  async function underWay(running: Running, out: string, bytes: number, devices: number): Promise<number[]> {
    for (;;) {
      const [journal = ''] = filesOf(out, 'journal');
      // Asking for processes costs more than a look at the journal.
      if (existsSync(journal) && statSync(journal).size >= bytes) {
        const pids = devicesOf(running);
        if (pids.length >= devices) return pids;
      }
      if (running.process.exitCode !== null || running.process.signalCode !== null) throw new Error(`it ended before that:\n${running.stderr()}`);
      await sleep(5);
    }
  }

  /**
   * Kills one of a run's processes and returns what the run says. A run begins with the first device that is ready, so the
   * killed one may still have been loading: it is left out then, not replaced, and another run is asked.
   */
  async function saidOfKilled(place: number, processes: number, ...flags: string[]): Promise<string> {
    for (;;) {
      const out = temporaryFolder();
      const running = start(run(out, ...flags));
      process.kill((await underWay(running, out, 20_000, processes))[place]!, 'SIGKILL');
      const { stderr } = success(await running.ended);
      isAsOnOne(out);
      if (!stderr.includes('ended while it loaded the model')) return stderr;
    }
  }

  beforeAll(async () => {
    const out = temporaryFolder();
    success(await tilewright(run(out)));
    samples = textOf(out, 'samples');
    steady = steadyResults(out);
    expect(samples.trimEnd().split('\n')).toHaveLength(QUESTIONS);
  });

  test.each([
    [1, '--devices', '1'], [2, '--devices', '2'], [3, '--devices', '3'], [4, '--devices', '4'], [2, '--parallel', 'dp=2'],
    [2, '--parallel', 'pp=2'], [3, '--parallel', 'pp=3'], [4, '--parallel', 'dpxpp=2x2'],
  ] as const)('%i: %s %s gives the answers of one', async (count, flag, value) => {
    const out = temporaryFolder();
    const { stdout } = success(await tilewright(run(out, flag, value)));
    isAsOnOne(out);
    expect(stdout).toMatch(new RegExp(`^busy: ${Array.from({ length: count }, (_, i) => `device ${i} [\\d.]+ %`).join(', ')}$`, 'm'));
    const { throughput } = JSON.parse(textOf(out, 'results')) as { throughput: { devices: { device: number; computeSeconds: number; busyShare: number }[] } };
    expect(throughput.devices.map(({ device }) => device)).toEqual(Array.from({ length: count }, (_, i) => i));
    expect(Math.max(...throughput.devices.map(({ busyShare }) => busyShare))).toBeGreaterThan(0.3);
  });

  test('are shown in one timeline, each with its computations and gaps', async () => {
    const file = join(temporaryFolder(), 'trace.json');
    const out = temporaryFolder();
    success(await tilewright(run(out, '--devices', '2', '--trace', file)));
    const { traceEvents } = JSON.parse(readFileSync(file, 'utf8')) as { traceEvents: { name: string; ph: string; cat?: string; pid: number; ts?: number; dur?: number; args: { tokens?: number; name?: string } }[] };
    expect(traceEvents.flatMap(({ name, args }) => (name === 'process_name' ? [args.name] : []))).toEqual(['device 0', 'device 1', 'kernels, timed one by one after the run']);
    const computed = traceEvents.filter(({ cat }) => cat === 'compute');
    expect(new Set(computed.map(({ pid }) => pid))).toEqual(new Set([1, 2]));
    const { throughput } = JSON.parse(textOf(out, 'results')) as { throughput: { tokensComputed: number; devices: { computeSeconds: number }[] } };
    expect(computed.reduce((sum, { args }) => sum + args.tokens!, 0)).toBe(throughput.tokensComputed);
    for (const pid of [1, 2]) {
      const own = computed.filter((event) => event.pid === pid).sort((a, b) => a.ts! - b.ts!);
      const seconds = own.reduce((sum, { dur }) => sum + dur!, 0) / 1e6;
      expect(seconds).toBeCloseTo(throughput.devices[pid - 1]!.computeSeconds, 3);
      // A device computes one micro-batch after another.
      for (let i = 1; i < own.length; i++) expect(own[i]!.ts!).toBeGreaterThanOrEqual(own[i - 1]!.ts! + own[i - 1]!.dur! - 1);
    }
    expect(traceEvents.filter(({ cat }) => cat === 'kernel').map(({ name }) => name)).toContain('layers.1.ffn.down');
  });

  test('of which one is killed go on, replace it, and end as if nothing had happened', async () => {
    expect(await saidOfKilled(1, 3, '--devices', '3')).toMatch(/device \d: the device process ended \(SIGKILL\): another one takes over/);
  });

  test('in pipelines, of which one is killed, go on too', async () => {
    expect(await saidOfKilled(0, 2, '--parallel', 'dpxpp=2x2')).toMatch(/devices (0 and 1|2 and 3): the device process ended \(SIGKILL\)/);
  });

  test('all of which are killed go on in others', async () => {
    const out = temporaryFolder();
    const running = start(run(out, '--devices', '2'));
    for (const pid of await underWay(running, out, 5000, 2)) process.kill(pid, 'SIGKILL');
    success(await running.ended);
    isAsOnOne(out);
  });

  test('of which one no longer answers go on without it', async () => {
    const out = temporaryFolder();
    const running = start(run(out, '--devices', '2'), { env: { TILEWRIGHT_DEVICE_TIMEOUT: '4' } });
    const [stopped] = await underWay(running, out, 5000, 2);
    process.kill(stopped!, 'SIGSTOP');
    const { stderr } = success(await running.ended);
    expect(stderr).toMatch(/device \d: the device has not answered for 4 s: its process is replaced/);
    isAsOnOne(out);
    expect(await allGone([stopped!])).toBe(true);
  });

  test('of which one stops without a word finish its part themselves rather than wait for it', async () => {
    const out = temporaryFolder();
    const running = start(run(out, '--devices', '2'));
    const [stopped] = await underWay(running, out, 5000, 2);
    process.kill(stopped!, 'SIGSTOP');
    const { stderr } = success(await running.ended);
    expect(stderr).toMatch(/device \d has not answered for \d+ s: device \d computes the same/);
    isAsOnOne(out);
    expect(await allGone([stopped!])).toBe(true);
  });

  test('that compute NaN name the question and the layer, and write no results', async () => {
    const values = tensorsOf().map((tensor) => (tensor.name === 'model.layers.1.mlp.down_proj.weight' ? { ...tensor, values: tensor.values.map((value, i) => (i === 40 ? NaN : value)) } : tensor));
    const poisoned = writeCheckpoint({ weights: safetensorsFile(values) });
    const out = temporaryFolder();
    const { error } = failure(await tilewright(command(poisoned, out, '--devices', '3')));
    expect(error).toMatch(/^question \d+, choice \d.*NaN or infinite, first in layers\.1\.ffn\.down/);
    expect(filesOf(out, 'samples')).toEqual([]);
  });

  test('stop after what is running at the first Ctrl-C, and go on with another number of them', async () => {
    const out = temporaryFolder();
    const running = start(run(out, '--devices', '3'));
    const pids = await underWay(running, out, 5000, 3);
    // As a terminal does: to the whole group of processes.
    for (const pid of [...pids, running.process.pid!]) process.kill(pid, 'SIGINT');
    const { status, stderr } = await running.ended;
    expect(status, stderr).toBe(130);
    expect(stderr).toMatch(/stopped: [\d,]+ finished questions are in the journal/);
    expect(stderr).not.toMatch(/warning|error/);
    expect(await allGone(pids)).toBe(true);
    const [journal = ''] = filesOf(out, 'journal');
    const kept = readFileSync(journal, 'utf8').split('\n').length - 2;
    expect(kept).toBeGreaterThan(0);
    expect(kept).toBeLessThan(QUESTIONS);
    const { stderr: resumed } = success(await tilewright(run(out, '--devices', '2', '--resume')));
    expect(resumed).toContain(`${kept} questions taken over`);
    expect(textOf(out, 'samples')).toBe(samples);
  });

  test.each(['SIGINT', 'SIGKILL'] as const)('end with their parent: %s', async (signal) => {
    const out = temporaryFolder();
    const running = start(run(out, '--devices', '3'));
    const pids = await underWay(running, out, 2000, 3);
    // One that does not answer keeps the first Ctrl-C waiting; the second waits for nobody.
    process.kill(pids[0]!, 'SIGSTOP');
    running.process.kill(signal);
    if (signal === 'SIGINT') {
      while (!running.stderr().includes('Ctrl-C again')) await sleep(5);
      running.process.kill(signal);
    }
    while (running.process.signalCode === null && running.process.exitCode === null) await sleep(5);
    expect(running.process.signalCode).toBe(signal);
    process.kill(pids[0]!, 'SIGCONT');
    expect(await allGone(pids)).toBe(true);
    success(await tilewright(run(out, '--resume')));
    expect(textOf(out, 'samples')).toBe(samples);
  });

  test('score shards', async () => {
    const out = temporaryFolder();
    for (const [shard, devices] of [['1/2', '2'], ['2/2', '3']] as const) success(await tilewright(run(out, '--shard', shard, '--devices', devices)));
    const merged = temporaryFolder();
    success(await tilewright(['merge', out, '--out', merged]));
    expect(textOf(merged, 'samples')).toBe(samples);
  });
});
