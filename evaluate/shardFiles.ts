/**
 * Finds and reads what shards have written: their results, and their samples line by line, however large. Files come
 * from other machines and are untrusted: sizes, names and fields are checked, and samples are hashed.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, realpathSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import { UserError } from '../errors.js';
import { isRecord } from '../system/json.js';
import { FileLines } from '../system/lines.js';
import { isFolder, readJsonObject } from '../system/read.js';
import { canNameResults } from '../tasks/definition/settings.js';
import type { Item } from '../tasks/scores/aggregate.js';
import type { MetricValues } from '../tasks/scores/ofDocument.js';
import { isJournalOf } from './journal.js';
import { FILE_LAYOUT, HARNESS_LAYOUT, type ResultsLayout } from './layout.js';
import { measure } from './metrics.js';
import { resultsName, SHARD_BLOCK, type ShardBlock } from './results.js';
import { shardOfFolder } from './shard.js';
import { shardName } from './shardName.js';

const MAX_RESULTS_BYTES = 1 << 26;
const MAX_NUMBER = 1e30;
/** Shorter times are none that a clock has measured. */
const MIN_SECONDS = 1e-9;
/** The end of the year 9999, whose dates are the last of four digits. */
const LAST_SECOND = 253_402_300_799;

const count = z.number().min(0).max(MAX_NUMBER);
const duration = z.union([z.literal(0), z.number().min(MIN_SECONDS).max(MAX_NUMBER)]);
/** Seconds since 1970. */
const time = z.number().min(0).max(LAST_SECOND);
const hash = z.string().regex(/^[0-9a-f]{64}$/);
const block = z.looseObject({ name: z.string(), alias: z.string() });
/** Part of a file's name. */
const taskName = z.string().refine(canNameResults);

const RESULTS = z.looseObject({
  results: z.record(z.string(), block),
  groups: z.record(z.string(), block).optional(),
  'n-samples': z.record(taskName, z.object({ original: count, effective: count })),
  'n-shot': z.record(z.string(), z.unknown()),
  versions: z.record(z.string(), z.unknown()),
  higher_is_better: z.record(z.string(), z.record(z.string(), z.unknown())),
  config: z.record(z.string(), z.unknown()).optional(),
  git_hash: z.string().max(200).optional(),
  samples_sha256: z.record(taskName, hash).optional(),
  provenance: z.looseObject({
    checkpoint: z.string().max(200),
    docs: z.string().max(1 << 20),
    overlong: z.string().max(100).optional(),
    dataset_path: z.string().max(4096).optional(),
  }),
  model_name: z.string().max(4096),
  start_time: time,
  end_time: time,
  throughput: z.looseObject({
    ...{ questions: count, tokensComputed: count, tokensWithoutSharing: count, tokensGrouped: count },
    ...{ tokensShared: count, loadSeconds: duration, scoreSeconds: duration, modelFlops: count },
  }),
  generation: z.record(z.string(), count).optional(),
  unfinished: z.array(z.string()).optional(),
  shard: SHARD_BLOCK,
});

/** The results of one shard. */
export interface ShardResults extends z.infer<typeof RESULTS> {
  readonly folder: string;
  /** Of its files. */
  readonly date: string;
  readonly layout: ResultsLayout;
  /** The task of the questions of a file; of a run of tasks, all their names. */
  readonly title: string;
  readonly tasks: NonNullable<ShardBlock['tasks']>;
  /** As they are in the file. */
  readonly content: Readonly<Record<string, unknown>>;
}

const foldersIn = (path: string): string[] =>
  readdirSync(path, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => join(path, name));

/**
 * Folders of shards: each path itself, its subfolders (of a model) and theirs, without repetition. Throws UserError.
 */
