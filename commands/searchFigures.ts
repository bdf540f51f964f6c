/** How good the answers of a search are: of each problem, and of all. */
import { answersOf, figureOf, type ProblemAnswers, valuesOf } from '../search/answers/figures.js';
import { judgeOf } from '../search/answers/judge.js';
import type { Vote } from '../search/answers/votes.js';
import { textTable } from '../system/text.js';
import type { MetricFigure } from '../tasks/scores/aggregate.js';
import type { SearchedProblem } from './searchRequest.js';

/** Names of figures: `weighted@4`. */
const NAMES: Readonly<Record<Vote | 'pass', string>> = {
  naive: 'naive',
  weighted: 'weighted',
  majority: 'maj',
  pass: 'pass',
};
/** Whether the answer of the text that the search picks is right. */
const PICKED = 'exact_match';

export interface GradedProblem {
  readonly answers: ProblemAnswers;
  /** By the names of metrics; none where the right answer is not known. */
  readonly values: ReadonlyMap<string, number>;
}

/** `n`: how many candidates were asked for. A problem that could not be searched has no right answer. */
export function gradeProblem(searched: SearchedProblem, n: number, isCompat: boolean): GradedProblem {
  const result = 'result' in searched ? searched.result : { candidates: [], picked: null };
  const { answer: gold } = searched.problem;
  const answers = answersOf(result, n, gold === undefined ? undefined : judgeOf(gold, isCompat), isCompat);
  const { right } = answers;
  if (right === undefined) return { answers, values: new Map() };
  const values = new Map([[PICKED, rightAt(right, result.picked)]]);
  for (const { size, ...at } of valuesOf(answers))
    for (const [key, name] of Object.entries(NAMES) as [Vote | 'pass', string][])
      values.set(`${name}@${size}`, at[key]);
  return { answers, values };
}

const rightAt = (right: readonly boolean[], place: number | null): number => (place !== null && right[place] ? 1 : 0);

/** Means with their standard errors, by `metric,filter` as results have them. */
export function searchFigures(graded: readonly Pick<GradedProblem, 'values'>[]): ReadonlyMap<string, MetricFigure> {
  const known = graded.filter(({ values }) => values.size > 0);
  const names = known[0]?.values.keys() ?? [];
  return new Map(
    [...names].map((name) => [`${name},none`, figureOf(known.map(({ values }) => values.get(name) ?? 0))]),
  );
}

/** Figures for people: a row for each number of candidates, `0.5312 ± 0.0443`. Empty where nothing was graded. */
export function figuresTable(found: ReadonlyMap<string, MetricFigure>): string {
  const picked = found.get(`${PICKED},none`);
  if (picked === undefined) return '';
  const names = Object.values(NAMES);
  const sizes = [...found.keys()].flatMap((key) => /^pass@(\d+),none$/.exec(key)?.[1] ?? []);
  const rows = sizes.map((size) => [size, ...names.map((name) => shown(found.get(`${name}@${size},none`)))]);
  const table = textTable([['N', ...names], ...rows], new Set([0]));
  return [`right answers: ${shown(picked)}`, ...table].join('\n');
}

const shown = (figure: MetricFigure | undefined): string =>
  figure === undefined
    ? ''
    : `${figure.value.toFixed(4)}${figure.error === null ? '' : ` ± ${figure.error.toFixed(4)}`}`;
