/** The content of results_*.json: tasks, groups, settings, where they come from, and what it took. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { str } from '../python/show.js';
import type { PyValue } from '../python/value.js';
import { at } from '../system/at.js';
import { defined } from '../system/defined.js';
import type { TaskTree } from '../tasks/definition/settings.js';
import { type GroupNode, tasksBelow } from '../tasks/definition/settings.js';
import { notesOn } from '../tasks/hooks/registry.js';
import { type AggregationName, type GroupFigure, isAggregation } from '../tasks/scores/aggregate.js';
import type { MetricFigure } from '../tasks/scores/aggregate.js';
import type { RunIdentity } from './journal.js';
import type { ResultsLayout } from './layout.js';
import { sanitiseModelName } from './output.js';
import type { Provenance, Results, Throughput } from './resultTypes.js';
import { MAX_SHARDS, type Shard } from './shardName.js';
import type { GroupAnswers, TaskAnswers } from './taskAnswers.js';
import { configOf, type Json, versionOf } from './taskConfig.js';

/** The version of lm-evaluation-harness whose prompts, metrics and files these are. */
const EMULATED = { version: '0.4.13.dev0', commit: '4e7e0d47f33bc71070c1d38394bafbb52b117163' } as const;

/** `2026-01-31T10-20-30.123000`: an ISO date in UTC without characters that file systems refuse. */
export const fileDate = (date: Date): string => `${date.toISOString().slice(0, -1).replaceAll(':', '-')}000`;

export const samplesName = (task: string, date: string): string => `samples_${task}_${date}.jsonl`;
export const tokensName = (task: string, date: string): string => `tokens_${task}_${date}.jsonl`;
export const resultsName = (date: string): string => `results_${date}.json`;

export interface PromptStyle {
  readonly systemInstruction: string | null;
  readonly chatTemplate: string | null;
  readonly fewshotAsMultiturn: boolean | null;
}

/** What results say besides their figures. */
export interface ResultsHeader {
  /** As the user named it; its sanitised form names the folder. */
  readonly modelName: string;
  /** Fields of the `config` block: model, batch_size, device, limit, precision, sharing … Nothing volatile. */
  readonly config: Readonly<Record<string, Json>>;
  readonly provenance: Provenance;
  readonly throughput: Throughput;
  /** How prompts were written; absent for questions of a file. */
  readonly prompts?: PromptStyle | undefined;
  /** What it took to generate texts: their number, tokens and seconds. */
  readonly generation?: Readonly<Record<string, number>> | undefined;
  /** Wall-clock time at the start of the command, and now. */
  readonly started: Date;
  readonly finished: Date;
  /** Version of this program, in place of the harness's git hash. */
  readonly version: string;
}

export type Block = Record<string, Json>;

/** Figures with their errors, as a block of a task or group lists them. */
export const figures = (found: ReadonlyMap<string, MetricFigure>): Block => {
  const block: Block = {};
  for (const [key, { value, error }] of found) {
    // JSON has no infinity: a perplexity may be that large.
    block[key] = Number.isFinite(value) ? value : String(value);
    // Nor NaN, which the error of values that are none may be.
    block[key.replace(',', '_stderr,')] = error === null ? 'N/A' : Number.isFinite(error) ? error : null;
  }
  return block;
};

const taskBlock = ({ task, documents, figures: found }: TaskAnswers): Block => {
  const alias = task.settings.get('task_alias')?.value;
  return {
    name: task.name,
    alias: typeof alias === 'string' ? alias : task.name,
    sample_len: documents,
    ...figures(found),
  };
};

/** A group that scores nothing has its names alone. */
const groupBlock = ({ group, documents, figures: found }: GroupAnswers): Block => ({
  alias: group.alias ?? group.name,
  name: group.name,
  ...(group.aggregates.length === 0 ? {} : countedFigures(documents, found)),
});