export function findShardFolders(paths: readonly string[]): string[] {
  const found = new Map<string, string>();
  for (const path of paths) {
    if (!isFolder(path))
      throw new UserError(`${path}: no such folder`, 'Give the folders that the shards had with --out');
    const all = [path, ...foldersIn(path).flatMap((inner) => [inner, ...foldersIn(inner)])].filter(
      (folder) => shardOfFolder(realpathSync(folder)) !== undefined,
    );
    if (all.length === 0)
      throw new UserError(
        `${path}: contains no results of shards`,
        'Give the folders that runs with --shard had as --out',
      );
    for (const folder of all) found.set(realpathSync(folder), folder);
  }
  return [...found.values()];
}

const fresh = (folder: string): string => {
  const shard = shardOfFolder(realpathSync(folder));
  return (
    `Move the file away and run ${shard === undefined ? 'the shard' : `shard ${shardName(shard)}`} again with ` +
    '--resume'
  );
};

const METRICS_OF_FILES = ['acc', 'acc_norm'].map((name) => ({ name, aggregation: 'mean' as const }));

function parsedResults(folder: string, date: string, content: Readonly<Record<string, unknown>>): ShardResults {
  const path = join(folder, resultsName(date));
  const parsed = RESULTS.safeParse(content);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new UserError(
      `${path} is not what a run with --shard writes (${issue?.path.join('.')}: ${issue?.message})`,
      fresh(folder),
      { cause: parsed.error },
    );
  }
  const { unfinished = [], samples_sha256: hashes = {}, shard } = parsed.data;
  if (unfinished.length > 0)
    throw new UserError(
      `${path}: the shard is not finished: it lacks ${unfinished.slice(0, 4).join(', ')}`,
      `Wait for the shard, or ${fresh(folder)}`,
    );
  const names = Object.keys(parsed.data['n-samples']);
  const ofFile = Object.fromEntries(
    names.map((name) => [name, { samples: hashes[name], filters: ['none'], metrics: METRICS_OF_FILES }]),
  );
  return {
    ...parsed.data,
    ...{ folder, date, content, title: names.join(', '), tasks: shard.tasks ?? ofFile },
    layout: isOfTasks(content) ? HARNESS_LAYOUT : FILE_LAYOUT,
  };
}

const isOfTasks = (content: Readonly<Record<string, unknown>>): boolean => 'emulates' in content;

/**
 * The newest results of tasks in a shard's folder, and those of each file's task; a journal without results means that
 * the shard has not finished. Throws UserError.
 */
export function readShardResults(folder: string): ShardResults[] {
  const newest = new Map<string, ShardResults>();
  const dates = readdirSync(folder).flatMap((file) => /^results_(.*)\.json$/.exec(file)?.[1] ?? []);
  for (const date of dates.sort().reverse()) {
    const { value } = readJsonObject(join(folder, resultsName(date)), MAX_RESULTS_BYTES, fresh(folder));
    const results = value['results'];
    const key = isOfTasks(value) || !isRecord(results) ? '' : Object.keys(results).join();
    if (!newest.has(key)) newest.set(key, parsedResults(folder, date, value));
  }
  return [...newest.values()];
}

/** Whether a shard has begun with a file's task. */
export const hasJournal = (folder: string, task: string): boolean =>
  readdirSync(folder).some((name) => isJournalOf(task, name));

/** The folder that was given to a shard with --out. */
export const outOf = (folder: string): string => dirname(dirname(folder));

const MAX_LINE = 256 << 20;
const LINE = z.looseObject({
  ...{ doc_id: z.int().min(0), filter: z.string().max(300), doc_hash: hash, prompt_hash: hash, target_hash: hash },
});
const ITEM = z.union([z.number(), z.array(z.number()).max(10_000)]);
/** What accuracies of a file's question are computed from. */
const QUESTION = z.looseObject({
  target: z.string().regex(/^\d{1,6}$/),
  arguments: z.record(z.string(), z.object({ arg_0: z.string(), arg_1: z.string() })),
  filtered_resps: z.array(z.tuple([z.string(), z.string()])),
  acc: z.number(),
  acc_norm: z.number(),
});

