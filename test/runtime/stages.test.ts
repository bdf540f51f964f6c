/**
 * A model cut into stages gives the bits of the whole model: every cut of a small one, random cuts into two to four
 * stages.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { unitsOf } from '../../codegen/cpu/index.js';
import { compileModel } from '../../driver/compile/compile.js';
import { cpu } from '../../driver/targets/cpu.js';
import { cpuDevice, detectMachine } from '../../driver/targets/cpuDevice.js';
import { type CpuModel, emitCpuPlan } from '../../driver/targets/cpuKernels.js';
import { SCORE } from '../../ir/function.js';
import { scoreOf, type Stage } from '../../ir/plan.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { MaskKind } from '../../models/model/model.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import type { LaunchSymbol } from '../../runtime/cpu/buckets.js';
import { compileShared } from '../../runtime/cpu/compiler.js';
import type { MemoryUse } from '../../runtime/cpu/memoryUse.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import { below } from '../codegen/cuda/randomModel.js';
import { randomSource } from '../codegen/harness.js';
import { randomTrees } from '../codegen/modules.js';
import { type Batch, type CpuScoring, type CpuScoringOptions, openCpu } from '../support/scoring.js';
import { settingsIn, temporaryFolder } from './kernels.js';

const folder = temporaryFolder();
const VOCAB = 600;
const TOKENS = 96;

interface Compiled {
  readonly checkpoint: Checkpoint;
  readonly model: CpuModel;
  readonly symbols: readonly (readonly LaunchSymbol[])[];
}

async function compile(mask: MaskKind): Promise<Compiled> {
  writeFileSync(
    join(folder, 'config.json'),
    JSON.stringify({
      architectures: ['LlamaForCausalLM'],
      model_type: 'llama',
      torch_dtype: 'bfloat16',
      hidden_size: 64,
      intermediate_size: 96,
      num_hidden_layers: 3,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      vocab_size: VOCAB,
      max_position_embeddings: 64,
      rms_norm_eps: 1e-5,
      rope_theta: 10_000,
      tie_word_embeddings: true,
    }),
  );
  const checkpoint = describeRandomCheckpoint(folder, 3);
  const model = compileModel(checkpoint, cpu, cpuDevice(detectMachine(), 'auto'), { mask, batchTokens: TOKENS });
  const emitted = emitCpuPlan(model.plan);
  const { path: library } = await compileShared(unitsOf(emitted.kernels), {
    isa: model.device.isa,
    settings: settingsIn(folder),
  });
  const symbols = emitted.kernels[SCORE]!.map((bucket) =>
    bucket.map(({ symbol, scratchBytes }): LaunchSymbol => ({ library, symbol, scratchBytes })),
  );
  return { checkpoint, model, symbols };
}

function batchOf(tokens: number, rows: number, seed: number): Batch {
  const random = randomSource(seed);
  const { position, subtreeEnd } = randomTrees(tokens, seed);
  return {
    tokens: Int32Array.from({ length: tokens }, () => below(random, VOCAB)),
    position: Int32Array.from(position),
    subtreeEnd: Int32Array.from(subtreeEnd),
    row: Int32Array.from({ length: rows }, () => below(random, tokens)).sort(),
    target: Int32Array.from({ length: rows }, () => below(random, VOCAB)),
  };
}

/** Micro-batches of all sizes. Consecutive ones differ, so that values left in an arena show in the next. */
const BATCHES = Array.from({ length: 12 }, (_, i) =>
  batchOf([96, 3, 40, 17, 64, 95][i % 6]!, [20, 2, 33, 5, 1, 60][(i * 5) % 6]!, 100 + i),
);

type Answers = readonly { readonly logProb: readonly number[]; readonly isArgmax: readonly number[] }[];

/** All micro-batches, requested at once. */
const answers = async (executor: CpuScoring): Promise<Answers> =>
  Promise.all(
    BATCHES.map(async (batch) => {
      const { logProb, isArgmax } = await executor.score(batch);
      return { logProb: [...logProb], isArgmax: [...isArgmax] };
    }),
  );

const stagesOf = (cuts: readonly number[], launches: number): Stage[] =>
  [0, ...cuts].map((first, i) => ({ first, end: cuts[i] ?? launches }));

