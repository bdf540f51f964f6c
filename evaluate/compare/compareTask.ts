/** A task of two runs. */
import { counted } from '../../system/text.js';
import { type MetricFigure, figuresOfGroup, type TaskFigures } from '../../tasks/scores/aggregate.js';
import {
  type ChoiceDifference,
  compareChoices,
  compareLikelihoods,
  compareTexts,
  type LikelihoodDifference,
  type TextDifference,
} from './compareAnswers.js';
import { compareMetrics, type MetricDifference, type MetricOfTask, testOfMeans } from './compareMetrics.js';
import type { Block, GroupFiles, RunFiles, TaskFiles } from './findRuns.js';
import { matchQuestions, readSamples, type SampleSet } from './readSamples.js';

/** How many questions there are; lists of numbers name the first few. */
export interface Questions {
  readonly common: number;
  readonly onlyA: number;
  readonly onlyB: number;
  readonly namesOfA: readonly number[];
  readonly namesOfB: readonly number[];
  /** Common questions that have another number in B. */
  readonly renumbered: number;
  /** Questions of one number in both that are not the same. */
  readonly otherContent: number;
  /** Common questions that were asked differently. */
  readonly otherPrompt: number;
}

export interface TaskDifference {
  readonly task: string;
  readonly questions: Questions;
  readonly metrics: readonly MetricDifference[];
  readonly likelihoods: LikelihoodDifference | null;
  readonly choices: ChoiceDifference | null;
  readonly texts: TextDifference | null;
  /** Everything that was answered to common questions is equal to the bit. */
  readonly isEqual: boolean;
  /** What was amiss, a line each. */
  readonly notes: readonly string[];
}

/** With what groups are computed from. */
export interface ComparedTask extends Omit<TaskDifference, 'metrics'> {
  readonly metrics: readonly MetricOfTask[];
}

const NAMED = 10;

const none: Omit<TaskDifference, 'task' | 'notes' | 'metrics'> = {
  questions: {
    common: 0,
    onlyA: 0,
    onlyB: 0,
    namesOfA: [],
    namesOfB: [],
    renumbered: 0,
    otherContent: 0,
    otherPrompt: 0,
  },
  likelihoods: null,
  choices: null,
  texts: null,
  isEqual: false,
};

const differs = (what: string, a: unknown, b: unknown): readonly string[] =>
  a === undefined || b === undefined || a === null || b === null || Number(a) === Number(b) || a === b
    ? []
    : [`${what}: ${JSON.stringify(a)} in A, ${JSON.stringify(b)} in B`];

/** Reads the samples of a task, unless the caller has them already. */
export type SampleReader = (task: TaskFiles, path: string) => SampleSet;

/** Throws UserError for samples that cannot be read. */
export function compareTask(a: TaskFiles, b: TaskFiles, read: SampleReader = readSamples): ComparedTask {
  const { task } = a;
  const notes = [
    ...differs('examples before each question', a.shots, b.shots),
    ...differs('version', a.version, b.version),
  ];
  const without = [a, b].flatMap(({ samplesPath }, i) => (samplesPath === undefined ? [i === 0 ? 'A' : 'B'] : []));
  if (a.samplesPath === undefined || b.samplesPath === undefined)
    return {
      ...none,
      task,
      metrics: [],
      notes: [...notes, `no samples_*.jsonl in ${without.join(' and ')}: questions cannot be compared one by one`],
    };
  const [setA, setB] = [read(a, a.samplesPath), read(b, b.samplesPath)];
  const matched = matchQuestions(setA, setB);
  const { pairs, onlyA, onlyB, renumbered, otherContent, otherPrompt } = matched;
  const likelihoods = compareLikelihoods(pairs) ?? null;
  const texts = compareTexts(pairs, setA, setB) ?? null;
  const { metrics, notes: left } = compareMetrics(a, pairs, setA, setB);
  const isEqual =
    pairs.length > 0 &&
    metrics.every(({ difference, flips }) => difference === 0 && (flips?.rightToWrong ?? 0) === 0) &&
    (likelihoods === null || (likelihoods.equal === likelihoods.count && likelihoods.notFinite === 0)) &&
    (texts === null || texts.equal === texts.questions) &&
    (likelihoods !== null || texts !== null);
  const unlike = pairs.filter((pair) => pair.a.lls?.length !== pair.b.lls?.length).length;
  return {
    task,
    questions: {
      common: pairs.length,
      onlyA: onlyA.length,
      onlyB: onlyB.length,
      namesOfA: onlyA.slice(0, NAMED),
      namesOfB: onlyB.slice(0, NAMED),
      renumbered,
      otherContent,
      otherPrompt,
    },
    metrics,
    likelihoods,
    texts,
    isEqual,
    choices: compareChoices(pairs) ?? null,
    notes: [
      ...notes,
      ...setA.notes,
      ...setB.notes,
      ...left,
      ...(unlike === 0 ? [] : [`${counted(unlike, 'question')} with another number of choices: answers not compared`]),
    ],
  };
}

