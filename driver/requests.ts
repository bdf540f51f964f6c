/** Requests and results of the three commands, and the interface through which they report progress. */
import type { Comparison } from '../evaluate/compare/compareRuns.js';
import type { Overlong } from '../evaluate/pathLengths.js';
import type { Sharing } from '../evaluate/scorer.js';
import type { DocRange } from '../evaluate/selection.js';
import type { Parallelism } from '../ir/placement.js';
import type { CpuIsa } from '../ir/plan.js';
import type { MaskKind } from '../models/model/model.js';
import type { Dict } from '../python/value.js';
import { counted } from '../system/format.js';
import type { Seeds } from '../tasks/requests/seeds.js';
import type { WeightInit } from './names.js';
import type { Arithmetic, KvCache, Precision, TargetName } from './targets/precision.js';

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

/** Beginnings that trees have in common: computed once and kept, computed for each tree, or what takes less. */
export const PREFIXES = ['auto', 'keep', 'repeat'] as const;
export type Prefixes = (typeof PREFIXES)[number];

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
  /** What only concerns whoever asks for more: shown with --verbose. */
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
  /** Folder that receives every stage, numbered. Nothing is written if absent. */
  readonly dump?: string;
  readonly signal?: AbortSignal;
}

export interface CompileRequest extends ModelRequest {
  /** Artifact folder to write. */
  readonly output: string;
  /** Copies the checkpoint into the artifact. */
  readonly packsWeights?: boolean;
  /** Reads all bytes of the weights, so that `verifies` can compare them later; packing does so as well. */
  readonly hashesWeights?: boolean;
}

export interface CompileResult {
  readonly artifact: string;
  /** Instruction set, or `cuda:` and an architecture. */
  readonly isa: string;
  readonly arithmetic: Arithmetic;
  readonly kernels: number;
  /** Number of different kernels; equal kernels of several layers count once. */
  readonly distinctKernels: number;
  readonly arenaBytes: number;
  readonly packedWeightBytes: number;
  readonly seconds: number;
  /** True if no compiler had to run. */
  readonly cached: boolean;
}

export interface TuneRequest {
  /** Artifact folder; its schedules are replaced. */
  readonly artifact: string;
  /** Folder of its checkpoint, if it has moved; the artifact names it from then on. */
  readonly checkpoint?: string;
  readonly budgetSeconds: number;
  readonly threads: number;
  /** JSON-lines database; default: in the cache folder. */
  readonly database?: string;
  readonly signal?: AbortSignal;
}

/** What tuning has found for one function of a model: `score`, and `step` where it is compiled with a cache. */
export interface TunedFunction {
  readonly name: string;
  readonly trials: number;
  readonly reused: number;
  /** Time of the measured kernels of the largest measured bucket, default ÷ tuned; 1 if nothing was gained. */
  readonly gain: number;
}

