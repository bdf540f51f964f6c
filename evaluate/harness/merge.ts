/**
 * Joins what parts of a run of tasks wrote into the results of the whole run: lines of samples are copied byte for byte
 * in their order, and figures are computed again from their values. Files are read line by line, however large.
 */
import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { UserError } from '../../errors.js';
import { defined } from '../../system/defined.js';
import { quote } from '../../system/json.js';
import { readJsonObject } from '../../system/read.js';
import { writeAtomically } from '../../system/write.js';
import { canNameResults } from '../../tasks/definition/settings.js';
import { figuresOfGroup, type TaskFigures } from '../../tasks/scores/aggregate.js';
import { TaskValues } from '../../tasks/scores/ofTask.js';
import { claimModelName } from '../output.js';
import { fileDate, resultsName, samplesName, throughputOf } from '../results.js';
import type { Results, Throughput, WrittenResults } from '../resultTypes.js';
import { MERGE_AGAIN, resultsFolder, shardName } from '../shard.js';
import { count, duration, time } from '../shardNumbers.js';
import { type Block, countedFigures, figures } from './results.js';
import { type SampleLine, SampleReader } from './sampleReader.js';
import { SHARD_BLOCK } from './shardBlock.js';

const MAX_RESULTS_BYTES = 1 << 26;
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
  provenance: z.looseObject({ checkpoint: z.string().max(200), docs: z.string().max(100) }),
  model_name: z.string().max(4096),
  start_time: time,
  end_time: time,
  throughput: z.looseObject({
    questions: count,
    tokensComputed: count,
    tokensWithoutSharing: count,
    tokensGrouped: count,
    tokensShared: count,
    loadSeconds: duration,
    scoreSeconds: duration,
    modelFlops: count,
  }),
  generation: z.record(z.string(), count).optional(),
  unfinished: z.array(z.string()).optional(),
  shard: SHARD_BLOCK,
});

interface Part extends z.infer<typeof RESULTS> {
  readonly folder: string;
  /** Of its files. */
  readonly date: string;
}

/** The newest results in a folder; undefined where there are none. */
function newest(folder: string): { readonly path: string; readonly date: string } | undefined {
  const dates = readdirSync(folder).flatMap((file) => /^results_(.*)\.json$/.exec(file)?.[1] ?? []);
  const date = dates.sort().at(-1);
  return date === undefined ? undefined : { path: join(folder, resultsName(date)), date };
}

const again = 'run the shard again with --resume and the other flags unchanged';

/** Whether a shard has scored tasks, and not the questions of a file. */
export function isOfTasks(folder: string): boolean {
  const found = newest(folder);
  return found !== undefined && 'emulates' in readJsonObject(found.path, MAX_RESULTS_BYTES, again).value;
}

function readPart(folder: string): Part {
  const found = newest(folder);
  if (found === undefined) throw new UserError(`${folder} has no results yet`, `Wait for the shard, or ${again}`);
  const parsed = RESULTS.safeParse(readJsonObject(found.path, MAX_RESULTS_BYTES, again).value);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const what = `${issue?.path.join('.')}: ${issue?.message}`;
    throw new UserError(`${found.path} is not what a run of tasks with --shard writes (${what})`, again, {
      cause: parsed.error,
    });
  }
  const { unfinished = [] } = parsed.data;
  if (unfinished.length > 0)
    throw new UserError(
      `${found.path}: the shard is not finished: it lacks ${unfinished.slice(0, 4).join(', ')}`,
      `Wait for the shard, or ${again}`,
    );
  return { ...parsed.data, folder, date: found.date };
}

/** Versions before this one did not note them. */
const endTokensIn = ({ endTokens }: Part['shard']['run']): string =>
  endTokens === undefined ? 'not noted' : String(endTokens).slice(0, 100);

