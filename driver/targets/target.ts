/**
 * A target as a value: everything that the driver must know of a kind of machine to compile a model for it, keep it in
 * an artifact, run it and tune it. One record each; targets/index.ts lists them, and nothing else tells them apart.
 */
import type { z } from 'zod';
import type { Rates } from '../../autotune/bucketCost.js';
import type { TuneResult as SearchResult } from '../../autotune/search.js';
import type { Scheduling } from '../../codegen/scheduling.js';
import type { Stage } from '../../ir/placement.js';
import type { LaunchShape } from '../../ir/cuda.js';
import type { Kernel } from '../../ir/kernel.js';
import type { Bucket, CpuIsa, Plan } from '../../ir/plan.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { MaskKind } from '../../models/family/mask.js';
import type { Numerics } from '../../passes/pipeline.js';
import type { KernelResources } from '../../runtime/cuda/ptxasLog.js';
import type { Machine } from '../machine.js';
import type { Phases } from '../phases.js';
import type { Ui } from '../requests.js';
import type { Executor } from '../executor.js';
import type { WeightExchange } from '../../runtime/cuda/shareWeights.js';
import type { Arithmetic, Precision } from '../target.js';
import type { CompiledCode, PackedCode } from './machineCode.js';

/**
 * A compiled model: everything but weights and machine code. `S`: schedules of its target. `D`: the machine that the
 * schedules were chosen for. Whoever does not care has the model of any target, and hands it to its own `target` only.
 */
export interface CompiledModel<S = unknown, D = unknown> {
  readonly target: Target<S, D>;
  readonly device: D;
  /** `avx512`, `cuda:sm_90a`: names the machine code for results, journals and people. */
  readonly isa: string;
  readonly arithmetic: Arithmetic;
  readonly mask: MaskKind;
  /** Text of the optimised graph. */
  readonly graphText: string;
  readonly plan: Plan<S>;
}

/** The command that makes an artifact for another `--target`. */
export type Rebuild = (target: string) => string;

/** What a user says about the machine to compile for. */
export interface TargetRequest {
  /** One of the target's names. */
  readonly target: string;
  readonly precision: Precision;
  readonly isa?: CpuIsa;
}

/** What a manifest says of the machine, and what else a target writes there. */
export interface TargetManifest {
  readonly kind: string;
  readonly arithmetic: Arithmetic;
}

export interface SourceText {
  readonly name: string;
  readonly text: string;
}

/** Told how far work is that may be stopped. */
export interface WorkOptions {
  /** Aborted: the work ends at once. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: { readonly done: number; readonly total: number }) => void;
}

export interface CompileOptions extends WorkOptions {
  /** Machine code to fall back on where there is no compiler. */
  readonly packed?: PackedCode | undefined;
}

export interface MachineCode {
  /** Files of an artifact's kernels/ folder. */
  readonly sources: readonly SourceText[];
  /** What an artifact may carry to hosts without a compiler; absent where a target has none. */
  readonly code?: CompiledCode;
  /** Nothing had to be compiled. */
  readonly isCached: boolean;
}

/** A kernel as `inspect` shows it. */
export interface PrintedKernel {
  /** Exported function. */
  readonly symbol: string;
  readonly source: string;
  /** Buffers and weights in the order of the function's parameters. */
  readonly parameters: readonly string[];
  /** Scratch memory of a thread, where the host computes. */
  readonly scratchBytes?: number;
  /** How a device launches it. */
  readonly launch?: LaunchShape;
  /** What the compiler made of it, where one is here. */
  readonly resources?: KernelResources;
  /** Why there are no resources. */
  readonly note?: string;
}

export interface OpenOptions {
  /** Worker threads of all devices together, where the host computes. */
  readonly threads: number;
  /** One a stage, counted from 0 among those of this machine that run the plan. */
  readonly devices: readonly number[];
  /** Launches of each stage; absent: one device runs all. */
  readonly stages?: readonly Stage[];
  readonly rebuild: Rebuild;
  /** Machine code to fall back on where there is no compiler. */
  readonly packed?: PackedCode | undefined;
  /** Told what is begun. */
  readonly phases?: Phases;
  /** Replicas on other devices that load at the same time. */
  readonly siblings?: { exchange(stage: number): WeightExchange };
}

