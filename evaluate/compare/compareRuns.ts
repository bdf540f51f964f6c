/** Two runs: what they asked alike, how their answers differ, and whether that is more than chance. */
import { UserError } from '../../errors.js';
import { count } from '../../system/text.js';
import type { LikelihoodDifference } from './compareAnswers.js';
import { type MetricDifference, SEED } from './compareMetrics.js';
import {
  type ComparedTask,
  compareGroups,
  compareTask,
  type GroupDifference,
  type SampleReader,
  type TaskDifference,
} from './compareTask.js';
import type { RunFiles } from './findRuns.js';

/** A run in a comparison. */
export interface RunOf {
  readonly path: string;
  /** The file of results. */
  readonly file: string;
  readonly model: string;
  readonly arithmetic: string | null;
}

/** All tasks together. */
export interface Overall {
  /** Common questions. */
  readonly questions: number;
  readonly likelihoods: (LikelihoodDifference & { readonly worstTask: string | null }) | null;
  /** Questions with choices, and those whose choice is another. */
  readonly choices: { readonly questions: number; readonly changed: number } | null;
  readonly texts: { readonly questions: number; readonly equal: number } | null;
}

/** The content of comparison.json. Differences are B less A. */
export interface Comparison {
  readonly comparison: 1;
  readonly a: RunOf;
  readonly b: RunOf;
  /** What the two were given that is not the same. */
  readonly unlike: readonly { readonly what: string; readonly a: string; readonly b: string }[];
  readonly onlyA: readonly string[];
  readonly onlyB: readonly string[];
  readonly tasks: readonly TaskDifference[];
  readonly groups: readonly GroupDifference[];
  readonly overall: Overall;
  /** Of every task and group that is in no group, on its first metric. */
  readonly verdicts: readonly Verdict[];
  /** In one line. */
  readonly summary: string;
  /** Of all random draws. */
  readonly seed: number;
  readonly notes: readonly string[];
}

const runOf = ({ path, file, model, arithmetic }: RunFiles): RunOf => ({
  path,
  file,
  model,
  arithmetic: arithmetic ?? null,
});

function unlike(a: RunFiles, b: RunFiles): Comparison['unlike'] {
  const names = [...new Set([...a.asked.keys(), ...b.asked.keys()])];
  return names.flatMap((what) => {
    const [one, other] = [a.asked.get(what), b.asked.get(what)];
    // Absent in files of another program: nothing is known of it.
    return one === undefined || other === undefined || one === other ? [] : [{ what, a: one, b: other }];
  });
}

const published = ({ metrics, ...task }: ComparedTask): TaskDifference => ({
  ...task,
  metrics: metrics.map(({ differences: _, isBinary: __, ...metric }) => metric),
});

interface Judged {
  readonly name: string;
  readonly metric: MetricDifference;
  readonly isEqual: boolean;
}

/** Groups that are in no other, and tasks that are in none, each with its first metric. */
function toJudge(a: RunFiles, tasks: readonly ComparedTask[], groups: readonly GroupDifference[]): Judged[] {
  const members = new Set(groups.flatMap(({ group }) => a.groups.get(group)?.members ?? []));
  const grouped = new Set(groups.flatMap((group) => group.tasks));
  const equal = new Map(tasks.map(({ task, isEqual }) => [task, isEqual]));
  const outer = groups.filter(({ group }) => !members.has(group));
  const alone = tasks.filter(({ task, metrics }) => !grouped.has(task) && metrics.length > 0);
  return [
    ...outer.map((each) => ({
      name: each.group,
      metric: each.metrics[0]!,
      isEqual: each.tasks.every((task) => equal.get(task) === true),
    })),
    ...alone.map(({ task, metrics, isEqual }) => ({ name: task, metric: metrics[0]!, isEqual })),
  ];
}

