/**
 * Runs on several devices through the real command. Each device is a process with its own threads. Answers must be the
 * same, whatever fails.
 */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, test } from 'vitest';
import type { TraceFacts } from '../../report/document/machine.js';
import { counted } from '../../system/text.js';
import { VOLATILE_FIELDS } from '../support/results.js';
import { casesHere, isThorough, thorough } from '../support/thorough.js';
import { allGone, devicesOf, midst, together } from './children.js';
import { questions, safetensorsFile, tensorsOf, writeCheckpoint, writeData } from './smallModel.js';
import {
  failure,
  filesOf,
  isBuilt,
  type Running,
  start,
  success,
  temporaryFolder,
  textOf,
  tilewright,
} from './support.js';

describe.skipIf(!isBuilt)('several devices', () => {
  const model = writeCheckpoint();
  const QUESTIONS = isThorough ? 800 : 200;
  const data = writeData(questions(QUESTIONS));
  // One thread for each device and small micro-batches: a run long enough for something to happen in the middle of it.
  const command = (checkpoint: string, out: string, ...more: string[]): string[] => [
    'run',
    checkpoint,
    '--task',
    'multiple_choice',
    '--data',
    data,
    '--threads',
    '1',
    '--batch-tokens',
    '96',
    '--out',
    out,
    ...more,
  ];
  const run = (out: string, ...more: string[]): string[] => command(model, out, ...more);
  let samples = '';
  let steady: unknown;

  /** results_*.json without the fields and counts that differ between equal runs. */
  const steadyResults = (out: string): unknown => {
    const results = JSON.parse(textOf(out, 'results')) as Record<string, Record<string, unknown>>;
    const { questions: scored, tokensComputed, tokensWithoutSharing, modelFlops } = results['throughput'] ?? {};
    for (const field of VOLATILE_FIELDS) delete results[field];
    return {
      results,
      counts: { scored, tokensComputed, tokensWithoutSharing, modelFlops: Number(modelFlops).toPrecision(10) },
    };
  };
  const isAsOnOne = (out: string): void => {
    expect(textOf(out, 'samples')).toBe(samples);
    expect(steadyResults(out)).toEqual(steady);
  };
  /** Waits until the journal has questions and this many devices exist; undefined if the run ended before that. */
  async function underWay(running: Running, out: string, devices: number): Promise<number[] | undefined> {
    while (running.process.exitCode === null && running.process.signalCode === null) {
      const [journal = ''] = filesOf(out, 'journal');
      const pids = devicesOf(running.process.pid!);
      if (pids.length >= devices && existsSync(journal) && statSync(journal).size > 1000) return pids;
      await sleep(5);
    }
    return undefined;
  }

  beforeAll(async () => {
    const out = temporaryFolder();
    success(await tilewright(run(out)));
    samples = textOf(out, 'samples');
    steady = steadyResults(out);
    expect(samples.trimEnd().split('\n')).toHaveLength(QUESTIONS);
  });

  const WAYS = [
    [3, '--devices', '3'],
    [4, '--parallel', 'dpxpp=2x2'],
  ] as const;
  test.each(casesHere<(typeof WAYS)[number]>(WAYS))(
    '%i of them give the answers of one device with %s %s',
    async (count, flag, value) => {
      const out = temporaryFolder();
      const { stdout } = success(await tilewright(run(out, flag, value)));
      isAsOnOne(out);
      expect(stdout).toMatch(
        new RegExp(`^busy: ${Array.from({ length: count }, (_, i) => `device ${i} [\\d.]+ %`).join(', ')}$`, 'm'),
      );
      const { throughput } = JSON.parse(textOf(out, 'results')) as {
        throughput: { devices: { device: number; computeSeconds: number; busyShare: number }[] };
      };
      expect(throughput.devices.map(({ device }) => device)).toEqual(Array.from({ length: count }, (_, i) => i));
      for (const { busyShare } of throughput.devices) expect(busyShare).toBeLessThanOrEqual(1.001);
      expect(
        Math.max(...throughput.devices.map(({ computeSeconds, busyShare }) => Math.min(computeSeconds, busyShare))),
      ).toBeGreaterThan(0);
    },
  );

  thorough('are shown in one timeline, each with its computations and gaps', async () => {
    const file = join(temporaryFolder(), 'trace.json');
    const out = temporaryFolder();
    success(await tilewright(run(out, '--devices', '2', '--trace', file), { onProgress: together() }));
    const { traceEvents, otherData } = JSON.parse(readFileSync(file, 'utf8')) as {
      otherData: { tilewright: TraceFacts };
      traceEvents: {
        name: string;
        ph: string;
        cat?: string;
        pid: number;
        ts?: number;
        dur?: number;
        args: { tokens?: number; name?: string; flops?: number; bytes?: number; shareOfPeak?: number };
      }[];
    };
    expect(traceEvents.flatMap(({ name, args }) => (name === 'process_name' ? [args.name] : []))).toEqual([
      'command',
      'device 0',
      'device 1',
      'kernels, timed one by one after the run',
    ]);
    const computed = traceEvents.filter(({ cat }) => cat === 'compute');
    expect(new Set(computed.map(({ pid }) => pid))).toEqual(new Set([1, 2]));
    const { throughput } = JSON.parse(textOf(out, 'results')) as {
      throughput: { tokensComputed: number; devices: { computeSeconds: number }[] };
    };
    expect(computed.reduce((sum, { args }) => sum + args.tokens!, 0)).toBe(throughput.tokensComputed);
    for (const pid of [1, 2]) {
      const own = computed.filter((event) => event.pid === pid).sort((a, b) => a.ts! - b.ts!);
      const seconds = own.reduce((sum, { dur }) => sum + dur!, 0) / 1e6;
      expect(seconds).toBeCloseTo(throughput.devices[pid - 1]!.computeSeconds, 3);
      // A device computes one micro-batch after another.
      for (let i = 1; i < own.length; i++)
        expect(own[i]!.ts!).toBeGreaterThanOrEqual(own[i - 1]!.ts! + own[i - 1]!.dur! - 1);
    }
    const kernels = traceEvents.filter(({ cat }) => cat === 'kernel');
    expect(kernels.map(({ name }) => name)).toContain('layers.1.ffn.down');
    // Every product says what it computes and moves, and how near it came to the peak of one device.
    const facts = otherData.tilewright;
    expect(facts).toMatchObject({ format: 1, replicas: 2, stages: 1, peaks: { arithmetic: { source: 'measured' } } });
    const { arithmetic, memory } = facts.peaks;
    for (const { name, dur, args } of kernels.filter((event) => event.name.endsWith('ffn.down'))) {
      const least = Math.max(args.flops! / arithmetic.perSecond, args.bytes! / memory.perSecond);
      expect(args.shareOfPeak, name).toBeCloseTo(least / (dur! / 1e6), 3);
    }
    const { modelFlops } = (JSON.parse(textOf(out, 'results')) as { throughput: { modelFlops: number } }).throughput;
    expect(computed.reduce((sum, { args }) => sum + args.flops!, 0) / modelFlops).toBeCloseTo(1, 6);
    // How the command and its devices started is there too.
    const phases = (pid: number): readonly string[] =>
      traceEvents.flatMap((event) => (event.cat === 'startup' && event.pid === pid ? [event.name] : []));
    expect(phases(4)).toEqual(expect.arrayContaining(['open', 'compile', 'tokenize', 'first micro-batch']));
    // Devices get the plan from the command.
    for (const pid of [1, 2]) {
      expect(phases(pid)).toEqual(expect.arrayContaining(['open', 'kernels', 'weights']));
      expect(phases(pid)).not.toContain('compile');
    }
    expect(phases(1).some((name) => name.startsWith('read and pack '))).toBe(true);
    expect(facts.kernels).toHaveLength(new Set(kernels.map(({ name }) => name)).size);
    expect(Math.max(...facts.memory.buffers.map(({ offset, bytes }) => offset + bytes))).toBeLessThanOrEqual(
      facts.memory.arenaBytes,
    );
  });

  const KILLED = [
    [['--devices', '2'], 2, /device 1: the device process ended \(SIGKILL\): another one takes over/],
    [['--parallel', 'dpxpp=2x2'], 2, /devices 2 and 3: the device process ended \(SIGKILL\)/],
  ] as const;
  test.each(casesHere<(typeof KILLED)[number]>(KILLED, 0))(
    'continue if one of %j is killed, replace it, and end as if nothing had happened',
    async (flags, processes, says) => {
      const out = temporaryFolder();
      const { stderr } = success(
        await tilewright(run(out, ...flags), {
          onProgress: midst(processes, (pids) => process.kill(pids[1]!, 'SIGKILL')),
        }),
      );
      expect(stderr).toMatch(says);
      isAsOnOne(out);
    },
  );

  thorough('continue in other processes if all of them are killed', async () => {
    const out = temporaryFolder();
    const { stderr } = success(
      await tilewright(run(out, '--devices', '2'), {
        onProgress: midst(2, (pids) => {
          for (const pid of pids) process.kill(pid, 'SIGKILL');
        }),
      }),
    );
    for (const device of [0, 1])
      expect(stderr).toContain(`device ${device}: the device process ended (SIGKILL): another one takes over`);
    isAsOnOne(out);
  });

  thorough.each<[string, Readonly<Record<string, string>>, RegExp]>([
    [
      'continue without one that no longer answers',
      { TILEWRIGHT_DEVICE_TIMEOUT: '4' },
      /device 1: the device has not answered for 4 s: its process is replaced/,
    ],
    [
      'finish the part of one that stops without a word rather than wait for it',
      {},
      /device 1 has not answered for \d+ s: device 0 computes the same/,
    ],
  ])('%s', async (_, env, says) => {
    const out = temporaryFolder();
    let stopped = 0;
    const { stderr } = success(
      await tilewright(run(out, '--devices', '2'), {
        env,
        onProgress: midst(2, (pids) => process.kill((stopped = pids[1]!), 'SIGSTOP')),
      }),
    );
    expect(stderr).toMatch(says);
    isAsOnOne(out);
    await allGone([stopped]);
  });

  thorough('name the question and the layer if they compute NaN, and write no results', async () => {
    const values = tensorsOf().map((tensor) =>
      tensor.name === 'model.layers.1.mlp.down_proj.weight'
        ? { ...tensor, values: tensor.values.map((value, i) => (i === 40 ? NaN : value)) }
        : tensor,
    );
    const poisoned = writeCheckpoint({ weights: safetensorsFile(values) });
    const out = temporaryFolder();
    const { error } = failure(await tilewright(command(poisoned, out, '--devices', '2')));
    expect(error).toMatch(/^question \d+, choice \d.*NaN or infinite, first in layers\.1\.ffn\.down/);
    expect(filesOf(out, 'samples')).toEqual([]);
  });

  thorough('stop at the first Ctrl-C after what is running, and resume with another number of them', async () => {
    const out = temporaryFolder();
    let pids: readonly number[] = [];
    const { status, stderr } = await tilewright(run(out, '--devices', '3'), {
      onProgress: midst(3, (all, press) => {
        pids = all;
        // As a terminal does: to the whole group of processes.
        for (const pid of pids) process.kill(pid, 'SIGINT');
        press();
      }),
    });
    expect(status, stderr).toBe(130);
    expect(stderr).toMatch(/stopped: [\d,]+ finished questions are in the journal/);
    expect(stderr).not.toMatch(/warning|error/);
    await allGone(pids);
    const [journal = ''] = filesOf(out, 'journal');
    const kept = readFileSync(journal, 'utf8').split('\n').length - 2;
    expect(kept).toBeGreaterThan(0);
    expect(kept).toBeLessThan(QUESTIONS);
    const { stderr: resumed } = success(await tilewright(run(out, '--devices', '2', '--resume')));
    expect(resumed).toContain(`${counted(kept, 'question')} taken over`);
    expect(textOf(out, 'samples')).toBe(samples);
  });

  thorough.each(['SIGKILL', 'SIGINT'] as const)('end with their parent: %s', async (signal) => {
    // If the machine was too busy to look before the run was over, try again.
    for (;;) {
      const out = temporaryFolder();
      const running = start(run(out, '--devices', '2'));
      const pids = await underWay(running, out, 2);
      if (pids === undefined) continue;
      // A device that does not answer keeps the first Ctrl-C waiting; the second waits for nobody.
      process.kill(pids[0]!, 'SIGSTOP');
      running.process.kill(signal);
      if (signal === 'SIGINT') {
        while (!running.stderr().includes('Ctrl-C again') && running.process.exitCode === null) await sleep(5);
        running.process.kill(signal);
      }
      // Not until its streams are closed: a stopped process keeps them open.
      while (running.process.signalCode === null && running.process.exitCode === null) await sleep(5);
      const endedBy = running.process.signalCode;
      process.kill(pids[0]!, 'SIGCONT');
      await allGone(pids);
      // The run may have ended in the meantime.
      if (endedBy === null) continue;
      expect(endedBy).toBe(signal);
      success(await tilewright(run(out, '--resume')));
      expect(textOf(out, 'samples')).toBe(samples);
      return;
    }
  });

  thorough('score shards', async () => {
    const out = temporaryFolder();
    for (const [shard, devices] of [
      ['1/2', '2'],
      ['2/2', '1'],
    ] as const)
      success(await tilewright(run(out, '--shard', shard, '--devices', devices)));
    const merged = temporaryFolder();
    success(await tilewright(['merge', out, '--out', merged]));
    expect(textOf(merged, 'samples')).toBe(samples);
  });
});
