/** Finds and reads what shards have written. Files are untrusted: sizes, names and fields are checked. */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import { UserError } from '../errors.js';
import { parseJson } from '../system/json.js';
import { isFolder, readJsonObject } from '../system/read.js';
import { isJournalOf } from './journal.js';
import { measure, type QuestionMetrics } from './metrics.js';
import { RECORD } from './runRecord.js';
import { OVERLONG } from './pathLengths.js';
import { DELIMITER, resultsName, samplesName } from './results.js';
import { MAX_SHARDS, shardName, shardOfFolder } from './shard.js';
import { count, duration, time } from './shardNumbers.js';

const MAX_RESULTS_BYTES = 1 << 24;
const MAX_SAMPLES_BYTES = 2 ** 30;

const scalar = z.union([z.string(), z.number(), z.boolean(), z.null()]);
/** A task's name is part of file names. */
const taskName = z.string().regex(/^\w{1,100}$/);
const byTask = <T extends z.ZodType>(value: T): z.ZodRecord<typeof taskName, T> => z.record(taskName, value);

const PROVENANCE = z.object({
  checkpoint: z.string().max(200),
  checkpoint_path: z.string().max(4096),
  tokenizer_sha256: z.string().max(200),
  bos_tokens: z.array(z.int()).max(100),
  context_length: count,
  overlong: z.enum(OVERLONG),
  truncated_choices: count,
  dataset_path: z.string().max(4096),
  dataset_sha256: z.string().max(200),
  docs: z.string().max(1 << 20),
  questions: count,
  questions_sha256: z.string().max(200),
  /** It is copied into the results of the whole, and read when those are verified. */
  record: RECORD.exactOptional(),
});

const RESULTS = z.object({
  results: byTask(z.unknown()),
  configs: byTask(z.looseObject({ dataset_path: scalar, dataset_sha256: scalar })),
  versions: byTask(z.number()),
  'n-samples': byTask(z.object({ original: count, effective: count })),
  config: z.record(z.string(), scalar),
  git_hash: z.string(),
  task_hashes: byTask(z.string()),
  samples_sha256: byTask(z.string()),
  provenance: PROVENANCE,
  model_name: z.string().max(4096),
  start_time: time,
  end_time: time,
  throughput: z.object({
    questions: count,
    tokensComputed: count,
    tokensWithoutSharing: count,
    tokensGrouped: count,
    tokensShared: count,
    loadSeconds: duration,
    scoreSeconds: duration,
    modelFlops: count,
  }),
  shard: z.object({ index: z.int().min(1), count: z.int().min(1).max(MAX_SHARDS), run: z.record(z.string(), scalar) }),
});

/** The results of one shard. */
export interface ShardResults extends z.infer<typeof RESULTS> {
  readonly folder: string;
  readonly task: string;
  readonly samplesPath: string;
}

const bit = z.union([z.literal(0), z.literal(1)]);
const hash = z.string().regex(/^[0-9a-f]{64}$/);
const SAMPLE = z.object({
  doc_id: z.int().min(0),
  doc_hash: hash,
  prompt_hash: hash,
  target_hash: hash,
  target: z.string().regex(/^\d{1,6}$/),
  arguments: z.record(z.string(), z.object({ arg_0: z.string(), arg_1: z.string() })),
  filtered_resps: z.array(z.tuple([z.string(), z.string()])),
  acc: bit,
  acc_norm: bit,
});

/** One line of samples_*.jsonl. */
export interface SampleLine {
  readonly docId: number;
  /** With its line end. */
  readonly line: string;
  readonly metrics: QuestionMetrics;
  readonly hashes: string;
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

function readResults(folder: string, name: string): Omit<ShardResults, 'folder' | 'task' | 'samplesPath'> {
  const path = join(folder, name);
  const { value } = readJsonObject(path, MAX_RESULTS_BYTES, fresh(folder));
  const parsed = RESULTS.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new UserError(
    `${path} is not what a run with --shard writes (${issue?.path.join('.')}: ${issue?.message})`,
    fresh(folder),
    { cause: parsed.error },
  );
}

/**
 * The newest results of each task in a shard's folder; a journal without results means that the shard has not finished.
 * Throws UserError.
 */
export function readShardResults(folder: string): ShardResults[] {
  const newest = new Map<string, ShardResults>();
  for (const date of readdirSync(folder)
    .flatMap((file) => /^results_(.*)\.json$/.exec(file)?.[1] ?? [])
    .sort()) {
    const read = readResults(folder, resultsName(date));
    const [task = ''] = Object.keys(read.results);
    newest.set(task, { ...read, folder, task, samplesPath: join(folder, samplesName(task, date)) });
  }
  return [...newest.values()];
}

/** Whether a shard has begun with a task. */
export const hasJournal = (folder: string, task: string): boolean =>
  readdirSync(folder).some((name) => isJournalOf(task, name));

/** The folder that was given to a shard with --out. */
export const outOf = (folder: string): string => dirname(dirname(folder));

/** Accuracies computed again from a sample's own log-likelihoods and choices. */
function measureSample({
  target,
  arguments: asked,
  filtered_resps: responses,
}: z.infer<typeof SAMPLE>): QuestionMetrics {
  const choices = responses.map((_, i) => asked[`gen_args_${i}`]?.arg_1.slice(DELIMITER.length) ?? '');
  return measure({ choices, gold: Number(target) }, { ll: responses.map(([ll]) => Number(ll)) });
}

function parseSample(path: string, number: number, text: string, folder: string): SampleLine {
  const where = `${path}:${number}`;
  const parsed = SAMPLE.safeParse(parseJson(text, `${where}: not a sample`, fresh(folder)));
  if (!parsed.success) {
    throw new UserError(`${where}: not a sample (a field is missing or has the wrong type)`, fresh(folder), {
      cause: parsed.error,
    });
  }
  const sample = parsed.data;
  const metrics = measureSample(sample);
  if (metrics.acc !== sample.acc || metrics.accNorm !== sample.acc_norm) {
    throw new UserError(
      `${where}: acc and acc_norm do not match the log-likelihoods: the line was edited`,
      fresh(folder),
    );
  }
  return {
    docId: sample.doc_id,
    line: `${text}\n`,
    metrics,
    hashes: sample.doc_hash + sample.prompt_hash + sample.target_hash,
  };
}

/**
 * The samples that belong to the results. Their number and the hash of the whole file are checked. Throws UserError.
 */
export function readSamples({ folder, task, samplesPath, ...results }: ShardResults): SampleLine[] {
  if (!existsSync(samplesPath)) throw new UserError(`${samplesPath} is missing beside its results`, fresh(folder));
  if (statSync(samplesPath).size > MAX_SAMPLES_BYTES)
    throw new UserError(`${samplesPath} is larger than 1 GiB`, 'Use more shards: each holds a part of the samples');
  const bytes = readFileSync(samplesPath);
  const samples: SampleLine[] = [];
  const digest = createHash('sha256');
  for (let start = 0; start < bytes.length;) {
    const end = bytes.indexOf(10, start);
    const sample = parseSample(
      samplesPath,
      samples.length + 1,
      bytes.toString('utf8', start, end < 0 ? bytes.length : end),
      folder,
    );
    samples.push(sample);
    digest.update(sample.line);
    start = end < 0 ? bytes.length : end + 1;
  }
  if (
    samples.length !== results['n-samples'][task]?.effective ||
    digest.digest('hex') !== results.samples_sha256[task]
  ) {
    throw new UserError(
      `${samplesPath} does not hold the samples that the results of ${basename(folder)} were computed from`,
      fresh(folder),
    );
  }
  return samples;
}
