/** What is asked of a model that is compiled and loaded, and the interface through which work reports progress. */
import type { CpuIsa, Parallelism } from '../ir/plan.js';
import type { MaskKind } from '../models/model/model.js';
import type { AdapterSlots } from '../ir/adapterRows.js';
import type { WeightInit } from './names.js';
import type { KvCache, Precision, TargetName } from './precision.js';

/** Progress of a scoring run. */
export interface RunProgress {
  readonly questionsDone: number;
  readonly questionsTotal: number;
  readonly tokensDone: number;
  readonly tokensTotal: number;
  /** Over the questions done so far, 0 to 1; undefined before the first. */
  readonly accuracy: number | undefined;
  readonly accuracyNorm: number | undefined;
  readonly tokensPerSecond: number;
  readonly secondsLeft: number | undefined;
}

/** How much of a step is done, for a rate and the time left. */
export interface Amount {
  readonly done: number;
  readonly total: number;
  readonly unit: 'kernels' | 'bytes' | 'tokens' | 'matrices';
}

/** Reports an amount as the progress of the current step. */
export const stepTo = (ui: Pick<Ui, 'step'>, { done, total, unit }: Amount): void =>
  ui.step(total === 0 ? 1 : done / total, { done, total, unit });

/** Where a command reports while it works. cli/ draws it; tests record it. */
export interface Ui {
  /** A step began: 'compile kernels', 'load weights', 'tokenize', 'score'. */
  phase(name: string, detail?: string): void;
  /** How far the current step is, 0 to 1, with what is done of it or words. */
  step(fraction: number, detail?: string | Amount): void;
  run(progress: RunProgress): void;
  /** The tuner's table, whole, each time it changed. */
  table(lines: readonly string[]): void;
  note(line: string): void;
  /** Details, shown with --verbose. */
  detail(line: string): void;
  warn(line: string): void;
}

/** Options for opening an artifact; ignored for a checkpoint. */
export interface ArtifactRequest {
  /** Folder of its checkpoint, if it has moved since it was compiled. */
  readonly checkpoint?: string;
  /** Its plan and its machine code are used as they are, where they fit. */
  readonly trustsCode?: boolean;
  /** All bytes of its weights are read and compared with what was compiled. */
  readonly verifies?: boolean;
}

/** An adapter as a user names it. */
export interface NamedAdapter {
  readonly name: string;
  /** Its folder. */
  readonly path: string;
}

export interface ModelRequest {
  /** A checkpoint folder or GGUF file, a config.json (with `init` random), or (tune, run) an artifact. */
  readonly model: string;
  readonly init: WeightInit;
  readonly precision: Precision;
  /** Default: the CPU. */
  readonly target?: TargetName;
  readonly isa?: CpuIsa;
  readonly mask?: MaskKind;
  /** Largest micro-batch, tokens. */
  readonly batchTokens?: number;
  /** Tokens whose keys and values are kept between calls; the model then has the function `step`. */
  readonly cacheTokens?: number;
  /** How keys and values are kept. Default: in the type that attention multiplies. */
  readonly kvCache?: KvCache;
  /** `step` can keep logits on the device, which some options of generation need. */
  readonly logits?: boolean;
  /** A call of `step` takes tokens that the one before it has drawn, so that it can begin before they are read. */
  readonly feeds?: boolean;
  /** `step` returns rows of the residual stream behind the last norm, for draft heads. */
  readonly hidden?: boolean;
  /** A folder with a draft model, a draft head, or `mtp`: the model's own. The model then has the function `draft`. */
  readonly draftModel?: string;
  /** The adapter that the whole model has. */
  readonly adapter?: NamedAdapter;
  /** Slots for adapters that requests name. Default: none. */
  readonly adapters?: AdapterSlots;
  /** Folder that receives every stage, numbered. Nothing is written if absent. */
  readonly dump?: string;
  readonly signal?: AbortSignal;
}

/** A model and the devices that it is loaded onto. */
export interface LoadRequest extends ModelRequest, ArtifactRequest {
  /** CPU: worker threads of all devices together. */
  readonly threads: number;
  /**
   * GPUs, or parts of the CPU with threads of their own; `all`: those that this machine has. Default: what `parallel`
   * says, else 1.
   */
  readonly devices?: number | 'all';
  /** How the model is placed on them. Default: `auto`, chosen from memory and costs. */
  readonly parallel?: 'auto' | Parallelism;
}
