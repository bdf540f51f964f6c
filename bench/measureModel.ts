/** Measures one model: made-up weights and real trees, through the ordinary compiler and runtime. */
import { scoreInputs, scoringLimits } from '../commands/scorer.js';
import { tuneCompiled } from '../commands/tune.js';
import { BatchWork } from '../commands/work.js';
import { compileModel } from '../driver/compile/compile.js';
import { openModel, storedFormats } from '../driver/functions.js';
import { cpu } from '../driver/targets/cpu.js';
import { cpuDevice, type CpuDevice, type Machine } from '../driver/targets/cpuDevice.js';
import { compileCpuKernels, type CpuModel, emitCpuPlan } from '../driver/targets/cpuKernels.js';
import { packTrees } from '../evaluate/packing.js';
import { layBatch } from '../evaluate/scoreBatches.js';
import type { MicroBatch } from '../evaluate/scorer.js';
import type { TreeSharing } from '../evaluate/tree.js';
import { planTrees } from '../evaluate/treePlan.js';
import { SCORE } from '../ir/function.js';
import { type CpuIsa, type CpuSchedule, scoreOf } from '../ir/plan.js';
import { loadAddon } from '../runtime/addon.js';
import { openCpuExecutor } from '../runtime/cpu/openExecutor.js';
import type { Executor } from '../runtime/executor.js';
import { at } from '../system/at.js';
import { type BenchData, initOf, modelPath } from './inputs.js';

export interface ModelMeasureRequest {
  readonly model: string;
  readonly machine: Machine;
  readonly isa: CpuIsa;
  /** `f32` decodes the blocks of a GGUF file. */
  readonly precision: 'auto' | 'f32';
  readonly threads: number;
  readonly data: BenchData;
  /** Time to spend scoring, in seconds. */
  readonly seconds: number;
  /** Budget of a tuning before it, in seconds; 0 measures the defaults. */
  readonly tuneSeconds: number;
  readonly batchTokens: number;
}

/** The results of one model. Rates are of the computed tokens, sharing `tree`. */
export interface MeasuredModel {
  readonly model: string;
  readonly isa: CpuIsa;
  readonly tokensPerSecond: number;
  readonly questionsPerSecond: number;
  /** Model FLOPs a second ÷ the register-loop peak measured in the same minute. */
  readonly shareOfPeak: number;
  readonly peakFlops: number;
  readonly compileSeconds: number;
  readonly kernelsCompileSeconds: number;
  readonly loadSeconds: number;
  /** One full micro-batch and the register loop in turn, each at its fastest. */
  readonly inTurn: {
    readonly peakFlops: number;
    readonly share: number;
    /** Summed over layers. */
    readonly kernels: readonly {
      readonly name: string;
      readonly milliseconds: number;
      readonly gflops: number;
      readonly share: number;
    }[];
  };
  readonly sharing: Readonly<Record<TreeSharing, number>>;
}

/** Tunes schedules for this machine without showing progress. */
function tune(
  compiled: CpuModel,
  { machine, threads, tuneSeconds }: ModelMeasureRequest,
): ReturnType<typeof tuneCompiled<CpuSchedule, CpuDevice>> {
  const nothing = (): void => undefined;
  const ui = {
    phase: nothing,
    step: nothing,
    run: nothing,
    table: nothing,
    note: nothing,
    detail: nothing,
    warn: nothing,
  };
  const options = {
    budgetSeconds: tuneSeconds,
    threads,
    rebuild: (target: string) => `tilewright compile --target ${target}`,
  };
  return tuneCompiled(compiled, machine, options, { ui, share: () => 0 });
}

const SHARINGS: readonly TreeSharing[] = ['none', 'context', 'tree'];

export async function measureModel(request: ModelMeasureRequest): Promise<MeasuredModel> {
  const { machine, isa, threads, data } = request;
  const checkpoint = openModel(modelPath(request.model), initOf(request.model));
  const t0 = performance.now();
  const device = cpuDevice(machine, request.precision, isa, storedFormats(checkpoint, request.precision));
  const compiled = compileModel(checkpoint, cpu, device, {
    batchTokens: request.batchTokens,
  });
  const t1 = performance.now();
  const model = request.tuneSeconds > 0 ? (await tune(compiled, request)).model : compiled;
  const { symbols, seconds: kernelsCompileSeconds } = await compileCpuKernels(emitCpuPlan(model.plan), isa);
  const t2 = performance.now();
  const executor = await openCpuExecutor({
    plan: model.plan,
    symbols,
    tensors: checkpoint.tensors,
    threads,
  });
  const loadSeconds = (performance.now() - t2) / 1000;
  try {
    const work = new BatchWork(scoreOf(model.plan));
    const vocab = checkpoint.config.vocabSize;
    await executor.prepare();
    const batches = (sharing: TreeSharing): readonly MicroBatch[] => layOut(data, sharing, executor, work, vocab);
    const tree = batches('tree');
    // Clocks and other processes move the peak, so it is measured just before and just after what it is compared with.
    const before = await peakOf(isa, threads);
    const rate = await timed(executor, tree, request.seconds);
    const peakFlops = (before + (await peakOf(isa, threads))) / 2;
    const flopsPerToken =
      tree.reduce((sum, b) => sum + work.flops(b), 0) / tree.reduce((sum, b) => sum + b.tokens.length, 0);
    const sharing: Record<TreeSharing, number> = { none: 0, context: 0, tree: 0 };
    for (const mode of SHARINGS) {
      const laid = batches(mode);
      const tokens = laid.reduce((sum, b) => sum + b.tokens.length, 0);
      const { tokensPerSecond } = mode === 'tree' ? rate : await timed(executor, laid, request.seconds / 2);
      sharing[mode] = (data.questions.length * tokensPerSecond) / tokens;
    }
    const largest = tree.reduce((a, b) => (b.tokens.length > a.tokens.length ? b : a));
    return {
      model: request.model,
      isa,
      tokensPerSecond: rate.tokensPerSecond,
      questionsPerSecond: sharing.tree,
      shareOfPeak: (rate.tokensPerSecond * flopsPerToken) / peakFlops,
      peakFlops,
      compileSeconds: (t1 - t0) / 1000,
      kernelsCompileSeconds,
      loadSeconds,
      sharing,
      inTurn: await inTurn(executor, largest, work, request),
    };
  } finally {
    await executor.close();
  }
}