/** Figures of a group, with the documents that each is of. */
export function countedFigures(documents: number, found: ReadonlyMap<string, GroupFigure>): Block {
  const counts = Object.fromEntries([...found].map(([key, each]) => [key, each.documents]));
  return { sample_len: documents, ...figures(found), ...(found.size === 0 ? {} : { sample_count: counts }) };
}

const sorted = <T>(entries: readonly (readonly [string, T])[]): Record<string, T> =>
  Object.fromEntries([...entries].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)));

const betterOf = ({ task }: TaskAnswers): Record<string, boolean> =>
  Object.fromEntries(task.scores.metrics.map(({ name, isHigherBetter }) => [name, isHigherBetter]));

/** What a group has of the tasks in it; of groups in it, it has nothing. */
function passedUp<T>(
  groups: readonly GroupAnswers[],
  tasks: readonly TaskAnswers[],
  of: (members: readonly TaskAnswers[]) => T | undefined,
): readonly (readonly [string, T])[] {
  const byName = new Map(tasks.map((each) => [each.task.name, each]));
  return groups.flatMap(({ group }) => {
    const members = group.members.flatMap((member) => (member.kind === 'task' ? [byName.get(member.name)!] : []));
    const passed = members.length === 0 ? undefined : of(members);
    return passed === undefined ? [] : [[group.name, passed] as const];
  });
}

/** Of tasks that have the same. */
const commonShots = (members: readonly TaskAnswers[]): number | undefined => {
  const [shots, ...others] = new Set(members.map(({ task }) => task.shots));
  return others.length === 0 ? shots : undefined;
};

/** Of all metrics of these tasks; null where they do not agree. */
function commonBetter(members: readonly TaskAnswers[]): Block {
  const common: Block = {};
  for (const [metric, isBetter] of members.flatMap((each) => Object.entries(betterOf(each))))
    common[metric] = !Object.hasOwn(common, metric) || common[metric] === isBetter ? isBetter : null;
  return common;
}

/** Groups before those within them. */
const groupsFrom = (nodes: readonly TaskTree[]): readonly GroupNode[] =>
  nodes.flatMap((node) => (node.kind === 'group' ? [node, ...groupsFrom(node.members)] : []));

/** The content of results_*.json, less what is measured of the run itself. */
export function taskResults(tasks: readonly TaskAnswers[], groups: readonly GroupAnswers[]): Record<string, Json> {
  const blocks = groups.map((each) => [each.group.name, groupBlock(each)] as const);
  const scored = blocks.filter((_, i) => groups[i]!.group.aggregates.length > 0);
  const outermost = groups.flatMap(({ group, depth }) => (depth === 0 ? [group] : []));
  const groupVersions = groups.map(({ group }) => {
    const version = group.metadata.get('version');
    return [group.name, version === undefined ? 'N/A' : str(version as PyValue)] as const;
  });
  return {
    results: Object.fromEntries([...tasks.map((each) => [each.task.name, taskBlock(each)] as const), ...blocks]),
    ...(scored.length === 0 ? {} : { groups: Object.fromEntries(scored) }),
    group_subtasks: Object.fromEntries(
      groupsFrom(outermost).map(({ name, members }) => [name, members.map((member) => member.name)]),
    ),
    configs: sorted<Json>(tasks.map(({ task }) => [task.name, configOf(task)])),
    versions: sorted<Json>([...tasks.map(({ task }) => [task.name, versionOf(task)] as const), ...groupVersions]),
    'n-shot': sorted<Json>([
      ...tasks.map(({ task }) => [task.name, task.shots] as const),
      ...passedUp(groups, tasks, commonShots),
    ]),
    higher_is_better: sorted<Json>([
      ...tasks.map((each) => [each.task.name, betterOf(each)] as const),
      ...passedUp(groups, tasks, commonBetter),
    ]),
    'n-samples': Object.fromEntries(
      tasks.map(({ task, total, documents }) => [task.name, { original: total, effective: documents }]),
    ),
  };
}