/** Which questions two runs have in common: by number and content, else by content alone. */

/** A group of two runs: its tasks pooled as the harness pools them, on the questions that both answered. */
export interface GroupDifference {
  readonly group: string;
  /** Tasks below it that were compared, and how many it has. */
  readonly tasks: readonly string[];
  readonly of: number;
  readonly metrics: readonly MetricDifference[];
}

/** Tasks below a group, each once. Each group is looked into once: hostile ones are in circles. */
function leavesOf({ groups }: RunFiles, name: string): Set<string> {
  const found = new Set<string>();
  const seen = new Set([name]);
  for (const group of seen)
    for (const member of groups.get(group)?.members ?? [])
      if (groups.has(member)) seen.add(member);
      else found.add(member);
  return found;
}

const figureIn = (block: Block, key: string): number | undefined => {
  const value = block[key];
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
};

/** Whether the group's own figure weighs its tasks by their questions: found out from the figures of the file. */
function weighsBySize({ tasks }: RunFiles, group: GroupFiles, leaves: readonly string[], key: string): boolean {
  const stated = figureIn(group.figures, key);
  const all: TaskFigures[] = leaves.flatMap((name) => {
    const { figures = {} } = tasks.get(name) ?? {};
    const [value, documents] = [figureIn(figures, key), figureIn(figures, 'sample_len')];
    if (value === undefined || documents === undefined) return [];
    return [{ documents, figures: new Map<string, MetricFigure>([[key, { value, error: null }]]) }];
  });
  const [metric = '', filter = ''] = key.split(/,(.*)/s);
  const pooled = (weightBySize: boolean): number =>
    figuresOfGroup(all, [{ metric, filters: [filter], weightBySize }]).get(key)?.value ?? NaN;
  if (stated === undefined || all.length === 0) return true;
  return !(Math.abs(pooled(false) - stated) < Math.abs(pooled(true) - stated));
}

function compareMetric(
  run: RunFiles,
  group: GroupFiles,
  leaves: readonly string[],
  compared: readonly ComparedTask[],
  key: string,
): MetricDifference | undefined {
  const having = compared.flatMap(({ metrics }) => metrics.filter((each) => `${each.metric},${each.filter}` === key));
  const [first] = having;
  if (first === undefined) return undefined;
  const weightBySize = weighsBySize(run, group, leaves, key);
  const { metric, filter, isHigherBetter } = first;
  const pooled = (side: 'a' | 'b'): number => {
    const all = having.map((each) => ({
      documents: each.questions,
      figures: new Map<string, MetricFigure>([[key, { value: each[side], error: null }]]),
    }));
    return figuresOfGroup(all, [{ metric, filters: [filter], weightBySize }]).get(key)!.value;
  };
  const strata = having.flatMap(({ differences, questions }) =>
    differences === undefined ? [] : [{ differences, weight: weightBySize ? questions : 1 }],
  );
  const [a, b] = [pooled('a'), pooled('b')];
  const tested =
    strata.length === having.length
      ? testOfMeans(
          strata,
          having.every(({ isBinary }) => isBinary),
        )
      : { interval: null, test: null, flips: null };
  return {
    metric,
    filter,
    isHigherBetter,
    a,
    b,
    questions: having.reduce((sum, each) => sum + each.questions, 0),
    ...tested,
    difference: b - a,
  };
}

/** Groups that both runs have, the innermost first as their files list them. */
export function compareGroups(a: RunFiles, b: RunFiles, tasks: readonly ComparedTask[]): readonly GroupDifference[] {
  const byName = new Map(tasks.map((each) => [each.task, each]));
  return [...a.groups.values()].flatMap((group): readonly GroupDifference[] => {
    if (!b.groups.has(group.group)) return [];
    const leaves = [...leavesOf(a, group.group)];
    const compared = leaves.flatMap((name) => byName.get(name) ?? []);
    const keys = Object.keys(group.figures).filter((key) => key.includes(',') && !key.includes('_stderr,'));
    const metrics = keys.flatMap((key) => compareMetric(a, group, leaves, compared, key) ?? []);
    return metrics.length === 0
      ? []
      : [{ group: group.group, tasks: compared.map(({ task }) => task), of: leaves.length, metrics }];
  });
}