function summaryOf(judged: readonly Judged[], verdicts: readonly Verdict[], tasks: readonly ComparedTask[]): string {
  const [only] = verdicts;
  const asked = tasks.reduce((sum, { questions }) => sum + questions.common, 0);
  if (only === undefined) {
    return asked > 0 && tasks.every(({ isEqual }) => isEqual)
      ? `B and A answer the same, to the bit, ${inAll(asked)}`
      : 'there is no metric that both runs have: nothing is tested';
  }
  if (verdicts.length === 1) return only.line;
  if (verdicts.every(({ finding }) => finding === 'equal'))
    return `B and A answer the same, to the bit, ${inAll(asked)}`;
  const tested = judged.flatMap(({ name, metric }) => (metric.test === null ? [] : [{ name, metric }]));
  const adjusted = holm(tested.map(({ metric }) => metric.test!.p));
  const apart = tested.filter(({ metric }, i) => adjusted[i]! < LEVEL && metric.difference !== 0);
  const kept = `no difference within the error in ${tested.length - apart.length} of ${tested.length}`;
  if (apart.length === 0) return `${kept} (5 % for all of them together, by Holm's rule)`;
  const names = (isUp: boolean): string =>
    apart
      .filter(({ metric }) => metric.difference > 0 === isUp)
      .map(({ name, metric }) => `${name} (${metric.metric})`)
      .join(', ');
  const [up, down] = [names(true), names(false)];
  const said = [...(up === '' ? [] : [`B is higher in ${up}`]), ...(down === '' ? [] : [`B is lower in ${down}`])];
  return `${said.join('; ')}; ${kept} (5 % for all of them together, by Holm's rule)`;
}

function overallOf(tasks: readonly TaskDifference[]): Overall {
  const total = (of: (task: TaskDifference) => number | undefined): number =>
    tasks.reduce((sum, task) => sum + (of(task) ?? 0), 0);
  const has = (name: 'likelihoods' | 'choices' | 'texts'): boolean => tasks.some((task) => task[name] !== null);
  const count = total(({ likelihoods }) => likelihoods?.count);
  const mean = (name: 'mean' | 'meanAbsolute'): number =>
    count === 0 ? 0 : total(({ likelihoods: of }) => (of === null ? 0 : of[name] * of.count)) / count;
  const worst = tasks.reduce<TaskDifference | undefined>((most, task) => {
    const size = (of: TaskDifference | undefined): number => of?.likelihoods?.worst?.difference ?? -1;
    return size(task) > size(most) ? task : most;
  }, undefined);
  return {
    questions: total(({ questions }) => questions.common),
    likelihoods: has('likelihoods')
      ? {
          count,
          mean: mean('mean'),
          meanAbsolute: mean('meanAbsolute'),
          equal: total(({ likelihoods }) => likelihoods?.equal),
          notFinite: total(({ likelihoods }) => likelihoods?.notFinite),
          worst: worst?.likelihoods?.worst ?? null,
          worstTask: worst?.task ?? null,
        }
      : null,
    choices: has('choices')
      ? {
          questions: total(({ choices }) => choices?.questions),
          changed: total(({ choices }) => choices?.changed.length),
        }
      : null,
    texts: has('texts')
      ? { questions: total(({ texts }) => texts?.questions), equal: total(({ texts }) => texts?.equal) }
      : null,
  };
}

/** Throws UserError where nothing can be compared. */
export function compareFiles(a: RunFiles, b: RunFiles, read?: SampleReader): Comparison {
  const names = [...a.tasks.keys()];
  const common = names.filter((name) => b.tasks.has(name));
  const listed = (tasks: readonly string[]): string =>
    `${tasks.slice(0, 5).join(', ')}${tasks.length > 5 ? ` and ${tasks.length - 5} more` : ''}`;
  if (common.length === 0)
    throw new UserError(
      `no task is in both: ${a.path} has ${listed(names)}, ${b.path} has ${listed([...b.tasks.keys()])}`,
      'Compare runs of the same tasks',
    );
  const tasks = common.map((name) => compareTask(a.tasks.get(name)!, b.tasks.get(name)!, read));
  if (tasks.every(({ questions }) => questions.common === 0)) {
    const [first] = tasks;
    const { onlyA, onlyB } = first!.questions;
    const note = onlyA + onlyB === 0 ? first!.notes.at(-1) : undefined;
    throw new UserError(
      note === undefined
        ? `no question is in both: of ${first!.task}, ${a.path} has ${onlyA} and ${b.path} has ${onlyB}`
        : `${first!.task}: ${note}`,
      note === undefined ? 'Compare runs over the same data' : 'Run again without --log_samples false',
    );
  }
  const groups = compareGroups(a, b, tasks);
  const judged = toJudge(a, tasks, groups);
  const verdicts = judged.map(({ name, metric, isEqual }) => verdictOf(name, metric, isEqual, judged.length === 1));
  const unfinished = [a, b].flatMap(({ path, unfinished: missing }) =>
    missing.length === 0 ? [] : [`${path}: the run is not finished: it lacks ${listed(missing)}`],
  );
  return {
    comparison: 1,
    a: runOf(a),
    b: runOf(b),
    unlike: unlike(a, b),
    onlyA: names.filter((name) => !b.tasks.has(name)),
    onlyB: [...b.tasks.keys()].filter((name) => !a.tasks.has(name)),
    tasks: tasks.map(published),
    groups,
    verdicts,
    seed: SEED,
    notes: unfinished,
    overall: overallOf(tasks),
    summary: summaryOf(judged, verdicts, tasks),
  };
}

