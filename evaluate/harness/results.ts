/** The results of a run of tasks, in the layout of the public harness's results_*.json. */
import { createHash } from 'node:crypto';
import { str } from '../../python/show.js';
import type { Value } from '../../python/value.js';
import { defined } from '../../system/defined.js';
import type { GroupNode, Node } from '../../tasks/definition/settings.js';
import { notesOn } from '../../tasks/hooks/registry.js';
import type { Figure, GroupFigure } from '../../tasks/scores/aggregate.js';
import { sanitiseModelName } from '../output.js';
import type { Provenance, Throughput } from '../resultTypes.js';
import type { GroupAnswers, TaskAnswers } from './answers.js';
import { configOf, type Json, versionOf } from './config.js';

/** The version of lm-evaluation-harness whose prompts, metrics and files these are. */
const EMULATED = { version: '0.4.13.dev0', commit: '4e7e0d47f33bc71070c1d38394bafbb52b117163' } as const;

export interface TasksHeader {
  readonly modelName: string;
  /** Fields of the `config` block. */
  readonly config: Readonly<Record<string, Json>>;
  readonly provenance: Provenance;
  readonly throughput: Throughput;
  readonly systemInstruction: string | null;
  readonly chatTemplate: string | null;
  readonly fewshotAsMultiturn: boolean | null;
  /** What it took to generate texts: their number, tokens and seconds. */
  readonly generation: Readonly<Record<string, number>> | undefined;
  readonly started: Date;
  readonly finished: Date;
  /** Version of this program, in place of the harness's git hash. */
  readonly version: string;
}

export type Block = Record<string, Json>;

/** Figures with their errors, as a block of a task or group lists them. */
export const figures = (found: ReadonlyMap<string, Figure>): Block => {
  const block: Block = {};
  for (const [key, { value, error }] of found) {
    // JSON has no infinity: a perplexity may be that large.
    block[key] = Number.isFinite(value) ? value : String(value);
    block[key.replace(',', '_stderr,')] = error ?? 'N/A';
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
const groupsFrom = (nodes: readonly Node[]): readonly GroupNode[] =>
  nodes.flatMap((node) => (node.kind === 'group' ? [node, ...groupsFrom(node.members)] : []));

/** The content of results_*.json, less what is measured of the run itself. */
export function taskResults(tasks: readonly TaskAnswers[], groups: readonly GroupAnswers[]): Record<string, Json> {
  const blocks = groups.map((each) => [each.group.name, groupBlock(each)] as const);
  const scored = blocks.filter((_, i) => groups[i]!.group.aggregates.length > 0);
  const outermost = groups.flatMap(({ group, depth }) => (depth === 0 ? [group] : []));
  const groupVersions = groups.map(({ group }) => {
    const version = group.metadata.get('version');
    return [group.name, version === undefined ? 'N/A' : str(version as Value)] as const;
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

const hashed = (text: string | null): string | null =>
  text === null ? null : createHash('sha256').update(text).digest('hex');

/** The whole file. */
export function buildTaskResults(
  header: TasksHeader,
  tasks: readonly TaskAnswers[],
  groups: readonly GroupAnswers[],
): Record<string, unknown> {
  const { modelName, started, finished } = header;
  const notes = notesOn(tasks.map(({ task }) => task.settings));
  const [begin, end] = [started.getTime() / 1000, finished.getTime() / 1000];
  return {
    ...taskResults(tasks, groups),
    config: header.config,
    git_hash: header.version,
    date: begin,
    lm_eval_version: EMULATED.version,
    emulates: { program: 'lm-evaluation-harness', ...EMULATED },
    ...(notes.length === 0 ? {} : { notes }),
    task_hashes: Object.fromEntries(tasks.map(({ task, hash }) => [task.name, hash])),
    max_length: header.provenance.context_length,
    provenance: header.provenance,
    model_source: 'tilewright',
    model_name: modelName,
    model_name_sanitized: sanitiseModelName(modelName),
    system_instruction: header.systemInstruction,
    system_instruction_sha: hashed(header.systemInstruction),
    fewshot_as_multiturn: header.fewshotAsMultiturn,
    chat_template: header.chatTemplate,
    chat_template_sha: hashed(header.chatTemplate),
    start_time: begin,
    end_time: end,
    total_evaluation_time_seconds: String(end - begin),
    throughput: header.throughput,
    ...defined({ generation: header.generation }),
  };
}