/** Keys of a file task's block under `configs`, in their order. */
const FILE_CONFIG = (
  'task dataset_path dataset_sha256 description target_delimiter fewshot_delimiter num_fewshot metric_list ' +
  'output_type repeats should_decontaminate metadata'
).split(' ');

type DataFacts = Pick<Provenance, 'dataset_path' | 'dataset_sha256'>;

/** The same for the questions of a file. */
function fileResults(answers: TaskAnswers, { dataset_path, dataset_sha256 }: DataFacts): Record<string, Json> {
  const { name } = answers.task;
  const config: Record<string, Json> = { ...configOf(answers.task), dataset_path, dataset_sha256 };
  return {
    ...taskResults([answers], []),
    group_subtasks: { [name]: [] },
    configs: { [name]: Object.fromEntries(FILE_CONFIG.map((key) => [key, config[key] ?? null])) },
  };
}

/** What follows from documents and answers: figures, and the settings of tasks. */
export const answeredResults = (
  { kind }: Pick<ResultsLayout, 'kind'>,
  { tasks, groups }: Pick<RunAnswers, 'tasks' | 'groups'>,
  data: DataFacts,
): Record<string, Json> => (kind === 'file' ? fileResults(at(tasks, 0), data) : taskResults(tasks, groups));

/** What the answers of a run come to. */
export interface RunAnswers {
  readonly tasks: readonly TaskAnswers[];
  readonly groups: readonly GroupAnswers[];
  /** SHA-256 of each task's samples, where they were made. */
  readonly samples: ReadonlyMap<string, string>;
  /** Tasks that are not finished. */
  readonly unfinished: readonly string[];
  /** The part of a run that this is, and what must agree for parts to be merged. */
  readonly shard?: (Shard & { readonly run: RunIdentity }) | undefined;
}

/** The whole file. */
export function buildResults(layout: ResultsLayout, header: ResultsHeader, answers: RunAnswers): Results {
  const { modelName, started, finished, provenance, shard } = { ...header, ...answers };
  const { tasks, groups, samples, unfinished } = answers;
  const [begin, end] = [started.getTime() / 1000, finished.getTime() / 1000];
  const isFile = layout.kind === 'file';
  const results = {
    ...answeredResults(layout, answers, provenance),
    config: header.config,
    git_hash: header.version,
    date: begin,
    ...(isFile ? {} : emulated(tasks)),
    task_hashes: Object.fromEntries(tasks.map(({ task, hash }) => [task.name, hash])),
    ...(isFile ? { samples_sha256: Object.fromEntries(samples) } : {}),
    max_length: provenance.context_length,
    provenance,
    model_source: 'tilewright',
    model_name: modelName,
    model_name_sanitized: sanitiseModelName(modelName),
    ...(header.prompts && prompted(header.prompts)),
    start_time: begin,
    end_time: end,
    total_evaluation_time_seconds: String((finished.getTime() - started.getTime()) / 1000),
    throughput: header.throughput,
    ...defined({ generation: header.generation }),
    ...defined({ shard: shard && (isFile ? shard : shardBlock(shard, shard.run, tasks, samples, groups)) }),
    // Only while the run goes on, or where it ended early.
    ...(unfinished.length === 0 ? {} : { unfinished }),
  };
  return results as unknown as Results;
}

/** Whose prompts, metrics and files these are. */
function emulated(tasks: readonly TaskAnswers[]): Readonly<Record<string, unknown>> {
  const notes = notesOn(tasks.map(({ task }) => task.settings));
  return {
    lm_eval_version: EMULATED.version,
    emulates: { program: 'lm-evaluation-harness', ...EMULATED },
    ...(notes.length === 0 ? {} : { notes }),
  };
}

