/** A comparison of two runs as text. */
import type { LikelihoodDifference } from '../evaluate/compare/compareAnswers.js';
import type { MetricDifference } from '../evaluate/compare/compareMetrics.js';
import { type Comparison, shownP } from '../evaluate/compare/compareRuns.js';
import type { TaskDifference } from '../evaluate/compare/compareTask.js';
import { letter } from '../report/document/questions.js';
import { count, counted, percent, textTable } from '../system/text.js';
import { printableLine } from './print.js';

const decimal = (value: number): string => value.toFixed(4).replace('-', '−');
const signed = (value: number): string => {
  const text = Math.abs(value).toFixed(4);
  return `${Number(text) === 0 ? ' ' : value < 0 ? '−' : '+'}${text}`;
};
/** Nats: three digits that say something. */
const nats = (value: number | null): string => (value === null ? '∞' : plainNats(value).replaceAll('-', '−'));
const plainNats = (value: number): string =>
  value === 0 ? '0' : Math.abs(value) < 1e-3 ? value.toExponential(1) : value.toPrecision(3);

const TITLES = ['', 'filter', 'A', 'B', 'B − A', '95 %', 'test', 'p', 'right → wrong', 'wrong → right'] as const;
const RIGHT: ReadonlySet<number> = new Set([2, 3, 4, 8, 9]);

const pOf = ({ test }: Pick<MetricDifference, 'test'>): string =>
  test === null ? '' : shownP(test.p).replace(/^= /, '');

function row({ metric, filter, a, b, difference, interval, test, flips }: MetricDifference): string[] {
  return [
    `  ${metric}`,
    filter === 'none' ? '' : filter,
    decimal(a),
    decimal(b),
    signed(difference),
    interval === null ? '' : `${signed(interval[0])} to ${signed(interval[1])}`,
    test?.name ?? '',
    pOf({ test }),
    flips === null ? '' : String(flips.rightToWrong),
    flips === null ? '' : String(flips.wrongToRight),
  ];
}

/** Columns that are empty in all rows are left out. */
function table(metrics: readonly MetricDifference[]): string[] {
  const rows = [TITLES as readonly string[], ...metrics.map(row)];
  const kept = TITLES.map((_, i) => i).filter((i) => rows.slice(1).some((cells) => cells[i] !== ''));
  return textTable(
    rows.map((cells) => kept.map((i) => cells[i]!)),
    new Set(kept.flatMap((i, at) => (RIGHT.has(i) ? [at] : []))),
  );
}

const named = (numbers: readonly number[], all: number): string =>
  `${numbers.slice(0, 5).join(', ')}${all > 5 ? ', …' : ''}`;

function questionLines({ questions: of }: TaskDifference, { a, b }: Comparison): string[] {
  const only = (number: number, names: readonly number[], path: string): string[] =>
    number === 0 ? [] : [`  ${counted(number, 'question')} only in ${path} (${named(names, number)}): left out`];
  return [
    ...only(of.onlyA, of.namesOfA, a.path),
    ...only(of.onlyB, of.namesOfB, b.path),
    ...(of.otherContent === 0
      ? []
      : [`  ${counted(of.otherContent, 'number')} of questions mean another question in B`]),
    ...(of.renumbered === 0 ? [] : [`  ${counted(of.renumbered, 'common question')} found by content: numbers differ`]),
    ...(of.otherPrompt === 0
      ? []
      : [`  ${counted(of.otherPrompt, 'common question')} asked differently: other examples, template or wording`]),
  ];
}

function likelihoodLine(
  of: LikelihoodDifference,
  place: (docId: number, choice: number) => string = (docId, choice) => `(question ${docId}, choice ${letter(choice)})`,
): string {
  const left = of.notFinite === 0 ? '' : `; ${count(of.notFinite)} left out, which are no numbers in A or B`;
  if (of.worst === null) return `  log-likelihoods: none is a number in both${left}`;
  if (of.equal === of.count) return `  log-likelihoods: all ${count(of.count)} equal to the bit${left}`;
  const { docId, choice, difference } = of.worst;
  return (
    `  log-likelihoods: ${count(of.count)}, ${count(of.equal)} equal to the bit; mean |Δ| ${nats(of.meanAbsolute)} ` +
    `(mean Δ ${nats(of.mean)}), worst |Δ| ${nats(difference)} ${place(docId, choice)}${left}`
  );
}

const likelihoodLines = ({ likelihoods }: TaskDifference): string[] =>
  likelihoods === null ? [] : [likelihoodLine(likelihoods)];

function choiceLines({ choices: of }: TaskDifference): string[] {
  if (of === null || of.margins === null) return [];
  const { changed, questions, marginsOfChanged: margins } = of;
  if (margins === null) return [`  choices: none of ${count(questions)} changed`];
  return [
    `  choices: ${count(changed.length)} of ${count(questions)} changed (${percent(changed.length / questions, 2)}), ` +
      `at leads in A of ${nats(margins.least)} to ${nats(margins.greatest)}, half of them below ` +
      `${nats(margins.median)} (all questions: half below ${nats(of.margins.median)})`,
  ];
}