export interface TuneResult {
  readonly artifact: string;
  /** Of all functions. */
  readonly trials: number;
  readonly reused: number;
  /** That of `score`. */
  readonly gain: number;
  readonly functions: readonly TunedFunction[];
  /** False if the budget ended before the machine code of new schedules was compiled: the artifact is as it was. */
  readonly isSaved: boolean;
  readonly table: readonly string[];
  readonly seconds: number;
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

/**
 * What answers of narrower numbers are compared with: `16bit` computes with the checkpoint's own numbers as a run does
 * by default; the others name the arithmetic.
 */
export const BASELINES = ['16bit', 'f32', 'bf16', 'f16'] as const;
export type Baseline = (typeof BASELINES)[number];

/** Another run: its results, or the arithmetic in which the same questions are to be computed once more. */
export type CompareWith =
  | { readonly kind: 'results'; readonly path: string }
  | { readonly kind: 'precision'; readonly precision: Baseline };

/** What runs have in common, whatever they score. */
export interface ScoreRequest extends LoadRequest {
  readonly sharing: Sharing;
  /** Whether beginnings that trees have in common are kept in memory or computed for each tree. Default: `auto`. */
  readonly prefixes?: Prefixes;
  /** At most this many questions, of each task; below 1, that share of them. */
  readonly limit?: number;
  /** Scores one part of the questions; needs `output`. */
  readonly shard?: { /** From 1. */ readonly index: number; readonly count: number };
  /** Says what would be computed, and computes nothing. */
  readonly isDryRun?: boolean;
  /** Folder of results. Nothing is written if absent. */
  readonly output?: string;
  readonly resume: boolean;
  /** The model's name in results; default: the name of its folder. */
  readonly modelName?: string;
  /** What happens to a choice that is too long with its context: cut on the left (the default), or an error. */
  readonly overlong?: Overlong;
  /** The command that continues with the journal, for messages. */
  readonly resumeCommand?: string;
  /** Writes tokens_*.jsonl, the log-probability of every token of a choice; needs `output`. */
  readonly logsTokens?: boolean;
  /** File for a timeline in Chrome's trace format, with one slice per kernel launch. */
  readonly trace?: string;
  /** The run is compared with another one when it is done. */
  readonly compareWith?: CompareWith;
}

export interface RunRequest extends ScoreRequest {
  readonly task: string;
  readonly data: string;
  /** Half-open ranges of question numbers; without `end`, to the last. */
  readonly docs?: readonly DocRange[];
}

/** A run of tasks as lm-evaluation-harness defines them. */
/** What is said where `--max-tokens` is not the length of a text. */
export const MAX_TOKENS_NOTE = '--max-tokens is taken for --batch-tokens, the size of a micro-batch';

export interface TasksRequest extends ScoreRequest {
  /** Names of tasks, groups and tags. */
  readonly tasks: readonly string[];
  /** Folders of task files. */
  readonly includePaths: readonly string[];
  /** Folder of data sets. Default: the hub's cache, as HF_HUB_CACHE and HF_HOME say. */
  readonly dataRoot?: string;
  /** The size of micro-batches was given as `--max-tokens`: refused where tasks generate texts. */
  readonly saysMaxTokens?: boolean;
  /** Shots; default: what each task says. */
  readonly shots?: number;
  readonly systemInstruction?: string;
  /** Prompts are written by the model's chat template. */
  readonly appliesChatTemplate?: boolean;
  /** Shots are turns of the conversation; true by default. */
  readonly isMultiturn?: boolean;
  /** Writes samples_*.jsonl; true by default. */
  readonly logsSamples?: boolean;
  /** Only these documents of these tasks, counted from 0. */
  readonly samples?: ReadonlyMap<string, ReadonlySet<number>>;
  readonly seeds?: Seeds;
  /** Takes the place of keys of generation_kwargs, in all tasks that generate. */
  readonly generation?: Dict;
  /** Texts are generated and likelihoods computed; there are no metrics. */
  readonly predictsOnly?: boolean;
  /** Which of the checkpoint's chat templates; by default the one called `default`. */
  readonly templateName?: string;
  /** Further variables of the chat template. */
  readonly templateVariables?: Dict;
  /** results_*.json is named after this, and lies in `output` itself. */
  readonly resultsStem?: string;
}

export interface RunResult {
  /** The contents of results_*.json. */
  readonly results: Readonly<Record<string, unknown>>;
  /** Accuracy table as readable text. */
  readonly table: string;
  readonly resultsPath: string | undefined;
  readonly samplesPath: string | undefined;
  /** Where the run was to be compared, with the file that holds it if there is a folder. */
  readonly comparison?: Comparison;
  readonly comparisonPath?: string;
}

/** A run that was told to stop. Thrown once its journal is on disk. */
export class Interrupted extends Error {
  /** Number of questions finished before the interruption. */
  readonly questionsDone: number;

  constructor(questionsDone: number) {
    super(`interrupted after ${counted(questionsDone, 'question')}`);
    this.name = 'Interrupted';
    this.questionsDone = questionsDone;
  }
}
