/** The executor on a plan of three hand-written kernels: loading, buckets, scoring, profiles, NaN, bad input. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import type { FunctionInterface } from '../../ir/function.js';
import { scoringBucket, tokensIn } from '../../ir/scoring.js';
import { DECODE_RUN, stepBuckets } from '../../ir/stepping.js';
import { bucketsFor, longestRun, longestTree, NonFiniteError } from '../../runtime/call.js';
import type { LaunchSymbol } from '../../runtime/cpu/buckets.js';
import { compileShared } from '../../runtime/cpu/compiler.js';
import { memoryLine, printMemoryUse } from '../../runtime/cpu/memoryUse.js';
import type { LoadProgress } from '../../runtime/files.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import { type Batch, type CpuScoring, type CpuScoringOptions, openCpu } from '../support/scoring.js';
import { settingsIn, temporaryFolder } from './kernels.js';
import { randomValue, roundTo, toBf16 } from './packReference.js';
import { TINY_KERNELS, tinyPlan, VOCAB, WIDTH } from './tinyPlan.js';

const folder = temporaryFolder();
const plan = tinyPlan();
let symbols: LaunchSymbol[][];

beforeAll(async () => {
  const { path: library } = await compileShared([{ name: 'tiny.c', text: TINY_KERNELS }], {
    isa: 'portable',
    settings: settingsIn(folder),
    extraFlags: ['-ffp-contract=off'],
  });
  const bucket = ['tw_embed', 'tw_head', 'tw_reduce'].map((symbol) => ({ library, symbol, scratchBytes: 100 }));
  symbols = [bucket, bucket];
});

const tableValue = (row: number, column: number): number => roundTo('bf16', Math.sin(row * 7 + column));
const normValue = (column: number): number => 1 + column / 8;

interface Change {
  readonly table?: (row: number, column: number) => number;
  readonly norm?: (column: number) => number;
  readonly pad?: number;
}
let files = 0;

/** A checkpoint file: some padding, the table in bf16, then the norm in f32. */
function writeTensors({ table = tableValue, norm = normValue, pad = 6 }: Change = {}): Map<string, TensorSource> {
  const file = join(folder, `weights${files++}.bin`);
  const halves = Uint16Array.from({ length: VOCAB * WIDTH }, (_, i) => toBf16(table(Math.floor(i / WIDTH), i % WIDTH)));
  const scales = Float32Array.from({ length: WIDTH }, (_, i) => norm(i));
  writeFileSync(file, Buffer.concat([Buffer.alloc(pad), Buffer.from(halves.buffer), Buffer.from(scales.buffer)]));
  return new Map<string, TensorSource>([
    [
      'embed_tokens',
      { kind: 'file', format: 'bf16', shape: [VOCAB, WIDTH], file, offset: pad, byteLength: halves.byteLength },
    ],
    [
      'norm',
      {
        kind: 'file',
        format: 'f32',
        shape: [WIDTH],
        file,
        offset: pad + halves.byteLength,
        byteLength: scales.byteLength,
      },
    ],
  ]);
}

const create = (change: Partial<CpuScoringOptions> = {}): Promise<CpuScoring> =>
  openCpu({ plan, symbols, tensors: writeTensors(), threads: 2, ...change });

/** A chain of `tokens` tokens whose last `rows` are scored. */
function batchOf(tokens: number, rows: number, seed = 1): Batch {
  return {
    tokens: Int32Array.from({ length: tokens }, (_, i) => (i * 13 + seed) % VOCAB),
    position: Int32Array.from({ length: tokens }, (_, i) => i),
    subtreeEnd: new Int32Array(tokens).fill(tokens),
    row: Int32Array.from({ length: rows }, (_, i) => tokens - rows + i),
    target: Int32Array.from({ length: rows }, (_, i) => (i * 17 + seed * 3) % VOCAB),
  };
}

/** f32 at every step, in the order of the kernels. */
function expected(batch: Batch, table = tableValue, norm = normValue): { logProb: number[]; isArgmax: number[] } {
  const parts = [...batch.row].map((row, r) => {
    let sum = 0;
    for (let k = 0; k < WIDTH; k++) {
      const h = Math.fround(Math.fround(table(batch.tokens[row]!, k) * 2 ** -k) + batch.position[row]!);
      const w = Math.fround(table(batch.target[r]!, k) * norm(k));
      sum = Math.fround(sum + Math.fround(h * w));
    }
    return sum;
  });
  return { logProb: parts.map((part) => -Math.abs(part)), isArgmax: parts.map((part) => (part > 0 ? 1 : 0)) };
}

