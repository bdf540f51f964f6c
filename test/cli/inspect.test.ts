import { existsSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { CPU_RECORDS, thisCpu } from '../../autotune/cpu/tune.js';
import { TuningDatabase } from '../../autotune/database.js';
import type { Peaks } from '../../autotune/peaks.js';
import { describeMemory, describeNarrow } from '../../cli/inspectText.js';
import { cpuScheduling } from '../../codegen/cpu/schedules.js';
import { computationHash } from '../../codegen/signature.js';
import {
  findStage,
  inspect as inspectAny,
  type Inspection,
  inspectModel,
  type InspectRequest,
  stageSize,
} from '../../commands/inspect.js';
import {
  findKernel,
  groupKernels,
  kernelRows,
  kernelSource,
  memoryReport,
  type TimedRow,
  typicalSize,
} from '../../commands/inspectKernels.js';
import type { Machine } from '../../driver/targets/cpuDevice.js';
import { parseGraph } from '../../ir/graph/parser.js';
import type { WeightDecl } from '../../ir/kernel.js';
import { type CpuSchedule, linkFunction } from '../../ir/plan.js';
import { tokensIn } from '../../ir/scoring.js';
import { planMemory } from '../../passes/planMemory.js';
import { temporaryFolder } from '../models/support.js';
import { memoryPlan } from '../support/memoryFunction.js';
import { runCli } from './fakeIo.js';

const DEMO = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'models', 'demo');
if (!existsSync(join(DEMO, 'config.json'))) throw new Error('models/demo belongs to the repository');

/** A machine with every instruction set, so that the tests do not depend on the one they run on. */
const MACHINE: Machine = {
  cpu: {
    vendor: 'V',
    model: 'A CPU',
    cores: 4,
    isas: { avx2: true, avx512: true, amx: true },
    l1dBytes: 32 << 10,
    l2Bytes: 1 << 20,
    l3Bytes: 0,
  },
  isas: ['portable', 'avx2', 'avx512', 'amx'],
};
const inspections = new Map<string, Promise<Inspection>>();
/** Of the model on MACHINE; what is asked again is not planned again. */
const inspected: (request: InspectRequest) => Promise<Inspection> = (request) => {
  const key = JSON.stringify(request);
  const known = inspections.get(key) ?? inspectModel(request, MACHINE);
  inspections.set(key, known);
  return known;
};
const demo = (more: { readonly isa?: 'avx2' | 'amx' } = {}): Promise<Inspection> =>
  inspected({ model: DEMO, init: { kind: 'checkpoint' }, precision: 'auto', isa: 'avx2', ...more });

const inspect = async (...flags: string[]): Promise<{ status: number; stdout: string; stderr: string }> =>
  runCli(['inspect', DEMO, ...flags], {
    inspect: ({ target: _, ...request }) => inspected({ isa: 'avx2', ...request }),
  });

