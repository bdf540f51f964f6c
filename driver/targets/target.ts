/**
 * The interfaces that a target implements: to compile models for a kind of machine, to run them on its devices, to tune
 * them there, and to describe the machine in an artifact. targets/index.ts lists the targets, and no other code
 * distinguishes them.
 */
import type { z } from 'zod';
import type { Peaks, Rates } from '../../autotune/peaks.js';
import type { SearchResult } from '../../autotune/search.js';
import type { WorkSize } from '../../autotune/work.js';
import type { MarkOf } from '../../codegen/marks.js';
import type { Scheduling } from '../../codegen/scheduling.js';
import type { LaunchShape } from '../../ir/cuda.js';
import type { Kernel } from '../../ir/kernel.js';
import type { Bucket, CpuIsa, LinkedFunction, Plan } from '../../ir/plan.js';
import type { Header } from '../../ir/unit.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { MaskKind } from '../../models/model/model.js';
import type { StoredFormats } from '../../passes/keepBlockWeights.js';
import type { Numerics } from '../../passes/numerics.js';
import type { SourceText } from '../../runtime/compilers.js';
import type { KernelResources } from '../../runtime/cuda/cubinCache.js';
import type { WeightExchange } from '../../runtime/cuda/shareWeights.js';
import type { PlanStages } from '../../runtime/runtimePlan.js';
import type { FirstCall } from '../../runtime/stageRunner.js';
import type { StateTokens } from '../../runtime/reservedStates.js';
import type { DeviceExecutor } from '../executor.js';
import type { GraphDigests } from '../functions.js';
import type { Phases } from '../phases.js';
import type { Arithmetic, CodedCache, Precision } from '../precision.js';
import type { Ui } from '../requests.js';
import type { Machine } from './cpuDevice.js';
import type { CompiledCode, KernelFacts, PackedCode, PrintedFacts } from './machineCode.js';

/**
 * A compiled model: everything but weights and machine code. `S`: schedules of its target. `D`: the machine that the
 * schedules were chosen for. Code that needs neither uses the default types and passes the model to its own `target`
 * only.
 */
export interface CompiledModel<S = unknown, D = unknown> {
  readonly target: Target<S, D>;
  readonly device: D;
  /** Names the machine code in results, journals and messages: `avx512`, `cuda:sm_90a`. */
  readonly isa: string;
  readonly arithmetic: Arithmetic;
  /** The most tokens whose keys and values there is memory for; absent: as many as there are addresses for. */
  readonly cacheTokens?: number;
  /** Absent: in the type that attention multiplies. */
  readonly kvCache?: CodedCache;
  readonly mask: MaskKind;
  /** Text of the optimized graph. */
  readonly graphText: string;
  /** What names it. */
  readonly graphs: GraphDigests;
  readonly plan: Plan<S>;
  /** What is known of a plan: nothing of any other, so that a model with other schedules may still have it. */
  readonly known?: KnownPlan;
}

/** A plan that was kept as bytes. */
export interface KnownPlan {
  readonly plan: Plan<unknown>;
  /** SHA-256 of the bytes, hexadecimal: names what the cache keeps of its kernels. */
  readonly digest: string;
  /** What came with the plan about its kernels. */
  readonly kernels?: KernelFacts;
}

/** The command that rebuilds an artifact for a given `--target`. */
export type Rebuild = (target: string) => string;

/** The user's choice of machine to compile for. */
export interface TargetRequest {
  /** One of the target's names. */
  readonly target: string;
  readonly precision: Precision;
  readonly isa?: CpuIsa;
}

/** The manifest's facts about the machine; a target may add its own. */
export interface TargetManifest {
  readonly kind: string;
  readonly arithmetic: Arithmetic;
}

export interface MachineCodeOptions {
  /** When aborted, the work ends at once. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: { readonly done: number; readonly total: number }) => void;
  /** Machine code to use if there is no compiler. */
  readonly packed?: PackedCode | undefined;
}

export interface MachineCode {
  /** Files of an artifact's kernels/ folder. */
  readonly sources: readonly SourceText[];
  /** What an artifact may carry for hosts without a compiler; absent if a target has nothing to carry. */
  readonly code?: CompiledCode;
  /** What launching the kernels needs besides, where a target keeps that. */
  readonly facts?: KernelFacts<PrintedFacts>;
  /** True if nothing had to be compiled. */
  readonly isCached: boolean;
}

