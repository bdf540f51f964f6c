/** The request of a run, and its result. */
import type { LoadRequest } from '../driver/requests.js';
import type { Comparison } from '../evaluate/compare/compareRuns.js';
import type { Overlong } from '../evaluate/pathLengths.js';
import type { Sharing } from '../evaluate/scorer.js';
import type { DocRange } from '../evaluate/selection.js';
import type { Dict } from '../python/value.js';
import { counted } from '../system/text.js';
import type { Seeds } from '../tasks/requests/seeds.js';
import type { DraftOptions } from './draftOptions.js';

/** Beginnings that trees have in common: computed once and kept, computed for each tree, or what takes less. */
export const PREFIXES = ['auto', 'keep', 'repeat'] as const;
export type Prefixes = (typeof PREFIXES)[number];

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
export interface ScoreRequest extends LoadRequest, DraftOptions {
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

/** What is said where `--max-tokens` is not the length of a text. */
export const MAX_TOKENS_NOTE = '--max-tokens is taken for --batch-tokens, the size of a micro-batch';

/** A run of tasks as lm-evaluation-harness defines them. */
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

/** A run of either, as what treats both alike sees it. */
export type EvaluationRequest = ScoreRequest & Partial<Omit<TasksRequest, keyof ScoreRequest>>;

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
