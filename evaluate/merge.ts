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
import { parseModelArgs } from './runRecord.js';
import type { Results, Throughput, WrittenResults } from './resultTypes.js';
import { chooseDocs, type ClosedRange, countDocs, parseDocs } from './selection.js';
import { MERGE_AGAIN, resultsFolder } from './shard.js';
import { shardName } from './shardName.js';
import {
  findShardFolders,
  hasJournal,
  outOf,
  readShardResults,
  type SampleLine,
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

/**
 * Results of one run: where a shard's newest are of tasks, the newest of each shard; else those of one file's task.
 * `all`: those of each folder, the newest first. Throws UserError.
 */
function ofOneRun(all: readonly ShardResults[][], task: string | undefined): ShardResults[] {
  const newest = all.flatMap((each) => each.slice(0, 1));
  const ofTasks = newest.find(({ layout }) => layout.kind === 'harness');
  if (ofTasks !== undefined) {
    const other = newest.find(({ layout }) => layout.kind === 'file');
    if (other !== undefined)
      throw new UserError(
        `${ofTasks.folder} is of a run with --tasks, and ${other.folder} of one with --task ${other.title}`,
        'Name the folders of one run only',
      );
    return newest;
  }
  const ofFiles = all.flat().filter(({ layout }) => layout.kind === 'file');
  const titles = [...new Set(ofFiles.map(({ title }) => title))].sort();
  if (task === undefined && titles.length > 1) {
    throw new UserError(
      `these shards have results of ${titles.join(' and ')}`,
      `Merge one after another: --task ${titles[0]}, then --task ${titles[1]}`,
    );
  }
  return ofFiles.filter(({ title }) => task === undefined || title === task);
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
  const model = parseModelArgs(String(config?.['model_args']))?.model ?? 'MODEL';
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
  if (first.layout.kind === 'harness')
    throw new UserError(
      `${missing.length === 1 ? 'shard' : 'shards'} ${list(missing.map(String))} of ${count} ` +
        `${missing.length === 1 ? 'has' : 'have'} no results yet`,
      `Run each with the other flags unchanged: ${commandOf(next, first)}`,
    );
  const begun =
    folders.filter((folder) => hasJournal(folder, first.title)).length > byIndex.size
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

/** The samples of a task in the order of the whole run. Throws UserError where they are not those of the results. */
function* samplesOf(name: string, parts: readonly ShardResults[], first: ShardResults): Generator<SampleLine> {
  const readers: SampleReader[] = [];
  try {
    for (const part of parts)
      readers.push(new SampleReader(part, name, join(part.folder, samplesName(name, part.date))));
    yield* merged(readers, filtersOf(name, first), first);
    for (const reader of readers) reader.check();
  } finally {
    for (const reader of readers) reader.close();
  }
}

function* linesOf(samples: Iterable<SampleLine>): Generator<string> {
  for (const { line } of samples) yield line;
}

const filtersOf = (name: string, first: ShardResults): readonly string[] => first.tasks[name]?.filters ?? [];

/** What the samples of a task come to. Throws UserError. */
function mergeTask(name: string, parts: readonly ShardResults[], first: ShardResults): MergedTask {
  const own = first.tasks[name];
  if (own === undefined)
    throw new UserError(`${first.folder}: nothing is known of ${name}`, 'Run the shard again with --resume');
  const { filters, metrics } = own;
  const values = new TaskValues({ filters: filters.map((filter) => ({ name: filter })), metrics });
  const [hash, samples] = [createHash('sha256'), createHash('sha256')];
  const docIds = new Set<number>();
  for (const { docId, filter, line, hashes, values: found } of samplesOf(name, parts, first)) {
    values.put(filters.indexOf(filter), found);
    hash.update(hashes);
    samples.update(line);
    if (filter === filters[0]) docIds.add(docId);
  }
  if (first.layout.kind === 'file') checkWhole(docIds, first);
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
  const [first, ...others] = ofOneRun(folders.map(readShardResults), task).sort(
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

/** Fields with which merged results of tasks begin, and their provenance; the others are in the order of a shard's. */
const FIRST_FIELDS = [
  'results',
  'groups',
  'n-samples',
  'n-shot',
  'versions',
  'higher_is_better',
  'provenance',
  'model_name',
  'start_time',
  'end_time',
  'throughput',
];
const FIRST_OF_PROVENANCE = ['checkpoint', 'docs'];

type Fields = Readonly<Record<string, unknown>>;

const beginningWith = (names: readonly string[], fields: Fields): Fields =>
  Object.fromEntries([
    ...names.filter((name) => Object.hasOwn(fields, name)).map((name) => [name, fields[name]] as const),
    ...Object.entries(fields),
  ]);

/** What the whole run has in common with its first shard, in its order. */
function keptOf({ layout, content }: ShardResults): Fields {
  const { shard: _, generation: __, ...kept } = content;
  if (layout.kind === 'file') return kept;
  const { date: ___, unfinished: ____, provenance, ...rest } = kept;
  return beginningWith(FIRST_FIELDS, { ...rest, provenance: beginningWith(FIRST_OF_PROVENANCE, provenance as Fields) });
}

/**
 * Writes the results of a whole run from those of its shards. Merging the same shards again writes the same files.
 * Throws UserError, before anything is written, if a shard is missing, given twice, from another run, or modified.
 */
export function mergeShards(request: MergeRequest): Merged {
  const parts = partsOf(request);
  const [first] = parts;
  const begin = Math.min(...parts.map((part) => part.start_time));
  const end = Math.max(...parts.map((part) => part.end_time));
  const date = fileDate(new Date(Math.round(end * 1000)));
  const names = Object.keys(first['n-samples']);
  const tasks = new Map(names.map((name) => [name, mergeTask(name, parts, first)]));
  const questions = [...tasks.values()].reduce((sum, { docIds }) => sum + docIds.size, 0);
  const expected = countDocs(rangesOf(first));
  if (first.layout.kind === 'harness' && questions !== expected)
    throw new UserError(
      `the shards hold ${questions} of ${expected} documents: the shards divided the documents differently`,
      againAlike(first),
    );
  const modelName = claimModelName(request.output, first.model_name, first.provenance.checkpoint);
  const folder = resultsFolder(request.output, modelName);
  for (const name of names)
    writeAtomically(join(folder, samplesName(name, date)), linesOf(samplesOf(name, parts, first)), MERGE_AGAIN);
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
  const texts = generation(parts);
  const results = {
    ...keptOf(first),
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
    ...defined({ generation: texts }),
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