export interface MeasureOptions {
  readonly budgetSeconds: number;
  readonly threads: number;
  /** JSON-lines file of measurements. */
  readonly database?: string;
  readonly rebuild: Rebuild;
  readonly signal?: AbortSignal;
  /** The table as it stands, and a line about it. */
  readonly onProgress: (table: readonly string[], status: string) => void;
  /** What takes a while: `compiled 3 of 12`. */
  readonly onActivity: (what: string) => void;
  readonly onNote: (line: string) => void;
  readonly onWarning: (line: string) => void;
}

export interface Tuned<S> {
  readonly search: SearchResult<S>;
  readonly table: readonly string[];
}

export interface Target<S, D> {
  /** Its name in manifests and results. */
  readonly name: string;
  /** What `--target` may say. */
  readonly names: readonly string[];
  /** Its kernels run on this host's processors and in its memory, which tokenising and loading must leave to them. */
  readonly isHost: boolean;
  /** Seconds without an answer after which its process counts as hung. */
  readonly timeoutSeconds: number;
  /** Its processes compile for themselves while this one does: none waits for another. */
  readonly compilesInProcess: boolean;
  /** Replicas hand weights to each other. */
  readonly sharesWeights: boolean;
  /**
   * Sizes of micro-batch that differ in cost: where kernels run in whole waves of tiles, a size between two waves costs
   * as much as the larger one. Absent: all of them.
   */
  readonly steps?: number;
  readonly scheduling: Scheduling<S, D>;

  /** The machine to compile for. `stored`: the checkpoint's element type. UserError where there is none. */
  choose(request: TargetRequest, machine: Machine, stored: 'f32' | 'bf16' | 'f16'): D;
  label(device: D): string;
  /** The `--target` that asks for such a machine. */
  option(device: D): string;
  arithmetic(device: D): Arithmetic;
  numerics(device: D): Numerics;
  /** Bounds of the largest micro-batch by default: the model's context within these. */
  capacity(device: D): { readonly least: number; readonly most: number };
  buckets(tokens: number): readonly Bucket[];

  readonly manifest: z.ZodType<TargetManifest>;
  describe(device: D): TargetManifest;
  /** The machine of a manifest, as schedules are judged here. Throws Error where this host cannot use it. */
  restore(manifest: TargetManifest, machine: Machine): D;

  sources(plan: Plan<S>): readonly SourceText[];
  print(kernel: Kernel, model: CompiledModel<S, D>, schedule: S): Promise<PrintedKernel>;
  /** Prints and compiles a model's kernels, or finds them in the cache. Rejects where it was stopped. */
  compile(model: CompiledModel<S, D>, options?: CompileOptions): Promise<MachineCode>;

  /** Devices of this machine that a run gets which asks for all of them. */
  visibleDevices(): number;
  /** Throws UserError where this machine has fewer than `least` devices for plans of `device`. */
  requireDevices(device: D, least: number, rebuild: Rebuild): void;
  /** Bytes that weights and activations may take of each of `devices`, which are like the first `present`. */
  room(device: D, devices: number, present: number, rebuild: Rebuild): number;
  /** Only their ratio matters: which launches wait for arithmetic, which for memory. */
  rates(device: D): Rates;
  /** The model on its devices, in this process: kernels compiled, weights loaded. */
  open(checkpoint: Checkpoint, model: CompiledModel<S, D>, options: OpenOptions, ui: Ui): Promise<Executor>;
  /** The best schedules that a search finds within its budget. */
  measure(model: CompiledModel<S, D>, machine: Machine, options: MeasureOptions): Promise<Tuned<S>>;
}

/** Some target: what is true of each of them. */
export type AnyTarget = Target<unknown, unknown>;