/** What a comparison comes to, in a line that a person understands. */

export type Finding = 'equal' | 'no difference' | 'better' | 'worse' | 'different' | 'untested';

export interface Verdict {
  /** Of a task or a group. */
  readonly name: string;
  readonly metric: string;
  readonly finding: Finding;
  readonly line: string;
}

/** Differences of which chance alone would make as large ones in fewer than one of twenty comparisons. */
export const LEVEL = 0.05;

const minus = (text: string): string => text.replace('-', '−');
const sign = (value: number, digits: number): string => {
  const text = Math.abs(value).toFixed(digits);
  return Number(text) === 0 ? text : minus(`${value < 0 ? '-' : '+'}${text}`);
};

/** `0.12`, `0.0004`, `< 0.0001` */
export const shownP = (p: number): string => (p < 0.0001 ? '< 0.0001' : `= ${p < 0.01 ? p.toFixed(4) : p.toFixed(2)}`);

/** Whether a metric is a share: then differences are in points, which are hundredths. */
export const isShare = ({ flips }: Pick<MetricDifference, 'flips'>): boolean => flips !== null;

/** Digits by which the difference and its interval can be told from 0. */
function digitsFor(values: readonly number[]): number {
  const least = Math.min(...values.map(Math.abs).filter((each) => each > 0));
  return least >= 0.1
    ? 1
    : least >= 0.01
      ? 2
      : Number.isFinite(least)
        ? Math.min(6, Math.ceil(-Math.log10(least)) + 1)
        : 1;
}

function findingOf({ difference, test, isHigherBetter }: MetricDifference): Finding {
  if (test === null) return 'untested';
  if (test.p >= LEVEL || difference === 0) return 'no difference';
  return isHigherBetter === undefined ? 'different' : difference > 0 === isHigherBetter ? 'better' : 'worse';
}

/** `in all 136 questions` */
export const inAll = (questions: number): string =>
  questions === 1 ? 'in the only question' : `in all ${count(questions)} questions`;

/** `name`: left out of the line where there is only one. */
export function verdictOf(name: string, of: MetricDifference, isEqual: boolean, isOnly: boolean): Verdict {
  const { metric, filter, difference, interval, test, questions } = of;
  const what = `${isOnly ? '' : `${name}: `}`;
  if (isEqual)
    return {
      name,
      metric,
      finding: 'equal',
      line: `${what}B and A answer the same, to the bit, ${inAll(questions)}`,
    };
  const scale = isShare(of) ? 100 : 1;
  const digits = isShare(of) ? Math.min(2, digitsFor([difference * 100])) : digitsFor([difference]);
  const size = Math.abs(difference * scale).toFixed(digits);
  const unit = isShare(of) ? (size === '1.0' ? ' point' : ' points') : '';
  const where = `in ${metric}${filter === 'none' ? '' : ` (${filter})`}`;
  const moved =
    Number(size) === 0
      ? `B and A are equal ${where}`
      : `B is ${size}${unit} ${difference < 0 ? 'lower' : 'higher'} ${where}`;
  const facts = [
    ...(interval === null
      ? []
      : [`95 %: ${sign(interval[0] * scale, digits)} to ${sign(interval[1] * scale, digits)}`]),
    ...(test === null ? [] : [`p ${shownP(test.p)}`]),
  ].join('; ');
  const finding = findingOf(of);
  const words: Readonly<Record<Finding, string>> = {
    equal: '',
    'no difference': ': no difference within the error',
    better: ': B is better',
    worse: ': B is worse',
    different: ': more than chance explains',
    untested: '',
  };
  return { name, metric, finding, line: `${what}${moved}${facts === '' ? '' : ` (${facts})`}${words[finding]}` };
}

/** p-values of several comparisons, made larger so that all of them together err in one of twenty (Holm 1979). */
export function holm(values: readonly number[]): number[] {
  const order = values.map((p, i) => ({ p, i })).sort((a, b) => a.p - b.p);
  const adjusted = values.slice();
  let most = 0;
  order.forEach(({ p, i }, rank) => {
    most = Math.max(most, Math.min(1, p * (values.length - rank)));
    adjusted[i] = most;
  });
  return adjusted;
}