/** A kernel as `inspect` shows it. */
export interface PrintedKernel {
  /** Name of the exported function. */
  readonly symbol: string;
  readonly source: string;
  /** All headers that the source includes, behind those that they include. */
  readonly headers: readonly Header[];
  /** Buffers and weights in the order of the function's parameters. */
  readonly parameters: readonly string[];
  /** Bytes of scratch memory per thread, on a host. */
  readonly scratchBytes?: number;
  /** The launch shape, on a device. */
  readonly launch?: LaunchShape;
}

/** What the compiler reports about a kernel. */
export interface ExaminedKernel {
  /** What the compiler reports about it, if there is a compiler. */
  readonly resources?: KernelResources;
  /** Why there are no resources. */
  readonly note?: string;
}

export interface OpenOptions {
  /** Worker threads of all devices together, on a host. */
  readonly threads: number;
  /** One device per stage, counted from 0 among the devices of this machine that run the plan. */
  readonly devices: readonly number[];
  /** Launches of each function on each stage; absent: one device runs all. */
  readonly stages?: PlanStages;
  readonly rebuild: Rebuild;
  /** Machine code to use if there is no compiler. */
  readonly packed?: PackedCode | undefined;
  /** Called with each phase as it begins. */
  readonly phases?: Phases;
  /**
   * The calls that come first: the executor is open when these can run, and other sizes become ready beside them. By
   * default the largest of every function, which runs in place of any other.
   */
  readonly first?: readonly FirstCall[] | undefined;
  /** Memory of this host that other models of this process hold. */
  readonly besideBytes?: number;
  /** Tokens whose keys and values there is memory for at first. Default: as many as the model may have at most. */
  readonly tokens?: StateTokens | undefined;
  /** Replicas on other devices that load at the same time. */
  readonly siblings?: { exchange(stage: number): WeightExchange };
}

export interface TunerOptions {
  readonly budgetSeconds: number;
  readonly threads: number;
  /** JSON-lines file of measurements. */
  readonly database?: string;
  readonly rebuild: Rebuild;
  readonly signal?: AbortSignal;
  /** The current table, and a line about it. */
  readonly onProgress: (table: readonly string[], status: string) => void;
  /** Long activities: `compiled 3 of 12`. */
  readonly onActivity: (what: string) => void;
  readonly onNote: (line: string) => void;
  readonly onWarning: (line: string) => void;
}

/** What a search has found for one function of a plan. */
export interface FunctionSearchResult<S> {
  /** The function's name. */
  readonly name: string;
  readonly search: SearchResult<S>;
}

export interface Tuned<S> {
  /** `score` first. */
  readonly functions: readonly FunctionSearchResult<S>[];
  readonly table: readonly string[];
}

/** What is known of the times of kernels here, without measuring any. */
export interface KernelTimes<S> {
  /** As they were measured when this machine was tuned, else what its kind is known for. */
  readonly peaks: Peaks;
  /** Estimated seconds of a launch, by the model that ranks candidates. */
  predict(fn: LinkedFunction<S>, kernel: Kernel, schedule: S, size: WorkSize): number;
  /** Median seconds of a launch in a bucket, if the tuner has measured it here. */
  measured(fn: LinkedFunction<S>, kernel: Kernel, schedule: S, bucket: Bucket): number | undefined;
}

/** `database`: the file of records; by default where `tune` keeps them. */
export type TimesOptions = { readonly database?: string | undefined };

/**
 * What a model is planned and compiled for: numerics, sizes of calls, schedules, sources and machine code. Users:
 * driver/compile, driver/artifact, and the commands that show kernels.
 */
export interface TargetCompiler<S = unknown, D = unknown> {
  readonly scheduling: Scheduling<S, D>;
  /** Default form of the mask of `score`. */
  readonly mask: MaskKind;
  /**
   * The machine to compile for. `stored`: the checkpoint's element type; `kept`: its matrices that can be multiplied as
   * they are stored. Throws UserError if there is none.
   */
  choose(request: TargetRequest, machine: Machine, stored: 'f32' | 'bf16' | 'f16', kept?: StoredFormats): D;
  label(device: D): string;
  arithmetic(device: D): Arithmetic;
  numerics(device: D): Numerics;
  /**
   * Bounds of the default largest micro-batch, which is the model's context within them. `width`: columns of the
   * residual stream.
   */
  capacity(device: D, width: number): { readonly min: number; readonly max: number };
  buckets(tokens: number): readonly Bucket[];
  /** Sizes in which calls that only continue paths have schedules of their own. */
  readonly decodeSizes: readonly number[];
  sources(plan: Plan<S>): readonly SourceText[];
  /** The text of a kernel of `plan`. `markOf`: marks of statements (codegen/marks.ts). */
  print(kernel: Kernel, plan: LinkedFunction<S>, schedule: S, markOf?: MarkOf): PrintedKernel;
  /** Compiles a printed kernel for what the compiler says about it. Absent where compilers say nothing. */
  examine?(printed: PrintedKernel, device: D): Promise<ExaminedKernel>;
  /** Prints and compiles a model's kernels, or finds them in the cache. Rejects if it was stopped. */
  compile(model: CompiledModel<S, D>, options?: MachineCodeOptions): Promise<MachineCode>;
}

