/**
 * Joins the results of shards into those of one run: samples are copied byte for byte, and metrics are computed again
 * from them.
 */
import { createHash } from 'node:crypto';
import { UserError } from '../errors.js';
import { quoteForShell } from '../system/process.js';
import { claimModelName } from './output.js';
import { buildResults, throughputOf, writeFiles } from './results.js';
import type { ResultsHeader, Throughput, WrittenResults } from './resultTypes.js';
import { chooseDocs, countDocs, parseDocs } from './selection.js';
import { MERGE_AGAIN, shardName } from './shard.js';
import {
  findShardFolders,
  hasJournal,
  outOf,
  readSamples,
  readShardResults,
  type SampleLine,
  type ShardResults,
} from './shardFiles.js';

export interface MergeRequest {
  /** Folders that shards had as --out, folders of a model in them, or folders of single shards. */
  readonly folders: readonly string[];
  /** Folder of the results. */
  readonly output: string;
  /** Needed if the shards have scored several tasks. */
  readonly task?: string;
}

export interface Merged extends WrittenResults {
  readonly shards: number;
  readonly questions: number;
}

const named = (of: ShardResults): string => `shard ${shardName(of.shard)}`;

/** A list of names, cut after a few. */
const list = (names: readonly string[]): string =>
  `${names.slice(0, 8).join(', ')}${names.length > 8 ? ` and ${names.length - 8} more` : ''}`;

function ofOneTask(all: readonly ShardResults[], task: string | undefined): ShardResults[] {
  const tasks = [...new Set(all.map((results) => results.task))].sort();
  if (task === undefined && tasks.length > 1) {
    throw new UserError(
      `these shards have results of ${tasks.join(' and ')}`,
      `Merge one after another: --task ${tasks[0]}, then --task ${tasks[1]}`,
    );
  }
  return all.filter((results) => task === undefined || results.task === task);
}

/** The fields that must agree, with their names for messages. */
const runOf = (of: ShardResults): Readonly<Record<string, unknown>> => ({
  ...of.shard.run,
  overlong: of.provenance.overlong,
  shards: of.shard.count,
  version: of.git_hash,
});

function checkOneRun(parts: readonly ShardResults[], first: ShardResults): void {
  const expected = runOf(first);
  for (const part of parts) {
    const found = runOf(part);
    const differing = [...new Set([...Object.keys(expected), ...Object.keys(found)])].filter(
      (name) => found[name] !== expected[name],
    );
    if (differing.length === 0) continue;
    const values = differing.map((name) => `${name} (${String(expected[name])} and ${String(found[name])})`);
    throw new UserError(
      `${first.folder} and ${part.folder} are not parts of one run: they differ in ${values.join(', ')}`,
      'Name the folders of one run only, for example: tilewright merge OUT/MODEL/shard-*-of-8 --out results; ' +
        'or run the shard that differs again as the others were',
    );
  }
}

/** The command that scores a shard that is missing. */
function commandOf(index: number, { shard, config, task, configs, folder }: ShardResults): string {
  const model = /^model=(.*),precision=\w+$/s.exec(String(config['model_args']))?.[1] ?? 'MODEL';
  const [from, data, out] = [model, String(configs[task]?.dataset_path), outOf(folder)].map(quoteForShell);
  return `tilewright run ${from} --task ${task} --data ${data} --out ${out} --shard ${index}/${shard.count} --resume`;
}

function checkAllThere(parts: readonly ShardResults[], first: ShardResults, folders: readonly string[]): void {
  const byIndex = new Map<number, ShardResults>();
  for (const part of parts) {
    const other = byIndex.get(part.shard.index);
    if (other !== undefined) {
      throw new UserError(
        `${named(part)} is given twice: ${other.folder} and ${part.folder}`,
        `Name the folders to merge, without one of these: tilewright merge ${folders
          .filter((folder) => folder !== part.folder)
          .slice(0, 4)
          .map(quoteForShell)
          .join(' ')} … --out results`,
      );
    }
    byIndex.set(part.shard.index, part);
  }
  const { count } = first.shard;
  const missing = Array.from({ length: count }, (_, i) => i + 1).filter((index) => !byIndex.has(index));
  const [next] = missing;
  if (next === undefined) return;
  const begun =
    folders.filter((folder) => hasJournal(folder, first.task)).length > byIndex.size
      ? ' (some have a journal: they run, or were stopped)'
      : '';
  throw new UserError(
    `${missing.length === 1 ? 'shard' : 'shards'} ${list(missing.map((index) => shardName({ index, count })))} ` +
      `${missing.length === 1 ? 'has' : 'have'} no results yet${begun}`,
    `Score the missing shards with the other flags unchanged, then merge again:\n${commandOf(next, first)}`,
  );
}

