/** Model → plan: graph, passes, kernels, default schedules. No weights are read and nothing is compiled yet. */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { UsageError } from '../../errors.js';
import { COPY, DRAFT, RESERVED_ROWS, SCORE, STEP, takesAdapters } from '../../ir/function.js';
import { printGraph } from '../../ir/graph/printer.js';
import { printKernels } from '../../ir/kernelPrinter.js';
import { type Bucket, type Plan, scoreOf } from '../../ir/plan.js';
import { scoringBucket, tokensIn, withKeyRoom } from '../../ir/scoring.js';
import { COPY_BUCKET, draftBuckets, stepBuckets } from '../../ir/stepping.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { classesOf } from '../../models/model/model.js';
import { lowerModule, type Observer, type CompilerStage } from '../../passes/runPasses.js';
import { at } from '../../system/at.js';
import { defined } from '../../system/defined.js';
import { codeOf, diskProblem } from '../../system/process.js';
import { makeFolder } from '../../system/write.js';
import { keepModel, planKey, type PlanOptions, readModel, withCacheTokens } from '../artifact/planCache.js';
import { printPlan } from '../artifact/planJson.js';
import { answeringFunctions, graphDigests, modelFunctions, printFunctions } from '../functions.js';
import { MAX_CAPACITY, planFunction } from '../plan.js';
import { type Arithmetic, codedCache, isInteger, withAdapters, withCache } from '../precision.js';
import type { CompiledModel, Target, TargetCompiler } from '../targets/target.js';

export type { CompiledModel } from '../targets/target.js';

/** Fewest tokens that the largest micro-batch of a model may have. */
export const MIN_CAPACITY = 32;

/** Longest accepted context, in tokens: the model's own, bounded by the largest micro-batch. */
export const contextLimit = (checkpoint: Pick<Checkpoint, 'config'>, plan: Plan<unknown>): number =>
  Math.min(checkpoint.config.maxPositions, tokensIn(scoreOf(plan).capacity));

/** Tokens of the largest micro-batch that a checkpoint is compiled for. */
export function largestCall<S, D>(
  { config }: Pick<Checkpoint, 'config'>,
  compiler: Pick<TargetCompiler<S, D>, 'capacity'>,
  device: D,
  asked: number | undefined,
): number {
  const { min, max } = compiler.capacity(device, config.hiddenSize);
  return asked ?? Math.min(Math.max(config.maxPositions, min), max);
}

/**
 * Compiles a checkpoint with `target` for `device`. `observe`: called with the graph or the kernels after every pass.
 * Throws UsageError if the options do not fit.
 */
export function compileModel<S, D>(
  checkpoint: Checkpoint,
  target: Target<S, D>,
  device: D,
  options: PlanOptions = {},
  observe?: Observer,
): CompiledModel<S, D> {
  const { compiler } = target;
  const coded = codedCache(options.kvCache);
  const { adapters } = options;
  if (adapters !== undefined) requireAdaptable(compiler.arithmetic(device));
  const numerics = withAdapters(withCache(compiler.numerics(device), coded), adapters);
  const tokens = largestCall(checkpoint, compiler, device, options.batchTokens);
  if (!Number.isInteger(tokens) || tokens < MIN_CAPACITY || tokens > MAX_CAPACITY)
    throw new UsageError(
      `a micro-batch of ${tokens} tokens: expected ${MIN_CAPACITY} to ${MAX_CAPACITY}`,
      'use --batch-tokens 1024',
    );
  const { mask = compiler.mask } = options;
  const filters = options.logits === true && classesOf(checkpoint.config) === undefined;
  const buckets = compiler.buckets(tokens);
  const { states } = checkpoint.model;
  const steps = stepBuckets(buckets, compiler.decodeSizes, { isFiltering: filters, ...defined({ states }) });
  const { cacheTokens, cacheRows = RESERVED_ROWS, adapters: _, ...others } = options;
  const rows = cacheTokens === undefined ? undefined : cacheRows;
  const chosen = { ...others, cacheRows: rows, mask, ...defined({ observe }) };
  const module = modelFunctions(checkpoint, numerics, chosen);
  const graphText = printFunctions(module);
  const answering = answeringFunctions(module, checkpoint, numerics, chosen);
  const lowered = lowerModule(module, numerics, observe);
  const scoring = (size: Bucket): Bucket => withKeyRoom(at(lowered.functions, 0).interface, size);
  const drafts = draftBuckets(buckets, compiler.decodeSizes);
  const sizes: Readonly<Record<string, FunctionSize>> = {
    [SCORE]: {
      capacity: scoring(scoringBucket({ tokens, rows: tokens, longest: tokens })),
      buckets: buckets.map(scoring),
    },
    [STEP]: { capacity: steps.at(-1)!, buckets: steps },
    [DRAFT]: { capacity: drafts.at(-1)!, buckets: drafts },
    [COPY]: { capacity: COPY_BUCKET, buckets: [COPY_BUCKET] },
  };
  return {
    target,
    device,
    isa: compiler.label(device),
    arithmetic: compiler.arithmetic(device),
    ...defined({ cacheTokens, kvCache: coded }),
    mask,
    graphText,
    graphs: graphDigests(answering, answering === module ? graphText : printFunctions(answering)),
    plan: {
      weights: lowered.weights,
      constants: lowered.constants,
      states: lowered.states,
      functions: lowered.functions.map((each) => {
        const { capacity, buckets: all } = sizes[each.interface.name]!;
        const own = compiler.scheduling.settle !== undefined && takesAdapters(each.interface) ? twice(all) : all;
        return planFunction(each, capacity, own, compiler.scheduling, device);
      }),
    },
  };
}

