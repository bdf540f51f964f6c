/** What a search is asked, and what it gives. */
import type { Precision } from '../driver/precision.js';
import type { LoadRequest } from '../driver/requests.js';
import type { GeneratorCounts } from '../engine/modelStats.js';
import type { Problem } from '../search/path.js';
import type { SearchOptions } from '../search/options.js';
import type { ProblemResult } from '../search/result.js';
import type { DraftFigures } from './draftFigures.js';
import type { DraftOptions } from './draftOptions.js';

/** Where problems come from: JSON lines, of which `-` is the standard input; or a set that is known by its name. */
export type ProblemSource =
  | { readonly kind: 'file'; readonly path: string }
  | { readonly kind: 'set'; readonly name: string; readonly dataRoot?: string | undefined };

export interface VerifierRequest {
  readonly model: string;
  /** What a language model was trained as. Default: what the name of its folder says. */
  readonly language?: string;
  /** Default: that of the generator. */
  readonly precision?: Precision;
}

/** Settings that change no result, but when it is there. */
export interface SearchSchedule {
  /** Problems that are searched side by side. Default: as many as memory has room for. */
  readonly atOnce?: number;
  /** The generator's share of the memory for keys and values, between 0 and 1. Default: it moves by itself. */
  readonly memorySplit?: number;
  /** Bytes for keys and values of both models, on each device. Default: what is left. */
  readonly memory?: number;
}

/** `model` is the generator. What is said of devices, targets and weights counts for both models. */
export interface SearchRequest extends LoadRequest, SearchSchedule, DraftOptions {
  /** Absent: of `majority` alone. */
  readonly verifier?: VerifierRequest;
  readonly problems: ProblemSource;
  /** The first of them. */
  readonly limit?: number;
  readonly options: SearchOptions;
  /** Folder of results. Nothing is written if absent. */
  readonly output?: string;
  /** The generator's name in results. */
  readonly modelName?: string;
  /** Goes on with the journal in `output`. */
  readonly resume: boolean;
  /** The command that goes on, for messages. */
  readonly resumeCommand?: string;
}

/** A problem that was searched, or that could not be. */
export type SearchedProblem = { readonly index: number; readonly problem: Problem } & (
  | { readonly result: ProblemResult }
  | { readonly error: string }
);

/** What a model did for a search. */
export interface ModelWork extends GeneratorCounts {
  readonly model: string;
  /** Of a verifier: tokens that would be computed if nothing were computed twice. */
  readonly neededTokens?: number;
  /** Of a generator. */
  readonly drafts?: DraftFigures;
}

export interface SearchSummary {
  readonly task: string;
  readonly problems: number;
  /** Problems that an earlier run had searched. */
  readonly resumed: number;
  readonly failed: number;
  /** From the first request to the last result. */
  readonly seconds: number;
  readonly generator: ModelWork;
  readonly verifier: ModelWork | undefined;
  /** Hex SHA-256 of the lines of samples: equal results have equal ones. */
  readonly samplesSha256: string;
  /** Figures as readable text. */
  readonly table: string;
  readonly resultsPath: string | undefined;
  readonly samplesPath: string | undefined;
}
