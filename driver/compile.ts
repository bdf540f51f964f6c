/** Model → plan: graph, passes, kernels, default schedules. No weights are read and nothing is compiled yet. */
import { defaultSchedule } from '../codegen/cpu/index.js';
import { UserError } from '../errors.js';
import type { Graph } from '../ir/graph.js';
import type { Bucket, CpuIsa, CpuSchedule, Plan } from '../ir/plan.js';
import { printGraph } from '../ir/text/printer.js';
import { verifyGraph } from '../ir/verify.js';
import { verifyKernels } from '../ir/verifyKernel.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { MaskKind } from '../models/mask.js';
import { lower, optimise } from '../passes/pipeline.js';
import { planMemory } from '../passes/planMemory.js';
import { defaultBuckets } from '../autotune/buckets.js';
import { deriveLaunches, MAX_CAPACITY } from './checkPlan.js';
import { arithmeticOf, chooseIsa, numericsOf, scheduleFacts, upTo, type Machine, type Precision } from './machine.js';
import { buildGraph } from './model.js';

export interface CompileOptions {
  readonly precision: Precision;
  readonly isa?: CpuIsa;
  readonly mask?: MaskKind;
  /** Largest micro-batch, packed tokens. Default: what the model's context needs, at least 1024, at most 4096. */
  readonly maxTokens?: number;
  /** Sees the graph after every pass: dumps and `inspect`. */
  readonly observe?: (stage: string, graph: Graph) => void;
}

/** A compiled model: everything but weights and machine code. */
export interface CompiledModel {
  readonly isa: CpuIsa;
  readonly arithmetic: 'bf16' | 'f32';
  /** Text of the optimised graph. */
  readonly graphText: string;
  readonly plan: Plan;
}

/** Longest context accepted, tokens: the model's own, bounded by the largest micro-batch. */
export const contextLimit = (checkpoint: Pick<Checkpoint, 'config'>, plan: Plan): number =>
  Math.min(checkpoint.config.maxPositions, plan.capacity.tokens);

const DEFAULT_CAPACITY = { least: 1024, most: 4096 } as const;

export function compileModel(checkpoint: Checkpoint, machine: Machine, options: CompileOptions): CompiledModel {
  const isa = chooseIsa(machine, options.precision, options.isa);
  const numerics = numericsOf(isa);
  const tokens = options.maxTokens ?? Math.min(Math.max(checkpoint.config.maxPositions, DEFAULT_CAPACITY.least), DEFAULT_CAPACITY.most);
  if (!Number.isInteger(tokens) || tokens < 32 || tokens > MAX_CAPACITY) throw new UserError(`a micro-batch of ${tokens} tokens: expected 32 to ${MAX_CAPACITY}`, 'use --max-tokens 1024');
  const capacity: Bucket = { tokens, rows: tokens, longest: tokens };
  const graph = optimise(buildGraph(checkpoint, options.mask), numerics, (stage, current) => {
    verifyGraph(current, stage);
    options.observe?.(stage, current);
  });
  const module = lower(graph, numerics);
  verifyKernels(module);
  const memory = planMemory(module, capacity);
  const launches = deriveLaunches(module, tokens);
  const facts = { ...scheduleFacts(machine), isas: upTo(machine, isa) };
  const buckets = defaultBuckets(tokens);
  const schedules = buckets.map((bucket) => {
    const chosen: Record<string, CpuSchedule> = {};
    module.kernels.forEach((kernel, i) => { chosen[launches[i]!.signature] ??= defaultSchedule(kernel, module, facts, bucket); });
    return chosen;
  });
  return {
    isa, arithmetic: arithmeticOf(isa), graphText: printGraph(graph),
    plan: {
      buffers: module.buffers, weights: module.weights, constants: module.constants, kernels: module.kernels, launches, capacity,
      arenaBytes: memory.arenaBytes, placements: memory.placements, buckets, schedules,
    },
  };
}