function textLines({ texts: of }: TaskDifference): string[] {
  if (of === null) return [];
  if (of.first === null) return [`  texts: all ${count(of.questions)} equal`];
  const earliest = of.differing.find(({ first }) => first === of.first!.least)!;
  return [
    `  texts: ${count(of.equal)} of ${count(of.questions)} equal (${percent(of.equal / of.questions)}); the others ` +
      `differ first at character ${of.first.least} (question ${earliest.docId}) to ${of.first.greatest}, half of ` +
      `them before ${of.first.median}`,
  ];
}

const run = (name: string, { file, model, arithmetic }: Comparison['a']): string =>
  `${name}  ${model}${arithmetic === null ? '' : `, ${arithmetic}`}  ${file}`;

/** Most tasks of groups that are shown one by one. */
const FEW = 4;

const IN_GROUPS = ['', 'questions', 'metric', 'A', 'B', 'B − A', 'p', 'mean |Δ|', 'worst |Δ|', 'changed'] as const;

/** Tasks of groups, a line each. */
function shortTable(tasks: readonly TaskDifference[]): string[] {
  const rows = tasks.map(({ task, questions, metrics: [first], likelihoods, choices }) => [
    `  ${task}`,
    count(questions.common),
    ...(first === undefined
      ? ['', '', '', '', '']
      : [first.metric, decimal(first.a), decimal(first.b), signed(first.difference), pOf(first)]),
    likelihoods === null ? '' : nats(likelihoods.meanAbsolute),
    likelihoods?.worst === undefined || likelihoods.worst === null ? '' : nats(likelihoods.worst.difference),
    choices === null ? '' : count(choices.changed.length),
  ]);
  const only = (side: 'onlyA' | 'onlyB'): number => tasks.reduce((sum, { questions }) => sum + questions[side], 0);
  const notes = new Set(tasks.flatMap(({ task, notes: all }) => all.map((note) => `  ${task}: ${note}`)));
  return [
    `${counted(tasks.length, 'task')} of groups`,
    ...(only('onlyA') > 0 ? [`  ${counted(only('onlyA'), 'question')} only in A: left out`] : []),
    ...(only('onlyB') > 0 ? [`  ${counted(only('onlyB'), 'question')} only in B: left out`] : []),
    ...notes,
    ...textTable([IN_GROUPS, ...rows], new Set([1, 3, 4, 7, 8, 9])),
  ];
}

const whole = (task: TaskDifference, of: Comparison): string[] => [
  `${task.task}: ${counted(task.questions.common, 'question')} in both`,
  ...questionLines(task, of),
  ...task.notes.map((note) => `  ${note}`),
  ...(task.metrics.length > 0 ? table(task.metrics) : []),
  ...likelihoodLines(task),
  ...choiceLines(task),
  ...textLines(task),
];

function overallLines({ tasks, overall: of }: Comparison): string[] {
  if (tasks.length < 2) return [];
  const { likelihoods, choices, texts } = of;
  const question = (docId: number, choice: number): string =>
    `(${likelihoods!.worstTask!}, question ${docId}, choice ${letter(choice)})`;
  return [
    '',
    `all tasks: ${counted(of.questions, 'question')} in both`,
    ...(likelihoods === null ? [] : [likelihoodLine(likelihoods, question)]),
    ...(choices === null
      ? []
      : [`  choices: ${count(choices.changed)} of ${count(choices.questions)} changed (${share(choices)})`]),
    ...(texts === null ? [] : [`  texts: ${count(texts.equal)} of ${count(texts.questions)} equal`]),
  ];
}

const share = ({ changed, questions }: { readonly changed: number; readonly questions: number }): string =>
  percent(questions === 0 ? 0 : changed / questions, 2);

const some = (names: readonly string[]): string =>
  `${names.slice(0, 5).join(', ')}${names.length > 5 ? ` and ${names.length - 5} more` : ''}`;

/** Lines that end with one that says what it comes to. */
export function comparisonText(of: Comparison): string {
  const lines = [run('A', of.a), run('B', of.b)];
  for (const { what, a, b } of of.unlike) lines.push(`${what} differs: ${a} in A, ${b} in B`);
  for (const [where, names] of [
    [of.a.path, of.onlyA],
    [of.b.path, of.onlyB],
  ] as const)
    if (names.length > 0) lines.push(`only in ${where}: ${some(names)}`);
  lines.push(...of.notes);
  const inGroups = new Set(of.groups.flatMap(({ tasks }) => tasks));
  const isShort = of.tasks.filter(({ task }) => inGroups.has(task)).length > FEW;
  const short = isShort ? of.tasks.filter(({ task }) => inGroups.has(task)) : [];
  for (const task of of.tasks) if (!short.includes(task)) lines.push('', ...whole(task, of));
  if (short.length > 0) lines.push('', ...shortTable(short));
  for (const { group, tasks, of: all, metrics } of of.groups) {
    const part = tasks.length === all ? counted(all, 'task') : `${tasks.length} of ${counted(all, 'task')}`;
    lines.push('', `${group} (${part}): ${counted(metrics[0]!.questions, 'question')} in both`, ...table(metrics));
  }
  lines.push(...overallLines(of), '');
  if (of.verdicts.length > 1) lines.push(...of.verdicts.map(({ line }) => line));
  lines.push(of.summary);
  // Names of tasks and metrics are those of files.
  return `${lines.map(printableLine).join('\n')}\n`;
}