/** Parts of one run, each once. Throws UserError. */
function checkParts(parts: readonly Part[], first: Part): void {
  const {
    shard: { count: shards, run },
  } = first;
  const byIndex = new Map<number, Part>();
  for (const part of parts) {
    const names = new Set([...Object.keys(run), ...Object.keys(part.shard.run)]);
    const differing = [...names].filter((name) => run[name] !== part.shard.run[name]);
    const ends = differing.indexOf('endTokens');
    if (ends >= 0)
      differing[ends] = `the tokens that end texts (${[run, part.shard.run].map(endTokensIn).join(' and ')})`;
    if (part.shard.count !== shards) differing.push('the number of shards');
    if (JSON.stringify(part.shard.groups) !== JSON.stringify(first.shard.groups)) differing.push('groups');
    if (differing.length > 0)
      throw new UserError(
        `${first.folder} and ${part.folder} are not parts of one run: they differ in ${differing.join(', ')}`,
        'Name the folders of one run only, or run the shard that differs again as the others were',
      );
    const other = byIndex.get(part.shard.index);
    if (other !== undefined)
      throw new UserError(
        `shard ${shardName(part.shard)} is given twice: ${other.folder} and ${part.folder}`,
        'Name one of them',
      );
    byIndex.set(part.shard.index, part);
  }
  for (const { name, tasks } of first.shard.groups)
    for (const task of tasks)
      if (!Object.hasOwn(first['n-samples'], task))
        throw new UserError(
          `${first.folder}: the group ${quote(name)} has ${quote(task)}, of which nothing is known`,
          again,
        );
  const missing = Array.from({ length: shards }, (_, i) => i + 1).filter((index) => !byIndex.has(index));
  if (missing.length > 0)
    throw new UserError(
      missing.length === 1
        ? `shard ${missing[0]!} of ${shards} has no results yet`
        : `shards ${missing.slice(0, 8).join(', ')} of ${shards} have no results yet`,
      `Run each with the other flags unchanged: tilewright run … --tasks … --shard ${missing[0]}/${shards} --resume`,
    );
}

/** Lines of all parts for one filter after the other, each in the order of documents. Throws UserError. */
function* merged(readers: readonly SampleReader[], filters: readonly string[]): Generator<SampleLine> {
  for (const filter of filters) {
    let last = -1;
    for (;;) {
      let least: SampleReader | undefined;
      for (const reader of readers)
        if (reader.next?.filter === filter && (least?.next === undefined || reader.next.docId < least.next.docId))
          least = reader;
      if (least === undefined) break;
      const line = least.next!;
      if (line.docId <= last)
        throw new UserError(
          `${least.path}: document ${line.docId} comes twice: the shards divided the documents differently`,
          'Run all shards with the same flags into a new folder',
        );
      last = line.docId;
      yield line;
      least.advance();
    }
  }
  const rest = readers.find(({ next }) => next !== undefined);
  if (rest !== undefined) throw new UserError(`${rest.path} has lines in another order than a run writes`, again);
}

interface MergedTask extends TaskFigures {
  readonly answered: number;
  readonly hash: string;
}

/** Writes the samples of a task; what they come to. */
function mergeTask(name: string, parts: readonly Part[], path: string): MergedTask {
  const own = parts[0]!.shard.tasks[name];
  if (own === undefined) throw new UserError(`${parts[0]!.folder}: nothing is known of ${name}`, again);
  const { filters, metrics } = own;
  const values = new TaskValues({ filters: filters.map((filter) => ({ name: filter })), metrics });
  const hash = createHash('sha256');
  let answered = 0;
  const readers = parts.map(({ folder, date, shard }) => {
    const { samples } = shard.tasks[name] ?? {};
    const file = join(folder, samplesName(name, date));
    if (samples === undefined)
      throw new UserError(`${folder} has no samples of ${name}`, 'Run the shards without --log_samples false');
    return new SampleReader(
      file,
      samples,
      metrics.map((metric) => metric.name),
    );
  });
  function* lines(): Generator<string> {
    for (const { filter, line, hashes, values: found } of merged(readers, filters)) {
      values.put(filters.indexOf(filter), found);
      hash.update(hashes);
      if (filter === filters[0]) answered++;
      yield line;
    }
    for (const reader of readers) reader.check();
  }
  try {
    writeAtomically(path, lines(), MERGE_AGAIN);
  } finally {
    for (const reader of readers) reader.close();
  }
  return { answered, documents: values.measured, figures: values.figures(), hash: hash.digest('hex') };
}