const prompted = ({ systemInstruction, chatTemplate, fewshotAsMultiturn }: PromptStyle) => ({
  system_instruction: systemInstruction,
  system_instruction_sha: hashed(systemInstruction),
  fewshot_as_multiturn: fewshotAsMultiturn,
  chat_template: chatTemplate,
  chat_template_sha: hashed(chatTemplate),
});

const hashed = (text: string | null): string | null =>
  text === null ? null : createHash('sha256').update(text).digest('hex');

/** JSON that refuses NaN and infinities, for which JSON.stringify would write null. */
export function toJson(value: unknown, indent?: number): string {
  return JSON.stringify(
    value,
    (key, field: unknown) => {
      if (typeof field === 'number' && !Number.isFinite(field))
        throw new Error(`"${key}" is ${field}: results hold finite numbers only`);
      return field;
    },
    indent,
  );
}

const scalar = z.union([z.string().max(4096), z.number(), z.boolean(), z.null()]);
const name = z.string().min(1).max(300);
const names = z.array(name).max(10_000);

const aggregation = z.custom<AggregationName>((value) => typeof value === 'string' && isAggregation(value));

/** Checked when it is read: files of shards come from other machines. */
export const SHARD_BLOCK = z.object({
  index: z.int().min(1).max(MAX_SHARDS),
  count: z.int().min(1).max(MAX_SHARDS),
  run: z.record(z.string(), scalar),
  /** Of tasks and groups; the questions of a file are one task, of which the results say enough. */
  tasks: z
    .record(
      name,
      z.object({
        /** Of the file of samples; absent where none was written. */
        samples: z
          .string()
          .regex(/^[0-9a-f]{64}$/)
          .optional(),
        filters: names,
        metrics: z.array(z.object({ name, aggregation })).max(1000),
      }),
    )
    .optional(),
  groups: z
    .array(
      z.object({
        name,
        tasks: names,
        aggregates: z.array(z.object({ metric: name, weightBySize: z.boolean(), filters: names.optional() })).max(1000),
      }),
    )
    .max(10_000)
    .optional(),
});
export type ShardBlock = z.infer<typeof SHARD_BLOCK>;

function shardBlock(
  { index, count }: Shard,
  run: RunIdentity,
  tasks: readonly TaskAnswers[],
  samples: ReadonlyMap<string, string>,
  groups: readonly GroupAnswers[],
): ShardBlock {
  return {
    index,
    count,
    run: { ...run },
    tasks: Object.fromEntries(
      tasks.map(({ task: { name: of, scores } }) => [
        of,
        {
          ...(samples.has(of) ? { samples: samples.get(of)! } : {}),
          filters: scores.filters.map((filter) => filter.name),
          metrics: scores.metrics.map((metric) => ({ name: metric.name, aggregation: metric.aggregation })),
        },
      ]),
    ),
    groups: groups.map(({ group }) => ({
      name: group.name,
      tasks: tasksBelow([group]).map((task) => task.name),
      aggregates: group.aggregates.map(({ metric, weightBySize, filters }) => ({
        metric,
        weightBySize,
        ...defined({ filters: filters && [...filters] }),
      })),
    })),
  };
}

/** The throughput block from the measurements. Rates over no time are 0. */
export function throughputOf(measured: Omit<Throughput, 'questionsPerSecond' | 'tokensPerSecond'>): Throughput {
  const { questions, tokensComputed, scoreSeconds, devices, start } = measured;
  const rate = (count: number): number => (scoreSeconds > 0 ? count / scoreSeconds : 0);
  return {
    questions,
    tokensComputed,
    tokensWithoutSharing: measured.tokensWithoutSharing,
    tokensGrouped: measured.tokensGrouped,
    tokensShared: measured.tokensShared,
    loadSeconds: measured.loadSeconds,
    scoreSeconds,
    questionsPerSecond: rate(questions),
    tokensPerSecond: rate(tokensComputed),
    modelFlops: measured.modelFlops,
    ...defined({ devices, start }),
  };
}
