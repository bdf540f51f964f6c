/** Model → plan: graph, passes, kernels, default schedules. No weights are read and nothing is compiled yet. */
import { defaultSchedule } from '../codegen/cpu/index.js';
import { defaultCudaSchedule, type CudaFacts } from '../codegen/cuda/index.js';
import { UsageError } from '../errors.js';
import type { CudaSchedule } from '../ir/cuda.js';
import type { Graph } from '../ir/graph.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import {
  scoreOf,
  type Bucket,
  type CpuIsa,
  type CpuSchedule,
  type CudaPlan,
  type Plan,
  type Schedule,
} from '../ir/plan.js';
import { scoringBucket, tokensIn } from '../ir/scoring.js';
import { printGraph } from '../ir/text/printer.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { MaskKind } from '../models/mask.js';
import { lower, optimise, type Numerics, type Observer } from '../passes/pipeline.js';
import { planMemory } from '../passes/planMemory.js';
import { cudaBuckets, defaultBuckets } from '../autotune/buckets.js';
import { deriveLaunches, MAX_CAPACITY } from './checkPlan.js';
import { arithmeticOf, chooseIsa, numericsOf, scheduleFacts, upTo, type Machine } from './machine.js';
import { buildGraph } from './model.js';
import { cudaArithmetic, cudaNumerics, type Precision } from './target.js';

export interface CompileOptions {
  readonly precision: Precision;
  readonly isa?: CpuIsa;
  /** Compile for this GPU instead of the CPU. */
  readonly cuda?: CudaFacts;
  readonly mask?: MaskKind;
  /** Largest micro-batch, packed tokens. Default: what the model's context needs, within bounds of the target. */
  readonly maxTokens?: number;
  /** Sees the graph or the kernels after every pass: dumps and `inspect`. */
  readonly observe?: Observer;
}

/** A compiled model: everything but weights and machine code. */
export interface CpuModel {
  readonly target: 'cpu';
  readonly isa: CpuIsa;
  readonly arithmetic: 'bf16' | 'f32';
  /** Text of the optimised graph. */
  readonly graphText: string;
  readonly plan: Plan;
}

export interface CudaModel {
  readonly target: 'cuda';
  /** What its schedules were chosen for. */
  readonly facts: CudaFacts;
  readonly arithmetic: 'bf16' | 'f16';
  readonly graphText: string;
  readonly plan: CudaPlan;
}

export type CompiledModel = CpuModel | CudaModel;

/** `avx512`, `cuda:sm_90a`: names the machine code for results, journals and people. */
export const isaOf = (model: CompiledModel): string =>
  model.target === 'cpu' ? model.isa : `cuda:${model.facts.arch}`;

/** Longest context accepted, tokens: the model's own, bounded by the largest micro-batch. */
export const contextLimit = (checkpoint: Pick<Checkpoint, 'config'>, plan: Plan<Schedule>): number =>
  Math.min(checkpoint.config.maxPositions, tokensIn(scoreOf(plan).capacity));

/** Tokens of the largest micro-batch by default: the model's context within these bounds. */
const CPU_CAPACITY = { least: 1024, most: 4096 } as const;
/**
 * A row tile of 128 for every other multiprocessor: whatever the number of column tiles, if it is even, whole waves of
 * them keep all multiprocessors busy (docs/performance.md). 8,448 tokens on an H100.
 */
const cudaCapacity = ({ multiprocessors }: CudaFacts): Planning<CudaSchedule>['limits'] => ({
  least: 64 * Math.max(16, multiprocessors),
  most: 16_384,
});

export function compileModel(
  checkpoint: Checkpoint,
  machine: Machine,
  options: CompileOptions & { readonly cuda?: never },
): CpuModel;
export function compileModel(checkpoint: Checkpoint, machine: Machine, options: CompileOptions): CompiledModel;
export function compileModel(checkpoint: Checkpoint, machine: Machine, options: CompileOptions): CompiledModel {
  return options.cuda === undefined
    ? compileForCpu(checkpoint, machine, options)
    : compileForCuda(checkpoint, options.cuda, options);
}

function compileForCpu(checkpoint: Checkpoint, machine: Machine, options: CompileOptions): CpuModel {
  const isa = chooseIsa(machine, options.precision, options.isa);
  const facts = { ...scheduleFacts(machine), isas: upTo(machine, isa) };
  const { graph, plan } = plans<CpuSchedule>(checkpoint, options, {
    numerics: numericsOf(isa),
    limits: CPU_CAPACITY,
    buckets: defaultBuckets,
    schedule: (kernel, module, bucket) => defaultSchedule(kernel, module, facts, bucket),
  });
  return { target: 'cpu', isa, arithmetic: arithmeticOf(isa), graphText: printGraph(graph), plan };
}

function compileForCuda(checkpoint: Checkpoint, facts: CudaFacts, options: CompileOptions): CudaModel {
  if (options.isa !== undefined)
    throw new UsageError('--isa is an instruction set of CPUs', 'drop --isa, or use --target cpu');
  const arithmetic = cudaArithmetic(options.precision, checkpoint.config.dtype);
  const { graph, plan } = plans<CudaSchedule>(checkpoint, options, {
    numerics: cudaNumerics(arithmetic),
    limits: cudaCapacity(facts),
    buckets: cudaBuckets,
    schedule: (kernel, module, bucket) => defaultCudaSchedule(kernel, module, facts, bucket),
  });
  return { target: 'cuda', facts, arithmetic, graphText: printGraph(graph), plan };
}

/** What a target decides about a plan. */
interface Planning<S> {
  readonly numerics: Numerics;
  readonly limits: { readonly least: number; readonly most: number };
  readonly buckets: (tokens: number) => readonly Bucket[];
  readonly schedule: (kernel: Kernel, module: KernelModule, bucket: Bucket) => S;
}

function plans<S>(
  checkpoint: Checkpoint,
  options: CompileOptions,
  planning: Planning<S>,
): { readonly graph: Graph; readonly plan: Plan<S> } {
  const { least, most } = planning.limits;
  const tokens = options.maxTokens ?? Math.min(Math.max(checkpoint.config.maxPositions, least), most);
  if (!Number.isInteger(tokens) || tokens < 32 || tokens > MAX_CAPACITY)
    throw new UsageError(`a micro-batch of ${tokens} tokens: expected 32 to ${MAX_CAPACITY}`, 'use --max-tokens 1024');
  const capacity = scoringBucket({ tokens, rows: tokens, longest: tokens });
  const graph = optimise(buildGraph(checkpoint, options.mask), planning.numerics, options.observe);
  const module = lower(graph, planning.numerics, options.observe);
  const memory = planMemory(module, capacity.extents);
  const launches = deriveLaunches(module, capacity.extents);
  const buckets = planning.buckets(tokens);
  const schedules = buckets.map((bucket) => {
    const chosen: Record<string, S> = {};
    module.kernels.forEach((kernel, i) => {
      chosen[launches[i]!.signature] ??= planning.schedule(kernel, module, bucket);
    });
    return chosen;
  });
  return {
    graph,
    plan: {
      weights: module.weights,
      constants: module.constants,
      states: [],
      functions: [
        {
          interface: module.interface,
          buffers: module.buffers,
          kernels: module.kernels,
          launches,
          capacity,
          arenaBytes: memory.arenaBytes,
          placements: memory.placements,
          buckets,
          schedules,
        },
      ],
    },
  };
}