function throughput(parts: readonly Part[]): Throughput {
  const sum = (name: keyof Part['throughput']): number =>
    parts.reduce((total, part) => total + Number(part.throughput[name]), 0);
  const most = (name: keyof Part['throughput']): number =>
    parts.reduce((max, part) => Math.max(max, Number(part.throughput[name])), 0);
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

function generation(parts: readonly Part[]): Readonly<Record<string, number>> | undefined {
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

/** Writes the results of a whole run. Merging the same shards again writes the same files. Throws UserError. */
export function mergeTasks(
  folders: readonly string[],
  output: string,
): WrittenResults & { readonly shards: number; readonly questions: number } {
  const parts = folders.map(readPart).sort((a, b) => a.shard.index - b.shard.index);
  const first = parts[0]!;
  checkParts(parts, first);
  const modelName = claimModelName(output, first.model_name, first.provenance.checkpoint);
  const folder = resultsFolder(output, modelName);
  const [begin, end] = [
    Math.min(...parts.map((part) => part.start_time)),
    Math.max(...parts.map((part) => part.end_time)),
  ];
  const date = fileDate(new Date(Math.round(end * 1000)));
  const names = Object.keys(first['n-samples']);
  const tasks = new Map(names.map((name) => [name, mergeTask(name, parts, join(folder, samplesName(name, date)))]));
  const documents = [...tasks.values()].reduce((sum, each) => sum + each.answered, 0);
  const expected = Number(first.provenance.docs.split(':')[1] ?? 0);
  if (documents !== expected)
    throw new UserError(
      `the shards hold ${documents} of ${expected} documents: they divided them differently`,
      'Run all shards with the same flags into a new folder',
    );
  const { shard: _, unfinished: __, generation: ___, ...whole } = first;
  const { folder: ____, date: _____, ...kept } = whole;
  const { groups } = first.shard;
  const ofGroups = groups.map(({ name, tasks: members, aggregates }): [string, Block] => {
    const leaves = members.map((member) => tasks.get(member)!);
    const documents = leaves.reduce((sum, each) => sum + each.documents, 0);
    const found = aggregates.length === 0 ? {} : countedFigures(documents, figuresOfGroup(leaves, aggregates));
    return [name, { alias: first.results[name]?.alias ?? name, name, ...found }];
  });
  const scored = ofGroups.filter((_, i) => groups[i]!.aggregates.length > 0);
  const ofTasks = names.map((name): [string, Block] => {
    const { documents: sample_len, figures: found } = tasks.get(name)!;
    return [name, { name, alias: first.results[name]?.alias ?? name, sample_len, ...figures(found) }];
  });
  const texts = generation(parts);
  const results = {
    ...kept,
    results: Object.fromEntries([...ofTasks, ...ofGroups]),
    ...(scored.length === 0 ? {} : { groups: Object.fromEntries(scored) }),
    'n-samples': Object.fromEntries(
      names.map((name) => [
        name,
        { original: first['n-samples'][name]!.original, effective: tasks.get(name)!.documents },
      ]),
    ),
    task_hashes: Object.fromEntries(names.map((name) => [name, tasks.get(name)!.hash])),
    model_name: modelName,
    date: begin,
    start_time: begin,
    end_time: end,
    total_evaluation_time_seconds: String(end - begin),
    throughput: throughput(parts),
    ...defined({ generation: texts }),
  };
  const resultsPath = join(folder, resultsName(date));
  writeAtomically(resultsPath, [`${JSON.stringify(results, null, 2)}\n`], MERGE_AGAIN);
  const samplesPath = join(folder, samplesName(names.length === 1 ? names[0]! : '*', date));
  return {
    results: results as unknown as Results,
    resultsPath,
    samplesPath,
    shards: parts.length,
    questions: documents,
  };
}
