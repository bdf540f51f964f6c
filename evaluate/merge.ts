/**
 * Joins what shards wrote into the results of the whole run: lines of samples are copied byte for byte in their order,
 * and figures are computed again from their values.
 */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { defined } from '../system/defined.js';
import { UserError } from '../errors.js';
import { quote } from '../system/json.js';
import { quoteForShell } from '../system/process.js';
import { writeAtomically } from '../system/write.js';
import { figuresOfGroup, type TaskFigures } from '../tasks/scores/aggregate.js';
import { TaskValues } from '../tasks/scores/ofTask.js';
import { claimModelName, sanitiseModelName } from './output.js';
import { type Block, countedFigures, figures, fileDate, resultsName, samplesName, throughputOf } from './results.js';
import type { Results, Throughput, WrittenResults } from './resultTypes.js';
import { chooseDocs, type ClosedRange, countDocs, parseDocs } from './selection.js';
import { MERGE_AGAIN, resultsFolder, shardName } from './shard.js';
import {
  findShardFolders,
  hasJournal,
  outOf,
  readShardResults,
  SampleReader,
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

/** Of one run, or of one file's task. */
function ofOneRun(all: readonly ShardResults[], task: string | undefined): ShardResults[] {
  const titles = [...new Set(all.map(({ title }) => title))].sort();
  if (task === undefined && titles.length > 1 && all.some(({ layout }) => layout.kind === 'file')) {
    throw new UserError(
      `these shards have results of ${titles.join(' and ')}`,
      `Merge one after another: --task ${titles[0]}, then --task ${titles[1]}`,
    );
  }
  return all.filter(({ title, layout }) => task === undefined || layout.kind === 'harness' || title === task);
}

/** The fields that must agree, with their names for messages. */
const runOf = ({
  shard,
  provenance: { overlong },
  git_hash: version,
}: ShardResults): Readonly<Record<string, unknown>> => ({
  ...shard.run,
  ...(shard.groups === undefined ? { overlong, version } : { groups: JSON.stringify(shard.groups) }),
  shards: shard.count,
});

/** How messages name fields, and values that older versions did not note. */
const FIELDS: Readonly<Record<string, string>> = { endTokens: 'the tokens that end texts' };
const shown = (name: string, value: unknown): string =>
  name === 'endTokens' && value === undefined ? 'not noted' : String(value).slice(0, 100);

function checkOneRun(parts: readonly ShardResults[], first: ShardResults): void {
  const expected = runOf(first);
  for (const part of parts) {
    const found = runOf(part);
    const differing = [...new Set([...Object.keys(expected), ...Object.keys(found)])].filter(
      (name) => found[name] !== expected[name],
    );
    if (differing.length === 0) continue;
    const values = differing.map((name) =>
      name === 'groups'
        ? name
        : `${FIELDS[name] ?? name} (${shown(name, expected[name])} and ${shown(name, found[name])})`,
    );
    throw new UserError(
      `${first.folder} and ${part.folder} are not parts of one run: they differ in ${values.join(', ')}`,
      'Name the folders of one run only, for example: tilewright merge OUT/MODEL/shard-*-of-8 --out results; ' +
        'or run the shard that differs again as the others were',
    );
  }
  for (const { name, tasks } of first.shard.groups ?? [])
    for (const task of tasks)
      if (!Object.hasOwn(first['n-samples'], task))
        throw new UserError(
          `${first.folder}: the group ${quote(name)} has ${quote(task)}, of which nothing is known`,
          'Run the shard again with --resume and the other flags unchanged',
        );
}

/** The command that scores a shard that is missing. */
function commandOf(index: number, { shard, config, title, provenance, folder, layout }: ShardResults): string {
  const part = `--shard ${index}/${shard.count} --resume`;
  if (layout.kind === 'harness') return `tilewright run … --tasks … ${part}`;
  const model = /^model=(.*),precision=\w+$/s.exec(String(config?.['model_args']))?.[1] ?? 'MODEL';
  const [from, data, out] = [model, String(provenance.dataset_path), outOf(folder)].map(quoteForShell);
  return `tilewright run ${from} --task ${title} --data ${data} --out ${out} ${part}`;
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
    folders.filter((folder) => hasJournal(folder, first)).length > byIndex.size
      ? ' (some have a journal: they run, or were stopped)'
      : '';
  throw new UserError(
    `${missing.length === 1 ? 'shard' : 'shards'} ${list(missing.map((index) => shardName({ index, count })))} ` +
      `${missing.length === 1 ? 'has' : 'have'} no results yet${begun}`,
    `Score the missing shards with the other flags unchanged, then merge again:\n${commandOf(next, first)}`,
  );
}

const againAlike = (first: ShardResults): string =>
  'Run all shards with the same flags, including --batch-tokens, into a new folder. Start with:\n' +
  `${commandOf(1, first).replace(/ --resume$/, '')}`;

/** Lines of all parts for one filter after the other, each in the order of documents. Throws UserError. */
function* merged(readers: readonly SampleReader[], filters: readonly string[], first: ShardResults) {
  const { noun } = first.layout;
  for (const filter of filters) {
    let last: { readonly docId: number; readonly reader: SampleReader } | undefined;
    for (;;) {
      let least: SampleReader | undefined;
      for (const reader of readers)
        if (reader.next?.filter === filter && (least?.next === undefined || reader.next.docId < least.next.docId))
          least = reader;
      if (least === undefined) break;
      const line = least.next!;
      if (last !== undefined && line.docId <= last.docId)
        throw new UserError(
          `${noun} ${line.docId} is in shard ${shardName(last.reader.shard)} and in shard ${shardName(least.shard)}: ` +
            `the shards divided the ${noun}s differently`,
          againAlike(first),
        );
      last = { docId: line.docId, reader: least };
      yield line;
      least.advance();
    }
  }
  const rest = readers.find(({ next }) => next !== undefined);
  if (rest !== undefined)
    throw new UserError(
      `${rest.path} has lines in another order than a run writes`,
      'Run the shard again with --resume and the other flags unchanged',
    );
}

interface MergedTask extends TaskFigures {
  readonly docIds: ReadonlySet<number>;
  /** Of the hashes of documents, prompts and targets. */
  readonly hash: string;
  /** Of the file of samples. */
  readonly samples: string;
}

/** Writes the samples of a task; what they come to. */
function mergeTask(name: string, parts: readonly ShardResults[], path: string): MergedTask {
  const [first] = parts as [ShardResults, ...ShardResults[]];
  const own = first.tasks[name];
  if (own === undefined)
    throw new UserError(`${first.folder}: nothing is known of ${name}`, 'Run the shard again with --resume');
  const { filters, metrics } = own;
  const values = new TaskValues({ filters: filters.map((filter) => ({ name: filter })), metrics });
  const [hash, samples] = [createHash('sha256'), createHash('sha256')];
  const docIds = new Set<number>();
  const readers: SampleReader[] = [];
  function* lines(): Generator<string> {
    for (const { docId, filter, line, hashes, values: found } of merged(readers, filters, first)) {
      values.put(filters.indexOf(filter), found);
      hash.update(hashes);
      samples.update(line);
      if (filter === filters[0]) docIds.add(docId);
      yield line;
    }
    for (const reader of readers) reader.check();
    if (first.layout.kind === 'file') checkWhole(docIds, first);
  }
  try {
    for (const part of parts)
      readers.push(new SampleReader(part, name, join(part.folder, samplesName(name, part.date))));
    writeAtomically(path, lines(), MERGE_AGAIN);
  } finally {
    for (const reader of readers) reader.close();
  }
  return {
    docIds,
    documents: values.measured,
    figures: values.figures(),
    ...{ hash: hash.digest('hex'), samples: samples.digest('hex') },
  };
}

/** Numbers of the documents of the whole run. */
const rangesOf = ({ provenance: { docs } }: ShardResults): readonly ClosedRange[] =>
  docs === '0:0' ? [] : chooseDocs({ docs: parseDocs(docs) });

/** Whether every question of a file is there. Throws UserError. */
function checkWhole(docIds: ReadonlySet<number>, first: ShardResults): void {
  const ranges = rangesOf(first);
  const expected = countDocs(ranges);
  const absent: string[] = [];
  for (const { first: from, end } of ranges)
    for (let docId = from; docId < end && absent.length < 20; docId++)
      if (!docIds.has(docId)) absent.push(String(docId));
  if (absent.length === 0 && docIds.size === expected) return;
  throw new UserError(
    `the shards hold ${docIds.size} of ${expected} ` +
      `questions${absent.length > 0 ? `; missing: ${list(absent)}` : ''}: ` +
      'the shards divided the questions differently',
    againAlike(first),
  );
}

/**
 * Treats the shards as if they had run at the same time: counts are added, and the seconds are those of the slowest.
 */
function throughput(parts: readonly ShardResults[]): Throughput {
  const all = parts.map((part) => part.throughput);
  const sum = (name: keyof (typeof all)[number]): number => all.reduce((total, one) => total + Number(one[name]), 0);
  const most = (name: keyof (typeof all)[number]): number =>
    all.reduce((max, one) => Math.max(max, Number(one[name])), 0);
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

function generation(parts: readonly ShardResults[]): Readonly<Record<string, number>> | undefined {
  const all = parts.flatMap((part) => (part.generation === undefined ? [] : [part.generation]));
  if (all.length === 0) return undefined;
  const names = Object.keys(all[0]!);
  const most = new Set(['seconds', 'peakPages', 'pages']);
  return Object.fromEntries(
    names.map((name) => {
      const values = all.map((each) => each[name] ?? 0);
      return [name, most.has(name) ? Math.max(...values) : values.reduce((a, b) => a + b, 0)];
    }),
  );
}

/** Parts of one run, in their order. Throws UserError. */
function partsOf({ folders: given, task }: MergeRequest): readonly [ShardResults, ...ShardResults[]] {
  const folders = findShardFolders(given);
  const [first, ...others] = ofOneRun(folders.flatMap(readShardResults), task).sort(
    (a, b) => a.shard.index - b.shard.index,
  );
  if (first === undefined)
    throw new UserError(
      `no shard has results${task === undefined ? '' : ` of ${task}`} yet: ${list(folders)}`,
      'Wait for the shards, or continue them: tilewright run … --shard i/n --resume',
    );
  checkOneRun(others, first);
  checkAllThere([first, ...others], first, folders);
  return [first, ...others];
}

/**
 * Writes the results of a whole run from those of its shards. Merging the same shards again writes the same files.
 * Throws UserError if a shard is missing, given twice, from another run, or modified.
 */
export function mergeShards(request: MergeRequest): Merged {
  const parts = partsOf(request);
  const [first] = parts;
  const modelName = claimModelName(request.output, first.model_name, first.provenance.checkpoint);
  const folder = resultsFolder(request.output, modelName);
  const begin = Math.min(...parts.map((part) => part.start_time));
  const end = Math.max(...parts.map((part) => part.end_time));
  const date = fileDate(new Date(Math.round(end * 1000)));
  const names = Object.keys(first['n-samples']);
  const tasks = new Map(names.map((name) => [name, mergeTask(name, parts, join(folder, samplesName(name, date)))]));
  const questions = [...tasks.values()].reduce((sum, { docIds }) => sum + docIds.size, 0);
  const expected = countDocs(rangesOf(first));
  if (first.layout.kind === 'harness' && questions !== expected)
    throw new UserError(
      `the shards hold ${questions} of ${expected} documents: the shards divided the documents differently`,
      againAlike(first),
    );
  const ofTasks = <T>(of: (task: MergedTask, name: string) => T): Record<string, T> =>
    Object.fromEntries([...tasks].map(([name, task]) => [name, of(task, name)]));
  const aliasOf = (name: string): string => first.results[name]?.alias ?? name;
  const ofGroups = (first.shard.groups ?? []).map(({ name, tasks: members, aggregates }) => {
    const leaves = members.map((member) => tasks.get(member)!);
    const documents = leaves.reduce((sum, each) => sum + each.documents, 0);
    const isScored = aggregates.length > 0;
    const found = isScored ? countedFigures(documents, figuresOfGroup(leaves, aggregates)) : {};
    return { name, isScored, block: { alias: aliasOf(name), name, ...found } satisfies Block };
  });
  const scored = ofGroups.filter(({ isScored }) => isScored);
  const blocksOf = (groups: typeof ofGroups): Record<string, Block> =>
    Object.fromEntries(groups.map(({ name, block }) => [name, block]));
  const { shard: _, generation: __, ...kept } = first.content;
  const texts = generation(parts);
  const results = {
    ...kept,
    results: {
      ...ofTasks(({ documents, figures: found }, name) => ({
        ...{ name, alias: aliasOf(name), sample_len: documents },
        ...figures(found),
      })),
      ...blocksOf(ofGroups),
    },
    ...(scored.length === 0 ? {} : { groups: blocksOf(scored) }),
    'n-samples': ofTasks(({ documents }, name) => ({
      original: first['n-samples'][name]!.original,
      effective: documents,
    })),
    task_hashes: ofTasks(({ hash }) => hash),
    ...defined({ samples_sha256: first.samples_sha256 && ofTasks(({ samples }) => samples) }),
    ...{ model_name: modelName, model_name_sanitized: sanitiseModelName(modelName) },
    ...{ date: begin, start_time: begin, end_time: end },
    total_evaluation_time_seconds: String((Math.round(end * 1000) - Math.round(begin * 1000)) / 1000),
    throughput: throughput(parts),
    ...defined({ generation: texts && texts }),
  };
  const resultsPath = join(folder, resultsName(date));
  writeAtomically(resultsPath, [`${JSON.stringify(results, null, 2)}\n`], MERGE_AGAIN);
  return {
    results: results as unknown as Results,
    resultsPath,
    samplesPath: join(folder, samplesName(names.length === 1 ? names[0]! : '*', date)),
    shards: parts.length,
    questions,
  };
}