async function check(executor: CpuScoring, batch: Batch, table = tableValue, norm = normValue): Promise<void> {
  const { logProb, isArgmax } = await executor.score(batch);
  const wanted = expected(batch, table, norm);
  expect([...logProb]).toEqual(wanted.logProb);
  expect([...isArgmax]).toEqual(wanted.isArgmax);
}

describe('CpuExecutor', () => {
  it.each([1, 2, 3])('scores as computed by hand, in every bucket, on %i threads', async (threads) => {
    const executor = await create({ threads });
    for (const [tokens, rows] of [
      [1, 1],
      [16, 4],
      [17, 4],
      [16, 5],
      [64, 16],
      [3, 0],
    ] as const)
      await check(executor, batchOf(tokens, rows));
    await executor.close();
  });

  it('executes calls that were made at once one after another', async () => {
    const executor = await create();
    await Promise.all(Array.from({ length: 20 }, (_, i) => check(executor, batchOf(5 + i, 1 + (i % 5), i))));
    await executor.close();
  });

  it('copies a table whose elements are not aligned, and maps one whose are', async () => {
    for (const [pad, mappedBytes] of [
      [0, VOCAB * WIDTH * 2],
      [7, 0],
    ] as const) {
      const executor = await create({ tensors: writeTensors({ pad }) });
      expect(executor.memory().mappedBytes).toBe(mappedBytes);
      await check(executor, batchOf(20, 6));
      await executor.close();
    }
  });

  it('generates random and constant weights', async () => {
    const tensors = new Map<string, TensorSource>([
      ['embed_tokens', { kind: 'random', format: 'bf16', shape: [VOCAB, WIDTH], seed: 42n, scale: 0.5 }],
      ['norm', { kind: 'constant', format: 'f32', shape: [WIDTH], value: 3 }],
    ]);
    const executor = await create({ tensors });
    await check(
      executor,
      batchOf(30, 9),
      (row, column) => roundTo('bf16', randomValue(42n, row * WIDTH + column, 0.5)),
      () => 3,
    );
    await executor.close();
  });

  it('announces the memory that it takes, stores equal weights once, and reports progress by bytes', async () => {
    const progress: LoadProgress[] = [];
    let announced: unknown;
    const executor = await create({
      onProgress: (step) => progress.push(step),
      onMemory: (use) => {
        announced = use;
      },
    });
    // head_w0 and head_copy share one page-aligned area of 48·8 f32; frequency has the other page.
    expect(executor.memory()).toEqual({
      mappedBytes: VOCAB * WIDTH * 2,
      packedBytes: 2 * 4096,
      arenaBytes: plan.arenaBytes,
      stateBytes: 0,
      scratchBytes: 2 * 4096,
    });
    expect(announced).toEqual(executor.memory());
    expect(progress).toMatchObject([{ doneBytes: 64 * WIDTH * 4, totalBytes: 64 * WIDTH * 4, weight: 'head_copy' }]);
    expect(progress[0]).toMatchObject({ took: { bytes: 64 * WIDTH * 4, seconds: expect.any(Number) as number } });
    expect(printMemoryUse({ ...executor.memory(), packedBytes: 3 << 20 })).toMatch(/weights, packed +3 MiB/);
    const use = {
      mappedBytes: 1 << 20,
      packedBytes: 3 << 20,
      arenaBytes: 2 << 20,
      stateBytes: 0,
      scratchBytes: 1 << 20,
    };
    expect(memoryLine(use)).toBe('memory: 7 MiB (weights 4 MiB, activations 2 MiB, scratch 1 MiB)');
    expect(memoryLine({ ...use, stateBytes: 1 << 20 })).toMatch(/^memory: 8 MiB \(weights 4 MiB, cache 1 MiB, /);
    await executor.close();
  });

  it('profiles every launch in the smallest bucket that fits', async () => {
    const executor = await create();
    const { bucket, launches } = await executor.profile(batchOf(10, 3));
    expect(tokensIn(bucket)).toBe(16);
    expect(launches.map(({ path }) => path)).toEqual(['embed', 'head.logprob', 'head.reduce']);
    for (const { nanoseconds } of launches) expect(nanoseconds).toBeGreaterThan(0);
    expect(tokensIn((await executor.profile(batchOf(10, 5))).bucket)).toBe(64);
    await executor.close();
  });

  it('names the first kernel whose result is not finite and the affected rows, and continues to work', async () => {
    const table = (row: number, column: number): number => (row === 7 && column === 3 ? NaN : tableValue(row, column));
    const executor = await create({ tensors: writeTensors({ table }) });
    const batch = batchOf(12, 4);
    batch.tokens.fill(1);
    batch.tokens[9] = 7;
    const error: unknown = await executor.score(batch).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(NonFiniteError);
    expect(error).toMatchObject({ name: 'NonFiniteError', where: 'embed', rows: [1] });
    expect(await executor.diagnose(batch)).toEqual({ path: 'embed', buffer: 'h', row: 9, column: 3 });
    batch.tokens[9] = 2;
    batch.target.fill(0);
    await check(executor, batch, table);
    expect(await executor.diagnose(batch)).toBeUndefined();
    await executor.close();
  });

  it('finds NaN that packing introduced', async () => {
    const executor = await create({ tensors: writeTensors({ norm: () => Infinity }) });
    const error: unknown = await executor.score(batchOf(4, 2)).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ where: 'head.logprob', rows: [0, 1] });
    await executor.close();
  });

  it('refuses numbers that kernels would use as indices outside their arrays', async () => {
    const executor = await create();
    const wrong = [
      ['tokens', 3, VOCAB, 'tokens[3] = 40 lies outside 0 to 39'],
      ['tokens', 0, -1, 'tokens[0] = -1'],
      ['position', 2, 3, 'position[2] = 3'],
      ['subtreeEnd', 2, 2, 'subtreeEnd[2] = 2'],
      ['subtreeEnd', 2, 11, 'subtreeEnd[2] = 11'],
      ['row', 0, 10, 'row[0] = 10'],
      ['target', 1, VOCAB, 'target[1] = 40'],
    ] as const;
    for (const [input, at, value, message] of wrong) {
      const batch = batchOf(10, 3);
      batch[input][at] = value;
      await expect(executor.score(batch)).rejects.toThrow(message);
    }
    await expect(executor.score({ ...batchOf(10, 3), position: new Int32Array(9) })).rejects.toThrow(
      'position has 9 entries, not 10, by tokens',
    );
    await expect(executor.score({ ...batchOf(65, 1), position: new Int32Array(65) })).rejects.toThrow(
      /No bucket holds 65 T, 1 R/,
    );
    await expect(executor.score(batchOf(64, 17))).rejects.toThrow(/17 R/);
    await check(executor, batchOf(10, 3));
    const short = await create({ maxLength: 9 });
    await expect(short.score(batchOf(10, 1))).rejects.toThrow('position[9] = 9 lies outside 0 to 8');
    await short.close();
    await executor.close();
    await expect(executor.score(batchOf(1, 1))).rejects.toThrow(/closed/);
    await executor.close();
  });

  it('names a tensor that is missing, misshapen, truncated or of another size than claimed', async () => {
    const change = async (
      name: string,
      source: Partial<Extract<TensorSource, { kind: 'file' }>> | undefined,
    ): Promise<UserError> => {
      const tensors = writeTensors();
      const old = tensors.get(name);
      if (source === undefined) tensors.delete(name);
      else if (old?.kind === 'file') tensors.set(name, { ...old, ...source });
      const error: unknown = await create({ tensors }).catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(UserError);
      return error as UserError;
    };
    expect((await change('norm', undefined)).message).toContain('no tensor norm');
    expect((await change('norm', { shape: [WIDTH + 1] })).message).toContain(
      'norm has shape [9]; config.json asks for [1, 8]',
    );
    expect((await change('embed_tokens', { shape: [WIDTH, VOCAB] })).message).toContain(
      '[8, 40]; config.json asks for [40, 8]',
    );
    expect((await change('embed_tokens', { byteLength: 2 })).message).toContain('its shape needs 640');
    expect((await change('embed_tokens', { offset: -2 })).message).toContain('embed_tokens');
    expect((await change('norm', { offset: 1e6 })).message).toContain('cut off');
    expect((await change('norm', { file: join(folder, 'missing.bin') })).message).toContain(
      'missing.bin: No such file',
    );
  });

  it('measures trees in tokens, not in depth', () => {
    const position = Int32Array.from([0, 1, 1, 0, 1, 2, 2, 1]);
    const subtreeEnd = Int32Array.from([3, 2, 3, 8, 7, 6, 7, 8]);
    expect(longestTree(tinyPlan().interface, { ...batchOf(8, 1), position, subtreeEnd })).toBe(5);
  });

  it('chooses buckets by tokens, then rows, then trees that are long enough', () => {
    const buckets = [
      [64, 16, 64],
      [16, 4, 4],
      [16, 4, 16],
      [16, 8, 16],
      [16, 4, 12],
    ].map(([tokens, rows, longest]) => scoringBucket({ tokens: tokens!, rows: rows!, longest: longest! }));
    const choice = (tokens: number, rows: number, longest: number) =>
      buckets[bucketsFor(buckets, { T: tokens, R: rows }, longest)[0]!];
    expect(choice(10, 4, 3)).toEqual(scoringBucket({ tokens: 16, rows: 4, longest: 4 }));
    expect(choice(10, 4, 10)).toEqual(scoringBucket({ tokens: 16, rows: 4, longest: 12 }));
    expect(choice(10, 4, 40)).toEqual(scoringBucket({ tokens: 16, rows: 4, longest: 16 }));
    expect(choice(10, 5, 1)).toEqual(scoringBucket({ tokens: 16, rows: 8, longest: 16 }));
    expect(choice(17, 1, 1)).toEqual(scoringBucket({ tokens: 64, rows: 16, longest: 64 }));
  });

  it('chooses schedules of decoding for calls whose paths have few new tokens each', () => {
    const prompts = [64, 200].map((tokens) => scoringBucket({ tokens, rows: tokens, longest: 64 }));
    const buckets = stepBuckets(prompts, [16, 128, 200, 256]);
    expect(buckets.map(({ extents, run }) => [extents['T'], run])).toEqual([
      [1, undefined],
      ...[2, 4, 8, 16, 32, 64].flatMap((tokens) => [
        [tokens, 1],
        [tokens, undefined],
      ]),
      ...[
        [128, 1],
        [128, DECODE_RUN],
        [200, 1],
        [200, DECODE_RUN],
        [200, undefined],
      ],
    ]);
    const choice = (tokens: number, run: number) =>
      buckets[bucketsFor(buckets, { T: tokens, C: 4096, R: tokens }, 0, { run })[0]!];
    expect(choice(3, 3)).toMatchObject({ extents: { T: 4 } });
    expect(choice(3, 3)?.run).toBeUndefined();
    expect(choice(3, 1)).toMatchObject({ extents: { T: 4 }, run: 1 });
    expect(choice(65, 1)).toMatchObject({ extents: { T: 128 }, run: 1 });
    expect(choice(65, 2)).toMatchObject({ extents: { T: 128 }, run: DECODE_RUN });
    expect(choice(65, DECODE_RUN)).toMatchObject({ extents: { T: 128 }, run: DECODE_RUN });
    expect(choice(65, DECODE_RUN + 1)?.extents).toMatchObject({ T: 200 });
    expect(choice(65, DECODE_RUN + 1)?.run).toBeUndefined();
    expect(choice(150, 1)).toMatchObject({ extents: { T: 200 }, run: 1 });
    expect(stepBuckets(prompts).every(({ run }) => run === undefined)).toBe(true);
  });

  it('measures runs of new tokens that belong to one path', () => {
    const fn = {
      name: 'step',
      extents: [],
      inputs: [
        { name: 'feed', dtype: 'i32', shape: ['T'], role: { kind: 'entry', state: 'last_tokens' } },
        { name: 'position', dtype: 'i32', shape: ['T'], role: { kind: 'depth' } },
        { name: 'row', dtype: 'i32', shape: ['R'], role: { kind: 'row', of: 'T' } },
        { name: 'begin', dtype: 'i32', shape: ['T'], role: { kind: 'row', of: 'C' } },
        { name: 'key', dtype: 'i32', shape: ['C'], role: { kind: 'entry', state: 'keys' } },
      ],
      outputs: [],
      takes: [],
      gives: [],
    } as const;
    const run = (begin: readonly number[]): number =>
      longestRun(fn as unknown as FunctionInterface, {
        begin: Int32Array.from(begin),
        row: Int32Array.from(begin, (_, i) => i),
      });
    expect(run([0, 5, 9])).toBe(1);
    expect(run([0, 5, 5, 5, 9, 9])).toBe(3);
    expect(run([])).toBe(0);
    expect(longestRun(tinyPlan().interface, { ...batchOf(8, 1) })).toBe(0);
  });
});