describe('passes', async () => {
  const inspection = await demo();

  it('are recorded in order, each with what it left', () => {
    const names = inspection.stages.map(({ name }) => name);
    expect(names[0]).toBe('model');
    expect(names).toContain('canonicalizeMask');
    expect(names).toContain('foldConstants.2');
    expect(new Set(names).size).toBe(names.length);
    for (const stage of inspection.stages.slice(1)) expect(stage.reason, stage.name).not.toBe('');
  });

  it('are found by name, run and number', () => {
    expect(findStage(inspection, '0').name).toBe('model');
    expect(findStage(inspection, 'foldConstants').name).toBe('foldConstants.2');
    expect(findStage(inspection, 'foldConstants.2').name).toBe('foldConstants.2');
    expect(findStage(inspection, 'recognizeAttention').name).toBe('recognizeAttention');
    expect(() => findStage(inspection, 'recognize')).toThrow('there is no pass "recognize"');
    expect(() => findStage(inspection, '99')).toThrow('there is no pass "99"');
  });

  it('show what they changed, as a diff that makes the one text of the other', async () => {
    const { stdout } = await inspect('--diff', 'recognizeAttention');
    const order = inspection.stages.map(({ name }) => name);
    const previous = (name: string): string => order[order.indexOf(name) - 1]!;
    expect(stdout).toContain(`\n--- ${previous('recognizeAttention')}\n+++ recognizeAttention\n@@ -`);
    expect(stdout.match(/^\+.*= attention\(/gm)).toHaveLength(8);
    expect(stdout.match(/^-.*= matmul\(/gm)).toHaveLength(8);
    expect(stdout).not.toContain('\x1b');
    const json = JSON.parse((await inspect('--diff', 'foldConstants.2', '--json')).stdout) as Record<string, unknown>;
    expect(json).toMatchObject({ pass: 'foldConstants.2', before: previous('foldConstants.2') });
    const [size, before] = ['foldConstants.2', previous('foldConstants.2')].map((name) =>
      stageSize(findStage(inspection, name)),
    );
    expect(Number(json['added']) - Number(json['removed'])).toBe(size! - before!);
    expect((await inspect('--diff', 'splitVariance')).stdout).toContain(
      `# no line differs from ${previous('splitVariance')}\n`,
    );
  });

  it('have something before them to be compared with', async () => {
    const first = await inspect('--diff', 'model');
    expect([first.status, first.stderr]).toEqual([2, expect.stringContaining('model is the first stage')]);
    const kernels = await inspect('--diff', 'lowerKernels');
    expect(kernels.stderr).toContain('--pass lowerKernels');
  });

  it('of one function are compared with each other', async () => {
    const { stdout } = await inspect('--diff', 'recognizeAttention.2', '--cache-tokens', '512');
    expect(stdout).toMatch(/^--- \w+\.\d$/m);
    expect(stdout).toMatch(/^\+.*= attention\(.*_path/m);
  });

  it('print as text that parses again', async () => {
    const before = await inspect('--pass', 'model');
    const after = await inspect('--pass', 'recognizeAttention');
    expect(before.stdout).not.toContain('= attention(');
    expect(after.stdout.match(/= attention\(/g)).toHaveLength(8);
    expect(parseGraph(after.stdout).nodes.length).toBe(stageSize(findStage(inspection, 'recognizeAttention')));
    const json = JSON.parse((await inspect('--pass', 'recognizeAttention', '--json')).stdout) as {
      name: string;
      graph: string;
    };
    expect(json).toMatchObject({ name: 'recognizeAttention', graph: after.stdout });
  });

  it('continue with kernels, which print as text', async () => {
    const kernels = inspection.stages.filter(({ level }) => level === 'kernels');
    const names = ['lowerKernels', 'deduplicateTables', 'fuseLoops', 'attachAdapters'];
    expect(kernels.map(({ name }) => name)).toEqual(names);
    expect(stageSize(kernels[0]!)).toBe(44);
    const { stdout } = await inspect('--pass', 'lowerKernels');
    expect(stdout).toContain('\nlayers_0_attention_qkv: gemm over T, ');
    const json = JSON.parse((await inspect('--pass', 'lowerKernels', '--json')).stdout) as { kernels: string };
    expect(json.kernels).toBe(stdout);
    expect((await inspect('--passes')).stdout).toMatch(/ lowerKernels +44 kernels /);
  });

  it('say what none of them recognized', async () => {
    expect((await inspect('--passes')).stdout).toContain('\nevery pattern was recognized\n');
    const { stdout } = await inspect('--passes', '--mask', 'slidingWindow');
    expect(stdout).toMatch(
      /\nnot recognized: layers\.\*\.attention\.mix: the mask is kept as a bias, because .* \(8 layers\)\n$/,
    );
    expect((await inspect('--mask', 'slidingWindow')).stdout).toContain('not recognized: ');
  });
});

describe('kernels', async () => {
  const { plan, model } = await demo();

  it('of all layers but the last share lines, and none is left out', () => {
    const rows = kernelRows(plan, typicalSize(512));
    const groups = groupKernels(rows);
    expect(groups.flatMap((group) => group.rows)).toHaveLength(rows.length);
    expect(groups.map(({ path }) => path)).toContain('layers.{0..6}.ffn.down');
    expect(rows.filter(({ path }) => path.startsWith('layers.0.'))).toHaveLength(5);
  });

  it('cost what their shapes say', () => {
    const down = kernelRows(plan, typicalSize(512)).find(({ path }) => path === 'layers.0.ffn.down');
    expect(down).toMatchObject({ anchor: 'gemm', shape: '[T × 256] k 704', flops: 2 * 512 * 704 * 256 });
    expect(down!.ops[0]).toBe('linear');
    const head = kernelRows(plan, typicalSize(512)).find(({ anchor }) => anchor === 'logprob');
    expect(head!.flops).toBe(2 * 256 * 256 * 4096);
  });

  it('are found by name and by path, of any layer, and print the same text', async () => {
    const first = await kernelSource(model, 'layers.0.ffn.down', 512);
    const other = await kernelSource(model, 'layers_5_ffn_down', 512);
    expect(other.source).toBe(first.source);
    expect(other.path).toBe('layers.5.ffn.down');
    expect(first.source).toContain(first.symbol);
    expect(tokensIn(first.bucket)).toBe(512);
    expect(() => findKernel(plan, 'ffn.down')).toThrow('there is no kernel "ffn.down"');
  });

  it('are listed with their total', async () => {
    const { stdout } = await inspect('--kernels', '--tokens', '64');
    expect(stdout).toMatch(/^layers\.\{0\.\.6\}\.ffn\.gate_up +7 +gemm +\[T × 2×704\] k 256 /m);
    expect(stdout).toContain('44 kernels, 13 different; at 64 tokens with 32 scored rows: ');
    const json = JSON.parse((await inspect('--kernels', '--json')).stdout) as { kernels: unknown[] };
    expect(json.kernels).toHaveLength(44);
  });

  it('show what the tuner has measured here, and how near to the peak that is', async () => {
    const path = join(temporaryFolder(), 'tuning.jsonl');
    const database = TuningDatabase.open(path, CPU_RECORDS);
    const target = { ...thisCpu('avx2'), threads: 2, compiler: 'any' };
    const at = plan.kernels.findIndex((kernel) => kernel.path === 'layers.3.ffn.down');
    const bucket = plan.buckets.at(-1)!;
    const key = computationHash(plan.kernels[at]!, plan, plan.capacity.extents);
    const schedule = plan.schedules.at(-1)![plan.launches[at]!.signature] as CpuSchedule;
    database.append({ key, bucket, target, schedule, seconds: [0.002, 0.004, 0.002] });
    const peak = (perSecond: number) => ({ perSecond, source: 'measured' as const });
    database.appendPeaks(target, { arithmetic: peak(1e12), memory: peak(1e11) });
    database.close();
    const { stdout } = await inspect('--kernels', '--database', path);
    // 7 layers of 2 ms; 2 · 1,024 · 256 · 704 operations at 10¹² a second are 369 µs.
    expect(stdout).toMatch(/^layers\.\{0\.\.6\}\.ffn\.down .* 14\.0 ms +18 % /m);
    expect(stdout).toMatch(/^head .* – +– /m);
    expect(stdout).toContain('peaks: 1 TFLOP/s (measured), 100 GB/s (measured)');
    const json = JSON.parse((await inspect('--kernels', '--json', '--database', path)).stdout) as {
      peaks: Peaks;
      kernels: TimedRow[];
    };
    const [row] = json.kernels.filter((kernel) => kernel.path === 'layers.3.ffn.down');
    expect(row).toMatchObject({ measuredSeconds: 0.002, shareOfPeak: row!.flops / 1e12 / 0.002 });
    for (const { predictedSeconds } of json.kernels) expect(predictedSeconds).toBeGreaterThan(0);
    expect(json.kernels.filter((kernel) => 'measuredSeconds' in kernel)).toHaveLength(7);
  });

  it('refuse a named file of measurements that is missing, or holds none', async () => {
    const path = join(temporaryFolder(), 'notes.txt');
    const missing = await inspect('--kernels', '--database', path);
    expect(missing.stderr).toMatch(/notes\.txt: is no file of tuning records that can be read/);
    writeFileSync(path, 'one\ntwo\n');
    const foreign = await inspect('--kernels', '--database', path);
    expect(foreign.stderr).toMatch(/notes\.txt: no tuning record of such a target among 2 lines/);
  });

  it('print their source, and what belongs to it', async () => {
    const { stdout } = await inspect('--kernel', 'layers.3.ffn.down', '--tokens', '64');
    expect(stdout).toContain(' * schedule for micro-batches of up to 64 tokens: avx2, tile ');
    expect(stdout).toContain('0 activated');
    const wrong = await inspect('--kernel', 'qkv');
    expect(wrong.status).toBe(2);
    expect(wrong.stderr).toContain('layers_0_attention_qkv');
    expect((await inspect('--kernels', '--tokens', '99999')).stderr).toContain(
      '--tokens 99999: expected a whole number from 1 to 1024',
    );
  });
});

describe('kernels of a GPU', () => {
  /** Nothing is compiled. */
  const printing: typeof inspectAny = async (request) => {
    const inspection = await inspectAny(request);
    const { target } = inspection.model;
    const compiler = { ...target.compiler, examine: () => Promise.resolve({}) };
    return { ...inspection, model: { ...inspection.model, target: { ...target, compiler } } };
  };
  const on = (...flags: string[]) =>
    runCli(['inspect', DEMO, '--target', 'cuda:sm_80', '--kernel', 'layers.3.ffn.down', '--tokens', '64', ...flags], {
      inspect: printing,
    });

  it('are printed as their unit, which names its headers, and these behind it with --headers', async () => {
    const { stdout } = await on();
    const [, listed] = /^\/\* headers, printed by --headers: (.*) \*\/$/m.exec(stdout)!;
    const names = listed!.split(', ');
    expect(names.length).toBeGreaterThan(3);
    for (const [, name] of stdout.matchAll(/^#include "(.*)"$/gm)) expect(names).toContain(name);
    expect(stdout).not.toContain('#pragma once');
    const whole = (await on('--headers')).stdout;
    expect([...whole.matchAll(/^\/\* ---- (.*) ---- \*\/$/gm)].map(([, name]) => name)).toEqual(names);
    expect(whole).toContain('#pragma once');
    const json = JSON.parse((await on('--json')).stdout) as { source: string; headers: { name: string }[] };
    expect(json.headers.map(({ name }) => name).reverse()).toEqual(names);
    expect((await inspect('--kernels', '--headers')).stderr).toContain('--headers is of one kernel');
  });
});

describe('inspect', () => {
  it('lists schedules for each bucket with --plan', async () => {
    const { stdout } = await inspect('--plan');
    expect(stdout).toContain('44 launches a micro-batch:');
    expect(stdout).toContain('(tokens of a micro-batch: 64, 128, 256, 512, 1024)');
    const json = JSON.parse((await inspect('--plan', '--json')).stdout) as {
      launches: unknown[];
      schedules: unknown[];
    };
    expect([json.launches.length, json.schedules.length]).toEqual([44, 5]);
  });

  it('maps every buffer once, and buffers that are live at the same time never overlap', async () => {
    const { plan, checkpoint } = await demo();
    const report = memoryReport(plan, checkpoint);
    const names = report.slots.flatMap(({ buffers }) => buffers);
    expect(new Set(names).size).toBe(names.length);
    expect(names).toHaveLength(plan.placements.length);
    expect(report.withoutReuseBytes).toBe(planMemory(plan, plan.capacity.extents).withoutReuseBytes);
    for (const a of report.slots) {
      for (const b of report.slots) {
        const isApart = a === b || a.offset + a.sizeBytes <= b.offset || b.offset + b.sizeBytes <= a.offset;
        const meet = a.alive.some(([first, last]) => b.alive.some(([from, to]) => first <= to && from <= last));
        expect(isApart || !meet, `${a.buffers[0]} and ${b.buffers[0]}`).toBe(true);
      }
    }
    // The table of tokens, and the norm weights of 8 layers and of the head.
    expect(report.weights!.mappedBytes).toBe(4096 * 256 * 2 + 17 * 256 * 2);
  });

  it('states are listed with their sizes', async () => {
    expect((await inspect('--memory')).stdout).not.toContain('states');
    expect((await inspect('--memory', '--cache-tokens', '2048')).stdout).toContain(
      'states: 32 MiB, kept from call to call',
    );
    const plan = memoryPlan(cpuScheduling, { isas: ['portable'], l1: 32 << 10, l2: 1 << 20 });
    const report = memoryReport(linkFunction(plan, 'remember'), undefined);
    // 8 columns are allocated as 32.
    expect(report.states).toEqual([{ name: 'memory', dtype: 'f32', rows: 64, columns: 8, sizeBytes: 64 * 32 * 4 }]);
    const lines = describeMemory(report, 100).split('\n');
    expect(lines[0]).toMatch(/^arena: .* for micro-batches of up to 40 new;/);
    expect(lines.slice(1, 3)).toEqual(['states: 8 KiB, kept from call to call', '  memory  f32[64, 8]  8 KiB']);
  });

  it('the picture has one bar a place', async () => {
    const { stdout } = await inspect('--memory');
    expect(stdout).toMatch(/^ *[\d.]+ MiB +[\d.]+ MiB +[█·]{44} {2}h and 7 more$/m);
    expect(stdout).toMatch(/^ *[\d.]+ MiB +4 KiB +█{44} {2}tokens$/m);
  });

  it('fits a summary on one screen', async () => {
    const { stdout } = await inspect();
    expect(stdout.split('\n').length).toBeLessThan(24);
    for (const line of [
      '7,475,456',
      'hidden 256, feed-forward 704, 8 layers',
      '44: 5 a layer, and 4 others; 13 different sources',
      'cpu, avx2, f32 inputs',
    ])
      expect(stdout).toContain(line);
    const json = JSON.parse((await inspect('--json')).stdout) as Record<string, unknown>;
    expect(json).toMatchObject({ parameters: 7475456, kernels: 44, distinctKernels: 13, isa: 'avx2', notes: [] });
  });

  it('names views of the same kernels, and layers that differ', async () => {
    const { stdout } = await runCli(['inspect', DEMO, '--quantize', 'fp8', '--target', 'cuda:sm_90a'], {
      inspect: (request) => inspectModel({ ...request, target: 'cuda:sm_90a' }, MACHINE),
    });
    expect(stdout).toContain('55: 5 to 9 a layer, and 4 others;');
    expect(stdout.match(/ --target cuda:sm_90a --quantize fp8 --/g)).toHaveLength(7);
  });

  it('names the layers whose matrices are codes of 8 bits, and the matrices that are not', () => {
    const weight = (tensor: string, format: 'e4m3' | 'bf16'): WeightDecl => ({
      ...{ name: tensor, layout: 'kmajor', format, k: 64, pairing: { kind: 'none' }, sources: [{ tensor, rows: 8 }] },
    });
    const layer = (i: number, format: 'e4m3' | 'bf16'): WeightDecl => weight(`model.layers.${i}.o_proj.weight`, format);
    const ends = [layer(0, 'bf16'), layer(1, 'e4m3'), layer(2, 'e4m3'), layer(4, 'e4m3'), layer(3, 'bf16')];
    expect(describeNarrow([...ends, weight('lm_head.weight', 'bf16')])).toEqual([
      ['8 bits', '3 matrices, of layers 1–2, 4'],
      ['16 bits', 'of layers 0, 3, lm_head'],
    ]);
    expect(describeNarrow([layer(0, 'bf16')])).toEqual([]);
  });

  it('finds as many kernels in 16 bits', async () => {
    const { plan, arithmetic } = await demo({ isa: 'amx' });
    expect(arithmetic).toBe('bf16');
    expect(plan.kernels).toHaveLength(44);
  });
});

describe('placement', () => {
  it('says in words and as data what each stage would do and hold', async () => {
    const { stdout } = await inspect('--parallel', 'dpxpp=2x3');
    const balance = String.raw`predicted balance \d\d\.\d %: [45]\.\d\d× one device`;
    expect(stdout).toMatch(
      new RegExp(String.raw`^placement: dpxpp=2x3 on 6 devices, ${balance}\n(?: {2}stage \d: .*\n){3}$`),
    );
    const placed = JSON.parse((await inspect('--parallel', 'pp=2', '--json')).stdout) as {
      stages: { first: number; end: number; share: number; weightBytes: number }[];
    };
    const { plan } = await demo();
    expect(placed.stages.map(({ first }) => first)).toEqual([0, placed.stages[0]!.end]);
    expect(placed.stages[1]!.end).toBe(plan.launches.length);
    for (const { share, weightBytes } of placed.stages) {
      expect(share).toBeGreaterThan(0.3);
      expect(weightBytes).toBeGreaterThan(1000);
    }
  });

  it('is not guessed, and not given together with another view', async () => {
    expect(await inspect('--parallel', 'auto')).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('--parallel pp=4') as string,
    });
    expect((await inspect('--parallel', 'pp=2', '--memory')).stderr).toContain('one at a time');
    expect((await inspect('--parallel', 'pp=99')).stderr).toContain('of at most 64 devices');
  });
});