describe.each<MaskKind>(['tree', 'slidingWindow'])('a model in stages (mask %s)', (mask) => {
  let compiled: Compiled;
  let launches = 0;
  let whole: Answers;
  const open: CpuScoring[] = [];
  const create = async (cuts: readonly number[], change: Partial<CpuScoringOptions> = {}): Promise<CpuScoring> => {
    const { checkpoint, model, symbols } = compiled;
    const executor = await openCpu({
      plan: scoreOf(model.plan),
      symbols,
      tensors: checkpoint.tensors,
      threads: 2,
      stages: stagesOf(cuts, launches),
      ...change,
    });
    open.push(executor);
    return executor;
  };
  const closing = async (executor: CpuScoring): Promise<Answers> => {
    const given = await answers(executor);
    await executor.close();
    return given;
  };

  beforeAll(async () => {
    compiled = await compile(mask);
    launches = scoreOf(compiled.model.plan).launches.length;
    whole = await closing(await create([]));
  });
  afterAll(async () => {
    await Promise.all(open.map((executor) => executor.close()));
  });

  it('gives different numbers in different rows', () => {
    expect(new Set(whole.flatMap(({ logProb }) => logProb)).size).toBeGreaterThan(150);
    expect(whole.flatMap(({ logProb }) => logProb).every((value) => value < 0 && Number.isFinite(value))).toBe(true);
  });

  it('gives the same bits wherever it is cut in two', async () => {
    for (let end = 1; end < launches; end++) {
      const executor = await create([end]);
      expect(await answers(executor), `cut before ${end}`).toEqual(whole);
      // Masks hold −∞, which is an answer there, even in a stage that only makes them.
      expect(await executor.diagnose(BATCHES[3]!), `cut before ${end}`).toBeUndefined();
      await executor.close();
    }
  });

  it('gives the same bits in two to four stages cut at random, and in as many as it has launches', async () => {
    const random = randomSource(mask.length);
    for (let i = 0; i < 8; i++) {
      const cuts = new Set<number>();
      while (cuts.size < 1 + (i % 3)) cuts.add(1 + below(random, launches - 1));
      const sorted = [...cuts].sort((a, b) => a - b);
      expect(await closing(await create(sorted, { threads: 1 + (i % 4) })), `cuts before ${sorted.join(', ')}`).toEqual(
        whole,
      );
    }
    expect(await closing(await create(Array.from({ length: launches - 1 }, (_, i) => i + 1)))).toEqual(whole);
  });

  it('reports what each stage did and when, and that stages worked at once', async () => {
    const executor = await create([Math.floor(launches / 2)]);
    expect(executor.inFlight).toBe(4);
    const begin = performance.timeOrigin + performance.now();
    const scoreAll = () => Promise.all(BATCHES.map((batch) => executor.score(batch)));
    const scored = await scoreAll();
    const end = performance.timeOrigin + performance.now();
    for (const { spans = [] } of scored) {
      expect(spans.map(({ device, kind }) => `${kind} ${device}`)).toEqual(['compute 0', 'copy 0', 'compute 1']);
      spans.reduce((before, span) => {
        expect(span.begin).toBeGreaterThanOrEqual(before);
        expect(span.end).toBeGreaterThanOrEqual(span.begin);
        return span.end;
      }, begin);
      expect(spans.at(-1)!.end).toBeLessThanOrEqual(end);
    }
    for (const device of [0, 1]) {
      const mine = scored.map(({ spans = [] }) =>
        spans.find((span) => span.device === device && span.kind === 'compute')!,
      );
      mine.slice(1).forEach((span, i) => expect(span.begin).toBeGreaterThanOrEqual(mine[i]!.begin));
    }
    const worksAtOnce = (all: typeof scored): boolean => {
      const [ofFirst, ofSecond] = [0, 1].map((device) =>
        all.flatMap(({ spans = [] }) => spans.filter((span) => span.device === device && span.kind === 'compute')),
      );
      return ofFirst!.some((a) => ofSecond!.some((b) => a.begin < b.end && b.begin < a.end));
    };
    // A busy machine may let the stages run one after another for a while.
    for (let again = scored; !worksAtOnce(again);) again = await scoreAll();
  });

  it('counts two arenas for each stage, and every weight where it is read', async () => {
    const one = await create([]);
    let told: MemoryUse | undefined;
    const two = await create([launches - 2], {
      onMemory: (use) => {
        told = use;
      },
    });
    expect(told).toEqual(two.memory());
    expect(two.memory().arenaBytes).toBe(4 * one.memory().arenaBytes);
    expect(two.memory()).toMatchObject({
      packedBytes: one.memory().packedBytes,
      mappedBytes: one.memory().mappedBytes,
      scratchBytes: one.memory().scratchBytes,
    });
  });

  it('names the first launch that wrote a NaN, whatever stage it is in, and continues to work', async () => {
    const { checkpoint } = compiled;
    // The kernel before the contraction multiplies by it.
    const name = 'model.layers.1.post_attention_layernorm.weight';
    const source = checkpoint.tensors.get(name)!;
    const tensors = new Map<string, TensorSource>([
      ...checkpoint.tensors,
      [name, { kind: 'constant', format: source.format, shape: source.shape, value: NaN }],
    ]);
    const found: unknown[] = [];
    for (const cuts of [[], [5], [5, 8], [8, 12, 14]]) {
      const executor = await create(cuts, { tensors });
      const outcome: unknown = await executor.score(BATCHES[0]!).catch((error: unknown) => error);
      expect(outcome).toMatchObject({ name: 'NonFiniteError', where: 'layers.1.attention.o' });
      found.push([String(outcome), await executor.diagnose(BATCHES[3]!)]);
    }
    expect(found[0]).toEqual([
      expect.stringContaining('(rows 0, 1'),
      expect.objectContaining({ path: 'layers.1.attention.o', row: 0, column: 0 }),
    ]);
    for (const other of found) expect(other).toEqual(found[0]);
  });

  it('profiles every launch once, in order', async () => {
    const executor = await create([4, 9]);
    const { launches: timed } = await executor.profile(BATCHES[0]!);
    const paths = scoreOf(compiled.model.plan).launches.map(
      ({ kernel }) => scoreOf(compiled.model.plan).kernels.find(({ name }) => name === kernel)!.path,
    );
    expect(timed.map(({ path }) => path)).toEqual(paths);
    for (const { nanoseconds } of timed) expect(nanoseconds).toBeGreaterThan(0);
  });

  it('refuses stages that leave launches out, run them twice or are empty', async () => {
    const { checkpoint, model, symbols } = compiled;
    for (const stages of [
      [],
      [{ first: 0, end: 3 }],
      [
        { first: 0, end: 3 },
        { first: 4, end: launches },
      ],
      [
        { first: 0, end: 5 },
        { first: 4, end: launches },
      ],
      [
        { first: 0, end: 0 },
        { first: 0, end: launches },
      ],
    ]) {
      await expect(
        openCpu({ plan: scoreOf(model.plan), symbols, tensors: checkpoint.tensors, threads: 1, stages }),
      ).rejects.toThrow(/in order/);
    }
  });
});