/** Whether accuracies are those of a sample's own log-likelihoods and choices; undefined for what is no question. */
function isMeasured(sample: unknown): boolean | undefined {
  const parsed = QUESTION.safeParse(sample);
  if (!parsed.success) return undefined;
  const { target, arguments: asked, filtered_resps: responses, acc, acc_norm: accNorm } = parsed.data;
  // One space is between a context and a choice.
  const choices = responses.map((_, i) => asked[`gen_args_${i}`]?.arg_1.slice(1) ?? '');
  const metrics = measure({ choices, gold: Number(target) }, { ll: responses.map(([ll]) => Number(ll)) });
  return metrics.acc === acc && metrics.accNorm === accNorm;
}

export interface SampleLine {
  readonly docId: number;
  readonly filter: string;
  /** With its line end. */
  readonly line: string;
  /** Of document, prompt and target. */
  readonly hashes: string;
  readonly values: MetricValues;
}

/** The samples of one task in a shard. */
export class SampleReader {
  readonly path: string;
  readonly shard: ShardResults['shard'];
  /** The line that is to be taken; undefined at the end. */
  next: SampleLine | undefined;
  readonly #lines: FileLines;
  readonly #of: ShardResults;
  readonly #expected: string;
  readonly #metrics: readonly string[];
  readonly #again: string;
  readonly #hash = createHash('sha256');

  /** Throws UserError. */
  constructor(of: ShardResults, task: string, path: string) {
    const { samples, metrics } = of.tasks[task] ?? {};
    if (samples === undefined || metrics === undefined)
      throw new UserError(`${of.folder} has no samples of ${task}`, 'Run the shards without --log_samples false');
    this.#again = fresh(of.folder);
    if (!existsSync(path)) throw new UserError(`${path} is missing beside its results`, this.#again);
    this.path = path;
    this.shard = of.shard;
    this.#of = of;
    this.#expected = samples;
    this.#metrics = metrics.map(({ name }) => name);
    this.#lines = new FileLines(path, {
      maxLineBytes: MAX_LINE,
      hint: this.#again,
      onBytes: (part) => this.#hash.update(part),
    });
    this.advance();
  }

  advance(): void {
    const found = this.#lines.next();
    if (found === undefined) {
      this.next = undefined;
      return;
    }
    const where = `${this.path}:${found.number}`;
    if (!found.isEnded) throw new UserError(`${where}: not a sample: the line was cut off`, this.#again);
    const line = `${found.bytes.toString('utf8')}\n`;
    const sample = this.#parsed(line);
    const parsed = LINE.safeParse(sample);
    const isRight = this.#of.layout.kind === 'harness' || isMeasured(sample);
    if (!parsed.success || isRight === undefined)
      throw new UserError(`${where}: not a sample (a field is missing or has the wrong type)`, this.#again);
    if (!isRight)
      throw new UserError(
        `${where}: acc and acc_norm do not match the log-likelihoods: the line was edited`,
        this.#again,
      );
    const { doc_id: docId, filter, doc_hash, prompt_hash, target_hash, ...rest } = parsed.data;
    const values = new Map<string, Item>();
    for (const name of this.#metrics) {
      // Where nothing is measured, nothing is what the line says.
      const value = ITEM.safeParse(name === 'bypass' && rest[name] === null ? 0 : rest[name]);
      if (value.success) values.set(name, value.data);
      else if (rest[name] !== undefined) throw new UserError(`${where}: ${name} is no number`, this.#again);
    }
    this.next = { docId, filter, line, hashes: doc_hash + prompt_hash + target_hash, values };
  }

  /** Call at the end. Throws UserError where the file is not the one that the results were made from. */
  check(): void {
    if (this.#hash.digest('hex') === this.#expected) return;
    throw new UserError(
      `${this.path} does not hold the samples that the results of ${basename(this.#of.folder)} were computed from`,
      this.#again,
    );
  }

  close(): void {
    this.#lines.close();
  }

  #parsed(line: string): unknown {
    try {
      return JSON.parse(line);
    } catch {
      return undefined;
    }
  }
}
