/** Tuning of a plan's functions one after another, within one budget. */
import { statusLine, type TuneProgress, type TuneResult, type TuneRow } from '../../autotune/index.js';
import { SCORE } from '../../ir/function.js';
import { linkFunction, type LinkedFunction, type Plan } from '../../ir/plan.js';
import { measuredRows } from './measured.js';
import type { MeasureOptions, Tuned, TunedFunction } from './target.js';

/** The part of what is left that `score` gets where another function follows. What it leaves is the other's. */
const SHARE_OF_SCORE = 0.5;

/** What the search for one function is told beside the function itself. */
export interface FunctionSearch<S> {
  readonly budgetSeconds: number;
  /** See SearchRequest. Calls of `step` are of every size: a few tokens in most of them, prompts in others. */
  readonly isEven: boolean;
  readonly onProgress: (progress: TuneProgress<S>) => void;
}

/**
 * Searches for schedules of each function, `score` first. Functions find each other's measurements in the database.
 * `begin`: when the budget began, in milliseconds of performance.now(). The table names the functions if there are
 * several.
 */
export async function tuneFunctions<S>(
  plan: Plan<S>,
  {
    budgetSeconds,
    begin,
    onProgress,
  }: Pick<MeasureOptions, 'budgetSeconds' | 'onProgress'> & { readonly begin: number },
  render: (rows: readonly TuneRow<S>[]) => readonly string[],
  search: (fn: LinkedFunction<S>, part: FunctionSearch<S>) => Promise<TuneResult<S>>,
): Promise<Tuned<S>> {
  const elapsedSeconds = (): number => (performance.now() - begin) / 1000;
  const names = plan.functions.map((fn) => fn.interface.name);
  names.sort((a, b) => Number(b === SCORE) - Number(a === SCORE));
  const isNamed = names.length > 1;
  const label = (name: string, rows: readonly TuneRow<S>[]): readonly TuneRow<S>[] =>
    isNamed ? measuredRows(rows).map((row) => ({ ...row, kernel: `${name}: ${row.kernel}` })) : measuredRows(rows);
  const done: TunedFunction<S>[] = [];
  const before = (): readonly TuneRow<S>[] => done.flatMap((each) => label(each.name, each.search.rows));
  for (const [i, name] of names.entries()) {
    const left = Math.max(0, budgetSeconds - elapsedSeconds());
    const found = await search(linkFunction(plan, name), {
      budgetSeconds: i === names.length - 1 ? left : SHARE_OF_SCORE * left,
      isEven: name !== SCORE,
      onProgress: (progress) => {
        const status = statusLine({ ...progress, elapsedSeconds: elapsedSeconds(), budgetSeconds });
        onProgress(render([...before(), ...label(name, progress.rows)]), isNamed ? `${name}: ${status}` : status);
      },
    });
    done.push({ name, search: found });
  }
  return { functions: done, table: render(before()) };
}