/** The devices of a kind: how they are found, filled and opened. For driver/devices and commands that run models. */
export interface TargetDevices<S = unknown, D = unknown> {
  /**
   * Whether kernels run on this host's processors and in its memory, so that tokenizing and loading must leave them
   * free.
   */
  readonly isHost: boolean;
  /** Seconds without an answer after which a device's process counts as hung. */
  readonly timeoutSeconds: number;
  /** Whether its processes compile for themselves while this one does, so that neither waits. */
  readonly compilesInProcess: boolean;
  /** Whether replicas copy weights from each other. */
  readonly sharesWeights: boolean;
  /**
   * Sizes of micro-batch that differ in cost: if kernels run in whole waves of tiles, a size between two waves costs as
   * much as the larger one. Absent: all sizes.
   */
  readonly tokenStep?: number;
  /** Number of devices of this machine in a run that asks for all of them. */
  visible(): number;
  /** Throws UserError if this machine has fewer than `min` devices for plans of `device`. */
  require(device: D, min: number, rebuild: Rebuild): void;
  /**
   * Bytes available for weights and activations on each of `devices`, assuming that all are like the first `present`.
   */
  memoryBytes(device: D, devices: number, present: number, rebuild: Rebuild): number;
  /** Bytes free now on the fullest of the first `count` devices. Absent where `memoryBytes` is all that is known. */
  freeBytes?(device: D, count: number, rebuild: Rebuild): number;
  /** What one device of a run reaches at most: measured where this machine can, else what its kind is known for. */
  peaks(device: D, options: Pick<OpenOptions, 'threads' | 'rebuild'>): Promise<Peaks>;
  /** Loads the model onto its devices in this process: kernels compiled, weights loaded. */
  open(checkpoint: Checkpoint, model: CompiledModel<S, D>, options: OpenOptions, ui: Ui): Promise<DeviceExecutor>;
}

/** Times of kernels: nominal, estimated, recorded, measured. For tune, placement and commands that show times. */
export interface TargetTuner<S = unknown, D = unknown> {
  /**
   * The machine's rates. Only their ratio matters: it decides which launches wait for arithmetic and which for memory.
   */
  rates(device: D): Rates;
  /** What is known of the times of this model's kernels here. */
  times(model: CompiledModel<S, D>, machine: Machine, options: TimesOptions): Promise<KernelTimes<S>>;
  /** Searches for the best schedules within a budget. */
  tune(model: CompiledModel<S, D>, machine: Machine, options: TunerOptions): Promise<Tuned<S>>;
  /**
   * About how many seconds this host compiles a plan with as many kernels. Absent where kernels that were compiled for
   * measurements are not compiled again for a plan.
   */
  compileSeconds?(plan: Plan<S>): number;
}

/** The target's part of an artifact's files. User: driver/artifact. */
export interface ManifestFormat<D = unknown> {
  readonly schema: z.ZodType<TargetManifest>;
  /** What an artifact says of a plan's kernels. */
  readonly kernels: z.ZodType<KernelFacts>;
  describe(device: D): TargetManifest;
  /**
   * Restores the machine of a manifest, with the facts that schedules depend on. Throws Error if this host cannot use
   * it.
   */
  restore(manifest: TargetManifest, machine: Machine): D;
  /** The `--target` value that selects such a machine. */
  option(device: D): string;
}

/** A kind of machine: four interfaces, of which each user takes the one that it needs. */
export interface Target<S, D> {
  /** Its name in manifests and results. */
  readonly name: string;
  /** Values of `--target` that select it. */
  readonly names: readonly string[];
  readonly compiler: TargetCompiler<S, D>;
  readonly devices: TargetDevices<S, D>;
  readonly tuner: TargetTuner<S, D>;
  readonly manifest: ManifestFormat<D>;
}

/** Any target: what holds for each of them. */
export type AnyTarget = Target<unknown, unknown>;