/** Throws UsageError where matrices are multiplied in 8 bits. */
function requireAdaptable(arithmetic: Arithmetic): void {
  if (isInteger(arithmetic) || arithmetic === 'fp8')
    throw new UsageError(
      `adapters are not supported beside matrices of ${arithmetic}`,
      'without --quantize, the model is computed in 16 bits or in f32; or merge the adapter: tilewright merge-adapter',
    );
}

/** Each size for calls without adapters too. */
const twice = (buckets: readonly Bucket[]): readonly Bucket[] =>
  buckets.flatMap((bucket): Bucket[] => [{ ...bucket, withoutAdapters: true }, bucket]);

/** The sizes of a function's calls. */
interface FunctionSize {
  readonly capacity: Bucket;
  readonly buckets: readonly Bucket[];
}

/**
 * The compiled model: from the cache, or by compileModel, whose result is kept. Neither graph nor passes are built
 * where it is found. Throws as compileModel does.
 */
export function plannedModel<S, D>(
  checkpoint: Checkpoint,
  target: Target<S, D>,
  device: D,
  options: PlanOptions = {},
): CompiledModel<S, D> {
  const key = planKey({ checkpoint, target, device, options });
  const model = readModel(key, target) ?? keepModel(key, compileModel(checkpoint, target, device, options));
  return withCacheTokens(model, options.cacheTokens);
}

/** A graph, or kernels, as text. */
export const stageText = (stage: CompilerStage): string =>
  stage.level === 'graph' ? printGraph(stage.graph) : printKernels(stage.module);

export class Dump {
  private readonly dir: string;
  private count = 0;

  constructor(dir: string) {
    this.dir = dir;
    this.guarded(dir, () => makeFolder(dir));
  }

  private guarded(path: string, write: () => void): void {
    try {
      write();
    } catch (error) {
      if (codeOf(error) === '') throw error;
      throw diskProblem(path, error, 'free some space, or give --dump a folder that can be written');
    }
  }

  /** `03_canonicalizeMask.txt`: a graph, or kernels. */
  stage(stage: CompilerStage): void {
    this.write(`${stage.name}.txt`, stageText(stage));
  }

  plan(model: CompiledModel): void {
    const { plan } = model;
    const kernels = plan.functions.flatMap((fn) => fn.kernels);
    this.write('kernels.jsonl', kernels.map((kernel) => `${JSON.stringify(kernel)}\n`).join(''));
    this.write('plan.json', printPlan(plan));
    for (const { name, text } of model.target.compiler.sources(model.plan)) {
      if (dirname(name) === '.') this.write(name, text);
      else this.writeHeader(name, text);
    }
  }

  /** Under its own name, so that units include it. */
  private writeHeader(name: string, text: string): void {
    const path = join(this.dir, name);
    this.guarded(path, () => {
      makeFolder(dirname(path));
      writeFileSync(path, text);
    });
  }

  private write(name: string, text: string): void {
    const path = join(this.dir, `${String(this.count++).padStart(2, '0')}_${name}`);
    this.guarded(path, () => writeFileSync(path, text));
  }
}