/** Every question once, by doc_id. */
function joinSamples(parts: readonly ShardResults[], first: ShardResults): SampleLine[] {
  const owner = new Map<number, ShardResults>();
  const samples = parts.flatMap((part) => {
    const read = readSamples(part);
    for (const { docId } of read) {
      const other = owner.get(docId);
      if (other !== undefined)
        throw new UserError(
          `question ${docId} is in ${named(other)} and in ${named(part)}: the shards divided the questions differently`,
          againAlike(first),
        );
      owner.set(docId, part);
    }
    return read;
  });
  const ranges = chooseDocs({ docs: parseDocs(first.provenance.docs) });
  const expected = countDocs(ranges);
  const absent: string[] = [];
  for (const { first: from, end } of ranges)
    for (let docId = from; docId < end && absent.length < 20; docId++)
      if (!owner.has(docId)) absent.push(String(docId));
  if (absent.length > 0 || owner.size !== expected) {
    throw new UserError(
      `the shards hold ${owner.size} of ${expected} ` +
        `questions${absent.length > 0 ? `; missing: ${list(absent)}` : ''}: ` +
        'the shards divided the questions differently',
      againAlike(first),
    );
  }
  return samples.sort((a, b) => a.docId - b.docId);
}

const againAlike = (first: ShardResults): string =>
  'Run all shards with the same flags, including --batch-tokens, into a new folder. Start with:\n' +
  `${commandOf(1, first).replace(/ --resume$/, '')}`;

/**
 * Treats the shards as if they had run at the same time: counts are added, and the seconds are those of the slowest.
 */
function throughput(parts: readonly ShardResults[]): Throughput {
  const all = parts.map((part) => part.throughput);
  const sum = (name: keyof (typeof all)[number]): number => all.reduce((total, one) => total + one[name], 0);
  const most = (name: keyof (typeof all)[number]): number => all.reduce((max, one) => Math.max(max, one[name]), 0);
  return throughputOf({
    questions: sum('questions'),
    tokensComputed: sum('tokensComputed'),
    tokensWithoutSharing: sum('tokensWithoutSharing'),
    tokensGrouped: sum('tokensGrouped'),
    tokensShared: sum('tokensShared'),
    modelFlops: sum('modelFlops'),
    loadSeconds: most('loadSeconds'),
    scoreSeconds: most('scoreSeconds'),
  });
}

const dateOf = (seconds: number): Date => new Date(Math.round(seconds * 1000));

/**
 * Writes the results of a whole run from those of its shards. Merging the same shards again writes the same files.
 * Throws UserError if a shard is missing, given twice, from another run, or modified.
 */
export function mergeShards(request: MergeRequest): Merged {
  const folders = findShardFolders(request.folders);
  const parts = ofOneTask(folders.flatMap(readShardResults), request.task).sort(
    (a, b) => a.shard.index - b.shard.index,
  );
  const [first] = parts;
  if (first === undefined) {
    throw new UserError(
      `no shard has results${request.task === undefined ? '' : ` of ${request.task}`} yet: ${list(folders)}`,
      'Wait for the shards, or continue them: tilewright run … --shard i/n --resume',
    );
  }
  checkOneRun(parts, first);
  checkAllThere(parts, first, folders);
  const samples = joinSamples(parts, first);
  const { task } = first;
  const header: ResultsHeader = {
    taskName: task,
    taskVersion: first.versions[task] ?? 0,
    modelName: claimModelName(request.output, first.model_name, first.provenance.checkpoint),
    config: first.config,
    taskConfig: {
      dataset_path: first.configs[task]?.dataset_path ?? null,
      dataset_sha256: first.configs[task]?.dataset_sha256 ?? null,
    },
    provenance: first.provenance,
    questionsInDataset: first['n-samples'][task]?.original ?? 0,
    version: first.git_hash,
    throughput: throughput(parts),
    started: dateOf(Math.min(...parts.map((part) => part.start_time))),
    finished: dateOf(Math.max(...parts.map((part) => part.end_time))),
  };
  const [taskHash, samplesHash] = [createHash('sha256'), createHash('sha256')];
  for (const { hashes, line } of samples) {
    taskHash.update(hashes);
    samplesHash.update(line);
  }
  const results = buildResults(header, {
    metrics: samples.map(({ metrics }) => metrics),
    taskHash: taskHash.digest('hex'),
    samplesHash: samplesHash.digest('hex'),
  });
  return {
    ...writeFiles(
      request.output,
      header,
      samples.map(({ line }) => line),
      () => results,
      MERGE_AGAIN,
    ),
    shards: parts.length,
    questions: samples.length,
  };
}