/** Floating-point operations a second of a loop over registers. */
export async function peakOf(isa: CpuIsa, threads: number, seconds = 0.5): Promise<number> {
  const pool = new (loadAddon().Pool)(threads);
  try {
    return await loadAddon().peak(pool, isa, seconds);
  } finally {
    pool.release();
  }
}

function layOut(
  data: BenchData,
  sharing: TreeSharing,
  executor: Executor,
  work: BatchWork,
  vocab: number,
): readonly MicroBatch[] {
  const limits = scoringLimits(executor);
  const forest = planTrees(data.questions, sharing, limits);
  const packs = packTrees(
    forest.trees.map((tree) => ({ ...tree, orderLength: tree.longest })),
    {
      ...limits,
      cost: (tokens, rows, longest) => work.seconds(tokens, rows, longest),
    },
  );
  // A model whose vocabulary is smaller than the tokenizer's still gets valid ids.
  const fold = (ids: Int32Array): Int32Array => ids.map((id) => id % vocab);
  return packs
    .map(
      (pack) =>
        layBatch(
          pack.items.map(({ paths }) => paths),
          sharing,
        ).batch,
    )
    .map((b) => ({ ...b, tokens: fold(b.tokens), target: fold(b.target) }));
}

/** Scores micro-batches in rotation for about `seconds`, after one to warm up. */
async function timed(
  executor: Executor,
  batches: readonly MicroBatch[],
  seconds: number,
): Promise<{ tokensPerSecond: number }> {
  await executor.call(SCORE, scoreInputs(at(batches, 0), executor));
  let tokens = 0;
  const begin = performance.now();
  for (let i = 0; performance.now() - begin < seconds * 1000; i++) {
    const batch = at(batches, i % batches.length);
    await executor.call(SCORE, scoreInputs(batch, executor));
    tokens += batch.tokens.length;
  }
  return { tokensPerSecond: tokens / ((performance.now() - begin) / 1000) };
}

/** Rounds in which one full micro-batch and the register loop run in turn. */
const ROUNDS = 12;

/** Least of several figures by key. */
class Least {
  readonly of = new Map<string, number>();

  add(key: string, value: number): void {
    this.of.set(key, Math.min(this.of.get(key) ?? Infinity, value));
  }
}

/**
 * One micro-batch by kernel. Every launch counts with the fastest of its runs and the register loop with the fastest of
 * its own, which ran in turn: on a machine that others use, that compares the kernels with the loop, and not with them.
 * Launches with the same role in different layers are added up.
 */
async function inTurn(
  executor: Executor,
  batch: MicroBatch,
  work: BatchWork,
  { isa, threads }: ModelMeasureRequest,
): Promise<MeasuredModel['inTurn']> {
  const least = new Least();
  let peakFlops = 0;
  for (let round = 0; round < ROUNDS; round++) {
    peakFlops = Math.max(peakFlops, await peakOf(isa, threads, 0.05));
    const { launches } = await executor.profile(SCORE, scoreInputs(batch, executor));
    launches.forEach(({ path, nanoseconds }, i) => {
      least.add(`${i} ${path}`, nanoseconds);
    });
  }
  const sums = new Map<string, number>();
  for (const [launch, nanoseconds] of least.of) {
    const role = launch.replace(/^\d+ /, '').replace(/^layers\.\d+\./, '');
    sums.set(role, (sums.get(role) ?? 0) + nanoseconds);
  }
  const total = [...sums.values()].reduce((sum, nanoseconds) => sum + nanoseconds, 0);
  const share = (flops: number, nanoseconds: number): number => (flops / nanoseconds) * (1e9 / peakFlops);
  return {
    peakFlops,
    share: share(work.flops(batch), total),
    kernels: [...sums].map(([name, nanoseconds]) => {
      const flops = work.flopsOfRole(name, batch);
      return { name, milliseconds: nanoseconds / 1e6, gflops: flops / nanoseconds, share: share(flops, nanoseconds) };
    }),
  };
}
