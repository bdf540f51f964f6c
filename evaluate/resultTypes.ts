/** The types of the results of a run: what they are made from, and the content of results_*.json. */
import type { Overlong } from './pathLengths.js';
import type { RunRecord } from './runRecord.js';
import type { StartUp } from './startUp.js';

/** What this process did and how fast. A resumed run counts only its own part. */
export interface Throughput {
  readonly questions: number;
  readonly tokensComputed: number;
  /** Tokens if every choice were a sequence of its own. */
  readonly tokensWithoutSharing: number;
  /** Tokens if choices with equal inputs were one sequence, as those of one letter are. */
  readonly tokensGrouped: number;
  /** Tokens if every common beginning of all these questions were computed once. */
  readonly tokensShared: number;
  /** Seconds from start to the first micro-batch: dataset, tokens, weights, kernels. */
  readonly loadSeconds: number;
  readonly scoreSeconds: number;
  readonly questionsPerSecond: number;
  /** tokensComputed / scoreSeconds */
  readonly tokensPerSecond: number;
  /** Floating-point operations of the model on the tokens and rows computed. */
  readonly modelFlops: number;
  /** What each device did while questions were scored, if known. */
  readonly devices?: readonly DeviceUse[] | undefined;
  /** How this process came to its first answer; absent where all were known, or where shards are merged. */
  readonly start?: StartUp | undefined;
}

/** How a device spent the time between the first and the last computation of any device. */
export interface DeviceUse {
  /** From 0. */
  readonly device: number;
  readonly computeSeconds: number;
  /** Seconds of sending results to the next stage. This may overlap with computing. */
  readonly copySeconds: number;
  /** computeSeconds divided by the whole time, 0 to 1. The device was idle for the rest. */
  readonly busyShare: number;
}

/** Everything that answers depend on. Hashes are hex SHA-256. */
export interface Provenance {
  /** Identity of the checkpoint: a hash of its contents. */
  readonly checkpoint: string;
  readonly checkpoint_path: string;
  /** The adapter of the model: `checkpoint` covers its content. */
  readonly adapter?: { readonly name: string; /** SHA-256, hexadecimal. */ readonly hash: string };
  readonly tokenizer_sha256: string;
  /** Tokens that the tokenizer adds to every text: its beginning-of-text token, or none. Nothing else is added. */
  readonly bos_tokens: readonly number[];
  /** Tokens. */
  readonly context_length: number;
  /** What happened to choices that were too long with their context, and their number. */
  readonly overlong: Overlong;
  readonly truncated_choices: number;
  readonly dataset_path: string;
  readonly dataset_sha256: string;
  /** Numbers of the questions, as --docs takes them, how many they are, and a hash of their texts. */
  readonly docs: string;
  readonly questions: number;
  readonly questions_sha256: string;
  /** Of a run that writes texts: the tokens that end one, and what the model's own files ask for. */
  readonly end_tokens?: readonly number[];
  readonly text_defaults?: Readonly<Record<string, number>>;
  /** How to compute the run again; results of older versions have none. */
  readonly record?: RunRecord;
}

/** Standard errors need two questions; the harness writes "N/A" for fewer. */
export type StandardError = number | 'N/A';

/** The parsed content of results_*.json. */
export interface Results {
  readonly results: Readonly<Record<string, Readonly<Record<string, StandardError | string>>>>;
  readonly versions: Readonly<Record<string, number>>;
  readonly 'n-shot': Readonly<Record<string, number>>;
  readonly higher_is_better: Readonly<Record<string, Readonly<Record<string, boolean>>>>;
  readonly throughput: Throughput;
  readonly [field: string]: unknown;
}

/** Results on file, and where they are. */
export interface WrittenResults {
  readonly results: Results;
  readonly resultsPath: string;
  readonly samplesPath: string;
}
